"""The time left, shown: on a terminal, in a notebook, in a log."""

from __future__ import annotations

import contextlib
import json
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

from bayeslaw._base.files import atomic_write
from bayeslaw._base.machine.runtime import cache_folder, own_cache_folder
from bayeslaw._base.progress.time_left import Progress, TimeLeft, time_text
from bayeslaw._base.terminal import printable

# seconds a job is taken for that was never timed here
UNTIMED = 60.0
# times as long as last time is a job taken for at first: what is said cannot rise
MARGIN = 1.25
FIRST_LINE, EVERY = 1.0, 10.0  # seconds before the first line of a log, and between two
NOTEBOOK_EVERY = 1.0
TIMES = "took.json"  # in the cache folder: seconds by what was done


@contextlib.contextmanager
def progress_bar(what: str, expected: float | None = None) -> Iterator[Progress]:
    """Show how far a job is and how long it still takes, from its first second on.

    A bar on a terminal; in a notebook a line that changes; elsewhere, on stderr, a line
    every ten seconds. The time left only falls. ::

        with bayeslaw.progress_bar("average") as progress:
            average = bayeslaw.average(runs, progress=progress)

    Parameters
    ----------
    what
        Name of the job. How long it took is kept beside the compiled programs, for the
        next job of this name.
    expected
        Seconds that it is taken for where none of this name was timed here.

    Yields
    ------
    progress
        To be handed to a function that takes ``progress``, or called with what is done
        and how much there is.
    """
    what = printable(what)
    last_time = _times().get(what)
    left = TimeLeft(MARGIN * last_time if last_time else expected or UNTIMED)
    with _shown(what, left):
        yield left.tell
        left.finish()
    _keep(what, left.passed)


# -- how long jobs took ----------------------------------------------------------------


def _file() -> Path | None:
    folder = cache_folder()
    return None if folder is None else folder / TIMES


def _times() -> dict[str, float]:
    """Seconds by name of a job; none where nothing can be read."""
    path = _file()
    try:
        kept = json.loads(path.read_text()) if path else {}
    except (OSError, ValueError, RecursionError):  # absent, or not as it was written
        return {}
    is_sound = isinstance(kept, dict)
    return {n: s for n, s in kept.items() if _is_time(s)} if is_sound else {}


def _is_time(given: Any) -> bool:
    return isinstance(given, int | float) and 0 < given < math.inf


def _keep(what: str, seconds: float) -> None:
    folder = own_cache_folder()
    if folder is None:
        return
    path = folder / TIMES
    # a full or foreign disk is no reason to fail a job that is done
    with contextlib.suppress(OSError), atomic_write(path) as part:
        part.write_text(json.dumps(_times() | {what: round(seconds, 2)}))


# -- where it is shown -----------------------------------------------------------------


def _shown(what: str, left: TimeLeft) -> contextlib.AbstractContextManager[None]:
    if _is_notebook():
        return _in_notebook(what, left)
    if sys.stderr.isatty():
        return _on_terminal(what, left)
    return _in_log(what, left)


def _is_notebook() -> bool:
    """Whether a kernel runs this: without one, IPython has a terminal or nothing."""
    ipython: Any = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


def _line(what: str, left: TimeLeft) -> str:
    return f"{what}: {left.share:.0%}, about {time_text(left.seconds())} left"


def _last_line(what: str, left: TimeLeft) -> str:
    return f"{what}: done in {time_text(left.passed)}"


@contextlib.contextmanager
def _ticking(first: float, every: float, show: Callable[[], None]) -> Iterator[None]:
    """Show now and then, in a thread, until the job is over."""
    over = Event()

    def ticks() -> None:
        pause = first
        while not over.wait(pause):
            show()
            pause = every

    thread = Thread(target=ticks, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextlib.contextmanager
def _in_log(what: str, left: TimeLeft) -> Iterator[None]:
    """Lines on stderr; of a job of less than a second none."""
    stream, lines = sys.stderr, []

    def show() -> None:
        lines.append(_line(what, left))
        print(lines[-1], file=stream, flush=True)

    with _ticking(FIRST_LINE, EVERY, show):
        yield
    if lines:
        print(_last_line(what, left), file=stream, flush=True)


@contextlib.contextmanager
def _in_notebook(what: str, left: TimeLeft) -> Iterator[None]:
    """One line, written anew each second."""
    from IPython.display import display  # pyright: ignore[reportMissingImports]

    def shown(line: str) -> dict[str, str]:
        return {"text/plain": line}

    line: Any = display(shown(_line(what, left)), raw=True, display_id=True)
    every = NOTEBOOK_EVERY
    with _ticking(
        every, every, lambda: line.update(shown(_line(what, left)), raw=True)
    ):
        yield
    line.update(shown(_last_line(what, left)), raw=True)


@contextlib.contextmanager
def _on_terminal(what: str, left: TimeLeft) -> Iterator[None]:
    """A bar, with the time left."""
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, ProgressColumn, TextColumn
    from rich.progress import Progress as Bar
    from rich.text import Text

    class Told(ProgressColumn):
        """The share and the time left, asked for each time the bar is drawn."""

        def render(self, task: Any) -> Text:
            if task.finished:
                return Text(f"done in {time_text(left.passed)}")
            said = time_text(left.seconds())
            return Text(f"{left.share:.0%}, about {said} left")

    class Filled(BarColumn):
        """As much of the bar as is done."""

        def render(self, task: Any) -> Any:
            task.completed = left.share
            return super().render(task)

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), Filled(), Told())
    with Bar(*columns, console=console, refresh_per_second=4) as bar:
        task = bar.add_task(escape(what), total=1.0)
        yield
        bar.update(task, completed=1.0)

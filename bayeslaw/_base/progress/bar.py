"""Show the time left on a terminal, in a notebook or in a log."""

from __future__ import annotations

import contextlib
import json
import math
import sys
from collections.abc import Callable, Iterator
from threading import Event, Thread
from typing import Any

from bayeslaw._base.files import atomic_write
from bayeslaw._base.machine.cache import cache_folder, own_cache_folder
from bayeslaw._base.progress.time_left import Progress, TimeLeft, time_text
from bayeslaw._base.terminal import printable

TIMES = "took.json"  # file in the cache folder: name of a job -> seconds


@contextlib.contextmanager
def progress_bar(what: str, expected: float | None = None) -> Iterator[Progress]:
    """Show how far a job is and how long it still takes, from its first second on. On a
    terminal this is a bar, in a notebook a line that changes, elsewhere a line on
    stderr every ten seconds. The time left only falls. ::

        with bayeslaw.progress_bar("average") as progress:
            average = bayeslaw.average(runs, progress=progress)

    Parameters
    ----------
    what
        Name of the job. Its time is kept beside the compiled programs, for the next job
        with this name.
    expected
        Seconds assumed if no job with this name was timed here.

    Yields
    ------
    progress
        Pass it to a function that takes ``progress``, or call it with the amount that
        is done and the total.

    Examples
    --------
    >>> with bayeslaw.progress_bar("a fit") as progress:
    ...     fitted = bayeslaw.fit(pretrained, "chinchilla", preview=True, progress=progress)
    """
    what = printable(what)
    last_time = _times().get(what)
    # begin with more than the last time, because the time left only falls
    time_left = TimeLeft(1.25 * last_time if last_time else expected or 60.0)
    with _shown(what, time_left):
        yield time_left.tell
        time_left.finish()
    _keep(what, time_left.passed)


# -- how long jobs took ----------------------------------------------------------------


def _times() -> dict[str, float]:
    """Read seconds by name of a job; empty if nothing can be read."""
    folder = cache_folder()
    try:
        seconds_by_job = json.loads((folder / TIMES).read_text()) if folder else {}
    except (OSError, ValueError, RecursionError):  # absent, or damaged
        return {}
    if not isinstance(seconds_by_job, dict):
        return {}
    numbers = {n: s for n, s in seconds_by_job.items() if isinstance(s, int | float)}
    return {name: s for name, s in numbers.items() if 0 < s < math.inf}


def _keep(what: str, seconds: float) -> None:
    """Remember how long a job took, for the next estimate of its time left."""
    folder = own_cache_folder()
    if folder is None:
        return
    path = folder / TIMES
    # a disk that is full or read-only must not fail a finished job
    with contextlib.suppress(OSError), atomic_write(path) as part:
        part.write_text(json.dumps(_times() | {what: round(seconds, 2)}))


# -- where it is shown -----------------------------------------------------------------


def _shown(what: str, time_left: TimeLeft) -> contextlib.AbstractContextManager[None]:
    """Choose how progress is shown: in a notebook, on a terminal, or as lines in a log."""
    if _is_notebook():
        return _in_notebook(what, time_left)
    if sys.stderr.isatty():
        return _on_terminal(what, time_left)
    return _in_log(what, time_left)


def _is_notebook() -> bool:
    """Tell whether a notebook kernel runs this, not IPython on a terminal."""
    ipython: Any = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


def _line(what: str, time_left: TimeLeft) -> str:
    return f"{what}: {time_left.share:.0%}, {_left(time_left)}"


def _left(time_left: TimeLeft) -> str:
    """Say the time left; the time so far where the estimate has run out."""
    if time_left.is_late:
        return f"longer than expected, {time_text(time_left.passed)} so far"
    return f"about {time_text(time_left.seconds())} left"


def _last_line(what: str, time_left: TimeLeft) -> str:
    return f"{what}: done in {time_text(time_left.passed)}"


@contextlib.contextmanager
def _ticking(first: float, every: float, show: Callable[[], None]) -> Iterator[None]:
    """Show progress at intervals, in a thread, until the job is over."""
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
def _in_log(
    what: str, time_left: TimeLeft, first: float = 1.0, every: float = 10.0
) -> Iterator[None]:
    """Print lines on stderr: after ``first`` seconds, then each ``every``."""
    stream, lines = sys.stderr, []

    def show() -> None:
        lines.append(_line(what, time_left))
        print(lines[-1], file=stream, flush=True)

    with _ticking(first, every, show):
        yield
    if lines:
        print(_last_line(what, time_left), file=stream, flush=True)


@contextlib.contextmanager
def _in_notebook(what: str, time_left: TimeLeft) -> Iterator[None]:
    """Show one line and rewrite it each second."""
    from IPython.display import display  # pyright: ignore[reportMissingImports]

    def shown(line: str) -> dict[str, str]:
        return {"text/plain": line}

    line: Any = display(shown(_line(what, time_left)), raw=True, display_id=True)

    def show() -> None:
        line.update(shown(_line(what, time_left)), raw=True)

    with _ticking(1.0, 1.0, show):
        yield
    line.update(shown(_last_line(what, time_left)), raw=True)


@contextlib.contextmanager
def _on_terminal(what: str, time_left: TimeLeft) -> Iterator[None]:
    """Show a bar, with the time left."""
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, ProgressColumn, TextColumn
    from rich.progress import Progress as Bar
    from rich.text import Text

    class Told(ProgressColumn):
        """Show the share and the time left, computed each time the bar is drawn."""

        def render(self, task: Any) -> Text:
            if task.finished:
                return Text(f"done in {time_text(time_left.passed)}")
            return Text(f"{time_left.share:.0%}, {_left(time_left)}")

    class Filled(BarColumn):
        """Fill the bar by the share that is done."""

        def render(self, task: Any) -> Any:
            task.completed = time_left.share
            return super().render(task)

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), Filled(), Told())
    with Bar(*columns, console=console, refresh_per_second=4) as bar:
        task = bar.add_task(escape(what), total=1.0)
        yield
        bar.update(task, completed=1.0)

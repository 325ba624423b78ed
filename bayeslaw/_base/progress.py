"""How far a job is and how long it still takes: on a terminal, in a notebook, in a log.

Functions that take minutes call ``progress(done, total)``. `Stages` makes one such count
of a job's many, `TimeLeft` makes seconds of it, and `progress_bar` shows them.
"""

from __future__ import annotations

import contextlib
import json
import math
import sys
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import partial
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

from bayeslaw._base.files import atomic_write
from bayeslaw._base.runtime import cache_folder

Progress = Callable[[int, int], None]  # told of what is done, and of how much
WHOLE = 1000  # in which `Stages` counts
MINUTE = 60.0
# seconds a job is taken for that was never timed here
UNTIMED = 60.0
# times as long as last time is a job taken for at first: what is said cannot rise
MARGIN = 1.25
SMOOTH = 5.0  # seconds in which what was said too long is mostly taken back
# share of a job that what it was taken for counts as, at its beginning
PRIOR_SHARE = 0.1
FIRST_LINE, EVERY = 1.0, 10.0  # seconds before the first line of a log, and between two
NOTEBOOK_EVERY = 1.0
TIMES = "took.json"  # in the cache folder: seconds by what was done


class Stages:
    """Stages of one job, each with its own count, told as one that never falls.

    Parameters
    ----------
    progress
        Told of the whole; None tells nobody.
    shares
        Of the whole that each stage takes, in any unit.
    """

    def __init__(self, progress: Progress | None, shares: Mapping[Any, float]):
        whole = sum(shares.values())
        self._progress = progress
        self._shares = {stage: share / whole for stage, share in shares.items()}
        self._done = dict.fromkeys(shares, 0.0)
        self._lock = Lock()  # stages run in threads

    def of(self, stage: Hashable) -> Progress:
        """What a stage tells of itself."""
        return partial(self._tell, stage)

    def finish(self, stage: Hashable) -> None:
        """The stage is done, whether it told anything or not."""
        self._tell(stage, 1, 1)

    def _tell(self, stage: Hashable, done: int, total: int) -> None:
        with self._lock:
            share = min(1.0, done / total) if total else 0.0
            self._done[stage] = max(self._done[stage], share)
            whole = sum(self._shares[each] * x for each, x in self._done.items())
            if self._progress is not None:
                self._progress(round(WHOLE * whole), WHOLE)


class TimeLeft:
    """Seconds that a job still takes, told so that they only fall, to 0 at its end.

    Parameters
    ----------
    expected
        Seconds that the job is taken for before it has told anything.
    clock
        Seconds since any moment.
    """

    def __init__(self, expected: float, clock: Callable[[], float] = time.monotonic):
        self._clock, self._began = clock, clock()
        self._expected = expected
        self._share, self._share_at = 0.0, 0.0
        self._said, self._said_at = expected, 0.0
        self._lock = Lock()

    @property
    def share(self) -> float:
        """How much of the job is done."""
        return self._share

    @property
    def passed(self) -> float:
        """Seconds since the job began."""
        return self._clock() - self._began

    def tell(self, done: int, total: int) -> None:
        """So much of the job is done; less than before is passed over."""
        share = min(1.0, done / total) if total else 0.0
        with self._lock:
            self._advance()  # what was said until now was by what was known
            if share > self._share:
                self._share, self._share_at = share, self.passed

    def finish(self) -> None:
        """The job is over."""
        with self._lock:
            self._share, self._said = 1.0, 0.0

    def seconds(self) -> float:
        """The time left."""
        with self._lock:
            self._advance()
            return self._said

    def _advance(self) -> None:
        now = self.passed
        since = now - self._said_at
        estimate = self._estimate(now)
        too_much = self._said - (estimate + since)
        if too_much > 0:
            falling = estimate + too_much * math.exp(-since / SMOOTH)
            self._said = min(self._said, falling)
        else:
            # It cannot rise: it falls slower than the clock, to reach 0 together with
            # the estimate.
            self._said *= estimate / (estimate + since)
        self._said_at = now

    def _estimate(self, now: float) -> float:
        """Seconds left by the pace so far, which weighs more the more is done."""
        prior = PRIOR_SHARE * (1 - self._share)
        whole = (self._share_at + prior * self._expected) / (self._share + prior)
        # A job that is silent for longer than it should be goes on for as long.
        return max(whole - now, now - self._share_at, 1e-9)


def time_text(seconds: float) -> str:
    """2 min 10 s; from two minutes on in steps of 5 s, as nobody knows it better."""
    whole = int(seconds)
    if whole >= 2 * MINUTE:
        whole -= whole % 5
    minutes, rest = divmod(whole, int(MINUTE))
    if not minutes:
        return f"{rest} s"
    return f"{minutes} min {rest} s" if rest else f"{minutes} min"


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
    except (OSError, ValueError):  # absent, or not as it was written
        return {}
    is_sound = isinstance(kept, dict)
    return {n: s for n, s in kept.items() if _is_time(s)} if is_sound else {}


def _is_time(given: Any) -> bool:
    return isinstance(given, int | float) and given > 0


def _keep(what: str, seconds: float) -> None:
    path = _file()
    if path is None:
        return
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
        task = bar.add_task(what, total=1.0)
        yield
        bar.update(task, completed=1.0)

"""Estimate how far a job of several stages is, and how long it still takes. Functions
that take minutes call ``progress(done, total)``. `Stages` merges the counts of a job's
stages into one, and `TimeLeft` turns that count into seconds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from threading import Lock
from typing import Any

Progress = Callable[[int, int], None]  # called with what is done, and with the total


class Stages:
    """Merge the counts of a job's stages into one count that never falls.

    Parameters
    ----------
    progress
        Called with the merged count; None calls nothing.
    shares
        Share of the whole that each stage takes, in any unit.
    """

    def __init__(self, progress: Progress | None, shares: Mapping[Any, float]):
        total = sum(shares.values())
        self._progress = progress
        self._shares = {stage: share / total for stage, share in shares.items()}
        self._done = dict.fromkeys(shares, 0.0)
        self._lock = Lock()  # stages run in threads

    def of(self, stage: Hashable) -> Progress:
        """Make the function to which a stage reports its progress."""
        return partial(self._tell, stage)

    def finish(self, stage: Hashable) -> None:
        """Mark the stage as done, whether it reported anything or not."""
        self._tell(stage, 1, 1)

    def _tell(self, stage: Hashable, done: int, total: int) -> None:
        """Count a stage's progress, and report the whole job's in thousandths."""
        with self._lock:
            share = min(1.0, done / total) if total else 0.0
            self._done[stage] = max(self._done[stage], share)
            if self._progress is None:
                return
            share = sum(self._shares[name] * x for name, x in self._done.items())
            self._progress(round(1000 * share), 1000)


class TimeLeft:
    """Estimate the seconds that a job still takes; the stated time only falls, to 0 at
    the end.

    Parameters
    ----------
    expected
        Seconds assumed for the job before it reports anything.
    clock
        Seconds since any moment.
    """

    def __init__(self, expected: float, clock: Callable[[], float] = time.monotonic):
        self._clock, self._began = clock, clock()
        self._expected = expected
        self._share, self._share_at = 0.0, 0.0
        self._said, self._said_at = expected, 0.0
        self._shown = 0.0  # the largest share of its time that was stated
        self._lock = Lock()

    @property
    def share(self) -> float:
        """State the share of the job's time that has passed, by the estimate of what is
        left. It never falls, rises also while nothing is reported, and is at most 99%
        before all is done.
        """
        if self._share == 1.0:
            return 1.0
        with self._lock:
            self._advance()
            left = max(self._said, self._estimate(self.passed))
            share = min(0.99, self.passed / (self.passed + left))
            self._shown = max(self._shown, share)
            return self._shown

    @property
    def is_late(self) -> bool:
        """Tell whether the estimate has left the stated time, which cannot rise, far
        behind: it is over twice as long, and over five seconds longer.
        """
        with self._lock:
            self._advance()
            return self._estimate(self.passed) > max(2 * self._said, self._said + 5)

    @property
    def passed(self) -> float:
        """Count the seconds since the job began."""
        return self._clock() - self._began

    def tell(self, done: int, total: int) -> None:
        """Report how much of the job is done; a smaller share than before is ignored."""
        share = min(1.0, done / total) if total else 0.0
        with self._lock:
            self._advance()  # update the stated time before the new share counts
            if share > self._share:
                self._share, self._share_at = share, self.passed

    def finish(self) -> None:
        """Mark the job as over."""
        with self._lock:
            self._share, self._said = 1.0, 0.0

    def seconds(self) -> float:
        """Compute the time left."""
        with self._lock:
            self._advance()
            return self._said

    def _advance(self) -> None:
        """Update the stated time left, which falls and never rises."""
        now = self.passed
        since = now - self._said_at
        estimate = self._estimate(now)
        too_much = self._said - (estimate + since)
        if too_much > 0:
            # the difference falls by a factor of e every 5 s
            falling = estimate + too_much * math.exp(-since / 5)
            self._said = min(self._said, falling)
        else:
            # The stated time cannot rise. So it falls more slowly than the clock, and
            # reaches 0 together with the estimate.
            self._said *= estimate / (estimate + since)
        self._said_at = now

    def _estimate(self, now: float) -> float:
        """Estimate the seconds left; the pace so far weighs more as more is done."""
        # at the start the assumed time counts as a tenth of the job
        prior = 0.1 * (1 - self._share)
        duration = (self._share_at + prior * self._expected) / (self._share + prior)
        # If a job is silent for longer than expected, assume it goes on for as long
        # again.
        return max(duration - now, now - self._share_at, 1e-9)


def time_text(seconds: float) -> str:
    """Write 2 min 10 s; from two minutes on in the steps of 5 s that are known."""
    rounded = int(seconds)
    if rounded >= 120:
        rounded -= rounded % 5
    minutes, remainder = divmod(rounded, 60)
    if not minutes:
        return f"{remainder} s"
    return f"{minutes} min {remainder} s" if remainder else f"{minutes} min"

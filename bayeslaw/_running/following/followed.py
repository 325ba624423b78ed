"""Define the records of a followed run: everything that a screen shows and JSON stores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pandas as pd

from bayeslaw._base.numbers import format_chance, format_count, format_interval
from bayeslaw._base.schema import INTERVAL
from bayeslaw._base.shown import InJson, Shown
from bayeslaw._base.terminal import printable
from bayeslaw._running.following.course import UNITS

SURPRISING, UNUSUAL = 0.01, 0.1

# possible faults of a run above, or below, its forecast
REASONS = {
    "above": (
        "a learning rate too high or too low, damaged or other data, another share of "
        "replay or another checkpoint than was said"
    ),
    "below": (
        "a learning rate too low (a source loss that hardly moves), validation text among the training data, another validation set or tokenizer, "
        "more tokens trained than logged"
    ),
}

BEFORE = "before_median before_low before_high"
FINAL = "final_median final_low final_high"


@dataclass(frozen=True, eq=False)
class Followed(InJson):
    """One domain's loss along a run. Losses in nats per token.

    Parameters
    ----------
    unit
        Unit of the run's length: ``"D"``, tokens, or ``"step"``.
    points
        Number of points that were used.
    final, final_before
        The loss at the planned end, now and before the run's points: ``D`` (or
        ``step``), ``median``, ``low``, ``high``.
    foreseen
        Forecast from before the run, from its first point to its end:
        ``before_median``, ``before_low``, ``before_high``.
    path
        Forecast from the last point to the end, and the forecast from before the run.
    replays
        The end at other shares of replay from here on (`Track.replays`).
    schedules
        The end by other schedules from here on (`Track.schedules`); ``saved``: tokens
        (or steps) fewer than planned, below 0 if more.
    history
        A row for each point that was used: tokens (or steps) ``at``, its ``loss``, its
        forecast by the points before it (``median``, ``low``, ``high``); and with it
        that of the end (``final_median``, ...), ``probability`` and ``surprise``.
    max_loss
        The promised limit on the loss; None without a promise.
    probability, probability_before
        Probability that the end keeps the promise, now and before the run's points; NaN
        without a promise.
    surprise
        Share of simulated runs that stray at least as far from the forecast.
    side
        Whether the run is ``"above"`` or ``"below"`` the forecast from before it; empty
        without points.
    known_from
        Tokens (or steps) from which on the end is known with the accuracy asked for.
    least
        The least loss, if the run has passed it: ``at`` (tokens or steps), ``loss``, and
        ``rise``, the share by which the last loss is higher. None otherwise.
    khat, effective_draws
        Diagnostics of the weights of the posterior's draws.
    notes
        Points that were left out, and reasons to distrust the answer.
    """

    unit: str
    points: int
    final: dict[str, float]
    final_before: dict[str, float]
    foreseen: pd.DataFrame
    path: pd.DataFrame
    replays: pd.DataFrame
    schedules: pd.DataFrame
    history: pd.DataFrame
    max_loss: float | None
    probability: float
    probability_before: float
    surprise: float
    side: str
    known_from: float | None
    least: dict[str, float] | None
    khat: float
    effective_draws: float
    notes: tuple[str, ...]

    KEYS: ClassVar = {
        "*": ...,
        "final final_before": f"D? step? {INTERVAL}",
        "verdict": (str, "Whether the run is as foreseen, unusual or surprising."),
        "foreseen": [f"D? step? {BEFORE}"],
        "path": [f"D? step? {BEFORE} {INTERVAL}"],
        "replays": [f"replay probability {INTERVAL}"],
        "schedules": [
            {"schedule": str, f"D? step? probability saved {INTERVAL}": float}
        ],
        "history": [f"at loss probability surprise {INTERVAL} {FINAL}"],
        "least": "at loss rise",
    }

    @property
    def verdict(self) -> str:
        """Describe whether the run has passed its least loss, and how surprising it is."""
        surprise = "as foreseen"
        if self.points and self.surprise < UNUSUAL:
            rare = f"one foreseen run in {1 / self.surprise:.0f} strays as far"
            surprise = f"unusual: {rare}"
            if self.surprise < SURPRISING:
                look = f"look at {REASONS[self.side]}"
                surprise = f"surprising: {rare}, {self.side}; {look}"
        if self.least is None:
            return surprise
        past = (
            f"past its least loss, {self.least['loss']:.4g} at "
            f"{format_count(self.least['at'])} {UNITS[self.unit]}: up by "
            f"{self.least['rise']:.1%} since"
        )
        return past if surprise == "as foreseen" else f"{past}; {surprise}"


@dataclass(frozen=True)
class Decision:
    """What to do, and why.

    Parameters
    ----------
    action
        ``"go on"``: the planned end keeps the promises with the confidence asked for.
        ``"stop early"``: a run that stops at ``stop_at`` keeps them with this
        confidence, too. ``"stop"``: the planned end breaks a promise with this
        confidence, or a loss has passed its least. ``"wait"``: neither is sure yet.
    reason
        Reason for the action, in words.
    stop_at, saved
        Tokens (or steps) at which to stop, and the share of the planned run that is
        saved; None if it goes to its end.
    needed
        Tokens (or steps) of a longer run that would keep the promises, the fewest that
        were found; None if none were found, or no longer run is needed.
    replay, replay_probability
        Another share of replay from here on that keeps the promises more probably, and
        that probability; None if there is none, or the run goes well.
    schedule, schedule_probability
        Another schedule from here on that keeps the promises more probably, and that
        probability; None if there is none, or the run goes well.
    look_again, sure_by_then
        Tokens (or steps) at which the answer is sure with a probability of about a
        half, and that probability; None if it is sure now.
    least_at
        Tokens (or steps) of the least loss, if it has risen since and its law does not
        (`Track.risen`): the checkpoint to keep. None otherwise.
    regret
        Expected waste in tokens (or steps). Going on wastes the tokens still to come if
        a promise breaks. Stopping wastes the whole run if it would have kept the
        promises, because it must then be made again.
    """

    action: Literal["go on", "stop early", "stop", "wait"]
    reason: str
    stop_at: float | None = None
    saved: float = 0.0
    needed: float | None = None
    replay: float | None = None
    replay_probability: float | None = None
    schedule: str | None = None
    schedule_probability: float | None = None
    look_again: float | None = None
    sure_by_then: float | None = None
    least_at: float | None = None
    regret: dict[str, float] | None = None

    KEYS: ClassVar = {
        "decision": (Literal["go on", "stop early", "stop", "wait"], "What to do."),
        "reason stop_at saved needed replay replay_probability schedule": ...,
        "schedule_probability look_again sure_by_then least_at regret": ...,
    }


@dataclass(frozen=True, eq=False, repr=False)
class Following(Shown):
    """A followed run, in one domain or several.

    Parameters
    ----------
    domains
        By name, in the order given.
    until
        Tokens (or steps) at the planned end.
    confidence
        Probability with which all promises are to be kept.
    within
        Accuracy asked for, as a share of the loss (see ``known_from`` of `Followed`).
    probability, probability_before
        Probability of keeping all promises, now and before the run's points; NaN without any.
    surprise
        Surprise of the most surprising domain, corrected for the number of domains
        (Bonferroni).
    decision
        The decision.
    """

    domains: Mapping[str, Followed]
    until: float
    confidence: float
    within: float
    probability: float
    probability_before: float
    surprise: float
    decision: Decision

    KEYS: ClassVar = {
        "*": Followed | Decision,
        "until confidence within probability probability_before surprise": ...,
        "domains": {"**": Followed},
    }

    def __getitem__(self, name: str) -> Followed:
        return self.domains[name]

    @property
    def first(self) -> Followed:
        """The first domain, the only one of a single posterior."""
        return next(iter(self.domains.values()))

    @property
    def final(self) -> dict[str, float]:
        """The first domain's loss at the planned end."""
        return self.first.final

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON types: the numbers of the first domain, the numbers of all
        domains together, with the verdict on each and the side of the most surprising
        one, and those of each domain by name.
        """
        together = super().to_dict()
        decision, domains = together.pop("decision"), together.pop("domains")
        together["decision"] = decision.pop("action")
        if len(domains) > 1:
            verdicts = [f"{name}: {d.verdict}" for name, d in self.domains.items()]
            strangest = min(self.domains.values(), key=lambda domain: domain.surprise)
            together |= {"verdict": "; ".join(verdicts), "side": strangest.side}
        return self.first.to_dict() | together | decision | {"domains": domains}

    def sentence(self) -> str:
        """Describe the answer in words."""
        return "\n".join(map(printable, self._list_lines()))

    def __repr__(self) -> str:
        *_, decision = self._list_lines()
        return f"Following({decision})"

    def _list_lines(self) -> Iterator[str]:
        for name, domain in self.domains.items():
            unit = UNITS[domain.unit]
            yield (
                f"{name}: {format_final(domain.final)} at {format_count(self.until)} {unit}; "
                f"before the run {format_final(domain.final_before)}"
            )
            if domain.max_loss is not None:
                yield f"  at most {domain.max_loss:.4g}: {_format_chances(domain)}"
            yield f"  {domain.points} points; {domain.verdict}"
            if domain.known_from is not None:
                yield (
                    f"  known to within {self.within:.1%} since "
                    f"{format_count(domain.known_from)} {unit}"
                )
            yield from (f"  {note}" for note in domain.notes)
        if len(self.domains) > 1 and self.probability == self.probability:
            yield f"all limits: {_format_chances(self)}"
        yield f"{self.decision.action.upper()}: {self.decision.reason}"


def _format_chances(record: Followed | Following) -> str:
    now, before = record.probability, record.probability_before
    return f"probability {format_chance(now)}, before the run {format_chance(before)}"


def format_final(final: dict[str, float]) -> str:
    """Format a loss with its interval."""
    return f"{format_interval(final, '.4g')} nats"

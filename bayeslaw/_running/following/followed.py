"""Define the record of a followed run: everything that a screen shows and JSON stores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from bayeslaw._base.html import paragraphs
from bayeslaw._base.numbers import format_chance, format_count
from bayeslaw._base.terminal import printable
from bayeslaw._running.following.course import UNITS
from bayeslaw._running.following.decision import Decision
from bayeslaw._running.following.track import SURPRISING, UNUSUAL

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


@dataclass(frozen=True, eq=False)
class Followed:
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
        The end by other schedules from here on (`Track.schedules`).
    history
        A row for each point, with the forecast after it was measured (`Moment`).
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

    @property
    def verdict(self) -> str:
        """Describe whether the run has passed its least loss, and how surprising it is."""
        if self.least is None:
            return self._surprise_in_words
        at, unit = format_count(self.least["at"]), UNITS[self.unit]
        past = (
            f"past its least loss, {self.least['loss']:.4g} at {at} {unit}: up by "
            f"{self.least['rise']:.1%} since"
        )
        if self.surprise >= UNUSUAL:
            return past
        return f"{past}; {self._surprise_in_words}"

    @property
    def _surprise_in_words(self) -> str:
        if self.surprise >= UNUSUAL or not self.points:
            return "as foreseen"
        rare = f"one foreseen run in {1 / self.surprise:.0f} strays as far"
        if self.surprise >= SURPRISING:
            return f"unusual: {rare}"
        return f"surprising: {rare}, {self.side}; look at {REASONS[self.side]}"

    def to_dict(self) -> dict[str, Any]:
        """Convert the record to JSON types."""
        tables = {
            name: getattr(self, name).to_dict(orient="records")
            for name in ("foreseen", "path", "replays", "schedules", "history")
        }
        plain = {
            name: value for name, value in vars(self).items() if name not in tables
        }
        return plain | {"verdict": self.verdict} | tables


@dataclass(frozen=True, eq=False)
class Following:
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
        domains together, and those of each domain by name.
        """
        decision = asdict(self.decision)
        action = decision.pop("action")
        return self.first.to_dict() | {
            "until": self.until,
            "confidence": self.confidence,
            "within": self.within,
            "probability": self.probability,
            "probability_before": self.probability_before,
            "surprise": self.surprise,
            "decision": action,
            **decision,
            "domains": {
                name: domain.to_dict() for name, domain in self.domains.items()
            },
        }

    def sentence(self) -> str:
        """Describe the answer in words."""
        return "\n".join(map(printable, self._lines()))

    def __repr__(self) -> str:
        *_, decision = self._lines()
        return f"Following({decision})"

    def _repr_html_(self) -> str:
        """For notebooks: the answer in words."""
        return paragraphs(self.sentence())

    def _lines(self) -> Iterator[str]:
        """Yield the lines of the answer: by domain, then the decision."""
        for name, domain in self.domains.items():
            unit = UNITS[domain.unit]
            yield (
                f"{name}: {format_final(domain.final)} at {format_count(self.until)} {unit}; "
                f"before the run {format_final(domain.final_before)}"
            )
            if domain.max_loss is not None:
                now = format_chance(domain.probability)
                before = format_chance(domain.probability_before)
                yield (
                    f"  at most {domain.max_loss:.4g}: probability {now}, before the run "
                    f"{before}"
                )
            yield f"  {domain.points} points; {domain.verdict}"
            if domain.known_from is not None:
                yield (
                    f"  known to within {self.within:.1%} since "
                    f"{format_count(domain.known_from)} {unit}"
                )
            yield from (f"  {note}" for note in domain.notes)
        if len(self.domains) > 1 and self.probability == self.probability:
            now = format_chance(self.probability)
            before = format_chance(self.probability_before)
            yield f"all limits: probability {now}, before the run {before}"
        yield f"{self.decision.action.upper()}: {self.decision.reason}"


def format_final(final: dict[str, float]) -> str:
    """Format a loss with its interval."""
    low, high = final["low"], final["high"]
    middle = final["median"]
    return f"{middle:.4g} ({low:.4g} to {high:.4g}) nats"

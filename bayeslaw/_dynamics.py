"""What fitted laws of loss curves are for (Wang 2025, sections 3 and 4), as distributions over posterior draws.

The loss curve of a schedule nobody has run; how long adaptation takes to bring the source loss back to its start
(turning length), and the point of pre-training past which it never does (critical point). Each is found in every draw by
itself, on a grid of steps and then by bisection over whole steps, so that only the posterior is uncertain. The best
replay, peak learning rate and loss potential are in `_dynamics_best`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd

from bayeslaw import _engine
from bayeslaw._errors import PlanError
from bayeslaw._forecast import forecast
from bayeslaw._phases import ENDLESS, Phases, both_paths, columns_of, finished, number, paths
from bayeslaw._posterior import Piece, Posterior
from bayeslaw._schedule import COLUMNS, LAMBDA
from bayeslaw._words import people_number

SAME = 1e-12  # two losses that differ by less than this share are equal
HALVINGS = 64


# -- losses in every draw ---------------------------------------------------------------------------------------------


class Side(NamedTuple):
    """One domain's posterior: its draws in the order in which they are paired, and the weight of its loss."""

    name: str
    weight: float
    parts: tuple[tuple[Piece, np.ndarray], ...]  # and the pairs that its draws belong to
    pairs: int

    def loss(self, covariates: Mapping[str, Any]) -> np.ndarray:
        """Loss in nats per token, shape (draw, point), at covariates of shape (point,) or (draw, point)."""
        x = {c: np.atleast_1d(np.asarray(v, float)) for c, v in covariates.items()}
        own = any(v.ndim == 2 for v in x.values())
        out: np.ndarray | None = None
        for piece, rows in self.parts:
            read = _needed(piece, x, self.name)
            if own:
                shape = (self.pairs, max(v.shape[-1] for v in x.values()))
                read = {c: np.broadcast_to(v, shape)[rows] for c, v in read.items()}
            else:
                read = dict(zip(read, np.broadcast_arrays(*read.values()), strict=True))
            found = np.asarray(_compiled(piece.log_loss, own)(dict(piece.values), read))
            out = np.empty((self.pairs, found.shape[1])) if out is None else out
            out[rows] = np.exp(found)
        assert out is not None
        if not np.isfinite(out).all():
            raise PlanError(f"the law of {self.name} has no finite loss somewhere on the way that is asked about")
        return out


@lru_cache(maxsize=64)
def _compiled(log_loss: Callable, own: bool) -> Callable:
    return jax.jit(jax.vmap(log_loss, in_axes=(0, 0 if own else None)))


def _needed(piece: Piece, given: Mapping[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    missing = [c for c in piece.covariates if c not in given]
    if missing and missing[0] in COLUMNS:
        raise PlanError(f"the law of {name} reads {missing[0]}, but the rates of pre-training are not given")
    if missing:
        raise PlanError(f"the law of {name} reads {missing[0]!r}: give Phases(..., covariates={{{missing[0]!r}: ...}})")
    return {c: given[c] for c in piece.covariates}


def sides_of(
    source: Posterior | None, target: Posterior | None, source_weight: float, seed: int, reads: tuple[str, ...]
) -> tuple[Side, ...]:
    """Both domains with the weights of eq. 5; the draws of each, which are independent, paired at random."""
    _engine.start()
    if not 0 <= number("source_weight", source_weight) <= 1:
        raise PlanError(f"source_weight must be a share in [0, 1] (the target has the rest), got {source_weight!r}")
    given = {"source": (source, source_weight), "target": (target, 1 - source_weight)}
    for name, (posterior, weight) in given.items():
        if posterior is None and weight:
            raise PlanError(f"the {name} loss has weight {weight:g}, but no posterior of it is given")
    pieces = {name: tuple(p.pieces()) for name, (p, _) in given.items() if p is not None}
    pairs = max(sum(p.draws for p in own) for own in pieces.values())
    sides = tuple(_side(name, given[name][1], own, pairs, seed) for name, own in pieces.items())
    if not any(c in piece.covariates for side in sides for piece, _ in side.parts for c in reads):
        raise PlanError(f"no law here reads {' or '.join(reads)}, on which the answer depends")
    return sides


def _side(name: str, weight: float, pieces: tuple[Piece, ...], pairs: int, seed: int) -> Side:
    total = sum(p.draws for p in pieces)
    order = np.arange(total)
    if name == "target":
        order = np.random.default_rng(seed).permutation(total)
    order = np.resize(order, pairs)
    parts, first = [], 0
    for piece in pieces:
        rows = np.flatnonzero((order >= first) & (order < first + piece.draws))
        values = {k: np.asarray(v)[order[rows] - first] for k, v in piece.values.items()}
        parts += [(replace(piece, values=values), rows)] if len(rows) else []
        first += piece.draws
    return Side(name, weight, tuple(parts), pairs)


def weighted_loss(sides: tuple[Side, ...], covariates: Mapping[str, Any]) -> np.ndarray:
    """The loss that eq. 5 weighs, shape (draw, point)."""
    return sum((s.weight * s.loss(covariates) for s in sides if s.weight), np.zeros((1, 1)))


# -- answers ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Answer(ABC):
    """A number for every posterior draw, shape (draw,); infinite where there is none."""

    draws: np.ndarray

    @property
    def median(self) -> float:
        return float(np.quantile(self.draws, 0.5, method="inverted_cdf"))

    @property
    def interval(self) -> tuple[float, float]:
        """The central 90%."""
        low, high = np.quantile(self.draws, [0.05, 0.95], method="inverted_cdf")
        return float(low), float(high)

    def probability(self, low: float = -math.inf, high: float = math.inf) -> float:
        """That it lies between two values, both included."""
        return float(np.mean((self.draws >= low) & (self.draws <= high)))

    @abstractmethod
    def statement(self) -> str:
        """The answer in words."""


def chance(p: float) -> str:
    return "over .99" if 0.995 <= p < 1 else "under .01" if 0 < p < 0.005 else f"{p:.2f}".removeprefix("0")


def _steps(n: float) -> str:
    return "never" if math.isinf(n) else people_number(n) if n < 1e15 else f"{n:.0e}"


def weights(sides: tuple[Side, ...]) -> str:
    """Which loss it is about."""
    whole = [s.name for s in sides if s.weight == 1]
    if whole:
        return f"the {whole[0]} loss"
    return "the loss weighted " + " and ".join(f"{s.weight:.3g} {s.name}" for s in sides)


# -- the curve of an unseen schedule ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Curve(Answer):
    """Loss along a schedule. ``draws`` are the law's loss at its end.

    Parameters
    ----------
    table
        ``step`` (counted through both phases), ``lr``, the areas, and what `forecast` returns: ``mean``, ``median``,
        ``sd``, the band ``low``, ``high`` of a new run and ``law_low``, ``law_high`` of the law, in nats per token.
    curves
        The law's loss in every draw, shape (draw, step).
    start
        The law's loss at the last step of pre-training, shape (draw,); None without an adaptation.
    prob
        Probability inside the bands.
    """

    table: pd.DataFrame
    curves: np.ndarray
    start: np.ndarray | None
    prob: float

    def statement(self) -> str:
        end = self.table.iloc[-1]
        said = (
            f"At step {end['step']:g} the loss of a run is {end['median']:.4g} nats per token ({self.prob:.0%} interval "
            f"{end['low']:.4g} to {end['high']:.4g})"
        )
        if self.start is None:
            return f"{said}."
        return f"{said}; the law ends above where adaptation starts with probability {chance(float(np.mean(self.draws > self.start)))}."


def loss_curve(
    posterior: Posterior, phases: Phases, *, steps: Any = None, points: int = 200, prob: float = 0.9, seed: int = 0
) -> Curve:
    """The loss at any step of any schedule, with its band (Wang 2025, section 3.3 and appendix D).

    Parameters
    ----------
    posterior
        A fit of a law of loss curves.
    phases
        The schedule. A curve with adaptation starts at the last step of pre-training, another at its first.
    steps
        Steps to look at, counted through both phases; else ``points`` of them, evenly spaced.
    prob, seed
        Probability inside the bands; seed of the noise of a new run.

    Raises
    ------
    PlanError
        Steps outside the schedule, or the law reads what the phases do not tell.
    """
    adapted = phases.adaptation is not None
    (side,) = sides_of(posterior, None, 1.0, seed, COLUMNS[2:] if adapted else COLUMNS[:2])
    first, second = paths(phases)
    before = first.steps if first else 0
    last = before + (second.steps if second else 0)
    begin = before if adapted else 1
    asked = np.linspace(begin, last, points) if steps is None else np.atleast_1d(np.asarray(steps, float))
    asked = np.unique(np.round(asked))
    lowest = 1 if first else 0
    if not len(asked) or not (asked >= lowest).all() or not (asked <= last).all():
        raise PlanError(f"steps must lie between {lowest} and {last}, the last one of the schedule")
    along = np.maximum(asked - before, 0)
    rates = first.rate(asked) if first else np.zeros(len(asked))
    if second:
        rates = np.where(asked > before, second.rate(along), rates)
    x = columns_of(first.at(np.minimum(asked, before)) if first else None, second.at(along) if second else (0.0, 0.0))
    table = pd.DataFrame({**x, **phases.covariates}, index=range(len(asked)))
    curves = side.loss({str(c): table[c].to_numpy() for c in table})
    start = None
    if adapted:
        start = side.loss(columns_of(finished(first)) | dict(phases.covariates))[:, 0]
    told = forecast(posterior, table, prob=prob, seed=seed)
    table = pd.concat([pd.DataFrame({"step": asked, "lr": rates}), table[list(x)], told], axis=1)
    return Curve(curves[:, -1], table, curves, start, prob)


# -- turning length and critical point --------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TurningLength(Answer):
    """Steps of adaptation after which a loss is back at its start; 0 where it never rises, infinite where it stays up.

    Parameters
    ----------
    planned
        Steps of the schedule that was given; from there on it goes on at its last rate, if that is above 0.
    about
        The loss it is about, in words.
    """

    planned: int
    about: str

    @property
    def never(self) -> float:
        """Probability that it never returns."""
        return float(np.mean(np.isinf(self.draws)))

    @property
    def never_above(self) -> float:
        """Probability that it does not rise above its start in the first place."""
        return self.probability(high=0)

    def statement(self) -> str:
        about = self.about[0].upper() + self.about[1:]
        if self.never_above > 0.5:
            return f"{about} never rises above where it was, with probability {chance(self.never_above)}."
        planned = f"within the {_steps(self.planned)} steps planned, it returns with probability {chance(self.probability(high=self.planned))}"
        if self.never > 0.5:
            return f"{about} never returns to where it was, with probability {chance(self.never)}; {planned}."
        low, high = self.interval
        return (
            f"{about} is back where it was after {_steps(self.median)} steps of adaptation (90% interval {_steps(low)} to "
            f"{_steps(high)}); with probability {chance(self.never)} it never is; {planned}."
        )


def turning_length(
    source: Posterior | None,
    phases: Phases,
    *,
    target: Posterior | None = None,
    source_weight: float = 1.0,
    seed: int = 0,
) -> TurningLength:
    """Steps of adaptation until the source loss is back at its start (Wang 2025, section 4.4, fig. 7c).

    The first step at which the loss, having been above its start, is so no longer. With a target, of the loss weighted
    as in eq. 5 (section 5.1, fig. 13).

    Parameters
    ----------
    source, target
        Posteriors of the losses on the two domains, independent of each other.
    phases
        The schedule; once over, adaptation goes on at its last rate, if that is above 0.
    source_weight
        lambda_1 of eq. 5; the target has the rest.
    seed
        Pairs the draws of source and target.

    Raises
    ------
    PlanError
        The phases have no adaptation, or a law reads what they do not tell.
    """
    sides = sides_of(source, target, source_weight, seed, ("S1_cpt",))
    first, second = both_paths(phases)
    before = finished(first)

    def above(steps: np.ndarray) -> np.ndarray:
        now = weighted_loss(sides, columns_of(before, second.at(steps)) | dict(phases.covariates))
        return now > start * (1 + SAME)

    start = weighted_loss(sides, columns_of(before) | dict(phases.covariates))
    grid = second.grid()
    up = above(grid)
    risen = np.maximum.accumulate(up, axis=1)
    back = risen & ~up
    at = np.argmax(back, axis=1)
    found = _bisect(above, grid[np.maximum(at - 1, 0)], grid[at])
    turning = np.where(back.any(axis=1), found, np.where(up.any(axis=1), np.inf, 0.0))
    return TurningLength(turning, second.steps, weights(sides))


def _bisect(holds: Callable[[np.ndarray], np.ndarray], low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """First whole number at which ``holds`` is false, between one where it is true and one where it is not."""
    for _ in range(HALVINGS):
        middle = np.floor((low + high) / 2)
        if (middle <= low).all():
            break
        true = holds(middle[:, None])[:, 0]
        low, high = np.where(true, middle, low), np.where(true, high, middle)
    return high


@dataclass(frozen=True, eq=False)
class CriticalPoint(Answer):
    """Step of pre-training past which the source loss never returns; infinite where there is none.

    Parameters
    ----------
    pretrained
        Steps of pre-training that were given; from there on it goes on at its last rate, if that is above 0.
    start, limit
        The source loss after them, and the level it converges to in adaptation, shape (draw,).
    """

    pretrained: int
    start: np.ndarray
    limit: np.ndarray

    @property
    def passed(self) -> float:
        """Probability that this pre-training is past it."""
        return float(np.mean(self.limit > self.start * (1 + SAME)))

    def statement(self) -> str:
        low, high = self.interval
        where = f"at step {_steps(self.median)} of pre-training (90% interval {_steps(low)} to {_steps(high)})"
        if math.isinf(self.median):
            where = f"not reached by pre-training on this schedule, with probability {chance(self.probability(low=math.inf))}"
        return (
            f"The critical point is {where}. With probability {chance(self.passed)} the {_steps(self.pretrained)} steps "
            f"given are past it: by adaptation without end the source loss goes from {np.median(self.start):.4g} to "
            f"{np.median(self.limit):.4g} nats per token (medians)."
        )


def critical_point(source: Posterior, phases: Phases, *, final_lr: float | None = None) -> CriticalPoint:
    """Step of pre-training past which the source loss never returns to its start (Wang 2025, section 4.4, fig. 7c).

    The point where the source loss of pre-training falls below what it converges to in adaptation: the last one, if
    there are several. With eq. 4 and no annealing, A S1pt^-alpha = B.

    Parameters
    ----------
    phases
        Pre-training, and the adaptation that branches off it, of which the last rate and ``covariates`` matter: it goes
        on for ever.
    final_lr
        Rate at the end of adaptation in place of the schedule's last one; 0 lets it anneal in the end, the best case.

    Raises
    ------
    PlanError
        Pre-training is unknown, or the law reads what the phases do not tell.
    """
    sides = sides_of(source, None, 1.0, 0, ("S1_cpt",))
    first, second = both_paths(phases)
    if first is None:
        raise PlanError("the critical point is a step of pre-training, whose rates are not given")
    final = second.last if final_lr is None else number("final_lr", final_lr)
    if final < 0:
        raise PlanError(f"final_lr must be at least 0, got {final_lr!r}")
    endless = ENDLESS * phases.batch_ratio * max(final, float(second.rates[1:].max()))

    def losses(steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Before adaptation, and in its limit: all drops of the rate have run out (their sum over steps is closed)."""
        now = first.at(steps)
        drops = first.rate(steps) - final + (LAMBDA * now.momentum if phases.carry_momentum else 0.0)
        weight = final**phases.lr_power if phases.lr_power else 1.0
        limit = (endless, weight * drops / (1 - LAMBDA))
        given = dict(phases.covariates)
        return weighted_loss(sides, columns_of(now) | given), weighted_loss(sides, columns_of(now, limit) | given)

    def returns(steps: np.ndarray) -> np.ndarray:
        before, limit = losses(steps)
        return limit <= before * (1 + SAME)

    grid = first.grid()
    can = returns(grid)
    last = len(grid) - 1 - np.argmax(can[:, ::-1], axis=1)
    inner = np.minimum(last, len(grid) - 2)
    found = _bisect(returns, grid[inner], grid[inner + 1])
    point = np.where(can.any(axis=1), np.where(last < len(grid) - 1, found, np.inf), 0.0)
    start, limit = losses(np.array([float(first.steps)]))
    return CriticalPoint(point, first.steps, start[:, 0], limit[:, 0])

"""Find the replay, peak learning rate or loss potential that minimises a weighted loss
of source and target (Wang 2025, eq. 5). For laws with optima of settings, find the best
ones.

The search runs for every draw: first on a grid, then on finer grids around the minimum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bayeslaw._base.errors import PlanError
from bayeslaw._base.limits import NUMBER, checked
from bayeslaw._forecasts.optimum import find_minima
from bayeslaw._posteriors.answer import Answer, format_probability
from bayeslaw._posteriors.posterior import Posterior
from bayeslaw._schedules.phases import (
    Phases,
    WeightedDomain,
    after_both,
    both_paths,
    name_of_loss,
    sides_of,
    weighted_loss,
)

if TYPE_CHECKING:
    from jaxtyping import Float

    # maps a number to learning rates at steps 1, 2, ...
    Schedule = Callable[[float], Float[np.ndarray, " step"]]


@dataclass(frozen=True, eq=False)
class BestValue(Answer):
    """Hold draws of the value that minimises eq. 5, and the value with least expected
    loss.

    Parameters
    ----------
    name
        Name of the chosen quantity.
    about
        The minimised loss in words, and when it is measured: after adaptation.
    best
        Value with the least mean loss over draws.
    regret
        Expected value of perfect information, in nats: the mean loss at ``best`` minus
        the mean of each draw's least loss.
    source_change, target_change
        Change of the losses over adaptation at ``best``, shape (draw,); None without a
        posterior.
    table
        ``value`` over the range, ``mean``, ``low`` and ``high`` (90%) of the minimised
        loss after adaptation, in nats.
    """

    name: str
    about: str
    best: float
    regret: float
    source_change: Float[np.ndarray, " draw"] | None
    target_change: Float[np.ndarray, " draw"] | None
    table: pd.DataFrame

    @property
    def at_ends(self) -> tuple[float, float]:
        """Compute the probabilities that the best value is at either end."""
        low, second, *_, last, high = self.table["value"].to_numpy()
        # the search stops near an end, not at it
        lower = self.draws <= low + 0.01 * (second - low)
        upper = self.draws >= high - 0.01 * (high - last)
        return float(np.mean(lower)), float(np.mean(upper))

    def statement(self) -> str:
        low, high = self.interval
        parts = [
            f"{self.about[0].upper()}{self.about[1:]} is expected to be least at "
            f"{self.name} {self.best:.3g} (90% interval {low:.3g} to {high:.3g})"
        ]
        # each end of the range that is the best value with a probability of 5% or more
        values = self.table["value"].iloc[[0, -1]]
        ends = zip(("lower", "upper"), values, self.at_ends, strict=True)
        parts += [
            f"the {end} end of the range, {value:.3g}, is best with probability "
            f"{format_probability(p)}"
            for end, value, p in ends
            if p >= 0.05
        ]
        changes = {"source": self.source_change, "target": self.target_change}
        for name, change in changes.items():
            if change is not None:
                low, high = np.quantile(change, [0.05, 0.95])
                parts.append(
                    f"the {name} loss then changes by {np.median(change):+.3g} nats "
                    f"({low:+.3g} to {high:+.3g})"
                )
        return "; ".join(parts) + "."


def best_replay(
    source: Posterior | None,
    target: Posterior | None,
    phases: Phases,
    *,
    source_weight: float,
    low: float = 0.0,
    high: float = 1.0,
    seed: int = 0,
) -> BestValue:
    """Find the replay that minimises the weighted loss after adaptation (Wang 2025, eq.
    5, section 5.1, fig. 8c).

    Parameters
    ----------
    source, target
        Posteriors of the losses on the two domains, independent of each other; None if
        its weight is 0.
    phases
        The schedules; a replay among the covariates is ignored.
    source_weight
        lambda_1; the target's weight is 1 - lambda_1. Eq. 5 weights the changes of the
        losses since the start of adaptation; replay does not affect that start.
    low, high
        The range to choose from.
    seed
        Seed of the pairing of source and target draws.

    Raises
    ------
    PlanError
        The range, the weight or the phases are invalid, or no law reads ``replay``.

    Examples
    --------
    >>> best = bayeslaw.best_replay(replayed, None, phases, source_weight=1.0)
    >>> 0 <= best.best <= 1
    True
    """
    given = phases.covariates
    sides = sides_of(source, target, source_weight, seed, given, ("replay",))
    grids = {"replay": _make_grid("replay", low, high, 0.0, 1.0)}
    constants = dict(given) | after_both(phases)
    return _minimise_loss(sides, grids, {"replay": grids}, constants)["replay"]


def best_settings(
    source: Posterior | None,
    target: Posterior | None,
    phases: Phases | Mapping[str, float],
    *,
    source_weight: float,
    ranges: Mapping[str, tuple[float, float]],
    schedule: Schedule | None = None,
    seed: int = 0,
) -> dict[str, BestValue]:
    """Find the settings (peak learning rate, batch) that together minimise the weighted
    loss of a run, also of a size that nobody swept (Wang 2025, sections 4.3 and 5.1,
    fig. 8b, for the peak of a schedule).

    Parameters
    ----------
    source, target, source_weight, seed
        As in `best_replay`.
    phases
        As in `best_replay`, to choose the peak rate of adaptation. For laws with an
        optimum of settings (``chinchilla+lr+batch``) give the columns of the run,
        ``{"N": 4e9, "D": 1e11}``.
    ranges
        The range to choose from, by setting: ``{"lr": (1e-5, 1e-2), "batch": (32,
        4096)}``. The peak rate is ``lr``, of phases the only one.
    schedule
        A function from the peak to adaptation's rates, ``lambda peak: cosine(peak,
        10_000, warmup=500)``; by default it scales the rates of the phases.

    Returns
    -------
    dict
        The best value of each setting: in each draw, and ``best`` with the least mean
        loss, where the others are at their best. ``regret`` is that of all together.

    Raises
    ------
    PlanError
        As in `best_replay`; or a law reads none of a setting; or the adaptation has no
        rate to scale.

    Examples
    --------
    >>> ranges = {"lr": (1e-5, 4e-4)}
    >>> options = {"source_weight": 1.0, "ranges": ranges}
    >>> best = bayeslaw.best_settings(curves, None, phases, **options)["lr"]
    >>> 1e-5 <= best.best <= 4e-4
    True
    """
    is_pair = [np.size(ends) == 2 for ends in ranges.values()]
    is_known = not isinstance(phases, Phases) or {*ranges} == {"lr"}
    if not (ranges and all(is_pair) and is_known):
        raise PlanError(
            "ranges: give low and high of each setting, {'lr': (1e-5, 1e-2)}; of phases "
            f"only lr can be chosen; got {dict(ranges)!r}"
        )
    grids = {
        name: _make_grid(_title(name), *ends, 1e-12, math.inf, even_in_log=True)
        for name, ends in ranges.items()
    }
    if not isinstance(phases, Phases):
        each = [(name,) for name in ranges]
        sides = sides_of(source, target, source_weight, seed, phases, *each)
        run = {name: checked(name, value, NUMBER) for name, value in phases.items()}
        columns = {name: {name: grid} for name, grid in grids.items()}
        return _minimise_loss(sides, grids, columns, run, when="")
    given, areas = phases.covariates, ("S1_cpt", "S2_cpt")
    sides = sides_of(source, target, source_weight, seed, given, areas)
    rates = phases.adaptation
    if schedule is None and (rates is None or not rates.max() > 0):
        raise PlanError(
            "there is no adaptation whose rates could be scaled: give it to the "
            "phases, or give schedule="
        )

    def at(peak: float) -> Phases:
        if schedule is not None:
            return replace(phases, adaptation=schedule(peak))
        assert rates is not None
        return replace(phases, adaptation=rates * (peak / rates.max()))

    return {"lr": _minimise_over_schedules("lr", sides, grids["lr"], at)}


def best_loss_potential(
    source: Posterior | None,
    target: Posterior | None,
    phases: Phases,
    *,
    source_weight: float,
    rewarm: bool = True,
    low: float = 0.0,
    high: float = 1.0,
    schedule: Schedule | None = None,
    seed: int = 0,
) -> BestValue:
    """Find how far to anneal pre-training: the loss potential that minimises the
    weighted loss after adaptation.

    The loss potential is the final learning rate of pre-training over its peak (Wang
    2025, sections 3.3, 4.1 and 5.1, fig. 8a). It also affects the loss at the start of
    adaptation. So eq. 5 weights the losses after adaptation, not their changes.

    Parameters
    ----------
    source, target, source_weight, seed
        As in `best_replay`.
    rewarm
        True: adaptation follows its own schedule. False: its rate falls linearly from
        the last rate of pre-training to 0, in as many steps. These are the two settings
        of section 4.1.
    low, high
        The range of potentials to choose from.
    schedule
        A function from the potential to pre-training's rates, ``lambda p: wsd(2e-4,
        40_000, decay=8_000, final=2e-4 * p, warmup=2_000)``. By default it takes the
        rates of the phases and stretches the decline after the peak to the final rate.

    Raises
    ------
    PlanError
        As in `best_replay`; or pre-training is unknown, or has no decline to stretch.

    Examples
    --------
    >>> falling = bayeslaw.cosine(2e-4, 20_000, warmup=500)
    >>> annealed = bayeslaw.Phases(falling, phases.adaptation)
    >>> options = {"source_weight": 1.0, "low": 0.2}
    >>> best = bayeslaw.best_loss_potential(curves, None, annealed, **options)
    >>> 0.2 <= best.best <= 1
    True
    """
    given, areas = phases.covariates, ("S1_pt", "S2_pt", "S2_cpt")
    sides = sides_of(source, target, source_weight, seed, given, areas)
    if phases.pretraining is None:
        raise PlanError(
            "the loss potential is a choice of pre-training, whose rates are not given"
        )
    steps = both_paths(phases)[1].steps
    rates = schedule or _stretch_decline(phases.pretraining)
    annealing = 1 - np.arange(1, steps + 1) / steps  # shares of the first rate

    def at(potential: float) -> Phases:
        first = np.asarray(rates(potential), float)
        second = phases.adaptation if rewarm else first[-1] * annealing
        return replace(phases, pretraining=first, adaptation=second)

    grid = _make_grid("loss potential", low, high, 0.0, 1.0)
    return _minimise_over_schedules("loss potential", sides, grid, at)


def _stretch_decline(rates: Float[np.ndarray, " step"]) -> Schedule:
    """Return a function that stretches the decline after the peak to a final rate."""
    peak = rates.max()
    decline = len(rates) - int(np.argmax(rates[::-1]))
    if rates[-1] >= peak:
        raise PlanError(
            "pre-training ends at its peak, so there is no decline to stretch: give "
            "schedule="
        )
    # shape of the decline: 0 at the peak, 1 at the end
    drop = (peak - rates[decline:]) / (peak - rates[-1])
    return lambda potential: np.concatenate(
        [rates[:decline], peak - peak * (1 - potential) * drop]
    )


def _make_grid(
    name: str,
    low: float,
    high: float,
    least: float,
    most: float,
    even_in_log: bool = False,
    size: int = 101,
) -> Float[np.ndarray, " value"]:
    low, high = checked("low", low, NUMBER), checked("high", high, NUMBER)
    if not least <= low < high <= most:
        inside = f"from {least:g} to {most:g}" if math.isfinite(most) else "above 0"
        raise PlanError(
            f"{name}: low = {low:g} must be below high = {high:g}, both {inside}"
        )
    return (np.geomspace if even_in_log else np.linspace)(low, high, size)


def _minimise_over_schedules(
    name: str,
    sides: tuple[WeightedDomain, ...],
    grid: Float[np.ndarray, " value"],
    phases_at: Callable[[float], Phases],
) -> BestValue:
    """Find the best value, with a schedule for each value of the grid, shape (value,)."""
    schedules = [phases_at(float(value)) for value in grid]
    areas = [after_both(phases) for phases in schedules]
    columns = {c: np.array([area[c] for area in areas], float) for c in areas[0]}
    constants = schedules[0].covariates
    return _minimise_loss(sides, {name: grid}, {name: columns}, constants)[name]


def _title(name: str) -> str:
    return "peak learning rate" if name == "lr" else name


def _minimise_loss(
    sides: tuple[WeightedDomain, ...],
    grids: Mapping[str, Float[np.ndarray, " value"]],
    columns: Mapping[str, Mapping[str, Float[np.ndarray, " value"]]],
    constants: Mapping[str, Any],
    when: str = " after adaptation",
) -> dict[str, BestValue]:
    """Minimise the weighted loss over the values of all grids together. ``columns``:
    for each grid, covariates at its values, of shape (value,); they are interpolated
    between these values. ``when``: the time of the losses, in words; empty without an
    adaptation, over which losses could change.

    Interpolation is exact for scaled or stretched schedules if ``lr_power`` is 0: areas
    are then linear in the learning rates.
    """
    from scipy.interpolate import PchipInterpolator

    # Monotone cubics (Fritsch and Carlson 1980) do not overshoot at a kink of a user's
    # schedule.
    between = {
        name: PchipInterpolator(grid, np.column_stack(list(columns[name].values())))
        for name, grid in grids.items()
    }

    def covariates(values: Sequence[Float[np.ndarray, "*_place"]]) -> dict[str, Any]:
        chosen = {}
        for name, at in zip(grids, values, strict=True):
            interpolated = np.moveaxis(between[name](at), -1, 0)
            chosen |= dict(zip(columns[name], interpolated, strict=True))
        return {**constants, **chosen}

    def weighted(
        values: Sequence[Float[np.ndarray, "*_place"]],
    ) -> Float[np.ndarray, "draw value"]:
        return weighted_loss(sides, covariates(values))

    def expected(
        values: Sequence[Float[np.ndarray, "*_place"]],
    ) -> Float[np.ndarray, "1 value"]:
        losses = weighted([at.ravel() for at in values])
        return losses.mean(axis=0, keepdims=True)

    draws = _find_minimum(weighted, [*grids.values()])
    best = _find_minimum(expected, [*grids.values()])
    # Expected value of perfect information (Raiffa and Schlaifer 1961).
    of_draws = weighted([at[:, None] for at in draws])[:, 0]
    regret = np.mean(weighted(best)[:, 0] - of_draws)
    # of each side's loss since the start of adaptation
    changes = {}
    for side in sides if when else ():
        at_best = covariates(best)
        start = {**at_best, "S1_cpt": np.zeros(1), "S2_cpt": np.zeros(1)}
        changes[side.name] = (side.loss(at_best) - side.loss(start))[:, 0]
    found = {}
    for k, (name, grid) in enumerate(grids.items()):
        after = weighted([*best[:k], grid, *best[k + 1 :]])
        low, high = np.quantile(after, [0.05, 0.95], axis=0)
        found[name] = BestValue(
            draws=draws[k],
            name=_title(name),
            about=name_of_loss(sides) + when,
            best=float(best[k][0]),
            regret=float(regret),
            source_change=changes.get("source"),
            target_change=changes.get("target"),
            table=pd.DataFrame(
                {"value": grid, "mean": after.mean(axis=0), "low": low, "high": high}
            ),
        )
    return found


def _find_minimum(
    loss: Callable[
        [list[Float[np.ndarray, "*_place"]]], Float[np.ndarray, "row value"]
    ],
    grids: Sequence[Float[np.ndarray, " value"]],
    rounds: int = 2,
    zoom: int = 21,
    sweeps: int = 30,
) -> list[Float[np.ndarray, " row"]]:
    """Find the minimum of each row, shape (row,) for each grid: first on the grid, then
    on ``rounds`` finer grids between the neighbours of the minimum. Of several grids one
    after the other is searched, with the others at their last minimum, until none
    moves.
    """
    # Golden section needs a single minimum; grids find the lowest of several.
    at = [grid[len(grid) // 2 :][:1] for grid in grids]
    for _ in range(sweeps if len(grids) > 1 else 1):
        before = [*at]
        for k, grid in enumerate(grids):
            values = [place[:, None] for place in at]
            values[k] = grid
            found = find_minima(grid, loss(values))
            for _ in range(rounds):
                low, width = found.low[:, None], (found.high - found.low)[:, None]
                values[k] = low + width * np.linspace(0, 1, zoom)
                found = find_minima(values[k], loss(values))
            at[k] = found.at
        if all(np.allclose(*pair, rtol=1e-4) for pair in zip(at, before, strict=True)):
            break
    return at

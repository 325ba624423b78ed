"""Compute the quantity of a goal, draw by draw: which recipe is best, which law is
right, where the optimum lies.

Any quantity that has a value in each draw can be a goal, as the losses are. The choice
of runs needs only the covariance of the quantity with the candidates' measurements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from bayeslaw._base.errors import PlanError, RunTableError
from bayeslaw._designs.evidence import Domain
from bayeslaw._forecasts.recipes import RECIPE, differing, names_of_rows, short
from bayeslaw._posteriors.draws import Draws
from bayeslaw._posteriors.posterior import LogLoss

if TYPE_CHECKING:
    from jaxtyping import Float, Int


class OptionDraws(NamedTuple):
    """The options of a choice.

    ``worse``: loss of each option in every draw, up to a constant, shape (draw,
    option): log loss, or 0 for the law of the draw and 1 for others.
    """

    names: list[str]
    worse: Float[np.ndarray, "draw option"]

    def expected_choice(
        self, weights: Float[np.ndarray, "outcome draw"]
    ) -> ExpectedChoice:
        """Choose the best option on average under weights of the draws, shape (outcome,
        draw).
        """
        mean = weights @ self.worse
        chosen = np.argmin(mean, axis=1)
        of_best = weights @ self.worse.min(axis=1)
        is_best = np.eye(len(self.names))[np.argmin(self.worse, axis=1)]
        chance = (weights @ is_best)[np.arange(len(chosen)), chosen]
        regret = mean.min(axis=1) - of_best
        # rounding may take the chance above 1 and the regret below 0
        return ExpectedChoice(chosen, np.minimum(chance, 1.0), np.maximum(regret, 0.0))

    def now(self) -> dict[str, Any]:
        """Find the best option on average, the probability that it is the best, and its
        regret.
        """
        draws = len(self.worse)
        expected = self.expected_choice(np.full((1, draws), 1 / draws))
        return {
            "best": self.names[int(expected.chosen[0])],
            "chance": float(expected.chance[0]),
            "regret": float(expected.regret[0]),
        }


class ExpectedChoice(NamedTuple):
    """The choice under each outcome: the option ``chosen``, the ``chance`` that it is
    the best, and its ``regret``, which is the expected loss against the best option of
    each draw; each of shape (outcome,).
    """

    chosen: Int[np.ndarray, " outcome"]
    chance: Float[np.ndarray, " outcome"]
    regret: Float[np.ndarray, " outcome"]


# -- which recipe is best --------------------------------------------------------------


def recipes(
    domain: Domain, parts: Sequence[Draws], goal: pd.DataFrame
) -> tuple[Domain, OptionDraws]:
    """Compute the mean log loss of each recipe: over rows with the same name in
    `RECIPE`, else of each row.

    Raises
    ------
    PlanError
        There is only one recipe.
    RunTableError
        A row has no recipe.
    """
    names, places = (
        _group_by_name(goal) if RECIPE in goal else names_of_rows(parts, goal)
    )
    if len(names) < 2:
        raise PlanError(
            "gain 'best' needs two recipes or more to choose between: rows of the goal "
            f"that differ in what the laws read, or are named in a column {RECIPE!r}"
        )
    means = [domain.goal[:, rows].mean(axis=1) for rows in places]
    worse = np.stack(means, axis=1)
    at = np.array([_find_common(domain.at[rows]) for rows in places])
    return replace(domain, goal=worse, at=at), OptionDraws(names, worse)


def _group_by_name(goal: pd.DataFrame) -> tuple[list[str], list[np.ndarray]]:
    if goal[RECIPE].isna().any():
        row = goal.index[goal[RECIPE].isna()][0]
        raise RunTableError(f"the goal's table, row {row}: column {RECIPE!r} is empty")
    named = goal[RECIPE].astype(str)
    names = list(dict.fromkeys(named))
    return names, [np.flatnonzero(named == name) for name in names]


def _find_common(at: Int[np.ndarray, " row"]) -> int:
    """Find the common checkpoint of all rows, -1 if there is none."""
    return int(at[0]) if (at == at[0]).all() else -1


# -- which law is right ----------------------------------------------------------------


def laws(domain: Domain, parts: Sequence[Draws]) -> tuple[Domain, OptionDraws]:
    """Make an indicator of the law of each draw.

    Raises
    ------
    PlanError
        All draws belong to one law.
    """
    names = [_law_of(part, number) for number, part in enumerate(parts)]
    different = list(dict.fromkeys(names))
    if len(different) < 2:
        raise PlanError(
            "gain 'law' needs an average of two laws or more: this posterior holds "
            f"{different[0]} alone"
        )
    is_other = np.ones((len(domain.goal), len(different)))
    for name, part in zip(names, parts, strict=True):
        is_other[part.rows, different.index(name)] = 0.0
    nowhere = np.full(len(different), -1)
    return replace(domain, goal=is_other, at=nowhere), OptionDraws(different, is_other)


def _law_of(part: Draws, number: int) -> str:
    formula = part.piece.log_loss
    return formula.law.name if isinstance(formula, LogLoss) else f"formula {number + 1}"


# -- where the optimum lies ------------------------------------------------------------


def optimum(
    domain: Domain,
    parts: Sequence[Draws],
    goal: pd.DataFrame,
    *,
    may_be_settled: bool = False,
) -> Domain:
    """Find the position of the lowest loss along the goal's sweep. For a share it is
    the value, for other columns the logarithm. If the lowest loss is not inside the
    sweep, it is an end of the sweep.

    Raises
    ------
    RunTableError
        The goal is not a sweep of one column.
    PlanError
        The optimum is at the same end in every draw, unless it ``may_be_settled``.
    """
    name = swept(parts, goal)
    levels = goal[name].to_numpy(float)
    order = np.argsort(levels)
    along = levels[order] if _is_share(name) else np.log(levels[order])
    position = _find_vertex(along, domain.goal[:, order])
    if np.ptp(position) == 0 and not may_be_settled:
        end = short(name, levels[order][0 if position[0] == along[0] else -1])
        raise PlanError(
            f"the least loss is at {name} = {end} in every draw, an end of the goal's "
            "sweep: there is nothing to learn; sweep further"
        )
    return replace(domain, goal=position[:, None], at=np.array([-1]))


def _is_share(name: str) -> bool:
    """Tell whether positions along a column are measured as differences, not as
    e-folds.
    """
    return name == "replay"


def swept(parts: Sequence[Draws], goal: pd.DataFrame, fewest: int = 3) -> str:
    """Find the one column that the laws read and in which the goal's rows differ.

    ``fewest``: least number of levels; with two, no optimum can lie inside.

    Raises
    ------
    RunTableError
        No column differs, or several do, or the levels are too few or repeated.
    """
    varying = differing(parts, goal)
    if len(varying) != 1:
        raise RunTableError(
            "gain 'optimum' needs a goal whose rows differ in one column, along which "
            f"the least loss is sought; they differ in {', '.join(varying) or 'none'} "
            "(gain 'best' chooses among any rows)"
        )
    (name,) = varying
    levels = goal[name]
    if len(levels) < fewest or not levels.is_unique:
        raise RunTableError(
            f"gain 'optimum' needs {fewest} or more different levels of "
            f"{name!r}, a row each; got {levels.nunique()} in {len(levels)} rows"
        )
    if not _is_share(name) and (levels <= 0).any():
        raise RunTableError(f"column {name!r} of the goal: levels must be above 0")
    return name


def _find_vertex(
    along: Float[np.ndarray, " level"], log_loss: Float[np.ndarray, "draw level"]
) -> Float[np.ndarray, " draw"]:
    """Find the vertex of the parabola through each draw's lowest point and its
    neighbours, shape (draw,), clipped to the ends.
    """
    last = len(along) - 1
    least = np.argmin(log_loss, axis=1)
    middle = np.clip(least, 1, last - 1)
    rows = np.arange(len(log_loss))
    lower, x, upper = along[middle - 1], along[middle], along[middle + 1]
    below, y, above = (log_loss[rows, middle + step] for step in (-1, 0, 1))
    # slopes on both sides, and the zero of the line between them
    before = (y - below) / (x - lower)
    after = (above - y) / (upper - x)
    bend = (after - before) / ((upper - lower) / 2)
    bottom = (lower + x) / 2 - before / np.where(bend > 0, bend, 1.0)
    return np.where(bend > 0, np.clip(bottom, lower, upper), along[least])

"""Define the goals of purchases: a forecast, a choice among recipes or laws, an optimum,
a plan; with the value of runs for each.

Any quantity that has a value in each draw can be a goal, as the losses are. The choice
of runs needs only the covariance of the quantity with the candidates' measurements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import numpy as np
import pandas as pd

from bayeslaw._base.errors import PlanError, RunTableError
from bayeslaw._base.frames import Table
from bayeslaw._base.numbers import format_spread
from bayeslaw._costs.costs import Costs
from bayeslaw._designs.criteria import Choosing, Criterion, Information, Variance
from bayeslaw._designs.evidence import Domain, domain_of
from bayeslaw._designs.goals.plan import PlanGoal, saving
from bayeslaw._designs.menu import Menu
from bayeslaw._forecasts.optimum import find_minima
from bayeslaw._forecasts.recipes import RECIPE, differing, format_short, names_of_rows
from bayeslaw._posteriors.draws import all_draws
from bayeslaw._posteriors.posterior import Posterior, columns_read
from bayeslaw._tables.fitting import check_full
from bayeslaw._tables.runs import as_runs

if TYPE_CHECKING:
    from jaxtyping import Float, Int

GainName = Literal[
    "variance", "information", "parameters", "plan", "best", "law", "optimum"
]


class GoalKind(NamedTuple):
    """A kind of gain: its unit, the least gain (per cost, or for the whole budget) for
    which a run is bought, and a name for the sd of its goal.
    """

    unit: str
    least: float
    sd_of: str = "the goal's sd"
    of_what: str = " of the loss"
    is_share: bool = True

    def shown(self, sd: float) -> str:
        """Format the goal's sd."""
        return format_spread(sd, ".2%") if self.is_share else f"{sd:.3g}"


# keys of a choice in JSON (`OptionDraws.now`)
CHOSEN = {"best": str, "chance regret chance_after? regret_after?": float}
KINDS: dict[str, GoalKind] = {
    "variance": GoalKind("squared log loss", 0.01),
    "information": GoalKind("nats about new runs at the goal", 0.01),
    "parameters": GoalKind("nats about all parameters", 0.0),
    "plan": GoalKind("FLOPs of the plan", 1.0),
    "best": GoalKind("log loss of what is chosen", 0.01),
    "law": GoalKind("squared probability", 0.01, "the sd of which law is right", ""),
    "optimum": GoalKind(
        "squared position", 0.01, "the sd of the optimum's position", "", False
    ),
}


@dataclass(frozen=True, eq=False)
class Goal:
    """The goal that runs improve: the draws of each domain, and the options if it is a
    choice, or the plan if it is a plan.
    """

    domains: list[Domain]
    gain: GainName
    options: OptionDraws | None = None
    plan: PlanGoal | None = None

    def criterion(self, rows: Float[np.ndarray, "goal coordinate"]) -> Criterion:
        """Choose the criterion that values runs, from the loadings of the goals."""
        if self.gain == "plan":
            assert self.plan is not None
            return saving(self.plan, self.domains, rows)
        if self.gain == "best":
            assert self.options is not None
            return Choosing.between(rows, self.options.worse.mean(axis=0))
        if self.gain == "parameters":
            return Information(None)
        if self.gain == "information":
            noise = [
                np.full(d.goal.shape[1], d.noise.variance.mean()) for d in self.domains
            ]
            # precision that measuring the goal's runs would add
            weighted = rows / np.concatenate(noise)[:, None]
            return Information(weighted.T @ rows)
        return Variance(rows)


def read_goal(
    goal: Table | str | Path | Mapping[str, Any], costs: Costs | None
) -> tuple[pd.DataFrame | dict[str, Any], Costs | None]:
    """Read the runs to forecast, or the question of a plan, with the costs."""
    if not isinstance(goal, Mapping):
        return as_runs(goal), costs
    costs = costs or goal.get("costs")
    return {**goal, "costs": costs}, costs


def gain_for(
    gain: str | None, goal: pd.DataFrame | Mapping[str, Any], has_source: bool
) -> GainName:
    """Find the kind of gain, and check that it suits the goal."""
    is_plan = isinstance(goal, Mapping)
    wanted = gain or ("plan" if is_plan else "variance")
    if wanted not in KINDS:
        raise PlanError(f"gain must be one of {', '.join(KINDS)}; got {gain!r}")
    if is_plan != has_source:
        raise PlanError(
            "a plan as the goal needs the source's posterior, and runs as the goal "
            "need none"
        )
    if wanted == "plan" and not is_plan:
        raise PlanError(
            "gain 'plan' needs a plan as the goal: the keyword arguments of plan()"
        )
    if wanted in ("best", "law", "optimum") and is_plan:
        raise PlanError(
            f"gain {wanted!r} is of runs to be forecast: give a table as the goal"
        )
    if not is_plan and not len(goal):
        raise RunTableError(
            "the goal's table has no rows: give the runs to be forecast"
        )
    return cast(GainName, wanted)


def forecast_goal(
    posterior: Posterior,
    goal: pd.DataFrame,
    gain: GainName,
    offered: Menu,
    run_length: float | None = None,
    *,
    may_be_settled: bool = False,
) -> Goal:
    """Compute the quantity that a kind of gain is about from the losses of the runs to
    forecast.

    ``may_be_settled``: whether earlier runs may have fixed the optimum already.
    """
    domain = domain_of(posterior, offered, goal, run_length)
    if gain == "best":
        return _ask_best_recipe(domain, columns_read(posterior), goal)
    if gain == "law":
        return _ask_right_law(domain, posterior)
    if gain == "optimum":
        return _ask_optimum(domain, columns_read(posterior), goal, may_be_settled)
    return Goal([domain], gain)


# -- choices ---------------------------------------------------------------------------


class OptionDraws(NamedTuple):
    """The options of a choice.

    ``worse``: loss of each option in every draw, up to a constant, shape (draw,
    option): log loss, or 0 for the law of the draw and 1 for others.
    """

    names: list[str]
    worse: Float[np.ndarray, "draw option"]

    def expect(
        self, weights: Float[np.ndarray, "outcome draw"]
    ) -> tuple[
        Int[np.ndarray, " outcome"],
        Float[np.ndarray, " outcome"],
        Float[np.ndarray, " outcome"],
    ]:
        """Choose the best option on average under weights of the draws, shape (outcome,
        draw). Returns the option, the chance that it is the best, and its regret: its
        expected loss against the best option of each draw; each of shape (outcome,).
        """
        mean = weights @ self.worse
        chosen = np.argmin(mean, axis=1)
        of_best = weights @ self.worse.min(axis=1)
        is_best = np.eye(len(self.names))[np.argmin(self.worse, axis=1)]
        chance = (weights @ is_best)[np.arange(len(chosen)), chosen]
        regret = mean.min(axis=1) - of_best
        # rounding may take the chance above 1 and the regret below 0
        return chosen, np.minimum(chance, 1.0), np.maximum(regret, 0.0)

    def now(self) -> dict[str, Any]:
        """Find the best option on average, its chance to be it, and its regret."""
        draws = len(self.worse)
        chosen, chance, regret = self.expect(np.full((1, draws), 1 / draws))
        best = self.names[int(chosen[0])]
        return {"best": best, "chance": float(chance[0]), "regret": float(regret[0])}


def _ask_best_recipe(domain: Domain, read: Sequence[str], goal: pd.DataFrame) -> Goal:
    """Average log losses by recipe: rows named so in `RECIPE`, else each row."""
    if RECIPE in goal:
        check_full(goal, RECIPE, "a choice among recipes needs")
        named = goal[RECIPE].astype(str)
        names = list(dict.fromkeys(named))
        places = [np.flatnonzero(named == name) for name in names]
    else:
        names, places = names_of_rows(read, goal)
    if len(names) < 2:
        raise PlanError(
            "gain 'best' needs two recipes or more to choose between: rows of the goal "
            f"that differ in what the laws read, or are named in a column {RECIPE!r}"
        )
    worse = np.stack([domain.goal[:, rows].mean(axis=1) for rows in places], axis=1)
    # the common checkpoint of a recipe's rows, -1 if there is none
    at = [domain.at[rows] for rows in places]
    common = np.array([int(a[0]) if (a == a[0]).all() else -1 for a in at])
    options = OptionDraws(names, worse)
    return Goal([domain.about(worse, common)], "best", options)


def _ask_right_law(domain: Domain, posterior: Posterior) -> Goal:
    """Make an indicator of the law of each draw."""
    parts = all_draws(posterior.pieces())
    names = [
        law.name if (law := part.piece.law) else f"formula {number}"
        for number, part in enumerate(parts, start=1)
    ]
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
    options = OptionDraws(different, is_other)
    return Goal([domain.about(is_other, nowhere)], "law", options)


# -- where the optimum lies ------------------------------------------------------------


def _ask_optimum(
    domain: Domain,
    read: Sequence[str],
    goal: pd.DataFrame,
    may_be_settled: bool,
    fewest: int = 3,
) -> Goal:
    """Find the position of the lowest loss along the goal's sweep. For a share it is
    the value, for other columns the logarithm. If the lowest loss is not inside the
    sweep, it is an end of the sweep.

    ``fewest``: least number of levels; with two, no optimum can lie inside.
    """
    varying = differing(read, goal)
    if len(varying) != 1:
        raise RunTableError(
            "gain 'optimum' needs a goal whose rows differ in one column, along which "
            f"the least loss is sought; they differ in {', '.join(varying) or 'none'} "
            "(gain 'best' chooses among any rows)"
        )
    (name,) = varying
    levels = goal[name].to_numpy(float)
    different = len(np.unique(levels))
    if len(levels) < fewest or different < len(levels):
        raise RunTableError(
            f"gain 'optimum' needs {fewest} or more different levels of "
            f"{name!r}, a row each; got {different} in {len(levels)} rows"
        )
    is_share = name == "replay"
    if not is_share and (levels <= 0).any():
        raise RunTableError(f"column {name!r} of the goal: levels must be above 0")
    order = np.argsort(levels)
    along = levels[order] if is_share else np.log(levels[order])
    position = find_minima(along, domain.goal[:, order]).at
    if np.ptp(position) == 0 and not may_be_settled:
        end = levels[order][0 if position[0] == along[0] else -1]
        raise PlanError(
            f"the least loss is at {name} = {format_short(name, end)} in every draw, an "
            "end of the goal's sweep: there is nothing to learn; sweep further"
        )
    nowhere = np.array([-1])
    return Goal([domain.about(position[:, None], nowhere)], "optimum")

"""``next_runs``: buy a batch of runs, measure, update, buy again.

What to buy next is a pure function of what is on offer and what has been measured, so
that the table of measured runs is all the state there is: a sequence that is broken off
anywhere goes on where it was.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bayeslaw._base import runtime
from bayeslaw._base.errors import PlanError, RunTableError
from bayeslaw._base.numbers import format_count, positive
from bayeslaw._decisions.anchors.appraisal import goal_sds
from bayeslaw._decisions.anchors.criteria import Variance
from bayeslaw._decisions.anchors.evidence import domain_of, gaussian
from bayeslaw._decisions.anchors.gaussian import Pick
from bayeslaw._decisions.anchors.menu import Menu, menu
from bayeslaw._decisions.anchors.search import Limits, choose
from bayeslaw._decisions.buying.knowledge import (
    PriorKnowledge,
    fewest,
    from_priors,
    laws_for,
    what_is_known,
)
from bayeslaw._law.law import Law
from bayeslaw._posteriors.posterior import Posterior

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

FIRST = 0.2  # of the budget, at most, for what the priors alone choose
# Of the budget: cheaper runs are left. A law is fitted by itself before its misfit is,
# so that many runs far below the goal bend it: with them forecasts got worse
# (docs/anchors.md).
TRIFLE = 2e-3
LEAST_FALL = 0.05  # of the goal's sd, by which the rest of the budget has to lower it
ODD = 1e-3  # chance of a loss as far from its forecast, below which it is called odd


@dataclass(frozen=True, eq=False)
class NextRuns:
    """What to buy next, and what is known before it is bought.

    Parameters
    ----------
    runs
        Rows of the candidates to measure now, cheapest first; none where ``stop`` says
        why. ``row`` is a row's label among the candidates, ``cost`` that of its run up
        to it.
    goal_sd
        Sd of the goal's log losses (root mean square over its runs) as it is.
    goal_sd_after
        The same once all that is chosen for the rest of the budget is measured.
    spent, budget
        In the unit of the costs.
    stop
        Why nothing is bought any more, or nothing.
    odd
        Rows of measured runs whose losses the others did not expect.
    failed
        Rows that were bought and gave no loss.
    posterior
        What is known: a `Fit`, an `Average`, or what priors say.
    """

    runs: pd.DataFrame
    goal_sd: float
    goal_sd_after: float
    spent: float
    budget: float
    stop: str
    odd: list[Any]
    failed: list[Any]
    posterior: Posterior
    asked: Asked

    def update(self, rows: pd.DataFrame) -> NextRuns:
        """What to buy once these rows are measured too: those of ``runs`` with their
        losses, none (NaN) for a run that failed.
        """
        # none before the first batch, whose columns would have no types
        batches = [table for table in (self.asked.measured, rows) if len(table)]
        all_rows = pd.concat(batches, ignore_index=True) if batches else None
        measured = _measured(self.asked.candidates, all_rows)
        return _next(replace(self.asked, measured=measured))

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON holds it."""
        return {
            "rows": self.runs["row"].tolist(),
            "goal_sd": self.goal_sd,
            "goal_sd_after": self.goal_sd_after,
            "spent": self.spent,
            "budget": self.budget,
            "stop": self.stop,
            "odd": self.odd,
            "failed": self.failed,
            "known_from": self.posterior.name,
        }

    def table(self) -> pd.DataFrame:
        """A line for each row to measure, as people read it."""
        shown = self.runs.drop(columns="loss")
        counts = [c for c in ("N", "D", "U") if c in shown]
        shown[counts] = shown[counts].map(format_count)
        shown["cost"] = [f"{cost:.3g}" for cost in shown["cost"]]
        return shown

    def sentence(self) -> str:
        """The answer in words."""
        now = f"the goal's sd is {self.goal_sd:.2%} of the loss"
        if self.stop:
            return f"Buy nothing more: {self.stop}; {now}."
        count = self.runs["run"].nunique() if "run" in self.runs else len(self.runs)
        return (
            f"Measure these {count} run{'s' * (count > 1)} and come back; {now}, "
            f"{self.goal_sd_after:.2%} expected once the budget of {self.budget:.3g} is "
            f"spent ({self.spent:.3g} so far)."
        )


@dataclass(frozen=True, eq=False)
class Asked:
    """What `next_runs` was asked, with its defaults filled in."""

    candidates: pd.DataFrame
    goal: pd.DataFrame
    budget: float
    measured: pd.DataFrame
    laws: tuple[Law, ...]
    batch: int | None
    enough: float
    seed: int


def next_runs(
    candidates: pd.DataFrame,
    goal: pd.DataFrame,
    budget: float,
    *,
    measured: pd.DataFrame | None = None,
    laws: Sequence[Law | str] | None = None,
    batch: int | None = None,
    enough: float = 0.0,
    seed: int = 0,
) -> NextRuns:
    """Which of the runs on offer to buy next, from nothing or from what was measured.

    From priors alone at most a fifth of the budget is spent, on as many runs as a law
    can be fitted to. Then laws are averaged on what was measured, and the best list for
    all that is left of the budget is bought: whole, or its cheapest runs first.

    Parameters
    ----------
    candidates
        Runs on offer, as `anchors` takes them; a ``loss`` in it is not looked at.
    goal
        Runs to be forecast, in the columns that the laws read.
    budget
        Of the whole sequence, in the unit of the costs.
    measured
        Rows bought so far: ``row`` (their label among the candidates) and ``loss``,
        which is NaN for a run that failed; it is paid for and not bought again.
    laws
        By default those that suit the candidates' columns.
    batch
        Most runs to buy at once; by default all that are chosen.
    enough
        Sd of the goal's log loss at which to stop.
    seed
        Same seed, same machine: same runs.

    Raises
    ------
    RunTableError
        A table lacks a column, or a measured row is none of the candidates.
    LawError
        A law is unknown, or none suits the columns.
    PlanError
        The budget buys nothing, or a setting is out of range.
    """
    if batch is not None and (batch != int(batch) or batch < 1):
        raise PlanError(f"batch must be a whole number of at least 1, got {batch!r}")
    if not len(goal):
        raise RunTableError(
            "the goal's table has no rows: give the runs to be forecast"
        )
    if not candidates.index.is_unique:
        raise RunTableError(
            "two candidates have the same row number: number them anew (reset_index)"
        )
    offered = candidates.drop(columns="loss", errors="ignore")
    asked = Asked(
        candidates=offered,
        goal=goal.drop(columns="loss", errors="ignore"),
        budget=positive("budget", budget),
        measured=_measured(offered, measured),
        laws=tuple(laws_for(offered, laws)),
        batch=batch,
        enough=enough,
        seed=seed,
    )
    return _next(asked)


def _measured(offered: pd.DataFrame, measured: pd.DataFrame | None) -> pd.DataFrame:
    """Rows and losses, once every row has been found among the candidates."""
    if measured is None or not len(measured):
        return pd.DataFrame({"row": [], "loss": []})
    for column in ("row", "loss"):
        if column not in measured:
            raise RunTableError(
                f"the table of measured runs lacks column {column!r}: give the rows "
                "that were to be measured, with their losses"
            )
    strange = [row for row in measured["row"] if row not in offered.index]
    if strange:
        raise RunTableError(
            f"measured row {strange[0]!r} is none of the candidates: give the table "
            "they were chosen from"
        )
    table = measured[["row"]].assign(loss=_losses(measured))
    # a run that failed and was made again has its loss from then on
    gave = table.dropna(subset="loss")
    failed = table[~table["row"].isin(gave["row"])].drop_duplicates("row")
    twice = gave["row"][gave["row"].duplicated()]
    if len(twice):
        raise RunTableError(
            f"measured row {twice.iloc[0]!r} is there twice: give each batch once"
        )
    kept = table.index.isin([*gave.index, *failed.index])
    return table[kept].reset_index(drop=True)


def _losses(measured: pd.DataFrame) -> pd.Series:
    """Losses as numbers, NaN of runs that failed."""
    losses = pd.to_numeric(measured["loss"], errors="coerce")
    written = measured["loss"].notna() & (
        measured["loss"].astype(str).str.strip() != ""
    )
    wrong = (losses.isna() & written) | (losses <= 0) | np.isinf(losses)
    if wrong.any():
        first = measured[wrong].iloc[0]
        raise RunTableError(
            f"measured row {first['row']!r}, column 'loss': {first['loss']!r} is no loss "
            "above 0; leave it empty if the run failed"
        )
    return losses


# -- what is known ---------------------------------------------------------------------


def _next(asked: Asked) -> NextRuns:
    runtime.start()
    bought = asked.candidates.index.isin(asked.measured["row"])
    posterior = _known(asked, bought)
    offered = menu(asked.candidates)
    spent = offered.price(bought)
    chosen = _chosen(asked, offered, bought, posterior, asked.budget - spent)
    stop = _why_stop(asked, chosen, posterior)
    now = [] if stop else _now(asked, chosen, posterior, spent)
    gave_none = asked.measured["loss"].isna()
    return NextRuns(
        runs=_rows(offered, now, bought),
        goal_sd=chosen.sds[0],
        goal_sd_after=chosen.sds[-1],
        spent=spent,
        budget=asked.budget,
        stop=stop,
        odd=_odd(asked, posterior),
        failed=asked.measured["row"][gave_none].tolist(),
        posterior=posterior,
        asked=asked,
    )


def _known(asked: Asked, bought: Bool[np.ndarray, " candidate"]) -> Posterior:
    """What the measured runs and the priors say."""
    gave = asked.measured.dropna(subset="loss")
    if not len(gave):
        return from_priors(asked.laws, asked.candidates, asked.seed)
    measured = asked.candidates.loc[gave["row"]].assign(loss=gave["loss"].to_numpy())
    # the runs on offer stay in the table, so that all batches share compiled programs
    rest = asked.candidates[~bought].assign(loss=float(gave["loss"].median()))
    table = pd.concat([measured, rest], ignore_index=True)
    is_measured = np.arange(len(table)) < len(measured)
    return what_is_known(table, is_measured, asked.laws, asked.seed)


def _odd(asked: Asked, posterior: Posterior) -> list[Any]:
    """Rows of measured runs whose losses are out of what is known by now."""
    gave = asked.measured.dropna(subset="loss")
    if not len(gave) or isinstance(posterior, PriorKnowledge):
        return []
    runs = asked.candidates.loc[gave["row"]].reset_index(drop=True)
    draws = posterior.log_loss(runs, noise=True, seed=asked.seed)
    # share of the forecast on the far side of what came back, both sides counted
    above = (draws > np.log(gave["loss"].to_numpy())).mean(axis=0)
    surprise = 2 * np.minimum(above, 1 - above)
    return gave["row"][surprise < ODD].tolist()


# -- what to buy -----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Chosen:
    """The best list for what is left of the budget: ``picks`` and ``cost`` of each of
    them, cheapest first; ``sds`` of the goal before and after each, in order of worth.
    """

    picks: list[Pick]
    cost: Float[np.ndarray, " pick"]
    sds: list[float]


def _chosen(
    asked: Asked,
    offered: Menu,
    bought: Bool[np.ndarray, " candidate"],
    posterior: Posterior,
    left: float,
) -> Chosen:
    domain = domain_of(posterior, offered, asked.goal, None)
    approximation = gaussian(_on_sale(offered, bought, asked.budget, left), [domain])
    # who has paid for a checkpoint does not pay again
    due = offered.checkpoint_cost.copy()
    due[offered.paid_checkpoints(bought)] = 0.0
    offer = replace(approximation.offer, checkpoint_cost=due)
    limits = Limits(left, 1, len(offer.cost))
    picks: list[Pick] = []
    if (offer.cost <= left).any():
        picks = choose(offer, Variance(approximation.goals), limits)
    sds = goal_sds(approximation, picks)
    cost = np.array([offer.cost[pick] for pick in picks])
    # What cheap runs teach may change what the dear ones should be: they go first.
    order = np.argsort(cost, kind="stable")
    return Chosen([picks[i] for i in order], cost[order], sds)


def _on_sale(
    offered: Menu, bought: Bool[np.ndarray, " candidate"], budget: float, left: float
) -> Menu:
    """The menu without what is bought, and without trifles as long as something else
    can be paid for.
    """
    unsold = offered.without(bought)
    trifling = unsold.cost < TRIFLE * budget
    worthwhile = np.where(trifling, np.inf, unsold.cost)
    if not (worthwhile <= left).any():
        return unsold
    return replace(unsold, cost=worthwhile)


def _why_stop(asked: Asked, chosen: Chosen, posterior: Posterior) -> str:
    is_known = not isinstance(posterior, PriorKnowledge)
    if is_known and chosen.sds[0] <= asked.enough:
        return f"the goal is known to within the {asked.enough:.2%} asked for"
    if not chosen.picks and not len(asked.measured):
        raise PlanError(
            f"budget {asked.budget:g} buys none of the candidates; raise it, or offer "
            "smaller runs"
        )
    if not chosen.picks:
        return "nothing on offer that the rest of the budget pays for adds anything"
    if is_known and chosen.sds[-1] > (1 - LEAST_FALL) * chosen.sds[0]:
        return "what the rest of the budget pays for would hardly lower it"
    return ""


def _now(
    asked: Asked, chosen: Chosen, posterior: Posterior, spent: float
) -> list[Pick]:
    """The part of the list to buy now: of what priors chose, what a first fit needs."""
    count = len(chosen.picks)
    if isinstance(posterior, PriorKnowledge):
        most = FIRST * asked.budget - spent
        within = int(np.searchsorted(np.cumsum(chosen.cost), most, "right"))
        count = min(max(within, fewest(asked.laws)), count)
    return chosen.picks[: min(count, asked.batch or count)]


def _rows(
    offered: Menu, picks: Sequence[Pick], bought: Bool[np.ndarray, " candidate"]
) -> pd.DataFrame:
    """The candidates' rows that these picks measure, in order, with label and cost."""
    places, costs = [], []
    for run, stop in picks:
        for at in range(stop + 1):
            place = int(offered.rows[run, at])
            if not bought[place]:
                places.append(place)
                costs.append(float(offered.cost[run, at]))
    table = offered.table.iloc[places].copy()
    table["cost"] = costs
    labels = offered.table.index[places]
    if "row" in table:
        table = table.drop(columns="row")
    table.insert(0, "row", labels)
    return table.assign(loss=math.nan).reset_index(drop=True)

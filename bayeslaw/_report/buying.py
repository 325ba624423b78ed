"""Choose runs to buy before the plan is carried out, between the table and the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bayeslaw._base.errors import BayeslawError, RunTableError
from bayeslaw._base.numbers import format_count, format_many
from bayeslaw._costs.costs import COST_LIMITS, Costs
from bayeslaw._designs.anchors import Anchors, anchors
from bayeslaw._designs.menu import candidates, menu, with_planned_checkpoint
from bayeslaw._law.columns import LOSSES_BEFORE
from bayeslaw._plans.result import Plan
from bayeslaw._posteriors.averaging.checkpoint import can_fill, fill_losses
from bayeslaw._posteriors.outcomes import check_readable
from bayeslaw._posteriors.posterior import KeptPosterior, columns_read
from bayeslaw._tables.holdouts import stage_axis
from bayeslaw._tables.rows.levels import SAME, is_of_model

if TYPE_CHECKING:
    from jaxtyping import Float


# the runs that the page offers, and when it advises them
BUDGET = 0.1  # of runs that improve the plan, as a share of its cost
PICKS = 6  # most runs
SIZES = 3  # above the table's largest, up to and including the plan's
REPLAYS = 2  # on offer: those of the table nearest to the plan's
PILOTS = 3  # token budgets of the plan's own model
SAVING = 0.01  # share of the plan's cost to be saved beyond the runs' own
ERRORS = 2.0  # number of its standard errors that a gain must exceed
# Least probability of the most probable choice, if there is no plan. Below one half, its
# forecasts are most likely over a limit; narrower ones would be, too.
HOPE = 0.5
REACH = 10.0  # most tokens of that choice, in those of the longest run

Fits = Mapping[str, KeptPosterior]  # by domain


def why_not_offered(
    runs: pd.DataFrame, question: Mapping[str, Any], read: Sequence[str]
) -> str | None:
    """Give the reason why no runs can be offered for a question of `plan`, as far as it is
    known before the fits. ``read``: columns that the laws of both domains read.
    """
    if not can_be_priced(runs):
        return None
    # the plan's tokens and replay are not known yet
    if question.get("ptpp") is None:
        return None
    planned = {name: float(np.max(question[name])) for name in ("N", "ptpp")}
    planned |= {"D": float(runs["D"].max()), "replay": float(runs["replay"].median())}
    try:
        offered = on_offer(runs, planned)
        if offered is None:
            return None
        menu(offered)
        to_be_forecast = [
            c for c in read if c in LOSSES_BEFORE and c in offered and can_fill(runs, c)
        ]
        there = [c for c in read if c not in to_be_forecast]
        offered = known_starts(offered, [c for c in there if c in LOSSES_BEFORE])
        check_readable(offered, there, "the table of candidates")
    except BayeslawError as error:
        return (str(error).splitlines() or [""])[0]
    return None


def can_be_priced(runs: pd.DataFrame) -> bool:
    return {"N", "D", "replay", "ptpp"} <= set(runs)


@dataclass(frozen=True)
class Purchase:
    """Runs chosen among those on offer between the table and the plan."""

    offered: pd.DataFrame  # all runs on offer, with their costs
    # the chosen runs; None if the cheapest costs more than the budget
    picked: Anchors | None
    # cost of the plan, or of the most probable choice if there is no plan, in ``unit``
    price: float
    unit: str
    notes: tuple[str, ...]  # origin of the losses of their checkpoints
    # There is a plan, which the runs make cheaper. Otherwise they narrow the forecasts
    # of the most probable choice.
    is_planned: bool
    most = BUDGET  # cost of the runs, as a share of the price

    @property
    def what(self) -> str:
        return "plan" if self.is_planned else "most probable choice"

    @property
    def is_advised(self) -> bool:
        """Tell whether the chosen runs are worth their cost. Without a plan they cost a
        small share of one, and no plan can be made before more is learned.
        """
        if self.picked is None:
            return False
        if not self.is_planned:
            return bool(self.picked.picks)
        return is_worth_it(self.picked, self.price)

    @property
    def lines(self) -> list[dict[str, str]]:
        """Describe the advised runs, a row of texts each."""
        if self.picked is None or not self.is_advised:
            return []
        return [self._describe_run(pick) for pick in self.picked.picks]

    def sentence(self) -> str:
        """Describe the chosen runs and their effect, or say why there are none."""
        picked, unit, what = self.picked, self.unit, self.what
        if picked is None or not self.is_advised:
            first = _first_costs(self.offered)
            why = "none is expected to be worth its cost"
            if picked is None:
                share = first.min() / self.price
                why = f"the cheapest costs {share:.0%} of the {what}, over {BUDGET:.0%}"
            return (
                f"Nothing: {len(first)} runs between the table and the {what} are on offer, "
                f"for {first.min():.2g} to {first.max():.2g} {unit} each; {why}."
            )
        share = f"{picked.spent / self.price:.0%} of the cost of the {what}"
        effect = (
            "narrow the forecasts of the most probable choice: the standard deviation of "
            f"the law's losses from {picked.goal_sd_before:.1%} to "
            f"{picked.goal_sd_after:.1%} on average. Measure them, add them to the table, "
            "and plan again; that there will be a plan then is not sure"
        )
        if self.is_planned:
            saved = sum(pick["gain"] for pick in picked.picks)
            effect = (
                f"make the plan {saved:.2g} {unit} cheaper on average, at the same "
                "probability"
            )
        return (
            f"{format_many(len(picked.picks), 'run')} for {picked.spent:.2g} {unit} "
            f"({share}) would {effect}."
        )

    def _describe_run(self, pick: Mapping[str, Any]) -> dict[str, str]:
        run, unit = self.offered.loc[pick["row"]], self.unit
        is_new = run["checkpoint_cost"] > 0
        line = {
            "model": f"{format_count(run['N'])} parameters",
            "pre-trained on": f"{format_count(run['N'] * run['ptpp'])} tokens"
            + (" (to be trained first)" if is_new else ""),
            "adapt on": f"{format_count(run['D'])} tokens",
            "replay": f"{run['replay']:.0%}",
            "costs": f"{pick['cost']:.2g} {unit}",
        }
        if self.is_planned:
            return line | {"saves": f"{pick['gain']:.2g} {unit}"}
        return line | {"standard deviation after it": f"{pick['goal_sd']:.1%}"}


def choose_runs(
    fits: Fits, question: Mapping[str, Any], answer: Plan, runs: pd.DataFrame
) -> Purchase | None:
    """Choose runs to buy before the plan; None if nothing can be priced, or if the
    plan's model is smaller than the table's. If no plan reaches the confidence, the runs
    are for the most probable choice; None if that most likely breaks a limit.
    """
    if not can_be_priced(runs):
        return None
    planned = _find_planned(answer, float(runs["D"].max()))
    if planned is None:
        return None  # the budget is a share of its cost
    formula = question.get("costs") or Costs()
    # prices of runs, if they are known in money
    costs = formula if formula.has_money else None
    price, unit = formula.flops_per_token(planned["N"]) * planned["D"], "FLOPs"
    if costs is not None:
        bill = costs.of_run(planned["N"], planned["D"], planned["ptpp"])
        price, unit = bill.money, "money"
    offered = on_offer(runs, planned, costs)
    if offered is None:
        return None
    inputs = columns_read(fits["target"], fits["source"])
    columns = [column for column in LOSSES_BEFORE if column in inputs]
    offered = _with_planned_losses(offered, planned, question)
    offered, lines = fill_losses(offered, runs, columns, seed=int(question["seed"]))
    offered = known_starts(offered, columns)
    budget, picked = BUDGET * price, None
    if budget >= _first_costs(offered).min():
        # `anchors` has its own arguments for seed and costs
        apart = {"seed", "costs"}
        if answer.settings["max_tokens"] is None:
            # limits on the bill leave room for the cheapest plan: it is the goal
            apart |= {*COST_LIMITS}
        goal = {name: value for name, value in question.items() if name not in apart}
        picked = anchors(
            fits["target"],
            offered,
            goal,
            budget,
            source=fits["source"],
            max_picks=PICKS,
            replicates=1,
            checks=0,
            costs=costs,
        )
    return Purchase(offered, picked, price, unit, tuple(lines), answer.feasible)


def _find_planned(answer: Plan, longest: float) -> dict[str, float] | None:
    """Collect size, stage, tokens and replay of the plan, or of the most probable choice
    if there is no plan; None if its stage is not known, its tokens are 0 or without end,
    or if it is not likely to keep the limits. ``longest``: tokens of the longest run.
    """
    if answer.ptpp is None:
        return None
    model = {"N": answer.N, "ptpp": answer.ptpp}
    if answer.feasible and answer.D:
        return model | {"D": answer.D, "replay": answer.replay or 0.0}
    best = (answer.explanation or {}).get("best") or {}
    if answer.feasible or not best.get("D") or best["probability"] < HOPE:
        return None
    tokens = min(best["D"], REACH * longest)
    return model | {"D": tokens, "replay": best["replay"]}


def _with_planned_losses(
    offered: pd.DataFrame, planned: Mapping[str, Any], question: Mapping[str, Any]
) -> pd.DataFrame:
    given = question.get("covariates") or {}
    is_own = is_of_model(offered, planned["N"], planned["ptpp"])
    medians = {
        column: offered[column].mask(is_own, float(np.median(given[column])))
        for column in LOSSES_BEFORE
        if column in offered and not isinstance(given.get(column, {}), Mapping)
    }
    return offered.assign(**medians)


def on_offer(
    runs: pd.DataFrame, planned: Mapping[str, Any], costs: Costs | None = None
) -> pd.DataFrame | None:
    """Make runs between the table and the plan (``N``, ``ptpp``, ``D``, ``replay``); None
    if its model is smaller than the table's.

    Their sizes go from the table's largest to the plan's. Their stage is the plan's,
    and their replays are near the plan's. Their tokens go from those of the table's
    longest runs up to the plan's. Short runs of the plan's own model come with them, if
    the table has no such runs, or only shorter ones.
    """
    same = 1 + SAME
    smaller = [n for n in runs["N"].unique() if n <= same * planned["N"]]
    if not smaller:
        return None
    largest = float(max(smaller))
    steps = np.geomspace(largest, max(planned["N"], largest), SIZES + 1)[1:-1]
    between = [float(f"{size:.2g}") for size in steps if size > same * largest]
    shares = np.unique(runs["replay"].dropna())
    nearest = np.argsort(np.abs(shares - (planned["replay"] or 0.0)))[:REPLAYS]
    replays = sorted(shares[nearest].tolist())
    most, end = float(runs["D"].max()), float(planned["D"])
    is_longer = most < (1 - SAME) * end
    tokens = np.geomspace(most, end, 3) if is_longer else np.array([end])

    def offer(size: float, stage: float, D: Float[np.ndarray, " run"]) -> pd.DataFrame:
        settings: dict[str, Any] = {"N": [size], "ptpp": [stage], "replay": replays}
        return candidates(runs, **settings, D=D.tolist(), costs=costs)

    tables = [
        offer(size, _choose_stage(runs, planned, size), tokens)
        for size in (largest, *between)
    ]
    pilots = _pilot_tokens(runs, planned)
    if len(pilots):
        short = offer(planned["N"], planned["ptpp"], pilots)
        tables.append(with_planned_checkpoint(short, planned["N"], planned["ptpp"]))
    table = pd.concat(tables, ignore_index=True)
    table.index = pd.RangeIndex(1, len(table) + 1, name="row")
    return table


def _pilot_tokens(
    runs: pd.DataFrame, planned: Mapping[str, Any]
) -> Float[np.ndarray, " run"]:
    """Choose tokens of short runs of the plan's own model, from those of the table's
    shortest run to those of its longest. If the table has runs of this size, others are
    on offer already, as long as the table's longest and longer; pilots lie between these
    and its own runs at the plan's stage.
    """
    most = min(float(runs["D"].max()), float(planned["D"]))
    if not is_of_model(runs, planned["N"], None).any():
        least = float(runs["D"][runs["D"] > 0].min())
        return np.unique(np.geomspace(min(least, most), most, PILOTS))
    longest = runs["D"][is_of_model(runs, planned["N"], planned["ptpp"])].max()
    # NaN: at another stage only, so the checkpoint must be trained first
    if not longest < (1 - SAME) * most:
        return np.array([])
    return np.geomspace(longest, most, PILOTS + 2)[1:-1]


def _choose_stage(runs: pd.DataFrame, planned: Mapping[str, Any], size: float) -> float:
    """Find the pre-training tokens per parameter of a model of this size, at the plan's
    stage or the table's last stage, whichever is earlier. If the table has such a
    checkpoint, the value is exactly that of the checkpoint.
    """
    are_tokens = stage_axis(runs) == "N*ptpp"
    levels = runs["ptpp"] * (runs["N"] if are_tokens else 1.0)
    wanted = planned["ptpp"] * (planned["N"] if are_tokens else 1.0)
    stage = min(wanted, float(levels.max())) / (size if are_tokens else 1.0)
    there = runs["ptpp"][is_of_model(runs, size, stage)]
    return float(there.iloc[0]) if len(there) else stage


def _first_costs(offered: pd.DataFrame) -> np.ndarray:
    """Compute the cost of each run up to its first measurement, with its checkpoint."""
    cost = offered["cost"] + offered["checkpoint_cost"]
    return cost.groupby(offered["run"]).min().to_numpy(float)


def is_worth_it(picked: Anchors, of_plan: float) -> bool:
    if not picked.picks:
        return False
    gain = sum(pick["gain"] for pick in picked.picks)
    error = np.sqrt(sum(pick["gain_error"] ** 2 for pick in picked.picks))
    return bool(gain > ERRORS * error and gain - picked.spent > SAVING * of_plan)


def known_starts(offered: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Select runs on offer with known losses of their checkpoints."""
    there = [column for column in columns if column in offered]
    complete = offered.dropna(subset=there)
    if complete.empty:
        raise RunTableError(
            f"no checkpoint on offer has {' and '.join(there)}, measured or forecast: "
            "measure it at six checkpoints at least, from which others are forecast"
        )
    return complete

"""Choose runs to buy before the plan is carried out, between the table and the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bayeslaw._base.errors import BayeslawError, RunTableError
from bayeslaw._base.numbers import format_count
from bayeslaw._costs.costs import Costs
from bayeslaw._designs.anchor_list import Anchors
from bayeslaw._designs.anchors import anchors
from bayeslaw._designs.menu import candidates, menu, with_planned_checkpoint
from bayeslaw._law.columns import LOSSES_BEFORE
from bayeslaw._plans.result import Plan
from bayeslaw._posteriors.averaging.checkpoint import can_fill, fill_losses
from bayeslaw._posteriors.averaging.folds import stage_axis
from bayeslaw._posteriors.outcomes import check_readable
from bayeslaw._posteriors.posterior import KeptPosterior, columns_read


class Rule(NamedTuple):
    """Rules for the runs that the page offers, and for when it advises them.

    Parameters
    ----------
    budget
        Budget of runs that improve the plan, as a share of the plan's cost.
    picks
        Most runs.
    sizes
        Number of sizes above the table's largest, up to and including the plan's.
    replays
        Number of replays on offer: those of the table nearest to the plan's.
    pilots
        Number of token budgets of the plan's own model.
    saving
        Share of the plan's cost that runs must save beyond their own.
    errors
        Number of its standard errors that a gain must exceed.
    same
        Relative difference below which levels are equal, because people round.
    """

    budget: float = 0.1
    picks: int = 6
    sizes: int = 3
    replays: int = 2
    pilots: int = 3
    saving: float = 0.01
    errors: float = 2.0
    same: float = 0.01


RULE = Rule()

Fits = Mapping[str, KeptPosterior]  # by domain


def why_not_offered(
    runs: pd.DataFrame, question: Mapping[str, Any], read: Sequence[str]
) -> str | None:
    """Give the reason why no runs can be offered, as far as it is known before the
    fits; None if there is no such reason.

    Parameters
    ----------
    runs
        The target's.
    question
        Keywords of `plan`.
    read
        Columns that the laws of target and source read.
    """
    if not can_be_priced(runs):
        return None
    # the plan's tokens and replay are not known yet
    planned = {name: float(np.max(question.get(name, 1.0))) for name in ("N", "ptpp")}
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
    """Tell whether a table has the columns of checkpoints and tokens that costs need."""
    return {"N", "D", "replay", "ptpp"} <= set(runs)


@dataclass(frozen=True)
class Purchase:
    """Runs chosen among those on offer between the table and the plan.

    Parameters
    ----------
    offered
        All runs on offer, with their costs.
    picked
        The chosen runs; None if the cheapest costs more than the budget.
    price
        Cost of the plan, in ``unit``.
    notes
        Origin of the losses of their checkpoints.
    """

    offered: pd.DataFrame
    picked: Anchors | None
    price: float
    unit: str
    notes: tuple[str, ...]

    @property
    def is_advised(self) -> bool:
        """Tell whether the chosen runs are worth their cost."""
        return self.picked is not None and is_worth_it(self.picked, self.price)


def choose_runs(
    fits: Fits, question: Mapping[str, Any], answer: Plan, runs: pd.DataFrame
) -> Purchase | None:
    """Choose runs to buy before the plan; None if nothing can be priced, or if the
    plan's model is smaller than the table's.
    """
    if not can_be_priced(runs) or not answer.feasible or not answer.D:
        return None  # the budget is a share of the plan's cost
    costs = _prices(question)
    price, unit = float(answer.flops or 0), "FLOPs"
    if costs is not None:
        price, unit = (answer.cost or {}).get("money", 0.0), "money"
    planned = {key: getattr(answer, key) for key in ("N", "ptpp", "D", "replay")}
    offered = on_offer(runs, planned, costs)
    if offered is None:
        return None
    inputs = columns_read(fits["target"], fits["source"])
    columns = [column for column in LOSSES_BEFORE if column in inputs]
    offered = _with_planned_losses(offered, planned, question)
    offered, lines = fill_losses(offered, runs, columns, seed=int(question["seed"]))
    offered = known_starts(offered, columns)
    budget = RULE.budget * price
    if budget < _first_costs(offered).min():
        return Purchase(offered, None, price, unit, tuple(lines))
    # `anchors` has its own arguments for seed and costs
    goal = {n: value for n, value in question.items() if n not in ("seed", "costs")}
    picked = anchors(
        fits["target"],
        offered,
        goal,
        budget,
        source=fits["source"],
        max_picks=RULE.picks,
        replicates=1,
        checks=0,
        costs=costs,
    )
    return Purchase(offered, picked, price, unit, tuple(lines))


def _with_planned_losses(
    offered: pd.DataFrame, planned: Mapping[str, Any], question: Mapping[str, Any]
) -> pd.DataFrame:
    """Fill in the losses before adaptation of the plan's own model as the plan has them,
    at the median where they are forecast.
    """
    given = question.get("covariates") or {}
    is_own = (offered["N"] == planned["N"]) & (offered["ptpp"] == planned["ptpp"])
    medians = {
        column: offered[column].mask(is_own, float(np.median(given[column])))
        for column in LOSSES_BEFORE
        if column in offered and not isinstance(given.get(column, {}), Mapping)
    }
    return offered.assign(**medians)


def worth_buying(
    fits: Fits,
    question: Mapping[str, Any],
    answer: Plan,
    runs: pd.DataFrame,
    notes: list[str],
) -> dict[str, Any] | None:
    """Describe the runs to buy for the page's template, with the origin of their
    checkpoints' losses; None if there is nothing to show.
    """
    purchase = choose_runs(fits, question, answer, runs)
    if purchase is None:
        return None
    picked, price, unit = purchase.picked, purchase.price, purchase.unit
    if picked is None or not purchase.is_advised:
        return _nothing(purchase)
    notes += purchase.notes
    saved = sum(pick["gain"] for pick in picked.picks)
    count = len(picked.picks)
    return {
        "sentence": (
            f"{count} run{'s' * (count > 1)} for {picked.spent:.2g} {unit} "
            f"({picked.spent / price:.0%} of the plan's) would make the plan "
            f"{saved:.2g} {unit} cheaper on average, at the same probability."
        ),
        "lines": _lines(picked, purchase.offered, unit),
        "share": RULE.budget,
        "in_money": unit == "money",
    }


def _prices(question: Mapping[str, Any]) -> Costs | None:
    """Read the prices of runs, if they are known in money."""
    costs = question.get("costs")
    return costs if costs is not None and costs.has_money else None


def _nothing(purchase: Purchase) -> dict[str, Any]:
    """Describe why no run is advised."""
    first, unit = _first_costs(purchase.offered), purchase.unit
    why = "none is expected to save what it costs"
    if purchase.picked is None:
        share = (
            f"{first.min() / purchase.price:.0%} of the plan, over {RULE.budget:.0%}"
        )
        why = f"the cheapest costs {share}"
    return {
        "sentence": (
            f"Nothing: {len(first)} runs between the table and the plan are on offer, "
            f"for {first.min():.2g} to {first.max():.2g} {unit} each; {why}."
        ),
        "lines": [],
        "share": RULE.budget,
        "in_money": unit == "money",
    }


def on_offer(
    runs: pd.DataFrame, planned: Mapping[str, Any], costs: Costs | None = None
) -> pd.DataFrame | None:
    """Make runs between the table and the plan; None if the plan's model is smaller
    than the table's.

    Their sizes go from the table's largest to the plan's. Their stage is the plan's,
    and their replays are near the plan's. Their tokens go from those of the table's
    longest runs up to the plan's. Short runs of the plan's own model come with them.

    Parameters
    ----------
    planned
        ``N``, ``ptpp``, ``D`` and ``replay`` of the plan.
    costs
        Prices, if runs are paid in money.
    """
    sizes = _sizes(runs, planned["N"])
    if not sizes:
        return None
    shares = np.unique(runs["replay"].dropna())
    nearest = np.argsort(np.abs(shares - (planned["replay"] or 0.0)))[: RULE.replays]
    replays = sorted(shares[nearest].tolist())
    most, end = float(runs["D"].max()), float(planned["D"])
    is_longer = most < (1 - RULE.same) * end
    tokens = np.geomspace(most, end, 3) if is_longer else np.array([end])
    tables = [
        candidates(
            runs,
            N=[size],
            ptpp=[_stage(runs, planned, size)],
            replay=replays,
            atpp=(tokens / size).tolist(),
            costs=costs,
        )
        for size in sizes
    ]
    if planned["N"] > (1 + RULE.same) * max(sizes):
        tables.append(_pilots(runs, planned, replays, costs))
    table = pd.concat(tables, ignore_index=True)
    table.index = pd.RangeIndex(1, len(table) + 1, name="row")
    return table


def _pilots(
    runs: pd.DataFrame,
    planned: Mapping[str, Any],
    replays: Sequence[float],
    costs: Costs | None,
) -> pd.DataFrame:
    """Make short runs of the plan's own model, with tokens as the table's runs have
    them.
    """
    least = float(runs["D"][runs["D"] > 0].min())
    most = min(float(runs["D"].max()), float(planned["D"]))
    tokens = np.geomspace(min(least, most), most, RULE.pilots)
    table = candidates(
        runs,
        N=[planned["N"]],
        ptpp=[planned["ptpp"]],
        replay=replays,
        atpp=np.unique(tokens / planned["N"]).tolist(),
        costs=costs,
    )
    return with_planned_checkpoint(table, planned["N"], planned["ptpp"])


def _sizes(runs: pd.DataFrame, planned: float) -> list[float]:
    """Choose sizes from the table's largest up to the plan's."""
    smaller = [n for n in runs["N"].unique() if n <= (1 + RULE.same) * planned]
    if not smaller:
        return []
    largest = float(max(smaller))
    steps = np.geomspace(largest, max(planned, largest), RULE.sizes + 1)[1:-1]
    between = [
        float(f"{size:.2g}") for size in steps if size > (1 + RULE.same) * largest
    ]
    return [largest, *between]


def _stage(runs: pd.DataFrame, planned: Mapping[str, Any], size: float) -> float:
    """Find the pre-training tokens per parameter of a model of this size, at the plan's
    stage or the table's last stage, whichever is earlier. If the table has such a
    checkpoint, the value is exactly that of the checkpoint.
    """
    are_tokens = stage_axis(runs) == "N*ptpp"
    levels = runs["ptpp"] * (runs["N"] if are_tokens else 1.0)
    wanted = planned["ptpp"] * (planned["N"] if are_tokens else 1.0)
    stage = min(wanted, float(levels.max())) / (size if are_tokens else 1.0)
    of_size = runs.loc[runs["N"] == size, "ptpp"]
    same = of_size[np.abs(of_size / stage - 1) < RULE.same]
    return float(same.iloc[0]) if len(same) else stage


def _first_costs(offered: pd.DataFrame) -> np.ndarray:
    """Compute the cost of each run up to its first measurement, with its checkpoint."""
    cost = offered["cost"] + offered["checkpoint_cost"]
    return cost.groupby(offered["run"]).min().to_numpy(float)


def is_worth_it(picked: Anchors, of_plan: float) -> bool:
    """Tell whether runs save more than they cost, beyond the error of the gain."""
    if not picked.picks:
        return False
    gain = sum(pick["gain"] for pick in picked.picks)
    error = np.sqrt(sum(pick["gain_error"] ** 2 for pick in picked.picks))
    return bool(
        gain > RULE.errors * error and gain - picked.spent > RULE.saving * of_plan
    )


def _lines(picked: Anchors, offered: pd.DataFrame, unit: str) -> list[dict[str, str]]:
    """Describe each run in a line of texts with units."""
    lines = []
    for pick in picked.picks:
        run = offered.loc[pick["row"]]
        is_new = run["checkpoint_cost"] > 0
        lines.append(
            {
                "model": f"{format_count(run['N'])} parameters",
                "pre-trained on": f"{format_count(run['N'] * run['ptpp'])} tokens"
                + (" (to be trained first)" if is_new else ""),
                "adapt on": f"{format_count(run['D'])} tokens",
                "replay": f"{run['replay']:.0%}",
                "costs": f"{pick['cost']:.2g} {unit}",
                "saves": f"{pick['gain']:.2g} {unit}",
            }
        )
    return lines


def known_starts(offered: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Select runs on offer with known losses of their checkpoints.

    Raises
    ------
    RunTableError
        There are no such runs.
    """
    there = [column for column in columns if column in offered]
    complete = offered.dropna(subset=there)
    if complete.empty:
        raise RunTableError(
            f"no checkpoint on offer has {' and '.join(there)}, measured or forecast: "
            "measure it at six checkpoints at least, from which others are forecast"
        )
    return complete

"""Buy runs of a pool in which all runs are measured, and score the forecasts from them:
``python tests/studies/study.py pool``.

Runs are bought from nothing up to a share of the cost of all runs on offer. Their
losses are looked up, and the losses of the goal are forecast. This is the protocol of
Li et al. 2026 (arXiv 2604.22753), who report R2; the study adds the coverage and the
score of the intervals.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from resumable import Results, study

from bayeslaw._base.arguments import takes
from bayeslaw._base.errors import PlanError, RunTableError
from bayeslaw._base.machine import runtime
from bayeslaw._base.progress.time_left import Progress
from bayeslaw._designs.buying.campaign import laws_for, what_is_known
from bayeslaw._designs.buying.next_runs import NextRuns, next_runs
from bayeslaw._designs.criteria import Information
from bayeslaw._designs.evidence import domain_of, gaussian
from bayeslaw._designs.menu import Menu, menu
from bayeslaw._designs.search import Limits, choose
from bayeslaw._inference.diagnostics import interval_score
from bayeslaw._law.law import Law
from bayeslaw._posteriors.posterior import Posterior
from bayeslaw._posteriors.prior import from_priors
from bayeslaw._tables.runs import as_runs
from bayeslaw._tables.where import select

if TYPE_CHECKING:
    from jaxtyping import Bool, Float


@dataclass(frozen=True, eq=False)
class PoolStudyArguments:
    # arguments of `pool_study`, documented there

    runs: pd.DataFrame
    offer: str
    goal: str
    _: KW_ONLY
    budgets: Sequence[float] = (0.01, 0.05, 0.1)
    laws: Sequence[Law | str] | None = None
    seeds: Sequence[int] = tuple(range(10))
    rules: Sequence[str] = ("chosen",)
    path: Path | None = None
    executor: Executor | None = None
    progress: Progress | None = None


@takes(PoolStudyArguments)
def pool_study(arguments: PoolStudyArguments) -> pd.DataFrame:
    """Buy runs of a pool from nothing, and forecast the goal.

    Parameters
    ----------
    runs
        The pool with all its losses; ``cost``, or N and D (6 N D).
    offer, goal
        Queries of the rows on offer and of the rows to forecast.
    budgets
        Shares of the cost of all runs on offer; by default the shares of Li et al.
    laws
        By default the laws that suit the columns.
    rules
        How runs are bought: ``chosen`` (`next_runs`), ``random``, ``cheapest`` first,
        ``cost-weighted`` (random, cheaper runs are likelier), ``D-optimal`` (by the
        priors). `bayeslaw.average` forecasts from the bought runs under every rule.
    path
        CSV to which rows are written as they are made; the same call resumes from it.

    Returns
    -------
    DataFrame
        A row for each rule, budget and seed: ``runs`` bought, ``spent`` (share of the
        offer), ``r2`` of the goal's losses by their medians, ``mae`` (relative),
        ``cover90``, ``width90`` and ``interval_score90`` (relative to the loss).

    Raises
    ------
    RunTableError
        A query leaves no rows, or both queries leave the same rows.
    LawError
        A law is unknown, or none suits the columns.
    """
    runs = as_runs(arguments.runs)
    offered, wanted = _parts(runs, arguments.offer, arguments.goal)
    chosen = laws_for(offered, arguments.laws)
    _check(arguments.budgets, arguments.rules)
    jobs = [
        {"rule": rule, "budget": float(budget), "seed": int(seed)}
        for rule in arguments.rules
        for budget in arguments.budgets
        for seed in arguments.seeds
    ]
    task = partial(purchase, offered, wanted, chosen)
    return study(
        task,
        jobs,
        arguments.path,
        executor=arguments.executor,
        progress=arguments.progress,
    )


def pool_summary(rows: pd.DataFrame) -> Sequence[Mapping[Any, Any]]:
    """Compute medians over seeds, for JSON: a record for each rule and budget."""
    by_case = rows.groupby(["rule", "budget"], sort=False)
    medians = by_case.median(numeric_only=True).drop(columns="seed")
    counted = medians.assign(seeds=by_case.size(), runs=medians["runs"].round())
    return counted.reset_index().to_dict("records")


def _parts(
    runs: pd.DataFrame, offer: str, goal: str
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Split the table into the rows on offer and the rows of the goal."""
    offered, wanted = _selected(runs, "--offer", offer), _selected(runs, "--goal", goal)
    for name, part in (("--offer", offered), ("--goal", wanted)):
        if len(part) < 2:
            raise RunTableError(f"{name}: {len(part)} rows; a study needs two or more")
    shared = offered.index.intersection(wanted.index)
    if len(shared):
        raise RunTableError(
            f"row {shared[0]} is on offer and in the goal: a forecast of it proves nothing"
        )
    return offered.reset_index(drop=True), wanted.reset_index(drop=True)


def _selected(runs: pd.DataFrame, option: str, query: str) -> pd.DataFrame:
    try:
        return select(runs, query)
    except RunTableError as error:
        raise RunTableError(str(error).replace("where", option, 1)) from None


def _check(budgets: Sequence[float], rules: Sequence[str]) -> None:
    """Refuse budgets that are not shares, and unknown rules."""
    bad = [b for b in budgets if not 0 < b <= 1]
    if bad:
        raise PlanError(
            f"budget {bad[0]:g} is no share of what is on offer: give 1% or .01"
        )
    known_rules = ("chosen", "random", "cheapest", "cost-weighted", "D-optimal")
    unknown = [rule for rule in rules if rule not in known_rules]
    if unknown:
        raise PlanError(f"unknown rule {unknown[0]!r}; known: {', '.join(known_rules)}")


def purchase(
    offered: pd.DataFrame,
    goal: pd.DataFrame,
    laws: list[Law],
    *,
    rule: str,
    budget: float,
    seed: int,
) -> Results:
    """Make one purchase and score its forecast."""
    runtime.start()
    prices = menu(offered)
    total = prices.price(np.ones(len(offered), bool))
    amount = budget * total
    with warnings.catch_warnings():
        # a fit on a few runs warns; a study of many fits leaves the warnings out
        warnings.simplefilter("ignore")
        if rule == "chosen":
            bought, posterior = in_batches(offered, goal, laws, amount, seed)
        else:
            bought = bought_at_once(rule, offered, goal, laws, amount, seed)
            posterior = what_is_known(offered, bought, laws, seed)
    return [outcome(prices, bought, posterior, goal, seed)]


def outcome(
    prices: Menu,
    bought: Bool[np.ndarray, " row"],
    posterior: Posterior,
    goal: pd.DataFrame,
    seed: int,
) -> dict[str, float]:
    """Describe what was bought, and score its forecast."""
    everything = np.ones(len(bought), bool)
    share = prices.price(bought) / prices.price(everything)
    figures: dict[str, float] = {
        "runs": int(bought.sum()),
        "spent": share,
    }
    return figures | scores(posterior, goal, seed)


def in_batches(
    offered: pd.DataFrame, goal: pd.DataFrame, laws: list[Law], amount: float, seed: int
) -> tuple[Bool[np.ndarray, " row"], Posterior]:
    """Buy as `next_runs` recommends, until it stops."""
    first = next_runs(offered, goal, amount, laws=laws, seed=seed)
    last = looked_up(first, offered[["loss"]])
    bought = offered.index.isin(last.campaign.bought["row"])
    return bought, last.posterior


def looked_up(now: NextRuns, losses: pd.DataFrame, most_batches: int = 8) -> NextRuns:
    """Buy runs to the end of the sequence and look up their losses, a column for each
    domain.
    """
    for _ in range(most_batches):
        if now.stop:
            break
        measured = now.runs.copy()
        for name in losses:
            column = losses[name]
            measured[name] = column.loc[measured["row"]].to_numpy()
        now = now.update(measured)
    return now


def bought_at_once(
    rule: str,
    offered: pd.DataFrame,
    goal: pd.DataFrame,
    laws: list[Law],
    amount: float,
    seed: int,
) -> Bool[np.ndarray, " row"]:
    """Mark the rows that simpler rules buy, shape (row,)."""
    prices = menu(offered)
    if rule == "D-optimal":
        return _d_optimal(prices, offered, goal, laws, amount, seed)
    rng = np.random.default_rng(seed)
    # simpler rules buy runs whole, up to their last point
    last = (prices.rows >= 0).sum(axis=1) - 1
    cost = prices.cost[np.arange(len(last)), last]
    order = {
        "random": lambda: rng.permutation(len(cost)),
        "cheapest": lambda: np.argsort(cost, kind="stable"),
        # an exponential race: the first run is drawn with a probability like 1 / cost
        "cost-weighted": lambda: np.argsort(rng.exponential(size=len(cost)) * cost),
    }[rule]()
    return _rows_of(prices, _while_it_lasts(order, cost, amount), last)


def _while_it_lasts(
    order: np.ndarray, cost: Float[np.ndarray, " run"], amount: float
) -> list[int]:
    """Take runs in this order; skip those that the remaining money does not pay for."""
    runs, remaining = [], amount
    for run in order:
        if cost[run] <= remaining:
            runs.append(int(run))
            remaining -= cost[run]
    return runs


def _rows_of(
    prices: Menu, runs: Sequence[int], last: np.ndarray
) -> Bool[np.ndarray, " row"]:
    """Mark the rows of these runs up to their last stop, shape (row,)."""
    bought = np.zeros(len(prices.table), bool)
    for run in runs:
        bought[prices.rows[run, : last[run] + 1]] = True
    return bought


def _d_optimal(
    prices: Menu,
    offered: pd.DataFrame,
    goal: pd.DataFrame,
    laws: list[Law],
    amount: float,
    seed: int,
) -> Bool[np.ndarray, " row"]:
    """Choose the runs that are most informative about all parameters, by the priors
    (D-optimal).
    """
    unmeasured = offered.drop(columns="loss")
    domain = domain_of(from_priors(laws, unmeasured, seed), prices, goal)
    approximation = gaussian(prices, [domain])
    limits = Limits(amount, 1, len(prices.cost))
    picks = choose(approximation.offer, Information(None), limits)
    last = np.zeros(len(prices.cost), int)
    for run, stop in picks:
        last[run] = stop
    return _rows_of(prices, [run for run, _ in picks], last)


def scores(posterior: Posterior, goal: pd.DataFrame, seed: int) -> dict[str, float]:
    """Score the forecasts of the goal's losses; `pool_study` lists the scores."""
    loss = goal["loss"].to_numpy(float)
    draws = posterior.log_loss(goal, noise=True, seed=seed)
    middle, y = np.median(draws, axis=0), np.log(loss)
    low, high = np.quantile(draws, [0.05, 0.95], axis=0)
    median = np.exp(middle)
    # share of the goal's variance that the medians explain, in the table's losses
    missed = np.sum((loss - median) ** 2)
    spread = np.sum((loss - loss.mean()) ** 2)
    return {
        "r2": float(1 - missed / spread),
        "mae": float(np.mean(np.abs(median / loss - 1))),
        "cover90": float(np.mean((low <= y) & (y <= high))),
        "width90": float(np.mean(np.exp(high - middle) - np.exp(low - middle))),
        "interval_score90": float(interval_score(low, high, y).mean()),
    }

"""Choose cheap runs to buy next, judged by the forecast or the plan that they improve."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bayeslaw._base.arguments import takes
from bayeslaw._base.errors import PlanError
from bayeslaw._base.limits import check_count
from bayeslaw._base.machine import runtime
from bayeslaw._base.numbers import format_count, positive
from bayeslaw._costs.costs import Costs
from bayeslaw._designs import reweighting
from bayeslaw._designs.anchor_list import Anchors as Anchors
from bayeslaw._designs.appraisal import (
    Appraisal,
    best_list,
    goal_sds,
    where_to_stop,
)
from bayeslaw._designs.criteria import Choosing, Criterion, Variance
from bayeslaw._designs.evidence import already_had, domain_of, gaussian
from bayeslaw._designs.gaussian import Pick
from bayeslaw._designs.goals.choice import foreseen, simulated
from bayeslaw._designs.goals.goal import (
    KINDS,
    GainName,
    Goal,
    gain_for,
    goal_of,
    goal_of_plan,
)
from bayeslaw._designs.goals.kinds import unit_of
from bayeslaw._designs.menu import Menu, check_rows, days_of, menu
from bayeslaw._designs.search import Limits
from bayeslaw._plans.question import FORGETTING
from bayeslaw._posteriors.averaging.loading import Posteriors, as_posterior, by_name
from bayeslaw._posteriors.outcomes import check_readable
from bayeslaw._posteriors.posterior import Posterior, columns_read
from bayeslaw._tables.before import of_source
from bayeslaw._tables.runs import as_runs

if TYPE_CHECKING:
    from jaxtyping import Bool


@dataclass(frozen=True, eq=False)
class AnchorArguments:
    # documented in `anchors`

    posterior: Posterior | str | Path
    candidates: pd.DataFrame | str | Path
    goal: pd.DataFrame | str | Path | Mapping[str, Any]
    budget: float
    _: KW_ONLY
    source: Posteriors | None = None
    gain: GainName | None = None
    replicates: int = 4
    max_picks: int | None = None
    least: float | None = None
    run_length: float | None = None
    checks: int = 48
    seed: int = 0
    costs: Costs | None = None

    @property
    def sources(self) -> dict[str, Posterior]:
        """Collect the source posteriors by name; a single one is called ``forgetting``."""
        return {} if self.source is None else by_name(self.source, FORGETTING)


@takes(AnchorArguments)
def anchors(arguments: AnchorArguments) -> Anchors:
    """Choose the runs that improve a forecast or a plan most for their cost.

    Gains come from a linear-Gaussian approximation of the joint distribution of log
    losses over posterior draws, within and between laws. It is checked by reweighting
    draws with the likelihood of simulated outcomes.

    Parameters
    ----------
    posterior
        A `Fit` or an `Average`; of the target loss if the goal is a plan.
    candidates
        Runs on offer: a row for each loss that can be measured, with the columns that
        the law reads. Rows of one ``run`` are points along it; buying one includes
        those before it. ``cost`` is the cost of the run up to the row (default 6 N D
        FLOPs). ``checkpoint_cost`` is paid once for all runs from that ``checkpoint``
        (default: N and ptpp). Rows that the posterior was fitted to are not offered,
        that is, rows with the same settings (and ``seed``, if there is such a column).
        If a run of the same name in ``run`` was measured, it goes on from its last row
        and costs the difference. If the table has losses, its runs are to be repeated,
        so all its rows are offered.
    goal
        Runs to forecast (a table), or the plan: the keyword arguments of `plan` for one
        model.
    budget
        Budget, in the unit of the costs.
    source
        For a plan: posteriors of the source losses, as `plan` takes them. Every run
        measures all domains.
    gain
        ``"variance"`` (mean over the goal's runs), ``"information"`` (about the losses
        of new runs at the goal), ``"plan"`` (FLOPs by which the plan gets cheaper at
        the same confidence; while no plan reaches it, the variance of the limited losses at
        the most probable plan), ``"best"`` (log loss saved by a better choice among
        recipes, which are the goal's rows, or its groups by a column ``recipe``),
        ``"law"`` (how sure it is which law of an average is right: a variance),
        ``"optimum"`` (variance of the position of the lowest loss along the one column
        in which the goal's rows differ), or ``"parameters"`` (a D-optimal design, for
        comparison). By default the variance, or the plan if that is the goal.
    replicates
        How often one run may be bought (seeds).
    max_picks
        Size of the batch; by default as many as the budget allows.
    least
        Least gain per cost, at which the list ends. For the plan: FLOPs saved for each
        unit of cost (default 1). Otherwise: the gain of the whole budget at that rate,
        as a share of the goal's variance, or in nats (default .01).
    run_length
        Length in e-folds over which the error changes along a run, in place of the
        posterior's. A posterior without several points along a run has no length; then
        0.5 is taken. 0: every point of a run has an independent error.
    checks
        Number of outcomes simulated for the check; 0 leaves it out.
    seed
        Seed of the check.
    costs
        Costs of training (`Costs` with a price). With them, runs without a column
        ``cost``, the budget and a plan's gain are in money, and the days of all runs
        are given.

    Raises
    ------
    RunTableError
        Candidates or goal lack a column that the law reads, or a cost is missing or
        negative.
    PlanError
        The budget buys nothing, a setting is out of range, or no draw keeps the
        limits of the plan to improve.

    Examples
    --------
    >>> offer = bayeslaw.candidates(of_target, replay=[0.3], atpp=[2, 8, 30])
    >>> bought = bayeslaw.anchors(target, offer, large, budget=1e20, checks=0)
    >>> len(bought.table(offer)) > 0
    True
    """
    posterior, goal = as_posterior(arguments.posterior), arguments.goal
    if isinstance(arguments.candidates, pd.DataFrame):
        check_rows(arguments.candidates)
    candidates = as_runs(arguments.candidates)
    costs = arguments.costs
    if not isinstance(goal, Mapping):
        goal = as_runs(goal)
    else:
        costs = costs or goal.get("costs")
        goal = {**goal, "costs": costs}
    runtime.start()
    offered = menu(candidates, costs)
    limits = _read_limits(offered, arguments)
    _check_readable(candidates, posterior, arguments)
    posteriors = [posterior, *arguments.sources.values()]
    had = _find_fitted(candidates, posteriors)
    begun = _find_fitted(candidates, posteriors, same_run=True)
    offered = offered.without(begun).withdraw(had)
    # A run with measured rows can go on only once. A repetition with another seed has
    # no measured rows.
    once = np.where(offered.is_begun, 1, limits.replicates)
    limits = limits._replace(replicates=once)
    aim = _build_goal(posterior, goal, offered, arguments)
    approximation = gaussian(offered, aim.domains)
    criterion = aim.criterion(approximation)
    appraisal, is_chance = best_list(approximation, criterion, limits)
    least = _compute_least_rate(arguments.least, aim.gain, criterion, limits)
    count, stop = where_to_stop(
        approximation.offer, criterion, appraisal, limits, least, is_chance
    )
    if not np.isfinite(offered.cost).any():
        stop = "all runs on offer are had already"
    appraisal = appraisal.first(count)
    sds = goal_sds(approximation, appraisal.picks)
    check = None
    if arguments.checks and appraisal.picks:
        check = _compare_with_reweighting(offered, aim, appraisal.picks, sds, arguments)
    return Anchors(
        picks=_build_records(offered, appraisal, sds),
        gain=aim.gain,
        unit=unit_of(aim.gain, costs),
        goal_sd_before=sds[0],
        goal_sd_after=sds[-1],
        spent=approximation.offer.price(appraisal.picks),
        budget=limits.budget,
        stop=stop,
        check=check,
        plan=_record_plan_costs(aim, appraisal) if aim.gain == "plan" else None,
        choice=foreseen(aim, approximation, appraisal.picks, arguments.seed),
        days=None if costs is None else days_of(offered, appraisal.picks, costs),
        warnings=[
            *_collect_warnings(posterior, arguments.sources),
            *_note_left_out(had),
            *_note_no_plan(aim),
        ],
    )


def appraise(
    posterior: Posterior | str | Path,
    runs: pd.DataFrame | str | Path,
    goal: pd.DataFrame | str | Path,
    *,
    run_length: float | None = None,
) -> tuple[float, float]:
    """Compute the sd of the goal's log losses (root mean square) now, and the expected
    sd after exactly these runs are measured.

    Parameters are those of `anchors`; ``runs`` needs no costs.

    Raises
    ------
    RunTableError
        A table lacks a column the law reads.

    Examples
    --------
    >>> now, after = bayeslaw.appraise(target, large.iloc[:3], large)
    >>> bool(after < now)
    True
    """
    posterior = as_posterior(posterior)
    runs, goal = as_runs(runs), as_runs(goal)
    runtime.start()
    offered = menu(runs.assign(cost=0.0))
    domain = domain_of(posterior, offered, goal, run_length)
    approximation = gaussian(offered, [domain])
    last = (offered.rows >= 0).sum(axis=1) - 1
    picks = [(run, int(stop)) for run, stop in enumerate(last)]
    sds = goal_sds(approximation, picks)
    return sds[0], sds[-1]


# -- the question ----------------------------------------------------------------------


def _check_readable(
    candidates: pd.DataFrame, posterior: Posterior, arguments: AnchorArguments
) -> None:
    """Refuse candidates that posteriors cannot evaluate, before a plan is searched."""
    tables = [(candidates, posterior)]
    tables += [(of_source(candidates), source) for source in arguments.sources.values()]
    for table, reader in tables:
        check_readable(table, columns_read(reader), "the table of candidates")


def _find_fitted(
    candidates: pd.DataFrame, posteriors: Sequence[Posterior], *, same_run: bool = False
) -> Bool[np.ndarray, " row"]:
    """Tell which candidates all posteriors were fitted to, shape (row,)."""
    fitted = [already_had(candidates, p, same_run=same_run) for p in posteriors]
    return np.all(fitted, axis=0)


def _read_limits(offered: Menu, arguments: AnchorArguments) -> Limits:
    """Read the limits of the list: budget, replicates of each run, and number of picks.

    The budget must pay for the cheapest candidate.
    """
    replicates, max_picks = arguments.replicates, arguments.max_picks
    check_count("replicates", replicates)
    if max_picks is not None:
        check_count("max_picks", max_picks)
    budget = positive("budget", arguments.budget)
    first = np.argmin(offered.first_cost)
    run, stop = np.unravel_index(first, offered.cost.shape)
    cheapest = offered.first_cost[run, stop]
    if budget < cheapest:
        row = offered.table.index[offered.rows[run, stop]]
        raise PlanError(
            f"budget {budget:g} is below the cheapest candidate, row {row} at "
            f"{cheapest:g}; raise it, or offer smaller runs"
        )
    runs = len(offered.cost)
    most = int(max_picks or runs * replicates)
    return Limits(budget, int(replicates), most)


def _build_goal(
    posterior: Posterior,
    goal: pd.DataFrame | Mapping[str, Any],
    offered: Menu,
    arguments: AnchorArguments,
) -> Goal:
    """Build the goal: the plan if keyword arguments are given, else the runs to
    forecast.
    """
    gain = gain_for(arguments.gain, goal, arguments.source is not None)
    length = arguments.run_length
    if isinstance(goal, Mapping):
        return goal_of_plan(posterior, arguments.sources, goal, gain, offered, length)
    return goal_of(posterior, goal, gain, offered, length)


# -- the answer ------------------------------------------------------------------------


def _compute_least_rate(
    least: float | None, gain: GainName, criterion: Criterion, limits: Limits
) -> float:
    """Compute the gain per cost below which nothing is bought."""
    least = KINDS[gain].least if least is None else least
    if gain == "plan":
        return least
    # if the possible gain is limited, the rate is a share of it
    total = criterion.total if isinstance(criterion, Variance | Choosing) else 1.0
    return least * (total / limits.budget)


def _build_records(
    offered: Menu, appraisal: Appraisal, sds: Sequence[float]
) -> list[dict[str, Any]]:
    lines = []
    replicates: dict[int, int] = {}
    for k, (run, stop) in enumerate(appraisal.picks):
        replicates[run] = replicates.get(run, 0) + 1
        measured = offered.measured_by((run, stop))
        rows = [_format_label(offered.table.index[i]) for i in measured]
        lines.append(
            {
                "row": _format_label(offered.table.index[offered.rows[run, stop]]),
                "rows": rows,
                "run": offered.names(run),
                "replicate": replicates[run],
                "cost": float(appraisal.cost[k]),
                "gain": float(appraisal.gain[k]),
                "gain_error": float(appraisal.gain_error[k]),
                "goal_sd": sds[k + 1],
            }
        )
    return lines


def _format_label(row: Any) -> int | str:
    return int(row) if isinstance(row, int | np.integer) else str(row)


def _record_plan_costs(goal: Goal, appraisal: Appraisal) -> dict[str, float]:
    """Record the plan's FLOPs before and after the purchase, and its money if there is
    a price.
    """
    assert goal.plan is not None
    before, saved = goal.plan.flops, float(appraisal.gain.sum())
    costs = {
        "flops_before": before,
        "flops_after": before - saved / goal.plan.price_per_flop,
    }
    if not goal.plan.problem.costs.has_money:
        return costs
    price = goal.plan.price
    return costs | {"money_before": price, "money_after": price - saved}


def _collect_warnings(target: Posterior, sources: Mapping[str, Posterior]) -> list[str]:
    if not sources:
        return list(target.warnings)
    posteriors = {"target": target, **sources}
    return [f"{name}: {line}" for name, p in posteriors.items() for line in p.warnings]


def _note_left_out(had: Bool[np.ndarray, " row"]) -> list[str]:
    if not had.any():
        return []
    return [
        f"{had.sum()} of {len(had)} candidates are not offered: the posterior was fitted "
        "to runs of the same settings; for another seed of them give a column 'seed'"
    ]


def _note_no_plan(goal: Goal) -> list[str]:
    if goal.plan is None or goal.plan.is_reached:
        return []
    choice = goal.plan.choice
    tokens = format_count(math.exp(choice.log_tokens))
    return [
        "no plan reaches the confidence yet, so that runs cannot be priced by what they "
        "save: chosen are those that tell most about the limited losses at the most probable "
        f"plan (D {tokens}, replay {choice.replay:.2f})"
    ]


def _compare_with_reweighting(
    offered: Menu,
    goal: Goal,
    picks: Sequence[Pick],
    sds: Sequence[float],
    arguments: AnchorArguments,
) -> dict[str, Any]:
    """Compare the approximation with reweighted draws, on as many of the first picks as
    the draws allow.
    """
    count, views = reweighting.longest_checkable(
        offered, goal.domains, picks, arguments.checks, arguments.seed
    )
    by_goal = np.hstack([view.variance() for view in views])
    variances = by_goal.mean(axis=1)  # of each outcome
    outcomes = len(variances)
    sd = math.sqrt(variances.mean())
    error = math.nan
    if outcomes > 1:
        # the error of a square root is the variance's error over twice the root
        error = variances.std(ddof=1) / math.sqrt(outcomes) / (2 * sd)
    khat = max(view.median_khat for view in views)
    record = {
        "picks": count,
        "outcomes": outcomes,
        "goal_sd": sd,
        "error": float(error),
        "goal_sd_approximate": sds[count],
        "correction": sd / sds[count],
        "khat": khat,
        "reliable": khat <= reweighting.MAX_KHAT,
    }
    if goal.options is not None:
        return record | simulated(goal.options, views)
    if goal.plan is None:
        return record
    from bayeslaw._designs.goals.plan import replan

    return record | replan(goal.plan, views, arguments.seed)

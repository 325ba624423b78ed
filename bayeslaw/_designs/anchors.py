"""Choose cheap runs to buy next, judged by the forecast or the plan that they improve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from bayeslaw._base.arguments import takes
from bayeslaw._base.errors import PlanError
from bayeslaw._base.frames import Table, as_frame
from bayeslaw._base.limits import (
    EVEN_CHANCE,
    LOSS,
    POSITIVE,
    check_count,
    read_numbers,
)
from bayeslaw._base.machine import runtime
from bayeslaw._base.numbers import format_count, format_many, format_spread
from bayeslaw._base.schema import LABEL
from bayeslaw._base.shown import Shown, paragraphs, table_html
from bayeslaw._costs.costs import Costs, format_days, format_money
from bayeslaw._designs.appraisal import Appraisal, Market, appraise_picks, best_list
from bayeslaw._designs.evidence import already_had, as_read
from bayeslaw._designs.goals.goal import (
    CHOSEN,
    KINDS,
    GainName,
    Goal,
    forecast_goal,
    gain_for,
    read_goal,
)
from bayeslaw._designs.goals.plan import cheapest_plan, domains_of
from bayeslaw._designs.menu import Menu, check_rows, days_of, menu
from bayeslaw._designs.search import Limits
from bayeslaw._designs.worth import (
    VERDICTS,
    check_by_reweighting,
    describe_verdicts,
    foresee_choice,
    foresee_new_run,
    foresee_verdicts,
)
from bayeslaw._plans.question import FORGETTING, TARGET
from bayeslaw._posteriors.averaging.loading import Posteriors, as_posterior, by_name
from bayeslaw._posteriors.outcomes import check_readable
from bayeslaw._posteriors.pairs import table_of
from bayeslaw._posteriors.posterior import Posterior, columns_read
from bayeslaw._tables.rows.shares import share_columns
from bayeslaw._tables.runs import TEXT, as_runs

if TYPE_CHECKING:
    from jaxtyping import Bool

LEAST_NARROWER = 0.05  # share of a new run's interval below which it is hardly narrower


@dataclass(frozen=True, repr=False)
class Anchors(Shown):
    """Runs to buy, in order. Every field can be stored in JSON.

    Parameters
    ----------
    picks
        A dictionary for each training run. ``row`` is the candidate at which the run
        ends, ``rows`` are all candidates measured along it, ``run`` is its name, and
        ``replicate`` its number (1 for the first). ``cost`` includes the checkpoint's
        if this run is the first to need it. ``gain`` is expected, given the picks
        before, with Monte Carlo error ``gain_error``. ``goal_sd`` is the sd after this
        pick.
    gain, unit
        Kind of gain, and its unit.
    goal_sd_before, goal_sd_after
        Sd of the goal's log losses now, and expected after all picks: root mean square
        over the goal. It is the sd of the law (with the effect of the goal's
        checkpoint, if candidates start from it), not of a new run.
    spent, budget
        In the unit of the candidates' costs, by default FLOPs.
    stop
        Reason why the list ends there.
    check
        Comparison of the approximation with importance-weighted draws on the first
        ``picks`` picks: ``goal_sd`` from these draws with its Monte Carlo ``error``,
        ``goal_sd_approximate``, their ratio ``correction``, and median ``khat`` of the
        weights. For a plan also the mean ``flops`` of plans made again under the
        simulated outcomes, its Monte Carlo ``flops_error``, and the
        ``share_with_a_plan``.
    plan
        For a plan: ``flops_before`` and expected ``flops_after``, at the same
        confidence; None while no plan reaches it.
    choice
        For a choice (gains ``best`` and ``law``): the option that is ``best`` on
        average, the ``chance`` that it is the best, and the ``regret``: its expected
        loss against the best, in log loss, or in probability for a law. For recipes
        also ``chance_after`` and ``regret_after``, after all picks. ``check`` has
        chance and regret from simulations.
    days
        Days until all runs are done, checkpoints first, if costs are known.
    new_run
        For a forecast (gain ``variance``): half of a new run's 90% interval in log loss,
        ``before`` and ``after`` all picks. No runs on offer narrow its own noise.
    verdicts
        With ``max_loss``: for each goal's run the ``probability`` that a new run keeps it,
        the verdict ``now`` (kept, broken or unsure at ``confidence``), and the
        probability of each verdict after all picks; ``changes`` is the probability that
        it is another one, mean over runs.
    """

    picks: list[dict[str, Any]]
    gain: str
    unit: str
    goal_sd_before: float
    goal_sd_after: float
    spent: float
    budget: float
    stop: str
    check: dict[str, Any] | None
    plan: dict[str, float] | None
    warnings: list[str]
    choice: dict[str, Any] | None = None
    days: float | None = None
    new_run: dict[str, float] | None = None
    verdicts: dict[str, Any] | None = None

    KEYS: ClassVar = {
        "*": ...,
        "picks": [
            {
                "row run": LABEL,
                "rows": list[LABEL],
                "replicate": int,
                "cost gain gain_error goal_sd": float,
            }
        ],
        "check": {
            "picks outcomes": int,
            "goal_sd error goal_sd_approximate correction khat": float,
            "reliable": bool,
            "chance? regret? flops? flops_error? share_with_a_plan?": float,
        },
        "plan": "flops_before flops_after money_before? money_after?",
        "choice": CHOSEN,
        "new_run": {"before after": float},
        "verdicts": VERDICTS,
    }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Anchors:
        """Read the record of `to_dict`.

        Raises
        ------
        PlanError
            A key is missing or unknown.
        """
        # lists saved by early versions lack these
        late = {"choice", "days", "new_run", "verdicts"}
        odd = sorted({f.name for f in fields(cls)} ^ {*late, *record})
        if odd:
            raise PlanError(
                f"not a saved list of anchors: {odd[0]!r} is missing or unknown"
            )
        return cls(**record)

    def runs(self, candidates: pd.DataFrame) -> pd.DataFrame:
        """List the rows to measure, without losses; each run has its own name."""
        rows, names = [], []
        for pick in self.picks:
            again = f" #{pick['replicate']}" if pick["replicate"] > 1 else ""
            rows += pick["rows"]
            names += [f"{pick['run']}{again}"] * len(pick["rows"])
        table = candidates.loc[rows].copy()
        table["run"] = names
        # a loss in the table of candidates is that of another run with equal settings
        return table.drop(columns="loss", errors="ignore").reset_index(drop=True)

    def table(self, candidates: pd.DataFrame) -> pd.DataFrame:
        """Format a row for each run, as text; replicates are one row, at the place of
        the last of them. Columns beside size, tokens and mix, such as a rate, are shown
        if runs on offer that are equal in these differ there.
        """
        candidates = as_frame(candidates)
        counts = [c for c in ("N", "D") if c in candidates]
        levels = [c for c in ("replay", "ptpp") if c in candidates]
        levels += share_columns(candidates)
        told = {*counts, *levels, *TEXT, "loss", "cost", "checkpoint_cost"}
        others = [c for c in candidates if c not in told]
        keys = [candidates[c] for c in (*counts, *levels)] or [candidates.index * 0]
        differs = candidates.groupby(keys, dropna=False)[others].nunique() > 1
        levels += [c for c in others if differs[c].any()]
        run, told = ["run", "row"], {"cost": "sum", "gain": "sum", "goal_sd": "last"}
        picks = pd.DataFrame(self.picks, columns=[*run, *told])  # of no pick, too
        last = ~picks.duplicated(run, keep="last")
        bought = picks[run].join(picks.groupby(run)[[*told]].agg(told), on=run)
        bought["times"] = picks.groupby(run)["cost"].transform("size")
        bought = bought[last].reset_index(drop=True)
        of_runs = candidates.loc[bought["row"], [*counts, *levels]]
        table = bought[run].join(of_runs.reset_index(drop=True))
        table[counts] = table[counts].map(format_count)
        if (bought["times"] > 1).any():
            table["times"] = bought["times"]
        table["cost"] = bought["cost"].map("{:.3g}".format)
        table[f"gain ({self.unit})"] = bought["gain"].map("{:.3g}".format)
        table["goal sd"] = bought["goal_sd"].map(KINDS[self.gain].shown)
        return table

    def _repr_html_(self) -> str:
        if not self.picks:
            return paragraphs(self.sentence())
        columns = ["run", "replicate", "cost", "gain", "goal_sd"]
        picks = pd.DataFrame(self.picks)[columns]
        return paragraphs(self.sentence()) + table_html(picks)

    def sentence(self) -> str:
        """Describe the answer in words."""
        if not self.picks:
            return f"Buy nothing: {self.stop}."
        price = f"{self.spent:.3g} of {self.budget:.3g}"
        if self.days is not None:
            money = f"{format_money(self.spent)} of {format_money(self.budget)}"
            price = f"{money}, done in {format_days(self.days)},"
        kind, count = KINDS[self.gain], format_many(len(self.picks), "run")
        told = (
            f"{count} for {price} take {kind.sd_of} from "
            f"{kind.shown(self.goal_sd_before)} to {kind.shown(self.goal_sd_after)}"
            f"{kind.of_what}"
        )
        if self.plan is not None:
            before, after = self.plan["flops_before"], self.plan["flops_after"]
            told += f" and the plan from {before:.3g} to {after:.3g} FLOPs"
            if "money_before" in self.plan:
                before, after = self.plan["money_before"], self.plan["money_after"]
                told += f" (from {format_money(before)} to {format_money(after)})"
        elif self.check is not None and "share_with_a_plan" in self.check:
            chance = self.check["share_with_a_plan"]
            told += f" and make a plan possible in {chance:.0%} of simulated outcomes"
        if self.choice is not None:
            c = self.choice
            told += f"; now {c['best']} is best by {c['chance']:.0%}"
            if "chance_after" in c:
                told += (
                    f", and the choice after them is right in {c['chance_after']:.0%} "
                    "(expected loss for want of knowing the best "
                    f"{c['regret']:.2%}, then {c['regret_after']:.2%})"
                )
        if self.new_run is not None:
            before, after = self.new_run["before"], self.new_run["after"]
            told += (
                f"; 90% of new runs there then lie within {format_spread(after, '.1%')} "
                f"of the forecast, not {format_spread(before, '.1%')}"
            )
            if after > (1 - LEAST_NARROWER) * before:
                told += " (hardly narrower)"
        if self.verdicts is not None:
            money = None if self.days is None else self.spent
            told += f"; {describe_verdicts(self.verdicts, money)}"
        return f"{told}; {self.stop}."


@dataclass(frozen=True, eq=False)
class AnchorArguments:
    # documented in `anchors`

    posterior: Posterior | str | Path
    candidates: Table | str | Path
    goal: Table | str | Path | Mapping[str, Any]
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
    max_loss: float | None = None
    confidence: float = 0.9

    def __post_init__(self) -> None:
        kinds = {"budget": POSITIVE, "max_loss": LOSS, "confidence": EVEN_CHANCE}
        read_numbers(self, kinds)
        check_count("replicates", self.replicates)
        if self.max_picks is not None:
            check_count("max_picks", self.max_picks)


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
        In the unit of the candidates' costs, by default FLOPs: ``2e20``; or in money if
        ``costs`` have a ``price``: ``5000``.
    source
        For a plan: posteriors of the source losses, as `plan` takes them. Every run
        measures all domains.
    gain
        What runs add: ``"variance"`` (mean over the goal's runs), ``"information"``
        (about the losses of new runs at the goal), ``"plan"`` (FLOPs by which the plan
        gets cheaper at the same confidence; while no plan reaches it, the variance of the limited losses at
        the most probable plan), ``"best"`` (log loss saved by a better choice among
        recipes, which are the goal's rows, or its groups by a column ``recipe``),
        ``"law"`` (how sure it is which law of an average is right: a variance),
        ``"optimum"`` (variance of the position of the lowest loss along the one column
        in which the goal's rows differ), or ``"parameters"`` (a D-optimal design, for
        comparison). By default the variance, or the plan if that is the goal.
    replicates
        How often one run may be bought (seeds).
    max_picks
        Most runs to buy; by default as many as the budget allows.
    least
        Least gain per cost, at which the list ends. For the plan: FLOPs saved for each
        unit of cost (default 1). Otherwise: the gain of the whole budget at that rate,
        as a share of the goal's variance, or in nats (default .01).
    run_length
        Length in e-folds over which the error changes along a run, in place of the
        posterior's. A posterior without several points along a run has no length; then
        0.5 is taken. 0: every point of a run has an independent error.
    checks
        Outcomes simulated to check the gains; 0: none.
    seed
        Seed of the check.
    costs
        Costs of training (`Costs` with a price). With them, runs without a column
        ``cost``, the budget and a plan's gain are in money, and the days of all runs
        are given.
    max_loss
        Limit on the loss of new runs at the goal, nats per token: whether the picks are
        expected to decide if it is kept (``verdicts``), for the gain ``"variance"``.
    confidence
        Probability at which a verdict on ``max_loss`` is sure.

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
    >>> offer = bayeslaw.candidates(large, replay=[0.3], atpp=[0.25, 1])
    >>> bought = bayeslaw.anchors(target, offer, large, budget=1e21, checks=0)
    >>> len(bought.table(offer)) > 0
    True
    """
    target, source = as_posterior(arguments.posterior), arguments.source
    sources = {} if source is None else by_name(source, FORGETTING)
    posteriors = {TARGET: target} | sources
    if isinstance(arguments.candidates, pd.DataFrame):
        check_rows(arguments.candidates)
    candidates = as_runs(arguments.candidates)
    goal, costs = read_goal(arguments.goal, arguments.costs)
    runtime.start()
    offered = menu(candidates, costs)
    most = int(arguments.max_picks or len(offered.cost) * arguments.replicates)
    limits = Limits(arguments.budget, arguments.replicates, most)
    due = offered.due()
    cheapest = np.unravel_index(np.argmin(due), due.shape)
    if limits.budget < due[cheapest]:
        row = candidates.index[offered.rows[cheapest]]
        raise PlanError(
            f"budget {limits.budget:g} is below the cheapest candidate, row {row} at "
            f"{due[cheapest]:g}; raise it, or offer smaller runs"
        )
    # refuse candidates that posteriors cannot evaluate, before a plan is searched
    for name, posterior in posteriors.items():
        table = as_read(candidates, name)
        read = columns_read(posterior, there=table)
        check_readable(table, read, "the table of candidates")
    # take off what all posteriors were fitted to, and go on with runs that are begun
    had, begun = (
        np.all([already_had(candidates, p, same) for p in posteriors.values()], axis=0)
        for same in (False, True)
    )
    offered = offered.without(begun).withdraw(had)
    # A run with measured rows can go on only once. A repetition with another seed has
    # no measured rows.
    is_begun = offered.begun(offered.had).any(axis=1, keepdims=True)
    once = np.where(is_begun, 1, limits.replicates)
    limits = limits._replace(replicates=once)
    gain, max_loss = gain_for(arguments.gain, goal, bool(sources)), arguments.max_loss
    if max_loss is not None and (gain != "variance" or isinstance(goal, Mapping)):
        raise PlanError(
            "max_loss is a limit on runs that are forecast: it needs a table as the goal "
            "and the gain 'variance'; a plan has its limits in the goal"
        )
    # the list, and what it does
    length = arguments.run_length
    if isinstance(goal, Mapping):
        plan_now = cheapest_plan(target, sources, goal)
        # while none reaches its confidence, the variance of its limited losses
        is_short = gain == "plan" and not plan_now.is_reached
        views = domains_of(plan_now, offered, length)
        aim = Goal(views, "variance" if is_short else gain, plan=plan_now)
    else:
        aim = forecast_goal(target, goal, gain, offered, length)
    market = Market.of(offered, aim)
    bought, stop = best_list(market, limits, arguments.least)
    picks = bought.picks
    check = None
    if arguments.checks and picks:
        check = check_by_reweighting(market, bought, arguments.checks, arguments.seed)
    # what to distrust
    warnings = list(target.warnings)
    if sources:
        warnings = [
            f"{n}: {line}" for n, p in posteriors.items() for line in p.warnings
        ]
    if had.any():
        warnings.append(
            f"{had.sum()} of {len(had)} candidates are not offered: the posterior was "
            "fitted to runs of the same settings; for another seed of them give a "
            "column 'seed'"
        )
    anew = _name_measured(target, candidates, begun)
    if anew:
        warnings.append(
            f"run {', '.join(anew)} was measured, but none of its measured points is "
            "among the candidates: it is priced and valued as a new run; to go on with "
            "it for the difference, offer its last measured point, too"
        )
    plan = None
    if aim.plan is not None and not aim.plan.is_reached:
        warnings.append(
            "no plan reaches the confidence yet, so that runs cannot be priced by what "
            "they save: chosen are those that tell most about the limited losses at "
            "the most probable plan "
            f"(D {format_count(aim.plan.tokens)}, replay {aim.plan.choice.replay:.2f})"
        )
    elif aim.plan is not None and aim.gain == "plan":
        plan = aim.plan.describe_saving(float(bought.gain.sum()))
    new_run = verdicts = None
    if aim.gain == "variance" and aim.plan is None:
        new_run = foresee_new_run(market, bought)
    if max_loss is not None and isinstance(goal, pd.DataFrame):
        sure = arguments.confidence
        verdicts = foresee_verdicts(market, picks, goal.index, max_loss, sure)
    return Anchors(
        picks=_build_records(offered, bought),
        gain=aim.gain,
        unit="money of the plan" if plan and costs else KINDS[aim.gain].unit,
        goal_sd_before=bought.sds[0],
        goal_sd_after=bought.sds[-1],
        spent=market.offer.price_picks(picks),
        budget=limits.budget,
        stop=stop,
        check=check,
        plan=plan,
        choice=foresee_choice(market, picks, arguments.seed),
        days=None if costs is None else days_of(offered, picks, costs),
        new_run=new_run,
        verdicts=verdicts,
        warnings=warnings,
    )


def appraise(
    posterior: Posterior | str | Path,
    runs: Table | str | Path,
    goal: Table | str | Path,
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
    aim = forecast_goal(posterior, goal, "variance", offered, run_length)
    last = (offered.rows >= 0).sum(axis=1) - 1
    picks = [(run, int(stop)) for run, stop in enumerate(last)]
    sds = appraise_picks(Market.of(offered, aim), picks).sds
    return sds[0], sds[-1]


def _name_measured(
    posterior: Posterior, candidates: pd.DataFrame, begun: Bool[np.ndarray, " row"]
) -> list[str]:
    """Name the runs on offer that a posterior was fitted to, of which no measured point
    is on offer.
    """
    runs = table_of(posterior)
    if runs is None or "loss" in candidates or not {"run"} <= {*runs} & {*candidates}:
        return []
    names = candidates["run"].astype(str)
    is_measured = names.isin(runs["run"].dropna().astype(str))
    return [*names[is_measured & ~names.isin(names[begun])].unique()]


def _build_records(offered: Menu, appraisal: Appraisal) -> list[dict[str, Any]]:
    index = offered.table.index.tolist()
    labels = [row if isinstance(row, int) else str(row) for row in index]
    bought = [run for run, _ in appraisal.picks]
    gains = {
        "cost": appraisal.cost,
        "gain": appraisal.gain,
        "gain_error": appraisal.gain_error,
        "goal_sd": appraisal.sds[1:],
    }
    return [
        {
            "row": labels[offered.rows[run, stop]],
            "rows": [labels[i] for i in offered.measured_by((run, stop))],
            "run": offered.names(run),
            "replicate": bought[: k + 1].count(run),
            **{name: float(numbers[k]) for name, numbers in gains.items()},
        }
        for k, (run, stop) in enumerate(appraisal.picks)
    ]

"""``anchors``: which cheap runs to buy next, judged by the forecast or the plan they improve."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

import numpy as np
import pandas as pd

from bayeslaw import _anchors_check as checking
from bayeslaw import _engine
from bayeslaw._anchors_design import Goal, Information, Limits, Pick, Variance, choose, what_fits
from bayeslaw._anchors_evidence import (
    BATCHES,
    Domain,
    Gaussian,
    batches,
    checkpoints_of,
    gaussian,
    log_losses,
    noise_of,
    rows_of,
)
from bayeslaw._anchors_menu import Menu, menu
from bayeslaw._errors import PlanError, RunTableError
from bayeslaw._plan_question import positive
from bayeslaw._posterior import Posterior
from bayeslaw._words import people_number

Gain = Literal["variance", "information", "parameters", "plan"]

UNITS = {
    "variance": "squared log loss",
    "information": "nats about new runs at the goal",
    "parameters": "nats about all parameters",
    "plan": "FLOPs of the plan",
}
LEAST = {"variance": 0.01, "information": 0.01, "parameters": 0.0, "plan": 1.0}


@dataclass(frozen=True)
class Anchors:
    """Runs to buy, in order. Every field survives JSON.

    Parameters
    ----------
    picks
        One per training run: ``row`` of the candidates up to which it goes, ``rows`` measured along it, ``run``,
        ``replicate`` (1 for the first), ``cost`` (with the checkpoint's where it is the first to need it), expected
        ``gain`` given the picks before it, its Monte Carlo ``gain_error``, and ``goal_sd`` after it.
    gain, unit
        What gains are, and their unit.
    goal_sd_before, goal_sd_after
        Sd of the goal's log losses now, and expected after all picks: root mean square over the goal, of the law (and the
        effect of the goal's checkpoint, where candidates start from it), not of a new run.
    spent, budget
        In the unit of the candidates' costs, by default FLOPs.
    stop
        Why the list ends there.
    check
        The approximation against importance-weighted draws on the first ``picks`` picks: ``goal_sd`` so found with its
        Monte Carlo ``error``, ``goal_sd_approximate``, their ratio ``correction``, and median ``khat`` of the weights.
        For a plan also the mean ``flops`` of plans made again under the simulated outcomes, its Monte Carlo
        ``flops_error``, and the ``share_with_a_plan``.
    plan
        For a plan: ``flops_before`` and expected ``flops_after``, at the same confidence.
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

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON holds it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Anchors:
        """The record of `to_dict`.

        Raises
        ------
        PlanError
            A key is missing or unknown.
        """
        odd = sorted({f.name for f in fields(cls)} ^ set(given))
        if odd:
            raise PlanError(f"not a saved list of anchors: {odd[0]!r} is missing or unknown")
        return cls(**given)

    def runs(self, candidates: pd.DataFrame) -> pd.DataFrame:
        """The rows to measure, in order, each run and replicate under a name of its own in ``run``; without losses."""
        rows = [(row, p) for p in self.picks for row in p["rows"]]
        table = candidates.loc[[row for row, _ in rows]].copy()
        table["run"] = [f"{p['run']} #{p['replicate']}" if p["replicate"] > 1 else p["run"] for _, p in rows]
        return table.drop(columns="loss", errors="ignore").reset_index(drop=True)  # of a run like it

    def table(self, candidates: pd.DataFrame) -> pd.DataFrame:
        """A line for each pick, as people read it."""
        counts = [c for c in ("N", "D") if c in candidates]
        levels = [c for c in ("replay", "ptpp") if c in candidates]
        shown = candidates.loc[[p["row"] for p in self.picks], [*counts, *levels]].reset_index(drop=True)
        shown[counts] = shown[counts].map(people_number)
        for name in ("row", "run"):
            shown.insert(0, name, [p[name] for p in self.picks])
        shown["cost"] = [f"{p['cost']:.3g}" for p in self.picks]
        shown[f"gain ({self.unit})"] = [f"{p['gain']:.3g}" for p in self.picks]
        shown["goal sd"] = [f"{p['goal_sd']:.2%}" for p in self.picks]
        return shown

    def sentence(self) -> str:
        """The answer in words."""
        if not self.picks:
            return f"Buy nothing: {self.stop}."
        saved = (
            ""
            if self.plan is None
            else " and the plan from {flops_before:.3g} to {flops_after:.3g} FLOPs".format(**self.plan)
        )
        return (
            f"{len(self.picks)} runs for {self.spent:.3g} of {self.budget:.3g} take the goal's sd from "
            f"{self.goal_sd_before:.2%} to {self.goal_sd_after:.2%} of the loss{saved}; {self.stop}."
        )


def anchors(
    posterior: Posterior,
    candidates: pd.DataFrame,
    goal: pd.DataFrame | Mapping[str, Any],
    budget: float,
    *,
    source: Posterior | Mapping[str, Posterior] | None = None,
    gain: Gain | None = None,
    replicates: int = 4,
    max_picks: int | None = None,
    least: float | None = None,
    run_length: float | None = None,
    checks: int = 48,
    seed: int = 0,
) -> Anchors:
    """Choose the runs that improve a forecast or a plan most for what they cost.

    Gains are those of a linear-Gaussian approximation to how log losses vary together over posterior draws, within
    and between laws; it is checked by reweighting draws with the likelihood of simulated outcomes.

    Parameters
    ----------
    posterior
        A `Fit` or an `Average`; of the target loss if the goal is a plan.
    candidates
        Runs on offer: a row for each loss that can be measured, with the columns the law reads. Rows of one ``run`` are
        points along it, and whoever buys one gets those before it. ``cost`` is of the run up to the row (else 6 N D
        FLOPs); ``checkpoint_cost`` is paid once by whatever starts from that ``checkpoint`` (else N and ptpp).
    goal
        Runs to be forecast (a table), or the plan: the keyword arguments of `plan` for one model.
    budget
        In the unit of the costs.
    source
        For a plan: posteriors of the source losses, as `plan` takes them. Every run measures all domains.
    gain
        ``"variance"`` (mean over the goal's runs), ``"information"`` (about the losses new runs at the goal would
        have), ``"plan"`` (FLOPs by which the plan gets cheaper at the same confidence), or ``"parameters"`` (a
        D-optimal design, for comparison). By default the variance, or the plan if that is the goal.
    replicates
        How often one run may be bought (seeds).
    max_picks
        Size of the batch; by default what the budget allows.
    least
        Where to stop: least gain per cost. For the plan FLOPs saved per unit of cost (by default 1). Else of the whole
        budget spent at that rate: the share of the goal's variance it would take away, or the nats it would give (.01).
    run_length
        E-folds along a run over which its error changes, in place of the posterior's (which, if it has seen no runs
        measured more than once, has none: then 0.5). 0: every point of a run has an error of its own.
    checks
        Outcomes simulated for the check; 0 leaves it out.
    seed
        Of the check.

    Raises
    ------
    RunTableError
        Candidates or goal lack a column the law reads, or a cost is missing or negative.
    PlanError
        The budget buys nothing, a setting is out of range, or the plan to improve does not exist.
    """
    _engine.start()
    _check_rows(candidates)
    offered = menu(candidates)
    limits = _limits(offered, budget, replicates, max_picks)
    kind = _kind(gain, goal, source)
    posteriors = {"target": posterior, **_named(source)}
    if isinstance(goal, Mapping):
        from bayeslaw import _anchors_plan as planning

        made = planning.planned(posterior, source, goal)  # type: ignore[arg-type]
        domains = planning.domains_of(made, offered, run_length)
    else:
        made, domains = None, [_domain(posterior, offered, goal, run_length)]
    approximate = gaussian(offered, domains)
    aim = _aim(kind, approximate, domains, made)
    picks = choose(approximate.offer, aim, limits)
    gains, errors = _gains(approximate, aim, picks)
    picks, stop = _stopped(
        approximate, aim, kind, picks, gains, errors, limits, LEAST[kind] if least is None else least
    )
    sds = _goal_sds(approximate, picks)
    check = _checked(offered, domains, picks, sds, checks, seed, made) if checks and picks else None
    return Anchors(
        picks=_lines(offered, approximate, picks, gains, errors, sds), gain=kind, unit=UNITS[kind],
        goal_sd_before=sds[0], goal_sd_after=sds[-1], spent=approximate.offer.price(picks), budget=limits.budget,
        stop=stop, check=check,
        plan=_priced(made, gains[: len(picks)]) if kind == "plan" else None,
        warnings=[w if len(posteriors) == 1 else f"{n}: {w}" for n, p in posteriors.items() for w in p.warnings],
    )  # fmt: skip


def appraise(
    posterior: Posterior, runs: pd.DataFrame, goal: pd.DataFrame, *, run_length: float | None = None
) -> tuple[float, float]:
    """Sd of the goal's log losses (root mean square) now, and expected once exactly these runs are measured.

    Parameters are those of `anchors`; ``runs`` needs no costs.

    Raises
    ------
    RunTableError
        A table lacks a column the law reads.
    """
    _engine.start()
    offered = menu(runs.assign(cost=0.0))
    approximate = gaussian(offered, [_domain(posterior, offered, goal, run_length)])
    ends = (offered.rows >= 0).sum(axis=1) - 1
    sds = _goal_sds(approximate, [(run, int(stop)) for run, stop in enumerate(ends)])
    return sds[0], sds[-1]


# -- the question ----------------------------------------------------------------------------------------------------


def _named(source: Posterior | Mapping[str, Posterior] | None) -> dict[str, Posterior]:
    if source is None:
        return {}
    return dict(source) if isinstance(source, Mapping) else {"forgetting": source}


def _check_rows(candidates: pd.DataFrame) -> None:
    if not candidates.index.is_unique:
        twice = candidates.index[candidates.index.duplicated()][0]
        raise RunTableError(f"two candidates are called row {twice}: number the rows anew (reset_index)")


def _limits(offered: Menu, budget: float, replicates: int, max_picks: int | None) -> Limits:
    for name, given in {"replicates": replicates, "max_picks": 1 if max_picks is None else max_picks}.items():
        if given != int(given) or given < 1:
            raise PlanError(f"{name} must be a whole number of at least 1, got {given!r}")
    budget = positive("budget", budget)
    run, stop = np.unravel_index(np.argmin(offered.first_cost), offered.cost.shape)
    cheapest = offered.first_cost[run, stop]
    if budget < cheapest:
        row = offered.table.index[offered.rows[run, stop]]
        raise PlanError(
            f"budget {budget:g} is below the cheapest candidate, row {row} at {cheapest:g}; raise it, or offer smaller runs"
        )
    return Limits(budget, int(replicates), int(max_picks or offered.cost.shape[0] * replicates))


def _kind(gain: Gain | None, goal: Any, source: Any) -> Gain:
    is_plan = isinstance(goal, Mapping)
    kind: Gain = gain or ("plan" if is_plan else "variance")
    if kind not in UNITS:
        raise PlanError(f"gain must be one of {', '.join(UNITS)}; got {kind!r}")
    if is_plan != (source is not None):
        raise PlanError("a plan as the goal needs the source's posterior, and runs as the goal need none")
    if kind == "plan" and not is_plan:
        raise PlanError("gain 'plan' needs a plan as the goal: the keyword arguments of plan()")
    if not is_plan and not len(goal):
        raise RunTableError("the goal's table has no rows: give the runs to be forecast")
    return kind


def _domain(posterior: Posterior, offered: Menu, goal: pd.DataFrame, run_length: float | None) -> Domain:
    parts = rows_of(posterior.pieces())
    law = log_losses(parts, offered.table, "the table of candidates")
    of_goal = log_losses(parts, goal, "the goal's table")
    at = checkpoints_of(offered, goal)
    return Domain("target", law, of_goal, at, noise_of(parts, run_length), batches(parts))


def _aim(kind: Gain, approximate: Gaussian, domains: Sequence[Domain], made) -> Goal:
    if kind == "plan":
        from bayeslaw import _anchors_plan as planning

        return planning.saving(made, domains, approximate.goals)
    if kind == "variance":
        return Variance(approximate.goals)
    if kind == "parameters":
        return Information(None)
    noise = np.concatenate([np.full(d.goal.shape[1], d.noise.variance) for d in domains])
    return Information((approximate.goals / noise[:, None]).T @ approximate.goals)


# -- the answer ------------------------------------------------------------------------------------------------------


def _gains(approximate: Gaussian, aim: Goal, picks: Sequence[Pick]) -> tuple[np.ndarray, np.ndarray]:
    """Gain of each pick after those before it, and its Monte Carlo error by batches of draws; shape (pick,)."""
    whole = np.diff(_values(approximate, aim, picks, np.eye(approximate.offer.coordinates)))
    n, rank = approximate.draws.shape
    if n < 4 * rank * BATCHES or not picks:
        return whole, np.zeros(len(picks))
    each = []
    for b in range(BATCHES):
        start = np.eye(approximate.offer.coordinates)
        start[:rank, :rank] = np.linalg.inv(n * _covariance(approximate.draws[approximate.batch == b]))
        each.append(np.diff(_values(approximate, aim, picks, start)))
    return whole, np.std(each, axis=0, ddof=1) / math.sqrt(BATCHES)


def _covariance(draws: np.ndarray) -> np.ndarray:
    return np.atleast_2d(np.cov(draws.T, bias=True))


def _values(approximate: Gaussian, aim: Goal, picks: Sequence[Pick], start: np.ndarray) -> list[float]:
    """Gain of no pick, the first, the first two, ...; up to a constant."""
    values, precision = [aim.value(start)], start
    for pick in picks:
        precision = precision + approximate.offer.information(pick)
        values.append(aim.value(precision))
    return values


def _stopped(
    approximate: Gaussian, aim: Goal, kind: str, picks, gains, errors, limits: Limits, least: float
) -> tuple[list[Pick], str]:
    """The picks up to where the next is not worth its cost, and why the list ends."""
    total = float((approximate.goals**2).sum(axis=1).mean())
    per = {"plan": 1.0, "variance": total / limits.budget}.get(kind, 1 / limits.budget)
    for k, (gain, error) in enumerate(zip(gains, errors, strict=True)):
        cost = approximate.offer.price(picks[: k + 1]) - approximate.offer.price(picks[:k])
        if gain < least * per * cost:
            return picks[:k], "the next run gains less for its cost than asked for"
        if gain <= 2 * error:
            return picks[:k], "the next run's gain is within its Monte Carlo error"
    fits, allowed = what_fits(approximate.offer, picks, limits)
    if fits and not allowed:
        return (
            picks,
            f"what fits the rest of the budget has been bought as often as allowed (replicates: {limits.replicates})",
        )
    if len(picks) == limits.picks:
        return picks, "the batch is full"
    return picks, "nothing else that fits the budget gains anything" if fits else "nothing else fits the budget"


def _goal_sds(approximate: Gaussian, picks: Sequence[Pick]) -> list[float]:
    """Root mean square sd of the goal before and after each pick, shape (1 + pick,)."""
    start = np.eye(approximate.offer.coordinates)
    total = float((approximate.goals**2).sum(axis=1).mean())
    worth = np.array(_values(approximate, Variance(approximate.goals), picks, start))
    return [float(s) for s in np.sqrt(np.maximum(total - worth, 0.0))]


def _lines(offered: Menu, approximate: Gaussian, picks, gains, errors, sds) -> list[dict[str, Any]]:
    out, seen = [], {}
    for k, (run, stop) in enumerate(picks):
        seen[run] = seen.get(run, 0) + 1
        rows = [_label(offered.table.index[i]) for i in offered.rows[run, : stop + 1]]
        cost = approximate.offer.price(picks[: k + 1]) - approximate.offer.price(picks[:k])
        out.append(
            {
                "row": rows[-1], "rows": rows, "run": offered.names(run), "replicate": seen[run], "cost": cost,
                "gain": float(gains[k]), "gain_error": float(errors[k]), "goal_sd": sds[k + 1],
            }
        )  # fmt: skip
    return out


def _label(row: Any) -> int | str:
    return int(row) if isinstance(row, int | np.integer) else str(row)


def _priced(made, gains: np.ndarray) -> dict[str, float]:
    return {"flops_before": made.flops, "flops_after": made.flops - float(gains.sum())}


def _checked(offered: Menu, domains: Sequence[Domain], picks, sds, outcomes: int, seed: int, made) -> dict[str, Any]:
    count, found = checking.longest_checkable(offered, domains, picks, outcomes, seed)
    variances = np.hstack([f.variance() for f in found]).mean(axis=1)
    sd = math.sqrt(variances.mean())
    error = variances.std(ddof=1) / math.sqrt(len(variances)) / (2 * sd) if len(variances) > 1 else math.nan
    khat = max(float(np.median(f.khat)) for f in found)
    out = {
        "picks": count, "outcomes": len(variances), "goal_sd": sd, "error": float(error), "goal_sd_approximate": sds[count],
        "correction": sd / sds[count], "khat": khat, "reliable": khat <= checking.MAX_KHAT,
    }  # fmt: skip
    if made is None:
        return out
    from bayeslaw import _anchors_plan as planning

    return out | planning.replanned(made, found, seed)

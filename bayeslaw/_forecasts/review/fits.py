"""Review posteriors: the quality of their draws, the fit of the law, the coverage of
its intervals in tests, and how far the goal lies beyond these tests.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from bayeslaw._base.errors import PlanError, RunTableError
from bayeslaw._forecasts.check import TRUSTED_COVERAGE, check
from bayeslaw._forecasts.misfits import misfit_and_noise, width_parts
from bayeslaw._forecasts.review import findings
from bayeslaw._forecasts.review.findings import Finding, Verdict, judged
from bayeslaw._forecasts.sensitivity import reasons
from bayeslaw._law.columns import LOSS_BEFORE, SOURCE_LOSS_BEFORE
from bayeslaw._posteriors.averaging.compare import compare
from bayeslaw._posteriors.averaging.distance import doubts, left_out_stages
from bayeslaw._posteriors.averaging.record import Average
from bayeslaw._posteriors.fits.goodness import are_large, explains_little
from bayeslaw._posteriors.fits.record import Fit
from bayeslaw._posteriors.pairs import check_posteriors, one_domain
from bayeslaw._posteriors.posterior import Posterior, columns_read
from bayeslaw._tables.beyond import AXES, distances, values_along
from bayeslaw._tables.fitting import losses, own_rows
from bayeslaw._tables.holdouts import FEW, HoldOut, stages_named


def review_fits(
    posteriors: Mapping[str, Fit | Average],
    goal: pd.DataFrame | None = None,
    **options: Any,
) -> list[Finding]:
    """Review posteriors by their paths, and the plan that several could make."""
    several = len(posteriors) > 1
    found: list[Finding] = []
    for name, posterior in posteriors.items():
        of_fit = [*_review_fit(posterior, shlex.quote(name), goal, **options)]
        found += findings.labelled(of_fit, name if several else "")
    return [*found, _review_plan(posteriors, goal)] if several else found


def _review_fit(
    posterior: Fit | Average,
    path: str,
    goal: pd.DataFrame | None,
    *,
    held_out: pd.DataFrame | None,
    refit: bool,
    seed: int,
) -> Iterator[Finding]:
    """Review a posterior by rows held out or by stages, left out again if ``refit``."""
    runs = posterior.runs
    yield _review_diagnostics(posterior)

    # how well the law by itself fits its own runs
    goodness, verdict = posterior.goodness, "pass"
    reason, todo = goodness.sentence(), ""
    if math.isnan(goodness.explained):
        verdict, todo = "look", "add runs, and fit again"
    elif goodness.doubts:
        of_little = explains_little(goodness.with_effects, np.log(losses(runs)))
        verdict, todo = "fail" if of_little else "look", "bayeslaw compare RUNS"
        reason = "; ".join(goodness.doubts)
    yield Finding("fit", verdict, reason, todo)

    # the law's misfit compared with the noise of a run
    sizes = misfit_and_noise(posterior, runs)
    if sizes is None:
        reason = (
            "the law's smooth misfit was not learned: intervals leave out that no law "
            "is true"
        )
        yield Finding("misfit", "look", reason, "fit it without --plain")
    else:
        misfit, noise = sizes
        reason = (
            f"the law is off by {misfit:.2%} (root mean square over its runs), beside "
            f"{noise:.2%} of noise in a run"
        )
        # beyond this, the law explains less than half of the variation
        trouble = reason if misfit > 3.0 * noise else None
        yield judged("misfit", reason, trouble, "bayeslaw compare RUNS")

    # the laws, as in `Comparison.table`, and the stages whose forecasts an average keeps,
    # or that are left out again if asked
    laws, stages = None, []
    if isinstance(posterior, Average):
        laws, stages = posterior.table, left_out_stages(posterior)
        laws = laws[laws["weight"] > 0]
    elif refit:
        smooth = posterior.misfit is not None
        compared = compare(runs, [posterior.law], discrepancy=smooth, seed=seed)
        laws, stages = compared.table, stages_named(runs, compared.folds)
    # held-out runs test the forecast of a goal only up to the distance at which they lie
    # beyond the other runs
    times = findings.times_tested(stages)
    if held_out is None:
        yield _review_calibration(posterior, laws, stages, path)
    else:
        held_out, calibration = _review_held_out(posterior, held_out, path, seed)
        yield calibration
        for axis in AXES:
            new, fitted = (values_along(rows, axis) for rows in (held_out, runs))
            if new is not None and fitted is not None:
                factor = float(new.max() / fitted.max())
                times[axis] = max(times.get(axis, 1.0), factor)
    if goal is None:
        places = distances(runs, runs, AXES, above=0)
        ends = ", ".join(f"{axis} {place.ends}" for axis, place in places.items())
        reason = f"runs reach {ends or 'no known axis'}; no goal was named"
        todo = f"bayeslaw review {path} --at N=8.1B,D=70B,ptpp=279"
        yield Finding("extrapolation", "pass", reason, todo)
        return
    yield findings.review_reach(runs, goal, times, path)
    yield _review_forecast(posterior, goal, path, seed)


def _review_diagnostics(posterior: Fit | Average) -> Finding:
    diagnostics = posterior.diagnostics
    rhat, khat = diagnostics["rhat"], diagnostics.get("khat")
    how = f"R-hat {rhat:.3f}, " if rhat == rhat else ""  # NaN without chains
    how += f"k-hat {khat:.2f}, " if khat is not None else ""
    reason = (
        f"{how}{diagnostics['ess']:.0f} effective draws, "
        f"{diagnostics['divergences']} divergences"
    )
    if posterior.warnings:
        todo = "fit it again with --draws 2000 --warmup 2000, or take a smaller law"
        return Finding("diagnostics", "fail", "; ".join(posterior.warnings), todo)
    trouble = None
    if isinstance(posterior, Fit) and posterior.is_preview:
        trouble = f"drawn without chains, a preview or as they disagreed: {reason}"
    todo = "fit it without --preview; where chains disagree, take a smaller law"
    return judged("diagnostics", reason, trouble, todo)


def _review_calibration(
    posterior: Fit | Average,
    laws: pd.DataFrame | None,
    stages: Sequence[HoldOut],
    path: str,
) -> Finding:
    """Judge the coverage of 90% intervals on left-out stages, by the laws' weights."""
    todo = f"bayeslaw review {path} --held-out RUNS"
    if laws is None:
        reason = "a fit of one law keeps no forecasts of stages left out"
        todo = f"bayeslaw review {path} --refit"
        return Finding("calibration", "look", reason, todo)
    if not stages:
        reason = "no stage could be left out, so no forecast was tested"
        return Finding("calibration", "look", reason, todo)
    # averages that were saved before lack the bias
    numbers = laws.reindex(columns=["coverage", "interval_score90", "bias", "mae"])
    means = numbers.fillna({"bias": 0.0}).mul(laws["weight"], axis=0).sum(skipna=False)
    coverage, score, bias, mae = map(float, means)
    names = "; ".join(stage.name for stage in stages)
    count = sum(int(stage.is_held(posterior.runs).sum()) for stage in stages)
    reason = (
        f"left out in turn ({names}), 90% intervals hold "
        f"{coverage:.0%} of {count} runs, interval score {score:.1%} of the loss"
    )
    failed = [text for text in laws["failed_stages"] if text]
    if failed:
        reason += f"; chains of {', '.join(failed)} did not converge"
    # 90% intervals that hold under half of the runs mislead
    verdict = "fail" if coverage < 0.5 and count >= FEW else "look"
    # losses of the largest models fall off what the others forecast: all on this side, by
    # over 1% and five times what the law misses
    are_larger = any(stage.reach(posterior.runs, "N") > 1 for stage in stages)
    are_lower = bias > max(0.9 * mae, 5 * posterior.goodness.miss) and bias >= 0.01
    if are_large(posterior.runs) and are_larger and are_lower:
        reason += (
            f"; losses of the largest models lie {bias:.1%} below what smaller ones "
            "forecast, and the law misses its own runs by less than a fifth of that: "
            "it bends, or a part of the evaluation set was trained on"
        )
        todo = "leave near-duplicates of the training text out of the evaluation"
        return Finding("calibration", verdict, reason, todo)
    if count < FEW:
        return Finding("calibration", "look", f"{reason}: too few to tell", todo)
    if coverage >= TRUSTED_COVERAGE and not failed:
        return Finding("calibration", "pass", reason)
    return Finding("calibration", verdict, reason, "bayeslaw compare RUNS")


def _review_held_out(
    posterior: Fit | Average, held_out: pd.DataFrame, path: str, seed: int
) -> tuple[pd.DataFrame, Finding]:
    try:
        rows = own_rows(posterior.runs, held_out)
    except RunTableError as error:
        do = "give rows of its domain"
        return held_out.head(0), Finding("calibration", "look", str(error), do)
    result = check(posterior, rows, seed=seed)
    verdicts: dict[str, Verdict] = {"trust": "pass", "do not extrapolate": "fail"}
    verdict = verdicts.get(result.verdict, "look")
    todo = f"bayeslaw anchors {path} --candidates RUNS --goal GOAL --budget FLOPS"
    reason = f"{result.verdict}: {result.reason}"
    todo = "" if verdict == "pass" else todo
    return rows, Finding("calibration", verdict, reason, todo)


def _review_forecast(
    posterior: Fit | Average, goal: pd.DataFrame, path: str, seed: int
) -> Finding:
    """Say what the goal's forecast rests on, and the main part of its interval."""
    try:
        draws = posterior.log_loss(goal)
        new = posterior.log_loss(goal, noise=True, seed=seed)
    except RunTableError as error:
        todo = "name it, too: --at N=...,D=..., or as a column of --goal"
        return Finding("forecast", "look", f"not forecast: {error}", todo)
    low, middle, high = np.exp(np.quantile(new, [0.05, 0.5, 0.95], axis=0))
    # Of several runs, take the least certain one.
    widest = int(np.argmax((high - low) / middle))
    parts = width_parts(posterior, goal).iloc[widest]
    reason = (
        f"{middle[widest]:.4g} ({low[widest]:.4g} to {high[widest]:.4g} with 90%), "
        f"mostly {parts.idxmax()}"
    )
    why = reasons(posterior, goal, draws)
    if not why:
        return Finding("forecast", "pass", reason)
    todo = f"bayeslaw anchors {path} --candidates RUNS --goal GOAL --budget FLOPS"
    return Finding("forecast", "look", "; ".join((reason, *why)), todo)


def _review_plan(
    posteriors: Mapping[str, Fit | Average], goal: pd.DataFrame | None
) -> Finding:
    # the domain called target comes first, if there is one
    name, *source_names = sorted(
        posteriors,
        key=lambda n: n != "target" and one_domain(posteriors[n]) != "target",
    )
    target = posteriors[name]
    sources = {source: posteriors[source] for source in source_names}
    try:
        check_posteriors(target, sources)
    except PlanError as error:
        todo = "bayeslaw fit RUNS --where \"domain == 'source'\" -o source.nc"
        return Finding("plan", "fail", str(error), todo)
    for n, posterior in posteriors.items():
        if not any({"D", "replay"} <= {*one.covariates} for one in posterior.pieces()):
            reason = f"no law of {n} reads both D and replay, which a plan chooses"
            todo = "fit a law that reads both: bayeslaw laws lists them"
            return Finding("plan", "fail", reason, todo)
    command = _plan_command(name, sources, posteriors, goal)
    why = doubts(target, sources, {})
    reason = f"{name} as target and {', '.join(sources)} as source make a plan"
    verdict = "look" if why else "pass"
    return Finding("plan", verdict, "; ".join(why) or reason, command)


def _plan_command(
    target: str,
    sources: Mapping[str, Posterior],
    posteriors: Mapping[str, Posterior],
    goal: pd.DataFrame | None,
) -> str:
    words = [f"bayeslaw plan --target {shlex.quote(target)}"]
    for i, (name, source) in enumerate(sources.items(), start=1):
        # several sources have names
        called = one_domain(source) or f"source{i}"
        named = name if len(sources) == 1 else f"{called}={name}"
        words.append(f"--source {shlex.quote(named)}")
    for column in ("N", "ptpp"):
        value = column.upper()
        if goal is not None and column in goal:
            value = f"{goal[column].iloc[0]:g}"
        words.append(f"--{column} {value}")
    words.append("--max-target-loss LOSS --max-forgetting 2%")
    covariates = columns_read(*posteriors.values())
    of_sources = [piece for source in sources.values() for piece in source.pieces()]
    diverges = any(piece.diverges_at_start for piece in of_sources)
    if SOURCE_LOSS_BEFORE in covariates or diverges:
        words.append("--baseline-loss LOSS")
    if LOSS_BEFORE in covariates:
        words.append("--covariate loss_before=LOSS")
    return " ".join(words)

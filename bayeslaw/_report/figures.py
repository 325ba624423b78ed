"""Draw the page's pictures, each with its caption and a description in words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bayeslaw import plots
from bayeslaw._base.numbers import format_count
from bayeslaw._forecasts.check import Check
from bayeslaw._forecasts.misfits import misfit_along
from bayeslaw._forecasts.misfits import width_parts as width_parts_of
from bayeslaw._forecasts.optimum import optimum, sweeps_of
from bayeslaw._law.law import Law
from bayeslaw._plans.mixing.mixture import MixturePlan
from bayeslaw._plans.result import Plan
from bayeslaw._posteriors.averaging.record import Average, Member
from bayeslaw._posteriors.fits.record import Fit
from bayeslaw._posteriors.posterior import columns_read
from bayeslaw._report.pages.single import Picture, encode_picture

WIDEST = 12.0  # inches; wider pictures are unreadable at the width of the page
PER_TOKEN = "nats per token"  # the unit in labels of `plots`


def _encode(
    figure: Figure, caption: str, alt: str, unit: str = PER_TOKEN, dpi: int = 110
) -> Picture:
    for ax in figure.axes:
        for label in (ax.xaxis.label, ax.yaxis.label):
            label.set_text(label.get_text().replace(PER_TOKEN, unit))
    return encode_picture(figure, caption, alt, dpi=dpi)


# -- forecasts -------------------------------------------------------------------------


def forecast_grid(
    runs: pd.DataFrame, rows: pd.DataFrame, *, title: str, caption: str, unit: str
) -> Picture:
    """Draw forecasts for paper: a panel for each model size and stage, with forecasts
    along D for each replay (``rows``, of `forecast`), and the ``runs`` observed, among
    rows without a loss along their curves.
    """
    # the five largest models, which are nearest to the plan, on one line
    columns = [
        c for c in ("N", "ptpp") if c in runs and (c == "N" or runs[c].nunique() > 1)
    ]
    groups = [("all runs", runs)]
    if columns:
        groups = [
            (_label_run(dict(zip(columns, levels, strict=True)), "N = ", ", "), part)
            for levels, part in runs.groupby(columns)
        ][-5:]
    replays = sorted(runs["replay"].unique()) if "replay" in runs else None
    # inches between the margins of a printed page
    figure = Figure(figsize=(7.3, 2.1), layout="constrained")
    axes = list(figure.subplots(1, len(groups), squeeze=False).ravel())
    for ax, (name, group) in zip(axes, groups, strict=True):
        plots.forecast_curve(ax, group, rows, levels=replays)
        ax.set_title(name, fontsize=7)
        ax.tick_params(labelsize=6)
        ax.xaxis.label.set_size(6.5)
        ax.yaxis.label.set_size(6.5)
    _label_first_column(axes)
    # one legend for all panels, with each label once
    by_label: dict[str, Any] = {}
    for ax in axes:
        handles, labels = ax.get_legend_handles_labels()
        by_label |= dict(zip(labels, handles, strict=True))
    if by_label:
        labels, handles = zip(
            *sorted(by_label.items(), key=lambda one: one[0]), strict=True
        )
        place: dict[str, Any] = {"loc": "outside lower center", "ncols": 8}
        figure.legend(handles, labels, fontsize=6.5, frameon=False, **place)
    observed = runs["loss"].dropna()
    inside = observed.between(
        rows["low"].loc[observed.index], rows["high"].loc[observed.index]
    ).mean()
    alt = (
        f"{title}: {len(observed)} observations as dots, {inside:.0%} of them inside the "
        "forecast bands"
    )
    return _encode(figure, caption, alt, unit, dpi=180)


def _label_first_column(axes: list[Axes]) -> None:
    for ax in axes:
        place = ax.get_subplotspec()
        if place is not None and not place.is_first_col():
            ax.set_ylabel("")


def calibration(
    runs: pd.DataFrame, rows: pd.DataFrame, check: Check, unit: str
) -> Picture:
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    plots.observed_against_forecast(left, runs, rows)
    if left.get_legend_handles_labels()[0]:
        left.legend(fontsize=7, frameon=False)
    plots.coverage(middle, check)
    plots.pit(right, check)
    covered = ", ".join(
        f"{float(stated):.0%} intervals hold {share:.0%}"
        for stated, share in check.coverage.items()
    )
    return _encode(
        figure,
        "Held-out runs. Left: on the line the forecast is exact; bars are 90% "
        f"intervals of a new run. Middle: {covered}; below the line intervals are too "
        "narrow. Right: flat when calibrated, piled up at an end when the law is off.",
        f"Calibration on {check.n} held-out runs: {covered}",
        unit,
    )


# -- budgets ---------------------------------------------------------------------------


def best_sizes(fit: Fit | Average, runs: pd.DataFrame, unit: str) -> Picture | None:
    """Draw the best size and tokens at each budget, for a table of sweeps at equal
    compute without replay; None for other tables, or for a law that reads more than N
    and D.
    """
    if set(columns_read(fit)) != {"N", "D"} or "replay" in runs or not sweeps_of(runs):
        return None
    best = optimum(fit)
    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    plots.isoflops(figure.subplots(), best, runs)
    caption = " ".join(best.sentence().splitlines())
    return _encode(
        figure,
        "The best size for a budget: loss along model size at each budget in FLOPs, the "
        f"sweeps that were run (dots) and the optimum (star). {caption}",
        f"Best sizes. {caption}",
        unit,
    )


# -- laws ------------------------------------------------------------------------------


def law_weights(average: Average) -> Picture | None:
    """Draw each law's weight and chance to be best; None if one has it all."""
    table = average.table
    # if one law has nearly all weight, the picture would show nothing
    if table["weight"].max() > 0.995:
        return None
    figure = Figure(figsize=(7.5, 0.42 * len(table) + 1.1), layout="constrained")
    ax = plots.weights(figure.subplots(), average)
    ax.legend(fontsize=8, frameon=False, loc="lower right")
    listed = ", ".join(f"{name} {w:.2f}" for name, w in table["weight"].items())
    stages = str(average.attrs["folds"]).replace("; ", ", ")
    return _encode(
        figure,
        "Weights of the laws (bars): the mixture that best forecasts stages left out "
        f"in turn ({stages}). Dots: the probability that a law alone forecasts them "
        "best.",
        f"Weights of the laws: {listed}",
    )


def term_contributions(fit: Fit | Member, runs: pd.DataFrame, unit: str) -> Picture:
    chosen, labels, width = _choose_middle_runs(runs)
    figure = Figure(figsize=(width, 3.6), layout="constrained")
    ax = plots.contributions(figure.subplots(), fit, chosen, labels)
    ax.tick_params(axis="x", labelsize=7)
    figure.legend(fontsize=11, frameon=False, ncols=5, loc="outside upper center")
    heights = plots.mean_contributions(fit, chosen)
    listed = ", ".join(f"{term} {h.mean():.2f}" for term, h in heights.items())
    return _encode(
        figure,
        f"Contribution of each term of {fit.law.name}, posterior mean, at a middle run "
        "of each stage and size.",
        f"Mean contributions in nats: {listed}",
        unit,
    )


def width_parts(fit: Fit | Average, runs: pd.DataFrame) -> Picture:
    chosen, labels, width = _choose_middle_runs(runs)
    parts = width_parts_of(fit, chosen)
    figure = Figure(figsize=(width, 3.4), layout="constrained")
    ax = plots.width_parts(figure.subplots(), parts, labels)
    ax.tick_params(axis="x", labelsize=7)
    figure.legend(fontsize=9, frameon=False, ncols=5, loc="outside upper center")
    listed = ", ".join(f"{name} {100 * v.mean():.1f}%" for name, v in parts.items())
    return _encode(
        figure,
        "What makes the 90% interval of a new run wide, at a middle run of each stage "
        "and size. Seeds average out the noise, more runs anywhere narrow the law's "
        "parameters, runs near the forecast narrow its misfit, and runs further out "
        "narrow its drift.",
        f"Mean parts of the width: {listed}",
    )


def misfits(fit: Fit | Average, runs: pd.DataFrame, law: Law) -> Picture | None:
    """Draw the law's misfit, a panel for each column it reads; None if it has none."""
    varied = [c for c in law.covariates if c in runs and runs[c].nunique() > 1]
    curves = {column: misfit_along(fit, runs, column) for column in varied}
    # along a column that is not an axis of the misfit, the misfit is constant
    columns = [c for c in varied if np.ptp(curves[c]["median"]) > 0]
    if not columns:
        return None
    # panels on lines of equal length, at most four a line
    lines = -(-len(columns) // 4)
    across = -(-len(columns) // lines)
    size = (max(3.1 * across, 5.0), 2.7 * lines + 0.6)
    figure = Figure(figsize=size, layout="constrained")
    axes = list(figure.subplots(lines, across, squeeze=False).ravel())
    for ax in axes[len(columns) :]:
        ax.set_visible(False)
    axes = axes[: len(columns)]
    for ax, column in zip(axes, columns, strict=True):
        plots.misfit_curve(ax, curves[column])
        ax.tick_params(labelsize=8)
    _label_first_column(axes)
    return _encode(
        figure,
        f"Misfit of {law.name}, learned from the runs, along each column at a middle "
        "run (line: median; band: 90%). Forecasts take it into account.",
        f"Misfit of {law.name} along {', '.join(columns)}",
    )


def _choose_middle_runs(runs: pd.DataFrame) -> tuple[pd.DataFrame, list[str], float]:
    """Select one run of each stage and size: the middle one by replay and tokens. Also
    returns their labels, and the width of a picture of them in inches.
    """
    keys = [c for c in ("ptpp", "N") if c in runs and runs[c].nunique() > 1]
    chosen = runs.iloc[[len(runs) // 2]]
    if keys:
        # sorted, so that the middle run is not at an end of replay or of tokens
        ordered = runs.sort_values([c for c in ("replay", "D") if c in runs])
        groups = [group for _, group in ordered.groupby(keys, sort=True)]
        # more bars cannot be read
        chosen = pd.concat([g.iloc[[len(g) // 2]] for g in groups[:24]])
    labels = [_label_run(dict(run), "", "\n") for _, run in chosen.iterrows()]
    return chosen, labels, float(np.clip(0.75 * len(chosen) + 2, 6, WIDEST))


def _label_run(run: dict[Any, Any], before_size: str, between: str) -> str:
    parts = []
    if "N" in run:
        parts.append(f"{before_size}{format_count(run['N'])}")
    if "ptpp" in run:
        parts.append(f"ptpp {run['ptpp']:.4g}")
    return between.join(parts)


def exponent_intervals(
    fit: Fit | Member, published: dict[str, tuple[float, float]]
) -> Picture:
    """Draw the posterior of each free exponent over its prior, but for numbers of tokens,
    for which the axis would be too long.
    """
    # a fixed exponent has no posterior
    priors = fit.law.free_priors
    free = [e.name for e in fit.law.exponents if e.name in priors]
    small = [name for name in free if priors[name].quantile(0.95) < 10.0]
    names = small or free
    figure = Figure(figsize=(6.5, 0.42 * len(names) + 1), layout="constrained")
    ax = plots.exponents(figure.subplots(), fit, names, published)
    ax.set_xlabel("value")
    medians = {name: np.median(fit.posterior[name]) for name in names}
    listed = ", ".join(f"{name} {median:.3g}" for name, median in medians.items())
    caption = (
        f"Exponents of {fit.law.name}: median, 50% and 90% intervals; grey the prior's "
        "90%. Where the two agree, the data said little."
    )
    left_out = ", ".join(name for name in free if name not in names)
    if left_out:
        caption += (
            f" Not drawn, because of its size: {left_out} (in the table of parameters)."
        )
    return _encode(figure, caption, f"Posterior medians: {listed}")


# -- plans -----------------------------------------------------------------------------


def plan_pictures(plan: Plan, unit: str, runs: pd.DataFrame) -> tuple[Picture, ...]:
    figure = Figure(figsize=(12, 3.8), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    plots.frontier(left, plan)
    plots.beyond(plots.region(middle, plan), plan, runs)
    plots.tradeoff(right, plan)
    reached = [row for row in plan.frontier if row["atpp"] is not None]
    costs = ", ".join(
        f"{row['confidence']:.0%} costs {row['atpp']:.3g}" for row in reached[::3]
    )
    picture = _encode(
        figure,
        "Left: tokens per parameter of the cheapest plan at each confidence; the cross "
        "is the plan of parameters without uncertainty, at the probability with which "
        "it keeps the promises. Middle: that probability over replay and tokens; the "
        "line is the confidence asked for. Hatches mark plans beyond the runs, in "
        "replay (falling lines) or in tokens (rising). Right: forgetting and target loss along "
        "replay with 90% bands, limits dashed (as Goffinet 2025, fig. 2).",
        "Cost in tokens per parameter by confidence: "
        f"{costs or 'no confidence is reached'}",
        unit,
    )
    return (picture,)


def mixture_pictures(plan: MixturePlan, unit: str) -> tuple[Picture, ...]:
    spread = {name: np.ptp(row["probability"]) for name, row in plan.along.items()}
    steepest = max(spread, key=lambda name: spread[name])
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    plots.share_probability(left, plan)
    plots.mixture_tradeoff(right, plan, steepest)
    shares = ", ".join(f"{name} {share:.0%}" for name, share in plan.shares.items())
    along = _encode(
        figure,
        "Left: probability that all limits are kept, along each domain's share; the "
        "other shares stay as near to the plan's (dots) as possible. Right: the losses "
        f"along the share of {steepest}, which changes the probability most, with 90% "
        "bands; limits dashed, the plan dotted.",
        f"Probability along the share of each domain around the plan: {shares}",
        unit,
    )
    if not plan.region:
        return (along,)
    figure = Figure(figsize=(5.4, 4.2), layout="constrained")
    plots.ternary(figure.subplots(), plan)
    over = _encode(
        figure,
        "Probability that all limits are kept, over the mixtures of the three domains "
        "within their bounds, at the plan's tokens. The star is the plan; each corner is "
        "one domain alone.",
        f"Probability over mixtures of three domains; the plan lies at {shares}",
        unit,
    )
    return (over, along)

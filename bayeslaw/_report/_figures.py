"""The page's pictures: each function returns a picture for the page, with its caption and text for who cannot see it."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from bayeslaw import plots
from bayeslaw._average import Average, Member
from bayeslaw._check import Check
from bayeslaw._fit import Fit
from bayeslaw._plan import Plan
from bayeslaw._words import people_number

DPI = 110
MAX_PANELS = 8
PHONE = 8.0  # inches; a wider picture cannot be read at the width of a phone
WIDEST = 12.0  # inches; wider pictures are unreadable at the width of the page
LARGEST_EXPONENT = 10.0


@dataclass(frozen=True)
class Picture:
    """A PNG as a data URI, with caption and alternative text; on a phone one ``too_wide`` is moved sideways, not shrunk."""

    uri: str
    caption: str
    alt: str
    too_wide: bool


def _picture(figure: Figure, caption: str, alt: str) -> Picture:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI, bbox_inches="tight", metadata={"Software": None})
    return Picture(
        "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode(),
        caption,
        alt,
        figure.get_figwidth() > PHONE,
    )


def forecast_grid(runs: pd.DataFrame, rows: pd.DataFrame, *, title: str, caption: str) -> Picture:
    """A panel for each model size: forecasts along D for each replay ratio, against observations."""
    sizes = sorted(runs["N"].unique())[:MAX_PANELS] if "N" in runs else [None]
    lines = -(-len(sizes) // 4)
    columns = -(-len(sizes) // lines)
    figure = Figure(figsize=(max(3.1 * columns, 5.0), 2.7 * lines + 0.6), layout="constrained")
    axes = np.atleast_1d(figure.subplots(lines, columns, squeeze=False)).ravel()
    for ax, size in zip(axes, sizes, strict=False):
        group = runs if size is None else runs[runs["N"] == size]
        plots.forecast_curve(ax, group, rows)
        ax.set_title("all runs" if size is None else f"N = {people_number(size)}", fontsize=10)
        ax.tick_params(labelsize=8)
    for ax in axes[len(sizes) :]:
        ax.set_visible(False)
    for i, ax in enumerate(axes[: len(sizes)]):
        if i % columns:
            ax.set_ylabel("")
    handles, labels = axes[0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, fontsize=9, frameon=False, ncols=6, loc="outside lower center")
    figure.suptitle(title, fontsize=11)
    inside = ((runs["loss"] >= rows["low"]) & (runs["loss"] <= rows["high"])).mean()
    alt = f"{title}: {len(runs)} observations as dots, {inside:.0%} of them inside the forecast bands"
    return _picture(figure, caption, alt)


def calibration(runs: pd.DataFrame, rows: pd.DataFrame, check: Check) -> Picture:
    """Observed against forecast, coverage over stated probability, and the PIT histogram."""
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    plots.observed_against_forecast(left, runs, rows)
    if left.get_legend_handles_labels()[0]:
        left.legend(fontsize=7, frameon=False)
    plots.coverage(middle, check)
    plots.pit(right, check)
    covered = ", ".join(f"{float(p):.0%} intervals hold {c:.0%}" for p, c in check.coverage.items())
    return _picture(
        figure,
        f"Held-out runs. Left: on the line the forecast is exact; bars are 90% intervals of a new run. Middle: {covered}; "
        "below the line intervals are too narrow. Right: flat when calibrated, piled up at an end when the law is off.",
        f"Calibration on {check.n} held-out runs: {covered}",
    )


def law_weights(average: Average) -> Picture:
    """Weight of each law, and the probability that it forecasts best."""
    table = average.table
    figure = Figure(figsize=(7.5, 0.42 * len(table) + 1.1), layout="constrained")
    plots.weights(figure.subplots(), average).legend(fontsize=8, frameon=False, loc="lower right")
    said = ", ".join(f"{n} {w:.2f}" for n, w in table["weight"].items())
    stages = str(average.attrs["folds"]).replace("; ", ", ")
    return _picture(
        figure,
        f"Weights of the laws (bars): the mixture that best forecasts stages left out in turn ({stages}). Dots: the "
        "probability that a law alone forecasts them best.",
        f"Weights of the laws: {said}",
    )


def term_contributions(fit: Fit | Member, runs: pd.DataFrame) -> Picture:
    """What each term adds to the loss at one middle run of each stage and size."""
    chosen = _middle_runs(runs)
    labels = [_run_label(r) for _, r in chosen.iterrows()]
    figure = Figure(figsize=(float(np.clip(0.75 * len(chosen) + 2, 6, WIDEST)), 3.6), layout="constrained")
    ax = plots.contributions(figure.subplots(), fit, chosen, labels)
    ax.tick_params(axis="x", labelsize=7)
    figure.legend(fontsize=11, frameon=False, ncols=5, loc="outside upper center")
    shares = {k: v.mean() for k, v in plots.mean_contributions(fit, chosen).items()}
    said = ", ".join(f"{k} {v:.2f}" for k, v in shares.items())
    caption = f"Contribution of each term of {fit.law.name}, posterior mean, at a middle run of each stage and size."
    return _picture(figure, caption, f"Mean contributions in nats: {said}")


def _middle_runs(runs: pd.DataFrame) -> pd.DataFrame:
    keys = [c for c in ("ptpp", "N") if c in runs and runs[c].nunique() > 1]
    if not keys:
        return runs.iloc[[len(runs) // 2]]
    ordered = runs.sort_values([c for c in ("replay", "D") if c in runs])
    groups: list[pd.DataFrame] = [g for _, g in ordered.groupby(keys, sort=True)][:24]
    return pd.concat([g.iloc[[len(g) // 2]] for g in groups])


def _run_label(run: pd.Series) -> str:
    named: tuple[tuple[str, Callable[[float], str]], ...] = (
        ("N", people_number),
        ("ptpp", lambda v: f"ptpp {v:g}"),
    )
    return "\n".join(say(run[c]) for c, say in named if c in run)


def exponent_intervals(fit: Fit | Member, published: dict[str, tuple[float, float]]) -> Picture:
    """Posterior of each free exponent over its prior; a number of tokens among them would hide the others."""
    free = [e.name for e in fit.law.exponents if not e.prior.is_fixed]
    names = [n for n in free if fit.law.priors[n].quantile(0.95) < LARGEST_EXPONENT] or free
    figure = Figure(figsize=(6.5, 0.42 * len(names) + 1), layout="constrained")
    plots.exponents(figure.subplots(), fit, names, published).set_xlabel("value")
    draws = fit.posterior
    said = ", ".join(f"{n} {np.median(draws[n]):.3g}" for n in names)
    caption = f"Exponents of {fit.law.name}: median, 50% and 90% intervals; grey the prior's 90%. Where the two agree, the data said little."
    if left_out := [n for n in free if n not in names]:
        caption += f" Not drawn, because of its size: {', '.join(left_out)} (in the table of parameters)."
    return _picture(figure, caption, f"Posterior medians: {said}")


def plan_pictures(plan: Plan) -> tuple[Picture, ...]:
    """Cost against confidence, the feasible region, and the trade-off along replay."""
    figure = Figure(figsize=(12, 3.8), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    plots.frontier(left, plan)
    plots.region(middle, plan)
    plots.tradeoff(right, plan)
    reached = [r for r in plan.frontier if r["atpp"] is not None]
    said = ", ".join(f"{r['confidence']:.0%} costs {r['atpp']:.3g}" for r in reached[::3])
    caption = (
        "Left: tokens per parameter of the cheapest plan at each confidence; the cross is the plan of parameters without "
        "uncertainty, at the probability with which it keeps the promises. Middle: that probability over replay and "
        "tokens; the line is the confidence asked for. Right: forgetting and target loss along replay with 90% bands, "
        "limits dashed (as Goffinet 2025, fig. 2)."
    )
    return (
        _picture(figure, caption, f"Cost in tokens per parameter by confidence: {said or 'no confidence is reached'}"),
    )

"""Pictures as functions on matplotlib Axes: they take an ``ax``, draw, and return it; no global style is set.

Colours are Okabe and Ito's, told apart by colour-blind readers; observations are always dots, forecasts lines with a
band.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bayeslaw._words import people_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bayeslaw._anchors import Anchors
    from bayeslaw._average import Average, Member
    from bayeslaw._check import Check
    from bayeslaw._fit import Fit
    from bayeslaw._law import Term
    from bayeslaw._plan import Plan
    from bayeslaw._posterior import Posterior

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")
MOST_TICKS = 4  # levels along an axis up to which each has its own tick
GREY, BLACK = "#767676", "#000000"
STAR = {"marker": "*", "markersize": 14, "markeredgecolor": "white", "linestyle": "none", "color": BLACK, "zorder": 5}


def forecast_curve(
    ax: Axes, runs: pd.DataFrame, rows: pd.DataFrame, *, along: str = "D", by: str | None = "replay"
) -> Axes:
    """Forecasts against observations along one column, a colour for each level of another.

    Parameters
    ----------
    runs
        Table with ``along``, ``by`` and, where measured, ``loss``.
    rows
        What `forecast` returned for it: the median as a line, a new run's interval as a band.
    """
    groups = [(None, runs)] if by is None or by not in runs else list(runs.groupby(by, sort=True))
    for i, (level, group) in enumerate(groups):
        colour = COLOURS[i % len(COLOURS)]
        ordered = group.sort_values(along)
        row = rows.loc[ordered.index]
        label = None if level is None else f"{by} {level:g}"
        ax.fill_between(ordered[along], row["low"], row["high"], color=colour, alpha=0.2, lw=0)
        ax.plot(ordered[along], row["median"], color=colour, lw=1.2, ls="--", label=label)
        if "loss" in ordered:
            ax.plot(ordered[along], ordered["loss"], "o", ms=3.5, color=colour, mec="white", mew=0.4)
    ax.set_xscale("log")
    levels = np.sort(runs[along].unique())
    if len(levels) <= MOST_TICKS:  # marks of a logarithmic axis overlap where they span less than a decade
        ax.set_xticks(levels, [people_number(v) for v in levels])
        ax.set_xticks([], minor=True)
    ax.set_xlabel({"D": "adaptation tokens D", "N": "parameters N"}.get(along, along))
    ax.set_ylabel("loss (nats per token)")
    return ax


def learning_curves(ax: Axes, runs: pd.DataFrame, rows: pd.DataFrame, *, along: str = "step", by: str = "run") -> Axes:
    """Measured curves as dots, forecast ones as a line with the band of a new run, a colour for each run.

    Parameters
    ----------
    runs
        Table with ``along``, ``by`` and, where measured, ``loss``.
    rows
        What `forecast` returned for it, or the table of `loss_curve`.
    """
    groups = list(runs.groupby(by, sort=True)) if by in runs else [("forecast", runs)]
    for i, (name, group) in enumerate(groups):
        colour, ordered = COLOURS[i % len(COLOURS)], group.sort_values(along)
        row = rows.loc[ordered.index]
        ax.fill_between(ordered[along], row["low"], row["high"], color=colour, alpha=0.2, lw=0)
        ax.plot(ordered[along], row["median"], color=colour, lw=1.2, ls="--", label=str(name))
        if "loss" in ordered:
            ax.plot(ordered[along], ordered["loss"], ".", ms=4, color=colour)
    ax.set(xlabel=along, ylabel="loss (nats per token)")
    return ax


def observed_against_forecast(ax: Axes, runs: pd.DataFrame, rows: pd.DataFrame, *, by: str | None = "N") -> Axes:
    """Observed loss over the forecast's median with its interval; on the diagonal the forecast is exact."""
    groups = [(None, runs)] if by is None or by not in runs else list(runs.groupby(by, sort=True))
    for i, (level, group) in enumerate(groups):
        row = rows.loc[group.index]
        colour = COLOURS[i % len(COLOURS)]
        bars = np.stack([row["median"] - row["low"], row["high"] - row["median"]])
        label = None if level is None else f"{by} {people_number(level)}"
        ax.errorbar(row["median"], group["loss"], xerr=bars, fmt="o", ms=3, lw=0.7, color=colour, label=label)
    ends = [min(ax.get_xlim()[0], ax.get_ylim()[0]), max(ax.get_xlim()[1], ax.get_ylim()[1])]
    ax.plot(ends, ends, color=GREY, lw=0.8, zorder=0)
    ax.set_xlabel("forecast (nats per token)")
    ax.set_ylabel("observed (nats per token)")
    return ax


def coverage(ax: Axes, check: Check) -> Axes:
    """Share of held-out runs inside central intervals, over their stated probability.

    The grey band holds 90% of the shares that as many independent runs would have under a calibrated forecast.
    """
    from scipy import stats

    stated = np.linspace(0.02, 0.98, 49)
    inside = np.abs(check.pit - 0.5)[:, None] <= stated[None, :] / 2
    low, high = (np.asarray(stats.binom.ppf(p, check.n, stated)) / check.n for p in (0.05, 0.95))
    ax.fill_between(stated, low, high, color=GREY, alpha=0.2, lw=0)
    ax.plot([0, 1], [0, 1], color=GREY, lw=0.8)
    ax.plot(stated, inside.mean(0), color=COLOURS[0], lw=1.5)
    for p, share in check.coverage.items():
        ax.plot(float(p), share, "o", color=COLOURS[1], ms=5)
    ax.set(xlabel="stated probability", ylabel="share of runs inside", xlim=(0, 1), ylim=(0, 1.03))
    return ax


def pit(ax: Axes, check: Check, bins: int = 10) -> Axes:
    """Histogram of the probability integral transform: flat when calibrated, piled up at an end when biased.

    The grey band holds 90% of the heights that as many independent runs would give under a calibrated forecast.
    """
    from scipy import stats

    low, high = (float(np.asarray(stats.binom.ppf(p, check.n, 1 / bins))) for p in (0.05, 0.95))
    ax.axhspan(low, high, color=GREY, alpha=0.2, lw=0)
    ax.hist(check.pit, bins=[i / bins for i in range(bins + 1)], color=COLOURS[0], alpha=0.7, edgecolor="white")
    ax.axhline(check.n / bins, color=GREY, lw=0.8)
    ax.set(xlabel="probability the forecast gave to a lower loss", ylabel="held-out runs", xlim=(0, 1))
    return ax


def sensitivity(ax: Axes, fit: Fit, runs: pd.DataFrame) -> Axes:
    """Mean forecast loss of runs with prior or likelihood raised to a power: 50% (thick) and 90% intervals of the law.

    Where the prior's rows move and the likelihood's do not, the forecast rests on the prior (Kallioinen 2024).
    """
    from bayeslaw._sensitivity import POWERS, scaled_weights, thinned

    mean = thinned(fit, np.exp(fit.log_loss(runs)).mean(axis=1))
    order, rows = np.argsort(mean), [(c, p) for c in ("prior", "likelihood") for p in (POWERS[0], 1.0, POWERS[1])]
    for i, (component, power) in enumerate(rows):
        y, colour = len(rows) - 1 - i, COLOURS[component == "likelihood"]
        below = np.cumsum(scaled_weights(fit, component, power)[order])
        low, q1, mid, q3, high = np.interp([0.05, 0.25, 0.5, 0.75, 0.95], below, mean[order])
        ax.plot([low, high], [y, y], color=colour, lw=1.2)
        ax.plot([q1, q3], [y, y], color=colour, lw=3.5)
        ax.plot(mid, y, "o", color=colour, ms=5)
    ax.set_yticks(range(len(rows)), [f"{component} to the {power:g}" for component, power in reversed(rows)])
    ax.set_ylim(-0.6, len(rows) - 0.4)
    ax.set_xlabel(f"mean loss of {len(runs)} runs (nats per token)")
    return ax


def contributions(ax: Axes, fit: Fit | Member, runs: pd.DataFrame, labels: Sequence[str]) -> Axes:
    """What each term adds to the loss at a few runs: posterior mean stacked, in nats per token."""
    shares, terms = mean_contributions(fit, runs), {t.coefficient: t for t in fit.law.terms}
    up, down = np.zeros(len(runs)), np.zeros(len(runs))
    at = np.arange(len(runs))
    for i, (name, height) in enumerate(shares.items()):
        base = np.where(height >= 0, up, down)
        ax.bar(at, height, bottom=base, width=0.7, color=COLOURS[i % len(COLOURS)], label=_formula(name, terms))
        up, down = up + np.maximum(height, 0), down + np.minimum(height, 0)
    ax.set_xticks(at, labels)
    ax.set_ylabel("contribution (nats per token)")
    return ax


def _formula(name: str, terms: Mapping[str, Term]) -> str:
    """A term as its law writes it; what is known beforehand has none."""
    return f"${'-' * (terms[name].sign < 0)}{terms[name].latex}$" if name in terms else "measured before"


def mean_contributions(fit: Fit | Member, runs: pd.DataFrame) -> dict[str, np.ndarray]:
    """Posterior mean of each term's contribution at each run, nats per token, shape (run,)."""
    import jax
    import jax.numpy as jnp

    from bayeslaw import _runs

    (piece,) = fit.pieces()
    x = {c: jnp.asarray(v) for c, v in _runs.covariates(fit.law, runs).items()}
    values = {n: jnp.asarray(v) for n, v in piece.values.items()}
    out = jax.vmap(lambda v: fit.law.contributions(x, v))(values)
    known = {} if fit.law.offset is None else {"known": np.asarray(fit.law.offset(x))}
    return known | {t.coefficient: np.asarray(out[t.coefficient]).mean(0) for t in fit.law.terms}


def weights(ax: Axes, average: Average) -> Axes:
    """Weight of each law in the average (bar), and the probability that it forecasts unseen stages best (dot)."""
    table = average.table.sort_values("weight")
    at = np.arange(len(table))
    ax.barh(at, table["weight"], color=COLOURS[0], height=0.6, label="weight")
    ax.plot(
        table["probability"], at, "o", color=COLOURS[1], ms=6, label="probability of forecasting unseen stages best"
    )
    ax.set_yticks(at, [str(name) for name in table.index])
    ax.set_xlim(0, 1.02)
    return ax


def exponents(
    ax: Axes, fit: Fit | Member, names: Sequence[str], published: Mapping[str, tuple[float, float]] | None = None
) -> Axes:
    """Posterior of exponents as intervals (50% thick, 90% thin) over the prior's 90%, beside published ones.

    ``published``: name -> (estimate, standard error), drawn as a diamond with 1.645 standard errors.
    """
    draws = fit.posterior
    for i, name in enumerate(names):
        y = len(names) - 1 - i
        prior = fit.law.priors[name]
        ax.plot(
            [prior.quantile(0.05), prior.quantile(0.95)], [y, y], color=GREY, alpha=0.25, lw=9, solid_capstyle="butt"
        )
        low, q1, mid, q3, high = np.quantile(draws[name], [0.05, 0.25, 0.5, 0.75, 0.95])
        ax.plot([low, high], [y, y], color=COLOURS[0], lw=1.2)
        ax.plot([q1, q3], [y, y], color=COLOURS[0], lw=3.5)
        ax.plot(mid, y, "o", color=COLOURS[0], ms=5)
        if published and name in published:
            estimate, se = published[name]
            ax.errorbar(estimate, y - 0.25, xerr=1.645 * se, fmt="D", ms=4, color=COLOURS[1], lw=1)
    ax.set_yticks(range(len(names)), list(reversed(names)))
    ax.set_ylim(-0.6, len(names) - 0.4)
    return ax


# -- plans ------------------------------------------------------------------------------------------------------------


def frontier(ax: Axes, plan: Plan) -> Axes:
    """Cost against confidence: the cheapest ATPP at each, the plan (star) and the plug-in plan (cross)."""
    rows = [r for r in plan.frontier if r["atpp"] is not None]
    ax.plot([r["confidence"] for r in rows], [r["atpp"] for r in rows], "o-", color=COLOURS[0], label="cheapest plan")
    point, chance = plan.plug_in["atpp"], plan.plug_in["probability"]
    if plan.atpp is not None and plan.probability is not None:
        ax.plot([plan.probability], [plan.atpp], label="this plan", **STAR)
    if point is not None and chance is not None:
        ax.plot(
            [chance],
            [point],
            "X",
            color=COLOURS[1],
            label="plug-in plan",
            markersize=9,
        )
    if plan.atpp != 0:
        _plain_log(ax)
    ax.set_xlabel("probability that all promises are kept")
    ax.set_ylabel("adaptation tokens per parameter")
    ax.legend()
    return ax


def region(ax: Axes, plan: Plan) -> Axes:
    """Probability that all promises are kept, over replay and ATPP; the line is the confidence asked for."""
    atpp, replay = np.array(plan.region["atpp"]), np.array(plan.region["replay"])
    chance = np.array(plan.region["probability"])
    filled = ax.contourf(100 * replay, atpp, chance.T, levels=np.linspace(0, 1, 11), cmap="cividis")
    ax.figure.colorbar(filled, ax=ax, label="probability that all promises are kept")
    if isinstance(plan.confidence, float) and chance.min() < plan.confidence < chance.max():
        ax.contour(100 * replay, atpp, chance.T, levels=[plan.confidence], colors="white", linewidths=1.5)
    if plan.atpp is not None and plan.replay is not None:
        ax.plot([100 * plan.replay], [plan.atpp], label="this plan", **STAR)
    _plain_log(ax)
    ax.set_xlabel("replay (%)")
    ax.set_ylabel("adaptation tokens per parameter")
    return ax


def forgetting_landscape(
    ax: Axes,
    source: Posterior,
    checkpoint: Mapping[str, float],
    baseline_loss: float,
    *,
    limit: float | None = None,
    confidence: float = 0.9,
    atpp: tuple[float, float] = (0.25, 40.0),
    size: int = 41,
) -> Axes:
    """Median forgetting of a checkpoint over replay and ATPP; a line where it stays within a limit.

    Parameters
    ----------
    source
        Posterior of the source loss.
    checkpoint
        ``N`` and whatever else the law reads beside D and replay (``ptpp``, ``source_loss_before``, ...).
    baseline_loss
        Source loss before adaptation, nats per token.
    limit, confidence
        The line is where the law's forgetting is within ``limit`` (0.02 is 2%) with this probability; no limit, no line.
    atpp, size
        Adaptation tokens per parameter, from and to; points along each axis.
    """
    replay, tokens = np.linspace(0.01, 1, size), np.geomspace(*atpp, size)
    at_replay, at_tokens = (a.ravel() for a in np.meshgrid(replay, tokens))
    grid = pd.DataFrame({"replay": at_replay, "D": at_tokens * checkpoint["N"]}).assign(**checkpoint)
    forgetting = np.exp(source.log_loss(grid)) / baseline_loss - 1
    median = 100 * np.median(forgetting, axis=0).reshape(size, size)
    most = float(np.abs(median).max())
    filled = ax.contourf(100 * replay, tokens, median, levels=np.linspace(-most, most, 21), cmap="PuOr_r")
    ax.figure.colorbar(filled, ax=ax, label="median forgetting (%)", format="%.2g")
    if limit is not None:
        kept = (forgetting <= limit).mean(axis=0).reshape(size, size)
        if kept.min() < confidence < kept.max():
            ax.contour(100 * replay, tokens, kept, levels=[confidence], colors=BLACK, linewidths=1.5)
    _plain_log(ax)
    ax.set(xlabel="replay (%)", ylabel="adaptation tokens per parameter")
    return ax


def tradeoff(ax: Axes, plan: Plan) -> Axes:
    """Forgetting (left) and target loss (right axis) along replay at the plan's ATPP, 90% bands, limits dashed.

    After Goffinet 2025, fig. 2. The target's axis is the twin of ``ax``.
    """
    replay, bands = 100 * np.array(plan.tradeoff["replay"]), plan.tradeoff["bands"]
    twin = ax.twinx()
    sources = [name for name in bands if name != "target"]
    for name, colour in zip(sources, (COLOURS[0], *COLOURS[2:]) * len(sources), strict=False):
        _band(ax, replay, bands[name], 100 if bands[name]["unit"] == "relative" else 1, colour, name)
    _band(twin, replay, bands["target"], 1, COLOURS[1], "target loss")
    if plan.replay is not None:
        ax.axvline(100 * plan.replay, color=BLACK, linewidth=1)
    ax.set_xlabel(f"replay (%) at {plan.tradeoff['atpp']:.3g} tokens per parameter")
    ax.set_ylabel("forgetting (%)" if bands[sources[0]]["unit"] == "relative" else "forgetting (nats per token)")
    twin.set_ylabel("target loss (nats per token)")
    lines = [*ax.get_lines(), *twin.get_lines()]
    named = [line for line in lines if not str(line.get_label()).startswith("_")]
    ax.legend(named, [str(line.get_label()) for line in named])
    return ax


def _band(ax: Axes, replay: np.ndarray, band: dict, scale: float, colour: str, label: str) -> None:
    """Median, 90% band and limit of one promise; the axis shows the band where the limit is near."""
    low, median, high = (scale * np.array(band[k], float) for k in ("low", "median", "high"))
    ax.plot(replay, median, color=colour, label=label)
    ax.fill_between(replay, low, high, color=colour, alpha=0.2, linewidth=0)
    ax.axhline(scale * band["limit"], color=colour, linestyle="--", linewidth=1)


# -- anchors ----------------------------------------------------------------------------------------------------------

DESIGNS = {"chosen": 0, "random": 4, "D-optimal": 2, "few": 5}  # lists of a study, and their colours
MEASURES = {
    "rmse": "RMSE of log loss (%)", "width": "width of the 90% interval (%)", "sd": "sd of log loss (%)",
    "coverage": "coverage of the 90% interval (%)",
}  # fmt: skip


def design_curves(ax: Axes, rows: pd.DataFrame, *, measure: str = "width") -> Axes:
    """A study's forecasts against what their runs cost: means over worlds with 90% intervals of the mean.

    Parameters
    ----------
    rows
        What `anchors_study` returned. Costs are shares of the paper's grid, the star; the line at the top is the
        forecast with nothing bought.
    measure
        A column: ``rmse``, ``width``, ``sd`` or ``coverage``.
    """
    name = {"none": "nothing bought", "paper": "the paper's grid", "few": "chosen, at most 20 runs"}
    at = rows.groupby(["list", "share"])[measure].agg(["mean", "sem"]).mul(100).reset_index()
    nothing = at[at["list"] == "none"]
    if len(nothing):
        ax.axhline(nothing["mean"].iloc[0], color=GREY, ls="--", lw=0.8, label=name["none"])
    for which, colour in DESIGNS.items():
        own = at[at["list"] == which].sort_values("share")
        if len(own):
            style = {"fmt": "o-", "ms": 4, "lw": 1.2, "color": COLOURS[colour], "label": name.get(which, which)}
            ax.errorbar(own["share"], own["mean"], yerr=1.645 * own["sem"], **style)
    paper = at[at["list"] == "paper"]
    if len(paper):
        ax.plot(paper["share"], paper["mean"], label=name["paper"], **STAR)
    ax.set_xscale("log")
    ax.set_xticks(shares := sorted(set(at["share"]) - {0.0}), [f"{s:g}" for s in shares], minor=False)
    ax.set_xticks([], minor=True)
    if measure != "coverage":
        _plain_log(ax)
    ax.set(xlabel="cost of the runs (share of the paper's)", ylabel=MEASURES.get(measure, measure))
    return ax


def _plain_log(ax: Axes) -> None:
    """A logarithmic y axis whose ticks are plain numbers: .1, .2, .5, 1, ..."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())


def picks(ax: Axes, made: Anchors, *, label: str | None = None, colour: str = COLOURS[0], unit: float = 1.0) -> Axes:
    """Expected sd of the goal as runs are bought, a dot each; ``unit``: of the cost."""
    cost = np.cumsum([p["cost"] for p in made.picks]) / unit
    ax.plot(cost, [100 * p["goal_sd"] for p in made.picks], "o-", ms=3, lw=1, color=colour, label=label)
    ax.set_xscale("log")
    _plain_log(ax)
    ax.set(xlabel="cost of the runs", ylabel="expected sd of the goal's log loss (%)")
    return ax


def foretold(ax: Axes, rows: pd.DataFrame) -> Axes:
    """A study's realised reductions of the goal's sd over the expected ones; on the diagonal they are what was foretold."""
    told = rows.dropna(subset=["sd_expected"])
    for i, (law, own) in enumerate(told.groupby("law", sort=False)):
        expected, realised = (100 * (own["sd_before"] - own[c]) for c in ("sd_expected", "sd"))
        ax.plot(expected, realised, "o", ms=3, alpha=0.6, color=COLOURS[i % len(COLOURS)], label=str(law))
    low, high = ax.get_xlim()
    ax.plot([low, high], [low, high], color=GREY, lw=0.8, zorder=0)
    ax.set(xlabel="expected fall of the goal's sd (% of the loss)", ylabel="realised fall (% of the loss)")
    return ax

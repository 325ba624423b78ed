"""Pictures as functions on matplotlib Axes: they take an ``ax``, draw, and return it; no global style is set.

Colours are Okabe and Ito's, told apart by colour-blind readers; observations are always dots, forecasts lines with a
band.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bayeslaw._check import Check
    from bayeslaw._fit import Fit

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")
GREY = "#767676"


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
    ax.set_xlabel({"D": "adaptation tokens D", "N": "parameters N"}.get(along, along))
    ax.set_ylabel("loss (nats per token)")
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
    """Share of held-out runs inside central intervals, over their stated probability."""
    stated = np.linspace(0.02, 0.98, 49)
    inside = np.abs(check.pit - 0.5)[:, None] <= stated[None, :] / 2
    ax.plot([0, 1], [0, 1], color=GREY, lw=0.8)
    ax.plot(stated, inside.mean(0), color=COLOURS[0], lw=1.5)
    for p, share in check.coverage.items():
        ax.plot(float(p), share, "o", color=COLOURS[1], ms=5)
    ax.set(xlabel="stated probability", ylabel="share of runs inside", xlim=(0, 1), ylim=(0, 1.03))
    return ax


def pit(ax: Axes, check: Check, bins: int = 10) -> Axes:
    """Histogram of the probability integral transform: flat when calibrated, piled up at an end when biased."""
    ax.hist(check.pit, bins=[i / bins for i in range(bins + 1)], color=COLOURS[0], alpha=0.7, edgecolor="white")
    ax.axhline(check.n / bins, color=GREY, lw=0.8)
    ax.set(xlabel="probability the forecast gave to a lower loss", ylabel="held-out runs", xlim=(0, 1))
    return ax


def contributions(ax: Axes, fit: Fit, runs: pd.DataFrame, labels: Sequence[str]) -> Axes:
    """What each term adds to the loss at a few runs: posterior mean stacked, in nats per token."""
    shares = mean_contributions(fit, runs)
    up, down = np.zeros(len(runs)), np.zeros(len(runs))
    at = np.arange(len(runs))
    for i, (name, height) in enumerate(shares.items()):
        base = np.where(height >= 0, up, down)
        ax.bar(at, height, bottom=base, width=0.7, color=COLOURS[i % len(COLOURS)], label=name)
        up, down = up + np.maximum(height, 0), down + np.minimum(height, 0)
    ax.set_xticks(at, labels)
    ax.set_ylabel("contribution (nats per token)")
    return ax


def mean_contributions(fit: Fit, runs: pd.DataFrame) -> dict[str, np.ndarray]:
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


def exponents(
    ax: Axes, fit: Fit, names: Sequence[str], published: Mapping[str, tuple[float, float]] | None = None
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


def people_number(x: Any) -> str:
    """A count as people say it: 8.1B, 517M, 12k."""
    for size, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(x) >= size:
            return f"{x / size:.3g}{unit}"
    return f"{x:.3g}"

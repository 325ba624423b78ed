"""Draw laws: terms, exponents, weights, and the sensitivity of a forecast to the prior."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bayeslaw._base.errors import LawError
from bayeslaw._base.numbers import Z90, format_count
from bayeslaw._base.programs import compiled
from bayeslaw._law.experience.priors import as_learned, own_populations, populations
from bayeslaw._law.experience.tables import learned
from bayeslaw._law.find import as_law
from bayeslaw._law.law import NATS
from bayeslaw.plots.axes import BLACK, COLOURS, GREY

if TYPE_CHECKING:
    from jaxtyping import Float
    from matplotlib.axes import Axes

    from bayeslaw._base.arrays import AnyArray
    from bayeslaw._law.law import Law
    from bayeslaw._posteriors.averaging.record import Average, Member
    from bayeslaw._posteriors.fits.record import Fit

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)  # ends of 90% and 50% intervals, and the median


def sensitivity(ax: Axes, fit: Fit, runs: pd.DataFrame) -> Axes:
    """Draw the mean forecast loss of runs with prior or likelihood raised to a power,
    with 50% (thick) and 90% intervals of the law. If the prior's rows move and the
    likelihood's do not, the forecast rests on the prior (Kallioinen 2024).
    """
    from bayeslaw._forecasts.sensitivity import POWERS, scaled_weights, thinned

    mean = thinned(
        fit.inference_data, np.exp(fit.log_loss(runs)).mean(axis=1)
    )  # (draw,)
    order = np.argsort(mean)
    powers = (POWERS[0], 1.0, POWERS[1])
    rows = [(part, power) for part in ("prior", "likelihood") for power in powers]
    for y, (part, power) in enumerate(reversed(rows)):
        # Quantiles of weighted draws, from the draws' distribution function.
        below = np.cumsum(scaled_weights(fit, part, power)[order])
        quantiles = np.interp(LEVELS, below, mean[order])
        _draw_interval(ax, y, quantiles, COLOURS[0 if part == "prior" else 1])
    names = [f"{part} to the {power:g}" for part, power in reversed(rows)]
    _name_rows(ax, names)
    ax.set_xlabel(f"mean loss of {len(runs)} runs (nats per token)")
    return ax


def contributions(
    ax: Axes, fit: Fit | Member, runs: pd.DataFrame, labels: Sequence[str]
) -> Axes:
    """Draw the contribution of each term to the loss at a few runs. Bars are posterior
    means in nats per token: positive ones are stacked upwards from zero, negative ones
    downwards.
    """
    terms = {term.coefficient: term for term in fit.law.terms}
    # A bar stands on the bars of the same sign before it.
    top, bottom = np.zeros(len(runs)), np.zeros(len(runs))
    at = np.arange(len(runs))
    for i, (name, height) in enumerate(mean_contributions(fit, runs).items()):
        label = "measured before"  # the known offset has no formula
        if name in terms:
            sign = "-" if terms[name].sign < 0 else ""
            label = f"${sign}{terms[name].latex}$"
        ax.bar(
            at,
            height,
            bottom=np.where(height >= 0, top, bottom),
            width=0.7,
            color=COLOURS[i % len(COLOURS)],
            label=label,
        )
        top += np.maximum(height, 0)
        bottom += np.minimum(height, 0)
    ax.set_xticks(at, labels)
    ax.set_ylabel("contribution (nats per token)")
    return ax


def mean_contributions(fit: Fit | Member, runs: pd.DataFrame) -> dict[str, np.ndarray]:
    """Compute the posterior mean of each term's contribution at each run, in nats per
    token, each of shape (run,). The law's offset, if it has one, is ``"known"`` and
    comes first.
    """
    from bayeslaw._tables import fitting

    law, (piece,) = fit.law, fit.pieces()
    covariates = fitting.covariates(law, runs)
    draws = {name: piece.values[name] for name in law.priors}
    by_draw = _compute_contributions(law, covariates, draws)
    means = {}
    if law.offset is not None:
        means["known"] = np.asarray(law.offset(covariates))
    for term in law.terms:
        means[term.coefficient] = np.asarray(by_draw[term.coefficient]).mean(axis=0)
    return means


@compiled(static_argnums=0)
def _compute_contributions(
    law: Law,
    covariates: Mapping[str, Float[AnyArray, " run"]],
    draws: Mapping[str, Float[AnyArray, " draw"]],
) -> dict[str, Float[AnyArray, "draw run"]]:
    """Compute each term's contribution to the loss, for one law's draws, at all runs."""
    import jax

    return jax.vmap(partial(law.contributions, covariates))(draws)


def weights(ax: Axes, average: Average) -> Axes:
    """Draw each law's weight (bar), and its chance to forecast best (dot)."""
    # the last bar is on top: that of the heaviest law
    table = average.table.sort_values("weight")
    at = np.arange(len(table))
    ax.barh(at, table["weight"], color=COLOURS[0], height=0.6, label="weight")
    ax.plot(
        table["probability"],
        at,
        "o",
        color=COLOURS[1],
        ms=6,
        label="probability of forecasting unseen stages best",
    )
    ax.set_yticks(at, [str(name) for name in table.index])
    ax.set_xlim(0, 1.02)
    return ax


def exponents(
    ax: Axes,
    fit: Fit | Member,
    names: Sequence[str],
    published: Mapping[str, tuple[float, float]] | None = None,
) -> Axes:
    """Draw the posterior of exponents as intervals (50% thick, 90% thin) over the
    prior's 90% interval. ``published``: name -> (estimate, standard error), drawn
    beside them as a diamond with its 90% interval.
    """
    for y, name in enumerate(reversed(names)):
        prior = fit.law.priors[name]
        ends = [prior.quantile(0.05), prior.quantile(0.95)]
        ax.plot(ends, [y, y], color=GREY, alpha=0.25, lw=9, solid_capstyle="butt")
        _draw_interval(ax, y, np.quantile(fit.posterior[name], LEVELS), COLOURS[0])
        if published and name in published:
            estimate, error = published[name]
            style = {"fmt": "D", "ms": 4, "lw": 1, "color": COLOURS[1]}
            ax.errorbar(estimate, y - 0.25, xerr=Z90 * error, **style)
    _name_rows(ax, list(reversed(names)))
    return ax


def prior_and_posterior(ax: Axes, fit: Fit | Member, name: str, bins: int = 40) -> Axes:
    """Draw densities of a parameter: the posterior's draws as a histogram, the prior as
    a line. ``name``: an exponent, or the coefficient of a term. For a term its
    contribution at the reference run is shown, in nats per token.

    Raises
    ------
    LawError
        The law samples no such parameter.
    """
    law = fit.law
    units = {term.coefficient: term.in_nats for term in law.terms}
    in_nats = units.get(name.removesuffix(NATS), False)
    site = name.removesuffix(NATS) + (NATS if in_nats else "")
    if site not in law.free_priors:
        sampled = [key.removesuffix(NATS) for key in law.free_priors]
        raise LawError(
            f"law {law.name!r} samples no parameter {name!r}; "
            f"it samples: {', '.join(sampled)}"
        )
    draws = np.asarray(fit.posterior[site]).ravel()
    # differences of quantiles give the density, without a formula for each family
    prior = law.priors[site]
    ends = np.array([prior.quantile(q) for q in np.linspace(0.005, 0.995, 200)])
    low, high = min(draws.min(), ends[0]), max(draws.max(), ends[-1])
    ax.hist(
        draws, bins=bins, density=True, color=COLOURS[0], alpha=0.5, label="posterior"
    )
    middle = (ends[1:] + ends[:-1]) / 2
    density = 0.99 / (len(ends) - 1) / np.diff(ends)
    ax.plot(middle, density, color=GREY, label="prior")
    ax.set_xlim(low, high)
    unit = " (nats per token at the reference run)" if in_nats else ""
    ax.set_xlabel(f"{name.removesuffix(NATS)}{unit}")
    ax.set_ylabel("density" + (" (per nat per token)" if in_nats else ""))
    ax.legend()
    return ax


def _draw_interval(ax: Axes, y: float, quantiles: np.ndarray, colour: str) -> None:
    """Draw 90% thin, 50% thick, the median as a dot, from quantiles at `LEVELS`."""
    low, lower, median, upper, high = quantiles
    ax.plot([low, high], [y, y], color=colour, lw=1.2)
    ax.plot([lower, upper], [y, y], color=colour, lw=3.5)
    ax.plot(median, y, "o", color=colour, ms=5)


def _name_rows(ax: Axes, names: Sequence[str]) -> None:
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(-0.6, len(names) - 0.4)


def learned_priors(
    ax: Axes,
    law: Law | str,
    name: str,
    kind: str = "web-text",
    fit: Fit | None = None,
) -> Axes:
    """Draw the posteriors of a parameter by measured tables, a row for each lab. Lines
    are the 90% intervals of tables. The band is the interval for another lab's table,
    which `fit` takes as a prior. Dashed lines are the law's own prior. Contributions
    are shares of the floor at a run in the middle of the tables, so units do not
    matter.

    Parameters
    ----------
    name
        A parameter: ``"alpha"``, ``"A"``.
    kind
        A kind of tables, as for the argument ``experience`` of `fit`.
    fit
        A fit of this law, drawn on top.

    Raises
    ------
    LawError
        No such law or kind, or no table informs this parameter.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> ax = Figure().subplots()
    >>> bayeslaw.plots.learned_priors(ax, "chinchilla", "alpha").get_xlabel()
    'alpha'
    """
    record = as_law(law)
    site = name if name in record.priors else name + NATS
    band = populations(record, kind)
    of_law = learned().of_law(record.name)
    tables = [t for t in of_law if t.kind == kind and site in t.logs]
    if site not in band or not tables:
        known = ", ".join(n.removesuffix(NATS) for n in band) or "nothing"
        raise LawError(f"no table teaches of {name!r}; there is {known}")
    own = own_populations(record)[site]
    for population, style in ((band[site], "-"), (own, "--")):
        ends = population.mean + Z90 * population.sd * np.array([-1, 1])
        if style == "-":
            ax.axvspan(*np.exp(ends), color=GREY, alpha=0.25, lw=0)
        else:
            for end in np.exp(ends):
                ax.axvline(end, color=GREY, ls=style, lw=1)
    labs = list(dict.fromkeys(table.lab for table in tables))
    for row, lab in enumerate(labs):
        of_lab = [table for table in tables if table.lab == lab]
        # a line for each table, within the lab's row
        places = row + np.linspace(-0.3, 0.3, len(of_lab) + 2)[1:-1]
        for y, table in zip(places, of_lab, strict=True):
            mean, sd = table.logs[site]
            low, middle, high = np.exp(mean + Z90 * sd * np.array([-1, 0, 1]))
            ax.plot([low, high], [y, y], color=COLOURS[row % 6], lw=1.2)
            ax.plot(middle, y, "o", color=COLOURS[row % 6], ms=3)
    names = labs
    if fit is not None:
        draws = np.log(as_learned(fit.law, fit.posterior)[site])
        low, middle, high = np.exp(np.quantile(draws, [0.05, 0.5, 0.95]))
        ax.plot([low, high], [len(labs)] * 2, color=BLACK, lw=2.5)
        ax.plot(middle, len(labs), "D", color=BLACK, ms=5)
        names = [*labs, "yours"]
    ax.set_yticks(range(len(names)), names)
    share = ""
    if site != name:
        # at the run at which contributions are shares
        catalogue = learned()
        run = catalogue.reference.get(catalogue.same.get(record.name, record.name), {})
        settings = "".join(f", {c} {format_count(v)}" for c, v in run.items())
        share = f", share of the floor{settings}"
    ax.set(xscale="log", xlabel=f"{name}{share}", ylabel=None)
    ax.xaxis.set_major_formatter("{x:g}")
    ax.xaxis.set_minor_formatter("{x:g}")
    ax.tick_params(axis="x", which="minor", labelsize=7)
    return ax

"""Tell whether a forecast rests on the runs or on the priors.

There are three signs of the priors, each a line of text: too few levels of a column
along which runs lie beyond the table; two effects of pre-training that the table cannot
separate; and a forecast that moves with the prior but not with the likelihood when
either is raised to a power (Kallioinen et al. 2024, computed by ArviZ: `psense`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from bayeslaw._base.numbers import format_count, format_counts
from bayeslaw._base.programs import compiled
from bayeslaw._inference.diagnostics import pareto_smoothed
from bayeslaw._law.law import Law, covariates_read
from bayeslaw._posteriors.fits.record import Fit
from bayeslaw._posteriors.posterior import LogLoss, over_draws
from bayeslaw._tables import fitting
from bayeslaw._tables.rows.levels import TOLERANCE

if TYPE_CHECKING:
    from jaxtyping import Float, Num
    from xarray import DataTree

    from bayeslaw._base.arrays import AnyArray
    from bayeslaw._posteriors.posterior import Posterior

POWERS = (0.8, 1.25)
SENSITIVE = 0.05  # Kallioinen 2024, section 3.3: above, a component moves the posterior
# how lines of `few_levels` and of `reasons` begin
ONE_LEVEL, PRIOR_DOMINATED = "one ", "forecast prior-dominated"


class Sensitivity(NamedTuple):
    """How far a forecast moves when the prior or the likelihood is raised to a power.

    Each is the cumulative Jensen-Shannon distance in bits per doubling of the power; of
    several runs, the median.
    """

    prior: float
    likelihood: float

    @property
    def is_prior_dominated(self) -> bool:
        """Tell whether the prior moves the forecast and the likelihood does not."""
        return self.prior >= SENSITIVE > self.likelihood


def sensitivity(
    fit: Fit, log_loss: Float[np.ndarray, "draw run"], most_runs: int = 50
) -> Sensitivity:
    """Measure how a fit's forecasts move when the prior or the likelihood is raised to a
    power (power-scaling sensitivity).

    ``log_loss``: draws of the law's log loss at the runs forecast, shape (draw, run),
    as ``fit.log_loss(runs)`` gives them. ``most_runs``: most runs to use; from a longer
    table an evenly spaced selection.
    """
    from arviz_base import from_dict
    from arviz_stats import psense  # pyright: ignore[reportPrivateImportUsage]

    last = log_loss.shape[1] - 1
    runs = np.unique(np.linspace(0, last, most_runs).astype(int))
    draws = thinned(fit.inference_data, log_loss[:, runs], by_chain=True)
    densities = kept_densities(fit.inference_data)
    tree: Any = from_dict(densities | {"posterior": {"log_loss": draws}})

    def of_median_run(component: str) -> float:
        by_run = psense(tree, group=component, alphas=POWERS)["log_loss"]
        return float(np.median(by_run.to_numpy()))

    return Sensitivity(of_median_run("prior"), of_median_run("likelihood"))


def scaled_weights(
    fit: Fit, component: str, power: float
) -> Float[np.ndarray, " draw"]:
    """Compute weights of draws as if prior or likelihood were raised to a power.

    These are Pareto-smoothed importance weights, shape (draw,), with sum 1. Raising a
    component to a power p multiplies the posterior by the component to the power p - 1
    (Kallioinen 2024, section 2.2).
    """
    parts = kept_densities(fit.inference_data)[f"log_{component}"].values()
    # summed over parameters or runs, shape (chain, draw)
    total = np.sum([p.reshape(*p.shape[:2], -1).sum(-1) for p in parts], axis=0)
    weights, _ = pareto_smoothed((power - 1) * total.reshape(-1))
    return weights


def kept_densities(
    data: DataTree,
) -> dict[str, dict[str, Float[np.ndarray, "chain draw ..."]]]:
    """Collect log prior and log likelihood of a fit's ArviZ data by name, shape (chain,
    draw, ...).

    The draws are those with a kept log likelihood.
    """
    likelihood = data["log_likelihood"]["log_loss"].to_numpy().astype(float)
    prior = {str(n): v.to_numpy() for n, v in data["log_prior"].data_vars.items()}
    draws = next(iter(prior.values())).shape[1]
    step = -(-draws // likelihood.shape[1])  # by which kept draws were thinned
    return {
        "log_prior": {n: v[:, ::step] for n, v in prior.items()},
        "log_likelihood": {"log_loss": likelihood},
    }


def thinned(
    data: DataTree, draws: Num[np.ndarray, " draw *rest"], by_chain: bool = False
) -> Num[np.ndarray, " kept *rest"] | Num[np.ndarray, "chain kept *rest"]:
    """Select the draws of a fit, shape (draw, ...), with a kept log likelihood.

    With ``by_chain``, the shape is (chain, draw, ...).
    """
    chains, count = data["log_likelihood"]["log_loss"].shape[:2]
    shape = draws.shape[1:]
    chain_draws = draws.reshape(chains, -1, *shape)
    chain_draws = chain_draws[:, :: -(-chain_draws.shape[1] // count)]
    return chain_draws if by_chain else chain_draws.reshape(-1, *shape)


# -- reasons ---------------------------------------------------------------------------


def reasons(
    posterior: Posterior,
    runs: pd.DataFrame,
    log_loss: Float[np.ndarray, "draw run"],
    min_weight: float = 0.1,
) -> tuple[str, ...]:
    """List the reasons why the forecast of these runs rests on priors, a line each.

    Reasons that cannot be computed are left out.

    ``posterior``: A `Fit`. For an `Average`, the laws with some weight are examined,
    without power-scaling. Other posteriors have no reasons. ``log_loss``: draws of the
    law's log loss at the runs, shape (draw, run). ``min_weight``: laws of an average
    with less weight are not examined.
    """
    from bayeslaw._posteriors.averaging.record import Average

    if not isinstance(posterior, Fit | Average):
        return ()
    members, fitted = posterior.members, posterior.runs
    members = [member for member in members if member.weight >= min_weight]
    lines = few_levels([member.law for member in members], fitted, runs)
    told = (gate_or_floor(m.law, m.values, fitted, runs) for m in members)
    lines += filter(None, told)
    if isinstance(posterior, Fit):
        shift = sensitivity(posterior, log_loss)
        if shift.is_prior_dominated:
            lines.append(
                f"{PRIOR_DOMINATED}: power-scaling moves it with the prior "
                f"({shift.prior:.2f}), not with the likelihood "
                f"({shift.likelihood:.2f}; {SENSITIVE:g} is the limit)"
            )
    return tuple(dict.fromkeys(lines))


def few_levels(
    laws: Sequence[Law], fitted: pd.DataFrame, runs: pd.DataFrame
) -> list[str]:
    """List columns with one or two levels in the table along which the runs lie beyond
    it.

    Each line names the exponents along the column.
    """
    lines = []
    for column in covariates_read(laws, there=runs):
        exponents = dict.fromkeys(
            exponent.name
            for law in laws
            for exponent in law.exponents
            if exponent.covariate == column and not exponent.prior.is_fixed
        )
        levels = np.unique(fitted[column].to_numpy(float))
        values = runs[column].to_numpy(float)
        is_above = values > levels[-1] * (1 + TOLERANCE)
        is_below = values < levels[0] * (1 - TOLERANCE)
        beyond = values[is_above | is_below]
        # three levels fix an exponent along a column
        if not exponents or not len(beyond) or len(levels) > 2:
            continue
        noun = "stage" if column == "ptpp" else "level"
        count = f"one {noun}" if len(levels) == 1 else f"two {noun}s"
        rest = "rests" if len(exponents) == 1 else "rest"
        levels_text = " and ".join(map(format_count, levels))
        lines.append(
            f"{count} only: {column} {levels_text} fitted, "
            f"{format_counts(beyond.min(), beyond.max())} forecast; "
            f"{', '.join(exponents)} {rest} on the prior"
        )
    return lines


def gate_or_floor(
    law: Law,
    values: Mapping[str, Float[AnyArray, "draw ..."]],
    fitted: pd.DataFrame,
    runs: pd.DataFrame,
    unclear: float = 0.25,
) -> str | None:
    """Write a line if two effects of the stage cannot be separated beyond the last
    fitted stage.

    The criterion is the share of a term in the total change (sum of absolute changes)
    from the last fitted stage to the runs' stage. It is unclear if its 90% interval is
    wider than ``unclear``. With two fitted stages, gate and floor hardly correlate
    (-.2), but either could make half of the change. With a third stage the share is
    known to 6%.
    """
    if "ptpp" not in law.covariates:
        return None
    last = float(fitted["ptpp"].max())
    beyond = runs[runs["ptpp"] > last * (1 + 1e-9)]
    if beyond.empty:
        return None
    columns = fitting.covariates(law, beyond)
    of_law = {name: np.asarray(values[name]) for name in law.priors}
    changes = jax.device_get(_compute_changes(law, columns, last, of_law))
    sizes = {k: np.abs(v) for k, v in changes.items() if np.any(v != 0)}
    total = sum(sizes.values())
    middle = {name: np.median(v, axis=0, keepdims=True) for name, v in of_law.items()}
    losses = np.exp(over_draws(LogLoss(law), middle, columns))
    noise = np.mean(values["sigma"]) * np.mean(losses)
    if len(sizes) < 2 or np.mean(total) < noise:
        return None
    shares = {k: np.quantile(v / total, [0.05, 0.95]) for k, v in sizes.items()}
    widest = max(shares, key=lambda k: shares[k][1] - shares[k][0])
    low, high = shares[widest]
    if high - low < unclear:
        return None
    other_terms = ", ".join(k for k in sizes if k != widest)
    stages = format_counts(beyond["ptpp"].min(), beyond["ptpp"].max())
    return (
        "gate and floor not told apart: of what ptpp changes "
        f"from {last:.4g} to {stages} "
        f"the term of {widest} makes {low:.0%} to {high:.0%} "
        f"and {other_terms} the rest (90% interval)"
    )


@compiled(static_argnums=0)
def _compute_changes(
    law: Law,
    covariates: Mapping[str, Float[AnyArray, " run"]],
    last: Float[AnyArray, ""],
    draws: Mapping[str, Float[AnyArray, " draw"]],
) -> dict[str, Float[jax.Array, " draw"]]:
    """Compute each term's mean change since the last fitted stage, in nats."""
    at_last = {**covariates, "ptpp": jnp.full_like(covariates["ptpp"], last)}

    def of_draw(draw: Mapping[str, Any]) -> dict[str, Float[jax.Array, ""]]:
        now, before = (law.contributions(x, draw) for x in (covariates, at_last))
        return {k: jnp.mean(now[k] - before[k]) for k in now}

    return jax.vmap(of_draw)(draws)

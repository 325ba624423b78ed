"""What a forecast rests on: the runs, or the priors.

Three signs that it is the priors, each a line for a person: too few levels of a column along which runs lie beyond the
table; two effects of pre-training that the table does not tell apart; and a forecast that moves with the prior and not
with the likelihood when either is raised to a power (Kallioinen et al. 2024, as ArviZ computes it: `psense`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from bayeslaw import _runs
from bayeslaw._fit import Fit
from bayeslaw._law import Law

if TYPE_CHECKING:
    from bayeslaw._posterior import Posterior

POWERS = (0.8, 1.25)
SENSITIVE = 0.05  # Kallioinen 2024, section 3.3: above, a component moves the posterior
MOST_RUNS = 50  # whose forecasts are looked at, evenly spread
LEVELS = ("one", "two")  # levels of a column that do not fix an exponent along it
STAGE = "ptpp"
UNCLEAR_SHARE = 0.25  # width of the 90% interval of an effect's share above which it is not told from the other
MIN_WEIGHT = 0.1  # of a law in an average whose reasons count
ONE_LEVEL, PRIOR_DOMINATED = "one ", "forecast prior-dominated"  # how those reasons begin


class Sensitivity(NamedTuple):
    """How far a forecast moves when the prior or the likelihood is raised to a power: bits of the cumulative
    Jensen-Shannon distance per doubling of the power, of the median run.
    """

    prior: float
    likelihood: float

    @property
    def is_prior_dominated(self) -> bool:
        """The prior moves the forecast, the likelihood does not."""
        return self.prior >= SENSITIVE > self.likelihood


def sensitivity(fit: Fit, log_loss: np.ndarray) -> Sensitivity:
    """Power-scaling sensitivity of a fit's forecasts.

    Parameters
    ----------
    log_loss
        Draws of the law's log loss at the runs forecast, shape (draw, run), as ``fit.log_loss(runs)`` gives them.
    """
    from arviz_base import from_dict
    from arviz_stats import psense  # pyright: ignore[reportPrivateImportUsage]

    chosen = np.unique(np.linspace(0, log_loss.shape[1] - 1, MOST_RUNS).astype(int))
    groups = _groups(fit) | {"posterior": {"log_loss": thinned(fit, log_loss[:, chosen], by_chain=True)}}
    tree: Any = from_dict(groups)
    by_run = [psense(tree, group=g, alphas=POWERS)["log_loss"].to_numpy() for g in ("prior", "likelihood")]
    return Sensitivity(*(float(np.median(s)) for s in by_run))


def scaled_weights(fit: Fit, component: str, power: float) -> np.ndarray:
    """Pareto-smoothed weights, shape (draw,), sum 1, of draws as if prior or likelihood were raised to a power."""
    import arviz_stats.base

    stats: Any = arviz_stats.base.array_stats  # type: ignore[attr-defined]
    arrays = _groups(fit)[{"prior": "log_prior", "likelihood": "log_likelihood"}[component]].values()
    total = np.sum([a.reshape(*a.shape[:2], -1).sum(-1) for a in arrays], axis=0)
    if power == 1:
        return np.full(total.size, 1 / total.size)
    log_weight = stats.power_scale_lw(total, alpha=power).reshape(-1)
    weight = np.exp(log_weight - log_weight.max())
    return weight / weight.sum()


def _groups(fit: Fit) -> dict[str, dict[str, np.ndarray]]:
    """Log prior and log likelihood by name, shape (chain, draw, ...), of the draws whose log likelihood was kept."""
    data = fit.inference_data
    likelihood = data["log_likelihood"]["log_loss"].to_numpy().astype(float)
    prior = {str(n): v.to_numpy() for n, v in data["log_prior"].data_vars.items()}
    thin = -(-next(iter(prior.values())).shape[1] // likelihood.shape[1])
    return {"log_prior": {n: v[:, ::thin] for n, v in prior.items()}, "log_likelihood": {"log_loss": likelihood}}


def thinned(fit: Fit, draws: np.ndarray, by_chain: bool = False) -> np.ndarray:
    """Those of a fit's draws, shape (draw, ...), whose log likelihood was kept; with ``by_chain`` (chain, draw, ...)."""
    chains, kept = fit.inference_data["log_likelihood"]["log_loss"].shape[:2]
    apart = draws.reshape(chains, -1, *draws.shape[1:])
    apart = apart[:, :: -(-apart.shape[1] // kept)]
    return apart if by_chain else apart.reshape(-1, *draws.shape[1:])


# -- reasons -----------------------------------------------------------------------------------------------------------


def reasons(posterior: Posterior, runs: pd.DataFrame, log_loss: np.ndarray) -> tuple[str, ...]:
    """Why the forecast of these runs rests on priors, a line each; those that cannot be computed are left out.

    Parameters
    ----------
    posterior
        A `Fit`; of an `Average`, the laws of some weight are looked at, without power-scaling; another has no reasons.
    log_loss
        Draws of the law's log loss at the runs, shape (draw, run).
    """
    from bayeslaw._average import Average

    if isinstance(posterior, Fit):
        known, laws = posterior.runs, [(posterior.law, posterior.posterior)]
    elif isinstance(posterior, Average):
        known = posterior.runs
        laws = [(m.law, m.values) for m in posterior.members if m.weight >= MIN_WEIGHT]
    else:
        return ()
    found = few_levels([law for law, _ in laws], known, runs)
    found += [line for law, values in laws if (line := gate_or_floor(law, values, known, runs))]
    if isinstance(posterior, Fit) and (moved := sensitivity(posterior, log_loss)).is_prior_dominated:
        found.append(
            f"{PRIOR_DOMINATED}: power-scaling moves it with the prior ({moved.prior:.2f}), not with the likelihood "
            f"({moved.likelihood:.2f}; {SENSITIVE:g} is the limit)"
        )
    return tuple(dict.fromkeys(found))


def few_levels(laws: Sequence[Law], known: pd.DataFrame, runs: pd.DataFrame) -> list[str]:
    """Columns of which the table has one level or two while the runs lie beyond, with the exponents along them."""
    found = []
    for column in dict.fromkeys(c for law in laws for c in law.covariates):
        tied = dict.fromkeys(
            e.name for law in laws for e in law.exponents if e.covariate == column and not e.prior.is_fixed
        )
        levels, asked = np.unique(known[column].to_numpy(float)), runs[column].to_numpy(float)
        beyond = asked[(asked > levels[-1] * (1 + 1e-9)) | (asked < levels[0] * (1 - 1e-9))]
        if tied and len(beyond) and len(levels) <= len(LEVELS):
            what = ("stage" if column == STAGE else "level") + "s" * (len(levels) > 1)
            to = _range(beyond)
            found.append(
                f"{LEVELS[len(levels) - 1]} {what} only: {column} {' and '.join(f'{v:.4g}' for v in levels)} fitted, {to} "
                f"forecast; {', '.join(tied)} rest{'s' * (len(tied) == 1)} on the prior"
            )
    return found


def _range(values: np.ndarray) -> str:
    low, high = values.min(), values.max()
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"


def gate_or_floor(law: Law, values: Any, known: pd.DataFrame, runs: pd.DataFrame) -> str | None:
    """A line if two terms change with the stage beyond the last one fitted and the posterior does not tell them apart.

    What is looked at: the share of a term in all that changes (sum of sizes) from the last fitted stage to that of the
    runs. With two stages fitted, gate and floor hardly correlate (-.2), but either could make half of the change; with
    a third stage the share is known to 6%.
    """
    if STAGE not in law.covariates:
        return None
    last = float(known[STAGE].max())
    beyond = runs[runs[STAGE] > last * (1 + 1e-9)]
    if beyond.empty:
        return None
    x = {c: jnp.asarray(v) for c, v in _runs.covariates(law, beyond).items()}
    changes = _changes(law, x, jnp.full(len(beyond), last), {n: jnp.asarray(values[n]) for n in law.priors})
    moving = {k: np.abs(np.asarray(v)) for k, v in changes.items() if np.any(v != 0)}
    noise = np.mean(values["sigma"]) * _runs.losses(beyond).mean()
    total = sum(moving.values())
    if len(moving) < 2 or np.mean(total) < noise:
        return None
    shares = {k: np.quantile(v / total, [0.05, 0.95]) for k, v in moving.items()}
    widest = max(shares, key=lambda k: shares[k][1] - shares[k][0])
    low, high = shares[widest]
    if high - low < UNCLEAR_SHARE:
        return None
    others = ", ".join(k for k in moving if k != widest)
    return (
        f"gate and floor not told apart: of what {STAGE} changes from {last:.4g} to {_range(beyond[STAGE].to_numpy(float))} "
        f"the term of {widest} makes {low:.0%} to {high:.0%} and {others} the rest (90% interval)"
    )


def _changes(law: Law, x: dict, last: jax.Array, values: dict) -> dict[str, jax.Array]:
    """Mean change over runs of each term's contribution since the last fitted stage, nats, shape (draw,) each."""

    def one(v):
        here, there = law.contributions(x, v), law.contributions({**x, STAGE: last}, v)
        return {k: jnp.mean(here[k] - there[k]) for k in here}

    return jax.jit(jax.vmap(one))(values)

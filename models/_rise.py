"""Share the rise of the source loss: up at once, less far with replay, and down by
replayed tokens relative to those of pre-training. docs/state_laws.md tells which forms
were tried, and the results.
"""

import jax.numpy as jnp

from bayeslaw._law.law import Covariates, Exponent, Values, power
from bayeslaw._law.priors import lognormal

KAPPA = Exponent(
    "kappa",
    lognormal(2.3, 0.4, "measured 2.2-2.4 (tiny models)"),
    "replay",
    r"\kappa",
)
DELTA = Exponent(
    "delta",
    lognormal(0.015, 0.8, "measured .010-.018: a hundredth of pre-training"),
    "D",
    r"\delta",
    also=("replay",),
)
BETA = Exponent(
    "beta",
    lognormal(0.2, 0.5, "measured .19-.25"),
    "D",
    r"\beta",
    also=("replay",),
)


def replayed(x: Covariates):
    """Compute r D/P, replayed tokens over those of pre-training, shape (run,)."""
    return x["replay"] * x["D"] / (x["ptpp"] * x["N"])


def kept(x: Covariates, e: Values):
    """Compute e^(-kappa r^.6), shape (run,)."""
    return jnp.exp(-e["kappa"] * power(x["replay"], 0.6))


def relearned(x: Covariates, e: Values):
    """Compute (1 + r D/(delta P))^-beta, shape (run,)."""
    return jnp.exp(-e["beta"] * jnp.log1p(replayed(x) / e["delta"]))

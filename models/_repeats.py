"""What repeated tokens and excess parameters are worth: terms that laws of a limited
corpus share.

A corpus of U unique tokens read for D tokens is worth D' tokens read once,

D' = U (1 + R_D (1 - exp(-(D/U - 1) / R_D)))    where D > U, else D,

and of a model larger than the s U parameters that are best for such a corpus N' count,

N' = S (1 + R_N (1 - exp(-(N/S - 1) / R_N))),   S = s U, where N > S, else N.

Muennighoff 2023, eqs. 5 and 6; s is there (alpha A / (beta B))^(1/alpha), with
alpha = beta, and a parameter of its own here.
"""

import jax.numpy as jnp

from bayeslaw._law.law import Covariates, Exponent, Values
from bayeslaw._law.priors import lognormal

MUENNIGHOFF = "Muennighoff 2023 (arXiv 2305.16264)"

REPEATS = (
    Exponent(
        "R_D",
        lognormal(15.0, 1.0, "Muennighoff 2023: 15.4 repetitions"),
        "D",
        "R_D^*",
        also=("U",),
    ),
    Exponent(
        "R_N",
        lognormal(5.0, 1.0, "Muennighoff 2023: 5.3 times the best size"),
        "N",
        "R_N^*",
        also=("U",),
    ),
    Exponent(
        "s",
        lognormal(0.05, 0.7, "20 tokens per parameter (Hoffmann 2022)"),
        "N",
        "s",
        also=("U",),
    ),
)


def effective_tokens(x: Covariates, e: Values):
    """D', shape (run,)."""
    return _saturating(x["D"], x["U"], e["R_D"])


def effective_size(x: Covariates, e: Values):
    """N', shape (run,)."""
    return _saturating(x["N"], e["s"] * x["U"], e["R_N"])


def _saturating(amount, enough, scale):
    """The amount up to what is enough; beyond, less and less of it counts."""
    # expm1: far below one repetition the difference of one and an exponential rounds away
    excess = jnp.maximum(amount / enough - 1.0, 0.0)
    return jnp.minimum(amount, enough) * (1.0 - scale * jnp.expm1(-excess / scale))

"""Compute effective tokens and parameters of runs on a limited corpus.

D tokens read from a corpus of U unique tokens are worth D' tokens read once,

D' = U (1 + R_D (1 - exp(-(D/U - 1) / R_D)))    if D > U, else D.

S = s U parameters are best for such a corpus. A larger model is worth N' parameters,

N' = S (1 + R_N (1 - exp(-(N/S - 1) / R_N)))    if N > S, else N.

Source: Muennighoff 2023, eqs. 5 and 6. In the paper alpha = beta and s is
(alpha A / (beta B))^(1/alpha). Here s is a free parameter.
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
    """Compute D', shape (run,)."""
    return _saturating(x["D"], x["U"], e["R_D"])


def effective_size(x: Covariates, e: Values):
    """Compute N', shape (run,)."""
    return _saturating(x["N"], e["s"] * x["U"], e["R_N"])


def _saturating(amount, enough, scale):
    """Count an amount in full up to ``enough``, and any excess with falling weight."""
    # expm1, because for a small excess 1 - exp(-excess) would be rounded to 0
    excess = jnp.maximum(amount / enough - 1.0, 0.0)
    return jnp.minimum(amount, enough) * (1.0 - scale * jnp.expm1(-excess / scale))

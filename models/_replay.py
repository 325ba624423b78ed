"""What the two domains of Wang 2025, eq. 8 share: replay r, and the target share 1-r,
in the loss curve.
"""

import jax.numpy as jnp

from bayeslaw._law.law import Exponent, Term
from bayeslaw._law.priors import lognormal

from ._dynamics import FIG19, annealing

A1 = Exponent("a1", lognormal(0.05, 1.0, f"{FIG19}: .055 and .037"), "replay", "a_1")


def adaptation_annealing(share, latex: str) -> Term:
    """- C2 S2_cpt e^(a1 share): annealing helps a domain more, the larger its share of
    the mixture.
    """
    return annealing(
        "C2", lambda x, e: x["S2_cpt"] * jnp.exp(e["a1"] * share(x)), latex
    )

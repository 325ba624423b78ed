"""Share the term of annealing with replay r, for the source and the target domain (Wang
2025, eq. 8).
"""

import jax.numpy as jnp

from bayeslaw._law.law import Exponent, Term
from bayeslaw._law.priors import lognormal

from ._dynamics import FIG19, annealing

A1 = Exponent("a1", lognormal(0.05, 1.0, f"{FIG19}: .055 and .037"), "replay", "a_1")


def adaptation_annealing(share, latex: str) -> Term:
    """Make the term - C2 S2_cpt e^(a1 share): annealing lowers a domain's loss more if
    the domain has a larger share of the tokens (r of the source, 1-r of the target).
    """
    return annealing(
        "C2", lambda x, e: x["S2_cpt"] * jnp.exp(e["a1"] * share(x)), latex
    )

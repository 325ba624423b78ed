"""E + A/N^alpha + B e^nu/D^beta + C/(e+eps)^gamma: D-CPT for any number of domains.

e = p_1 + sum_j t_j p_j is the effective share of the loss's domain. For two domains
whose tokens do not count for each other (t = 0) the law is `dcpt`, and e is the replay.
"""

from dataclasses import replace
from functools import cache

import jax.numpy as jnp

from bayeslaw._law.law import Exponent, Law, Term, power
from bayeslaw._law.priors import lognormal

from ._mixture import (
    EXAMPLE,
    covariates,
    effective_share,
    mixture_prior,
    reference,
    transfers,
)
from ._terms import (
    ALPHA,
    BETA_ADAPTATION,
    EPS_REPLAY,
    GAMMA,
    NU,
    floor,
    size,
)


@cache
def law_of(domains: tuple[str, ...]) -> Law:
    """Make the law for these domains; the first is the domain of the loss."""
    share, own = effective_share(domains), f"share_{domains[0]}"

    def along_own(e: Exponent) -> Exponent:
        return replace(e, covariate=own)

    return Law(
        name="mixture-dcpt",
        title="adaptation on a mixture of domains (D-CPT)",
        source="Que 2024, with effective shares in place of the ratio",
        latex=r"E + \frac{A}{N^{\alpha}} + \frac{B\,e^{\nu}}{D^{\beta}}"
        r" + \frac{C}{(e+\epsilon)^{\gamma}},\quad e = p_1 + \sum_j t_j p_j",
        covariates=covariates(domains),
        terms=(
            floor(1.4),
            size(),
            Term(
                "B",
                lambda x, e: (
                    power(share(x, e), e["nu"]) * jnp.exp(-e["beta"] * jnp.log(x["D"]))
                ),
                lognormal(0.4, 1.0, "as of `dcpt`"),
                r"\frac{B\,e^{\nu}}{D^{\beta}}",
            ),
            Term(
                "C",
                lambda x, e: power(share(x, e) + EPS_REPLAY, -e["gamma"]),
                mixture_prior(0.1),
                r"\frac{C}{(e+\epsilon)^{\gamma}}",
            ),
        ),
        exponents=(
            ALPHA,
            along_own(NU),
            BETA_ADAPTATION,
            along_own(GAMMA),
            *transfers(domains),
        ),
        reference=reference(domains),
        plausible={
            "E": 1.2,
            "A": 180.0,
            "B": 60.0,
            "C": 0.15,
            "alpha": 0.3,
            "nu": 0.1,
            "beta": 0.2,
            "gamma": 0.5,
        }
        | {f"t_{name}": 0.1 for name in domains[1:]},
        monotone={"N": -1, "D": -1},
    )


LAW = law_of(EXAMPLE)

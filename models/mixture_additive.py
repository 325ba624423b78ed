"""E + A/N^alpha + B/D^beta + 1/sum_j C_j p_j^gamma_j: the additive law of mixtures of
Shukor 2025.

It is written as K / (p_1^gamma_1 + sum_j c_j p_j^gamma_j), with K = 1/C_1 and
c_j = C_j/C_1, which compares domain j with the domain of the loss.
"""

from functools import cache

import jax.numpy as jnp

from bayeslaw._law.columns import SHARE
from bayeslaw._law.law import Law, Term, clip_replay, power
from bayeslaw._law.priors import lognormal

from ._mixture import (
    EXAMPLE,
    SHUKOR,
    covariates,
    mixture_prior,
    per_domain,
    reference,
)
from ._terms import ALPHA, floor, size
from .chinchilla import BETA, data


@cache
def law_of(domains: tuple[str, ...]) -> Law:
    """Make the law for these domains; the first is the domain of the loss."""
    first, *further = domains

    def mixture(x, e):
        def saturated(name):
            return power(clip_replay(x[f"{SHARE}{name}"]), e[f"gamma_{name}"])

        weighed = (e[f"c_{name}"] * saturated(name) for name in further)
        return 1 / jnp.asarray(sum(weighed, saturated(first)))

    worth = lognormal(0.1, 1.5, "unpublished; as factors of transfer between domains")
    bend = lognormal(
        0.5, 0.7, "unpublished; 0 would be no effect, 1 without saturation"
    )
    return Law(
        name="mixture-additive",
        title="additive law of size, data and mixture",
        source=f"{SHUKOR}, eq. 4",
        latex=r"E + \frac{A}{N^{\alpha}} + \frac{B}{D^{\beta}}"
        r" + \frac{K}{p_1^{\gamma_1} + \sum_j c_j p_j^{\gamma_j}}",
        covariates=covariates(domains),
        terms=(
            floor(),
            size(),
            data(),
            Term(
                "K",
                mixture,
                mixture_prior(0.3),
                r"\frac{K}{p_1^{\gamma_1} + \sum_j c_j p_j^{\gamma_j}}",
            ),
        ),
        exponents=(
            ALPHA,
            BETA,
            *per_domain("gamma", domains, bend, r"\gamma"),
            *per_domain("c", tuple(further), worth, "c"),
        ),
        reference=reference(domains),
        plausible={
            "E": 1.4,
            "A": 482.01,
            "B": 2085.43,
            "K": 0.2,
            "alpha": 0.3478,
            "beta": 0.3658,
        }
        | {f"gamma_{name}": 0.5 for name in domains}
        | {f"c_{name}": 0.1 for name in further},
        monotone={"N": -1, "D": -1},
    )


LAW = law_of(EXAMPLE)

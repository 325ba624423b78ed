"""E + A/N^alpha + B/D^beta + K exp(sum_j k_j p_j): the data mixing law of Ye 2024, with
terms of size and data.

Ye fits c + K exp(sum_j t_j p_j) at each size and budget by itself. Here the terms of
size and data replace the constant c. Because shares sum to one, only differences of the
t_j matter: k_j = t_j - t_1, where domain 1 is the domain of the loss.
"""

from functools import cache

import jax.numpy as jnp

from bayeslaw._law.columns import SHARE
from bayeslaw._law.law import Law, Term
from bayeslaw._law.priors import normal

from ._mixture import (
    EXAMPLE,
    YE,
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
    further = domains[1:]

    def mixture(x, e):
        rates = (e[f"k_{name}"] * x[f"{SHARE}{name}"] for name in further)
        return jnp.exp(jnp.asarray(sum(rates)))

    rate = normal(
        1.5,
        2.0,
        "weak: most of the others' tokens in place of its own raise "
        "a domain's loss by a factor of e or two (Ye 2024, fig. 4)",
    )
    return Law(
        name="mixture-exponential",
        title="exponential law of mixtures beside size and data",
        source=f"{YE}, eq. 6, with terms of N and D",
        latex=r"E + \frac{A}{N^{\alpha}} + \frac{B}{D^{\beta}}"
        r" + K \exp\left(\sum_j k_j p_j\right)",
        covariates=covariates(domains),
        terms=(
            floor(),
            size(),
            data(),
            Term(
                "K",
                mixture,
                mixture_prior(0.3),
                r"K \exp\left(\sum_j k_j p_j\right)",
            ),
        ),
        exponents=(
            ALPHA,
            BETA,
            *per_domain("k", further, rate, "k"),
        ),
        reference=reference(domains),
        plausible={
            "E": 1.6,
            "A": 482.01,
            "B": 2085.43,
            "K": 0.15,
            "alpha": 0.3478,
            "beta": 0.3658,
        }
        | {f"k_{name}": 1.5 for name in further},
        monotone={"N": -1, "D": -1},
    )


LAW = law_of(EXAMPLE)

"""What the laws of mixtures share: the share of a domain, with what the other domains'
tokens count for it.

A law of mixtures is a function of its domains, that of the loss first. A token of
another domain counts for it as ``t_NAME`` tokens of its own; where the loss is of none
of the domains (a benchmark), the factors say what a domain counts beside the first.
Contributions are stated at a model of 1e9 parameters, 2e10 tokens and equal shares.
"""

from dataclasses import replace

import jax.numpy as jnp

from bayeslaw._law.columns import SHARE
from bayeslaw._law.law import Covariates, Exponent, Values, clip_replay, power
from bayeslaw._law.priors import Prior, lognormal

EXAMPLE = ("web", "code", "books")
YE = "Ye 2024 (data mixing laws)"
SHUKOR = "Shukor 2025 (scaling laws for optimal data mixtures)"


def columns(domains: tuple[str, ...]) -> tuple[str, ...]:
    """The columns of the domains' shares."""
    return tuple(f"{SHARE}{name}" for name in domains)


def covariates(domains: tuple[str, ...]) -> tuple[str, ...]:
    """Columns that a law of mixtures reads."""
    return ("N", "D", *columns(domains))


def reference(domains: tuple[str, ...]) -> dict[str, float]:
    """The run at which contributions are stated: equal shares."""
    equal = dict.fromkeys(columns(domains), 1 / len(domains))
    return {"N": 1e9, "D": 2e10} | equal


def mixture_prior(median: float) -> Prior:
    """The prior of what a mixture adds to the loss at the reference run, in nats."""
    source = "mixtures move losses by tenths of a nat (Ye 2024)"
    return lognormal(median, 1.0, source)


def per_domain(symbol: str, domains: tuple[str, ...], prior, latex: str):
    """An exponent for each of the domains, along its share; it rests where that is
    always the same.
    """
    return tuple(
        Exponent(
            f"{symbol}_{name}",
            prior,
            f"{SHARE}{name}",
            rf"{latex}_\mathrm{{{name}}}",
            may_rest=True,
        )
        for name in domains
    )


def resting(*exponents: Exponent) -> tuple[Exponent, ...]:
    """Exponents that rest where their column has one level: tables of mixtures often
    have one size, or one budget.
    """
    return tuple(replace(e, may_rest=True) for e in exponents)


def transfers(domains: tuple[str, ...]) -> tuple[Exponent, ...]:
    """What a token of each other domain counts for the first."""
    measured = (
        "measured .01-.2 between arXiv, GitHub, books and web text, .5 between two "
        "kinds of web text (122M to 2.7B, least squares)"
    )
    return per_domain("t", domains[1:], lognormal(0.1, 1.5, measured), "t")


def effective_share(domains: tuple[str, ...], saturation: str | None = None):
    """The basis p_1^s + sum_j t_j p_j^s, shape (run,); s is 1, or the exponent of this
    name.
    """
    first, *further = domains

    def share(x: Covariates, e: Values):
        s = e[saturation] if saturation else None

        def saturated(name):
            p = clip_replay(x[f"{SHARE}{name}"])
            return p if s is None else power(p, s)

        counted = (e[f"t_{name}"] * saturated(name) for name in further)
        return jnp.asarray(sum(counted, saturated(first)))

    return share

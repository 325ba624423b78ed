"""Share the parts of laws of mixtures: columns, priors, and the effective share of the
loss's domain, which counts tokens of other domains by factors of transfer.

A law of mixtures is a function of its domains. The first is the domain of the loss. A
token of another domain counts as ``t_NAME`` tokens of the first. If the loss is of none
of the domains (a benchmark), the factors compare each domain with the first.
Contributions are stated at a model of 1e9 parameters, 2e10 tokens and equal shares.
"""

import jax.numpy as jnp

from bayeslaw._law.columns import SHARE
from bayeslaw._law.law import Covariates, Exponent, Values, clip_replay, power
from bayeslaw._law.priors import Prior, lognormal

EXAMPLE = ("web", "code", "books")
YE = "Ye 2024 (data mixing laws)"
SHUKOR = "Shukor 2025 (scaling laws for optimal data mixtures)"


def columns(domains: tuple[str, ...]) -> tuple[str, ...]:
    """Name the columns of the domains' shares."""
    return tuple(f"{SHARE}{name}" for name in domains)


def covariates(domains: tuple[str, ...]) -> tuple[str, ...]:
    """Name the columns that a law of mixtures reads."""
    return ("N", "D", *columns(domains))


def reference(domains: tuple[str, ...]) -> dict[str, float]:
    """Return the run at which contributions are stated, with equal shares."""
    equal = dict.fromkeys(columns(domains), 1 / len(domains))
    return {"N": 1e9, "D": 2e10} | equal


def mixture_prior(median: float) -> Prior:
    """Make the prior of a mixture's contribution at the reference run, in nats."""
    source = "mixtures move losses by tenths of a nat (Ye 2024)"
    return lognormal(median, 1.0, source)


def per_domain(symbol: str, domains: tuple[str, ...], prior, latex: str):
    """Make an exponent for each domain, along its share."""
    return tuple(
        Exponent(
            f"{symbol}_{name}",
            prior,
            f"{SHARE}{name}",
            rf"{latex}_\mathrm{{{name}}}",
        )
        for name in domains
    )


def transfers(domains: tuple[str, ...]) -> tuple[Exponent, ...]:
    """Make the factors by which a token of each other domain counts for the first."""
    measured = (
        "measured .01-.2 between arXiv, GitHub, books and web text, .5 between two "
        "kinds of web text (122M to 2.7B, least squares)"
    )
    return per_domain("t", domains[1:], lognormal(0.1, 1.5, measured), "t")


def effective_share(domains: tuple[str, ...], saturation: str | None = None):
    """Make the basis p_1^s + sum_j t_j p_j^s, shape (run,); s is 1, or the exponent
    that ``saturation`` names.
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

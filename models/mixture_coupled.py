"""E + K e^-kappa + T e^-gamma (s (N/N0)^(-alpha/k) + (1-s) (D/D0)^(-beta/k))^k: size
and data interact, and the loss falls with the effective share e of the loss's domain.

e = p_1^q + sum_j t_j p_j^q: shares saturate (q < 1), and a token of domain j counts as
t_j tokens of the loss's domain. The share moves the floor (K, as in the additive law and
in D-CPT) and what is above it (gamma). K = gamma = 0 is `coupled`. Several forms were
fitted to a published table of seven domains (122M to 690M parameters), and this one was
the best on mixtures left out: docs/mixtures.md.
"""

from functools import cache

from bayeslaw._law.law import Covariates, Exponent, Law, Term, Values, power
from bayeslaw._law.priors import lognormal

from ._mixture import (
    EXAMPLE,
    covariates,
    effective_share,
    mixture_prior,
    reference,
    transfers,
)
from ._terms import floor
from .coupled import LAW as COUPLED
from .coupled import bracket
from .coupled import publish as publish_coupled
from .coupled import unpublish as unpublish_coupled

OURS = "this project, after `coupled`"
OF_MIXTURE = ("K", "kappa", "gamma", "q")


def publish(p: Values) -> dict:
    """Convert T and s to A and B, as in `coupled`."""
    return {**of_mixture(p), **publish_coupled(p)}


def unpublish(p: Values) -> dict:
    """Invert `publish`."""
    return {**of_mixture(p), **unpublish_coupled(p)}


def of_mixture(p: Values) -> dict:
    """Select the parameters that `coupled` does not have."""
    return {n: v for n, v in p.items() if n in OF_MIXTURE or n.startswith("t_")}


@cache
def law_of(domains: tuple[str, ...]) -> Law:
    """Make the law for these domains; the first is the domain of the loss."""
    share = effective_share(domains, "q")

    def of_floor(x: Covariates, e: Values):
        return power(share(x, e), -e["kappa"])

    def reducible(x: Covariates, e: Values):
        return bracket(x, e) * power(share(x, e), -e["gamma"])

    return Law(
        name="mixture-coupled",
        title="law of mixtures in which size, data and shares interact",
        source=OURS,
        latex=r"E + \frac{K}{e^{\kappa}} + e^{-\gamma}\left(\frac{A}{N^{\alpha/k}}"
        r" + \frac{B}{D^{\beta/k}}\right)^{k},"
        r"\quad e = p_1^{q} + \sum_j t_j p_j^{q}",
        covariates=covariates(domains),
        terms=(
            floor(),
            Term("K", of_floor, mixture_prior(0.3), r"\frac{K}{e^{\kappa}}"),
            Term(
                "T",
                reducible,
                lognormal(
                    0.8,
                    0.8,
                    "Besiroglu 2024 has .72 nats above the floor at 1e9 parameters, "
                    "2e10 tokens",
                ),
                r"e^{-\gamma}\left(\frac{A}{N^{\alpha/k}}"
                r" + \frac{B}{D^{\beta/k}}\right)^{k}",
            ),
        ),
        exponents=(
            *COUPLED.exponents,
            Exponent(
                "kappa",
                lognormal(0.5, 0.7, "unpublished; as the additive law's exponents"),
                f"share_{domains[0]}",
                r"\kappa",
            ),
            Exponent(
                "gamma",
                lognormal(0.2, 0.7, "measured .1-.27 (122M to 2.7B, seven domains)"),
                f"share_{domains[0]}",
                r"\gamma",
            ),
            Exponent(
                "q",
                lognormal(0.6, 0.4, "measured .5-.8; 1: shares add up"),
                f"share_{domains[0]}",
                r"q",
            ),
            *transfers(domains),
        ),
        reference=reference(domains),
        plausible=dict(COUPLED.plausible)
        | {"E": 1.67, "K": 0.1, "kappa": 0.5, "gamma": 0.2, "q": 0.6}
        | {f"t_{name}": 0.1 for name in domains[1:]},
        publish=publish,
        unpublish=unpublish,
        reduces_to=(("coupled", {"gamma": 0.0, "K": 0.0}),),
        monotone={"N": -1, "D": -1},
        version="2",
    )


LAW = law_of(EXAMPLE)

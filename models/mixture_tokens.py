"""E + A/N^alpha + B/(e D)^beta: the loss falls with the effective tokens e D.

e = p_1 + sum_j t_j p_j: a token of domain j counts as t_j tokens of the loss's domain.
If all tokens count the same (t_j = 1), the law is `chinchilla`.
"""

from functools import cache

from bayeslaw._law.law import Law, Term, power
from bayeslaw._law.priors import lognormal

from ._mixture import (
    EXAMPLE,
    covariates,
    effective_share,
    reference,
    transfers,
)
from ._terms import ALPHA, floor, size
from .chinchilla import BETA


@cache
def law_of(domains: tuple[str, ...]) -> Law:
    """Make the law for these domains; the first is the domain of the loss."""
    share = effective_share(domains)
    further = domains[1:]
    return Law(
        name="mixture-tokens",
        title="law of a mixture's effective tokens",
        source="Hernandez 2021 (scaling laws for transfer): effective data, by domain",
        latex=r"E + \frac{A}{N^{\alpha}} + \frac{B}{(e D)^{\beta}},"
        r"\quad e = p_1 + \sum_j t_j p_j",
        covariates=covariates(domains),
        terms=(
            floor(),
            size(),
            Term(
                "B",
                lambda x, e: power(share(x, e) * x["D"], -e["beta"]),
                lognormal(
                    0.4,
                    1.0,
                    "Besiroglu 2024 has .36 nats at 2e10 tokens, of one domain",
                ),
                r"\frac{B}{(e D)^{\beta}}",
            ),
        ),
        exponents=(ALPHA, BETA, *transfers(domains)),
        reference=reference(domains),
        plausible={
            "E": 1.8172,
            "A": 482.01,
            "B": 2085.43,
            "alpha": 0.3478,
            "beta": 0.3658,
        }
        | {f"t_{name}": 0.1 for name in further},
        reduces_to=(("chinchilla", {f"t_{name}": 1.0 for name in further}),),
        monotone={"N": -1, "D": -1},
    )


LAW = law_of(EXAMPLE)

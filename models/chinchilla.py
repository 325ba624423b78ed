"""E + A/N^alpha + B/D^beta: the law of pre-training, separable in size and data.

If size and data interact, take `coupled`.
"""

from bayeslaw._law.law import Exponent, Law, Term, power
from bayeslaw._law.priors import lognormal

from ._terms import ALPHA, BESIROGLU, HOFFMANN, floor, size

BETA = Exponent("beta", lognormal(0.37, 0.3, BESIROGLU), "D", r"\beta")


def data() -> Term:
    """Make the term B/D^beta."""
    return Term(
        "B",
        lambda x, e: power(x["D"], -e["beta"]),
        lognormal(0.3, 1.0, "Besiroglu 2024 has .36 nats at 2e10 tokens"),
        r"\frac{B}{D^{\beta}}",
    )


LAW = Law(
    name="chinchilla",
    title="separable law of pre-training in size and data",
    source=HOFFMANN,
    latex=r"E + \frac{A}{N^{\alpha}} + \frac{B}{D^{\beta}}",
    covariates=("N", "D"),
    terms=(
        floor(),
        size(),
        data(),
    ),
    exponents=(ALPHA, BETA),
    reference={"N": 1e9, "D": 2e10},
    plausible={"E": 1.8172, "A": 482.01, "B": 2085.43, "alpha": 0.3478, "beta": 0.3658},
    monotone={"N": -1, "D": -1},
)

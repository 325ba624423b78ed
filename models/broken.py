"""A/(1 + (D/S)^k)^(beta/k): the loss after fine-tuning on D examples (or tokens), without
a floor.

A curve of fine-tuning begins flat, bends near S examples, and falls as a power law of D
(Lin 2024). `rectified` has a floor, and the one exponent is also the sharpness of its
bend; here the bend has a sharpness k of its own. Forecasts of more examples by the one
tend to be too high, by the other too low. Fit one model at a time, or `pool` over models.
"""

from bayeslaw._law.law import Covariates, Exponent, Law, Term, Values, power
from bayeslaw._law.priors import lognormal

CABALLERO = "Caballero 2023 (broken neural scaling laws), eq. 1"


def bend(x: Covariates, e: Values):
    """Compute (1 + (D/S)^k)^(-beta/k), shape (run,)."""
    return power(1 + power(x["D"] / e["S"], e["k"]), -e["beta"] / e["k"])


LAW = Law(
    name="broken",
    title="loss after fine-tuning, a power law that begins flat",
    source=f"{CABALLERO}, one break, a = 0 and c0 = 0",
    latex=r"A\,(1 + (D/S)^{k})^{-\beta/k}",
    covariates=("D",),
    terms=(
        Term(
            "A",
            bend,
            lognormal(
                2.0, 0.7, "losses of one to four nats after ten thousand examples"
            ),
            r"A\,(1 + (D/S)^{k})^{-\beta/k}",
        ),
    ),
    exponents=(
        Exponent(
            "beta",
            lognormal(0.22, 0.7, "power phases of fine-tuning .1-1 (Lin 2024, fig. 3)"),
            "D",
            r"\beta",
        ),
        Exponent(
            "S",
            lognormal(
                1e4, 2.0, "the pre-power phase ends at hundreds to tens of thousands"
            ),
            "D",
            "S",
        ),
        Exponent(
            "k",
            lognormal(0.6, 0.7, "bends take one to two decades of examples"),
            "D",
            "k",
        ),
    ),
    reference={"D": 1e4},
    plausible={"A": 2.0, "beta": 0.2, "S": 1e4, "k": 0.7},
    monotone={"D": -1},
)

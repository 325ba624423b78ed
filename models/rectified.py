"""E + B/(D0 + D^beta): the loss after fine-tuning on D examples (or tokens), where
pre-training is worth some examples already.

A power law of D is straight in a log-log plot. A curve of fine-tuning begins flat and
bends, because the first examples add little to what was learned before (Lin 2024).
D0 = S^beta, where S is the number of examples that pre-training is worth. Fit one model
at a time, or `pool` over models.
"""

from bayeslaw._law.law import Covariates, Exponent, Law, Term, Values, constant, power
from bayeslaw._law.priors import lognormal

from ._finetuning import TABLE2

LIN = (
    "Lin 2024 (selecting large language models to fine-tune via rectified scaling law)"
)


def bend(x: Covariates, e: Values):
    """Compute 1/(S^beta + D^beta), shape (run,)."""
    return 1 / (power(e["S"], e["beta"]) + power(x["D"], e["beta"]))


def publish(p: Values) -> dict:
    """Convert S to the D0 of the formula."""
    parameters = {name: p[name] for name in ("E", "B", "beta")}
    return parameters | {"D0": p["S"] ** p["beta"]}


def unpublish(p: Values) -> dict:
    """Convert D0 to S."""
    parameters = {name: p[name] for name in ("E", "B", "beta")}
    return parameters | {"S": p["D0"] ** (1 / p["beta"])}


LAW = Law(
    name="rectified",
    title="loss after fine-tuning, with pre-learned data",
    source=f"{LIN}, eq. 3",
    latex=r"E + \frac{B}{D_0 + D^{\beta}}",
    covariates=("D",),
    terms=(
        Term(
            "E",
            constant,
            lognormal(
                0.7,
                1.0,
                f"{TABLE2}: .46-1.30 on narrow domains, one at 0; a floor near a curve's "
                "losses would flatten it before its runs do",
            ),
            "E",
        ),
        Term(
            "B",
            bend,
            lognormal(
                0.7,
                1.0,
                "ten thousand examples leave from a tenth of a nat to two above the "
                "floor, one that few reach",
            ),
            r"\frac{B}{D_0 + D^{\beta}}",
        ),
    ),
    exponents=(
        Exponent(
            "beta",
            lognormal(0.4, 0.5, "power phases of fine-tuning .1-1 (Lin 2024, fig. 3)"),
            "D",
            r"\beta",
        ),
        Exponent(
            "S",
            lognormal(
                2e3, 2.0, "the pre-power phase ends at hundreds to tens of thousands"
            ),
            "D",
            "S",
        ),
    ),
    reference={"D": 1e4},
    plausible={"E": 1.0, "B": 30.0, "beta": 0.4, "D0": 25.0},
    publish=publish,
    unpublish=unpublish,
    monotone={"D": -1},
)

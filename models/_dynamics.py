"""Share the terms and exponents of loss curves, whose covariates are areas under the
learning rate (`bayeslaw._tables.rates.areas` computes them).

S1_pt and S2_pt are the forward and annealing area of pre-training, S1_cpt and S2_cpt
those of adaptation. Contributions are stated at a run like setting A of Wang 2025: 106M
parameters, 40k steps at a peak of 2e-4 annealed to 0, then 10k cosine steps from the
same peak. S2 counts the warm-up as negative, so it can have either sign and is about 0
at this run. Therefore the priors of C, C1 and C2 are stated on the coefficients
themselves, in nats per unit of S2.
"""

import jax.numpy as jnp

from bayeslaw._law.law import Covariates, Exponent, Term, Values, constant, power
from bayeslaw._law.priors import Prior, lognormal, normal

TISSUE = "Tissue 2024 (scaling law with learning rate annealing)"
WANG = "Wang 2025 (learning dynamics in continual pre-training)"
FIG19 = "Wang 2025, fig. 19"

REFERENCE = {"S1_pt": 7.2, "S2_pt": 0.0, "S1_cpt": 1.0, "S2_cpt": 0.0}
ANNEALING = lognormal(0.3, 0.6, f"{FIG19}: .263-.285")

# Published values for the source and the target domain, except beta, which is not
# published. It is chosen so that adaptation without replay raises the source loss by .2
# nats and lowers the target loss by .5 nats. (For the target, eq. 8 multiplies the
# shift by e^5.7.)
SOURCE = {
    "L0": 3.067,
    "A": 0.480,
    "alpha": 0.510,
    "C1": 0.280,
    "C2": 0.263,
    "B": 0.276,
    "E": 99.35,
    "beta": 0.3,
}
TARGET = {
    "L0": 2.992,
    "A": 0.456,
    "alpha": 0.510,
    "C1": 0.285,
    "C2": 0.279,
    "B": -0.526,
    "E": 100.34,
    "beta": 7e-4,
}


def level(median: float = 2.7) -> Term:
    """Make the term L0: the loss at infinite forward area, without annealing."""
    return Term(
        "L0",
        constant,
        lognormal(median, 0.4, f"{FIG19}: 3.07 and 2.99 at 106M, lower for larger"),
        "L_0",
    )


def forward(
    area=lambda x: x["S1_pt"] + x["S1_cpt"],
    latex: str = r"A\,(S_1^{pt}+S_1^{cpt})^{-\alpha}",
) -> Term:
    """Make the term A S1^-alpha."""
    return Term(
        "A",
        lambda x, e: power(area(x), -e["alpha"]),
        lognormal(0.2, 1.0, f"{FIG19}: .17 nats at a forward area of 8"),
        latex,
    )


def annealing(coefficient: str, area, latex: str) -> Term:
    """Make the term - C S2, where S2 is a function of covariates and exponents."""
    return Term(coefficient, area, ANNEALING, latex, sign=-1, in_nats=False)


PRETRAINING_ANNEALING = annealing("C1", lambda x, e: x["S2_pt"], r"C_1 S_2^{pt}")
ADAPTATION_ANNEALING = annealing("C2", lambda x, e: x["S2_cpt"], r"C_2 S_2^{cpt}")

ALPHA = Exponent(
    "alpha",
    lognormal(0.51, 0.3, f"{FIG19}: .510 in both domains"),
    "S1_pt",
    r"\alpha",
    also=("S1_cpt",),
)
RATE = Exponent("E", lognormal(100, 1.0, f"{FIG19}: 99.35 and 100.34"), "S1_cpt", "E")


SHIFT_EXPONENT = lognormal(0.3, 1.0, "unpublished; weak")


def shift_exponent(prior: Prior = SHIFT_EXPONENT) -> Exponent:
    """Make the exponent beta of the distribution shift."""
    return Exponent("beta", prior, "S1_cpt", r"\beta")


def moved(x: Covariates, e: Values):
    """Compute 1 - (1 + E S1_cpt)^-beta (Wang 2025, eq. 3), shape (run,): 0 before
    adaptation, and near 1 after a long one.
    """
    return -jnp.expm1(-e["beta"] * jnp.log1p(e["E"] * x["S1_cpt"]))


EITHER_WAY = normal(
    0.0,
    0.3,
    "tenths of a nat, up on the source and down on the target domain (Wang 2025, fig. 2)",
)
SHIFT_LATEX = r"B\left(1-(1+E\,S_1^{cpt})^{-\beta}\right)"


def shift(prior: Prior = EITHER_WAY) -> Term:
    """Make the term B (1 - (1 + E S1_cpt)^-beta), where B can have either sign."""
    return Term("B", moved, prior, SHIFT_LATEX)

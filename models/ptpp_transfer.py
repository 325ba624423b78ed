"""Form 1 with transferred tokens: E + A/N^alpha + B r^nu/(D_T + D)^beta +
C/(r+eps)^gamma + F/ptpp^eta.

A power law of D alone is infinite at D = 0, but a pre-trained model has a finite loss.
Its pre-training is worth D_T tokens of adaptation, so the first tokens change the loss
little, and the curve becomes a power law later (Hernandez 2021). Without D_T a fit
makes up for the bend by a slope that is too flat and a floor that is too low.
"""

from bayeslaw._law.law import Exponent, Law
from bayeslaw._law.priors import lognormal

from ._terms import (
    GOFFINET,
    REFERENCE,
    adaptation_data,
    floor,
    ptpp_floor,
    replay_barrier,
    size,
)
from .ptpp_floor import LAW as FLOOR

HERNANDEZ = "Hernandez 2021 (scaling laws for transfer)"

TRANSFERRED = adaptation_data(
    latex=r"\frac{B\,r^{\nu}}{(D_T + D)^{\beta}}",
    tokens=lambda x, e: x["D"] + e["D_T"],
)

LAW = Law(
    name="ptpp-transfer",
    title="Form 1, where pre-training is worth tokens of adaptation already",
    source=f"{GOFFINET}, eq. 1; D_T: {HERNANDEZ}, eq. 1.1",
    latex=FLOOR.latex.replace(r"D^{\beta}", r"(D_T + D)^{\beta}"),
    covariates=FLOOR.covariates,
    terms=(floor(1.4), size(), TRANSFERRED, replay_barrier(), ptpp_floor()),
    exponents=(
        *FLOOR.exponents,
        Exponent(
            "D_T",
            lognormal(
                5e7,
                2.0,
                "1e7-1e9 tokens of text are worth as much on code, for 1e7-1e9 "
                "parameters (Hernandez 2021, eq. 1.1)",
            ),
            "D",
            "D_T",
        ),
    ),
    reference=REFERENCE,
    plausible={**FLOOR.plausible, "D_T": 5e7},
    monotone=FLOOR.monotone,
)

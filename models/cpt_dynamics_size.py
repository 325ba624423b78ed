"""cpt-dynamics with C1 S2pt N^g1, C2 S2cpt N^g2 and + F N^-g3: loss curves of several
model sizes.

The shift does not depend on size (Wang 2025, appendix E). The annealing coefficients
are sampled at the reference size, as C1_ref and C2_ref, and published at N = 1, as in
the paper.
"""

from bayeslaw._law.law import Exponent, Law, Term, Values, power
from bayeslaw._law.priors import lognormal

from ._dynamics import (
    ALPHA,
    RATE,
    REFERENCE,
    SOURCE,
    WANG,
    annealing,
    forward,
    level,
    shift,
    shift_exponent,
)
from ._terms import BESIROGLU

N0 = 106e6  # setting A
GROWTH = lognormal(
    0.1, 0.7, "unpublished; the annealing term grows with size (Tissue 2024)"
)


def publish(p: Values) -> dict:
    """Convert C1 and C2 from the reference size to N = 1."""
    return {
        **p,
        "C1": p["C1_ref"] * N0 ** -p["g1"],
        "C2": p["C2_ref"] * N0 ** -p["g2"],
    }


def unpublish(p: Values) -> dict:
    """Invert `publish`."""
    return {
        **p,
        "C1_ref": p["C1"] * N0 ** p["g1"],
        "C2_ref": p["C2"] * N0 ** p["g2"],
    }


LAW = Law(
    name="cpt-dynamics-size",
    title="loss curves of adaptation of several model sizes",
    source=f"{WANG}, eq. 7",
    latex=r"L_0 + A\,(S_1^{pt}+S_1^{cpt})^{-\alpha}"
    r" - C_1 S_2^{pt} N^{\gamma_1} - C_2 S_2^{cpt} N^{\gamma_2}"
    r" + B\left(1-(1+E\,S_1^{cpt})^{-\beta}\right) + F N^{-\gamma_3}",
    covariates=("N", "S1_pt", "S2_pt", "S1_cpt", "S2_cpt"),
    terms=(
        level(2.2),
        forward(),
        annealing(
            "C1_ref",
            lambda x, e: x["S2_pt"] * power(x["N"] / N0, e["g1"]),
            r"C_1 S_2^{pt} N^{\gamma_1}",
        ),
        annealing(
            "C2_ref",
            lambda x, e: x["S2_cpt"] * power(x["N"] / N0, e["g2"]),
            r"C_2 S_2^{cpt} N^{\gamma_2}",
        ),
        shift(),
        Term(
            "F",
            lambda x, e: power(x["N"], -e["g3"]),
            lognormal(0.7, 0.8, "Besiroglu 2024 has .78 nats at 106M parameters"),
            r"F N^{-\gamma_3}",
        ),
    ),
    exponents=(
        ALPHA,
        RATE,
        shift_exponent(),
        Exponent("g1", GROWTH, "N", r"\gamma_1"),
        Exponent("g2", GROWTH, "N", r"\gamma_2"),
        Exponent("g3", lognormal(0.34, 0.3, BESIROGLU), "N", r"\gamma_3"),
    ),
    reference={"N": N0, **REFERENCE},
    plausible={
        **SOURCE,
        "L0": 2.2,
        "C1": SOURCE["C1"] * N0**-0.1,
        "C2": SOURCE["C2"] * N0**-0.1,
        "F": 482.0,
        "g1": 0.1,
        "g2": 0.1,
        "g3": 0.3478,
    },
    version="2",
    publish=publish,
    unpublish=unpublish,
    reduces_to=(("cpt-dynamics", {"g1": 0.0, "g2": 0.0, "F": 0.0}),),
    monotone={"S1_pt": -1, "S2_pt": -1, "S2_cpt": -1},
)

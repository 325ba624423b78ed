"""cpt-dynamics with (S2pt)^z1 and (S2cpt)^z2: powers of the annealing areas.

S2 is negative until the learning rate has come down, because it counts the warm-up. The
power is sign(S2) |S2|^z; the paper does not say how it treats negative areas. The law
has two parameters more than `cpt-dynamics`, for an R2 of .9952 against .9944 (Wang
2025, table 2).
"""

import jax.numpy as jnp

from bayeslaw._law.law import Exponent, Law, power
from bayeslaw._law.priors import lognormal

from ._dynamics import REFERENCE, WANG, annealing
from .cpt_dynamics import LAW as DYNAMICS


def signed_power(s, z):
    """Compute sign(s) |s|^z, with finite derivatives in z at s = 0."""
    size = jnp.maximum(jnp.abs(s), 1e-12)
    return jnp.sign(s) * power(size, z)


POWER = lognormal(1.0, 0.4, "unpublished; centred on eq. 4")
L0, FORWARD, _, _, SHIFT = DYNAMICS.terms

LAW = Law(
    name="cpt-dynamics-power",
    title="loss curve of adaptation with annealing areas by a power",
    source=f"{WANG}, eq. 10",
    latex=DYNAMICS.latex.replace("S_2^{pt}", r"(S_2^{pt})^{\zeta_1}").replace(
        "S_2^{cpt}", r"(S_2^{cpt})^{\zeta_2}"
    ),
    covariates=DYNAMICS.covariates,
    terms=(
        L0,
        FORWARD,
        annealing(
            "C1",
            lambda x, e: signed_power(x["S2_pt"], e["z1"]),
            r"C_1 (S_2^{pt})^{\zeta_1}",
        ),
        annealing(
            "C2",
            lambda x, e: signed_power(x["S2_cpt"], e["z2"]),
            r"C_2 (S_2^{cpt})^{\zeta_2}",
        ),
        SHIFT,
    ),
    exponents=(
        *DYNAMICS.exponents,
        Exponent("z1", POWER, "S2_pt", r"\zeta_1"),
        Exponent("z2", POWER, "S2_cpt", r"\zeta_2"),
    ),
    reference=REFERENCE,
    plausible={**DYNAMICS.plausible, "z1": 0.9, "z2": 0.9},
    reduces_to=(("cpt-dynamics", {"z1": 1.0, "z2": 1.0}),),
    monotone=DYNAMICS.monotone,
)

"""cpt-dynamics with replay, on the target domain: - C2 S2cpt e^(a1 (1-r)) and a shift
times e^(a2 (1-r)) - 1, B < 0.

B is negative as in the paper (-.526): the shift is downwards. Its size in nats has a
positive prior. With full replay there is no shift. At the published a2 the factor
e^a2 - 1 is 297, and the beta that goes with it is below .001. Eq. 8 is then nearly
logarithmic in S1cpt, and only the product of B and beta is well known.
"""

import jax.numpy as jnp

from bayeslaw._law.law import Covariates, Exponent, Law, Term, Values
from bayeslaw._law.priors import beta, lognormal

from ._dynamics import (
    ALPHA,
    FIG19,
    PRETRAINING_ANNEALING,
    RATE,
    REFERENCE,
    SHIFT_LATEX,
    TARGET,
    WANG,
    forward,
    level,
    moved,
    shift_exponent,
)
from ._replay import A1, adaptation_annealing

A2 = Exponent("a2", lognormal(4.0, 0.6, f"{FIG19}: 5.696"), "replay", "a_2")
GROWING = r"\left(e^{a_2 (1-r)}-1\right)"
# Not a log-normal: far below .01 eq. 8 no longer depends on beta, and NUTS leaves this
# flat region only with divergences.
BETA = shift_exponent(
    beta(
        1,
        8,
        "unpublished; near 7e-4 with the published a2 and B, tenths with a smaller a2",
    )
)


def shift(x: Covariates, e: Values):
    """Compute (1-(1+E S1cpt)^-beta) (e^(a2 (1-r))-1), shape (run,)."""
    growing = jnp.expm1(e["a2"] * (1 - x["replay"]))
    return moved(x, e) * growing


def flip(p: Values) -> dict:
    """Change the sign of B: the sampler's B is the size of a downward shift, and the
    paper's B is negative.
    """
    return {**p, "B": -p["B"]}


LAW = Law(
    name="cpt-dynamics-replay-target",
    title="target loss along adaptation, any schedule and replay",
    source=f"{WANG}, eq. 8",
    latex=r"L_0 + A\,(S_1^{pt}+S_1^{cpt})^{-\alpha} - C_1 S_2^{pt} - C_2 S_2^{cpt} e^{a_1 (1-r)} + "
    + (SHIFT_LATEX + GROWING),
    covariates=("replay", "S1_pt", "S2_pt", "S1_cpt", "S2_cpt"),
    terms=(
        level(),
        forward(),
        PRETRAINING_ANNEALING,
        adaptation_annealing(lambda x: 1 - x["replay"], r"C_2 S_2^{cpt} e^{a_1 (1-r)}"),
        Term(
            "B",
            shift,
            lognormal(0.2, 0.8, f"{FIG19}: tenths of a nat"),
            SHIFT_LATEX + GROWING,
            sign=-1,
        ),
    ),
    exponents=(ALPHA, RATE, BETA, A1, A2),
    reference={"replay": 0.25, **REFERENCE},
    plausible={**TARGET, "a1": 0.037, "a2": 5.696},
    publish=flip,
    unpublish=flip,
    reduces_to=(("cpt-dynamics", {"a1": 0.0, "B": 0.0}),),
    monotone={"S1_pt": -1, "S2_pt": -1, "S1_cpt": -1, "S2_cpt": -1},
)

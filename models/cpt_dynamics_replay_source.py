"""cpt-dynamics with replay, on the source domain: - C2 S2cpt e^(a1 r) and a shift times
1 - e^(-a2 (1-r)).

With full replay there is no shift: the source loss follows its hidden curve of
pre-training.
"""

import jax.numpy as jnp

from bayeslaw._law.law import Covariates, Exponent, Law, Term, Values
from bayeslaw._law.priors import lognormal

from ._dynamics import (
    ALPHA,
    FIG19,
    PRETRAINING_ANNEALING,
    RATE,
    REFERENCE,
    SHIFT_LATEX,
    SOURCE,
    WANG,
    forward,
    level,
    moved,
    shift_exponent,
)
from ._replay import A1, adaptation_annealing

A2 = Exponent("a2", lognormal(3.2, 0.6, f"{FIG19}: 3.238"), "replay", "a_2")
FADING = r"\left(1-e^{-a_2 (1-r)}\right)"


def shift(x: Covariates, e: Values):
    """Compute (1-(1+E S1cpt)^-beta) (1-e^(-a2 (1-r))), shape (run,)."""
    fading = -jnp.expm1(-e["a2"] * (1 - x["replay"]))
    return moved(x, e) * fading


LAW = Law(
    name="cpt-dynamics-replay-source",
    title="source loss along adaptation, any schedule and replay",
    source=f"{WANG}, eq. 8",
    latex=r"L_0 + A\,(S_1^{pt}+S_1^{cpt})^{-\alpha} - C_1 S_2^{pt} - C_2 S_2^{cpt} e^{a_1 r} + "
    + SHIFT_LATEX
    + FADING,
    covariates=("replay", "S1_pt", "S2_pt", "S1_cpt", "S2_cpt"),
    terms=(
        level(),
        forward(),
        PRETRAINING_ANNEALING,
        adaptation_annealing(lambda x: x["replay"], r"C_2 S_2^{cpt} e^{a_1 r}"),
        Term(
            "B",
            shift,
            lognormal(0.15, 1.0, f"{FIG19}: .2 nats at the reference run"),
            SHIFT_LATEX + FADING,
        ),
    ),
    exponents=(ALPHA, RATE, shift_exponent(), A1, A2),
    reference={"replay": 0.25, **REFERENCE},
    plausible={**SOURCE, "a1": 0.055, "a2": 3.238},
    reduces_to=(("cpt-dynamics", {"a1": 0.0, "a2": 1e4}),),
    monotone={"S1_pt": -1, "S2_pt": -1, "S2_cpt": -1},
)

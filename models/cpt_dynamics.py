"""L0 + A (S1pt+S1cpt)^-alpha - C1 S2pt - C2 S2cpt + B (1-(1+E S1cpt)^-beta): the loss
at any step of adaptation.

The loss is a hidden curve of pre-training (`anneal`: the loss if the data had not
changed) plus a shift to the new distribution. The shift is up on the source domain
(B > 0) and down on the target domain (B < 0), so B has a normal prior. The law is for
one domain and one replay ratio; for several ratios see `cpt-dynamics-replay-source` and
`cpt-dynamics-replay-target`.
"""

from bayeslaw._law.law import Law

from ._dynamics import (
    ADAPTATION_ANNEALING,
    ALPHA,
    PRETRAINING_ANNEALING,
    RATE,
    REFERENCE,
    SHIFT_LATEX,
    SOURCE,
    WANG,
    forward,
    level,
    shift,
    shift_exponent,
)

LAW = Law(
    name="cpt-dynamics",
    title="loss curve of adaptation under any learning-rate schedule",
    source=f"{WANG}, eq. 4",
    latex=r"L_0 + A\,(S_1^{pt}+S_1^{cpt})^{-\alpha} - C_1 S_2^{pt} - C_2 S_2^{cpt} + "
    + SHIFT_LATEX,
    covariates=("S1_pt", "S2_pt", "S1_cpt", "S2_cpt"),
    terms=(level(), forward(), PRETRAINING_ANNEALING, ADAPTATION_ANNEALING, shift()),
    exponents=(ALPHA, RATE, shift_exponent()),
    reference=REFERENCE,
    plausible=SOURCE,
    monotone={"S1_pt": -1, "S2_pt": -1, "S2_cpt": -1},
)

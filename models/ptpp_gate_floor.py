"""Form 3: Form 2 + F/ptpp^eta. Pre-training moves both the floor and the data exponent.

Two stages of pre-training cannot separate these two effects, so a forecast for a third
stage is rightly wide.
"""

from bayeslaw._law.law import Law

from ._terms import ETA, GOFFINET, REFERENCE, ptpp_floor
from .ptpp_gate import LAW as GATE

LAW = Law(
    name="ptpp-gate-floor",
    title="Form 3: gated data exponent and a floor lowered by pre-training",
    source=f"{GOFFINET}, eq. 3",
    latex=GATE.latex.replace(r", \quad", r" + \frac{F}{\mathrm{ptpp}^{\eta}}, \quad"),
    covariates=("N", "D", "replay", "ptpp"),
    terms=(*GATE.terms, ptpp_floor()),
    exponents=(*GATE.exponents, ETA),
    reference=REFERENCE,
    plausible={**GATE.plausible, "F": 0.6, "eta": 0.5},
    reduces_to=(("ptpp-gate", {"F": 0.0}), ("ptpp-floor", {"lam": 0.0})),
    monotone={"N": -1, "D": -1},
)

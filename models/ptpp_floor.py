"""Form 1: dcpt + F/ptpp^eta. Pre-training lowers the floor of the loss and leaves the
data exponent alone.
"""

from bayeslaw._law.law import Law

from ._terms import ETA, GOFFINET, REFERENCE, ptpp_floor
from .dcpt import LAW as DCPT

LAW = Law(
    name="ptpp-floor",
    title="Form 1: D-CPT with a floor lowered by pre-training",
    source=f"{GOFFINET}, eq. 1",
    latex=DCPT.latex + r" + \frac{F}{\mathrm{ptpp}^{\eta}}",
    covariates=("N", "D", "replay", "ptpp"),
    terms=(*DCPT.terms, ptpp_floor()),
    exponents=(*DCPT.exponents, ETA),
    reference=REFERENCE,
    plausible={**DCPT.plausible, "F": 0.6, "eta": 0.5},
    reduces_to=(("dcpt", {"F": 0.0}),),
    monotone={"N": -1, "D": -1, "ptpp": -1},
)

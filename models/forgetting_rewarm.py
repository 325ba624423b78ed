"""loss_before + E + A D^beta/((1+B r) N)^alpha: forgetting, from the loss of the
annealed model.

``loss_before`` was measured at the terminal learning rate of pre-training. Fine-tuning
warms the model up again, which raises the loss by a constant E. The mean relative error
is .49%, against .40% with the rewarmed loss (Bethune 2025, table 3).
"""

from bayeslaw._law.law import Law, Term, constant
from bayeslaw._law.priors import lognormal

from ._finetuning import BETHUNE, REFERENCE
from .forgetting import LAW as FORGETTING

COST = lognormal(
    0.05, 0.5, "about .05 (Bethune 2025, section 4.5); .05-.08 in its table 3"
)

LAW = Law(
    name="forgetting-rewarm",
    title="forgetting, from the loss at the terminal learning rate",
    source=f"{BETHUNE}, section 4.5",
    latex=r"L_0 + E + \frac{A\,D^{\beta}}{((1+B\,r)N)^{\alpha}}",
    covariates=FORGETTING.covariates,
    offset=FORGETTING.offset,
    terms=(Term("E", constant, COST, "E"), *FORGETTING.terms),
    exponents=FORGETTING.exponents,
    reference={**REFERENCE, "loss_before": 2.55},
    plausible={"E": 0.05, **FORGETTING.plausible},
    reduces_to=(("forgetting", {"E": 0.0}),),
    monotone=FORGETTING.monotone,
)

"""loss_before + A D^beta/((1+B r) N)^alpha: the source loss after fine-tuning on D
unique target tokens.

The table has one row per measured loss *on the pre-training domain*. ``loss_before`` is
the loss of the same model on the same domain before fine-tuning. (``loss_before``
always is of the row's own domain; in a row of the source it equals
``source_loss_before``.) It should be measured after the model was rewarmed to the
learning rate of fine-tuning (Bethune 2025, table 3). If only the loss of the annealed
model was measured, take `forgetting-rewarm`.
"""

from bayeslaw._law.law import Law

from ._finetuning import (
    ARXIV,
    BETHUNE,
    DATA,
    INJECTION,
    REFERENCE,
    SIZE,
    forgetting,
    loss_before,
)

LAW = Law(
    name="forgetting",
    title="source loss after fine-tuning, from the loss before it",
    source=f"{BETHUNE}, eq. 7",
    latex=r"L_0 + \frac{A\,D^{\beta}}{((1+B\,r)N)^{\alpha}}",
    covariates=("N", "D", "replay", "loss_before"),
    offset=loss_before,
    terms=(forgetting(),),
    exponents=(SIZE, DATA, INJECTION),
    reference=REFERENCE,
    plausible=ARXIV,
    monotone={"N": -1, "D": 1, "replay": -1, "loss_before": 1},
)

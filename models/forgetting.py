"""loss_before + A D^beta/((1+B r) N)^alpha: the source loss after fine-tuning on D
unique target tokens.

A table of source losses: one row per measured loss *on the pre-training domain*, with
``loss_before`` the loss of the same model on the same domain before fine-tuning. That
column, and not ``source_loss_before``, because it is the row's own loss before
adaptation; the two agree at a source row. It should be the loss of the model rewarmed
to the fine-tuning learning rate (Bethune 2025, table 3); where only the annealed one
was measured, see `forgetting-rewarm`.
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

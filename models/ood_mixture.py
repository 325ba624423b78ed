"""w1 source_loss + w2 target_loss: the loss on a third domain, as a weighted sum of the
source and the target loss.

``source_loss`` and ``target_loss`` are losses of the same model at the same step. They
are measured, or forecast by a source and a target law; the forecast then carries their
draws through. The weights depend on the third domain and not on the run.
"""

from bayeslaw._law.law import Law, Term
from bayeslaw._law.priors import lognormal

from ._dynamics import WANG

WEIGHT = lognormal(
    0.5, 0.7, "unpublished; a domain between the two has weights that add up to about 1"
)

LAW = Law(
    name="ood-mixture",
    title="loss on a third domain from the source and target loss",
    source=f"{WANG}, eq. 6",
    latex=r"w_1 L_{\mathrm{source}} + w_2 L_{\mathrm{target}}",
    covariates=("source_loss", "target_loss"),
    terms=(
        Term(
            "w1",
            lambda x, e: x["source_loss"],
            WEIGHT,
            r"w_1 L_{\mathrm{source}}",
            in_nats=False,
        ),
        Term(
            "w2",
            lambda x, e: x["target_loss"],
            WEIGHT,
            r"w_2 L_{\mathrm{target}}",
            in_nats=False,
        ),
    ),
    exponents=(),
    reference={"source_loss": 3.0, "target_loss": 2.5},
    plausible={"w1": 0.6, "w2": 0.4},
    monotone={"source_loss": 1, "target_loss": 1},
)

"""E + A D^beta/((1+B r) N)^alpha: forgetting when no loss before fine-tuning was
measured.

Models of all sizes have the same level E. The law is here for comparison: its mean
relative error is 1.05%, against .40% of `forgetting` (Bethune 2025).
"""

from bayeslaw._law.law import Law, Term, constant
from bayeslaw._law.priors import lognormal

from ._finetuning import ARXIV, BETHUNE, DATA, INJECTION, REFERENCE, SIZE, forgetting

LEVEL = Term(
    "E",
    constant,
    lognormal(2.5, 0.3, "2.2-3.2 nats before fine-tuning (Bethune 2025, table 3)"),
    "E",
)

LAW = Law(
    name="forgetting-floor",
    title="forgetting above one common level",
    source=f"{BETHUNE}, section 4.5",
    latex=r"E + \frac{A\,D^{\beta}}{((1+B\,r)N)^{\alpha}}",
    covariates=("N", "D", "replay"),
    terms=(LEVEL, forgetting()),
    exponents=(SIZE, DATA, INJECTION),
    reference={c: REFERENCE[c] for c in ("N", "D", "replay")},
    plausible={"E": 2.5, **ARXIV},
    monotone={"N": -1, "D": 1, "replay": -1},
)

"""Share the terms and exponents of fine-tuning on little data (Bethune 2025).

Contributions are stated at the middle of that paper's grid: 334M parameters, 3M unique
fine-tuning tokens (repeated until the target loss turns), 1% of pre-training data, a
loss of 2.60 nats before fine-tuning. The priors have the medians and the sds (of the
log) of the paper's 13 domains (table 2).
"""

from bayeslaw._law.law import Covariates, Exponent, Term, Values, power
from bayeslaw._law.priors import lognormal

BETHUNE = "Bethune 2025 (scaling laws for forgetting during finetuning)"
TABLE2 = "Bethune 2025, table 2"

REFERENCE = {"N": 334e6, "D": 3e6, "replay": 0.01, "loss_before": 2.60}

SIZE = Exponent(
    "alpha", lognormal(0.74, 0.25, f"{TABLE2}: .38-.81, median .74"), "N", r"\alpha"
)
DATA = Exponent(
    "beta", lognormal(0.34, 0.5, f"{TABLE2}: .11-.60, median .34"), "D", r"\beta"
)
INJECTION = Exponent(
    "B", lognormal(950, 1.25, f"{TABLE2}: 236-9847, median 948"), "replay", "B"
)

DRIFT = lognormal(
    0.01, 1.0, f"{TABLE2}: .001-.019 nats at the reference run, median .010"
)
ARXIV = {"A": 526.0, "B": 392.0, "alpha": 0.74, "beta": 0.34}  # table 2, forgetting


def loss_before(x: Covariates):
    """Return the source loss before fine-tuning, nats per token, shape (run,)."""
    return x["loss_before"]


def forgetting() -> Term:
    """Make the term A D^beta/((1+B r) N)^alpha (eq. 7). With replay r the model forgets
    like one that is 1 + B r times as large.
    """

    def basis(x: Covariates, e: Values):
        along_tokens = power(x["D"], e["beta"])
        effective_size = (1 + e["B"] * x["replay"]) * x["N"]
        return along_tokens * power(effective_size, -e["alpha"])

    return Term("A", basis, DRIFT, r"\frac{A\,D^{\beta}}{((1+B\,r)N)^{\alpha}}")

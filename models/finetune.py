"""E + A/(N^alpha D^beta): the target loss after fine-tuning on D unique tokens.

The terms of size and data are multiplied. The mean error of this form is .89%, against
1.36% of an additive one, `chinchilla` (Bethune 2025). The law does not read replay,
because in that paper replay of up to 5% hardly changes the target loss.
"""

from bayeslaw._law.law import Exponent, Law, Term, constant, power
from bayeslaw._law.priors import lognormal

from ._finetuning import BETHUNE, REFERENCE, TABLE2

LAW = Law(
    name="finetune",
    title="target loss after fine-tuning, size times data",
    source=f"Zhang 2024; {BETHUNE}, eq. 6",
    latex=r"E + \frac{A}{N^{\alpha} D^{\beta}}",
    covariates=("N", "D"),
    terms=(
        Term(
            "E",
            constant,
            lognormal(0.95, 0.4, f"{TABLE2}: .46-1.30, one domain (Enron) at 0"),
            "E",
        ),
        Term(
            "A",
            lambda x, e: power(x["N"], -e["alpha"]) * power(x["D"], -e["beta"]),
            lognormal(
                1.2, 0.6, f"{TABLE2}: .29-2.4 nats at the reference run, median 1.2"
            ),
            r"\frac{A}{N^{\alpha} D^{\beta}}",
        ),
    ),
    exponents=(
        Exponent(
            "alpha",
            lognormal(0.14, 0.4, f"{TABLE2}: .06-.19, median .14"),
            "N",
            r"\alpha",
        ),
        Exponent(
            "beta",
            lognormal(0.05, 1.0, f"{TABLE2}: .01-.19, median .05"),
            "D",
            r"\beta",
        ),
    ),
    reference={c: REFERENCE[c] for c in ("N", "D")},
    plausible={"E": 1.30, "A": 95.18, "alpha": 0.17, "beta": 0.10},  # Arxiv
    monotone={"N": -1, "D": -1},
)

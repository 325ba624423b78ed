"""E + A/N'^alpha + B/D'^beta: pre-training on a limited corpus, read many times.

N' and D' are effective parameters and tokens for U unique tokens (`_repeats.py`). Up to
one epoch, and up to the model size that is best for U, the law is `chinchilla`.
"""

from bayeslaw._law.law import Law, Term, power
from bayeslaw._law.priors import lognormal

from ._repeats import MUENNIGHOFF, REPEATS, effective_size, effective_tokens
from ._terms import ALPHA, floor
from .chinchilla import BETA

LAW = Law(
    name="data-constrained",
    title="pre-training on a limited corpus that is repeated",
    source=f"{MUENNIGHOFF}, eqs. 5 and 6",
    latex=r"E + \frac{A}{N'^{\alpha}} + \frac{B}{D'^{\beta}}",
    covariates=("N", "D", "U"),
    terms=(
        floor(),
        Term(
            "A",
            lambda x, e: power(effective_size(x, e), -e["alpha"]),
            lognormal(0.3, 1.0, "Besiroglu 2024 has .36 nats at 1e9 parameters"),
            r"\frac{A}{N'^{\alpha}}",
        ),
        Term(
            "B",
            lambda x, e: power(effective_tokens(x, e), -e["beta"]),
            lognormal(0.3, 1.0, "Besiroglu 2024 has .36 nats at 2e10 tokens"),
            r"\frac{B}{D'^{\beta}}",
        ),
    ),
    exponents=(ALPHA, BETA, *REPEATS),
    reference={"N": 1e9, "D": 2e10, "U": 2e10},
    plausible={
        "E": 1.87,
        "A": 521.0,
        "B": 1488.0,
        "alpha": 0.353,
        "beta": 0.353,
        "R_D": 15.4,
        "R_N": 5.3,
        "s": 0.051,
    },
    monotone={"N": -1, "D": -1},  # not U, which changes nothing up to one epoch
)

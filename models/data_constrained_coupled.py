"""E + (A/N'^(alpha/k) + B/D'^(beta/k))^k: a limited corpus; size and data interact.

The law is `coupled` with effective parameters N' and tokens D' for U unique tokens
(`_repeats.py`); k = 1 is `data-constrained`.
"""

from dataclasses import replace

from bayeslaw._law.law import Covariates, Law, Values

from . import coupled
from ._repeats import MUENNIGHOFF, REPEATS, effective_size, effective_tokens


def bracket(x: Covariates, e: Values):
    """Compute the bracket of `coupled` at N' and D', shape (run,)."""
    effective = {"N": effective_size(x, e), "D": effective_tokens(x, e)}
    return coupled.bracket(effective, e)


def publish(p: Values) -> dict:
    """Convert T and s to the A and B of the formula."""
    return coupled.publish(p) | _repeats(p)


def unpublish(p: Values) -> dict:
    """Convert A and B to T and s."""
    return coupled.unpublish(p) | _repeats(p)


def _repeats(p: Values) -> dict:
    return {exponent.name: p[exponent.name] for exponent in REPEATS}


FLOOR, BRACKET = coupled.LAW.terms

LAW = Law(
    name="data-constrained-coupled",
    title="a limited corpus that is repeated; size and data interact",
    source=f"{MUENNIGHOFF}, eqs. 5 and 6, generalised: k = 1 is the separable law",
    latex=r"E + \left(\frac{A}{N'^{\alpha/k}} + \frac{B}{D'^{\beta/k}}\right)^{k}",
    covariates=("N", "D", "U"),
    terms=(
        FLOOR,
        replace(
            BRACKET,
            basis=bracket,
            latex=r"\left(\frac{A}{N'^{\alpha/k}} + \frac{B}{D'^{\beta/k}}\right)^{k}",
        ),
    ),
    exponents=(*coupled.LAW.exponents, *REPEATS),
    reference={**coupled.LAW.reference, "U": 2e10},
    plausible={**coupled.LAW.plausible, "R_D": 15.4, "R_N": 5.3, "s": 0.051},
    publish=publish,
    unpublish=unpublish,
    reduces_to=(("data-constrained", {"k": 1.0}),),
    monotone={"N": -1, "D": -1},  # not U, which changes nothing up to one epoch
)

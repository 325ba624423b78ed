"""Add what it costs to read a target's text again and again to a law of adaptation.

Effects are relative to the law's level, shape (run,): R (N/N0)^j e^(-psi r) (D/U)^.5, where
D/U is how often the text was read. On models of 12k to 54k parameters, the loss over that
of a run on unread text follows this form, of the target and of the source
(docs/microcpt_repeats.md).
"""

from collections.abc import Callable
from dataclasses import replace

import jax.numpy as jnp
from jax import Array

from bayeslaw._law.law import Covariates, Exponent, Law, Term, Values, power
from bayeslaw._law.priors import Prior, lognormal

from ._state import DECADES, factor, size_power

EPOCHS = r"\left(\frac{N}{10^9}\right)^{j} e^{-\psi r}\sqrt{\frac{D}{U}}"


def reread(x: Covariates, e: Values):
    """Compute (N/N0)^j e^(-psi r) (D/U)^.5, shape (run,)."""
    kept = jnp.exp(-e["psi"] * x["replay"])
    return factor(x, e, "j") * kept * power(x["D"] / x["U"], 0.5)


def with_repeats(
    law: Law,
    level: Callable[[Covariates, Values], Array],
    written: str,
    protection: Prior,
) -> Law:
    """Add the cost of repeated target tokens to a law.

    Parameters
    ----------
    level
        What the cost is relative to; ``written`` is its LaTeX.
    protection
        Prior of psi, by which replay makes repeats cheaper.
    """

    def publish(p: Values) -> dict:
        return law.publish({**p, "j": size_power(p, "j")})

    def unpublish(p: Values) -> dict:
        return law.unpublish({**p, "j4": DECADES ** p["j"]})

    term = Term(
        "R",
        lambda x, e: level(x, e) * reread(x, e),
        lognormal(0.05, 1.5, "tiny models: 4 epochs cost 1-3%; unpublished for large"),
        rf"R\,{written}{EPOCHS}",
    )
    size = lognormal(4.0, 2.0, "measured powers of .3-.7 (12k to 54k parameters)")
    return replace(
        law,
        name=f"{law.name}-repeats",
        title=f"{law.title}; of a small text, read repeatedly",
        latex=f"{law.latex} + {term.latex}",
        covariates=(*law.covariates, "U"),
        terms=(*law.terms, term),
        exponents=(
            *law.exponents,
            Exponent("j4", size, "N", "j", also=("U",)),
            Exponent("psi", protection, "replay", r"\psi", also=("U",)),
        ),
        reference={**law.reference, "U": law.reference["D"] / 4},
        plausible={**law.plausible, "R": 0.02, "j": 0.3, "psi": 2.0},
        publish=publish,
        unpublish=unpublish,
        reduces_to=((law.name, {"R": 0.0}),),
        monotone={c: sign for c, sign in law.monotone.items() if c != "D"},
    )

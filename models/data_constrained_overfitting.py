"""E + A/N^alpha + B/D^beta + P R^delta (N/U)^kappa: repeated data, with a least loss.

R = D/U - 1 is the number of repetitions of a corpus of U unique tokens, 0 up to one epoch,
where the law is `chinchilla`. Beyond, the last term grows with repetitions and with
parameters per unique token, so that the loss passes a minimum in D. `data-constrained`
has none: there a repeated token is worth little, but never harmful.

The paper's own constants are not used. Least squares on the runs of Muennighoff 2023 with
at most 50, 100 and 300 epochs give P .001, .005 and .015 nats at the reference run, delta
2.3, 1.5 and .95, and kappa 1.4, 1.1 and 1.0. Of these runs those of 1e8 tokens have their
least loss at 27 to 140 epochs. P's prior is wide: in the paper, weight decay alone takes
away 70% of it.
"""

import jax.numpy as jnp

from bayeslaw._law.law import Covariates, Exponent, Law, Term, Values, power
from bayeslaw._law.priors import lognormal

from . import chinchilla
from ._repeats import MUENNIGHOFF

FITTED = f"least squares on runs of {MUENNIGHOFF}"


def overfitting(x: Covariates, e: Values):
    """Compute R^delta (N/U)^kappa, shape (run,)."""
    repetitions = jnp.maximum(x["D"] / x["U"] - 1.0, 0.0)
    return power(repetitions, e["delta"]) * power(x["N"] / x["U"], e["kappa"])


LAW = Law(
    name="data-constrained-overfitting",
    title="a limited corpus that is repeated until the loss rises",
    source="Lovelace 2026 (arXiv 2605.01640), Chinchilla's law with an overfitting penalty",
    latex=r"E + \frac{A}{N^{\alpha}} + \frac{B}{D^{\beta}}"
    r" + P\,R^{\delta}\left(\frac{N}{U}\right)^{\kappa},"
    r"\quad R = \max\left(\frac{D}{U} - 1, 0\right)",
    covariates=("N", "D", "U"),
    terms=(
        *chinchilla.LAW.terms,
        Term(
            "P",
            overfitting,
            lognormal(0.015, 2.0, f"{FITTED}: .001 to .015 nats"),
            r"P\,R^{\delta}\left(\frac{N}{U}\right)^{\kappa}",
        ),
    ),
    exponents=(
        *chinchilla.LAW.exponents,
        Exponent(
            "delta",
            lognormal(1.3, 0.5, f"{FITTED}: .95 to 2.3"),
            "D",
            r"\delta",
            also=("U",),
        ),
        Exponent(
            "kappa",
            lognormal(1.1, 0.4, f"{FITTED}: 1.0 to 1.4"),
            "N",
            r"\kappa",
            also=("U",),
        ),
    ),
    # ten epochs, half a parameter for each unique token
    reference={"N": 1e9, "D": 2e10, "U": 2e9},
    plausible={
        **chinchilla.LAW.plausible,
        "P": 0.0004,
        "delta": 1.5,
        "kappa": 1.1,
    },
    reduces_to=(("chinchilla", {"P": 0.0}),),
)

"""S0 + (S1 - S0) a N^g e^(-kappa r) (1 - e^(-D/D1)), S0 = source_loss_before: the source loss after adaptation.

Adaptation moves the source loss a share of the way from the checkpoint's own level S0 to a level S1 common to all
checkpoints: less with replay, saturating in D. The loss may rise; D = 0 leaves it where it was. The share is sampled
at 1e9 parameters without replay; a = share/1e9^g is published.
"""

import jax.numpy as jnp

from bayeslaw._law import Covariates, Exponent, Law, Term, Values
from bayeslaw._priors import lognormal

from ._state import N0, OURS, REFERENCE, scale, size


def gap_closed(x: Covariates, e: Values):
    """(S1 - S0) (N/N0)^g e^(-kappa r) (1 - e^(-D/D1)), shape (run,)."""
    moved = (x["N"] / N0) ** e["g"] * jnp.exp(-e["kappa"] * x["replay"]) * -jnp.expm1(-x["D"] / e["D1"])
    return (e["S1"] - x["source_loss_before"]) * moved


def publish(p: Values) -> dict:
    """share to a."""
    return {**p, "a": p["share"] * N0 ** -p["g"]}


def unpublish(p: Values) -> dict:
    """a to share."""
    return {**p, "share": p["a"] * N0 ** p["g"]}


LAW = Law(
    name="state-source",
    title="source loss after adaptation, from the checkpoint's own",
    source=OURS,
    latex=r"S_0 + (S_1 - S_0)\,a N^{g} e^{-\kappa r}\left(1-e^{-D/D_1}\right)",
    covariates=("N", "D", "replay", "source_loss_before"),
    offset=lambda x: x["source_loss_before"],
    terms=(
        Term(
            "share",
            gap_closed,
            lognormal(0.3, 0.8, "unpublished; the share of the gap that adaptation without replay closes"),
            r"(S_1 - S_0)\,a N^{g} e^{-\kappa r}\left(1-e^{-D/D_1}\right)",
            in_nats=False,
        ),
    ),
    exponents=(
        Exponent("S1", lognormal(4.0, 0.4, "unpublished; source loss of a target model"), "source_loss_before", "S_1"),
        size("g"),
        Exponent("kappa", lognormal(3.0, 0.7, "unpublished; 3.2 in e^(-a2 (1-r)) of Wang 2025"), "replay", r"\kappa"),
        scale("D1"),
    ),
    reference={c: REFERENCE[c] for c in ("N", "D", "replay", "source_loss_before")},
    plausible={"a": 0.6, "S1": 4.0, "g": -0.05, "kappa": 3.0, "D1": 3e8},
    publish=publish,
    unpublish=unpublish,
)

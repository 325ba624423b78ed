"""S0 + (S1 - S0) a N^g e^(-kappa r) (1 - e^(-D/D1)) - G log(1 + r D/D2): the source
loss after adaptation.

S0 = source_loss_before is the checkpoint's own loss, and S1 is a level common to all
checkpoints. Adaptation moves the source loss a share of the way from S0 to S1. The
share falls with replay and saturates in D. The r D replayed tokens continue
pre-training: they lower the loss of a checkpoint that was stopped early, or before its
learning rate was annealed. So the loss may rise or fall; at D = 0 it is S0. The sampled
share is that at 1e9 parameters without replay; a = share/1e9^g is published.
"""

import jax.numpy as jnp

from bayeslaw._law.law import Covariates, Exponent, Law, Term, Values
from bayeslaw._law.priors import lognormal

from ._state import (
    OURS,
    REFERENCE,
    factor,
    publish_share,
    scale,
    size,
    source_level,
    unpublish_share,
)

GAP = r"(S_1 - S_0)\,a N^{g} e^{-\kappa r}\left(1-e^{-D/D_1}\right)"


def gap_closed(x: Covariates, e: Values):
    """Compute (S1 - S0) (N/N0)^g e^(-kappa r) (1 - e^(-D/D1)), shape (run,)."""
    mobility = factor(x, e, "g") * jnp.exp(-e["kappa"] * x["replay"])
    moved = mobility * -jnp.expm1(-x["D"] / e["D1"])
    return (e["S1"] - x["source_loss_before"]) * moved


def source_tokens(x: Covariates, e: Values):
    """Compute log(1 + r D/D2), shape (run,)."""
    return jnp.log1p(x["replay"] * x["D"] / (e["ratio"] * e["D1"]))


def publish(p: Values) -> dict:
    """Convert as `publish_share`, and the ratio D2/D1 to D2."""
    return {**publish_share(p), "D2": p["ratio"] * p["D1"]}


def unpublish(p: Values) -> dict:
    """Invert `publish`."""
    return {**unpublish_share(p), "ratio": p["D2"] / p["D1"]}


LAW = Law(
    name="state-source",
    title="source loss after adaptation, from the checkpoint's own",
    source=OURS,
    latex=rf"S_0 + {GAP} - G\log\left(1+\frac{{r D}}{{D_2}}\right)",
    covariates=("N", "D", "replay", "source_loss_before"),
    offset=lambda x: x["source_loss_before"],
    terms=(
        Term(
            "share",
            gap_closed,
            lognormal(
                0.3,
                0.8,
                "unpublished; the share of the gap that adaptation without replay "
                "closes",
            ),
            GAP,
            in_nats=False,
        ),
        Term(
            "G",
            source_tokens,
            lognormal(
                0.05,
                1.2,
                "measured: .03-.05 nats (70M, 1e10 tokens), "
                ".06 (12k parameters, 2.5e5 tokens)",
            ),
            r"G\log\left(1+\frac{r D}{D_2}\right)",
            sign=-1,
        ),
    ),
    exponents=(
        source_level(),
        size("g"),
        Exponent(
            "kappa",
            lognormal(3.0, 0.7, "measured 1-4; 3.2 in e^(-a2 (1-r)) of Wang 2025"),
            "replay",
            r"\kappa",
        ),
        scale("D1"),
        Exponent(
            "ratio",
            lognormal(0.5, 1.0, "D2/D1, measured .2 (70M) to 3 (tiny models)"),
            "replay",
            "D_2/D_1",
        ),
    ),
    reference={c: REFERENCE[c] for c in ("N", "D", "replay", "source_loss_before")},
    plausible={
        "a": 0.6,
        "G": 0.01,
        "S1": 4.0,
        "g": -0.05,
        "kappa": 3.0,
        "D1": 3e8,
        "D2": 1e8,
    },
    publish=publish,
    unpublish=unpublish,
    version="2",
)

"""T0 + (T1 - T0) (1-r)^q (1 - (1 + D N^h/D1)^-beta), T1 = c S0: the target loss after
adaptation.

T0 = loss_before and S0 = source_loss_before are the checkpoint's losses. Adaptation
moves the target loss from T0 towards a floor T1: by a power law in the tokens, and less
far with replay. At D = 0 the loss is T0. The floor is proportional to S0: if a
checkpoint is some percent better on the source, its floor is lower by the same
percentage. The code writes the law as T0 (1 - w) + c S0 w, where w is the share of the
way to the floor and the first coefficient is 1. D1 is sampled at 1e9 parameters.
"""

import jax.numpy as jnp

from bayeslaw._law.law import (
    Covariates,
    Exponent,
    Law,
    Term,
    Values,
    clip_replay,
    power,
)
from bayeslaw._law.priors import fixed, lognormal

from ._state import DECADES, N0, OURS, REFERENCE, factor, scale, size, size_power


def way(x: Covariates, e: Values):
    """Compute w, the share of the way to the floor, shape (run,)."""
    tokens_seen = x["D"] * factor(x, e, "h") / e["D1_ref"]
    learned = -jnp.expm1(-e["beta"] * jnp.log1p(tokens_seen))
    return power(1 - clip_replay(x["replay"]), e["q"]) * learned


def publish(p: Values) -> dict:
    """Convert D1 at 1e9 parameters to the D1 of the formula, and h4 to h. The
    coefficient 1 is not a parameter.
    """
    h = size_power(p, "h")
    return {**p, "h": h, "D1": p["D1_ref"] * N0**h}


def unpublish(p: Values) -> dict:
    """Invert `publish`."""
    return {
        **p,
        "D1_ref": p["D1"] * N0 ** -p["h"],
        "h4": DECADES ** p["h"],
        "one": jnp.ones_like(p["D1"]),
    }


LAW = Law(
    name="state-target",
    title="target loss after adaptation, from the checkpoint's own",
    source=OURS,
    latex=r"T_0 + (c S_0 - T_0)\,(1-r)^{q}"
    r"\left(1-\left(1+\frac{D N^{h}}{D_1}\right)^{-\beta}\right)",
    covariates=("N", "D", "replay", "loss_before", "source_loss_before"),
    terms=(
        Term(
            "one",
            lambda x, e: x["loss_before"] * (1 - way(x, e)),
            fixed(1.0, "by definition: no adaptation leaves the loss where it was"),
            r"T_0 (1-w)",
            in_nats=False,
        ),
        Term(
            "c",
            lambda x, e: x["source_loss_before"] * way(x, e),
            lognormal(
                0.6,
                0.35,
                "measured .8 (tiny models, prose) and .4 (70M, code); "
                "over 1 there is little to gain",
            ),
            r"c S_0\,w",
            in_nats=False,
        ),
    ),
    exponents=(
        Exponent(
            "q",
            lognormal(0.3, 0.6, "measured .2-.3; 0 if replay were for free"),
            "replay",
            "q",
        ),
        size("h"),
        # before D1: where D1 is far above all tokens, the runs tell beta / D1
        Exponent(
            "beta",
            lognormal(0.5, 0.7, "measured .3 (70M) to 1; pre-training .37"),
            "D",
            r"\beta",
        ),
        scale("D1_ref"),
    ),
    reference=REFERENCE,
    plausible={"c": 0.62, "q": 0.3, "h": 0.05, "D1": 3e8, "beta": 0.4},
    publish=publish,
    unpublish=unpublish,
    monotone={"loss_before": 1, "source_loss_before": 1},
    version="3",
)

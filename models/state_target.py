"""T1 + (T0 - T1) (1 + D (1-r)^q N^h/D1)^-beta, T1 = c S0: the target loss after adaptation.

T0 = loss_before and S0 = source_loss_before are the checkpoint's losses. Adaptation moves the target loss from T0
towards a floor proportional to S0, by a power of the target tokens seen; D = 0 leaves it at T0. Written as
T0 f + c S0 (1 - f), f = (1 + ...)^-beta: the first coefficient is 1. D1 is sampled at 1e9 parameters.
"""

import jax.numpy as jnp

from bayeslaw._law import Covariates, Exponent, Law, Term, Values, clip_replay
from bayeslaw._priors import fixed, lognormal

from ._state import N0, OURS, REFERENCE, scale, size


def log_left(x: Covariates, e: Values):
    """log of f, the share of the way that is left. Shape (run,)."""
    seen = x["D"] * (1 - clip_replay(x["replay"])) ** e["q"] * (x["N"] / N0) ** e["h"]
    return -e["beta"] * jnp.log1p(seen / e["D1_ref"])


def publish(p: Values) -> dict:
    """D1 at the reference size to D1 of the formula; the coefficient 1 is no parameter."""
    return {**p, "D1": p["D1_ref"] * N0 ** p["h"]}


def unpublish(p: Values) -> dict:
    """The inverse of `publish`."""
    return {**p, "D1_ref": p["D1"] * N0 ** -p["h"], "one": jnp.ones_like(p["D1"])}


LAW = Law(
    name="state-target",
    title="target loss after adaptation, from the checkpoint's own",
    source=OURS,
    latex=r"c S_0 + (T_0 - c S_0)\left(1 + \frac{D (1-r)^{q} N^{h}}{D_1}\right)^{-\beta}",
    covariates=("N", "D", "replay", "loss_before", "source_loss_before"),
    terms=(
        Term(
            "one",
            lambda x, e: x["loss_before"] * jnp.exp(log_left(x, e)),
            fixed(1.0, "by definition: no adaptation leaves the loss where it was"),
            r"T_0 f",
            in_nats=False,
        ),
        Term(
            "c",
            lambda x, e: x["source_loss_before"] * -jnp.expm1(log_left(x, e)),
            lognormal(0.7, 0.4, "unpublished; the floor on the target as a share of the source loss before"),
            r"c S_0 (1-f)",
            in_nats=False,
        ),
    ),
    exponents=(
        Exponent("q", lognormal(0.8, 0.5, "unpublished; 1 counts target tokens"), "replay", "q"),
        size("h"),
        scale("D1_ref"),
        Exponent("beta", lognormal(0.25, 0.6, ".01-.19 (Bethune 2025, table 2), pre-training .37"), "D", r"\beta"),
    ),
    reference=REFERENCE,
    plausible={"c": 0.6, "q": 0.8, "h": 0.05, "D1": 3e8, "beta": 0.2},
    publish=publish,
    unpublish=unpublish,
    monotone={"loss_before": 1, "source_loss_before": 1},
)

"""(1-r)^-v (E + A/(N^alpha P^epsilon) + B N^h/(D (1-r)^.5 + D_T)^beta), P = ptpp N: the
target loss after adaptation, without the checkpoint's losses.

The checkpoint's size and tokens P of pre-training lower the level from which adaptation
starts. Adaptation is a power law of target tokens. Pre-training is worth D_T of them
(Hernandez 2021), so the loss is finite at D = 0. Replay multiplies the loss and takes
away target tokens, as in `state-power`, which is better where the checkpoint's losses
are known. docs/state_laws.md tells which forms were tried, and the results.
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
from bayeslaw._law.priors import lognormal

from ._pretrained import (
    ALPHA,
    EPSILON,
    LEVEL,
    REFERENCE,
    pretraining,
    publish_level,
    size_and_pretraining,
    unpublish_level,
)
from ._state import N0, OURS, factor, size

D0 = 1e9  # target tokens at which the term in B is stated


def raised(x: Covariates, e: Values):
    """Compute (1-r)^-v, shape (run,)."""
    return power(1 - clip_replay(x["replay"]), -e["v"])


def of_checkpoint(x: Covariates, e: Values):
    """Compute (1-r)^-v (N/N0)^-alpha (P/P0)^-epsilon, shape (run,)."""
    return raised(x, e) * size_and_pretraining(x, e, pretraining(x))


def of_tokens(x: Covariates, e: Values):
    """Compute (1-r)^-v (N/N0)^h ((D (1-r)^.5 + D_T) / D0)^-beta, shape (run,)."""
    target = x["D"] * jnp.sqrt(1 - clip_replay(x["replay"])) + e["D_T"]
    return raised(x, e) * factor(x, e, "h") * power(target / D0, -e["beta"])


def publish(p: Values) -> dict:
    """Convert coefficients at N0, P0 and D0 to those of the formula, and h4 to h."""
    published = publish_level(p, "h")
    return {**published, "B": p["B"] * N0 ** -published["h"] * D0 ** p["beta"]}


def unpublish(p: Values) -> dict:
    """Invert `publish`."""
    at_reference = p["B"] * N0 ** p["h"] * D0 ** -p["beta"]
    return {**unpublish_level(p, "h"), "B": at_reference}


LAW = Law(
    name="ptpp-tokens",
    title="target loss after adaptation by size, pre-training and target tokens",
    source=OURS + "; D_T: Hernandez 2021, eq. 1.1",
    latex=rf"(1-r)^{{-v}}\left(E + {LEVEL}"
    r" + \frac{B N^{h}}{(D\sqrt{1-r} + D_T)^{\beta}}\right),\quad P = ptpp\,N",
    covariates=("N", "D", "replay", "ptpp"),
    terms=(
        Term(
            "E",
            raised,
            lognormal(0.6, 0.8, "low or absent outside web text (mathematics)"),
            r"E\,(1-r)^{-v}",
        ),
        Term(
            "A",
            of_checkpoint,
            lognormal(0.4, 1.0, "measured .2-.5 nats (.45B to 3.4B, mathematics)"),
            rf"{LEVEL}\,(1-r)^{{-v}}",
        ),
        Term(
            "B",
            of_tokens,
            lognormal(0.25, 1.0, "measured .2-.5 nats (.45B to 3.4B, mathematics)"),
            r"\frac{B N^{h}(1-r)^{-v}}{(D\sqrt{1-r}+D_T)^{\beta}}",
        ),
    ),
    exponents=(
        Exponent("v", lognormal(0.08, 0.4, "measured .07-.09"), "replay", "v"),
        ALPHA,
        EPSILON,
        size("h"),
        # before D_T: where D_T is far above all tokens, the runs tell beta / D_T
        Exponent("beta", lognormal(0.28, 0.5, "of tokens: .2-.4 (Goffinet 2025)"), "D"),
        Exponent(
            "D_T",
            lognormal(5e7, 2.5, "1e7-1e9 tokens of text (Hernandez 2021, eq. 1.1)"),
            "D",
            "D_T",
        ),
    ),
    reference=REFERENCE,
    plausible={
        "E": 0.9,
        "A": 4e4,
        "B": 30.0,
        "v": 0.08,
        "alpha": 0.33,
        "epsilon": 0.15,
        "h": 0.0,
        "D_T": 5e7,
        "beta": 0.25,
    },
    publish=publish,
    unpublish=unpublish,
    monotone={"ptpp": -1, "D": -1},
)

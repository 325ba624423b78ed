"""Share the parts of checkpoint-state laws, which have the checkpoint's losses before
adaptation as covariates.

To measure these losses takes one evaluation and no training. They reflect most of the
effect of the checkpoint's size and pre-training. The reference run has 1e9 parameters,
5e9 adaptation tokens, a quarter of replay, and losses before adaptation of 2.6 (source)
and 3 (target). docs/state_laws.md tells which forms were tried, and the results.
"""

import math

import jax.numpy as jnp

from bayeslaw._law.law import Covariates, Exponent, Values, power
from bayeslaw._law.priors import lognormal

OURS = (
    "this project; LAWS of checkpoint state, tried on tiny models "
    "(12k to 259k parameters) and one 70M model"
)

N0 = 1e9  # size at which the size factors are 1
DECADES = 1e4  # ratio of sizes whose size factor is sampled (g4 below)
PTPP = 30.0  # pre-training tokens per parameter at which stage factors are 1
REFERENCE = {
    "N": N0,
    "D": 5e9,
    "replay": 0.25,
    "source_loss_before": 2.6,
    "loss_before": 3.0,
}


def scale(name: str) -> Exponent:
    """Make the scale of adaptation tokens at which a checkpoint's losses move."""
    measured = "measured 1e4 tokens (models of 12k parameters) to 2e9 (70M)"
    return Exponent(name, lognormal(3e7, 3.0, measured), "D", "D_1")


def size(name: str) -> Exponent:
    """Make the power g of model size. It is sampled as g4 = 1e4^g, the factor between
    two sizes that are 1e4 apart.

    The prior of g is normal with mean 0 and an sd of .22. If all models are far from
    `N0`, g is correlated with a scale such as D1. In the coordinates of
    `bayeslaw._inference.coordinates` the posterior is then a bent ridge for g, and a
    straight one for the logarithm of g4, which needs 8 leapfrog steps a draw in place
    of 730 on tiny models.
    """
    measured = (
        "measured: powers of -.2 and .4 (tiny models of five sizes); "
        "size acts through the losses before"
    )
    prior = lognormal(1.0, 2.0, measured)
    return Exponent(f"{name}4", prior, "N", name)


def source_level() -> Exponent:
    """Make the level S1 of the source loss towards which adaptation moves it, common to
    all checkpoints. With one checkpoint, S1 and the share have the same effect.
    """
    prior = lognormal(4.0, 0.4, "unpublished; source loss of a target model")
    return Exponent("S1", prior, "source_loss_before", "S_1")


def size_power(e: Values, name: str):
    """Compute g from g4."""
    return jnp.log(e[f"{name}4"]) / math.log(DECADES)


def factor(x: Covariates, e: Values, name: str):
    """Compute (N/N0)^g, shape (run,)."""
    return power(x["N"] / N0, size_power(e, name))


def pretrained(x: Covariates, e: Values):
    """Compute (ptpp/30)^z, shape (run,)."""
    return power(x["ptpp"] / PTPP, e["z"])


def publish_share(p: Values) -> dict:
    """Convert the share at 1e9 parameters to a, and g4 to g."""
    g = size_power(p, "g")
    return {**p, "a": p["share"] * N0**-g, "g": g}


def unpublish_share(p: Values) -> dict:
    """Invert `publish_share`."""
    return {**p, "share": p["a"] * N0 ** p["g"], "g4": DECADES ** p["g"]}

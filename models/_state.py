"""What the checkpoint-state laws share: the losses of the checkpoint before adaptation
as covariates.

They cost one evaluation and no training, and carry most of what the checkpoint's size
and pre-training did. The reference run: 1e9 parameters, 5e9 adaptation tokens, a
quarter of replay, losses of 2.6 (source) and 3 (target) before. What was tried and
measured: docs/state_laws.md.
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
DECADES = 1e4  # sizes apart over which a size factor is sampled
REFERENCE = {
    "N": N0,
    "D": 5e9,
    "replay": 0.25,
    "source_loss_before": 2.6,
    "loss_before": 3.0,
}


def scale(name: str) -> Exponent:
    """Adaptation tokens over which a checkpoint moves."""
    measured = "measured 1e4 tokens (models of 12k parameters) to 2e9 (70M)"
    return Exponent(name, lognormal(3e7, 3.0, measured), "D", "D_1")


def size(name: str) -> Exponent:
    """Power g of model size, sampled as g4 = 1e4^g, the factor over four decades;
    either sign, none in the middle.

    The prior of g is normal with an sd of .22. Far from `N0` a power of either sign
    trades against a scale along a bent ridge in `bayeslaw._inference.coordinates`; the
    logarithm of g4 does so along a straight one (8 leapfrog steps a draw in place of
    730 on tiny models).
    """
    measured = (
        "measured: powers of -.2 and .4 (tiny models of five sizes); "
        "size acts through the losses before"
    )
    prior = lognormal(1.0, 2.0, measured)
    return Exponent(f"{name}4", prior, "N", name, may_rest=True)


def size_power(e: Values, name: str):
    """g from g4."""
    return jnp.log(e[f"{name}4"]) / math.log(DECADES)


def factor(x: Covariates, e: Values, name: str):
    """(N/N0)^g, shape (run,)."""
    return power(x["N"] / N0, size_power(e, name))

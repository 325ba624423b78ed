"""Share the parts of laws that know a checkpoint by its size and its tokens of
pre-training, and not by its losses.

Size and tokens act as a product, so that one run for each scale, in which both grow
together, is enough for a forecast along that line. docs/state_laws.md tells which forms
were tried, and the results.
"""

from bayeslaw._law.law import Covariates, Exponent, Values, power
from bayeslaw._law.priors import lognormal

from ._state import DECADES, N0, size_power

P0 = 1e11  # tokens of pre-training at which the term in A is stated
REFERENCE = {"N": N0, "D": 5e9, "replay": 0.25, "ptpp": P0 / N0}
LEVEL = r"\frac{A}{N^{\alpha} P^{\epsilon}}"

ALPHA = Exponent(
    "alpha", lognormal(0.3, 0.6, "of size, pre-training: .34"), "N", r"\alpha"
)
EPSILON = Exponent(
    "epsilon",
    lognormal(0.15, 0.7, "measured .1-.2 (mathematics, tiny models)"),
    "ptpp",
    r"\epsilon",
    also=("N",),
)


def pretraining(x: Covariates):
    """Compute the tokens of pre-training, ptpp N, shape (run,)."""
    return x["ptpp"] * x["N"]


def size_and_pretraining(x: Covariates, e: Values, tokens):
    """Compute (N/N0)^-alpha (tokens/P0)^-epsilon, shape (run,)."""
    return power(x["N"] / N0, -e["alpha"]) * power(tokens / P0, -e["epsilon"])


def publish_level(p: Values, of_size: str) -> Values:
    """Convert A at N0 and P0 to that of the formula, and the power of size from a factor
    over 1e4 parameters.
    """
    level = p["A"] * N0 ** p["alpha"] * P0 ** p["epsilon"]
    return {**p, "A": level, of_size: size_power(p, of_size)}


def unpublish_level(p: Values, of_size: str) -> Values:
    """Invert `publish_level`."""
    level = p["A"] * N0 ** -p["alpha"] * P0 ** -p["epsilon"]
    return {**p, "A": level, f"{of_size}4": DECADES ** p[of_size]}

"""What the checkpoint-state laws share: the losses of the checkpoint before adaptation as covariates.

They cost one evaluation and no training, and carry most of what the checkpoint's size and pre-training did. The
reference run: 1e9 parameters, 5e9 adaptation tokens, a quarter of replay, losses of 2.6 (source) and 3 (target) before.
"""

from bayeslaw._law import Exponent
from bayeslaw._priors import lognormal, normal

OURS = "this project; LAWS of checkpoint state, tried on tiny models (12k-123k parameters)"

N0 = 1e9  # size at which the size factors are 1
REFERENCE = {"N": N0, "D": 5e9, "replay": 0.25, "source_loss_before": 2.6, "loss_before": 3.0}


def scale(name: str) -> Exponent:
    """Adaptation tokens over which a checkpoint moves."""
    return Exponent(name, lognormal(1e8, 2.5, "unpublished; 1e6 to 1e10 tokens"), "D", "D_1")


def size(name: str) -> Exponent:
    """Power of model size; either sign, none in the middle."""
    return Exponent(name, normal(0.0, 0.15, "unpublished; size acts through the losses before"), "N", name)

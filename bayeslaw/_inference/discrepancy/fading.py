"""Scale errors with tokens: a law's errors, and the noise of runs, fall with tokens by
a power.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float

    from bayeslaw._base.arrays import AnyArray


@dataclass(frozen=True)
class Fading:
    """Scale errors by (D / largest)^-power up to the longest run; beyond it by 1.

    ``largest``: tokens of the longest run that the law was fitted to.
    """

    power: float
    largest: float

    def factor(
        self, covariates: Mapping[str, Any], xp: ModuleType = jnp
    ) -> Float[AnyArray, "*run"]:
        """Compute the scale of errors at each run relative to the longest run, shape
        (run,).
        """
        tokens = xp.maximum(xp.asarray(covariates["D"], float), 1.0)
        below = xp.minimum(xp.log(tokens / self.largest), 0.0)
        # NumPy makes scalars of arrays without axes
        return xp.asarray(xp.exp(-self.power * below))

    def sizes(
        self, covariates: Mapping[str, Float[AnyArray, " run"]]
    ) -> Float[np.ndarray, "*run"]:
        """Compute `factor` in NumPy."""
        return np.asarray(self.factor(covariates, np))

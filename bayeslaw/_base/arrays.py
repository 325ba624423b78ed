"""What an array may be where NumPy's and JAX's both do.

For annotations, which name the shape (`jaxtyping.Float[AnyArray, " draw run"]`): JAX is
imported here, so this module is imported under ``TYPE_CHECKING`` only. Tests check the
shapes while they run (tests/conftest.py).
"""

from __future__ import annotations

import numpy as np
from jax import Array

AnyArray = Array | np.ndarray

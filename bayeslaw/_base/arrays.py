"""Name the type of an array that may be NumPy's or JAX's.

Annotations use it together with a shape (`jaxtyping.Float[AnyArray, " draw run"]`).
This module imports JAX, so it is imported under ``TYPE_CHECKING`` only. Tests check the
shapes while they run (tests/conftest.py).
"""

from __future__ import annotations

import numpy as np
from jax import Array

AnyArray = Array | np.ndarray

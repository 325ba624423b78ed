"""Tables padded to a few sizes, so that one compiled program serves many tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np


class Padded(NamedTuple):
    """Covariates and log losses of shape (row,); ``weight`` is 1 at measured rows and 0 at padding."""

    covariates: Mapping[str, Any]
    y: Any
    weight: Any


def padded_size(n: int) -> int:
    """The next size on the ladder: multiples of an eighth of the power of two below, at least 16."""
    step = max(16, 2 ** max(0, n.bit_length() - 4))
    return -(-n // step) * step


def pad(covariates: Mapping[str, np.ndarray], y: np.ndarray) -> Padded:
    """Repeat the last row up to the padded size, with weight 0."""
    n, size = len(y), padded_size(len(y))
    index = np.minimum(np.arange(size), n - 1)
    return Padded(
        {c: np.asarray(v, float)[index] for c, v in covariates.items()}, y[index], (np.arange(size) < n) * 1.0
    )

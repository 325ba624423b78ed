"""Tables padded to a few sizes, so that one compiled program serves many tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from bayeslaw._shared_error import NONE, SharedError

CELLS = 1_000_000  # draws x rows


class Padded(NamedTuple):
    """Covariates and log losses of shape (row,); ``weight`` is 1 at measured rows and 0 at padding."""

    covariates: Mapping[str, Any]
    y: Any
    weight: Any
    shared: SharedError = NONE


def at_once(table: Padded) -> int:
    """Draws that are worked on together at all rows of a table, so that memory does not grow with both."""
    return max(1, CELLS // len(table.weight))


def padded_size(n: int) -> int:
    """The next size on the ladder: multiples of an eighth of the power of two below, at least 16."""
    step = max(16, 2 ** max(0, n.bit_length() - 4))
    return -(-n // step) * step


def pad(
    covariates: Mapping[str, np.ndarray], y: np.ndarray, shared: SharedError = NONE, size: int | None = None
) -> Padded:
    """Repeat the last row up to the padded size (or ``size``), with weight 0."""
    n, size = len(y), size or padded_size(len(y))
    index = np.minimum(np.arange(size), n - 1)
    groups: dict[str, Any] = {}
    if shared.kind is not None:
        groups[shared.kind] = shared.group._replace(code=shared.group.code[index])
    if shared.along_run:
        groups |= {"previous": shared.previous[index], "gap": shared.gap[index]}
    padded = {c: np.asarray(v, float)[index] for c, v in covariates.items()}
    return Padded(padded, y[index], (np.arange(size) < n) * 1.0, shared._replace(**groups))

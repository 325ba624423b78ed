"""Compute a checksum of all that a tree of arrays holds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Shaped
    from xarray import DataTree


def checksum(tree: DataTree) -> str:
    """Digest groups, arrays and attributes of a tree by SHA-256.

    The digest is the same in memory and in a file: it does not depend on the order of
    entries, or on how a file keeps text and bytes.
    """
    digest = hashlib.sha256()
    for node in sorted(tree.subtree, key=lambda node: node.path):
        digest.update(_said(node.path, node.attrs))
        variables = node.to_dataset(inherit=False).variables
        for name in sorted(variables, key=str):
            variable = variables[name]
            about = [str(name), *variable.dims, *variable.shape]
            digest.update(_said(about, variable.attrs))
            digest.update(_content(variable.to_numpy()))
    return digest.hexdigest()


def _said(name: Any, attrs: Mapping[Any, Any]) -> bytes:
    plain = {str(key): np.asarray(value).tolist() for key, value in attrs.items()}
    return json.dumps([name, plain], sort_keys=True, default=str).encode()


def _content(array: Shaped[np.ndarray, "*shape"]) -> bytes | memoryview:
    """Encode numbers by kind, size and bytes (least first), and text as JSON."""
    kind = array.dtype.kind
    if kind not in "biuf":
        return json.dumps([str(item) for item in array.ravel()]).encode()
    if kind == "f" and np.isnan(array).any():
        array = np.where(np.isnan(array), array.dtype.type("nan"), array)
    plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return plain.dtype.str.encode() + plain.tobytes()

"""Import the libraries of trackers and of Excel when they are needed."""

from __future__ import annotations

import importlib
from types import ModuleType

from bayeslaw._base.errors import RunTableError


def imported(module: str, extra: str) -> ModuleType:
    """Import a module of a library that an extra of this package installs."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise RunTableError(
            f"{module.split('.')[0]} is needed to read this ({error}): "
            f'pip install "bayeslaw[{extra}]"'
        ) from None

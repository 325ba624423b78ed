"""What is said while something is done."""

import warnings
from collections.abc import Callable
from typing import Any


def said_by(do: Callable, *arguments: Any, **options: Any) -> tuple[Any, list[str]]:
    """The result, and the messages of all warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = do(*arguments, **options)
    return result, [str(one.message) for one in caught]

"""Keywords of a public function kept in one frozen record: read, refused, and shown by
`inspect.signature` as if they were written out.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

Record = TypeVar("Record")
Function = TypeVar("Function", bound=Callable[..., Any])


def read_options(
    record: type[Record], function: Callable[..., Any], options: Mapping[str, Any]
) -> Record:
    """The record of the keywords that a function of `shows_options_of` was given,
    defaults where none is given.

    Raises
    ------
    TypeError
        A keyword that the function does not have.
    """
    # Of the function, not of the record: it may have keywords of its own besides.
    names = _keywords(function)
    unknown = [name for name in options if name not in names]
    if unknown:
        raise TypeError(
            f"{function.__name__}() has no option {unknown[0]!r}; "
            f"it has: {', '.join(names)}"
        )
    return record(**options)


def _keywords(function: Callable[..., Any]) -> list[str]:
    """Names that a function takes as keywords only."""
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]


def shows_options_of(record: type) -> Callable[[Function], Function]:
    """Let a function's signature name every field of the record, with its default,
    where the function takes ``**options``.
    """

    def decorate(function: Function) -> Function:
        signature = inspect.signature(function)
        written = [
            p
            for p in signature.parameters.values()
            if p.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        fields = inspect.signature(record).parameters.values()
        options = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in fields]
        shown: Any = function
        shown.__signature__ = signature.replace(parameters=[*written, *options])
        return function

    return decorate

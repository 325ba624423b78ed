"""Arguments of a public function, as one frozen record: written once, passed on whole."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Record = TypeVar("Record")
Result = TypeVar("Result")


def takes(
    record: Callable[Parameters, Record], error: type[Exception] = TypeError
) -> Callable[[Callable[[Record], Result]], Callable[Parameters, Result]]:
    """Call a function of one record with the arguments of the record's constructor.

    Editors, type checkers and `help` show these. What the record does not have, or
    lacks, is refused in one line.

    Parameters
    ----------
    record
        A frozen dataclass.
    error
        What is raised on a wrong argument.

    Examples
    --------
    >>> from dataclasses import KW_ONLY, dataclass
    >>> @dataclass(frozen=True)
    ... class PriceArguments:
    ...     tokens: float
    ...     _: KW_ONLY
    ...     rate: float = 2.0
    >>> @takes(PriceArguments)
    ... def price(arguments: PriceArguments) -> float:
    ...     return arguments.tokens * arguments.rate
    >>> price(3.0, rate=1.5)
    4.5
    >>> price(3.0, rates=1.5)
    Traceback (most recent call last):
    TypeError: price() has no option 'rates'; it has: rate
    """
    signature = inspect.signature(record)

    def decorate(function: Callable[[Record], Result]) -> Callable[Parameters, Result]:
        @functools.wraps(function)
        def call(*args: Parameters.args, **options: Parameters.kwargs) -> Result:
            try:
                signature.bind(*args, **options)
            except TypeError as wrong:
                line = _refusal(function.__name__, signature, options)
                raise error(line or f"{function.__name__}(): {wrong}") from None
            return function(record(*args, **options))

        wrapper: Any = call
        result = function.__annotations__.get("return", signature.empty)
        wrapper.__signature__ = signature.replace(return_annotation=result)
        return call

    return decorate


def _refusal(name: str, signature: inspect.Signature, options: Any) -> str:
    """What is wrong with the keywords, in one line; nothing where they are right."""
    parameters = signature.parameters
    keywords = [p for p in parameters.values() if p.kind is p.KEYWORD_ONLY]
    unknown = [option for option in options if option not in parameters]
    if unknown:
        there = ", ".join(p.name for p in keywords)
        return f"{name}() has no option {unknown[0]!r}; it has: {there}"
    required = [p.name for p in keywords if p.default is p.empty]
    missing = [option for option in required if option not in options]
    if missing:
        return f"{name}() needs {', '.join(required)}; missing: {', '.join(missing)}"
    return ""

"""Hold the arguments of a public function or a command in one frozen record, which is
written once and passed on as one object.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, field, fields
from typing import Annotated, Any, ParamSpec, TypeVar, get_type_hints

from bayeslaw._base.errors import BayeslawError

Parameters = ParamSpec("Parameters")
Record = TypeVar("Record")
Result = TypeVar("Result")


def takes(
    record: Callable[Parameters, Record],
    error: type[Exception] = TypeError,
    name: str | None = None,
) -> Callable[[Callable[[Record], Result]], Callable[Parameters, Result]]:
    """Call a function of one record with the arguments of the record's constructor.

    Editors, type checkers and `help` show these arguments. An unknown or a missing
    argument is refused in one line.

    Parameters
    ----------
    record
        A frozen dataclass without a docstring: editors would show it in place of the
        function's docstring.
    error
        Type of the error raised on a wrong argument.
    name
        Name of the function that users call, for messages; by default its own.

    Examples
    --------
    >>> from dataclasses import dataclass, field
    >>> @dataclass(frozen=True)
    ... class PriceArguments:
    ...     tokens: float
    ...     rate: float = field(default=2.0, kw_only=True)
    >>> @takes(PriceArguments)
    ... def price(arguments: PriceArguments) -> float:
    ...     return arguments.tokens * arguments.rate
    >>> price(3.0, rate=1.5)
    4.5
    >>> price(3.0, rates=1.5)
    Traceback (most recent call last):
    TypeError: price() has no option 'rates'; it has: rate (did you mean 'rate'?)
    """
    signature = inspect.signature(record)

    def decorate(function: Callable[[Record], Result]) -> Callable[Parameters, Result]:
        @functools.wraps(function)
        def call(*args: Parameters.args, **options: Parameters.kwargs) -> Result:
            try:
                signature.bind(*args, **options)
            except TypeError as wrong:
                label = name or function.__name__
                line = _refusal(label, signature, options)
                raise error(line or f"{label}(): {wrong}") from None
            return function(record(*args, **options))

        wrapper: Any = call
        result = function.__annotations__.get("return", signature.empty)
        wrapper.__signature__ = signature.replace(return_annotation=result)
        return call

    return decorate


def _refusal(name: str, signature: inspect.Signature, options: Any) -> str:
    """State in one line what is wrong with the keywords; empty if they are right."""
    parameters = signature.parameters
    keywords = [p for p in parameters.values() if p.kind is p.KEYWORD_ONLY]
    unknown = [option for option in options if option not in parameters]
    if unknown:
        there = [p.name for p in keywords]
        hint = meant(unknown[0], there)
        return (
            f"{name}() has no option {unknown[0]!r}; it has: {', '.join(there)}{hint}"
        )
    required = [p.name for p in keywords if p.default is p.empty]
    missing = [option for option in required if option not in options]
    if missing:
        return f"{name}() needs {', '.join(required)}; missing: {', '.join(missing)}"
    return ""


def option(
    help: str | None = None, *names: str, default: Any = None, **settings: Any
) -> Any:
    """Declare an option of a command as a field of its record, absent by default.

    Parameters
    ----------
    help
        What ``--help`` says of it; None: what the Python function's docstring says.
    names
        Its names where they are not the field's.
    default
        `MISSING` where it must be given.
    settings
        Further ones of `typer.Option`; and ``argument``, the Python function's name for
        it where that is another.
    """
    metadata = {"kind": "Option", "names": names, "help": help, **settings}
    return field(default=default, metadata=metadata)


def argument(
    help: str, metavar: str | None = None, default: Any = MISSING, **settings: Any
) -> Any:
    """Declare an argument of a command, which has no name; as `option` does."""
    shown = {"help": help, "metavar": metavar, "show_default": False}
    return field(default=default, metadata={"kind": "Argument", **shown, **settings})


def meant(option: str, options: Sequence[str]) -> str:
    """Say which option may be meant by one that there is not; empty if none is near."""
    if option == "pretrain_tokens" and "ptpp" in options:
        return " (ptpp is pre-training tokens per parameter: their ratio to N)"
    close = difflib.get_close_matches(option, options, 1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def command(function: Callable[[Record], None]) -> Callable[..., None]:
    """Turn a function of one record into a command, an option for each field."""
    # Annotations are strings here: get_type_hints resolves them; with extras it keeps
    # what `Annotated` tells typer.
    (record,) = [t for n, t in get_type_hints(function).items() if n != "return"]
    hints = get_type_hints(record, include_extras=True)

    @functools.wraps(function)
    def run(**values: Any) -> None:
        try:
            function(record(**values))
        except BayeslawError as error:
            error.args = (_name_option(str(error), record, values),)
            raise

    # inherited fields last
    own = record.__annotations__
    in_order = sorted(fields(record), key=lambda field: field.name not in own)
    # typer reads options from the signature, not from the code. So a signature built
    # here serves as well as a written one, and no command repeats its options.
    run.__signature__ = inspect.Signature(  # pyright: ignore[reportAttributeAccessIssue]
        [_parameter(field, hints[field.name]) for field in in_order]
    )
    return run


def _name_option(line: str, record: type, values: dict[str, Any]) -> str:
    """Write the option in a message that begins with the argument it was typed for:
    ``max_loss code must be`` becomes ``--max-loss code must be``.
    """
    # an argument, what is said of which part of it, and the verb
    begun = re.match(r"(\w+)(?=(?: \S+){0,2}?(?::| must| is| are| names| needs))", line)
    if begun is None:
        return line
    for declared in fields(record):
        settings = dict(declared.metadata)
        is_option = settings.get("kind") == "Option" and "metavar" not in settings
        value = values[declared.name]
        is_typed = value is not None and value is not False  # 0 is typed, too
        is_named = begun[1] in (declared.name, settings.get("argument"))
        if is_named and is_option and is_typed:
            names = settings["names"] or (f"--{declared.name.replace('_', '-')}",)
            return names[-1] + line[begun.end() :]
    return line


def _parameter(declared: Field, hint: Any) -> inspect.Parameter:
    settings = dict(declared.metadata)
    if settings:
        import typer

        names = settings.pop("names", ())
        settings.pop("argument", None)
        # by itself typer writes --n for N, and adds --no-NAME to a switch
        if settings["kind"] == "Option" and not names:
            names = (f"--{declared.name.replace('_', '-')}",)
        kind = getattr(typer, settings.pop("kind"))
        hint = Annotated[hint, kind(*names, **settings)]
    absent = declared.default is MISSING
    default = inspect.Parameter.empty if absent else declared.default
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(declared.name, keyword, default=default, annotation=hint)

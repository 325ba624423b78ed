"""Make options from the public functions that commands call: from the records of their
arguments, and from their docstrings.

Sources are read and not imported, so ``--help`` answers at once.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, dataclass_transform

import bayeslaw
from bayeslaw._base.arguments import argument, option

Options = TypeVar("Options")

PACKAGE = Path(bayeslaw.__file__).parent


class Documented(NamedTuple):
    """An argument of a public function: its annotation, its default (MISSING if there is
    none, None if it is computed), and its entry in the docstring.
    """

    annotation: str
    default: Any
    entry: str

    @property
    def kind(self) -> Any:
        """Type of its option: a switch, a text, or several texts."""
        if isinstance(self.default, bool):
            return bool
        is_many = re.search("Mapping|Sequence|Iterable", self.annotation)
        return list[str] | None if is_many and self.default is None else str | None

    @property
    def typed(self) -> Any:
        """Default of its option."""
        is_number = isinstance(self.default, float | int) and self.kind is not bool
        return f"{self.default:g}" if is_number else self.default

    def help(self, names: Mapping[str, str], kind: Any, default: Any) -> str:
        """Write the first sentence of the entry as people type it, and the function's
        default if an option of this ``kind`` has none. ``names``: of options, by
        argument.
        """
        first = re.match(r"(?:``.+?``|`.+?`|[^`])+?(?=\.(?: [A-Z`]|$))", self.entry)
        text = first[0].removeprefix("False: ") if first else ""
        text = re.sub("``(.+?)``", lambda code: _as_typed(code[1], names), text)
        if default is None and isinstance(self.typed, str):
            text += f"; default: {self.typed}"
        if "list" in str(kind):
            text += " (repeatable)"
        return f"{text[:1].upper()}{text[1:]}.".replace("`", "")


def _as_typed(code: str, names: Mapping[str, str]) -> str:
    """Write a value of Python as on the command line, and an argument as its option."""
    if code in names:
        return f"--{names[code].replace('_', '-')}"
    try:
        value = ast.literal_eval(code)
    except (SyntaxError, ValueError):
        return code
    if isinstance(value, dict):
        return ",".join(f"{name}={_as_typed(repr(x), {})}" for name, x in value.items())
    if isinstance(value, tuple):
        return ":".join(value)
    return value if isinstance(value, str) else code


@dataclass_transform(
    frozen_default=True, kw_only_default=True, field_specifiers=(option, argument)
)
def options_of(
    *functions: str, without: str = ""
) -> Callable[[type[Options]], type[Options]]:
    """Turn a class into the record of a command's options: those that it declares, and
    the other arguments of public functions.

    A declared option without help takes that of the argument: the first sentence of its
    entry in the docstring. A switch is off by default, and turns off what is on: its
    help is then what the docstring says of ``False:``.

    Parameters
    ----------
    functions
        Names of public functions and records; the first that has an argument says what
        it is.
    without
        Arguments that nobody types.
    """

    def decorate(cls: Any) -> Any:
        known: dict[str, Documented] = {}
        for name in functions:
            known = arguments_of(name) | known
        hints = inspect.get_annotations(cls)
        own = {n: f for n in hints if isinstance(f := cls.__dict__.get(n), Field)}
        inherited = {f.name: f for base in cls.__mro__[1:-1] for f in fields(base)}
        # names of options, by argument
        names = dict(zip(hints, hints, strict=True))
        for name, given in (inherited | own).items():
            names[given.metadata.get("argument", name)] = name
        for name, each in known.items():
            is_left_out = name in {*names, *names.values(), *without.split()}
            if not is_left_out and each.default is not True:
                names[name], hints[name] = name, each.kind
                own[name] = option(default=each.typed)
        for name, given in own.items():
            is_switch = hints[name] in ("bool", bool)
            default = bool(given.default) if is_switch else given.default
            each = known.get(given.metadata.get("argument", name))
            more = {}
            if each is not None and given.metadata["help"] is None:
                more = {"help": each.help(names, hints[name], default)}
            setattr(cls, name, field(default=default, metadata=given.metadata | more))
        cls.__annotations__ = hints
        return dataclass(frozen=True, kw_only=True)(cls)

    return decorate


# -- sources ---------------------------------------------------------------------------


@functools.cache
def arguments_of(name: str) -> dict[str, Documented]:
    """Read the arguments of a public function, or the fields of a public record."""
    stub = (PACKAGE / "__init__.pyi").read_text(encoding="utf-8")
    (module,) = re.findall(rf"^from \.(\S+) import {name} as", stub, re.M)
    docstring = ast.get_docstring(_find(name, module)[0]) or ""
    entries = {n: text for names, text in _entries(docstring) for n in names}
    for n, text in entries.items():
        if other := re.match(r"As (?:for |in )?`(\w+)`", text):
            entries[n] = arguments_of(other[1])[n].entry
    return {
        n: Documented(ast.unparse(annotation), _default(value), entries.get(n, ""))
        for n, annotation, value in _declared(name, module)
    }


def _find(name: str, module: str) -> tuple[Any, str]:
    """Find a definition in a module, or in that from which it is imported."""
    path = PACKAGE.joinpath(*module.split(".")).with_suffix(".py")
    source = path.read_text(encoding="utf-8")
    begun = re.search(rf"^(?:@.+\n)?(def|class) {name}\b", source, re.M)
    if begun is None:
        pattern = rf"^from bayeslaw\.(\S+) import (?:\([^)]*|.*)\b{name}\b"
        (imported,) = re.findall(pattern, source, re.M)
        return _find(name, imported)
    # a function to the end of its docstring, a record to the next line at the margin
    last = '\n    """\n' if begun[1] == "def" else "\n\n\n"
    text = source[begun.start() :].partition(last)
    return ast.parse("".join(text[:2])).body[0], module


def _declared(name: str, module: str) -> Iterator[tuple[str, Any, Any]]:
    """List name, annotation and default of each argument or field."""
    found, module = _find(name, module)
    calls = [d for d in found.decorator_list if isinstance(d, ast.Call)]
    if isinstance(found, ast.ClassDef):
        for base in found.bases:
            yield from _declared(ast.unparse(base), module)
        for line in found.body:
            if isinstance(line, ast.AnnAssign) and ast.unparse(line.target) != "_":
                yield ast.unparse(line.target), line.annotation, line.value
    elif calls:  # takes(PlanArguments, PlanError)
        yield from _declared(ast.unparse(calls[0].args[0]), module)
    else:
        taken = found.args
        both = [*taken.args, *taken.kwonlyargs]
        values = [*taken.defaults, *taken.kw_defaults]
        values = [*[None] * (len(both) - len(values)), *values]
        for each, value in zip(both, values, strict=True):
            yield each.arg, each.annotation, value


def _default(value: ast.expr | None) -> Any:
    if value is None:
        return MISSING
    return value.value if isinstance(value, ast.Constant) else None


def _entries(docstring: str) -> Iterator[tuple[list[str], str]]:
    """Split the parameters of a docstring into names, separated by commas, and text."""
    _, _, part = docstring.partition("Parameters\n----------\n")
    part = re.split(r"\n\n\w+\n-+\n", part)[0]
    for names, text in re.findall(r"^(\w.*)\n((?:(?: +.*)?(?:\n|\Z))+)", part, re.M):
        yield names.split(", "), " ".join(text.split())

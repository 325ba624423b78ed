"""Compile functions by XLA, once in a process for arguments of one form, and once on a
machine. `jax.jit` finds its program on disk only after it traced and lowered the
function anew, which takes longer than loading the program. Here the executable is kept
under a key that needs no trace: the function's name, the names of its static arguments,
the form of its other arguments, and all else that a program depends on (`store`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass
from functools import cached_property, lru_cache, partial, singledispatch
from threading import Lock
from typing import Any
from weakref import WeakSet

import numpy as np

from bayeslaw._base.programs import store

# LLVM's levels for programs that run a few times, and for programs that run for
# seconds. The default (3) takes longer to compile and runs no faster (docs/speed.md).
ONCE, OFTEN = 0, 1
LEVEL = "xla_backend_optimization_level"
# without its newer fusion XLA compiles the sampler in half of the time and runs it as
# fast (jaxlib 0.10.2; later versions have no such option); compiling one module, not up
# to 32 with a copy of the mathematical functions each, takes two thirds of the
# processor's time
FASTER_COMPILER = {
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}


def keeps_programs(variable: str = "BAYESLAW_PROGRAMS") -> bool:
    """Tell whether programs are kept as executables. They are, unless the environment
    variable says ``off``: then every function is a plain `jax.jit`, and only JAX's own
    cache is used. Results are the same.
    """
    return os.environ.get(variable) != "off"


@lru_cache(maxsize=8)
def compiler_options(level: int) -> dict[str, Any]:
    """Choose the level and `FASTER_COMPILER`, without options that the user set in
    XLA_FLAGS or that this XLA does not know.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    wanted = FASTER_COMPILER | {LEVEL: level}
    options = {name: value for name, value in wanted.items() if name not in flags}
    if _are_known(options):
        return options
    return {name: value for name, value in options.items() if _are_known({name: value})}


def _are_known(options: dict[str, Any]) -> bool:
    """Tell whether XLA accepts these compiler options, by compiling a trivial program."""
    import jax

    try:
        jax.jit(lambda: 0.0, compiler_options=options).lower().compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True


class Compiled:
    """A function that is compiled by `compiled`; call it with positional arguments."""

    def __init__(
        self,
        function: Callable,
        static_argnums: tuple[int, ...],
        level: int,
        many: int,
        most: int,
    ):
        self._function = function
        self._static = static_argnums
        self._level = level
        self._many = many
        self._most = most
        self._programs: dict[Hashable, Callable] = {}
        self._making: dict[Hashable, Lock] = {}
        _all.add(self)

    def __call__(self, *arguments: Any) -> Any:
        import jax
        from jax.core import Tracer

        config: Any = jax.config
        at = range(len(arguments))
        static = [arguments[i] for i in at if i in self._static]
        dynamic = [arguments[i] for i in at if i not in self._static]
        leaves, tree = jax.tree.flatten(dynamic)
        if any(isinstance(leaf, Tracer) for leaf in leaves):
            return self._traced(*arguments)  # inside the trace of another program
        level = OFTEN if sum(map(_size, leaves)) > self._many else self._level
        name = self._name(static) if keeps_programs() else None
        if name is None or config.jax_disable_jit:
            return self._jitted[level](*arguments)
        form = (name, level, tree, tuple(map(_form, leaves)))
        program = self._programs.get(form)
        if program is None:
            program = self._made(form, level, arguments)
        return program(*dynamic)

    def _made(self, form: tuple, level: int, arguments: tuple) -> Callable:
        """Get the program for this form, from disk or compiled now. One thread makes
        it; others that need it wait.
        """
        with self._making.setdefault(form, Lock()):
            program = self._programs.get(form)
            if program is None:

                def lowering() -> Any:
                    # `_jitted` asks XLA for its options; a program from disk needs none
                    return self._jitted[level].lower(*arguments)

                # the text of a tree has the names of its nodes
                words = repr((form[0], level, str(form[2]), form[3]))
                program = store.load_or_compile(lowering, words)
                self._programs[form] = program
                while len(self._programs) > self._most:
                    oldest = next(iter(self._programs))
                    self._programs.pop(oldest, None)
        return program

    def _name(self, static: list) -> tuple[str | None, ...] | None:
        """Name the function and its static arguments; None if one of them has no unique
        name.
        """
        names = [program_name(argument) for argument in (self._function, *static)]
        if None in names:
            return None
        return tuple(names)

    @cached_property
    def _traced(self) -> Callable:
        import jax

        return jax.jit(self._function, static_argnums=self._static)

    @cached_property
    def _jitted(self) -> dict[int, Any]:
        """Make the jitted function of each level of optimisation."""
        import jax

        return {
            level: jax.jit(
                self._function,
                static_argnums=self._static,
                compiler_options=compiler_options(level),
            )
            for level in {self._level, OFTEN}
        }

    def forget(self) -> None:
        """Drop all programs."""
        self._programs.clear()
        self._making.clear()

    def count(self) -> int:
        """Count the programs."""
        unnamed = sum(jitted._cache_size() for jitted in self._jitted.values())
        return len(self._programs) + unnamed


_all: WeakSet[Compiled] = WeakSet()


def forget_programs() -> None:
    """Drop all programs of this process, like `jax.clear_caches` for JAX's programs."""
    for function in _all:
        function.forget()


def compiled(
    function: Callable | None = None,
    *,
    static_argnums: int | tuple[int, ...] = (),
    level: int = ONCE,
    many: int = 20_000,
    most: int = 64,
) -> Any:
    """Compile a function like `jax.jit`, if compiling takes seconds. A call inside the
    trace of another program makes the function a part of that program, whose level
    holds for both. JAX does not start before the first call.

    Parameters
    ----------
    static_argnums
        Arguments that a program is compiled for: numbers, text, this package's
        functions, records of these, and types that `program_name` knows. With any other
        type the function is a plain `jax.jit`.
    level
        `ONCE` or `OFTEN`.
    many
        Count of numbers in the arguments from which the level is always `OFTEN`: the
        program then runs long enough to be worth its compiling.
    most
        Most programs of one function that a process keeps, the newest ones. Each takes
        a few memory maps, and a system allows some ten thousand maps.
    """
    if function is None:
        return partial(
            compiled,
            static_argnums=static_argnums,
            level=level,
            many=many,
            most=most,
        )
    static = (static_argnums,) if isinstance(static_argnums, int) else static_argnums
    return Compiled(function, static, level, many, most)


@singledispatch
def program_name(static: Any) -> str | None:
    """Give a static argument a unique name; None if no name is known to be unique.
    Records of other rooms register their own way.
    """
    if isinstance(static, int | str | float | None):
        return repr(static)
    if isinstance(static, tuple):
        parts = [program_name(part) for part in static]
        return None if None in parts else repr(parts)
    if hasattr(static, "program_name"):
        return static.program_name
    if is_dataclass(static) and not isinstance(static, type):
        kind = _function_name(type(static))
        values = [getattr(static, field.name) for field in fields(static)]
        return program_name((kind, *values)) if kind else None
    return _function_name(static)


def _function_name(function: Any) -> str | None:
    """Name a function of this package by its module; None for any other function. The
    store's keys hold the package's source.
    """
    module = getattr(function, "__module__", "")
    name = getattr(function, "__qualname__", "<")
    is_ours = module.partition(".")[0] == __name__.partition(".")[0]
    return f"{module}.{name}" if is_ours and "<" not in name else None


def _size(leaf: Any) -> int:
    return getattr(leaf, "size", 1)


def _form(leaf: Any) -> tuple:
    """Describe what a program is compiled for in one array: shape, type and device."""
    if isinstance(leaf, np.ndarray):  # the most frequent case, which is fast
        return leaf.shape, leaf.dtype, False, ""
    import jax

    shape = tuple(getattr(leaf, "shape", ()))
    if isinstance(leaf, jax.Array):
        where = str(leaf.sharding) if leaf.committed else ""
        return shape, leaf.dtype, leaf.weak_type, where
    dtype = getattr(leaf, "dtype", None)
    # a plain number takes the type of the arrays it is combined with
    return shape, dtype or type(leaf).__name__, dtype is None, ""

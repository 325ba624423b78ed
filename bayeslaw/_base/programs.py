"""Compile functions by XLA with options of the compiler that suit each of them. In a
process each is compiled once for arguments of one form. JAX keeps the programs on disk
(`machine.runtime`), so that later processes only trace and lower them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

# LLVM's levels for programs that run a few times, and for programs that run for
# seconds. The default (3) takes longer to compile and runs no faster (docs/speed.md).
ONCE, OFTEN = 0, 1
MOST = 64  # programs of a function: each takes a few of a process's memory maps
LEVEL = "xla_backend_optimization_level"
# without its newer fusion XLA compiles the sampler in half of the time and runs it as
# fast (jaxlib 0.10.2; later versions have no such option); compiling one module, not up
# to 32 with a copy of the mathematical functions each, takes two thirds of the
# processor's time
FASTER_COMPILER = {
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}


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
        self, function: Callable, static: tuple[int, ...], level: int, many: int
    ):
        self._function = function
        self._static = static
        self._level = level
        self._many = many
        self._jitted: dict[int | None, Any] = {}  # by level; None: within a program

    def __call__(self, *arguments: Any) -> Any:
        import jax
        from jax.core import Tracer

        at = range(len(arguments))
        leaves = jax.tree.leaves([arguments[i] for i in at if i not in self._static])
        level: int | None = self._level
        if any(isinstance(leaf, Tracer) for leaf in leaves):
            level = None  # a part of the program whose trace this is, at its level
        elif sum(getattr(leaf, "size", 1) for leaf in leaves) > self._many:
            level = OFTEN
        jitted = self._jitted.get(level)
        if jitted is None:
            options = None if level is None else compiler_options(level)
            jitted = jax.jit(
                self._function, static_argnums=self._static, compiler_options=options
            )
            # another thread may have made it, too
            jitted = self._jitted.setdefault(level, jitted)
        elif jitted._cache_size() > MOST:
            jitted.clear_cache()
        return jitted(*arguments)

    def count(self) -> int:
        """Count the programs in this process."""
        return sum(jitted._cache_size() for jitted in self._jitted.values())


def compiled(
    function: Callable | None = None,
    *,
    static_argnums: int | tuple[int, ...] = (),
    level: int = ONCE,
    many: int = 20_000,
) -> Any:
    """Compile a function like `jax.jit`. A call inside the trace of another program
    makes the function a part of that program, whose level holds for both. JAX does not
    start before the first call.

    Parameters
    ----------
    static_argnums
        Arguments that a program is compiled for; they are hashable, and equal ones
        share a program.
    level
        `ONCE` or `OFTEN`.
    many
        Count of numbers in the arguments from which the level is always `OFTEN`: the
        program then runs long enough to be worth its compiling.
    """
    if function is None:
        return partial(compiled, static_argnums=static_argnums, level=level, many=many)
    static = (static_argnums,) if isinstance(static_argnums, int) else static_argnums
    return Compiled(function, static, level, many)

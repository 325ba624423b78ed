"""Where JAX is set up (float64, one host device per core for the chains, a compilation
cache on disk), and threads.

Called by everything that computes posteriors, and by nothing at import. Contributions
of a few nats are told apart to a thousandth while floor and coefficients cancel:
float32 is not enough for the sampler's energy.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

from bayeslaw._base.program_cache import drop_damaged

CACHE_VARIABLE = "BAYESLAW_CACHE"
MAX_CORES = 4  # one chain each
# compiles the sampler in half of the time and runs it as fast (jaxlib 0.10.2)
FASTER_COMPILER = {"xla_cpu_use_fusion_emitters": False}
# iterations of a chain; one number everywhere, as each is a compiled program of its own
WARMUP = 500


def cores() -> int:
    """Cores this process may use."""
    return (
        len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else (os.cpu_count() or 1)
    )


def cache_folder() -> Path | None:
    """Folder of compiled programs: $BAYESLAW_CACHE, else the user's cache; None when
    that is set to nothing.
    """
    named = os.environ.get(CACHE_VARIABLE)
    if named == "":
        return None
    return (
        Path(named)
        if named
        else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        / "bayeslaw"
    )


@lru_cache(maxsize=1)
def start() -> None:
    """Set precision, host devices and compilation cache. Does nothing the second time.

    A JAX backend that already runs keeps its devices; the chains then share them.
    """
    import jax

    jax.config.update("jax_enable_x64", True)
    with contextlib.suppress(RuntimeError):  # the backend already runs
        jax.config.update("jax_num_cpu_devices", min(cores(), MAX_CORES))
    folder = cache_folder()
    if folder is not None:
        drop_damaged(folder)
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


@lru_cache(maxsize=1)
def _compiler_options() -> dict[str, bool] | None:
    """`FASTER_COMPILER`, unless the user set it in XLA_FLAGS or this XLA has no such
    option.
    """
    import jax

    if any(option in os.environ.get("XLA_FLAGS", "") for option in FASTER_COMPILER):
        return None
    try:
        jax.jit(lambda: 0.0, compiler_options=FASTER_COMPILER).lower().compile()
    except jax.errors.JaxRuntimeError:
        return None
    return FASTER_COMPILER


class Compiled:
    """A function that is compiled by `compiled`; call it with positional arguments."""

    def __init__(self, function: Callable, static_argnums: int | tuple[int, ...]):
        self._function = function
        self._static_argnums = static_argnums

    @cached_property
    def _program(self) -> Any:
        import jax

        return jax.jit(
            self._function,
            static_argnums=self._static_argnums,
            compiler_options=_compiler_options(),
        )

    def __call__(self, *arguments: Any) -> Any:
        return self._program(*arguments)

    def _cache_size(self) -> int:
        """How many programs there are, as a `jax.jit` says it."""
        return self._program._cache_size()


def compiled(
    function: Callable | None = None, *, static_argnums: int | tuple[int, ...] = ()
) -> Any:
    """`jax.jit` for programs that take seconds to compile: `FASTER_COMPILER` holds for
    them alone.

    Not for a program that another calls while it is traced: JAX takes options of the
    outermost only. They are asked for at the first call, so that nothing of JAX starts
    when a module is imported.
    """
    if function is None:
        return partial(compiled, static_argnums=static_argnums)
    return Compiled(function, static_argnums)


@contextlib.contextmanager
def threads(most: int | None = None) -> Iterator[ThreadPoolExecutor]:
    """Threads of this process, one a core; what waits when an error or an interruption
    leaves is not begun.
    """
    pool = ThreadPoolExecutor(most or cores())
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)

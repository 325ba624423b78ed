"""Where JAX is set up (float64, one host device per core for the chains, a compilation cache on disk), and other machines.

Called by everything that computes posteriors, and by nothing at import. Contributions of a few nats are told apart
to a thousandth while floor and coefficients cancel: float32 is not enough for the sampler's energy.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, as_completed
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import TypeVar

from bayeslaw._errors import BayeslawError

Result = TypeVar("Result")

CACHE_VARIABLE = "BAYESLAW_CACHE"
MAX_CORES = 4  # one chain each
CONNECT_SECONDS = 10
FASTER_COMPILER = "--xla_cpu_use_fusion_emitters=false"  # compiles our programs in 60% of the time, runs them as fast
KNOWN_JAXLIB = "0.10."  # XLA ends the process over a flag that it does not know
WARMUP = 500  # iterations of a chain; one number everywhere, as each is a compiled program of its own


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def cache_folder() -> Path | None:
    """Folder of compiled programs: $BAYESLAW_CACHE, else the user's cache; None when that is set to nothing."""
    named = os.environ.get(CACHE_VARIABLE)
    if named == "":
        return None
    return Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bayeslaw"


@lru_cache(maxsize=1)
def start() -> None:
    """Set precision, host devices and compilation cache. Does nothing the second time.

    A JAX backend that already runs keeps its devices; the chains then share them.
    """
    _hasten_compiler()
    import jax

    jax.config.update("jax_enable_x64", True)
    with contextlib.suppress(RuntimeError):  # the backend already runs
        jax.config.update("jax_num_cpu_devices", min(cores(), MAX_CORES))
    folder = cache_folder()
    if folder is not None:
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def _hasten_compiler() -> None:
    """XLA reads its flags when its backend starts; those that the user set stay as they are."""
    set_already = os.environ.get("XLA_FLAGS", "")
    if FASTER_COMPILER.split("=")[0] not in set_already and metadata.version("jaxlib").startswith(KNOWN_JAXLIB):
        os.environ["XLA_FLAGS"] = f"{set_already} {FASTER_COMPILER}".strip()


@contextlib.contextmanager
def threads(most: int | None = None) -> Iterator[ThreadPoolExecutor]:
    """Threads of this process, one a core; what waits when an error or an interruption leaves is not begun."""
    pool = ThreadPoolExecutor(most or cores())
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


@contextlib.contextmanager
def executor_at(scheduler: str | None) -> Iterator[Executor | None]:
    """An executor on the workers of a Dask scheduler (``tcp://host:8786``), or None without one.

    A worker that is lost has its tasks done again by others.

    Raises
    ------
    BayeslawError
        Dask is not installed, or nothing answers at the address.
    """
    if scheduler is None:
        yield None
        return
    try:
        from distributed import Client
    except ModuleNotFoundError:
        raise BayeslawError("a scheduler (--scheduler) needs Dask: pip install 'bayeslaw[dask]'") from None
    try:
        client = Client(scheduler, timeout=CONNECT_SECONDS)
    except (OSError, ValueError) as error:
        raise BayeslawError(
            f"no Dask scheduler answers at {scheduler!r}; start one (`dask scheduler`) and name its address ({type(error).__name__})"
        ) from None
    with client:
        yield client.get_executor()


def as_done(calls: Sequence[Callable[[], Result]], executor: Executor | None) -> Iterator[tuple[int, Result]]:
    """Index and result of each call as it is done: here one after another, or on an executor.

    Calls that an interruption finds waiting on the executor are taken back.
    """
    if executor is None:
        yield from ((i, call()) for i, call in enumerate(calls))
        return
    futures = {executor.submit(call): i for i, call in enumerate(calls)}
    try:
        yield from ((futures[future], future.result()) for future in as_completed(futures))
    finally:
        for future in futures:
            future.cancel()

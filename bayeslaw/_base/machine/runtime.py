"""Set up JAX (float64, one host device per core for the chains, a compilation cache on
disk), and start threads. All code that computes posteriors calls this; no import does.
The sampler's energy needs float64: contributions of a few nats must be exact to a
thousandth while floor and coefficients cancel.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

from bayeslaw._base.machine.cache import (
    clean,
    own_cache_folder,
    programs_folder,
    why_not_ours,
)

# iterations of a chain; one number everywhere, because each number needs its own
# compiled program
WARMUP = 500


def cores() -> int:
    """Count the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@lru_cache(maxsize=1)
def start() -> None:
    """Set precision, host devices, compilation cache, and what a worker does with freed
    memory. The second call does nothing. A JAX backend that already runs keeps its
    devices; the chains then share them.
    """
    import jax

    _keep_freed_memory()
    jax.config.update("jax_enable_x64", True)
    with contextlib.suppress(RuntimeError):  # the backend already runs
        chains = 4  # each on its own core
        jax.config.update("jax_num_cpu_devices", min(cores(), chains))
    cache = own_cache_folder(warn=True)
    folder = None if cache is None else programs_folder(cache)
    if folder is not None and why_not_ours(folder) is None:
        clean(folder)
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def _keep_freed_memory() -> None:
    """Let the heap keep freed memory if MALLOC_TRIM_THRESHOLD_ is set. Dask sets it to
    64 KiB for its workers. glibc then maps every array over 128 KiB anew, and the
    system clears it page by page. Posteriors took 2.2 times the CPU seconds, half of
    them in the system.
    """
    if sys.platform != "linux" or "MALLOC_TRIM_THRESHOLD_" not in os.environ:
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt is None:
        return
    # The values that glibc reaches by itself; the parameters' numbers are from its
    # malloc.h.
    mallopt(-3, 32 * 2**20)  # M_MMAP_THRESHOLD: bytes of an array from the heap
    mallopt(-1, 64 * 2**20)  # M_TRIM_THRESHOLD: bytes free at its end before it shrinks


@contextlib.contextmanager
def threads(most: int | None = None) -> Iterator[ThreadPoolExecutor]:
    """Start threads, one a core; after an error waiting work is not begun."""
    pool = ThreadPoolExecutor(most or cores())
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)

"""Set up JAX (float64, one host device per core for the chains, a compilation cache on
disk), and start threads. All code that computes posteriors calls this; no import does.
The sampler's energy needs float64: contributions of a few nats must be exact to a
thousandth while floor and coefficients cancel.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

from bayeslaw._base.machine import memory
from bayeslaw._base.programs.folder import (
    NO_FOLDER,
    drop_damaged,
    drop_foreign,
    forget_unused,
    why_not_ours,
)

CACHE_VARIABLE = "BAYESLAW_CACHE"
# iterations of a chain; one number everywhere, because each number needs its own
# compiled program
WARMUP = 500


def cores() -> int:
    """Count the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cache_folder() -> Path | None:
    """Find the folder of compiled programs: $BAYESLAW_CACHE, else the user's cache;
    None if the variable is set but empty.
    """
    folder = os.environ.get(CACHE_VARIABLE)
    if folder == "":
        return None
    if folder is not None:
        return Path(folder)
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "bayeslaw"


def own_cache_folder(warn: bool = False) -> Path | None:
    """Make `cache_folder` if it is missing. None if it cannot be made. None, with a
    warning, if others than the user may write programs there.
    """
    folder = cache_folder()
    doubt = None if folder is None else why_not_ours(folder)
    if doubt is None:
        return folder
    if warn and doubt != NO_FOLDER:
        warnings.warn(
            f"compiled programs are neither read from {folder} nor kept there, as "
            f"{doubt} and so could run code as you; give {CACHE_VARIABLE} a folder of "
            "your own that only you may write to (chmod 700)",
            RuntimeWarning,
            stacklevel=3,
        )
    return None


@lru_cache(maxsize=1)
def start() -> None:
    """Set precision, host devices, compilation cache, and what a worker does with freed
    memory. The second call does nothing. A JAX backend that already runs keeps its
    devices; the chains then share them.
    """
    import jax

    memory.keep_freed()
    jax.config.update("jax_enable_x64", True)
    with contextlib.suppress(RuntimeError):  # the backend already runs
        chains = 4  # each on its own core
        jax.config.update("jax_num_cpu_devices", min(cores(), chains))
    folder = own_cache_folder(warn=True)
    if folder is not None:
        drop_foreign(folder)
        drop_damaged(folder)
        forget_unused(folder)
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


@contextlib.contextmanager
def threads(most: int | None = None) -> Iterator[ThreadPoolExecutor]:
    """Start threads of this process, one a core. After an error or an interruption,
    waiting work is not begun.
    """
    pool = ThreadPoolExecutor(most or cores())
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)

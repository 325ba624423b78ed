"""Where JAX is set up (float64, one host device per core for the chains, a compilation
cache on disk), and threads.

Called by everything that computes posteriors, and by nothing at import. Contributions
of a few nats are told apart to a thousandth while floor and coefficients cancel:
float32 is not enough for the sampler's energy.
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
# iterations of a chain; one number everywhere, as each is a compiled program of its own
WARMUP = 500


def cores() -> int:
    """Count the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cache_folder() -> Path | None:
    """Find the folder of compiled programs: $BAYESLAW_CACHE, else the user's cache;
    None when that is set to nothing.
    """
    folder = os.environ.get(CACHE_VARIABLE)
    if folder == "":
        return None
    if folder is not None:
        return Path(folder)
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "bayeslaw"


def own_cache_folder(warn: bool = False) -> Path | None:
    """Make `cache_folder` where it is missing; None where it cannot be, or where anyone
    but the user may put programs, of which a warning tells.
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
    """Set precision, host devices, compilation cache, and what a worker does with memory
    that it frees. Does nothing the second time.

    A JAX backend that already runs keeps its devices; the chains then share them.
    """
    import jax

    memory.keep_freed()
    jax.config.update("jax_enable_x64", True)
    with contextlib.suppress(RuntimeError):  # the backend already runs
        chains = 4  # a core each
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
    """Start threads of this process, one a core; what waits when an error or an
    interruption leaves is not begun.
    """
    pool = ThreadPoolExecutor(most or cores())
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)

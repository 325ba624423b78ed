"""Memory that is freed, kept for what is asked for next."""

from __future__ import annotations

import ctypes
import os
import sys


def keep_freed() -> None:
    """Let the heap keep what is freed where MALLOC_TRIM_THRESHOLD_ is set.

    Dask sets it to 64 KiB for its workers. glibc then maps every array over 128 KiB
    anew, and the system clears it page by page: posteriors took 2.2 times the CPU
    seconds, half of them the system's.
    """
    if sys.platform != "linux" or "MALLOC_TRIM_THRESHOLD_" not in os.environ:
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt is None:
        return
    # Where glibc ends up by itself; the parameters' numbers are those of its malloc.h.
    mallopt(-3, 32 * 2**20)  # M_MMAP_THRESHOLD: bytes of an array from the heap
    mallopt(-1, 64 * 2**20)  # M_TRIM_THRESHOLD: bytes free at its end before it shrinks

"""Memory that is freed, kept for what is asked for next."""

from __future__ import annotations

import ctypes
import os
import sys

# parameters of mallopt, in glibc's malloc.h
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
# bytes up to which an array comes from the heap, and that are free at its end before it
# shrinks: where glibc ends up by itself
LARGEST, MOST_FREE = 32 * 2**20, 64 * 2**20


def keep_freed() -> None:
    """Let the heap keep what is freed where MALLOC_TRIM_THRESHOLD_ is set.

    Dask sets it to 64 KiB for its workers. glibc then maps every array over 128 KiB
    anew, and the system clears it page by page: posteriors took 2.2 times the CPU
    seconds, half of them the system's.
    """
    if sys.platform != "linux" or "MALLOC_TRIM_THRESHOLD_" not in os.environ:
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGEST)
        mallopt(M_TRIM_THRESHOLD, MOST_FREE)

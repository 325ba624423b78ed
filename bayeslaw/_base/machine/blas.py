"""Linear algebra on one thread where many small systems are solved.

Threads of the linear-algebra library gain nothing on matrices of a few hundred rows, or
of thousands by a dozen columns, and wait for each other in a spin: beside other work
the same solves took 20 times as long. How many there are also decides in which order a
product is summed, and so its last digits: on one thread they are the same on machines
with one core and with many.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController


class _OneThread:
    """While any thread of the process is inside, BLAS works on one thread.

    The limit is the process's: the first in sets it, and the last out takes it back.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if not self._inside:
                self._limits = _apart(_limits)
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if not self._inside:
                    _apart(self._limits.restore_original_limits)


def _limits() -> Any:
    return _libraries().limit(limits=1, user_api="blas")


@cache
def _libraries() -> ThreadpoolController:
    """Find NumPy's and SciPy's BLAS, of which each has its own: looking for them takes
    longer than many a solve.
    """
    import scipy.special  # noqa: F401 - loads SciPy's

    return ThreadpoolController()


def _apart(call: Callable[[], Any]) -> Any:
    """What a call returns, in a thread that ends with it: `threadpoolctl` lets no other
    thread change OpenBLAS while the one that did it last is alive.
    """
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


one_thread = _OneThread()

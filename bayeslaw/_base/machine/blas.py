"""Run linear algebra on one thread where many small systems are solved. Threads of the
linear-algebra library gain nothing on matrices of a few hundred rows, or of thousands
of rows by a dozen columns. They wait for each other in busy loops: beside other work
the same solves took 20 times as long. The number of threads also sets the order in
which a product is summed, and so its last digits. On one thread results are the same on
machines with one core and with many.
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
    """Limit BLAS to one thread while any thread of the process is inside. The limit
    holds for the whole process: the first thread in sets it, and the last thread out
    lifts it.
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
    """Find the BLAS libraries of NumPy and SciPy; each has its own. They are found
    once, because the search takes longer than many solves.
    """
    import scipy.special  # noqa: F401 - loads SciPy's

    return ThreadpoolController()


def _apart(call: Callable[[], Any]) -> Any:
    """Call a function in a new thread and return its result. The thread ends with the
    call: `threadpoolctl` lets no other thread change OpenBLAS while the last thread
    that changed it is alive.
    """
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


one_thread = _OneThread()

"""Linear algebra on one thread where many small systems are solved.

Threads of the linear-algebra library gain nothing on matrices of a few hundred rows, or
of thousands by a dozen columns, and wait for each other in a spin: beside other work
the same solves took 20 times as long.
"""

from __future__ import annotations

from threadpoolctl import threadpool_limits


def one_thread() -> threadpool_limits:
    """A context in which BLAS works on one thread."""
    return threadpool_limits(limits=1, user_api="blas")

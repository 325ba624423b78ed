"""Run work on other machines, and return results as they are done."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import (
    CancelledError,
    Executor,
    ProcessPoolExecutor,
    as_completed,
)
from typing import TypeVar

from bayeslaw._base.errors import BayeslawError, WorkersError

Result = TypeVar("Result")


@contextlib.contextmanager
def executor_at(
    scheduler: str | None, timeout: float = 10.0
) -> Iterator[Executor | None]:
    """Connect an executor to the workers of a Dask scheduler (``tcp://host:8786``);
    None without an address. If a worker is lost, others do its tasks again.
    ``timeout``: seconds within which the scheduler must answer, and within which it is
    left.

    Raises
    ------
    BayeslawError
        Dask is not installed, or nothing answers at the address.
    WorkersError
        The scheduler was lost during the work, or several workers were lost at one
        task.
    """
    if scheduler is None:
        yield None
        return
    try:
        from distributed import Client, KilledWorker
        from distributed.comm.core import CommClosedError
    except ModuleNotFoundError:
        raise BayeslawError(
            "a scheduler (--scheduler) needs Dask: pip install 'bayeslaw[dask]'"
        ) from None
    try:
        client = Client(scheduler, timeout=timeout)
    except (OSError, ValueError) as error:
        raise BayeslawError(
            f"no Dask scheduler answers at {scheduler!r}; start one (`dask scheduler`) "
            f"and name its address ({type(error).__name__})"
        ) from None
    try:
        # With pure=True Dask would digest all arguments to find equal calls, which
        # takes longer than sending them.
        yield client.get_executor(pure=False)
    except (CancelledError, CommClosedError, KilledWorker) as error:
        raise WorkersError(
            f"the Dask scheduler at {scheduler!r}, or worker after worker at one task, was "
            f"lost ({type(error).__name__}); start it again, with more memory a worker if "
            "they were killed, and repeat the command"
        ) from None
    finally:
        # leave the scheduler; if it is gone, neither wait nor complain
        with contextlib.suppress(TimeoutError, OSError, RuntimeError):
            client.close(timeout=timeout)


def as_done(
    calls: Sequence[Callable[[], Result]], executor: Executor | None
) -> Iterator[tuple[int, Result]]:
    """Yield the index and result of each call as it is done: one after another here, or
    on an executor. An interruption cancels calls that wait on the executor.

    Raises
    ------
    WorkersError
        The executor would fork this process.
    """
    if executor is None:
        yield from ((i, call()) for i, call in enumerate(calls))
        return
    _refuse_forks(executor)
    futures = {executor.submit(call): i for i, call in enumerate(calls)}
    try:
        # do not keep results: the caller may not need them any more
        yield from (
            (futures.pop(future), future.result()) for future in as_completed(futures)
        )
    finally:
        for future in futures:
            future.cancel()


def _refuse_forks(executor: Executor) -> None:
    """Refuse a pool whose processes would begin as forks of this one: JAX's threads do
    not live on in a fork, so it would wait for them for ever.
    """
    if not isinstance(executor, ProcessPoolExecutor):
        return
    context = getattr(executor, "_mp_context", None)
    has_started = bool(getattr(executor, "_processes", None))
    if has_started or context is None or context.get_start_method() != "fork":
        return
    raise WorkersError(
        "a ProcessPoolExecutor that forks would hang, because JAX runs threads in this "
        "process; pass ProcessPoolExecutor("
        'mp_context=multiprocessing.get_context("forkserver"))'
    )

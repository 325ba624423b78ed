"""Start processes for a study's jobs. Each stays on its own core, as `docs/howto` advises
for workers, so that N processes share a machine without waiting for each other's threads.
"""

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any


@contextmanager
def processes(count: int) -> Iterator[Executor | None]:
    """Open an executor of ``count`` processes; None, which is to run here, of one."""
    if count < 2:
        yield None
        return
    context = multiprocessing.get_context("spawn")
    started = context.Value("i", 0)
    with ProcessPoolExecutor(count, context, _keep_to_a_core, (started,)) as executor:
        yield executor


def _keep_to_a_core(started: Any) -> None:
    """Bind this process to the next core, before it imports what starts threads."""
    with started.get_lock():
        turn = started.value
        started.value += 1
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[turn % len(cores)]})

"""Draw many posteriors of one law, for folds, resamples and designs.

One compiled program serves all: importance sampling around the mode if its k-hat
allows, else NUTS, started at that mode. Refits run here one after another, or on any
`concurrent.futures.Executor`. Each has its own seed, so the numbers do not depend on
where or in which task they are computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import numpy as np
import pandas as pd

from bayeslaw._base.errors import LawError, RunTableError
from bayeslaw._base.frames import Table
from bayeslaw._base.machine import executors, runtime
from bayeslaw._base.machine.blas import one_thread
from bayeslaw._base.progress.time_left import Progress
from bayeslaw._base.streams import generator
from bayeslaw._inference import coordinates
from bayeslaw._inference.coordinates import ContrastPoints
from bayeslaw._inference.importance import Importance, approximate
from bayeslaw._inference.modes import find_peaks, start_near_mode
from bayeslaw._inference.nuts import NUTS, draw, whitened_at
from bayeslaw._inference.table import Padded, pad, shared_error
from bayeslaw._law.law import Law
from bayeslaw._posteriors.fits.candidates import law_for
from bayeslaw._tables import fitting
from bayeslaw._tables.runs import as_runs

if TYPE_CHECKING:
    from jaxtyping import Float, Real, UInt

    from bayeslaw._base.arrays import AnyArray

MOST_TO_A_TASK = 8  # most refits in one task of an executor


class Refit(NamedTuple):
    """A posterior of a table.

    ``values``: equally weighted draws of the law's values and of the error, each of
    shape (draw,); ``note``: ``sampler`` in words, ``rhat`` (NaN without chains),
    ``ess``, ``divergences``, and the number of ``draws``.
    """

    values: dict[str, Float[np.ndarray, " draw"]]
    note: dict[str, Any]


def refit(
    law: Law,
    table: Padded,
    points: ContrastPoints,
    starts: Float[AnyArray, "start coordinate"],
    *,
    seed: int,
    importance: Importance = Importance(),
    nuts: NUTS | Mapping[str, int] = NUTS(draws=300, max_draws=1200),
) -> Refit:
    """Draw from the posterior of a table, by chains (``nuts``) where the weights of
    importance sampling miss its limits. The mode is searched from ``starts``.
    """
    peaks = find_peaks(law, table, points, starts)
    approximation = approximate(
        law, table, points, peaks, seed=seed, enough=importance.enough
    )
    if approximation.is_trusted(importance.min_ess):
        note = {
            "sampler": f"importance sampling, k-hat {approximation.k:.2f}",
            "rhat": float("nan"),
            "ess": approximation.ess,
            "divergences": 0,
            "draws": importance.draws,
        }
        return Refit(approximation.resample(importance.draws, seed), note)
    sampler = nuts if isinstance(nuts, NUTS) else NUTS(**nuts)
    posterior = whitened_at(table, points, peaks[0])
    return Refit(*draw(law, posterior, sampler, seed=seed))


def refits(
    runs: Table,
    law: Law | str,
    weights: Real[np.ndarray, "refit row"],
    *,
    independent: bool = False,
    draws: int = Importance.draws,
    seed: int = 0,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> list[Refit]:
    """Draw posteriors of a law on a table whose rows have different weights each time.

    Parameters
    ----------
    runs
        A table as `read_runs` returns it.
    weights
        Number of times that each row counts, shape (refit, row): 0 and 1 for folds,
        counts for a bootstrap (`bootstrap_weights`).
    draws
        Draws of each posterior by importance sampling. The number of draws by chains
        follows from their settings.
    independent
        Take the errors of rows as independent (see `fit`).
    executor
        Where to run, in tasks of a few refits; by default in this process. Workers need
        this package. Processes are spawned, not forked:
        ``ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn"))``.
    progress
        Called with refits done and to do.

    Raises
    ------
    RunTableError, LawError
        The table cannot be used, or the weights do not fit it.

    Examples
    --------
    >>> weights = bayeslaw.bootstrap_weights(len(pretrained), 3)
    >>> drawn = bayeslaw.refits(pretrained, "chinchilla", weights, draws=100)
    >>> len(drawn), drawn[0].values["alpha"].shape
    (3, (100,))
    """
    runs = as_runs(runs)
    law = law_for(law, runs)
    fitting.check_fittable(law, runs)
    weights = np.atleast_2d(np.asarray(weights, float))
    if weights.shape[1] != len(runs):
        raise RunTableError(
            f"weights of {weights.shape[1]} rows for a table of {len(runs)}; give one a "
            "row"
        )
    are_counts = np.isfinite(weights).all() and (weights >= 0).all()
    if not (are_counts and (weights.sum(axis=1) > 0).all()):
        raise LawError(
            "weights of rows are counts: give numbers of 0 and above, not all 0"
        )
    runtime.start()
    covariates, y = fitting.covariates(law, runs), fitting.log_losses(runs)
    errors = shared_error(runs)
    table = pad(covariates, y, errors.independent if independent else errors)
    points = coordinates.contrast_points(law, covariates)
    problem = RefitProblem(uuid4().hex, law, table, points, seed)
    padded = np.zeros((len(weights), len(table.weight)))
    padded[:, : len(runs)] = weights
    seeds = np.random.SeedSequence(seed).generate_state(len(weights))
    importance = Importance(draws)
    jobs = [
        (problem, padded[rows], seeds[rows], importance)
        for rows in _tasks(len(weights))
    ]
    return spread(_refit_some, jobs, executor, progress, len(weights))


def _tasks(refits: int) -> list[slice]:
    """Divide refits into tasks by guided self-scheduling (Polychronopoulos and Kuck
    1987): each task takes a share of the remaining refits, so the last tasks are small
    and workers end together.
    """
    tasks, first = [], 0
    while first < refits:
        size = min(MOST_TO_A_TASK, max(1, (refits - first) // 16))
        tasks.append(slice(first, first + size))
        first += size
    return tasks


@dataclass(frozen=True)
class RefitProblem:
    """The problem that all refits of a call share; ``key`` identifies the call."""

    key: str
    law: Law = field(compare=False)
    table: Padded = field(compare=False)
    points: ContrastPoints = field(compare=False)
    seed: int = field(compare=False)


@lru_cache(maxsize=4)
def _find_start(problem: RefitProblem) -> Float[np.ndarray, "1 coordinate"]:
    """Find the start of the refits' searches: the mode with every row counted once.

    Every process that works on the problem searches it once: if the client did, all
    workers would wait.
    """
    with one_thread():
        start = start_near_mode(
            problem.law, problem.table, problem.points, problem.seed
        )
    return start[None]


def _refit_some(
    problem: RefitProblem,
    weights: Float[np.ndarray, "refit row"],
    seeds: UInt[np.ndarray, " refit"],
    importance: Importance,
) -> list[Refit]:
    runtime.start()
    return [
        refit(
            problem.law,
            problem.table._replace(weight=weight),
            problem.points,
            _find_start(problem),
            seed=int(seed),
            importance=importance,
        )
        for weight, seed in zip(weights, seeds, strict=True)
    ]


def spread(
    task: Callable[..., list],
    jobs: Sequence[tuple],
    executor: Executor | None,
    progress: Progress | None = None,
    total: int | None = None,
) -> list:
    """Map a task, which returns a list, over jobs in order, here or elsewhere."""
    results: dict[int, list] = {}
    calls = [partial(task, *job) for job in jobs]
    done = 0
    for i, part in executors.as_done(calls, executor):
        results[i] = part
        done += len(part)
        if progress:
            progress(done, total or len(jobs))
    return [result for i in range(len(jobs)) for result in results[i]]


def bootstrap_weights(
    rows: int, resamples: int, *, seed: int = 0, group: Sequence | None = None
) -> Float[np.ndarray, "resample row"]:
    """Count how often each row is drawn in each bootstrap resample, shape (resample,
    row). With ``group``, whole groups are drawn.

    Examples
    --------
    >>> weights = bayeslaw.bootstrap_weights(5, 3, seed=0)
    >>> weights.shape, weights.sum(axis=1).tolist()
    ((3, 5), [5.0, 5.0, 5.0])
    """
    code = np.arange(rows) if group is None else pd.factorize(np.asarray(group))[0]
    groups = int(code.max()) + 1
    counts = generator(seed).multinomial(
        groups, np.full(groups, 1 / groups), size=resamples
    )
    return counts[:, code].astype(float)

"""``refits``: many posteriors of one law, as folds, resamples and designs need them.

One compiled program serves them all: importance sampling around the mode where its k-hat allows, and NUTS, started
at that mode, where not. They run here one after another, or on any `concurrent.futures.Executor`; each has its own seed,
so that the numbers do not depend on who computed them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array

from bayeslaw import _engine, _geometry, _runs
from bayeslaw._approximate import approximate
from bayeslaw._engine import WARMUP
from bayeslaw._errors import LawError, RunTableError
from bayeslaw._formula import find_law
from bayeslaw._law import Law
from bayeslaw._padding import Padded, pad
from bayeslaw._shared_error import NONE, shared_error

DRAWS, MIN_ESS = 1000, 200  # of a refit; effective draws of the weights below which NUTS takes over
NUTS = {"chains": 4, "warmup": WARMUP, "draws": 300, "max_draws": 1200}
CHUNK = 8  # refits to a task on an executor


class NotTrusted(LawError):
    """Importance sampling cannot be trusted, and chains were not asked for."""


class Refit(NamedTuple):
    """A posterior of a table.

    ``values``: equally weighted draws of the law's values and of the error, each of shape (draw,); ``note``: ``sampler`` in
    words, ``rhat`` (not a number without chains), ``ess``, ``divergences``.
    """

    values: dict[str, np.ndarray]
    note: dict[str, Any]


def refit(
    law: Law,
    table: Padded,
    at: _geometry.Anchors,
    starts: Array | np.ndarray,
    *,
    seed: int,
    draws: int = DRAWS,
    min_ess: float = MIN_ESS,
    nuts: dict | None = NUTS,
) -> Refit:
    """Draw from the posterior of a table, searching its mode from ``starts``, shape (start, coordinate).

    Raises
    ------
    NotTrusted
        Importance sampling will not do, and ``nuts`` is None.
    """
    from bayeslaw import _sampler

    found = approximate(law, table, at, jnp.asarray(starts), seed=seed)
    if found.is_trusted(min_ess):
        note = {"sampler": f"importance sampling, k-hat {found.k:.2f}", "rhat": float("nan"), "ess": found.ess}
        return Refit(found.resample(draws, seed), note | {"divergences": 0})
    if nuts is None:
        raise NotTrusted(
            f"law {law.name!r}: importance sampling has k-hat {found.k:.2f}, {found.ess:.0f} effective draws"
        )
    problem = _sampler.whitened_at(law, table, at, np.asarray(found.mode))
    return Refit(*_sampler.draw(law, problem, seed=seed, **nuts))


def refits(
    runs: pd.DataFrame,
    law: Law | str,
    weights: np.ndarray,
    *,
    independent: bool = False,
    draws: int = DRAWS,
    seed: int = 0,
    executor: Executor | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Refit]:
    """Posteriors of a law on a table whose rows count differently each time.

    Parameters
    ----------
    runs
        A table as `read_runs` returns it.
    weights
        How often each row counts, shape (refit, row): 0 and 1 for folds, counts for a bootstrap (`bootstrap_weights`).
    independent
        Take every row's error as its own (see `fit`).
    executor
        Where to run, in tasks of a few refits; by default here. Workers need this package.
    progress
        Called with refits done and to do.

    Raises
    ------
    RunTableError, LawError
        The table cannot be used, or the weights do not fit it.
    """
    _engine.start()
    from bayeslaw import _sampler

    law = find_law(law) if isinstance(law, str) else law
    _runs.check_fittable(law, runs)
    weights = np.atleast_2d(np.asarray(weights, float))
    if weights.shape[1] != len(runs):
        raise RunTableError(f"weights of {weights.shape[1]} rows for a table of {len(runs)}; give one a row")
    if not (np.isfinite(weights).all() and (weights >= 0).all() and (weights.sum(axis=1) > 0).all()):
        raise LawError("weights of rows are counts: give numbers of 0 and above, not all 0")
    x, y = _runs.covariates(law, runs), np.log(_runs.losses(runs))
    table, at = pad(x, y, NONE if independent else shared_error(runs)), _geometry.anchors(law, x)
    start = np.asarray(_sampler.prepare(law, table, at, seed).centre)[None]
    padded = np.zeros((len(weights), len(table.weight)))
    padded[:, : len(runs)] = weights
    seeds = np.random.SeedSequence(seed).generate_state(len(weights))
    jobs = [(padded[i : i + CHUNK], seeds[i : i + CHUNK]) for i in range(0, len(weights), CHUNK)]
    at = jax.tree.map(np.asarray, at)
    return spread(_chunk, [(law, table, at, start, *job, draws) for job in jobs], executor, progress, len(weights))


def _chunk(
    law: Law, table: Padded, at, start: np.ndarray, weights: np.ndarray, seeds: np.ndarray, draws: int
) -> list[Refit]:
    _engine.start()
    each = zip(weights, seeds, strict=True)
    return [refit(law, table._replace(weight=w), at, start, seed=int(s), draws=draws) for w, s in each]


def spread(
    task: Callable[..., list],
    jobs: Sequence[tuple],
    executor: Executor | None,
    progress: Callable[[int, int], None] | None = None,
    total: int | None = None,
) -> list:
    """Results of a task over jobs, in order, here or on an executor; each job returns a list of results."""
    found: dict[int, list] = {}
    for i, part in _engine.as_done([partial(task, *job) for job in jobs], executor):
        found[i] = part
        if progress:
            progress(sum(map(len, found.values())), total or len(jobs))
    return [one for i in range(len(jobs)) for one in found[i]]


def bootstrap_weights(rows: int, resamples: int, *, seed: int = 0, group: Sequence | None = None) -> np.ndarray:
    """How often each row is drawn in each resample, shape (resample, row); with ``group`` whole groups are drawn."""
    code = np.arange(rows) if group is None else pd.factorize(np.asarray(group))[0]
    groups = int(code.max()) + 1
    counts = np.random.default_rng(seed).multinomial(groups, np.full(groups, 1 / groups), size=resamples)
    return counts[:, code].astype(float)

"""What each posterior says about candidates and goal: log losses draw by draw, and the error of a new run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from bayeslaw._anchors_design import Offer, Pick, principal
from bayeslaw._anchors_menu import Menu
from bayeslaw._errors import RunTableError
from bayeslaw._padding import padded_size
from bayeslaw._posterior import Piece, over_draws
from bayeslaw._runs import NUMERIC
from bayeslaw._words import people_number

RUN_LENGTH = 0.5  # e-folds along a run over which its error changes, unless measured: the model's prior median
SURE, GAUSSIAN = 1e-6, 1e9  # scale and degrees of freedom of the error of a posterior that states none
BATCHES = 10  # of draws, for the Monte Carlo error of gains
TOLERANCE = 1e-3  # of the noise variance: law variance that the principal coordinates may leave out
MIN_GAP = 1e-4  # e-folds; two points of a run closer than this are taken to be this far apart


class Noise(NamedTuple):
    """Error of a new run on log loss, each of shape (draw,).

    ``sigma`` and ``dof`` are of its own Student-t error; ``length`` is the correlation length of that along the run, in
    e-folds (0: each point has its own). ``checkpoint`` and ``run`` are sds of what runs of one checkpoint, and points of
    one run, share.
    """

    sigma: np.ndarray
    dof: np.ndarray
    length: np.ndarray
    checkpoint: np.ndarray
    run: np.ndarray

    @property
    def learned_at(self) -> float:
        """Variance of the Gaussian error that is as informative: Student-t's inverse Fisher information (Lange, Little
        and Taylor 1989), mean over draws.
        """
        return float(np.mean(self.sigma**2 * (self.dof + 3) / (self.dof + 1)))

    @property
    def variance(self) -> float:
        """Of a new run from a new checkpoint, mean over draws."""
        return float(np.mean(self.sigma**2 * self.dof / (self.dof - 2) + self.checkpoint**2 + self.run**2))

    def correlation(self, gap: np.ndarray) -> np.ndarray:
        """Of a run's own error between points this many e-folds apart, mean over draws."""
        few = np.maximum(self.length[:: max(1, len(self.length) // 200)], 1e-12)
        return np.exp(-gap[..., None] / few).mean(axis=-1) if self.length.any() else (gap == 0).astype(float)


@dataclass(frozen=True, eq=False)
class Domain:
    """One posterior's view.

    Parameters
    ----------
    log_loss
        The law's log loss of each candidate, shape (draw, candidate).
    goal
        Log losses that the goal is about, up to a constant, shape (draw, goal).
    at
        Index of each goal's checkpoint among those on offer, -1 where none of its runs is, shape (goal,).
    noise
        Error of a new run.
    batch
        Which of `BATCHES` each draw falls in, shape (draw,): consecutive draws of each formula, so that a batch shows
        slow chains and holds every law.
    """

    name: str
    log_loss: np.ndarray
    goal: np.ndarray
    at: np.ndarray
    noise: Noise
    batch: np.ndarray


class Rows(NamedTuple):
    """Draws of one formula: ``rows`` says which of all draws they are."""

    log_loss: Callable
    values: Mapping[str, np.ndarray]
    covariates: tuple[str, ...]
    rows: np.ndarray


def rows_of(pieces: Sequence[Piece]) -> list[Rows]:
    """All draws of a posterior, in the order of its pieces."""
    starts = np.cumsum([0, *(p.draws for p in pieces)])
    return [
        Rows(p.log_loss, p.values, p.covariates, np.arange(a, b))
        for p, a, b in zip(pieces, starts[:-1], starts[1:], strict=True)
    ]


def log_losses(parts: Sequence[Rows], table: pd.DataFrame, what: str) -> np.ndarray:
    """The law's log loss at each row of a table, shape (draw, row).

    Raises
    ------
    RunTableError
        The table lacks a column a law reads, or a number in it; ``what`` names the table.
    """
    out = np.empty((sum(len(p.rows) for p in parts), len(table)))
    padded = np.minimum(np.arange(padded_size(len(table))), len(table) - 1)  # tables share compiled programs
    for part in parts:
        columns = {c: _column(table, c, what)[padded] for c in part.covariates}
        out[part.rows] = np.asarray(over_draws(part.log_loss)(dict(part.values), columns))[:, : len(table)]
    bad = ~np.isfinite(out).all(axis=0)
    if bad.any():
        raise RunTableError(
            f"{what}, row {table.index[np.flatnonzero(bad)[0]]}: the law has no finite loss there; leave the row out"
        )
    return out


def _column(table: pd.DataFrame, name: str, what: str) -> np.ndarray:
    if name not in table:
        raise RunTableError(
            f"{what} lacks column {name!r} ({NUMERIC.get(name, 'covariate')}), which the law reads; "
            f"it has: {', '.join(map(str, table.columns))}"
        )
    x = pd.to_numeric(table[name], errors="coerce").to_numpy(float)
    if not np.isfinite(x).all():
        first, do = table[~np.isfinite(x)].iloc[0], ""
        if name in ("loss_before", "source_loss_before") and first.get("checkpoint_cost", 0) > 0:
            at = ", ".join(f"{c} {people_number(first[c])}" for c in ("N", "ptpp") if c in table)
            do = f"; its checkpoint ({at}) does not exist yet: offer checkpoints that do, or give its loss in the table"
        raise RunTableError(f"{what}, row {first.name}, column {name!r}: empty or not a number{do}")
    return x


def checkpoints_of(menu: Menu, goal: pd.DataFrame) -> np.ndarray:
    """Index of the checkpoint on offer with each row's N and ptpp, -1 where there is none, shape (row,)."""
    keys = ["N", "ptpp"]
    if not (set(keys) <= set(menu.table) and set(keys) <= set(goal)):
        return np.full(len(goal), -1)
    first = menu.table[keys].iloc[menu.rows[:, 0]]
    known = {(n, s): c for (n, s), c in zip(first.itertuples(index=False, name=None), menu.checkpoint, strict=True)}
    return np.array([known.get(key, -1) for key in goal[keys].itertuples(index=False, name=None)], int)


def batches(parts: Sequence[Rows]) -> np.ndarray:
    """The batch of each draw, shape (draw,)."""
    out = np.empty(sum(len(p.rows) for p in parts), int)
    for part in parts:
        out[part.rows] = np.arange(len(part.rows)) * BATCHES // len(part.rows)
    return out


def noise_of(parts: Sequence[Rows], run_length: float | None = None) -> Noise:
    """Error of a new run by draw: ``sigma`` is all of it, of which ``tau_checkpoint`` and ``tau_run`` are shared.

    ``run_length`` replaces the posterior's, or `RUN_LENGTH` where it has none.
    """

    def leaf(name: str, otherwise: float = 0.0) -> np.ndarray:
        out = np.full(sum(len(p.rows) for p in parts), otherwise)
        for part in parts:
            out[part.rows] = np.asarray(part.values[name], float) if name in part.values else otherwise
        return out

    checkpoint, run = np.abs(leaf("tau_checkpoint")), np.abs(leaf("tau_run"))
    own = np.sqrt(np.maximum(leaf("sigma", SURE) ** 2 - checkpoint**2 - run**2, SURE**2))
    length = leaf("run_length", RUN_LENGTH) if run_length is None else np.full(len(own), float(run_length))
    return Noise(own, leaf("dof", GAUSSIAN), length, checkpoint, run)


# -- in principal coordinates ----------------------------------------------------------------------------------------


class Gaussian(NamedTuple):
    """Candidates and goals in principal coordinates.

    ``goals``: loadings, shape (goal, coordinate), the domains' goals one after another. ``draws``: the draws'
    coordinates, shape (draw, coordinate without checkpoints), and ``batch`` what `Domain` says of them.
    """

    offer: Offer
    goals: np.ndarray
    draws: np.ndarray
    batch: np.ndarray


def gaussian(menu: Menu, domains: Sequence[Domain]) -> Gaussian:
    """The linear-Gaussian approximation to what all domains say."""
    n = len(menu.table)
    columns = np.hstack([*(d.log_loss for d in domains), *(d.goal for d in domains)])
    tolerance = TOLERANCE * min(d.noise.learned_at for d in domains)
    draws, loadings = principal(columns, tolerance)
    law = loadings[: n * len(domains)].reshape(len(domains), n, -1)
    rows = np.zeros(n, int)
    rows[menu.rows[menu.rows >= 0]] = np.repeat(menu.checkpoint, (menu.rows >= 0).sum(axis=1))
    goals = loadings[n * len(domains) :]
    shared = [_effects(menu, domains, k) for k in range(len(domains))]
    each = [np.concatenate([a, effects[rows]], axis=1) for a, effects in zip(law, shared, strict=True)]
    own = np.concatenate([np.where((d.at >= 0)[:, None], e[d.at], 0.0) for d, e in zip(domains, shared, strict=True)])
    padded = np.stack([np.where((menu.rows >= 0)[..., None], e[menu.rows], 0.0) for e in each], axis=2)
    runs, stops, width, size = padded.shape
    offer = Offer(
        padded.reshape(runs, stops * width, size), _noise(menu, domains), width,
        menu.cost, menu.checkpoint, menu.checkpoint_cost,
    )  # fmt: skip
    return Gaussian(offer, np.hstack([goals, own]), draws, domains[0].batch)


def _effects(menu: Menu, domains: Sequence[Domain], which: int) -> np.ndarray:
    """Loadings of each checkpoint's effect in a domain, shape (checkpoint, coordinate): one for each checkpoint and each
    domain that has effects.
    """
    have = [k for k, d in enumerate(domains) if d.noise.checkpoint.any()]
    size = len(menu.checkpoint_cost)
    out = np.zeros((size, len(have) * size))
    if which in have:
        tau = np.sqrt(np.mean(domains[which].noise.checkpoint ** 2))
        out[:, have.index(which) * size + np.arange(size)] = tau * np.eye(size)
    return out


def _noise(menu: Menu, domains: Sequence[Domain]) -> np.ndarray:
    """Covariance of the errors along each run, shape (run, measurement, measurement); domains err apart."""
    runs, stops = menu.rows.shape
    width = len(domains)
    out = np.zeros((runs, stops, width, stops, width))
    real = menu.rows >= 0
    along = menu.along[menu.rows]
    gap = np.abs(along[:, :, None] - along[:, None, :])
    gap = np.where(np.eye(stops, dtype=bool), 0.0, np.maximum(gap, MIN_GAP))
    gap = np.where(real[:, :, None] & real[:, None, :] | np.eye(stops, dtype=bool), gap, np.inf)
    for k, d in enumerate(domains):
        shared = np.mean(d.noise.run**2) * np.isfinite(gap)
        out[:, :, k, :, k] = d.noise.learned_at * d.noise.correlation(gap) + shared
    return out.reshape(runs, stops * width, stops * width)


class Measured(NamedTuple):
    """What picks measure, each of shape (measurement,): row of the table, pick, checkpoint, e-folds since the pick's last
    row (infinite at its first).
    """

    row: np.ndarray
    pick: np.ndarray
    checkpoint: np.ndarray
    gap: np.ndarray


def measured(menu: Menu, picks: Sequence[Pick]) -> Measured:
    """All rows that a list of picks measures, in order."""
    parts = []
    for i, (run, stop) in enumerate(picks):
        rows = menu.rows[run, : stop + 1]
        gap = np.diff(menu.along[rows], prepend=-np.inf)
        own = np.full(len(rows), menu.checkpoint[run])
        parts.append((rows, np.full(len(rows), i), own, np.maximum(gap, MIN_GAP)))
    return Measured(*(np.concatenate(p) for p in zip(*parts, strict=True)))

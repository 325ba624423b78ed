"""Evaluate each posterior at candidates and goal: log losses draw by draw, and the
error of a new run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from bayeslaw._designs.drifting import less_drift
from bayeslaw._designs.gaussian import Offer, Pick, principal
from bayeslaw._designs.menu import Menu
from bayeslaw._inference.noise import RunNoise
from bayeslaw._inference.table import MIN_GAP
from bayeslaw._posteriors.draws import all_draws
from bayeslaw._posteriors.outcomes import batches, error_sizes, log_losses, noise_of
from bayeslaw._posteriors.pairs import table_of
from bayeslaw._posteriors.posterior import Posterior
from bayeslaw._tables.runs import NUMERIC

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int


@dataclass(frozen=True, eq=False)
class Domain:
    """One posterior's view of candidates and goal.

    Parameters
    ----------
    log_loss
        The law's log loss of each candidate, shape (draw, candidate).
    goal
        Log losses of the goal, up to a constant, shape (draw, goal).
    at
        Index of each goal's checkpoint among those on offer, -1 if none of its runs is
        on offer, shape (goal,).
    noise
        Error of a new run.
    error_size
        Scale of each candidate's error relative to the longest training runs, shape
        (candidate,).
    batch
        Batch of each draw, shape (draw,). A batch has consecutive draws of every
        formula, so that batches differ if chains mix slowly, and every batch has every
        law.
    """

    name: str
    log_loss: Float[np.ndarray, "draw candidate"]
    goal: Float[np.ndarray, "draw goal"]
    at: Int[np.ndarray, " goal"]
    noise: RunNoise
    batch: Int[np.ndarray, " draw"]
    error_size: Float[np.ndarray, " candidate"]


def domain_of(
    posterior: Posterior, menu: Menu, goal: pd.DataFrame, run_length: float | None
) -> Domain:
    """Evaluate a posterior at the candidates and the runs to forecast."""
    parts = all_draws(posterior.pieces())
    of_candidates = log_losses(parts, menu.table, "the table of candidates")
    of_goal = log_losses(parts, goal, "the goal's table")
    return Domain(
        name="target",
        log_loss=of_candidates + less_drift(parts, menu.table, goal),
        goal=of_goal,
        at=checkpoints_of(menu, goal),
        noise=noise_of(parts, run_length),
        batch=batches(parts),
        error_size=error_sizes(parts, menu.table, "the table of candidates").mean(0),
    )


def checkpoints_of(menu: Menu, goal: pd.DataFrame) -> Int[np.ndarray, " row"]:
    """Find the index of the checkpoint on offer with each row's N and ptpp, -1 if there
    is none, shape (row,).
    """
    keys = ["N", "ptpp"]
    if not (set(keys) <= set(menu.table) and set(keys) <= set(goal)):
        return np.full(len(goal), -1)
    starts = menu.table[keys].iloc[menu.rows[:, 0]]
    named = starts.itertuples(index=False, name=None)
    index = dict(zip(named, menu.checkpoint, strict=True))
    wanted = goal[keys].itertuples(index=False, name=None)
    return np.array([index.get(key, -1) for key in wanted], int)


def already_had(
    table: pd.DataFrame, posterior: Posterior, *, same_run: bool = False
) -> Bool[np.ndarray, " row"]:
    """Tell which candidates a posterior was fitted to, shape (row,). These have the
    same settings as a fitted row, and the same ``seed`` if candidates have one; with
    ``same_run`` also the same ``run``.

    If candidates have losses, they are runs to be repeated, and none counts as fitted.
    The same holds if the posterior does not keep its table.
    """
    none = np.zeros(len(table), bool)
    runs = table_of(posterior)
    if runs is None or "loss" in table:
        return none
    if "seed" in table and "seed" not in runs:
        return none
    # columns that identify a run; the others are results or costs
    outcomes = ("cost", "step", "lr")
    settings = {c for c in NUMERIC if "loss" not in c and c not in outcomes}
    settings.add("seed")
    settings.update(*(piece.covariates for piece in posterior.pieces()))
    if same_run:
        settings.add("run")
    names = [c for c in table if c in runs and c in settings]
    if not names or (same_run and "run" not in names):
        return none
    had = set(_format_settings(runs[names]))
    return np.array([row in had for row in _format_settings(table[names])], bool)


def _format_settings(table: pd.DataFrame) -> Iterator[tuple[str, ...]]:
    """Format each row's settings with nine digits, because files round further digits."""
    for row in table.itertuples(index=False, name=None):
        yield tuple(f"{v:.9g}" if isinstance(v, int | float) else str(v) for v in row)


# -- in principal coordinates ----------------------------------------------------------


class Gaussian(NamedTuple):
    """Candidates and goals in principal coordinates.

    ``goals``: loadings of the goals, domain by domain, shape (goal, coordinate).
    ``draws``: coordinates of the draws, without those of checkpoint effects, shape
    (draw, coordinate). ``batch``: batch of each draw, as in `Domain`.
    """

    offer: Offer
    goals: Float[np.ndarray, "goal coordinate"]
    draws: Float[np.ndarray, "draw rank"]
    batch: Int[np.ndarray, " draw"]


def gaussian(
    menu: Menu, domains: Sequence[Domain], tolerance: float = 1e-3
) -> Gaussian:
    """Approximate all domains by a linear-Gaussian model.

    ``tolerance``: variance of a log loss that the principal coordinates may leave out,
    as a share of the noise variance.
    """
    columns = [d.log_loss for d in domains] + [d.goal for d in domains]
    least_noise = min(d.noise.learned_at for d in domains)
    draws, loadings = principal(np.hstack(columns), tolerance * least_noise)

    size = len(menu.table)
    law = loadings[: size * len(domains)].reshape(len(domains), size, -1)
    goals = loadings[size * len(domains) :]
    # Effects of the goals' checkpoints are coordinates. Those of other checkpoints act
    # on their own runs only.
    wanted = np.unique(np.concatenate([d.at for d in domains]))
    wanted = wanted[wanted >= 0]
    places = range(len(domains))
    effects = [_build_effects(menu, domains, k, wanted) for k in places]
    other_effects = [_build_other_effects(menu, domains, k, wanted) for k in places]
    of_goals = [
        np.where((d.at >= 0)[:, None], by_checkpoint[d.at], 0.0)
        for d, by_checkpoint in zip(domains, effects, strict=True)
    ]
    offer = Offer(
        loadings=_combine_loadings(menu, law, effects),
        noise=_compute_error_covariance(menu, domains),
        per_stop=len(domains),
        cost=menu.cost,
        checkpoint=menu.checkpoint,
        checkpoint_cost=menu.checkpoint_cost,
        effects=_combine_loadings(menu, law[..., :0], other_effects),
    )
    if menu.had.any():
        had = menu.begun(menu.had)
        offer = offer.given(np.repeat(had, len(domains), axis=1))
    goals = np.hstack([goals, np.concatenate(of_goals)])
    return Gaussian(offer, goals, draws, domains[0].batch)


def _combine_loadings(
    menu: Menu,
    law: Float[np.ndarray, "domain row rank"],
    effects: Sequence[Float[np.ndarray, "checkpoint effect"]],
) -> Float[np.ndarray, "run measurement coordinate"]:
    """Combine loadings of each run's measurements, shape (run, measurement,
    coordinate), from those of the law, shape (domain, row, coordinate), and those of
    each domain's effects, shape (checkpoint, coordinate).
    """
    exists = menu.rows >= 0
    checkpoint = np.zeros(len(menu.table), int)  # checkpoint of each row
    checkpoint[menu.rows[exists]] = np.repeat(menu.checkpoint, exists.sum(axis=1))
    by_domain = []
    for of_law, of_checkpoint in zip(law, effects, strict=True):
        row = np.concatenate([of_law, of_checkpoint[checkpoint]], axis=1)
        by_domain.append(np.where(exists[..., None], row[menu.rows], 0.0))
    padded = np.stack(by_domain, axis=2)  # (run, stop, domain, coordinate)
    runs, stops, width, size = padded.shape
    return padded.reshape(runs, stops * width, size)


def _build_effects(
    menu: Menu, domains: Sequence[Domain], which: int, wanted: Int[np.ndarray, " some"]
) -> Float[np.ndarray, "checkpoint effect"]:
    """Build loadings of each checkpoint's effect in a domain, shape (checkpoint,
    coordinate): a coordinate for each checkpoint of a goal and each domain with
    effects.
    """
    have = _with_effects(domains)
    size = len(wanted)
    loadings = np.zeros((len(menu.checkpoint_cost), len(have) * size))
    if which in have:
        first = have.index(which) * size
        loadings[wanted, first + np.arange(size)] = _compute_effect_size(domains[which])
    return loadings


def _build_other_effects(
    menu: Menu, domains: Sequence[Domain], which: int, wanted: Int[np.ndarray, " some"]
) -> Float[np.ndarray, "checkpoint domain"]:
    """Build the loadings of the effects of checkpoints that no goal has, in a domain,
    shape (checkpoint, domain with effects). Rows of the goals' checkpoints are 0.
    """
    have = _with_effects(domains)
    loadings = np.zeros((len(menu.checkpoint_cost), len(have)))
    if which in have:
        loadings[:, have.index(which)] = _compute_effect_size(domains[which])
        loadings[wanted] = 0.0
    return loadings


def _with_effects(domains: Sequence[Domain]) -> list[int]:
    return [k for k, d in enumerate(domains) if d.noise.tau_checkpoint.any()]


def _compute_effect_size(domain: Domain) -> float:
    """Compute the root mean square of a checkpoint's effect."""
    return float(np.sqrt(np.mean(domain.noise.tau_checkpoint**2)))


def _compute_error_covariance(
    menu: Menu, domains: Sequence[Domain]
) -> Float[np.ndarray, "run measurement measurement"]:
    """Compute the covariance of the errors along each run, shape (run, measurement,
    measurement); errors of domains are independent.
    """
    runs, stops = menu.rows.shape
    width = len(domains)
    covariance = np.zeros((runs, stops, width, stops, width))
    gap = _measure_gaps(menu)
    for k, domain in enumerate(domains):
        noise = domain.noise
        shared = np.mean(noise.tau_run**2) * np.isfinite(gap)
        along_run = noise.learned_at * noise.correlation(gap)
        size = domain.error_size[menu.rows]
        sizes = size[:, :, None] * size[:, None, :]
        covariance[:, :, k, :, k] = sizes * (along_run + shared)
    return covariance.reshape(runs, stops * width, stops * width)


def _measure_gaps(menu: Menu) -> Float[np.ndarray, "run stop stop"]:
    """Measure the distances between the stops of each run in e-folds, shape (run, stop,
    stop). They are infinite past a run's end, where stops are padding that needs a
    covariance of full rank.
    """
    along = menu.along[menu.rows]
    gap = np.abs(along[:, :, None] - along[:, None, :])
    same = np.eye(menu.rows.shape[1], dtype=bool)
    gap = np.where(same, 0.0, np.maximum(gap, MIN_GAP))
    exists = menu.rows >= 0
    is_pair = exists[:, :, None] & exists[:, None, :]
    return np.where(is_pair | same, gap, np.inf)


class Measurements(NamedTuple):
    """The measurements of picks, each field of shape (measurement,): row of the table,
    pick, checkpoint, and e-folds since the pick's previous row (infinite at its first).
    """

    row: Int[np.ndarray, " measurement"]
    pick: Int[np.ndarray, " measurement"]
    checkpoint: Int[np.ndarray, " measurement"]
    gap: Float[np.ndarray, " measurement"]


def measurements(menu: Menu, picks: Sequence[Pick]) -> Measurements:
    """List all rows that a list of picks measures, in order. A run that continues
    measured points shares an error with these points, which is ignored.
    """
    parts = []
    for i, (run, stop) in enumerate(picks):
        rows = menu.measured_by((run, stop))
        pick = np.full(len(rows), i)
        checkpoint = np.full(len(rows), menu.checkpoint[run])
        gap = np.diff(menu.along[rows], prepend=-np.inf)
        gap = np.maximum(gap, MIN_GAP)
        parts.append((rows, pick, checkpoint, gap))
    columns = zip(*parts, strict=True)
    return Measurements(*map(np.concatenate, columns))

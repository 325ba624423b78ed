"""Evaluate each posterior at candidates and goal: log losses draw by draw, and the
error of a new run; limit what runs beyond the data teach about its drift.

In each draw of a posterior the drift beyond the runs is a straight line, so one run
beyond the data would determine the drift at any distance. A refit learns less: after
the run is measured, the law drifts from that run on. With a run at distance c, the
drift at a goal at distance g has scale tau (g - c). So in the design the drift is a
process w of the distance. It has the variance of the line, and after a run at c the
variance of a refit,

    Var w(g) = tau^2 g^2,    Var(w(g) | w(c)) = tau^2 (g - c)^2    for c <= g,

which has the covariance tau^2 c^1.5 (2 g - c)^.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from bayeslaw._base.streams import Stream, generator
from bayeslaw._designs.gaussian import Offer, principal
from bayeslaw._designs.menu import Menu
from bayeslaw._inference.noise import RunNoise, find_learned, tokens_of
from bayeslaw._inference.table import MIN_GAP, OF_CHECKPOINT
from bayeslaw._plans.question import TARGET
from bayeslaw._posteriors.draws import Draws, all_draws
from bayeslaw._posteriors.outcomes import batches, error_sizes, log_losses, noise_of
from bayeslaw._posteriors.pairs import table_of
from bayeslaw._posteriors.posterior import DRIFT, LogLoss, Posterior, columns_read
from bayeslaw._tables.before import of_source
from bayeslaw._tables.rows.levels import find_checkpoints, number_alike
from bayeslaw._tables.runs import NUMERIC

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int


KNOTS = 33  # distances at which a drift is drawn


def less_drift(
    parts: Sequence[Draws], candidates: pd.DataFrame, goal: pd.DataFrame, seed: int = 11
) -> Float[np.ndarray, "draw candidate"]:
    """Compute terms to add to the log losses of candidates, shape (draw, candidate).
    With them, candidates tell no more about the drift at the goal than a refit would
    learn.
    """
    counts = [len(part.rows) for part in parts]
    added = np.zeros((sum(counts), len(candidates)))
    rng = generator(seed, Stream.CANDIDATES_DRIFT)
    for part in parts:
        formula = part.piece.formula
        if not isinstance(formula, LogLoss) or formula.training_range is None:
            continue
        drifts = np.asarray(part.piece.values[DRIFT])
        offered, wanted = (
            formula.beyond(part.piece.fill(table)) for table in (candidates, goal)
        )
        farthest = wanted.max(axis=0)
        for side in np.flatnonzero((farthest > 0) & (offered > 0).any(axis=0)):
            far, at = offered[:, side], farthest[side]
            line = drifts[:, side] - drifts[:, side].mean()  # its mean is not learned
            tau = np.sqrt(np.mean(line**2))  # scale of the drift to this side
            # Draw the process at knots, given that each draw equals its line at the
            # goal: condition normals on the value at the goal, which is at * line.
            knots = np.linspace(0.0, far.max(), KNOTS)
            share = covariance(knots, np.full(KNOTS, at)) / at
            conditional = covariance(knots[:, None], knots) - np.outer(share, share)
            # a small share of the largest variance makes the factorisation possible
            jitter = 1e-9 * far.max() ** 2
            root = np.linalg.cholesky(conditional + jitter * np.eye(KNOTS))
            standard = rng.standard_normal((len(line), KNOTS))
            at_knots = line[:, None] * share + tau * (standard @ root.T)
            # the process is linear between knots
            weights = [np.interp(far, knots, unit) for unit in np.eye(KNOTS)]
            process = at_knots @ np.stack(weights)
            added[part.rows] += process - line[:, None] * far
    return added


def covariance(
    a: Float[np.ndarray, "*#pair"], b: Float[np.ndarray, "*#pair"]
) -> Float[np.ndarray, "*pair"]:
    """Compute the covariance of the process at pairs of distances, for a scale of 1."""
    near, far = np.minimum(a, b), np.maximum(a, b)
    return near**1.5 * np.sqrt(2 * far - near)


# -- what posteriors say of the runs ---------------------------------------------------


@dataclass(frozen=True, eq=False)
class Domain:
    """One posterior's view of candidates and goal."""

    log_loss: Float[np.ndarray, "draw candidate"]  # of the law
    goal: Float[np.ndarray, "draw goal"]  # log losses, up to a constant
    # index of each goal's checkpoint among those on offer, -1 if none of its runs is
    at: Int[np.ndarray, " goal"]
    noise: RunNoise  # error of a new run
    # Batch of each draw. A batch has consecutive draws of every formula, so that
    # batches differ if chains mix slowly, and every batch has every law.
    batch: Int[np.ndarray, " draw"]
    # scale of each candidate's error relative to the longest training runs
    error_size: Float[np.ndarray, " candidate"]
    # Learned effects of checkpoints, which candidates and goal contain; and the share of
    # the effects' variance that is not learned, by checkpoint on offer and by goal.
    learned: Float[np.ndarray, "*#draw_goal"] = field(
        default_factory=partial(np.zeros, (1, 1))
    )
    new_of_checkpoint: Float[np.ndarray, " #checkpoint"] = field(
        default_factory=partial(np.ones, 1)
    )
    new_of_goal: Float[np.ndarray, " #goal"] = field(
        default_factory=partial(np.ones, 1)
    )

    def about(
        self, goal: Float[np.ndarray, "draw goal"], at: Int[np.ndarray, " goal"]
    ) -> Domain:
        """View the same candidates with another goal, which is no run's loss."""
        nothing = {"learned": np.zeros((1, 1)), "new_of_goal": np.ones(1)}
        return replace(self, goal=goal, at=at, **nothing)


def as_read(table: pd.DataFrame, domain: str) -> pd.DataFrame:
    """Convert a table to the columns that the laws of a domain read."""
    return table if domain == TARGET else of_source(table)


def domain_of(
    posterior: Posterior,
    menu: Menu,
    goal: pd.DataFrame,
    run_length: float | None = None,
    domain: str = TARGET,
) -> Domain:
    """Evaluate a posterior at the candidates and the runs to forecast."""
    parts = all_draws(posterior.pieces())
    candidates, runs = as_read(menu.table, domain), as_read(goal, domain)
    of_goal = log_losses(parts, runs, "the goal's table")  # refuses a bad goal by name
    at = checkpoints_of(menu, goal)
    return view_candidates(parts, candidates, menu, runs, of_goal, at, run_length)


def view_candidates(
    parts: Sequence[Draws],
    candidates: pd.DataFrame,
    menu: Menu,
    runs: pd.DataFrame,
    goal: Float[np.ndarray, "draw goal"],
    at: Int[np.ndarray, " goal"],
    run_length: float | None,
) -> Domain:
    """Evaluate draws at the candidates of the menu, with no more drift towards the
    ``runs`` of the goal than a refit would learn. ``at`` is that of `Domain`, ``goal``
    without learned effects.
    """
    what = "the table of candidates"
    log_loss = log_losses(parts, candidates, what)
    sizes = error_sizes(parts, candidates, what)
    learned, new = learned_effects(parts, candidates)
    of_goal, new_of_goal = learned_effects(parts, runs)
    of_goal = error_sizes(parts, runs, "the goal's table") * of_goal
    _, first = np.unique(menu.checkpoint, return_index=True)  # run of each checkpoint
    return Domain(
        log_loss=log_loss + sizes * learned + less_drift(parts, candidates, runs),
        goal=goal + of_goal,
        at=at,
        noise=noise_of(parts, run_length),
        batch=batches(parts),
        error_size=sizes.mean(0),
        learned=of_goal,
        new_of_checkpoint=new[menu.rows[first, 0]],
        new_of_goal=new_of_goal,
    )


def learned_effects(
    parts: Sequence[Draws], table: pd.DataFrame
) -> tuple[Float[np.ndarray, "draw row"], Float[np.ndarray, " row"]]:
    """Collect the learned effects of the rows' checkpoints, shape (draw, row), and the
    share of the variance of a new checkpoint's effects that is left for each row.
    """
    draws = sum(len(part.rows) for part in parts)
    learned, variances = np.zeros((draws, len(table))), np.zeros((2, len(table)))
    tokens = tokens_of(table)
    for part in parts:
        values, law = part.piece.values, part.piece.law
        for kind in OF_CHECKPOINT:
            if f"tau_{kind}" not in values:
                continue
            columns = law.untuned if law else ()
            by_row = find_learned(part.piece.effects, kind, table, columns)
            share = np.ones(len(table))
            for row, effect in by_row.items():
                learned[part.rows, row] += effect.draws
                share[row] = effect.open_share(kind, tokens[row])
            square = np.sum(np.square(values[f"tau_{kind}"]))
            variances += square * np.stack([share, np.ones(len(table))])
    left, whole = variances
    return learned, np.divide(left, whole, out=np.ones(len(table)), where=whole > 0)


def checkpoints_of(menu: Menu, goal: pd.DataFrame) -> Int[np.ndarray, " row"]:
    """Find the checkpoint on offer with each row's N and ptpp, -1 if none."""
    starts = menu.table.reindex(columns=["N", "ptpp"]).iloc[menu.rows[:, 0]]
    at = find_checkpoints(goal, starts)
    return np.where(at < 0, -1, menu.checkpoint[at])


def already_had(
    table: pd.DataFrame, posterior: Posterior, same_run: bool = False
) -> Bool[np.ndarray, " row"]:
    """Tell which candidates a posterior was fitted to, shape (row,). These have the
    same settings as a fitted row, and the same ``seed`` if candidates have one; with
    ``same_run`` also the same ``run``.

    If candidates have losses, they are runs to be repeated, and none counts as fitted.
    The same holds if the posterior does not keep its table.
    """
    none = np.zeros(len(table), bool)
    runs = table_of(posterior)
    if runs is None or "loss" in table or ("seed" in table and "seed" not in runs):
        return none
    # columns that identify a run; the others are results or costs
    outcomes = ("cost", "step", "lr")
    settings = {c for c in NUMERIC if "loss" not in c and c not in outcomes}
    settings |= {"seed", *columns_read(posterior)} | ({"run"} if same_run else set())
    names = [c for c in map(str, table) if c in runs and c in settings]
    if not names or (same_run and "run" not in names):
        return none
    had, offered = number_alike(runs, table, names)
    return np.isin(offered, had)


# -- in principal coordinates ----------------------------------------------------------


class Gaussian(NamedTuple):
    """Candidates and goals in principal coordinates."""

    offer: Offer
    goals: Float[np.ndarray, "goal coordinate"]  # loadings, domain by domain
    # coordinates of the draws, without those of checkpoint effects
    draws: Float[np.ndarray, "draw rank"]
    batch: Int[np.ndarray, " draw"]  # as in `Domain`


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
    size, width = len(menu.table), len(domains)
    law = loadings[: size * width].reshape(width, size, -1)
    # Effects of the goals' checkpoints are coordinates. Those of other checkpoints act
    # on their own runs only. Each domain has effects of its own.
    sds = np.diag([float(np.sqrt(np.mean(d.noise.tau_checkpoint**2))) for d in domains])
    sds = sds[:, sds.any(axis=0)]  # (domain, effect)
    wanted = np.unique(np.concatenate([d.at for d in domains]))
    count = len(menu.checkpoint_cost)
    is_wanted = np.arange(count)[:, None] == wanted[wanted >= 0]
    new = [np.broadcast_to(d.new_of_checkpoint, count) for d in domains]
    of_new = sds[:, None, :] * np.sqrt(new)[:, :, None]  # (domain, checkpoint, effect)
    # loadings of each checkpoint's runs on the effects, shape (domain, checkpoint, ...)
    effects = of_new[..., None] * is_wanted[:, None, :]
    effects = effects.reshape(width, count, -1)
    others = of_new * ~is_wanted.any(axis=1)[:, None]
    of_goals = [
        np.where((d.at >= 0)[:, None], by_checkpoint[d.at], 0.0)
        for d, by_checkpoint in zip(domains, effects, strict=True)
    ]
    goals = np.hstack([loadings[size * width :], np.concatenate(of_goals)])

    # from loadings of runs' stops to those of measurements, one per domain at a stop
    runs, stops = menu.rows.shape
    exists = (menu.rows >= 0)[..., None]

    def by_run(
        loadings: Float[np.ndarray, "domain run #stop coordinate"],
    ) -> Float[np.ndarray, "run measurement coordinate"]:
        by_stop = np.where(exists, loadings, 0.0).transpose(1, 2, 0, 3)
        return by_stop.reshape(runs, stops * width, loadings.shape[-1])

    of_law = by_run(law[:, menu.rows])
    of_wanted, of_others = (
        by_run(by_checkpoint[:, menu.checkpoint, None])
        for by_checkpoint in (effects, others)
    )
    offer = Offer(
        menu.cost,
        menu.checkpoint,
        menu.checkpoint_cost,
        loadings=np.concatenate([of_law, of_wanted], axis=2),
        noise=_compute_error_covariance(menu, domains),
        per_stop=width,
        effects=of_others,
    )
    if menu.had.any():
        had = menu.begun(menu.had)
        offer = offer.given(np.repeat(had, width, axis=1))
    return Gaussian(offer, goals, draws, domains[0].batch)


def _compute_error_covariance(
    menu: Menu, domains: Sequence[Domain]
) -> Float[np.ndarray, "run measurement measurement"]:
    """Compute the covariance of the errors along each run, shape (run, measurement,
    measurement); errors of domains are independent.
    """
    runs, stops = menu.rows.shape
    width = len(domains)
    covariance = np.zeros((runs, stops, width, stops, width))
    # distances between stops in e-folds, infinite past a run's end, where stops are
    # padding that needs a covariance of full rank
    along, exists = menu.along[menu.rows], menu.rows >= 0
    gap = np.abs(along[:, :, None] - along[:, None, :])
    same = np.eye(stops, dtype=bool)
    is_pair = exists[:, :, None] & exists[:, None, :]
    gap = np.where(is_pair, np.maximum(gap, MIN_GAP), np.inf)
    gap = np.where(same, 0.0, gap)
    for k, domain in enumerate(domains):
        noise = domain.noise
        shared = np.mean(noise.tau_run**2) * np.isfinite(gap)
        along_run = noise.learned_at * noise.correlation(gap)
        size = domain.error_size[menu.rows]
        sizes = size[:, :, None] * size[:, None, :]
        covariance[:, :, k, :, k] = sizes * (along_run + shared)
    return covariance.reshape(runs, stops * width, stops * width)

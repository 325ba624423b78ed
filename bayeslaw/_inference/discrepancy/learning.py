"""Learn a law's misfit from its residuals: a cut posterior in two steps.

First the law is fitted without a misfit, with heavy-tailed errors. Then the process is
learned from the residuals of each draw of the law (modularisation: Liu, Bayarri and
Berger 2009; Jacob et al. 2017). In a joint fit the process replaces the law: on tiny
models the error at an unseen size rose from 2.5% to 9-13%.

Scales are drawn by importance sampling from the marginal likelihood of the mean
residual, whose covariance includes the law's uncertainty. Weights are drawn exactly,
given the scales, for each draw of the law.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse

from bayeslaw._base.machine.blas import one_thread
from bayeslaw._base.streams import generator
from bayeslaw._inference.discrepancy.marginal import Marginal, Rows, tau_name
from bayeslaw._inference.discrepancy.process import Fading, Process
from bayeslaw._inference.noise import ERROR, log_prior_of_dof, log_student

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from bayeslaw._base.arrays import AnyArray

DOF = np.array([3.0, 4.0, 6.0, 9.0, 14.0, 25.0, 50.0])  # grid for the noise's posterior
TRIES = 600  # proposals of the scales' importance sampling


Means = Callable[[slice], np.ndarray]
"""Compute the law's log loss for a slice of its draws, shape (draw, row)."""


@dataclass(frozen=True, eq=False)
class Misfit:
    """Draws of a law's misfit and of the remaining noise, paired with the law's draws.

    Parameters
    ----------
    process
        The basis functions.
    weights
        Weights of the basis functions, shape (draw, function).
    sigma, dof
        Scale and degrees of freedom of a run's Student-t error, shape (draw,).
    tau, effects
        Random effects by kind of group: their scale, shape (draw,), and the effects,
        shape (draw, group).
    scales
        Lengths (units of an axis), sds of pieces (log loss), by name, shape (draw,).
    khat
        Pareto k-hat of the importance weights of the scales.
    along_run
        Whether errors of neighbouring points of a run are correlated.
    """

    process: Process
    weights: Float[np.ndarray, "draw function"]
    sigma: Float[np.ndarray, " draw"]
    dof: Float[np.ndarray, " draw"]
    tau: Mapping[str, Float[np.ndarray, " draw"]]
    effects: Mapping[str, Float[np.ndarray, "draw group"]]
    scales: Mapping[str, Float[np.ndarray, " draw"]]
    khat: float
    along_run: bool = False

    def at(
        self, covariates: Mapping[str, Float[np.ndarray, " run"]]
    ) -> Float[np.ndarray, "draw run"]:
        """Evaluate the misfit of log loss at runs, shape (draw, run)."""
        features = self.process.features(covariates, np)
        return self.weights @ features.T


def independent_rows(
    features: Float[np.ndarray, "row function"],
    groups: Mapping[str, Any],
    previous: Int[AnyArray, " row"] | None,
    gap: Float[AnyArray, " row"] | None,
    length: float,
) -> Rows:
    """Subtract from each row its prediction by the run's previous row (`likelihood`).

    Parameters
    ----------
    features
        Basis functions at the rows, shape (row, function).
    groups
        One-hot group of each row by kind, each of shape (row, group), sparse or not.
    previous, gap
        Index of the run's previous row, and e-folds since then (infinite at a run's
        first row), shape (row,); None where points of a run are independent.
    length
        Correlation length of errors along a run, in e-folds.
    """
    rows = len(features)
    share, precision = np.zeros(rows), np.ones(rows)
    transform = sparse.eye_array(rows, format="csr")
    if previous is not None and gap is not None:
        first = np.isinf(gap)
        share = np.where(first, 0.0, np.exp(-np.where(first, 1.0, gap) / length))
        precision = 1 / (1 - share**2)
        later = np.flatnonzero(~first)
        places = later, np.asarray(previous)[later]
        of_previous = sparse.csr_array((share[later], places), shape=(rows, rows))
        transform = transform - of_previous
    return Rows(
        transform @ features,
        {kind: transform @ sparse.csr_array(group) for kind, group in groups.items()},
        transform,
        np.ones(rows),
        precision,
        along_run=previous is not None,
    )


@one_thread()
def learn(
    process: Process,
    rows: Rows,
    y: Float[np.ndarray, " row"],
    means: Means,
    draws: int,
    *,
    seed: int,
    tries: int = TRIES,
) -> Misfit:
    """Draw a misfit for each draw of a law.

    Parameters
    ----------
    rows
        Basis functions at the runs that the law was fitted to.
    y
        Log losses, shape (row,).
    means
        Computes the law's log loss for a slice of its draws.
    draws
        Number of the law's draws.
    tries
        Proposals of the scales' importance sampling.
    """
    rng = generator(seed)
    residuals = rows.combine(_some_residuals(y, means, draws))
    problem = Marginal.of(process, rows, residuals)
    mode = problem.mode()
    count = min(256, draws)  # draws of the scales; several draws of weights share one
    scales, khat = problem.draw_scales(mode, tries, count, rng)
    which = rng.permutation(np.arange(draws) % len(scales))
    # X' W r, X the linear columns, r a draw's residuals: (draw, column)
    project = problem.projection(rows)
    blocks = _split_draws(draws, len(y))
    projected = np.concatenate([project(y - means(block)) for block in blocks])
    linear = np.empty_like(projected)
    for i, log_scales in enumerate(scales):
        chosen = np.flatnonzero(which == i)
        linear[chosen] = problem.draw_linear(log_scales, projected[chosen], rng)
    sizes = [process.size, *(matrix.shape[1] for matrix in rows.groups.values())]
    ends = np.cumsum(sizes)
    # The last columns are the rows' stated errors, which are not part of a misfit. Of the
    # others single precision suffices, and halves the file.
    kept = linear[:, : ends[-1]].astype(np.float32)
    weights, *effects = np.split(kept, ends[:-1], axis=1)
    draws_of_scales = np.exp(scales[which])
    named = {name: draws_of_scales[:, i] for i, name in enumerate(problem.names)}
    return Misfit(
        process,
        weights,
        sigma=named.pop("sigma"),
        dof=_draw_dof(problem, mode, draws, rng),
        tau={kind: named.pop(tau_name(kind)) for kind in rows.groups},
        effects=dict(zip(rows.groups, effects, strict=True)),
        scales=named,
        khat=khat,
        along_run=rows.along_run,
    )


class Powers(NamedTuple):
    """Grid for the power p of errors ~ tokens^-p, and the sd of p's half-normal prior.

    Public sweeps from 1e16 to 1e19 FLOPs have p = .2 to .4, tables of large models p
    under .1 (docs/discrepancy.md).
    """

    tried: tuple[float, ...] = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4)
    sd: float = 0.1


@one_thread()
def fading_power(
    process: Process,
    rows: Rows,
    y: Float[np.ndarray, " row"],
    means: Means,
    draws: int,
    tokens: Float[np.ndarray, " row"],
    powers: Powers = Powers(),
) -> float:
    """Estimate the power of tokens by which errors fade: its posterior mean on a grid,
    from the marginal likelihood at the mode of the scales.
    """
    tried = np.asarray(powers.tried)
    log_p = -0.5 * (tried / powers.sd) ** 2
    # the law's losses are the same for all powers
    residuals = _some_residuals(y, means, draws)
    weight, at = None, None
    for i, power in enumerate(tried):
        factor = Fading(power, tokens.max()).sizes({"D": tokens})
        scaled = rows._replace(scale=factor)
        problem = Marginal.of(process, scaled, scaled.combine(residuals))
        if weight is None or at is None:
            at = problem.mode()
            weight = problem.weight
        else:
            # likelihoods compare powers only under the same weights of rows
            problem.weigh(weight)
            at = problem.climb(at)
        log_p[i] += problem.log_density(at) - np.sum(np.log(factor))
    p = np.exp(log_p - log_p.max()) * np.gradient(tried)
    return float(p @ tried / p.sum())


def _split_draws(draws: int, rows: int, cells: int = 4_000_000) -> list[slice]:
    """Split draws into slices of at most ``cells`` values over all rows; if there are
    more, of a quarter, whose arrays stay in the process's memory.
    """
    size = draws if draws * rows <= cells else max(1, cells // 4 // rows)
    starts = range(0, draws, size)
    return [slice(start, min(start + size, draws)) for start in starts]


def _some_residuals(
    y: Float[np.ndarray, " row"], means: Means, draws: int, sample: int = 500
) -> Float[np.ndarray, "draw row"]:
    """Compute residuals for about ``sample`` draws of the law, shape (draw, row): enough
    for their mean and covariance. Of many rows, these are of fewer points.
    """
    step = max(1, draws // sample)
    first, *further = _split_draws(draws, len(y))
    if not further:  # all at once, as elsewhere: another number would be compiled
        residuals = y - means(first)[::step]
    else:
        span = step * (first.stop - first.start)
        blocks = [
            slice(start, min(start + span, draws), step)
            for start in range(0, draws, span)
        ]
        residuals = np.concatenate([y - means(block) for block in blocks])
    return _take_sigma_points(residuals) if len(y) > 4 * sample else residuals


def _take_sigma_points(
    residuals: Float[np.ndarray, "draw row"], tolerance: float = 1e-6
) -> Float[np.ndarray, "point row"]:
    """Replace draws by few points of the same mean and covariance: one to either side of
    the mean along each principal axis, but for sds below ``tolerance`` of the largest.
    """
    mean = residuals.mean(axis=0)
    away = residuals - mean
    squares, axes = np.linalg.eigh(away @ away.T)
    is_large = squares > tolerance**2 * squares[-1]
    principal = axes[:, is_large].T @ away  # (axis, row), of length sd sqrt(draws - 1)
    # n points have the covariance of the draws: 2 p p' / (n - 1) = principal principal' /
    # (draws - 1)
    points = 2 * len(principal)
    offsets = np.sqrt((points - 1) / 2 / (len(residuals) - 1)) * principal
    return np.concatenate([mean + offsets, mean - offsets])


def _draw_dof(
    problem: Marginal,
    mode: Float[np.ndarray, " scale"],
    draws: int,
    rng: np.random.Generator,
) -> Float[np.ndarray, " draw"]:
    """Draw the noise's degrees of freedom from residuals at the mode, shape (draw,)."""
    standard = np.sqrt(problem.scaled_squares(mode))
    log_likelihood = [np.sum(log_student(standard, dof)) for dof in DOF]
    log_prior = log_prior_of_dof(DOF - ERROR.dof_min, np)
    log_p = np.array(log_likelihood) + log_prior
    chance = np.exp(log_p - log_p.max())
    chance = chance / chance.sum()
    return rng.choice(DOF, size=draws, p=chance)

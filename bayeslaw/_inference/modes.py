"""Find the modes of a posterior, and approximate its mass around them by normals
(Laplace).

With few rows from few checkpoints, a mode is not where the mass is. The density is highest
where the error's scales are small and the law passes through all checkpoints, in a thin
sheet. Most of the mass has wider errors, and room for the law.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bayeslaw._base.machine.blas import one_thread
from bayeslaw._inference.coordinates import ContrastPoints
from bayeslaw._inference.density import (
    at_each,
    error_start,
    from_vector,
    hessian,
    site_names,
    to_vector,
    whitening,
)
from bayeslaw._inference.noise import ERROR
from bayeslaw._inference.point import Objective, least_cost, posterior_mode
from bayeslaw._inference.table import Padded
from bayeslaw._law.law import Law

if TYPE_CHECKING:
    from jaxtyping import Float

    from bayeslaw._base.arrays import AnyArray

EFFECT = "tau_checkpoint"
# scales of the effect of checkpoints at which the mass is looked for, in sds of its prior
EFFECTS = (0.25, 0.5, 1.0)
# factors by which errors are wider than at the mode, at which the mass is looked for
LEAST_WIDER, MOST_WIDER = 1.1, 2.5
SIGMA_SD = 0.35  # of the log of the error's scale, in a peak at which it is held
LIGHT = 0.01  # peaks with a smaller share of the mass are left out


class Peak(NamedTuple):
    """A normal approximation of the density around a vector.

    ``centre``: shape (coordinate,); ``root``: a root of the covariance, shape
    (coordinate, coordinate); ``log_mass``: log of the mass under it, up to a constant.
    """

    centre: Float[np.ndarray, " coordinate"]
    root: Float[np.ndarray, "coordinate coordinate"]
    log_mass: float


def start_near_mode(
    law: Law, table: Padded, points: ContrastPoints, seed: int
) -> Float[np.ndarray, " coordinate"]:
    """Find coordinates near the posterior's mode from many starts, shape (coordinate,)."""
    z, noise = posterior_mode(law, table, points, seed=seed)
    error = error_start(table.shared, np.log(noise))
    return np.asarray(to_vector(law, table.shared, z | error))


@one_thread()
def find_peaks(
    law: Law,
    table: Padded,
    points: ContrastPoints,
    starts: Float[AnyArray, "start coordinate"],
) -> list[Peak]:
    """Approximate the posterior around its mode, and at wider errors. The heaviest peak
    is first. If the density is undefined at all starts, the only peak has mass 0.
    """
    nearer = [_least_squares(law, table, points, start) for start in np.asarray(starts)]
    minima = [_minimise(law, table, points, start) for start in _drop_similar(nearer)]
    mode, height = min(minima, key=lambda minimum: minimum[1])
    if not np.isfinite(height):
        return [Peak(mode, np.eye(len(mode)), -np.inf)]
    peaks = [_build_peak(mode, height, hessian(law, table, points, mode))]
    peaks += _find_peaks_at_wider_errors(law, table, points, mode)
    peaks.sort(key=lambda peak: -peak.log_mass)
    least = peaks[0].log_mass + np.log(LIGHT)
    return [peak for peak in peaks if peak.log_mass > least]


def _find_peaks_at_wider_errors(
    law: Law,
    table: Padded,
    points: ContrastPoints,
    mode: Float[np.ndarray, " coordinate"],
) -> list[Peak]:
    """Find the highest density where the scale of rows' errors is wider than at the
    mode, and the effect of checkpoints has one of some scales; nothing without such an
    effect, or with many rows for a coordinate.
    """
    names = site_names(law, table.shared)
    rows = np.count_nonzero(np.asarray(table.weight))
    # as an unbiased variance is wider than that of the best fit
    room = max(rows - len(mode), 0)
    wider = min(np.sqrt(rows / room) if room else np.inf, MOST_WIDER)
    if EFFECT not in names or wider < LEAST_WIDER:
        return []
    places = [names.index("sigma"), names.index(EFFECT)]
    log_sigma, (_, prior_sd) = mode[places[0]], ERROR.tau_checkpoint.args
    peaks, vector = [], mode
    for share in (0.5, 1.0):
        for effect in prior_sd * np.array(EFFECTS):
            vector = vector.copy()
            vector[places] = log_sigma + share * np.log(wider), effect
            vector, height = _minimise(law, table, points, vector, held=places)
            curvature = _hold(hessian(law, table, points, vector), places)
            # the effect's sd is half of the way to its next scale
            curvature[places, places] = np.array([SIGMA_SD, effect / 2]) ** -2
            peaks.append(_build_peak(vector, height, curvature))
    return peaks


def _build_peak(
    centre: Float[np.ndarray, " coordinate"],
    height: float,
    curvature: Float[np.ndarray, "coordinate coordinate"],
) -> Peak:
    """Approximate the density by its negative log and curvature at a vector."""
    root = whitening(curvature)
    return Peak(centre, root, np.linalg.slogdet(root)[1] - height)


def _hold(
    curvature: Float[np.ndarray, "coordinate coordinate"], places: Sequence[int]
) -> Float[np.ndarray, "coordinate coordinate"]:
    """Make the coordinates at some places independent of the others, with curvature 1."""
    held = list(places)
    alone = curvature.copy()
    alone[held, :] = alone[:, held] = 0.0
    alone[held, held] = 1.0
    return alone


def _least_squares(
    law: Law, table: Padded, points: ContrastPoints, x: Float[np.ndarray, " coordinate"]
) -> Float[np.ndarray, " coordinate"]:
    """Improve a start by least squares of the residuals and the priors; keep the start
    if the density is not higher. The step costs a hundredth of a Newton step.
    """
    z = from_vector(law, table.shared, x)
    sigma = float(np.exp(z["sigma"]))
    objective = Objective.posterior(sigma)
    optimum, _ = least_cost(
        law,
        table,
        points,
        {name: v[None] for name, v in z.items()},
        objective,
    )
    moved = np.asarray(to_vector(law, table.shared, z | optimum))
    heights, _ = at_each(law, table, points, np.stack([x, moved]))
    return moved if heights[1] < heights[0] else x


def _drop_similar(
    vectors: Sequence[Float[np.ndarray, " coordinate"]], tolerance: float = 1e-3
) -> list[Float[np.ndarray, " coordinate"]]:
    distinct: list[np.ndarray] = []
    for vector in vectors:
        is_close = partial(np.allclose, vector, rtol=tolerance, atol=tolerance)
        if not any(map(is_close, distinct)):
            distinct.append(vector)
    return distinct


def _minimise(
    law: Law,
    table: Padded,
    points: ContrastPoints,
    x: Float[np.ndarray, " coordinate"],
    *,
    held: Sequence[int] = (),
    steps: int = 100,
    longest: float = 10.0,
    tolerance: float = 1e-6,
) -> tuple[Float[np.ndarray, " coordinate"], float]:
    """Minimise the negative log density by Newton steps along its axes of curvature,
    with the sign of negative curvatures reversed.

    ``held``: places of coordinates that stay as they are; ``longest``: largest norm of
    a step; ``tolerance``: gain in log density below which a step is the last.
    """
    # shares of a step, all tried at once
    shares = 0.3 ** np.arange(7.0)
    heights, slopes = at_each(law, table, points, x[None])
    height, slope = float(heights[0]), slopes[0]
    for _ in range(steps):
        curvature = _hold(hessian(law, table, points, x), held)
        slope[list(held)] = 0.0
        scale = whitening(curvature)
        # scale scale' is the inverse of the curvature with eigenvalues made positive,
        # so steps also lead downhill from a saddle (Nocedal and Wright 2006, section
        # 3.4).
        move = scale @ (scale.T @ slope)
        # Where the density is flat, a Newton step can leave the plausible region.
        move *= min(1.0, longest / max(np.linalg.norm(move), 1e-300))
        tried = x - shares[:, None] * move
        heights, slopes = at_each(law, table, points, tried)
        best = int(np.argmin(heights))
        if not heights[best] < height - tolerance:
            break
        x, height, slope = tried[best], float(heights[best]), slopes[best]
    return x, height

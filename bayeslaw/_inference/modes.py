"""Find the modes of a posterior, and approximate its mass around them by normals
(Laplace).

A mode is not where the mass is if few checkpoints share an effect. The density is
highest where this effect has scale 0 and the law passes through all checkpoints; but it
does so in a thin sheet. Most of the mass has an effect and room for the law.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bayeslaw._inference.coordinates import ContrastPoints
from bayeslaw._inference.density import (
    at_each,
    from_vector,
    hessian,
    site_names,
    to_vector,
    whitening,
)
from bayeslaw._inference.noise import ERROR
from bayeslaw._inference.point import Objective, least_cost
from bayeslaw._inference.table import Padded
from bayeslaw._law.law import Law

if TYPE_CHECKING:
    from jaxtyping import Float

    from bayeslaw._base.arrays import AnyArray

EFFECT = "tau_checkpoint"
# scales of the effect at which the mass is looked for, in sds of its prior
EFFECT_SCALES = (0.1, 0.25, 0.5, 1.0)
LIGHT = 0.01  # peaks with a smaller share of the mass are left out


class Peak(NamedTuple):
    """A normal approximation of the density around a vector.

    ``centre``: shape (coordinate,); ``root``: a root of the covariance, shape
    (coordinate, coordinate); ``log_mass``: log of the mass under it, up to a constant.
    """

    centre: Float[np.ndarray, " coordinate"]
    root: Float[np.ndarray, "coordinate coordinate"]
    log_mass: float


def find_peaks(
    law: Law,
    table: Padded,
    points: ContrastPoints,
    starts: Float[AnyArray, "start coordinate"],
) -> list[Peak]:
    """Approximate the posterior around its mode and, if the effect of checkpoints has
    scale 0 there, at some other scales of it. The heaviest peak is first. If the density
    is undefined at all starts, the only peak has mass 0.
    """
    nearer = [_least_squares(law, table, points, start) for start in np.asarray(starts)]
    minima = [_minimise(law, table, points, start) for start in _drop_similar(nearer)]
    mode, height = min(minima, key=lambda minimum: minimum[1])
    if not np.isfinite(height):
        return [Peak(mode, np.eye(len(mode)), -np.inf)]
    curvature = hessian(law, table, points, mode)
    peaks = [_build_peak(mode, height, curvature)]
    names = site_names(law, table.shared)
    if EFFECT in names:
        peaks += _find_peaks_with_effect(law, table, points, mode, names.index(EFFECT))
    peaks.sort(key=lambda peak: -peak.log_mass)
    least = peaks[0].log_mass + np.log(LIGHT)
    return [peak for peak in peaks if peak.log_mass > least]


def _find_peaks_with_effect(
    law: Law,
    table: Padded,
    points: ContrastPoints,
    mode: Float[np.ndarray, " coordinate"],
    place: int,
) -> list[Peak]:
    """Find the highest density at each of some scales of the effect, whose coordinate is
    at ``place``; nothing if the mode itself has an effect.
    """
    _, sd = ERROR.tau_checkpoint.args
    scales = sd * np.array(EFFECT_SCALES)
    peaks, vector = [], mode.copy()
    for scale in scales:
        vector[place] = scale
        vector, height = _minimise(law, table, points, vector, held=place)
        curvature = _hold(hessian(law, table, points, vector), place)
        # as wide as half of the way to the next scale
        curvature[place, place] = (scale / 2) ** -2
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
    curvature: Float[np.ndarray, "coordinate coordinate"], place: int
) -> Float[np.ndarray, "coordinate coordinate"]:
    """Make a coordinate independent of the others, with curvature 1."""
    held = curvature.copy()
    held[place, :] = held[:, place] = 0.0
    held[place, place] = 1.0
    return held


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
    held: int | None = None,
    *,
    steps: int = 100,
    longest: float = 10.0,
    tolerance: float = 1e-6,
) -> tuple[Float[np.ndarray, " coordinate"], float]:
    """Minimise the negative log density by Newton steps along its axes of curvature,
    with the sign of negative curvatures reversed.

    ``held``: place of a coordinate that stays as it is; ``longest``: largest norm of a step; ``tolerance``: gain in log density below which
    a step is the last.
    """
    # shares of a step, all tried at once
    shares = 0.3 ** np.arange(7.0)
    heights, slopes = at_each(law, table, points, x[None])
    height, slope = float(heights[0]), slopes[0]
    for _ in range(steps):
        curvature = hessian(law, table, points, x)
        if held is not None:
            curvature, slope[held] = _hold(curvature, held), 0.0
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

"""Model drift: the common error of a law and its misfit beyond the training runs.

Inside the range of the training runs there is no drift. Beyond, the error of log loss
is a drift times the distance in e-folds. Each side of each axis has its own drift,
which is normal with the law's scale tau (in the spirit of Kennedy and O'Hagan 2001).

tau is learned from the errors of the law's own forecasts of left-out stages, as far as
drifts can make such errors (`directions`). These forecasts include the misfit, which
goes on beyond the runs as at their edge, so tau and its prior are about the remaining
error. Drifts of laws of N and D have a mean, which tables of many labs show: beyond the
runs these laws forecast too low a loss at more tokens per parameter, and too high a loss
at more compute. Laws that start from the checkpoint's losses share the first.
docs/discrepancy.md tells what was tried on real tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from bayeslaw._inference.diagnostics import by_weight, weighted_student
from bayeslaw._inference.discrepancy.axes import AXES, position
from bayeslaw._law.columns import (
    LOSS_BEFORE,
    SOURCE_LOSS_BEFORE,
    is_share,
    powers_of,
    starts_from_losses,
)
from bayeslaw._law.priors import Prior, lognormal

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

    from bayeslaw._base.arrays import AnyArray


class DriftPrior(NamedTuple):
    """Prior of the drifts to all sides of a range, for each e-fold.

    ``scale``: prior of the scale that all sides have in common. ``mean``: mean drift to
    each side, relative to the side's scale or to ``widest``, if this is smaller. A scale
    may be large because forecasts missed stages in both directions, and then the mean
    does not grow with it.
    """

    scale: Prior
    mean: tuple[float, ...]
    widest: float = 0.003

    def mean_drift(
        self, scales: Float[np.ndarray, "draw side"]
    ) -> Float[np.ndarray, "draw side"]:
        """Compute the mean drift to each side, given drawn scales of all sides."""
        return np.array(self.mean) * np.minimum(scales, self.widest)


class DriftPriors(NamedTuple):
    """Priors of drift, by the columns that the law reads.

    ``tau``: common scale of most laws. ``known_tau``: that of laws of N and D, and of
    laws that start from the checkpoint's losses. Above the runs their drift has the
    mean ``size_mean`` or ``state_mean`` along these axes.
    """

    tau: Prior = lognormal(
        0.0015, 0.6, "score and cover of forecasts of 31 public tables"
    )
    known_tau: Prior = lognormal(
        0.0005, 0.6, "forecasts of 26 tables of nine labs, and of four grids"
    )
    size_mean: tuple[tuple[str, float], ...] = (("D/N", 2.0), ("N*D", -2.0))
    state_mean: tuple[tuple[str, float], ...] = (("D/N", 2.0),)

    def of(self, training: Range) -> DriftPrior:
        """Choose the prior of the drifts beyond a range."""
        scale, above = self.tau, ()
        if set(training.axes) == OF_SIZE:
            scale, above = self.known_tau, self.size_mean
        elif starts_from_losses(training.axes):
            scale, above = self.known_tau, self.state_mean
        by_axis = dict(above)
        mean = [m for axis in training.axes for m in (by_axis.get(axis, 0.0), 0.0)]
        return DriftPrior(scale, tuple(mean))


class ScaleSampler(NamedTuple):
    """Settings of the importance sampling of a drift's scales (`draw_scales`)."""

    draws: int = 1000
    tries: int = 4000  # proposals in each round
    rounds: int = 2
    dof: int = 6  # degrees of freedom of the proposals, Student-t
    widened: float = 1.3  # sd of the first proposal, relative to the prior's
    farthest: float = 6.0  # prior sds; farther out the likelihood is taken as constant


class DriftAxes(NamedTuple):
    """Axes of drift and their units: e-folds, or a step with a similar effect on a
    loss: half a unit of the misfit along the target's share, a tenth of a loss.
    """

    by_e_folds: tuple[str, ...] = ("N", "D", "D/N", "N*D", "ptpp", "S1_pt", "S1_cpt")
    target_share: str = "1 - replay"
    losses: tuple[str, ...] = (
        LOSS_BEFORE,
        SOURCE_LOSS_BEFORE,
        "source_loss",
        "target_loss",
    )
    loss_unit: float = 0.1
    share_unit: float = AXES.share_unit / AXES.count_unit


ALONG = DriftAxes()
OF_SIZE = frozenset({"N", "D", "D/N", "N*D"})  # axes of a law of N and D alone


class Range(NamedTuple):
    """Ends of the training runs along each axis; plain tuples, so that it can key
    compiled programs.
    """

    axes: tuple[str, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


def positions(
    covariates: Mapping[str, Any], xp: ModuleType = jnp
) -> dict[str, Float[AnyArray, "*run"]]:
    """Compute the position of each run along the axes of its covariates."""
    logs = {
        column: xp.log(xp.maximum(xp.asarray(values), 1e-12))
        for column, values in covariates.items()
        if column != "replay"
    }
    at: dict[str, Any] = {
        axis: sum(
            (power * logs[column] for column, power in powers_of(axis).items()),
            xp.zeros(()),
        )
        for axis in ALONG.by_e_folds
        if set(powers_of(axis)) <= set(logs)
    }
    losses = [column for column in ALONG.losses if column in logs]
    at |= {column: logs[column] / ALONG.loss_unit for column in losses}
    # an e-fold of drift is two units of the misfit along shares
    shares = filter(is_share, covariates)
    at |= {share: AXES.count_unit * position(share, covariates, xp) for share in shares}
    if "replay" in covariates:
        # the position rises as the target's share falls
        at[ALONG.target_share] = -AXES.count_unit * position("replay", covariates, xp)
    return at


def of_saved(saved: Mapping[str, Any]) -> Range:
    """Read a saved range, whose tuples are lists in JSON."""
    return Range(*(tuple(saved[field]) for field in Range._fields))


def value_at(axis: str, position: float) -> float:
    """Convert a position of `positions` to the value of its axis."""
    if axis == ALONG.target_share:
        return float(np.exp(-position * ALONG.share_unit))
    if is_share(axis):
        return float(np.exp(position * ALONG.share_unit))
    return float(np.exp(position * (ALONG.loss_unit if axis in ALONG.losses else 1.0)))


def training_range(covariates: Mapping[str, Float[np.ndarray, " run"]]) -> Range:
    """Compute the range of the training runs."""
    at = positions(covariates, np)
    return Range(
        tuple(at),
        tuple(float(v.min()) for v in at.values()),
        tuple(float(v.max()) for v in at.values()),
    )


def distances(
    covariates: Mapping[str, Any], training: Range, xp: ModuleType = jnp
) -> Float[AnyArray, "*run side"]:
    """Compute each run's distances beyond the range, above and below."""
    at, sides = positions(covariates, xp), []
    for axis, low, high in zip(training.axes, training.low, training.high, strict=True):
        sides += [
            xp.maximum(at[axis] - high, 0.0),
            # bounded, because a budget of 0 would be infinitely far away
            xp.clip(low - at[axis], 0.0, 3.0),
        ]
    return xp.stack(xp.broadcast_arrays(*sides), axis=-1)


class Miss(NamedTuple):
    """What the held-out runs of a fold tell about drifts: residuals of log loss, their
    covariance by the forecast (with a new run's noise), and distances beyond the range,
    all in the `directions` in which drifts move runs.
    """

    residual: Float[np.ndarray, " direction"]
    covariance: Float[np.ndarray, "direction direction"]
    distance: Float[np.ndarray, "direction side"]


def directions(
    distance: Float[np.ndarray, "run side"],
) -> Float[np.ndarray, "run direction"]:
    """Find an orthonormal basis of the errors that drifts can make at held-out runs.

    Only these components of the residuals are compared with their covariance. Generalised
    least squares of all residuals would trust whatever differences between runs the
    forecast holds for small. Where the law errs in these, the estimate is far from any
    residual: a stage that was forecast .8% too low showed a drift of 1.9% downwards.
    """
    basis, size, _ = np.linalg.svd(distance, full_matrices=False)
    return basis[:, size > 1e-9 * size.max(initial=1e-300)]


def draw_scales(
    misses: Sequence[Miss],
    prior: DriftPrior,
    rng: np.random.Generator,
    sampler: ScaleSampler = ScaleSampler(),
) -> Float[np.ndarray, "draw side"]:
    """Draw the scale of the drift to each side, given forecasts of left-out stages.

    Adaptive importance sampling has two rounds: from the widened prior, then from a
    Student-t around the weighted draws. Returns equally weighted draws, shape (draw,
    side). A side without a left-out stage follows the common scale.
    """
    sides = len(prior.mean)
    summaries = [_Summary.of(miss) for miss in misses]
    is_tested = np.zeros(sides, bool)
    for miss in misses:
        is_tested |= np.any(miss.distance > 0, axis=0)
    # Sample in prior sds: the log of the common scale, and the deviation from it of each
    # side with a left-out stage.
    size = 1 + int(is_tested.sum())
    tested_mean = tuple(np.array(prior.mean)[is_tested])
    tested_prior = prior._replace(mean=tested_mean)

    def log_density(standard: Float[np.ndarray, "draw scale"]):
        # far out the likelihood would overflow, and the prior excludes these scales
        # anyway
        near = np.clip(standard, -sampler.farthest, sampler.farthest)
        scales = _compute_scales(near, prior.scale)
        mean = tested_prior.mean_drift(scales)
        log_p = -0.5 * np.sum(standard**2, axis=1)
        for summary in summaries:
            log_p = log_p + summary.log_likelihood(scales, mean, is_tested)
        return log_p

    centre, root = np.zeros(size), sampler.widened * np.eye(size)
    for _ in range(sampler.rounds):
        tried, weight, _ = weighted_student(
            log_density, centre, root, sampler.dof, sampler.tries, rng
        )
        centre = weight @ tried
        away = (tried - centre) * np.sqrt(weight)[:, None]
        root = np.linalg.cholesky(away.T @ away + 1e-3 * np.eye(size))
    draws = tried[by_weight(weight, sampler.draws, rng)]
    everywhere = rng.standard_normal((sampler.draws, 1 + sides))
    everywhere[:, 0] = draws[:, 0]
    everywhere[:, 1:][:, is_tested] = draws[:, 1:]
    return _compute_scales(everywhere, prior.scale)


def _compute_scales(
    standard: Float[np.ndarray, "draw scale"], common_prior: Prior, side: float = 1.0
) -> Float[np.ndarray, "draw side"]:
    """Compute the scales of sides. ``standard`` has the log of the common scale, then
    each side's deviation from it, in prior sds. ``side``: sd of this deviation.
    """
    median, spread = common_prior.args
    common = np.log(median) + spread * standard[:, :1]
    return np.exp(common + side * standard[:, 1:])


class _Summary(NamedTuple):
    """The information of a left-out stage about drifts: with distances X, residuals r
    and forecast covariance C, ``precision`` X' C^-1 X and ``product`` X' C^-1 r.
    """

    precision: Float[np.ndarray, "side side"]
    product: Float[np.ndarray, " side"]

    @classmethod
    def of(cls, miss: Miss) -> _Summary:
        """Whiten residuals and distances with the covariance's Cholesky factor."""
        root = np.linalg.cholesky(miss.covariance)
        away = np.linalg.solve(root, miss.distance)
        return cls(away.T @ away, away.T @ np.linalg.solve(root, miss.residual))

    def log_likelihood(
        self,
        scales: Float[np.ndarray, "draw tested"],
        mean: Float[np.ndarray, "draw tested"],
        is_tested: Bool[np.ndarray, " side"],
    ) -> Float[np.ndarray, " draw"]:
        """Compute the log density of the residuals for drifts with scales T and mean T
        m, up to a constant: -log|B| / 2 + |L^-1 (T X'C^-1 r + m)|^2 / 2 - |m|^2 / 2 with
        B = I + T X'C^-1 X T = L L'.
        """
        precision = self.precision[np.ix_(is_tested, is_tested)]
        inner = np.eye(len(precision)) + (
            scales[:, :, None] * precision * scales[:, None, :]
        )
        root = np.linalg.cholesky(inner)
        over_scale = mean / scales
        right = scales * self.product[is_tested] + over_scale
        half = np.linalg.solve(root, right[..., None])[..., 0]
        log_size = np.sum(np.log(np.diagonal(root, axis1=1, axis2=2)), axis=1)
        square = np.sum(half**2, axis=1) - np.sum(over_scale**2, axis=1)
        return 0.5 * square - log_size


def without_outliers(
    residual: Float[np.ndarray, " run"], sds: float = 5.0
) -> Float[np.ndarray, " run"]:
    """Clip outliers among a stage's residuals to a number of robust sds around the
    median, because a drift moves all runs of a stage together.
    """
    middle = np.median(residual)
    away = np.abs(residual - middle)
    # the sd of a normal from its median absolute deviation
    spread = 1.4826 * np.median(away)
    reach = sds * spread
    return np.clip(residual, middle - reach, middle + reach)


def draw_drift(
    scales: Float[np.ndarray, "scale_draw side"],
    prior: DriftPrior,
    draws: int,
    rng: np.random.Generator,
) -> Float[np.ndarray, "draw side"]:
    """Draw normal drifts with drawn scales, and the prior's mean at these."""
    chosen = scales[rng.integers(len(scales), size=draws)]
    return prior.mean_drift(chosen) + chosen * rng.standard_normal(chosen.shape)


def draw_from_prior(
    training: Range, draws: int, rng: np.random.Generator
) -> Float[np.ndarray, "draw side"]:
    """Draw drifts from the prior, for a law without left-out stages."""
    prior = DriftPriors().of(training)
    scales = draw_scales((), prior, rng)
    return draw_drift(scales, prior, draws, rng)

"""How one run departs from its law: a level and a slope of its own, a wander that comes
and goes, and the noise of each point.

    log loss(t) = law(t) + level + slope (t - end) + wander(t) + noise,  t = log tokens

The wander is a Matern-3/2 process, so that level, slope and wander are a linear state of
four numbers and a Kalman filter learns them exactly, point by point (Hartikainen and
Sarkka 2010; Durbin and Koopman 2012). It does so at many draws of the scales and for
every draw of the law at once; their weights are the likelihood of the points. Where the
law holds, small scales win, and the end is the law's; where it does not, large ones do,
and the end is the line that the run itself draws.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import stats
from scipy.special import logsumexp, ndtr

from bayeslaw._inference.diagnostics import pareto_smoothed

if TYPE_CHECKING:
    from jaxtyping import Float

SCALES = 64  # draws of the scales, of a Sobol sequence
# Log-normal priors, (median, sd of the log), of log loss. What measured runs of tiny
# models (docs/follow.md) and published curves depart by: .1 to 3%.
LEVEL = (0.004, 1.0)  # at the end
SLOPE = (0.005, 1.0)  # per e-fold of tokens
WANDER = (0.004, 1.0)
LENGTH = (3.0, 0.7)  # e-folds of tokens over which a wander changes
NOISE = (0.0015, 0.8)  # of a point near the end
FADING = (0.0, 0.5, 1.0)  # power of tokens with which the noise of points falls
# A point is a spike so often, and its noise then so many times as large.
SPIKES, SPIKE = 0.05, 10.0
SAMPLES = 8192  # that quantiles of the mixture are taken from


class Scales(NamedTuple):
    """Scales of a departure, each of shape (scale,): see the priors above."""

    level: Float[np.ndarray, " scale"]
    slope: Float[np.ndarray, " scale"]
    wander: Float[np.ndarray, " scale"]
    length: Float[np.ndarray, " scale"]
    noise: Float[np.ndarray, " scale"]
    fading: Float[np.ndarray, " scale"]

    @classmethod
    def draw(cls, count: int = SCALES, seed: int = 0) -> Scales:
        """Draws of the prior, spread evenly."""
        sobol = stats.qmc.Sobol(6, seed=seed)
        uniform = sobol.random(count).T
        lognormal = [
            median * np.exp(sd * stats.norm.ppf(u))
            for (median, sd), u in zip(
                (LEVEL, SLOPE, WANDER, LENGTH, NOISE), uniform[:5], strict=True
            )
        ]
        level = np.floor(len(FADING) * uniform[5]).astype(int)
        return cls(*lognormal, np.array(FADING)[level])

    def variance(self, before_end: float) -> Float[np.ndarray, " scale"]:
        """Of the noise of a point, so many e-folds of tokens before the end."""
        return self.noise**2 * np.exp(2 * self.fading * before_end)


@dataclass(frozen=True, eq=False)
class Departure:
    """What is known of a run's departure after its points so far.

    Parameters
    ----------
    scales
        Draws of its scales.
    end
        Log tokens at which the level is that of the run.
    clock
        Log tokens of the last point; None before the first.
    mean
        Of level, slope, wander and the wander's slope, shape (4, scale, draw).
    covariance
        Of the same, shape (scale, 4, 4); draws of the law share it.
    log_weight
        Of each draw of scales and law, shape (scale, draw).
    """

    scales: Scales
    end: float
    clock: float | None
    mean: Float[np.ndarray, "4 scale draw"]
    covariance: Float[np.ndarray, "scale 4 4"]
    log_weight: Float[np.ndarray, "scale draw"]

    @classmethod
    def before(cls, draws: int, end: float, seed: int = 0) -> Departure:
        """Nothing is known but the priors."""
        scales = Scales.draw(seed=seed)
        count = len(scales.level)
        covariance = np.zeros((count, 4, 4))
        covariance[:, 0, 0] = scales.level**2
        covariance[:, 1, 1] = scales.slope**2
        covariance[:, 2:, 2:] = _stationary(scales)
        mean = np.zeros((4, count, draws))
        log_weight = np.full((count, draws), -np.log(count * draws))
        return cls(scales, end, None, mean, covariance, log_weight)

    def after(self, clock: float, left: Float[np.ndarray, " draw"]) -> Departure:
        """With one more point.

        Parameters
        ----------
        clock
            Log tokens of the point, after those of the last.
        left
            Its log loss less each draw's law, shape (draw,).
        """
        now = self._moved(clock)
        seen = now._reading(clock)
        covered = np.einsum("gij,gj->gi", now.covariance, seen)
        known = np.einsum("gi,gi->g", seen, covered)
        noise = self.scales.variance(self.end - clock)
        missed = left - now._at(clock)

        plain, spiked = known + noise, known + SPIKE**2 * noise
        as_plain = np.log(1 - SPIKES) + _log_normal(missed, plain)
        as_spike = np.log(SPIKES) + _log_normal(missed, spiked)
        log_weight = now.log_weight + np.logaddexp(as_plain, as_spike)
        log_weight -= logsumexp(log_weight)

        # One noise for all draws of the law keeps their covariance one: that of the
        # plain point and of the spike, in the shares that the weights give them.
        is_spike = np.exp(as_spike - np.logaddexp(as_plain, as_spike))
        share = float((np.exp(log_weight) * is_spike).sum())
        precision = (1 - share) / noise + share / (SPIKE**2 * noise)
        gain = covered / (known + 1 / precision)[:, None]
        mean = now.mean + gain.T[:, :, None] * missed
        covariance = now.covariance - gain[:, :, None] * covered[:, None, :]
        return replace(now, mean=mean, covariance=covariance, log_weight=log_weight)

    def ahead(
        self, clock: float
    ) -> tuple[Float[np.ndarray, "scale draw"], Float[np.ndarray, " scale"]]:
        """Mean, shape (scale, draw), and variance, shape (scale,), of a point's
        departure, its noise included.
        """
        then = self._moved(clock)
        seen = then._reading(clock)
        known = np.einsum("gi,gij,gj->g", seen, then.covariance, seen)
        return then._at(clock), known + self.scales.variance(self.end - clock)

    def covariance_ahead(
        self, clock: float, later: float
    ) -> Float[np.ndarray, " scale"]:
        """Of the departures at two points to come, their noises aside, shape
        (scale,).
        """
        first = self._moved(clock)
        step = _steps(self.scales, later - clock)
        reading = first._reading(clock)
        seen = np.einsum("gij,gj->gi", first.covariance, reading)
        carried = seen.copy()
        carried[:, 2:] = np.einsum("gij,gj->gi", step, seen[:, 2:])
        return np.einsum("gi,gi->g", first._reading(later), carried)

    # -- weights -----------------------------------------------------------------------

    @cached_property
    def weight(self) -> Float[np.ndarray, "scale draw"]:
        """Of each draw of scales and law, adding up to 1."""
        return np.exp(self.log_weight)

    @property
    def khat(self) -> float:
        """Pareto k-hat of the weights of the law's draws: over .7 they wear out."""
        if self.clock is None:
            return -np.inf
        of_law = logsumexp(self.log_weight, axis=0)
        return pareto_smoothed(of_law)[1]

    @property
    def effective(self) -> float:
        """Effective draws of the law."""
        of_law = self.weight.sum(axis=0)
        return float(1 / (of_law**2).sum())

    # -- the state ---------------------------------------------------------------------

    def _moved(self, clock: float) -> Departure:
        """The state at a later point; only the wander moves."""
        gap = 0.0 if self.clock is None else clock - self.clock
        step = _steps(self.scales, gap)
        wander, slope = self.mean[2], self.mean[3]
        s = step[..., None]
        mean = self.mean.copy()
        mean[2] = s[:, 0, 0] * wander + s[:, 0, 1] * slope
        mean[3] = s[:, 1, 0] * wander + s[:, 1, 1] * slope

        whole = np.zeros((len(step), 4, 4))
        whole[:, 0, 0] = whole[:, 1, 1] = 1.0
        whole[:, 2:, 2:] = step
        covariance = whole @ self.covariance @ whole.transpose(0, 2, 1)
        rest = _stationary(self.scales)
        covariance[:, 2:, 2:] += rest - step @ rest @ step.transpose(0, 2, 1)
        return replace(self, clock=clock, mean=mean, covariance=covariance)

    def _reading(self, clock: float) -> Float[np.ndarray, "scale 4"]:
        """What a point shows of the state: level + slope (t - end) + wander."""
        shown = np.array([1.0, clock - self.end, 1.0, 0.0])
        return np.broadcast_to(shown, (len(self.scales.level), 4))

    def _at(self, clock: float) -> Float[np.ndarray, "scale draw"]:
        level, slope, wander, _ = self.mean
        return level + slope * (clock - self.end) + wander


@dataclass(frozen=True, eq=False)
class Outlook:
    """The log loss of a point to come: a mixture of normals, one for each draw of law
    and scales.

    Parameters
    ----------
    mean
        Shape (scale, draw).
    sd
        Shape (scale,).
    weight
        Shape (scale, draw), adding up to 1.
    """

    mean: Float[np.ndarray, "scale draw"]
    sd: Float[np.ndarray, " scale"]
    weight: Float[np.ndarray, "scale draw"]

    @classmethod
    def of(
        cls, departure: Departure, clock: float, law: Float[np.ndarray, " draw"]
    ) -> Outlook:
        """At log tokens ``clock``, where the law's draws are ``law``."""
        mean, variance = departure.ahead(clock)
        return cls(law + mean, np.sqrt(variance), departure.weight)

    def below(self, log_loss: float) -> float:
        """Probability of a log loss at most this."""
        chance = ndtr((log_loss - self.mean) / self.sd[:, None])
        return float(np.clip((self.weight * chance).sum(), 0.0, 1.0))

    def quantiles(
        self, probs: list[float], seed: int = 0
    ) -> Float[np.ndarray, " prob"]:
        """Of the log loss."""
        drawn = self.draw(SAMPLES, np.random.default_rng(seed))
        return np.quantile(drawn, probs)

    def draw(
        self, count: int, rng: np.random.Generator
    ) -> Float[np.ndarray, " sample"]:
        """Log losses; which normals they come from is drawn systematically."""
        ends = np.cumsum(self.weight.ravel())
        places = (np.arange(count) + rng.random()) / count * ends[-1]
        index = np.searchsorted(ends, places)
        which = index // self.weight.shape[1]
        # normals spread as evenly, in an order that knows nothing of the first
        even = stats.norm.ppf((np.arange(count) + 0.5) / count)
        return self.mean.ravel()[index] + self.sd[which] * rng.permutation(even)


def _stationary(scales: Scales) -> Float[np.ndarray, "scale 2 2"]:
    """Covariance of a wander and its slope where nothing is measured."""
    covariance = np.zeros((len(scales.wander), 2, 2))
    covariance[:, 0, 0] = scales.wander**2
    covariance[:, 1, 1] = 3 * (scales.wander / scales.length) ** 2
    return covariance


def _steps(scales: Scales, gap: float) -> Float[np.ndarray, "scale 2 2"]:
    """What a wander and its slope are expected to be after so many e-folds."""
    decay = np.sqrt(3) / scales.length
    a = decay * gap
    shrink = np.exp(-a)
    step = np.zeros((len(a), 2, 2))
    step[:, 0, 0] = shrink * (1 + a)
    step[:, 0, 1] = shrink * gap
    step[:, 1, 0] = -shrink * decay * a
    step[:, 1, 1] = shrink * (1 - a)
    return step


def _log_normal(
    missed: Float[np.ndarray, "scale draw"], variance: Float[np.ndarray, " scale"]
) -> Float[np.ndarray, "scale draw"]:
    v = variance[:, None]
    return -0.5 * (missed**2 / v + np.log(2 * np.pi * v))

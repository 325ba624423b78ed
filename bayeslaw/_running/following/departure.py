"""Filter the departure of one run from its law, point by point.

    log loss(t) = law(t) + level + slope (t - end) + wander(t) + noise(t),  t = log tokens

The wander is a Matern-3/2 process. It shrinks towards the end, because laws miss early
tokens by more than late ones. The noise is an Ornstein-Uhlenbeck process plus
independent noise. The state has five numbers: level, slope, wander, the wander's slope,
OU noise. Given scales and a draw of the law, a Kalman filter is exact (Hartikainen and
Sarkka 2010; Durbin and Koopman 2012). One filter runs for each pair of scales and draw;
the likelihood of the points weights the pairs. If the run follows its law, pairs with
small scales get most weight, and the forecast of the end is that of the law. If it does
not, pairs with large scales get most weight, and the forecast extrapolates the run's
own points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import stats
from scipy.special import logsumexp, ndtr

from bayeslaw._base.streams import generator
from bayeslaw._inference.diagnostics import pareto_smoothed

if TYPE_CHECKING:
    from jaxtyping import Float


@dataclass(frozen=True)
class DeparturePriors:
    """Priors of a departure's scales; a log-normal is (median, sd of the log).

    If the fit's error of a new run is below ``usual_error``, the scales of level,
    slope, wander and noise are multiplied by sqrt(error / usual_error). The square root
    makes the scales larger than in proportion, because a fit to few curves
    underestimates the error of a new curve. Measured runs depart by .1 to 3%
    (docs/follow.md). If runs were left out when the law was judged, the slopes of their
    errors are known, and the scales of slope and wander are multiplied by the root mean
    square of these slopes and of the prior's median, over this median.
    """

    level: tuple[float, float] = (0.004, 1.0)  # at the end of the run, in log loss
    slope: tuple[float, float] = (0.005, 1.0)  # in log loss per e-fold of tokens
    wander: tuple[float, float] = (0.006, 1.0)  # at the end of the run, in log loss
    length: tuple[float, float] = (2.0, 0.7)  # of the wander, in e-folds of tokens
    noise: tuple[float, float] = (0.00225, 0.8)  # at the end of the run, in log loss
    # equally probable powers p in tokens^-p, by which noise and wander shrink
    fading: tuple[float, ...] = (0.0, 0.5, 1.0)
    waning: tuple[float, ...] = (0.4, 0.8)
    # sd of a new run's log loss around its law: reference, and lower bound
    usual_error: float = 0.008
    least_error: float = 0.0001


@dataclass(frozen=True)
class PointNoise:
    """Parts of the noise of a run's points: OU noise and independent noise."""

    # correlation length of the OU noise, in e-folds of tokens, as in fits
    # (`noise.ErrorPrior.curve_length`)
    length: float = 0.1
    independent: float = 0.3  # its sd, relative to the OU noise
    spikes: float = 0.05  # probability that a point is a spike
    spike: float = 10.0  # sd of a spike's independent noise, relative to the OU noise


class Scales(NamedTuple):
    """Scales of a departure, each of shape (scale,): see `DeparturePriors`."""

    level: Float[np.ndarray, " scale"]
    slope: Float[np.ndarray, " scale"]
    wander: Float[np.ndarray, " scale"]
    length: Float[np.ndarray, " scale"]
    noise: Float[np.ndarray, " scale"]
    fading: Float[np.ndarray, " scale"]
    waning: Float[np.ndarray, " scale"]

    @classmethod
    def draw(
        cls,
        error: float,
        count: int = 64,
        seed: int = 0,
        priors: DeparturePriors = DeparturePriors(),
        slopes: Sequence[float] = (),
        measured: bool = False,
    ) -> Scales:
        """Draw from the priors by a Sobol sequence.

        ``error``: sd of a new run's log loss around its law. ``slopes``: slopes of
        errors along runs that were left out: one for each left-out stage, in log loss
        per e-fold of tokens. ``measured``: Whether ``error`` was measured on other runs
        of the setting. The scales of all parts are then proportional to it, and add up
        to it at the end.
        """
        error = max(error, priors.least_error)
        share = min(1.0, error / priors.usual_error) ** 0.5
        if measured:
            medians = (priors.level[0], priors.wander[0], priors.noise[0])
            share = error / float(np.linalg.norm(medians))
        usual_slope = share * priors.slope[0]
        squares = np.square([usual_slope, *slopes])
        bent = share * np.sqrt(squares.mean()) / usual_slope
        uniform = stats.qmc.Sobol(7, seed=seed).random(count).T
        factors = {"level": share, "slope": bent, "wander": bent, "noise": share}
        drawn = {}
        for name, u in zip(cls._fields, uniform, strict=True):
            prior = getattr(priors, name)
            if name in ("fading", "waning"):
                drawn[name] = np.array(prior)[np.floor(len(prior) * u).astype(int)]
            else:
                log_normal = prior[0] * np.exp(prior[1] * stats.norm.ppf(u))
                drawn[name] = factors.get(name, 1.0) * log_normal
        return cls(**drawn)

    def noise_at(self, before_end: float) -> Float[np.ndarray, " scale"]:
        """Compute the noise scale ``before_end`` e-folds of tokens before the end."""
        return self.noise * np.exp(self.fading * before_end)

    def stationary(self) -> Float[np.ndarray, "scale 5 5"]:
        """Compute the covariance of the state before any point."""
        # a Matern-3/2 process of sd s and length l has a derivative of variance
        # 3 (s / l)^2
        bend = np.sqrt(3) * self.wander / self.length
        of_noise = np.ones_like(self.level)
        sds = np.stack([self.level, self.slope, self.wander, bend, of_noise], axis=1)
        return sds[:, :, None] ** 2 * np.eye(5)


@dataclass(frozen=True, eq=False)
class Departure:
    """Posterior of a run's departure, given its points so far."""

    scales: Scales
    # log tokens at the end of the run; the departure there is level + wander
    end: float
    clock: float | None  # log tokens of the last point; None before the first
    # mean of the state: level, slope, wander (relative to its scale before the end), the
    # wander's slope, OU noise (relative to its scale)
    mean: Float[np.ndarray, "scale 5 draw"]
    # covariance of the state; equal for all draws of the law
    covariance: Float[np.ndarray, "scale 5 5"]
    # log weight of each pair of scales and draw of the law
    log_weight: Float[np.ndarray, "scale draw"]
    point_noise: PointNoise = PointNoise()  # parts of the noise of points

    @classmethod
    def before(cls, scales: Scales, draws: int, end: float) -> Departure:
        """Start before any point, given draws of the scales."""
        count = len(scales.level)
        mean = np.zeros((count, 5, draws))
        log_weight = np.full((count, draws), -np.log(count * draws))
        return cls(scales, end, None, mean, scales.stationary(), log_weight)

    def after(self, clock: float, residual: Float[np.ndarray, " draw"]) -> Departure:
        """Update the posterior by one point (Kalman filter).

        ``clock``: log tokens of the point, more than those of the last point.
        ``residual``: log loss of the point minus each draw's law, shape (draw,).
        """
        now = self._move_to(clock)
        reading = now._read_state(clock)
        # covariance of the state with the point
        state_point = np.einsum("gij,gj->gi", now.covariance, reading)
        variance = (reading * state_point).sum(axis=1)
        plain_noise = (self.point_noise.independent * reading[:, 4]) ** 2
        spike_noise = (self.point_noise.spike * reading[:, 4]) ** 2
        innovation = residual - predict(now.mean, reading)

        def log_normal(noise: Float[np.ndarray, " scale"]) -> np.ndarray:
            v = (variance + noise)[:, None]
            return -0.5 * (innovation**2 / v + np.log(2 * np.pi * v))

        spikes = self.point_noise.spikes
        as_plain = np.log(1 - spikes) + log_normal(plain_noise)
        as_spike = np.log(spikes) + log_normal(spike_noise)
        log_weight = now.log_weight + np.logaddexp(as_plain, as_spike)
        log_weight -= logsumexp(log_weight)

        # Each draw gives the point a probability of being a spike. The update uses one
        # noise precision, averaged over draws, so that draws keep a common covariance.
        is_spike = np.exp(as_spike - np.logaddexp(as_plain, as_spike))
        share = float((np.exp(log_weight) * is_spike).sum())
        precision = (1 - share) / plain_noise + share / spike_noise
        gain = state_point / (variance + 1 / precision)[:, None]
        mean = now.mean + gain[:, :, None] * innovation[:, None, :]
        covariance = now.covariance - gain[:, :, None] * state_point[:, None, :]
        return replace(now, mean=mean, covariance=covariance, log_weight=log_weight)

    def covariance_ahead(
        self, clock: float, later: float
    ) -> Float[np.ndarray, " scale"]:
        """Compute the covariance of departures at two future points, shape (scale,)."""
        first = self._move_to(clock)
        # covariance of the state with the first point, at that point and later
        state_point = first.covariance @ self._read_state(clock)[:, :, None]
        state_later = self._find_steps(later - clock) @ state_point
        return predict(state_later, self._read_state(later))[:, 0]

    def with_equal_draws(self) -> Departure:
        """Give all draws of the law equal weight. This is for a law that was refitted
        to the points, because weights by the points would count them twice. Within a
        draw, scales keep their relative weights.
        """
        of_law = logsumexp(self.log_weight, axis=0)
        equal = -np.log(len(of_law))
        return replace(self, log_weight=self.log_weight - of_law + equal)

    # -- weights -----------------------------------------------------------------------

    @cached_property
    def weight(self) -> Float[np.ndarray, "scale draw"]:
        """Weight of each pair of scales and draw of the law; the sum is 1."""
        return np.exp(self.log_weight)

    @property
    def khat(self) -> float:
        """Pareto k-hat of the weights of the law's draws; unreliable above .7."""
        if self.clock is None:
            return -np.inf
        return pareto_smoothed(logsumexp(self.log_weight, axis=0))[1]

    @property
    def effective(self) -> float:
        """Effective number of the law's draws: 1 / sum of squared weights."""
        squares = (self.weight.sum(axis=0) ** 2).sum()
        return float(1 / squares)

    # -- the state ---------------------------------------------------------------------

    def _move_to(self, clock: float) -> Departure:
        """Predict the state at a later point; level and slope are constant."""
        step = self._find_steps(0.0 if self.clock is None else clock - self.clock)
        back, stationary = step.transpose(0, 2, 1), self.scales.stationary()
        added = stationary - step @ stationary @ back
        covariance = step @ self.covariance @ back + added
        return replace(self, clock=clock, mean=step @ self.mean, covariance=covariance)

    def _find_steps(self, gap: float) -> Float[np.ndarray, "scale 5 5"]:
        """Compute transitions of the state over ``gap`` e-folds."""
        decay = np.sqrt(3) / self.scales.length
        a = decay * gap
        shrink = np.exp(-a)
        step = np.tile(np.eye(5), (len(a), 1, 1))
        step[:, 2, 2] = shrink * (1 + a)
        step[:, 2, 3] = shrink * gap
        step[:, 3, 2] = -shrink * decay * a
        step[:, 3, 3] = shrink * (1 - a)
        step[:, 4, 4] = np.exp(-gap / self.point_noise.length)
        return step

    def _read_state(self, clock: float) -> Float[np.ndarray, "scale 5"]:
        """Observation vector: departure of a point = reading @ state + independent noise."""
        before_end, scales = self.end - clock, self.scales
        one = np.ones_like(scales.level)
        wander = np.exp(scales.waning * before_end)
        noise = scales.noise_at(before_end)
        return np.stack([one, -before_end * one, wander, 0 * one, noise], axis=1)


def predict(
    state: Float[np.ndarray, "scale 5 column"], reading: Float[np.ndarray, "scale 5"]
) -> Float[np.ndarray, "scale column"]:
    """Compute what a reading of the state is."""
    return (reading[:, None, :] @ state)[:, 0]


@dataclass(frozen=True, eq=False)
class Outlook:
    """Predictive distribution of a future point's log loss: a mixture of normals, one
    for each pair of scales and draw of the law.
    """

    mean: Float[np.ndarray, "scale draw"]
    sd: Float[np.ndarray, " scale"]
    weight: Float[np.ndarray, "scale draw"]  # its sum is 1

    @classmethod
    def of(
        cls, departure: Departure, clock: float, law: Float[np.ndarray, " draw"]
    ) -> Outlook:
        """Predict at log tokens ``clock``; ``law``: the law's log loss at ``clock``."""
        then = departure._move_to(clock)
        reading = then._read_state(clock)
        state = np.einsum("gi,gij,gj->g", reading, then.covariance, reading)
        noise = departure.point_noise.independent * reading[:, 4]
        sd = np.sqrt(state + noise**2)
        return cls(law + predict(then.mean, reading), sd, departure.weight)

    def average(self, values: Float[np.ndarray, "scale draw"]) -> float:
        """Average values over the parts of the mixture."""
        return float((self.weight * values).sum())

    def below(self, log_loss: float) -> float:
        """Compute the probability of at most this log loss."""
        with np.errstate(divide="ignore", invalid="ignore"):
            chances = ndtr((log_loss - self.mean) / self.sd[:, None])
        # 0/0: a measured loss, which is the limit itself
        mixed = self.average(np.where(np.isnan(chances), 1.0, chances))
        # rounding can take the sum of weights beyond 1
        return min(max(mixed, 0.0), 1.0)

    def quantiles(
        self, probs: list[float], seed: int = 0, samples: int = 8192
    ) -> Float[np.ndarray, " prob"]:
        """Estimate quantiles of the log loss by simulation."""
        return np.quantile(self.draw(samples, generator(seed)), probs)

    def draw(
        self, count: int, rng: np.random.Generator
    ) -> Float[np.ndarray, " sample"]:
        """Draw log losses: components by systematic resampling, normals stratified."""
        ends = np.cumsum(self.weight.ravel())
        numbers = np.arange(count)
        places = (numbers + rng.random()) / count
        index = np.searchsorted(ends, places * ends[-1])
        of_scale = index // self.weight.shape[1]
        # normal quantiles at even probabilities, shuffled independently of components
        standard = rng.permutation(stats.norm.ppf((numbers + 0.5) / count))
        return self.mean.ravel()[index] + self.sd[of_scale] * standard

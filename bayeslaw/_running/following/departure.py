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
        log_normal = {
            name: getattr(priors, name)[0]
            * np.exp(getattr(priors, name)[1] * stats.norm.ppf(u))
            for name, u in zip(cls._fields[:5], uniform, strict=False)
        }
        fading, waning = (
            np.array(powers)[np.floor(len(powers) * u).astype(int)]
            for powers, u in zip(
                (priors.fading, priors.waning), uniform[5:], strict=True
            )
        )
        return cls(
            level=share * log_normal["level"],
            slope=bent * log_normal["slope"],
            wander=bent * log_normal["wander"],
            length=log_normal["length"],
            noise=share * log_normal["noise"],
            fading=fading,
            waning=waning,
        )

    def noise_at(self, before_end: float) -> Float[np.ndarray, " scale"]:
        """Compute the noise scale ``before_end`` e-folds of tokens before the end."""
        return self.noise * np.exp(self.fading * before_end)

    def wander_times(self, before_end: float) -> Float[np.ndarray, " scale"]:
        """Compute the wander's scale before the end, relative to that at it."""
        return np.exp(self.waning * before_end)

    def stationary(self) -> Float[np.ndarray, "scale 3 3"]:
        """Compute the stationary covariance of wander, its slope and OU noise."""
        covariance = np.zeros((len(self.wander), 3, 3))
        covariance[:, 0, 0] = self.wander**2
        # a Matern-3/2 process of sd s and length l has a derivative of variance
        # 3 (s / l)^2
        covariance[:, 1, 1] = 3 * (self.wander / self.length) ** 2
        covariance[:, 2, 2] = 1.0
        return covariance


@dataclass(frozen=True, eq=False)
class Departure:
    """Posterior of a run's departure, given its points so far."""

    scales: Scales
    # log tokens at the end of the run; the departure there is level + wander
    end: float
    clock: float | None  # log tokens of the last point; None before the first
    # mean of the state: level, slope, wander (relative to `Scales.wander_times`), the
    # wander's slope, OU noise (relative to its scale)
    mean: Float[np.ndarray, "5 scale draw"]
    # covariance of the state; equal for all draws of the law
    covariance: Float[np.ndarray, "scale 5 5"]
    # log weight of each pair of scales and draw of the law
    log_weight: Float[np.ndarray, "scale draw"]
    point_noise: PointNoise = PointNoise()  # parts of the noise of points

    @classmethod
    def before(cls, scales: Scales, draws: int, end: float) -> Departure:
        """Start before any point, given draws of the scales."""
        count = len(scales.level)
        covariance = np.zeros((count, 5, 5))
        covariance[:, 0, 0] = scales.level**2
        covariance[:, 1, 1] = scales.slope**2
        covariance[:, 2:, 2:] = scales.stationary()
        mean = np.zeros((5, count, draws))
        log_weight = np.full((count, draws), -np.log(count * draws))
        return cls(scales, end, None, mean, covariance, log_weight)

    def after(self, clock: float, residual: Float[np.ndarray, " draw"]) -> Departure:
        """Update the posterior by one point (Kalman filter).

        ``clock``: log tokens of the point, more than those of the last point.
        ``residual``: log loss of the point minus each draw's law, shape (draw,).
        """
        now = self._move_to(clock)
        reading = now._read_state(clock)
        # covariance of the state with the point
        state_point = np.einsum("gij,gj->gi", now.covariance, reading)
        variance = np.einsum("gi,gi->g", reading, state_point)
        scale = self.scales.noise_at(self.end - clock)
        plain_noise = (self.point_noise.independent * scale) ** 2
        spike_noise = (self.point_noise.spike * scale) ** 2
        innovation = residual - now._predict_mean(clock)

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
        mean = now.mean + gain.T[:, :, None] * innovation
        covariance = now.covariance - gain[:, :, None] * state_point[:, None, :]
        return replace(now, mean=mean, covariance=covariance, log_weight=log_weight)

    def covariance_ahead(
        self, clock: float, later: float
    ) -> Float[np.ndarray, " scale"]:
        """Compute the covariance of departures at two future points, shape (scale,)."""
        first = self._move_to(clock)
        step = self._find_steps(later - clock)
        # covariance of the state with the first point, at that point and later
        state_point = np.einsum(
            "gij,gj->gi", first.covariance, first._read_state(clock)
        )
        state_later = state_point.copy()
        state_later[:, 2:] = np.einsum("gij,gj->gi", step, state_point[:, 2:])
        return np.einsum("gi,gi->g", first._read_state(later), state_later)

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
        mean = self.mean.copy()
        mean[2:] = np.einsum("gij,jgs->igs", step, self.mean[2:])
        transition = np.zeros((len(step), 5, 5))
        transition[:, 0, 0] = transition[:, 1, 1] = 1.0
        transition[:, 2:, 2:] = step
        covariance = transition @ self.covariance @ transition.transpose(0, 2, 1)
        stationary = self.scales.stationary()
        kept = step @ stationary @ step.transpose(0, 2, 1)
        covariance[:, 2:, 2:] += stationary - kept
        return replace(self, clock=clock, mean=mean, covariance=covariance)

    def _find_steps(self, gap: float) -> Float[np.ndarray, "scale 3 3"]:
        """Compute transitions of wander, its slope and OU noise over ``gap`` e-folds."""
        decay = np.sqrt(3) / self.scales.length
        a = decay * gap
        shrink = np.exp(-a)
        step = np.zeros((len(a), 3, 3))
        step[:, 0, 0] = shrink * (1 + a)
        step[:, 0, 1] = shrink * gap
        step[:, 1, 0] = -shrink * decay * a
        step[:, 1, 1] = shrink * (1 - a)
        step[:, 2, 2] = np.exp(-gap / self.point_noise.length)
        return step

    def _read_state(self, clock: float) -> Float[np.ndarray, "scale 5"]:
        """Observation vector: departure of a point = reading @ state + independent noise."""
        noise = self.scales.noise_at(self.end - clock)
        reading = np.empty((len(noise), 5))
        reading[:, :4] = [1.0, clock - self.end, 1.0, 0.0]
        reading[:, 2] = self.scales.wander_times(self.end - clock)
        reading[:, 4] = noise
        return reading

    def _predict_mean(self, clock: float) -> Float[np.ndarray, "scale draw"]:
        """Compute the mean departure: reading @ mean."""
        level, slope, wander, _, noise = self.mean
        before_end = self.end - clock
        noise_scale = self.scales.noise_at(before_end)
        wander_scale = self.scales.wander_times(before_end)
        line = level - slope * before_end
        return line + wander_scale[:, None] * wander + noise_scale[:, None] * noise


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
        scale = departure.scales.noise_at(departure.end - clock)
        noise = departure.point_noise.independent * scale
        return cls(
            law + then._predict_mean(clock), np.sqrt(state + noise**2), departure.weight
        )

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

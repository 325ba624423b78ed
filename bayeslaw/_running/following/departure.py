"""How one run departs from its law: a level and a slope of its own, a wander that comes
and goes, and the noise of its points.

    log loss(t) = law(t) + level + slope (t - end) + wander(t) + noise(t),  t = log tokens

The wander is a Matern-3/2 process that fades towards the end, for laws miss early tokens
by more than late ones. The noise, which neighbours share, is an Ornstein-Uhlenbeck one.
All is a linear state of five numbers, and a Kalman filter learns them exactly, point by
point (Hartikainen and Sarkka 2010; Durbin and Koopman 2012). It does so at many draws of
the scales and for every draw of the law at once; their weights are the likelihood of the
points. Where the law holds, small scales win, and the end is the law's; where it does
not, large ones do, and the end is the line that the run itself draws.
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
# Log-normal priors, (median, sd of the log), of log loss, where new runs err by USUAL or
# more. Where the fit says that they err by less, less by the root of that: a fit of many
# points of few curves is surer of a new one than it should be. Measured runs depart by .1
# to 3% (docs/follow.md).
USUAL, LEAST = 0.008, 0.0001
LEVEL = (0.004, 1.0)  # at the end
SLOPE = (0.005, 1.0)  # per e-fold of tokens
WANDER = (0.006, 1.0)  # at the end
WANING = (0.4, 0.8)  # power of tokens with which the wander falls
LENGTH = (3.0, 0.7)  # e-folds of tokens over which a wander changes
NOISE = (0.0015, 0.8)  # median and log sd of the noise of a point near the end
FADING = (0.0, 0.5, 1.0)  # power of tokens with which the noise of points falls
# E-folds of tokens over which neighbours share their noise, as points of curves that
# were fitted do (`noise.CURVE_LENGTH`); each has a part of its own beside it.
SHARED, OWN = 0.1, 0.3
# A point is a spike so often, and its own noise then so many times the usual one.
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
    waning: Float[np.ndarray, " scale"]

    @classmethod
    def draw(cls, error: float, count: int = SCALES, seed: int = 0) -> Scales:
        """Draws of the prior, spread evenly; ``error``: sd of a new run's log loss
        around its law.
        """
        share = min(1.0, max(error, LEAST) / USUAL) ** 0.5
        sobol = stats.qmc.Sobol(7, seed=seed)
        uniform = sobol.random(count).T
        level, slope, wander, length, noise = [
            median * np.exp(sd * stats.norm.ppf(u))
            for (median, sd), u in zip(
                (LEVEL, SLOPE, WANDER, LENGTH, NOISE), uniform[:5], strict=True
            )
        ]
        fading, waning = [
            np.array(powers)[np.floor(len(powers) * u).astype(int)]
            for powers, u in zip((FADING, WANING), uniform[5:], strict=True)
        ]
        return cls(
            share * level,
            share * slope,
            share * wander,
            length,
            share * noise,
            fading,
            waning,
        )

    def noise_at(self, before_end: float) -> Float[np.ndarray, " scale"]:
        """Scale of the noise of a point so many e-folds of tokens before the end."""
        power = self.fading * before_end
        times = np.exp(power)
        return self.noise * times

    def wander_times(self, before_end: float) -> Float[np.ndarray, " scale"]:
        """A wander so many e-folds before the end, in units of one at the end."""
        power = self.waning * before_end
        return np.exp(power)


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
        Mean of level, slope, the wander as it would be at the end, that one's slope, and the
        noise in units of its scale, shape (5, scale, draw).
    covariance
        Covariance of the same, shape (scale, 5, 5); draws of the law share it.
    log_weight
        Log weight of each draw of scales and law, shape (scale, draw).
    """

    scales: Scales
    end: float
    clock: float | None
    mean: Float[np.ndarray, "5 scale draw"]
    covariance: Float[np.ndarray, "scale 5 5"]
    log_weight: Float[np.ndarray, "scale draw"]

    @classmethod
    def before(
        cls, draws: int, end: float, error: float = USUAL, seed: int = 0
    ) -> Departure:
        """Nothing is known but the priors; ``error``: see `Scales.draw`."""
        scales = Scales.draw(error, seed=seed)
        count = len(scales.level)
        covariance = np.zeros((count, 5, 5))
        covariance[:, 0, 0] = scales.level**2
        covariance[:, 1, 1] = scales.slope**2
        covariance[:, 2:, 2:] = _stationary(scales)
        mean = np.zeros((5, count, draws))
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
        scale = self.scales.noise_at(self.end - clock)
        own, spike = (OWN * scale) ** 2, (SPIKE * scale) ** 2
        missed = left - now._at(clock)

        plain, spiked = known + own, known + spike
        as_plain = np.log(1 - SPIKES) + _log_normal(missed, plain)
        as_spike = np.log(SPIKES) + _log_normal(missed, spiked)
        log_weight = now.log_weight + np.logaddexp(as_plain, as_spike)
        log_weight -= logsumexp(log_weight)

        # One variance for all draws of the law keeps their covariance one: that of a
        # plain point and of a spike, in the shares that the weights give them.
        is_spike = np.exp(as_spike - np.logaddexp(as_plain, as_spike))
        share = float((np.exp(log_weight) * is_spike).sum())
        precision = (1 - share) / own + share / spike
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
        scale = self.scales.noise_at(self.end - clock)
        own = OWN * scale
        mean = then._at(clock)
        variance = known + own**2
        return mean, variance

    def covariance_ahead(
        self, clock: float, later: float
    ) -> Float[np.ndarray, " scale"]:
        """Covariance of the departures at two points to come, shape (scale,)."""
        first = self._moved(clock)
        step = _steps(self.scales, later - clock)
        reading = first._reading(clock)
        seen = np.einsum("gij,gj->gi", first.covariance, reading)
        carried = seen.copy()
        carried[:, 2:] = np.einsum("gij,gj->gi", step, seen[:, 2:])
        return np.einsum("gi,gi->g", first._reading(later), carried)

    def begun_anew(self) -> Departure:
        """The same, with all draws of the law alike: for a law that was fitted to the
        points themselves, which may not count twice. Given a draw, the points still tell
        its scales apart.
        """
        of_law = logsumexp(self.log_weight, axis=0)
        alike = -np.log(len(of_law))
        log_weight = self.log_weight - of_law + alike
        return replace(self, log_weight=log_weight)

    # -- weights -----------------------------------------------------------------------

    @cached_property
    def weight(self) -> Float[np.ndarray, "scale draw"]:
        """Weight of each draw of scales and law; all add up to 1."""
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
        squares = (of_law**2).sum()
        return float(1 / squares)

    # -- the state ---------------------------------------------------------------------

    def _moved(self, clock: float) -> Departure:
        """The state at a later point; only wander and noise move."""
        last = clock if self.clock is None else self.clock
        step = _steps(self.scales, clock - last)
        mean = self.mean.copy()
        mean[2:] = np.einsum("gij,jgs->igs", step, self.mean[2:])
        whole = np.zeros((len(step), 5, 5))
        whole[:, 0, 0] = whole[:, 1, 1] = 1.0
        whole[:, 2:, 2:] = step
        covariance = whole @ self.covariance @ whole.transpose(0, 2, 1)
        rest = _stationary(self.scales)
        covariance[:, 2:, 2:] += rest - step @ rest @ step.transpose(0, 2, 1)
        return replace(self, clock=clock, mean=mean, covariance=covariance)

    def _reading(self, clock: float) -> Float[np.ndarray, "scale 5"]:
        """What a point shows of the state."""
        noise = self.scales.noise_at(self.end - clock)
        shown = np.empty((len(noise), 5))
        shown[:, :4] = [1.0, clock - self.end, 1.0, 0.0]
        shown[:, 2] = self.scales.wander_times(self.end - clock)
        shown[:, 4] = noise
        return shown

    def _at(self, clock: float) -> Float[np.ndarray, "scale draw"]:
        level, slope, wander, _, noise = self.mean
        before_end = self.end - clock
        scale = self.scales.noise_at(before_end)
        times = self.scales.wander_times(before_end)
        line = level - slope * before_end
        comes_and_goes = times[:, None] * wander
        of_points = scale[:, None] * noise
        return line + comes_and_goes + of_points


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
        departed, variance = departure.ahead(clock)
        mean = law + departed
        sd = np.sqrt(variance)
        return cls(mean, sd, departure.weight)

    def below(self, log_loss: float) -> float:
        """Probability of a log loss at most this."""
        sd = self.sd[:, None]
        z = (log_loss - self.mean) / sd
        chance = ndtr(z)
        mixed = (self.weight * chance).sum()
        # sums of weights end a rounding error beyond 1
        bounded = min(max(mixed, 0.0), 1.0)
        return float(bounded)

    def quantiles(
        self, probs: list[float], seed: int = 0
    ) -> Float[np.ndarray, " prob"]:
        """Quantiles of the log loss, by simulation."""
        rng = np.random.default_rng(seed)
        drawn = self.draw(SAMPLES, rng)
        return np.quantile(drawn, probs)

    def draw(
        self, count: int, rng: np.random.Generator
    ) -> Float[np.ndarray, " sample"]:
        """Log losses; which normals they come from is drawn systematically."""
        ends = np.cumsum(self.weight.ravel())
        numbers = np.arange(count)
        places = (numbers + rng.random()) / count
        index = np.searchsorted(ends, places * ends[-1])
        of_scale = index // self.weight.shape[1]
        # normals spread as evenly, in an order that knows nothing of the first
        even = stats.norm.ppf((numbers + 0.5) / count)
        standard = rng.permutation(even)
        mean = self.mean.ravel()[index]
        return mean + self.sd[of_scale] * standard


def _stationary(scales: Scales) -> Float[np.ndarray, "scale 3 3"]:
    """Covariance of a wander, its slope and the noise where nothing is measured."""
    count = len(scales.wander)
    covariance = np.zeros((count, 3, 3))
    covariance[:, 0, 0] = scales.wander**2
    # standard deviation of the process's derivative, over root 3
    slope = scales.wander / scales.length
    squares = slope**2
    covariance[:, 1, 1] = 3 * squares
    covariance[:, 2, 2] = 1.0
    return covariance


def _steps(scales: Scales, gap: float) -> Float[np.ndarray, "scale 3 3"]:
    """What a wander, its slope and the noise are expected to be after so many e-folds."""
    decay = np.sqrt(3) / scales.length
    a = decay * gap
    shrink = np.exp(-a)
    step = np.zeros((len(a), 3, 3))
    step[:, 0, 0] = shrink * (1 + a)
    step[:, 0, 1] = shrink * gap
    step[:, 1, 0] = -shrink * decay * a
    step[:, 1, 1] = shrink * (1 - a)
    step[:, 2, 2] = np.exp(-gap / SHARED)
    return step


def _log_normal(
    missed: Float[np.ndarray, "scale draw"], variance: Float[np.ndarray, " scale"]
) -> Float[np.ndarray, "scale draw"]:
    v = variance[:, None]
    squares = missed**2 / v
    norm = np.log(2 * np.pi * v)
    return -0.5 * (squares + norm)

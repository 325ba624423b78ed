"""Search for the mixture of the least weighted mean loss at a budget, under limits that
hold together in a stated share of draws.

The search is that of `search` with the tokens fixed: SLSQP (Kraft 1988) from several
mixtures, with the smooth quantile of the margin as a constraint. The plain share of draws
then decides: what it finds short is drawn back towards the most probable mixture.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bayeslaw._base.streams import Stream, generator
from bayeslaw._plans.mixing.search import (
    MixtureChoice,
    SimplexProblem,
    at_least_0,
    keeps_limits,
    minimise,
    most_probable,
    onto_simplex,
)

if TYPE_CHECKING:
    from jaxtyping import Float


class LeastMixture(NamedTuple):
    """The mixture of the least mean that keeps the limits, and the most probable one;
    both are the same where none keeps them.
    """

    shares: Float[np.ndarray, " domain"]
    safest: Float[np.ndarray, " domain"]

    def judged_by(self, problem: SimplexProblem) -> MixtureChoice:
        """Judge the mixture by other draws, which may draw it back."""
        return drawn_back(problem, self.shares, self.safest)


def least_mixture(mean: MeanLoss, seed: int) -> LeastMixture:
    """Find the mixture of the least mean among those that keep the limits."""
    problem = mean.problem
    free = mean.least()
    if not problem.limits.names:
        return LeastMixture(free, free)
    sure = replace(problem, confidence=max(problem.confidence, 0.999))
    safest = most_probable(sure, seed)
    if safest.probability < problem.confidence:
        return LeastMixture(safest.shares, safest.shares)
    minima = [mean.least_kept(start) for start in (safest.shares, free)]
    kept = [drawn_back(problem, p, safest.shares).shares for p in (free, *minima)]
    return LeastMixture(min(kept, key=lambda p: mean(p)[0]), safest.shares)


def drawn_back(
    problem: SimplexProblem,
    shares: Float[np.ndarray, " domain"],
    safest: Float[np.ndarray, " domain"],
    rounds: int = 3,
) -> MixtureChoice:
    """Move a mixture towards the safest one as far as the limits need it, on a ladder
    that is refined round by round; if no rung keeps them, take the most probable rung.
    """
    log_tokens = math.log(problem.tokens[1])
    near, far = 0.0, 1.0
    for _ in range(rounds):
        rungs = np.linspace(near, far, 17)
        mixtures = shares + rungs[:, None] * (safest - shares)
        chances = problem.probabilities(np.full(len(rungs), log_tokens), mixtures)
        is_kept = chances >= problem.confidence
        place = int((is_kept if is_kept.any() else chances).argmax())
        if not is_kept.any():
            break
        near, far = rungs[max(place - 1, 0)], rungs[place]
    return MixtureChoice(
        log_tokens, mixtures[place], float(chances[place]), bool(is_kept[place])
    )


@dataclass(frozen=True, eq=False)
class MeanLoss:
    """The weighted mean of the losses at the largest budget of a problem, as a function
    of shares.
    """

    problem: SimplexProblem
    weights: Float[np.ndarray, " set"]

    @property
    def log_tokens(self) -> float:
        return math.log(self.problem.tokens[1])

    def draws(
        self, shares: Float[np.ndarray, " domain"], log_tokens: float
    ) -> Float[np.ndarray, " draw"]:
        """Draw the loss at a mixture and a budget."""
        log_losses, _ = self.problem.losses.at(log_tokens, shares)
        return self.weights @ np.exp(log_losses)

    def __call__(
        self, shares: Float[np.ndarray, " domain"]
    ) -> tuple[float, Float[np.ndarray, " domain"]]:
        """Compute the posterior mean of the loss, and its slopes."""
        log_losses, slopes = self.problem.losses.at(self.log_tokens, shares)
        losses = np.exp(log_losses)
        mean = float(self.weights @ losses.mean(axis=1))
        of_sets = (losses[..., None] * slopes[..., 1:]).mean(axis=1)
        return mean, self.weights @ of_sets

    def least(self, starts: int = 4) -> Float[np.ndarray, " domain"]:
        """Minimise the mean loss over shares, from several mixtures, whatever the
        limits.
        """
        minima = [self._minimise(self, start) for start in self._spread(starts)]
        return min(minima, key=lambda shares: self(shares)[0])

    def least_kept(
        self, start: Float[np.ndarray, " domain"]
    ) -> Float[np.ndarray, " domain"]:
        """Minimise the mean loss among mixtures that keep the limits, from one mixture."""
        return self._minimise(self, start, self._kept())

    def reach(
        self, domain: int, best: Float[np.ndarray, " domain"], most: float
    ) -> tuple[float, float]:
        """Find the smallest and the largest share of a domain at which some mixture
        that keeps the limits has a mean loss of at most this value.
        """

        def left(point: Float[np.ndarray, " slope"]) -> tuple:
            mean, slopes = self(point[1:])
            return 100 * (most - mean) / most, np.append(0.0, -100 * slopes / most)

        ends = []
        for sign in (1.0, -1.0):
            slope = sign * np.eye(len(best))[domain]
            further = [at_least_0(left), *self._kept()]
            optimum = self._minimise(lambda p, s=slope: (s @ p, s), best, further)
            ends.append(float(optimum[domain]))
        return min(ends), max(ends)

    def _minimise(
        self,
        function: Callable,
        start: Float[np.ndarray, " domain"],
        further: Sequence[Any] = (),
    ) -> Float[np.ndarray, " domain"]:
        """Minimise a function of the shares, of value and slopes, at the tokens."""

        def objective(point: Float[np.ndarray, " slope"]) -> tuple:
            value, slopes = function(point[1:])
            return value, np.append(0.0, slopes)

        start_point = self.log_tokens, start
        _, shares = minimise(self.problem, objective, start_point, further, ftol=1e-7)
        return shares

    def _kept(self) -> list[Any]:
        return [keeps_limits(self.problem)] if self.problem.limits.names else []

    def _spread(self, count: int) -> Float[np.ndarray, "mixture domain"]:
        """Spread mixtures over the simplex, the middle one first."""
        rng = generator(0, Stream.STARTS)
        size = len(self.problem.low)
        middle = np.full((1, size), 1 / size)
        tilted = rng.dirichlet(np.ones(size), count)
        return self._within(np.concatenate([middle, tilted]))

    def best_of_each(
        self,
        start: Float[np.ndarray, " domain"],
        steps: int = 150,
        least_share: float = 0.02,
        near: float = 3e-5,
    ) -> Float[np.ndarray, "draw domain"]:
        """Find the best shares of each draw within the bounds, shape (draw, domain), by
        projected gradients (Bertsekas 1976).

        Gradients are scaled by the shares, because laws bend most where a share is
        small. A step and the projection have the same scale; so a mixture stays where it
        is only if it is a minimum, also where bounds bind. A step that does not lower
        the loss is taken back, and halved.
        """

        def each(
            shares: Float[np.ndarray, "draw domain"],
        ) -> tuple[Float[np.ndarray, " draw"], Float[np.ndarray, "draw domain"]]:
            """Compute each draw's loss at its own mixture, and its slopes."""
            log_losses, slopes = self.problem.losses.each(self.log_tokens, shares)
            losses = np.exp(log_losses)
            rises = np.einsum("s,sd,sdk->dk", self.weights, losses, slopes)
            return self.weights @ losses, rises

        # from the best of some mixtures for each draw
        mixtures = np.vstack([start, self._spread(20)])
        log_tokens = np.full(len(mixtures), self.log_tokens)
        log_losses = self.problem.losses.over(log_tokens, mixtures)
        means = np.einsum("s,sdm->dm", self.weights, np.exp(log_losses))
        shares = mixtures[means.argmin(axis=1)]
        losses, slopes = each(shares)
        rate = np.ones((len(shares), 1))
        for _ in range(steps):
            scale = np.maximum(shares, least_share)
            trial = onto_simplex(
                shares - rate * scale * slopes,
                self.problem.low,
                self.problem.high,
                scale,
            )
            moved = np.abs(trial - shares).max()
            trial_losses, trial_slopes = each(trial)
            is_lower = (trial_losses <= losses)[:, None]
            shares = np.where(is_lower, trial, shares)
            slopes = np.where(is_lower, trial_slopes, slopes)
            losses = np.minimum(losses, trial_losses)
            rate = np.where(is_lower, 1.5 * rate, 0.5 * rate)
            if moved < near:
                break
        return shares

    def _within(
        self, shares: Float[np.ndarray, "*mixture domain"]
    ) -> Float[np.ndarray, "*mixture domain"]:
        return onto_simplex(shares, self.problem.low, self.problem.high)

"""Find the best mixture at a budget, and how much its shares may vary."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import optimize

from bayeslaw._base.arguments import takes
from bayeslaw._base.errors import PlanError
from bayeslaw._base.html import paragraphs, table_html
from bayeslaw._base.limits import COUNT, RATE, checked
from bayeslaw._base.machine import runtime
from bayeslaw._base.numbers import format_count
from bayeslaw._plans.mixing.question import MixtureQuestion, Simplex, mean_weights
from bayeslaw._plans.mixing.search import onto_simplex

if TYPE_CHECKING:
    from jaxtyping import Float


@dataclass(frozen=True, eq=False)
class BestMixtureArguments(MixtureQuestion):
    # documented in `best_mixture`

    _: KW_ONLY
    D: float
    tolerance: float = 0.002


@dataclass(frozen=True)
class BestMixture:
    """The mixture with the lowest mean loss. Every field can be stored in JSON.

    Parameters
    ----------
    N, D
        Model and tokens.
    shares
        By domain: the shares with the lowest posterior mean of the weighted loss.
    loss
        ``median``, ``low``, ``high`` (90%) of the weighted loss there.
    optimum
        By domain: ``low``, ``median``, ``high`` (90%) of the best share of each draw.
        It shows how sure the optimum is.
    free
        By domain: ``low``, ``high`` of the shares at which some mixture's mean loss is
        within the tolerance of the lowest.
    tolerance
        As a share of the loss.
    """

    N: float
    D: float
    shares: dict[str, float]
    loss: dict[str, float]
    optimum: dict[str, dict[str, float]]
    free: dict[str, dict[str, float]]
    tolerance: float

    def to_dict(self) -> dict:
        """Convert the answer to JSON types."""
        return asdict(self)

    def sentence(self) -> str:
        """Describe the answer in words."""
        mixture = ", ".join(
            f"{name} {share:.1%}" for name, share in self.shares.items()
        )
        width = {name: ends["high"] - ends["low"] for name, ends in self.free.items()}
        least = max(width, key=lambda name: width[name])
        ends = self.free[least]
        return (
            f"At N = {format_count(self.N)}, D = {format_count(self.D)} the mean loss is "
            f"least, {self.loss['median']:.4g} ({self.loss['low']:.4g} to "
            f"{self.loss['high']:.4g}), with {mixture}.\n"
            f"The share of {least} matters least: from {ends['low']:.1%} to "
            f"{ends['high']:.1%} some mixture is within {self.tolerance:.2%} of that."
        )

    def __repr__(self) -> str:
        return f"BestMixture({self.sentence().splitlines()[0]})"

    def _repr_html_(self) -> str:
        """Show the answer, and each share, in notebooks."""
        table = pd.DataFrame(
            {
                name: {
                    "best": share,
                    "sure from": self.optimum[name]["low"],
                    "to": self.optimum[name]["high"],
                    "free from": self.free[name]["low"],
                    "free to": self.free[name]["high"],
                }
                for name, share in self.shares.items()
            }
        ).T
        return paragraphs(self.sentence()) + table_html(table)


@takes(BestMixtureArguments, PlanError)
def best_mixture(arguments: BestMixtureArguments) -> BestMixture:
    """Find the mixture of the least weighted mean of losses at a budget.

    Parameters
    ----------
    losses
        Posteriors by evaluation set, independent of each other.
    N, D
        Model parameters and tokens.
    weights
        Weight of each set in the mean; by default equal weights.
    bounds
        Smallest and largest share by domain; by default the smallest and the largest
        fitted ones.
    unique_tokens, max_epochs
        Number of unique tokens by domain, and how often each may be seen.
    tolerance
        Share of the loss within which mixtures count as good as the best.
    covariates
        Further columns that the laws read, each a number or numbers by evaluation set:
        ``{"loss_before": {"fr": 3.2, "de": 3.4}, "source_loss_before": 2.7}``.
    new_run
        True: the loss of a new run, with its noise. False: the law's mean.
    draws, seed
        Number of draws, and the seed that pairs them.

    Raises
    ------
    PlanError
        The question is ill-posed: an unknown set or domain, bounds that leave no
        mixture.

    Examples
    --------
    >>> runs = bayeslaw.simulate("mixture-coupled", design="mixtures", seed=1)
    >>> web = bayeslaw.fit(runs, "mixture-coupled", preview=True)
    >>> best = bayeslaw.best_mixture({"web": web}, N=1e9, D=2e10)
    >>> max(best.shares, key=best.shares.get)
    'web'
    """
    runtime.start()
    simplex = Simplex.of(arguments)
    tokens = checked("D", arguments.D, COUNT)
    tolerance = checked("tolerance", arguments.tolerance, RATE)
    weights = np.array(mean_weights(arguments.weights, simplex.losses.sets))
    high = np.minimum(simplex.high, simplex.supply / tokens)
    if high.sum() < 1:
        raise PlanError(
            f"the domains have {format_count(high.sum() * tokens)} tokens within their "
            f"bounds, and D is {format_count(tokens)}: give max_epochs, or plan for less"
        )
    search = _MeanLoss(simplex, math.log(tokens), weights, simplex.low, high)
    shares, least = search.best()
    losses = search.draws(shares)
    low, median, top = np.quantile(losses, [0.05, 0.5, 0.95])
    quantiles = np.quantile(search.best_of_each(shares), [0.05, 0.5, 0.95], axis=0).T
    free = [
        search.reach(j, shares, least * (1 + tolerance)) for j in range(len(shares))
    ]
    names = simplex.domains
    return BestMixture(
        N=float(arguments.N),
        D=tokens,
        shares=simplex.by_domain(shares),
        loss={"median": float(median), "low": float(low), "high": float(top)},
        optimum={
            name: dict(zip(("low", "median", "high"), map(float, row), strict=True))
            for name, row in zip(names, quantiles, strict=True)
        },
        free={
            name: {"low": ends[0], "high": ends[1]}
            for name, ends in zip(names, free, strict=True)
        },
        tolerance=tolerance,
    )


@dataclass(frozen=True, eq=False)
class _MeanLoss:
    """The weighted mean of the losses at a budget, as a function of shares."""

    simplex: Simplex
    log_tokens: float
    weights: Float[np.ndarray, " set"]
    low: Float[np.ndarray, " domain"]
    high: Float[np.ndarray, " domain"]

    def draws(self, shares: Float[np.ndarray, " domain"]) -> Float[np.ndarray, " draw"]:
        """Draw the loss."""
        log_losses, _ = self.simplex.losses.at(self.log_tokens, shares)
        return self.weights @ np.exp(log_losses)

    def __call__(
        self, shares: Float[np.ndarray, " domain"]
    ) -> tuple[float, Float[np.ndarray, " domain"]]:
        """Compute the posterior mean of the loss, and its slopes."""
        log_losses, slopes = self.simplex.losses.at(self.log_tokens, shares)
        losses = np.exp(log_losses)
        mean = float(self.weights @ losses.mean(axis=1))
        of_sets = (losses[..., None] * slopes[..., 1:]).mean(axis=1)
        return mean, self.weights @ of_sets

    def best(self, starts: int = 4) -> tuple[Float[np.ndarray, " domain"], float]:
        """Minimise the mean loss over shares, by SLSQP from several mixtures. Returns
        the shares and the loss.
        """
        rng = np.random.default_rng(0)
        tilted = rng.dirichlet(np.ones(len(self.low)), starts)
        middle = np.full(len(self.low), 1 / len(self.low))
        minima = [self._least(self._within(p)) for p in (middle, *tilted)]
        return min(minima, key=lambda pair: pair[1])

    def _least(
        self, start: Float[np.ndarray, " domain"]
    ) -> tuple[Float[np.ndarray, " domain"], float]:
        """Minimise the mean loss from one start; returns shares within the bounds and
        the loss there.
        """
        optimum = self._slsqp(self, start)
        shares = self._within(optimum)
        return shares, self(shares)[0]

    def reach(
        self, domain: int, best: Float[np.ndarray, " domain"], most: float
    ) -> tuple[float, float]:
        """Find the smallest and the largest share of a domain at which some mixture's
        mean loss is at most this value.
        """
        ends = []
        for sign in (1.0, -1.0):
            slope = sign * np.eye(len(best))[domain]

            def left(p):
                mean, slopes = self(p)
                return 100 * (most - mean) / most, -100 * slopes / most

            near = {
                "type": "ineq",
                "fun": lambda p: left(p)[0],
                "jac": lambda p: left(p)[1],
            }
            optimum = self._slsqp(lambda p, s=slope: (s @ p, s), best, [near])
            ends.append(float(self._within(optimum)[domain]))
        return min(ends), max(ends)

    def _slsqp(self, function, start, further=()):
        """Minimise a function of the shares on the simplex within the bounds, by SLSQP."""
        total = np.ones(len(start))
        simplex: Any = {
            "type": "eq",
            "fun": lambda p: p.sum() - 1,
            "jac": lambda p: total,
        }
        optimum = optimize.minimize(
            function,
            start,
            jac=True,
            method="SLSQP",
            bounds=optimize.Bounds(self.low, self.high),
            constraints=[simplex, *further],
            options={"maxiter": 60, "ftol": 1e-7},
        )
        return optimum.x

    def best_of_each(
        self, start: Float[np.ndarray, " domain"], steps: int = 150
    ) -> Float[np.ndarray, "draw domain"]:
        """Find the best shares of each draw, shape (draw, domain), by projected
        exponentiated gradients (Kivinen and Warmuth 1997) from a common start.
        """
        draws = self.simplex.losses.noise.shape[1]
        shares = np.tile(start, (draws, 1))
        for step in range(steps):
            log_losses, slopes = self.simplex.losses.each(self.log_tokens, shares)
            of_sets = np.exp(log_losses)[..., None] * slopes
            slope = np.einsum("s,sdk->dk", self.weights, of_sets)
            apart = slope - (shares * slope).sum(axis=1, keepdims=True)
            rate = 2.0 / math.sqrt(1 + step / 10)
            moved = shares * np.exp(np.clip(-rate * apart, -0.5, 0.5))
            shares = self._within(moved / moved.sum(axis=1, keepdims=True))
        return shares

    def _within(
        self, shares: Float[np.ndarray, "*draw domain"]
    ) -> Float[np.ndarray, "*draw domain"]:
        return onto_simplex(shares, self.low, self.high)

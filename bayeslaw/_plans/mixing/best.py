"""Find the best mixture at a budget, and how much its shares may vary."""

from __future__ import annotations

from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from bayeslaw._base.arguments import takes
from bayeslaw._base.errors import PlanError
from bayeslaw._base.html import paragraphs, table_html
from bayeslaw._base.limits import COUNT, RATE, checked
from bayeslaw._base.machine import runtime
from bayeslaw._base.numbers import format_count
from bayeslaw._plans.mixing.least import MeanLoss, least_mixture
from bayeslaw._plans.mixing.question import MixtureQuestion, Simplex, mean_weights
from bayeslaw._plans.mixing.search import chances, limit_rows, quantiles
from bayeslaw._tables.beyond import describe_place, read_places


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
    feasible, probability
        Whether the limits are kept with the confidence; if not, the mixture is the most
        probable one. The probability is that of draws that were not searched; None
        without limits.
    limits
        As in `MixturePlan`.
    settings, warnings
        The question, and warnings about the answer.
    distance
        As in `Plan`, of ``N`` and ``D/N``.
    """

    N: float
    D: float
    shares: dict[str, float]
    loss: dict[str, float]
    optimum: dict[str, dict[str, float]]
    free: dict[str, dict[str, float]]
    tolerance: float
    feasible: bool = True
    probability: float | None = None
    limits: list[dict[str, Any]] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    distance: dict[str, dict[str, Any]] = field(default_factory=dict)

    def to_dict(self) -> dict:
        """Convert the answer to JSON types."""
        return asdict(self)

    def sentence(self) -> str:
        """Describe the answer in words."""
        mixture = ", ".join(
            f"{name} {share:.1%}" for name, share in self.shares.items()
        )
        at = f"At N = {format_count(self.N)}, D = {format_count(self.D)}"
        place = describe_place(read_places(self.distance))
        at += f", {place}," if place else ""
        loss = self.loss
        value = f"{loss['median']:.4g} ({loss['low']:.4g} to {loss['high']:.4g})"
        odds = f"{chances(self.limits, self.probability or 0)}." if self.limits else ""
        if not self.feasible:
            return (
                f"{at} no mixture within the bounds reaches the confidence; most "
                f"probable: {mixture}, with a mean loss of {value}.\n{odds}"
            )
        width = {name: ends["high"] - ends["low"] for name, ends in self.free.items()}
        least = max(width, key=lambda name: width[name])
        ends = self.free[least]
        under = " under the limits" if self.limits else ""
        lines = [
            f"{at} the mean loss is least{under}, {value}, with {mixture}.",
            odds,
            f"The share of {least} matters least: from {ends['low']:.1%} to "
            f"{ends['high']:.1%} some mixture is within {self.tolerance:.2%} of that.",
        ]
        return "\n".join(line for line in lines if line)

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
    """Find the mixture of the least weighted mean of losses at a budget, among those
    that keep limits with probability ``confidence``.

    Parameters
    ----------
    losses
        Posteriors by evaluation set, independent of each other.
    N, D
        Model parameters and tokens.
    weights
        Weight of each set in the mean; by default equal weights.
    max_loss, max_mean_loss, confidence
        Upper limits as in `plan_mixture`, and the probability with which all are kept
        together; by default there is none. `optimum` leaves them aside.
    bounds, unique_tokens, max_epochs
        As in `plan_mixture`.
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
    tokens = checked("D", arguments.D, COUNT)
    tolerance = checked("tolerance", arguments.tolerance, RATE)
    simplex = Simplex.of(arguments)
    weights = np.array(mean_weights(arguments.weights, simplex.losses.sets))
    mean = MeanLoss(simplex.problem(arguments, (tokens, tokens)), weights)
    least = least_mixture(mean, arguments.seed)
    of_each = mean.best_of_each(mean.least())
    if mean.problem.limits.names:
        # limits look too well kept by the draws that chose the mixture: others judge it
        others = Simplex.of(replace(arguments, seed=arguments.seed + 1))
        mean = replace(mean, problem=others.problem(arguments, (tokens, tokens)))
    choice = least.judged_by(mean.problem)
    most = mean(choice.shares)[0] * (1 + tolerance)
    shares, names = choice.shares, simplex.domains
    free = {}
    for j, name in enumerate(names):
        # a share may not move at all where no limits are kept
        low = high = float(shares[j])
        if choice.is_kept:
            low, high = mean.reach(j, shares, most)
        free[name] = {"low": low, "high": high}
    has_limits = bool(mean.problem.limits.names)
    return BestMixture(
        N=simplex.size,
        D=tokens,
        shares=simplex.by_domain(shares),
        loss=quantiles(mean.draws(shares, choice.log_tokens)),
        optimum={name: quantiles(of_each[:, j]) for j, name in enumerate(names)},
        free=free,
        tolerance=tolerance,
        feasible=choice.is_kept,
        probability=choice.probability if has_limits else None,
        limits=limit_rows(mean.problem, choice),
        settings=simplex.settings(arguments) | {"D": tokens},
        warnings=simplex.doubts(arguments, choice),
        distance=simplex.distance(choice),
    )

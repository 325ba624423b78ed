"""Pose the question of plans and best mixtures: posteriors by evaluation set, their
paired draws, limits, and bounds of tokens and shares.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import special

from bayeslaw._base.errors import PlanError
from bayeslaw._base.limits import (
    COUNT,
    KINDS,
    NUMBER,
    POSITIVE,
    SHARE,
    check_count,
    checked,
)
from bayeslaw._base.machine import runtime
from bayeslaw._base.numbers import format_count
from bayeslaw._base.streams import generator
from bayeslaw._costs.costs import Costs
from bayeslaw._law.columns import (
    LOSS_BEFORE,
    SOURCE_LOSS_BEFORE,
    is_share,
    share_domains,
)
from bayeslaw._law.columns import SHARE as PREFIX
from bayeslaw._plans.constraint import UNITS, Constraint, UnitName
from bayeslaw._plans.question import MEAN, check_names
from bayeslaw._plans.reading import (
    check_settings,
    constraint_on,
    read_mean_limit,
)
from bayeslaw._plans.sampled import SampledConstraint
from bayeslaw._posteriors.averaging.distance import doubts_of_place, tell_distance
from bayeslaw._posteriors.averaging.loading import as_posterior
from bayeslaw._posteriors.outcomes import check_covariates
from bayeslaw._posteriors.pairs import table_of
from bayeslaw._posteriors.posterior import Posterior, columns_read
from bayeslaw._posteriors.repetition import NO_CORPUS, epochs_allowed

if TYPE_CHECKING:
    from jaxtyping import Float

SET = "evaluation set"


@dataclass(frozen=True, eq=False)
class MixtureQuestion:
    """Arguments that `plan_mixture` and `best_mixture` share, documented there."""

    losses: Mapping[str, Posterior | str | Path]
    _: KW_ONLY
    N: float
    max_loss: Mapping[str, float | str] = field(default_factory=dict)
    max_forgetting: Mapping[str, float | str] = field(default_factory=dict)
    max_mean_loss: float | str | None = None
    bytes_per_token: float | Mapping[str, float] | None = None
    confidence: float = 0.9
    weights: Mapping[str, float] | None = None
    bounds: Mapping[str, float | tuple[float, float]] = field(default_factory=dict)
    unique_tokens: Mapping[str, float] = field(default_factory=dict)
    max_epochs: float = 1.0
    covariates: Mapping[str, float | Mapping[str, float]] = field(default_factory=dict)
    baseline_run: Mapping[str, float] | None = None
    new_run: bool = True
    draws: int = 1000
    seed: int = 0


@dataclass(frozen=True, eq=False)
class MixtureArguments(MixtureQuestion):
    # documented in `plan_mixture`

    _: KW_ONLY
    D: float | None = None
    max_tokens: float | None = None
    costs: Costs | None = None


@dataclass(frozen=True, eq=False)
class BestMixtureArguments(MixtureQuestion):
    # documented in `best_mixture`

    _: KW_ONLY
    D: float
    tolerance: float = 0.002


# -- the problem -----------------------------------------------------------------------


class MixtureChoice(NamedTuple):
    """A budget and its mixture; ``is_kept`` tells whether the confidence is reached."""

    log_tokens: float
    shares: Float[np.ndarray, " domain"]
    probability: float
    is_kept: bool


@dataclass(frozen=True, eq=False)
class MixtureProblem:
    """Fixed draws, limits, and bounds of tokens and shares.

    Parameters
    ----------
    question
        What was asked.
    posteriors, sets
        Posteriors by evaluation set, and their paired draws.
    domains
        Names of the domains that are mixed.
    columns
        Covariates that the plan does not choose, by evaluation set.
    limits, confidence
        Limits on the losses and their mean, and the probability with which all are kept.
    mean
        The weighted mean of the sets' losses, without a limit.
    low, largest
        Bounds of each domain's share that were given or fitted, (domain,).
    tokens
        Bounds of the budget.
    unique, epochs
        Unique tokens of each domain, (domain,), infinite where not stated, and how often
        each may be seen.
    notes
        What was assumed.
    """

    question: MixtureQuestion
    posteriors: Mapping[str, Posterior]
    sets: Mapping[str, SampledConstraint]
    domains: tuple[str, ...]
    columns: Mapping[str, Mapping[str, float]]
    limits: tuple[SampledConstraint, ...]
    confidence: float
    mean: SampledConstraint
    low: Float[np.ndarray, " domain"]
    largest: Float[np.ndarray, " domain"]
    tokens: tuple[float, float]
    unique: Float[np.ndarray, " domain"]
    epochs: float
    notes: tuple[str, ...] = ()

    @property
    def size(self) -> float:
        return next(iter(self.columns.values()))["N"]

    @property
    def supply(self) -> Float[np.ndarray, " domain"]:
        """Tokens of each domain that may be seen, repetitions included, (domain,)."""
        return self.epochs * self.unique

    @property
    def high(self) -> Float[np.ndarray, " domain"]:
        """Largest share of each domain that its supply allows at the smallest budget,
        (domain,).
        """
        return np.minimum(self.largest, self.supply / self.tokens[0])

    def by_domain(self, shares: Float[np.ndarray, " domain"]) -> dict[str, float]:
        return dict(zip(self.domains, map(float, shares), strict=True))

    # -- losses of draws ---------------------------------------------------------------

    @cached_property
    def share_columns(self) -> tuple[str, ...]:
        return tuple(f"{PREFIX}{name}" for name in self.domains)

    def over(
        self,
        losses: SampledConstraint,
        log_tokens: Float[np.ndarray, " tokens"],
        shares: Float[np.ndarray, "mixture domain"],
    ) -> Float[np.ndarray, "draw mixture tokens"]:
        """Compute log losses of a set, or of a mean of sets, at mixtures and budgets."""
        chosen = dict(zip(self.share_columns, shares.T, strict=True))
        return losses.at_choices(log_tokens, chosen)

    def log_losses(
        self,
        log_tokens: Float[np.ndarray, " tokens"],
        shares: Float[np.ndarray, "mixture domain"],
    ) -> Float[np.ndarray, "set draw mixture tokens"]:
        """Compute the log losses of each set, with the noise of a new run."""
        return np.stack(
            [self.over(one, log_tokens, shares) for one in self.sets.values()]
        )

    def below(
        self,
        log_tokens: Float[np.ndarray, " tokens"],
        shares: Float[np.ndarray, "mixture domain"],
    ) -> Float[np.ndarray, "limit draw mixture tokens"]:
        """Compute the distance of each draw below each limit, in log loss."""
        shape = len(self.limits), self.mean.draws, len(shares), len(log_tokens)
        below = np.empty(shape)
        for of_limit, limit in zip(below, self.limits, strict=True):
            of_limit[:] = limit.below(self.over(limit, log_tokens, shares))
        return below

    def margins(
        self, log_tokens: float, shares: Float[np.ndarray, " domain"]
    ) -> Float[np.ndarray, "limit draw"]:
        return self.below(np.array([log_tokens]), shares[None])[:, :, 0, 0]

    def probabilities(
        self,
        log_tokens: Float[np.ndarray, " tokens"],
        shares: Float[np.ndarray, "mixture domain"],
    ) -> Float[np.ndarray, "mixture tokens"]:
        """Compute the share of draws that keep all limits, at each mixture and budget."""
        return kept_share(self.below(log_tokens, shares))

    def choice(
        self, log_tokens: float, shares: Float[np.ndarray, " domain"]
    ) -> MixtureChoice:
        """Judge a budget and its mixture by these draws."""
        probability = float(kept_share(self.margins(log_tokens, shares)))
        is_kept = probability >= self.confidence
        return MixtureChoice(log_tokens, shares, probability, is_kept)

    def quantile(
        self, point: Float[np.ndarray, " slope"]
    ) -> tuple[float, Float[np.ndarray, " slope"]]:
        """Compute the smooth quantile of the margin at log tokens and shares, and its
        slopes.
        """
        losses = [limit.with_slopes(self.share_columns, point) for limit in self.limits]
        pairs = zip(self.limits, losses, strict=True)
        margins = np.stack([limit.below(log_loss) for limit, (log_loss, _) in pairs])
        # of each draw its nearest limit
        nearest, draws = margins.argmin(axis=0), np.arange(margins.shape[1])
        margin = margins[nearest, draws]
        falls = -np.stack([slopes for _, slopes in losses])[nearest, draws]
        weights = np.empty(len(draws))
        ranks = rank_weights(len(draws), 1 - self.confidence)
        weights[np.argsort(margin)] = ranks
        # without BLAS: the search follows last digits, which depend on its threads
        return float((weights * margin).sum()), np.einsum("d,dk->k", weights, falls)

    def mean_losses(
        self, log_tokens: float, shares: Float[np.ndarray, " domain"]
    ) -> Float[np.ndarray, " draw"]:
        """Compute the weighted mean of each draw's losses."""
        log_losses = self.over(self.mean, np.array([log_tokens]), shares[None])
        return np.exp(log_losses[:, 0, 0])

    def mean_loss(
        self, point: Float[np.ndarray, " slope"]
    ) -> tuple[float, Float[np.ndarray, " slope"]]:
        """Compute the posterior mean of the weighted mean at log tokens and shares, and
        its slopes.
        """
        log_losses, slopes = self.mean.with_slopes(self.share_columns, point)
        losses = np.exp(log_losses)
        return float(losses.mean()), (losses[:, None] * slopes).mean(axis=0)

    # -- tokens ------------------------------------------------------------------------

    def most_tokens(self, shares: Float[np.ndarray, " domain"]) -> float:
        """Compute the largest log budget at these shares, limited by the budget and by
        each domain's supply.
        """
        needed = np.maximum(shares, 1e-12)
        return float(min(np.log(self.tokens[1]), np.log(self.supply / needed).min()))

    def cheapest(
        self, shares: Float[np.ndarray, " domain"], rounds: int = 3
    ) -> float | None:
        """Find the fewest log tokens at which these shares keep the limits, on a ladder
        that is refined round by round; None if no rung keeps them.
        """
        low, high = math.log(self.tokens[0]), self.most_tokens(shares)
        if high < low:
            return None
        for _ in range(rounds):
            rungs, probabilities = self._ladder(low, high, shares)
            safe_rungs = np.flatnonzero(probabilities >= self.confidence)
            if not len(safe_rungs):
                return None
            first = int(safe_rungs[0])
            high, low = float(rungs[first]), float(rungs[max(first - 1, 0)])
        return high

    def safest(self, shares: Float[np.ndarray, " domain"]) -> MixtureChoice:
        """Find the most probable budget of a mixture on a ladder. It need not be the
        largest, because far beyond the fitted tokens a law is less sure.
        """
        high = self.most_tokens(shares)
        low = min(math.log(self.tokens[0]), high)
        rungs, probabilities = self._ladder(low, high, shares)
        best = int(probabilities.argmax())
        most = float(probabilities[best])
        return MixtureChoice(float(rungs[best]), shares, most, most >= self.confidence)

    def _ladder(
        self, low: float, high: float, shares: Float[np.ndarray, " domain"]
    ) -> tuple[Float[np.ndarray, " rung"], Float[np.ndarray, " rung"]]:
        # evenly spaced log tokens, and the probability of the mixture at each
        rungs = np.linspace(low, high, 32 if high > low else 1)
        return rungs, self.probabilities(rungs, shares[None])[0]

    # -- what an answer tells ----------------------------------------------------------

    def describe(self, choice: MixtureChoice) -> dict[str, Any]:
        """Describe a chosen run in the fields that all answers have, but for its tokens."""
        margins = self.margins(choice.log_tokens, choice.shares)
        return {
            "feasible": choice.is_kept,
            "N": self.size,
            "shares": self.by_domain(choice.shares),
            "limits": [
                {
                    "name": limit.name,
                    "limit": limit.limit,
                    "unit": limit.unit,
                    "max_loss": float(np.exp(limit.log_limit.mean())),
                    "probability": float((margin >= 0).mean()),
                    **quantiles(limit.outcome(limit.log_limit - margin)),
                }
                for limit, margin in zip(self.limits, margins, strict=True)
            ],
            **self.place(choice),
        }

    def settings(self) -> dict[str, Any]:
        """Collect what was asked, as JSON types."""
        unique = self.by_domain(self.unique)
        weights = dict(self.mean.constraint.weights)
        return {
            "confidence": self.confidence,
            "weights": {name: weights.get(name, 0.0) for name in self.sets},
            "least": self.by_domain(self.low),
            "largest": self.by_domain(self.largest),
            "unique_tokens": {n: u for n, u in unique.items() if u < math.inf},
            "max_epochs": self.epochs,
            "covariates": {name: dict(row) for name, row in self.columns.items()},
            "baseline_run": dict(self.question.baseline_run or {}),
            "new_run": self.question.new_run,
            "draws": self.question.draws,
            "seed": self.question.seed,
        }

    def place(self, choice: MixtureChoice, near: float = 1e-3) -> dict[str, Any]:
        """Tell where a chosen run lies: its ``distance``, as `tell_distance` does, and
        ``warnings``: those of the fits, and of plans at an end of a range.
        """
        columns = {c: x for row in self.columns.values() for c, x in row.items()}
        run = columns | {"D": math.exp(choice.log_tokens)}
        lines = [f"{n}: {x}" for n, p in self.posteriors.items() for x in p.warnings]
        lines += [*self.notes, *doubts_of_place(self.posteriors, run)]
        for name, share, low, high in zip(
            self.domains, choice.shares, self.low, self.largest, strict=True
        ):
            column = f"{PREFIX}{name}"
            least, most = fitted_range(self.posteriors, column) or (0.0, 1.0)
            at = "largest" if high - share < near else ""
            at = "least" if share - low < near else at
            is_given = name in self.question.bounds
            if is_given and not least - near < share < most + near:
                lines.append(
                    f"the share of {name}, {share:.1%}, lies beyond those that were "
                    f"fitted ({least:.1%} to {most:.1%}): nothing was checked there"
                )
            elif not is_given and at:
                lines.append(
                    f"the share of {name}, {share:.1%}, is the {at} that was fitted: "
                    f"beyond it nothing was checked; bounds={{{name!r}: (0, 1)}} looks "
                    f"there (--share {name}=0:100%; of report --plan "
                    f"share_{name}=0:100%)"
                )
        return {"distance": tell_distance(self.posteriors, run), "warnings": lines}


def kept_share(
    margins: Float[np.ndarray, "limit draw *point"],
) -> Float[Any, "*point"]:
    """Compute the share of draws that keep all limits."""
    return (margins >= 0).all(axis=0).mean(axis=0)


def rank_weights(draws: int, q: float) -> Float[np.ndarray, " draw"]:
    """Compute the weights of the order statistics in the quantile of Harrell and Davis
    1982.
    """
    ends = np.arange(draws + 1) / draws
    below = special.betainc((draws + 1) * q, (draws + 1) * (1 - q), ends)
    return np.diff(below)


def quantiles(losses: Float[np.ndarray, " draw *point"], tail: float = 0.05) -> dict:
    """Summarise a loss, or a rise, by its median and 90% interval, numbers or lists."""
    low, median, high = np.quantile(losses, [tail, 0.5, 1 - tail], axis=0).tolist()
    return {"median": median, "low": low, "high": high}


# -- the question ----------------------------------------------------------------------


def pose(question: MixtureArguments | BestMixtureArguments) -> MixtureProblem:
    """Check a question, and pose it over paired draws: at its budget, or without one from
    ten times below to ten times above the fitted budgets.

    Raises
    ------
    PlanError
        The arguments are inconsistent, a limit is ill-posed, or the domains have fewer
        tokens than the smallest budget.
    """
    runtime.start()
    if not isinstance(question.losses, Mapping) or not question.losses:
        raise PlanError("give a posterior of at least one evaluation set, by its name")
    posteriors = {name: as_posterior(p) for name, p in question.losses.items()}
    if MEAN in posteriors:
        raise PlanError(
            f"no evaluation set can be named {MEAN!r}: that is the limit on the mean"
        )
    domains, sets = _find_domains(posteriors), tuple(posteriors)

    # columns that the plan does not choose: common to all sets, or given for each
    size = checked("N", question.N, KINDS["N"])
    weights = _read_weights(question.weights, sets)
    limits = _read_limits(question, sets, weights)
    set_elsewhere = {"N": "it is given as N", "D": "it is the budget"} | {
        f"{PREFIX}{name}": "bounds say what a plan chooses" for name in domains
    }
    read = {column for p in posteriors.values() for column in columns_read(p)}
    baseline_run = _read_baseline_run(question.baseline_run, domains)
    if baseline_run is None and any(UNITS[c.unit].has_baseline for c in limits):
        read.add(LOSS_BEFORE)
    check_covariates(question.covariates, read, set_elsewhere)
    pieces = {name: posterior.pieces() for name, posterior in posteriors.items()}
    check_settings(pieces, question.covariates)
    fixed = {name: {"N": size} for name in sets}
    for column, value in question.covariates.items():
        by_set = value if isinstance(value, Mapping) else dict.fromkeys(sets, value)
        check_names(f"covariates {column}", by_set, sets, SET)
        for name, one in by_set.items():
            fixed[name][column] = checked(column, one, KINDS.get(column, POSITIVE))
    check_count("draws", question.draws)

    low, largest = _read_bounds(question, posteriors, domains)
    given = question.unique_tokens
    check_names("unique_tokens", given, domains)
    unique = [
        checked(f"unique_tokens of {name}", given[name], COUNT)
        if name in given
        else math.inf
        for name in domains
    ]
    # how often a token may be seen is decided as by `plan`
    epochs = checked("max_epochs", question.max_epochs, KINDS["max_epochs"])
    notes = [] if epochs == MixtureQuestion.max_epochs else [NO_CORPUS]
    if given:
        of_all = [piece for of_set in pieces.values() for piece in of_set]
        epochs, notes = epochs_allowed(epochs, of_all, None)

    max_tokens = getattr(question, "max_tokens", None)
    if question.D is not None:
        if max_tokens is not None:
            raise PlanError("give D, the budget, or max_tokens, not both")
        fewest = most = checked("D", question.D, COUNT)
    else:
        ends = fitted_range(posteriors, "D") or (1e6, 1e13)
        most = 10.0 * ends[1]
        if max_tokens is not None:
            most = checked("max_tokens", max_tokens, COUNT)
        fewest = min(ends[0], most) / 10.0
    if not limits and question.D is None:
        raise PlanError(
            "give a limit: max_loss by evaluation set, or max_mean_loss; or a budget D, "
            "at which the mean of the losses is least"
        )
    confidence = checked("confidence", question.confidence, KINDS["confidence"])
    # all arguments are checked: draws are paired last
    drawn = {name: _sample_set(question, name, fixed, posteriors) for name in sets}
    if baseline_run is not None:
        # the other run by the law alone, as `plan` takes it
        columns = tuple(f"{PREFIX}{name}" for name in domains)
        for name, one in drawn.items():
            log_losses, _ = one.of_law.with_slopes(columns, baseline_run)
            drawn[name] = replace(one, baseline=np.exp(log_losses))
    for limit in limits:
        if baseline_run is None and UNITS[limit.unit].has_baseline:
            for name in dict(limit.weights) or (limit.name,):
                before = _find_baseline(name, posteriors[name], fixed[name])
                baseline = np.full(question.draws, before)
                drawn[name] = replace(drawn[name], baseline=baseline)
    no_limit = Constraint(MEAN, math.inf, "loss", tuple(weights.items()))
    problem = MixtureProblem(
        question=question,
        posteriors=posteriors,
        sets=drawn,
        domains=domains,
        columns=fixed,
        limits=tuple(SampledConstraint.of_mean(limit, drawn) for limit in limits),
        confidence=confidence,
        mean=SampledConstraint.of_mean(no_limit, drawn),
        low=low,
        largest=largest,
        tokens=(fewest, most),
        unique=np.array(unique),
        epochs=epochs,
        notes=tuple(notes),
    )
    if problem.high.sum() < 1 - 1e-9:
        raise PlanError(
            f"the domains have {format_count(problem.high.sum() * fewest)} tokens within "
            f"their bounds, and the least budget is {format_count(fewest)}: give "
            "max_epochs, or plan for less"
        )
    is_short = low > problem.high + 1e-9
    if is_short.any():
        raise PlanError(
            f"{domains[int(is_short.argmax())]} has too few tokens for its least share at "
            f"{format_count(fewest)} tokens: lower the share, or give max_epochs"
        )
    return problem


def _sample_set(
    question: MixtureQuestion,
    name: str,
    columns: Mapping[str, Mapping[str, float]],
    posteriors: Mapping[str, Posterior],
) -> SampledConstraint:
    """Resample the draws of an evaluation set, in a random order of its own. It has no
    limit of its own: those on it are on a mean of it alone.
    """
    given = {column: np.array(x) for column, x in columns[name].items()}
    for column in columns_read(posteriors[name], there=given):
        if not (column in given or column == "D" or is_share(column)):
            raise PlanError(
                f"the law of {name} reads {column!r}: "
                f"give covariates={{{column!r}: ...}}, or by set "
                f"{{{column!r}: {{{name!r}: ...}}}}"
            )
    return SampledConstraint.resampled(
        Constraint(name, math.inf, "loss"),
        posteriors[name].pieces(),
        given,
        generator(question.seed, list(posteriors).index(name)),
        draws=question.draws,
        new_run=question.new_run,
    )


def _find_domains(posteriors: Mapping[str, Posterior]) -> tuple[str, ...]:
    # the laws' shares must be of the same domains
    domains_of: dict[str, set[str]] = {}
    for name, posterior in posteriors.items():
        domains_of[name] = set(share_domains(columns_read(posterior)))
        if not domains_of[name]:
            raise PlanError(
                f"the law of {name} reads no shares: fit a law of mixtures "
                "(mixture-coupled) to a table with columns share_NAME"
            )
    first, domains = next(iter(domains_of.items()))
    for name, others in domains_of.items():
        if others != domains:
            apart = ", ".join(sorted(others ^ domains))
            raise PlanError(
                f"the fits of {first} and {name} differ in domains: {apart}"
            )
    return tuple(sorted(domains))


def _read_limits(
    question: MixtureQuestion, sets: tuple[str, ...], weights: Mapping[str, float]
) -> tuple[Constraint, ...]:
    limits, in_bytes = {}, question.bytes_per_token
    kinds: dict[str, UnitName] = {"max_loss": "loss", "max_forgetting": "relative"}
    for keyword, unit in kinds.items():
        given = getattr(question, keyword)
        check_names(keyword, given, sets, SET)
        for name, limit in given.items():
            if name in limits:
                raise PlanError(f"give max_loss or max_forgetting of {name}, not both")
            what = f"{keyword} of {name}"
            limits[name] = constraint_on(name, what, limit, unit, in_bytes)
    if question.max_mean_loss is not None:
        limits[MEAN] = read_mean_limit(question.max_mean_loss, weights, in_bytes)
    return tuple(limits.values())


def _read_baseline_run(
    run: Any, domains: tuple[str, ...]
) -> Float[np.ndarray, " slope"] | None:
    """Read another run's log tokens and shares; shares that are not given are 0."""
    if run is None:
        return None
    if not isinstance(run, Mapping) or not {"D"} < set(run) <= {"D", *domains}:
        raise PlanError(
            "baseline_run is another run's tokens and shares, D=10B,"
            f"{','.join(f'{name}=...' for name in domains)}; got {run!r}"
        )
    shares = [checked(f"baseline_run {n}", run.get(n, 0.0), SHARE) for n in domains]
    if abs(sum(shares) - 1) > 1e-6:
        raise PlanError(f"baseline_run: shares sum to {sum(shares):.4g}, not to 1")
    tokens = checked("baseline_run D", run["D"], COUNT)
    return np.array([math.log(tokens), *shares])


def _find_baseline(
    name: str, posterior: Posterior, columns: Mapping[str, float]
) -> float:
    """Find the loss of an evaluation set before adaptation. In the law of the domain of
    pre-training, which reads no other loss before, ``source_loss_before`` is its own.
    """
    read = columns_read(posterior)
    is_source = SOURCE_LOSS_BEFORE in read and LOSS_BEFORE not in read
    before = columns.get(LOSS_BEFORE)
    if before is None and is_source:
        before = columns.get(SOURCE_LOSS_BEFORE)
    if before is None:
        raise PlanError(
            f"the limit on {name} is on its rise: give the loss before adaptation, "
            f"covariates={{'loss_before': {{{name!r}: 2.3}}}} "
            f"(--covariate loss_before={name}=2.3), or another run to compare with, "
            "baseline_run (--baseline-run)"
        )
    return before


def _read_weights(given: Any, sets: tuple[str, ...]) -> dict[str, float]:
    """Compute the weights of evaluation sets in a mean, which sum to one; sets without
    weight are left out.
    """
    given = dict.fromkeys(sets, 1.0) if given is None else given
    check_names("weights", given, sets, SET)
    by_set = {n: checked(f"weight of {n}", w, NUMBER) for n, w in given.items()}
    total = sum(by_set.values())
    if min(by_set.values(), default=0.0) < 0 or not 0 < total < math.inf:
        raise PlanError("weights must be at least 0, and one of them above")
    return {name: by_set[name] / total for name in sets if by_set.get(name)}


def _read_bounds(
    question: MixtureQuestion,
    posteriors: Mapping[str, Posterior],
    domains: tuple[str, ...],
) -> tuple[np.ndarray, np.ndarray]:
    """Find the smallest and largest share of each domain: the given ones (one number is
    a fixed share), else the fitted ones.
    """
    check_names("bounds", question.bounds, domains)
    pairs = []
    for name in domains:
        if name not in question.bounds:
            pairs.append(fitted_range(posteriors, f"{PREFIX}{name}") or (0.0, 1.0))
            continue
        what = f"bounds of {name}"
        given: Any = question.bounds[name]
        ends = (given, given) if np.ndim(given) == 0 else tuple(given)
        if len(ends) != 2:
            raise PlanError(
                f"{what}: give the least and the largest share; got {given!r}"
            )
        low, high = (checked(what, end, SHARE) for end in ends)
        if low > high:
            raise PlanError(
                f"{what}: the least, {low:g}, is over the largest, {high:g}"
            )
        pairs.append((low, high))
    low, high = np.array(pairs).T
    if low.sum() > 1 + 1e-9 or high.sum() < 1 - 1e-9:
        raise PlanError(
            f"bounds leave no mixture: least shares sum to {low.sum():.3g} and largest "
            f"to {high.sum():.3g}; 1 must lie between"
        )
    return low, high


def fitted_range(
    posteriors: Mapping[str, Posterior], column: str
) -> tuple[float, float] | None:
    """Find the range of a column that all tables cover; None if no table has it."""
    tables = [table_of(posterior) for posterior in posteriors.values()]
    columns = [
        table[column] for table in tables if table is not None and column in table
    ]
    if not columns:
        return None
    return max(float(c.min()) for c in columns), min(float(c.max()) for c in columns)

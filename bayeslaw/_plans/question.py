"""What a planner is asked: records, made of the arguments of `bayeslaw.plan`.

A `Question` is built in one place, `question_of`, and read by the plan, the report's
explorer and the plan as a goal of anchors.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from bayeslaw._base.errors import PlanError
from bayeslaw._base.limits import (
    CHANCE,
    COUNT,
    KINDS,
    LOSS,
    POSITIVE,
    SHARE,
    checked,
)
from bayeslaw._base.machine import runtime
from bayeslaw._costs.costs import Costs
from bayeslaw._law.columns import (
    LOSS_BEFORE,
    LOSSES_BEFORE,
    SOURCE_LOSS_BEFORE,
    is_share,
)
from bayeslaw._plans.constraint import (
    UNITS,
    Constraint,
    UnitName,
    forgetting_limit,
    loss_limit,
    says_rise,
)
from bayeslaw._posteriors.averaging.checkpoint import losses_at_hand
from bayeslaw._posteriors.averaging.loading import as_posterior
from bayeslaw._posteriors.chain import models_of
from bayeslaw._posteriors.links.accuracy import ACCURACY, AccuracyLink, accuracy_link
from bayeslaw._posteriors.links.joint import ErrorCorrelation, error_correlation
from bayeslaw._posteriors.pairs import check_posteriors, fitted_replays, table_of
from bayeslaw._posteriors.posterior import Piece, Posterior
from bayeslaw._posteriors.repetition import UNIQUE, epochs_allowed, repeating

TARGET, FORGETTING = "target", "forgetting"
MEAN, ACCURATE = "mean", "accuracy"
# columns that a covariate may not set, and what does
OWN = {
    "N": "it is given as N",
    "ptpp": "it is given as ptpp",
    "D": "it is what a plan chooses",
    "replay": "it is what a plan chooses (min_replay and max_replay bound it)",
}


# -- records ---------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Model:
    """A checkpoint that may be adapted, and what is known of it.

    Parameters
    ----------
    N, ptpp
        Parameters, and pre-training tokens per parameter.
    covariates
        Further columns that the laws read: a number, or draws of shape (draw,);
        ``source_loss_before`` may be by source.
    baseline_loss
        Loss before adaptation in nats per token, by source: a number, draws of shape
        (draw,), or None where it is not measured.
    baseline_tokens
        Tokens of pure replay at which the source's law gives the baseline instead, by
        source; None: 0.
    further_domains
        Domains that are neither target nor source: their loss is limited, and
        ``source_loss_before`` is not theirs.
    targets
        Domains that are adapted to.
    baseline_run
        Tokens and replay of another run whose loss by the law is the baseline of all
        limits on a rise.
    """

    N: float
    ptpp: float
    covariates: Mapping[str, Any]
    baseline_loss: Mapping[str, Any]
    baseline_tokens: Mapping[str, float | None]
    further_domains: tuple[str, ...] = ()
    targets: tuple[str, ...] = (TARGET,)
    baseline_run: tuple[float, float] | None = None

    def source_before(self, source: str) -> Any:
        """Take the source's loss before adaptation, if it was given."""
        measured = self.baseline_loss[source]
        if measured is not None:
            return measured
        of_sources = self.covariates.get(SOURCE_LOSS_BEFORE)
        return of_source(of_sources, source)

    def columns(self, name: str) -> dict[str, Any]:
        """Collect what is known of the run to plan where this constraint's law reads
        it.

        A source's ``loss_before`` is its own.
        """
        columns = {"N": self.N, "ptpp": self.ptpp} | dict(self.covariates)
        if name in self.targets:
            if isinstance(columns.get(SOURCE_LOSS_BEFORE), Mapping):
                del columns[SOURCE_LOSS_BEFORE]
            if isinstance(columns.get(LOSS_BEFORE), Mapping):
                columns[LOSS_BEFORE] = of_source(columns[LOSS_BEFORE], name)
            return columns
        if name in self.further_domains:
            columns.pop(LOSS_BEFORE, None)
            baseline = self.baseline_loss[name]
            return columns if baseline is None else columns | {LOSS_BEFORE: baseline}
        before = self.source_before(name)
        if before is not None:
            return columns | {LOSS_BEFORE: before, SOURCE_LOSS_BEFORE: before}
        columns.pop(LOSS_BEFORE, None)
        return columns

    def at_means(self) -> Model:
        """Replace draws by their means."""
        covariates = {
            column: setting if isinstance(setting, Mapping) else np.mean(setting)
            for column, setting in self.covariates.items()
        }
        baselines = {
            source: None if setting is None else np.mean(setting)
            for source, setting in self.baseline_loss.items()
        }
        return replace(self, covariates=covariates, baseline_loss=baselines)


@dataclass(frozen=True)
class Budget:
    """What may be spent on the adaptation.

    Parameters
    ----------
    max_flops, max_tokens
        Budget of the adaptation; the most probable plan within it is sought if either is
        finite.
    max_cost, max_days
        Money and days that the plan may take at most; the most probable plan within them
        is sought where the cheapest one is not.
    unique_target_tokens, epochs
        Target tokens there are, and how often each may be seen.
    min_replay, max_replay
        Least and largest share of source data.
    fitted
        Which of the two are the ends of the fitted replays, not asked for.
    """

    max_flops: float = math.inf
    max_tokens: float = math.inf
    max_cost: float = math.inf
    max_days: float = math.inf
    unique_target_tokens: float = math.inf
    epochs: float = 1.0
    min_replay: float = 0.0
    max_replay: float = 1.0
    fitted: tuple[str, ...] = ()

    def tokens(self, N: float, costs: Costs) -> float:
        """Compute the most adaptation tokens of a model of ``N`` parameters by tokens
        and FLOPs.
        """
        return min(self.max_tokens, self.max_flops / costs.flops_per_token(N))

    def paid_tokens(self, model: Model, costs: Costs) -> dict[str, float]:
        """Compute the most adaptation tokens by money and by days, by what they are
        called.
        """
        N, ptpp = model.N, model.ptpp
        return {
            "cost": costs.most_tokens(N, ptpp, max_cost=self.max_cost),
            "deadline": costs.most_tokens(N, ptpp, max_days=self.max_days),
        }

    @property
    def target_tokens(self) -> float:
        """The most target tokens that may be seen, repetitions included."""
        return self.unique_target_tokens * self.epochs


@dataclass(frozen=True, eq=False)
class Question:
    """What the planner is asked.

    Parameters
    ----------
    pieces
        Posteriors by domain, the targets first.
    constraints
        On domains, in the order of ``pieces``, and on their mean.
    models
        The models planned for; the cheapest one is chosen.
    confidence
        Confidence of all constraints together, or of each by name.
    budget
        What may be spent.
    costs
        What training costs.
    new_run
        Whether the limits are on the loss of the run that will be made, with its noise,
        or on the law's mean.
    draws, seed
        Pairs of draws to work with, and the seed that pairs them and draws the noise.
    warnings
        What makes the posteriors less than trustworthy.
    notes
        What was not asked but taken from the tables that the fits kept.
    errors
        How the errors of the domains' forecasts are correlated; None: not at all.
    link
        Draws of the accuracy by the first target's loss, where it is limited.
    excess_prices
        Price of a nat over a limit, by name; limits without one are strict.
    """

    pieces: Mapping[str, tuple[Piece, ...]]
    constraints: tuple[Constraint, ...]
    models: tuple[Model, ...]
    confidence: float | Mapping[str, float] = 0.9
    budget: Budget = Budget()
    costs: Costs = field(default_factory=Costs)
    new_run: bool = True
    draws: int = 4000
    seed: int = 0
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    errors: ErrorCorrelation | None = None
    link: AccuracyLink | None = None
    excess_prices: Mapping[str, float] = field(default_factory=dict)


# -- arguments -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PlanArguments:
    # arguments of `bayeslaw.plan`, which says what they are, before they are checked

    target: Posterior | str | Path | Mapping[str, Posterior | str | Path]
    source: Posterior | str | Path | Mapping[str, Posterior | str | Path]
    _: KW_ONLY
    N: float | Sequence[float]
    ptpp: float | Sequence[float]
    max_target_loss: float | str | Mapping[str, float | str] | None = None
    min_accuracy: float | str | None = None
    accuracy: AccuracyLink | pd.DataFrame | str | Path | None = None
    max_forgetting: float | str | Mapping[str, float | str] | None = None
    max_loss: Mapping[str, float | str] | None = None
    max_mean_loss: float | str | None = None
    mean_weights: Mapping[str, float] | None = None
    excess_price: Mapping[str, float] | None = None
    confidence: float | Mapping[str, float] = 0.9
    forgetting_unit: Literal["relative", "nats"] = "relative"
    baseline_loss: Any = None
    baseline_tokens: float | Mapping[str, float] | None = None
    baseline_run: Mapping[str, float] | None = None
    correlation: float | None = None
    covariates: Mapping[str, Any] | None = None
    max_flops: float | None = None
    max_tokens: float | None = None
    costs: Costs | None = None
    max_cost: float | None = None
    max_days: float | None = None
    unique_target_tokens: float | None = None
    max_epochs: float | None = None
    bytes_per_token: float | Mapping[str, float] | None = None
    min_replay: float | None = None
    max_replay: float | None = None
    new_run: bool = True
    point: Mapping[str, Mapping[str, float]] | None = None
    draws: int = 4000
    seed: int = 0

    @property
    def targets(self) -> dict[str, Posterior]:
        """Posteriors of targets by name; one without a name is ``target``."""
        if isinstance(self.target, Mapping):
            return {
                name: as_posterior(posterior) for name, posterior in self.target.items()
            }
        return {TARGET: as_posterior(self.target)}

    @property
    def sources(self) -> dict[str, Posterior]:
        """Posteriors of sources by name; of one without a name, the forgetting's."""
        if isinstance(self.source, Mapping):
            return {
                name: as_posterior(posterior) for name, posterior in self.source.items()
            }
        return {FORGETTING: as_posterior(self.source)}

    def bytes_of(self, name: str) -> float | None:
        """Bytes of a token of one domain's text."""
        by_name = self.bytes_per_token
        return by_name.get(name) if isinstance(by_name, Mapping) else by_name


NAMES = tuple(f.name for f in fields(PlanArguments) if f.kw_only)


def question_of(arguments: PlanArguments) -> Question:
    """Check the arguments of `bayeslaw.plan`, and complete them from the fits' tables.

    Raises
    ------
    PlanError
        The question is ill-posed.
    """
    targets, sources = arguments.targets, arguments.sources
    _check_names(targets, sources)
    posteriors = targets | sources
    first, *further = targets
    check_posteriors(
        targets[first], {name: posteriors[name] for name in further} | sources
    )
    runtime.start()
    pieces = {name: tuple(p.pieces()) for name, p in posteriors.items()}
    _check_read(arguments.covariates or {}, pieces)
    arguments, notes = _with_kept_losses(arguments, targets, sources, pieces)
    arguments, repeats = _with_repetition(arguments, targets, pieces)
    budget, costs = _budget(arguments, fitted_replays(posteriors)), _costs(arguments)
    constraints = _constraints(arguments, list(targets), list(sources))
    return Question(
        pieces=pieces,
        constraints=constraints,
        models=_payable(
            _models(arguments, list(targets), list(sources)), budget, costs
        ),
        confidence=_confidence(arguments.confidence, [c.name for c in constraints]),
        budget=budget,
        costs=costs,
        new_run=arguments.new_run,
        draws=_draws(arguments, pieces),
        seed=arguments.seed,
        warnings=tuple(
            f"{name}: {line}" for name, p in posteriors.items() for line in p.warnings
        )
        + repeats,
        notes=notes,
        errors=error_correlation(posteriors, arguments.correlation),
        link=_link(arguments.accuracy, arguments.seed),
        excess_prices=_excess_prices(arguments, constraints),
    )


def _excess_prices(
    arguments: PlanArguments, constraints: Sequence[Constraint]
) -> dict[str, float]:
    """Check the price of a nat over a limit, by the limit's name."""
    prices = {} if arguments.excess_price is None else arguments.excess_price
    names = [c.name for c in constraints if c.unit != "error"]
    if not isinstance(prices, Mapping):
        raise PlanError(
            f"excess_price is by limit, {names[-1]}=1e20 a nat; got {prices!r}"
        )
    unknown = [name for name in prices if name not in names]
    if unknown:
        raise PlanError(
            f"excess_price names {unknown[0]!r}, which is no limit on a loss; there are: "
            f"{', '.join(names)}"
        )
    budgets = ("max_flops", "max_tokens", "max_cost", "max_days")
    caps = [name for name in budgets if getattr(arguments, name) is not None]
    if prices and caps:
        raise PlanError(
            f"excess_price weighs cost and excess, and {caps[0]} caps the cost: give one"
        )
    return {
        name: checked(f"excess_price of {name}", price, POSITIVE)
        for name, price in prices.items()
    }


def _link(accuracy: Any, seed: int) -> AccuracyLink | None:
    """Take the chain from loss to accuracy, or fit it to its table."""
    if accuracy is None or isinstance(accuracy, AccuracyLink):
        return accuracy
    return accuracy_link(accuracy, seed=seed)


def _check_names(
    targets: Mapping[str, Posterior], sources: Mapping[str, Posterior]
) -> None:
    """Refuse domains without a name of their own."""
    if not targets:
        raise PlanError("name at least one target")
    if not sources or TARGET in sources:
        raise PlanError(
            f"name at least one source, and none {TARGET!r}; got {list(sources)}"
        )
    twice = [name for name in targets if name in sources]
    if twice:
        raise PlanError(
            f"{twice[0]!r} is a target and a source; give each its own name"
        )
    if MEAN in {*targets, *sources}:
        raise PlanError(
            f"no domain can be named {MEAN!r}: that is the limit on their mean"
        )


def _check_read(
    covariates: Mapping[str, Any], pieces: Mapping[str, tuple[Piece, ...]]
) -> None:
    """Refuse laws of mixtures, of whose shares replay is none, and covariates that no
    law reads: most often a name is misspelt.
    """
    # the planner itself reads what a source had before adaptation
    columns = {LOSS_BEFORE, SOURCE_LOSS_BEFORE}
    for piece in itertools.chain.from_iterable(pieces.values()):
        columns.update(piece.covariates)
    shares = sorted(filter(is_share, columns))
    if shares:
        raise PlanError(
            f"the laws read {', '.join(shares)}, and a plan chooses tokens and one "
            "replay: plan the shares of a mixture with bayeslaw.plan_mixture (bayeslaw "
            "mixture)"
        )
    unknown = [column for column in covariates if column not in columns | set(OWN)]
    if unknown:
        raise PlanError(
            f"no law reads the covariate {unknown[0]!r}; "
            f"they read {', '.join(sorted(columns))}"
        )


def _with_kept_losses(
    arguments: PlanArguments,
    targets: Mapping[str, Posterior],
    sources: Mapping[str, Posterior],
    pieces: Mapping[str, tuple[Piece, ...]],
) -> tuple[PlanArguments, tuple[str, ...]]:
    """Complete the arguments with the checkpoint's losses before adaptation that are
    not given but in the tables that the fits kept; and say where each comes from, a
    line each.
    """
    covariates, notes = dict(arguments.covariates or {}), []
    models = arguments.N, arguments.ptpp

    def loss_in_table(posterior: Posterior, column: str, *columns: str) -> Any:
        """Look a column up in a table, if it has it or one of the others."""
        runs = getattr(posterior, "runs", None)
        if not isinstance(runs, pd.DataFrame) or not {column, *columns} & set(runs):
            return None
        parts = dict.fromkeys(LOSSES_BEFORE.values(), runs)
        losses = losses_at_hand(parts, [column], *models)
        notes.extend(line for line in losses.told if line not in notes)
        return losses.measured.get(column)

    baselines: Any = arguments.baseline_loss
    has_baseline = baselines is not None or arguments.baseline_tokens is not None
    if not has_baseline and SOURCE_LOSS_BEFORE not in covariates:
        limits = _others(arguments, list(sources))
        # a source's loss_before is its own; so is that of a domain that is none
        kept_losses = {
            name: loss_in_table(p, LOSS_BEFORE)
            if name in limits
            else loss_in_table(p, SOURCE_LOSS_BEFORE, LOSS_BEFORE)
            for name, p in sources.items()
        }
        if any(loss is not None for loss in kept_losses.values()):
            baselines = kept_losses
    by_source = baselines if isinstance(baselines, Mapping) else {"": baselines}
    target_columns = {
        column
        for name in targets
        for piece in pieces[name]
        for column in piece.covariates
    }
    target_columns |= {LOSS_BEFORE} & _read_by_limits(arguments)
    missing = [c for c in LOSSES_BEFORE if c in target_columns and c not in covariates]
    for column in missing:
        loss = None
        # a baseline that was given is the one source's for the target's law, too
        if column == SOURCE_LOSS_BEFORE and len(by_source) == len(sources) == 1:
            (loss,) = by_source.values()
        if loss is None:
            losses = {name: loss_in_table(p, column) for name, p in targets.items()}
            loss = _one_or_by_name(losses, column)
        if loss is not None:
            covariates[column] = loss
    completed = replace(arguments, covariates=covariates, baseline_loss=baselines)
    return completed, tuple(notes)


def _read_by_limits(arguments: PlanArguments) -> set[str]:
    """List what limits of targets read beside the laws: a rise its baseline."""
    limits = arguments.max_target_loss
    limits = limits.values() if isinstance(limits, Mapping) else [limits]
    is_rise = any(says_rise(limit) for limit in limits)
    return {LOSS_BEFORE} if is_rise and arguments.baseline_run is None else set()


def _one_or_by_name(losses: Mapping[str, Any], column: str) -> Any:
    """Take the targets' losses by name, or one where they share it; None where there is
    none.
    """
    present = {name: loss for name, loss in losses.items() if loss is not None}
    if not present:
        return None
    shared = next(iter(present.values()))
    return shared if len(losses) == 1 or column == SOURCE_LOSS_BEFORE else present


def _with_repetition(
    arguments: PlanArguments,
    targets: Mapping[str, Posterior],
    pieces: dict[str, tuple[Piece, ...]],
) -> tuple[PlanArguments, tuple[str, ...]]:
    """The arguments with as many epochs as are allowed, and what to know of that; laws
    of repetition among the target's ``pieces`` read the target tokens there are.
    """
    unique, epochs = arguments.unique_target_tokens, arguments.max_epochs
    if unique is None:
        return arguments, ()
    unique = checked("unique_target_tokens", unique, KINDS["unique_target_tokens"])
    if epochs is not None:
        epochs = checked("max_epochs", epochs, KINDS["max_epochs"])
    first = next(iter(targets))
    allowed, lines = epochs_allowed(epochs, pieces[first], table_of(targets[first]))
    if UNIQUE not in (arguments.covariates or {}):
        pieces.update({name: repeating(pieces[name], unique) for name in targets})
    return replace(arguments, max_epochs=allowed), tuple(lines)


def _constraints(
    arguments: PlanArguments, targets: Sequence[str], sources: Sequence[str]
) -> tuple[Constraint, ...]:
    """Read every limit: those of targets, of sources, of further domains, and on a mean."""
    unit = arguments.forgetting_unit
    if unit not in UNITS or not UNITS[unit].has_baseline:
        raise PlanError(f"forgetting_unit must be 'relative' or 'nats', got {unit!r}")
    loss_limits = _others(arguments, sources)
    of_sources = [
        Constraint(name, *loss_limits[name])
        if name in loss_limits
        else _forgetting(arguments, name, unit)
        for name in sources
        if name in loss_limits or not _in_mean_only(arguments, name)
    ]
    return (
        *_of_targets(arguments, targets),
        *of_sources,
        *_of_mean(arguments, targets, sources),
    )


def _of_targets(
    arguments: PlanArguments, targets: Sequence[str]
) -> Iterator[Constraint]:
    """Read the limits on the targets' losses, and on the accuracy that the first has."""
    limits, least = arguments.max_target_loss, arguments.min_accuracy
    if limits is None and least is None:
        raise PlanError(
            "give max_target_loss (--max-target-loss 1.8), or min_accuracy with accuracy"
        )
    for name in targets:
        if limits is None or (
            isinstance(limits, Mapping) and name not in limits and least
        ):
            continue
        what = "max_target_loss" if name == TARGET else f"max_target_loss of {name}"
        limit = of_source(limits, name)
        yield Constraint(name, *loss_limit(what, limit, arguments.bytes_of(name)))
    if (least is None) != (arguments.accuracy is None):
        raise PlanError(
            "min_accuracy needs accuracy, a table of losses and accuracies, and "
            "accuracy needs min_accuracy (--min-accuracy 60% --accuracy evaluated.csv)"
        )
    if least is not None:
        wrong = 1 - checked("min_accuracy", least, ACCURACY)
        yield Constraint(ACCURATE, wrong, "error", ((targets[0], 1.0),))


def _others(
    arguments: PlanArguments, sources: Sequence[str]
) -> dict[str, tuple[float, UnitName]]:
    """Check the most loss of the domains whose loss is limited, by name."""
    limits = arguments.max_loss or {}
    if not isinstance(limits, Mapping):
        raise PlanError(
            f"max_loss is by domain, {{'code': 1.2}}; got {limits!r} "
            "(the target's limit is max_target_loss)"
        )
    unknown = [name for name in limits if name not in sources]
    if unknown:
        raise PlanError(
            f"max_loss names {unknown[0]!r}, which has no posterior; "
            f"sources: {', '.join(sources)}"
        )
    return {
        name: loss_limit(f"max_loss of {name}", limit, arguments.bytes_of(name))
        for name, limit in limits.items()
    }


def _in_mean_only(arguments: PlanArguments, source: str) -> bool:
    """Tell a source that is limited in the mean of several, and not by itself."""
    limits = arguments.max_forgetting
    has_own = limits is not None
    if isinstance(limits, Mapping):
        has_own = source in limits
    return arguments.max_mean_loss is not None and not has_own


def _forgetting(arguments: PlanArguments, source: str, unit: UnitName) -> Constraint:
    """Read a source's limit: a number in this unit, or text that says its own."""
    limit = of_source(arguments.max_forgetting, source)
    if limit is None:
        raise PlanError(
            "give max_forgetting (--max-forgetting 2%), or a limit on the mean of all "
            "sources, max_mean_loss"
        )
    of_bytes = arguments.bytes_of(source)
    return Constraint(
        source, *forgetting_limit("max_forgetting", limit, unit, of_bytes)
    )


def _of_mean(
    arguments: PlanArguments, targets: Sequence[str], sources: Sequence[str]
) -> list[Constraint]:
    """Read the limit on a weighted mean of domains, by default of all sources alike.

    In bits per byte each domain has its own bytes per token: the mean of its losses in
    bits is that of its losses in nats with other weights, and so is its limit.
    """
    written, weights = arguments.max_mean_loss, arguments.mean_weights
    if written is None:
        if weights is not None:
            raise PlanError("mean_weights are those of a mean: give max_mean_loss, too")
        return []
    if not isinstance(weights, Mapping | None):
        raise PlanError(f"mean_weights are by domain, web=2,code=1; got {weights!r}")
    shares = dict.fromkeys(sources, 1.0) if weights is None else dict(weights)
    unknown = [name for name in shares if name not in (*targets, *sources)]
    if unknown or not shares:
        raise PlanError(
            f"mean_weights names {unknown[0] if unknown else 'none'!r}, which has no "
            f"posterior; domains: {', '.join((*targets, *sources))}"
        )
    for name, share in shares.items():
        shares[name] = checked(f"mean_weights of {name}", share, POSITIVE)
    total = sum(shares.values())
    bytes_per_token = None
    if isinstance(written, str) and written.strip().lower().endswith("bpb"):
        in_bits = {
            n: w / (arguments.bytes_of(n) or math.nan) for n, w in shares.items()
        }
        missing = [name for name, share in in_bits.items() if math.isnan(share)]
        if missing:
            raise PlanError(
                f"max_mean_loss {written} is in bits per byte: give bytes_per_token of "
                f"{missing[0]} (--bytes-per-token {missing[0]}=4.2)"
            )
        bytes_per_token = total / sum(in_bits.values())
        shares, total = in_bits, sum(in_bits.values())
    limit, unit = loss_limit("max_mean_loss", written, bytes_per_token)
    means = tuple((name, share / total) for name, share in shares.items())
    return [Constraint(MEAN, limit, unit, means)]


def _models(
    arguments: PlanArguments, targets: Sequence[str], sources: Sequence[str]
) -> tuple[Model, ...]:
    loss, tokens = arguments.baseline_loss, arguments.baseline_tokens
    if loss is not None and tokens is not None:
        raise PlanError("give baseline_loss or baseline_tokens, not both")
    baseline_run = _baseline_run(arguments)
    sizes = models_of(arguments.N, arguments.ptpp)
    count = len(sizes)
    covariates = arguments.covariates or {}
    for column, what in OWN.items():
        if column in covariates:
            raise PlanError(f"covariates cannot set {column!r}: {what}")
    further = tuple(arguments.max_loss or ())

    def of_domain(setting: Any, name: str) -> Any:
        """Take a domain's value; a number without a name is the sources', not another
        domain's.
        """
        if name not in further:
            return of_source(setting, name)
        return setting.get(name) if isinstance(setting, Mapping) else None

    return tuple(
        Model(
            N=N,
            ptpp=ptpp,
            covariates={
                column: of_model(value, k, count)
                for column, value in covariates.items()
            },
            baseline_loss={
                name: _possible(
                    "baseline_loss", of_model(of_domain(loss, name), k, count)
                )
                for name in sources
            },
            baseline_tokens={name: of_domain(tokens, name) for name in sources},
            further_domains=further,
            targets=tuple(targets),
            baseline_run=baseline_run,
        )
        for k, (N, ptpp) in enumerate(sizes)
    )


def _baseline_run(arguments: PlanArguments) -> tuple[float, float] | None:
    """Check tokens and replay of the run that limits on a rise are against."""
    run = arguments.baseline_run
    if run is None:
        return None
    if arguments.baseline_loss is not None or arguments.baseline_tokens is not None:
        raise PlanError("give baseline_run, or a baseline of the checkpoint, not both")
    if not isinstance(run, Mapping) or set(run) != {"D", "replay"}:
        raise PlanError(
            f"baseline_run is another run's tokens and replay, D=10B,replay=30%; got {run!r}"
        )
    tokens = checked("baseline_run D", run["D"], COUNT)
    return tokens, checked("baseline_run replay", run["replay"], SHARE)


def _possible(name: str, loss: Any) -> Any:
    """Check that a loss, or all draws of it, can be one."""
    ends = () if loss is None else {np.min(loss), np.max(loss)}
    for end in ends:
        checked(name, end, LOSS)
    return loss


def _confidence(confidence: Any, names: Sequence[str]) -> float | dict[str, float]:
    by_name: Mapping[str, Any] = {name: confidence for name in names}
    if isinstance(confidence, Mapping):
        by_name = confidence
    if set(by_name) != set(names):
        raise PlanError(
            f"confidence by promise needs exactly {', '.join(names)}; "
            f"got {', '.join(by_name)}"
        )
    shares = {name: checked("confidence", x, CHANCE) for name, x in by_name.items()}
    return shares if isinstance(confidence, Mapping) else shares[names[0]]


def _budget(arguments: PlanArguments, fitted: tuple[float, float]) -> Budget:
    def most(name: str) -> float:
        limit = getattr(arguments, name)
        if limit is None:
            return math.inf
        return checked(name, limit, KINDS[name])

    budget = Budget(
        max_flops=most("max_flops"),
        max_tokens=most("max_tokens"),
        max_cost=most("max_cost"),
        max_days=most("max_days"),
        unique_target_tokens=most("unique_target_tokens"),
        epochs=1.0
        if arguments.max_epochs is None
        else checked("max_epochs", arguments.max_epochs, KINDS["max_epochs"]),
    )
    return _with_replays(budget, arguments, fitted)


def _costs(arguments: PlanArguments) -> Costs:
    """Check what training costs, once what limits it is known.

    Raises
    ------
    PlanError
        ``costs`` is no `Costs`, or lacks what a limit is on.
    """
    costs = Costs() if arguments.costs is None else arguments.costs
    if not isinstance(costs, Costs):
        raise PlanError(f"costs must be bayeslaw.Costs(hardware=...), got {costs!r}")
    if arguments.max_cost is not None and not costs.has_money:
        raise PlanError(
            "max_cost is in money: give a price per device-hour, "
            "Costs(hardware='64xH100', price=2.5) (--hardware 64xH100 --price 2.5)"
        )
    if arguments.max_days is not None and not costs.has_time:
        raise PlanError(
            "max_days needs hardware or measured tokens per second: "
            "Costs(hardware='64xH100') (--hardware 64xH100)"
        )
    return costs


def _payable(
    models: tuple[Model, ...], budget: Budget, costs: Costs
) -> tuple[Model, ...]:
    """Keep the models for which anything is left once checkpoint and fixed cost are
    paid.

    Raises
    ------
    PlanError
        There is none.
    """
    payable = tuple(
        model for model in models if min(budget.paid_tokens(model, costs).values()) > 0
    )
    if not payable:
        once = costs.once(models[0].N, models[0].ptpp)
        raise PlanError(
            "max_cost and max_days do not pay for what comes before the first token "
            f"({once.sentence()}, checkpoint and fixed cost of a run); raise them"
        )
    return payable


def _with_replays(
    budget: Budget, arguments: PlanArguments, fitted: tuple[float, float]
) -> Budget:
    """Bound replay by what was asked for, else by what was fitted."""
    bounds = {}
    requests = {"min_replay": arguments.min_replay, "max_replay": arguments.max_replay}
    for (name, share), end in zip(requests.items(), fitted, strict=True):
        bounds[name] = end if share is None else checked(name, share, KINDS[name])
    least, most = bounds.values()
    if least > most:
        reason = f"min_replay {least:.4g} is over max_replay {most:.4g}"
        if arguments.max_replay is None:
            reason = (
                f"min_replay {least:.4g} is over the largest fitted replay, {most:.4g}: "
                "to plan where nothing was checked, give max_replay too"
            )
        elif arguments.min_replay is None:
            reason = (
                f"max_replay {most:.4g} is under the least fitted replay, {least:.4g}: "
                "to plan where nothing was checked, give min_replay too"
            )
        raise PlanError(reason)
    are_fitted = tuple(
        name for name, end in bounds.items() if requests[name] is None and 0 < end < 1
    )
    return replace(budget, **bounds, fitted=are_fitted)


def _draws(arguments: PlanArguments, pieces: Mapping[str, tuple[Piece, ...]]) -> int:
    """Choose how many draws to work with."""
    draws = arguments.draws
    if draws < 1:
        raise PlanError(f"draws must be at least 1, got {draws!r}")
    if arguments.new_run:
        return draws
    # without noise, more draws than the posteriors have would only pair them again
    counts = [sum(p.draws for p in of_law) for of_law in pieces.values()]
    return min(draws, max(counts))


# -- what was given for one, or for all ------------------------------------------------


def of_source(setting: Any, source: str) -> Any:
    """Take what was given for one source, or for all."""
    if not isinstance(setting, Mapping):
        return setting
    if source not in setting:
        raise PlanError(
            f"nothing given for source {source!r}; given: {', '.join(map(str, setting))}"
        )
    return setting[source]


def of_model(setting: Any, model: int, models: int) -> Any:
    """Take what was given for one model, or for all."""
    is_sequence = isinstance(setting, Sequence | np.ndarray)
    if models == 1 or not is_sequence or isinstance(setting, str):
        return setting
    if len(setting) != models:
        raise PlanError(
            f"{models} models, but {len(setting)} values given: "
            "one for each, or one number for all"
        )
    return setting[model]

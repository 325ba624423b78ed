"""Read the arguments of `bayeslaw.plan` into a `Question`: each checked, and all together."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bayeslaw._base.draws import Draws
from bayeslaw._base.errors import PlanError
from bayeslaw._base.limits import (
    CHANCE,
    COUNT,
    KINDS,
    LOSS,
    POSITIVE,
    SHARE,
    SUPPLIES,
    check_count,
    checked,
)
from bayeslaw._base.machine import runtime
from bayeslaw._base.numbers import format_count
from bayeslaw._costs.costs import COST_LIMITS, Costs
from bayeslaw._law.columns import LOSS_BEFORE, SOURCE_LOSS_BEFORE, is_share
from bayeslaw._plans.arguments import (
    PlanArguments,
    with_losses,
    with_repetition,
)
from bayeslaw._plans.constraint import UNITS, Constraint, UnitName, read_limit
from bayeslaw._plans.question import (
    ACCURATE,
    MEAN,
    TARGET,
    Budget,
    Levers,
    Model,
    Question,
    bytes_of,
    check_names,
    setting_for,
    setting_of_model,
)
from bayeslaw._posteriors.accuracy import (
    ACCURACY,
    AccuracyLink,
    accuracy_link,
)
from bayeslaw._posteriors.chain import models_of
from bayeslaw._posteriors.outcomes import check_covariates
from bayeslaw._posteriors.pairs import (
    check_posteriors,
    error_correlation,
    fitted_range,
)
from bayeslaw._posteriors.posterior import Piece
from bayeslaw._tables.rows.levels import SAME

ATPP_RANGE = (1e-4, 1e4)  # range in which roots are searched; 0 is checked separately


def question_of(arguments: PlanArguments) -> Question:
    """Check the arguments of `bayeslaw.plan`, and complete them from the fits' tables."""
    # each domain has a name of its own
    targets, sources = arguments.targets, arguments.sources
    arguments = replace(arguments, target=targets, source=sources)  # each is read once
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
    posteriors = targets | sources
    if MEAN in posteriors:
        raise PlanError(
            f"no domain can be named {MEAN!r}: that is the limit on their mean"
        )
    first, *further = targets
    check_posteriors(
        targets[first], {name: posteriors[name] for name in further} | sources
    )
    runtime.start()

    # the laws read replay, not shares, and the covariates that are given; the planner
    # itself reads a source's loss before adaptation
    pieces = {n: tuple(map(_sorted, p.pieces())) for n, p in posteriors.items()}
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
    set_elsewhere = {
        "N": "it is given as N",
        "ptpp": "it is given as ptpp",
        "D": "it is what a plan chooses",
        "replay": "it is what a plan chooses (min_replay and max_replay bound it)",
    }
    check_covariates(arguments.covariates or {}, columns, set_elsewhere)
    check_settings(pieces, arguments.covariates or {})

    # checked before losses from the tables are added
    baseline_run = read_baseline_run(arguments.baseline_run, ("replay",))
    before = arguments.baseline_loss, arguments.baseline_tokens
    if baseline_run is not None and any(value is not None for value in before):
        raise PlanError("give baseline_run, or a baseline of the checkpoint, not both")
    arguments, notes = with_losses(arguments)
    arguments, repeats = with_repetition(arguments, targets, pieces)
    budget = read_budget(arguments, fitted_range(posteriors, "replay") or (0.0, 1.0))
    constraints = read_constraints(arguments, list(targets), list(sources))
    link, least = arguments.accuracy, arguments.min_accuracy
    if link is not None:
        if not isinstance(link, AccuracyLink):
            link = accuracy_link(link, seed=arguments.seed)
        if checked("min_accuracy", least, ACCURACY) <= link.chance:
            raise PlanError(
                f"min_accuracy {least} is at most the accuracy of guessing, "
                f"{link.chance:.0%}, which any model has: give a larger one"
            )

    # models that have budget left after the checkpoint and the fixed cost are paid
    models = _read_models(arguments, list(targets), list(sources), baseline_run)
    payable = tuple(m for m in models if min(budget.paid_tokens(m).values()) > 0)
    if not payable:
        once = budget.costs.once(models[0].N, models[0].ptpp)
        raise PlanError(
            "the limits do not pay for what comes before the first token "
            f"({once.sentence()}, checkpoint and fixed cost of a run); raise "
            f"{' and '.join(budget.cost_limits)}"
        )
    unpayable = [
        f"N = {format_count(m.N)} is no candidate: what comes before its first token "
        f"(checkpoint and fixed cost) is over {' or '.join(budget.cost_limits)}"
        for m in models
        if m not in payable
    ]
    draws = arguments.draws
    check_count("draws", draws)
    if not arguments.new_run:
        # without noise, more draws than the posteriors have would only repeat draws in
        # other pairs
        draws = min(draws, max(sum(p.draws for p in some) for some in pieces.values()))

    # one confidence for all promises together, or one for each by name
    confidence: Any = arguments.confidence
    names = [c.name for c in constraints]
    is_by_name = isinstance(confidence, Mapping)
    by_name = confidence if is_by_name else dict.fromkeys(names, confidence)
    if set(by_name) != set(names):
        raise PlanError(
            f"confidence by promise needs exactly {', '.join(names)}; "
            f"got {', '.join(by_name)}"
        )
    chances = {name: checked("confidence", x, CHANCE) for name, x in by_name.items()}
    lines = [f"{name}: {line}" for name, p in posteriors.items() for line in p.warnings]
    return Question(
        pieces=pieces,
        posteriors=posteriors,
        constraints=constraints,
        models=payable,
        budget=budget,
        confidence=chances if is_by_name else chances[names[0]],
        new_run=arguments.new_run,
        draws=draws,
        seed=arguments.seed,
        excess_price=_read_excess_prices(arguments, constraints),
        point=arguments.point or {},
        warnings=(
            *lines,
            *repeats,
            *unpayable,
            *(() if link is None else link.warnings),
        ),
        notes=notes,
        errors=error_correlation(posteriors, arguments.correlation),
        link=link,
    )


def _sorted(piece: Piece) -> Piece:
    """Sort the draws of a piece by their values, so that their original order does not
    matter. The forecasts of a chain (``column:name``) come last among the sort keys:
    whether a checkpoint is forecast or measured, the law's draws have the same order and
    are paired with the same random numbers.
    """
    # lexsort sorts by the last key first
    names = sorted(piece.values, key=lambda name: (":" not in name, name))
    values: dict[str, np.ndarray] = {}
    keys = []
    for name in names:
        values[name] = np.asarray(piece.values[name], float)
        columns = values[name].reshape(piece.draws, -1)
        keys.append(columns)
    order = np.lexsort(np.hstack(keys).T)
    return replace(piece, values=values).take(order)


def _read_models(
    arguments: PlanArguments,
    targets: Sequence[str],
    sources: Sequence[str],
    baseline_run: tuple[float, float] | None,
) -> tuple[Model, ...]:
    loss, tokens = arguments.baseline_loss, arguments.baseline_tokens
    if loss is not None and tokens is not None:
        raise PlanError("give baseline_loss or baseline_tokens, not both")
    sizes = models_of(arguments.N, arguments.ptpp)
    further = tuple(arguments.max_loss or ())

    def of_source(what: str, setting: Any, name: str, model: int) -> Any:
        # a number without a name belongs to the sources, not to other domains
        if name not in further:
            own = setting_for(setting, name)
        else:
            own = setting.get(name) if isinstance(setting, Mapping) else None
        return setting_of_model(what, own, model, len(sizes))

    models = []
    for k, (N, ptpp) in enumerate(sizes):
        settings = {"N": N} if ptpp is None else {"N": N, "ptpp": ptpp}
        for column, setting in (arguments.covariates or {}).items():
            settings[column] = setting_of_model(column, setting, k, len(sizes))
        columns = {name: _take_domain(settings, name) for name in targets}
        baselines: dict[str, str | float | None] = dict.fromkeys(targets, LOSS_BEFORE)
        for name in sources:
            baseline = of_source("baseline_loss", loss, name, k)
            measured = _check_loss("baseline_loss", baseline)
            known = _list_columns(
                settings,
                name,
                measured,
                is_further=name in further,
                is_only=len(sources) == 1,
            )
            columns[name] = known
            baselines[name] = of_source("baseline_tokens", tokens, name, k)
            if measured is not None and name in further:
                baselines[name] = LOSS_BEFORE
            elif baselines[name] is None and SOURCE_LOSS_BEFORE in known:
                baselines[name] = SOURCE_LOSS_BEFORE
        fewest, most = (N * atpp for atpp in ATPP_RANGE)
        model = Model(
            N, ptpp, columns, baselines, further, tuple(targets), baseline_run
        )
        models.append(replace(model, tokens=(fewest, most)))
    return tuple(models)


def _take_domain(settings: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {
        column: setting[name] if isinstance(setting, Mapping) else setting
        for column, setting in settings.items()
        if not isinstance(setting, Mapping) or name in setting
    }


def _check_loss(name: str, measured: Any) -> Any:
    """Check the range of a loss before adaptation: a number, draws, or None."""
    if measured is None:
        return None
    if not isinstance(measured, Draws):
        return checked(name, measured, LOSS)
    for end in (float(measured.min()), float(measured.max())):
        checked(name, end, LOSS)
    return measured


def _list_columns(
    settings: Mapping[str, Any],
    name: str,
    measured: Any,
    *,
    is_further: bool,
    is_only: bool,
) -> dict[str, Any]:
    """List the columns that the law of a source, or of a further domain, may read, with
    its own ``measured`` loss before adaptation. ``is_only``: there is no other source.
    """
    known = _take_domain(settings, name)
    if is_further:
        if not isinstance(settings.get(LOSS_BEFORE), Mapping):
            known.pop(LOSS_BEFORE, None)  # that of the target
        return known if measured is None else known | {LOSS_BEFORE: measured}
    # in a source's law, ``loss_before`` is the source's loss
    known.pop(LOSS_BEFORE, None)
    given = setting_for(settings.get(SOURCE_LOSS_BEFORE), name)
    start = _check_loss(SOURCE_LOSS_BEFORE, given)
    before = start if measured is None else measured
    if before is None:
        return known
    # draws are a forecast, in place of which the source starts from a measured loss
    typed = [x for x in (start, measured) if x is not None and not isinstance(x, Draws)]
    if is_only and len(typed) == 2 and not math.isclose(*typed, rel_tol=SAME):
        raise PlanError(
            f"baseline_loss and {SOURCE_LOSS_BEFORE} are one loss, the source's before "
            "adaptation, and differ: give one of them"
        )
    return known | dict.fromkeys((LOSS_BEFORE, SOURCE_LOSS_BEFORE), before)


def read_baseline_run(run: Any, levers: Sequence[str]) -> tuple[float, Levers] | None:
    """Read another run's tokens, and its replay or shares; those not given are 0."""
    if run is None:
        return None
    is_mixture = "replay" not in levers
    if not isinstance(run, Mapping) or not {"D"} < set(run) <= {"D", *levers}:
        raise PlanError(
            f"baseline_run is another run's tokens and {'shares' if is_mixture else 'replay'}"
            f", D=10B,{','.join(f'{name}=30%' for name in levers)}; got {run!r}"
        )
    shares = [checked(f"baseline_run {n}", run.get(n, 0.0), SHARE) for n in levers]
    if is_mixture and abs(sum(shares) - 1) > 1e-6:
        raise PlanError(f"baseline_run: shares sum to {sum(shares):.4g}, not to 1")
    tokens = checked("baseline_run D", run["D"], COUNT)
    return tokens, np.array(shares) if is_mixture else shares[0]


# -- limits ----------------------------------------------------------------------------


def read_constraints(
    arguments: PlanArguments, targets: Sequence[str], sources: Sequence[str]
) -> tuple[Constraint, ...]:
    unit = arguments.forgetting_unit
    if unit not in UNITS or not UNITS[unit].has_baseline:
        raise PlanError(f"forgetting_unit must be 'relative' or 'nats', got {unit!r}")

    # domains whose loss is limited in place of their forgetting
    losses, in_bytes = arguments.max_loss or {}, arguments.bytes_per_token
    check_names("max_loss", losses, sources)
    limits = {
        name: constraint_on(name, f"max_loss of {name}", limit, "loss", in_bytes)
        for name, limit in losses.items()
    }

    # the other sources; one without a limit of its own may be limited in a mean only
    forgetting: Any = arguments.max_forgetting
    for name in sources:
        is_limited = forgetting is not None
        if isinstance(forgetting, Mapping):
            is_limited = name in forgetting
        is_in_mean = arguments.max_mean_loss is not None
        if name in limits or (is_in_mean and not is_limited):
            continue
        limit = setting_for(forgetting, name)
        if limit is None:
            raise PlanError(
                "give max_forgetting (--max-forgetting 2%), or a limit on the mean of all "
                "sources, max_mean_loss"
            )
        limits[name] = constraint_on(name, "max_forgetting", limit, unit, in_bytes)
    return (
        *_read_target_limits(arguments, targets),
        *(limits[name] for name in sources if name in limits),
        *_read_mean_limit(arguments, targets, sources),
    )


def constraint_on(
    name: str, what: str, limit: Any, unit: UnitName, bytes_per_token: Any
) -> Constraint:
    """Read the limit on a domain, by `read_limit`; bytes per token may be by domain."""
    in_bytes = bytes_of(bytes_per_token, name)
    return Constraint(name, *read_limit(what, limit, unit, in_bytes))


def _read_target_limits(
    arguments: PlanArguments, targets: Sequence[str]
) -> Iterator[Constraint]:
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
        limit, in_bytes = setting_for(limits, name), arguments.bytes_per_token
        yield constraint_on(name, what, limit, "loss", in_bytes)
    if (least is None) != (arguments.accuracy is None):
        raise PlanError(
            "min_accuracy needs accuracy, a table of losses and accuracies, and "
            "accuracy needs min_accuracy (--min-accuracy 60% --accuracy evaluated.csv)"
        )
    if least is not None:
        wrong = 1 - checked("min_accuracy", least, ACCURACY)
        yield Constraint(ACCURATE, wrong, "error", ((targets[0], 1.0),))


def _read_mean_limit(
    arguments: PlanArguments, targets: Sequence[str], sources: Sequence[str]
) -> list[Constraint]:
    """Read the limit on a mean; by default all sources have equal weights."""
    weights = arguments.mean_weights
    if arguments.max_mean_loss is None:
        if weights is not None:
            raise PlanError("mean_weights are those of a mean: give max_mean_loss, too")
        return []
    shares = dict.fromkeys(sources, 1.0) if weights is None else weights
    check_names("mean_weights", shares, (*targets, *sources))
    if not shares:
        raise PlanError("mean_weights names no domain: give one, web=2,code=1")
    shares = {
        name: checked(f"mean_weights of {name}", share, POSITIVE)
        for name, share in shares.items()
    }
    return [read_mean_limit(arguments.max_mean_loss, shares, arguments.bytes_per_token)]


def read_mean_limit(
    written: Any, shares: Mapping[str, float], bytes_per_token: Any
) -> Constraint:
    """Read the limit on a mean of domains weighed by positive ``shares``.

    Each domain has its own bytes per token. So a mean of losses in bits per byte is a
    mean of losses in nats with other weights, and the limit is converted to that mean.
    """
    total, per_token = sum(shares.values()), None
    if isinstance(written, str) and written.strip().lower().endswith("bpb"):
        in_bits = {
            name: share / (bytes_of(bytes_per_token, name) or math.nan)
            for name, share in shares.items()
        }
        missing = [name for name, share in in_bits.items() if math.isnan(share)]
        if missing:
            raise PlanError(
                f"max_mean_loss {written} is in bits per byte: give bytes_per_token of "
                f"{missing[0]} (--bytes-per-token {missing[0]}=4.2)"
            )
        per_token = total / sum(in_bits.values())
        shares, total = in_bits, sum(in_bits.values())
    limit, unit = read_limit("max_mean_loss", written, "loss", per_token)
    means = tuple((name, share / total) for name, share in shares.items())
    return Constraint(MEAN, limit, unit, means)


def _read_excess_prices(
    arguments: PlanArguments, constraints: Sequence[Constraint]
) -> dict[str, float]:
    prices = {} if arguments.excess_price is None else arguments.excess_price
    names = [c.name for c in constraints if c.unit != "error"]
    check_names("excess_price", prices, names, "limit")
    budgets = ("max_flops", "max_tokens", *COST_LIMITS)
    caps = [name for name in budgets if getattr(arguments, name) is not None]
    if prices and caps:
        raise PlanError(
            f"excess_price weighs cost and excess, and {caps[0]} caps the cost: give one"
        )
    return {
        name: checked(f"excess_price of {name}", price, POSITIVE)
        for name, price in prices.items()
    }


# -- spending and covariates -----------------------------------------------------------


def read_budget(arguments: PlanArguments, fitted: tuple[float, float]) -> Budget:
    """Read the costs, the budget, the epochs, and the given or fitted bounds of replay."""
    names = ("max_flops", "max_tokens", *SUPPLIES, *COST_LIMITS)
    names += ("max_epochs", "min_replay", "max_replay")
    given = {
        name: checked(name, getattr(arguments, name), KINDS[name])
        for name in names
        if getattr(arguments, name) is not None
    }
    bounds = dict(zip(("min_replay", "max_replay"), fitted, strict=True)) | {
        name: share for name, share in given.items() if name.endswith("_replay")
    }
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
    costs = Costs() if arguments.costs is None else arguments.costs
    if not isinstance(costs, Costs):
        raise PlanError(f"costs must be bayeslaw.Costs(hardware=...), got {costs!r}")
    for name, limit in COST_LIMITS.items():
        if name in given and not limit.is_known(costs):
            raise PlanError(f"{name} {limit.needs}")
    return Budget(
        costs=costs,
        max_flops=given.get("max_flops", math.inf),
        max_tokens=given.get("max_tokens", math.inf),
        cost_limits={name: given[name] for name in COST_LIMITS if name in given},
        supplies={name: given[name] for name in SUPPLIES if name in given},
        epochs=given.get("max_epochs", 1.0),
        least=least,
        largest=most,
        fitted=tuple(n for n, end in bounds.items() if n not in given and 0 < end < 1),
    )


def check_settings(
    pieces: Mapping[str, Sequence[Piece]], given: Collection[str]
) -> None:
    """Refuse a swept setting that laws of several domains read and that is not given:
    each domain would have a best of its own, and a run has one setting.
    """
    readers: dict[str, list[str]] = {}
    for name, of_domain in pieces.items():
        tuned = dict.fromkeys(c for piece in of_domain for c in piece.tuned)
        for column in tuned:
            readers.setdefault(column, []).append(name)
    for column, names in readers.items():
        if len(names) > 1 and column not in given:
            raise PlanError(
                f"the laws of {' and '.join(names)} read {column!r}, and a run has one: "
                f"give covariates={{{column!r}: ...}} (--covariate {column}=...)"
            )

"""Read the limits among the arguments of `bayeslaw.plan`, and their prices."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from bayeslaw._base.errors import PlanError
from bayeslaw._base.limits import POSITIVE, checked
from bayeslaw._costs.costs import COST_LIMITS
from bayeslaw._plans.arguments.plan_arguments import PlanArguments
from bayeslaw._plans.constraint import (
    UNITS,
    Constraint,
    UnitName,
    forgetting_limit,
    loss_limit,
)
from bayeslaw._plans.question import ACCURATE, MEAN, TARGET, setting_for
from bayeslaw._posteriors.accuracy import ACCURACY


def read_constraints(
    arguments: PlanArguments, targets: Sequence[str], sources: Sequence[str]
) -> tuple[Constraint, ...]:
    """Read all limits: on targets, on sources, on further domains, and on a mean."""
    unit = arguments.forgetting_unit
    if unit not in UNITS or not UNITS[unit].has_baseline:
        raise PlanError(f"forgetting_unit must be 'relative' or 'nats', got {unit!r}")
    loss_limits = read_loss_limits(arguments, sources)
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
    """Read the limits on the targets' losses, and on the accuracy of the first target."""
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
        limit = setting_for(limits, name)
        yield Constraint(name, *loss_limit(what, limit, arguments.bytes_of(name)))
    if (least is None) != (arguments.accuracy is None):
        raise PlanError(
            "min_accuracy needs accuracy, a table of losses and accuracies, and "
            "accuracy needs min_accuracy (--min-accuracy 60% --accuracy evaluated.csv)"
        )
    if least is not None:
        wrong = 1 - checked("min_accuracy", least, ACCURACY)
        yield Constraint(ACCURATE, wrong, "error", ((targets[0], 1.0),))


def read_loss_limits(
    arguments: PlanArguments, sources: Sequence[str]
) -> dict[str, tuple[float, UnitName]]:
    """Check the limits on losses of domains, by name."""
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
    """Tell whether a source is limited only in a mean of several domains, not by
    itself.
    """
    limits = arguments.max_forgetting
    has_own = limits is not None
    if isinstance(limits, Mapping):
        has_own = source in limits
    return arguments.max_mean_loss is not None and not has_own


def _forgetting(arguments: PlanArguments, source: str, unit: UnitName) -> Constraint:
    """Read a source's limit: a number in the given unit, or text with its own unit."""
    limit = setting_for(arguments.max_forgetting, source)
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
    """Read the limit on a weighted mean of domains; by default all sources have equal
    weights.

    Each domain has its own bytes per token. So a mean of losses in bits per byte is a
    mean of losses in nats with other weights, and the limit is converted to that mean.
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


def read_excess_prices(
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

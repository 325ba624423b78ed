"""Say on the page, for the person who decides, what a plan is asked for, what to expect,
whether to trust it, and what would be cheaper or safer. The template calls these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from bayeslaw._base.limits import SUPPLIES
from bayeslaw._base.numbers import format_chance, format_count
from bayeslaw._costs.costs import COST_LIMITS
from bayeslaw._forecasts.check import TRUSTED_COVERAGE, Check
from bayeslaw._plans.constraint import UNITS
from bayeslaw._plans.mixing.mixture import MixturePlan
from bayeslaw._plans.result import Plan, list_ways
from bayeslaw._report.domains import DomainResult
from bayeslaw._report.explorer import promise_label
from bayeslaw._tables.holdouts import FEW, HoldOut

# from the best verdict to the worst, and what it answers
TRUST = {
    "trust": "Yes",
    "unknown": "Not known",
    "widen": "With care",
    "do not extrapolate": "No",
}
SAFE_SIDE = (
    "Losses came out lower than forecast, which is the safe side of a limit on them."
)
NOT_CHECKED = "Not known: no forecast of runs that were held out is here."
SAME_COST = 0.005  # plans whose costs differ by less count as equal
# verdicts whose checks give the factor by which intervals are too narrow
SAYS_HOW_WIDE = ("widen", "do not extrapolate")


HELD = "90% intervals held the runs that were held out"
# why a check has its verdict, for a cell of a table -> as a clause
CAUSES = {
    "": "forecasts of runs that were held out came true as often as stated",
    "too few": "too few runs were held out to say",
    "no evidence": "the runs that were held out do not tell",
    "far off": "forecasts of runs that were held out missed by far",
    "on priors": "forecasts rest on priors, and too little was held out",
    "too narrow": "forecasts of runs that were held out were surer than right",
    "a group missed": f"{HELD} together, but not a group of them",
    "medians off": f"{HELD}, but medians were off",
}


class Judged(NamedTuple):
    """What all hold-outs of a domain say of its forecasts."""

    domain: str
    # The worst verdict along the plan's axes. A failure along another axis counts as
    # ``"widen"``.
    verdict: str
    # the check that decides, and what was held out for it
    check: Check
    hold_out: HoldOut
    is_main: bool  # whether the page draws these forecasts

    @property
    def where(self) -> str:
        """Name the hold-out, unless it is the main one or passed."""
        if self.is_main or self.verdict == "trust":
            return ""
        return self.hold_out.words

    @property
    def although(self) -> str:
        """Say that a failure counts less, because the plan does not lie there."""
        if self.verdict == self.check.verdict or self.hold_out.planned is None:
            return ""
        return ", though the plan lies within the table there"


@dataclass(frozen=True)
class Expected:
    """A promise on the first screen, as texts; losses without their unit."""

    label: str
    limit: str
    mean: str
    low: str
    high: str
    kept: str
    bar: Mapping[str, float]  # places of low, mean, high and limit on an axis, percent


def verdict_of(
    domains: Sequence[DomainResult], untested: Sequence[str] = ()
) -> tuple[str, str]:
    """Find the worst verdict of all domains, and whether to trust the forecasts as far
    as they were tested; ``untested`` parts of the plan are not.
    """
    if not domains:
        return "unknown", NOT_CHECKED
    # a plan rests on all domains, so the worst verdict counts
    order = list(TRUST)
    boxes = [judged(domain) for domain in domains]
    worst = max((box.verdict for box in boxes), key=order.index)
    deciding = [box for box in boxes if box.verdict == worst]
    # a clause for all domains with the same reason
    named: dict[tuple[str, str, str], list[str]] = {}
    for box in deciding:
        key = CAUSES[cause_of(box.check)], box.where, box.although
        named.setdefault(key, []).append(box.domain)
    clauses = [
        f"{clause} at {where} ({', '.join(names)}){although}" if where else clause
        for (clause, where, although), names in named.items()
    ]
    reason = f"{'; '.join(clauses)}."
    is_safe = all(box.check.is_on_the_safe_side for box in deciding)
    if worst == "widen" and is_safe:
        reason = f"{reason} {SAFE_SIDE}"
    answer = f"{TRUST[worst]}: {reason}"
    if not untested:
        return worst, answer
    not_at = f"Not tested at {' and '.join(untested)}."
    if worst == "trust":
        # untested parts make the verdict unknown
        return "unknown", f"As far as it was tested: {reason} {not_at}"
    return worst, f"{answer} {not_at}"


def judged(domain: DomainResult) -> Judged:
    order = list(TRUST)
    judgements = []
    for test in domain.tested:
        if test.check is None:
            continue
        counts = any(test.check is other for other in domain.decisive)
        verdict = test.check.verdict
        if not counts:
            # a failure where the plan does not lie asks for care, and whatever else is
            # found there says nothing
            verdict = "widen" if verdict in SAYS_HOW_WIDE else "trust"
        is_main = test.check is domain.check
        box = Judged(domain.name, verdict, test.check, test.hold_out, is_main)
        judgements.append((order.index(verdict), counts, box))
    # of equals the first, which is the main hold-out or one in the plan's direction
    return max(judgements, key=lambda judgement: judgement[:2])[2]


def cause_of(check: Check) -> str:
    """Find the cause of a verdict, one of `CAUSES`."""
    holds = check.coverage["0.9"] >= TRUSTED_COVERAGE
    if check.verdict == "trust":
        return ""
    if check.verdict == "unknown":
        return "too few" if check.n < FEW else "no evidence"
    if check.verdict == "do not extrapolate":
        return "on priors" if holds else "far off"
    if not holds:
        return "too narrow"
    return "medians off" if check.group_stretch is None else "a group missed"


# -- question and answer ---------------------------------------------------------------


def budget_of(plan: Plan, row: Mapping[str, Any] | None = None) -> list[str]:
    """Describe the limits on spending; of them those that a ``row`` of plans breaks."""
    most = plan.settings["max_tokens"]
    parts = [
        limit.phrase(plan.settings[name])
        for name, limit in COST_LIMITS.items()
        if plan.settings.get(name) is not None
        and (row is None or row["cost"][limit.amount] > plan.settings[name])
    ]
    if most is not None and (row is None or row["D"] > most):
        parts.append(f"within {format_count(most)} tokens")
    for supply in SUPPLIES.values() if row is None else ():
        tokens = plan.settings[supply.setting]
        if tokens is not None:
            supplied = f"{format_count(tokens)} tokens of the {supply.domain}"
            parts.append(f"with at most {supplied}")
    return parts


def confidence_of(plan: Plan) -> str:
    if not isinstance(plan.confidence, dict):
        return f"{100 * plan.confidence:.3g}%"
    levels = [f"{100 * p:.3g}% for {name}" for name, p in plan.confidence.items()]
    return " and ".join(levels)


def why_no_plan(plan: Plan, unit: str) -> Iterator[str]:
    """Describe the most probable choice, and what would allow a plan, a line each."""
    best = plan.most_probable()
    asked = f"{confidence_of(plan)} was asked for"
    if best["probability"]:
        yield (
            f"All limits are kept with {format_chance(best['probability'])} at best, "
            f"{place_of(plan.N, best)}; {asked}."
        )
    else:
        yield f"No draw keeps all limits anywhere that was searched; {asked}."
    explanation = plan.explanation or {}
    ways = [row for row in explanation["relax"] if row["needed"] is not None]
    of_caps = list_ways(
        (), explanation["caps"], lambda row: f" {place_of(plan.N, row)}"
    )
    if not (ways or of_caps):
        yield "Relaxing one limit alone does not allow a plan."
    for line in of_caps:
        yield f"{line} would allow a plan."
    for row in ways:
        limit, needed = _tell_apart(row, row["limit"], row["needed"])
        of = "" if UNITS[row["unit"]].is_share else f" {unit}"
        label = promise_label(row["promise"], row["unit"])
        yield (
            f"{label} at most {needed}{of} in place of {limit} would allow a plan, "
            f"{place_of(plan.N, row)}."
        )


def place_of(N: float, choice: Mapping[str, Any]) -> str:
    tokens = format_count(N * choice["atpp"])
    return (
        f"at {tokens} tokens ({format_count(choice['atpp'])} per parameter) "
        f"with {choice['replay']:.0%} replay"
    )


def _tell_apart(
    promise: Mapping[str, Any], first: float, second: float
) -> tuple[str, str]:
    """Format two values with as many digits as tell them apart."""
    for digits in range(4, 10):
        texts = (
            _format_limit(promise, first, digits),
            _format_limit(promise, second, digits),
        )
        if texts[0] != texts[1]:
            break
    return texts


def _format_limit(
    promise: Mapping[str, Any], value: float | None, digits: int = 4
) -> str:
    """Format a loss, or a share in percent; a rise has its sign, and a digit less."""
    if value is None:
        return "unknown"
    unit = UNITS[promise["unit"]]
    if unit.is_share:
        return f"{100 * value:{'+' if unit.has_baseline else ''}.{digits - 1}g}%"
    if unit.has_baseline:
        return f"{value:+.{digits - 1}g}"
    return f"{value:.{digits}g}"


def outcome_text(promise: Mapping[str, Any], value: float | None) -> str:
    """Format a forecast in the same way, with equal digits in each line."""
    if value is None:
        return "unknown"
    unit = UNITS[promise["unit"]]
    if unit.is_share:
        ends = [promise[name] or 0.0 for name in ("low", "mean", "high")]
        digits = 1 if max(map(abs, ends)) >= 0.1 else 2
        return f"{100 * value:{'+' if unit.has_baseline else ''}.{digits}f}%"
    return f"{value:+.3f}" if unit.has_baseline else f"{value:#.4g}"


def expectations(plan: Plan | MixturePlan | None) -> list[Expected]:
    """Format each limit of a plan; of a mixture's, medians stand for means."""
    if plan is None:
        return []
    if isinstance(plan, Plan):
        return [expected_of(promise) for promise in plan.promises]
    return [expected_of(row | {"mean": row["median"]}) for row in plan.limits]


def expected_of(promise: Mapping[str, Any]) -> Expected:
    """Format a promise with its interval, and place both on a common axis."""
    limit, low, high = promise["limit"], promise["low"], promise["high"]
    mean = promise["mean"]
    bar: dict[str, float] = {}
    if None not in (low, mean, high):
        # the axis holds the interval and the limit, with some room on either side
        ends = min(low, limit), max(high, limit)
        margin = 0.12 * (ends[1] - ends[0]) or 1.0
        start, length = ends[0] - margin, ends[1] - ends[0] + 2 * margin
        places = {"low": low, "mean": mean, "high": high, "limit": limit}
        bar = {name: 100 * (x - start) / length for name, x in places.items()}
    return Expected(
        label=promise_label(promise["name"], promise["unit"]),
        limit=_format_limit(promise, limit),
        mean=outcome_text(promise, mean),
        low=outcome_text(promise, low),
        high=outcome_text(promise, high),
        kept=format_chance(promise["probability"]),
        bar=bar,
    )


# -- alternatives ----------------------------------------------------------------------


def against(plan: Plan, row: Mapping[str, Any]) -> str:
    """Compare the tokens of a row of plans with the plan's."""
    if not plan.D:
        return _broken_by(plan, row)
    more = row["D"] / plan.D - 1
    change = "same" if abs(more) < SAME_COST else f"{100 * more:+.0f}%"
    return change + _broken_by(plan, row)


def advice(plan: Plan) -> Iterator[str]:
    """Describe plans at the confidences next to the plan's, with the limits that they
    break, and what looser limits save.
    """
    tokens, confidence = plan.D, plan.confidence

    def describe(row: Mapping[str, Any]) -> str:
        change = row["D"] / tokens - 1
        return (
            f"{row['confidence']:.0%} probability for {abs(change):.0%} "
            f"{'more' if change > 0 else 'fewer'} tokens ({row['atpp']:.3g} per "
            f"parameter, {row['replay']:.0%} replay){_broken_by(plan, row)}."
        )

    if tokens and isinstance(confidence, float) and plan.feasible:
        under = [r for r in plan.frontier if r["D"] and r["confidence"] < confidence]
        higher = [r for r in plan.frontier if r["confidence"] > confidence]
        over = [r for r in higher if r["D"]]
        if under:
            yield f"Cheaper: {describe(under[-1])}"
        if over:
            yield f"Safer: {describe(over[0])}"
        elif higher:
            least = format_chance(min(r["confidence"] for r in higher))
            yield f"Safer: no number of tokens reaches {least}."
    for promise in plan.promises:
        worth = promise.get("worth")
        # within a budget, ``worth`` is a probability and not a saving
        if not worth or worth < SAME_COST or plan.settings["max_tokens"] is not None:
            continue
        label = promise_label(promise["name"], promise["unit"])
        looser = "0.1 points" if UNITS[promise["unit"]].is_share else "0.1%"
        yield (
            f"Looser: a limit on {label[0].lower()}{label[1:]} {looser} higher saves {100 * worth:.2g}% of "
            "the tokens."
        )


def _broken_by(plan: Plan, row: Mapping[str, Any]) -> str:
    """Say which limits on spending a row of plans would break, for the end of a text."""
    broken = " or ".join(budget_of(plan, row))
    return f", not {broken}" if broken else ""

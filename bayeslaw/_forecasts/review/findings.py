"""Represent a review: checks with their verdicts, for people and as JSON. One check, how
far the goal lies beyond the runs, is of tables and of fits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Literal

import pandas as pd

from bayeslaw._base.numbers import format_count
from bayeslaw._base.shown import InJson, paragraphs, table_html
from bayeslaw._base.terminal import printable
from bayeslaw._tables.beyond import AXES, INSIDE, distances, replay_outside
from bayeslaw._tables.holdouts import HoldOut

Verdict = Literal["pass", "look", "fail"]
VERDICTS: tuple[Verdict, ...] = ("pass", "look", "fail")  # from best to worst


@dataclass(frozen=True)
class Finding:
    """One check of a review.

    Parameters
    ----------
    name
        Name of the check, after the domain or fit if there are several.
    verdict
        ``"pass"``; ``"look"``: usable, but a person should look; ``"fail"``: no result
        from it can be trusted.
    reason
        The observation, with its figures.
    next
        What to do next, if possible a command with blanks in capitals (RUNS, GOAL,
        FLOPS, LOSS); empty if there is nothing to do.
    """

    name: str
    verdict: Verdict
    reason: str
    next: str = ""


def judged(name: str, passed: str, trouble: str | None, todo: str) -> Finding:
    """Return the finding of a check that looks if there is trouble, and else passes."""
    if not trouble:
        return Finding(name, "pass", passed)
    return Finding(name, "look", trouble, todo)


@dataclass(frozen=True)
class Review(InJson):
    """The result of a review, check by check.

    ``subject``: name of the reviewed table or posteriors in commands.
    """

    subject: str
    checks: tuple[Finding, ...]

    KEYS: ClassVar = {"*": ..., "verdict": (Verdict, "The worst of the checks'.")}

    def __getitem__(self, name: str) -> Finding:
        """Return the check of this name.

        Raises
        ------
        KeyError
            There is no such check; the message lists all checks.
        """
        for check in self.checks:
            if check.name == name:
                return check
        there = ", ".join(check.name for check in self.checks)
        raise KeyError(f"no check {name!r}; there are: {there}")

    @property
    def verdict(self) -> Verdict:
        """The worst of the checks' verdicts."""
        return worst(check.verdict for check in self.checks)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Review:
        """Read the record of `to_dict`."""
        checks = [Finding(**check) for check in record["checks"]]
        return cls(record["subject"], tuple(checks))

    def table(self) -> pd.DataFrame:
        """Make a table of the checks, by name: verdict, reason and what to do next."""
        rows = [asdict(check) for check in self.checks]
        return pd.DataFrame(rows).set_index("name")

    def sentence(self) -> str:
        """Describe the review: each check, the advice below it, and the verdict."""
        width = max(len(check.name) for check in self.checks)
        lines = []
        for check in self.checks:
            lines.append(f"{check.verdict:4}  {check.name:{width}}  {check.reason}")
            if check.next:
                lines.append(f"{'':4}  {'':{width}}  -> {check.next}")
        verdicts = [check.verdict for check in self.checks]
        counts = ", ".join(f"{verdicts.count(one)} {one}" for one in VERDICTS)
        lines.append(f"{self.verdict.upper()}: {self.subject}: {counts}")
        return "\n".join(map(printable, lines))

    def __repr__(self) -> str:
        return f"Review({self.sentence().splitlines()[-1]})"

    def _repr_html_(self) -> str:
        return paragraphs(self.sentence().splitlines()[-1]) + table_html(self.table())


def worst(verdicts: Any) -> Verdict:
    """Find the worst of some verdicts; a pass if there are none."""
    return max(verdicts, key=VERDICTS.index, default="pass")


def labelled(findings: Sequence[Finding], label: str) -> list[Finding]:
    """Put the name of a domain or fit, if there is one, before the findings."""
    if not label:
        return list(findings)
    return [replace(finding, name=f"{label}: {finding.name}") for finding in findings]


def times_tested(stages: Sequence[HoldOut]) -> dict[str, float]:
    """List by axis the factors by which left-out stages lie beyond the rest."""
    return {one.axis: one.times_tested for one in stages if one.axis in AXES}


def review_reach(
    runs: pd.DataFrame,
    goal: pd.DataFrame,
    factors: Mapping[str, float],
    fit: str | None = None,
) -> Finding:
    """Check how far a goal lies beyond runs, along the axis on which it lies farthest;
    it passes as far as held-out runs tested.

    ``goal``: runs to forecast. ``factors``: how far held-out runs reach beyond the
    largest of the others, by axis. ``fit``: name of a fit of the runs in a command, if
    there is one.
    """
    reached = distances(runs, goal, AXES, above=0)
    outside = {axis: far for axis, far in reached.items() if far.factor > INSIDE}
    lines: list[str] = []
    verdict: Verdict = "pass"
    for axis, place in outside.items():
        tests = factors.get(axis, 1.0) if place.is_above else 1.0
        words = "nothing held out tests that"
        if tests > INSIDE:
            words = f"runs held out test {math.log(tests):.1f}"
        lines.append(
            f"{axis} = {format_count(place.value)} lies {math.log(place.factor):.1f} "
            f"e-folds ({place.factor:.3g} times) beyond the runs ({place.ends}); {words}"
        )
        # At 100 times the range a law says little more than its prior. Papers have
        # checked forecasts at up to 9 times.
        is_tested = place.is_above and place.factor <= INSIDE * tests
        how: Verdict = "pass" if is_tested else "look"
        verdict = worst((verdict, "fail" if place.factor > 100.0 else how))
    replay = replay_outside(runs, goal)
    if replay is not None:
        lines.append(replay)
        verdict = worst((verdict, "look"))
    if not reached:
        reason = f"the goal has none of {', '.join(AXES)} in common with the runs"
        return Finding("extrapolation", "look", reason, "say what it is: --at N=...")
    reason = "; ".join(lines) or f"inside the runs' range of {', '.join(reached)}"
    if verdict == "pass":
        return Finding("extrapolation", "pass", reason)
    # runs half-way to the goal, in logs; with a fit, as `anchors --offer` names them
    names = {"N": "N", "ptpp": "ptpp", "D/N": "atpp"}
    offers = []
    for axis in (axis for axis in outside if axis in names):
        place = outside[axis]
        end = place.high if place.is_above else place.low
        offers.append(f"{names[axis]}={format_count(math.sqrt(end * place.value))}")
    todo = "measure runs nearer to it"
    if offers and fit is None:
        todo = f"measure runs on the way, at {', '.join(offers)}"
    elif offers:
        options = " --offer ".join(offers)
        todo = (
            f"bayeslaw anchors {fit} --candidates RUNS --offer {options} --goal GOAL "
            "--budget FLOPS"
        )
    return Finding("extrapolation", verdict, reason, todo)

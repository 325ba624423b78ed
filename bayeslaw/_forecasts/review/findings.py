"""Represent a review: checks with their verdicts, for people and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import pandas as pd

from bayeslaw._base.html import paragraphs, table_html
from bayeslaw._base.terminal import printable

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
class Review:
    """The result of a review, check by check.

    ``subject``: name of the reviewed table or posteriors in commands.
    """

    subject: str
    checks: tuple[Finding, ...]

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

    def to_dict(self) -> dict[str, Any]:
        """Convert the record to JSON types."""
        checks = [asdict(check) for check in self.checks]
        return {"subject": self.subject, "verdict": self.verdict, "checks": checks}

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
        """Describe the review in words: a line for each check, the advice below it, and
        the verdict.
        """
        width = max(len(check.name) for check in self.checks)
        lines = []
        for check in self.checks:
            lines.append(f"{check.verdict:4}  {check.name:{width}}  {check.reason}")
            if check.next:
                lines.append(f"{'':4}  {'':{width}}  -> {check.next}")
        return "\n".join(map(printable, [*lines, self._write_headline()]))

    def _write_headline(self) -> str:
        """Write the verdict, the subject, and the number of checks by verdict."""
        counts = [
            f"{sum(check.verdict == verdict for check in self.checks)} {verdict}"
            for verdict in VERDICTS
        ]
        return f"{self.verdict.upper()}: {self.subject}: {', '.join(counts)}"

    def __repr__(self) -> str:
        return f"Review({self._write_headline()})"

    def _repr_html_(self) -> str:
        """Show the table of checks in notebooks."""
        return paragraphs(self._write_headline()) + table_html(self.table())


def worst(verdicts: Any) -> Verdict:
    """Find the worst of some verdicts; a pass if there are none."""
    return max(verdicts, key=VERDICTS.index, default="pass")


def labelled(findings: Sequence[Finding], label: str) -> list[Finding]:
    """Put a domain's or a fit's name before the findings; without a name they are
    unchanged.
    """
    if not label:
        return list(findings)
    return [replace(finding, name=f"{label}: {finding.name}") for finding in findings]

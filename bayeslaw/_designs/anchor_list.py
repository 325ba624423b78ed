"""Define the record of a list of runs to buy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import pandas as pd

from bayeslaw._base.errors import PlanError
from bayeslaw._base.html import paragraphs, table_html
from bayeslaw._base.numbers import format_count
from bayeslaw._costs.costs import format_days, format_money
from bayeslaw._designs.goals.kinds import KINDS
from bayeslaw._tables.rows.shares import share_columns


@dataclass(frozen=True)
class Anchors:
    """Runs to buy, in order. Every field can be stored in JSON.

    Parameters
    ----------
    picks
        A dictionary for each training run. ``row`` is the candidate at which the run
        ends, ``rows`` are all candidates measured along it, ``run`` is its name, and
        ``replicate`` its number (1 for the first). ``cost`` includes the checkpoint's
        if this run is the first to need it. ``gain`` is expected, given the picks
        before, with Monte Carlo error ``gain_error``. ``goal_sd`` is the sd after this
        pick.
    gain, unit
        Kind of gain, and its unit.
    goal_sd_before, goal_sd_after
        Sd of the goal's log losses now, and expected after all picks: root mean square
        over the goal. It is the sd of the law (with the effect of the goal's
        checkpoint, if candidates start from it), not of a new run.
    spent, budget
        In the unit of the candidates' costs, by default FLOPs.
    stop
        Reason why the list ends there.
    check
        Comparison of the approximation with importance-weighted draws on the first
        ``picks`` picks: ``goal_sd`` from these draws with its Monte Carlo ``error``,
        ``goal_sd_approximate``, their ratio ``correction``, and median ``khat`` of the
        weights. For a plan also the mean ``flops`` of plans made again under the
        simulated outcomes, its Monte Carlo ``flops_error``, and the
        ``share_with_a_plan``.
    plan
        For a plan: ``flops_before`` and expected ``flops_after``, at the same
        confidence; None while no plan reaches it.
    choice
        For a choice (gains ``best`` and ``law``): the option that is ``best`` on
        average, the ``chance`` that it is the best, and the ``regret``: its expected
        loss against the best, in log loss, or in probability for a law. For recipes
        also ``chance_after`` and ``regret_after``, after all picks. ``check`` has
        chance and regret from simulations.
    days
        Days until all runs are done, checkpoints first, if costs are known.
    """

    picks: list[dict[str, Any]]
    gain: str
    unit: str
    goal_sd_before: float
    goal_sd_after: float
    spent: float
    budget: float
    stop: str
    check: dict[str, Any] | None
    plan: dict[str, float] | None
    warnings: list[str]
    choice: dict[str, Any] | None = None
    days: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Convert the record to JSON types."""
        return asdict(self)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Anchors:
        """Read the record of `to_dict`.

        Raises
        ------
        PlanError
            A key is missing or unknown.
        """
        # lists saved by early versions have no choice and no days
        odd = sorted({f.name for f in fields(cls)} ^ {"choice", "days", *record})
        if odd:
            raise PlanError(
                f"not a saved list of anchors: {odd[0]!r} is missing or unknown"
            )
        return cls(**record)

    def runs(self, candidates: pd.DataFrame) -> pd.DataFrame:
        """List the rows to measure, in order, without losses. Each run and replicate
        has its own name in ``run``.
        """
        rows, names = [], []
        for pick in self.picks:
            again = f" #{pick['replicate']}" if pick["replicate"] > 1 else ""
            rows += pick["rows"]
            names += [f"{pick['run']}{again}"] * len(pick["rows"])
        table = candidates.loc[rows].copy()
        table["run"] = names
        # a loss in the table of candidates is that of another run with equal settings
        return table.drop(columns="loss", errors="ignore").reset_index(drop=True)

    def table(self, candidates: pd.DataFrame) -> pd.DataFrame:
        """Format a row for each run, as text; replicates are one row, at the place of
        the last of them.
        """
        counts = [c for c in ("N", "D") if c in candidates]
        levels = [c for c in ("replay", "ptpp") if c in candidates]
        levels += share_columns(candidates)
        picks = pd.DataFrame(self.picks)
        runs = picks.groupby(["run", "row"], sort=False)
        bought = runs[["cost", "gain"]].sum()
        bought["times"], bought["goal_sd"] = runs.size(), runs["goal_sd"].last()
        last = runs.tail(1).set_index(["run", "row"]).index
        bought = bought.loc[last].reset_index()
        of_runs = candidates.loc[bought["row"], [*counts, *levels]]
        table = of_runs.reset_index(drop=True)
        table[counts] = table[counts].map(format_count)
        table.insert(0, "row", bought["row"])
        table.insert(0, "run", bought["run"])
        if (bought["times"] > 1).any():
            table["times"] = bought["times"]
        table["cost"] = bought["cost"].map("{:.3g}".format)
        table[f"gain ({self.unit})"] = bought["gain"].map("{:.3g}".format)
        table["goal sd"] = bought["goal_sd"].map(KINDS[self.gain].shown)
        return table

    def __repr__(self) -> str:
        return f"Anchors({self.sentence()})"

    def _repr_html_(self) -> str:
        """For notebooks: the answer, and each run to buy."""
        if not self.picks:
            return paragraphs(self.sentence())
        columns = ["run", "replicate", "cost", "gain", "goal_sd"]
        picks = pd.DataFrame(self.picks)[columns]
        return paragraphs(self.sentence()) + table_html(picks)

    def sentence(self) -> str:
        """Describe the answer in words."""
        if not self.picks:
            return f"Buy nothing: {self.stop}."
        saving = ""
        if self.plan is not None:
            before, after = self.plan["flops_before"], self.plan["flops_after"]
            saving = f" and the plan from {before:.3g} to {after:.3g} FLOPs"
            if "money_before" in self.plan:
                before, after = self.plan["money_before"], self.plan["money_after"]
                saving += f" (from {format_money(before)} to {format_money(after)})"
        elif self.check is not None and "share_with_a_plan" in self.check:
            chance = self.check["share_with_a_plan"]
            saving = f" and make a plan possible in {chance:.0%} of simulated outcomes"
        kind = KINDS[self.gain]
        count = f"{len(self.picks)} run{'s' * (len(self.picks) > 1)}"
        return (
            f"{count} for {self._describe_price()} take {kind.sd_of} from "
            f"{kind.shown(self.goal_sd_before)} to {kind.shown(self.goal_sd_after)}"
            f"{kind.of_what}{saving}{self._describe_choice()}; {self.stop}."
        )

    def _describe_price(self) -> str:
        if self.days is None:
            return f"{self.spent:.3g} of {self.budget:.3g}"
        return (
            f"{format_money(self.spent)} of {format_money(self.budget)}, done in "
            f"{format_days(self.days)},"
        )

    def _describe_choice(self) -> str:
        """Describe the present choice, and how sure it will be, in words."""
        if self.choice is None:
            return ""
        now = f"; now {self.choice['best']} is best by {self.choice['chance']:.0%}"
        if "chance_after" not in self.choice:
            return now
        return (
            f"{now}, and the choice after them is right in "
            f"{self.choice['chance_after']:.0%} (expected loss for want of knowing the "
            f"best {self.choice['regret']:.2%}, then {self.choice['regret_after']:.2%})"
        )

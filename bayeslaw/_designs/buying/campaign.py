"""Define the question of a sequence of purchases, read the runs bought so far, build the
posterior from them (or from the priors of several laws), and define the goal of the
next: a forecast, or a plan that is made again after every batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bayeslaw._base.errors import PlanError, RunTableError
from bayeslaw._base.limits import POSITIVE, Kind, check_count, read_numbers
from bayeslaw._base.numbers import parse_number
from bayeslaw._costs.costs import Costs
from bayeslaw._designs.evidence import as_read, domain_of
from bayeslaw._designs.goals.goal import GainName, Goal, forecast_goal
from bayeslaw._designs.goals.plan import (
    can_save,
    check_keywords,
    domains_of,
    present_plan,
)
from bayeslaw._designs.menu import Menu
from bayeslaw._law.columns import SOURCE_LOSS_BEFORE
from bayeslaw._law.find import as_law
from bayeslaw._law.law import Law
from bayeslaw._plans.question import FORGETTING, TARGET
from bayeslaw._posteriors.averaging.average import average_part
from bayeslaw._posteriors.averaging.compare import Comparing
from bayeslaw._posteriors.fits.candidates import default_laws
from bayeslaw._posteriors.fits.fit import fit
from bayeslaw._posteriors.posterior import Posterior, is_prior_only
from bayeslaw._posteriors.prior import from_priors
from bayeslaw._tables import fitting
from bayeslaw._tables.proposals import check_columns

if TYPE_CHECKING:
    from jaxtyping import Bool

ENOUGH = Kind(lambda x: x >= 0, "a number of at least 0, such as 1%", "")


@dataclass(frozen=True, eq=False)
class NextArguments:
    # documented in `next_runs`, which fills in their defaults

    candidates: pd.DataFrame
    goal: pd.DataFrame | Mapping[str, Any]
    budget: float
    _: KW_ONLY
    measured: pd.DataFrame | None = None
    laws: Sequence[Law | str] | None = None
    source_laws: Sequence[Law | str] | None = None
    batch: int | None = None
    enough: float = 0.0
    least: float = 1.0
    gain: GainName | None = None
    reference: Mapping[str, float] | None = None
    seed: int = 0
    costs: Costs | None = None

    def __post_init__(self) -> None:
        read_numbers(self, {"budget": POSITIVE, "enough": ENOUGH})
        if self.batch is not None:
            check_count("batch", self.batch)

    def table(self, domain: str) -> pd.DataFrame:
        """Convert candidates to the columns that the laws of a domain read."""
        return as_read(self.candidates, domain)

    def laws_of(self, domain: str) -> list[Law]:
        """Find the given laws of a domain, or those that suit the table's columns."""
        wanted = self.laws if domain == TARGET else self.source_laws
        return laws_for(self.table(domain), wanted)

    @property
    def losses(self) -> dict[str, str]:
        """Columns of the losses that are measured for a run, by domain."""
        if isinstance(self.goal, pd.DataFrame):
            return {TARGET: "loss"}
        return {TARGET: "loss", FORGETTING: "source_loss"}

    @cached_property
    def bought(self) -> pd.DataFrame:
        """Rows bought so far with their losses, checked."""
        return _read_measured(self.candidates, self.measured, [*self.losses.values()])

    def measured_in(self, domain: str) -> pd.DataFrame:
        """Select the candidates with a measured loss in a domain, for its laws."""
        column = self.losses[domain]
        gave = self.bought.dropna(subset=column)
        return self.table(domain).loc[gave["row"]].assign(loss=gave[column].to_numpy())


def _read_measured(
    offered: pd.DataFrame, measured: pd.DataFrame | None, losses: list[str]
) -> pd.DataFrame:
    """Read rows and losses, and check that every row is among the candidates."""
    if measured is None or not len(measured):
        return pd.DataFrame({"row": [], **{column: [] for column in losses}})
    why = ": give the rows that were to be measured, with their losses"
    check_columns(measured, ["row", *losses], why, "the table of measured runs")
    strange = [row for row in measured["row"] if row not in offered.index]
    if strange:
        raise RunTableError(
            f"measured row {strange[0]!r} is none of the candidates: give the table "
            "they were chosen from"
        )
    table = measured[["row", *losses]].copy()
    for column in losses:
        # a number above 0; empty, and then NaN, if the run failed
        table[column] = numbers = pd.to_numeric(measured[column], errors="coerce")
        text = measured[column].astype(str).str.strip()
        is_empty = measured[column].isna() | (text == "")
        is_wrong = ~is_empty & ~((numbers > 0) & (numbers < np.inf))
        if is_wrong.any():
            row, said = measured.loc[is_wrong, ["row", column]].iloc[0]
            raise RunTableError(
                f"measured row {row!r}, column {column!r}: {said!r} is no loss above 0; "
                "leave it empty if the run failed"
            )
    # of a run with the loss of one domain only it is unclear whether it failed or the
    # other loss was forgotten
    is_missing = table[losses].isna()
    half = is_missing.any(axis=1) & ~is_missing.all(axis=1)
    if half.any():
        row = table["row"][half].iloc[0]
        lacks = is_missing.columns[is_missing[half].iloc[0]][0]
        raise RunTableError(
            f"measured row {row!r} has no {lacks!r} beside its other loss: a plan needs "
            "both; leave both empty if the run failed"
        )
    # if a failed run was repeated, only the row with its losses counts
    gave = table.dropna(subset=losses)
    failed = table[~table["row"].isin(gave["row"])].drop_duplicates("row")
    twice = gave["row"][gave["row"].duplicated()]
    if len(twice):
        raise RunTableError(
            f"measured row {twice.iloc[0]!r} is there twice: give each batch once"
        )
    is_kept = table.index.isin([*gave.index, *failed.index])
    return table[is_kept].reset_index(drop=True)


# -- the goal --------------------------------------------------------------------------


def goal_now(
    campaign: NextArguments, posteriors: Mapping[str, Posterior], offered: Menu
) -> Goal:
    """Build the goal from the present posteriors, by domain, before the next batch."""
    target, goal = posteriors[TARGET], campaign.goal
    is_known = not any(is_prior_only(p) for p in posteriors.values())
    if isinstance(goal, pd.DataFrame):
        gain = campaign.gain or "variance"
        # with few runs one law is fitted, so they cannot tell yet which law is right
        if gain == "law" and len(target.pieces()) == 1:
            gain = "variance"
        return forecast_goal(target, goal, gain, offered, may_be_settled=is_known)
    # With priors alone no plan is made: the first runs narrow the losses where it may
    # be.
    if is_known:
        plan = present_plan(target, posteriors[FORGETTING], goal)
        if plan.is_possible:
            domains = domains_of(plan, offered, None)
            is_priced = plan.is_reached and can_save(plan, domains)
            return Goal(domains, "plan" if is_priced else "variance", plan=plan)
        # no draw keeps the limits: perhaps the posterior is still wrong
    region = planned_region(goal, campaign.candidates)
    views = [
        domain_of(p, offered, region, None, name) for name, p in posteriors.items()
    ]
    return Goal(views, "variance")


def planned_region(
    question: Mapping[str, Any], candidates: pd.DataFrame
) -> pd.DataFrame:
    """Make runs over the range of possible plans: of the planned model, at replays and
    tokens per parameter that span those on offer.
    """
    check_keywords(question)
    model = {name: question[name] for name in ("N", "ptpp") if name in question}
    if any(np.ndim(size) for size in model.values()):
        raise PlanError("runs are chosen for the plan of one model: give one N")
    what = "the table of candidates"
    check_columns(candidates, ["N", "D"], ", which a plan needs", what)

    def read(number: Any) -> float:
        """Read a number as people write it, or the mean of draws."""
        is_text = isinstance(number, str)
        return parse_number(number) if is_text else float(np.mean(number))

    model = {name: read(x) for name, x in model.items() if x is not None}
    covariates = {
        name: read(x) for name, x in (question.get("covariates") or {}).items()
    }
    if (
        SOURCE_LOSS_BEFORE not in covariates
        and question.get("baseline_loss") is not None
    ):
        covariates[SOURCE_LOSS_BEFORE] = read(question["baseline_loss"])
    # evenly spaced in the logarithm of tokens per parameter, like budgets
    per_parameter = np.log(candidates["D"].to_numpy() / candidates["N"].to_numpy())
    # laws of size and tokens read no replay, so any value will do
    shares = candidates["replay"].to_numpy() if "replay" in candidates else np.zeros(1)
    spans, replays = (
        np.unique(np.linspace(levels.min(), levels.max(), 3))
        for levels in (per_parameter, shares)
    )
    tokens = model["N"] * np.exp(spans)
    rows = [model | covariates | {"D": d, "replay": r} for d in tokens for r in replays]
    return pd.DataFrame(rows)


# -- what is known ---------------------------------------------------------------------


def laws_for(table: pd.DataFrame, laws: Sequence[Law | str] | None) -> list[Law]:
    """Find the given laws, or those that suit the table's columns."""
    wanted = default_laws(table) if laws is None else list(laws)
    return [as_law(law, table) for law in wanted]


def what_is_known(
    table: pd.DataFrame,
    measured: Bool[np.ndarray, " row"],
    laws: Sequence[Law],
    seed: int,
) -> Posterior:
    """Average the laws on the measured runs. With too few runs to leave any out, fit
    the first law that can be fitted; with too few for that, use the priors.

    ``table``: Measured runs and runs on offer. The ``loss`` of runs on offer is not
    used, but must be a number. ``measured``: mask of the measured runs, shape (row,).
    """
    measured_runs = table[measured]
    settings = Comparing(seed=seed)
    if len(measured_runs) > fewest(laws):
        try:
            return average_part(
                table, measured, list(laws), settings, on_failure="ignore"
            )
        except RunTableError:
            pass  # there are too few levels to leave a stage out
    for law in laws:
        try:
            fitting.check_fittable(law, measured_runs)
        except RunTableError:
            continue
        return fit(measured_runs, law, seed=seed, preview=True, on_failure="ignore")
    return from_priors(laws, table, seed)


def fewest(laws: Sequence[Law]) -> int:
    """Compute the least first batch: the largest law's parameters, and two."""
    return max(len(law.priors) for law in laws) + 2

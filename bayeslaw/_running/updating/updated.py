"""Define the record of the changes by a second batch, for a page and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd

from bayeslaw._base.shown import InJson, Shown, as_json, paragraphs, table_html
from bayeslaw._base.terminal import printable
from bayeslaw._posteriors.posterior import KeptPosterior, Posterior
from bayeslaw._running.following.followed import UNUSUAL
from bayeslaw._running.updating.changes import RowChanges
from bayeslaw._running.updating.plans import PlanChange
from bayeslaw._running.updating.surprise import Attribution, Surprise, format_miss

WEIGHTS = "weight_before weight_after drift_before drift_after"
# keys in JSON of a value before and after, and of how it moved
SHIFT = {
    "before before_low before_high after after_low after_high": float,
    "sd shift expected": float,
    "moved beyond": bool,
}
Action = Literal["nothing new", "nothing changed", "sharper", "wider", "moved"]


@dataclass(frozen=True, eq=False)
class UpdatedDomain(InJson):
    """One domain's posterior before and after.

    Parameters
    ----------
    name
        Name of the domain.
    before, after
        The posteriors; the same one if the domain has no changed rows.
    changes
        The rows that are new, changed or gone.
    surprise
        Comparison of the new rows with their forecasts by ``before``; None without new
        rows.
    parameters
        Medians and intervals ``before`` and ``after``, in the paper's units; ``sd``
        before, and ``shift`` of the median with the shift ``expected``, in these sds;
        whether it ``moved`` (half an sd), and ``beyond`` what was expected.
    laws
        Weight and drift (per e-fold) of each law of averages, before and after.
    forecasts
        The loss of a new run, in nats per token, before and after; ``width``: its
        interval's after over before, on a log scale. How the law's own log loss moved
        (``sd``, ``shift``, ...), as for parameters.
    attribution
        Explanation of the first forecast's shift; None without new rows.
    """

    name: str
    before: Posterior
    after: KeptPosterior
    changes: RowChanges
    surprise: Surprise | None
    parameters: pd.DataFrame
    laws: pd.DataFrame
    forecasts: pd.DataFrame
    attribution: Attribution | None

    KEYS: ClassVar = {
        "rows": {"new changed gone same": int},
        "surprise attribution": ...,
        "parameters": [{"parameter": str, **SHIFT}],
        "laws": [{"law": str, WEIGHTS: float}],
        "forecasts": [{"index": str, "width": float, **SHIFT}],
    }

    @property
    def headline(self) -> pd.Series:
        """The first forecast: of the old plan's run, or of the largest run."""
        return self.forecasts.iloc[0]

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        changes = self.changes
        counts = {n: len(getattr(changes, n)) for n in ("new", "changed", "gone")}
        tables = ("parameters", "laws", "forecasts")
        named = {name: as_json(getattr(self, name).reset_index()) for name in tables}
        return super().to_dict() | {"rows": counts | {"same": changes.same}, **named}


@dataclass(frozen=True, eq=False, repr=False)
class Updated(Shown):
    """Changes of posteriors, forecasts and a plan by a second batch of runs.

    Parameters
    ----------
    domains
        By name, in the order given: the target first.
    plan
        The plan before and after; None if none was asked for.
    prob
        Probability inside the intervals.
    """

    domains: Mapping[str, UpdatedDomain]
    plan: PlanChange | None
    prob: float = 0.9

    KEYS: ClassVar = {
        "action": Action,
        "verdict": (str, "What happened, in words."),
        "prob plan": ...,
        "domains": {"**": UpdatedDomain},
    }

    def __getitem__(self, name: str) -> UpdatedDomain:
        return self.domains[name]

    @property
    def first(self) -> UpdatedDomain:
        """The first domain, the only one of a single posterior."""
        return next(iter(self.domains.values()))

    @property
    def posterior(self) -> KeptPosterior:
        """The first domain's posterior, of all rows."""
        return self.first.after

    @property
    def surprising(self) -> list[str]:
        """Domains whose new rows surprise."""
        return [
            name
            for name, domain in self.domains.items()
            if domain.surprise is not None and domain.surprise.is_surprising
        ]

    @property
    def action(self) -> Action:
        """Name what happened, in a word or two."""
        if not any(domain.changes.any for domain in self.domains.values()):
            return "nothing new"
        headlines = [domain.headline for domain in self.domains.values()]
        if self.plan is not None:
            # a forecast may move without a consequence for the plan
            moved = self.plan.moved
        else:
            moved = any(row["moved"] for row in headlines)
        if moved:
            return "moved"
        # the geometric mean over domains
        width = float(np.exp(np.mean([np.log(row["width"]) for row in headlines])))
        # intervals a tenth narrower, or wider, than before
        if width < 0.9:
            return "sharper"
        return "wider" if width > 1.1 else "nothing changed"

    def verdict(self) -> str:
        """Describe what happened in one plain sentence."""
        action, plan = self.action, self.plan
        if action == "nothing new":
            return (
                "Nothing new: the table has the rows that were fitted, and no others."
            )
        odd = ""
        if self.surprising:
            of = f" of {' and '.join(self.surprising)}" if len(self.domains) > 1 else ""
            odd = f"; but the new rows{of} surprise: look at them, and at what to trust"
        if action == "moved":
            # by the forecast that moved most, in sds of its old posterior
            most = max(
                self.domains.values(), key=lambda one: abs(one.headline["shift"])
            )
            row = most.headline
            moved = (
                f"the {most.name} loss of {row.name} goes from {row['before']:.4g} to "
                f"{row['after']:.4g} nats"
            )
            if plan is not None:
                moved = plan.headline()
            why = self._find_reason()
            return f"Moved: {moved}{f', because {why}' if why else ''}{odd}."
        stays = "the forecasts stay where they were" if plan is None else plan.stays()
        widths = []
        for name, domain in self.domains.items():
            width = domain.headline["width"]
            words = f"{abs(width - 1):.0%} {'narrower' if width < 1 else 'wider'}"
            words = "as wide as before" if abs(np.log(width)) < 0.02 else words
            widths.append(f"{words} ({name})")
        intervals = " and ".join(widths)
        return f"{action.capitalize()}: {stays}, and intervals are {intervals}{odd}."

    def _find_reason(self) -> str:
        """Describe the new rows that explain the largest shift of a headline forecast."""
        moved = [one for one in self.domains.values() if one.headline["moved"]]
        moved.sort(key=lambda one: -abs(one.headline["shift"]))
        of_new = [one for one in moved if one.attribution and one.surprise]
        if not of_new:
            return ""
        domain = of_new[0]
        assert domain.surprise is not None
        assert domain.attribution is not None
        why, groups = domain.attribution, domain.surprise.groups
        if why.is_told:
            # the groups that add most of the shift
            groups = groups.merge(why.reasons[["by", "level"]])
        else:
            groups = groups[groups["p_value"] < UNUSUAL / len(groups)]
        if groups.empty:
            return ""
        # of these the largest miss in sds is to blame
        far = (groups["miss"] / groups["sd"]).abs()
        group = groups.iloc[int(np.argmax(far))]
        of = f" of {domain.name}" if len(self.domains) > 1 else ""
        return (
            f"the new rows{of} at {group['by']} {group['level']} lie "
            f"{format_miss(group['miss'])} what was foreseen"
        )

    def sentence(self) -> str:
        """Describe the answer in words, the verdict first."""
        return "\n".join(map(printable, self._list_lines()))

    def _list_lines(self) -> Iterator[str]:
        yield self.verdict()
        for name, domain in self.domains.items():
            yield f"{name}: {domain.changes.sentence()}"
            if domain.surprise is not None:
                yield f"  {domain.surprise.sentence()}"
            if not domain.changes.any:
                continue
            row = domain.headline
            before, after = (
                f"{row[when]:.4g} ({row[f'{when}_low']:.4g} to {row[f'{when}_high']:.4g}) nats"
                for when in ("before", "after")
            )
            yield f"  {row.name}: {before}, now {after}"
            beyond = domain.parameters.index[domain.parameters["moved"].astype(bool)]
            if len(beyond):
                yield f"  moved by half an sd or more: {', '.join(beyond)}"
            if domain.attribution is not None:
                yield f"  why: {domain.attribution.sentence()}"
        if self.plan is not None:
            yield self.plan.sentence()

    def to_frame(self) -> pd.DataFrame:
        """Collect the forecasts before and after, a row for each domain and run."""
        parts = {name: domain.forecasts for name, domain in self.domains.items()}
        return pd.concat(parts, names=["domain", "run"])

    def _repr_html_(self) -> str:
        return paragraphs(self.sentence()) + table_html(self.to_frame())

"""Measure which runs and priors a plan rests on: the probability that it keeps its
limits without each measured run, and with half of each prior.

Nothing is fitted again. Draws are weighed as if a run's likelihood were left out
(Gelfand, Dey and Chang 1992) or a prior were raised to a power (Kallioinen et al.
2024), with Pareto-smoothed tails (Vehtari et al. 2024).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd

from bayeslaw._base.errors import PlanError
from bayeslaw._base.numbers import format_count
from bayeslaw._base.shown import InJson
from bayeslaw._base.streams import Stream, generator
from bayeslaw._forecasts.sensitivity import kept_densities, thinned
from bayeslaw._inference.diagnostics import TRUSTED_K, by_weight, pareto_smoothed
from bayeslaw._inference.table import labels
from bayeslaw._plans.plan import problem_of
from bayeslaw._plans.question import FORGETTING, TARGET
from bayeslaw._plans.result import Plan
from bayeslaw._plans.search import search
from bayeslaw._posteriors.averaging.loading import Posteriors, as_posterior, by_name
from bayeslaw._posteriors.posterior import Posterior

if TYPE_CHECKING:
    from jaxtyping import Float

POWER = 0.5  # power of a prior: half as informative, in log density
WEIGHTS = "case:weights"  # a leaf that no law reads


@dataclass(frozen=True)
class Influence(InJson):
    """The influence of each run and each prior on a plan. Made by `influence`.

    Parameters
    ----------
    rows
        A row for each run and prior: ``domain``, ``kind`` (``"run"`` or ``"prior"``),
        ``name``, ``probability`` with which the plan keeps all limits without the
        run, or with half the prior (its density to the power of a half), ``shift`` of
        this probability from now, ``k_hat`` of the weights, and ``D``, the tokens of a
        new plan (infinite if there is none; NaN if no new plan was made).
    probability
        Probability with which the plan keeps its limits now, by the weighed draws.
    """

    rows: pd.DataFrame
    probability: float

    KEYS: ClassVar = {
        "probability": ...,
        "rows": [{"domain kind name": str, "probability shift k_hat D": float}],
    }

    def sentence(self, most: int = 3) -> str:
        """Describe the run and the prior with most influence on the plan."""
        lines = [f"the plan keeps its limits with {self.probability:.1%} now;"]
        for kind, without in (("run", "without"), ("prior", "at half the prior of")):
            part: Any = self.rows[self.rows["kind"] == kind].head(most)
            shifts = []
            for row in part.itertuples():
                again = "" if pd.isna(row.D) else ", no plan then"
                if np.isfinite(row.D):
                    again = f", {format_count(row.D)} tokens needed"
                # whether its weights are rough
                rough = row.k_hat > TRUSTED_K
                unsure = f" (rough: k-hat {row.k_hat:.1f})" if rough else ""
                shifts.append(
                    f"{without} {row.name} of {row.domain} "
                    f"{row.probability:.1%}{again}{unsure}"
                )
            if shifts:
                lines.append(f"{kind}s that carry the plan: {'; '.join(shifts)}.")
        return "\n".join(lines)


def influence(
    plan: Plan,
    target: Posterior | str | Path,
    source: Posteriors,
    *,
    again: int = 2,
    **question: Any,
) -> Influence:
    """Measure the influence of each measured run and each prior on a plan, by case
    weights.

    Parameters
    ----------
    plan
        The plan.
    target, source
        Posteriors of the plan; only fits of one law are examined.
    again
        Number of runs with the largest shifts for which the plan is made again.
    **question
        The keyword arguments of the plan.

    Raises
    ------
    PlanError
        There is no plan, or no posterior is a fit of one law that kept its likelihood.

    Examples
    --------
    >>> question = {"N": 8.1e9, "ptpp": 279, "max_target_loss": 1.9, "baseline_loss": 1.64}
    >>> planned = bayeslaw.plan(target, source, max_forgetting="3%", **question)
    >>> found = bayeslaw.influence(
    ...     planned, target, source, max_forgetting="3%", again=0, **question
    ... )
    >>> sorted(set(found.rows["kind"]))
    ['prior', 'run']
    """
    if plan.D is None or plan.replay is None or not plan.D:
        raise PlanError("there is no plan, so that no run carries it")
    posteriors = {TARGET: as_posterior(target)} | by_name(source, FORGETTING)
    cases = {name: _make_cases(p) for name, p in posteriors.items()}
    if not any(cases.values()):
        raise PlanError(
            "influence is of fits of one law, which keep the likelihood of each run; "
            "averages do not: bayeslaw fit RUNS --law NAME"
        )
    tagged: dict[str, Any] = {
        name: _tag_draws(p, cases[name]) if cases[name] else p
        for name, p in posteriors.items()
    }
    first = tagged.pop(TARGET)
    problem = problem_of(first, tagged, **question)
    is_kept = problem.kept(float(np.log(plan.D)), plan.replay).all(axis=0)
    now = float(is_kept.mean())
    rows, weights = [], []
    for constraint in problem.constraints:
        for k, case in enumerate(cases.get(constraint.name, ())):
            (part,) = constraint.parts
            of_case = np.empty(len(part.rows))
            of_case[part.rows] = part.piece.values[WEIGHTS][:, k]
            chance = float(np.average(is_kept, weights=of_case))
            weights.append(of_case)
            said = {"probability": chance, "shift": chance - now, "k_hat": case.k_hat}
            of = {"domain": constraint.name, "kind": case.kind, "name": case.name}
            rows.append(of | said | {"D": np.nan})
    table = pd.DataFrame(rows)
    table = table.sort_values("shift", key=np.abs, ascending=False, kind="stable")
    # tokens of the plan under weighed draws
    rng = generator(0, Stream.INFLUENCE)
    for index in table.index[table["kind"] == "run"][:again]:
        share = weights[index] / weights[index].sum()
        choice = search(problem.with_draws(by_weight(share, problem.draws, rng)))
        tokens = float(np.exp(choice.log_tokens))
        table.loc[index, "D"] = tokens if choice.margin >= 0 else np.inf
    return Influence(table.reset_index(drop=True), now)


# -- cases -----------------------------------------------------------------------------


class _Case(NamedTuple):
    """A run left out of a fit, or a prior halved, and the weights of draws for it."""

    kind: str
    name: str
    weights: Float[np.ndarray, " draw"]
    k_hat: float


def _make_cases(fit: Any) -> list[_Case]:
    """Weigh draws without each run and at half of each prior, if they can be."""
    tree = getattr(fit, "inference_data", None)
    if tree is None or not {"log_likelihood", "log_prior"} <= {*tree.children}:
        return []
    densities = kept_densities(tree)
    likelihood = densities["log_likelihood"]["log_loss"]
    by_row = likelihood.reshape(-1, likelihood.shape[-1])
    table = fit.runs
    names = labels("run", table)
    if names is None or names.nunique() < 2:
        columns = [c for c in ("N", "ptpp", "D", "replay") if c in table]
        told = [
            f"row {label} ({', '.join(f'{c} {format_count(row[c])}' for c in columns)})"
            for label, row in table[columns].iterrows()
        ]
        runs = {name: [k] for k, name in enumerate(told)}
    else:
        codes, levels = pd.factorize(names)
        runs = {f"run {x}": np.flatnonzero(codes == k) for k, x in enumerate(levels)}
    left_out = {
        ("run", name): -by_row[:, rows].sum(axis=1) for name, rows in runs.items()
    }
    for name, density in densities["log_prior"].items():
        log_prior = density.reshape(len(by_row), -1).sum(axis=1)
        if log_prior.std() > 0:  # fixed priors have no effect
            left_out["prior", name] = (POWER - 1) * log_prior
    return [_Case(*of, *pareto_smoothed(change)) for of, change in left_out.items()]


def _tag_draws(fit: Any, cases: list[_Case]) -> Any:
    """Build a posterior of draws that carry the cases' weights as a leaf."""
    (piece,) = fit.pieces()
    few = piece.take(thinned(fit.inference_data, np.arange(piece.draws)))
    weights = np.stack([case.weights for case in cases], axis=1)
    tagged = replace(few, values={**few.values, WEIGHTS: weights})
    return SimpleNamespace(
        name=fit.name,
        warnings=fit.warnings,
        runs=fit.runs,
        log_loss=fit.log_loss,
        pieces=lambda: (tagged,),
    )

"""Average several laws, each with its drift beyond the data: the default."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bayeslaw._base.arguments import takes
from bayeslaw._base.errors import warn
from bayeslaw._base.streams import generator
from bayeslaw._inference.discrepancy.drift import draw_drift
from bayeslaw._law.find import find_law
from bayeslaw._law.law import Law
from bayeslaw._law.recipe import recipe_of
from bayeslaw._law.variants.setting import spelled_setting
from bayeslaw._posteriors.averaging.compare import (
    CompareArguments,
    Comparing,
    Comparison,
    compare_part,
    law_of_few,
)
from bayeslaw._posteriors.averaging.record import Average, Member
from bayeslaw._posteriors.fits.artifact import raise_or_warn, versions, warn_each
from bayeslaw._posteriors.fits.candidates import candidate_laws, default_laws
from bayeslaw._posteriors.fits.goodness import other_signs
from bayeslaw._posteriors.fits.misfit import add_short_names
from bayeslaw._posteriors.posterior import DRIFT, take_effects
from bayeslaw._tables.rows.settings import tell_read
from bayeslaw._tables.runs import as_runs

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

DRAWS = 4000
LEAST = 1 / DRAWS  # laws with less weight get no draws


@dataclass(frozen=True, eq=False)
class AverageArguments(CompareArguments):
    # documented in `average`

    _: KW_ONLY
    drift: bool = True
    on_failure: str = "raise"


@takes(AverageArguments)
def average(arguments: AverageArguments) -> Average:
    """Fit laws, judge them by forecasts of left-out stages, and average them at their
    weights.

    Parameters
    ----------
    runs, laws, reference, hold_out, independent, discrepancy
        As for `compare`; by default the laws that suit the table's columns, or one of
        them if the runs are too few to leave stages out. A single law keeps all weight
        and gets its drift.
    experience, seed, executor, progress
        As for `compare`.
    drift
        Let each law drift beyond the training runs. Without drift, an average of one
        law is that law with its misfit.
    on_failure
        ``"raise"``, ``"warn"`` or ``"ignore"`` when the diagnostics of a law fail that
        has draws in the average.

    Raises
    ------
    RunTableError, LawError
        The table cannot be used, or a law is unknown.
    DiagnosticsError
        The diagnostics fail and ``on_failure`` is ``"raise"``.

    Examples
    --------
    >>> averaged = bayeslaw.average(of_source, ["ptpp-floor", "dcpt"], hold_out="ptpp")
    >>> averaged.table["weight"].sum().round(6).item()
    1.0
    """
    table = as_runs(arguments.runs)
    all_rows = np.ones(len(table), bool)
    laws = arguments.laws
    few = None if laws else law_of_few(table)
    if few is not None:
        warn(
            f"{len(table)} runs are too few to weigh laws by stages left out: the law is "
            f"{few}"
        )
        laws = [few]
    return average_part(
        table,
        all_rows,
        laws,
        arguments,
        drift=arguments.drift,
        on_failure=arguments.on_failure,
    )


def average_part(
    runs: pd.DataFrame,
    fitted: Bool[np.ndarray, " run"],
    laws: Sequence[Law | str] | None,
    settings: Comparing,
    *,
    drift: bool = True,
    on_failure: str = "raise",
) -> Average:
    """Average ``runs[fitted]``, reusing the programs that are compiled for all runs."""
    began = time.perf_counter()
    if not laws:
        laws = default_laws(runs[fitted])
        read = tell_read(runs[fitted], [law for law in laws if spelled_setting(law)])
        if read is not None:
            warn(read)
        # columns of the reference run that only a candidate law beside these reads are
        # dropped; those that none reads are refused later
        read, of_candidates = (
            {c for name in names for c in find_law(name, runs).covariates}
            for names in (laws, candidate_laws(runs[fitted]))
        )
        reference = {
            c: v
            for c, v in (settings.reference or {}).items()
            if c in read or c not in of_candidates
        }
        settings = replace(settings, reference=reference)
    judged = compare_part(runs, fitted, laws, settings)
    # all compared laws, also those without weight, so that they can be compared again
    recipes = [recipe_of(member.law) for member in judged.judged]
    attrs = {
        "seed": settings.seed,
        "folds": "; ".join(judged.folds),
        "run_slopes": json.dumps(judged.run_slopes),
        "versions": versions(),
        "drift": drift,
        "settings": json.dumps(settings.kept() | {"laws": recipes}),
    }
    result = of_comparison(
        judged,
        runs[fitted],
        drift=drift,
        seed=settings.seed,
        attrs=attrs | {"seconds": time.perf_counter() - began},
    )
    signs = [other_signs(m.law, m.values, result.runs) for m in result.members]
    warn_each([*result.goodness.doubts, *chain.from_iterable(signs)])
    failed = result.failures
    sound = [m.law.name for m in result.members if m.law.name not in failed]
    accept = "--accept-diagnostics"
    if sound:
        alone = " ".join(f"--law {name}" for name in sound)
        accept += f"), or leave out the laws that failed ({alone}"
    raise_or_warn(result.warnings, on_failure, accept)
    return result


def of_comparison(
    judged: Comparison,
    runs: pd.DataFrame,
    *,
    drift: bool = True,
    seed: int = 0,
    attrs: Mapping | None = None,
) -> Average:
    """Build the average from a comparison."""
    # drift has its own stream, so that its use does not change which draws are chosen
    rng, drift_rng = generator(seed).spawn(2)
    members = []
    counts = shares(judged.weights)
    for result, weight, draws in zip(
        judged.judged, judged.weights, counts, strict=True
    ):
        if not draws:
            continue
        # the counts of any two draws differ by one at most
        shuffled = rng.permutation(len(result.values["sigma"]))
        chosen = rng.permutation(np.resize(shuffled, draws))
        values = {name: leaf[chosen] for name, leaf in result.values.items()}
        drifts = np.zeros((draws, 2 * len(result.training_range.axes)))
        if drift:
            drifts = draw_drift(result.tau, result.drift_prior, int(draws), drift_rng)
        values[DRIFT] = drifts
        effects = take_effects(result.effects, chosen)
        members.append(
            Member(
                result.law,
                float(weight),
                result.process,
                result.training_range,
                values,
                add_short_names(effects, runs),
            )
        )
    return Average(tuple(members), judged.table, runs, dict(attrs or {"seconds": 0.0}))


def shares(weights: Float[np.ndarray, " law"]) -> Int[np.ndarray, " law"]:
    """Convert weights to numbers of draws, by largest remainders."""
    exact = np.where(weights < LEAST, 0.0, weights)
    exact = exact / exact.sum() * DRAWS
    counts = np.floor(exact).astype(int)
    counts[np.argsort(counts - exact)[: DRAWS - counts.sum()]] += 1
    return counts

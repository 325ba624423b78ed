"""Choose the prior of drift, its scale and mean, by forecasts of other labs' tables.

    python tests/studies/drift_prior.py [--data ../shared/data] [--processes 16]
    python tests/studies/drift_prior.py --adaptation

Each case is judged once. Then the drifts are drawn anew under each prior that is tried, and
the average forecasts again, with the same weights of laws. A prior has a median of the
common scale. For laws of N and D (cases of `real_tables.py`) it also has mean drifts at more
tokens per parameter and at more compute, relative to a side's scale. With ``--adaptation``,
laws of adaptation forecast the folds of the bundled grids (`audit.py`), and scales are either
learned from left-out stages or drawn from the prior.

Prints the cover, error and interval score of each prior, relative to those of the first.
Prints also the scores of each lab's tables (of each grid's folds) with the prior that scores
best on all others, among priors whose intervals hold 90% there, as stated.
"""

import argparse
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import audit
import jax
import numpy as np
import pandas as pd
import real_tables
from averages import scores
from learned_scales import DRAW_SCALES, ROOT, Recorder, kept_posterior, lab_of, replaced
from measured import DATA
from processes import processes
from resumable import study

import bayeslaw
from bayeslaw._base.machine import runtime
from bayeslaw._forecasts.check import interval_score
from bayeslaw._inference.discrepancy import drift
from bayeslaw._law.priors import lognormal
from bayeslaw._posteriors.averaging import judge
from bayeslaw._posteriors.averaging.average import of_comparison
from bayeslaw._posteriors.fits.candidates import default_laws

RESULTS = ROOT / "docs" / "results"
MEANS = ((0.0, 0.0), (2.0, 0.0), (0.0, -2.0), (1.0, -1.0), (2.0, -2.0), (3.0, -3.0))
SPREAD = 0.6  # sd of the log of the common scale


class Prior(NamedTuple):
    """A prior of drift: median of the common scale; mean drift above in D/N and in N D;
    whether left-out stages tell of the scale.
    """

    median: float
    in_tokens: float = 0.0
    in_compute: float = 0.0
    learned: bool = True


PRIOR = list(Prior._fields)


class Kind(NamedTuple):
    """Laws of a kind: their cases, what groups the cases, and priors to try. The first
    prior is what others are compared with.
    """

    cases: Mapping[str, Callable[[Path], real_tables.Case]]
    group: Callable[[str], str]
    tried: tuple[Prior, ...]
    rows: Path


SIZES, ADAPTATION = "laws of N and D", "laws of adaptation"
KINDS = {
    SIZES: Kind(
        {
            name: case
            for name, case in real_tables.CASES.items()
            if not name.startswith((*real_tables.GRIDS, "mixtures"))
        },
        lab_of,
        tuple(Prior(m, *mean) for m in (0.0015, 0.001, 0.0005) for mean in MEANS),
        RESULTS / "drift_prior.csv",
    ),
    ADAPTATION: Kind(
        {
            f"{name}, {kind}": case
            for (kind, name), case in audit.CASES.items()
            if kind in audit.ADAPTATION
        },
        lambda case: case.split(",")[0],  # language and grid
        (
            *(Prior(m, mean) for m in (0.0005, 0.001, 0.0015) for mean in (0.0, 2.0)),
            *(Prior(m, learned=False) for m in (0.0005, 0.001, 0.0015)),
        ),
        RESULTS / "drift_adaptation.csv",
    ),
}


def contest(kind: str, case: str, data: Path, cache: Path) -> list[dict[str, Any]]:
    """Build a row for each prior that is tried."""
    runtime.start()
    warnings.simplefilter("ignore")
    fitted, forecast, reference, laws = KINDS[kind].cases[case](data)
    laws = laws or default_laws(fitted)
    read = {c for name in laws for c in bayeslaw.law(name).covariates}
    at = {c: v for c, v in (reference or {}).items() if c in read}
    recorder = Recorder()
    ours = {"learn_misfit": recorder.learn_misfit, "draw_scales": recorder.draw_scales}
    kept = partial(kept_posterior, cache)
    with replaced(judge, draw_posterior=kept, **ours):
        compared = bayeslaw.compare(fitted, laws, reference=at, seed=real_tables.SEED)
    y = np.log(forecast["loss"].to_numpy())

    rows = []
    for tried in KINDS[kind].tried:
        judged = [drifting(each, recorder, tried) for each in compared.judged]
        again = replace(compared, judged=tuple(judged))
        average = of_comparison(again, fitted, seed=real_tables.SEED)
        draws = average.log_loss(forecast, noise=True, seed=real_tables.SEED)
        low, high = np.quantile(draws, [0.05, 0.95], axis=0)
        held = scores(draws, y, 0.9)
        found = {name: held[name] for name in ("coverage", "width", "mae")}
        found["score"] = float(interval_score(low, high, y).mean())
        rows.append({"group": KINDS[kind].group(case), **tried._asdict(), **found})
    jax.clear_caches()
    return rows


def drifting(judged: judge.Judged, recorder: Recorder, tried: Prior) -> judge.Judged:
    """Give a judged law the drift of another prior."""
    above = {"D/N": tried.in_tokens, "N*D": tried.in_compute}
    axes = judged.training_range.axes
    mean = tuple(m for axis in axes for m in (above.get(axis, 0.0), 0.0))
    prior = drift.DriftPrior(lognormal(tried.median, SPREAD), mean)
    misses = recorder.misses[judged.law.name] if tried.learned else ()
    tau = DRAW_SCALES(misses, prior, np.random.default_rng(real_tables.SEED))
    return replace(judged, tau=tau, drift_prior=prior)


# -- tables ----------------------------------------------------------------------------


def with_ratios(rows: pd.DataFrame) -> pd.DataFrame:
    """Add the logs of score and error relative to those of the first prior."""
    for name in ("score", "mae"):
        first = rows.groupby("case")[name].transform("first")
        rows = rows.assign(**{f"{name}_ratio": np.log(rows[name] / first)})
    return rows


def by_group(rows: pd.DataFrame) -> pd.DataFrame:
    """Average over groups, each the mean of its cases, by prior."""
    of_groups = rows.groupby([*PRIOR, "group"])[["score_ratio", "coverage"]].mean()
    return of_groups.groupby(PRIOR).mean()


def chosen(rows: pd.DataFrame, least: float = 0.9) -> tuple[float, ...]:
    """Choose the prior of least score among those whose intervals hold what they state;
    if none does, among all.
    """
    means = by_group(rows)
    hold = means[means["coverage"] >= least]
    return (hold if len(hold) else means)["score_ratio"].idxmin()


def left_out(rows: pd.DataFrame) -> pd.DataFrame:
    """Select each group's rows under the prior that all others choose."""
    parts = []
    for group, of_group in rows.groupby("group"):
        prior = chosen(rows[rows["group"] != group])
        parts.append(of_group[(of_group[PRIOR] == prior).all(axis=1)])
    return pd.concat(parts)


def line(name: str, rows: pd.DataFrame) -> str:
    groups = rows.groupby("group")[["score_ratio", "mae_ratio"]].mean()
    score, error = np.exp(groups.mean())
    return (
        f"| {name} | {rows['coverage'].mean():.1%} | {(rows['coverage'] < 0.75).sum()} "
        f"| {rows['width'].median():.2%} | {score:.3f} | {error:.3f} |"
    )


def markdown(rows: pd.DataFrame) -> str:
    """Prior by prior, and each group by what the others choose."""
    rows = with_ratios(rows)
    lines = [
        "| median, mean in D/N, in N D | cover | under 75% | width | score | error |",
        "|---|---|---|---|---|---|",
    ]
    for prior, part in rows.groupby(PRIOR, sort=False):
        *numbers, learned = prior
        words = ", ".join(f"{number:g}" for number in numbers)
        lines.append(line(words + ", not learned" * (not learned), part))
    lines.append(line("as the others choose", left_out(rows)))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--adaptation", action="store_true", help="laws of adaptation")
    parser.add_argument(
        "--rows", type=Path, help="default: the kind's, in docs/results"
    )
    parser.add_argument("--cache", type=Path, default=Path("learned_scales_cache"))
    options = parser.parse_args()
    options.cache.mkdir(exist_ok=True)

    def progress(done: int, total: int) -> None:
        print(f"{done} of {total}", file=sys.stderr, flush=True)

    kind = ADAPTATION if options.adaptation else SIZES
    slow = ("farseer", "data_constrained", "microcpt")
    names = sorted(KINDS[kind].cases, key=lambda name: not name.startswith(slow))
    path = options.rows or KINDS[kind].rows
    task = partial(contest, data=options.data, cache=options.cache)
    with processes(options.processes) as executor:
        jobs = [{"kind": kind, "case": name} for name in names]
        rows = study(task, jobs, path, executor=executor, progress=progress)
    print(markdown(rows))


if __name__ == "__main__":
    main()

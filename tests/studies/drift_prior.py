"""Choose the prior of drift, its scale and mean, by forecasts of other labs' tables.

    python tests/studies/drift_prior.py [--data ../shared/data] [--processes 16]

Each case of `real_tables.py` is judged once. Then the drifts are drawn anew under each
prior that is tried, and the average forecasts again, with the same weights of laws. For
laws of N and D a prior has a median of the common scale, and mean drifts at more tokens
per parameter and at more compute, relative to a side's scale. For laws that read the
checkpoint's losses it has the median and sd of the common scale. Laws of other columns
have the scale of laws of N and D without a mean, and are left out.

Prints the cover, error and interval score of each prior, relative to those of the first
prior of its kind. Prints also the scores of each lab's tables with the prior that scores
best on all other labs' tables, among priors whose intervals hold 90% there, as stated.
"""

import argparse
import sys
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
from averages import scores
from learned_scales import DRAW_SCALES, ROOT, Recorder, kept_posterior, lab_of, replaced
from measured import DATA
from processes import processes
from real_tables import CASES, SEED
from resumable import study

import bayeslaw
from bayeslaw._base.machine import runtime
from bayeslaw._forecasts.check import interval_score
from bayeslaw._inference.discrepancy import drift
from bayeslaw._law.columns import starts_from_losses
from bayeslaw._law.priors import lognormal
from bayeslaw._posteriors.averaging import judge
from bayeslaw._posteriors.averaging.average import of_comparison
from bayeslaw._posteriors.fits.candidates import default_laws

SIZE, STATE = "N and D", "checkpoint's losses"
# Priors to try: median and sd of the common scale, mean drift above in D/N and in N*D;
# the first is what others are compared with.
MEANS = ((0.0, 0.0), (2.0, 0.0), (0.0, -2.0), (1.0, -1.0), (2.0, -2.0), (3.0, -3.0))
TRIED = {
    SIZE: [(m, 0.6, *mean) for m in (0.0015, 0.001, 0.0005) for mean in MEANS],
    STATE: [(m, sd, 0.0, 0.0) for m in (0.003, 0.0015, 0.004) for sd in (1.0, 0.6)],
}
PRIOR = ["median", "sd", "D/N", "N*D"]


def contest(case: str, data: Path, cache: Path) -> list[dict[str, Any]]:
    """Build a row for each prior that is tried."""
    runtime.start()
    warnings.simplefilter("ignore")
    fitted, forecast, reference, laws = CASES[case](data)
    laws = laws or default_laws(fitted)
    read = {c for name in laws for c in bayeslaw.law(name).covariates}
    at = {c: v for c, v in (reference or {}).items() if c in read}
    recorder = Recorder()
    ours = {"learn_misfit": recorder.learn_misfit, "draw_scales": recorder.draw_scales}
    with replaced(judge, draw_posterior=partial(kept_posterior, cache), **ours):
        compared = bayeslaw.compare(fitted, laws, reference=at, seed=SEED)
    y = np.log(forecast["loss"].to_numpy())
    kind = STATE if starts_from_losses(read) else SIZE

    rows = []
    for tried in TRIED[kind]:
        judged = [drifting(each, recorder, *tried) for each in compared.judged]
        again = replace(compared, judged=tuple(judged))
        average = of_comparison(again, fitted, seed=SEED)
        draws = average.log_loss(forecast, noise=True, seed=SEED)
        low, high = np.quantile(draws, [0.05, 0.95], axis=0)
        held = scores(draws, y, 0.9)
        found = {name: held[name] for name in ("coverage", "width", "mae")}
        found["score"] = float(interval_score(low, high, y).mean())
        prior = dict(zip(PRIOR, tried, strict=True))
        rows.append({"lab": lab_of(case), "kind": kind, **prior, **found})
    jax.clear_caches()
    return rows


def drifting(
    judged: judge.Judged,
    recorder: Recorder,
    median: float,
    sd: float,
    in_tokens: float,
    in_compute: float,
) -> judge.Judged:
    """Give a judged law the drift of another prior."""
    scale = lognormal(median, sd)
    means = (("D/N", in_tokens), ("N*D", in_compute))
    prior = drift.DriftPriors(scale, scale, scale, means).of(judged.training_range)
    rng = np.random.default_rng(SEED)
    tau = DRAW_SCALES(recorder.misses[judged.law.name], prior, rng)
    return replace(judged, tau=tau, drift_prior=prior)


# -- tables ----------------------------------------------------------------------------


def with_ratios(rows: pd.DataFrame) -> pd.DataFrame:
    """Add the logs of score and error relative to those of the first prior."""
    for name in ("score", "mae"):
        first = rows.groupby("case")[name].transform("first")
        rows = rows.assign(**{f"{name}_ratio": np.log(rows[name] / first)})
    return rows


def by_lab(rows: pd.DataFrame) -> pd.DataFrame:
    """Average over labs, each the mean of its tables, by prior."""
    of_labs = rows.groupby([*PRIOR, "lab"])[["score_ratio", "coverage"]].mean()
    return of_labs.groupby(PRIOR).mean()


def chosen(rows: pd.DataFrame, least: float = 0.9) -> tuple[float, ...]:
    """Choose the prior of least score among those whose intervals hold what they state;
    if none does, among all.
    """
    means = by_lab(rows)
    hold = means[means["coverage"] >= least]
    return (hold if len(hold) else means)["score_ratio"].idxmin()


def left_out(rows: pd.DataFrame) -> pd.DataFrame:
    """Select each lab's rows under the prior that all other labs choose."""
    parts = []
    for lab, of_lab in rows.groupby("lab"):
        prior = chosen(rows[rows["lab"] != lab])
        parts.append(of_lab[(of_lab[PRIOR] == prior).all(axis=1)])
    return pd.concat(parts)


def line(name: str, rows: pd.DataFrame) -> str:
    labs = rows.groupby("lab")[["score_ratio", "mae_ratio"]].mean()
    score, error = np.exp(labs.mean())
    return (
        f"| {name} | {rows['coverage'].mean():.1%} | {(rows['coverage'] < 0.75).sum()} "
        f"| {rows['width'].median():.2%} | {score:.3f} | {error:.3f} |"
    )


def markdown(rows: pd.DataFrame) -> str:
    """Both kinds of law, prior by prior, and each lab by what the others choose."""
    rows = with_ratios(rows)
    lines = [
        "| laws: median, sd, mean in D/N, in N D | cover | under 75% | width "
        "| score, by lab | error, by lab |",
        "|---|---|---|---|---|---|",
    ]
    for kind, of_kind in rows.groupby("kind", sort=False):
        for prior, part in of_kind.groupby(PRIOR, sort=False):
            lines.append(line(f"{kind}: {', '.join(f'{p:g}' for p in prior)}", part))
        lines.append(line(f"{kind}: as other labs choose", left_out(of_kind)))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument(
        "--rows", type=Path, default=ROOT / "docs/results/drift_prior.csv"
    )
    parser.add_argument("--cache", type=Path, default=Path("learned_scales_cache"))
    options = parser.parse_args()
    options.cache.mkdir(exist_ok=True)

    def progress(done: int, total: int) -> None:
        print(f"{done} of {total}", file=sys.stderr, flush=True)

    slow = ("farseer", "data_constrained", "microcpt")
    names = [name for name in CASES if not name.startswith("mixtures")]
    names.sort(key=lambda name: not name.startswith(slow))
    task = partial(contest, data=options.data, cache=options.cache)
    with processes(options.processes) as executor:
        jobs = [{"case": name} for name in names]
        rows = study(task, jobs, options.rows, executor=executor, progress=progress)
    print(markdown(rows))


if __name__ == "__main__":
    main()

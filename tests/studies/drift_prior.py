"""The prior of drift's common scale, chosen by forecasts of the tables of other labs.

    python tests/studies/drift_prior.py [--data ../shared/data] [--processes 16]

Each case of `real_tables.py` is judged once; then the drifts are drawn anew under each
prior tried, a log-normal by median and sd, and the average forecasts again (weights of
laws stay). Shown, apart for laws of size and tokens and for laws that read the
checkpoint's losses: cover and interval score of each prior over those of the prior set by
hand, and what a lab's tables get from the prior that scores best on all others', among
those whose intervals hold there the 90% that they state.
"""

import argparse
import sys
import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import product
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

import bayeslaw
from bayeslaw._base.machine import runtime
from bayeslaw._forecasts.check import interval_score
from bayeslaw._inference.discrepancy.axes import AXES
from bayeslaw._law.priors import lognormal
from bayeslaw._posteriors.averaging import judge
from bayeslaw._posteriors.averaging.average import of_comparison
from bayeslaw._posteriors.fits.candidates import default_laws
from bayeslaw._studies.resumable import study

MEDIANS, SPREADS = (0.0012, 0.0015, 0.002, 0.003, 0.004), (0.3, 0.6, 1.0)
HAND = {False: (0.0015, 1.0), True: (0.003, 1.0)}  # set by hand; of laws of the losses


def contest(case: str, data: Path, cache: Path) -> list[dict[str, Any]]:
    """A row for the prior in use and each that is tried."""
    runtime.start()
    warnings.simplefilter("ignore")
    fitted, forecast, reference, laws = CASES[case](data)
    laws = laws or default_laws(fitted)
    read = {c for name in laws for c in bayeslaw.law(name).covariates}
    at = {c: v for c, v in (reference or {}).items() if c in read}
    recorder = Recorder()
    ours = {"learn_misfit": recorder.learn_misfit, "draw_scales": recorder.draw_scales}
    with replaced(judge, _posterior=partial(kept_posterior, cache), **ours):
        compared = bayeslaw.compare(fitted, laws, reference=at, seed=SEED)
    y = np.log(forecast["loss"].to_numpy())
    about = {"lab": lab_of(case), "state": bool(set(AXES.starts) & read)}

    rows = []
    for median, sd in product(MEDIANS, SPREADS):
        judged = []
        for each in compared.judged:
            misses, sides = recorder.misses[each.law.name]
            rng = np.random.default_rng(SEED)
            tau = DRAW_SCALES(misses, sides, rng, lognormal(median, sd))
            judged.append(replace(each, tau=tau))
        again = replace(compared, judged=tuple(judged))
        average = of_comparison(again, fitted, seed=SEED)
        draws = average.log_loss(forecast, noise=True, seed=SEED)
        low, high = np.quantile(draws, [0.05, 0.95], axis=0)
        held = scores(draws, y, 0.9)
        found = {name: held[name] for name in ("coverage", "width")}
        found["score"] = float(interval_score(low, high, y).mean())
        rows.append({**about, "median": median, "sd": sd, **found})
    jax.clear_caches()
    return rows


# -- tables ----------------------------------------------------------------------------


def with_ratios(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with the log of their score over that of the prior set by hand."""
    at = zip(rows["state"], rows["median"], rows["sd"], strict=True)
    is_hand = [HAND[bool(state)] == (median, sd) for state, median, sd in at]
    by_hand = rows[is_hand].set_index("case")["score"]
    return rows.assign(ratio=np.log(rows["score"] / rows["case"].map(by_hand)))


def by_lab(rows: pd.DataFrame) -> pd.DataFrame:
    """Means over labs, each the mean of its tables, by prior."""
    of_labs = rows.groupby(["median", "sd", "lab"])[["ratio", "coverage"]].mean()
    return of_labs.groupby(["median", "sd"]).mean()


def chosen(rows: pd.DataFrame, least: float = 0.9) -> tuple[float, float]:
    """The prior of least score among those whose intervals hold what they state, or
    among all where none does.
    """
    means = by_lab(rows)
    hold = means[means["coverage"] >= least]
    return (hold if len(hold) else means)["ratio"].idxmin()


def left_out(rows: pd.DataFrame) -> pd.DataFrame:
    """Each lab's rows under the prior that all other labs choose."""
    parts = []
    for lab, of_lab in rows.groupby("lab"):
        median, sd = chosen(rows[rows["lab"] != lab])
        parts.append(of_lab[(of_lab["median"] == median) & (of_lab["sd"] == sd)])
    return pd.concat(parts)


def line(name: str, rows: pd.DataFrame) -> str:
    labs = rows.groupby("lab")["ratio"].mean()
    return (
        f"| {name} | {rows['coverage'].mean():.1%} | {(rows['coverage'] < 0.75).sum()} "
        f"| {rows['width'].median():.2%} | {np.exp(rows['ratio'].mean()):.3f} "
        f"| {np.exp(labs.mean()):.3f} |"
    )


def markdown(rows: pd.DataFrame) -> str:
    """Both classes of law, prior by prior, and each lab by what the others choose."""
    rows = with_ratios(rows)
    lines = [
        "| laws: prior's median, sd | cover | under 75% | width | score over | by lab |",
        "|---|---|---|---|---|---|",
    ]
    classes: Mapping[bool, str] = {False: "N and D", True: "checkpoint's losses"}
    for state, name in classes.items():
        of_class = rows[rows["state"] == state]
        for (median, sd), part in of_class.groupby(["median", "sd"]):
            by_hand = ", by hand" if HAND[state] == (median, sd) else ""
            lines.append(line(f"{name}: {median:g}, {sd:g}{by_hand}", part))
        lines.append(line(f"{name}: as other labs choose", left_out(of_class)))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--rows", type=Path, default=ROOT / "docs" / "drift_prior.csv")
    parser.add_argument("--cache", type=Path, default=Path("learned_scales_cache"))
    options = parser.parse_args()
    options.cache.mkdir(exist_ok=True)

    def progress(done: int, total: int) -> None:
        print(f"{done} of {total}", file=sys.stderr, flush=True)

    slow = ("farseer", "mixtures", "data_constrained", "microcpt")
    names = sorted(CASES, key=lambda name: not name.startswith(slow))
    task = partial(contest, data=options.data, cache=options.cache)
    with processes(options.processes) as executor:
        jobs = [{"case": name} for name in names]
        rows = study(task, jobs, options.rows, executor=executor, progress=progress)
    print(markdown(rows))


if __name__ == "__main__":
    main()

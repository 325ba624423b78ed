"""200 posteriors and 1,000 point fits of Chinchilla's law: in one batch, and one after another, in one run.

    python tests/studies/benchmarks/refits.py [--refits 200] [--loops 10] [--resamples 1000]

Posteriors: leave-one-size-out and bootstrap tables, by `bayeslaw.refits`, against a loop of `bayeslaw.fit` (4 chains,
1,000 draws) whose programs are already compiled; ``--loops`` of the loop's fits are timed and compared. Agreement: largest
difference of means and of sds over parameters, in Monte Carlo standard errors of the difference. Point fits: `point_fit` with
its bootstrap against scipy's L-BFGS-B on each resample, started at the best fit (``--loops`` x 10 of them timed).
"""

import argparse
import time
import warnings

import numpy as np
import pandas as pd
from scipy.optimize import minimize

import bayeslaw

LAW, NAMES = "chinchilla", ("E_nats", "A_nats", "B_nats", "alpha", "beta", "sigma")


def table() -> pd.DataFrame:
    grid = pd.MultiIndex.from_product(
        [np.geomspace(5e7, 8e9, 10), np.geomspace(1e9, 2e11, 10)], names=["N", "D"]
    )
    return bayeslaw.simulate(LAW, design=grid.to_frame(index=False), seed=3)


def masks(runs: pd.DataFrame, count: int) -> np.ndarray:
    """Each size left out, then bootstrap counts, shape (refit, row)."""
    left_out = np.array([(runs["N"] != n) * 1.0 for n in runs["N"].unique()])
    return np.concatenate(
        [left_out, bayeslaw.bootstrap_weights(len(runs), count - len(left_out), seed=1)]
    )


def rows_of(runs: pd.DataFrame, counts: np.ndarray) -> pd.DataFrame:
    return runs.loc[runs.index.repeat(counts.astype(int))].reset_index(drop=True)


def apart(refit: bayeslaw.Refit, fit: bayeslaw.Fit) -> tuple[float, float]:
    """Differences of means and sds in standard errors, the largest over parameters."""
    from bayeslaw._inference.diagnostics import rhat_and_ess

    theirs = {n: fit.inference_data["posterior"][n].to_numpy() for n in NAMES}
    _, ess = rhat_and_ess(theirs)
    means, sds = [], []
    for n in NAMES:
        sd, each = (
            theirs[n].std(),
            1 / min(refit.note["ess"], len(refit.values[n])) + 1 / ess[n],
        )
        means.append(
            abs(refit.values[n].mean() - theirs[n].mean()) / (sd * np.sqrt(each))
        )
        sds.append(abs(refit.values[n].std() - sd) / (sd * np.sqrt(each / 2)))
    return max(means), max(sds)


def posteriors(count: int, loops: int) -> None:
    runs = table()
    weights = masks(runs, count)
    bayeslaw.refits(runs, LAW, weights[:1], independent=True)
    began = time.perf_counter()
    found = bayeslaw.refits(runs, LAW, weights, independent=True, draws=4000)
    batch = time.perf_counter() - began
    chosen = np.linspace(0, count - 1, loops).astype(int)
    for i in chosen[:2]:  # compiles both padded sizes
        bayeslaw.fit(
            rows_of(runs, weights[i]), LAW, independent=True, on_failure="ignore"
        )
    fits, seconds = [], []
    for i in chosen:
        began = time.perf_counter()
        fits.append(
            bayeslaw.fit(
                rows_of(runs, weights[i]),
                LAW,
                independent=True,
                seed=int(i),
                on_failure="ignore",
            )
        )
        seconds.append(time.perf_counter() - began)
    loop = float(np.median(seconds)) * count
    worst = np.max(
        [apart(found[i], fit) for i, fit in zip(chosen, fits, strict=True)], axis=0
    )
    nuts = sum(f.note["sampler"].startswith("NUTS") for f in found)
    print(
        f"{count} posteriors: {batch:.1f} s ({1e3 * batch / count:.0f} ms each, {nuts} by NUTS), a loop of compiled fits "
        f"{loop:.0f} s ({np.median(seconds):.2f} s each): {loop / batch:.1f} times; means within {worst[0]:.1f} and sds "
        f"within {worst[1]:.1f} standard errors over {loops} x {len(NAMES)} quantities"
    )


def point_fits(resamples: int, loops: int) -> None:
    runs = table()
    bayeslaw.point_fit(runs, bayeslaw.law(LAW), bootstrap=resamples)
    began = time.perf_counter()
    fit = bayeslaw.point_fit(runs, bayeslaw.law(LAW), bootstrap=resamples, seed=1)
    batch = time.perf_counter() - began
    n, d, y = (runs[c].to_numpy() for c in ("N", "D", "loss"))

    def objective(p, n, d, y):
        miss = np.log(
            np.exp(p[0]) + np.exp(p[1]) / n ** p[3] + np.exp(p[2]) / d ** p[4]
        ) - np.log(y)
        size = np.abs(miss)
        return (
            np.sum(np.where(size > 0.02, 0.02 * (size - 0.01), miss**2 / 2)) / 0.02**2
        )  # so that it does not stop at once

    best = fit.parameters
    start = np.array(
        [
            np.log(best["E"]),
            np.log(best["A"]),
            np.log(best["B"]),
            best["alpha"],
            best["beta"],
        ]
    )
    rng, began = np.random.default_rng(2), time.perf_counter()
    found = []
    for _ in range(10 * loops):
        at = rng.integers(len(y), size=len(y))
        found.append(
            minimize(objective, start, (n[at], d[at], y[at]), method="L-BFGS-B").x[3]
        )
    loop = (time.perf_counter() - began) / (10 * loops) * resamples
    print(
        f"point fit with {resamples} bootstraps: {batch:.2f} s, scipy in a loop {loop:.1f} s: {loop / batch:.1f} times; "
        f"sd of alpha {np.std(fit.bootstrap['alpha']):.4f} and {np.std(found):.4f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--refits", type=int, default=200)
    parser.add_argument("--loops", type=int, default=10)
    parser.add_argument("--resamples", type=int, default=1000)
    parser.add_argument("--point-only", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if not options.point_only:
        posteriors(options.refits, options.loops)
    point_fits(options.resamples, options.loops)


if __name__ == "__main__":
    main()

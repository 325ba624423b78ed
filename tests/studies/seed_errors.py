"""Measure how two seeds of tiny models differ by replay: docs/state_laws.md.

    python tests/studies/seed_errors.py

Runs of `microcpt` and `microcpt-de` from 3.9 tokens per parameter on that two seeds have in common. Source losses are relative to the
checkpoint's. The sd of log loss falls with the share of the data that is of the loss's own domain by a power: the slope of the log sd,
with a 90% interval by resampling the pairs of checkpoints.
"""

import numpy as np
import pandas as pd

from bayeslaw import datasets


def variances(table: str, domain: str) -> pd.DataFrame:
    """Compute the variance of log loss between seeds: a row for each pair of checkpoints, a
    column for each share of the own domain.
    """
    runs = datasets.load(table)
    runs = runs[(runs["domain"] == domain) & (runs["D"] > 3.9 * runs["N"])]
    level = runs["source_loss_before"] if domain == "source" else 1.0
    share = runs["replay"] if domain == "source" else 1 - runs["replay"]
    runs = runs.assign(log_loss=np.log(runs["loss"] / level), share=share)
    between = runs.groupby(["N", "ptpp", "share", "D"])["log_loss"].var().dropna()
    return between.groupby(["N", "ptpp", "share"]).mean().unstack("share")


def power(variance: pd.DataFrame) -> float:
    """Compute the power of the share by which the sd falls."""
    mean = variance.mean()
    return -np.polyfit(np.log(mean.index), np.log(mean) / 2, 1)[0]


def main() -> None:
    rng = np.random.default_rng(0)
    print("| table | domain | pairs | sd at the least share | at the most | power |")
    print("|---|---|---|---|---|---|")
    for table in ("microcpt", "microcpt-de"):
        for domain in ("source", "target"):
            of_pairs = variances(table, domain)
            pairs = len(of_pairs)
            drawn = rng.integers(pairs, size=(1000, pairs))
            powers = [power(of_pairs.iloc[chosen]) for chosen in drawn]
            low, high = np.quantile(powers, [0.05, 0.95])
            sds = 100 * np.sqrt(of_pairs.mean())
            print(
                f"| {table} | {domain} | {pairs} | {sds.iloc[0]:.2f}% | {sds.iloc[-1]:.2f}% | "
                f"{power(of_pairs):.2f} ({low:.2f} to {high:.2f}) |"
            )


if __name__ == "__main__":
    main()

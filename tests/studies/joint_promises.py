"""Check joint promises on measured grids, with independent and with correlated errors of the domains.

    python tests/studies/joint_promises.py [-o docs/results/joint_promises.txt]

Each stage and each size of the bundled grids is left out in turn. Target and source are fitted to the other rows separately, by previews of a pair of laws.
At every left-out row that is measured in both domains, the probability of keeping both limits is forecast twice: with draws paired at random, and with draws
paired by the correlation of the residuals at the fitted rows. Limits are quantiles of each domain's forecast (50%, 80%, 90%), so each single promise has this
probability. Whether limits are kept is decided by the measured losses. The Brier score is that of the probability that both limits are kept, averaged over rows
and limits. The last columns are the correlation by which draws were paired, and that of the measured errors in sds of the forecast.
"""

import argparse
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

import bayeslaw
from bayeslaw import datasets
from bayeslaw._posteriors.pairs import coupled, error_correlation
from bayeslaw._tables import fitting

GRIDS = ("microcpt", "microcpt-de", "minicpt", "minicpt-de", "simulated-ptpp-grid")
PAIRS = {
    "state": {"target": "state-target", "source": "state-source"},
    "floor": {"target": "ptpp-gate-floor", "source": "ptpp-floor"},
}
LEVELS = (0.5, 0.8, 0.9)
KEYS = ["N", "ptpp", "D", "replay", "seed", "step"]


def fit(runs: pd.DataFrame, law: str, table: str) -> bayeslaw.Fit:
    reads = bayeslaw.law(law).covariates
    reference = datasets.TABLES[table].reference
    return bayeslaw.fit(
        runs,
        law,
        preview=True,
        on_failure="ignore",
        reference={k: v for k, v in reference.items() if k in reads},
    )


def draws_at(posterior, rows: pd.DataFrame, noise: np.ndarray) -> np.ndarray:
    """Log losses of one new run at each row, shape (draw, row): one error for all."""
    (piece,) = posterior.pieces()
    return piece.at(fitting.covariates(posterior.law, rows)) + noise[:, None]


def outcomes(fits, held: dict[str, pd.DataFrame], seed: int) -> list[dict]:
    """Compute the promises at each row left out, by way of pairing."""
    errors = error_correlation(fits)
    rng = np.random.default_rng(seed)
    rows = []
    for _, target in held["target"].groupby(["N", "ptpp"]):
        index = target.index
        parts = {"target": target, "source": held["source"].loc[index]}
        noise = {d: fits[d].pieces()[0].noise.draw(1, rng)[:, 0] for d in fits}
        orders = {d: rng.permutation(len(noise[d])) for d in fits}
        size = min(map(len, noise.values()))
        draws = {
            d: draws_at(fits[d], parts[d], noise[d])[orders[d][:size]] for d in fits
        }
        paired = draws
        if errors is not None:
            middle = {
                d: parts[d]
                .head(1)
                .assign(D=errors.atpp * parts[d]["N"].iloc[0], replay=errors.replay)
                for d in fits
            }
            scores = np.stack(
                [
                    draws_at(fits[d], middle[d], noise[d])[orders[d][:size], 0]
                    for d in fits
                ]
            )
            together = coupled(scores, errors, rng)
            paired = {d: draws[d][o] for d, o in zip(fits, together, strict=True)}
        measured = {d: np.log(parts[d]["loss"].to_numpy(float)) for d in fits}
        z = {d: (measured[d] - draws[d].mean(0)) / draws[d].std(0) for d in fits}
        for level in LEVELS:
            limits = {d: np.quantile(draws[d], level, axis=0) for d in fits}
            both = {
                way: np.all([of[d] <= limits[d] for d in fits], axis=0).mean(0)
                for way, of in (("independent", draws), ("correlated", paired))
            }
            kept = np.all([measured[d] <= limits[d] for d in fits], axis=0)
            for j in range(len(index)):
                rows.append(
                    {
                        "level": level,
                        "kept": kept[j],
                        "correlation": 0.0 if errors is None else errors.matrix[0, 1],
                        "z_target": z["target"][j],
                        "z_source": z["source"][j],
                        **{way: p[j] for way, p in both.items()},
                    }
                )
    return rows


def study(name: str, laws: dict[str, str], which: str) -> pd.DataFrame:
    """All rows of a grid left out, by stages and by sizes."""
    runs = datasets.load(name)
    where = datasets.TABLES[name].where
    runs = runs.query(where) if where else runs
    if "step" in runs and where is None and name != "simulated-ptpp-grid":
        runs = runs[runs["D"] > 4 * runs["N"]]
    keys = [key for key in KEYS if key in runs]
    parts = {
        d: part.drop_duplicates(keys)
        .set_index(keys, drop=False)
        .rename_axis([None] * len(keys))
        for d, part in runs.groupby("domain")
    }
    both = parts["target"].index.intersection(parts["source"].index)
    rows = []
    for column in ("ptpp", "N"):
        levels = sorted(runs[column].unique())
        for level in levels if len(levels) > 2 else []:
            fits, held = {}, {}
            for domain, law in laws.items():
                part = parts[domain].loc[both]
                seen = part[part[column] != level].reset_index(drop=True)
                fits[domain] = fit(seen, law, name)
                held[domain] = part[part[column] == level].reset_index(drop=True)
            rows += outcomes(fits, held, seed=len(rows))
            print(name, which, column, level, len(rows), flush=True)
    return pd.DataFrame(rows).assign(grid=name, laws=which)


def markdown(rows: pd.DataFrame) -> str:
    heads = [
        "grid", "laws", "rows", "promised, independent", "correlated", "kept",
        "at 90% each: independent", "correlated", "kept", "Brier, independent", "correlated",
        "correlation", "of measured errors",
    ]  # fmt: skip
    lines = [heads, ["---"] * len(heads)]
    for (grid, which), part in rows.groupby(["grid", "laws"], sort=False):
        at = part[part["level"] == 0.9]
        brier = {
            w: ((part[w] - part["kept"]) ** 2).mean()
            for w in ("independent", "correlated")
        }
        lines.append(
            [
                grid,
                which,
                str(len(at)),
                *(
                    f"{part[w].mean():.1%}"
                    for w in ("independent", "correlated", "kept")
                ),
                *(f"{at[w].mean():.1%}" for w in ("independent", "correlated", "kept")),
                *(f"{b:.4f}" for b in brier.values()),
                f"{at['correlation'].median():+.2f}",
                f"{at['z_target'].corr(at['z_source']):+.2f}",
            ]
        )
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--grids", default=",".join(GRIDS))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    parts = []
    for name in arguments.grids.split(","):
        for which, laws in PAIRS.items():
            has = "loss_before" in datasets.load(name) or which != "state"
            if has:
                parts.append(study(name, laws, which))
    table = markdown(pd.concat(parts))
    print(table)
    if arguments.output:
        arguments.output.write_text(table + "\n")


if __name__ == "__main__":
    main()

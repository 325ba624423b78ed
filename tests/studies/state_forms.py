"""Fit forms of the state laws to several sizes by point fits, and measure their errors at an unseen stage, size and budget.

    python tests/studies/state_forms.py [RUNS.csv]

RUNS is a table of `harness` (by default the bundled one), with steps after the warm-up. Each fit is the best of six starts of
least squares of log loss with a soft-l1 loss at 2%; errors are RMSE of log loss. The study is a quick look at many forms, to choose those that
`state_laws.py` tries with posteriors. All forms are defined here and not taken from `models`, so that the results do not change with the laws.
"""

import argparse
from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd
from numpy import exp
from scipy.optimize import least_squares

import bayeslaw
from bayeslaw import datasets

WARM = 20  # steps of adaptation from which rows count
SMALL = 2e5  # the largest size is left for the last column


def way(x, h, scale, beta, outside=0.0, inside=0.0):
    """Share of the way to the floor."""
    seen = x["D"] * x["N"] ** h * exp(-scale) * (1 - x["r"]) ** inside
    return (1 - x["r"]) ** outside * -np.expm1(-exp(beta) * np.log1p(seen))


def to(x, floor, share):
    return x["T0"] + (floor - x["T0"]) * share


def form1(x, p):
    size, tokens = (
        exp(p[1]) * x["N"] ** -exp(p[2]),
        exp(p[3]) * x["r"] ** p[4] * x["D"] ** -exp(p[5]),
    )
    replay, stage = (
        exp(p[6]) * (x["r"] + 0.01) ** -exp(p[7]),
        exp(p[8]) * (x["p"] / 100) ** -exp(p[9]),
    )
    return exp(p[0]) + size + tokens + replay + stage


def gap(x, p, per=lambda x: 1.0):
    moved = (
        exp(p[0])
        * x["N"] ** p[1]
        * exp(-exp(p[3]) * x["r"])
        * -np.expm1(-x["D"] * exp(-p[4]))
    )
    fallen = (
        exp(p[5]) * np.log1p(x["r"] * x["D"] / per(x) * exp(-p[6]))
        if len(p) > 5
        else 0.0
    )
    return x["S0"] + (exp(p[2]) - x["S0"]) * moved - fallen


FORM1 = ("Form 1", form1, [0, -1, -1, -1, 0.2, -1.4, -4, -1, -2, -1])
FORMS: dict[str, list[tuple[str, Callable, list[float]]]] = {
    "target": [
        ("floor c S0, replay outside (as it is)", lambda x, p: to(x, exp(p[0]) * x["S0"], way(x, *p[1:4], p[4])), [-0.3, 0, -3, -0.7, 0.3]),
        ("floor c S0, replay inside (as proposed)", lambda x, p: to(x, exp(p[0]) * x["S0"], way(x, *p[1:4], 0, p[4])), [-0.3, 0, -3, -0.7, 0.3]),
        ("floor c S0, both", lambda x, p: to(x, exp(p[0]) * x["S0"], way(x, *p[1:6])), [-0.3, 0, -3, -0.7, 0.3, 0.3]),
        ("floor c sqrt(S0), outside", lambda x, p: to(x, exp(p[0]) * x["S0"] ** 0.5, way(x, *p[1:4], p[4])), [0.1, 0, -3, -0.7, 0.3]),
        ("floor c S0^s, outside", lambda x, p: to(x, exp(p[0]) * x["S0"] ** p[5], way(x, *p[1:4], p[4])), [0.1, 0, -3, -0.7, 0.3, 0.5]),
        ("floor c S0^s N^-m, outside", lambda x, p: to(x, exp(p[0]) * x["S0"] ** p[5] * x["N"] ** -p[6], way(x, *p[1:4], p[4])), [0.1, 0, -3, -0.7, 0.3, 0.5, 0.1]),
        ("floor c S0, inside, no N^h", lambda x, p: to(x, exp(p[0]) * x["S0"], way(x, 0, *p[1:3], 0, p[3])), [-0.3, -3, -0.7, 0.3]),
        FORM1,
    ],
    "source": [
        ("as it is", gap, [-1, 0, 1.4, 1, -3, -3, -3]),
        ("no G (as proposed)", gap, [-1, 0, 1.4, 1, -3]),
        ("G of r D/(N ptpp)", lambda x, p: gap(x, p, lambda x: x["N"] * x["p"]), [-1, 0, 1.4, 1, -3, -3, -3]),
        FORM1,
    ],
}  # fmt: skip


def columns(runs: pd.DataFrame) -> dict[str, np.ndarray]:
    """Size in 1e5 parameters, tokens in 1e6."""
    names = {
        "r": "replay",
        "S0": "source_loss_before",
        "T0": "loss_before",
        "p": "ptpp",
        "y": "loss",
    }
    x = {k: runs[c].to_numpy(float) for k, c in names.items()}
    return x | {
        "N": runs["N"].to_numpy(float) / 1e5,
        "D": runs["D"].to_numpy(float) / 1e6,
        "y": np.log(x["y"]),
    }


def misses(form: Callable, p: np.ndarray, x: dict[str, np.ndarray]) -> np.ndarray:
    return np.nan_to_num(
        np.log(np.maximum(form(x, p), 1e-3)) - x["y"], nan=9, posinf=9, neginf=-9
    )


def fitted(form: Callable, start: list[float], x: dict[str, np.ndarray]) -> np.ndarray:
    rng = np.random.default_rng(0)
    starts = [
        np.array(start, float) + (0.3 * rng.normal(size=len(start)) if k else 0)
        for k in range(6)
    ]
    with np.errstate(all="ignore"):
        found = [
            least_squares(
                lambda p: misses(form, p, x),
                s,
                loss="soft_l1",
                f_scale=0.02,
                max_nfev=3000,
            )
            for s in starts
        ]
    return min(found, key=lambda r: r.cost).x


def splits(runs: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame, pd.DataFrame]]:
    small, last = runs[runs["N"] < SMALL], runs["ptpp"].max()
    largest, atpp = small["N"].max(), small["D"] / small["N"]
    early, late = small["ptpp"] < last, small["ptpp"] == last
    yield "in the sample", small, small
    yield f"ptpp {last:g}", small[early], small[late]
    yield f"ptpp {last:g} from 15, 31", small[small["ptpp"] < 50], small[late]
    yield (
        f"123k at {last:g}",
        small[early & (small["N"] < largest)],
        small[late & (small["N"] == largest)],
    )
    yield "10 tokens a parameter and more", small[atpp < 9], small[atpp > 9]
    yield "259k", small, runs[runs["N"] > SMALL]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="?")
    options = parser.parse_args()
    runs = (
        bayeslaw.read_runs(options.runs) if options.runs else datasets.load("microcpt")
    )
    runs = runs[runs["step"] >= WARM]
    for domain, forms in FORMS.items():
        own = runs[runs["domain"] == domain]
        names = [name for name, _, _ in splits(own)]
        print(
            f"\n| {domain} | " + " | ".join(names) + " |\n|---|" + "---|" * len(names)
        )
        for name, form, start in forms:
            found = []
            for _, train, test in splits(own):
                e = misses(form, fitted(form, start, columns(train)), columns(test))
                found.append(f"{np.sqrt(np.mean(e**2)):.1%}")
            print(f"| {name} | " + " | ".join(found) + " |", flush=True)


if __name__ == "__main__":
    main()

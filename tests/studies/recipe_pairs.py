"""Choose between pairs of simulated recipes at a goal: docs/howto/recipes.md.

    python tests/studies/recipe_pairs.py [--pairs 100] [-o docs/results/recipe_pairs.txt]

A pair is two recipes at three sizes by three token counts by three seeds. They follow laws
of N and D that differ in the efficiency of parameters and of tokens, in exponents and in
the floor. Both err from the law by the same smooth .3%, which the fitted law does not
know, and each run by .4%. A law is fitted as a preview and the goal has ten times the
largest size and tokens. The truth is the recipes' own losses there; tokens are found by
brute force (bisection). Rivals: the recipe with the lower mean loss at the largest runs, and
three seeds of both that are trained at the goal.
"""

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import brentq

import bayeslaw

SIZES, RATIOS, SEEDS = (5e7, 1e8, 2e8), (10, 20, 40), 3
GOAL = {"N": 2e9, "D": 8e10}
NOISE, MISFIT = 0.004, 0.003
Loss = Callable[[float, float], float]  # log loss at N and D


def two_recipes(rng: np.random.Generator) -> list[Loss]:
    """Draw two recipes of one world."""
    E, alpha, beta = rng.normal([1.8, 0.34, 0.35], [0.1, 0.03, 0.03])
    of_size, of_data = np.exp(rng.normal(np.log([0.4, 0.4]), 0.2))  # nats at 1B, 20B
    phases = rng.uniform(0, 2 * np.pi, 2)

    def recipe() -> Loss:
        parameters, tokens = np.exp(rng.normal(0, 0.15, 2))
        a, b = np.exp(rng.normal(0, 0.02, 2))
        floor = E + rng.normal(0, 0.01)

        def log_loss(N: float, D: float) -> float:
            size = of_size * (N * parameters / 1e9) ** (-alpha * a)
            data = of_data * (D * tokens / 2e10) ** (-beta * b)
            waves = np.sin(np.log([N, D]) / 1.5 + phases).sum()
            return float(np.log(floor + size + data) + MISFIT * waves / np.sqrt(2))

        return log_loss

    return [recipe(), recipe()]


def runs_of(recipes: list[Loss], rng: np.random.Generator) -> pd.DataFrame:
    """Train both recipes on the grid."""
    rows = [
        {
            "optimizer": name,
            "N": N,
            "D": N * ratio,
            "seed": seed,
            "log": one(N, N * ratio),
        }
        for name, one in zip("ab", recipes, strict=True)
        for N in SIZES
        for ratio in RATIOS
        for seed in range(SEEDS)
    ]
    runs = pd.DataFrame(rows)
    noise = NOISE * rng.standard_normal(len(runs))
    return runs.assign(loss=np.exp(runs["log"] + noise)).drop(columns="log")


def tokens_for(recipe: Loss, level: float) -> float:
    """Tokens at which a recipe of the goal's size has a log loss; infinite if none."""
    ends = np.log(GOAL["D"]) + np.log([1e-2, 1e3])

    def short(log_tokens: float) -> float:
        return recipe(GOAL["N"], np.exp(log_tokens)) - level

    if short(ends[1]) > 0:
        return np.inf
    return float(np.exp(brentq(short, *ends)))


def judge(seed: int) -> dict[str, float]:
    """Simulate one pair, choose, and compare with the truth."""
    rng = np.random.default_rng([seed, 60])
    recipes = dict(zip("ab", two_recipes(rng), strict=True))
    runs = runs_of(list(recipes.values()), rng)
    chosen = bayeslaw.choose_recipe(
        runs, "optimizer", GOAL, "chinchilla", preview=True, on_failure="ignore"
    )
    truth = {name: one(GOAL["N"], GOAL["D"]) for name, one in recipes.items()}
    (pair,) = chosen.pairs
    first, other = pair["recipe"], pair["other"]
    new = {name: loss + NOISE * rng.standard_normal(3) for name, loss in truth.items()}
    trained = min(new, key=lambda name: new[name].mean())
    tokens = tokens_for(recipes[other], truth[first])
    ends = [np.inf if v is None else v for v in pair["tokens"].values()]
    choices = chosen.choices
    assert choices["forecast"] is not None
    assert choices["measured"] is not None
    regret = {
        how: np.expm1(truth[name] - min(truth.values()))
        for how, name in (
            ("forecast", choices["forecast"]["recipe"]),
            ("measured", choices["measured"]["recipe"]),
            ("trained", trained),
        )
    }
    gap = np.expm1(truth[first] - truth[other])
    return {
        "stated": pair["law_probability"],
        "is_better": float(truth[first] < truth[other]),
        "stated_run": pair["probability"],
        "is_better_run": float(new[first][0] < new[other][0]),
        "gap_inside": pair["difference"]["low"] <= gap <= pair["difference"]["high"],
        "tokens_inside": ends[1] <= tokens <= ends[2],
        "stated_regret": choices["forecast"]["regret"]["mean"],
        "stated_regret_measured": choices["measured"]["regret"]["mean"],
        "warned": float(bool(chosen.warnings)),
    } | {f"regret_{how}": value for how, value in regret.items()}


def summarise(pairs: pd.DataFrame) -> list[str]:
    """Write the table of the documentation."""

    def brier(stated: str, came: str) -> float:
        return float(((pairs[stated] - pairs[came]) ** 2).mean())

    lines = [
        "| of two recipes at the goal | stated | came true | Brier |",
        "|---|---|---|---|",
    ]
    for what, stated, came in (
        ("the first is better on average", "stated", "is_better"),
        ("run against run", "stated_run", "is_better_run"),
    ):
        lines.append(
            f"| {what} | {pairs[stated].mean():.0%} | {pairs[came].mean():.0%} | "
            f"{brier(stated, came):.3f} |"
        )
    for low, high in ((0.5, 0.75), (0.75, 0.95), (0.95, 1.01)):
        part = pairs[pairs["stated"].between(low, high, inclusive="left")]
        if len(part):
            lines.append(
                f"| on average, stated {low:.0%} to {min(high, 1):.0%} ({len(part)}) | "
                f"{part['stated'].mean():.0%} | {part['is_better'].mean():.0%} | |"
            )
    for what, column in (("difference", "gap_inside"), ("tokens", "tokens_inside")):
        lines.append(
            f"| 90% interval of the {what} | 90% | {pairs[column].mean():.0%} | |"
        )
    lines += ["", "| choice by | regret, stated | regret, true |", "|---|---|---|"]
    for what, stated, true in (
        ("the forecast", "stated_regret", "regret_forecast"),
        ("the largest runs", "stated_regret_measured", "regret_measured"),
        ("three seeds of both, trained at the goal", None, "regret_trained"),
    ):
        said = f"{pairs[stated].mean():.3%}" if stated else ""
        lines.append(f"| {what} | {said} | {pairs[true].mean():.3%} |")
    warned = int(pairs["warned"].sum())
    return [
        *lines,
        "",
        f"{len(pairs)} pairs; the preview of {warned} warned of itself.",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Choose between pairs of recipes.")
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for seed in range(options.pairs):
        rows.append(judge(seed))
        print(seed, rows[-1], flush=True)
    text = "\n".join(summarise(pd.DataFrame(rows))) + "\n"
    print(text)
    if options.output is not None:
        options.output.write_text(text)


if __name__ == "__main__":
    main()

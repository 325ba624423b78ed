"""Forecast German runs from priors learned from the French table, and from two evaluations
of each checkpoint.

    python tests/studies/one_evaluation.py

Laws of checkpoint state with priors learned from `microcpt` (French) forecast all runs of
`microcpt-de` after the warm-up: first by the prior alone, without a German run, then with
the six and the twelve cheapest German runs of one seed. The German table is left out when
priors are learned: its fit is not used, and the differences between tables of one lab are
estimated without it.
"""

import warnings
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

import bayeslaw
from bayeslaw import datasets
from bayeslaw._inference.diagnostics import interval_score
from bayeslaw._law.experience.tables import learned
from bayeslaw._posteriors.prior import choose_priors, from_priors

COUNTS = (0, 6, 12)


def german(domain: str) -> pd.DataFrame:
    """Read the rows of a domain after the warm-up, cheapest first."""
    table = datasets.load("microcpt-de")
    kept = (table["domain"] == domain) & (table["D"] > 4 * table["N"])
    return table[kept].sort_values("cost", kind="stable").reset_index(drop=True)


def spread(runs: pd.DataFrame, count: int) -> pd.DataFrame:
    """Select the cheapest runs of one seed, as short as possible and each with another
    checkpoint and replay.
    """
    one = runs[runs["seed"] == runs["seed"].min()]
    ends = one.groupby("run", as_index=False).first().sort_values("cost")
    first = ends.groupby("checkpoint", as_index=False).nth(list(range(count)))
    turn = first.groupby("checkpoint").cumcount()
    return first.assign(turn=turn).sort_values(["turn", "cost"]).head(count)


def scored(domain: str, count: int, experience: str) -> dict[str, float | str]:
    """Build a row that scores the forecasts of the German runs."""
    runs = german(domain)
    law = bayeslaw.law(f"state-{domain}")
    others = learned()
    kept = tuple(t for t in others.tables if not t.name.startswith("microcpt-de"))
    others = replace(others, tables=kept)
    few = spread(runs, count)
    asked = {"own": "none"}.get(experience, experience)
    chosen = choose_priors(law, few if count else None, asked, experience=others)
    if count:
        columns = few.drop(columns="turn").reset_index(drop=True)
        fit = partial(bayeslaw.fit, columns, chosen.law, experience="none")
        known = fit(on_failure="ignore", preview=True)
        if known.warnings:
            known = fit(on_failure="ignore", chains=2)
    else:
        known = from_priors([chosen.law], runs)
    rest = runs[~runs["run"].isin(few["run"])]
    made = bayeslaw.forecast(known, rest)
    y = np.log(rest["loss"].to_numpy())
    low, high = np.log(made["low"].to_numpy()), np.log(made["high"].to_numpy())
    return {
        "domain": domain,
        "German runs": count,
        "priors": experience,
        "error": float(np.mean(np.abs(np.log(made["median"]) - y))),
        "cover": float(np.mean((low <= y) & (y <= high))),
        "width": float(np.mean(high - low)),
        "score": float(np.mean(interval_score(low, high, y))),
    }


def main() -> None:
    print("| domain | German runs | priors | error | cover | width | score |")
    print("|" + "---|" * 7)
    for domain in ("target", "source"):
        for count in COUNTS:
            for experience in ("microcpt", "own"):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    row = scored(domain, count, experience)
                shown = [f"{row[n]:.1%}" for n in ("error", "cover", "width", "score")]
                print(f"| {domain} | {count} | {experience} | {' | '.join(shown)} |")


if __name__ == "__main__":
    main()

"""Measure coverage on simulated paper grids: each form is fitted by itself at ptpp 15 and 31, and checked at 279.

    python tests/studies/true_forms.py [--seeds 10] [-o docs/results/true_forms.csv]
    python tests/studies/true_forms.py --again [--seeds 1]

A row is kept for each seed; kept rows are not made again. The page's table is made from
them (`table`). With ``--again``, rows are made anew with the same data and seeds, and must
equal the kept ones, up to the Monte Carlo error of the posterior's draws (`differences`).
So a change of the package shows long before it shows in a mean over seeds.
"""

import argparse
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

import bayeslaw

KEPT = Path(__file__).parents[2] / "docs/results/true_forms.csv"
FORMS = ("ptpp-floor", "ptpp-gate", "ptpp-gate-floor")
# What a fit's own Monte Carlo error may change, at 84 runs and about 1,000 effective
# draws: a run or two at an interval's end, and ends by 3 in 100 of a width.
SAME = {"coverage90": 3 / 84 + 1e-9, "width90": 0.08, "mae_rel": 0.0005}
HEAD = ("form", "seeds", "coverage of 90%", "worst seed", "width", "MAE", "score")


def one(form: str, seed: int) -> dict[str, float | str | bool]:
    """A seed: how a fit of the two smaller stages does at the largest."""
    runs = bayeslaw.simulate(form, seed=seed)
    seen, unseen = runs[runs["ptpp"] <= 31], runs[runs["ptpp"] == 279]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # two stages: that exponents rest on priors
        fit = bayeslaw.fit(seen, form, seed=seed, on_failure="ignore")
        found = bayeslaw.check(fit, unseen, seed=seed)
    return {
        "form": form,
        "seed": seed,
        "coverage90": found.coverage["0.9"],
        "width90": found.width90,
        "mae_rel": found.mae_rel,
        "interval_score90": found.interval_score90,
        "failed": bool(fit.warnings),
    }


def table(rows: pd.DataFrame) -> str:
    """The page's table."""
    lines = [HEAD, ["---"] * len(HEAD)]
    for form, group in rows.groupby("form", sort=False):
        held, mean = group["coverage90"], group.mean(numeric_only=True)
        lines.append(
            [
                str(form),
                str(len(group)),
                f"{held.mean():.1%}",
                f"{held.min():.1%}",
                f"{mean['width90']:.1%}",
                f"{mean['mae_rel']:.2%}",
                f"{mean['interval_score90']:.1%}",
            ]
        )
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def differences(new: Mapping, kept: Mapping) -> list[str]:
    """What of a row is not as it was kept; empty where all is."""
    found = []
    for name, most in SAME.items():
        away = abs(new[name] - kept[name])
        if name == "width90":  # relative
            away /= kept[name]
        if away > most:
            found.append(f"{name} {new[name]:.4f}, kept {kept[name]:.4f}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument(
        "--again", action="store_true", help="compare with what is kept"
    )
    parser.add_argument("-o", "--output", type=Path, default=KEPT)
    given = parser.parse_args()
    kept = pd.read_csv(given.output) if given.output.exists() else pd.DataFrame()
    rows = kept.to_dict("records")
    known = {(row["form"], row["seed"]): row for row in rows}
    changed = 0
    for form in FORMS:
        for seed in range(given.seeds):
            before = known.get((form, seed))
            if before is not None and not given.again:
                continue
            new = one(form, seed)
            if given.again:
                away = differences(new, before) if before else ["not kept"]
                changed += bool(away)
                print(f"{form} {seed}: {', '.join(away) or 'as kept'}", file=sys.stderr)
                continue
            print(new, file=sys.stderr)
            rows.append(new)
            pd.DataFrame(rows).to_csv(given.output, index=False, float_format="%.6g")
    print(table(pd.DataFrame(rows)))
    sys.exit(changed > 0)


if __name__ == "__main__":
    main()

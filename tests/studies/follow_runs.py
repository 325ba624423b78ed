"""Forecast the end of measured runs from their first points: docs/follow.md.

    python tests/studies/follow_runs.py [--table microcpt-de] [--fits follow_fits] [--cache follow_runs.csv]

A bundled grid (`microcpt`). Averages at default settings and seed 0 are fitted to the first seeds' rows from step 20 on (the rate rises over
10 steps), once without any run of the largest stage, 279 tokens per parameter, and once for each size without that size's runs
there. Every left-out run, of all seeds, is then followed (`bayeslaw.follow`, defaults), and its loss at 20 tokens per parameter is forecast
from the points in its first 5, 12.5, 25 and 50%. The rivals are: the same average before the run; a line through the run's last two points
in log loss and log tokens; a line through all its points, with its interval; a power law with a floor through all points; and a power law of
log loss through all points of both domains, with one exponent for both (`both_curves`). The last four do not use any other run.

For decisions, a limit on the loss at the end is set at -2 to 2% around the average's median before the run, in steps of 1%. At each prefix
the run is stopped if the limit is broken with 90%, and called sure if it is kept with 90%. Fits and rows are kept, so that an interrupted
study goes on.
"""

import argparse
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats
from scipy.optimize import curve_fit, minimize_scalar

import bayeslaw
from bayeslaw import Follower, datasets
from bayeslaw._forecasts.check import interval_score

STAGE, END, WARM = 279, 20.0, 20
PREFIXES = (0.05, 0.125, 0.25, 0.5)
LIMITS = (-0.02, -0.01, 0.0, 0.01, 0.02)
DOMAINS = ("target", "source")
SURE = 0.9
ALONE = ("line, two points", "line", "power law", "both curves")
EXPONENTS = (0.01, 3.0)  # between which that of a curve is sought


def after_warm_up(table: str) -> pd.DataFrame:
    rows = datasets.load(table)
    return rows[rows["step"] >= WARM]


def fitted(
    table: str, domain: str, left_out: float | None, folder: Path
) -> bayeslaw.Average:
    """The average without the largest stage, or without one size's runs there."""
    path = (
        folder / f"{domain}-{left_out:g}.nc"
        if left_out
        else folder / f"{domain}-None.nc"
    )
    if not path.exists():
        rows = after_warm_up(table)
        rows = rows[(rows["seed"] == 0) & (rows["domain"] == domain)]
        held = rows["ptpp"] == STAGE
        if left_out:
            held &= rows["N"] == left_out
        reference = dict(datasets.TABLES[table].reference)
        bayeslaw.average(rows[~held], reference=reference, on_failure="warn").save(path)
    return bayeslaw.load(path)


# -- rivals --------------------------------------------------------------------------------


def line(t: np.ndarray, y: np.ndarray, end: float) -> tuple[float, float, float]:
    """Low, middle and high of a line through points of log loss; NaN ends below three."""
    if len(t) == 1:
        return np.nan, y[0], np.nan
    fit = stats.linregress(t, y)
    middle = fit.intercept + fit.slope * end
    if len(t) == 2:
        return np.nan, middle, np.nan
    rest = y - fit.intercept - fit.slope * t
    scale = np.sqrt((rest**2).sum() / (len(t) - 2))
    lever = 1 + 1 / len(t) + (end - t.mean()) ** 2 / ((t - t.mean()) ** 2).sum()
    half = stats.t.ppf(0.95, len(t) - 2) * scale * np.sqrt(lever)
    return middle - half, middle, middle + half


def power_law(t: np.ndarray, y: np.ndarray, end: float) -> float:
    """Log loss at the end by E + B D^-b; by a line where it cannot be fitted."""
    if len(t) < 4:
        return line(t, y, end)[1]

    def loss(log_tokens, floor, height, exponent):
        return floor + height * np.exp(-exponent * (log_tokens - t[0]))

    losses = np.exp(y)
    guess = (losses.min() * 0.9, losses[0] - losses.min() * 0.9, 0.3)
    low, high = EXPONENTS
    bounds = ([0, -np.inf, low], [losses.max(), np.inf, high])
    try:
        best, _ = curve_fit(loss, t, losses, guess, bounds=bounds, maxfev=5000)
    except RuntimeError:
        return line(t, y, end)[1]
    return float(np.log(max(loss(end, *best), 1e-6)))


def both_curves(t: np.ndarray, y: np.ndarray, other: np.ndarray, end: float) -> float:
    """Log loss at the end by a + c D^-b in each domain, with one exponent for both; by
    a line below three points.

    Lines through both domains' points at once would be each by itself, for they read the
    same tokens (Zellner 1962): an exponent is what one curve can tell the other.
    """
    if len(t) < 3:
        return line(t, y, end)[1]
    both = np.column_stack([y, other])

    def terms(exponent: float, at: np.ndarray) -> np.ndarray:
        return np.column_stack([np.ones_like(at), np.exp(-exponent * (at - t[0]))])

    def missed(exponent: float) -> float:
        read = terms(exponent, t)
        left = both - read @ np.linalg.lstsq(read, both)[0]
        return float((left**2).sum())

    # the sum of squares may have two valleys
    grid = np.geomspace(*EXPONENTS, 25)
    low = int(np.argmin([missed(exponent) for exponent in grid]))
    around = grid[max(low - 1, 0)], grid[min(low + 1, len(grid) - 1)]
    best = minimize_scalar(missed, bounds=around, method="bounded")
    coefficients = np.linalg.lstsq(terms(best.x, t), y)[0]
    return float((terms(best.x, np.array([end])) @ coefficients)[0])


# -- one run -------------------------------------------------------------------------------


def scored(low: float, middle: float, high: float, y: float) -> dict[str, float]:
    score = interval_score(np.array([low]), np.array([high]), np.array([y]))
    return {
        "error": abs(np.exp(middle - y) - 1),
        "cover": float(low <= y <= high) if np.isfinite(low + high) else np.nan,
        "width": np.exp(high - y) - np.exp(low - y),
        "score": float(score[0]),
    }


def of_run(
    follower: Follower, run: pd.DataFrame, domain: str, other: pd.DataFrame
) -> list[dict[str, Any]]:
    """A row for each prefix and forecaster; ``other``: the run in its other domain."""
    y = np.log(run["loss"].to_numpy())
    beside = np.log(other.set_index("D")["loss"].loc[run["D"]].to_numpy())
    t = np.log(run["D"].to_numpy())
    share = run["D"].to_numpy() / run["N"].to_numpy() / END
    (side,) = follower.tracks  # one domain is followed
    before = np.log(
        [follower.tracks[side].final_before[k] for k in ("low", "median", "high")]
    )
    rows = []
    for prefix in PREFIXES:
        seen = share <= prefix * 1.02
        if not seen.any():
            continue
        started = time.perf_counter()
        follower = follower.read(run[seen])
        seconds = time.perf_counter() - started
        track = follower.tracks[side]
        final = np.log([track.final()[k] for k in ("low", "median", "high")])
        two = line(t[seen][-2:], y[seen][-2:], t[-1])
        forecasts = {
            "before": before,
            "follow": final,
            "line, two points": two,
            "line": line(t[seen], y[seen], t[-1]),
            "power law": (np.nan, power_law(t[seen], y[seen], t[-1]), np.nan),
            "both curves": (
                np.nan,
                both_curves(t[seen], y[seen], beside[seen], t[-1]),
                np.nan,
            ),
        }
        told = {
            "prefix": prefix, "points": int(seen.sum()), "khat": track.departure.khat,
            "effective": track.departure.effective, "surprise": track.surprise, "seconds": seconds,
            "known": (final[2] - final[0]) / 2 <= 0.02,
        }  # fmt: skip
        for name, forecast in forecasts.items():
            rows.append(told | {"forecast": name} | scored(*forecast, y[-1]))
        end = track.outlook(track.end)
        for limit in LIMITS:
            log_limit = before[1] + np.log1p(limit)
            rows.append(
                told
                | {"forecast": "decision", "limit": limit, "probability": end.below(log_limit), "kept": bool(y[-1] <= log_limit)}
            )  # fmt: skip
    return rows


def study(table: str, folder: Path, cache: Path) -> pd.DataFrame:
    folder.mkdir(exist_ok=True)
    done = pd.read_csv(cache) if cache.exists() else pd.DataFrame({"key": []})
    parts = [done]
    all_runs = after_warm_up(table)
    sizes = [None, *sorted(all_runs["N"].unique())]
    for domain in DOMAINS:
        for left_out in sizes:
            key = f"{domain}-{left_out}"
            if key in set(done["key"]):
                continue
            posterior = fitted(table, domain, left_out, folder)
            runs = all_runs[all_runs["ptpp"] == STAGE]
            if left_out:
                runs = runs[runs["N"] == left_out]
            rows = []
            for name, pair in runs.groupby("run"):
                own = pair["domain"] == domain
                run, other = pair[own].sort_values("D"), pair[~own]
                follower = Follower.start(posterior, run, float(run["D"].max()))
                for row in of_run(follower, run, domain, other):
                    rows.append(
                        {
                            "key": key,
                            "domain": domain,
                            "fitted": "others" if left_out else "none",
                            "run": name,
                        }
                        | row
                    )
            parts.append(pd.DataFrame(rows))
            pd.concat(parts).to_csv(cache, index=False)
            print(key, len(rows), file=sys.stderr, flush=True)
    return pd.concat(parts)


# -- tables --------------------------------------------------------------------------------


def forecasts_table(rows: pd.DataFrame) -> str:
    made = rows[rows["forecast"] != "decision"]
    lines = [
        "| domain | runs of 279 fitted | points in the first | error: before the run | line, two points | line | power law | both curves | **follow** | cover | width, of that before | score | before |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for (domain, fitted_, prefix), group in made.groupby(
        ["domain", "fitted", "prefix"], sort=False
    ):
        by = group.groupby("forecast")
        error, width, score = by["error"].mean(), by["width"].mean(), by["score"].mean()
        cover = by["cover"].mean()["follow"]
        lines.append(
            f"| {domain} | {'other sizes' if fitted_ == 'others' else 'none'} | {prefix:.1%} | "
            + " | ".join(f"{error[name]:.2%}" for name in ("before", *ALONE))
            + f" | **{error['follow']:.2%}** | {cover:.0%} | {width['follow']:.1%}, {width['follow'] / width['before']:.0%} | "
            f"{100 * score['follow']:.1f} | {100 * score['before']:.1f} |"
        )
    return "\n".join(lines)


def summary_table(rows: pd.DataFrame) -> str:
    """All cases together: against the smaller of the average before the run and the best of the curves alone."""
    made = rows[rows["forecast"] != "decision"]
    cases = ["domain", "fitted", "prefix"]
    error = made.pivot_table(index=cases, columns="forecast", values="error")
    smaller = error[[name for name in error if name != "follow"]].min(axis=1)
    width = made.pivot_table(index=cases, columns="forecast", values="width")
    cover = made[made["forecast"] == "follow"].groupby(cases)["cover"].mean()
    per_case = pd.DataFrame(
        {"error": error["follow"], "smaller": smaller, "over": error["follow"] - smaller, "cover": cover, "width": width["follow"] / width["before"]}
    )  # fmt: skip
    lines = [
        "| points in the first | error of follow | of the smaller of all others | share | worst case over it | cover, least to most | width, of that before |",
        "|---|---|---|---|---|---|---|",
    ]
    parts = [(f"{prefix:.1%}", part) for prefix, part in per_case.groupby("prefix")]
    for name, part in [*parts, ("all", per_case)]:
        mean = part.mean()
        lines.append(
            f"| {name} | {mean['error']:.2%} | {mean['smaller']:.2%} | {mean['error'] / mean['smaller']:.0%} | {part['over'].max():+.2%} | "
            f"{mean['cover']:.0%}, {part['cover'].min():.0%} to {part['cover'].max():.0%} | {mean['width']:.0%} |"
        )
    return "\n".join(lines)


def decisions_table(rows: pd.DataFrame) -> str:
    made = rows[rows["forecast"] == "decision"]
    kept = made["kept"].astype(bool)
    sure = made["probability"] >= SURE
    stop = made["probability"] <= 1 - SURE
    made = made.assign(
        decided=sure | stop, right=(sure & kept) | (stop & ~kept), stopped=stop, saved=np.where(stop & ~kept, 1 - made["prefix"], 0.0), broken=~kept,
    )  # fmt: skip
    lines = [
        "| points in the first | decided | right, of those | runs that break their limit and were stopped | tokens saved, of theirs |",
        "|---|---|---|---|---|",
    ]
    for prefix, group in made.groupby("prefix"):
        decided, broken = group[group["decided"]], group[group["broken"]]
        lines.append(
            f"| {prefix:.1%} | {group['decided'].mean():.0%} | {decided['right'].mean():.1%} of {len(decided)} | {broken['stopped'].mean():.0%} | {broken['saved'].mean():.0%} |"
        )
    first = (
        made[made["decided"]]
        .sort_values("prefix")
        .groupby(["key", "run", "limit"])
        .first()
    )
    broken = first[first["broken"]]
    all_broken = made[made["broken"]].groupby(["key", "run", "limit"]).ngroups
    lines.append(
        f"| at the first that is sure | {len(first) / made.groupby(['key', 'run', 'limit']).ngroups:.0%} | {first['right'].mean():.1%} of {len(first)} | {broken['stopped'].sum() / all_broken:.0%} | {broken['saved'].sum() / all_broken:.0%} |"
    )
    return "\n".join(lines)


def trust_table(rows: pd.DataFrame) -> str:
    one = rows[rows["forecast"] == "follow"]
    return (
        f"k-hat over .7 at {int((one['khat'] > 0.7).sum())} of {len(one)} prefixes, effective draws {one['effective'].min():.0f} to "
        f"{one['effective'].max():.0f}; surprise under .01 at {(one['surprise'] < 0.01).mean():.1%} and under .1 at {(one['surprise'] < 0.1).mean():.1%} of them; "
        f"the end known to within 2% at {one.groupby('prefix')['known'].mean().map('{:.0%}'.format).to_dict()}"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--table", default="microcpt")
    parser.add_argument("--fits", type=Path, default=Path("follow_fits"))
    parser.add_argument("--cache", type=Path, default=Path("follow_runs.csv"))
    parser.add_argument("-o", "--output", type=Path, default=None)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = study(options.table, options.fits, options.cache)
    text = (
        "\n\n".join(
            [
                forecasts_table(rows),
                summary_table(rows),
                decisions_table(rows),
                trust_table(rows),
            ]
        )
        + "\n"
    )
    print(text)
    if options.output:
        options.output.write_text(text)


if __name__ == "__main__":
    main()

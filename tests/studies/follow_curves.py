"""Forecast the end of published curves from their first points: docs/follow.md.

    python tests/studies/follow_curves.py [--data ../shared/data] [-o docs/results/follow_curves.txt]

The runs are those of two published tables. The first has a model of 70 million parameters, adapted at four shares of replay (Ye et al.
2024): a state law is fitted to three shares, and the fourth is followed, in both domains. The second has learning curves of 25 and 100
million parameters under nine schedules (Luo et al. 2025): `anneal` is fitted to three schedules, and the other six are followed with
their schedules given. Posteriors are previews, seed 0. The rivals are those of `follow_runs.py`; prefixes with fewer than three points
are left out.

With `--forks docs/results/follow_forks.txt`, changes of the schedule are studied instead. An unseen run at a constant rate is followed up to each of `FORKS`, as if the rate stayed constant. Its end
under the schedules that leave the constant rate later (`Track.schedules`) is compared with the runs that took these schedules; their past is that of another run.
"""

import argparse
import importlib.util
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from follow_runs import line, power_law, scored
from measured import DATA

import bayeslaw
from bayeslaw import Follower

ROOT = Path(__file__).parents[2]
SCHEDULES = ["cosine_24000", "constant_24000", "wsdcon_9"]  # those that are fitted
GOES_ON = "constant_72000"  # not fitted
FORKS = (4000, 8000, 16000, 20000)  # steps
PREFIXES, FEWEST = (0.15, 0.25, 0.5, 0.75), 3
RIVALS = ("before", "line", "line, two points", "power law", "follow")


def replay_curves(data: Path) -> Iterator[dict[str, Any]]:
    """A model of 70M: each share of replay by the three others."""
    path = ROOT / "tests" / "schedules" / "test_replay_curves.py"
    spec = importlib.util.spec_from_file_location("replay_curves", path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    runs = made.curves(data / "cpt_replay_70m.csv")
    for domain in made.FITS:
        for replay, run in runs[runs["domain"] == domain].groupby("replay"):
            rest = runs[runs["replay"] != replay]
            posterior = made.fit(rest, domain, preview=True, on_failure="ignore")
            follower = Follower.start(posterior, run, float(run["D"].max()))
            for row in of_run(follower, run.sort_values("D")):
                yield {"table": f"70M, replay, {domain}"} | row


def by_three_schedules(data: Path, size: str) -> tuple[bayeslaw.Fit, pd.DataFrame]:
    """`anneal` fitted to curves under three schedules, and the curves under others."""
    runs = bayeslaw.read_runs(data / f"lr_curves_{size}.csv")
    fitted = runs["schedule"].isin(SCHEDULES)
    posterior = bayeslaw.fit(
        runs[fitted], "anneal", seed=0, preview=True, on_failure="ignore"
    )
    return posterior, runs[~fitted]


def schedules(data: Path) -> Iterator[dict[str, Any]]:
    """Six schedules by three others, at two sizes."""
    for size in ("25m", "100m"):
        posterior, unseen = by_three_schedules(data, size)
        for _, run in unseen.groupby("schedule"):
            end = float(run["step"].max())
            follower = Follower.start(posterior, run, end, schedule=run)
            for row in of_run(follower, run.sort_values("step")):
                yield {"table": f"{size.upper()}, schedules"} | row


def forks(data: Path) -> Iterator[dict[str, Any]]:
    """The end by other schedules from some steps of a run on, at two sizes."""
    for size in ("25m", "100m"):
        posterior, unseen = by_three_schedules(data, size)
        tables = dict(list(unseen.groupby("schedule")))
        run = tables.pop(GOES_ON)
        end = float(run["step"].max())
        schedule = {GOES_ON: run} | tables
        follower = Follower.start(posterior, run, end, schedule=schedule)
        (name,) = follower.tracks
        for fork in FORKS:
            follower = follower.read(run[run["step"] <= fork], warmup=0)
            track = follower.tracks[name]
            for row in track.schedules.to_dict("records"):
                taken = tables[row["schedule"]].sort_values("step")["loss"].iloc[-1]
                law = np.median(track.other_courses[row["schedule"]].law[:, -1])
                ends = np.log([row[k] for k in ("low", "median", "high")])
                yield {
                    "size": size.upper(),
                    "at": fork,
                    "schedule": row["schedule"],
                    "of the law alone": abs(np.exp(law) / taken - 1),
                } | scored(*ends, np.log(taken))


def forks_table(rows: pd.DataFrame) -> str:
    lines = [
        "| size | at step | schedules | error: of the law alone | **with the run's departure** | cover | width |",
        "|---|---|---|---|---|---|---|",
    ]
    for (size, at), group in rows.groupby(["size", "at"], sort=False):
        names = ", ".join(group["schedule"])
        mean = group[["of the law alone", "error", "cover", "width"]].mean()
        lines.append(
            f"| {size} | {at} | {names} | {mean['of the law alone']:.2%} | **{mean['error']:.2%}** | {mean['cover']:.0%} | {mean['width']:.2%} |"
        )
    return "\n".join(lines) + "\n"


def of_run(follower: Follower, run: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """A row for each prefix and forecaster."""
    unit, (name,) = follower.unit, follower.tracks
    place = run[unit].to_numpy(float)
    t, y = np.log(place), np.log(run["loss"].to_numpy())
    before = np.log(
        [follower.tracks[name].final_before[k] for k in ("low", "median", "high")]
    )
    for prefix in PREFIXES:
        seen = place <= prefix * place[-1] * 1.001
        if seen.sum() < FEWEST:
            continue
        follower = follower.read(run[seen], warmup=0)
        track = follower.tracks[name]
        forecasts = {
            "before": before,
            "line": line(t[seen], y[seen], t[-1]),
            "line, two points": line(t[seen][-2:], y[seen][-2:], t[-1]),
            "power law": (np.nan, power_law(t[seen], y[seen], t[-1]), np.nan),
            "follow": np.log([track.final()[k] for k in ("low", "median", "high")]),
        }
        for forecaster, forecast in forecasts.items():
            yield {
                "prefix": prefix,
                "forecast": forecaster,
                "khat": track.departure.khat,
            } | scored(*forecast, y[-1])


def markdown(rows: pd.DataFrame) -> str:
    lines = [
        "| table | points in the first | runs | error: before the run | line | line, two points | power law | **follow** | cover, before | cover | width, before | width |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for (table, prefix), group in rows.groupby(["table", "prefix"], sort=False):
        by = group.groupby("forecast")
        error, cover, width = by["error"].mean(), by["cover"].mean(), by["width"].mean()
        count = int((group["forecast"] == "follow").sum())
        errors = [f"{error[name]:.2%}" for name in RIVALS[:-1]] + [
            f"**{error['follow']:.2%}**"
        ]
        lines.append(
            f"| {table} | {prefix:.0%} | {count} | {' | '.join(errors)} | {cover['before']:.0%} | {cover['follow']:.0%} | {width['before']:.2%} | {width['follow']:.2%} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("-o", "--output", type=Path, default=None)
    parser.add_argument("--forks", type=Path, default=None)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.forks:
        forked = forks_table(pd.DataFrame(forks(options.data)))
        print(forked)
        options.forks.write_text(forked)
        return
    rows = []
    for case in (replay_curves, schedules):
        rows += case(options.data)
        print(markdown(pd.DataFrame(rows)), flush=True)
    if options.output:
        options.output.write_text(markdown(pd.DataFrame(rows)))


if __name__ == "__main__":
    main()

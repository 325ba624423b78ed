"""Forecast other runs of a larger model once the first part of one of its runs is known.

    python tests/studies/prefix.py [--only French] [--laws state-power-stages]

The law is fitted to the smaller models of a bundled grid, as `bayeslaw.average` does with
it alone, at default settings and seed 0. Then one run of the larger model has begun: its
points up to a tenth and to a quarter of its length are known, from the first token per
parameter on (state laws do not describe the tokens before). What is forecast are the ends
of all *other* runs of that model, with other replay or from other checkpoints, and the
end of the run itself:

- ``before``: without the run;
- ``added``: its points are added to the rows, and the law is judged and fitted again;
- ``added, old drift``: the same, but beyond the old rows the law drifts as before;
- ``weighed``: the draws of before are weighed by the points, as `follow` weighs them;
- ``carried``: as ``weighed``, and each draw is moved by what the run departs from it;
- ``follow`` (of the run itself): the forecast of `follow`.

Errors of the median, and widths and scores of 90% intervals of a new run, are shares of
the loss. Rows are kept in ``--cache`` as they are made, so that an interrupted study goes
on; docs/howto/update.md shows them. Three folds are learning curves of others
(``../shared/data/curves_llm.csv``, eight points of each run); without the file they are
left out.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
from new_sizes import reference_of, run_folds, score
from scipy.special import logsumexp

import bayeslaw
from bayeslaw import Follower, datasets
from bayeslaw._base.streams import generator
from bayeslaw._forecasts.forecast import quantiles_of
from bayeslaw._running.following.departure import Outlook
from bayeslaw._running.following.track import Track

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data"
CACHE = ROOT / "docs" / "results" / "prefix.csv"
LAWS = {
    "target": ("state-power-stages", "ptpp-tokens"),
    "source": ("state-rise", "ptpp-rise"),
}
PARTS = {"tenth": 0.1, "quarter": 0.25}  # of the run, that are known
FIRST = 0.9  # tokens per parameter from which on rows count, as in `new_sizes.py`


class Fold(NamedTuple):
    """Queries of the rows fitted, of the larger model, and of its run that has begun,
    in a bundled table or one of ``../shared/data``.
    """

    table: str
    fitted: str
    large: str
    begun: str


FOLDS = {
    "French, to .96M -> 4.0M": Fold(
        "minicpt",
        "N < 1.5e6 and ptpp < 200",
        "N > 3e6 and N < 5e6",
        "ptpp == 93 and replay == 0.25",
    ),
    "French, to 2.1M -> 8.3M": Fold(
        "minicpt", "N < 3e6 and ptpp < 200", "N > 5e6", "ptpp == 93 and replay == 0.25"
    ),
    "French, to .96M -> 8.3M": Fold(
        "minicpt",
        "N < 1.5e6 and ptpp < 200",
        "N > 5e6",
        "ptpp == 31 and replay == 0.25",
    ),
    "German, to .55M -> 2.1M": Fold(
        "minicpt-de",
        "N < .9e6 and ptpp < 200",
        "N > 1.5e6 and ptpp < 200",
        "ptpp == 93 and replay == 0.25",
    ),
    "German, to .96M -> 2.1M": Fold(
        "minicpt-de",
        "N < 1.5e6 and ptpp < 200",
        "N > 1.5e6 and ptpp < 200",
        "ptpp == 31 and replay == 0.25",
    ),
}


# learning curves of others' pre-training; losses and laws
SHARED = {
    "corpus of RefinedWeb, to .15B -> .41B": (
        Fold("curves", "corpus == 'rw_original' and N < 4e8", "corpus == 'rw_original' and N > 4e8", "run.str.endswith('-1.0')"),
        ("loss",),
        ("chinchilla",),
    ),
    "corpus of RedPajama, to .15B -> .41B": (
        Fold("curves", "corpus == 'rpj' and N < 4e8", "corpus == 'rpj' and N > 4e8", "run.str.endswith('-0.5')"),
        ("loss",),
        ("chinchilla",),
    ),
    "C4, to 4.2B -> 8.7B": (
        Fold("curves", "corpus == 'c4' and N < 5e9", "corpus == 'c4' and N > 5e9", "run.str.endswith('-2.0')"),
        ("loss",),
        ("chinchilla",),
    ),
}  # fmt: skip


def load(table: str, domain: str) -> pd.DataFrame:
    """Load the rows of a domain."""
    if table in datasets.TABLES:
        runs = datasets.load(table)
        return runs[(runs["domain"] == domain) & (runs["D"] > FIRST * runs["N"])]
    runs = pd.read_csv(DATA / "curves_llm.csv")
    # models of 20 tokens per parameter times the last number of their name, and others
    # whose size is in the name; runs of 7 epochs and more are left out
    last = runs["run"].str.extract(r"-([\d.]+)$")[0].astype(float)
    longest = runs.groupby("run")["D"].transform("max")
    in_name = runs["run"].str.extract(r"^GPT2-([\d.]+)B-c4")[0].astype(float) * 1e9
    is_ladder = runs["run"].str.contains("-d=")
    runs["N"] = in_name.where(~is_ladder, longest / (20 * last)).round(-6)
    runs["corpus"] = runs["run"].str.split("-").str[0].where(is_ladder, "c4")
    runs = runs[(runs["N"] > 0) & (is_ladder | (last < 7))]
    # eight points of each run, log-spaced from a twentieth of it on
    share = np.log(runs["D"] / longest) / np.log(20)
    runs["point"] = ((share + 1) * 7).round()
    runs = runs[share >= -1].groupby(["run", "point"]).tail(1)
    return runs.drop(columns=["point", "first_half"])


def forecast_fold(fold: str, domain: str, law: str) -> list[dict[str, Any]]:
    """Make the rows of one law on one fold, for each part of the run and each way."""
    known = FOLDS[fold] if fold in FOLDS else SHARED[fold][0]
    runs = load(known.table, domain)
    fitted, large = runs.query(known.fitted), runs.query(known.large)
    own = large.query(known.begun).sort_values("D")
    ends = large.sort_values("D").groupby("run").tail(1)
    is_own = (ends["run"] == own["run"].iloc[0]).to_numpy()

    is_bundled = known.table in datasets.TABLES
    fit = partial(
        bayeslaw.average,
        laws=[law],
        reference=reference_of(known.table, law) if is_bundled else None,
        on_failure="ignore",
        seed=0,
    )
    rows: list[dict[str, Any]] = []

    def add(part: str, way: str, made: pd.DataFrame, **told: Any) -> None:
        for of, which in (("others", ~is_own), ("itself", is_own)):
            told_of = {"part": part, "way": way, "of": of}
            rows.append(told_of | score(made[which], ends[which]) | told)

    def timed(function: Callable, *given: Any, **named: Any) -> tuple[Any, float]:
        began = time.perf_counter()
        return function(*given, **named), time.perf_counter() - began

    old, seconds = timed(fit, fitted)
    stages = str(old.attrs["folds"])
    add("", "before", bayeslaw.forecast(old, ends), seconds=seconds, stages=stages)
    end = float(own["D"].iloc[-1])
    # tokens up to which state laws do not describe a run
    first = bayeslaw.law(law).first_steps * float(own["N"].iloc[0])
    known_points = []
    for part, share in PARTS.items():
        points = own[own["D"] <= 1.001 * max(share * end, first, own["D"].iloc[0])]
        if len(points) in known_points:
            continue
        known_points.append(len(points))
        new, seconds = timed(fit, pd.concat([fitted, points]))
        told = {"points": len(points), "seconds": seconds}
        stages = str(new.attrs["folds"])
        add(part, "added", bayeslaw.forecast(new, ends), stages=stages, **told)
        drifting = with_old_drift(new, old)
        add(part, "added, old drift", bayeslaw.forecast(drifting, ends), **told)

        # rows of .9995 tokens per parameter are at the first token
        curve = points.assign(D=points["D"].clip(lower=first))
        began = time.perf_counter()
        follower = Follower.start(old, own, end).read(curve)
        (track,) = follower.tracks.values()
        weights = np.exp(logsumexp(track.departure.log_weight, axis=0))
        told = {
            "points": len(track.history),
            "seconds": time.perf_counter() - began,
            "effective": track.departure.effective,
            "khat": track.departure.khat,
            "surprise": track.surprise,
        }
        index = resample(weights)
        law_draws = old.log_loss(ends)[index]
        noise = (old.log_loss(ends, noise=True) - old.log_loss(ends))[index]
        add(part, "weighed", summarise(law_draws, noise), **told)
        moved = law_draws + departures(track)[index][:, None]
        add(part, "carried", summarise(moved, noise), **told)
        (final,) = follower.following().domains.values()
        made = pd.DataFrame([final.final])
        rows.append(
            {"part": part, "way": "follow", "of": "itself"}
            | score(made, ends[is_own])
            | told
        )
    jax.clear_caches()  # programs of this table's shapes, which no other has
    return rows


def with_old_drift(new: bayeslaw.Average, old: bayeslaw.Average) -> bayeslaw.Average:
    """Give the draws of a law that was fitted again the drifts of the old average,
    which has no rows of the larger model: beyond the old sizes the law drifts.
    """
    (of_new,), (of_old,) = new.members, old.members
    values = {**of_new.values, "drift": of_old.values["drift"]}
    member = replace(of_new, values=values, training_range=of_old.training_range)
    return replace(new, members=(member,))


def resample(weights: np.ndarray) -> np.ndarray:
    """Draw as many draws as there are, by systematic resampling."""
    count = len(weights)
    places = (np.arange(count) + generator(0).random()) / count
    return np.searchsorted(np.cumsum(weights / weights.sum()), places).clip(
        0, count - 1
    )


def departures(track: Track) -> np.ndarray:
    """Average the run's departure at its end over scales, for each draw of the law."""
    beside_law = np.zeros(len(track.course.error))
    by_scale = track.departure.weight / track.departure.weight.sum(axis=0)
    away = Outlook.of(track.departure, track.end, beside_law).mean
    return (by_scale * away).sum(axis=0)


def summarise(law_draws: np.ndarray, noise: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(quantiles_of(law_draws, law_draws + noise, 0.9))


# -- the table -------------------------------------------------------------------------


KINDS = {
    "laws that read the checkpoint's losses": {laws[0] for laws in LAWS.values()},
    "laws that do not": {laws[1] for laws in LAWS.values()},
    "pre-training of others": {"chinchilla"},
}
COLUMNS = [(of, part) for of in ("others", "itself") for part in PARTS]


def markdown(rows: pd.DataFrame) -> str:
    """Show means over cases: error, held, width, score. Where a quarter has the same
    points as a tenth, both columns have them.
    """
    rows = rows.assign(part=rows["part"].fillna(""))
    lines = []
    for kind, laws in KINDS.items():
        of_kind = rows[rows["law"].isin(laws)]
        if of_kind.empty:
            continue
        cases = of_kind.groupby(CASE, sort=False).ngroups
        known = [f"{of}, a {part} known" for of, part in COLUMNS]
        lines += [
            f"| {kind} ({cases} cases) | {' | '.join(known)} |",
            "|---" * (len(known) + 1) + "|",
        ]
        for way, cells in of_kind.groupby("way", sort=False):
            texts = [describe_means(cells, *column) for column in COLUMNS]
            lines.append(f"| {way} | {' | '.join(texts)} |")
        lines.append("")
    return "\n".join(lines)


CASE = ["fold", "domain", "law"]


def describe_means(rows: pd.DataFrame, of: str, part: str) -> str:
    rows = rows[rows["of"] == of]
    if rows.empty:
        return ""
    by_case = rows[rows["part"] != "quarter"] if part == "tenth" else rows
    last = by_case.groupby(CASE, sort=False).tail(1)
    error, width, interval = 100 * last[["error", "width", "score"]].mean()
    held = np.average(last["coverage"], weights=last["runs"])
    return f"{error:.2f}, {held:.0%}, {width:.1f}, {interval:.1f}"


def main() -> None:
    jobs = [
        {"fold": fold, "domain": domain, "law": laws[place]}
        for place in range(2)  # the default laws of all folds first
        for fold in FOLDS
        for domain, laws in LAWS.items()
    ]
    jobs += [
        {"fold": fold, "domain": domain, "law": law}
        for fold, (_, domains, laws) in SHARED.items()
        if DATA.exists()
        for domain in domains
        for law in laws
    ]
    run_folds(jobs, forecast_fold, markdown, __doc__, CACHE)


if __name__ == "__main__":
    main()

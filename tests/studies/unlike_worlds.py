"""Check plans at 80% and intervals at 90%, near the runs and far beyond, in worlds that follow none of the laws.

    python tests/studies/unlike_worlds.py [--worlds 60] [--processes 16] [--rows docs/results/unlike_worlds.csv]

In each world the losses of target and source are power laws of N and D in a form that no law of the catalogue has. Floors depend on stage and replay, and there
are one or two of eight faults at random sizes: a smooth misfit, a coupling of N and D, thresholds in N, in replay and in pre-training, a saturation in D,
repeats of scarce target data, and breaks of the slope. Two tables of 120 runs are drawn in each world, with replay up to 50% and up to 90%, at 30M to 1B
parameters and up to 40 tokens per parameter, with .3% of noise. Each domain is fitted as by `bayeslaw fit` without a named law: by the average of the laws that
suit the columns, with their misfits and their drift.

Plans at 80% are made near the runs (for twice the largest), and for ten and a hundred times the largest. Each limit is one that 85% of draws keep by itself at
10 tokens per parameter and half of the largest replay, as a team would set it; the source's is given as 2% of forgetting. Each plan is made within the fitted
replays, as by default, and with any replay allowed (`free`). Then the planned run is simulated in its world, with noise. Forecasts are those of 30 runs at the
same sizes, with fitted replays. After an interruption, the same command goes on.
"""

import argparse
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
from processes import processes
from resumable import study

import bayeslaw
from bayeslaw._base.machine import runtime
from bayeslaw._plans.plan import problem_of
from bayeslaw._plans.search import search
from bayeslaw._posteriors.averaging.distance import doubts

TARGET, SOURCE = "target", "source"
DOMAINS = (TARGET, SOURCE)
REPLAYS = {0.5: (0.05, 0.1, 0.25, 0.5), 0.9: (0.05, 0.2, 0.5, 0.9)}
SIZES, STAGES = np.geomspace(3e7, 1e9, 6), (15.0, 40.0, 100.0)
ATPP = (0.5, 40.0)
NOISE, CONFIDENCE, DRAWS = 0.003, 0.8, 1000
EXPECTED = 0.85  # share of draws that keep a limit at the run it is set for
BEYOND = {"near": 2.0, "ten": 10.0, "hundred": 100.0}  # times the largest N fitted
STAGE = 100.0  # pre-training tokens per parameter of the model planned for
FAULTS = (
    "smooth", "coupling", "threshold N", "threshold replay", "threshold ptpp",
    "saturation", "repeats", "break",
)  # fmt: skip
LENGTHS = np.array([3.0, 3.0, 1.0, 2.0])  # over which a smooth misfit changes
WAVES = 100


class World(NamedTuple):
    """The truth of one domain: numbers of its power law, and its faults with their sizes."""

    base: dict[str, float]
    faults: dict[str, float]
    frequencies: np.ndarray
    phases: np.ndarray
    is_target: bool

    def log_loss(self, runs: pd.DataFrame) -> np.ndarray:
        """Of each run, without noise, shape (run,)."""
        N, D, replay, ptpp = (
            runs[c].to_numpy(float) for c in ("N", "D", "replay", "ptpp")
        )
        v, f = self.base, self.faults
        share = 1 - replay if self.is_target else replay
        seen = D * np.maximum(share, 1e-4) ** v["mix"]
        if "repeats" in f and self.is_target:
            unique = f["repeats"]  # tokens there are; more is worth less and less
            seen = np.where(seen > unique, unique * (1 + np.log(seen / unique)), seen)
        if "saturation" in f:
            seen = seen / (1 + seen / (f["saturation"] * 1e11))
        slope = np.full(len(N), v["beta"])
        if "break" in f:
            slope = slope * np.where(seen > 3e9, 1 - f["break"], 1.0)
        if "coupling" in f:
            slope = slope * (N / 3e8) ** -f["coupling"]
        size = v["A"] * (N / 3e8) ** -v["alpha"]
        if "threshold N" in f:
            size = size * (1 - f["threshold N"] / (1 + np.exp(-3 * np.log(N / 3e9))))
        start = v["F"] * (ptpp / 30) ** -v["eta"]
        if "threshold ptpp" in f:
            start = start * (
                1 + f["threshold ptpp"] / (1 + np.exp(-4 * np.log(ptpp / 60)))
            )
        # the target is learned; the source is forgotten the more the less of it is seen
        if self.is_target:
            moved = v["B"] * (1 + seen / 3e8) ** -slope
        else:
            lost = 1 - (1 + D / 1e9) ** -slope
            moved = v["B"] * lost * (share + 0.02) ** -v["gamma"] * 0.1
        loss = v["E"] + size + start + moved
        if "threshold replay" in f:
            late = 1 / (1 + np.exp(-25 * (replay - 0.6)))
            loss = loss * (
                1 + f["threshold replay"] * late * (1 if self.is_target else -0.3)
            )
        log_loss = np.log(loss)
        if "smooth" in f:
            x = np.log(np.stack([N, D, 1.001 - replay, ptpp], axis=1)) / LENGTHS
            waves = np.cos(x @ self.frequencies.T + self.phases)
            log_loss = log_loss + f["smooth"] * np.sqrt(2 / WAVES) * waves.sum(axis=1)
        return log_loss


def world(seed: int, domain: str) -> World:
    """One domain of a world; both have the same faults."""
    shared = np.random.default_rng([31, seed])
    chosen = shared.choice(FAULTS, shared.integers(1, 3), replace=False)
    rng = np.random.default_rng([32, seed, domain == SOURCE])
    sizes = {
        "smooth": rng.uniform(0.005, 0.015),
        "coupling": rng.uniform(-0.1, 0.1),
        "threshold N": rng.uniform(0.1, 0.3),
        "threshold replay": rng.uniform(0.02, 0.1),
        "threshold ptpp": rng.uniform(0.1, 0.4),
        "saturation": rng.uniform(0.1, 1.0),
        "repeats": 10 ** rng.uniform(9, 10.3),
        "break": rng.uniform(0.2, 0.5),
    }
    typical = {
        "E": 1.3, "A": 0.5, "B": 1.2, "F": 0.25, "alpha": 0.3, "beta": 0.3,
        "eta": 0.4, "mix": 0.9, "gamma": 0.3,
    }  # fmt: skip
    base = {
        k: v * float(np.exp(0.2 * rng.standard_normal())) for k, v in typical.items()
    }
    faults = {str(name): float(sizes[name]) for name in chosen}
    frequencies = rng.standard_normal((WAVES, len(LENGTHS)))
    phases = rng.uniform(0, 2 * np.pi, WAVES)
    return World(base, faults, frequencies, phases, domain == TARGET)


def runs_of(rng: np.random.Generator, replays: tuple[float, ...]) -> pd.DataFrame:
    """The runs that a team has: five budgets of some mixtures at each size and stage."""
    rows = [
        (N, N * atpp, float(rng.choice(replays)), ptpp)
        for N in SIZES
        for ptpp in STAGES
        if ptpp < STAGE or N < 2e8
        for atpp in np.geomspace(*ATPP, 8)
    ]
    return pd.DataFrame(rows, columns=["N", "D", "replay", "ptpp"])


def model(beyond: str) -> dict[str, float]:
    return {"N": float(SIZES[-1]) * BEYOND[beyond], "ptpp": STAGE}


def tried(*, world_number: int, most_replay: float) -> list[dict]:
    """One table of one world: forecasts and plans at three distances."""
    began, seed = time.process_time(), world_number
    rng = np.random.default_rng([33, seed, int(10 * most_replay)])
    replays = REPLAYS[most_replay]
    table = runs_of(rng, replays)
    truth = {domain: world(seed, domain) for domain in DOMAINS}
    fits = {}
    for domain in DOMAINS:
        noise = NOISE * rng.standard_normal(len(table))
        losses = np.exp(truth[domain].log_loss(table) + noise)
        fits[domain] = bayeslaw.average(
            table.assign(loss=losses, domain=domain), seed=seed, on_failure="ignore"
        )
    rows = []
    for beyond in BEYOND:
        row = {"beyond": beyond, "faults": " + ".join(truth[TARGET].faults)}
        row |= forecast(fits, truth, beyond, replays, rng)
        noise = {domain: NOISE * rng.standard_normal() for domain in DOMAINS}
        made = planned(fits, truth, beyond, most_replay, noise, seed)
        rows += [row | one for one in made]
    seconds = time.process_time() - began
    jax.clear_caches()  # else programs of every table stay in memory
    return [row | {"seconds": round(seconds, 1)} for row in rows]


def forecast(fits, truth, beyond: str, replays, rng) -> dict:
    """Share of 30 new runs inside 90% intervals, by domain."""
    asked = pd.DataFrame(
        [
            model(beyond) | {"D": model(beyond)["N"] * atpp, "replay": replay}
            for replay in rng.choice(replays, 5)
            for atpp in np.geomspace(1, 30, 6)
        ]
    )
    told = {}
    for domain, fit in fits.items():
        y = truth[domain].log_loss(asked) + NOISE * rng.standard_normal(len(asked))
        drawn = fit.log_loss(asked, noise=True)
        low, high = np.quantile(drawn, [0.05, 0.95], axis=0)
        told[f"hold_{domain}"] = float(np.mean((low <= y) & (y <= high)))
        told[f"width_{domain}"] = float(np.mean(high - low))
    return told


def planned(
    fits, truth, beyond: str, most_replay: float, noise: dict[str, float], seed: int
) -> list[dict]:
    """Plans at 80%, within the fitted replays and with any, and what came of their runs."""
    at = model(beyond)
    expected = pd.DataFrame([at | {"D": 10 * at["N"], "replay": most_replay / 2}])
    limits = {
        d: float(np.exp(np.quantile(f.log_loss(expected, noise=True), EXPECTED)))
        for d, f in fits.items()
    }
    baseline = limits[SOURCE] / 1.01
    limits[SOURCE] = 1.02 * baseline
    asked: Any = at | {
        "max_target_loss": limits[TARGET],
        "max_forgetting": 0.02,
        "baseline_loss": baseline,
        "confidence": CONFIDENCE,
        "draws": DRAWS,
        "seed": seed,
    }
    rows: list[dict] = []
    for free in (False, True):
        bounds: Any = {"min_replay": 0, "max_replay": 1} if free else {}
        problem = problem_of(fits[TARGET], fits[SOURCE], **asked, **bounds)
        if free and not rows[0]["at_bound"]:
            rows.append(rows[0] | {"free": True})  # the same plan
            continue
        choice = search(problem)
        row = {"free": free, "feasible": choice.margin >= 0, "at_bound": True}
        if row["feasible"]:
            D = float(np.exp(choice.log_tokens))
            run = at | {"D": D, "replay": choice.replay}
            loss = {
                d: float(np.exp(truth[d].log_loss(pd.DataFrame([run]))[0] + noise[d]))
                for d in DOMAINS
            }
            lines = doubts(fits[TARGET], {SOURCE: fits[SOURCE]}, run)
            row |= {
                "at_bound": bool(problem.bounds_met(choice.replay)),
                "atpp": D / at["N"],
                "replay": choice.replay,
                "kept": all(loss[d] <= limits[d] for d in DOMAINS),
                "warned": any(line.startswith("the plan's replay") for line in lines),
                "outside": not REPLAYS[most_replay][0] - 1e-6
                <= choice.replay
                <= REPLAYS[most_replay][-1] + 1e-6,
            }
        rows.append(row)
    return rows


def told(rows: pd.DataFrame) -> str:
    """Forecasts and plans by distance, as Markdown."""
    lines = [
        "| runs asked about | 90% intervals hold: target | source | plans at 80% within the fitted replays | kept | any replay: plans outside | warned of | kept |",
        "|---|---|---|---|---|---|---|---|",
    ]
    plans = rows[rows["feasible"].astype(bool) & rows["kept"].notna()]
    for beyond in BEYOND:
        every = rows[(rows["beyond"] == beyond) & ~rows["free"]]
        own = plans[plans["beyond"] == beyond]
        bound, free = own[~own["free"]], own[own["free"] & own["outside"].astype(bool)]
        lines.append(
            f"| {BEYOND[beyond]:g} times | {every['hold_target'].mean():.0%} | {every['hold_source'].mean():.0%} "
            f"| {len(bound)} of {len(every)} | {share(bound['kept'])} "
            f"| {len(free)} | {share(free['warned'])} | {share(free['kept'])} |"
        )
    return "\n".join(lines) + "\n"


def share(values: pd.Series) -> str:
    return f"{values.astype(float).mean():.0%}" if len(values) else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--worlds", type=int, default=60)
    parser.add_argument(
        "--rows", type=Path, default=Path("docs/results/unlike_worlds.csv")
    )
    parser.add_argument("--processes", type=int, default=1)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    runtime.start()
    jobs = [
        {"world_number": number, "most_replay": most}
        for number in range(asked.worlds)
        for most in REPLAYS
    ]
    with processes(asked.processes) as executor:
        rows = study(tried, jobs, asked.rows, executor=executor, progress=print)
    print(told(rows))


if __name__ == "__main__":
    main()

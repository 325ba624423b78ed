"""When to stop repeating data: simulated runs whose best tokens are known.

    python tests/studies/stopping.py [--runs 50] [--seen WORDS] [-o docs/results/stopping.csv]
    python tests/studies/stopping.py --measured ../shared/data/data_constrained.csv

Half of the runs are of `data-constrained-overfitting` with constants of their own, half of
three other forms with a minimum. The best tokens are 4 to 100 epochs. Points of a run
have noise of .1% with autocorrelation .5, runs of a table .2%. Each run is seen in
several ways, the law is fitted, and `best_stop` is asked. A way takes five minutes or
more; ``--seen`` takes those that have these words, and the file keeps the others' rows.

``--measured``: sizes of a published table that passed their least loss at 1e8 unique
tokens; each is forecast from all smaller models.
"""

import argparse
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

import bayeslaw

LAW = "data-constrained-overfitting"
POINTS = 30
EPOCHS = np.geomspace(0.25, 1000, 20_001)
Penalty = Callable[[np.ndarray, float], np.ndarray]


@dataclass(frozen=True)
class Form:
    """How repetitions harm: ``penalty`` of repetitions R, given those of the best stop.
    ``worth``: repetitions after which repeated tokens are worth little (Muennighoff 2023).
    """

    penalty: Penalty
    worth: float = np.inf


def late(R, best):
    return np.maximum(R - best / 2, 0.0) ** 1.5


def saturating(R, best):
    return 1 - np.exp(-((R / (2 * best)) ** 2))


def squared_log(R, best):
    return np.log1p(R) ** 2


OTHERS = {
    "late harm": Form(late),
    "harm that saturates": Form(saturating),
    "worth falls, harm ~ log^2": Form(squared_log, worth=15.0),
}


@dataclass(frozen=True)
class World:
    """A run with its form; ``loss(N, U, epochs)`` without noise."""

    name: str
    form: Form
    N: float
    U: float
    best: float  # epochs of the run's least loss
    constants: dict[str, float]
    strength: float = 0.0

    def base(self, N, U, epochs):
        c, R = self.constants, np.maximum(epochs - 1, 0.0)
        tokens = U * epochs
        if np.isfinite(self.form.worth):
            worth = self.form.worth * (1 - np.exp(-R / self.form.worth))
            tokens = U * np.minimum(epochs, 1 + worth)
        return c["E"] + c["A"] / N ** c["alpha"] + c["B"] / tokens ** c["beta"]

    def harm(self, N, U, epochs):
        R = np.maximum(epochs - 1, 0.0)
        # a smaller model is harmed less
        size = (N / U / (self.N / self.U)) ** self.constants["kappa"]
        return size * self.form.penalty(R, self.best - 1)

    def loss(self, N, U, epochs):
        return self.base(N, U, epochs) + self.strength * self.harm(N, U, epochs)


def draw_world(seed: int) -> World:
    """Draw a run. Its penalty is as strong as the minimum asks for."""
    rng = np.random.default_rng([71, seed])
    names = [*OTHERS]
    name = "the law" if seed % 2 == 0 else names[seed // 2 % len(names)]
    while True:
        delta = rng.uniform(0.8, 2.0)
        form = OTHERS.get(name, Form(lambda R, _, power=delta: R**power))
        constants = {
            "E": 1.82 * np.exp(0.1 * rng.standard_normal()),
            "A": 482 * np.exp(0.2 * rng.standard_normal()),
            "B": 2085 * np.exp(0.2 * rng.standard_normal()),
            "alpha": 0.348,
            "beta": 0.366,
            "kappa": rng.uniform(0.6, 1.4),
        }
        N = np.exp(rng.uniform(np.log(1e8), np.log(4e9)))
        U = N * np.exp(rng.uniform(np.log(0.5), np.log(8)))
        best = np.exp(rng.uniform(np.log(4), np.log(100)))
        world = World(name, form, N, U, best, constants)
        step = best * np.array([1 - 1e-4, 1 + 1e-4])
        fall, rise = np.diff(world.base(N, U, step)), np.diff(world.harm(N, U, step))
        world = World(name, form, N, U, best, constants, float(-fall[0] / rise[0]))
        losses = world.loss(N, U, EPOCHS)
        if abs(EPOCHS[losses.argmin()] / best - 1) < 0.01:
            return world


# -- what is seen ----------------------------------------------------------------------


def curve(world: World, share: float, rng: np.random.Generator) -> pd.DataFrame:
    """Points of the run itself, up to a share of its best tokens."""
    epochs = np.linspace(1 / POINTS, 1, POINTS) * share * world.best
    noise = rng.standard_normal(POINTS)
    for k in range(1, POINTS):
        noise[k] = 0.5 * noise[k - 1] + np.sqrt(0.75) * noise[k]
    loss = world.loss(world.N, world.U, epochs) * np.exp(1e-3 * noise)
    D = world.U * epochs
    return pd.DataFrame(
        {"run": "own", "N": world.N, "U": world.U, "D": D, "loss": loss}
    )


def smaller(world: World, rng: np.random.Generator) -> pd.DataFrame:
    """Runs of a quarter, an eighth and a sixteenth of the size, on all and on a quarter of
    the data, each up to twice its own best epochs (at most 400).
    """
    rows = []
    for N in world.N / np.array([16, 8, 4]):
        for U in world.U / np.array([4, 1]):
            best = EPOCHS[world.loss(N, U, EPOCHS).argmin()]
            for epochs in np.geomspace(1, min(2 * best, 400), 8):
                noise = np.exp(2e-3 * rng.standard_normal())
                loss = world.loss(N, U, epochs) * noise
                name = f"{N:.3g}-{U:.3g}-{epochs:.3g}"
                rows.append((name, N, U, U * epochs, loss))
    return pd.DataFrame(rows, columns=["run", "N", "U", "D", "loss"])


VIEWS: dict[str, Callable[[World, np.random.Generator], pd.DataFrame]] = {
    **{
        f"its own curve, up to {share:g} of the best tokens": (
            lambda world, rng, share=share: curve(world, share, rng)
        )
        for share in (0.5, 0.8, 1.2, 2.0)
    },
    "48 smaller runs": smaller,
    "48 smaller runs, its own curve up to 0.5": lambda world, rng: pd.concat(
        [smaller(world, rng), curve(world, 0.5, rng)], ignore_index=True
    ),
}


def ask(table: pd.DataFrame, run: dict[str, float], seed: int) -> bayeslaw.BestStop:
    with warnings.catch_warnings(action="ignore"):
        fit = bayeslaw.fit(table, LAW, preview=True, seed=seed, on_failure="warn")
        return bayeslaw.best_stop(fit, run)


def judge(view: str, seed: int) -> dict:
    """Ask for the stop of one run, and compare it with the truth."""
    world = draw_world(seed)
    rng = np.random.default_rng([72, seed, [*VIEWS].index(view)])
    best = ask(VIEWS[view](world, rng), {"N": world.N, "U": world.U}, seed)
    truth = world.loss(world.N, world.U, np.array([world.best, best.epochs]))
    low, high = (best.best_D[end] / (world.U * world.best) for end in ("low", "high"))
    return {
        "seen": view,
        "form": "the law" if world.name == "the law" else "others",
        "known": best.verdict == "stop",
        "stop": best.epochs / world.best,  # of the true best, and so are the ends
        "low": low,
        "high": high,
        "excess": truth[1] - truth[0],
        "regret": best.regret,
    }


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """A row for each view and form."""
    lines = []
    for (view, form), part in rows.groupby(["seen", "form"], sort=False):
        near = (part["stop"] - 1).abs() <= 0.1
        holds = (part["low"] <= 1) & (part["high"] >= 1)
        right, wrong = part["known"] & near, part["known"] & ~near
        lines.append(
            {
                "seen": view,
                "form": form,
                "runs": len(part),
                "within 10%": f"{right.mean():.0%}",
                "told unknown": f"{1 - part['known'].mean():.0%}",
                "wrong": f"{wrong.mean():.0%}",
                "stop within 10%, known or not": f"{near.mean():.0%}",
                "90% intervals hold": f"{holds.mean():.0%}",
                "nats lost: median, worst": f"{part['excess'].median():.4f}, "
                f"{part['excess'].max():.4f}",
                "nats said to be lost: median": f"{part['regret'].median():.4f}",
            }
        )
    return pd.DataFrame(lines)


def measured(path: Path) -> pd.DataFrame:
    """Forecast the best epochs of published runs from smaller models."""
    runs = bayeslaw.read_runs(path)
    lines = []
    for size, own in runs[runs["U"] == 1e8].groupby("N"):
        N = float(str(size))
        epochs, losses = (own.sort_values("D")[c] for c in ("D", "loss"))
        lowest = int(losses.to_numpy().argmin())
        if len(own) < 5 or lowest == len(own) - 1:
            continue
        places = epochs.to_numpy() / 1e8
        best = ask(runs[runs["N"] < N], {"N": N, "U": 1e8}, 0)
        ends = (best.best_D[end] / 1e8 for end in ("low", "high"))
        lines.append(
            {
                "N": f"{N:.3g}",
                "rows": int((runs["N"] < N).sum()),
                "verdict": best.verdict,
                "epochs forecast": f"{best.epochs:.3g}",
                "90%": " to ".join(f"{end:.3g}" for end in ends),
                "least of the runs at": f"{places[lowest]:.3g}",
                "neighbours": f"{places[lowest - 1]:.3g}, {places[lowest + 1]:.3g}",
            }
        )
    return pd.DataFrame(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="When to stop repeating data.")
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seen", default="")
    parser.add_argument("--measured", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    asked = parser.parse_args()
    if asked.measured:
        print(measured(asked.measured).to_string())
        return
    table = pd.DataFrame()
    if asked.output and asked.output.exists():
        table = pd.read_csv(asked.output)
    for view in (view for view in VIEWS if asked.seen in view):
        rows = [judge(view, seed) for seed in range(asked.runs)]
        kept = table[table["seen"] != view] if len(table) else table
        table = pd.concat([kept, summarise(pd.DataFrame(rows))], ignore_index=True)
        print(table.tail(2).to_string(), flush=True)
        if asked.output:
            table.to_csv(asked.output, index=False)


if __name__ == "__main__":
    main()

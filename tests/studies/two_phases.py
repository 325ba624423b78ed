"""Runs that change their share of replay on the way: where do they end?

    python tests/studies/two_phases.py --source text/source --target text/target \\
        --work wrong.work [-o docs/two_phases.txt]

Trains adaptations of tiny models (`bayeslaw.datasets.microcpt`) at .1, .25 and .5 of
replay, and at .1 then .5 and .5 then .1, changed at a quarter and at half of the run;
all of one checkpoint, so that what checkpoints differ by cancels. The loss at the end is
then forecast from the run's loss at the change and the curves at one replay:

equivalent tokens
    on along the new replay's curve, from where it has the run's loss
mean replay
    the end of the curve at the mean replay, weighted by tokens
new replay
    the end of the new replay's curve, as if the run had been so from its start
parallel
    the new replay's curve from here on, shifted to go through the run's loss

Curves are linear in log tokens between points, and beyond the last; between shares of
replay they are linear in its log. What the work folder has is not trained again.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from follow_wrong import SEED, checkpoint_state, curve_rows

from bayeslaw._base.files import atomic_write
from bayeslaw.datasets.microcpt import train
from bayeslaw.datasets.microcpt.model import parameters
from bayeslaw.datasets.microcpt.table import DOMAINS, Checkpoint
from bayeslaw.datasets.microcpt.train import TOKENS_PER_STEP, steps_for
from bayeslaw.datasets.microcpt.work import Work, losses, open_work

SIZES, STAGES = ("12k", "23k"), (15.0, 93.0, 279.0)
END = 20.0  # tokens per parameter
MEASURED = (2.5, 5.0, 10.0, 14.0, END)
ONE_REPLAY = (0.1, 0.25, 0.5)
CHANGES = ((0.1, 0.5), (0.5, 0.1))
CHANGED_AT = (0.25, 0.5)  # of the run
BEYOND = 4.0  # times the end, up to which a curve is drawn on


@dataclass(frozen=True)
class Phases:
    """Replay ``first``, and ``then`` from a share of the run on; 1: never."""

    first: float
    then: float
    share: float = 1.0

    def at(self, step: int, last: int) -> float:
        """The replay of the steps from this one on."""
        return self.first if step < round(self.share * last) else self.then

    @property
    def mean(self) -> float:
        return self.share * self.first + (1 - self.share) * self.then


RUNS = [Phases(replay, replay) for replay in ONE_REPLAY]
RUNS += [Phases(*change, share) for change in CHANGES for share in CHANGED_AT]


# -- training --------------------------------------------------------------------------


def train_phases(work: Work, checkpoint: Checkpoint) -> pd.DataFrame:
    """All runs of a checkpoint, together."""
    trainer = work.trainer(checkpoint.size)
    begun = checkpoint_state(work, trainer, checkpoint)
    (before,) = losses(trainer, begun)
    last = steps_for(END * trainer.parameters)
    measured = {steps_for(d * trainer.parameters) for d in MEASURED}
    changed = {round(share * last) for share in CHANGED_AT}
    states = trainer.branch(begun, len(RUNS))
    # until it changes, a run is that of its first replay
    keys = train.run_keys(SEED, checkpoint.ptpp, [run.first for run in RUNS])
    at, rows = 0, []
    for step in sorted(measured | changed):
        shares = jnp.asarray([run.at(at, last) for run in RUNS], jnp.float32)
        states = trainer.train(states, shares, keys, step - at)
        at = step
        for run, after in zip(RUNS, losses(trainer, states), strict=True):
            name = f"{checkpoint.name}-r{run.first:g}-r{run.then:g}-at{run.share:g}"
            told = {"first": run.first, "then": run.then, "share": run.share}
            lines = curve_rows(checkpoint, name, run.first, step, after, before)
            rows += [line | told for line in lines]
    return pd.DataFrame(rows)


def train_all(work: Work, path: Path) -> pd.DataFrame:
    """Curves of all checkpoints; what the file holds is not trained again."""
    curves = pd.read_csv(path) if path.exists() else pd.DataFrame()
    for size in SIZES:
        for ptpp in STAGES:
            checkpoint = Checkpoint(size, SEED, ptpp)
            cell = (parameters(size), ptpp)
            if len(curves) and cell in set(
                zip(curves["N"], curves["ptpp"], strict=True)
            ):
                continue
            print(checkpoint.name, flush=True)
            curves = pd.concat([curves, train_phases(work, checkpoint)])
            with atomic_write(path) as part:
                curves.to_csv(part, index=False)
            jax.clear_caches()
    return curves


# -- assumptions -----------------------------------------------------------------------

Curve = Callable[[np.ndarray], np.ndarray]  # log loss at logs of tokens


def curve_of(rows: pd.DataFrame) -> Curve:
    """Through the points, and on along the line through the last two."""
    t, y = np.log(rows["D"].to_numpy(float)), np.log(rows["loss"].to_numpy(float))
    slope = (y[-1] - y[-2]) / (t[-1] - t[-2])
    return lambda at: np.interp(at, t, y) + slope * np.maximum(at - t[-1], 0.0)


@dataclass(frozen=True)
class Change:
    """A run at the moment of its change: log tokens there and at the end, its log loss,
    and the curves at one replay, by replay.
    """

    now: float
    end: float
    log_loss: float
    curves: dict[float, Curve]
    phases: Phases

    @property
    def new(self) -> Curve:
        return self.curves[self.phases.then]

    def places(self) -> np.ndarray:
        """Logs of tokens at which the new curve is looked at."""
        return np.linspace(self.end - np.log(END), self.end + np.log(BEYOND), 2000)

    def misses(self) -> float:
        """How far the new curve stays from the run's loss, in log loss."""
        return float(np.abs(self.new(self.places()) - self.log_loss).min())

    def equivalent(self) -> float:
        """The last place where the new curve comes nearest to the run's loss."""
        places = self.places()
        off = np.abs(self.new(places) - self.log_loss)
        # nearly as near: a curve that rises and falls has a loss twice
        near = off <= off.min() + 1e-4
        tokens = np.exp(places[near][-1]) + np.exp(self.end) - np.exp(self.now)
        return float(self.new(np.log(tokens)))

    def mean(self) -> float:
        """Between the ends of the curves at one replay."""
        replays = np.array(sorted(self.curves))
        ends = [float(self.curves[replay](self.end)) for replay in replays]
        return float(np.interp(np.log(self.phases.mean), np.log(replays), ends))

    def as_new(self) -> float:
        return float(self.new(self.end))

    def parallel(self) -> float:
        return self.log_loss + float(self.new(self.end) - self.new(self.now))


ASSUMPTIONS = {
    "equivalent tokens": Change.equivalent,
    "mean replay": Change.mean,
    "new replay": Change.as_new,
    "parallel": Change.parallel,
}


def errors(curves: pd.DataFrame) -> pd.DataFrame:
    """Relative errors of the end's loss, a row for each change and domain."""
    rows = []
    for (n, ptpp, domain), cell in curves.groupby(["N", "ptpp", "domain"]):
        cell = cell.sort_values("D")
        alone = cell[cell["share"] == 1.0]
        of_replay = {r: curve_of(one) for r, one in alone.groupby("first")}
        for (first, then, share), run in cell[cell["share"] < 1.0].groupby(
            ["first", "then", "share"]
        ):
            log_loss = np.log(run.set_index("D")["loss"])
            end = log_loss.index.max()
            now = TOKENS_PER_STEP * round(share * end / TOKENS_PER_STEP)
            change = Change(
                np.log(now),
                np.log(end),
                log_loss[now],
                of_replay,
                Phases(first, then, share),
            )
            rows.append(
                {"N": n, "ptpp": ptpp, "domain": domain, "first": first, "then": then}
                | {"share": share, "misses": change.misses()}
                | {
                    name: np.expm1(forecast(change) - log_loss[end])
                    for name, forecast in ASSUMPTIONS.items()
                }
            )
    return pd.DataFrame(rows)


def lines_of(table: pd.DataFrame) -> list[str]:
    """Mean absolute errors and mean errors, by domain and change."""
    heads = ["domain", "replay", "changed at", "runs", "loss not on the new curve"]
    heads += list(ASSUMPTIONS)
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    kinds = [["domain", "first", "then", "share"], ["domain"]]
    for keys in kinds:
        for told, rows in table.groupby(keys):
            domain, *of_change = told
            first, then, share = of_change or ("all", "", "")
            figures = [
                domain,
                f"{first:g} then {then:g}" if of_change else first,
                f"{share:.0%}" if of_change else "",
                len(rows),
                int((rows["misses"] > 1e-3).sum()),
            ]
            figures += [
                f"{rows[name].abs().mean():.2%} ({rows[name].mean():+.2%})"
                for name in ASSUMPTIONS
            ]
            lines.append(f"| {' | '.join(map(str, figures))} |")
    assert set(table["domain"]) == set(DOMAINS)
    return lines


def bundled(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs with ``replay`` as the share of all tokens so far, beside the shares of both phases and where the second begins."""
    end = runs.groupby("run")["D"].transform("max")
    begun = TOKENS_PER_STEP * (runs["share"] * end / TOKENS_PER_STEP).round()
    later = (runs["D"] - begun).clip(lower=0) / runs["D"]
    mixed = (1 - later) * runs["first"] + later * runs["then"]
    told = {"first": "replay_first", "then": "replay_then", "share": "changed_at"}
    return runs.rename(columns=told).assign(replay=mixed.round(6))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--bundle", type=Path, help="CSV of the runs, as bundled")
    options = parser.parse_args()
    work = open_work(options.source, options.target, options.work)
    runs = train_all(work, options.work / "two_phases.csv")
    if options.bundle:
        bundled(runs).to_csv(options.bundle, index=False)
    table = errors(runs)
    lines = lines_of(table)
    print("\n".join(lines))
    if options.output:
        options.output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

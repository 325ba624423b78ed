"""Forecast the end of runs that change their share of replay on the way.

    python tests/studies/two_phases.py

The bundled table `microcpt-phases` has adaptations of tiny models at .1, .25 and .5 of
replay, and at .1 then .5 and .5 then .1, changed at a quarter or at half of the run. Runs
are compared within one checkpoint, so that differences between checkpoints cancel. The
loss at the end is forecast from the run's loss at the change and the curves with constant
replay, in five ways:

equivalent tokens
    along the new replay's curve, from the point at which it has the run's loss
mean replay
    the end of the curve at the mean replay, weighted by tokens
new replay
    the end of the new replay's curve, as if the run had started with this replay
remembered
    the end of the new replay's curve, corrected for the part of the first replay that a
    run remembers by `bayeslaw.follow`
parallel
    the new replay's curve from here on, shifted to go through the run's loss

Curves are linear in log tokens between points, and beyond the last; between shares of
replay they are linear in its log.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from bayeslaw import datasets
from bayeslaw._base.errors import RunTableError
from bayeslaw._running.following.track import REMEMBERED

END = 20.0  # tokens per parameter
BEYOND = 4.0  # times the end, up to which a curve is drawn on
NEAR = 0.01  # of the change's tokens: the point that was measured there


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
    first: float
    then: float
    mean_replay: float

    @property
    def new(self) -> Curve:
        return self.curves[self.then]

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
        return float(np.interp(np.log(self.mean_replay), np.log(replays), ends))

    def as_new(self) -> float:
        return float(self.new(self.end))

    def phase(self) -> float:
        """From the new share's end to the first one's, times the part of the run in it."""
        first, part = self.curves[self.first](self.end), np.exp(self.now - self.end)
        return float(part * (first - self.as_new()))

    def remembered(self) -> float:
        return self.as_new() + REMEMBERED * self.phase()

    def parallel(self) -> float:
        return self.log_loss + float(self.new(self.end) - self.new(self.now))


ASSUMPTIONS = {
    "equivalent tokens": Change.equivalent,
    "mean replay": Change.mean,
    "new replay": Change.as_new,
    "remembered": Change.remembered,
    "parallel": Change.parallel,
}


PHASES = ["replay_first", "replay_then", "changed_at"]


def change_of(run: pd.DataFrame, curves: dict[float, Curve]) -> tuple[Change, float]:
    """A run at its change, and its log loss at the end."""
    run = run.sort_values("D")
    first, then, share = run.iloc[-1][PHASES]
    tokens, log_loss = run["D"].to_numpy(float), np.log(run["loss"].to_numpy(float))
    nearest = int(np.abs(tokens / (share * tokens[-1]) - 1).argmin())
    if abs(tokens[nearest] / (share * tokens[-1]) - 1) > NEAR:
        raise RunTableError(f"run {run['run'].iloc[0]} was not measured at its change")
    change = Change(
        now=float(np.log(tokens[nearest])),
        end=float(np.log(tokens[-1])),
        log_loss=float(log_loss[nearest]),
        curves=curves,
        first=first,
        then=then,
        mean_replay=float(run["replay"].iloc[-1]),
    )
    return change, float(log_loss[-1])


def errors(runs: pd.DataFrame) -> pd.DataFrame:
    """Relative errors of the end's loss, a row for each change and domain."""
    rows = []
    for (n, ptpp, domain), cell in runs.groupby(["N", "ptpp", "domain"]):
        alone = cell[cell["changed_at"] == 1.0].sort_values("D")
        curves = {r: curve_of(one) for r, one in alone.groupby("replay_first")}
        for told, run in cell[cell["changed_at"] < 1.0].groupby(PHASES):
            change, end = change_of(run, curves)
            row = {"N": n, "ptpp": ptpp, "domain": domain, "misses": change.misses()}
            row |= {"phase": change.phase(), "left": end - change.as_new()}
            row |= dict(zip(PHASES, told, strict=True))
            for name, forecast in ASSUMPTIONS.items():
                row[name] = np.expm1(forecast(change) - end)
            rows.append(row)
    return pd.DataFrame(rows)


def lines_of(table: pd.DataFrame) -> list[str]:
    """Mean absolute errors and mean errors, by domain and change."""
    heads = ["domain", "replay", "changed at", "runs", "loss not on the new curve"]
    heads += list(ASSUMPTIONS)
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    kinds = [["domain", *PHASES], ["domain"]]
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
    return lines


def memory(rows: pd.DataFrame) -> float:
    """What runs remember of their first replay, by least squares."""
    return float((rows["phase"] * rows["left"]).sum() / (rows["phase"] ** 2).sum())


def memories(rows: pd.DataFrame) -> str:
    """By size, domain and moment; and what is left over with the one that is used."""
    told = [f"all {memory(rows):.2f}"]
    for column, name in (
        ("N", "{:,.0f} parameters"),
        ("domain", "{}"),
        ("changed_at", "at {:.0%}"),
    ):
        told += [
            f"{name.format(k)} {memory(part):.2f}" for k, part in rows.groupby(column)
        ]
    left = np.log1p(rows["remembered"])
    over = ", ".join(
        f"{domain} {np.sqrt((left[part.index] ** 2).mean()):.2%}"
        for domain, part in rows.groupby("domain")
    )
    return (
        f"Remembered, by least squares: {', '.join(told)}. With {REMEMBERED} the root mean "
        f"square of what is left is {np.sqrt((left**2).mean()):.2%} of the loss ({over})."
    )


def table() -> str:
    """Errors under each assumption, and what runs remember, as Markdown."""
    rows = errors(datasets.load("microcpt-phases"))
    return "\n".join([*lines_of(rows), "", memories(rows)])


if __name__ == "__main__":
    print(table())

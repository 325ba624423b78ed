"""What can be bought: training runs measured along the way, their costs, and the checkpoints they start from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import pandas as pd

from bayeslaw._errors import RunTableError
from bayeslaw._runs import NUMERIC
from bayeslaw._simulate import TOKENS_PER_PARAMETER
from bayeslaw._words import people_number

SHOWN = 3  # rows named in a message
FLOPS_PER_TOKEN = 6  # and parameter


@dataclass(frozen=True, eq=False)
class Menu:
    """Runs on offer. Buying a run up to one of its stops gives the losses at that stop and at all before it.

    Parameters
    ----------
    table
        The candidates.
    rows
        Position in the table of each run's stops in order, shape (run, stop); -1 past a run's end.
    cost
        Of a run up to each stop, shape (run, stop); infinite past a run's end. The checkpoint is not in it.
    along
        Logarithm of how far along its run each row is measured (steps, tokens or cost), shape (row,).
    checkpoint
        Index of each run's checkpoint, shape (run,).
    checkpoint_cost
        What each checkpoint costs if it is used at all, shape (checkpoint,).
        A table that names none has one for each run.
    """

    table: pd.DataFrame
    rows: np.ndarray
    cost: np.ndarray
    along: np.ndarray
    checkpoint: np.ndarray
    checkpoint_cost: np.ndarray

    @property
    def first_cost(self) -> np.ndarray:
        """Cost of each run up to each stop with its checkpoint, shape (run, stop)."""
        return self.cost + self.checkpoint_cost[self.checkpoint][:, None]

    def names(self, run: int) -> str:
        """The run as its table calls it, or by its row."""
        row = self.rows[run, 0]
        named = "run" in self.table and pd.notna(self.table["run"].iloc[row])
        return str(self.table["run"].iloc[row] if named else self.table.index[row])


def menu(table: pd.DataFrame) -> Menu:
    """Arrange a table of candidates by run.

    Columns: ``cost`` of the run up to this row (else 6 N D FLOPs), ``run`` (else every row is a run of its own),
    ``checkpoint`` (else N and ptpp) and ``checkpoint_cost``, paid once by whatever is bought of a checkpoint.

    Raises
    ------
    RunTableError
        A cost is missing, negative or infinite, or falls along its run; a run has two checkpoints.
    """
    if not len(table):
        raise RunTableError("the table of candidates has no rows")
    cost, extra = _costs(table), _checkpoint_costs(table)
    along = _along(table, cost)
    runs = _run_codes(table)
    order = np.lexsort((along, runs))
    length = np.bincount(runs)
    rows = np.full((len(length), length.max()), -1)
    rows[runs[order], np.concatenate([np.arange(n) for n in length])] = order
    padded = np.where(rows >= 0, cost[rows], np.inf)
    falls = np.argwhere(padded[:, 1:] < padded[:, :-1])
    if len(falls):
        raise RunTableError(
            f"row {table.index[rows[falls[0][0], falls[0][1] + 1]]}, column 'cost': less than at the point before it in the same "
            "run; cost is that of the run up to the row"
        )
    codes = _checkpoint_codes(table, runs)
    first = codes[rows[:, 0]]
    twice = (rows >= 0) & (codes[rows] != first[:, None])
    if twice.any():
        at = rows[tuple(np.argwhere(twice)[0])]
        raise RunTableError(
            f"row {table.index[at]}, column 'run': its run starts from two checkpoints; name the runs apart"
        )
    dearest = np.zeros(codes.max() + 1)
    np.maximum.at(dearest, codes, extra)
    return Menu(table, rows, padded, along, first, dearest)


def candidates(
    runs: pd.DataFrame,
    *,
    N: Sequence[float] | None = None,
    ptpp: Sequence[float] | None = None,
    replay: Sequence[float] | None = None,
    atpp: Sequence[float] = TOKENS_PER_PARAMETER,
    along_run: bool = True,
) -> pd.DataFrame:
    """Every run one could make at these levels, priced.

    Parameters
    ----------
    runs
        Table of runs whose checkpoints (N and ptpp) exist. Levels not given are those found in it, and columns that
        belong to the checkpoint (``loss_before``, ...) are carried over.
    N, ptpp, replay
        Levels. A checkpoint that is not in ``runs`` is charged its pre-training, 6 N (ptpp N) FLOPs, once.
    atpp
        Adaptation tokens per parameter at which a run is measured.
    along_run
        Whether the points of one model, stage and replay are measured along one training run, so that the largest
        D pays for all. Else each is a run of its own (a schedule that ends there).

    Returns
    -------
    DataFrame
        ``N``, ``ptpp``, ``replay``, ``D``, ``cost`` (FLOPs of the run up to the row), ``checkpoint``,
        ``checkpoint_cost``, ``run``; a column of ``runs`` that is missing there is left out.

    Raises
    ------
    RunTableError
        A level is not a positive number, or the table has none to take levels from.
    """
    given = {"N": N, "ptpp": ptpp, "replay": replay}
    levels = {c: _levels(c, v, runs) for c, v in given.items() if v is not None or c in runs}
    if "N" not in levels:
        raise RunTableError("candidates need model sizes: give N, or runs with a column 'N'")
    ladder = sorted(_checked("atpp", atpp))
    made = pd.DataFrame(list(product(*levels.values(), ladder)), columns=[*levels, "atpp"])
    made["D"] = made["atpp"] * made["N"]
    made["cost"] = FLOPS_PER_TOKEN * made["N"] * made["D"]
    keys = [c for c in ("N", "ptpp") if c in made]
    made = made.merge(_checkpoints(runs, keys), on=keys, how="left")
    new = made["checkpoint"].isna()
    made["checkpoint"] = made["checkpoint"].where(~new, made[keys].map(people_number).agg("-".join, axis=1))
    pretraining = FLOPS_PER_TOKEN * made["N"] ** 2 * made["ptpp"] if "ptpp" in made else 0.0
    made["checkpoint_cost"] = np.where(new, pretraining, 0.0)
    by = [*levels, *([] if along_run else ["atpp"])]
    made["run"] = "new " + made[by].map(lambda v: f"{v:g}").agg("-".join, axis=1)
    made.index = pd.RangeIndex(1, len(made) + 1, name="row")
    return made.drop(columns="atpp")


def _checkpoints(runs: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Checkpoints in a table, with the columns that are theirs (constant over each one's rows)."""
    if not set(keys) <= set(runs):
        return pd.DataFrame(columns=[*keys, "checkpoint"], dtype=float).astype({"checkpoint": object})
    by = runs.groupby(keys)
    own = [c for c in ("checkpoint", "loss_before", "source_loss_before", "S1_pt", "S2_pt") if c in runs]
    found = by[[c for c in own if (by[c].nunique() == 1).all()]].first().reset_index()
    if "checkpoint" not in found:
        found["checkpoint"] = found[keys].map(people_number).agg("-".join, axis=1)
    return found


def _levels(name: str, given: Sequence[float] | None, runs: pd.DataFrame) -> list[float]:
    return sorted(_checked(name, runs[name].dropna().unique() if given is None else given))


def _checked(name: str, given: Sequence[float] | np.ndarray) -> list[float]:
    levels = np.unique(np.atleast_1d(np.asarray(given, float)))
    good = np.isfinite(levels) & (levels > 0 if name != "replay" else (levels >= 0) & (levels <= 1))
    if not len(levels) or not good.all():
        bad = "none" if not len(levels) else f"{levels[~good][0]:g}"
        raise RunTableError(
            f"{name} ({NUMERIC.get(name, 'tokens per parameter')}): {bad} is not a level a run can have"
        )
    return levels.tolist()


# -- costs -----------------------------------------------------------------------------------------------------------


def _costs(table: pd.DataFrame) -> np.ndarray:
    if "cost" in table:
        return _money(table, "cost", "write what the run costs up to this row")
    if not {"N", "D"} <= set(table):
        raise RunTableError(
            f"candidates need a column 'cost', or N and D to price them at 6 N D FLOPs; they have: {', '.join(map(str, table.columns))}"
        )
    priced = table[["N", "D"]].astype(float).assign(cost=lambda t: FLOPS_PER_TOKEN * t["N"] * t["D"])
    return _money(priced, "cost", "N and D must be positive numbers")


def _checkpoint_costs(table: pd.DataFrame) -> np.ndarray:
    if "checkpoint_cost" not in table:
        return np.zeros(len(table))
    return _money(table, "checkpoint_cost", "write 0 where the checkpoint exists")


def _money(table: pd.DataFrame, column: str, do: str) -> np.ndarray:
    x = pd.to_numeric(table[column], errors="coerce").to_numpy(float)
    problems = {"missing, or not a number": np.isnan(x), "infinite": np.isinf(x), "negative": x < 0}
    for what, bad in problems.items():
        if bad.any():
            rows = table.index[bad]
            more = f" and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
            named = ", ".join(map(str, rows[:SHOWN])) + more
            raise RunTableError(f"row{'s' * (len(rows) > 1)} {named}, column {column!r}: {what}; {do}")
    return x


def _along(table: pd.DataFrame, cost: np.ndarray) -> np.ndarray:
    column = next((c for c in ("step", "D") if c in table and table[c].notna().all()), None)
    x = cost if column is None else table[column].to_numpy(float)
    return np.log(np.maximum(x, 1.0))


def _checkpoint_codes(table: pd.DataFrame, runs: np.ndarray) -> np.ndarray:
    """Index of each row's checkpoint, shape (row,); its run's where the table does not tell."""
    if "checkpoint" in table and table["checkpoint"].notna().all():
        return pd.factorize(table["checkpoint"].astype(str))[0]
    return table.groupby(["N", "ptpp"]).ngroup().to_numpy() if {"N", "ptpp"} <= set(table) else runs


def _run_codes(table: pd.DataFrame) -> np.ndarray:
    if "run" not in table:
        return np.arange(len(table))
    named = table["run"].notna().to_numpy()
    own = np.where(named, table["run"].astype(str), [f"\0{i}" for i in range(len(table))])
    return pd.factorize(own)[0]

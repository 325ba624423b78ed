"""Arrange the runs on offer: points along runs, their costs, their checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bayeslaw._base.errors import PlanError, RunTableError
from bayeslaw._base.frames import Table
from bayeslaw._base.numbers import format_count, parse_number
from bayeslaw._costs.costs import FLOPS_PER_TOKEN, Bill, Costs
from bayeslaw._law.columns import LOSS_BEFORE, SOURCE_LOSS_BEFORE
from bayeslaw._posteriors.chain import models_of
from bayeslaw._tables.proposals import it_has
from bayeslaw._tables.rows.levels import (
    at_levels,
    find_checkpoints,
    is_of_model,
    with_levels,
)
from bayeslaw._tables.runs import NUMERIC, as_design, refuse
from bayeslaw._tables.simulate import TOKENS_PER_PARAMETER

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int, Num

Levels = float | str | Sequence[float | str]
Pick = tuple[int, int]
"""Index of a run, and of the stop at which it ends."""


@dataclass(frozen=True, eq=False)
class Priced:
    """Costs of runs on offer."""

    # cost still to pay for a run up to each stop, without its checkpoint; infinite past
    # a run's end, and where it is not on offer
    cost: Float[np.ndarray, "run stop"]
    checkpoint: Int[np.ndarray, " run"]  # index of each run's checkpoint
    # cost of each checkpoint, paid once if it is used; if the table names no
    # checkpoints, each run has its own
    checkpoint_cost: Float[np.ndarray, " checkpoint"]

    @cached_property
    def trifle(self) -> float:
        """Cost that a run without cost counts as: a small share of the lowest one."""
        costs = self.cost[np.isfinite(self.cost) & (self.cost > 0)]
        return 1e-9 * float(costs.min()) if len(costs) else 1.0

    def checkpoints_of(self, picks: Sequence[Pick]) -> set[int]:
        """Collect the checkpoints from which picked runs start."""
        return {int(self.checkpoint[run]) for run, _ in picks}

    def due(self, used: Collection[int] = ()) -> Float[np.ndarray, "run stop"]:
        """Compute the cost of each run up to each stop, with its checkpoint unless that
        is paid for (``used``), shape (run, stop).
        """
        of_checkpoints = self.checkpoint_cost.copy()
        of_checkpoints[list(used)] = 0.0
        return self.cost + of_checkpoints[self.checkpoint][:, None]

    def price_picks(self, picks: Sequence[Pick]) -> float:
        """Compute the cost of all picks, each checkpoint paid once."""
        used = sorted(self.checkpoints_of(picks))
        runs = sum(self.cost[pick] for pick in picks)
        return float(runs + self.checkpoint_cost[used].sum())


@dataclass(frozen=True, eq=False)
class Menu(Priced):
    """Runs on offer. A run up to a stop gives the losses there and before it."""

    table: pd.DataFrame  # the candidates
    # position in the table of each run's stops in order; -1 past a run's end
    rows: Int[np.ndarray, "run stop"]
    # logarithm of the position of each row along its run (steps, tokens or cost)
    along: Float[np.ndarray, " row"]
    had: Bool[np.ndarray, " row"]  # rows with existing losses

    def without(self, had: Bool[np.ndarray, " row"]) -> Menu:
        """Build the menu that remains once some rows exist. ``had``: mask of these
        rows, shape (row,). A run goes on from its last existing row and costs the
        difference; earlier points are free. A stop without new measurements is not for
        sale, and a checkpoint is not paid twice.
        """
        begun = self.begun(had)
        paid = np.where(begun, self.cost, 0.0).max(axis=1, keepdims=True)
        is_new = np.logical_or.accumulate((self.rows >= 0) & ~begun, axis=1)
        cost = np.where(is_new, np.maximum(self.cost - paid, 0.0), np.inf)
        due = self.checkpoint_cost.copy()
        due[self.checkpoint[begun.any(axis=1)]] = 0.0
        return replace(self, cost=cost, checkpoint_cost=due, had=self.had | had)

    def withdraw(self, fitted: Bool[np.ndarray, " row"]) -> Menu:
        """Take runs off the menu that another run has measured. ``fitted``: mask of
        rows with the settings of a fitted row, shape (row,). A run up to a stop is not
        for sale if all its rows are among them.
        """
        is_fitted = np.where(self.rows >= 0, fitted[self.rows], True)
        all_fitted = np.logical_and.accumulate(is_fitted, axis=1)
        return replace(self, cost=np.where(all_fitted, np.inf, self.cost))

    def measured_by(self, pick: Pick) -> Int[np.ndarray, " row"]:
        """List the rows that a run up to a stop adds to the existing ones."""
        run, stop = pick
        rows = self.rows[run, : stop + 1]
        return rows[~self.had[rows]]

    def begun(self, bought: Bool[np.ndarray, " row"]) -> Bool[np.ndarray, "run stop"]:
        """Tell which stops of each run are among the bought rows, shape (row,)."""
        return (self.rows >= 0) & bought[self.rows]

    def price(self, bought: Bool[np.ndarray, " row"]) -> float:
        """Compute the cost of all bought rows, each checkpoint paid once."""
        begun = self.begun(bought)
        last = begun.shape[1] - 1 - np.argmax(begun[:, ::-1], axis=1)
        runs = np.flatnonzero(begun.any(axis=1))
        return self.price_picks([(int(run), int(last[run])) for run in runs])

    def names(self, run: int) -> str:
        """Name a run as in the table, or by its row."""
        row = self.rows[run, 0]
        if "run" in self.table and pd.notna(self.table["run"].iloc[row]):
            return str(self.table["run"].iloc[row])
        return str(self.table.index[row])


def check_rows(candidates: pd.DataFrame) -> None:
    """Refuse candidates that share a row number."""
    if not candidates.index.is_unique:
        row = candidates.index[candidates.index.duplicated()][0]
        raise RunTableError(
            f"two candidates are called row {row}: number the rows anew (reset_index)"
        )


def menu(table: pd.DataFrame, costs: Costs | None = None) -> Menu:
    """Arrange a table of candidates by run.

    Columns: ``cost`` of the run up to this row (else 6 N D FLOPs, or money by
    ``costs``), ``run`` (else every row is a run of its own), ``checkpoint`` (else N and
    ptpp) and ``checkpoint_cost``, paid once if any run of a checkpoint is bought.
    """
    if not len(table):
        raise RunTableError("the table of candidates has no rows")
    cost = _price_rows(table, costs)
    extra = np.zeros(len(table))
    if "checkpoint_cost" in table:
        remedy = "write 0 where the checkpoint exists"
        extra = _read_costs(table["checkpoint_cost"], "checkpoint_cost", remedy)
    # where each row lies along its run; a row without a name is its own run
    complete = [c for c in ("step", "D") if c in table and table[c].notna().all()]
    far = table[complete[0]].to_numpy(float) if complete else cost
    along = np.log(np.maximum(far, 1.0))
    runs = np.arange(len(table))
    if "run" in table:
        alone = [f"\0{i}" for i in range(len(table))]  # names that no run has
        names = np.where(table["run"].notna(), table["run"].astype(str), alone)
        runs = pd.factorize(names)[0]
    # positions in the table of each run's stops in order, -1 past its end
    length = np.bincount(runs)
    rows = np.full((len(length), length.max()), -1)
    order = np.lexsort((along, runs))
    rows[runs[order], np.concatenate([np.arange(n) for n in length])] = order
    along_runs = np.where(rows >= 0, cost[rows], np.inf)
    falls = np.argwhere(along_runs[:, 1:] < along_runs[:, :-1])
    if len(falls):
        run, stop = falls[0]
        fault = "less than at the point before it in the same run"
        row = table.index[rows[run, stop + 1]]
        refuse([row], "cost", fault, "cost is that of the run up to the row")
    # each row's checkpoint: by name, else by N and ptpp, else that of its run
    codes = runs
    if "checkpoint" in table and table["checkpoint"].notna().all():
        codes = pd.factorize(table["checkpoint"].astype(str))[0]
    elif {"N", "ptpp"} <= set(table):
        levels = [at_levels(table[column].to_numpy(float)) for column in ("N", "ptpp")]
        codes = table.groupby(levels).ngroup().to_numpy()
    differs = (rows >= 0) & (codes[rows] != codes[rows[:, :1]])
    if differs.any():
        row = table.index[rows[tuple(np.argwhere(differs)[0])]]
        fault = "its run starts from two checkpoints"
        refuse([row], "run", fault, "name the runs apart")
    dearest = np.zeros(codes.max() + 1)
    np.maximum.at(dearest, codes, extra)
    had = np.zeros(len(table), bool)
    return Menu(along_runs, codes[rows[:, 0]], dearest, table, rows, along, had)


def _price_rows(table: pd.DataFrame, costs: Costs | None) -> Float[np.ndarray, " row"]:
    """Find the cost of each row's run: that of the table, or computed from N and D."""
    if costs is not None and not costs.has_money:
        raise PlanError(
            "runs are bought for money: give a price per device-hour "
            "(Costs(hardware='64xH100', price=2.5); --hardware 64xH100 --price 2.5)"
        )
    remedy = "write what the run costs up to this row"
    has_counts = {"N", "D"} <= set(table)
    if "cost" in table:
        if costs is not None and has_counts:
            flops = FLOPS_PER_TOKEN * table["N"] * table["D"]
            if np.allclose(table["cost"].astype(float), flops.astype(float), rtol=1e-6):
                raise PlanError(
                    "the candidates' costs are 6 N D FLOPs and the budget is money: make "
                    "them with candidates(..., costs=costs), or drop their column 'cost'"
                )
        return _read_costs(table["cost"], "cost", remedy)
    if not has_counts:
        raise RunTableError(
            "candidates need a column 'cost', or N and D to price them at 6 N D "
            f"FLOPs; the table lacks them; {it_has(table)}"
        )
    price = pd.Series(
        _price_runs(costs, table["N"], table["D"], once=True), table.index
    )
    remedy = remedy if costs is not None else "N and D must be positive numbers"
    return _read_costs(price, "cost", remedy)


def _read_costs(column: pd.Series, name: str, do: str) -> Float[np.ndarray, " row"]:
    """Read a column of costs; an error names rows and the ``remedy``."""
    costs = pd.to_numeric(column, errors="coerce").to_numpy(float)
    faults = {
        "missing, or not a number": np.isnan(costs),
        "infinite": np.isinf(costs),
        "negative": costs < 0,
    }
    for fault, bad in faults.items():
        if bad.any():
            refuse(column.index[bad], name, fault, do)
    return costs


def candidates(
    runs: Table,
    *,
    N: Levels | None = None,
    ptpp: Levels | None = None,
    replay: Levels | None = None,
    atpp: Levels | None = None,
    D: Levels | None = None,
    along_run: bool = True,
    costs: Costs | None = None,
) -> pd.DataFrame:
    """List every possible run at these levels, with its price.

    Parameters
    ----------
    runs
        Table of runs whose checkpoints (N and ptpp) exist. Levels that are not given
        are taken from it. Columns that belong to a checkpoint (``loss_before``, ...)
        are carried over.
    N, ptpp, replay
        Levels, as numbers or as people write them (``"7B"``, ``"25%"``). A checkpoint
        that is not in ``runs`` is charged its pre-training, 6 N (ptpp N) FLOPs, once.
    atpp
        Adaptation tokens per parameter at which a run is measured, by default .25 to
        20.
    D
        Adaptation tokens at which a run is measured, in place of ``atpp``.
    along_run
        True: the points of one model, stage and replay are measured along one training
        run, so the largest D pays for all. False: each is a run of its own (with a
        schedule that ends there).
    costs
        Prices: then costs are in money, a run's fixed cost included. Without a price
        they are in FLOPs.

    Returns
    -------
    DataFrame
        ``N``, ``ptpp``, ``replay``, ``D``, ``cost`` (FLOPs, or money, of the run up to
        the row), ``checkpoint``, ``checkpoint_cost``, ``run``. A column that ``runs``
        does not have is left out.

    Raises
    ------
    RunTableError
        A level is not a positive number, the table has none to take levels from, or
        both ``atpp`` and ``D`` are given.

    Examples
    --------
    >>> offer = bayeslaw.candidates(of_target, N=[241e6], replay=[0.1], atpp=[1, 5])
    >>> sorted(set(offer["D"]))
    [241000000.0, 1205000000.0]
    """
    runs = with_levels(as_design(runs))
    levels = {}
    for name, wanted in {"N": N, "ptpp": ptpp, "replay": replay}.items():
        if wanted is not None or name in runs:
            there = runs[name].dropna().unique() if wanted is None else wanted
            levels[name] = _read_levels(name, there)
    if "N" not in levels:
        raise RunTableError(
            "candidates need model sizes: give N, or runs with a column 'N'"
        )
    if atpp is not None and D is not None:
        raise RunTableError(
            "candidates take tokens per parameter (atpp) or tokens (D), not both"
        )
    per_parameter = TOKENS_PER_PARAMETER if atpp is None else atpp
    length, stops = ("atpp", per_parameter) if D is None else ("D", D)
    all_levels = levels | {length: _read_levels(length, stops)}
    table = pd.DataFrame(product(*all_levels.values()), columns=[*all_levels])
    # The checkpoint of each row, with its columns if `runs` has it, else with the cost
    # of its pre-training
    keys = [c for c in ("N", "ptpp") if c in table]
    there = _list_checkpoints(runs, keys)
    own = there.reindex(find_checkpoints(table, there[keys])).set_axis(table.index)
    table[keys] = own[keys].fillna(table[keys])
    table = table.join(own.drop(columns=keys)).drop_duplicates(ignore_index=True)
    new = table["checkpoint"].isna()
    named = _join_numbers(table[keys], format_count)
    table["checkpoint"] = table["checkpoint"].where(~new, named)
    if D is None:
        table["D"] = table.pop("atpp") * table["N"]
    table["cost"] = _price_runs(costs, table["N"], table["D"], once=True)
    stage = table["ptpp"] if "ptpp" in table else pd.Series(0.0, table.index)
    pretraining = _price_runs(costs, table["N"], table["N"] * stage, once=False)
    table["checkpoint_cost"] = np.where(new, pretraining, 0.0)
    settings = [*levels] if along_run else [*levels, "D"]
    table["run"] = "new " + _join_numbers(table[settings], lambda level: f"{level:g}")
    table.index = pd.RangeIndex(1, len(table) + 1, name="row")
    return table


def _join_numbers(columns: pd.DataFrame, text: Callable[[float], str]) -> pd.Series:
    return columns.map(text).agg("-".join, axis=1)


def _list_checkpoints(runs: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """List the checkpoints of a table with the columns that they determine."""
    if not set(keys) <= set(runs):
        empty = pd.DataFrame(columns=[*keys, "checkpoint"], dtype=float)
        return empty.astype({"checkpoint": object})
    # columns of a checkpoint, the same for all runs from it
    carried = ("checkpoint", LOSS_BEFORE, SOURCE_LOSS_BEFORE, "S1_pt", "S2_pt")
    by_checkpoint = runs.groupby(keys)
    levels = by_checkpoint[[c for c in carried if c in runs]].nunique()
    constant = [
        column
        for column in levels
        if (levels[column] <= 1).all()
        and not (column == "checkpoint" and (levels[column] < 1).any())
    ]
    table = by_checkpoint[constant].first().reset_index()
    if "checkpoint" not in table:
        table["checkpoint"] = _join_numbers(table[keys], format_count)
    return table


def with_planned_checkpoint(offered: pd.DataFrame, N: Any, ptpp: Any) -> pd.DataFrame:
    """Take the checkpoints of planned models, which will be there, as free."""
    planned = [is_of_model(offered, *model) for model in models_of(N, ptpp)]
    free = offered["checkpoint_cost"].mask(np.any(planned, axis=0), 0.0)
    return offered.assign(checkpoint_cost=free)


def _read_levels(name: str, wanted: Levels | Num[np.ndarray, " level"]) -> list[float]:
    """Check the levels and sort them. A level far beyond any model is a mistake in its
    unit: ``1,5`` read as two levels, or parameters in billions.
    """
    entries = np.atleast_1d(np.asarray(wanted, object))
    levels = np.unique([parse_number(level) for level in entries])
    ends = {"replay": (0.0, 1.0), "N": (1e3, 1e15), "D": (1.0, 1e18)}
    least, most = ends.get(name, (1e-9, 1e6))
    possible = (levels >= least) & (levels <= most)
    if not len(levels) or not possible.all():
        bad = f"{levels[~possible][0]:g}" if len(levels) else "none"
        what = NUMERIC.get(name, "tokens per parameter")
        raise RunTableError(
            f"{name} ({what}): {bad} is not a level a run can have, from {least:g} to "
            f"{most:g}"
        )
    return levels.tolist()


# -- costs -----------------------------------------------------------------------------


def _price_runs(
    costs: Costs | None, N: pd.Series, D: pd.Series, *, once: bool
) -> list[float] | pd.Series:
    """Compute the price of runs: money, plus the cost ``once`` of each run; without a
    price FLOPs, by default 6 N D.
    """
    if costs is None:
        return FLOPS_PER_TOKEN * N.astype(float) * D.astype(float)
    fixed, unit = costs.fixed if once else 0.0, "money" if costs.has_money else "flops"
    bills = [
        costs.of_tokens(*run) + Bill(money=fixed) for run in zip(N, D, strict=True)
    ]
    return [getattr(bill, unit) for bill in bills]


def days_of(menu: Menu, picks: Sequence[Pick], costs: Costs) -> float:
    """Compute the days until all picked runs are done. Several train side by side, as
    ``costs`` says. A run waits for its checkpoint if that must be trained first. A run
    with existing rows goes on from them.
    """
    days, begun = [], set()
    for run, stop in picks:
        rows = menu.rows[run, : stop + 1]
        row = menu.table.iloc[rows[-1]]
        before = menu.table["D"].iloc[rows[menu.had[rows]]].max()
        tokens = row["D"] - (0.0 if np.isnan(before) else before)
        bill = costs.of_tokens(row["N"], tokens)
        checkpoint = int(menu.checkpoint[run])
        price = menu.checkpoint_cost[checkpoint] if checkpoint not in begun else 0.0
        begun.add(checkpoint)
        # hours are in proportion to money
        days.append(bill.days * (1 + price / bill.money))
    return costs.days_of(days)

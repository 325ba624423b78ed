"""Run tables: columns, units, validation. One row per measured loss."""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bayeslaw._columns import one_loss_a_row, renamed
from bayeslaw._errors import RunTableError, RunTableWarning
from bayeslaw._schedule import add_areas
from bayeslaw._words import people_number

if TYPE_CHECKING:
    from bayeslaw._law import Law

# column of the schema: what it is
NUMERIC = {
    "N": "model parameters",
    "D": "adaptation (or training) tokens",
    "replay": "share of source data in the mixture, 0 to 1",
    "ptpp": "pre-training tokens per parameter",
    "loss": "nats per token",
    "loss_before": "loss of the checkpoint before adaptation, nats per token",
    "source_loss_before": "source loss of the checkpoint before adaptation, nats per token",
    "target_loss_before": "target loss of the checkpoint before adaptation, nats per token",
    "source_loss": "loss on the source domain, nats per token",
    "target_loss": "loss on the target domain, nats per token",
    "S1_pt": "forward area of the pre-training schedule, computed where there are columns step, lr and run",
    "S2_pt": "annealing area of the pre-training schedule, computed where there are columns step, lr and run",
    "S1_cpt": "forward area of the adaptation schedule",
    "S2_cpt": "annealing area of the adaptation schedule",
    "step": "step",
    "lr": "learning rate",
    "cost": "cost of the run",
}
FAR = 100.0  # times the reference run's size, or a share of it, beyond which priors in nats may not suit
POSITIVE = ("N", "D", "ptpp", *(n for n in NUMERIC if "loss" in n))
MULTIPLES = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12, "%": 0.01}
NUMBER = re.compile(r"([-+]?(?:\d[\d_,]*\.?\d*|\.\d+)(?:e[-+]?\d+)?)\s*([kmbgt%]?)", re.IGNORECASE)
SHOWN = 3  # rows named in a message
TEXT = ("run", "checkpoint", "domain", "schedule", "seed")


def parse_number(text: object) -> float:
    """Read a number as people write it: ``8.1B``, ``517M``, ``2e20``, ``34%``, ``1,000``.

    Raises
    ------
    RunTableError
        It is not a number.
    """
    if isinstance(text, (int, float, np.number)):
        return float(text)
    match = NUMBER.fullmatch(str(text).strip())
    if not match:
        raise RunTableError(f"{str(text)!r} is not a number; write it like 8.1B, 517M, 2e20, 34% or 0.34")
    return float(match[1].replace(",", "").replace("_", "")) * MULTIPLES[match[2].lower()]


def read_runs(
    source: str | Path | pd.DataFrame,
    *,
    where: str | None = None,
    columns: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """Read, select and validate a table of runs.

    Tables exported by experiment trackers name columns ``config.N``, ``params.N``, ``summary/loss`` or ``metrics.loss``:
    they are read as ``N`` and ``loss`` where the table has no column of that name itself.

    A table with both losses in one row, ``target_loss`` and ``source_loss``, and no ``loss`` or ``domain``, becomes one with
    a row for each.

    A table with columns ``step`` and ``lr``, the rows of a curve named by ``run`` (or ``schedule``, ``curve``), gets
    its areas S1 and S2 if it has none; they sum over all rows of the curve, selected or not (`areas_from_table`).

    Parameters
    ----------
    source
        A CSV or Parquet file, or a DataFrame.
    where
        A pandas query that selects rows, for instance ``"ptpp <= 31 and domain == 'target'"``.
    columns
        Your column name -> name of the schema, for tables with other names; yours may end in a factor, for other units:
        ``{"tokens_B*1e9": "D", "replay_pct/100": "replay"}``.

    Returns
    -------
    DataFrame
        The selected rows; schema columns as floats. Its index keeps the row numbers of the source, from 1.

    Raises
    ------
    RunTableError
        What cannot be used, naming row and column.
    """
    runs = renamed(_load(source), columns or {}, (*NUMERIC, *TEXT))
    runs.index = pd.RangeIndex(1, len(runs) + 1, name="row")
    runs, text = _numbers(runs)
    runs = _select(one_loss_a_row(add_areas(runs)), where)
    for name, rows in text.items():
        bad = [r for r in rows if r in runs.index]
        if bad:
            _refuse(bad, name, f"{rows[bad[0]]!r} is not a number", "write it like 8.1B, 517M, 2e20, 34% or 0.34")
    _check_values(runs)
    _check_repeats(runs)
    _warn_units(runs)
    return runs if runs.index.is_unique else runs.set_axis(pd.RangeIndex(1, len(runs) + 1, name="row"))


def _load(source: str | Path | pd.DataFrame) -> pd.DataFrame:
    if isinstance(source, pd.DataFrame):
        return source.copy()
    path = Path(source)
    if not path.is_file():
        raise RunTableError(f"{path}: no such file; give a CSV or Parquet table of runs")
    try:
        if path.suffix.lower() in (".parquet", ".pq"):
            return pd.read_parquet(path)
        return pd.read_csv(path, sep="\t" if path.suffix.lower() == ".tsv" else ",", skipinitialspace=True)
    except (ValueError, OSError, pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise RunTableError(f"{path}: cannot be read as a table ({reason})") from None


def _numbers(runs: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, dict[int, object]]]:
    """Schema columns as floats, and the cells that are no numbers: column -> row -> text."""
    text: dict[str, dict[int, object]] = {}
    for name in NUMERIC:
        if name not in runs or pd.api.types.is_numeric_dtype(runs[name]):
            if name in runs:
                runs[name] = runs[name].astype(float)
            continue
        _warn_percent(name, runs[name])
        parsed = np.full(len(runs), np.nan)
        for i, cell in enumerate(runs[name]):
            try:
                parsed[i] = np.nan if pd.isna(cell) else parse_number(cell)
            except RunTableError:
                text.setdefault(name, {})[int(runs.index[i])] = cell
        runs[name] = parsed
    return runs, text


def _warn_percent(name: str, cells: pd.Series) -> None:
    written = cells.dropna().astype(str).str.strip()
    percent = written.str.endswith("%")
    fraction = ~percent & ~written.isin(("0", "0.0"))
    if percent.any() and fraction.any():
        example = f"{written[percent].iloc[0]} and {written[fraction].iloc[0]}"
        warnings.warn(
            f"column {name!r} mixes percent with fractions ({example}): read as written; write all of them one way",
            RunTableWarning,
            stacklevel=4,
        )


def _select(runs: pd.DataFrame, where: str | None) -> pd.DataFrame:
    if where is None:
        return runs
    try:
        chosen = runs.query(where)
    except Exception as error:  # pandas raises whatever its parser does
        raise RunTableError(
            f"--where {where!r} is not a query of this table ({error}); columns: {', '.join(map(str, runs.columns))}"
        ) from None
    if chosen.empty:
        raise RunTableError(f"--where {where!r} selects none of the {len(runs)} rows")
    return chosen


def _refuse(rows: list[int], column: str, what: str, do: str) -> None:
    named = ", ".join(map(str, rows[:SHOWN])) + (f" and {len(rows) - SHOWN} more" if len(rows) > SHOWN else "")
    raise RunTableError(f"row{'s' * (len(rows) > 1)} {named}, column {column!r}: {what}; {do}")


def _check_values(runs: pd.DataFrame) -> None:
    for name in (n for n in NUMERIC if n in runs):
        x = runs[name].to_numpy()
        empty_is_wrong = name == "loss"
        problems = {
            "NaN or empty": (np.isnan(x) & empty_is_wrong, 'leave such runs out (where "loss > 0") or measure them'),
            "infinite": (np.isinf(x), "remove the run or mend the number"),
            "not positive": ((x <= 0) & (name in POSITIVE), f"{name} is {NUMERIC[name]} and must be above 0"),
            "negative": ((x < 0) & (name in ("cost", "step", "lr")), f"{name} must be at least 0"),
        }
        if name == "replay" and not (_finite(x) > 1).mean() > 0.5:
            problems["outside [0, 1]"] = ((x < 0) | (x > 1), "replay is a share: write 0.34 or 34%")
        elif name == "replay":
            problems["outside [0, 1]"] = (x != np.clip(x, 0, 1), "these look like percent: write 0.34 or 34%")
        for what, (bad, do) in problems.items():
            if bad.any():
                first = x[bad][0]
                shown = what if np.isnan(first) else f"{first:g} is {what}"
                _refuse([int(r) for r in runs.index[bad]], name, shown, do)


def _finite(x: np.ndarray) -> np.ndarray:
    return x[np.isfinite(x)]


def _check_repeats(runs: pd.DataFrame) -> None:
    """One run cannot have two losses at one point; other runs with equal covariates are replicates."""
    if not {"run", "loss"} <= set(runs):
        return
    along = "step" if "step" in runs else "D"
    keys = [k for k in ("run", along, "domain") if k in runs]
    counts = runs.groupby(keys, dropna=False)["loss"].transform("nunique")
    twice = counts.to_numpy() > 1
    if twice.any():
        first = runs[twice].iloc[0]
        twins = runs[(runs[keys] == first[keys]).all(axis=1)]
        named = ", ".join(f"{k} {first[k]}" for k in keys)
        do = "name the runs apart (replicates are other runs) or drop the wrong row"
        _refuse([int(r) for r in twins.index], "loss", f"different losses for one {named}", do)


def _warn_units(runs: pd.DataFrame) -> None:
    def warn(message: str) -> None:
        warnings.warn(message, RunTableWarning, stacklevel=4)

    if "N" in runs and bool((runs["N"] < 1000).all()):
        warn(
            f"column 'N' is at most {runs['N'].max():g}: model parameters in millions or billions? write 8.1B or 8.1e9"
        )
    if {"N", "D"} <= set(runs) and bool(((runs["D"] < 1e4) & (runs["N"] > 1e4)).all()):
        warn(
            f"column 'D' is at most {runs['D'].max():g}: billions, or tokens per parameter? D is tokens: multiply by 1e9 "
            "(--column D=yours*1e9) or by N"
        )


# -- what was fitted ------------------------------------------------------------------------------------------------


def fitted(table: object, runs: pd.DataFrame) -> np.ndarray:
    """Which runs are rows of the table that a posterior was fitted to, by all their numbers; shape (run,)."""
    if not isinstance(table, pd.DataFrame):
        return np.zeros(len(runs), bool)
    keys = [c for c in NUMERIC if c in runs and c in table]
    if "loss" not in keys:
        return np.zeros(len(runs), bool)
    rows = set(table[keys].astype(float).fillna(-1.0).itertuples(index=False, name=None))
    return np.array([row in rows for row in runs[keys].astype(float).fillna(-1.0).itertuples(index=False, name=None)])


def warn_other_domain(table: object, runs: pd.DataFrame) -> None:
    """Warn where a fit of one domain is asked about runs of another."""
    if not (isinstance(table, pd.DataFrame) and "domain" in table and "domain" in runs):
        return
    own = table["domain"].astype(str).unique()
    other = runs.loc[~runs["domain"].astype(str).isin(own), "domain"].astype(str)
    if len(own) == 1 and len(other):
        warnings.warn(
            f"the fit is of domain {own[0]!r}, and {len(other)} of {len(runs)} rows are of {other.iloc[0]!r}: select rows "
            f"with where \"domain == '{own[0]}'\"",
            RunTableWarning,
            stacklevel=3,
        )


# -- what a law needs ------------------------------------------------------------------------------------------------


def covariates(law: Law, runs: pd.DataFrame) -> dict[str, np.ndarray]:
    """The columns a law reads, each of shape (run,).

    Raises
    ------
    RunTableError
        A column is missing, or empty at a row.
    """
    for name in law.covariates:
        if name not in runs:
            folded = {str(c).casefold(): str(c) for c in runs.columns if c not in NUMERIC}
            close = [folded[c] for c in difflib.get_close_matches(name.casefold(), folded, 1, 0.6)]
            hint = f" (is it {close[0]!r}? rename it)" if close else ""
            raise RunTableError(
                f"law {law.name!r} needs column {name!r} ({NUMERIC.get(name, 'covariate')}), which the table lacks{hint}; "
                f"it has: {', '.join(map(str, runs.columns))}"
            )
        empty = runs[name].isna().to_numpy()
        if empty.any():
            _refuse([int(r) for r in runs.index[empty]], name, "empty", f"law {law.name!r} needs it at every row")
    return {name: runs[name].to_numpy(float) for name in law.covariates}


def losses(runs: pd.DataFrame) -> np.ndarray:
    """The measured losses, shape (run,).

    Raises
    ------
    RunTableError
        There is no loss column.
    """
    if "loss" not in runs:
        raise RunTableError(
            f"the table has no column 'loss' to compare with; it has: {', '.join(map(str, runs.columns))}"
        )
    return runs["loss"].to_numpy(float)


def _warn_far(law: Law, x: Mapping[str, np.ndarray]) -> None:
    """Priors in nats are stated at a reference run; models far smaller or larger need another."""
    if "N" not in law.covariates:
        return
    low, high, at = float(x["N"].min()), float(x["N"].max()), float(law.reference["N"])
    if low <= FAR * at and high >= at / FAR:
        return
    warnings.warn(
        f"models of {people_number(low)} to {people_number(high)} parameters lie far from the reference run of law "
        f"{law.name!r} (N = {people_number(at)}), at which priors are stated in nats; state one near them: "
        f"--reference N={people_number((low * high) ** 0.5)}, in Python reference={{'N': ...}}",
        RunTableWarning,
        stacklevel=4,
    )


def check_fittable(law: Law, runs: pd.DataFrame, requested: Collection[str] = ()) -> None:
    """Refuse a table from which the law's exponents cannot be learned, warn where they barely can.

    ``requested`` names the exponents whose prior the user set: along their column one level is allowed.

    Raises
    ------
    RunTableError
        Fewer rows than parameters, or one level only of a covariate whose exponent is asked for.
    """
    x = covariates(law, runs)
    losses(runs)
    free = [n for n, p in law.priors.items() if not p.is_fixed]
    if len(runs) < len(free):
        raise RunTableError(
            f"{len(runs)} rows for the {len(free)} parameters of law {law.name!r}: add runs, or take a smaller law"
        )
    _warn_far(law, x)
    for name in law.covariates:
        tied = [
            e.name for e in law.exponents if e.covariate == name and not e.prior.is_fixed and e.name not in requested
        ]
        levels = np.unique(x[name])
        if not tied or len(levels) > 2:
            continue
        exponents = f"exponent{'s' * (len(tied) > 1)} {', '.join(tied)}"
        if len(levels) == 1:
            raise RunTableError(
                f"column {name!r} has one level only ({levels[0]:g}), so {exponents} of law {law.name!r} cannot be "
                f'learned; add runs at another {name}, or set a prior on request, e.g. {tied[0]} = "fixed(...)"'
            )
        warnings.warn(
            f"column {name!r} has two levels only ({levels[0]:g}, {levels[1]:g}): {exponents} "
            f"rest{'s' * (len(tied) == 1)} on the prior, and so does a forecast along {name}; a third level would tell",
            RunTableWarning,
            stacklevel=3,
        )

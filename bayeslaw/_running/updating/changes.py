"""Find what changed: rows of a table since a posterior was fitted; and by a refit its
parameters, weights of laws, and forecasts.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from bayeslaw._base.errors import RunTableError, RunTableWarning
from bayeslaw._base.numbers import format_many
from bayeslaw._forecasts.forecast import forecast
from bayeslaw._posteriors.posterior import KeptPosterior, Posterior
from bayeslaw._tables.rows.levels import number_alike
from bayeslaw._tables.rows.naming import named_rows
from bayeslaw._tables.runs import TEXT, numeric_columns, point_columns

if TYPE_CHECKING:
    from jaxtyping import Float, Int

# columns of a median and its interval, before and after
ENDS = ("before", "before_low", "before_high", "after", "after_low", "after_high")
SAMPLING = 0.1  # Monte Carlo error of a shift, for 400 effective draws each
MATERIAL = 0.5  # least shift, in sds, from which a number is said to have moved
SURPRISING = 2.0  # multiple of the expected shift above which a shift is surprising


class RowChanges(NamedTuple):
    """Comparison of a table's rows with a posterior's training rows.

    Parameters
    ----------
    new
        Rows of the table that were not fitted.
    changed
        Rows of the table whose loss has changed; the old loss is ``loss_was``.
    gone
        Training rows that the table lacks.
    same
        Number of rows that are equal in both.
    """

    new: pd.DataFrame
    changed: pd.DataFrame
    gone: pd.DataFrame
    same: int

    @property
    def any(self) -> bool:
        return bool(len(self.new) or len(self.changed) or len(self.gone))

    def sentence(self) -> str:
        """Describe the changes: 12 new rows, 1 changed, 1 gone, 58 as they were."""
        parts = [format_many(len(self.new), "new row")]
        if len(self.changed):
            parts.append(f"{len(self.changed)} changed")
        if len(self.gone):
            parts.append(f"{len(self.gone)} gone")
        return ", ".join([*parts, f"{self.same} as they were"])


def row_changes(before: pd.DataFrame, after: pd.DataFrame) -> RowChanges:
    """Match rows by the run's name and the position along it; without names, by all
    columns that identify a run. Replicates are matched by their losses first.
    """
    naming = point_columns(before)
    if "run" not in naming or not set(naming) <= set(after):
        # measurements and costs do not identify a run
        columns = numeric_columns(before)
        numbers = [c for c in columns if c != "cost" and "loss" not in c]
        texts = [c for c in TEXT if c != "run" and c in before]
        naming = [c for c in (*numbers, *texts) if c in after]
    values = [c for c in numeric_columns(before) if c in after]
    # Rows with equal losses are matched first. A new replicate of an old run then stays
    # unmatched, because its loss differs.
    same_before, same_after = _pair_rows(before, after, [*naming, *values])
    left_before = np.setdiff1d(np.arange(len(before)), same_before)
    left_after = np.setdiff1d(np.arange(len(after)), same_after)
    place_before, place_after = _pair_rows(
        before.iloc[left_before], after.iloc[left_after], naming
    )
    was, now = left_before[place_before], left_after[place_after]
    losses = before["loss"].to_numpy(float)[was]
    return RowChanges(
        new=after.iloc[np.setdiff1d(left_after, now)],
        changed=after.iloc[now].assign(loss_was=losses),
        gone=before.iloc[np.setdiff1d(left_before, was)],
        same=len(same_after),
    )


def check_enough(changes: RowChanges, before: pd.DataFrame, what: str) -> None:
    """Refuse a table that lacks most of the rows that ``what`` was fitted to."""
    if len(changes.gone) <= len(before) / 2:
        return
    raise RunTableError(
        f"the table lacks {len(changes.gone)} of the {len(before)} rows that {what} was "
        f"fitted to ({named_rows(changes.gone.index)} there): give old rows and new ones "
        "in one table, or --allow-missing to go on without them"
    )


def _pair_rows(
    before: pd.DataFrame, after: pd.DataFrame, columns: list[str]
) -> tuple[Int[np.ndarray, " pair"], Int[np.ndarray, " pair"]]:
    """Match rows equal in these columns, each used once, in the order of ``after``."""
    was, now = (
        pd.DataFrame(
            {"alike": alike, "nth": pd.Series(alike).groupby(alike).cumcount()}
        )
        for alike in number_alike(before, after, columns)
    )
    pairs = now.reset_index().merge(was.reset_index(), on=["alike", "nth"])
    return pairs["index_y"].to_numpy(), pairs["index_x"].to_numpy()


# -- before and after -------------------------------------------------------------------


def parameter_shifts(
    old: KeptPosterior, new: KeptPosterior, prob: float = 0.9
) -> pd.DataFrame:
    """Compare each parameter that both posteriors have, under its name in `parameters`:
    ``before`` and ``after`` (medians) with their intervals, and how they moved
    (`measure_move`).
    """
    before, after = old.parameter_draws(), new.parameter_draws()
    tail = (1 - prob) / 2
    rows = {}
    for name in [name for name in before if name in after]:
        pair = np.asarray(before[name]), np.asarray(after[name])
        ends = [np.quantile(draws, [0.5, tail, 1 - tail]) for draws in pair]
        named = dict(zip(ENDS, np.concatenate(ends), strict=True))
        rows[name] = named | measure_move(*pair)
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("parameter")


def law_shifts(old: Posterior, new: Posterior) -> pd.DataFrame:
    """Compare each law's weight and drift, before and after, of averages."""
    tables = {
        when: getattr(posterior, "table", pd.DataFrame())
        for when, posterior in {"before": old, "after": new}.items()
    }
    columns = {
        f"{name}_{when}": table.get(name, pd.Series(dtype=float))
        for name in ("weight", "drift")
        for when, table in tables.items()
    }
    return pd.DataFrame(columns).rename_axis("law")


def forecast_shifts(
    old: Posterior,
    new: Posterior,
    at: pd.DataFrame,
    *,
    prob: float = 0.9,
    seed: int = 0,
) -> pd.DataFrame:
    """Compare the loss of a new run at each row, before and after: ``before``,
    ``after`` (medians, nats per token) with their intervals, ``width`` (after over
    before), and how the law's own log loss moved (`measure_move`).
    """
    ends = ["median", "low", "high"]
    earlier = forecast(old, at, prob=prob, seed=seed)[ends]
    with warnings.catch_warnings():
        # the old posterior has warned of runs far beyond the table already
        warnings.simplefilter("ignore", RunTableWarning)
        later = forecast(new, at, prob=prob, seed=seed)[ends]
    table = pd.concat([earlier, later], axis=1).set_axis([*ENDS], axis=1)
    width, width_before = (
        np.log(rows["high"] / rows["low"]) for rows in (later, earlier)
    )
    moves = map(measure_move, old.log_loss(at).T, new.log_loss(at).T)
    moved = pd.DataFrame([*moves], index=at.index)
    return pd.concat([table.assign(width=width / width_before), moved], axis=1)


def measure_move(
    before: Float[np.ndarray, " draw"], after: Float[np.ndarray, " later"]
) -> dict[str, float | bool]:
    """Measure how far a number moved, in units of ``sd``, its sd before.

    ``shift`` is the shift of the median. ``expected`` is the sd of the shift if the
    model is right: by the law of total variance, the variance of a mean's shift is the
    variance that the new data remove; Monte Carlo error is added. ``moved`` tells
    whether the shift is at least `MATERIAL`. ``beyond`` tells whether it is also more
    than `SURPRISING` times ``expected``.
    """
    sd = float(before.std())
    if not sd > 0:  # a fixed parameter
        nothing = dict.fromkeys(("sd", "shift", "expected"), 0.0)
        return nothing | {"moved": False, "beyond": False}
    shift = float(np.median(after) - np.median(before)) / sd
    # E[var] + var(E) = var: the mean's shift has the variance that the data remove
    variance_share = float(after.var() / sd**2)
    expected = float(np.sqrt(max(1 - variance_share, 0.0) + SAMPLING**2))
    moved = abs(shift) >= MATERIAL
    return {
        "sd": sd,
        "shift": shift,
        "expected": expected,
        "moved": moved,
        "beyond": moved and abs(shift) > SURPRISING * expected,
    }


def largest_rows(table: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Choose default rows: the longest run of the largest model at the last stage, and
    the same with the size first, with the columns that laws read.
    """
    # the last stage comes before the largest size
    places = []
    for order in (("ptpp", "N", "D"), ("N", "ptpp", "D"), ("D", "N", "ptpp")):
        by = [c for c in order if c in table] or list(columns)[:1]
        places.append(table.sort_values(by, kind="stable").index[-1])
    shown_columns = [c for c in table if c in columns or c == "domain"]
    rows = table.loc[list(dict.fromkeys(places)), shown_columns]
    return rows.drop_duplicates()

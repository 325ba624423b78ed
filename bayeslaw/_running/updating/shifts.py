"""Measure what moved: parameters, weights of laws, and forecasts, before and after."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bayeslaw._base.errors import RunTableWarning
from bayeslaw._forecasts.forecast import forecast
from bayeslaw._posteriors.posterior import KeptPosterior, Posterior

if TYPE_CHECKING:
    from jaxtyping import Float

# columns of a median and its interval, before and after
ENDS = ("before", "before_low", "before_high", "after", "after_low", "after_high")
SAMPLING = 0.1  # Monte Carlo error of a shift, for 400 effective draws each
MATERIAL = 0.5  # least shift, in sds, from which a number is said to have moved
SURPRISING = 2.0  # multiple of the expected shift above which a shift is surprising


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

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
    for name in before:
        if name not in after:
            continue
        pair = {"before": np.asarray(before[name]), "after": np.asarray(after[name])}
        rows[name] = {}
        for when, draws in pair.items():
            median, low, high = np.quantile(draws, [0.5, tail, 1 - tail])
            rows[name] |= {when: median, f"{when}_low": low, f"{when}_high": high}
        rows[name] |= measure_move(*pair.values())
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("parameter")


def law_shifts(old: Posterior, new: Posterior) -> pd.DataFrame:
    """Compare each law's weight and drift, before and after, of averages."""
    columns = ["weight_before", "weight_after", "drift_before", "drift_after"]
    of_old, of_new = (getattr(posterior, "table", None) for posterior in (old, new))
    if of_old is None or of_new is None:
        return pd.DataFrame(columns=columns).rename_axis("law")
    tables = {"before": of_old, "after": of_new}
    columns_of_laws = {
        f"{name}_{when}": table[name]
        for name in ("weight", "drift")
        for when, table in tables.items()
        if name in table
    }
    return pd.DataFrame(columns_of_laws).reindex(columns=columns).rename_axis("law")


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
    earlier = forecast(old, at, prob=prob, seed=seed)
    with warnings.catch_warnings():
        # the old posterior has warned of runs far beyond the table already
        warnings.simplefilter("ignore", RunTableWarning)
        later = forecast(new, at, prob=prob, seed=seed)
    columns = {}
    for when, rows in {"before": earlier, "after": later}.items():
        columns |= {
            when: rows["median"],
            f"{when}_low": rows["low"],
            f"{when}_high": rows["high"],
        }
    table = pd.DataFrame(columns)
    widths = {
        when: np.log(table[f"{when}_high"] / table[f"{when}_low"])
        for when in ("before", "after")
    }
    table["width"] = widths["after"] / widths["before"]
    law_before, law_after = old.log_loss(at), new.log_loss(at)
    moves = map(measure_move, law_before.T, law_after.T)
    return pd.concat([table, pd.DataFrame(list(moves), index=at.index)], axis=1)


def measure_move(
    before: Float[np.ndarray, " draw"],
    after: Float[np.ndarray, " later"],
    *,
    sampling: float = 0.1,
    material: float = 0.5,
    surprising: float = 2.0,
) -> dict[str, float | bool]:
    """Measure how far a number moved, in units of ``sd``, its sd before.

    ``shift`` is the shift of the median. ``expected`` is the sd of the shift if the
    model is right: by the law of total variance, the variance of a mean's shift is the
    variance that the new data remove; Monte Carlo error is added. ``moved`` tells
    whether the shift is at least ``material``. ``beyond`` tells whether it is also more
    than ``surprising`` times ``expected``.

    ``sampling``: Monte Carlo error of the shift, for 400 effective draws each.
    ``material``: least shift, in sds, from which a number is said to have moved.
    ``surprising``: multiple of ``expected`` above which a shift is surprising.
    """
    sd = float(before.std())
    if not sd > 0:  # a fixed parameter
        nothing = dict.fromkeys(("sd", "shift", "expected"), 0.0)
        return nothing | {"moved": False, "beyond": False}
    shift = float(np.median(after) - np.median(before)) / sd
    # E[var] + var(E) = var: the mean's shift has the variance that the data remove
    variance_share = float(after.var() / sd**2)
    expected = float(np.sqrt(max(1 - variance_share, 0.0) + sampling**2))
    moved = abs(shift) >= material
    return {
        "sd": sd,
        "shift": shift,
        "expected": expected,
        "moved": moved,
        "beyond": moved and abs(shift) > surprising * expected,
    }


def largest_rows(table: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Choose default rows: the longest run of the largest model at the last stage, and
    the same with the size first, with the columns that laws read.
    """
    orders = (("ptpp", "N", "D"), ("N", "ptpp", "D"), ("D", "N", "ptpp"))
    # the last stage comes before the largest size
    places = []
    for order in orders:
        by = [c for c in order if c in table] or list(columns)[:1]
        last = table.sort_values(by, kind="stable").index[-1]
        places.append(last)
    shown_columns = [c for c in table if c in columns or c == "domain"]
    rows = table.loc[list(dict.fromkeys(places)), shown_columns]
    return rows.drop_duplicates()

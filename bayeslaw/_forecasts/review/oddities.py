"""Find what looks wrong in a table whose cells can all be read: units, mixtures,
drifts, and losses that rise where they should fall.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pandas as pd

from bayeslaw._forecasts.review.findings import Finding, judged
from bayeslaw._posteriors.fits.goodness import REASONS, rise_with_size
from bayeslaw._tables.checks.parts import misplaced, mixtures
from bayeslaw._tables.checks.rises import past_minimum, rise_along
from bayeslaw._tables.checks.slopes import CLEAR, partial_slope
from bayeslaw._tables.checks.units import odd_units, unjudged_units
from bayeslaw._tables.rows.naming import named_rows
from bayeslaw._tables.runs import numeric_columns


def units(runs: pd.DataFrame, name: str) -> Finding:
    """Check whether columns seem to be in the schema's units, as far as their values
    show. ``name``: path and options of the table in a command.
    """
    passed = f"nothing odd seen; not judged: {unjudged_units(runs)}"
    todo = f"rescale the column (--column D=yours*1e9), then: bayeslaw review {name}"
    return judged("units", passed, "; ".join(odd_units(runs)), todo)


def mixture(runs: pd.DataFrame, columns: Collection[str]) -> Finding:
    """Check whether all rows seem to be of one kind and in one unit."""
    lines = [*misplaced(runs, columns), *mixtures(runs, columns)]
    passed = "no part of the rows lies apart from the rest at like settings"
    todo = (
        "look what else differs between those rows, and mend or select them (--where)"
    )
    return judged("mixture", passed, "; ".join(lines), todo)


def size(runs: pd.DataFrame) -> Finding:
    """Check whether losses fall with N everywhere."""
    trouble = rise_with_size(runs)
    somewhere = None if trouble else rise_along(runs, "N", ("D", "replay", "ptpp"))
    if somewhere is not None:
        trouble = (
            f"losses rise with N by {somewhere.rise:.1%} {somewhere.part}: {REASONS}"
        )
    passed = "losses do not rise with N where rows tell"
    if "N" not in runs or runs["N"].nunique() < 2:
        passed = "one size, so nothing is said of it"
    todo = "look whether larger models were trained and evaluated alike"
    return judged("size", passed, trouble, todo)


def tokens(runs: pd.DataFrame) -> Finding:
    """Check whether D grows along each run, and whether losses fall with it, except
    those of a forgotten source.
    """
    if {"run", "step", "D"} <= set(runs):
        along = runs.assign(run=runs["run"].astype(str)).sort_values(["run", "step"])
        falls = (along.groupby("run")["D"].diff() < 0).to_numpy()
        if falls.any():
            reason = (
                "D is less than at an earlier step of the same run "
                f"({named_rows(along.index[falls])}): an integer that overflowed, a count "
                "that began anew, or two runs of one name?"
            )
            todo = "write D as all tokens seen so far, in 64 bits"
            return Finding("tokens", "look", reason, todo)
    domain = str(runs["domain"].iloc[0]) if "domain" in runs else ""
    if domain == "source":
        return Finding("tokens", "pass", "a source's losses may rise with D")
    rise = rise_along(runs, "D", ("N", "replay", "ptpp"))
    trouble = past_minimum(runs)
    todo = "plot the losses along each run, and keep the rows up to the least"
    if rise is not None and not (trouble and rise.part):
        trouble = (
            f"losses rise with D by {rise.rise:.1%}{' ' * bool(rise.part)}{rise.part}, "
            "as those of a source that is forgotten do"
        )
        trouble += ", and of a target do not" if domain != "target" else ""
        todo = "say which losses they are in a column domain (target, source); or look at D"
    passed = "losses do not rise with D where rows tell"
    return judged("tokens", passed, trouble, todo)


def replay(runs: pd.DataFrame, least_move: float = 0.005) -> Finding | None:
    """Check whether losses of target and source move with replay as they should; None
    if domain or replay is unknown.

    ``least_move``: a smaller move over the range of replay, as a share of the loss, is
    ignored.
    """
    domain = str(runs["domain"].iloc[0]) if "domain" in runs else ""
    if domain not in ("target", "source") or "replay" not in runs:
        return None
    slope, error = partial_slope(runs, "replay", ("N", "D", "ptpp"))
    change = slope * float(np.ptp(runs["replay"]))
    wrong, way = (-change, "fall") if domain == "target" else (change, "rise")
    trouble = None
    if abs(slope) > CLEAR * error and wrong > least_move:
        trouble = (
            f"losses of the {domain} {way} with replay, by {wrong:.1%} over its range: "
            "replay given as 1 - replay, or labels of the domains exchanged?"
        )
    passed = f"losses of the {domain} do not {way} with replay"
    todo = "look what replay is: the share of source data (--column replay=...)"
    return judged("replay", passed, trouble, todo)


def copies(
    runs: pd.DataFrame, decimals: int = 4, least_share: float = 0.05
) -> Finding | None:
    """Find losses that are equal to the last digit in different settings, or
    everywhere; None if there are few.

    ``decimals``: losses with fewer decimals may be equal by chance. ``least_share``:
    share of rows, with a loss that also occurs in another setting, from which they are
    reported.
    """
    loss = runs["loss"].to_numpy(float)
    if len(loss) < 3:
        return None
    if np.ptp(np.log(loss)) == 0:
        reason = f"all {len(loss)} losses are {loss[0]:g}"
        return Finding("copies", "fail", reason, "look where the losses come from")
    coarse = loss * 10.0 ** (decimals - 1)
    fine = np.abs(coarse - np.round(coarse)) > 1e-6
    if fine.mean() < 0.5:
        return None
    settings = [c for c in numeric_columns(runs) if "loss" not in c]
    if not settings:
        return None
    apart = runs[[*settings, "loss"]].drop_duplicates()
    again = apart["loss"].duplicated(keep=False)
    spread = float(np.ptp(loss))
    by_chance = len(apart) ** 2 / (spread * 10.0**decimals + 1)
    if again.sum() < max(least_share * len(apart), 3 * by_chance + 3):
        return None
    rows = named_rows(apart.index[again])
    reason = (
        f"{int(again.sum())} rows have the loss of another setting to the last digit "
        f"({rows})"
    )
    return Finding("copies", "look", reason, "look whether losses were copied")

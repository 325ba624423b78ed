"""Complete and check shares of a mixture, columns ``share_NAME`` with sum one."""

from __future__ import annotations

import pandas as pd

from bayeslaw._base.errors import RunTableError, warn
from bayeslaw._law.columns import LOSS_BEFORE, LOSS_SD, SHARE, is_share

REST = f"{SHARE}rest"  # one minus the sum of the other shares
SOURCE = f"{SHARE}source"  # with one other domain this share is replay


def share_columns(runs: pd.DataFrame) -> list[str]:
    return [str(column) for column in runs if is_share(column)]


def evaluation_columns(runs: pd.DataFrame) -> dict[str, str]:
    """List ``loss_NAME`` of a mixtures' table without ``loss``, by set."""
    if not share_columns(runs) or {"loss", "domain"} & set(runs):
        return {}
    prefix, others = "loss_", (LOSS_BEFORE, LOSS_SD)
    names = [str(c) for c in runs if str(c).startswith(prefix) and c not in others]
    return {name.removeprefix(prefix): name for name in names}


def with_shares(runs: pd.DataFrame) -> pd.DataFrame:
    """Complete the shares of each row to one.

    Percent (rows sum to 100) and tokens (to a thousand or more) become shares. A row's
    only empty cell gets the rest of the sum; the rest of full rows becomes a column
    ``share_rest``. Rounding errors are divided among all shares. Rows outside the
    simplex are unchanged, and refused when they are used. With two domains, the share
    of ``source`` is ``replay``.
    """
    columns = share_columns(runs)
    if not columns:
        return runs
    shares = runs[columns].astype(float)
    sums = shares.sum(axis=1)
    of_full = sums[shares.notna().all(axis=1)]
    if len(of_full) and (of_full >= 1000).all():
        warn(
            "columns of shares hold tokens by domain: each is divided by its row's sum"
        )
        shares = shares.div(sums, axis=0)
    elif len(of_full) and ((of_full / 100 - 1).abs() <= rounding(shares)).all():
        warn("columns of shares are percent: divided by 100")
        shares = shares / 100
    # a row's only empty share is what the others leave
    remainder = (1 - shares.sum(axis=1)).clip(lower=0.0)
    has_one_gap = shares.isna().sum(axis=1) == 1
    shares = shares.apply(lambda x: x.mask(x.isna() & has_one_gap, remainder))
    remainder = 1 - shares.sum(axis=1, skipna=False)
    slack = rounding(shares)
    if (remainder > slack).any():
        warn(
            f"{' + '.join(columns)} is less than 1 in {(remainder > slack).sum()} of "
            f"{len(runs)} rows: what is left is taken as one more domain, {REST!r}"
        )
        shares[REST] = remainder.where(remainder.abs() > slack, 0.0)
        remainder = remainder.where(remainder < -slack, 0.0)
    totals = shares.sum(axis=1, skipna=False)
    is_rounded = (totals - 1).abs() <= slack
    shares = shares.div(totals.where(is_rounded, 1.0), axis=0)
    if SOURCE in shares and shares.shape[1] == 2 and "replay" not in runs:
        shares["replay"] = shares[SOURCE]
    return runs.assign(**{str(name): shares[name] for name in shares})


def rounding(shares: pd.DataFrame) -> float:
    """Bound the error of a sum of shares, each rounded to percent."""
    return 0.005 * shares.shape[1] + 1e-9


def check_shares(runs: pd.DataFrame) -> None:
    columns = share_columns(runs)
    totals = runs[columns].sum(axis=1, skipna=False)
    beyond = (totals - 1).abs() > rounding(runs[columns])
    if columns and beyond.any():
        row = runs.index[beyond][0]
        raise RunTableError(
            f"row {row}, columns {', '.join(columns)}: shares sum to "
            f"{totals[beyond].iloc[0]:.4g}, not 1 ({beyond.sum()} of {len(runs)} rows); "
            "mend them, or write the tokens of each domain in their place"
        )

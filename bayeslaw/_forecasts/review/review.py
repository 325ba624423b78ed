"""Review whether a table or posteriors are good enough for a decision."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from bayeslaw._base.errors import LawError, RunTableError
from bayeslaw._base.frames import Table, as_frame
from bayeslaw._forecasts.review.findings import Review
from bayeslaw._forecasts.review.fits import review_fits
from bayeslaw._forecasts.review.table import review_table
from bayeslaw._posteriors.averaging.loading import load
from bayeslaw._posteriors.averaging.record import Average
from bayeslaw._posteriors.fits.record import Fit
from bayeslaw._tables.runs import as_runs

Subject = pd.DataFrame | Fit | Average | str | Path


def review(
    subject: Subject | Mapping[str, Fit | Average],
    *,
    goal: Table | str | Path | None = None,
    held_out: Table | str | Path | None = None,
    refit: bool = False,
    name: str | None = None,
    seed: int = 0,
) -> Review:
    """Review a table of runs before it is fitted, or posteriors before they are used.

    For a table it checks: warnings while reading, units, laws that suit, rows, levels,
    the reference run, stages that can be left out, the noise of replicates, outliers,
    rows of another kind, whether the columns explain the losses, whether losses rise
    with N or D anywhere, and what a plan would lack. It fits no law, and takes a
    second.

    For posteriors it checks: diagnostics, the fit of the law to its runs, the misfit
    compared with the noise, the coverage on left-out stages, how far the goal lies
    beyond the runs and what the forecast there rests on, and whether several posteriors
    allow a plan.

    Parameters
    ----------
    subject
        A table of runs; a `Fit` or an `Average`; a path of either; or several
        posteriors by name, as ``{"target": t, "source": s}``.
    goal
        Runs to forecast, with all columns that are known.
    held_out
        Measured runs that posteriors have not seen. Calibration is then judged on them
        (`check`), not on the left-out stages that an average keeps.
    refit
        Leave stages out and fit again if a posterior keeps no such forecasts (a
        minute).
    name
        Name of the table or the posterior in commands to paste; by default its path.
    seed
        Same seed, same machine: same numbers.

    Raises
    ------
    RunTableError, FitFileError
        The table or the file cannot be read.
    LawError
        ``held_out`` or ``refit`` with a table.

    Examples
    --------
    >>> found = bayeslaw.review(of_target, goal=large)
    >>> found.verdict, found["signal"].verdict
    ('look', 'pass')
    """
    subject = as_frame(subject)
    if isinstance(subject, str | Path):
        name = name or str(subject)
        subject = load(subject) if is_fit_file(subject) else as_runs(subject)
    runs = None if goal is None else as_runs(goal)
    if isinstance(subject, pd.DataFrame):
        if held_out is not None or refit:
            raise LawError(
                "held_out and refit are about posteriors, and this is a table"
            )
        path = name or "runs.csv"
        return Review(path, tuple(review_table(subject, path, runs)))
    several = isinstance(subject, Mapping)
    posteriors = subject if several else {name or "fit.nc": subject}
    if not posteriors:
        raise RunTableError("nothing to review: no posterior was given")
    for posterior in posteriors.values():
        if not isinstance(posterior, Fit | Average):
            raise RunTableError(
                "review takes a table of runs, a fit, an average, a path of one, or "
                f"posteriors by name; got {type(posterior).__name__}"
            )
    unseen = None if held_out is None else as_runs(held_out)
    found = review_fits(posteriors, runs, held_out=unseen, refit=refit, seed=seed)
    return Review(", ".join(posteriors), tuple(found))


def is_fit_file(path: str | Path) -> bool:
    """Tell whether a file is a saved posterior, not a table, by its first bytes."""
    path = Path(path)
    if not path.is_file():
        return path.suffix == ".nc"
    hdf5 = b"\x89HDF\r\n\x1a\n"  # how a netCDF file begins
    with path.open("rb") as stream:
        return stream.read(len(hdf5)) == hdf5 or path.suffix == ".nc"

"""Process one domain of the table: fit, forecast held-out runs, draw pictures."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from bayeslaw._base.progress.time_left import Progress
from bayeslaw._forecasts.check import Check, check
from bayeslaw._forecasts.forecast import forecast
from bayeslaw._law.columns import SHARE
from bayeslaw._posteriors.averaging.average import average_part
from bayeslaw._posteriors.averaging.compare import Comparing, law_of_few
from bayeslaw._posteriors.averaging.record import Average
from bayeslaw._posteriors.fits.fit import fit
from bayeslaw._posteriors.fits.record import Fit
from bayeslaw._report import figures
from bayeslaw._report.pages.single import round_columns
from bayeslaw._tables.holdouts import HoldOut, axis_values
from bayeslaw._tables.rows.levels import SAME
from bayeslaw._tables.rows.settings import cells_of
from bayeslaw._tables.rows.shares import share_columns

if TYPE_CHECKING:
    from jaxtyping import Bool


ENOUGH = 4  # runs at so many tokens draw a line by themselves
POINTS = 12  # along a line that is drawn for fewer
MOST_LINES = 100


def curves(runs: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """Make rows without a loss along tokens, for lines with too few runs to draw one:
    like the first run of a line in all but tokens, which are among the table's and
    within a factor of ten of the line's own.
    """
    of_lines = with_mixture_column(runs)
    keys = _list_keys(of_lines)
    for key in keys:
        of_lines = of_lines[of_lines[key].isin(_choose_levels(of_lines[key]))]
    groups = [line for _, line in of_lines.groupby(keys)] if keys else [of_lines]
    thin = [line for line in groups if line["D"].nunique() < ENOUGH]
    step = max(1, -(-len(thin) // MOST_LINES))
    rows = []
    for line in thin[::step]:
        low = max(table["D"].min(), line["D"].min() / 10)
        high = min(table["D"].max(), 10 * line["D"].max())
        if low == high:
            low, high = low / 2, 2 * high
        tokens = np.geomspace(low, high, POINTS)
        rows.append(line.iloc[[0] * POINTS].assign(D=tokens).drop(columns="loss"))
    return pd.concat(rows) if rows else of_lines.iloc[:0]


def best_of_sweeps(runs: pd.DataFrame, tuned: Collection[str]) -> pd.DataFrame:
    """Keep the best of runs that differ only in ``tuned`` settings, for lines."""
    columns = [column for column in runs if column in tuned]
    if not columns:
        return runs
    ordered = runs.sort_values("loss", kind="stable").drop(columns=columns)
    return ordered.groupby(cells_of(ordered), sort=False).head(1)


def panels(
    unseen: tuple[pd.DataFrame, pd.DataFrame], fitted: tuple[pd.DataFrame, pd.DataFrame]
) -> dict[str, Any]:
    """Convert runs that the forecasting fit had not seen, and runs that it had, each with
    the result of `forecast`, to JSON types. Rows of `curves` have no loss.
    """
    unseen, fitted = (
        (with_mixture_column(runs), forecasts) for runs, forecasts in (unseen, fitted)
    )
    runs, _ = unseen
    keys = _list_keys(runs)
    return {
        "keys": keys,
        "held": _convert_columns(*unseen, keys),
        "fitted": _convert_columns(*fitted, keys),
    }


def _list_keys(runs: pd.DataFrame) -> list[str]:
    names = ("replay", "mixture", "N", "ptpp")
    return [key for key in names if key in runs and runs[key].nunique() > 1]


def with_mixture_column(runs: pd.DataFrame) -> pd.DataFrame:
    """Add a column ``mixture``, the shares of each run as text, if there are any."""
    columns = share_columns(runs)
    if len(columns) < 2:
        return runs
    names = [column.removeprefix(SHARE) for column in columns]
    texts = [
        ", ".join(f"{name} {share:.0%}" for name, share in zip(names, row, strict=True))
        for row in runs[columns].to_numpy(float)
    ]
    return runs.assign(mixture=texts)


def _convert_columns(
    runs: pd.DataFrame, rows: pd.DataFrame, keys: list[str], most_rows: int = 2000
) -> dict[str, list[float | str | None]]:
    table = pd.concat(
        [runs[["D", "loss", *keys]], rows[["median", "low", "high"]]], axis=1
    )
    for key in keys:
        table = table[table[key].isin(_choose_levels(table[key]))]
    # an even selection of rows, if the table is too large for a picture
    step = -(-len(table) // most_rows)
    return round_columns(table.iloc[::step].sort_values("D"))


def _choose_levels(column: pd.Series, most: int = 8) -> np.ndarray:
    """Select the levels of a column; of many levels, some from the smallest to the
    largest, because more panels or lines cannot be read.
    """
    levels = np.array(sorted(column.dropna().unique()))
    if len(levels) <= most:
        return levels
    places = np.linspace(0, len(levels) - 1, most).round().astype(int)
    return levels[places]


# -- one domain ------------------------------------------------------------------------


LOSS_UNIT = "nats per token"


@dataclass(frozen=True)
class PageSetting:
    """Settings of the fits and checks of all domains."""

    reference: Mapping[str, float] | None  # columns of the reference run to replace
    hold_outs: tuple[HoldOut, ...]  # hold-outs, the main one first
    seed: int
    # reaction to failed diagnostics: ``"raise"``, ``"warn"`` or ``"ignore"``
    on_failure: str
    unit: str = LOSS_UNIT  # unit of the table's losses
    experience: str | None = None  # priors learned from other tables, as `fit` takes it

    @property
    def main(self) -> HoldOut:
        """The main hold-out, whose forecasts the page draws."""
        return self.hold_outs[0]


class Tested(NamedTuple):
    """A hold-out, and the check of its forecast, or the reason why there is none."""

    hold_out: HoldOut
    check: Check | None
    failure: str = ""


@dataclass(frozen=True)
class DomainResult:
    """One domain as the page shows it."""

    name: str
    # the fit that the page shows and plans with: of all runs if there is a plan, else
    # of the runs that are not held out
    fit: Fit | Average
    # check of the forecast of the main held-out runs, by a fit that has not seen them
    check: Check
    # the forecasts as a picture, where there are ``panels``
    printed: figures.Picture | None
    # the forecasts as numbers (`panels`); None if the table has no N or D
    panels: dict[str, Any] | None
    # pictures of the quality of the forecasts and the parts of their width
    pictures: tuple[figures.Picture, ...]
    # pictures of the law itself; of an average, of the law with most weight
    inside: tuple[figures.Picture, ...]
    tested: tuple[Tested, ...] = ()  # each hold-out with its check, the main one first

    def at_tokens(self, tokens: float | None) -> DomainResult:
        """Add a plan's tokens, which decide whether checks lie in the plan's direction."""
        tested = (
            test._replace(hold_out=test.hold_out.at_tokens(tokens))
            for test in self.tested
        )
        return replace(self, tested=tuple(tested))

    @property
    def decisive(self) -> list[Check]:
        """Select the checks along axes where the plan lies outside, else the main."""
        checks = [
            test.check
            for test in self.tested
            if test.hold_out.is_in_direction and test.check is not None
        ]
        return checks or [self.check]


# -- the fit and its pictures ----------------------------------------------------------


def fit_laws(
    runs: pd.DataFrame,
    fitted: Bool[np.ndarray, " run"],
    laws: Sequence[str],
    setting: PageSetting,
    progress: Progress | None,
    cores: Executor,
) -> Fit | Average:
    """Fit one law to the training runs, or average several, or all that suit."""
    shared: dict[str, Any] = {
        "reference": setting.reference,
        "experience": setting.experience,
        "seed": setting.seed,
        "progress": progress,
    }
    alone = law_of_few(runs[fitted]) if not laws else None
    if alone or len(laws) == 1:
        law = alone or laws[0]
        return fit(runs[fitted], law, on_failure=setting.on_failure, **shared)
    comparing = Comparing(executor=cores, **shared)
    on_failure = setting.on_failure
    return average_part(runs, fitted, laws or None, comparing, on_failure=on_failure)


def judge(
    name: str,
    judged: Fit | Average,
    final: Fit | Average | None,
    runs: pd.DataFrame,
    setting: PageSetting,
) -> DomainResult:
    """Forecast and check the held-out runs by a fit that has not seen them, and draw the
    pictures. ``final``: posterior of all runs; None if nothing is planned.
    """
    held = runs[setting.main.is_held(runs)]
    rows = forecast(judged, held, seed=setting.seed)
    result = check(judged, held, seed=setting.seed)
    posterior = final or judged
    fitted = runs if final else runs[setting.main.is_kept(runs)]
    is_average = isinstance(posterior, Average)
    # Pictures of terms and exponents need one law. Of an average they show the
    # heaviest.
    main = posterior.heaviest if is_average else posterior

    # in the order of the page: pictures of the held-out runs come first
    pictures = [
        figures.best_sizes(posterior, runs, setting.unit),
        figures.calibration(held, rows, result, setting.unit),
        figures.width_parts(judged, held),
        figures.law_weights(posterior) if is_average else None,
    ]
    # pictures of one law alone, for readers who want details
    inside = [
        figures.misfits(posterior, fitted, main.law),
        figures.term_contributions(main, runs, setting.unit),
        figures.exponent_intervals(main, {}),
    ]
    printed = numbers = None
    if {"N", "D"} <= set(runs):
        unseen = _forecast_with_curves(judged, held, runs, setting.seed)
        main_name = setting.main.words
        printed = figures.forecast_grid(
            *unseen,
            title=f"{name}: {main_name}, held out",
            caption=f"Forecasts at {main_name} (dashed: median; band: 90% "
            "interval of a new run) against observations the fit has not seen (dots), as "
            "Goffinet 2025, fig. 1, with intervals.",
            unit=setting.unit,
        )
        # Forecasts of training runs only show how well the laws fit: those of the held-
        # out stage if it was fitted, too; else those at the largest level of its axis.
        is_last = setting.main.is_held(fitted)
        if not is_last.any():
            levels = axis_values(fitted, setting.main.axis)
            is_last = levels >= (1 - SAME) * np.nanmax(levels)
        last = fitted[is_last]
        seen = _forecast_with_curves(posterior, last, runs, setting.seed)
        numbers = panels(unseen, seen)
    return DomainResult(
        name=name,
        fit=posterior,
        check=result,
        printed=printed,
        panels=numbers,
        pictures=tuple(picture for picture in pictures if picture is not None),
        inside=tuple(picture for picture in inside if picture is not None),
        tested=(Tested(setting.main, result),),
    )


def _forecast_with_curves(
    posterior: Fit | Average, runs: pd.DataFrame, table: pd.DataFrame, seed: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Forecast runs, the best of read sweeps, and `curves` of thin lines."""
    tuned = {column for piece in posterior.pieces() for column in piece.tuned}
    runs = best_of_sweeps(runs, tuned)
    parts = [part for part in (runs, curves(runs, table)) if len(part)]
    # apart, so that runs are forecast with the noise that they have everywhere
    rows = [forecast(posterior, part, seed=seed) for part in parts]
    return pd.concat(parts, ignore_index=True), pd.concat(rows, ignore_index=True)

"""Check calibration on held-out runs: how far a posterior can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from bayeslaw._base.frames import Table
from bayeslaw._base.numbers import format_factor, format_level
from bayeslaw._base.shown import Shown
from bayeslaw._base.streams import Stream, generator
from bayeslaw._forecasts.misfits import too_wide
from bayeslaw._forecasts.sensitivity import ONE_LEVEL, PRIOR_DOMINATED, reasons
from bayeslaw._inference.diagnostics import interval_score
from bayeslaw._posteriors.averaging.loading import as_posterior
from bayeslaw._posteriors.pairs import table_of
from bayeslaw._posteriors.posterior import Posterior
from bayeslaw._tables import fitting
from bayeslaw._tables.holdouts import FEW
from bayeslaw._tables.runs import as_runs

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

LEVELS = (0.5, 0.8, 0.9, 0.95)

TRUSTED_COVERAGE = 0.8  # of 90% intervals

STRETCH_LIMIT = 3.0  # if more would be needed, the law itself is wrong


# what to do about each verdict
NEXT = {
    "trust": "use the intervals, as far out as these runs lie",
    "widen": "use 90% intervals and not medians, or compare laws",
    "do not extrapolate": "do not decide by this: buy runs nearer the goal (anchors)",
    "unknown": "check at five runs or more that the fit has not seen, of losses that "
    "differ by more than their noise (in a report "
    "or a comparison: --hold-out N, ptpp or D)",
}


@dataclass(frozen=True, repr=False)
class Check(Shown):
    """Calibration of a forecast on measured runs.

    Parameters
    ----------
    n
        Number of runs.
    huber_log, rmse_log, mae_rel, mape_clip, intercept, slope, bias_log
        Point metrics of the median forecast (Goffinet 2025, appendix A); ``bias_log`` is
        the mean log of forecast over observation.
    intervals
        Central 90% posterior interval of each metric. That of the slope includes the
        standard error of the regression.
    coverage
        Share of runs inside the central interval, by the interval's probability.
    crps
        Mean continuous ranked probability score in nats, lower is better.
    width90
        Mean width of the 90% interval over the median.
    interval_score90
        Mean of width + 20 x miss of the 90% interval, relative to the loss (Gneiting
        and Raftery 2007). Lower is better; both wide intervals and misses raise it.
    stretch, group_stretch
        Factor by which 90% intervals would have to widen to hold 90% of the runs. If a
        group of runs fails, ``group_stretch`` is the factor for the worst group.
    verdict
        ``"trust"``, ``"widen"``, ``"do not extrapolate"`` or ``"unknown"``, from the
        held-out runs. Trust requires that 90% and 50% intervals hold, in each group of
        runs, too (by schedule, domain, size, stage, replay), that the posterior's own
        diagnostics passed, and that the interval of the slope does not hold both 0 and
        2.
    reason
        The verdict with all its reasons, in one line.
    reasons
        Reasons why the forecast rests on something other than the runs, a line each
        (`bayeslaw._forecasts.sensitivity.reasons`). With such a reason, trust does not
        extend farther out than the held-out runs. With too few held-out runs, it
        decides the verdict.
    pit
        Probability integral transform, shape (run,).
    """

    n: int
    huber_log: float
    rmse_log: float
    mae_rel: float
    mape_clip: float
    intercept: float
    slope: float
    bias_log: float
    intervals: dict[str, tuple[float, float]]
    coverage: dict[str, float]
    crps: float
    width90: float
    interval_score90: float
    stretch: float
    group_stretch: float | None
    verdict: str
    reason: str
    reasons: tuple[str, ...]
    pit: Float[np.ndarray, " run"]

    KEYS: ClassVar = {"*": ..., "next": (str, "What to do, by the verdict.")}

    @property
    def next(self) -> str:
        """Advice that follows from the verdict, in a line (docs/verdicts.md has more)."""
        factor = max(self.stretch, self.group_stretch or 0.0)
        if self.verdict == "widen" and factor > 1:
            wide = format_factor(factor)
            return f"take intervals {wide} times as wide, or compare laws"
        return NEXT[self.verdict]

    @property
    def is_on_the_safe_side(self) -> bool:
        """Tell whether losses are lower than the law says, beyond its uncertainty. Then
        a limit on a loss is kept more often than stated.
        """
        low, _ = self.intervals["bias_log"]
        return low > 0

    def sentence(self) -> str:
        """Describe the verdict, its reason, and what to do."""
        return f"{self.verdict}: {self.reason}\nNext: {self.next}"

    def table(self) -> pd.DataFrame:
        """Make a table of the metrics with their intervals."""
        rows = {
            name: {"value": getattr(self, name), "low": low, "high": high}
            for name, (low, high) in self.intervals.items()
        }
        return pd.DataFrame.from_dict(rows, orient="index")


def check(
    posterior: Posterior | str | Path, runs: Table | str | Path, *, seed: int = 0
) -> Check:
    """Compare a posterior's forecasts with measured runs it has not seen: a table, or
    the path of one. Rows of other domains than the fitted one are left out.

    Training runs tell nothing about forecasts. If they are half of the table or more,
    the verdict is ``"unknown"``.

    Raises
    ------
    RunTableError
        The table lacks the losses or a column the law reads, or has no rows of the
        fitted domain.

    Examples
    --------
    >>> result = bayeslaw.check(target, large)
    >>> result.n, result.verdict in {"trust", "widen", "do not extrapolate", "unknown"}
    (63, True)
    """
    posterior = as_posterior(posterior)
    table = table_of(posterior)
    runs = fitting.own_rows(table, as_runs(runs))
    y = fitting.log_losses(runs)
    law, new = posterior.log_loss(runs), posterior.log_loss(runs, noise=True, seed=seed)
    low, point, high = np.quantile(new, [0.05, 0.5, 0.95], axis=0)
    inside = {f"{p:g}": within(new, y, p) for p in LEVELS}
    misses = standardised_misses(new, y)
    worst = worst_group(runs, inside["0.9"])
    of_law = point_metrics(law, y)
    intervals = {name: _find_interval(draws) for name, draws in of_law.items()}
    intervals["slope"] = slope_interval(law, y, seed)
    measured = Check(
        n=len(y),
        **{k: float(v[0]) for k, v in point_metrics(point[None], y).items()},
        intervals=intervals,
        coverage={name: float(is_inside.mean()) for name, is_inside in inside.items()},
        crps=float(crps(np.exp(new), np.exp(y)).mean()),
        width90=float(((np.exp(high) - np.exp(low)) / np.exp(point)).mean()),
        interval_score90=float(interval_score(low, high, y).mean()),
        stretch=widening_factor(misses),
        group_stretch=widening_factor(misses[worst.rows]) if worst else None,
        verdict="unknown",
        reason="",
        reasons=reasons(posterior, runs, law),
        pit=(new < y).mean(0),
    )
    fitted = int(fitting.fitted(table, runs).sum())
    wide = None
    if len(y) >= FEW:
        wide = too_wide(posterior, runs, measured.width90, measured.mae_rel)
    verdict, lines = judge(measured, worst, fitted, posterior.warnings, wide)
    reason = "; ".join([*lines, *measured.reasons])
    return replace(measured, verdict=verdict, reason=reason)


def _find_interval(draws: Float[np.ndarray, " draw"]) -> tuple[float, float]:
    low, high = np.quantile(draws, [0.05, 0.95])
    return float(low), float(high)


def judge(
    measured: Check,
    worst: RunGroup | None = None,
    fitted: int = 0,
    failures: Sequence[str] = (),
    wide: str | None = None,
) -> tuple[str, list[str]]:
    """Judge the measurements. Returns the verdict and its reasons, a line each.

    ``worst``: group of runs with the lowest coverage, if one fails. ``fitted``: number
    of runs that the posterior was fitted to. ``failures``: diagnostics of the posterior
    that failed. ``wide``: remark on intervals that are too wide.
    """
    coverage90, coverage50 = measured.coverage["0.9"], measured.coverage["0.5"]
    what = "runs" if fitted else "held-out runs"
    line = f"90% intervals hold {coverage90:.0%} of {measured.n} {what}"
    is_enough = measured.n >= FEW
    # coverage, in all runs
    if not is_enough:
        priors = (ONE_LEVEL, PRIOR_DOMINATED)
        is_of_priors = any(reason.startswith(priors) for reason in measured.reasons)
        verdict = "do not extrapolate" if is_of_priors else "unknown"
        line += ": too few to tell"
    elif coverage90 >= TRUSTED_COVERAGE:
        verdict = "trust"
    else:
        is_law_wrong = measured.stretch > STRETCH_LIMIT
        verdict = "do not extrapolate" if is_law_wrong else "widen"
        factor = format_factor(measured.stretch)
        line += f"; they would have to be {factor} times as wide"
    low, high = measured.intervals["bias_log"]
    is_one_sided = is_enough and (low > 0 or high < 0)
    off = np.expm1(measured.bias_log)
    if is_one_sided and off > 0:
        line += (
            f"; the law is {off:.1%} too high on average (losses came out lower than "
            "forecast: the safe side of a limit)"
        )
    elif is_one_sided:
        line += f"; the law is {-off:.1%} too low on average"
    lines = [line]
    # the group that misses most, if it asks for more than all runs do
    of_group = ""
    if worst is not None:
        of_group = (
            f"of the {len(worst.rows)} runs of {worst.name} they hold {worst.share:.0%}"
        )
        most = measured.group_stretch or 0.0
        factor = format_factor(most)
        is_wider = factor != format_factor(measured.stretch)
        if is_wider and most > max(measured.stretch, 1.0):
            of_group += f", where they would have to be {factor} times as wide"
            if verdict == "widen":
                lines.append(of_group)
    # half intervals and groups, if the 90% intervals hold over all runs
    if verdict == "trust":
        # with fewer runs inside 50% intervals, the medians misstate the risk
        if coverage50 < 0.3:
            lines.append(f"but 50% intervals hold {coverage50:.0%}")
        if of_group:
            lines.append(f"but {of_group}")
        verdict = "widen" if len(lines) > 1 else verdict
    # runs may fit a forecast that says nothing of their differences (slope 0), and one
    # that says half of them (slope 2)
    low, high = measured.intervals["slope"]
    is_slope_unseen = low <= 0 and high >= 2
    if is_slope_unseen and verdict == "trust":
        verdict = "unknown"
        lines.append(
            "but whether losses follow the forecast is not seen: the calibration slope "
            f"may be 0 or 2 ({low:.2f} to {high:.2f})"
        )
    if failures:
        verdict = "unknown" if verdict == "trust" else verdict
        lines.append(f"but the fit failed its diagnostics ({failures[0]})")
    if fitted:
        verdict = "unknown" if 2 * fitted >= measured.n else verdict
        lines.append(f"{fitted} of them were fitted, which is no test of a forecast")
    if wide is not None:
        lines.append(wide)
    if is_enough and np.isfinite(measured.slope) and not is_slope_unseen:
        slope = f"{measured.slope:.2f} ({low:.2f} to {high:.2f})"
        lines.append(f"calibration slope {slope}")
    return verdict, lines


class RunGroup(NamedTuple):
    """A group of runs: its name, the share that 90% intervals hold, and the positions
    of its rows, shape (member,).
    """

    name: str
    share: float
    rows: Int[np.ndarray, " member"]


def standardised_misses(
    draws: Float[np.ndarray, "draw run"], y: Float[np.ndarray, " run"]
) -> Float[np.ndarray, " run"]:
    """Compute the distance of each log loss from the median of its draws, relative to
    the half of their 90% interval on that side.
    """
    low, point, high = np.quantile(draws, [0.05, 0.5, 0.95], axis=0)
    return np.abs(y - point) / np.where(y > point, high - point, point - low)


def widening_factor(misses: Float[np.ndarray, " run"]) -> float:
    """Compute the factor by which 90% intervals would have to widen to hold 90%."""
    return float(np.quantile(misses, 0.9))


def worst_group(
    runs: pd.DataFrame, inside: Bool[np.ndarray, " run"], level: float = 0.05
) -> RunGroup | None:
    """Find the group of runs with the lowest coverage of 90% intervals.

    None if no group fails. A group fails if the number of its runs inside is improbably
    low (below this level) for a true coverage of `TRUSTED_COVERAGE`. ``inside`` has
    shape (run,).
    """
    failing = []
    columns = ("schedule", "domain", "N", "ptpp", "replay")
    for column in (c for c in columns if c in runs and runs[c].nunique() > 1):
        for value, rows in runs.groupby(column).indices.items():
            count, size = int(inside[rows].sum()), len(rows)
            chance = stats.binom.cdf(count, size, TRUSTED_COVERAGE)
            if size >= FEW and chance < level:
                name = f"{column} {format_level(column, value)}"
                group = RunGroup(name, count / size, np.asarray(rows))
                failing.append((chance, group))
    if not failing:
        return None
    _, worst = min(failing, key=lambda pair: (pair[0], pair[1].name))
    return worst


def point_metrics(
    log_forecast: Float[np.ndarray, "draw run"],
    log_loss: Float[np.ndarray, " run"],
    delta: float = 0.02,
    clip: float = 1e-3,
) -> dict[str, Float[np.ndarray, " draw"]]:
    """Compute the metrics of Goffinet 2025, appendix A, for forecasts of shape
    (draw, run): each of shape (draw,).

    ``delta``: of the Huber loss; ``clip``: nats, their "small y_clip > 0".
    """
    r = log_forecast - log_loss
    far = np.abs(r) > delta
    huber = np.where(far, delta * (np.abs(r) - delta / 2), r**2 / 2)
    y = np.exp(log_loss)
    miss = np.abs(np.exp(log_forecast) - y)
    x = log_forecast - log_forecast.mean(1, keepdims=True)
    spread = (x**2).sum(1)
    has_slope = spread > 0  # one run, or equal forecasts, have no slope
    slope = np.where(
        has_slope,
        (x * (log_loss - log_loss.mean())).sum(1) / np.where(has_slope, spread, 1),
        np.nan,
    )
    return {
        "huber_log": huber.mean(1),
        "rmse_log": np.sqrt((r**2).mean(1)),
        "mae_rel": (miss / y).mean(1),
        "mape_clip": (miss / np.maximum(y, clip)).mean(1),
        "intercept": log_loss.mean() - slope * log_forecast.mean(1),
        "slope": slope,
        "bias_log": r.mean(1),
    }


def crps(
    draws: Float[np.ndarray, "draw run"], y: Float[np.ndarray, " run"]
) -> Float[np.ndarray, " run"]:
    """Compute each run's continuous ranked probability score (Gneiting 2007)."""
    n = len(draws)
    ordered = np.sort(draws, axis=0)
    weights = (2 * np.arange(1, n + 1) - n - 1)[:, None]
    distance = np.abs(draws - y).mean(axis=0)
    # half the mean distance of two draws, from their order
    spread = (weights * ordered).sum(axis=0) / n**2
    return distance - spread


def within(
    draws: Float[np.ndarray, "draw run"], y: Float[np.ndarray, " run"], prob: float
) -> Bool[np.ndarray, " run"]:
    """Tell which log losses are within the central interval of their draws."""
    low, high = np.quantile(draws, [(1 - prob) / 2, (1 + prob) / 2], axis=0)
    return (low <= y) & (y <= high)


def slope_interval(
    log_forecast: Float[np.ndarray, "draw run"],
    log_loss: Float[np.ndarray, " run"],
    seed: int,
) -> tuple[float, float]:
    """Compute the central 90% interval of the slope of observed on forecast log loss,
    over draws of the law and of the runs' noise.

    NaN with fewer than three runs, or if forecasts do not differ.
    """
    n = len(log_loss)
    if n < 3:
        return float("nan"), float("nan")
    line = point_metrics(log_forecast, log_loss)
    slope = line["slope"]
    x = log_forecast - log_forecast.mean(1, keepdims=True)
    residuals = log_loss - line["intercept"][:, None] - slope[:, None] * log_forecast
    # standard error of a regression's slope
    variance = (residuals**2).sum(1) / (n - 2)
    squares = np.where(np.isnan(slope), np.nan, (x**2).sum(1))
    error = np.sqrt(variance / squares)
    rng = generator(seed, Stream.SLOPES)
    return _find_interval(slope + error * rng.standard_t(n - 2, len(slope)))

"""Find when to stop a run that repeats its data: the tokens at which its loss is least,
and what fewer or more epochs bring.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pandas as pd

from bayeslaw._base.errors import RunTableError
from bayeslaw._base.limits import CHANCE, checked
from bayeslaw._base.numbers import format_count, format_interval
from bayeslaw._base.schema import INTERVAL
from bayeslaw._base.shown import Shown
from bayeslaw._forecasts.optimum import find_minima
from bayeslaw._posteriors.answer import format_probability, summarise_draws
from bayeslaw._posteriors.averaging.loading import as_posterior
from bayeslaw._posteriors.pairs import table_of
from bayeslaw._posteriors.posterior import Posterior, columns_read
from bayeslaw._posteriors.repetition import UNIQUE
from bayeslaw._tables.runs import as_runs

if TYPE_CHECKING:
    from jaxtyping import Float

NEAR = 0.1  # a best stop is known if its interval ends within this share of it
FEWEST, MOST, PLACES = 1 / 16, 1024.0, 257  # epochs searched
RISE = 1e-4  # nats by which the loss must rise from its least to the most epochs
EPOCHS = (1, 2, 4, 8, 16)  # whose losses are told
LAW = "data-constrained-overfitting"


@dataclass(frozen=True, repr=False)
class BestStop(Shown):
    """When to stop a run that repeats its data. Every field can be stored in JSON.

    Parameters
    ----------
    run
        The columns of the run: ``U``, its unique tokens, and what the laws read.
    verdict
        *stop* if the best tokens are known to 10%, else *unknown*.
    reason
        Why it is unknown; empty if it is known.
    D
        Tokens with the least expected loss: stop there.
    epochs
        The same in epochs, D / U.
    loss
        The law's loss at ``D``: ``median``, ``low``, ``high``.
    new_run
        The loss of a new run at ``D``.
    best_D
        Tokens of the least loss of each draw; infinite in draws whose loss falls over
        all epochs searched.
    no_minimum
        The probability of that.
    regret
        Expected loss at ``D`` minus the expected least loss, in nats: what it would be
        worth to know the best tokens.
    rows
        At 1, 2, 4, 8 and 16 epochs, at ``D`` and at the planned tokens: ``epochs``,
        ``D``, the ``loss`` (median), its ``change`` (mean over draws) from the loss at
        ``D``, with ``change_low`` and ``change_high``, and the ``probability`` that it is
        lower than there.
    curve
        For the picture: ``D``, and the law's loss ``low``, ``median``, ``high``.
    prob
        Probability inside the intervals.
    warnings
        Reasons to distrust the posterior.
    """

    run: dict[str, float]
    verdict: Literal["stop", "unknown"]
    reason: str
    D: float
    epochs: float
    loss: dict[str, float]
    new_run: dict[str, float]
    best_D: dict[str, float]
    no_minimum: float
    regret: float
    rows: list[dict[str, float]]
    curve: dict[str, list[float]]
    prob: float
    warnings: list[str]

    KEYS: ClassVar = {
        "*": ...,
        **dict.fromkeys(("loss", "new_run", "best_D"), INTERVAL),
        "rows": ["epochs D loss change change_low change_high probability"],
        "curve": {"D low median high": list[float]},
    }

    def table(self) -> pd.DataFrame:
        """Format a row for each number of epochs, as text."""
        return pd.DataFrame(
            {
                "epochs": f"{row['epochs']:.3g}",
                "tokens": format_count(row["D"]),
                "loss": f"{row['loss']:.4g}",
                "change": f"{row['change']:+.2g} "
                f"({row['change_low']:+.2g} to {row['change_high']:+.2g})",
                "lower than at the stop": format_probability(row["probability"]),
            }
            for row in self.rows
        )

    def sentence(self) -> str:
        """Describe the answer in words."""
        if self.best_D["median"] == math.inf:
            return f"UNKNOWN. {self.reason}"
        low, high = (self.best_D[end] for end in ("low", "high"))
        ends = [format_count(low), format_count(high) if high < math.inf else "no end"]
        known = (
            "STOP" if self.verdict == "stop" else "UNKNOWN to 10%. Least expected loss"
        )
        lines = [
            f"{known} at {format_count(self.D)} tokens ({self.epochs:.3g} epochs); the "
            f"best tokens are {' to '.join(ends)} ({self.prob:.0%}).",
            f"The loss there is {format_interval(self.loss, '.4g')}, on average "
            f"{self.regret:.2g} nats above the least.",
        ]
        return "\n".join([*lines, self.reason] if self.reason else lines)


def best_stop(
    posterior: Posterior | str | Path,
    run: Mapping[Any, Any],
    *,
    prob: float | str = 0.9,
    seed: int = 0,
) -> BestStop:
    """Find the tokens at which a run that repeats its data has its least loss, in each
    draw of a posterior, and the tokens with the least expected loss.

    Parameters
    ----------
    posterior
        A `Fit`, an `Average`, a law at given constants (`law_at`), or the path of a file.
        Laws fall with tokens without end unless they say what repetition costs, as
        ``data-constrained-overfitting`` does.
    run
        The columns of the run: ``U``, its unique tokens; ``N`` and what else the laws
        read; and, if you like, ``D``, the tokens that you plan.
    prob
        Probability inside the intervals.
    seed
        Seed of a new run's noise.

    Raises
    ------
    RunTableError
        A column is missing, or the laws do not read D.

    References
    ----------
    Raiffa and Schlaifer 1961: the stop has the least expected loss, and ``regret`` is the
    expected value of perfect information.

    Examples
    --------
    >>> law = bayeslaw.law("data-constrained-overfitting")
    >>> known = bayeslaw.law_at(law, law.plausible)
    >>> best = bayeslaw.best_stop(known, {"N": 1e8, "U": 2e8})
    >>> best.verdict, round(best.epochs)
    ('stop', 67)
    """
    prob = checked("prob", prob, CHANCE)
    posterior = as_posterior(posterior)
    columns = as_runs(dict(run)).iloc[0].to_dict()
    at = _columns_of_run(posterior, columns)
    unique = at[UNIQUE]

    def losses(tokens: Float[np.ndarray, " place"], **options: Any):
        """Compute the losses of draws at these tokens, shape (draw, place)."""
        # always as many rows, so that one program is compiled
        table = pd.DataFrame({**at, "D": np.resize(tokens, PLACES)})
        return np.exp(posterior.log_loss(table, **options))[:, : len(tokens)]

    epochs = np.geomspace(FEWEST, MOST, PLACES)  # the minimum is found between them
    log_D, by_draw = np.log(epochs * unique), losses(epochs * unique)
    # the most epochs of the table's runs; without a table a law is taken at its word
    runs, measured = table_of(posterior), math.inf
    if runs is not None and "D" in runs:
        measured = float((runs["D"] / runs.get(UNIQUE, unique)).max())
    # Start where runs are: a misfit beyond them makes minima that no law has.
    is_outside = epochs > max(measured, FEWEST)
    median = np.where(is_outside, np.inf, np.median(by_draw, axis=0))
    minima = find_minima(log_D, by_draw, int(median.argmin()))
    is_endless = by_draw[:, -1] - minima.depth < RISE
    best = np.where(is_endless, np.inf, np.exp(minima.at))
    expected = by_draw.mean(axis=0)[None]
    nearest = int(np.where(is_outside, np.inf, expected[0]).argmin())
    D = float(np.exp(find_minima(log_D, expected, nearest).at[0]))

    planned = [float(columns["D"])] if "D" in columns else []
    places = np.unique([*(unique * np.array(EPOCHS)), D, *planned])
    told = losses(places)
    at_stop = told[:, int(np.abs(places - D).argmin())]
    rows = []
    for place, loss in zip(places, told.T, strict=True):
        change = loss - at_stop
        ends = summarise_draws(change, prob)
        rows.append(
            {
                "epochs": float(place) / unique,
                "D": float(place),
                "loss": float(np.median(loss)),
                "change": float(change.mean()),
                "change_low": ends["low"],
                "change_high": ends["high"],
                "probability": float(np.mean(change < 0)),
            }
        )
    best_D = summarise_draws(best, prob)
    reason = _say_why_unknown(posterior, best_D, D, unique, measured)
    new_run = losses(np.array([D]), noise=True, seed=seed)[:, 0]
    near = np.abs(log_D - math.log(D)) < math.log(8)
    bands = [summarise_draws(loss, prob) for loss in by_draw[:, near].T]
    curve = {"D": np.exp(log_D[near]).tolist()}
    curve |= {end: [band[end] for band in bands] for end in bands[0]}
    return BestStop(
        run=at,
        verdict="unknown" if reason else "stop",
        reason=reason,
        D=D,
        epochs=D / unique,
        loss=summarise_draws(at_stop, prob),
        new_run=summarise_draws(new_run, prob),
        best_D=best_D,
        no_minimum=float(is_endless.mean()),
        regret=float(np.mean(at_stop - minima.depth)),
        rows=rows,
        curve=curve,
        prob=prob,
        warnings=[*posterior.warnings],
    )


def _columns_of_run(
    posterior: Posterior, columns: Mapping[Any, Any]
) -> dict[str, float]:
    """Take from a run what laws read beside D, and its unique tokens; refuse laws without
    tokens, and columns without a value.
    """
    read = columns_read(posterior, there=columns)
    if "D" not in read:
        raise RunTableError(
            f"{posterior.name} reads {', '.join(sorted(read))}: when to stop is told by a "
            "law in D"
        )
    needed = [c for c in dict.fromkeys([*read, UNIQUE]) if c != "D"]
    missing = [column for column in needed if column not in columns]
    if missing:
        raise RunTableError(
            f"when to stop depends on {missing[0]}, too: give "
            f"{','.join(f'{column}=...' for column in needed)} (U: unique tokens)"
        )
    return {column: float(columns[column]) for column in needed}


def _say_why_unknown(
    posterior: Posterior,
    best: Mapping[str, float],
    D: float,
    unique: float,
    measured: float,
) -> str:
    """Say why the best stop is not known; empty if it is."""
    if best["median"] == math.inf:
        return (
            f"{posterior.name} falls over all {MOST:g} epochs searched: it knows no least "
            f"loss. Fit a law that has one: --law {LAW}."
        )
    if best["high"] > measured * unique:
        return (
            f"The least loss may lie beyond the table, whose runs saw their data at most "
            f"{measured:.3g} times: go on, and ask again with the new points."
        )
    if best["high"] > D * (1 + NEAR) or best["low"] < D / (1 + NEAR):
        return (
            "To know the best tokens, add runs, or points of the run, at more epochs."
        )
    return ""

"""Forecasts and how good they are: ``forecast``, ``check``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from bayeslaw.cli.options import (
    AsJson,
    Before,
    Column,
    FitFile,
    Runs,
    Seed,
    TrustLawFile,
    Where,
    command,
)
from bayeslaw.cli.output import check_writable, emit, write_table
from bayeslaw.cli.parsing import load_befores, load_fit, read_table

# columns that say which run a row of a forecast is
SHOWN = ("run", "domain", "N", "D", "replay", "ptpp", "step", "loss")
SCORES = ("huber_log", "rmse_log", "mae_rel", "mape_clip", "intercept", "slope")


@dataclass(frozen=True, kw_only=True)
class ForecastOptions:
    """Options of ``forecast``."""

    fit_file: FitFile
    runs: Runs
    where: Where = None
    column: Column = None
    prob: Annotated[
        float,
        typer.Option(help="Probability inside the intervals.", min=0.01, max=0.999),
    ] = 0.9
    before: Before = None
    seed: Seed = 0
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="CSV or Parquet file for the rows."),
    ] = None
    trust_law_file: TrustLawFile = False
    as_json: AsJson = False


@command
def forecast(options: ForecastOptions) -> None:
    """Forecast the loss of each run: the law's interval, and a new run's.

    Example: bayeslaw forecast fit.nc planned.csv --prob 0.8
    """
    import pandas as pd

    import bayeslaw
    from bayeslaw._base.numbers import format_count
    from bayeslaw._posteriors.chain import chain

    if options.output is not None:
        check_writable(options.output)
    trusted = options.trust_law_file
    posterior = load_fit(options.fit_file, trusted)
    table = read_table(options.runs, options.where, options.column)
    forecaster = posterior
    if options.before:
        befores = load_befores(options.before, [posterior], trusted)
        forecaster = chain(posterior, befores, seed=options.seed)
    rows = bayeslaw.forecast(forecaster, table, prob=options.prob, seed=options.seed)
    if options.output is not None:
        write_table(pd.concat([table, rows], axis=1), options.output)
    record = {
        "law": posterior.name,
        "prob": options.prob,
        "rows": rows.reset_index().to_dict(orient="records"),
    }

    def show() -> None:
        shown = table[[c for c in SHOWN if c in table]]
        counts = {c: shown[c].map(format_count) for c in ("N", "D") if c in shown}
        wide = pd.concat([shown.assign(**counts), rows], axis=1)
        print(wide.to_string(float_format=lambda v: f"{v:.4g}"))

    emit(record, options.as_json, show)


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """Options of ``check``."""

    fit_file: FitFile
    runs: Runs
    where: Where = None
    column: Column = None
    seed: Seed = 0
    trust_law_file: TrustLawFile = False
    as_json: AsJson = False


@command
def check(options: CheckOptions) -> None:
    """Calibration on held-out runs: coverage, errors, and a verdict in words.

    Example: bayeslaw check fit.nc runs.csv --where "ptpp == 279"
    """
    import bayeslaw

    posterior = load_fit(options.fit_file, options.trust_law_file)
    table = read_table(options.runs, options.where, options.column)
    result = bayeslaw.check(posterior, table, seed=options.seed)

    def show() -> None:
        print(f"{result.verdict.upper()}: {result.reason}")
        for name in SCORES:
            score = getattr(result, name)
            low, high = result.intervals[name]
            print(
                f"  {name:10} {score:9.4g}   "
                f"90% over the posterior {low:9.4g} to {high:9.4g}"
            )
        coverage = [f"{float(p):.0%}: {c:.0%}" for p, c in result.coverage.items()]
        print(f"  coverage   {', '.join(coverage)}")
        print(
            f"  CRPS {result.crps:.4g} nats; "
            f"90% intervals {result.width90:.1%} wide on average"
        )

    emit({"law": posterior.name} | result.to_dict(), options.as_json, show)

"""Define the commands for posteriors: ``fit``, ``compare``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayeslaw._base.arguments import command, option
from bayeslaw._base.errors import LawError
from bayeslaw._base.machine.executors import executor_at
from bayeslaw._base.machine.runtime import WARMUP
from bayeslaw._base.progress.bar import progress_bar
from bayeslaw._base.terminal import say, say_block
from bayeslaw._law.columns import LOSS_SD
from bayeslaw.cli.beside import with_file
from bayeslaw.cli.documented import options_of
from bayeslaw.cli.laws import priors_record, reference_run
from bayeslaw.cli.options import (
    BestOf,
    FittingOptions,
    Scheduler,
    complete_law,
    complete_laws,
)
from bayeslaw.cli.output import check_writable, emit, say_at_once
from bayeslaw.cli.parsing import ask, assignments, best_of, prior_file, read_table

if TYPE_CHECKING:
    import pandas as pd


@options_of("fit", without="progress")
class FitOptions(FittingOptions):
    """Options of ``fit``."""

    law: list[str] | None = option(
        "Name of a law (see `bayeslaw laws`), a formula, or a Python file. "
        "Several laws, or the default ones, are averaged. A formula reads any numeric "
        'column, with its unit: "E + A/N^alpha + B*heat[degC]". chinchilla+lr has an '
        "optimal lr.",
        autocompletion=complete_law,
    )
    output: Path | None = option("File for the fit (netCDF).", "-o", "--output")
    best_of: BestOf = None
    reference: list[str] | None = option()
    priors: Path | None = option(
        'TOML file: [priors] alpha = "lognormal(0.34, 0.3)"; [reference] N = 1e8.'
    )
    chains: int = option("Number of chains.", default=4, min=1)
    warmup: int = option("Iterations to adapt, per chain.", default=WARMUP, min=100)
    draws: int = option(
        "Draws kept, per chain; more while the diagnostics fail.", default=1000, min=100
    )
    max_draws: int = option("Most draws kept, per chain.", default=4000, min=100)
    drift: bool = option(
        "Give one law the drift beyond the runs that laws of an average have, "
        "learned from stages left out: --law rectified --drift."
    )
    preview: bool = option()


@command
def fit(options: FitOptions) -> None:
    """Sample the posterior of a law on a table of runs. Several laws are averaged; with
    no law named, those that suit the table.

    Example: bayeslaw fit runs.csv --law ptpp-gate-floor --where "ptpp <= 31" -o fit.nc
    (if the table holds sweeps of learning rates: --best-of lr, or --law chinchilla+lr;
    if it has the standard error of each loss: --column "loss_sd=eval/stderr")
    """
    import bayeslaw
    from bayeslaw._posteriors.averaging.compare import law_of_few

    options = with_file(options, options.runs)
    check_writable(options.output)
    stated = prior_file(options.priors)
    table = read_table(options.runs, options.where, options.column)
    table = best_of(table, options.best_of)
    _say_domains(table)
    laws = options.law
    few = None if laws else law_of_few(table)  # too few runs for an average
    if few is not None:
        say(
            f"{len(table)} runs are too few to weigh laws by stages left out: the law is "
            f"{few} (--law names another)",
            to_stderr=True,
        )
        laws = [few]
    reference = stated["reference"] | assignments(options.reference, "--reference")
    posterior: Any
    if laws is not None and len(laws) == 1 and not options.drift:
        kind = "preview of " if options.preview else ""
        with progress_bar(f"{kind}{laws[0]} on {len(table)} runs") as progress:
            read = {"priors": stated["priors"], "progress": progress}
            read |= {"reference": reference}
            posterior = ask(options, bayeslaw.fit, table, laws[0], **read)
        name = posterior.name
        narrowed = posterior.narrowed().drop(columns="source")
        more = {
            "priors": priors_record(posterior.law),
            "narrowed": narrowed.to_dict(orient="index"),
        }
        more |= {"preview": True} if options.preview else {}
    else:
        if stated["priors"]:
            raise LawError("priors belong to one law; name it (--law), without --drift")
        if options.drift and options.preview:
            raise LawError(
                "a preview leaves no stage out to learn drift from: leave out --preview "
                "or --drift"
            )
        which = len(laws) if laws else "the default"
        with progress_bar(f"{which} laws on {len(table)} runs") as progress:
            read = {"reference": reference, "drift": True, "progress": progress}
            posterior = ask(options, bayeslaw.average, table, laws, **read)
        name, more = "average", {"weights": posterior.weights}
    if options.output is not None:
        posterior.save(options.output)
    record = {
        "law": name,
        "n": len(table),
        "parameters": posterior.parameters().to_dict(orient="index"),
        "diagnostics": posterior.diagnostics,
        "goodness": posterior.goodness._asdict(),
        **more,
        "output": options.output,
    }
    emit(record, options.as_json, lambda: _print_fit(posterior, record))


def _say_domains(table: pd.DataFrame) -> None:
    """Say before a minute of work that a table is of several domains."""
    from bayeslaw._tables.fitting import domains_mixed

    line = domains_mixed(table)
    if line is not None:
        say_at_once(line)


def _print_fit(posterior: Any, record: dict[str, Any]) -> None:
    from bayeslaw._tables.fitting import HANDFUL

    diagnostics = record["diagnostics"]
    say(f"{posterior.name} on {record['n']} runs: 90% intervals")
    if LOSS_SD in posterior.runs:
        say(f"beside sigma each row has its own error, {LOSS_SD}")
    say_block(posterior.parameters().to_string(float_format=lambda v: f"{v:.4g}"))
    if "weights" in record:
        weights = [f"{name} {w:.2f}" for name, w in record["weights"].items()]
        say(f"weights: {', '.join(weights)}")
    if "narrowed" in record:
        if record["n"] <= HANDFUL:
            rows = posterior.narrowed()
            say(f"what the runs narrowed (nats at {reference_run(posterior.law)}):")
            rows = rows.assign(narrowed=[f"{share:.0%}" for share in rows["narrowed"]])
            say_block(rows.to_string(float_format=lambda v: f"{v:.3g}"))
        else:
            narrowed = record["narrowed"].items()
            names = [site for site, row in narrowed if row["whose"] == "prior"]
            if names:
                verb, them = ("is", "it") if len(names) == 1 else ("are", "them")
                say(
                    f"{', '.join(names)} {verb} the prior's: the runs hardly narrowed "
                    f"{them}"
                )
    if "priors" in record and posterior.law.is_formula:
        say(f"priors (contributions in nats at {reference_run(posterior.law)}):")
        for name, prior in record["priors"].items():
            say(f"  {name} {prior['prior']}: {prior['source']}")
    if "preview" in record:
        say(
            f"A PREVIEW, k-hat {diagnostics['khat']:.2f}: "
            "fit without --preview for a posterior to report"
        )
    rhat = diagnostics["rhat"]
    chains_ran = rhat == rhat  # R-hat is NaN without chains
    say(
        f"{f'R-hat {rhat:.3f}' if chains_ran else 'by importance sampling'}, "
        f"ESS {diagnostics['ess']:.0f}, {diagnostics['divergences']} divergences, "
        f"{diagnostics['seconds']:.1f} s"
    )
    say_block(posterior.goodness.sentence())
    if record["output"] is not None:
        say(f"-> {record['output']}")


@options_of("compare", without="executor progress")
class CompareOptions(FittingOptions):
    """Options of ``compare``."""

    laws: str | None = option(
        "Laws to compare, A,B,C; default: those that suit the table's columns.",
        autocompletion=complete_laws,
    )
    output: Path | None = option("File for the average (netCDF).", "-o", "--output")
    scheduler: Scheduler = None


@command
def compare(options: CompareOptions) -> None:
    """Score laws by forecasts of left-out stages, and weigh them.

    Example: bayeslaw compare runs.csv --laws dcpt,ptpp-floor,ptpp-gate --where "domain
    == 'target'" --hold-out ptpp -o fit.nc
    """
    import bayeslaw
    from bayeslaw._posteriors.averaging.compare import law_of_few
    from bayeslaw._posteriors.fits.candidates import default_laws

    options = with_file(options, options.runs)
    check_writable(options.output)
    table = read_table(options.runs, options.where, options.column)
    _say_domains(table)
    names = options.laws.split(",") if options.laws else None
    if names is None and law_of_few(table):
        names = default_laws(table)  # refused, because nothing can be left out
    with (
        executor_at(options.scheduler) as executor,
        progress_bar(f"laws on {len(table)} runs") as progress,
    ):
        names = None if names is None else [name.strip() for name in names]
        read = {"executor": executor, "progress": progress}
        average = ask(options, bayeslaw.average, table, names, **read)
    if options.output is not None:
        average.save(options.output)
    folds = str(average.attrs["folds"])
    record = {
        "laws": average.table.reset_index().to_dict(orient="records"),
        "n": len(table),
        "held_out": folds.split("; "),
        "output": options.output,
    }

    def show() -> None:
        say(f"left out in turn: {folds}")
        # --json has all columns
        columns = ["score", "weight", "probability", "coverage", "mae", "bias"]
        columns += ["interval_score90", "drift", "errors", "sampler"]
        if average.table["reason"].any():
            columns += ["reason"]
        printed = average.table[columns]
        printed = printed.rename(columns={"reason": "why_less_weight"})
        say_block(printed.to_string(float_format=lambda v: f"{v:.3f}"))
        if options.output is not None:
            say(f"-> {options.output}")

    emit(record, options.as_json, show)

"""Define the commands for laws and tables of runs: ``laws``, ``simulate``, ``table``."""

from __future__ import annotations

from dataclasses import MISSING
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayeslaw._base.arguments import argument, command, option
from bayeslaw._base.errors import BayeslawError
from bayeslaw._base.terminal import say
from bayeslaw.cli.beside import with_file, write_columns
from bayeslaw.cli.documented import options_of
from bayeslaw.cli.options import AsJson, BestOf, Runs, RunsOptions, Seed, complete_law
from bayeslaw.cli.output import check_writable, emit, print_table, write_table
from bayeslaw.cli.parsing import ask, best_of, columns_of

if TYPE_CHECKING:
    import pandas as pd

    from bayeslaw._law.law import Law


@options_of()
class LawsOptions:
    """Options of ``laws``."""

    name: str | None = argument(
        "One law in full.", default=None, autocompletion=complete_law
    )
    as_json: AsJson = False


@command
def laws(options: LawsOptions) -> None:
    """List the laws; or one law's formula, parameters, priors and source.

    Example: bayeslaw laws ptpp-gate-floor
    """
    import bayeslaw

    def summary(law: Law) -> dict[str, Any]:
        return {
            "name": law.name,
            "title": law.title,
            "covariates": list(law.covariates),
            "parameters": list(law.parameters),
        }

    if options.name is None:
        rows = [summary(law) for law in bayeslaw.laws()]
        columns = ("name", "title", "covariates")
        emit(rows, options.as_json, lambda: print_table(rows, columns))
        return
    law = bayeslaw.find_law(options.name)
    record = summary(law) | {
        "source": law.source,
        "latex": law.latex,
        "reference": dict(law.reference),
        "plausible": dict(law.plausible),
        "priors": priors_record(law),
    }

    def show() -> None:
        say(f"{law.name}: {law.title}", f"  loss = {law.latex}", f"  {law.source}")
        say(f"  reference run: {reference_run(law)}")
        say("  priors (contributions in nats at the reference run):")
        for name, prior in law.priors.items():
            low, high = prior.quantile(0.05), prior.quantile(0.95)
            ends = f"90% {low:8.3g} to {high:8.3g}"
            say(f"    {name:12} {prior!s:24} {ends}   {prior.source}")

    emit(record, options.as_json, show)


def priors_record(law: Law) -> dict[str, dict[str, Any]]:
    """List each parameter's prior, its 90% interval, and where it comes from."""
    return {
        name: {
            "prior": str(prior),
            "low": prior.quantile(0.05),
            "high": prior.quantile(0.95),
            "source": prior.source,
        }
        for name, prior in law.priors.items()
    }


def reference_run(law: Law) -> str:
    """Write the run at which contributions are stated, with units of own columns."""
    from bayeslaw._law.formula import units_of

    units = units_of(law)
    return ", ".join(
        f"{column} {value:g} {units.get(column, '')}".rstrip()
        for column, value in law.reference.items()
    )


@options_of("simulate")
class SimulateOptions:
    """Options of ``simulate``."""

    law: str = argument("Name of a law.", "LAW", autocompletion=complete_law)
    output: Path = option(
        "CSV or Parquet file to write.", "-o", "--output", default=MISSING
    )
    seed: Seed = 0
    design: str = option("Grid of runs; ptpp is that of Goffinet 2025.", default="ptpp")
    set_: list[str] | None = option(
        "A parameter in the paper's units: --set alpha=0.3 (repeatable).",
        "--set",
        argument="parameters",
    )
    noise: float = option(
        "Standard deviation of log loss around the law.", default=0.005
    )
    as_json: AsJson = False


@command
def simulate(options: SimulateOptions) -> None:
    """Simulate runs from a law at plausible parameters.

    Example: bayeslaw simulate ptpp-gate-floor -o runs.csv --set lam=0.5
    """
    import bayeslaw

    runs = ask(options, bayeslaw.simulate)
    write_table(runs, options.output)
    names = ("law", "design", "seed", "noise", "output")
    record = {"n": len(runs), **{name: getattr(options, name) for name in names}}
    sentence = f"{len(runs)} simulated runs of {options.law} -> {options.output}"
    emit(record, options.as_json, lambda: say(sentence))


@options_of()
class TableOptions(RunsOptions):
    """Options of ``table``."""

    runs: Runs
    keep: list[str] | None = option(
        "A column to keep beside the schema's: --keep corpus (repeatable)."
    )
    best_of: BestOf = None
    remember: bool = option(
        "Keep the mapping in bayeslaw.toml beside the table, which every command reads."
    )
    output: Path | None = option("CSV or Parquet file to write.", "-o", "--output")
    as_json: AsJson = False


@command
def table(options: TableOptions) -> None:
    """Read a table or a tracker's runs, check them, say what was made of them, and keep
    them under the schema's names.

    Example: bayeslaw table mine.csv --column N=params --column "D=tokens_B*1e9" -o
    runs.csv (or --best-of lr -o tuned.csv)
    """
    from bayeslaw._tables.fitting import losses
    from bayeslaw._tables.proposals import mapping_hint
    from bayeslaw._tables.runs import read_with_notes

    check_writable(options.output)
    typed = options.column or []
    options = with_file(options, options.runs)
    columns = columns_of(options.column)
    runs, notes, mapped = read_with_notes(
        options.runs, where=options.where, columns=columns
    )
    kept = {name: mapped[name] for name in options.keep or [] if name in mapped}
    runs = runs.assign(**kept)
    losses(runs)  # raises an error with a proposed mapping if there is no loss
    runs = best_of(runs, options.best_of)
    # columns that are left out are not checked, and no law of the catalogue reads them
    selection, left_out = _kept(runs, options.keep or [])
    suited, trouble = _suited(selection)
    write_table(selection, options.output)
    remembered = write_columns(options.runs, typed) if options.remember else None
    columns = {}
    for name, column in selection.items():
        counts = {"levels": int(column.nunique()), "empty": int(column.isna().sum())}
        is_number = column.dtype.kind in "iufb"
        ends = {"low": column.min(), "high": column.max()} if is_number else {}
        columns[str(name)] = {end: float(x) for end, x in ends.items()} | counts
    written = options.output
    record = {
        "source": str(options.runs),
        "rows": len(selection),
        "runs": int(selection["run"].nunique()) if "run" in selection else None,
        "columns": columns,
        "left_out": left_out,
        "proposal": mapping_hint(runs).removeprefix("; ") or None,
        "notes": notes,
        "laws": suited,
        "trouble": trouble,
        "output": written,
        "remembered": remembered,
        "next": None if written is None else f"bayeslaw review {written}",
    }
    emit(record, options.as_json, lambda: _print_table_record(record))


def _kept(runs: pd.DataFrame, more: list[str]) -> tuple[pd.DataFrame, list[str]]:
    """Select the columns of the schema, swept settings, and the requested columns, and
    name the others.

    Raises
    ------
    RunTableError
        A requested column is missing.
    """
    from bayeslaw._tables.proposals import check_columns
    from bayeslaw._tables.rows.settings import alike_but_settings
    from bayeslaw._tables.runs import TEXT, numeric_columns

    check_columns(runs, more, " of --keep")
    schema = [*(name for name in TEXT if name in runs), *numeric_columns(runs)]
    # without their settings, rows of one cell would be runs of one setting
    alike = alike_but_settings(runs)
    swept = [] if alike is None else alike.columns
    names = list(dict.fromkeys([*schema, *swept, *more]))
    left_out = [str(name) for name in runs if name not in names]
    return runs[names], left_out


def _suited(runs: pd.DataFrame) -> tuple[dict[str, list[str]], str | None]:
    """List by domain the laws that `fit` takes by default, with reasons for refusals."""
    from bayeslaw._law.find import find_law
    from bayeslaw._posteriors.fits.candidates import default_laws
    from bayeslaw._tables.fitting import by_domain, list_refusals

    suited: dict[str, list[str]] = {}
    for domain, rows in by_domain(runs).items():
        try:
            names = default_laws(rows)
            refused = list_refusals([find_law(name, rows) for name in names], rows)
        except BayeslawError as error:
            return suited, str(error)
        if refused:
            return suited, next(iter(refused.values()))
        suited[domain] = names
    return suited, None


def _print_table_record(record: dict[str, Any]) -> None:
    from bayeslaw._base.numbers import format_count, format_many

    runs = "" if record["runs"] is None else f", {format_many(record['runs'], 'run')}"
    say(f"{record['source']}: {record['rows']} rows{runs}")
    for name, of in record["columns"].items():
        shown = format_many(of["levels"], "level")
        if "low" in of:
            is_count = name in ("N", "D", "U", "step", "cost")
            write = format_count if is_count else "{:.4g}".format
            ends = dict.fromkeys((write(of["low"]), write(of["high"])))
            shown = f"{' to '.join(ends)}, {shown}"
        empty = f", {of['empty']} empty" if of["empty"] else ""
        say(f"  {name:10} {shown}{empty}")
    for note in record["notes"]:
        say(f"note: {note}")
    if record["left_out"]:
        say(f"left out (--keep NAME keeps one): {', '.join(record['left_out'])}")
    if record["proposal"]:
        say(f"not used: {record['proposal']}")
    for domain, names in record["laws"].items():
        say(f"laws that fit takes for {domain}: {', '.join(names)}")
    if record["trouble"]:
        say(f"not to be fitted as it is: {record['trouble']}")
    if record["remembered"] is not None:
        say(f"-> {record['remembered']}, which every command reads beside the table")
    if record["output"] is None and record["remembered"] is None:
        say("nothing was written: -o runs.csv keeps it")
    elif record["output"] is not None:
        say(f"-> {record['output']}; next: {record['next']}")

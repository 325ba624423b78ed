"""Laws and runs from them: ``laws``, ``simulate``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from bayeslaw.cli.options import AsJson, Seed, command, complete_law
from bayeslaw.cli.output import emit, print_table, write_table
from bayeslaw.cli.parsing import assignments


@dataclass(frozen=True, kw_only=True)
class LawsOptions:
    """Options of ``laws``."""

    name: Annotated[
        str | None,
        typer.Argument(
            help="One law in full.", show_default=False, autocompletion=complete_law
        ),
    ] = None
    as_json: AsJson = False


@command
def laws(options: LawsOptions) -> None:
    """List the laws; or one law's formula, parameters, priors and source.

    Example: bayeslaw laws ptpp-gate-floor
    """
    import bayeslaw

    if options.name is not None:
        law = bayeslaw.find_law(options.name)
        emit(_law_record(law), options.as_json, lambda: _print_law(law))
        return
    rows = [_law_summary(law) for law in bayeslaw.laws()]
    columns = ("name", "title", "covariates")
    emit(rows, options.as_json, lambda: print_table(rows, columns))


def _law_summary(law) -> dict[str, Any]:
    return {
        "name": law.name,
        "title": law.title,
        "covariates": list(law.covariates),
        "parameters": list(law.parameters),
    }


def _law_record(law) -> dict[str, Any]:
    """All there is to say about a law."""
    priors = {
        name: {
            "prior": str(prior),
            "low": prior.quantile(0.05),
            "high": prior.quantile(0.95),
            "source": prior.source,
        }
        for name, prior in law.priors.items()
    }
    return _law_summary(law) | {
        "source": law.source,
        "latex": law.latex,
        "reference": dict(law.reference),
        "plausible": dict(law.plausible),
        "priors": priors,
    }


def _print_law(law) -> None:
    """A law for people."""
    print(f"{law.name}: {law.title}\n  loss = {law.latex}\n  {law.source}")
    reference = [f"{column} {value:g}" for column, value in law.reference.items()]
    print(f"  reference run: {', '.join(reference)}")
    print("  priors (contributions in nats at the reference run):")
    for name, prior in law.priors.items():
        low, high = prior.quantile(0.05), prior.quantile(0.95)
        print(
            f"    {name:12} {prior!s:24} 90% {low:8.3g} to {high:8.3g}   {prior.source}"
        )


@dataclass(frozen=True, kw_only=True)
class SimulateOptions:
    """Options of ``simulate``."""

    law: Annotated[
        str,
        typer.Argument(
            help="Name of a law.",
            metavar="LAW",
            show_default=False,
            autocompletion=complete_law,
        ),
    ]
    output: Annotated[
        Path, typer.Option("-o", "--output", help="CSV or Parquet file to write.")
    ]
    seed: Seed = 0
    design: Annotated[
        str, typer.Option(help="Grid of runs; ptpp is that of Goffinet 2025.")
    ] = "ptpp"
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="A parameter in the paper's units: --set alpha=0.3 (repeatable).",
        ),
    ] = None
    noise: Annotated[
        float, typer.Option(help="Standard deviation of log loss around the law.")
    ] = 0.005
    as_json: AsJson = False


@command
def simulate(options: SimulateOptions) -> None:
    """Simulate runs from a law at plausible parameters.

    Example: bayeslaw simulate ptpp-gate-floor -o runs.csv --set lam=0.5
    """
    import bayeslaw

    law, output = options.law, options.output
    runs = bayeslaw.simulate(
        law,
        design=options.design,
        seed=options.seed,
        noise=options.noise,
        parameters=assignments(options.set_),
    )
    write_table(runs, output)
    record = {
        "law": law,
        "n": len(runs),
        "design": options.design,
        "seed": options.seed,
        "noise": options.noise,
        "output": str(output),
    }
    sentence = f"{len(runs)} simulated runs of {law} -> {output}"
    emit(record, options.as_json, lambda: print(sentence))

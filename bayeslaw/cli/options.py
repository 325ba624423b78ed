"""Define options that several commands share, and turn a record of options into a
command.

A command takes one frozen dataclass whose fields are its arguments and options, in the
order of its ``--help``; `command` (of `_base.arguments`) hands typer the signature that it expects.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bayeslaw._base.arguments import option
from bayeslaw.cli.documented import options_of


def complete_law(incomplete: str) -> list[str]:
    """List names of laws with this beginning, for the shell's completion."""
    from bayeslaw._law.catalogue import law_names

    return [name for name in law_names() if name.startswith(incomplete)]


def complete_laws(incomplete: str) -> list[str]:
    """List completions of the last name in A,B,C among laws not named yet."""
    *before, last = incomplete.split(",")
    beginning = "".join(f"{name}," for name in before)
    return [beginning + name for name in complete_law(last) if name not in before]


@options_of("Costs")
class CostOptions:
    """Options for the costs of training; `parsing.costs_of` reads them."""

    mfu: str | None = option()
    shape: list[str] | None = option(
        "FLOPs beside 6 N D: layers=32,width=4096,context=8k adds attention, "
        "vocab=128k the output layer, active=13B counts a mixture's active "
        "parameters; N=8.1B,... of one size (repeatable).",
        argument="shapes",
    )
    fixed_cost: str | None = option(argument="fixed")
    side_by_side: str | None = option()
    train_checkpoint: bool = option()


Runs = Annotated[
    Path,
    typer.Argument(
        help="Table of runs: CSV, JSON lines, Parquet, Excel; or a tracker's store: "
        "tensorboard:FOLDER, mlflow:PLACE, trackio:PROJECT, wandb:ENTITY/PROJECT, "
        "hf:FOLDER.",
        metavar="RUNS",
        show_default=False,
    ),
]
FitFile = Annotated[
    Path,
    typer.Argument(
        help="A saved fit; or a law at given constants: "
        "chinchilla@E=1.69,A=406.4,B=410.7,alpha=0.34+-0.02,beta=0.28.",
        metavar="FIT.nc",
        show_default=False,
    ),
]
Where = Annotated[
    str | None,
    typer.Option(
        help="Rows to use, a pandas query: \"ptpp <= 31 and domain == 'target'\"."
    ),
]
Column = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        help="Your column for one of the schema: --column N=params, products and "
        'ratios --column "D=tokens_B*1e9", --column "ptpp=pretrain_B*1e9/N", a number '
        "for all rows --column N=124M, what names the runs --column run=yours "
        "(repeatable).",
    ),
]
BestOf = Annotated[
    list[str] | None,
    typer.Option(
        "--best-of",
        help="Of sweeps of these settings, the tuned loss of each cell: --best-of lr, or "
        "--best-of lr,batch where both were swept.",
    ),
]
Seed = Annotated[
    int, typer.Option(help="Same seed, same machine: same numbers.", min=0)
]
Before = Annotated[
    list[str] | None,
    typer.Option(
        help="Fit of a law in N and D to checkpoints, for their loss where it is not "
        "measured: S0.nc, or source_loss_before=S0.nc (repeatable)."
    ),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        help="Dask scheduler whose workers do the work: tcp://host:8786 (extra `dask`)."
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="One JSON object on stdout, nothing else.")
]


@options_of()
class RunsOptions:
    """Options of every command that reads a table of runs."""

    where: Where = None
    column: Column = None


@options_of("prior_only", without="runs priors reference draws")
class PriorOptions:
    """Options for priors in place of a fit; `parsing.prior_of` builds them."""

    prior_only: bool = option(
        "Before the first run: what the priors of --law say, in place of a fit."
    )
    law: list[str] | None = option(
        "With --prior-only: the law (of the target loss).", autocompletion=complete_law
    )
    experience: str | None = option()
    seed: Seed = 0


@options_of()
class FittingOptions(RunsOptions):
    """Options of every command that fits laws to a table."""

    runs: Runs
    plain: bool = option(
        "The law as if it were exact, without its learned misfit: intervals are "
        "too narrow for new models and stages.",
        argument="discrepancy",
    )
    accept_diagnostics: bool = option(
        "Keep a fit whose diagnostics fail.", argument="on_failure"
    )
    seed: Seed = 0
    as_json: AsJson = False


@options_of("load", without="path")
class SavedFitOptions:
    """Options of every command that reads fits."""

    seed: Seed = 0
    trust_law_file: bool = option()
    as_json: AsJson = False


@options_of()
class AccuracyOptions:
    """Options for the link from a loss to the accuracy of an evaluation;
    `parsing.link_of` fits it.
    """

    accuracy: Path | None = option(
        "CSV of loss and accuracy of models that were evaluated: a logistic of "
        "the loss is fitted to it.",
        metavar="EVALUATED.csv",
    )
    chance: str | None = option(
        "With --accuracy: that of a guess, 25% of four choices."
    )

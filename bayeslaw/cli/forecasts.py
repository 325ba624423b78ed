"""Define the commands for forecasts and their quality: ``forecast``, ``optimum``,
``recipes``, ``check``, ``review``.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from bayeslaw._base.arguments import argument, command, option
from bayeslaw._base.errors import LawError, RunTableError
from bayeslaw._base.progress.bar import progress_bar
from bayeslaw._base.terminal import say, say_block
from bayeslaw.cli.beside import columns_there, with_file
from bayeslaw.cli.documented import options_of
from bayeslaw.cli.options import (
    AccuracyOptions,
    Before,
    CostOptions,
    FitFile,
    PriorOptions,
    Runs,
    RunsOptions,
    SavedFitOptions,
    complete_law,
)
from bayeslaw.cli.output import (
    check_writable,
    emit,
    emit_answer,
    write_picture,
    write_table,
)
from bayeslaw.cli.parsing import (
    ask,
    costs_of,
    goal_at,
    link_of,
    load_befores,
    load_fit,
    prior_of,
    read_table,
)

if TYPE_CHECKING:
    from bayeslaw._forecasts.choosing import RecipeChoice
    from bayeslaw._forecasts.recipes import Recipes


@options_of()
class ForecastOptions(AccuracyOptions, PriorOptions, RunsOptions, SavedFitOptions):
    """Options of ``forecast``."""

    fit_file: FitFile
    runs: Path | None = argument(
        "Table of runs to forecast; with --prior-only the only argument.",
        "RUNS",
        default=None,
    )
    prob: float = option(
        "Probability inside the intervals.", default=0.9, min=0.01, max=0.999
    )
    before: Before = None
    output: Path | None = option("CSV or Parquet file for the rows.", "-o", "--output")


@command
def forecast(options: ForecastOptions) -> None:
    """Forecast the loss of each run: the law's interval, and a new run's.

    Example: bayeslaw forecast fit.nc planned.csv --prob 0.8 --accuracy evaluated.csv
    --chance 25% (before the first run: bayeslaw forecast planned.csv --law chinchilla
    --prior-only)
    """
    import pandas as pd

    import bayeslaw
    from bayeslaw._base.numbers import format_count
    from bayeslaw._forecasts.misfits import drift_sentence, shift_sentence
    from bayeslaw._law.columns import LOSSES_BEFORE
    from bayeslaw._posteriors.chain import chain
    from bayeslaw._posteriors.posterior import columns_read

    if not options.prior_only and (options.law or options.experience):
        raise LawError(
            "--law and --experience belong to --prior-only: a fit has its own"
        )
    if options.prior_only and options.runs is not None:
        raise LawError("with --prior-only there is no fit: give the table of runs only")
    if not options.prior_only and options.runs is None:
        raise LawError(
            "give a fit and a table: bayeslaw forecast FIT.nc RUNS; before the first run "
            "a table, --law NAME --prior-only"
        )
    path = options.fit_file if options.runs is None else options.runs
    options = with_file(options, path)
    check_writable(options.output)
    trusted = options.trust_law_file
    table = read_table(path, options.where, options.column)
    more = {}
    if options.prior_only:
        posterior = prior_of("--law", options.law, table, options)
        more = {"prior_only": True, "warnings": list(posterior.warnings)}
    else:
        posterior = load_fit(options.fit_file, trusted)
    forecaster = posterior
    if options.before:
        befores = load_befores(options.before, [posterior], trusted)
        forecaster = chain(posterior, befores, seed=options.seed)
    link = link_of(options, options.seed)
    rows = bayeslaw.forecast(
        forecaster, table, prob=options.prob, accuracy=link, seed=options.seed
    )
    write_table(pd.concat([table, rows], axis=1), options.output)
    own = table.drop(columns=[name for name in rows if name in table])
    own = own.astype(dict.fromkeys(own.select_dtypes("datetime").columns, str))
    record = {
        "law": posterior.name,
        "prob": options.prob,
        **more,
        "rows": own.join(rows).reset_index().to_dict(orient="records"),
    }

    def show() -> None:
        if options.prior_only:
            say_block("\n".join(posterior.warnings))
        # columns that identify the run: a law may read a rate, or shares
        names = ("run", "domain", "N", "D", "replay", "ptpp", *columns_read(posterior))
        told = dict.fromkeys((*names, "step", "loss"))
        labels = table[[c for c in told if c in table and c not in LOSSES_BEFORE]]
        counts = {c: labels[c].map(format_count) for c in ("N", "D") if c in labels}
        wide = pd.concat([labels.assign(**counts), rows], axis=1)
        say_block(wide.to_string(float_format=lambda v: f"{v:.4g}"))
        wide_by = drift_sentence(forecaster, table, rows)
        moved_by = shift_sentence(forecaster, table)
        for sentence in filter(None, (wide_by, moved_by)):
            say(sentence)

    emit(record, options.as_json, show)


@options_of("optimum", without="posterior costs")
class OptimumOptions(CostOptions, SavedFitOptions):
    """Options of ``optimum``."""

    fit_file: FitFile
    budget: list[str] | None = option(argument="budgets")
    served_tokens: str = option(default="0")
    covariate: list[str] | None = option(argument="covariates")
    at: str | None = option(
        "In place of budgets: when to stop a run that repeats U unique tokens, "
        "--at N=1B,U=10B; with D=60B also what these tokens bring."
    )
    picture: Path | None = option(
        "File for the isoFLOP curves, or the run's losses: optimum.png."
    )


@command
def optimum(options: OptimumOptions) -> None:
    """Find the best size and tokens for a budget, with intervals, or say why there are
    none; or (--at) when to stop a run that repeats its data.

    Example: bayeslaw optimum fit.nc --budget 1e21 --budget 1e22 (or --budget 20000
    --hardware 64xH100 --price 2.5) --served-tokens 2T
    """
    import bayeslaw
    from bayeslaw._posteriors.pairs import table_of

    check_writable(options.picture)
    posterior = load_fit(options.fit_file, options.trust_law_file)
    if options.at is not None:
        is_budget = options.budget or options.covariate or options.served_tokens != "0"
        if is_budget or costs_of(options) is not None:
            raise RunTableError(
                "--at asks when to stop a run: give it without budgets, costs, "
                "--served-tokens and --covariate, and columns of the run in it"
            )
        (run,) = goal_at([options.at], posterior).to_dict(orient="records")
        stop = ask(options, bayeslaw.best_stop, posterior, run)
        write_picture(
            options.picture,
            lambda ax: bayeslaw.plots.stopping(ax, stop, table_of(posterior)),
        )
        emit_answer(stop, options.as_json, stop.table())
        return
    best = ask(options, bayeslaw.optimum, posterior)
    write_picture(
        options.picture,
        lambda ax: bayeslaw.plots.isoflops(ax, best, table_of(posterior)),
    )
    emit_answer(best, options.as_json, best.table())


@options_of("recipes", without="posterior costs")
class RecipesOptions(CostOptions, RunsOptions, SavedFitOptions):
    """Options of ``recipes``."""

    fit_file: FitFile
    table: Path | None = argument(
        "Table of recipes, a row each; or give each as --at.", "[RECIPES]", default=None
    )
    at: list[str] | None = option(
        "A recipe: --at N=8.1B,D=70B,replay=40%,ptpp=279 (repeatable); without D "
        "as many tokens as the budget pays for."
    )
    source: Path | None = option(metavar="SOURCE.nc")
    by: str | None = option(
        "In place of a fit give a table of runs: the column that names the recipe of "
        "each (optimizer, corpus), compared at the one --at.",
        metavar="COLUMN",
    )
    law: str | None = option("With --by: the law.", autocompletion=complete_law)
    confidence: float = option(
        "With --by: how sure the seeds still needed shall make the choice.",
        default=0.9,
        min=0,
        max=1,
    )
    accept_diagnostics: bool = option(
        "With --by: keep a fit whose diagnostics fail.", argument="on_failure"
    )
    picture: Path | None = option("File for the recipes' losses: recipes.png.")


@command
def recipes(options: RecipesOptions) -> None:
    """Compute the probability that a run of one recipe beats a run of another, at equal
    compute for recipes without D; or that recipes of a table are better at a goal.

    Example: bayeslaw recipes target.nc --at N=8.1B,D=70B,replay=20%,ptpp=279 --at
    N=8.1B,replay=40%,ptpp=279 (or bayeslaw recipes runs.csv --by optimizer --at
    N=7B,D=140B --law chinchilla)
    """
    import bayeslaw

    check_writable(options.picture)
    if options.by is not None:
        _answer_recipes(options, _choose_recipe(options))
        return
    if options.law or options.where:
        raise LawError("--law and --where belong to --by COLUMN")
    options = with_file(options, options.table)
    if (options.table is None) == (not options.at):
        raise RunTableError("give a table of recipes, or each as --at; not both")
    posterior = load_fit(options.fit_file, options.trust_law_file)
    source = options.source and load_fit(options.source, options.trust_law_file)
    if options.table is None:
        table = goal_at(options.at or [], *filter(None, (posterior, source)))
    else:
        table = read_table(options.table, None, options.column)
    compared = ask(options, bayeslaw.recipes, posterior, table, source=source)
    _answer_recipes(options, compared)


def _answer_recipes(options: RecipesOptions, compared: Recipes | RecipeChoice) -> None:
    from bayeslaw.plots import recipe_losses

    height = 1.2 + 0.4 * len(compared.rows)
    write_picture(options.picture, lambda ax: recipe_losses(ax, compared), height)
    emit_answer(compared, options.as_json, compared.table())


def _choose_recipe(options: RecipesOptions) -> RecipeChoice:
    import bayeslaw

    if options.table is not None or len(options.at or []) != 1:
        raise RunTableError("with --by give one table of runs, and one goal as --at")
    options = with_file(options, options.fit_file)
    table = read_table(options.fit_file, options.where, options.column)
    with progress_bar(
        f"{options.law} by {options.by} on {len(table)} runs"
    ) as progress:
        goal = goal_at(options.at or [])
        arguments = table, options.by, goal, options.law
        return ask(options, bayeslaw.choose_recipe, *arguments, progress=progress)


@options_of()
class CheckOptions(RunsOptions, SavedFitOptions):
    """Options of ``check``."""

    fit_file: FitFile
    runs: Runs
    replicates: int = option(
        "Is the inference right at the fitted runs? Posterior SBC with this "
        "many replicates of the runs: 40 find gross faults (two minutes). Only for a "
        "fit of one law.",
        default=0,
        min=0,
    )
    conformal: bool = option(
        "Leave out the upper stages of the fitted runs in turn: how much wider "
        "would intervals have had to be, and what does that say of the next stage?"
    )
    hold_out: str | None = option(
        "With --conformal: what distinguishes stages, a column, D/N or N*D; "
        "default: the axis along which RUNS lie beyond the fitted runs.",
        metavar="COLUMN",
    )


@command
def check(options: CheckOptions) -> None:
    """Check calibration on held-out runs: coverage, errors, and a verdict in words.

    Example: bayeslaw check fit.nc runs.csv --where "ptpp == 279"
    """
    import bayeslaw

    if options.hold_out is not None and not options.conformal:
        raise RunTableError(
            "--hold-out names the stages that --conformal leaves out: give --conformal too"
        )
    options = with_file(options, options.runs)
    posterior = load_fit(options.fit_file, options.trust_law_file)
    table = read_table(options.runs, options.where, options.column)
    result = bayeslaw.check(posterior, table, seed=options.seed)
    further: dict[str, Any] = {}
    shared: dict[str, Any] = {"runs": table, "seed": options.seed}
    if options.replicates:
        with progress_bar(f"{options.replicates} replicates", 120) as progress:
            further["posterior_sbc"] = bayeslaw.check_inference(
                posterior, replicates=options.replicates, progress=progress, **shared
            )
    if options.conformal:
        with progress_bar(f"stages of {posterior.name}", 120) as progress:
            further["conformal"] = bayeslaw.check_stages(
                posterior, column=options.hold_out, progress=progress, **shared
            )

    def show() -> None:
        say(f"{result.verdict.upper()}: {result.reason}")
        say(f"-> {result.next} (docs/verdicts.md)")
        for name, (low, high) in result.intervals.items():
            score = getattr(result, name)
            say(
                f"  {name:10} {score:9.4g}   "
                f"90% over the posterior {low:9.4g} to {high:9.4g}"
            )
        coverage = [f"{float(p):.0%}: {c:.0%}" for p, c in result.coverage.items()]
        say(f"  coverage   {', '.join(coverage)}")
        say(
            f"  CRPS {result.crps:.4g} nats; "
            f"90% intervals {result.width90:.1%} wide on average"
        )
        for test in further.values():
            first, *details = test.lines
            say(first, *(f"  {line}" for line in details))

    record = {"law": posterior.name} | result.to_dict() | further
    emit(record, options.as_json, show)


@options_of()
class ReviewOptions(RunsOptions, SavedFitOptions):
    """Options of ``review``."""

    paths: list[Path] = argument(
        "A table of runs; or saved fits, the target's first.", "RUNS | FIT.nc..."
    )
    goal: Path | None = option("Table of runs to forecast.", metavar="GOAL.csv")
    at: list[str] | None = option(
        "A run to forecast, in place of --goal: --at N=8.1B,D=70B,ptpp=279 "
        "(repeatable)."
    )
    held_out: Path | None = option(
        "With fits: measured runs that were not fitted (--where selects them).",
        metavar="RUNS",
    )
    refit: bool = option(
        "With a fit of one law: leave stages out and fit again (a minute)."
    )


@command
def review(options: ReviewOptions) -> None:
    """Review a table of runs before it is fitted, or fits before they are used. Exit 0
    if all is well, 4 if something deserves a look, 5 if something fails.

    Example: bayeslaw review runs.csv --at N=8.1B,D=70B,ptpp=279
    """
    import bayeslaw
    from bayeslaw._forecasts.review.review import is_fit_file

    if len(set(options.paths)) < len(options.paths):
        raise RunTableError("a file is named twice; name each once")
    are_fits = all(is_fit_file(path) for path in options.paths)
    options = with_file(options, options.held_out if are_fits else options.paths[0])
    if options.goal is not None and options.at:
        raise RunTableError("give --goal or --at, not both")
    fits = {}
    if are_fits:
        fits = {str(p): load_fit(p, options.trust_law_file) for p in options.paths}
    goal = goal_at(options.at, *fits.values()) if options.at else None
    if options.goal is not None:
        columns = columns_there(options.column, options.goal)
        goal = read_table(options.goal, None, columns)
    if not are_fits:
        result = _review_of_table(options, goal)
    else:
        if options.held_out is None and (options.where or options.column):
            raise RunTableError(
                "--where and --column are about a table: give one, or --held-out RUNS"
            )
        held_out = options.held_out and read_table(
            options.held_out, options.where, options.column
        )
        read = {"goal": goal, "held_out": held_out}
        result = ask(options, bayeslaw.review, fits, **read)
    emit_answer(result, options.as_json)
    exit_codes = {"pass": 0, "look": 4, "fail": 5}
    raise typer.Exit(exit_codes[result.verdict])


def _review_of_table(options: ReviewOptions, goal: Any) -> Any:
    """Review a table; print warnings of reading that the review does not repeat."""
    import bayeslaw

    path, *more = options.paths
    if more:
        raise RunTableError(
            f"review takes one table of runs, or fits; got {len(options.paths)} files; "
            "give runs that fits have not seen as --held-out"
        )
    with warnings.catch_warnings(record=True) as caught:
        table = read_table(path, options.where, options.column)
    result = ask(options, bayeslaw.review, table, goal=goal, name=str(path))
    reasons = "; ".join(check.reason for check in result.checks)
    for warning in caught:
        # most warnings are among the review's reasons
        if str(warning.message) not in reasons:
            warnings.warn(warning.message, stacklevel=2)
    return result

"""The command line: thin commands over the Python functions of the same names.

``--json`` prints one JSON object on stdout and nothing else. Exit 0; 2 for bad input, one line; 3 when a fit fails
its diagnostics. What computes is imported inside the commands, so that ``--help`` answers at once.
"""

from __future__ import annotations

import json
import sys
import tomllib
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bayeslaw._engine import WARMUP, executor_at
from bayeslaw._errors import BayeslawError, DiagnosticsError, LawError, PlanError
from bayeslaw._files import whole

if TYPE_CHECKING:
    import pandas as pd

app = typer.Typer(
    name="bayeslaw",
    help="Bayesian scaling laws of continual pre-training: posteriors, calibrated forecasts, plans.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
study_app = typer.Typer(help="Simulated studies; an interrupted one goes on where it was.", no_args_is_help=True)
app.add_typer(study_app, name="study")

INTERRUPTED = 130  # exit code of a command that Ctrl-C ended


class Resumable(SystemExit):
    """The end of an interrupted command that has said where it left its work."""


Runs = Annotated[Path, typer.Argument(help="Table of runs: CSV or Parquet.", metavar="RUNS", show_default=False)]
FitFile = Annotated[Path, typer.Argument(help="A saved fit.", metavar="FIT.nc", show_default=False)]
Where = Annotated[str | None, typer.Option(help="Rows to use, a pandas query: \"ptpp <= 31 and domain == 'target'\".")]
Column = Annotated[
    list[str] | None,
    typer.Option("--column", help="Your column for one of the schema: --column N=params (repeatable)."),
]
Reference = Annotated[
    list[str] | None,
    typer.Option(
        "--reference",
        help="A run near yours at which priors are stated in nats: --reference N=100k --reference D=1M (repeatable).",
    ),
]
Seed = Annotated[int, typer.Option(help="Same seed, same machine: same numbers.", min=0)]
Before = Annotated[
    list[str] | None,
    typer.Option(
        help="Fit of a law in N and D to checkpoints, for their loss where it is not measured: S0.nc, or "
        "source_loss_before=S0.nc (repeatable)."
    ),
]
Scheduler = Annotated[
    str | None, typer.Option(help="Dask scheduler whose workers do the work: tcp://host:8786 (extra `dask`).")
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on stdout, nothing else.")]


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"bayeslaw {version('bayeslaw')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Bayesian scaling laws of continual pre-training: posteriors, calibrated forecasts, plans."""


# -- laws, simulate --------------------------------------------------------------------------------------------------


@app.command()
def laws(
    name: Annotated[str | None, typer.Argument(help="One law in full.", show_default=False)] = None,
    as_json: AsJson = False,
) -> None:
    """List the laws; or one law's formula, parameters, priors and source.

    Example: bayeslaw laws ptpp-gate-floor
    """
    import bayeslaw

    if name is None:
        listed = [_law_summary(law) for law in bayeslaw.laws()]
        _print(listed, as_json, lambda: _table(listed, ("name", "title", "covariates")))
        return
    law = bayeslaw.find_law(name)
    record = _law_summary(law) | {
        "source": law.source,
        "latex": law.latex,
        "reference": dict(law.reference),
        "plausible": dict(law.plausible),
        "priors": {
            n: {"prior": str(p), "low": p.quantile(0.05), "high": p.quantile(0.95), "source": p.source}
            for n, p in law.priors.items()
        },
    }

    def show() -> None:
        print(f"{law.name}: {law.title}\n  loss = {law.latex}\n  {law.source}")
        print("  reference run: " + ", ".join(f"{c} {v:g}" for c, v in law.reference.items()))
        print("  priors (contributions in nats at the reference run):")
        for n, p in law.priors.items():
            print(f"    {n:12} {p!s:24} 90% {p.quantile(0.05):8.3g} to {p.quantile(0.95):8.3g}   {p.source}")

    _print(record, as_json, show)


def _law_summary(law) -> dict:
    return {
        "name": law.name,
        "title": law.title,
        "covariates": list(law.covariates),
        "parameters": list(law.parameters),
    }


@app.command()
def simulate(
    law: Annotated[str, typer.Argument(help="Name of a law.", metavar="LAW", show_default=False)],
    output: Annotated[Path, typer.Option("-o", "--output", help="CSV or Parquet file to write.")],
    seed: Seed = 0,
    design: Annotated[str, typer.Option(help="Grid of runs; ptpp is that of Goffinet 2025.")] = "ptpp",
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="A parameter in the paper's units: --set alpha=0.3 (repeatable).")
    ] = None,
    noise: Annotated[float, typer.Option(help="Standard deviation of log loss around the law.")] = 0.005,
    as_json: AsJson = False,
) -> None:
    """Simulate runs from a law at plausible parameters.

    Example: bayeslaw simulate ptpp-gate-floor -o runs.csv --set lam=0.5
    """
    import bayeslaw

    runs = bayeslaw.simulate(law, design=design, seed=seed, noise=noise, parameters=_assignments(set_))
    _write_table(runs, output)
    record = {"law": law, "n": len(runs), "design": design, "seed": seed, "noise": noise, "output": str(output)}
    _print(record, as_json, lambda: print(f"{len(runs)} simulated runs of {law} -> {output}"))


# -- fit, forecast, check --------------------------------------------------------------------------------------------


@app.command()
def fit(
    runs: Runs,
    law: Annotated[
        list[str] | None,
        typer.Option(
            help="Name of a law (see `bayeslaw laws`), a formula, or a Python file; several, or none: their average.",
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="File for the fit (netCDF).")] = None,
    where: Where = None,
    column: Column = None,
    priors: Annotated[
        Path | None, typer.Option(help='TOML file: [priors] alpha = "lognormal(0.34, 0.3)"; [reference] N = 1e8.')
    ] = None,
    reference: Reference = None,
    seed: Seed = 0,
    chains: Annotated[int, typer.Option(min=1)] = 4,
    warmup: Annotated[int, typer.Option(help="Iterations to adapt, per chain.", min=100)] = WARMUP,
    draws: Annotated[int, typer.Option(help="Draws kept, per chain; more while the diagnostics fail.", min=100)] = 1000,
    max_draws: Annotated[int, typer.Option(help="Most draws kept, per chain.", min=100)] = 4000,
    independent: Annotated[
        bool, typer.Option("--independent", help="No error shared by rows of one checkpoint or run.")
    ] = False,
    preview: Annotated[
        bool,
        typer.Option("--preview", help="Importance sampling in place of chains: seconds, and marked as a preview."),
    ] = False,
    accept_diagnostics: Annotated[
        bool, typer.Option("--accept-diagnostics", help="Keep a fit whose diagnostics fail.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Sample the posterior of a law on a table of runs; of several laws, or with no law named, average them.

    Example: bayeslaw fit runs.csv --law ptpp-gate-floor --where "ptpp <= 31" -o fit.nc
    """
    import bayeslaw

    if output is not None:
        _check_writable(output)
    settings = _prior_file(priors)
    at = settings["reference"] | _assignments(reference)
    table = _read(runs, where, column)
    on_failure = "warn" if accept_diagnostics else "raise"
    if law is None or len(law) != 1:
        if settings["priors"]:
            raise LawError("priors belong to one law; name it (--law)")
        with _progress(f"{len(law) if law else 'the default'} laws on {len(table)} runs") as progress:
            mixed = bayeslaw.average(
                table,
                law or None,
                reference=at,
                independent=independent,
                seed=seed,
                progress=progress,
                on_failure=on_failure,
            )
        _print_fit(mixed, "average", {"weights": mixed.weights}, len(table), output, as_json)
        return
    with _progress(f"{law[0]} on {len(table)} runs") as progress:
        result = bayeslaw.fit(
            table,
            law[0],
            priors=settings["priors"],
            reference=at,
            independent=independent,
            seed=seed,
            chains=chains,
            warmup=warmup,
            draws=draws,
            max_draws=max_draws,
            preview=preview,
            progress=progress,
            on_failure=on_failure,
        )
    _print_fit(result, result.name, {"preview": True} if preview else {}, len(table), output, as_json)


def _print_fit(result, law: str, more: dict, n: int, output: Path | None, as_json: bool) -> None:
    """Save a fit or an average, and print its parameters and diagnostics."""
    if output is not None:
        result.save(output)
    parameters, d = result.parameters(), result.diagnostics
    record = {
        "law": law,
        "n": n,
        "parameters": parameters.to_dict(orient="index"),
        "diagnostics": d,
        **more,
        "output": None if output is None else str(output),
    }

    def show() -> None:
        print(f"{result.name} on {n} runs: 90% intervals")
        print(parameters.to_string(float_format=lambda v: f"{v:.4g}"))
        if "weights" in more:
            print("weights: " + ", ".join(f"{k} {w:.2f}" for k, w in more["weights"].items()))
        if "preview" in more:
            print(f"A PREVIEW, k-hat {d['khat']:.2f}: fit without --preview for a posterior to report")
        rhat = f"R-hat {d['rhat']:.3f}" if d["rhat"] == d["rhat"] else "by importance sampling"  # NaN without chains
        print(f"{rhat}, ESS {d['ess']:.0f}, {d['divergences']} divergences, {d['seconds']:.1f} s")
        if output is not None:
            print(f"-> {output}")

    _print(record, as_json, show)


@app.command()
def compare(
    runs: Runs,
    laws: Annotated[
        str | None, typer.Option(help="Laws to compare, A,B,C; default: those that suit the table's columns.")
    ] = None,
    hold_out: Annotated[
        list[str] | None,
        typer.Option(help="Column whose largest levels are left out in turn: ptpp, N, D, D/N (repeatable)."),
    ] = None,
    where: Where = None,
    column: Column = None,
    reference: Reference = None,
    independent: Annotated[
        bool, typer.Option("--independent", help="No error shared by rows of one checkpoint or run.")
    ] = False,
    seed: Seed = 0,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="File for the average (netCDF).")] = None,
    accept_diagnostics: Annotated[
        bool, typer.Option("--accept-diagnostics", help="Keep an average whose diagnostics fail.")
    ] = False,
    scheduler: Scheduler = None,
    as_json: AsJson = False,
) -> None:
    """Score laws by forecasts of stages left out, and weigh them.

    Example: bayeslaw compare runs.csv --laws dcpt,ptpp-floor,ptpp-gate --where "domain == 'target'" --hold-out ptpp -o fit.nc
    """
    import bayeslaw

    if output is not None:
        _check_writable(output)
    table = _read(runs, where, column)
    with executor_at(scheduler) as executor, _progress(f"laws on {len(table)} runs") as progress:
        mixed = bayeslaw.average(
            table,
            [name.strip() for name in laws.split(",")] if laws else None,
            reference=_assignments(reference),
            hold_out=hold_out,
            independent=independent,
            seed=seed,
            executor=executor,
            progress=progress,
            on_failure="warn" if accept_diagnostics else "raise",
        )
    if output is not None:
        mixed.save(output)
    rows = mixed.table.reset_index().to_dict(orient="records")
    record = {
        "laws": rows,
        "n": len(table),
        "held_out": str(mixed.attrs["folds"]).split("; "),
        "output": None if output is None else str(output),
    }

    def show() -> None:
        print(f"left out in turn: {mixed.attrs['folds']}")
        shown = mixed.table[["score", "weight", "probability", "coverage", "mae", "drift", "errors", "sampler"]]
        print(shown.to_string(float_format=lambda v: f"{v:.3f}"))
        if output is not None:
            print(f"-> {output}")

    _print(record, as_json, show)


@app.command()
def forecast(
    fit_file: FitFile,
    runs: Runs,
    where: Where = None,
    column: Column = None,
    prob: Annotated[float, typer.Option(help="Probability inside the intervals.", min=0.01, max=0.999)] = 0.9,
    before: Before = None,
    seed: Seed = 0,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="CSV or Parquet file for the rows.")] = None,
    as_json: AsJson = False,
) -> None:
    """Forecast the loss of each run: the law's interval, and a new run's.

    Example: bayeslaw forecast fit.nc planned.csv --prob 0.8
    """
    import pandas as pd

    import bayeslaw
    from bayeslaw._chain import chain
    from bayeslaw._words import people_number

    posterior = bayeslaw.load(fit_file)
    table = _read(runs, where, column)
    chained = chain(posterior, _befores(before, [posterior]), seed=seed) if before else posterior
    rows = bayeslaw.forecast(chained, table, prob=prob, seed=seed)
    if output is not None:
        _write_table(pd.concat([table, rows], axis=1), output)
    record = {"law": posterior.name, "prob": prob, "rows": rows.reset_index().to_dict(orient="records")}
    shown = [c for c in ("run", "domain", "N", "D", "replay", "ptpp", "step", "loss") if c in table]
    people = table[shown].assign(**{c: table[c].map(people_number) for c in ("N", "D") if c in shown})
    wide = pd.concat([people, rows], axis=1)
    _print(record, as_json, lambda: print(wide.to_string(float_format=lambda v: f"{v:.4g}")))


@app.command()
def check(
    fit_file: FitFile,
    runs: Runs,
    where: Where = None,
    column: Column = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Calibration on held-out runs: coverage, errors, and a verdict in words.

    Example: bayeslaw check fit.nc runs.csv --where "ptpp == 279"
    """
    import bayeslaw

    posterior = bayeslaw.load(fit_file)
    result = bayeslaw.check(posterior, _read(runs, where, column), seed=seed)

    def show() -> None:
        print(f"{result.verdict.upper()}: {result.reason}")
        for name in ("huber_log", "rmse_log", "mae_rel", "mape_clip", "intercept", "slope"):
            low, high = result.intervals[name]
            print(f"  {name:10} {getattr(result, name):9.4g}   90% over the posterior {low:9.4g} to {high:9.4g}")
        print("  coverage   " + ", ".join(f"{float(p):.0%}: {c:.0%}" for p, c in result.coverage.items()))
        print(f"  CRPS {result.crps:.4g} nats; 90% intervals {result.width90:.1%} wide on average")

    _print({"law": posterior.name} | result.to_dict(), as_json, show)


@app.command()
def plan(
    target: Annotated[Path, typer.Option(help="Fit of the target loss.", metavar="T.nc")],
    source: Annotated[
        list[str], typer.Option(help="Fit of the source loss; several as NAME=S.nc (repeatable).", metavar="S.nc")
    ],
    N: Annotated[list[str], typer.Option("--N", help="Model parameters: 8.1B (repeatable: the cheapest model wins).")],
    ptpp: Annotated[list[str], typer.Option(help="Pre-training tokens per parameter (one, or one for each --N).")],
    max_target_loss: Annotated[str, typer.Option(help="Target loss to reach, nats per token.")],
    max_forgetting: Annotated[str, typer.Option(help="Rise of the source loss: 2%, or 0.05nats.")],
    confidence: Annotated[str, typer.Option(help="Probability of keeping all promises together.")] = "0.9",
    baseline_loss: Annotated[str | None, typer.Option(help="Measured source loss before adaptation.")] = None,
    baseline_tokens: Annotated[
        str | None, typer.Option(help="Else the source law at this budget of pure replay: 1B.")
    ] = None,
    before: Before = None,
    covariate: Annotated[
        list[str] | None, typer.Option(help="Another column the laws read: --covariate loss_before=2.3 (repeatable).")
    ] = None,
    max_flops: Annotated[str | None, typer.Option(help="Budget: then the most probable plan within it.")] = None,
    max_tokens: Annotated[str | None, typer.Option(help="Budget of adaptation tokens, likewise.")] = None,
    unique_target_tokens: Annotated[str | None, typer.Option(help="Target tokens there are.")] = None,
    max_epochs: Annotated[str, typer.Option(help="How often each of them may be seen.")] = "1",
    min_replay: Annotated[str, typer.Option(help="Least replay.")] = "0",
    law_mean: Annotated[
        bool, typer.Option("--law-mean", help="Promises about the law's mean, not the run that will be made.")
    ] = False,
    seed: Seed = 0,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="JSON file for the plan.")] = None,
    as_json: AsJson = False,
) -> None:
    """The cheapest adaptation that keeps its promises with a stated probability, or why there is none.

    Example: bayeslaw plan --target t.nc --source s.nc --N 8.1B --ptpp 279 --max-target-loss 1.8 --max-forgetting 2%
    --baseline-loss 1.9
    """
    import bayeslaw
    from bayeslaw._chain import losses_before
    from bayeslaw._runs import parse_number

    def number(text: str | None) -> float | None:
        return None if text is None else parse_number(text)

    in_nats = max_forgetting.lower().endswith("nats")
    if "%" in max_target_loss:
        raise PlanError(f"--max-target-loss {max_target_loss}: it is a loss in nats per token, not a share")
    if not in_nats and "%" not in max_forgetting and parse_number(max_forgetting) >= 1:
        raise PlanError(
            f"--max-forgetting {max_forgetting} is {parse_number(max_forgetting):.0%}; write {max_forgetting}%"
        )
    if output is not None:
        _check_writable(output)
    of_target, of_sources = bayeslaw.load(target), _sources(source)
    of_models = [parse_number(n) for n in N], [parse_number(p) for p in ptpp]
    listed = [of_target, *(of_sources.values() if isinstance(of_sources, dict) else [of_sources])]
    chained = losses_before(_befores(before, listed), *of_models, seed=seed)
    found = bayeslaw.plan(
        of_target,
        of_sources,
        N=of_models[0],
        ptpp=of_models[1],
        max_target_loss=parse_number(max_target_loss),
        max_forgetting=parse_number(max_forgetting.lower().removesuffix("nats")),
        forgetting_unit="nats" if in_nats else "relative",
        confidence=parse_number(confidence),
        baseline_loss=number(baseline_loss),
        baseline_tokens=number(baseline_tokens),
        covariates=chained | _assignments(covariate),
        max_flops=number(max_flops),
        max_tokens=number(max_tokens),
        unique_target_tokens=number(unique_target_tokens),
        max_epochs=parse_number(max_epochs),
        min_replay=parse_number(min_replay),
        new_run=not law_mean,
        seed=seed,
    )
    record = found.to_dict()
    if output is not None:
        with whole(output) as part:
            part.write_text(json.dumps(_finite(record), indent=1) + "\n")
    for line in found.warnings:
        print(f"warning: {line}", file=sys.stderr)
    _print(record, as_json, lambda: print(found.sentence()))


@app.command()
def anchors(
    fit_file: FitFile,
    candidates: Annotated[Path, typer.Option(help="Table of runs on offer; with --offer, of runs that exist.")],
    goal: Annotated[
        list[str],
        typer.Option(
            help="Table of runs to forecast; or the plan: --goal N=8.1B --goal max_forgetting=2% ... (repeatable)."
        ),
    ],
    budget: Annotated[str, typer.Option(help="In the unit of the candidates' costs, by default FLOPs: 2e20.")],
    where: Annotated[str | None, typer.Option(help="Candidates to use, a pandas query.")] = None,
    goal_where: Annotated[str | None, typer.Option(help="Rows of the goal's table, a pandas query.")] = None,
    column: Column = None,
    offer: Annotated[
        list[str] | None,
        typer.Option(
            help="Make the candidates: all runs at these levels, from checkpoints in the table and, for their "
            "pre-training, from new ones: --offer N=241M,517M --offer ptpp=279 --offer atpp=1,5,20 (repeatable)."
        ),
    ] = None,
    alone: Annotated[
        bool, typer.Option("--alone", help="With --offer: each point is a run of its own, not one along a run.")
    ] = False,
    source: Annotated[
        list[str] | None, typer.Option(help="For a plan: fit of the source loss; several as NAME=S.nc.", metavar="S.nc")
    ] = None,
    gain: Annotated[
        str | None, typer.Option(help="What runs add: variance, information, plan, or parameters (D-optimal).")
    ] = None,
    replicates: Annotated[int, typer.Option(help="How often one run may be bought.", min=1)] = 4,
    max_picks: Annotated[int | None, typer.Option(help="Most runs to buy.", min=1)] = None,
    least: Annotated[float | None, typer.Option(help="Least gain per cost: where to stop.", min=0)] = None,
    checks: Annotated[int, typer.Option(help="Outcomes simulated to check the gains; 0: none.", min=0)] = 48,
    seed: Seed = 0,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Table of the rows to measure.")] = None,
    as_json: AsJson = False,
) -> None:
    """Which runs to buy next, in order: by what each adds to a forecast, or saves a plan, for what it costs.

    Example: bayeslaw anchors fit.nc --candidates runs.csv --offer N=241M,517M --offer ptpp=279 --goal planned.csv --budget 2e20
    """
    import bayeslaw
    from bayeslaw._runs import parse_number

    if output is not None:
        _check_writable(output)
    table = _read(candidates, where, column)
    if offer:
        table = bayeslaw.candidates(table, **_levels(offer), along_run=not alone)
    elif alone:
        raise LawError("--alone is about made candidates: say which (--offer N=241M,517M ...)")
    made = bayeslaw.anchors(
        bayeslaw.load(fit_file),
        table,
        _goal(goal, goal_where, column),
        parse_number(budget),
        source=_sources(source) if source else None,
        gain=gain,  # pyright: ignore[reportArgumentType]
        replicates=replicates,
        max_picks=max_picks,
        least=least,
        checks=checks,
        seed=seed,
    )
    if output is not None:
        _write_table(made.runs(table), output)
    for line in made.warnings:
        print(f"warning: {line}", file=sys.stderr)

    def show() -> None:
        if made.picks:
            print(made.table(table).to_string(index=False))
        print(made.sentence())

    _print(made.to_dict() | {"output": None if output is None else str(output)}, as_json, show)


@app.command()
def report(
    runs: Annotated[
        Path | None, typer.Argument(help="Table of runs; without it, the bundled one.", metavar="[RUNS]")
    ] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the page.")] = Path("report"),
    law: Annotated[
        list[str] | None,
        typer.Option(help="Law to fit; several: their average; default: the average of those that suit the columns."),
    ] = None,
    hold_out: Annotated[str, typer.Option(help="Column whose largest level is held out.")] = "ptpp",
    question: Annotated[
        list[str] | None,
        typer.Option("--plan", help="What to plan for: --plan N=8.1B --plan max_target_loss=1.8 ... (repeatable)."),
    ] = None,
    where: Where = None,
    column: Column = None,
    reference: Reference = None,
    seed: Seed = 0,
    accept_diagnostics: Annotated[
        bool, typer.Option("--accept-diagnostics", help="Report fits whose diagnostics fail.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Fit, forecast the held-out stage, check it, plan, and show it all on one page that works offline.

    Example: bayeslaw report runs.csv -o report --plan N=8.1B --plan ptpp=279 --plan max_target_loss=1.8
    --plan max_forgetting=2% --plan baseline_loss=1.64
    """
    import bayeslaw

    table = None if runs is None else _read(runs, where, column)
    with _progress("report") as progress:
        made = bayeslaw.report(
            table,
            output,
            law=law,
            reference=_assignments(reference) or None,
            hold_out=hold_out,
            seed=seed,
            progress=progress,
            on_failure="warn" if accept_diagnostics else "raise",
            name=None if runs is None else runs.name,
            question=_assignments(question) or None,
        )

    def show() -> None:
        for domain, result in made.checks.items():
            print(f"{domain}: {result.verdict.upper()}: {result.reason}")
        if made.plan:
            print(made.plan.sentence())
        print(f"-> {made.path} ({made.seconds:.0f} s)")

    record = {
        "report": str(made.path),
        "seconds": made.seconds,
        "checks": {k: v.to_dict() for k, v in made.checks.items()},
        "plan": made.plan.to_dict() if made.plan else None,
    }
    _print(record, as_json, show)


# -- studies ----------------------------------------------------------------------------------------------------------


@study_app.command("anchors")
def study_anchors(
    output: Annotated[Path, typer.Option("-o", "--output", help="CSV where results are kept as they are made.")] = Path(
        "anchors_study.csv"
    ),
    laws: Annotated[str, typer.Option(help="Truths, A,B,C.")] = "ptpp-floor,ptpp-gate,ptpp-gate-floor",
    seeds: Annotated[int, typer.Option(help="Seeds of each.", min=1)] = 20,
    seed: Annotated[int, typer.Option(help="The first.", min=0)] = 0,
    lists: Annotated[str, typer.Option(help="What is bought, A,B,C.")] = "none,paper,chosen,random,few,D-optimal",
    measured: Annotated[
        str,
        typer.Option(
            help="once: every point is a run of its own; along: points of a run cost the run; trajectories: but the paper's."
        ),
    ] = "once",
    menu: Annotated[str, typer.Option(help="Levels on offer: the paper's (grid), or more (wide).")] = "wide",
    spread: Annotated[float, typer.Option(help="Sd of log parameters around the law's plausible ones.", min=0)] = 0.0,
    tau: Annotated[float, typer.Option(help="Sd of log loss that runs of one checkpoint share.", min=0)] = 0.0,
    plan: Annotated[bool, typer.Option("--plan", help="Also plan with every posterior.")] = False,
    scheduler: Scheduler = None,
    as_json: AsJson = False,
) -> None:
    """Chosen runs against the paper's grid, random runs and a D-optimal design, on simulated grids at equal cost.

    Interrupted, the same command goes on where it was.

    Example: bayeslaw study anchors --seeds 2 -o anchors.csv
    """
    from bayeslaw._anchors_study import anchors_study
    from bayeslaw._anchors_summary import markdown, summary

    _check_writable(output)
    try:
        with executor_at(scheduler) as executor, _progress("lists of runs") as progress:
            rows = anchors_study(
                output,
                laws=[name.strip() for name in laws.split(",")],
                seeds=range(seed, seed + seeds),
                lists=[name.strip() for name in lists.split(",")],
                measured=measured,
                menu=menu,
                spread=spread,
                tau=tau,
                plan=plan,
                executor=executor,
                progress=progress,
            )
    except KeyboardInterrupt:
        print(f"interrupted: what was done is in {output}; the same command goes on from there", file=sys.stderr)
        raise Resumable(INTERRUPTED) from None
    _print(summary(rows) | {"output": str(output)}, as_json, lambda: print(markdown(rows)))


# -- what the commands share -----------------------------------------------------------------------------------------


def _read(path: Path, where: str | None, column: list[str] | None) -> pd.DataFrame:
    import bayeslaw

    return bayeslaw.read_runs(path, where=where, columns={theirs: ours for ours, theirs in _pairs(column)})


def _levels(options: list[str]) -> dict[str, list[float]]:
    """Levels of candidates by name."""
    from bayeslaw._runs import parse_number

    levels = {name: [parse_number(v) for v in values.split(",")] for name, values in _pairs(options)}
    odd = [name for name in levels if name not in ("N", "ptpp", "replay", "atpp")]
    if odd:
        raise LawError(f"--offer {odd[0]}: levels are those of N, ptpp, replay and atpp")
    return levels


def _goal(options: list[str], where: str | None, column: list[str] | None) -> Any:
    """Runs to forecast, or the question a plan answers."""
    if len(options) == 1 and ("=" not in options[0] or Path(options[0]).exists()):
        return _read(Path(options[0]), where, column)
    asked = dict(_pairs(options))
    limit = asked.get("max_forgetting", "").lower()
    in_nats = limit.endswith("nats")
    numbers = _assignments(
        [f"{k}={v.lower().removesuffix('nats') if k == 'max_forgetting' else v}" for k, v in asked.items()]
    )
    covariates = {k: numbers.pop(k) for k in ("loss_before", "source_loss_before") if k in numbers}
    return numbers | {"forgetting_unit": "nats" if in_nats else "relative", "covariates": covariates}


def _sources(options: list[str]) -> Any:
    """One fit, or several by name."""
    import bayeslaw

    if len(options) == 1 and "=" not in options[0]:
        return bayeslaw.load(options[0])
    return {name: bayeslaw.load(path) for name, path in _pairs(options)}


def _befores(options: list[str] | None, posteriors: list) -> dict[str, Any]:
    """Fits of checkpoints by the column they forecast; a file alone is for the one such column that the laws read."""
    import bayeslaw

    read = {
        c for p in posteriors for q in p.pieces() for c in q.covariates if c in ("source_loss_before", "loss_before")
    }
    alone = [o for o in options or [] if "=" not in o]
    pairs = [(column, alone[0]) for column in read] if len(read) == len(alone) == 1 else _pairs(options)
    odd = [column for column, _ in pairs if column not in read]
    if odd:
        raise LawError(f"--before {odd[0]}: the laws read {', '.join(sorted(read)) or 'no loss before adaptation'}")
    return {column: bayeslaw.load(path) for column, path in pairs}


def _pairs(options: list[str] | None) -> list[tuple[str, str]]:
    pairs = [o.partition("=") for o in options or []]
    for name, equals, value in pairs:
        if not (name and equals and value):
            raise LawError(f"{name + equals + value!r}: write NAME=VALUE")
    return [(name.strip(), value.strip()) for name, _, value in pairs]


def _assignments(options: list[str] | None) -> dict[str, float]:
    from bayeslaw._runs import parse_number

    return {name: parse_number(value) for name, value in _pairs(options)}


def _prior_file(path: Path | None) -> dict[str, dict]:
    from bayeslaw._runs import parse_number

    if path is None:
        return {"priors": {}, "reference": {}}
    try:
        content = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise LawError(f"{path}: cannot be read as a TOML file of priors ({error})") from None
    unknown = [k for k in content if k not in ("priors", "reference")]
    if unknown:
        raise LawError(f"{path}: unknown table [{unknown[0]}]; it has [priors] and [reference]")
    reference = {k: parse_number(v) for k, v in content.get("reference", {}).items()}
    return {"priors": content.get("priors", {}), "reference": reference}


def _check_writable(path: Path) -> None:
    if path.is_dir():
        raise LawError(f"{path} is a folder; give the name of a file")


def _write_table(table: pd.DataFrame, path: Path) -> None:
    """Write a table whole or not at all."""
    _check_writable(path)
    with whole(path) as part:
        if path.suffix.lower() in (".parquet", ".pq"):
            table.to_parquet(part, index=False)
        else:
            table.to_csv(part, index=False)


def _print(record: Any, as_json: bool, show: Callable[[], None]) -> None:
    if as_json:
        print(json.dumps(_finite(record), allow_nan=False))
    else:
        show()


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: null."""
    if isinstance(value, dict):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not abs(value) < float("inf") else value


def _table(rows: list[dict], names: tuple[str, ...]) -> None:
    cells = [[", ".join(r[n]) if isinstance(r[n], list) else str(r[n]) for n in names] for r in rows]
    widths = [max(len(c[i]) for c in [list(names), *cells]) for i in range(len(names))]
    for line in [list(names), *cells]:
        print("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip())


@contextmanager
def _progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar with the time left, on stderr."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def main() -> None:
    """Run the command line; bad input is one line on stderr and exit 2, failed diagnostics exit 3."""
    warnings.showwarning = lambda message, *_: print(f"warning: {message}", file=sys.stderr)
    warnings.simplefilter("once")
    try:
        app()
    except DiagnosticsError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(3) from None
    except (BayeslawError, PermissionError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except (KeyboardInterrupt, SystemExit) as stopped:
        interrupted = isinstance(stopped, KeyboardInterrupt) or stopped.code == INTERRUPTED
        if interrupted and not isinstance(stopped, Resumable):  # typer makes the one of the other, without a word
            print("interrupted: nothing was written", file=sys.stderr)
        raise (SystemExit(INTERRUPTED) if interrupted else stopped) from None


if __name__ == "__main__":
    main()

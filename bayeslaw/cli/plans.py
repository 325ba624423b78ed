"""Define the commands of plans: ``plan``, ``whatif``, ``mixture``."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

from bayeslaw._base.arguments import argument, command, option
from bayeslaw._base.errors import LawError, PlanError
from bayeslaw._base.progress.bar import progress_bar
from bayeslaw.cli.beside import with_file
from bayeslaw.cli.documented import options_of
from bayeslaw.cli.options import (
    AccuracyOptions,
    Before,
    CostOptions,
    PriorOptions,
    SavedFitOptions,
    complete_law,
)
from bayeslaw.cli.output import (
    check_writable,
    emit_answer,
    write_json,
    write_picture,
)
from bayeslaw.cli.parsing import (
    ask,
    keywords_of,
    link_of,
    load_befores,
    load_fit,
    load_sources,
    name_values,
    number,
    prior_of,
    read_toml,
    values_by_name,
)


@options_of("plan", without="forgetting_unit costs point draws")
class PlanOptions(AccuracyOptions, CostOptions, PriorOptions, SavedFitOptions):
    """Options of ``plan``."""

    fits: list[str] | None = argument(
        "Fits of target and source, in place of --target and --source.",
        "[T.nc S.nc]",
        default=None,
    )
    target: list[str] | None = option(
        "Fit of the target loss; several as NAME=T.nc (repeatable).", metavar="T.nc"
    )
    source: list[str] | None = option(
        "Fit of the source loss; several as NAME=S.nc (repeatable).", metavar="S.nc"
    )
    source_law: list[str] | None = option(
        "With --prior-only: law of the source loss.", autocompletion=complete_law
    )
    N: list[str] = option(default=MISSING)
    ptpp: list[str] | None = option()
    pretrain_tokens: list[str] | None = option(
        "Pre-training tokens, in place of --ptpp: 300B (one, or one for each --N)."
    )
    baseline_loss: list[str] | None = option()
    before: Before = None
    covariate: list[str] | None = option(argument="covariates")
    law_mean: bool = option(argument="new_run")
    influence: bool = option(
        "Which measured run and which prior carry the plan: what it would be "
        "without them. Of fits of one law."
    )
    output: Path | None = option("JSON file for the plan.", "-o", "--output")


@command
def plan(options: PlanOptions) -> None:
    """Find the cheapest adaptation that keeps its promises with a stated probability,
    or say why there is none.

    Example: bayeslaw plan --target t.nc --source s.nc --N 8.1B --ptpp 279
    --max-target-loss 1.8 --max-forgetting 2% --baseline-loss 1.9 --hardware 64xH100
    --mfu 0.4 --price 2.5 --max-days 3
    """
    import bayeslaw

    options = with_fits(options)
    options = with_file(options, first_file(options.target))
    check_writable(options.output)
    target, source, question = _read_plan(options)
    with progress_bar("plan", expected=30):
        answer = bayeslaw.plan(target, source, **question)
    # only the `Plan`, which `anchors --goal` and `update` read
    write_json(answer, options.output)
    more: dict[str, Any] = {"prior_only": True} if options.prior_only else {}
    after = []
    if options.influence:
        with progress_bar("runs that carry the plan", expected=30):
            carried = bayeslaw.influence(answer, target, source, **question)
        more["influence"] = carried
        after = [carried.sentence()]
    emit_answer(
        answer,
        options.as_json,
        lines=target.warnings if options.prior_only else (),
        after=after,
        **more,
    )


def with_fits(options: PlanOptions) -> Any:
    if not options.fits:
        return options
    if len(options.fits) != 2 or options.target or options.source:
        raise LawError(
            "give two fits, of the target and then of the source, or --target T.nc and "
            f"--source S.nc; got {' '.join(options.fits)}"
        )
    target, source = options.fits
    return replace(options, fits=None, target=[target], source=[source])


def _target_and_source(options: PlanOptions) -> tuple[Any, Any]:
    if options.prior_only:
        if options.target or options.source:
            raise LawError("with --prior-only there are no fits: leave --target out")
        return (
            prior_of("--law", options.law, None, options),
            prior_of("--source-law", options.source_law, None, options, True),
        )
    if not options.target or not options.source:
        raise LawError(
            "give --target T.nc and --source S.nc; before the first run --prior-only "
            "--law state-target --source-law state-source"
        )
    trusted = options.trust_law_file
    return load_sources(options.target, trusted), load_sources(options.source, trusted)


def first_file(targets: list[str] | None) -> Path | None:
    if not targets:
        return None
    first = targets[0]
    return Path(first if Path(first).exists() else first.rpartition("=")[2])


def _read_plan(
    options: PlanOptions, loaded: tuple[Any, Any] | None = None
) -> tuple[Any, Any, dict[str, Any]]:
    """Read the keyword arguments of `bayeslaw.plan`, then the fits of target and source,
    if they are not ``loaded``, and last the columns that only their laws read.
    """
    import bayeslaw
    from bayeslaw._posteriors.chain import losses_before

    question = keywords_of(options, bayeslaw.plan, "target", "source")
    sizes, ptpp = question["N"], _stages(options, question)
    question |= {"ptpp": ptpp, "accuracy": link_of(options, options.seed)}
    target, source = loaded or _target_and_source(options)
    posteriors = []
    for one in (target, source):
        posteriors += one.values() if isinstance(one, dict) else [one]
    befores = load_befores(options.before, posteriors, options.trust_law_file)
    losses = losses_before(befores, sizes, ptpp, seed=options.seed)
    covariates = losses | question.get("covariates", {})
    return target, source, question | {"covariates": covariates}


def _stages(options: PlanOptions, question: dict[str, Any]) -> list[float] | None:
    if options.pretrain_tokens is None:
        return question.get("ptpp")
    if options.ptpp is not None:
        raise LawError("give either --ptpp 43 or --pretrain-tokens 300B")
    tokens = [number("pretrain_tokens", text) for text in options.pretrain_tokens]
    sizes = question["N"]
    if len(tokens) not in (1, len(sizes)):
        raise LawError(
            f"{len(tokens)} --pretrain-tokens for {len(sizes)} --N: give one, or one "
            "for each --N"
        )
    of_sizes = tokens * len(sizes) if len(tokens) == 1 else tokens
    return [of_size / size for of_size, size in zip(of_sizes, sizes, strict=True)]


# -- scenarios -------------------------------------------------------------------------

NOT_OF_A_SCENARIO = {field.name for field in fields(SavedFitOptions)}
NOT_OF_A_SCENARIO |= {"fits", "target", "source", "output", "influence"}


@options_of()
class WhatIfOptions(PlanOptions):
    """Options of ``whatif``: those of ``plan``, and the scenarios."""

    scenario: list[str] | None = option(
        "A name and what differs, as options of `plan` without dashes: "
        '--scenario "stricter: max_forgetting=1% confidence=0.95" (repeatable).'
    )
    scenarios: Path | None = option(
        "TOML file of scenarios, [stricter] and max_forgetting = '1%' under it.",
        metavar="SCENARIOS.toml",
    )
    picture: Path | None = option("File for the picture: whatif.png.")


@command
def whatif(options: WhatIfOptions) -> None:
    """Compare the plans of several scenarios: other limits, sizes or prices.

    Example: bayeslaw whatif --target t.nc --source s.nc --N 8.1B --ptpp 279
    --max-target-loss 1.8 --max-forgetting 2% --baseline-loss 1.9 --scenario "stricter:
    max_forgetting=1%" --scenario "smaller: N=3B" --picture whatif.png
    """
    import bayeslaw

    options = with_fits(options)
    options = with_file(options, first_file(options.target))
    check_writable(options.output, options.picture)
    changed = _scenarios(options)
    target, source, question = _read_plan(options)
    scenarios = {}
    for name, texts in changed.items():
        other = _with_changes(options, name, texts)
        _, _, keywords = _read_plan(other, (target, source))
        scenarios[name] = {
            key: value
            for key, value in keywords.items()
            if key not in question or repr(value) != repr(question[key])
        }
    with progress_bar(f"plans of {len(scenarios) + 1} scenarios", expected=60):
        answers = bayeslaw.what_if(target, source, scenarios, **question)
    height = 1.2 + 0.4 * len(answers.plans)
    write_picture(
        options.picture, lambda ax: bayeslaw.plots.scenarios(ax, answers), height
    )
    rows = answers.table().drop(columns="feasible").to_string().split("\n")
    emit_answer(answers, options.as_json, lines=rows, path=options.output)


def _scenarios(options: WhatIfOptions) -> dict[str, dict[str, Any]]:
    changed = {} if options.scenarios is None else read_toml(options.scenarios)
    for text in options.scenario or []:
        name, _, words = text.partition(":")
        try:
            pairs = shlex.split(words)
        except ValueError as error:
            raise LawError(f"--scenario {text!r}: {error}") from None
        changed[name.strip()] = dict(name_values(pairs))
    if not changed:
        raise LawError(
            'give --scenario "stricter: max_forgetting=1%", or --scenarios FILE.toml'
        )
    for name, changes in changed.items():
        if not (name and changes and isinstance(changes, Mapping)):
            raise LawError(
                f"scenario {name!r}: write a name and what differs, "
                '"stricter: max_forgetting=1%"; in a file [stricter], and that under it'
            )
    return changed


def _with_changes(
    options: WhatIfOptions, scenario: str, changes: Mapping[str, Any]
) -> WhatIfOptions:
    hints = get_type_hints(PlanOptions)
    allowed = [f.name for f in fields(PlanOptions) if f.name not in NOT_OF_A_SCENARIO]
    values = {}
    for key, value in changes.items():
        name = key.replace("-", "_")
        if name not in allowed:
            raise LawError(
                f"scenario {scenario!r}: {key!r} is no option of `plan` that may differ; "
                f"there are: {', '.join(allowed)}"
            )
        values[name] = _typed(scenario, key, value, str(hints[name]))
    return replace(options, **values)


def _typed(scenario: str, key: str, value: Any, hint: str) -> Any:
    """Read a value as the option takes it: text, several texts, or a switch."""
    values = value if isinstance(value, list) else [value]
    texts, takes = [str(one) for one in values], ""
    is_switch = hint.startswith("<class 'bool'")
    if is_switch and str(value).lower() not in ("true", "false"):
        takes = "is true or false"
    elif not all(isinstance(one, str | int | float) for one in values):
        takes = "is a number or text, as on the command line"
    elif len(texts) > 1 and "list" not in hint:
        takes = "takes one value"
    if takes:
        raise LawError(f"scenario {scenario!r}: {key} {takes}; got {value!r}")
    if "list" in hint:
        return texts
    if is_switch:
        return texts[0].lower() == "true"
    return Path(texts[0]) if "Path" in hint else texts[0]


# -- mixtures --------------------------------------------------------------------------


@options_of("plan_mixture", without="costs draws")
class MixtureOptions(SavedFitOptions):
    """Options of ``mixture``."""

    loss: list[str] = option(
        "Fit of an evaluation set's loss, by name: code=code.nc (repeatable).",
        default=MISSING,
        metavar="NAME=F.nc",
        argument="losses",
    )
    D: str | None = option()
    max_tokens: str | None = option()
    weight: list[str] | None = option(argument="weights")
    share: list[str] | None = option(argument="bounds")
    covariate: list[str] | None = option(argument="covariates")
    law_mean: bool = option(argument="new_run")
    output: Path | None = option("JSON file for the answer.", "-o", "--output")


@command
def mixture(options: MixtureOptions) -> None:
    """Find the cheapest tokens and shares of a mixture that keep all limits with a
    stated probability; with --D, the mixture of the least mean loss at that budget
    that keeps them.

    Example: bayeslaw mixture --loss web=web.nc --loss code=code.nc --N 1B
    --max-loss web=2.5 --max-loss code=1.9 --share code=5%:40%
    """
    import bayeslaw

    check_writable(options.output)
    if options.D is not None and options.max_tokens is not None:
        raise PlanError("--D is the budget, and --max-tokens bounds it: give one")
    plan_or_best = bayeslaw.plan_mixture if options.D is None else bayeslaw.best_mixture
    files = values_by_name(options.loss, "loss").items()
    losses = {n: load_fit(path, options.trust_law_file) for n, path in files}
    with progress_bar("mixture", expected=20):
        answer = ask(options, plan_or_best, losses)
    emit_answer(answer, options.as_json, path=options.output)

"""Define ``whatif``: plan the same question with other limits, sizes or prices."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

from bayeslaw._base.arguments import command, option
from bayeslaw._base.errors import LawError
from bayeslaw._base.progress.bar import progress_bar
from bayeslaw._base.terminal import say_block
from bayeslaw.cli.beside import with_file
from bayeslaw.cli.decisions.planning import (
    PlanOptions,
    first_file,
    posteriors_and_question,
    with_fits,
)
from bayeslaw.cli.output import check_writable, emit, write_json, write_picture
from bayeslaw.cli.parsing import name_values, read_toml

NOT_OF_A_SCENARIO = (
    "fits",
    "target",
    "source",
    "output",
    "influence",
    "seed",
    "trust_law_file",
    "as_json",
)


@dataclass(frozen=True, kw_only=True)
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
    target, source, question = posteriors_and_question(options)
    scenarios = {}
    for name, texts in changed.items():
        other = _with_changes(options, name, texts)
        _, _, keywords = posteriors_and_question(other)
        scenarios[name] = {
            key: value
            for key, value in keywords.items()
            if key not in question or repr(value) != repr(question[key])
        }
    with progress_bar(f"plans of {len(scenarios) + 1} scenarios", expected=60):
        answers = bayeslaw.what_if(target, source, scenarios, **question)
    write_json(answers.to_dict(), options.output)
    height = 1.2 + 0.4 * len(answers.plans)
    write_picture(
        options.picture, lambda ax: bayeslaw.plots.scenarios(ax, answers), height
    )

    def show() -> None:
        say_block(answers.table().drop(columns="feasible").to_string())
        say_block(answers.sentence())

    emit(answers.to_dict(), options.as_json, show)


def _scenarios(options: WhatIfOptions) -> dict[str, dict[str, Any]]:
    """Read the changes of each scenario, from the file and from options."""
    changed: dict[str, dict[str, Any]] = {}
    if options.scenarios is not None:
        changed |= _from_file(options.scenarios)
    for text in options.scenario or []:
        name, colon, words = text.partition(":")
        pairs = name_values(shlex.split(words)) if colon else []
        if not pairs or not name.strip():
            raise LawError(
                f"--scenario {text!r}: write a name and what differs, "
                '"stricter: max_forgetting=1%"'
            )
        changed[name.strip()] = dict(pairs)
    if not changed:
        raise LawError(
            'give --scenario "stricter: max_forgetting=1%", or --scenarios FILE.toml'
        )
    return changed


def _from_file(path: Path) -> dict[str, dict[str, Any]]:
    """Read scenarios from a TOML file: a section for each."""
    content = read_toml(path)
    for name, changes in content.items():
        if not isinstance(changes, Mapping) or not changes:
            raise LawError(
                f"{path}: {name} is no scenario; write [{name}] and what differs under it"
            )
    return {name: dict(changes) for name, changes in content.items()}


def _with_changes(
    options: WhatIfOptions, scenario: str, changes: Mapping[str, Any]
) -> WhatIfOptions:
    """Replace options of `plan` by a scenario's values."""
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
    if hint.startswith("<class 'bool'"):
        if str(value).lower() not in ("true", "false"):
            raise LawError(
                f"scenario {scenario!r}: {key} is true or false, got {value!r}"
            )
        return str(value).lower() == "true"
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(one, str | int | float) for one in values):
        raise LawError(
            f"scenario {scenario!r}: {key} is a number or text, as on the command line; "
            f"got {value!r}"
        )
    texts = [str(one) for one in values]
    if "list" in hint:
        return texts
    if len(texts) > 1:
        raise LawError(f"scenario {scenario!r}: {key} takes one value, got {value!r}")
    return Path(texts[0]) if "Path" in hint else texts[0]

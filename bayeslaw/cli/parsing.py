"""Parse typed options into arguments of the Python functions."""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayeslaw._base.arguments import takes
from bayeslaw._base.errors import LawError, PlanError, RunTableError, warn
from bayeslaw._base.limits import KINDS, Kind, checked
from bayeslaw._base.limits import SHARE as SHARE_KIND
from bayeslaw._law.columns import LOSSES_BEFORE, SHARE, is_share
from bayeslaw.cli.options import CostOptions

if TYPE_CHECKING:
    import pandas as pd

    from bayeslaw._costs.costs import Costs, Shape
    from bayeslaw._posteriors.accuracy import AccuracyLink
    from bayeslaw._posteriors.posterior import Posterior
    from bayeslaw.cli.options import AccuracyOptions, PriorOptions

MENU_COLUMNS = ("N", "ptpp", "replay", "atpp", "D")
LIMITS_ON_LOSSES = ("max_forgetting", "max_target_loss", "max_mean_loss", "max_loss")


# -- numbers ---------------------------------------------------------------------------
# Errors name the argument of the Python function; `command` writes its option.


def number(name: str, text: str, kind: Kind | None = None) -> float:
    """Parse a number; a limit in its own unit, by its kind or name (`KINDS`)."""
    from bayeslaw._base.numbers import parse_number

    kind = kind or KINDS.get(name.partition(" ")[0])
    if kind is not None:
        return checked(name, text, kind)
    try:
        return parse_number(text, counts=False)
    except RunTableError as error:
        raise RunTableError(f"{name}: {error}") from None


def read_value(name: str, typed: str | Sequence[str], kind: Kind | None = None) -> Any:
    """Parse the value of a keyword of `bayeslaw.plan` or `plan_mixture`: a number, or one
    for each domain, ``code=2%,en=0.01bpb`` or several texts ``code=2%``. Text in a unit
    that the planner reads stays as it is.
    """
    texts = [typed] if isinstance(typed, str) else typed
    if any("=" in text for text in texts):
        values = values_by_name(split_pairs(texts), name)
        return {n: read_value(f"{name} {n}", text, kind) for n, text in values.items()}
    if len(texts) != 1:
        raise LawError(f"{name} takes one value, and is given {len(texts)} times")
    from bayeslaw._plans.constraint import read_limit, says_rise

    keyword, text = name.partition(" ")[0], texts[0].strip()
    if keyword in LIMITS_ON_LOSSES:
        if text.lower().endswith(("bpb", "ppl")) or says_rise(text):
            return text
        if keyword == "max_forgetting":
            read_limit(name, texts[0])
            return texts[0]
    return number(name, texts[0], kind)


def split_pairs(texts: Sequence[str] | None) -> list[str]:
    """Split each text at the commas before names, but not within a number."""
    return [pair for text in texts or () for pair in re.split(r",(?=[^,=]+=)", text)]


def name_values(options: Sequence[str] | None) -> list[tuple[str, str]]:
    """Split each NAME=VALUE into name and value."""
    pairs = [option.partition("=") for option in options or []]
    for name, equals, value in pairs:
        if not (name and equals and value):
            raise LawError(f"{name + equals + value!r}: write NAME=VALUE")
    return [(name.strip(), value.strip()) for name, _, value in pairs]


def values_by_name(options: Sequence[str] | None, option: str = "") -> dict[str, str]:
    """Collect texts by name, each name once; errors name the ``option``."""
    pairs = name_values(options)
    values = dict(pairs)
    for name in values:
        repeats = [text for key, text in pairs if key == name]
        if len(repeats) > 1:
            raise LawError(
                f"{option} {name} is given {len(repeats)} times ({', '.join(repeats)}); "
                "give it once".lstrip()
            )
    return values


def assignments(options: Sequence[str] | None, option: str) -> dict[str, float]:
    """Parse numbers by name; errors name the ``option``."""
    values = values_by_name(split_pairs(options), option)
    return {name: number(f"{option} {name}", text) for name, text in values.items()}


def covariates_of(texts: Sequence[str] | None) -> dict[str, Any]:
    """Parse columns that laws read, each in the unit that its name implies."""
    return {
        column: read_value(f"covariate {column}", text, KINDS.get(column))
        for column, text in values_by_name(texts, "covariate").items()
    }


def levels_of(options: Sequence[str]) -> dict[str, list[float]]:
    """Parse the levels of candidates' columns, by column."""
    levels = {
        name: _levels(f"offer {name}", text)
        for name, text in values_by_name(options, "offer").items()
    }
    unknown = [name for name in levels if name not in MENU_COLUMNS]
    if unknown:
        raise LawError(
            f"offer {unknown[0]}: levels are those of N, ptpp, replay, and atpp or D; "
            "give runs with other columns as a table of candidates, without --offer"
        )
    return levels


def _levels(option: str, text: str) -> list[float]:
    """Parse levels separated by commas; refuse a comma that may be a decimal one."""
    # 1,5B: a number without a unit before one with it
    decimal = re.search(r"(?<![\d.])(\d{1,3}),(\d+)([kmbgtKMBGT%])", text)
    if decimal:
        integer, digits, unit = decimal.groups()
        raise RunTableError(
            f"{option}={text}: {decimal[0]!r} may be {integer}.{digits}{unit} or two "
            f"levels; write {integer}.{digits}{unit}, or a unit at each "
            f"({integer}{unit},{digits}{unit})"
        )
    return [number(option, level) for level in text.split(",")]


def ask(
    options: Any, function: Callable[..., Any], *arguments: Any, **others: Any
) -> Any:
    """Call a Python function with the options of a command that are its arguments, as far
    as they were given. ``others`` have precedence.
    """
    filled = [*inspect.signature(function).parameters][: len(arguments)]
    return function(*arguments, **keywords_of(options, function, *filled) | others)


def keywords_of(
    options: Any, function: Callable[..., Any], *left_out: str
) -> dict[str, Any]:
    """Read the options that were given of the arguments of a function."""
    parameters = inspect.signature(function).parameters
    values = {}
    for declared in fields(options):
        name = declared.metadata.get("argument", declared.name)
        typed = getattr(options, declared.name)
        if typed is not None and name in parameters and name not in left_out:
            values[name] = _read(name, typed, parameters[name])
    if "costs" in parameters and isinstance(options, CostOptions):
        values["costs"] = costs_of(options)
    return values


def _read(name: str, typed: Any, parameter: inspect.Parameter) -> Any:
    """Read what was typed for an argument; a text without a kind of its own stays, and
    the function reads it.
    """
    if name in READ:
        return READ[name](typed)
    if isinstance(typed, bool):  # a switch turns off what is on
        return typed != (parameter.default is True)
    hint = str(parameter.annotation)
    is_by_name = "Mapping" in hint and "float" in hint
    has_kind = is_by_name or name in KINDS or name in LIMITS_ON_LOSSES
    if not (has_kind and isinstance(typed, str | list)):
        return typed
    if "Sequence" in hint and not isinstance(typed, str):
        return [read_value(name, text) for text in typed]
    return read_value(name, typed)


def costs_of(options: CostOptions) -> Costs | None:
    """Read the costs of training; None if no option is given."""
    from bayeslaw._costs.costs import Costs

    settings = keywords_of(options, Costs)
    return Costs(**settings) if any(settings.values()) else None


def _shapes(options: Sequence[str]) -> list[Shape]:
    from bayeslaw._costs.costs import Shape

    read: Any = takes(Shape, LawError, name="shape")(lambda shape: shape)
    pairs = [values_by_name(split_pairs([text]), "shape") for text in options]
    return [read(**texts) for texts in pairs]


def _baselines(texts: Sequence[str]) -> Any:
    values = [read_value("baseline_loss", text) for text in texts]
    if len(values) == 1:
        return values[0]
    if not any(isinstance(value, dict) for value in values):
        return values
    names = [set(value) if isinstance(value, dict) else set() for value in values]
    if any(some != names[0] for some in names):
        raise LawError(
            f"--baseline-loss {' '.join(texts)}: name the same sources for each --N"
        )
    return {name: [value[name] for value in values] for name in values[0]}


# by argument of Python functions: the reading of what is typed for it
READ: dict[str, Callable[[Any], Any]] = {
    "baseline_loss": _baselines,
    "bounds": lambda texts: {
        name: share_bounds(f"share {name}", text)
        for name, text in values_by_name(texts, "share").items()
    },
    "covariates": covariates_of,
    "on_failure": lambda is_accepted: "warn" if is_accepted else "raise",
    "parameters": lambda texts: assignments(texts, "--set"),
    "reference": lambda texts: assignments(texts, "--reference"),
    "shapes": _shapes,
    "tokens_per_second": lambda texts: values_by_name(texts, "tokens_per_second"),
}


def link_of(options: AccuracyOptions, seed: int) -> AccuracyLink | None:
    """Fit the link from a loss to an accuracy; None if no accuracy is asked for."""
    if options.accuracy is None:
        if options.chance is not None:
            raise LawError("--chance is that of --accuracy EVALUATED.csv: give it, too")
        return None
    import bayeslaw

    return bayeslaw.accuracy_link(
        options.accuracy, chance=options.chance or 0.0, seed=seed
    )


# -- files -----------------------------------------------------------------------------


def read_table(
    source: Path,
    where: str | None,
    column: Sequence[str] | None,
    *,
    grows: bool = False,
) -> pd.DataFrame:
    """Read a table of runs; from a file that ``grows``, only whole lines. Its
    ``attrs["read_with"]`` are the options, to be repeated in commands.
    """
    from bayeslaw._tables.runs import read_with_notes

    columns = columns_of(column)
    runs = read_with_notes(source, where=where, columns=columns, grows=grows).runs
    read_with = ["--where", where] if where else []
    runs.attrs["read_with"] = read_with + [
        w for c in column or () for w in ("--column", c)
    ]
    return runs


def best_of(table: pd.DataFrame, settings: Sequence[str] | None) -> pd.DataFrame:
    """Return the table, or the tuned loss of each cell of a sweep, with a note about
    cells at an edge; raises as `tuned` does.
    """
    if not settings:
        return table
    import bayeslaw
    from bayeslaw._base.terminal import say

    names = [
        name
        for text in settings
        for name in ([text] if text in table else text.split(","))
    ]
    tuned = bayeslaw.tuned(table, names)
    edges = int(tuned["at_edge"].sum())
    beyond = f"; in {edges} the best lies at an end of the sweep" if edges else ""
    say(
        f"{len(table)} runs to {len(tuned)} cells by --best-of {','.join(names)}{beyond}",
        to_stderr=True,
    )
    return tuned


def columns_of(column: Sequence[str] | None) -> list[str]:
    """Check the mapping of columns, as `bayeslaw.read_runs` takes it."""
    from bayeslaw._tables.columns import pairs_of

    values = values_by_name(column, "--column")
    texts = [f"{ours}={theirs}" for ours, theirs in values.items()]
    pairs_of(texts)  # refuses one column under two names
    return texts


def load_fit(path: str | Path, trust_law_file: bool) -> Any:
    """Load a saved fit or average, or read a law at given constants, NAME@E=1.69,..."""
    import bayeslaw
    from bayeslaw._posteriors.constants import law_as_written

    at_constants = None if Path(path).exists() else law_as_written(str(path))
    if at_constants is not None:
        return at_constants
    return bayeslaw.load(path, trust_law_file=trust_law_file)


def prior_of(
    option: str,
    laws: Sequence[str] | None,
    runs: pd.DataFrame | None,
    options: PriorOptions,
    of_source: bool = False,
) -> Any:
    """Build the prior of the law named by an option, in place of a fit.

    Parameters
    ----------
    runs
        Runs that will be forecast, if there is a table.
    options
        The record of the command: its ``experience`` and ``seed``.
    of_source
        Whether the draws are to be independent of those of a target.
    """
    import bayeslaw

    if not laws or len(laws) != 1:
        raise LawError(f"--prior-only asks one law: name it ({option} chinchilla)")
    seed = options.seed + of_source
    return bayeslaw.prior_only(laws[0], runs, experience=options.experience, seed=seed)


def load_sources(options: Sequence[str], trust_law_file: bool) -> Any:
    """Load one fit, or several by name."""
    # chinchilla@E=1.69,... has no name before it
    if len(options) == 1 and "=" not in options[0].partition("@")[0]:
        return load_fit(options[0], trust_law_file)
    paths = values_by_name(options)
    return {name: load_fit(path, trust_law_file) for name, path in paths.items()}


def load_befores(
    options: Sequence[str] | None, posteriors: Sequence, trust_law_file: bool
) -> dict[str, Any]:
    """Load fits of checkpoints by the column they forecast.

    A file without a name belongs to the one such column that the laws read.
    """
    from bayeslaw._posteriors.posterior import columns_read

    columns = [c for c in columns_read(*posteriors) if c in LOSSES_BEFORE]
    unnamed = [option for option in options or [] if "=" not in option]
    if len(columns) == len(unnamed) == 1:
        pairs = [(column, unnamed[0]) for column in columns]
    else:
        pairs = [*values_by_name(options, "--before").items()]
    unknown = [column for column, _ in pairs if column not in columns]
    if unknown:
        offered = ", ".join(sorted(columns)) or "no loss before adaptation"
        raise LawError(f"--before {unknown[0]}: the laws read {offered}")
    return {column: load_fit(path, trust_law_file) for column, path in pairs}


def table_of_goal(options: Sequence[str]) -> Path | None:
    """Find the file of runs to forecast; None if a plan is asked for."""
    is_file = len(options) == 1 and ("=" not in options[0] or Path(options[0]).exists())
    return Path(options[0]) if is_file else None


def goal_at(options: Sequence[str], *posteriors: Posterior) -> pd.DataFrame:
    """Read runs as N=8.1B,D=70B; warn of a column that no posterior's law reads."""
    import pandas as pd

    import bayeslaw
    from bayeslaw._posteriors.posterior import columns_read

    texts = [assignments([option], "at") for option in options]
    runs = bayeslaw.read_runs(pd.DataFrame(texts))
    read = columns_read(*posteriors)
    # costs, epochs, names and the checkpoint's losses follow from these, too
    known = {*read, "N", "D", "U", "ptpp", "pretrain_tokens", "recipe"}
    unread = [str(column) for column in runs if column not in known]
    if posteriors and unread:
        warn(
            f"--at {', '.join(unread)}: no law reads this, so it changes nothing; they "
            f"read {', '.join(sorted(read))}"
        )
    return runs


def read_question(options: Sequence[str], option: str = "") -> dict[str, Any]:
    """Parse the question of a plan into keywords of `bayeslaw.plan` or `plan_mixture`;
    columns ``share_NAME`` give bounds of shares.
    """
    texts = values_by_name(options, option)
    shares = {name: texts.pop(name) for name in list(texts) if is_share(name)}
    question: dict[str, Any] = {
        # the planner reads the table of an accuracy
        name: text if name == "accuracy" else read_value(name, text)
        for name, text in texts.items()
    }
    before = {c: question.pop(c) for c in LOSSES_BEFORE if c in question}
    if "pretrain_tokens" in question and "ptpp" not in question and "N" in question:
        # a table gives the stage in tokens, too
        question["ptpp"] = question.pop("pretrain_tokens") / question["N"]
    if shares:
        question["bounds"] = {
            name.removeprefix(SHARE): share_bounds(f"{option} {name}", text)
            for name, text in shares.items()
        }
    return question | {"covariates": before}


def share_bounds(option: str, text: str) -> tuple[float, float]:
    """Parse the least and the largest share of a domain, ``5%:30%``, or one share."""
    ends = text.split(":")
    if len(ends) > 2:
        raise PlanError(
            f"{option}={text}: write least and largest, 5%:30%, or one share"
        )
    shares = [number(option, end, SHARE_KIND) for end in ends]
    return shares[0], shares[-1]


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise LawError(f"{path}: values within values, too deep to be read") from None
    except (OSError, ValueError) as error:  # TOML and its encoding
        reason = (str(error).splitlines() or ["damaged"])[0]
        raise LawError(f"{path}: cannot be read as TOML ({reason})") from None


def prior_file(path: Path | None) -> dict[str, dict]:
    """Read priors and the reference run of a TOML file."""
    if path is None:
        return {"priors": {}, "reference": {}}
    content = read_toml(path)
    unknown = [name for name in content if name not in ("priors", "reference")]
    if unknown:
        raise LawError(
            f"{path}: unknown table [{unknown[0]}]; it has [priors] and [reference]"
        )
    for name, table in content.items():
        if not isinstance(table, dict):
            raise LawError(f"{path}: {name} is a value; write it as a table, [{name}]")
    reference = {
        name: number(f"{path}: {name}", str(value))
        for name, value in content.get("reference", {}).items()
    }
    return {"priors": content.get("priors", {}), "reference": reference}

"""Take each part of the machine around a law out, and forecast what was held out.

    python tests/studies/audit.py [--part fading] [--only ladder] [--data ../shared/data]

The machine is what turns a law's posterior into a forecast: the misfit with its pieces
and pairs, the fading of errors, effects of groups, drift, and the weights of the
average. Cases are the published tables of N and D of `real_tables.py`, forecast by the
default average, and the folds of the bundled grids of `new_sizes.py`, forecast by each of
``ADAPTATION``, with default settings and seed 0.

A part earns its place where the interval score without it is at least 2% worse (geometric
mean of ratios over the cases of a kind). Rows are kept in ``--cache`` as they are made, so
that an interrupted study goes on; docs/discrepancy.md shows them.
"""

import argparse
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import jax
import new_sizes
import numpy as np
import pandas as pd
import real_tables
from measured import DATA
from resumable import study

import bayeslaw
from bayeslaw._inference.discrepancy import drift, learning, process
from bayeslaw._law.priors import lognormal
from bayeslaw._posteriors.averaging import compare, judge
from bayeslaw._posteriors.fits import misfit

ROOT = Path(__file__).parents[2]
CACHE = ROOT / "docs" / "results" / "audit.csv"
SIZES_AND_TOKENS = "laws of N and D"
ADAPTATION = {
    "laws of the checkpoint's losses": {
        "target": "state-power",
        "source": "state-rise",
    },
    "laws of size and stage": {"target": "ptpp-tokens", "source": "ptpp-rise"},
}
FURTHER = {
    f"{language}, {name}": new_sizes.Fold(table, fitted, forecast, 0.9)
    for language, table in (("French", "minicpt"), ("German", "minicpt-de"))
    for name, fitted, forecast in (
        ("D to 3 N -> more", "D < 3 * N and ptpp < 200", "D > 3 * N and ptpp < 200"),
        (
            "replay to .5 -> more",
            "replay < .6 and ptpp < 200",
            "replay > .6 and ptpp < 200",
        ),
    )
}  # budgets and replay left out
NONE = lognormal(1e-9, 0.1, "no drift")


class Swap(NamedTuple):
    """What a name in a module is while a part is out; ``made`` makes it from what it
    was.
    """

    module: Any
    name: str
    made: Callable[[Any], Any]


def fixed_priors(**priors: Any) -> list[Swap]:
    """Replace priors of drift where they are read."""
    changed = partial(drift.DriftPriors, **priors)
    return [Swap(module, "DriftPriors", lambda _: changed) for module in (judge, drift)]


def without_kind(kind: str) -> Swap:
    """Take the effects of a kind of group out of the misfit."""

    def made(sharing: Callable) -> Callable:
        def among(*arguments: Any) -> Any:
            found = sharing(*arguments)
            return found._replace(
                groups={k: v for k, v in found.groups.items() if k != kind}
            )

        return among

    return Swap(misfit, "sharing", made)


def equal_weights(weigh: Callable) -> Callable:
    return lambda judged, *_: np.full(len(judged), 1 / len(judged))


PARTS: dict[str, list[Swap]] = {
    "nothing": [],
    "pieces over pairs": [Swap(process, "_choose_pairs", lambda _: lambda *_: ())],
    "fading": [Swap(misfit, "fading_power", lambda _: lambda *_, **__: 0.0)],
    "heavy tails of a run": [Swap(learning, "DOF", lambda _: np.array([50.0]))],
    "effect of the model": [without_kind("model")],
    "effect of the checkpoint": [without_kind("checkpoint")],
    "effect of the run": [without_kind("run")],
    "drift": fixed_priors(tau=NONE, known_tau=NONE),
    "mean of drift": fixed_priors(size_mean=(), state_mean=()),
    "learning of drift": [
        Swap(judge, "draw_scales", lambda draw: lambda _, *rest: draw((), *rest))
    ],
    "weights of laws": [Swap(compare, "weigh", equal_weights)],
    "misfit": [],  # by an argument of `average`
    "fading and drift": [
        Swap(misfit, "fading_power", lambda _: lambda *_, **__: 0.0),
        *fixed_priors(tau=NONE, known_tau=NONE),
    ],
}


@contextmanager
def taken_out(part: str) -> Iterator[None]:
    """Take a part of the machine out."""
    with ExitStack() as stack:
        for module, name, made in PARTS[part]:
            was = getattr(module, name)
            stack.enter_context(mock.patch.object(module, name, made(was)))
        yield


def list_cases() -> dict[tuple[str, str], Callable[[Path], real_tables.Case]]:
    """What makes the runs of each case, by the kind of laws and the name of the case."""
    made: dict[tuple[str, str], Callable[[Path], real_tables.Case]] = {
        (SIZES_AND_TOKENS, name): case
        for name, case in real_tables.CASES.items()
        if not name.startswith((*real_tables.GRIDS, "mixtures"))
    }
    for kind, laws in ADAPTATION.items():
        for name, fold in (new_sizes.FOLDS | FURTHER).items():
            for domain, law in laws.items():
                case = partial(of_fold, fold, domain, law)
                made[kind, f"{name}, {domain}"] = case
    return made


def of_fold(
    fold: new_sizes.Fold, domain: str, law: str, data: Path
) -> real_tables.Case:
    """Split a bundled grid as `new_sizes.py` does; ``data`` is not read."""
    fitted, unseen = new_sizes.split_fold(fold, domain)
    return real_tables.Case(
        fitted, unseen, new_sizes.reference_of(fold.table, law), [law]
    )


CASES = list_cases()


def forecast_without(
    part: str, kind: str, case: str, data: Path
) -> list[dict[str, Any]]:
    """Make the row of one case without one part."""
    fitted, unseen, reference, laws = CASES[kind, case](data)
    with taken_out(part):
        average = bayeslaw.average(
            fitted,
            laws,
            reference=reference,
            discrepancy=part != "misfit",
            on_failure="ignore",
            seed=0,
        )
        made = bayeslaw.forecast(average, unseen)
    jax.clear_caches()  # programs of this table's shapes, which no other has
    return [new_sizes.score(made, unseen)]


def markdown(rows: pd.DataFrame) -> str:
    """Show each part: the ratio of scores without it, and error, cover and width."""
    whole = rows[rows["part"] == "nothing"].set_index(["kind", "case"])
    kinds = list(dict.fromkeys(rows["kind"]))
    lines = [f"| without | {' | '.join(kinds)} |", "|---" * (len(kinds) + 1) + "|"]
    for part, of_part in rows.groupby("part", sort=False):
        cells = []
        for kind in kinds:
            mine = of_part[of_part["kind"] == kind].set_index(["kind", "case"])
            cells.append(describe(mine, whole.loc[mine.index]) if len(mine) else "")
        lines.append(f"| {part} | {' | '.join(cells)} |")
    return "\n".join(lines)


def describe(mine: pd.DataFrame, whole: pd.DataFrame) -> str:
    """Write the ratio of scores and of errors (geometric means), the mean cover, and in
    how many cases the score is worse by 2%.
    """
    score = mine["score"] / whole["score"]
    error = mine["error"] / whole["error"]
    return (
        f"{np.exp(np.log(score).mean()):.2f}, {np.exp(np.log(error).mean()):.2f}, "
        f"{mine['coverage'].mean():.0%}, {(score > 1.02).sum()} of {len(score)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--part", action="append", help="a part to take out; all")
    parser.add_argument("--only", default="", help="cases whose kind or name has this")
    options = parser.parse_args()
    jobs = [
        {"part": part, "kind": kind, "case": case}
        for part in PARTS
        if part in ("nothing", *(options.part or PARTS))
        for kind, case in CASES
        if options.only in f"{kind} {case}"
    ]
    if not jobs:
        parser.error("no case is left")
    warnings.simplefilter("ignore")
    report = partial(print, file=sys.stderr, flush=True)
    task = partial(forecast_without, data=options.data)
    print(markdown(study(task, jobs, options.cache, progress=report)))


if __name__ == "__main__":
    main()

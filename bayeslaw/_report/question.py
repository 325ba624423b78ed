"""Check the report's question completely before anything is fitted."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pandas as pd

from bayeslaw._base.arguments import takes
from bayeslaw._base.errors import FitWarning, PlanError
from bayeslaw._base.limits import KINDS, checked
from bayeslaw._base.machine import runtime
from bayeslaw._law.columns import LOSSES_BEFORE, share_domains, starts_from_losses
from bayeslaw._law.find import find_law
from bayeslaw._law.law import Law, covariates_read
from bayeslaw._plans.arguments import (
    NAMES,
    PlanArguments,
    lacks_baseline,
    with_kept_losses,
)
from bayeslaw._plans.mixing.question import MixtureArguments
from bayeslaw._plans.mixing.question import question_of as mixed_question_of
from bayeslaw._plans.posing import pose
from bayeslaw._plans.reading import question_of
from bayeslaw._posteriors.fits.candidates import default_laws
from bayeslaw._posteriors.posterior import LogLoss, Piece, Posterior
from bayeslaw._posteriors.repetition import UNIQUE

CHOSEN = ("D", "replay")  # columns that the plan chooses
# the arguments of a plan, or the planner's refusal of an unknown or a missing one
read_plan: Any = takes(PlanArguments, PlanError, "plan")(lambda arguments: arguments)
read_mixture: Any = takes(MixtureArguments, PlanError, "plan_mixture")(
    lambda arguments: arguments
)


class Checked(NamedTuple):
    """A fully checked question."""

    # of `plan`, completed by the checkpoint's losses before adaptation from the table; if
    # the laws read shares (``mixes``), of `plan_mixture`
    keywords: dict[str, Any]
    told: tuple[str, ...] = ()  # origins of these losses
    mixes: bool = False
    # stand-ins for the posteriors of target and source, which keep their runs
    unfitted: tuple[Posterior, ...] = ()


def check_question(
    question: Mapping[str, Any],
    parts: Mapping[str, pd.DataFrame],
    names: Mapping[str, Sequence[str | Law]],
) -> Checked:
    """Complete the question from the runs of each domain, and refuse it if something is
    missing. It has keywords of `plan`, and other columns of the table as covariates; if
    the laws read shares, keywords of `plan_mixture`. ``names``: the laws asked for in
    each domain; none for those that suit.
    """
    laws = {domain: laws_of(runs, names[domain]) for domain, runs in parts.items()}
    if all(len(share_domains(covariates_read(some))) > 1 for some in laws.values()):
        return _check_mixture(question, parts, laws)
    if not {"target", "source"} <= set(parts):
        raise PlanError(
            "a plan needs rows of domain 'target' and 'source'; the table has: "
            f"{', '.join(parts)}"
        )
    # columns of the table are covariates; a misspelt keyword is none, and is refused
    columns = [n for n in question if n in parts["target"] and n not in NAMES]
    keywords = {name: value for name, value in question.items() if name not in columns}
    covariates = {n: question[n] for n in columns} | dict(
        keywords.get("covariates") or {}
    )
    keywords |= {"covariates": covariates} if covariates else {}
    try:
        read_plan(None, None, **keywords)
    except PlanError as error:
        raise PlanError(
            f"what to plan for: {error}; it needs N, max_target_loss and "
            "max_forgetting, and takes what `plan` takes: --plan N=7B --plan ptpp=43 "
            "(or --plan pretrain_tokens=300B) --plan max_target_loss=2.1 --plan "
            "max_forgetting=2%"
        ) from None
    # texts such as "8.1B" are numbers, except for limits, whose texts have units
    for name, value in keywords.items():
        is_number = name in KINDS and not name.startswith("max_")
        if isinstance(value, str) and is_number:
            keywords[name] = checked(name, value, KINDS[name])
    runtime.start()
    needs = {domain: _list_needed(laws, domain, covariates) for domain in laws}
    diverging = [law.name for law in laws["source"] if _diverges_at_start(law)]
    unfitted = (
        _Unfitted("target", parts["target"], tuple(needs["target"])),
        _Unfitted("source", parts["source"], tuple(needs["source"]), bool(diverging)),
    )
    arguments, forecast, told = with_kept_losses(
        PlanArguments(*unfitted, **keywords), of_diverging=True
    )
    kept = {
        "covariates": arguments.covariates,
        "baseline_loss": arguments.baseline_loss,
    }
    keywords |= {name: value for name, value in kept.items() if value}
    # a loss that will be forecast is not missing, so it gets a stand-in
    losses = {**dict.fromkeys(forecast, 1.0), **(arguments.covariates or {})}
    arguments = replace(arguments, covariates=losses, draws=min(arguments.draws, 1))
    given = {"N", *CHOSEN, *losses}
    given |= {"ptpp"} if arguments.ptpp is not None else set()
    given |= {UNIQUE} if arguments.unique_target_tokens is not None else set()
    # losses before adaptation of a source are handled with its baseline
    missing = []
    for domain, known in {"target": given, "source": {*given, *LOSSES_BEFORE}}.items():
        for column in (c for c in needs[domain] if c not in known):
            readers = [law.name for law in laws[domain] if column in law.covariates]
            missing.append(f"{column} (read by {', '.join(readers)})")
    if lacks_baseline(arguments, of_diverging=True):
        readers = [x.name for x in laws["source"] if starts_from_losses(x.covariates)]
        missing.append(
            "baseline_loss (the source's loss before adaptation, needed by "
            f"{', '.join(readers or diverging)}: evaluate the checkpoint on the source, or "
            "give the table a column source_loss_before)"
        )
    if missing:
        raise PlanError(
            f"what to plan for lacks: {'; '.join(dict.fromkeys(missing))}; give each beside N "
            f"(--plan {missing[0].split()[0]}=...)"
        )
    # the planner itself checks the numbers
    pose(question_of(arguments))
    return Checked(keywords, told, unfitted=unfitted)


def _list_needed(
    laws: Mapping[str, Sequence[Law]], domain: str, given: Collection[str]
) -> list[str]:
    """List the columns that a plan needs for the laws of a domain. A swept setting that
    the laws of no other domain read may be left open.
    """
    elsewhere = {
        column
        for name, some in laws.items()
        if name != domain
        for column in covariates_read(some)
    }
    settings = {column for law in laws[domain] for column in law.tuned}
    is_open = settings - elsewhere - {*given}
    return [c for c in covariates_read(laws[domain]) if c not in is_open]


def _check_mixture(
    question: Mapping[str, Any],
    parts: Mapping[str, pd.DataFrame],
    laws: Mapping[str, Sequence[Law]],
) -> Checked:
    given = question.get("covariates") or {}
    unfitted = {
        name: _Unfitted(name, runs, tuple(_list_needed(laws, name, given)))
        for name, runs in parts.items()
    }
    try:
        arguments = read_mixture(unfitted, **question)
    except PlanError as error:
        raise PlanError(
            f"what to plan for: {error}; a mixture's plan needs N and max_loss, "
            "max_mean_loss or D, and takes what `plan_mixture` takes"
        ) from None
    if arguments.baseline_run is not None:
        raise PlanError(
            "a page's sliders take no baseline_run of a mixture: leave it out, and ask "
            "`bayeslaw mixture --baseline-run`"
        )
    pose(mixed_question_of(arguments))
    return Checked(dict(question), mixes=True)


def laws_of(runs: pd.DataFrame, names: Sequence[str | Law]) -> list[Law]:
    with warnings.catch_warnings():
        # the fit will warn of guessed priors
        warnings.simplefilter("ignore", FitWarning)
        return [
            name if isinstance(name, Law) else find_law(name, runs)
            for name in names or default_laws(runs)
        ]


def _diverges_at_start(law: Law) -> bool:
    medians = {n: np.full(1, p.quantile(0.5)) for n, p in law.priors.items()}
    return LogLoss(law).piece(medians).diverges_at_start


@dataclass(frozen=True)
class _Unfitted:
    """A stand-in of one draw, which reads the laws' columns, and diverges as they do."""

    name: str
    runs: pd.DataFrame
    reads: tuple[str, ...]
    diverges: bool = False
    warnings: tuple[str, ...] = ()

    def pieces(self) -> tuple[Piece, ...]:
        one_draw = {"level": np.ones(1)}
        formula = _fall_from_start if self.diverges else _fall
        return (Piece(formula, one_draw, self.reads),)

    def log_loss(
        self, runs: pd.DataFrame, *, noise: bool = False, seed: int = 0
    ) -> np.ndarray:
        raise NotImplementedError("only its pieces stand in for a fit's")


def _fall(draw: Mapping[str, Any], covariates: Mapping[str, Any]):
    return draw["level"] - 0.01 * jnp.log1p(covariates["D"])


def _fall_from_start(draw: Mapping[str, Any], covariates: Mapping[str, Any]):
    return draw["level"] - 0.01 * jnp.log(covariates["D"])

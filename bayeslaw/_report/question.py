"""Check the report's question completely before anything is fitted."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pandas as pd

from bayeslaw._base.arguments import meant
from bayeslaw._base.errors import FitWarning, PlanError
from bayeslaw._base.limits import KINDS, checked
from bayeslaw._base.machine import runtime
from bayeslaw._law.columns import (
    LOSSES_BEFORE,
    SOURCE_LOSS_BEFORE,
    share_domains,
    starts_from_losses,
)
from bayeslaw._law.find import find_law
from bayeslaw._law.law import Law, as_arrays, covariates_read
from bayeslaw._plans.mixing.question import MixtureArguments, question_of
from bayeslaw._plans.plan import plan, problem_of
from bayeslaw._posteriors.averaging.checkpoint import losses_at_hand
from bayeslaw._posteriors.fits.candidates import default_laws
from bayeslaw._posteriors.posterior import Piece
from bayeslaw._posteriors.repetition import UNIQUE

CHOSEN = ("D", "replay")  # columns that the plan chooses


class Checked(NamedTuple):
    """A fully checked question.

    ``keywords``: keywords of `plan`, completed by the checkpoint's losses before
    adaptation from the table; if the laws read shares (``mixes``), keywords of
    `plan_mixture`. ``forecast``: columns that must still be forecast (`checkpoint`).
    ``told``: lines that tell the origin of these losses.
    """

    keywords: dict[str, Any]
    forecast: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    mixes: bool = False


def check_question(
    question: Mapping[str, Any],
    parts: Mapping[str, pd.DataFrame],
    names: Mapping[str, Sequence[str | Law]],
) -> Checked:
    """Complete the question from the table, and refuse it if something is missing.

    ``question``: Keyword arguments of `plan`; any other column of the table is a
    covariate. If the laws read shares, keyword arguments of `plan_mixture`. ``parts``:
    the runs of each domain. ``names``: the laws asked for in each domain, or their
    names; none for those that suit.
    """
    laws = {domain: laws_of(runs, names[domain]) for domain, runs in parts.items()}
    if all(len(share_domains(covariates_read(some))) > 1 for some in laws.values()):
        return _check_mixture(question, parts, laws)
    if not {"target", "source"} <= set(parts):
        raise PlanError(
            "a plan needs rows of domain 'target' and 'source'; the table has: "
            f"{', '.join(parts)}"
        )
    # columns of the table are covariates; a misspelt keyword is none, and `plan` refuses it
    of_plan = inspect.signature(plan).parameters
    columns = [n for n in question if n in parts["target"] and n not in of_plan]
    keywords = {name: value for name, value in question.items() if name not in columns}
    keywords = _with_losses(keywords, {name: question[name] for name in columns})
    try:
        inspect.signature(plan).bind(None, None, **keywords)
    except TypeError as error:
        raise PlanError(
            f"what to plan for: {_describe_refusal(plan, keywords, error)}; it needs N, max_target_loss and "
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
    target, source = laws["target"], laws["source"]
    baseline = keywords.get("baseline_loss")
    if isinstance(baseline, int | float):  # the target's laws read this loss, too
        keywords = _with_losses(keywords, {SOURCE_LOSS_BEFORE: baseline})
    # losses before adaptation that the laws or the baseline need and the question lacks
    needed = set(covariates_read(target)) - set(keywords.get("covariates") or {})
    if _find_without_baseline(keywords, source):
        needed |= {SOURCE_LOSS_BEFORE}
    unknown = [column for column in LOSSES_BEFORE if column in needed]
    before = losses_at_hand(parts, unknown, keywords["N"], keywords.get("ptpp"))
    keywords = _with_losses(keywords, before.measured)
    # a loss that will be forecast is not missing, so it gets a stand-in
    stand_ins = _with_losses(keywords, dict.fromkeys(before.forecast, 1.0))
    given = {"N", *CHOSEN, *(stand_ins.get("covariates") or {})}
    given |= {"ptpp"} if keywords.get("ptpp") is not None else set()
    given |= {UNIQUE} if keywords.get("unique_target_tokens") is not None else set()
    # losses before adaptation of a source are handled with its baseline
    missing = []
    needs = {domain: _list_needed(laws, domain, stand_ins) for domain in laws}
    knows = {"target": given, "source": {*given, *LOSSES_BEFORE}}
    for domain, known in knows.items():
        some = laws[domain]
        for column in needs[domain]:
            readers = ", ".join(law.name for law in some if column in law.covariates)
            if column not in known:
                missing.append(f"{column} (read by {readers})")
    readers = _find_without_baseline(stand_ins, source)
    if readers:
        missing.append(
            "baseline_loss (the source's loss before adaptation, needed by "
            f"{', '.join(readers)}: evaluate the checkpoint on the source, or give the "
            "table a column source_loss_before)"
        )
    if missing:
        raise PlanError(
            f"what to plan for lacks: {'; '.join(dict.fromkeys(missing))}; give each beside N "
            f"(--plan {missing[0].split()[0]}=...)"
        )
    # the planner itself checks the numbers, with stand-ins for the posteriors
    few = {"draws": min(keywords.get("draws", 1), 1)}
    # losses before adaptation are numbers of the question or draws of a forecast
    unfitted = [
        _Unfitted(
            domain,
            parts[domain],
            tuple(c for c in needs[domain] if c not in LOSSES_BEFORE),
        )
        for domain in ("target", "source")
    ]
    problem_of(*unfitted, **{**stand_ins, **few})
    return Checked(keywords, before.forecast, before.told)


def _list_needed(
    laws: Mapping[str, Sequence[Law]], domain: str, question: Mapping[str, Any]
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
    is_open = settings - elsewhere - set(question.get("covariates") or {})
    return [c for c in covariates_read(laws[domain]) if c not in is_open]


def _check_mixture(
    question: Mapping[str, Any],
    parts: Mapping[str, pd.DataFrame],
    laws: Mapping[str, Sequence[Law]],
) -> Checked:
    unfitted = {
        name: _Unfitted(name, runs, tuple(_list_needed(laws, name, question)))
        for name, runs in parts.items()
    }
    try:
        arguments = MixtureArguments(unfitted, **question)
    except TypeError as error:
        raise PlanError(
            f"what to plan for: {_describe_refusal(MixtureArguments, question, error)}; a "
            "mixture's plan needs N and max_loss, max_mean_loss or D, and takes what `plan_mixture` takes"
        ) from None
    if arguments.baseline_run is not None:
        raise PlanError(
            "a page's sliders take no baseline_run of a mixture: leave it out, and ask "
            "`bayeslaw mixture --baseline-run`"
        )
    question_of(arguments)
    return Checked(dict(question), mixes=True)


def _describe_refusal(
    callee: Callable[..., Any], keywords: Iterable[str], error: TypeError
) -> str:
    """Say which keyword there is not, and which one is meant; else what the error says."""
    names = list(inspect.signature(callee).parameters)
    strange = [name for name in keywords if name not in names]
    if not strange:
        return str(error)
    return f"there is no {strange[0]!r}{meant(strange[0], names)}"


def _with_losses(keywords: dict[str, Any], losses: Mapping[str, Any]) -> dict[str, Any]:
    """Add losses to the covariates of the keywords; the user's values stay."""
    if not losses:
        return keywords
    covariates = dict(keywords.get("covariates") or {})
    return keywords | {"covariates": dict(losses) | covariates}


def _find_without_baseline(
    keywords: Mapping[str, Any], source: Sequence[Law]
) -> list[str]:
    """List the source's laws that have no baseline. The source's loss before adaptation
    is not given, and the law either reads it or diverges at D = 0, where it would be
    evaluated.
    """
    covariates = keywords.get("covariates") or {}
    if keywords.get("baseline_loss") is not None or SOURCE_LOSS_BEFORE in covariates:
        return []
    readers = [law.name for law in source if starts_from_losses(law.covariates)]
    if readers or keywords.get("baseline_tokens") is not None:
        return readers
    return [law.name for law in source if _diverges_without_tokens(law)]


def laws_of(runs: pd.DataFrame, names: Sequence[str | Law]) -> list[Law]:
    """Find the laws to fit to a domain."""
    with warnings.catch_warnings():
        # the fit will warn of guessed priors
        warnings.simplefilter("ignore", FitWarning)
        return [
            name if isinstance(name, Law) else find_law(name, runs)
            for name in names or default_laws(runs)
        ]


def _diverges_without_tokens(law: Law) -> bool:
    """Tell whether the law has no finite loss at D = 0, at the medians of its priors."""
    # the run at which the baseline is evaluated: pure replay, no tokens
    run = dict(law.reference) | {"D": 0.0, "replay": 1.0}
    covariates = as_arrays(run)
    medians = {n: jnp.asarray(prior.quantile(0.5)) for n, prior in law.priors.items()}
    return not np.isfinite(float(law.loss(covariates, medians)))


@dataclass(frozen=True)
class _Unfitted:
    """A stand-in posterior with one draw, which reads the same columns as the laws."""

    name: str
    runs: pd.DataFrame
    reads: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    def pieces(self) -> tuple[Piece, ...]:
        one_draw = {"level": np.ones(1)}
        piece = Piece(_compute_falling, one_draw, self.reads)
        return (piece,)

    def log_loss(
        self, runs: pd.DataFrame, *, noise: bool = False, seed: int = 0
    ) -> np.ndarray:
        raise NotImplementedError("only its pieces stand in for a fit's")


def _compute_falling(draw: Mapping[str, Any], covariates: Mapping[str, Any]):
    return draw["level"] - 0.01 * jnp.log1p(covariates["D"])

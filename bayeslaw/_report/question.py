"""What the report is to plan for, checked in full before anything is fitted."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd

from bayeslaw._base import runtime
from bayeslaw._base.errors import FitWarning, PlanError
from bayeslaw._decisions.planning.plan import plan, problem_of
from bayeslaw._law.find import find_law
from bayeslaw._law.law import Law
from bayeslaw._posteriors.averaging.compare import default_laws
from bayeslaw._posteriors.posterior import Piece

CHOSEN = ("D", "replay")  # by the plan
NEEDED = "N, ptpp, max_target_loss and max_forgetting"


def check_question(
    question: Mapping[str, Any],
    parts: Mapping[str, pd.DataFrame],
    names: Mapping[str, Sequence[str]],
) -> dict[str, Any]:
    """The question as `plan` takes it; nothing of it is left to be refused after fits.

    Parameters
    ----------
    question
        Keyword arguments of `plan`; any other column of the table is a covariate.
    parts
        The runs of each domain.
    names
        The laws asked for in each domain; none for those that suit.

    Raises
    ------
    PlanError
        A domain, an argument, or something that the laws read is missing, or a number
        is out of range.
    """
    if not {"target", "source"} <= set(parts):
        raise PlanError(
            "a plan needs rows of domain 'target' and 'source'; the table has: "
            f"{', '.join(parts)}"
        )
    keywords = _with_covariates(question, parts["target"])
    try:
        inspect.signature(plan).bind(None, None, **keywords)
    except TypeError as error:
        raise PlanError(
            f"what to plan for: {error}; it needs {NEEDED}, and takes what `plan` takes"
        ) from None
    runtime.start()
    target, source = (
        _laws(parts[domain], names[domain]) for domain in ("target", "source")
    )
    _check_covariates(keywords, target, source)
    # The numbers are checked by the planner itself, on posteriors that read nothing.
    few = {"draws": min(keywords.get("draws", 1), 1)}
    problem_of(_Unfitted("target"), _Unfitted("source"), **{**keywords, **few})
    return keywords


def _laws(runs: pd.DataFrame, names: Sequence[str]) -> list[Law]:
    """The laws to be fitted to a domain."""
    with warnings.catch_warnings():
        # Priors that a formula guesses are named when it is fitted.
        warnings.simplefilter("ignore", FitWarning)
        return [find_law(name) for name in names or default_laws(runs)]


def _with_covariates(
    question: Mapping[str, Any], table: pd.DataFrame
) -> dict[str, Any]:
    """The question with columns of the table among its ``covariates``."""
    keywords = inspect.signature(plan).parameters
    # A misspelt keyword is no column, and is refused when the question is bound.
    columns = [name for name in question if name in table and name not in keywords]
    rest = {name: given for name, given in question.items() if name not in columns}
    if not columns:
        return rest
    covariates = dict(rest.get("covariates") or {})
    covariates |= {name: question[name] for name in columns}
    return rest | {"covariates": covariates}


def _check_covariates(
    keywords: Mapping[str, Any], target: Sequence[Law], source: Sequence[Law]
) -> None:
    """Name everything that the laws read and the question does not say, in one line."""
    given = {"N", "ptpp", *CHOSEN, *(keywords.get("covariates") or {})}
    missing = [
        f"{column} (read by {_names(target, column)})"
        for column in _read(target)
        if column not in given
    ]
    # A source's losses before adaptation are its baseline's.
    before = ("loss_before", "source_loss_before")
    missing += [
        f"{column} (read by {_names(source, column)})"
        for column in _read(source)
        if column not in given and column not in before
    ]
    # It is measured, or a covariate, or the source's law says it at D = 0.
    measured = keywords.get("baseline_loss") is not None
    if not measured and "source_loss_before" not in given:
        readers = [law.name for law in source if set(before) & set(law.covariates)]
        if not readers and keywords.get("baseline_tokens") is None:
            readers = [law.name for law in source if _diverges_without_tokens(law)]
        if readers:
            missing.append(
                "baseline_loss (the source's loss before adaptation, needed by "
                f"{', '.join(readers)})"
            )
    if missing:
        raise PlanError(
            f"what to plan for lacks: {'; '.join(missing)}; give each beside N and ptpp"
        )


def _read(laws: Sequence[Law]) -> list[str]:
    """The columns that any of the laws reads, each once."""
    return list(dict.fromkeys(column for law in laws for column in law.covariates))


def _names(laws: Sequence[Law], column: str) -> str:
    return ", ".join(law.name for law in laws if column in law.covariates)


def _diverges_without_tokens(law: Law) -> bool:
    """Whether the law has no loss at D = 0, at the medians of its priors."""
    # Where the baseline would be read off: pure replay, no tokens.
    run = dict(law.reference) | {"D": 0.0, "replay": 1.0}
    covariates = {column: jnp.asarray(value) for column, value in run.items()}
    medians = {name: prior.quantile(0.5) for name, prior in law.priors.items()}
    return not np.isfinite(float(law.loss(covariates, medians)))


@dataclass(frozen=True)
class _Unfitted:
    """A posterior of one draw that reads no covariate."""

    name: str
    warnings: tuple[str, ...] = ()

    def pieces(self) -> tuple[Piece, ...]:
        one_draw = {"level": np.ones(1)}
        piece = Piece(_falling, one_draw, ())
        return (piece,)

    def log_loss(
        self, runs: pd.DataFrame, *, noise: bool = False, seed: int = 0
    ) -> np.ndarray:
        """Shape (draw, run) = (1, run)."""
        return np.asarray(_falling({"level": 1.0}, {"D": runs["D"].to_numpy()}))[None]


def _falling(draw: Mapping[str, Any], covariates: Mapping[str, Any]):
    """A log loss that falls with tokens, shape (run,)."""
    return draw["level"] - 0.01 * jnp.log1p(covariates["D"])

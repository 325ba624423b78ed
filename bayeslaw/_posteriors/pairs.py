"""Whether posteriors can be of one target and its sources, and whether a plan lies near
what they were fitted to.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import pandas as pd

from bayeslaw._base.errors import PlanError, RunTableWarning
from bayeslaw._law.formula import units_of
from bayeslaw._posteriors.posterior import Posterior
from bayeslaw._tables.beyond import far_beyond
from bayeslaw._tables.checks.slopes import CLEAR, partial_slope
from bayeslaw._tables.fitting import fitted
from bayeslaw._tables.own_columns import own_beyond


def check_posteriors(target: Posterior, sources: Mapping[str, Posterior]) -> None:
    """Refuse posteriors of one domain or of the same losses, and a target that is named
    source.

    Raises
    ------
    PlanError
        They are not of a target and of sources.
    """
    table = table_of(target)
    for name, posterior in sources.items():
        source = table_of(posterior)
        if table is not None and source is not None:
            _check_different(name, table, source)
            _check_order(name, table, source)


def doubts(
    target: Posterior, sources: Mapping[str, Posterior], run: Mapping[str, float]
) -> list[str]:
    """What to know of a plan that its probability does not say: that its run lies far
    beyond those that were fitted, fits of other checkpoints or swapped ones; a line each.

    ``run`` has the plan's columns.
    """
    table = table_of(target)
    planned = pd.DataFrame([run])
    lines = [f"the plan's {line}" for line in far_beyond(table, planned)]
    lines += [f"the plan's {line}" for line in _own_far(target, planned)]
    for name, posterior in sources.items():
        source = table_of(posterior)
        if table is None or source is None:
            continue
        lines += doubts_of_tables(name, table, source)
    return lines


def warn_own_far(posterior: Posterior, runs: pd.DataFrame) -> None:
    """Warn of each column of the user's own along which runs lie far beyond those that
    were fitted.
    """
    for line in _own_far(posterior, runs):
        text = f"{line}: nothing measured says how far a law holds there"
        warnings.warn(text, RunTableWarning, stacklevel=3)


def _own_far(posterior: Posterior, runs: pd.DataFrame) -> list[str]:
    """Write a line for each own column along which runs lie far beyond a posterior's
    table.
    """
    table = table_of(posterior)
    if table is None:
        return []
    covariates = [c for piece in posterior.pieces() for c in piece.covariates]
    laws = [member.law for member in getattr(posterior, "members", ())]
    law = getattr(posterior, "law", None)
    stated = [units_of(law) for law in [*laws, law] if law is not None]
    units = {column: unit for by_law in stated for column, unit in by_law.items()}
    return own_beyond(table, runs, covariates, units=units)


def doubts_of_tables(
    name: str, target: pd.DataFrame, source: pd.DataFrame
) -> list[str]:
    """What speaks against runs being those of one target and of its source ``name``, a
    line each.
    """
    return [
        *_checkpoints_differ(name, target, source),
        *_seem_swapped(name, target, source),
    ]


def table_of(posterior: Posterior) -> pd.DataFrame | None:
    """The runs a posterior was fitted to, where it keeps them; of a chain those of the
    law that starts from the checkpoint.
    """
    main = getattr(posterior, "posterior", None)
    of_pool = getattr(posterior, "training_rows", None)
    places = (getattr(posterior, "runs", None), getattr(main, "runs", None), of_pool)
    # a pool's domain has the number of its runs as ``runs``
    return next((runs for runs in places if isinstance(runs, pd.DataFrame)), None)


def fitted_replays(posteriors: Mapping[str, Posterior]) -> tuple[float, float]:
    """The least and the largest replay that all tables hold, of those whose laws read it;
    0 and 1 where none says, or they have none in common.
    """
    low, high = 0.0, 1.0
    for posterior in posteriors.values():
        table = table_of(posterior)
        reads = any("replay" in piece.covariates for piece in posterior.pieces())
        shares = None if table is None or not reads else table.get("replay")
        if shares is not None:
            low, high = max(low, float(shares.min())), min(high, float(shares.max()))
    return (low, high) if low <= high else (0.0, 1.0)


def _domain(table: pd.DataFrame) -> str | None:
    """The one domain of a table; None where it tells none, or several."""
    if "domain" not in table:
        return None
    domains = table["domain"].astype(str).unique()
    return domains[0] if len(domains) == 1 else None


def _check_different(name: str, target: pd.DataFrame, source: pd.DataFrame) -> None:
    """Refuse a target and a source of the same domain, or with the same losses."""
    domain = _domain(target)
    if domain is not None and domain == _domain(source):
        raise PlanError(
            f"the fits of target and of {name} are both of domain {domain!r}: fit each "
            "to its own domain's losses"
        )
    if len(target) == len(source) and fitted(target, source).all():
        raise PlanError(
            f"the fits of target and of {name} are of the same {len(target)} losses: "
            "give each domain its own fit"
        )


def _check_order(name: str, target: pd.DataFrame, source: pd.DataFrame) -> None:
    """By the names of their domains."""
    if _domain(source) == "target" or _domain(target) in ("source", name):
        raise PlanError(
            f"the fit given as target is of domain {_domain(target)!r} and that of "
            f"{name} of {_domain(source)!r}: they are swapped"
        )


def _seem_swapped(name: str, target: pd.DataFrame, source: pd.DataFrame) -> list[str]:
    """Losses that move with replay the wrong way, both clearly."""
    sizes = ("N", "D", "ptpp")
    of_target, target_error = partial_slope(target, "replay", sizes)
    of_source, source_error = partial_slope(source, "replay", sizes)
    # misfits shared by many runs make the errors too small: a slope of 3% is asked for
    falls = -of_target > max(CLEAR * target_error, 0.03)
    rises = of_source > max(CLEAR * source_error, 0.03)
    if not (falls and rises):
        return []
    return [
        f"the target's losses fall with replay and those of {name} rise: if target and "
        "source are swapped, so is the plan"
    ]


def _checkpoints_differ(
    name: str, target: pd.DataFrame, source: pd.DataFrame
) -> list[str]:
    """Write a line if target and source have no checkpoint in common."""
    keys = ["N", "ptpp"]
    if not set(keys) <= set(target) & set(source):
        return []
    ours = set(target[keys].itertuples(index=False, name=None))
    theirs = set(source[keys].itertuples(index=False, name=None))
    if ours & theirs:
        return []
    return [
        f"the fits of target and of {name} have no checkpoint (N, ptpp) in common: are "
        "they of the same models?"
    ]

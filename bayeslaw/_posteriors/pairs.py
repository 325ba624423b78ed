"""Check that posteriors can be of one target and its sources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pandas as pd

from bayeslaw._base.errors import PlanError
from bayeslaw._base.numbers import format_count
from bayeslaw._law.formula import units_of
from bayeslaw._posteriors.posterior import Posterior, columns_read
from bayeslaw._tables.beyond import Distance, own_beyond, values_along
from bayeslaw._tables.fitting import fitted
from bayeslaw._tables.rows.levels import with_common_levels
from bayeslaw._tables.surface import CLEAR, partial_slope


def check_posteriors(target: Posterior, sources: Mapping[str, Posterior]) -> None:
    """Refuse a target and a source of the same domain, with the same losses, or
    swapped.

    Raises
    ------
    PlanError
        Two posteriors are of the same domain or of the same losses, or their domains'
        names show that they are swapped.
    """
    table = table_of(target)
    for name, posterior in sources.items():
        source = table_of(posterior)
        if table is not None and source is not None:
            _check_different(name, table, source)
            _check_order(name, table, source)


def own_far(posterior: Posterior, runs: pd.DataFrame) -> list[str]:
    """Write a line for each of the user's own columns in which runs lie far beyond a
    posterior's table.
    """
    table = table_of(posterior)
    if table is None:
        return []
    # an average has members; a fit has one law
    members = getattr(posterior, "members", (posterior,))
    units: dict[str, str] = {}
    for member in members:
        law = getattr(member, "law", None)
        units |= units_of(law) if law is not None else {}
    return own_beyond(table, runs, columns_read(posterior), units=units)


def new_sizes_of_plain_fits(
    posteriors: Iterable[Posterior], runs: pd.DataFrame
) -> list[str]:
    """Write a line if runs have a size beyond those of a fit without misfit: of several
    such fits, for the first.
    """
    for posterior in posteriors:
        # a chain forecasts by the posterior in it
        fits = (posterior, getattr(posterior, "posterior", None))
        table = table_of(posterior)
        if table is None or not any(getattr(fit, "is_plain", False) for fit in fits):
            continue
        fitted, new = values_along(table, "N"), values_along(runs, "N")
        if fitted is None or new is None:
            continue
        places = [Distance.of(size, fitted) for size in (new.min(), new.max())]
        farthest = max(places, key=lambda place: place.factor)
        if not farthest.is_inside:
            return [
                f"N = {format_count(farthest.value)} is {farthest.phrase('fitted')}, and "
                f"the fit {posterior.name} is of the law alone: its interval leaves out "
                "how far a law misses a new size (where 90% was stated, 35% has held); "
                "fit with discrepancy=True, the default (without --plain)"
            ]
    return []


def doubts_of_tables(
    name: str, target: pd.DataFrame, source: pd.DataFrame
) -> list[str]:
    """List reasons why two tables may not be of a target and its source ``name``, a
    line each.
    """
    return [
        *_checkpoints_differ(name, target, source),
        *_seem_swapped(name, target, source),
    ]


def table_of(posterior: Posterior) -> pd.DataFrame | None:
    """Find the table that a posterior was fitted to; None if the posterior does not
    keep it. For a chain it is the table of the law that starts from the checkpoint.
    """
    chained = getattr(posterior, "posterior", None)
    candidates = (
        getattr(posterior, "runs", None),
        getattr(chained, "runs", None),
        getattr(posterior, "training_rows", None),
    )
    # for a domain of a pool ``runs`` is a number
    return next((runs for runs in candidates if isinstance(runs, pd.DataFrame)), None)


def fitted_replays(posteriors: Mapping[str, Posterior]) -> tuple[float, float]:
    """Find the range of replay that the tables of all laws with replay cover, as (low,
    high). It is (0, 1) if no law reads replay, or if the ranges do not overlap.
    """
    low, high = 0.0, 1.0
    for posterior in posteriors.values():
        table = table_of(posterior)
        if table is None or "replay" not in {*columns_read(posterior)} & {*table}:
            continue
        shares = table["replay"]
        low = max(low, float(shares.min()))
        high = min(high, float(shares.max()))
    return (low, high) if low <= high else (0.0, 1.0)


def one_domain(posterior: Posterior) -> str | None:
    """Find the one domain of a posterior's table; None if there is none, or several."""
    table = table_of(posterior)
    return None if table is None else _domain(table)


def _domain(table: pd.DataFrame) -> str | None:
    """Return the domain of a table; None if the table has no domain, or several."""
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
    """Refuse a target and a source whose domains' names show that they are swapped."""
    if _domain(source) == "target" or _domain(target) in ("source", name):
        raise PlanError(
            f"the fit given as target is of domain {_domain(target)!r} and that of "
            f"{name} of {_domain(source)!r}: they are swapped"
        )


def _seem_swapped(name: str, target: pd.DataFrame, source: pd.DataFrame) -> list[str]:
    """Write a line if the target's losses clearly fall with replay and the source's
    clearly rise.
    """
    sizes = ("N", "D", "ptpp")
    target_slope, target_error = partial_slope(target, "replay", sizes)
    source_slope, source_error = partial_slope(source, "replay", sizes)
    # Many runs share a misfit, which the standard errors do not count. So a slope must
    # also be over 3%.
    falls = -target_slope > max(CLEAR * target_error, 0.03)
    rises = source_slope > max(CLEAR * source_error, 0.03)
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
    target, source = with_common_levels(target, source, keys)
    target_checkpoints = set(target[keys].itertuples(index=False, name=None))
    source_checkpoints = set(source[keys].itertuples(index=False, name=None))
    if target_checkpoints & source_checkpoints:
        return []
    return [
        f"the fits of target and of {name} have no checkpoint (N, ptpp) in common: are "
        "they of the same models?"
    ]

"""Whether posteriors can be of one target and its sources, told by what they were fitted
to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bayeslaw._base.errors import PlanError
from bayeslaw._posteriors.posterior import Posterior
from bayeslaw._tables.fitting import fitted

if TYPE_CHECKING:
    from jaxtyping import Float

CLEAR = 4.0  # standard errors at which losses are taken to rise or to fall with replay


def check_posteriors(target: Posterior, sources: Mapping[str, Posterior]) -> None:
    """Refuse posteriors of one domain or of the same losses, and a target whose losses
    fall with replay while a source's rise.

    Raises
    ------
    PlanError
        They are not of a target and of sources.
    """
    tables = {"target": table_of(target)}
    tables |= {name: table_of(posterior) for name, posterior in sources.items()}
    known = {name: table for name, table in tables.items() if table is not None}
    names = list(known)
    for i, name in enumerate(names):
        for other in names[:i]:
            _check_different(other, name, known[other], known[name])
    if "target" in known:
        for name in names[1:]:
            _check_order(name, known["target"], known[name])


def table_of(posterior: Posterior) -> pd.DataFrame | None:
    """The runs a posterior was fitted to, where it keeps them."""
    runs = getattr(posterior, "runs", None)
    return runs if isinstance(runs, pd.DataFrame) else None


def _domain(table: pd.DataFrame) -> str | None:
    """The one domain of a table; None where it tells none, or several."""
    if "domain" not in table:
        return None
    domains = table["domain"].astype(str).unique()
    return domains[0] if len(domains) == 1 else None


def _check_different(
    one: str, other: str, table: pd.DataFrame, another: pd.DataFrame
) -> None:
    domain = _domain(table)
    if domain is not None and domain == _domain(another):
        raise PlanError(
            f"the fits of {one} and of {other} are both of domain {domain!r}: fit each "
            "to its own domain's losses"
        )
    if len(table) == len(another) and fitted(table, another).all():
        raise PlanError(
            f"the fits of {one} and of {other} are of the same {len(table)} losses: "
            "give the fit of each domain once"
        )


def _check_order(name: str, target: pd.DataFrame, source: pd.DataFrame) -> None:
    """Replay keeps the source and costs the target; the reverse is a slip."""
    if _domain(source) == "target" or _domain(target) in ("source", name):
        raise PlanError(
            f"the fit given as target is of domain {_domain(target)!r} and that of "
            f"{name} of {_domain(source)!r}: they are swapped"
        )
    if _rise_with_replay(target) < -CLEAR and _rise_with_replay(source) > CLEAR:
        raise PlanError(
            f"the target's losses fall with replay and those of {name} rise, both "
            "clearly: target and source look swapped"
        )


def _rise_with_replay(table: pd.DataFrame) -> float:
    """Slope of log loss in replay beside log N, D and ptpp, in standard errors."""
    if not {"loss", "replay"} <= set(table) or table["replay"].nunique() < 2:
        return 0.0
    others = [c for c in ("N", "D", "ptpp") if c in table and table[c].nunique() > 1]
    logs = np.log(table[others].to_numpy(float))
    replay = table["replay"].to_numpy(float)
    design = np.column_stack([replay, logs, np.ones(len(table))])
    slope, error = _first_coefficient(design, np.log(table["loss"].to_numpy(float)))
    return slope / error if error > 0 else 0.0


def _first_coefficient(
    design: Float[np.ndarray, "row column"], y: Float[np.ndarray, " row"]
) -> tuple[float, float]:
    """Least squares: the first coefficient and its standard error; 0 where the rows do
    not tell.
    """
    rows, columns = design.shape
    if rows <= columns or np.linalg.matrix_rank(design) < columns:
        return 0.0, 0.0
    found = np.linalg.lstsq(design, y, rcond=None)[0]
    left = y - design @ found
    variance = left @ left / (rows - columns)
    covariance = variance * np.linalg.inv(design.T @ design)
    return float(found[0]), float(np.sqrt(covariance[0, 0]))

"""Build a law from a formula, such as ``"E + A/N^alpha + B/(D^beta * replay^-nu)"``.

Columns of a run table are covariates; all other names are parameters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import jax.numpy as jnp

from bayeslaw._base.errors import LawError
from bayeslaw._law.expression import (
    REFERENCE,
    Offset,
    latex,
    names,
    parse,
    split,
    units,
)
from bayeslaw._law.formula_priors import exponents_of, spelled, term_of, warn_guessed
from bayeslaw._law.law import NATS, Law, as_arrays, check_parameter_name

if TYPE_CHECKING:
    import pandas as pd

NO_COVARIATES = {
    "loss": "it is what the law predicts",
    "lr": "it is read as a column of the table to be fitted, which has none of that name; "
    "of a schedule use the areas S1_pt, S2_pt",
    "cost": "it is no covariate",
    "run": "it names runs",
    "checkpoint": "it names checkpoints",
    "domain": "it names domains",
}


def law_from_formula(
    text: str, *, name: str = "custom", columns: Mapping[str, float] | None = None
) -> Law:
    """Build a law from its formula, in the column names of a run table.

    ``columns`` names further columns of the user's table, with the value of each at the
    reference run. A formula may state their units, ``heat[degC]``, which messages repeat.

    The reference run has 1e9 parameters, 2e10 tokens, 25% replay and 30 pre-training
    tokens per parameter (change it by `Law.with_reference`). A parameter with the name
    and role of a parameter in a law of the catalogue takes that law's prior; the prior's
    source names the law. Other priors are guessed, with a warning (change them by
    `Law.with_priors`).

    Raises
    ------
    LawError
        The text is not a formula, has no column, or cannot be split into identifiable
        terms.

    Examples
    --------
    >>> law = bayeslaw.law_from_formula("E + A/N^alpha", name="size")
    >>> law.name, law.covariates
    ('size', ('N',))
    """
    tree = parse(text)
    own_columns = columns or {}
    for word in sorted(names(tree) - set(own_columns)):
        _check_name(word)
    for column, unit in units(text).items():
        if column in REFERENCE:
            raise LawError(
                f"{column}[{unit}]: the unit of {column} is the schema's; convert your "
                f'column (--column "{column}=yours*1e9")'
            )
        if column not in own_columns:
            raise LawError(
                f"{column}[{unit}]: a unit belongs to a column of your table, and "
                f"{column!r} is none"
            )
    at_reference = {**REFERENCE, **own_columns}
    reference = {c: value for c, value in at_reference.items() if c in names(tree)}
    if not reference:
        raise LawError(
            f"formula {text!r} reads no column of a run table; "
            f"columns: {', '.join(at_reference)}"
        )
    parts = split(tree, reference)
    known_law = spelled(tree, reference)
    exponents = exponents_of(parts, reference, known_law)
    medians = {e.name: jnp.asarray(e.prior.median) for e in exponents}
    terms = tuple(
        term_of(p, i, medians, reference, known_law)
        for i, p in enumerate(parts)
        if p.is_free
    )
    if not terms:
        raise LawError(f"formula {text!r} has no parameter to learn")
    floors = [t.coefficient for t in terms if t.is_floor]
    if len(floors) > 1:
        raise LawError(
            f"{' and '.join(floors)} are both constants, which no data can split; "
            "write one of them"
        )
    warn_guessed(terms, exponents)
    offset = tuple((p.sign, p.basis) for p in parts if not p.is_free)
    # fixed coefficients of terms without a coefficient in the formula
    ones = {t.coefficient for t in terms if t.prior.is_fixed}
    values = medians | {t.site: jnp.asarray(t.prior.median) for t in terms}
    law = Law(
        name=name,
        title="law by formula",
        source=f"formula {text}",
        latex=latex(tree),
        covariates=tuple(reference),
        terms=terms,
        exponents=exponents,
        reference=reference,
        plausible={},
        origin=f"formula:{text}",
        offset=Offset(offset) if offset else None,
        unpublish=lambda p: {**p, **dict.fromkeys(ones, jnp.ones(()))},
    )
    published = law.coefficients(values) | medians
    plausible = {n: float(v) for n, v in published.items() if n not in ones}
    if not math.isfinite(float(law.loss(as_arrays(reference), values))):
        at = ", ".join(f"{c} = {value:g}" for c, value in reference.items())
        raise LawError(f"formula {text!r} has no finite loss at {at}")
    return replace(law, plausible=plausible)


def table_columns(text: str, runs: pd.DataFrame) -> dict[str, float]:
    """Find the columns outside the schema that a formula reads from the user's table,
    each with its median over values above 0 (to three digits).

    Raises
    ------
    LawError
        One of these columns holds text, or has no number above 0.
    """
    columns = {}
    # lr as a column of a run table is the peak rate: a formula may read it
    refused = set(NO_COVARIATES) - {"lr"}
    for name in sorted(names(parse(text)) - set(REFERENCE) - refused):
        if name not in runs:
            continue
        if runs[name].dtype.kind not in "iuf":
            raise LawError(
                f"formula {text!r} reads column {name!r} of the table, which is not "
                "numbers; write its cells as numbers, or rename the parameter"
            )
        positive = runs[name][(runs[name] > 0) & (runs[name] < math.inf)]
        if positive.empty:
            raise LawError(
                f"formula {text!r} reads column {name!r} of the table, which has no "
                "number above 0"
            )
        columns[name] = float(f"{positive.median():.3g}")
    return columns


def units_of(law: Law) -> dict[str, str]:
    """Collect the units that a law's formula states for the user's own columns, by
    column.

    Examples
    --------
    >>> from bayeslaw._law.formula import law_from_formula, units_of
    >>> heated = "E + A/N^0.3 + B*heat[degC]"
    >>> units_of(law_from_formula(heated, columns={"heat": 20.0}))
    {'heat': 'degC'}
    """
    kind, _, text = law.origin.partition(":")
    return units(text) if kind == "formula" else {}


def _check_name(name: str) -> None:
    if name in NO_COVARIATES or name.endswith(NATS):
        why = NO_COVARIATES.get(name, "that name has a meaning of its own")
        raise LawError(f"a formula cannot use {name!r} as a name: {why}")
    columns = {"n": "N", "d": "D", "r": "replay", "p": "replay", "P": "ptpp"}
    columns |= {"PTPP": "ptpp", "atpp": "D/N"}
    if name in columns:
        raise LawError(
            f"{name!r} is no column of a run table; write {columns[name]}, "
            "or name the parameter otherwise"
        )
    check_parameter_name(name)

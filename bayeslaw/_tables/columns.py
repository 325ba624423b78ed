"""Convert users' tables to run tables: map names and units, drop trackers' prefixes, and
split rows that hold the losses of two domains.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from bayeslaw._base.errors import RunTableError, warn
from bayeslaw._base.numbers import parse_number
from bayeslaw._law.columns import LOSS_BEFORE
from bayeslaw._tables.rows.naming import (
    LOSSES,
    NAMES,
    ColumnMap,
    as_names,
    check_repeated,
)
from bayeslaw._tables.words import (
    EXPORTED,
    is_setting,
    name_words,
    unit_of_name,
    without_unit,
)


class Expression(NamedTuple):
    """Patterns of the parts of a user's expression for a column, and of cells."""

    # 1e9 in tokens_B*1e9, with the sign that comes before it
    factor: re.Pattern[str] = re.compile(
        r"\s*([*/])\s*([\d.]+(?:e[-+]?\d+)?)", re.IGNORECASE
    )
    sign: re.Pattern[str] = re.compile(r"\s*([*/])\s*")
    # the natural logarithm of a column: of a perplexity it is a loss
    logarithm: re.Pattern[str] = re.compile(r"ln\((.+)\)")
    # the square root of a column as a factor, such as the number of batches in a mean
    root: re.Pattern[str] = re.compile(r"sqrt\(([^()]+)\)")
    # a cell: a number with its unit
    stated: str = r"[-+]?[\d.,_]+(?:e[-+]?\d+)?\s*[kmbgt%]"


EXPRESSION = Expression()
# columns of a row that holds both domains' losses
BOTH = {"target": "target_loss", "source": "source_loss"}


def renamed(
    table: pd.DataFrame,
    columns: ColumnMap,
    schema: Collection[str],
) -> pd.DataFrame:
    """Rename a table's columns to the schema's.

    ``columns`` maps the user's expressions ("theirs") to names of the schema ("ours").
    An expression is a column, a product or ratio of columns and factors
    (``"tokens_B*1e9"``, ``"step*batch*length"``, ``"tokens_B*1e9/N"``), a column's
    natural logarithm (``"ln(ppl)"``), or one number for all rows (``"124M"``). A factor
    may be a column's square root (``"batch_sd/sqrt(batches)"``). A product can use
    other columns of the schema that ``columns`` makes. A tracker's prefix is dropped if
    the name without it is in the schema, not in the table, and unique.

    Raises
    ------
    RunTableError
        A column is missing, is not numeric in a product, or would occur twice.
    """
    check_repeated(table.columns)
    table = _with_bare_names(table, columns)
    pairs = pairs_of(columns)
    table = _with_roots(_with_logarithms(table, pairs), pairs)
    for theirs, ours in pairs:
        check_meaning(theirs, ours, table)
    original, table = table, _without_replaced(table, columns)
    plain = {t: o for t, o in pairs if t in table and o not in NAMES}
    out = table.rename(columns=plain)
    products = {}
    for theirs, ours in pairs:
        if theirs in original:
            if ours in NAMES and ours != theirs:
                # keep the original: a law may read the column that names runs
                out = _with_new(out, ours, as_names(original[theirs]))
            continue
        shared = _shared_number(theirs)
        if shared is not None:
            out = _with_new(out, ours, shared)
            continue
        products[ours] = parsed = product_of(theirs, _names(original, pairs, ours))
        if parsed is None:
            _refuse_name(original, _first_name(theirs), ours, schema)
    new_columns = _computed(products, original, out)
    scaled = {p.columns[0] for p in products.values() if p and len(p.columns) == 1}
    # drop columns that were only rescaled; columns of the schema, such as step, stay
    factored = [c for c in scaled if c in out and c in original and c not in schema]
    roots = [
        f"sqrt({name})"
        for theirs, _ in pairs
        for name in EXPRESSION.root.findall(theirs)
    ]
    to_drop = {*factored, *roots, *new_columns}
    out = out.drop(columns=[name for name in out if name in to_drop])
    out = out.assign(**new_columns)
    out = out.rename(columns=_exported(out.columns, schema))
    check_repeated(out.columns)
    return out


def _with_bare_names(table: pd.DataFrame, columns: ColumnMap) -> pd.DataFrame:
    """Drop the unit in brackets from names that ``columns`` writes without it."""
    bare = {str(name): without_unit(str(name)) for name in table}
    full = {*bare, *(ours for _, ours in pairs_of(columns))}
    written = {
        name for theirs in columns for name in _read(theirs, full | {*bare.values()})
    }
    short = list(bare.values())
    wanted = {
        name: b
        for name, b in bare.items()
        if b in written - full and name not in written and short.count(b) == 1
    }
    return table.rename(columns=wanted)


def as_mapping(
    columns: ColumnMap | Sequence[str] | None,
) -> ColumnMap:
    """Read a mapping of the user's expressions to names of the schema (theirs -> ours).
    It is a dictionary, or texts ``ours=theirs`` as on the command line.

    Raises
    ------
    RunTableError
        A text names no column of the schema, or two texts name the same.
    """
    if columns is None or isinstance(columns, Mapping):
        return columns or {}
    if isinstance(columns, str):
        columns = [columns]
    pairs = [text.partition("=") for text in columns]
    for ours, sign, theirs in pairs:
        if not (ours.strip() and sign and theirs.strip()):
            raise RunTableError(
                f"columns: {ours + sign + theirs!r} says nothing; write the schema's name "
                'and yours, "N=n_params", or give a mapping {"n_params": "N"}'
            )
    names = [ours.strip() for ours, _, _ in pairs]
    if len(set(names)) < len(names):
        raise RunTableError(f"columns: one name is given twice ({', '.join(names)})")
    return by_theirs({ours.strip(): theirs.strip() for ours, _, theirs in pairs})


def by_theirs(columns: Mapping[str, str]) -> dict[str, str | tuple[str, ...]]:
    """Invert a mapping ours -> theirs. A user's column may become one column that laws
    read, and any number of columns that name runs (`NAMES`).

    Raises
    ------
    RunTableError
        A user's column would become two columns that laws read.
    """
    inverted: dict[str, str | tuple[str, ...]] = {}
    several: dict[str, tuple[str, ...]] = {}
    for ours, theirs in columns.items():
        before = several.get(theirs, ())
        law_columns = [name for name in before if name not in NAMES]
        if law_columns and ours not in NAMES:
            raise RunTableError(
                f"--column {law_columns[0]}={theirs} and {ours}={theirs} read the same "
                "column; copy it under a second name"
            )
        several[theirs] = (*before, ours)
        inverted[theirs] = several[theirs] if before else ours
    return inverted


def replaced(table: pd.DataFrame, columns: ColumnMap) -> list[str]:
    """List the table's columns that ``columns`` replaces by other columns."""
    names = set(map(str, table.columns))
    inputs = {name for theirs in columns for name in _read(theirs, names)}
    return [
        ours for _, ours in pairs_of(columns) if ours in names and ours not in inputs
    ]


def is_there(
    theirs: str, ours: str, names: Collection[str], products: Collection[str] = ()
) -> bool:
    """Tell whether `renamed` can make ``ours`` from ``theirs``, in a table with columns
    ``names`` and computed columns ``products``. If the table has ``ours`` already, a
    number or a product of computed columns does not replace it.
    """
    if theirs in names:
        return True
    if _shared_number(theirs) is not None:
        return ours not in names
    inputs = _read(theirs, {*names, *products})
    # Users may pass a table that `renamed` has returned. Its columns must not be
    # computed a second time.
    return bool(inputs) and not (
        set(inputs) <= set(products) | {ours} and ours in names
    )


def pairs_of(columns: ColumnMap) -> list[tuple[str, str]]:
    """List pairs (theirs, ours); one expression of theirs can have several of ours."""
    return [
        (theirs, name)
        for theirs, ours in columns.items()
        for name in ([ours] if isinstance(ours, str) else ours)
    ]


def _with_logarithms(
    table: pd.DataFrame, pairs: Sequence[tuple[str, str]]
) -> pd.DataFrame:
    """Add the logarithms that ``pairs`` read, each under its expression, ``ln(...)``.

    Raises
    ------
    RunTableError
        A number has no logarithm.
    """
    for theirs, _ in pairs:
        inner = EXPRESSION.logarithm.fullmatch(theirs)
        if theirs in table or inner is None or inner[1] not in table:
            continue
        numbers = _plain_numbers(table[inner[1]], inner[1])
        if (numbers <= 0).any():
            raise RunTableError(
                f"column {theirs!r}: {numbers.min():g} has no logarithm; a perplexity "
                "is at least 1"
            )
        written = table[inner[1]]
        unread = written.where(numbers.isna()).astype(object)
        table = table.assign(**{theirs: _with_unread(numbers.map(np.log), unread)})
    return table


def _with_roots(table: pd.DataFrame, pairs: Sequence[tuple[str, str]]) -> pd.DataFrame:
    """Add the square roots that products read, each under its expression,
    ``sqrt(...)``.

    Raises
    ------
    RunTableError
        A number below 0 has no square root.
    """
    roots = {}
    for inner in (
        name for theirs, _ in pairs for name in EXPRESSION.root.findall(theirs)
    ):
        root = f"sqrt({inner})"
        if root in table or inner not in table:
            continue
        numbers = _plain_numbers(table[inner], inner)
        if (numbers < 0).any():
            raise RunTableError(
                f"column {root!r}: {numbers.min():g} has no square root"
            )
        unread = table[inner].where(numbers.isna()).astype(object)
        roots[root] = _with_unread(numbers**0.5, unread)
    return table.assign(**roots)


def _shared_number(theirs: str) -> float | None:
    """Parse a number given in place of a column; None if ``theirs`` is no number."""
    try:
        return parse_number(theirs)
    except RunTableError:
        return None


def _with_new(
    table: pd.DataFrame, ours: str, values: float | pd.Series
) -> pd.DataFrame:
    """Add a column under a name that the table does not have yet."""
    if ours in table:
        raise RunTableError(
            f"the table has a column {ours!r} already; rename or drop it to give another"
        )
    return table.assign(**{ours: values})


class ColumnProduct(NamedTuple):
    """A product of columns, each to the power 1 or -1 in ``powers``, and a factor."""

    columns: tuple[str, ...]
    powers: tuple[int, ...]
    factor: float


def product_of(text: str, names: Collection[str]) -> ColumnProduct | None:
    """Parse products and ratios of columns, matching the longest of ``names`` first;
    None if a name is unknown.

    Raises
    ------
    RunTableError
        A factor is no number above 0.
    """
    by_length = sorted(names, key=len, reverse=True)
    columns: list[str] = []
    powers: list[int] = []
    factor, unread, power = 1.0, text.strip(), 1
    while True:
        name = next((n for n in by_length if _begins(unread, n)), None)
        number = EXPRESSION.factor.match("*" + unread)
        if name is not None:
            columns.append(name)
            powers.append(power)
            unread = unread[len(name) :]
        elif number:
            factor *= _factor(number[2], text) ** power
            unread = unread[number.end() - 1 :]
        else:
            return None
        sign = EXPRESSION.sign.match(unread)
        if sign is None:
            is_whole = not unread.strip() and bool(columns)
            return (
                ColumnProduct(tuple(columns), tuple(powers), factor)
                if is_whole
                else None
            )
        power = 1 if sign[1] == "*" else -1
        unread = unread[sign.end() :]


def _begins(text: str, name: str) -> bool:
    """Tell whether a text begins with a name, followed by * or / or nothing."""
    unread = text[len(name) :]
    return text.startswith(name) and (
        not unread.strip() or bool(EXPRESSION.sign.match(unread))
    )


def _factor(digits: str, text: str) -> float:
    """Parse a factor of a column, a finite number above 0."""
    try:
        number = float(digits)
        usable = math.isfinite(number) and number > 0 and math.isfinite(1 / number)
    except ValueError:
        usable = False
    if not usable:
        raise RunTableError(
            f"column {text!r}: {digits} is no factor; "
            f"write a number above 0, like {_first_name(text)}*1e9"
        )
    return number


def _first_name(text: str) -> str:
    """Take the text before the first factor."""
    end = EXPRESSION.factor.search(text)
    return text[: end.start()].strip() if end and end.start() else text


def _read(theirs: str, names: Collection[str]) -> tuple[str, ...]:
    """List the columns that ``theirs`` reads; none if it is a number."""
    inner = EXPRESSION.logarithm.fullmatch(theirs)
    if inner is not None and inner[1] in names:
        return (inner[1],)
    if theirs in names:
        return (theirs,)
    theirs = EXPRESSION.root.sub(r"\1", theirs)
    product = None if _shared_number(theirs) is not None else product_of(theirs, names)
    return product.columns if product else ()


def _names(
    table: pd.DataFrame, pairs: Sequence[tuple[str, str]], ours: str
) -> set[str]:
    """Collect the names that the product for ``ours`` may read: all columns, old and
    new; ``ours`` only if the table has it already.
    """
    names = {*map(str, table.columns), *(target for _, target in pairs)}
    return names if ours in table else names - {ours}


def _computed(
    products: Mapping[str, ColumnProduct | None],
    original: pd.DataFrame,
    out: pd.DataFrame,
) -> dict[str, pd.Series]:
    """Compute the products, in order of their dependence.

    Raises
    ------
    RunTableError
        A column is not numeric, or two products depend on each other.
    """
    columns: dict[str, pd.Series] = {}
    waiting = {ours: p for ours, p in products.items() if p is not None}
    while waiting:
        ready = [
            ours
            for ours, product in waiting.items()
            if not set(product.columns) & (set(waiting) - {ours})
        ]
        if not ready:
            raise RunTableError(
                f"columns {' and '.join(waiting)} are each made from the other; name "
                "columns of the table"
            )
        for ours in ready:
            product = waiting.pop(ours)
            values: float | pd.Series = _factors(product, original, ours)
            unread = pd.Series(None, index=original.index, dtype=object)
            for name, power in zip(product.columns, product.powers, strict=True):
                if name in columns:
                    column = columns[name]
                else:
                    # prefer the renamed table's column, except for ``ours`` itself
                    is_kept = name in out and name != ours
                    column = out[name] if is_kept else original[name]
                numbers = _plain_numbers(column, name)
                values = values * numbers**power
                texts = column.where(numbers.isna()).astype(object)
                is_empty = unread.isna()
                unread[is_empty] = texts[is_empty]
            columns[ours] = _with_unread(
                pd.Series(values, index=original.index), unread
            )
    return columns


def _factors(
    product: ColumnProduct,
    table: pd.DataFrame,
    ours: str,
    units: Collection[float] = (1e3, 1e6, 1e9, 1e12, 0.01),
) -> float | pd.Series:
    """Return the factor of each row: 1, with a warning, where the cell states its unit
    itself, as ``25%`` does in ``mix/100``.
    """
    factor = product.factor
    is_unit = len(product.columns) == 1 and factor in units
    cells = table.get(product.columns[0])
    if not is_unit or cells is None or pd.api.types.is_numeric_dtype(cells):
        return factor
    stated = cells.astype(str).str.strip().str.fullmatch(EXPRESSION.stated, case=False)
    stated = stated.fillna(False).astype(bool)
    if not stated.any():
        return factor
    name, first = product.columns[0], cells[stated].iloc[0]
    warn(
        f"{int(stated.sum())} cells of {name!r} state their unit themselves ({first}): "
        f"they are read as written, and the factor of {ours!r} is left out there"
    )
    return pd.Series(np.where(stated, 1.0, factor), table.index)


def _with_unread(values: pd.Series, unread: pd.Series) -> pd.Series:
    """Put cells that are not numbers back as text: an error follows only if their rows
    are used.
    """
    is_text = unread.notna()
    return values.astype(object).mask(is_text, unread) if is_text.any() else values


def _plain_numbers(column: pd.Series, name: str) -> pd.Series:
    """Convert a column to numbers; other cells become NaN.

    Raises
    ------
    RunTableError
        No cell is a number, or cells are truth values.
    """
    numbers = column.map(_number_or_nan).astype(float)
    written = column.notna()
    if pd.api.types.is_bool_dtype(column) or (
        written.any() and not numbers[written].notna().any()
    ):
        raise RunTableError(
            f"column {name!r} is not numbers, so nothing can be made of it"
        )
    return numbers


def _number_or_nan(cell: object) -> float:
    try:
        return parse_number(cell)
    except (RunTableError, ValueError, TypeError):
        return math.nan


def _without_replaced(table: pd.DataFrame, columns: ColumnMap) -> pd.DataFrame:
    """Drop the columns of `replaced`, with a warning for each."""
    theirs = {ours: name for name, ours in pairs_of(columns)}
    names = set(map(str, table.columns))
    to_drop = [o for o in replaced(table, columns) if _read(theirs[o], names)]
    for ours in to_drop:
        warn(
            f"column {ours!r} is read from {theirs[ours]!r} as asked for; the table's "
            f"own {ours!r} is left out"
        )
    return table.drop(columns=to_drop)


def _divides(theirs: str, table: pd.DataFrame) -> bool:
    """Tell whether ``theirs`` divides by a column."""
    names = {*map(str, table.columns), "N"}
    product = None if theirs in table else product_of(theirs, names)
    return product is not None and -1 in product.powers


def check_meaning(theirs: str, ours: str, table: pd.DataFrame) -> None:
    """Refuse a column whose name contradicts its use: tokens as tokens per parameter,
    bits per byte or a perplexity as nats per token.
    """
    is_name = theirs in table
    words = set(name_words(theirs))
    is_ratio = words & {"per", "ratio", "tpp", "ptpp"}
    is_tokens = words & {"tokens", "tok", "toks"} and not is_ratio
    if ours == "ptpp" and is_tokens and not _divides(theirs, table):
        factor = unit_of_name(theirs) if is_name else ""
        raise RunTableError(
            f"{theirs!r} is tokens by its name, and ptpp is pre-training tokens per "
            f'parameter: write --column "ptpp={theirs}{factor}/N" (rename it if it is '
            "per parameter)"
        )
    is_plain = is_name and not EXPRESSION.logarithm.fullmatch(theirs)
    if "loss" in ours and is_plain and words & {"ppl", "perplexity"}:
        raise RunTableError(
            f"{theirs!r} is a perplexity by its name, and {ours} is nats per token: "
            f'write --column "{ours}=ln({theirs})"'
        )
    if "loss" in ours and is_name and words & {"bpb", "bits"}:
        raise RunTableError(
            f"{theirs!r} is by its name {in_nats_per_token(theirs, ours)}"
        )


def in_nats_per_token(theirs: str, ours: str) -> str:
    """Say which bits a column is by its name, and the mapping that makes nats per token
    of it.
    """
    words = set(name_words(theirs))
    if words & {"tok", "toks", "token", "tokens", "bpt"}:
        return (
            f"bits per token, and {ours} is nats per token: write --column "
            f'"{ours}={theirs}*0.6931"'
        )
    what = (
        "bits per byte"
        if words & {"bpb", "byte", "bytes"}
        else ("bits per byte, if not per token (then without the last factor)")
    )
    return (
        f"{what}, and {ours} is nats per token: write --column "
        f'"{ours}={theirs}*0.6931*BYTES_PER_TOKEN" with your bytes per token (a number '
        f"or a column), or {theirs}*0.6931 for nats per byte"
    )


def _refuse_name(
    table: pd.DataFrame, theirs: str, ours: str, schema: Collection[str]
) -> None:
    """Raise an error about a missing column, with the likely name or the right order."""
    there = [str(c) for c in table.columns]
    if ours in there and theirs in schema:
        raise RunTableError(
            f"the table has no column {theirs!r} to read as {ours!r}; the other way "
            f"round? on the command line the schema's name comes first, --column "
            f"{theirs}={ours}, in Python yours, columns={{{ours!r}: {theirs!r}}}"
        )
    close = difflib.get_close_matches(theirs, there, 1, 0.6)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    raise RunTableError(
        f"the table has no column {theirs!r} to read as {ours!r}{hint}; "
        f"it has: {', '.join(there)}"
    )


def _exported(columns: pd.Index, schema: Collection[str]) -> dict[str, str]:
    """Map columns of a tracker's export to names of the schema, where only one column
    matches a name.
    """
    meant: dict[str, list[str]] = {}
    for name in map(str, columns):
        match = EXPORTED.fullmatch(name)
        if match and is_setting(name) and match[1] in LOSSES:
            # config.loss is a setting (the name of the loss function), not a measurement
            continue
        if match and match[1] in schema and match[1] not in columns:
            meant.setdefault(match[1], []).append(name)
    return {theirs[0]: ours for ours, theirs in meant.items() if len(theirs) == 1}


def melt_losses(
    runs: pd.DataFrame,
    evaluations: Mapping[str, str] | None = None,
    unread: Mapping[str, Collection[int]] | None = None,
) -> pd.DataFrame:
    """Melt ``target_loss`` and ``source_loss``, or the columns of ``evaluations`` (by
    name of the set), to one row per loss. A table with loss or domain is unchanged.

    The rows made from one row keep its index. In rows of the target, ``loss_before`` is
    ``target_loss_before`` if the table has it; rows of the source likewise. Rows
    without a loss are dropped, except those that are ``unread`` (by column), which hold
    text.
    """
    by_domain = evaluations or BOTH
    if {"loss", "domain"} & set(runs) or not set(by_domain.values()) <= set(runs):
        return runs
    parts = []
    for domain, column in by_domain.items():
        text = runs.index.isin(list((unread or {}).get(column, ())))
        measured = runs[column].notna() | text
        part = runs.assign(loss=runs[column], domain=domain)
        part = part.drop(columns=list(by_domain.values()))
        before = f"{domain}_loss_before"
        if before in runs:
            part[LOSS_BEFORE] = runs[before]
        parts.append(part[measured])
    return pd.concat(parts)

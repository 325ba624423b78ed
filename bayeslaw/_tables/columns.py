"""Convert users' tables to run tables: map names and units, drop trackers' prefixes, and
split rows that hold the losses of two domains.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

import pandas as pd

from bayeslaw._base.errors import RunTableError, warn
from bayeslaw._law.columns import LOSS_BEFORE
from bayeslaw._tables import expression, words
from bayeslaw._tables.expression import columns_read, parse, shared_number
from bayeslaw._tables.rows import naming
from bayeslaw._tables.rows.naming import NAMES, check_repeated
from bayeslaw._tables.words import EXPORTED, is_setting, name_words, without_unit

# columns of a row that holds both domains' losses
BOTH = {"target": "target_loss", "source": "source_loss"}


def renamed(
    table: pd.DataFrame, pairs: Sequence[tuple[str, str]], schema: Collection[str]
) -> pd.DataFrame:
    """Rename a table's columns to the schema's.

    ``pairs``: the user's expressions ("theirs") with names of the schema ("ours"): a
    column, a product, ratio or sum of columns and numbers (``"tokens_B*1e9"``,
    ``"old/(old+new)"``), also of a column's logarithm or square root (``"ln(ppl)"``,
    ``"batch_sd/sqrt(batches)"``), or one number for all rows (``"124M"``). It can use
    other columns of the schema that ``pairs`` make. A tracker's prefix is dropped if
    the name without it is in the schema, not in the table, and unique.
    """
    check_repeated(table.columns)
    # names that are written without their unit in brackets lose it
    bare = {str(name): without_unit(str(name)) for name in table}
    full = {*bare, *(ours for _, ours in pairs)}
    written = {n for t, _ in pairs for n in columns_read(t, full | {*bare.values()})}
    times = Counter(bare.values())
    table = table.rename(
        columns={
            name: short
            for name, short in bare.items()
            if short in written - full and name not in written and times[short] == 1
        }
    )
    there = {*map(str, table)}
    for theirs, ours in pairs:
        check_meaning(theirs, ours, table)

    # what other columns replace is left out; columns that are numbers are renamed
    made_of = {ours: theirs for theirs, ours in pairs if columns_read(theirs, there)}
    left_out = [ours for ours in replaced(table, pairs) if ours in made_of]
    for ours in left_out:
        warn(
            f"column {ours!r} is read from {made_of[ours]!r} as asked for; the table's "
            f"own {ours!r} is left out"
        )
    out = table.drop(columns=left_out)
    plain = {t: o for t, o in pairs if t in out and o not in NAMES}
    out = out.rename(columns=plain)

    read: dict[str, expression.Expression] = {}
    for theirs, ours in pairs:
        # of a column that names runs the original stays: a law may read it
        names_runs = theirs in table and ours in NAMES and ours != theirs
        shared = None if theirs in table else shared_number(theirs)
        if names_runs or shared is not None:
            if ours in out:
                raise RunTableError(
                    f"the table has a column {ours!r} already; rename or drop it to give "
                    "another"
                )
            cells = naming.as_names(table[theirs]) if names_runs else shared
            out = out.assign(**{ours: cells})
        elif theirs not in table:
            new = {name for _, name in pairs if name != ours}
            parsed = parse(theirs, there | new)
            if parsed is None:
                raise _no_column(table, expression.first_name(theirs), ours, schema)
            read[ours] = parsed

    # columns that are made of others, in order of their dependence
    made = {ours: {*of.columns} & ({*read} - {ours}) for ours, of in read.items()}
    try:
        in_order = [*TopologicalSorter(made).static_order()]
    except CycleError as error:
        raise RunTableError(
            f"columns {' and '.join(error.args[1][1:])} are each made from the other; "
            "name columns of the table"
        ) from None
    computed: dict[str, pd.Series] = {}
    for ours in in_order:
        # the renamed table's column, but for the one that is made
        own = {*read[ours].columns} - {*computed}
        cells = {n: (out if n in out and n != ours else table)[n] for n in own}
        computed[ours] = read[ours].of(computed | cells, ours)
    # columns that were only rescaled are dropped; those of the schema, as step, stay
    rescaled = {of.columns[0] for of in read.values() if of.factor is not None}
    to_drop = {*computed, *((rescaled & there) - {*schema})}
    out = out.drop(columns=[name for name in out if name in to_drop])
    out = out.assign(**computed)

    # a tracker's prefix is dropped where only one column then has a name of the schema;
    # config.loss is a setting (the name of the loss function), not a measurement
    bare = {n: match[1] for n in map(str, out) if (match := EXPORTED.fullmatch(n))}
    meant = {
        name: ours
        for name, ours in bare.items()
        if ours in schema
        and ours not in out
        and not (is_setting(name) and ours in naming.LOSSES)
    }
    times = Counter(meant.values())
    out = out.rename(columns={n: ours for n, ours in meant.items() if times[ours] == 1})
    check_repeated(out.columns)
    return out


def pairs_of(columns: naming.ColumnMap | Sequence[str] | None) -> list[tuple[str, str]]:
    """List the pairs (theirs, ours) of a mapping of the user's expressions to names of
    the schema: a dictionary, or texts ``ours=theirs`` as on the command line.

    By texts, a user's column may become one column that laws read, and any number of
    columns that name runs (`NAMES`).
    """
    if isinstance(columns, Mapping):
        return [
            (theirs, name)
            for theirs, ours in columns.items()
            for name in ([ours] if isinstance(ours, str) else ours)
        ]
    pairs: list[tuple[str, str]] = []
    read_by: dict[str, str] = {}
    for text in [columns] if isinstance(columns, str) else columns or []:
        ours, sign, theirs = map(str.strip, text.partition("="))
        if not (ours and sign and theirs):
            raise RunTableError(
                f"columns: {text!r} says nothing; write the schema's name "
                'and yours, "N=n_params", or give a mapping {"n_params": "N"}'
            )
        if any(ours == name for _, name in pairs):
            raise RunTableError(f"columns: the name {ours} is given twice")
        pairs.append((theirs, ours))
        if ours not in NAMES and read_by.setdefault(theirs, ours) != ours:
            raise RunTableError(
                f"--column {read_by[theirs]}={theirs} and {ours}={theirs} read the same "
                "column; copy it under a second name"
            )
    return pairs


def replaced(table: pd.DataFrame, pairs: Sequence[tuple[str, str]]) -> list[str]:
    """List the table's columns that ``pairs`` replace by other columns."""
    names = set(map(str, table.columns))
    inputs = {name for theirs, _ in pairs for name in columns_read(theirs, names)}
    return [ours for _, ours in pairs if ours in names and ours not in inputs]


def check_meaning(theirs: str, ours: str, table: pd.DataFrame) -> None:
    """Refuse a column whose name contradicts its use as ptpp, or as nats per token."""
    is_name, of_name = theirs in table, {*name_words(theirs)}
    is_loss = "loss" in ours and is_name
    meaning = ""
    if ours == "ptpp" and of_name & words.TOKENS and not of_name & words.OF_A_RATIO:
        read = None if is_name else parse(theirs, {*map(str, table.columns), "N"})
        factor = words.unit_of_name(theirs) if is_name else ""
        if read is None or not read.divides:
            meaning = (
                "tokens by its name, and ptpp is pre-training tokens per parameter: write "
                f'--column "ptpp={theirs}{factor}/N" (rename it if it is per parameter)'
            )
    elif is_loss and of_name & words.PERPLEXITY:
        meaning = (
            f"a perplexity by its name, and {ours} is nats per token: write --column "
            f'"{ours}={words.in_nats(theirs)}"'
        )
    elif is_loss and of_name & words.BITS:
        meaning = f"by its name {words.in_nats_per_token(theirs, ours)}"
    if meaning:
        raise RunTableError(f"{theirs!r} is {meaning}")


def _no_column(
    table: pd.DataFrame, theirs: str, ours: str, schema: Collection[str]
) -> RunTableError:
    there = [str(c) for c in table.columns]
    close = difflib.get_close_matches(theirs, there, 1, 0.6)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    hint += f"; it has: {', '.join(there)}"
    if ours in there and theirs in schema:
        hint = (
            "; the other way round? on the command line the schema's name comes first, "
            f"--column {theirs}={ours}, in Python yours, columns={{{ours!r}: {theirs!r}}}"
        )
    what = f"column {theirs!r} to read as {ours!r}"
    return RunTableError(f"the table has no {what}{hint}")


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
        part = runs.drop(columns=list(by_domain.values()))
        part = part.assign(loss=runs[column], domain=domain)
        if f"{domain}_loss_before" in runs:
            part[LOSS_BEFORE] = runs[f"{domain}_loss_before"]
        parts.append(part[runs[column].notna() | text])
    return pd.concat(parts)

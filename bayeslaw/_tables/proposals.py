"""Propose which of a table's columns are the schema's, from their names and ranges.
Proposals are printed, never applied.
"""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bayeslaw._base.errors import RunTableError
from bayeslaw._base.terminal import quote
from bayeslaw._law.columns import LOSSES_BEFORE, is_share
from bayeslaw._tables import words
from bayeslaw._tables.before import complete_losses, finished_query, with_stages
from bayeslaw._tables.columns import columns_read, melt_losses, renamed
from bayeslaw._tables.rows.cells import read_numbers
from bayeslaw._tables.rows.naming import LOSSES
from bayeslaw._tables.sources.points import step_factors
from bayeslaw._tables.words import SPELLINGS, UNITS, Spelling, last_part, name_words

if TYPE_CHECKING:
    from jaxtyping import Float


def it_has(runs: pd.DataFrame) -> str:
    """List the table's columns, and how to map them, at the end of an error."""
    return f"it has: {', '.join(map(str, runs.columns))}{mapping_hint(runs)}"


def check_columns(
    table: pd.DataFrame, names: Iterable[str], why: str = "", what: str = "the table"
) -> None:
    """Refuse a table without one of these columns. ``why`` says for what it is needed."""
    for name in names:
        if name not in table:
            raise RunTableError(f"{what} lacks column {name!r}{why}; {it_has(table)}")


def mapping_hint(runs: pd.DataFrame) -> str:
    """Propose command line options that map likely columns; empty if none is likely, or
    several equally. Units are read from names, else guessed from ranges, and it is
    said.
    """
    columns = Columns(runs)
    meant = _propose_columns(columns)
    hint = ""
    if meant:
        options = [_write_option(ours, theirs) for ours, theirs in meant.items()]
        query = _propose_rows(runs, meant)
        options += [f'--where "{query}"'] if query else []
        ours, theirs = next(iter(meant.items()))
        hint = (
            f"; perhaps {' '.join(options)} (in Python "
            f'columns=["{ours}={theirs}", ...], and where=)'
        )
    units = [ours for ours in meant if not is_share(ours) and _is_guess(meant[ours])]
    if units:
        hint += f" (unit of {' and '.join(units)} guessed from the range: check it)"
    read = {ours: columns_read(theirs, columns.names) for ours, theirs in meant.items()}
    of_domain = {d: read.get(f"{d}_loss", ()) for d in ("target", "source")}
    if any(d not in columns.words[n] for d, names in of_domain.items() for n in names):
        hint += " (which loss is the source's is guessed from its name: check it)"
    return hint + "".join(f"; {note}" for note in _write_notes(columns, meant, read))


def _is_guess(theirs: str) -> bool:
    """Tell whether a column has a factor that its name does not state."""
    rescaled = re.fullmatch(r"(.+)(\*1e[369]|/100)(/N)?", theirs)
    return rescaled is not None and rescaled[2] != words.unit_of_name(rescaled[1])


def foreign_names(runs: pd.DataFrame) -> list[str]:
    """Write a line if size, tokens or loss are likely there under other names."""
    missing = {"N", "D", "loss"} - {*map(str, runs.columns)}
    likely = missing & {*_propose_columns(Columns(runs))} if missing else set()
    if not likely:
        return []
    names = " and ".join(sorted(likely))
    return [f"no column is called {names}, and none is renamed unasked; {it_has(runs)}"]


def losses_hint(runs: pd.DataFrame) -> str:
    """Say how to name the losses, and which columns look like some by their values."""
    columns = Columns(runs)
    if columns.losses and not {*LOSSES} & {*columns.names}:
        return ""
    alike = [name for name in columns.names if columns.is_like_losses(name)]
    by_range = f" (by their values perhaps {', '.join(alike[:4])})" if alike else ""
    return (
        "; name the loss: --column loss=YOURS, or two by --column target_loss=YOURS "
        f"--column source_loss=YOURS{by_range}"
    )


def _propose_columns(columns: Columns) -> dict[str, str]:
    meant = _propose_covariates(columns) | _propose_losses(columns)
    factors = step_factors(columns.rows)
    if columns.step and len(factors) == 1 and "D" not in {*columns.names, *meant}:
        meant["D"] = f"{columns.step}*{factors[0]}"
    mixture = _propose_mixture(columns, meant)
    # a mixture's losses of sets stand in place of those of target and source
    has_sets = any(ours.startswith("loss_") for ours in mixture)
    for ours in ("replay", *(LOSSES if has_sets else ())) if mixture else ():
        meant.pop(ours, None)
    return meant | mixture


def _write_option(ours: str, theirs: str) -> str:
    return f"--column {quote(f'{ours}={theirs}')}"


def _propose_rows(runs: pd.DataFrame, meant: Mapping[str, str]) -> str:
    """Write the query that leaves out unfinished runs, rows without a loss, and rows
    without the loss of their checkpoint, after reading the table with the proposed
    names.
    """
    parts = [finished_query(runs)]
    if any("before" in ours for ours in [*meant, *map(str, runs.columns)]):
        pairs = [(theirs, ours) for ours, theirs in meant.items()]
        # reading the table for the fit raises the same errors
        errors = contextlib.suppress(RunTableError, TypeError, ValueError)
        with warnings.catch_warnings(), errors:
            warnings.simplefilter("ignore")
            table = melt_losses(with_stages(renamed(runs, pairs, [*meant])))
            table = complete_losses(table.reset_index(drop=True))
            domains = table["domain"] if "domain" in table else np.zeros(len(table))
            for column in (c for c in LOSSES_BEFORE if c in table):
                is_empty = table[column].isna()
                # the losses of a domain may be empty in all of its rows
                if is_empty.any() and not is_empty.groupby(domains).all().any():
                    parts.append(f"{column}.notna()")
    loss = meant.get("loss")
    if loss in runs and runs[loss].isna().any():
        parts.append("loss > 0")
    return " and ".join(filter(None, parts))


class Columns:
    """Names of a table's columns with their words, and the values of those of numbers.
    ``rows``: those that are looked at. ``step``: the column of a run's steps.
    """

    def __init__(self, runs: pd.DataFrame, most: int = 10_000):
        self.names = [str(name) for name in runs.columns]
        self.rows = runs.head(most).set_axis(self.names, axis=1)
        self.words = {name: {*name_words(name)} for name in self.names}
        self.named = {name: words.named_words(name) for name in self.names}
        numbers = {name: read_numbers(self.rows[name]) for name in self.names}
        self.values: dict[str, Float[np.ndarray, " row"]] = {
            name: values[np.isfinite(values)].to_numpy()
            for name, (values, unread) in numbers.items()
            if not unread
        }
        last = {last_part(name): name for name in self.names}
        self.step = next((last[name] for name in words.STEP if name in last), None)

    def middle(self, name: str, unit: str = "") -> float | None:
        values = self.values.get(name, np.zeros(0))
        return float(np.median(values)) * UNITS[unit] if len(values) else None

    def has_own_units(self, name: str) -> bool:
        """Tell whether cells state their unit themselves, as 20B and 34% do."""
        plain = pd.to_numeric(self.rows[name], errors="coerce").notna()
        return bool(len(self.values[name])) and not plain.any()

    @cached_property
    def losses(self) -> list[str]:
        """Columns of measured losses, else of perplexities, else of bits, else of
        evaluations whose values look like losses; of these the evaluated ones, else those
        that are not of training.
        """
        settings = {*filter(words.is_setting, self.names)}
        measured: list[str] = []
        for wanted, foreign in words.MEASURES:
            others = foreign | words.NOT_MEASURED
            kind = [n for n in self.values if wanted & {*self.named[n]}]
            kind = [n for n in kind if not others & {*self.named[n]}]
            if wanted is words.EVALUATION:
                kind = [*filter(self.is_like_losses, kind)]
            measured = measured or [n for n in kind if n not in settings]
        evaluated = [n for n in measured if self.words[n] & words.EVALUATION]
        untrained = [n for n in measured if not self.words[n] & words.TRAINING]
        return evaluated or untrained or measured

    def is_like_losses(self, name: str) -> bool:
        """Tell whether most numbers have the size of losses, with decimals."""
        values = self.values.get(name, np.zeros(0))
        # 13: ln of the largest vocabularies
        is_like = (values > 0.3) & (values < 13) & (values != np.round(values, 1))
        return len(values) >= 2 and float(is_like.mean()) > 0.8

    @cached_property
    def spelled(self) -> dict[Spelling, list[list[str]]]:
        """The columns of numbers that match each name of each spelling."""
        return {
            spelling: [*self._match(spelling)]
            for spelling in SPELLINGS
            if not (spelling.without_steps and self.step)
        }

    def _match(self, spelling: Spelling) -> Iterator[list[str]]:
        usual = {word for name in spelling.names for word in name.split()}
        usual |= {*words.FACTORS, "n", "num", "base", "lm"}
        low, high = spelling.between
        named = {}
        for name, values in self.values.items():
            unit = "" if self.has_own_units(name) else words.unit_of_name(name)
            numbers = values * UNITS[unit]
            is_between = np.all((numbers >= low) & (numbers <= high))
            if is_between and not spelling.foreign & {*self.named[name]}:
                named[name] = self.named[name]
        for name in spelling.names:
            alike = {c: words.likeness(of, name.split()) for c, of in named.items()}
            best = max([1, *alike.values()])
            columns = [column for column, like in alike.items() if like == best]
            # a setting that all runs share tells less than one that they differ in
            columns = [c for c in columns if self.rows[c].nunique() > 1] or columns
            if name in spelling.vague:
                columns = [c for c in columns if {*named[c]} <= usual]
            yield columns


def _propose_covariates(columns: Columns) -> dict[str, str]:
    meant: dict[str, str] = {}
    size = columns.middle("N")
    for spelling, found in columns.spelled.items():
        is_stage = spelling.ours == "pretrain_tokens"
        ours = "ptpp" if is_stage else spelling.ours
        theirs = next((of[0] for of in found if len(of) == 1), None)
        is_there = {ours, spelling.ours} & {*columns.names, *meant}
        if is_there or spelling.is_rival or theirs is None:
            continue
        unit = _find_unit(columns, "D" if is_stage else ours, theirs, size)
        if ours == "N":
            size = columns.middle(theirs, unit)
        if size or not is_stage:
            meant[ours] = f"{theirs}{unit}{'/N' * is_stage}"
    return meant


def _find_unit(columns: Columns, ours: str, theirs: str, size: float | None) -> str:
    """Find a column's factor by its name, else by its range, which is a guess."""
    values, named = columns.values[theirs], words.unit_of_name(theirs)
    if not len(values):
        return named
    if columns.has_own_units(theirs):
        return ""
    least, most = float(values.min()), float(values.max())
    largest = {"N": 1e13, "D": 1e14, "U": 1e14}.get(ours, np.inf)
    # tokens_M with values of 1e12: the unit is applied already
    if named and most * UNITS[named] <= largest:
        return named
    if ours == "replay" and 1 < most <= 100:
        return "/100"
    # no model or corpus is this small: the column is in millions or billions
    if ours == "N" and most < 2e4:
        # 14, 70, 410 are millions; 7, 13, 70 or .4, 1.4 are billions
        return "*1e6" if least >= 10 and most > 100 else "*1e9"
    if ours in ("D", "U") and most < 1e4:
        # 20 tokens per parameter is between adaptation and pre-training: the unit that
        # comes nearest to 20 in log
        usual = float(np.median(values)) / (20 * size) if size else 1e-9
        return min(("*1e6", "*1e9"), key=lambda unit: abs(np.log(usual * UNITS[unit])))
    return ""


def _propose_losses(columns: Columns) -> dict[str, str]:
    """Find losses of target and source, else one; of two also those before."""
    if {*LOSSES} & {*columns.names}:
        return {}
    best, named = columns.losses, columns.words
    of_domain = {d: [n for n in best if d in named[n]] for d in ("target", "source")}
    if any(len(names) != 1 for names in of_domain.values()):
        general = [name for name in best if words.CORPORA & named[name]]
        if len(best) != 2 or len(general) != 1:
            return {"loss": words.in_nats(*best)} if len(best) == 1 else {}
        of_domain = {"target": [n for n in best if n not in general], "source": general}
    chosen = {domain: name for domain, (name,) in of_domain.items()}
    losses = {f"{d}_loss": words.in_nats(name) for d, name in chosen.items()}
    common = set.intersection(*(named[name] for name in chosen.values()))
    for domain, name in chosen.items():
        ours, own = f"{domain}_loss_before", named[name] - common
        starts = [
            start
            for start in columns.values
            if words.START & named[start]
            and own & named[start]
            and (words.OF_LOSSES & named[start] or columns.is_like_losses(start))
        ]
        if len(starts) == 1 and ours not in columns.names:
            losses[ours] = words.in_nats(*starts)
    return losses


def _propose_mixture(columns: Columns, meant: Mapping[str, str]) -> dict[str, str]:
    """Propose the shares of a mixture, and a loss for each evaluation set: columns named
    like the sets of losses (``web`` or ``web %`` beside ``loss_web``), or with a word of
    shares, whose rows sum to one or 100.
    """
    if any(map(is_share, columns.names)):
        return {}
    losses = {n.removeprefix("loss_"): n for n in columns.names if n[:5] == "loss_"}
    # else by the words that tell them apart
    usual = {"nll", "ce"} | words.OF_LOSSES | words.EVALUATION | words.BITS
    losses = losses or {
        "_".join(word for word in name_words(column) if word not in usual): column
        for column in columns.losses
    }
    losses = {} if "" in losses else losses
    own_words = {
        column: [word for word in columns.named[column] if word not in words.SHARES]
        for column in columns.values
    }
    shares = {}
    for name in sorted(losses):
        alike = [
            c for c, own in own_words.items() if name_words(name) == own or c == name
        ]
        shares |= {name: alike[0]} if len(alike) == 1 else {}
    if len(shares) < 2:
        # columns with a word of shares, if they sum to one or 100 in most rows
        shares = {
            "_".join(own): column
            for column, own in own_words.items()
            if own
            and len(own) < len(columns.named[column])
            and len(values := columns.values[column]) == len(columns.rows)
            and values.min() >= 0
            and values.max() <= 100
        }
        total = sum((columns.values[c] for c in shares.values()), np.zeros(1))
        whole = (np.abs(total - 1) < 0.02) | (np.abs(total - 100) < 2)
        if not np.mean(whole) > 0.9 or (len(shares) == 2 and "replay" in meant):
            return {}
    if len(shares) < 2 or "replay" in shares:
        return {}
    mixture = {
        f"share_{name}": theirs + _find_unit(columns, "replay", theirs, None)
        for name, theirs in shares.items()
    }
    if len(losses) > 1 and "loss" not in columns.names:
        mixture |= {
            f"loss_{name}": words.in_nats(theirs)
            for name, theirs in losses.items()
            if theirs != f"loss_{name}"
        }
    return mixture


def _write_notes(
    columns: Columns, meant: Mapping[str, str], read: Mapping[str, Collection[str]]
) -> Iterator[str]:
    if columns.step and "D" not in {*columns.names, *meant}:
        factors = step_factors(columns.rows, (*words.BATCH, "batch"))
        product = "*".join([columns.step, *(factors or ["TOKENS_OF_A_STEP"])])
        option = _write_option("D", product)
        if len(factors) == 2 and last_part(factors[0]) not in words.WHOLE_BATCH:
            option += " (times devices and accumulated batches, if several)"
        yield f"tokens are not in it, steps are: {option}"
    taken = {name: ours for ours, names in read.items() for name in names}
    bits = [name for name in taken if columns.words[name] & words.BITS]
    for name in bits[:1]:
        if not columns.words[name] & words.OF_A_TOKEN:
            yield f"{name} is {words.in_nats_per_token(name, taken[name])}"
    for ours in ("N", "D", "ptpp", "replay"):
        of_ours = [
            of for spelling, of in columns.spelled.items() if spelling.ours == ours
        ]
        found = dict.fromkeys(n for of in of_ours for names in of for n in names)
        rivals = " or ".join(name for name in found if name not in taken)
        if rivals and ours in meant:
            yield (
                f"{ours} may also be {rivals}: {meant[ours]} is taken for its "
                "name, look whether it is"
            )
        elif rivals and ours not in columns.names:
            yield f"{rivals} may be {ours}: choose by --column {ours}="
    alike = columns.losses
    is_chosen = any("loss" in ours or is_share(ours) for ours in meant)
    if alike and not is_chosen and not {*LOSSES} & {*columns.names}:
        yield (
            f"{len(alike)} columns may be the loss ({', '.join(alike)}): choose by "
            "--column loss=, or two by --column target_loss= and --column source_loss="
        )

"""Propose which of a table's columns are the schema's, from their names and ranges.
Proposals are printed, never applied.
"""

from __future__ import annotations

import re
import shlex
import warnings
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from bayeslaw._base.errors import RunTableError
from bayeslaw._base.numbers import parse_number
from bayeslaw._law.columns import LOSSES_BEFORE, is_share
from bayeslaw._tables.before import (
    finished_query,
    with_gaps_filled,
    with_stages,
)
from bayeslaw._tables.columns import (
    in_nats_per_token,
    melt_losses,
    product_of,
    renamed,
)
from bayeslaw._tables.rows.naming import LOSSES
from bayeslaw._tables.sources.points import BATCH, LENGTH, PER_STEP
from bayeslaw._tables.words import (
    FACTORS,
    is_setting,
    is_word,
    name_words,
    named_words,
    unit_of_name,
)

if TYPE_CHECKING:
    from jaxtyping import Float

PLANNED = frozenset({"planned", "target", "max", "budget", "scheduled", "goal"})


class Spelling(NamedTuple):
    """Usual names of a column. A name matches if it has all words of one of ``names``
    and no word of ``foreign``: "tokens per parameter" is not tokens. Of ``vague`` names
    it must have no other words than usual ones and units: a batch has a size, too.
    """

    names: tuple[str, ...]
    foreign: frozenset[str] = frozenset({"before", "per"})
    vague: tuple[str, ...] = ()


# the tokens of a checkpoint before the run
PRETRAINING = frozenset(
    {"pretrain", "pretraining", "pretrained", "pt", "vortraining", "init", "initial"}
)
# words of counts of tokens that are not those a run was trained on
OF_A_STEP = frozenset(
    {
        *("batch", "step", "update", "context", "seq", "sequence", "length", "vocab"),
        "sec",
    }
)
# spellings by the schema's column
SPELLINGS = {
    "N": Spelling(
        ("params", "parameters", "model size", "model", "size"),
        frozenset({"before", "per", "total", "embedding"}),
        ("model", "size"),
    ),
    "D": Spelling(
        (
            *("total tokens", "tokens seen", "tokens", "adapt tokens", "train tokens"),
            *("tok", "toks"),
        ),
        frozenset({"before", "per", "unique"}) | PRETRAINING | PLANNED | OF_A_STEP,
    ),
    "U": Spelling(("unique tokens",)),
    "replay": Spelling(("replay", "mix", "source share", "mixture")),
    "ptpp": Spelling(
        ("tpp", "ptpp", "tokens per parameter", "tokens per param"),
        frozenset({"before"}),
    ),
    "cost": Spelling(
        ("gpu hours", "gpu hour", "gpuh", "flops"),
        frozenset({"before", "per", "image", "sample", "forward", "inference"})
        | OF_A_STEP,
    ),
}


PERPLEXITY = ("ppl", "perplexity")
SHARE_WORDS = frozenset(
    {
        *("share", "fraction", "frac", "mix", "pct", "percent", "%"),
        *("weight", "proportion", "prop", "ratio"),
    }
)
# what a run was meant to see, for tables without what it saw
PLANNED_TOKENS = Spelling(
    ("tokens", "token"),
    frozenset({"before", "per", "unique"}) | PRETRAINING | OF_A_STEP,
)


def it_has(runs: pd.DataFrame) -> str:
    """Write the end of an error about a missing column: the table's columns, and how to
    map them.
    """
    return f"it has: {', '.join(map(str, runs.columns))}{mapping_hint(runs)}"


def mapping_hint(runs: pd.DataFrame) -> str:
    """Propose command line options that map likely columns; empty if no column is
    likely, or several are equally likely.

    Units are read from the name (``tokens_B``). Units guessed from the range are marked
    as guesses.
    """
    columns = Columns(runs)
    meant = _meant_columns(columns)
    guessed = [ours for ours, (_, by_range) in meant.items() if by_range]
    step = _step_column(columns)
    words = [_option(ours, theirs) for ours, (theirs, _) in meant.items()]
    query = _rows_meant(runs, {ours: theirs for ours, (theirs, _) in meant.items()})
    words += [f'--where "{query}"'] if query and words else []
    hint = f"; perhaps {' '.join(words)}" if words else ""
    if words and meant:
        first = next(f"{ours}={theirs}" for ours, (theirs, _) in meant.items())
        hint += f' (in Python columns=["{first}", ...], and where=)'
    if guessed:
        units = [ours for ours in guessed if "loss" not in ours]
        if units:
            hint += f" (unit of {' and '.join(units)} guessed from the range: check it)"
        if "source_loss" in guessed:
            hint += " (which loss is the source's is guessed from its name: check it)"
    if step and "D" not in {*columns.names, *meant}:
        hint += f"; tokens are not in it, steps are: {_steps(columns, step)}"
    hint += "".join(f"; {line}" for line in _beside(columns, meant))
    alike = _alike(columns)
    if alike and not any(is_share(ours) for ours in meant):
        hint += (
            f"; {len(alike)} columns may be the loss ({', '.join(alike)}): choose by "
            "--column loss=, or two by --column target_loss= and --column source_loss="
        )
    return hint


def foreign_names(runs: pd.DataFrame) -> list[str]:
    """Write a line, if columns of a table that was read without a mapping are likely
    its size, tokens or loss under other names.
    """
    missing = {"N", "D", "loss"} - {*map(str, runs.columns)}
    likely = missing & {*_meant_columns(Columns(runs))} if missing else set()
    if not likely:
        return []
    names = " and ".join(sorted(likely))
    return [f"no column is called {names}, and none is renamed unasked; {it_has(runs)}"]


def _meant_columns(columns: Columns) -> dict[str, tuple[str, bool]]:
    """Propose an expression for each name of the schema that the table lacks, and tell
    whether its unit, or its domain, is a guess.
    """
    meant = dict(_covariates(columns)) | _losses(columns)
    step = _step_column(columns)
    if step and "D" not in {*columns.names, *meant}:
        meant |= _tokens_by_steps(columns, step)
    mixture = _mixture(columns)
    if not mixture:
        return meant
    of_pairs = ["replay"]
    if any(ours.startswith("loss_") for ours in mixture):
        of_pairs += LOSSES
    return {o: t for o, t in meant.items() if o not in of_pairs} | mixture


def losses_hint(runs: pd.DataFrame) -> str:
    """Say how to name the losses, where no column was proposed for one: with the columns
    whose values look like losses in nats.
    """
    columns = Columns(runs)
    if _losses(columns) or _alike(columns):
        return ""
    values = {name: columns.numbers(name) for name in columns.names}
    alike = [name for name, x in values.items() if x is not None and _like_losses(x)]
    by_range = f" (by their values perhaps {', '.join(alike[:4])})" if alike else ""
    return (
        "; name the loss: --column loss=YOURS, or two by --column target_loss=YOURS "
        f"--column source_loss=YOURS{by_range}"
    )


def _like_losses(values: Float[np.ndarray, " row"]) -> bool:
    """Tell whether most values have the size of losses, with decimals."""
    has_size = (values > 0.3) & (values < 13)  # 13: ln of the largest vocabularies
    has_decimals = values != np.round(values, 1)
    return len(values) > 1 and float((has_size & has_decimals).mean()) > 0.8


def _rows_meant(runs: pd.DataFrame, meant: dict[str, str]) -> str:
    """Write the query that leaves out unfinished runs, rows without a loss, and rows
    without the loss of their checkpoint.
    """
    parts = [finished_query(runs), *_gaps(runs, meant)]
    loss = meant.get("loss")
    if loss in runs and runs[loss].isna().any():
        parts.append("loss > 0")
    return " and ".join(filter(None, parts))


def _gaps(runs: pd.DataFrame, meant: dict[str, str]) -> list[str]:
    """Write conditions that losses before adaptation are not empty, after reading the
    table with the proposed names.
    """
    if not any("before" in ours for ours in [*meant, *map(str, runs.columns)]):
        return []
    theirs = {name: ours for ours, name in meant.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            table = melt_losses(with_stages(renamed(runs, theirs, [*meant])))
            table = with_gaps_filled(table.reset_index(drop=True))
        except (RunTableError, TypeError, ValueError):
            return []  # reading the table for the fit raises the same error
    return [f"{c}.notna()" for c in LOSSES_BEFORE if c in table and _has_gaps(table, c)]


def _has_gaps(table: pd.DataFrame, column: str) -> bool:
    """Tell whether a column has empty cells, but is not empty in all rows of a domain."""
    is_empty = table[column].isna()
    domains = table["domain"] if "domain" in table else np.zeros(len(table))
    return bool(is_empty.any() and not is_empty.groupby(domains).all().any())


def _step_column(columns: Columns) -> str | None:
    """Find the column of a run's steps, as trackers call it."""
    steps = ("step", "_step", "global_step", "steps", "train_steps")
    last = {part.lower(): name for part, name in _by_last_part(columns).items()}
    return next((last[name] for name in steps if name in last), None)


def _by_last_part(columns: Columns) -> dict[str, str]:
    """Map the last part of each name to the name: ``loss`` of ``eval/loss``."""
    return {re.split("[./]", name)[-1]: name for name in columns.names}


def _mixture(columns: Columns) -> dict[str, tuple[str, bool]]:
    """Propose the shares of a mixture, and a loss for each evaluation set: columns named
    like the sets of losses (``web`` or ``web %`` beside ``loss_web``), or with a word of
    shares, whose rows sum to one or 100.
    """
    if any(map(is_share, columns.names)):
        return {}
    losses = _evaluations(columns)
    shares = {}
    for name in sorted(losses):
        theirs = [c for c in columns.names if _is_share_of(columns, c, name)]
        if len(theirs) == 1:
            shares[name] = theirs[0]
    if len(shares) < 2:
        shares = _simplex(columns)
    if len(shares) < 2 or "replay" in shares:
        return {}
    meant = {}
    for name, theirs in shares.items():
        factor, _ = _unit(columns, "replay", theirs, None)
        meant[f"share_{name}"] = (theirs + factor, False)
    if len(losses) < 2 or "loss" in columns.names:
        return meant
    foreign = {
        name: theirs for name, theirs in losses.items() if theirs != f"loss_{name}"
    }
    return meant | {f"loss_{n}": (_in_nats(t), False) for n, t in foreign.items()}


def _evaluations(columns: Columns) -> dict[str, str]:
    """List columns of losses by the words that tell them apart, joined by ``_``."""
    own = [name for name in columns.names if name.startswith("loss_")]
    if own:
        return {name.removeprefix("loss_"): name for name in own}
    usual = {
        "loss",
        "nll",
        "ce",
        "eval",
        "val",
        "valid",
        "validation",
        "test",
        *PERPLEXITY,
    }
    names = {}
    for column in _measured_best(_measured(columns)):
        words = [word for word in name_words(column) if word not in usual]
        names["_".join(words)] = column
    return {} if "" in names else names


def _simplex(columns: Columns) -> dict[str, str]:
    """List columns with a word of shares by their other words, joined by ``_``, if they
    sum to one or 100 in most rows.
    """
    shares: dict[str, str] = {}
    for column in columns.names:
        words = named_words(column)
        name = "_".join(word for word in words if word not in SHARE_WORDS)
        values = columns.numbers(column)
        if not name or values is None or not SHARE_WORDS & {*words}:
            continue
        if len(values) == columns.rows and values.min() >= 0 and values.max() <= 100:
            shares[name] = column
    values = [columns.numbers(column) for column in shares.values()]
    total = np.sum([x for x in values if x is not None], axis=0)
    whole = (np.abs(total - 1) < 0.02) | (np.abs(total - 100) < 2)
    return shares if np.mean(whole) > 0.9 else {}


def _is_share_of(columns: Columns, column: str, name: str) -> bool:
    """Tell whether a column of numbers is called like an evaluation set, with or without
    a word for its unit.
    """
    words = [word for word in named_words(column) if word not in SHARE_WORDS]
    is_called = column == name or (len(words) > 0 and words == name_words(name))
    return is_called and columns.numbers(column) is not None


def _tokens_by_steps(columns: Columns, step: str) -> dict[str, tuple[str, bool]]:
    """Propose tokens as steps times a column of the tokens of a step, if there is one."""
    last = _by_last_part(columns)
    per_step = next((last[n] for n in PER_STEP if n in last), None)
    return {} if per_step is None else {"D": (f"{step}*{per_step}", False)}


def _steps(columns: Columns, step: str) -> str:
    """Write the option that computes tokens from steps and the size of a batch."""
    last = _by_last_part(columns)
    batch = next((last[n] for n in (*BATCH, "batch") if n in last), None)
    length = next((last[n] for n in LENGTH if n in last), None)
    if batch and length:
        option = _option("D", f"{step}*{batch}*{length}")
        if "global" in batch or "total" in batch:
            return option
        return f"{option} (times devices and accumulated batches, if several)"
    return f'--column "D={step}*TOKENS_OF_A_STEP"'


def _beside(columns: Columns, meant: dict[str, tuple[str, bool]]) -> Iterator[str]:
    """Explain the choice between similar columns, and columns in other units."""
    words = {name: set(name_words(name)) for name in columns.names}
    planned = [n for n, of in words.items() if of & PLANNED and "tokens" in of]
    if planned and "D" in meant and planned[0] not in meant["D"][0]:
        yield f"D is what a run reached, not {planned[0]}"
    size = meant.get("N", ("", False))[0]
    total = [n for n, of in words.items() if {"total", "params"} <= of]
    if total and "active" in name_words(size):
        yield (
            f"N is the active parameters, of which 6 N D FLOPs are; {total[0]} is "
            "another choice"
        )
    bits = [n for n, of in words.items() if of & {"bpb", "bits"}]
    if bits and not {"loss", "target_loss"} & {*columns.names, *meant}:
        yield f"{bits[0]} is {in_nats_per_token(bits[0], 'loss')}"
    for ours in ("N", "D", "ptpp", "replay"):
        chosen = meant.get(ours, ("", False))[0]
        rivals = [
            c for c in _candidates(columns, ours) if c not in _read(chosen, columns)
        ]
        rivals = [c for c in rivals if not any(c in t for t, _ in meant.values())]
        rivals = [c for c in rivals if c not in (*planned, *total)]
        if chosen and rivals:
            yield (
                f"{ours} may also be {' or '.join(rivals)}: {chosen} is taken for its name, "
                "look whether it is"
            )
        elif rivals and ours not in columns.names:
            yield f"{' or '.join(rivals)} may be {ours}: choose by --column {ours}="


def _candidates(columns: Columns, ours: str) -> list[str]:
    """List the columns that some usual name of ``ours`` matches."""
    spelling = SPELLINGS[ours]
    matches = [_called(columns, spelling, name) for name in spelling.names]
    if ours == "N":
        # without active parameters, total parameters may be N; a size may be anything's
        matches += [_called(columns, Spelling(()), name) for name in spelling.names[:2]]
        matches.append(columns.called(["size"], OF_A_STEP | {"before", "per"}))
    return list(dict.fromkeys(name for names in matches for name in names))


def _read(expression: str, columns: Columns) -> list[str]:
    """List the columns that a proposed expression reads."""
    product = product_of(expression, columns.names) if expression else None
    return list(product.columns) if product else []


def _option(ours: str, theirs: str) -> str:
    text = f"{ours}={theirs}"
    # characters that a shell interprets within double quotes
    plain = not set(text) & set('"$`\\!')
    return f'--column "{text}"' if plain else f"--column {shlex.quote(text)}"


class Columns:
    """Names of a table's columns, and the values of numeric columns."""

    def __init__(self, runs: pd.DataFrame, rows: int = 10_000):
        self._rows = runs.head(rows)
        self.names = [str(name) for name in runs.columns]

    def numbers(self, name: str) -> Float[np.ndarray, " row"] | None:
        """Parse the numbers of a column, shape (row,); None if a cell is text."""
        cells = self._rows[name].dropna()
        if pd.api.types.is_bool_dtype(cells):
            return None
        if pd.api.types.is_numeric_dtype(cells):
            values = cells.to_numpy(float)
            return values[np.isfinite(values)]
        try:
            return np.array([parse_number(cell) for cell in cells], float)
        except RunTableError:
            return None

    @property
    def rows(self) -> int:
        """Count the rows that are looked at."""
        return len(self._rows)

    def is_plain(self, name: str) -> bool:
        """Tell whether cells are plain numbers: 20, not 20B or 34%."""
        return bool(pd.to_numeric(self._rows[name], errors="coerce").notna().any())

    def called(
        self,
        wanted: Collection[str],
        foreign: Collection[str],
        among: Collection[str] | None = None,
    ) -> list[str]:
        """Find numeric columns whose name begins with the wanted words, else contains
        them, without a foreign word. ``among``: names to search, by default all.
        """
        wanted = list(wanted)
        words = {n: named_words(n) for n in (self.names if among is None else among)}
        words = {name: of for name, of in words.items() if not set(foreign) & set(of)}
        names = [n for n, of in words.items() if of[: len(wanted)] == wanted]
        if not names:
            names = [n for n, of in words.items() if set(wanted) <= set(of)]
        if not names:
            names = [name for name, of in words.items() if _has_words(of, wanted)]
        names = [name for name in names if self.numbers(name) is not None]
        # a setting that all runs share tells less than one that they differ in
        return [n for n in names if self._rows[n].nunique() > 1] or names


def _has_words(words: Collection[str], wanted: Collection[str]) -> bool:
    """Tell whether each wanted word is among ``words``, as it is or in another form."""
    return all(any(is_word(word, one) for word in words) for one in wanted)


def _covariates(columns: Columns) -> Iterator[tuple[str, tuple[str, bool]]]:
    """Propose for each name of the schema a column with its factor, and tell whether the
    factor is a guess.
    """
    size: float | None = None
    for ours in SPELLINGS:
        present = ours in columns.names
        theirs = ours if present else _meant(columns, ours)
        if theirs is None and ours == "D" and _step_column(columns) is None:
            theirs = _meant_by(columns, PLANNED_TOKENS)
        if theirs is None:
            continue
        factor, guessed = "", False
        if ours == "cost" and not present and not _is_cost(columns, theirs):
            continue
        if not present:
            factor, guessed = _unit(columns, ours, theirs, size)
            yield ours, (theirs + factor, guessed)
        if ours == "N":
            size = _middle(columns, theirs, factor)
    if "ptpp" not in columns.names and not _meant(columns, "ptpp"):
        pretrained = _pretraining_tokens(columns)
        if pretrained is not None and pretrained != "pretrain_tokens" and size:
            factor, guessed = _unit(columns, "D", pretrained, size)
            yield "ptpp", (f"{pretrained}{factor}/N", guessed)


def _is_cost(columns: Columns, name: str, least: float = 1e12) -> bool:
    """Tell whether a column of FLOPs may be those of runs: a forward pass has fewer."""
    if "flop" not in name.casefold():
        return True
    values = columns.numbers(name)
    has_unit = {"g", "t", "gflop", "tflop"} & {*name_words(name)}
    return values is not None and not has_unit and bool(np.median(values) >= least)


def _pretraining_tokens(columns: Columns) -> str | None:
    """Find the one column of the tokens of pre-training: by its name, else by a word of
    pre-training beside numbers of the size of tokens.
    """
    names = tuple(f"{word} tokens" for word in sorted(PRETRAINING))
    pretrained = _meant_by(columns, Spelling(names))
    if pretrained is not None:
        return pretrained
    foreign = {"per", "params", "parameters", "model", "size", "flops"}
    named = [name for name in columns.names if PRETRAINING & {*name_words(name)}]
    counts = [
        name
        for name in named
        if not foreign & {*name_words(name)} and _are_tokens(columns, name)
    ]
    return counts[0] if len(counts) == 1 else None


def _are_tokens(columns: Columns, name: str, least: float = 1e8) -> bool:
    """Tell whether all numbers of a column, in the unit of its name, may be tokens of
    pre-training.
    """
    values = columns.numbers(name)
    if values is None or not len(values):
        return False
    factor = unit_of_name(name) if columns.is_plain(name) else ""
    tokens = values * (float(factor[1:]) if factor.startswith("*") else 1.0)
    return bool(tokens.min() >= least and tokens.max() <= 1e15)


def _meant(columns: Columns, ours: str) -> str | None:
    """Find the one column that is spelled like ``ours``; None if several are."""
    theirs = _meant_by(columns, SPELLINGS[ours])
    if ours == "N" and "active" not in name_words(theirs or ""):
        # without active parameters, total parameters may be N
        theirs = _meant_by(
            columns, SPELLINGS[ours]._replace(foreign=Spelling(()).foreign)
        )
    return theirs


def _meant_by(columns: Columns, spelling: Spelling) -> str | None:
    """Find the one column that matches a spelling; the first name with a single match
    decides.
    """
    for name in spelling.names:
        theirs = _called(columns, spelling, name)
        if len(theirs) == 1:
            return theirs[0]
    return None


def _called(columns: Columns, spelling: Spelling, name: str) -> list[str]:
    """Find the columns that match one name of a spelling."""
    theirs = columns.called(name.split(), spelling.foreign)
    if name not in spelling.vague:
        return theirs
    usual = {word for name in spelling.names for word in name.split()} | {*FACTORS}
    return [
        c for c in theirs if {*named_words(c)} <= usual | {"n", "num", "base", "lm"}
    ]


def _middle(columns: Columns, name: str, factor: str) -> float | None:
    """Compute the median of a column times its factor; None without numbers."""
    values = columns.numbers(name)
    if values is None or not len(values):
        return None
    # a factor of a size is empty or "*..."
    multiple = float(factor.removeprefix("*") or 1)
    return float(np.median(values)) * multiple


def _unit(
    columns: Columns, ours: str, theirs: str, size: float | None
) -> tuple[str, bool]:
    """Find the factor of a column by its name, else by its range; True: by range."""
    values = columns.numbers(theirs)
    if values is None or not len(values):
        return unit_of_name(theirs), False
    if not columns.is_plain(theirs):
        return "", False
    largest = float(values.max())
    named = unit_of_name(theirs)
    most = {"N": 1e13, "D": 1e14, "U": 1e14}.get(ours, np.inf)
    if named.startswith("*") and largest * float(named[1:]) > most:
        named = (
            ""  # the unit in the name is applied already: tokens_M with values of 1e12
        )
    if named:
        return named, False
    by_range = _unit_of_range(ours, values, size)
    return by_range, bool(by_range)


def _unit_of_range(
    ours: str, values: Float[np.ndarray, " row"], size: float | None
) -> str:
    """Guess the factor of a column from the range of its values."""
    least, most = float(values.min()), float(values.max())
    if ours == "replay":
        return "/100" if 1 < most <= 100 else ""
    # no model or corpus is this small: the column is in millions or billions
    if ours == "N" and most < 2e4:
        # 14, 70, 410 are millions; 7, 13, 70 or .4, 1.4 are billions
        return "*1e6" if least >= 10 and most > 100 else "*1e9"
    if ours in ("D", "U") and most < 1e4:
        if size is None:
            return "*1e9"
        # 20 tokens per parameter is between adaptation and pre-training: choose the unit
        # that comes nearest to 20 in log
        ratio = float(np.median(values)) / size / 20
        in_millions, in_billions = abs(np.log(ratio * np.array([1e6, 1e9])))
        return "*1e6" if in_millions <= in_billions else "*1e9"
    return ""


# -- losses ----------------------------------------------------------------------------


def _losses(columns: Columns) -> dict[str, tuple[str, bool]]:
    """Find a column of losses for target and source each, or one for the loss."""
    if {"loss", "target_loss", "source_loss"} & set(columns.names):
        return {}
    measured = _measured(columns)
    for_domain = {
        domain: [name for name in measured if domain in name_words(name)]
        for domain in ("target", "source")
    }
    if all(len(names) == 1 for names in for_domain.values()):
        chosen = {domain: names[0] for domain, names in for_domain.items()}
        return _with_starts(columns, chosen, False)
    # words for pre-training corpora: a loss on one is guessed to be the source's
    corpora = {
        *("en", "eng", "english", "pretrain", "pretraining", "general", "base", "orig"),
        *("pile", "web", "fineweb", "dclm", "slimpajama", "redpajama", "dolma"),
    }
    best = _measured_best(measured)
    general = [name for name in best if corpora & set(name_words(name))]
    if len(best) == 2 and len(general) == 1:
        (special,) = set(best) - {*general}
        return _with_starts(columns, {"target": special, "source": general[0]}, True)
    return {"loss": (_in_nats(best[0]), False)} if len(best) == 1 else {}


def _with_starts(
    columns: Columns, chosen: dict[str, str], guessed: bool
) -> dict[str, tuple[str, bool]]:
    """Add losses before adaptation to the losses of both domains, by the words that tell
    the two losses' names apart.
    """
    losses = {
        f"{domain}_loss": (_in_nats(name), guessed) for domain, name in chosen.items()
    }
    words = {domain: set(name_words(name)) for domain, name in chosen.items()}
    start_words = {"before", "initial", "start", "base", "init"}
    starts = [
        name
        for name in columns.names
        if start_words & set(name_words(name)) and _is_loss(columns, name)
    ]
    common = set.intersection(*words.values())
    for domain, of in words.items():
        names = [name for name in starts if (of - common) & set(name_words(name))]
        ours = f"{domain}_loss_before"
        if len(names) == 1 and names[0] != ours and ours not in columns.names:
            losses[ours] = (_in_nats(names[0]), False)
    return losses


def _is_loss(columns: Columns, name: str) -> bool:
    """Tell whether a numeric column is a loss or a perplexity, by its name or values."""
    values = columns.numbers(name)
    if values is None:
        return False
    return bool({"loss", *PERPLEXITY} & {*name_words(name)}) or _like_losses(values)


def _measured(columns: Columns) -> list[str]:
    """Find columns of measured losses, else of perplexities."""
    names = [name for name in columns.names if not is_setting(name)]
    # exclude losses before adaptation and auxiliary losses that balance experts
    foreign = {"before", "initial", "start", "init", "aux", "balance", "scale", "per"}
    foreign |= {"weight", "coef", "coefficient", "mask"}
    by_word = []
    for word in ("loss", *PERPLEXITY):
        # neither loss_train nor val_loss goes before the other for where the word is
        exact = [name for name in names if word in named_words(name)]
        by_word.append(
            [c for name in exact for c in columns.called([word], foreign, [name])]
            or columns.called([word], foreign, names)
        )
    return next(filter(None, by_word), [])


def _in_nats(name: str) -> str:
    """Write a perplexity as its logarithm, a loss as it is."""
    return f"ln({name})" if {*PERPLEXITY} & {*name_words(name)} else name


def _alike(columns: Columns) -> list[str]:
    """Find the candidates for the loss if no choice could be made."""
    if {"loss", "target_loss", "source_loss"} & set(columns.names) or _losses(columns):
        return []
    return _measured_best(_measured(columns))


def _measured_best(names: Collection[str]) -> list[str]:
    """Prefer evaluation losses, then any losses except training losses, then any."""
    evaluation = {"eval", "val", "valid", "validation", "test", "heldout"}
    words = {name: set(name_words(name)) for name in names}
    evaluated = [name for name, of in words.items() if of & evaluation]
    untrained = [n for n, of in words.items() if not of & {"train", "training"}]
    return evaluated or untrained or list(names)

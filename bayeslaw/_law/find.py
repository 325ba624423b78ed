"""Find a law by its name, a Python file that defines ``LAW``, or a formula."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bayeslaw._base.errors import FitWarning, LawError, warn
from bayeslaw._base.frames import Table, as_frame
from bayeslaw._law.catalogue import PACKAGE
from bayeslaw._law.catalogue import law as law_by_name
from bayeslaw._law.columns import share_domains
from bayeslaw._law.formula import law_from_formula, table_columns
from bayeslaw._law.law import Law
from bayeslaw._law.variants.setting import (
    middle_of,
    spelled_setting,
    swept_range,
    with_setting,
)

if TYPE_CHECKING:
    import pandas as pd


def find_law(text: str, runs: Table | None = None) -> Law:
    """Find the law that a text names: a catalogue name, a Python file, or a formula.

    A formula may read any column of ``runs`` that holds numbers. Priors are then stated
    at the column's median, with a warning. A law of mixtures gets the domains whose
    shares ``runs`` has. ``chinchilla+lr`` is the law ``chinchilla`` with an optimal
    learning rate (`with_setting`).

    Raises
    ------
    LawError
        The text is none of these.

    Examples
    --------
    >>> bayeslaw.find_law("E + A/N^alpha + B/D^beta").covariates
    ('N', 'D')
    >>> bayeslaw.find_law("chinchilla").name
    'chinchilla'
    """
    runs = as_frame(runs)
    swept = spelled_setting(text)
    if swept is not None:
        base = find_law(swept.law, runs)
        middle = middle_of(base, swept.column, runs)
        return with_setting(base, swept.column, middle, swept_range(swept.column, runs))
    if text.endswith(".py"):
        return law_from_file(text)
    has_operator = re.search(r"[+*/^(]|\s-\s", text)
    if not has_operator:
        return law_by_name(text, () if runs is None else mixed_domains(runs))
    columns = {} if runs is None else table_columns(text, runs)
    _warn_of_columns(columns)
    return law_from_formula(text, columns=columns)


def as_law(law: Law | str | None, runs: pd.DataFrame | None = None) -> Law:
    """Return a law as it is, or find the law that a text names (`find_law`).

    Raises
    ------
    LawError
        The argument is neither a law nor a text, or the text names no law.
    """
    if isinstance(law, Law):
        return law
    if isinstance(law, str):
        return find_law(law, runs)
    raise LawError(
        "name a law: one that laws() lists, such as 'chinchilla', a formula, or a Python "
        f"file that defines LAW; got {'none' if law is None else type(law).__name__}"
    )


def mixed_domains(runs: pd.DataFrame) -> tuple[str, ...]:
    """List the domains of a table's mixtures, that of all its losses first."""
    domains = share_domains(runs)
    measured = set(runs["domain"].dropna().unique()) if "domain" in runs else set()
    if len(measured) > 1:
        return domains
    return tuple(sorted(domains, key=lambda name: name not in measured))


def _warn_of_columns(columns: Mapping[str, float]) -> None:
    """Warn which names of a formula were read as columns, and at which values of these
    columns contributions in nats are stated.
    """
    if columns:
        medians = ", ".join(f"{name} = {value:g}" for name, value in columns.items())
        first = next(iter(columns))
        warn(
            f"read as columns of the table: {', '.join(columns)}; contributions in "
            f"nats are stated at {medians} (the median; --reference {first}=... moves "
            "it); where a parameter is meant, give it another name",
            FitWarning,
        )


def law_from_file(path: str | Path) -> Law:
    """Load the law of a Python file that defines ``LAW``, as the files in ``models/``
    do. The file is executed.

    The file may import from the shared files of ``models/`` (``from ._terms import
    size``).

    Raises
    ------
    LawError
        There is no such file, it raises an error, or it defines no `Law` named ``LAW``.

    Examples
    --------
    >>> import bayeslaw.models
    >>> text = Path(bayeslaw.models.__path__[0], "chinchilla.py").read_text()
    >>> path = Path("my_law.py")
    >>> written = path.write_text(text.replace('"chinchilla"', '"my-law"'))
    >>> bayeslaw.law_from_file(path).name
    'my-law'
    """
    path = Path(path)
    if not path.is_file():
        raise LawError(
            f"{path}: no such file; give a Python file that defines LAW = Law(...)"
        )
    spec = importlib.util.spec_from_file_location(f"{PACKAGE}._user_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise LawError(f"{path}: not a Python file; its name should end in .py")
    module = importlib.util.module_from_spec(spec)
    source = path.read_bytes()
    try:
        # The loader could run older code from __pycache__. The digest is of this
        # source, so this source must run.
        exec(compile(source, str(path), "exec"), module.__dict__)
    except Exception as error:  # whatever the user's file does
        raise LawError(f"{path}: {type(error).__name__}: {error}") from error
    law = getattr(module, "LAW", None)
    if not isinstance(law, Law):
        what = "defines no LAW" if law is None else f"LAW is a {type(law).__name__}"
        raise LawError(
            f"{path}: {what}; it should end in LAW = Law(...), "
            "as the files in models/ do"
        )
    return replace(law, origin=f"file:{path.resolve()}", digest=file_digest(source))


def file_digest(source: bytes) -> str:
    """Digest a law file's text by SHA-256; line endings do not change the digest."""
    # Git and editors convert line endings between systems
    text = source.replace(b"\r\n", b"\n")
    return hashlib.sha256(text).hexdigest()


def law_from_origin(
    name: str, origin: str, columns: Mapping[str, float] | None = None
) -> Law:
    """Find the law of a saved fit by its origin: from the catalogue, its formula (which
    reads ``columns`` of the user's table) or its file, which is executed. If the law
    had a term of a setting, the term is added again.
    """
    kind, _, place = origin.partition(":")
    if kind == "formula":
        with warnings.catch_warnings():
            # the warnings about guessed priors were given when the law was fitted
            warnings.simplefilter("ignore", FitWarning)
            return law_from_formula(place, name=name, columns=columns)
    if kind == "file":
        return law_from_file(place)
    if kind == "setting":
        parts = json.loads(place)
        base = law_from_origin(parts["law"], parts["origin"], columns)
        if "swept" not in parts:
            raise LawError(
                f"{name} was saved by an earlier version, whose misfit was along the "
                "setting, too; fit again"
            )
        return with_setting(base, parts["column"], parts["at"], parts["swept"])
    return law_by_name(name, share_domains(columns or ()))

"""What is said of a table where it is read, and the mapping that is proposed for it."""

import re
import shlex
from typing import Any

import pandas as pd
import pytest

import bayeslaw
from bayeslaw._tables.proposals import mapping_hint
from known.said import said_by


def read(source: Any, **options: Any) -> tuple[pd.DataFrame, str]:
    """The runs, and what was said of them."""
    table = pd.DataFrame(source) if isinstance(source, dict) else source
    runs, lines = said_by(bayeslaw.read_runs, table, **options)
    return runs, " | ".join(lines)


def refusal(source: Any, **options: Any) -> str:
    """The one line that refuses a table."""
    with pytest.raises(bayeslaw.RunTableError) as caught:
        bayeslaw.read_runs(source, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def written(path, content: str | bytes):
    """The path of a file with this content."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def hint(table: Any) -> str:
    """What is proposed for a table's columns."""
    return mapping_hint(pd.DataFrame(table))


def options_of(text: str) -> list[tuple[str, str]]:
    """The proposed options, as a shell hands them on."""
    option = r"--(?:column|where) (?:\"[^\"]*\"|'[^']*') ?"
    found = re.search(rf"perhaps ((?:{option})+)", text)
    words = shlex.split(found[1]) if found else []
    return list(zip(words[::2], words[1::2], strict=True))


def pasted(text: str) -> list[str]:
    """The proposed mapping, as `read_runs` and the command line take it."""
    return [value for option, value in options_of(text) if option == "--column"]


def proposed(text: str) -> dict[str, str]:
    """The proposed mapping, ours -> theirs."""
    return dict(pair.split("=", 1) for pair in pasted(text))


def settings_said(runs: pd.DataFrame) -> str:
    """What a review says of settings that no law reads; empty if nothing."""
    checks = bayeslaw.review(runs).checks
    return next((check.reason for check in checks if check.name == "settings"), "")

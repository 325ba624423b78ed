"""Write text and tables for notebooks: escaped, without scripts or styles."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def paragraphs(text: str) -> str:
    """Write a paragraph for each line."""
    lines = [f"<p>{html.escape(line)}</p>" for line in text.splitlines() if line]
    return "".join(lines)


def table_html(table: pd.DataFrame) -> str:
    """Write a table with escaped cells and headings."""
    return table.to_html(escape=True, border=0, float_format="{:.4g}".format)

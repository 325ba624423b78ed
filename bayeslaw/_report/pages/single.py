"""Write a page of one template, a self-contained HTML file, with pictures in it."""

from __future__ import annotations

import base64
import io
import math
from pathlib import Path
from typing import Any, Literal, NamedTuple

import matplotlib
import pandas as pd
from matplotlib.figure import Figure

from bayeslaw._base.errors import PlanError
from bayeslaw._base.files import atomic_write, try_writing
from bayeslaw._base.numbers import format_chance, format_count
from bayeslaw._costs.costs import format_days, format_money


class Picture(NamedTuple):
    """A picture as a data URI, with its caption and a description in words. On a phone,
    one that is ``too_wide`` is scrolled sideways and not shrunk.
    """

    uri: str
    caption: str
    alt: str
    too_wide: bool = False


def round_cell(cell: float | str) -> float | str | None:
    """Round a number to six digits, for data in a page; None if it is not finite."""
    if isinstance(cell, str):
        return cell
    return float(f"{cell:.6g}") if math.isfinite(cell) else None


def round_columns(table: pd.DataFrame) -> dict[str, list[float | str | None]]:
    return {str(name): list(map(round_cell, table[name])) for name in table}


def encode_picture(
    figure: Figure,
    caption: str,
    alt: str,
    kind: Literal["png", "svg+xml"] = "png",
    dpi: int = 110,
    colours: int = 128,
) -> Picture:
    """Encode a figure for a page, so that equal pictures have equal bytes. A PNG has a
    palette of ``colours``, which takes a third of the bytes and looks the same.
    """
    buffer = io.BytesIO()
    if kind == "svg+xml":
        with matplotlib.rc_context({"svg.hashsalt": caption}):
            metadata = {"Date": None, "Creator": None}
            figure.savefig(buffer, format="svg", metadata=metadata)
    else:
        from PIL import Image

        drawn = io.BytesIO()
        figure.savefig(
            drawn,
            format="png",
            dpi=dpi,
            bbox_inches="tight",
            metadata={"Software": None},
            pil_kwargs={"compress_level": 0},  # it is read again at once
        )
        with Image.open(drawn) as image:
            image.convert("RGB").quantize(colours).save(buffer, format="png")
    uri = f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"
    # a wider picture cannot be read at the width of a phone
    return Picture(uri, caption, alt, too_wide=figure.get_figwidth() > 8.0)


def page_path(path: str | Path, example: str) -> Path:
    """Check a page's path, and try to write there, before the work that it shows."""
    page = Path(path)
    if page.is_dir():
        raise PlanError(
            f"{page} is a folder; give the name of a file, such as {example}"
        )
    try_writing(page)
    return page


def write_template(path: Path, template: str, **values: Any) -> None:
    """Fill a template of the folder ``templates``, and write the page whole."""
    import jinja2

    # A name that the template misspells is an error, not a blank.
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("bayeslaw._report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "count": format_count,
        "chance": format_chance,
        "money": format_money,
        "days": format_days,
        "flops": lambda flops: f"{flops:.1e}".replace("e+", "e") if flops else "0",
        "rows": _list_rows,
    }
    environment.globals |= values  # imported macros know globals only
    html = environment.get_template(template).render()
    with atomic_write(path) as part:
        part.write_text(html, encoding="utf-8")


def _list_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Convert a table to rows, with their labels as ``label``."""
    rows = table.to_dict(orient="records")
    return [
        {"label": str(label)} | {str(name): cell for name, cell in row.items()}
        for label, row in zip(table.index, rows, strict=True)
    ]

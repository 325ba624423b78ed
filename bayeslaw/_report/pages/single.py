"""Write a page of one template, a self-contained HTML file, with pictures in it."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any, NamedTuple

from bayeslaw._base.errors import PlanError
from bayeslaw._base.files import atomic_write, try_writing
from bayeslaw._base.numbers import format_chance, format_count


class Drawing(NamedTuple):
    """A picture as a data URI, with its caption and a description in words."""

    uri: str
    caption: str
    alt: str


def data_uri(picture: bytes, kind: str) -> str:
    """Encode a picture of a kind (``png``, ``svg+xml``) for a page."""
    return f"data:image/{kind};base64,{base64.b64encode(picture).decode()}"


def page_path(path: str | Path, example: str) -> Path:
    """Check a page's path, and try to write there, before the work that it shows.

    Raises
    ------
    PlanError
        The path is a folder.
    """
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
    )
    environment.filters |= {"count": format_count, "chance": format_chance}
    html = environment.get_template(template).render(**values)
    with atomic_write(path) as part:
        part.write_text(html, encoding="utf-8")

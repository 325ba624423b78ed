"""Write one HTML page about the changes by a second batch of runs."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bayeslaw import plots
from bayeslaw._report.pages.single import Drawing, data_uri, page_path, write_template
from bayeslaw._running.updating.updated import Updated, UpdatedDomain


def update_page(updated: Updated, path: str | Path) -> Path:
    """Write the changes to one self-contained HTML file.

    Parameters
    ----------
    updated
        The result of `update`.
    path
        Path of the file.

    Raises
    ------
    PlanError
        ``path`` is a folder.

    Examples
    --------
    >>> first = bayeslaw.fit(pretrained[pretrained["N"] < 5e9], "chinchilla", preview=True)
    >>> updated = bayeslaw.update(first, pretrained)
    >>> bayeslaw.update_page(updated, "changes.html").is_file()
    True
    """
    page = page_path(path, "changes.html")
    write_template(
        page,
        "update.html.jinja",
        updated=updated,
        verdict=updated.verdict(),
        surprising=bool(updated.surprising) and updated.action != "moved",
        interval=f"{updated.prob:.0%}",
        domains=[_domain(domain) for domain in updated.domains.values()],
        drawing=_of_plan(updated),
    )
    return page


def _domain(domain: UpdatedDomain) -> dict[str, Any]:
    """Build the page's data of a domain."""
    surprise, why = domain.surprise, domain.attribution
    return {
        "name": domain.name,
        "rows": domain.changes.sentence(),
        "surprise": surprise,
        "worst": [] if surprise is None else _rows(surprise.worst),
        "why": why,
        "groups": [] if why is None or surprise is None else _groups(domain),
        "parameters": _rows(domain.parameters),
        "laws": _rows(domain.laws),
        "forecasts": _rows(domain.forecasts),
        "changed": _rows(domain.changes.changed),
        "drawings": list(_drawings(domain)),
    }


def _of_plan(updated: Updated) -> Drawing | None:
    """Draw the cheapest plans before and after; None without a plan."""
    change = updated.plan
    if change is None:
        return None
    return _drawn(
        lambda ax: plots.moved_plan(ax, change),
        9,
        "The cheapest plan at each probability of keeping the promises; stars: the "
        "plans, cross: what the old one is worth now",
        "Cheapest plans by probability, before and after",
    )


def _rows(table: Any) -> list[dict[str, Any]]:
    """Convert a table to rows, with their labels as ``label``."""
    return [
        {"label": str(label)} | row
        for label, row in zip(table.index, table.to_dict(orient="records"), strict=True)
    ]


def _groups(domain: UpdatedDomain) -> list[dict[str, Any]]:
    """List groups of new rows, with their departures and their parts of the shift."""
    assert domain.surprise is not None
    assert domain.attribution is not None
    # surprise and attribution list different groups of a column
    keys = ["by", "level", "rows"]
    groups = domain.surprise.groups.merge(domain.attribution.groups, on=keys)
    return _rows(groups)


def _drawings(domain: UpdatedDomain) -> Iterator[Drawing]:
    """Draw the pictures of one domain: forecasts, new rows, and moved parameters."""
    name = domain.name
    yield _drawn(
        lambda ax: plots.updated(ax, domain),
        len(domain.forecasts) + 2,
        "A new run's loss at these runs, before and after",
        f"Forecasts of the {name} loss before and after, as intervals",
    )
    if domain.surprise is not None:
        yield _drawn(
            lambda ax: plots.new_rows(ax, domain),
            9,
            "New rows beside what was foreseen of them",
            f"New rows of {name}: percent over their forecasts, with intervals",
        )
    if domain.attribution is not None:
        groups = domain.attribution.groups
        yield _drawn(
            lambda ax: plots.what_moved(ax, domain),
            int((groups["by"] != "run").sum()) + 3,
            f"What moved the forecast of {domain.headline.name}",
            f"Bars: what each group of new rows adds to the {name} forecast's shift",
        )
    yield _drawn(
        lambda ax: plots.moved_parameters(ax, domain),
        len(domain.parameters) + 2,
        "Parameters, in sds that they had before; dotted: half an sd",
        f"Parameters of the {name} laws before and after, as intervals",
    )


def _drawn(draw: Callable[[Axes], Axes], lines: int, caption: str, alt: str) -> Drawing:
    """Draw a picture, as high as its lines require, in inches."""
    # at least the height of the axes, and at most a screen
    height = min(max(0.3 * lines, 1.6), 12.0)
    # with a fixed hash and without a date, equal pictures have equal bytes
    with matplotlib.rc_context({"svg.hashsalt": caption}):
        # narrow, so that text can be read at the width of a phone
        figure = Figure(figsize=(4.8, height), layout="constrained")
        draw(figure.subplots())
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return Drawing(data_uri(buffer.getvalue(), "svg+xml"), caption, alt)

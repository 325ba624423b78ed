"""Write one HTML page about the changes by a second batch of runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bayeslaw import plots
from bayeslaw._report.pages.single import (
    Picture,
    encode_picture,
    page_path,
    write_template,
)
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
    change, of_plan = updated.plan, None
    if change is not None:
        of_plan = _draw(
            lambda ax: plots.moved_plan(ax, change),
            9,
            "The cheapest plan at each probability of keeping the promises; stars: the "
            "plans, cross: what the old one is worth now",
            "Cheapest plans by probability, before and after",
        )
    write_template(
        page,
        "update.html.jinja",
        updated=updated,
        pictures={name: [*_draw_pictures(d)] for name, d in updated.domains.items()},
        of_plan=of_plan,
    )
    return page


def _draw_pictures(domain: UpdatedDomain) -> Iterator[Picture]:
    name = domain.name
    yield _draw(
        lambda ax: plots.updated(ax, domain),
        len(domain.forecasts) + 2,
        "A new run's loss at these runs, before and after",
        f"Forecasts of the {name} loss before and after, as intervals",
    )
    if domain.surprise is not None:
        yield _draw(
            lambda ax: plots.new_rows(ax, domain),
            9,
            "New rows beside what was foreseen of them",
            f"New rows of {name}: percent over their forecasts, with intervals",
        )
    if domain.attribution is not None:
        groups = domain.attribution.groups
        yield _draw(
            lambda ax: plots.what_moved(ax, domain),
            int((groups["by"] != "run").sum()) + 3,
            f"What moved the forecast of {domain.headline.name}",
            f"Bars: what each group of new rows adds to the {name} forecast's shift",
        )
    yield _draw(
        lambda ax: plots.moved_parameters(ax, domain),
        len(domain.parameters) + 2,
        "Parameters, in sds that they had before; dotted: half an sd",
        f"Parameters of the {name} laws before and after, as intervals",
    )


def _draw(draw: Callable[[Axes], Axes], lines: int, caption: str, alt: str) -> Picture:
    # at least the height of the axes, and at most a screen
    height = min(max(0.3 * lines, 1.6), 12.0)
    # narrow, so that text can be read at the width of a phone
    figure = Figure(figsize=(4.8, height), layout="constrained")
    draw(figure.subplots())
    return encode_picture(figure, caption, alt, "svg+xml")

"""One calm screen of a run that is watched: curve, band, probability, decision."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.text import Text

from bayeslaw._base.numbers import format_count

if TYPE_CHECKING:
    from bayeslaw import Followed, Following

WIDTH, HEIGHT = 64, 12  # characters of a chart
BAND, BEFORE, POINT, LIMIT = "▒", "·", "●", "─"
BAR = 30  # characters of a probability


def screen(known: Following, trouble: str = "") -> RenderableType:
    """What is known, and what stands in the way of reading the file."""
    parts: list[RenderableType] = []
    for name, one in known.domains.items():
        title = f"{name}: {one.final['median']:.4g} nats at the end"
        chart = Text(_chart(one, known.until))
        parts.append(Panel(chart, title=title, width=WIDTH + 12))
    if known.probability == known.probability:
        parts.append(Text(_bar(known.probability)))
    parts.append(Text(known.sentence()))
    if trouble:
        parts.append(Text(f"not read: {trouble}", style="bold"))
    parts.append(Text("Ctrl-C ends", style="dim"))
    return Group(*parts)


def _bar(probability: float) -> str:
    filled = round(BAR * probability)
    bar = "█" * filled + "░" * (BAR - filled)
    return f"limits kept {bar} {probability:.1%}"


def _chart(one: Followed, until: float) -> str:
    """Points so far and the band from here to the end, over log tokens."""
    unit, path, history = one.unit, one.path, one.history
    first = min([*history["at"], path[unit].min()])
    span = np.log(until / first) or 1.0
    limit = [] if one.max_loss is None else [one.max_loss]
    seen = [*history["loss"], *path["low"], *path["high"], *limit]
    low, high = min(seen), max(seen)

    def column(at: float) -> int:
        return round((WIDTH - 1) * np.log(at / first) / span)

    def line(loss: float) -> int:
        share = (loss - low) / ((high - low) or 1.0)
        return round((HEIGHT - 1) * (1 - min(max(share, 0.0), 1.0)))

    grid = np.full((HEIGHT, WIDTH), " ")
    for loss in limit:
        grid[line(loss), :] = LIMIT
    at_column = np.exp(np.log(first) + span * np.arange(WIDTH) / (WIDTH - 1))
    for i, at in enumerate(at_column):
        if at < path[unit].iloc[0]:
            continue
        for edges, mark in (
            (("before_low", "before_high"), BEFORE),
            (("low", "high"), BAND),
        ):
            bottom, top = (np.interp(at, path[unit], path[edge]) for edge in edges)
            grid[line(top) : line(bottom) + 1, i] = mark
    for at, loss in zip(history["at"], history["loss"], strict=True):
        grid[line(loss), column(at)] = POINT
    labels = np.full(HEIGHT, " " * 7)
    labels[0], labels[-1] = f"{high:7.4g}", f"{low:7.4g}"
    lines = [f"{label} {''.join(row)}" for label, row in zip(labels, grid, strict=True)]
    ends = f"{format_count(first)}".ljust(WIDTH - 6) + format_count(until).rjust(6)
    return "\n".join([*lines, " " * 8 + ends])

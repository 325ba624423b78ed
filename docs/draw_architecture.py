"""Draw the rooms of the package from their imports: ``python
docs/draw_architecture.py``.

Writes ``architecture.svg`` and, beside it, ``architecture.json``: the rooms that each
room imports. A test fails where the code says something else than that file.
"""

import ast
import json
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

DOCS = Path(__file__).parent
PICTURE, KEPT = DOCS / "architecture.svg", DOCS / "architecture.json"
ROOMS = {  # what lives there, in a few words
    "_base": "errors, files, numbers",
    "_costs": "FLOPs, days, money",
    "_law": "terms, priors, catalogue",
    "models": "a law in a file",
    "_tables": "tables of runs, schedules",
    "_inference": "likelihood, chains",
    "_posteriors": "fits, chains, averages",
    "_pooling": "one law, many domains",
    "_forecasts": "forecasts, checks, reviews",
    "_plans": "cheapest plans",
    "_designs": "runs worth buying",
    "_schedules": "curves along schedules",
    "_running": "runs while they train",
    "plots": "pictures on Axes",
    "datasets": "bundled tables",
    "cli": "the commands",
    "_report": "one page of it all",
}
WIDTH, HEIGHT = 2.5, 0.62  # of a box
ACROSS, UP = 3.0, 1.08  # from box to box
INK, LINE, PAPER = "#1b1f24", "#8c959f", "#f6f8fa"

Arrows = dict[str, list[str]]  # a room, and the rooms it imports


# -- imports ---------------------------------------------------------------------------


def files(room: str) -> list[Path]:
    """The files of a room; ``models`` lies beside the package."""
    parent = DOCS.parent if room == "models" else DOCS.parent / "bayeslaw"
    return sorted((parent / room).rglob("*.py"))


def imported(path: Path) -> Iterator[str]:
    """The rooms that a file imports from; imports within functions and for types count,
    too.
    """
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            package, _, rest = name.partition(".")
            if package == "bayeslaw":
                yield rest.partition(".")[0]


def arrows_of_the_code() -> Arrows:
    arrows = {}
    for room in ROOMS:
        others = {other for path in files(room) for other in imported(path)} - {room}
        arrows[room] = sorted(others & set(ROOMS))
    return arrows


# -- the picture -----------------------------------------------------------------------


def floors(arrows: Arrows) -> dict[str, int]:
    """A room's floor is one above the highest of those it imports."""
    floor: dict[str, int] = {}
    for room in TopologicalSorter(arrows).static_order():
        floor[room] = 1 + max((floor[below] for below in arrows[room]), default=0)
    return floor


def needed(arrows: Arrows) -> list[tuple[str, str]]:
    """The arrows that no chain of others implies."""

    def reach(room: str) -> set[str]:
        return set(arrows[room]).union(*(reach(below) for below in arrows[room]))

    return [
        (room, below)
        for room in arrows
        for below in arrows[room]
        if not any(below in reach(other) for other in arrows[room])
    ]


def places(floor: dict[str, int]) -> dict[str, tuple[float, float]]:
    """The middle of each room's box; rooms of one floor stand side by side."""
    at = {}
    for level in sorted(set(floor.values())):
        rooms = [room for room in ROOMS if floor[room] == level]
        for i, room in enumerate(rooms):
            at[room] = (ACROSS * (i - (len(rooms) - 1) / 2), UP * level)
    return at


def draw(arrows: Arrows) -> Figure:
    """Boxes by floor, and an arrow from each room to what it builds on."""
    at = places(floors(arrows))
    size = [max(values) - min(values) for values in zip(*at.values(), strict=True)]
    figure = Figure(figsize=(size[0] + WIDTH + 0.4, size[1] + HEIGHT + 0.4))
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set_axis_off()
    for room, below in needed(arrows):
        _arrow(ax, at[room], at[below])
    for room, place in at.items():
        _box(ax, room, place)
    x, y = zip(*at.values(), strict=True)
    ax.set_xlim(min(x) - WIDTH / 2 - 0.2, max(x) + WIDTH / 2 + 0.2)
    ax.set_ylim(min(y) - HEIGHT / 2 - 0.2, max(y) + HEIGHT / 2 + 0.2)
    return figure


def _arrow(ax: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    """From the bottom of a box to the top of one below."""
    tail, head = (start[0], start[1] - HEIGHT / 2), (end[0], end[1] + HEIGHT / 2)
    style = {"arrowstyle": "-|>", "mutation_scale": 12, "shrinkA": 0, "shrinkB": 1}
    ax.add_patch(FancyArrowPatch(tail, head, color=LINE, lw=1.3, zorder=1, **style))


def _box(ax: Axes, room: str, place: tuple[float, float]) -> None:
    x, y = place
    corner = (x - WIDTH / 2, y - HEIGHT / 2)
    shape = FancyBboxPatch(
        corner,
        WIDTH,
        HEIGHT,
        boxstyle="round,pad=0,rounding_size=0.08",
        facecolor=PAPER,
        edgecolor=INK,
        lw=1.1,
        zorder=2,
    )
    ax.add_patch(shape)
    middle = {"ha": "center", "va": "center", "color": INK, "zorder": 3}
    name = f"{room}/"
    ax.text(x, y + 0.13, name, fontsize=11, family="monospace", weight="bold", **middle)
    ax.text(x, y - 0.14, ROOMS[room], fontsize=9, **middle)


def main() -> None:
    arrows = arrows_of_the_code()
    KEPT.write_text(json.dumps(arrows, indent=1) + "\n")
    # Equal arrows give equal bytes.
    with matplotlib.rc_context({"svg.hashsalt": "bayeslaw"}):
        draw(arrows).savefig(PICTURE, metadata={"Date": None, "Creator": None})
    print(PICTURE)


if __name__ == "__main__":
    main()

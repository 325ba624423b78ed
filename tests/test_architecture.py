"""The house: rooms import only rooms before them, and files without circles."""

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = (  # each imports only itself and those before it; imports inside functions and for types count, too
    "_base", "_costs", "_law", "models", "_tables", "_inference", "_posteriors", "_posteriors.fits", "_posteriors.averaging",
    "_pooling", "_forecasts", "_forecasts.checking", "_forecasts.review", "_plans", "_designs", "_designs.buying",
    "_schedules", "_running.following", "_running.updating", "_running", "plots", "datasets", "_report", "cli",
    "callbacks", "__main__",
)  # fmt: skip
ONLY = {
    "models": {"_base", "_law"},
    "_plans": set(ROOMS[: ROOMS.index("_posteriors.averaging") + 1]),
    "_schedules": set(ROOMS[: ROOMS.index("_plans")]),
    "callbacks": {"_base", "_running.following"},
}  # narrower than the order
BY_NAME = {  # files that import what no test can read off them, and why
    "bayeslaw._law.catalogue": "finds laws, which import the engine, by the names of their files",
    "bayeslaw._tables.sources.points": "imports trackers' own libraries",
}  # fmt: skip
PROTOCOL = {  # what rooms above the posteriors may know of them
    "bayeslaw._posteriors.posterior", "bayeslaw._posteriors.draws", "bayeslaw._posteriors.chain",
    "bayeslaw._posteriors.pairs", "bayeslaw._posteriors.outcomes", "bayeslaw._posteriors.answer",
    "bayeslaw._base.streams", "bayeslaw._posteriors.repetition", "bayeslaw._posteriors.accuracy",
    "bayeslaw._posteriors.averaging.loading", "bayeslaw._posteriors.averaging.checkpoint",
    "bayeslaw._posteriors.averaging.distance", "bayeslaw._law.columns",
}  # fmt: skip
ABOVE = (
    "_forecasts", "_plans", "_designs", "_schedules", "_running", "plots", "_report",
)  # fmt: skip
KNOW_MORE = {  # files that know more of laws or fits, and why: may only shrink
    "bayeslaw._designs.buying.campaign": "fits the laws from which runs are bought, or draws from their priors",
    "bayeslaw._designs.buying.next_runs": "takes the laws from which runs are bought",
    "bayeslaw._forecasts.checking.inference": "fits simulated tables and ranks parameters",
    "bayeslaw._forecasts.choosing": "fits the law that differs between the recipes of a table",
    "bayeslaw._forecasts.review.fits": "says which law of an average falls short",
    "bayeslaw._forecasts.review.review": "reads fits' files",
    "bayeslaw._forecasts.review.table": "says which laws can be fitted to a table",
    "bayeslaw._forecasts.sensitivity": "scales a law's priors",
    "bayeslaw._report.domains": "fits the laws of each domain",
    "bayeslaw._report.figures": "draws terms, priors and weights of laws",
    "bayeslaw._report.page": "fits, and names the versions it did so with",
    "bayeslaw._report.question": "reads which laws are asked for",
    "bayeslaw.plots.laws": "draws terms, priors and weights of laws",
}  # fmt: skip
FRONT_DOOR = (
    "bayeslaw"  # the public names, lazily; the commands come in by it like any user
)
MOST_FLOORS = 10


def files() -> dict[str, Path]:
    """Every file by the name it is imported by; ``models/`` is installed as `bayeslaw.models`."""
    named = {}
    for path in [*(ROOT / "bayeslaw").rglob("*.py"), *(ROOT / "models").rglob("*.py")]:
        parts = path.relative_to(ROOT).with_suffix("").parts
        parts = ("bayeslaw", *parts) if parts[0] == "models" else parts
        named[".".join(parts).removesuffix(".__init__")] = path
    return named


FILES = files()


def imported(name: str) -> Iterator[str]:
    """Files of the package that a file names in its imports, those by a string, too."""
    package = (
        name.split(".") if FILES[name].name == "__init__.py" else name.split(".")[:-1]
    )
    for node in ast.walk(ast.parse(FILES[name].read_text())):
        if text := string_imported(node):
            yield from [text] if text in FILES else []
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name in FILES)
        if isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *filter(None, [node.module])])
            for a in node.names:
                yield from [m for m in (f"{module}.{a.name}", module) if m in FILES][:1]


def string_imported(node: ast.AST) -> str:
    """What ``import_module("...")`` names; ``?`` where it is no plain string."""
    if not (isinstance(node, ast.Call) and node.args):
        return ""
    called = ast.unparse(node.func).split(".")[-1]
    if called not in ("import_module", "__import__"):
        return ""
    first = node.args[0]
    return first.value if isinstance(first, ast.Constant) else "?"


@cache
def arrows() -> dict[str, set[str]]:
    return {name: set(imported(name)) - {name} for name in FILES}


def room(name: str) -> str:
    """The innermost room of a file."""
    inside = name.removeprefix("bayeslaw.")
    return max(
        (r for r in ROOMS if f"{inside}.".startswith(f"{r}.")),
        key=len,
        default=FRONT_DOOR,
    )


@pytest.mark.parametrize("here", ROOMS)
def test_a_room_imports_only_rooms_before_it(here):
    allowed = (
        ONLY.get(here, set(ROOMS[: ROOMS.index(here)]))
        | {here}
        | ({FRONT_DOOR} if here == "cli" else set())
    )
    wrong = [
        f"{a} -> {b}"
        for a in FILES
        if room(a) == here
        for b in arrows()[a]
        if room(b) not in allowed
    ]
    assert not wrong


def test_the_front_door_imports_nothing_at_once():
    assert not arrows()[FRONT_DOOR]


def test_every_file_has_a_room():
    assert {room(name) for name in FILES} == {*ROOMS, FRONT_DOOR}
    assert {name for name in FILES if room(name) == FRONT_DOOR} == {FRONT_DOOR}


def test_no_circle_between_files():
    tuple(TopologicalSorter(arrows()).static_order())  # a CycleError names the circle


def test_what_is_imported_by_a_string_can_be_read():
    """Else an arrow would hide in it."""
    unread = {
        name
        for name, path in FILES.items()
        if "?" in map(string_imported, ast.walk(ast.parse(path.read_text())))
    }
    assert unread == set(BY_NAME)


def test_rooms_above_the_posteriors_know_the_protocol():
    """And nothing else about laws or fits, but for the files listed."""
    more = {
        name
        for name, others in arrows().items()
        if name.removeprefix("bayeslaw.").startswith(ABOVE)
        and any(is_of_laws(other) for other in others - PROTOCOL)
    }
    assert more == set(KNOW_MORE)


def is_of_laws(name: str) -> bool:
    inside = name.removeprefix("bayeslaw.")
    return inside.startswith(("_law.", "models", "_posteriors.", "_pooling."))


def test_few_floors():
    """A room's floor is one above the highest of those it imports; rooms within a room share its floor, and the
    way in by ``python -m`` has none.
    """
    below: dict[str, set[str]] = {}
    for name, others in arrows().items():
        if room(name) == "__main__":
            continue
        own = below.setdefault(room(name).split(".")[0], set())
        own |= {room(o).split(".")[0] for o in others} - {
            room(name).split(".")[0],
            FRONT_DOOR,
        }
    floor: dict[str, int] = {}
    for own in TopologicalSorter(below).static_order():
        floor[own] = 1 + max((floor[b] for b in below[own]), default=0)
    assert max(floor.values()) <= MOST_FLOORS, floor


def test_only_times_of_files_and_the_date_are_read_off_the_clock_on_the_wall():
    """A clock that jumps changes no duration: those come from monotonic clocks. The report says the date it was made on."""
    readers = {
        name
        for name, path in FILES.items()
        if re.search(r"\btime\.time\(|\bdatetime\.", path.read_text())
    }
    assert readers == {"bayeslaw._base.machine.cache", "bayeslaw._report.page"}


def test_every_package_is_shipped():
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"][
        "packages"
    ]
    assert sorted(listed) == sorted(
        name for name, path in FILES.items() if path.name == "__init__.py"
    )

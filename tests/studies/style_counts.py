"""Count the style of bayeslaw's code, and compare it with that of model codebases.

    python tests/studies/style_counts.py [ROOT]
    python tests/studies/style_counts.py --package SITE/optimistix
    python tests/studies/style_counts.py --worst 15
    python tests/studies/style_counts.py --offenders
    python tests/studies/style_counts.py --check

ROOT is a checkout with ``bayeslaw`` and ``models`` (default: this one). Prints a Markdown
table. Each ``--package`` adds a column to it. ``--offenders`` lists vague names and module
constants by file, and classes with the same name. ``--check`` exits 1 if a limit is
missed.

At commit 7556a36 (2026-11-22), before the code was moved and loosened, it gave the
figures of STYLE.md for bayeslaw: 168 / 857 lines a file (without ``models``), 6 / 18 / 77
lines a function, 17.3 nodes a line (with ``models``), 20 parameters, 60 files in one
folder; and 7.8 nodes a line for optimistix, 7.2 for equinox, 10.0 for tinygp.

Definitions
-----------
lines a file
    All lines, of every file but ``__init__.py``.
lines a function
    From ``def`` to its end, without docstrings (its own and those inside it).
syntax nodes a line
    Of one function: nodes of ``ast.walk`` over its body, ``Load`` and ``Store`` among
    them, for each line from the body's first to its last, both without docstrings.
    The table has the median over functions that do more than carry a docstring.
nodes a code line
    All nodes of all files, for each line that is code. Unlike the median over
    functions it counts tables, imports and signatures.
parameters
    Without ``self``, ``cls``, ``*args`` and ``**kwargs``. A function is public if a
    public ``__init__`` names it (or its class), or if no name on its path starts with
    an underscore.
comment lines, long lines
    Lines that begin with ``#``, and lines over 100 characters, among all lines.
rooms
    What lies directly under the package: a folder with all that is in it, or a file.
    ``models`` is a room. The package's own ``__init__`` only hands names on: it is no
    room, and a name taken from an ``__init__`` counts as taken from its home.
biggest room
    Its share of all lines.
lines, nodes a line that is not blank
    Of all files; all nodes of ``ast.walk``, docstrings and comments among the lines.
names that are participles or quantifiers
    Variables and parameters, as often as bound, called by one of `VAGUE` alone.
openings with "Of"
    Docstrings, and what they say of a parameter, that begin with "Of".
module constants
    Names in capitals that a module binds.
public functions over 8 parameters
    As above.
class names with two meanings
    Names of classes, not private ones, that two files define.
floors
    Files or rooms in the longest chain of imports; a circle is one floor. Imports
    inside functions count, and those by a string (``import_module``); those under
    ``TYPE_CHECKING`` do not.
"""

import argparse
import ast
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

LONG_LINE = 100
MOST_PARAMETERS = 8
VAGUE = frozenset(
    [
        "asked",
        "both",
        "drawn",
        "each",
        "found",
        "given",
        "held",
        "kept",
        "known",
        "left",
        "made",
        "one",
        "other",
        "others",
        "own",
        "read",
        "rest",
        "seen",
        "shown",
        "some",
        "taken",
        "told",
        "whole",
    ]
)
CONSTANT = re.compile(r"[A-Z][A-Z0-9_]+")
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)

Graph = dict[str, set[str]]  # a module or room, and what it imports
Exports = dict[tuple[str, str], tuple[str, str]]  # (package, name): (home, name there)


@dataclass(frozen=True)
class Source:
    """A file: its module's dotted name, its lines, its tree, its docstrings' lines."""

    path: Path
    module: str
    lines: list[str]
    tree: ast.Module
    docstrings: frozenset[int]

    @property
    def is_init(self) -> bool:
        return self.path.name == "__init__.py"


@dataclass(frozen=True)
class Function:
    """What is counted of one function."""

    name: str
    lines: int
    nodes_a_line: float | None  # None where the body is a docstring only
    parameters: int
    public: bool


@dataclass(frozen=True)
class Counts:
    """One column of the table."""

    files: int
    file_lines: tuple[float, int]
    function_lines: tuple[float, int, int]
    nodes_a_line: float
    nodes_a_code_line: float
    parameters: int
    public_parameters: int
    comments: float
    long_lines: float
    longest_line: int
    fullest_folder: int
    rooms: int
    floors: tuple[int, int]
    arrows: tuple[int, int]
    circles: tuple[int, int]
    lines: int
    nodes_a_written_line: float
    biggest_room: tuple[str, float]
    vague_names: int
    of_openings: int
    constants: int
    crowded: int
    two_meanings: int


# -- Reading ---------------------------------------------------------------------------


def read_package(folder: Path, name: str) -> list[Source]:
    """Read every Python file under a folder that is imported as ``name``."""
    return [
        read_source(path, module_name(path, folder, name))
        for path in sorted(folder.rglob("*.py"))
    ]


def module_name(path: Path, folder: Path, package: str) -> str:
    inside = path.relative_to(folder).with_suffix("").parts
    if inside[-1] == "__init__":
        inside = inside[:-1]
    return ".".join((package, *inside))


def read_source(path: Path, module: str) -> Source:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    return Source(path, module, text.splitlines(), tree, docstring_lines(tree))


def docstring_lines(tree: ast.Module) -> frozenset[int]:
    lines: set[int] = set()
    for node in ast.walk(tree):
        if has_docstring(node):
            docstring = node.body[0]  # pyright: ignore[reportAttributeAccessIssue]
            lines.update(line_range(docstring, docstring))
    return frozenset(lines)


def has_docstring(node: ast.AST) -> bool:
    if not isinstance(node, (ast.Module, *DEFINITIONS)):
        return False
    return ast.get_docstring(node, clean=False) is not None


def line_range(first: ast.stmt, last: ast.stmt) -> range:
    end = last.end_lineno or last.lineno
    return range(first.lineno, end + 1)


# -- Public names ----------------------------------------------------------------------


def read_exports(sources: Iterable[Source]) -> Exports:
    """List the names that an ``__init__.py``, or a stub beside it, takes from
    elsewhere.
    """
    exports: Exports = {}
    for source in sources:
        if not source.is_init:
            continue
        stub = source.path.with_suffix(".pyi")
        trees = [source.tree]
        if stub.exists():
            trees.append(ast.parse(stub.read_text(encoding="utf-8")))
        for tree in trees:
            exports.update(reexported(tree, source))
    return exports


def reexported(tree: ast.Module, source: Source) -> Exports:
    names: Exports = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            origin = imported_module(node, source)
            for alias in node.names:
                shown = alias.asname or alias.name
                names[source.module, shown] = (origin, alias.name)
    return names


def imported_module(node: ast.ImportFrom, source: Source) -> str:
    """Return the dotted name after ``from``, with leading dots resolved."""
    if node.level == 0:
        return node.module or ""
    parts = source.module.split(".")
    up = node.level - 1 if source.is_init else node.level
    parent = parts[: len(parts) - up]
    return ".".join([*parent, node.module] if node.module else parent)


def home(module: str, name: str, exports: Exports) -> tuple[str, str]:
    """Find where a name is defined that some ``__init__`` may have passed on."""
    # An __init__ may hand on a name to itself (`from . import kernels`).
    visited = set()
    while (module, name) in exports and (module, name) not in visited:
        visited.add((module, name))
        module, name = exports[module, name]
    return module, name


def public_homes(exports: Exports) -> set[tuple[str, str]]:
    return {
        home(package, name, exports)
        for package, name in exports
        if not is_private(package) and not is_private(name)
    }


def is_private(dotted: str) -> bool:
    # `__init__` and `__call__` are part of what a public class shows.
    parts = dotted.split(".")
    hidden = [part for part in parts if part.startswith("_")]
    return any(not part.endswith("__") for part in hidden)


# -- Functions -------------------------------------------------------------------------


def read_functions(sources: list[Source]) -> dict[str, list[Function]]:
    """List functions by the module that holds them."""
    homes = public_homes(read_exports(sources))
    return {
        source.module: [
            count_function(node, name, source, homes)
            for name, node in definitions(source.tree)
            if not isinstance(node, ast.ClassDef)
        ]
        for source in sources
    }


def definitions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """List functions and classes under a node, with their dotted names."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, DEFINITIONS):
            yield from definitions(child, prefix)
            continue
        name = prefix + child.name
        yield name, child
        # What is defined inside a function cannot be reached: its name is private.
        inner = "." if isinstance(child, ast.ClassDef) else "._locals."
        yield from definitions(child, name + inner)


def count_function(
    node: ast.FunctionDef,
    name: str,
    source: Source,
    homes: set[tuple[str, str]],
) -> Function:
    outermost = name.split(".")[0]
    named = (source.module, outermost) in homes
    reachable = named or not is_private(source.module)
    lines = set(line_range(node, node)) - source.docstrings
    return Function(
        name=f"{source.module}.{name}",
        lines=len(lines),
        nodes_a_line=nodes_a_line(node, source),
        parameters=count_parameters(node.args),
        public=reachable and not is_private(name),
    )


def nodes_a_line(node: ast.FunctionDef, source: Source) -> float | None:
    body = node.body[1:] if has_docstring(node) else node.body
    if not body:
        return None
    nodes = sum(count_nodes(statement) for statement in body)
    lines = set(line_range(body[0], body[-1])) - source.docstrings
    return nodes / len(lines)


def count_nodes(node: ast.AST) -> int:
    return sum(1 for _ in ast.walk(node))


def count_parameters(arguments: ast.arguments) -> int:
    parameters = [
        *arguments.posonlyargs,
        *arguments.args,
        *arguments.kwonlyargs,
    ]
    return sum(parameter.arg not in ("self", "cls") for parameter in parameters)


def densities(functions: Iterable[Function]) -> list[float]:
    return [f.nodes_a_line for f in functions if f.nodes_a_line is not None]


# -- Imports ---------------------------------------------------------------------------


def file_graph(sources: list[Source]) -> Graph:
    """Build the graph of which file imports which, without the outermost ``__init__``."""
    modules = {source.module for source in sources if "." in source.module}
    exports = read_exports(sources)
    graph: Graph = {}
    for source in sources:
        if source.module in modules:
            targets = imports(source, modules, exports)
            # What is not in `modules` is another package.
            graph[source.module] = (targets & modules) - {source.module}
    return graph


def imports(source: Source, modules: set[str], exports: Exports) -> set[str]:
    targets: set[str] = set()
    facades: dict[str, str] = {}
    for node in nodes_at_run_time(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                targets.add(alias.name)
                facades[alias.asname or alias.name] = alias.name
        if isinstance(node, ast.ImportFrom):
            origin = imported_module(node, source)
            for alias in node.names:
                targets.add(module_of(origin, alias.name, modules, exports))
        if (name := string_import(node)) is not None:
            targets.add(name)
        # After `import bayeslaw`, what is taken from it: `bayeslaw.fit`.
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            package = facades.get(node.value.id)
            if package is not None:
                targets.add(module_of(package, node.attr, modules, exports))
    return targets


def string_import(node: ast.AST) -> str | None:
    """Return the module that ``import_module("...")`` names."""
    if not (isinstance(node, ast.Call) and node.args):
        return None
    is_import = ast.unparse(node.func).split(".")[-1] == "import_module"
    name = node.args[0]
    if is_import and isinstance(name, ast.Constant):
        return str(name.value)
    return None


def nodes_at_run_time(node: ast.AST) -> Iterator[ast.AST]:
    """List all nodes in the file's order, except those that only a type checker reads."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from nodes_at_run_time(child)


def module_of(origin: str, name: str, modules: set[str], exports: Exports) -> str:
    """Find the module from which ``from origin import name`` takes its name."""
    direct = f"{origin}.{name}"
    if direct in modules:
        return direct
    # A name in an `__init__` may be handed on from another module, or be one.
    module, original = home(origin, name, exports)
    submodule = f"{module}.{original}"
    return submodule if submodule in modules else module


def room_graph(files: Graph) -> Graph:
    rooms: Graph = {room(module): set() for module in files}
    for module, targets in files.items():
        rooms[room(module)] |= {room(target) for target in targets}
    return {name: targets - {name} for name, targets in rooms.items()}


def room(module: str) -> str:
    return ".".join(module.split(".")[:2])


def count_arrows(graph: Graph) -> int:
    return sum(len(targets) for targets in graph.values())


def reachable_from(graph: Graph) -> Graph:
    """Find, for each node, all nodes that can be reached along arrows."""
    reached: Graph = {}
    for start in graph:
        reached[start] = set()
        waiting = list(graph[start])
        while waiting:
            node = waiting.pop()
            if node not in reached[start]:
                reached[start].add(node)
                waiting.extend(graph[node])
    return reached


def find_circles(graph: Graph) -> list[list[str]]:
    """Find groups of nodes that reach one another."""
    reached = reachable_from(graph)
    groups = {
        frozenset(other for other in reached[node] if node in reached[other])
        for node in graph
        if node in reached[node]
    }
    return sorted(sorted(group) for group in groups)


def count_floors(graph: Graph) -> int:
    reached = reachable_from(graph)

    # Below a node lies what it reaches, but for the circle that it is part of.
    @cache
    def height(node: str) -> int:
        below = [other for other in reached[node] if node not in reached[other]]
        return 1 + max(map(height, below), default=0)

    return max(map(height, graph), default=0)


# -- The table -------------------------------------------------------------------------


def count(sources: list[Source]) -> Counts:
    functions = [f for group in read_functions(sources).values() for f in group]
    lines = [line for source in sources for line in source.lines]
    comments = [line for line in lines if is_comment(line)]
    folders = Counter(source.path.parent for source in sources)
    files = file_graph(sources)
    rooms = room_graph(files)
    public = [f.parameters for f in functions if f.public]
    return Counts(
        files=len(sources),
        file_lines=count_file_lines(sources),
        function_lines=count_function_lines(functions),
        nodes_a_line=median(densities(functions)),
        nodes_a_code_line=count_nodes_a_code_line(sources),
        parameters=max(f.parameters for f in functions),
        public_parameters=max(public, default=0),
        comments=len(comments) / len(lines),
        long_lines=sum(map(count_long_lines, sources)) / len(lines),
        longest_line=max(map(len, lines)),
        fullest_folder=max(folders.values()),
        rooms=len(rooms),
        floors=(count_floors(rooms), count_floors(files)),
        arrows=(count_arrows(rooms), count_arrows(files)),
        circles=(len(find_circles(rooms)), len(find_circles(files))),
        lines=len(lines),
        nodes_a_written_line=count_nodes_a_written_line(sources),
        biggest_room=find_biggest_room(sources),
        vague_names=sum(len(find_vague_names(source)) for source in sources),
        of_openings=sum(map(count_of_openings, sources)),
        constants=sum(len(find_constants(source)) for source in sources),
        crowded=sum(number > MOST_PARAMETERS for number in public),
        two_meanings=len(find_two_meanings(sources)),
    )


def count_nodes_a_written_line(sources: list[Source]) -> float:
    nodes = sum(count_nodes(source.tree) for source in sources)
    lines = [line for source in sources for line in source.lines if line.strip()]
    return nodes / len(lines)


def find_biggest_room(sources: list[Source]) -> tuple[str, float]:
    """Return the name of the biggest room, and its share of the lines."""
    sizes: Counter[str] = Counter()
    for source in sources:
        sizes[room(source.module)] += len(source.lines)
    name, size = sizes.most_common(1)[0]
    return name, size / sizes.total()


def find_vague_names(source: Source) -> list[tuple[int, str]]:
    """Line and name of each."""
    names = []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.arg):
            names.append((node.lineno, node.arg))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.append((node.lineno, node.id))
    return sorted((line, name) for line, name in names if name in VAGUE)


def find_two_meanings(sources: Iterable[Source]) -> dict[str, list[str]]:
    """List modules by the name of a class that several of them define."""
    homes: dict[str, list[str]] = {}
    for source in sources:
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(source.module)
    return {name: modules for name, modules in homes.items() if len(modules) > 1}


def count_of_openings(source: Source) -> int:
    texts = [
        ast.get_docstring(node) or ""
        for node in ast.walk(source.tree)
        if isinstance(node, (ast.Module, *DEFINITIONS))
    ]
    return sum(len(re.findall(r"\A *Of |\n    Of ", text)) for text in texts)


def find_constants(source: Source) -> list[str]:
    bound = [
        node.id
        for statement in source.tree.body
        if isinstance(statement, (ast.Assign, ast.AnnAssign))
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]
    return [name for name in bound if CONSTANT.fullmatch(name)]


def is_comment(line: str) -> bool:
    return line.strip().startswith("#")


def count_long_lines(source: Source) -> int:
    return sum(len(line) > LONG_LINE for line in source.lines)


def count_file_lines(sources: list[Source]) -> tuple[float, int]:
    lengths = [len(source.lines) for source in sources if not source.is_init]
    return median(lengths), max(lengths)


def count_function_lines(functions: list[Function]) -> tuple[float, int, int]:
    lengths = sorted(f.lines for f in functions)
    ninety = int(0.9 * len(lengths))
    return median(lengths), lengths[ninety], lengths[-1]


def count_nodes_a_code_line(sources: list[Source]) -> float:
    nodes = sum(count_nodes(source.tree) for source in sources)
    return nodes / sum(map(count_code_lines, sources))


def count_code_lines(source: Source) -> int:
    numbered = enumerate(source.lines, start=1)
    outside = [line for number, line in numbered if number not in source.docstrings]
    return sum(is_code(line) for line in outside)


def is_code(line: str) -> bool:
    return bool(line.strip()) and not is_comment(line)


def slashes(numbers: Iterable[float]) -> str:
    return " / ".join(f"{number:g}" for number in numbers)


ROWS: list[tuple[str, Callable[[Counts], str]]] = [
    ("files", lambda c: str(c.files)),
    ("lines a file: median / most", lambda c: slashes(c.file_lines)),
    ("lines a function: median / 90% / most", lambda c: slashes(c.function_lines)),
    ("syntax nodes a line", lambda c: f"{c.nodes_a_line:.1f}"),
    ("nodes a code line, whole files", lambda c: f"{c.nodes_a_code_line:.1f}"),
    ("parameters: most", lambda c: str(c.parameters)),
    ("parameters of a public function: most", lambda c: str(c.public_parameters)),
    ("comment lines", lambda c: f"{c.comments:.1%}"),
    (f"lines over {LONG_LINE}", lambda c: f"{c.long_lines:.1%}"),
    ("longest line", lambda c: str(c.longest_line)),
    ("files in the fullest folder", lambda c: str(c.fullest_folder)),
    ("rooms", lambda c: str(c.rooms)),
    ("floors: rooms / files", lambda c: slashes(c.floors)),
    ("arrows: rooms / files", lambda c: slashes(c.arrows)),
    ("circles: rooms / files", lambda c: slashes(c.circles)),
    ("lines", lambda c: str(c.lines)),
    ("nodes a line that is not blank", lambda c: f"{c.nodes_a_written_line:.2f}"),
    ("biggest room", lambda c: f"{c.biggest_room[0]} {c.biggest_room[1]:.1%}"),
    ("names that are participles or quantifiers", lambda c: str(c.vague_names)),
    ('openings with "Of"', lambda c: str(c.of_openings)),
    ("module constants", lambda c: str(c.constants)),
    (f"public functions over {MOST_PARAMETERS} parameters", lambda c: str(c.crowded)),
    ("class names with two meanings", lambda c: str(c.two_meanings)),
]


def print_table(columns: dict[str, Counts]) -> None:
    print("| | " + " | ".join(columns) + " |")
    print("|---" * (1 + len(columns)) + "|")
    for label, shown in ROWS:
        cells = [shown(counts) for counts in columns.values()]
        print(f"| {label} | " + " | ".join(cells) + " |")


# -- What to loosen, and limits --------------------------------------------------------


def print_worst(sources: list[Source], most: int) -> None:
    by_module = read_functions(sources)
    functions = [f for group in by_module.values() for f in group]
    files = {
        module: median(densities(group))
        for module, group in by_module.items()
        if densities(group)
    }
    print_most("Files: median syntax nodes a line", files, most)
    # A function of a line or two says little about how its author writes.
    dense = {f.name: f.nodes_a_line or 0 for f in functions if f.lines >= 5}
    print_most("Functions of five lines or more: syntax nodes a line", dense, most)
    long = {source.module: count_long_lines(source) for source in sources}
    print_most(f"Files: lines over {LONG_LINE}", long, most)
    parameters = {f.name: f.parameters for f in functions if f.public}
    print_most("Public functions: parameters", parameters, most)


def print_most(title: str, numbers: dict, most: int) -> None:
    print(f"\n**{title}**\n")
    ordered = sorted(numbers.items(), key=lambda item: -item[1])
    for name, number in ordered[:most]:
        print(f"- {number:.4g}  {name}")


def print_offenders(sources: list[Source]) -> None:
    for source in sources:
        vague = [f"{line}: {name}" for line, name in find_vague_names(source)]
        if vague:
            print(f"- {source.module}, vague names at {', '.join(vague)}")
        constants = find_constants(source)
        if constants:
            print(f"- {source.module}, constants {', '.join(constants)}")
    for name, modules in find_two_meanings(sources).items():
        print(f"- class {name} in {' and '.join(modules)}")


def print_circles(sources: list[Source]) -> None:
    files = file_graph(sources)
    for kind, graph in (("rooms", room_graph(files)), ("files", files)):
        for circle in find_circles(graph):
            print(f"\nCircle of {kind}: {', '.join(circle)}")


def missed_limits(everything: Counts) -> list[str]:
    """Describe the limits that bayeslaw and models miss."""
    limits = [
        ("floors of rooms", everything.floors[0], 10),
        ("circles of rooms", everything.circles[0], 0),
        ("circles of files", everything.circles[1], 0),
        ("parameters of a public function", everything.public_parameters, 10),
        ("syntax nodes a line", everything.nodes_a_line, 11),
        (f"share of lines over {LONG_LINE}", everything.long_lines, 0.02),
    ]
    missed = [
        f"{label}: {number:.3g}, at most {limit}"
        for label, number, limit in limits
        if number > limit
    ]
    if everything.comments < 0.02:
        share = f"{everything.comments:.3g}"
        missed.append(f"share of comment lines: {share}, at least 0.02")
    return missed


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    here = Path(__file__).resolve().parents[2]
    parser.add_argument("root", nargs="?", type=Path, default=here)
    parser.add_argument("--package", action="append", type=Path, default=[])
    parser.add_argument("--worst", type=int, default=0, help="how many to list")
    parser.add_argument("--offenders", action="store_true", help="list them by file")
    parser.add_argument("--check", action="store_true", help="exit 1 past a limit")
    return parser.parse_args()


def main() -> None:
    options = parse_arguments()
    package = read_package(options.root / "bayeslaw", "bayeslaw")
    models = read_package(options.root / "models", "bayeslaw.models")
    everything = package + models
    columns = {"bayeslaw": count(package), "bayeslaw + models": count(everything)}
    for folder in options.package:
        columns[folder.name] = count(read_package(folder, folder.name))
    print_table(columns)
    print_circles(everything)
    if options.worst:
        print_worst(everything, options.worst)
    if options.offenders:
        print_offenders(everything)
    if options.check:
        missed = missed_limits(columns["bayeslaw + models"])
        for line in missed:
            print(f"missed: {line}", file=sys.stderr)
        sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()

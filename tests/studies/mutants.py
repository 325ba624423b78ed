"""Put small faults into the code, and find out which of them the tests notice.

    python tests/studies/mutants.py [FILE ...] [--each 12] [--seed 0] [--jobs 2]
    python tests/studies/mutants.py --by-hand
    python tests/studies/mutants.py --all -o docs/results/mutants.txt

A mutant is the package with one expression changed (`mutations`): a comparison turned
or moved by its boundary, an arithmetic sign, a constant, min and max, mean and median,
``and`` and ``or``, ``not`` dropped, a result negated, a keyword dropped. A random sample
of each file's mutants is tried; ``--by-hand`` tries those of `named_mutants`, which a
reviewer would think of. A mutant is written into a copy of the tree, never into the
checkout. There pytest runs the file's tests (`TESTS`) in a separate process until the
first failure. The mutant is killed if a test fails, or if the tests take too long.
Programs that the mutant does not change come from one cache, so a mutant takes seconds.

No library does this. mutmut 3 runs pytest in a process that it forks after JAX has started
its threads, and it finds ``models/``, installed as ``bayeslaw.models``, in the checkout.
cosmic-ray has no sampling (``check.py`` alone has a thousand mutants) and no mutants of
keywords, and it changes the files of the checkout.
"""

import argparse
import ast
import copy
import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import NamedTuple

from named_mutants import NAMED, REASONS, TESTS

ROOT = Path(__file__).parents[2]
BY_HAND, DRAWN = "Thought of by hand", "Drawn"
TOLERANCE = 1e-5  # a number below is one: twice as much is no fault
SLACK = 3.0  # times what a file's tests take on the code as it is, and half a minute

COMPARISONS: dict[type, tuple[type, ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
ARITHMETIC: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
PAIRS = (
    ("min", "max"),
    ("minimum", "maximum"),
    ("argmin", "argmax"),
    ("any", "all"),
    ("floor", "ceil"),
    ("zeros", "ones"),
    ("mean", "median"),
)
SWAPPED = {a: b for pair in PAIRS for a, b in (pair, pair[::-1])} | {
    "sum": "mean",
    "std": "var",
    "cumsum": "cumprod",
}
# calls whose argument takes their place
PASSED_ON = {"abs", "sqrt", "exp", "log", "log1p", "expm1", "sort", "square"}


class Mutant(NamedTuple):
    """``file``: from the root; ``start``, ``end``: what is replaced, in bytes."""

    file: str
    line: int
    start: int
    end: int
    old: str
    new: str

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def change(self) -> str:
        old, new = (" ".join(text.split()) for text in (self.old, self.new))
        return f"{old} -> {new or 'nothing'}"


class Outcome(NamedTuple):
    """A mutant, and what noticed it: a test, the time limit, or nothing."""

    mutant: Mutant
    noticed_by: str


# -- mutations -------------------------------------------------------------------------


def mutations(file: str) -> list[Mutant]:
    """List every mutant of a file."""
    source = (ROOT / file).read_text()
    lines = source.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    found = []
    for node, replacement in _changes(ast.parse(source)):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        old = source.encode()[start:end].decode()
        new = replacement if isinstance(replacement, str) else _text(replacement)
        if new != old:
            found.append(Mutant(file, node.lineno, start, end, old, new))
    return found


def _text(node: ast.AST) -> str:
    """Source of an expression, in brackets where it needs them."""
    text = ast.unparse(node)
    is_plain = isinstance(node, ast.Constant | ast.Call | ast.Name | ast.Attribute)
    return text if is_plain or isinstance(node, ast.stmt) else f"({text})"


def _changes(tree: ast.AST) -> Iterator[tuple[ast.AST, ast.AST | str]]:
    """List nodes with their possible replacements, outside messages and types."""
    for child in _children(tree):
        yield from _of_node(child)
        yield from _changes(child)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    skipped = {"annotation", "returns", "decorator_list", "type_params"}
    for name, value in ast.iter_fields(node):
        if name in skipped:
            continue
        for child in value if isinstance(value, list) else [value]:
            is_message = isinstance(child, ast.Raise | ast.JoinedStr | ast.Import)
            is_types = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(
                child.test
            )
            is_skipped = is_message or is_types or _is_strict(child)
            if isinstance(child, ast.AST) and not is_skipped:
                yield child


def _is_strict(node: object) -> bool:
    """Tell whether a node is the ``strict`` of a zip, which is not mutated: it is an
    assertion, and code without it behaves the same.
    """
    return isinstance(node, ast.keyword) and node.arg == "strict"


def _with(node: ast.AST, **fields) -> ast.AST:
    changed = copy.deepcopy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _of_node(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST | str]]:
    match node:
        case ast.Compare(ops=[op]):
            for other in COMPARISONS[type(op)]:
                yield node, _with(node, ops=[other()])
        case ast.BinOp(op=op) if type(op) in ARITHMETIC:
            yield node, _with(node, op=ARITHMETIC[type(op)]())
        case ast.BoolOp(op=op):
            other = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield node, _with(node, op=other)
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert(), operand=operand):
            yield node, operand
        case ast.Constant(value=bool() as value):
            yield node, ast.Constant(not value)
        case ast.Constant(value=int() as value):
            yield node, ast.Constant(value + 1)
        case ast.Constant(value=float() as value):
            yield node, ast.Constant(value + 1 if value < TOLERANCE else 2 * value)
        case ast.IfExp(test=test):
            yield test, ast.UnaryOp(ast.Not(), test)
        case ast.If(test=test):
            yield test, ast.UnaryOp(ast.Not(), test)
        case ast.AugAssign():
            yield node, "pass"
        case ast.Return(value=value) if value is not None:
            if isinstance(value, ast.BinOp | ast.Name) or _is_function(value):
                yield value, ast.UnaryOp(ast.USub(), value)
        case ast.Call():
            yield from _of_call(node)


def _of_call(node: ast.Call) -> Iterator[tuple[ast.AST, ast.AST | str]]:
    function = node.func
    name = getattr(function, "attr", getattr(function, "id", ""))
    if name in SWAPPED:
        field = "attr" if isinstance(function, ast.Attribute) else "id"
        yield function, _with(function, **{field: SWAPPED[name]})
    if name in PASSED_ON and len(node.args) == 1:
        yield node, node.args[0]
    if not _is_function(node):
        return  # records need all of their fields
    for keyword in node.keywords:
        if keyword.arg and not _is_strict(keyword):
            others = [other for other in node.keywords if other is not keyword]
            yield node, _with(node, keywords=others)


def _is_function(node: ast.AST) -> bool:
    """Tell whether a node calls a function, and not a record's class."""
    return isinstance(node, ast.Call) and not ast.unparse(node.func)[:1].isupper()


def sample(file: str, count: int, seed: int) -> list[Mutant]:
    """Some of a file's mutants, by the seed."""
    found = mutations(file)
    rng = random.Random(f"{file} {seed}")
    chosen = rng.sample(found, min(count, len(found)))
    return sorted(chosen, key=lambda mutant: mutant.start)


def by_hand() -> list[Mutant]:
    """List the mutants of `named_mutants`; each old text must be in its file exactly
    once.
    """
    found = []
    for file, old, new in NAMED:
        source = (ROOT / file).read_text()
        if source.count(old) != 1:
            raise SystemExit(f"{file} has {old!r} {source.count(old)} times, not once")
        start = len(source[: source.index(old)].encode())
        line = source[: source.index(old)].count("\n") + 1
        found.append(Mutant(file, line, start, start + len(old.encode()), old, new))
    return found


# -- trials ----------------------------------------------------------------------------


def tests_of(file: str) -> tuple[str, ...]:
    """List the tests that should notice a fault in a file: those of its longest known
    prefix.
    """
    prefixes = [prefix for prefix in TESTS if file.startswith(prefix)]
    return TESTS[max(prefixes, key=len)]


NO_TESTS = 5  # the exit status of pytest that collects none


class Copy:
    """A copy of the tree in which a mutant may stand."""

    def __init__(self, folder: Path):
        self.folder = folder
        listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(
            listed, cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout
        for name in names.splitlines():
            if (ROOT / name).is_file() and not name.startswith(("docs/", "notebooks/")):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)
        # an editable installation takes the laws from the checkout
        (folder / "bayeslaw" / "models").symlink_to(folder / "models")

    def failure(self, tests: Sequence[str], limit: float | None) -> str:
        """Return the first test that fails here, or the time limit; empty if all pass."""
        there = [name for name in tests if (self.folder / name).exists()]
        options = ["-x", "-q", "--tb=no", "-p", "no:cacheprovider"]
        environment = os.environ | {"PYTHONPATH": str(self.folder)}
        # where all tests of the files are slow, these are run
        for chosen in ([], ["-m", ""]):
            try:
                result = subprocess.run(
                    [sys.executable, "-B", "-m", "pytest", *options, *chosen, *there],
                    cwd=self.folder,
                    env=environment,
                    timeout=limit,
                    capture_output=True,
                    text=True,
                )
            except subprocess.TimeoutExpired:
                return "the time limit"
            if result.returncode != NO_TESTS:
                break
        if result.returncode == 0:
            return ""
        lines = result.stdout.splitlines()
        failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
        return failed[0].split(" - ")[0] if failed else "no test could run"

    def attempt(self, mutant: Mutant, limit: float) -> Outcome:
        """Tell whether the tests notice a mutant."""
        path = self.folder / mutant.file
        source = path.read_bytes()
        new = source[: mutant.start] + mutant.new.encode() + source[mutant.end :]
        path.write_bytes(new)
        try:
            return Outcome(mutant, self.failure(tests_of(mutant.file), limit))
        finally:
            path.write_bytes(source)


def attempt_all(
    mutants: Sequence[Mutant],
    jobs: int,
    seconds: float | None = None,
    minutes: float = math.inf,
    log: Path | None = None,
) -> list[Outcome]:
    """Test each mutant in one of the copies; progress goes to stderr.

    ``seconds``: that a mutant may take; by default as measured on the code as it is.
    ``minutes``: after which no further mutant is tried. ``log``: outcomes are kept
    there, a line each, and those that are there are not tried again.
    """
    known = _logged(log)
    told = [Outcome(m, known[m]) for m in mutants if m in known]
    mutants = [m for m in mutants if m not in known]
    until = time.monotonic() + 60 * minutes
    with tempfile.TemporaryDirectory(prefix="mutants") as name:
        copies: Queue[Copy] = Queue()
        for number in range(jobs):
            copies.put(Copy(Path(name) / str(number)))

        def limit(tests: tuple[str, ...]) -> float:
            if seconds is not None:
                return seconds
            here = copies.get()
            began = time.perf_counter()
            failure = here.failure(tests, None)
            copies.put(here)
            if failure:
                raise SystemExit(f"the tests fail on the code as it is: {failure}")
            return SLACK * (time.perf_counter() - began) + 30

        def attempt(mutant: Mutant) -> Outcome | None:
            if time.monotonic() > until:
                return None
            here = copies.get()
            outcome = here.attempt(mutant, limits[tests_of(mutant.file)])
            copies.put(here)
            fate = outcome.noticed_by or "ALIVE"
            print(
                f"{mutant.place} {mutant.change}: {fate}", file=sys.stderr, flush=True
            )
            if log:
                with log.open("a") as lines:
                    lines.write(json.dumps([*mutant, outcome.noticed_by]) + "\n")
            return outcome

        with ThreadPoolExecutor(jobs) as pool:
            asked = sorted({tests_of(mutant.file) for mutant in mutants})
            limits = dict(zip(asked, pool.map(limit, asked), strict=True))
            outcomes = pool.map(attempt, mutants)
            return told + [outcome for outcome in outcomes if outcome]


def _logged(log: Path | None) -> dict[Mutant, str]:
    """Read which test noticed each mutant, from the log of a study that was cut short."""
    if log is None or not log.exists():
        return {}
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    return {Mutant(*row[:-1]): row[-1] for row in rows}


# -- what is told ----------------------------------------------------------------------


def score(outcomes: Sequence[Outcome]) -> str:
    """Tried and killed by file, as a table."""
    rows = ["| file | tried | killed | alive |", "|---|---|---|---|"]
    files = sorted({outcome.mutant.file for outcome in outcomes})
    for file in files:
        fates = [bool(o.noticed_by) for o in outcomes if o.mutant.file == file]
        counts = len(fates), sum(fates), len(fates) - sum(fates)
        rows.append(f"| `{file}` | {' | '.join(map(str, counts))} |")
    killed = sum(bool(outcome.noticed_by) for outcome in outcomes)
    alive = len(outcomes) - killed
    rows.append(f"| all | {len(outcomes)} | {killed} | {alive} |")
    return "\n".join(rows)


def survivors(outcomes: Sequence[Outcome]) -> str:
    """List mutants that no test noticed, with the reason if there is one."""
    alive = [outcome.mutant for outcome in outcomes if not outcome.noticed_by]
    if not alive:
        return "None is alive."
    # without line numbers, which the next change of the file would make wrong
    rows = ["| file | change | why it lives |", "|---|---|---|"]
    for mutant in alive:
        reason = REASONS.get((mutant.file, mutant.change), "*open*")
        change = mutant.change.replace("|", "\\|")
        rows.append(f"| `{mutant.file}` | `{change}` | {reason} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", help="by default every file of TESTS")
    parser.add_argument("--each", type=int, default=12, help="mutants of a file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--by-hand", action="store_true", help="the named ones only")
    parser.add_argument("--all", action="store_true", help="both")
    parser.add_argument(
        "--limit", type=float, help="seconds of a mutant; by default as measured"
    )
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="after which none is begun"
    )
    parser.add_argument(
        "--log", type=Path, help="outcomes, kept; what it has is not tried again"
    )
    parser.add_argument(
        "-o", "--output", type=Path, help="the part that is not tried stays"
    )
    given = parser.parse_args()
    files = given.files or _known_files()
    named = by_hand() if given.by_hand or given.all else []
    named = [mutant for mutant in named if not given.files or mutant.file in files]
    drawn = []
    if not given.by_hand:
        drawn = [m for file in files for m in sample(file, given.each, given.seed)]
        # so that a study cut short has tried of every file
        random.Random(given.seed).shuffle(drawn)
    outcomes = attempt_all(
        [*named, *drawn], given.jobs, given.limit, given.minutes, given.log
    )
    outcomes.sort(key=lambda outcome: outcome.mutant)
    parts = {}
    for title, tried in ((BY_HAND, named), (DRAWN, drawn)):
        some = [outcome for outcome in outcomes if outcome.mutant in tried]
        if some:
            parts[title] = f"{score(some)}\n\n{survivors(some)}"
    print(_joined(parts))
    if given.output:
        kept = _parts_of(given.output.read_text()) if given.output.exists() else {}
        given.output.write_text(_joined(kept | parts))


def _known_files() -> list[str]:
    """List the files of the package whose tests are known."""
    found = []
    for prefix in TESTS:
        pattern = prefix if prefix.endswith(".py") else f"{prefix}*.py"
        found += [str(path.relative_to(ROOT)) for path in sorted(ROOT.glob(pattern))]
    return [file for file in dict.fromkeys(found) if file.startswith("bayeslaw")]


def _joined(parts: Mapping[str, str]) -> str:
    titles = [title for title in (BY_HAND, DRAWN) if title in parts]
    return "\n\n".join(f"**{title}**\n\n{parts[title]}" for title in titles) + "\n"


def _parts_of(text: str) -> dict[str, str]:
    """Read the sections that an earlier run wrote, by title."""
    found = re.split(r"^\*\*(.+)\*\*$", text, flags=re.MULTILINE)[1:]
    return {found[k]: found[k + 1].strip() for k in range(0, len(found), 2)}


if __name__ == "__main__":
    main()

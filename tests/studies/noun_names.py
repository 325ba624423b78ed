"""List private functions whose names are one word that is no verb.

    python tests/studies/noun_names.py [ROOM ...]

A function is read once if its name says what it does: `_find_stops`, not `_stops`. Prints
the names by file, and how many there are of how many private functions in each room.
Properties may be nouns, and are left out. On 2026-11-28, before rooms were renamed, the
command listed 655 of 1,236.
"""

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from style_counts import Source, definitions, read_package, room

ROOT = Path(__file__).resolve().parents[2]
VERBS = """
    add advance allow apply ask bisect call check choose clear close collect compile
    copy count draw drop evaluate fill find finish fit flatten forget format guess
    join keep linearise list load look make match merge minimise move name note open
    order pack pair parse plot print put raise rank read refit refuse remove rename
    report resume run save score search select send settle show solve sort split
    start stop take teaches tell try unwhiten update wait warn weigh write
"""


def private_functions(source: Source) -> Iterator[tuple[str, int]]:
    """List private functions and methods with their lines, without properties."""
    for dotted, node in definitions(source.tree):
        name = dotted.rpartition(".")[2]
        if isinstance(node, ast.ClassDef) or not name.startswith("_"):
            continue
        decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
        is_property = any("property" in decorator for decorator in decorators)
        if not (is_property or name.endswith("__")):
            yield name, node.lineno


def is_noun(name: str) -> bool:
    """Tell whether a private name is one word that is no verb."""
    word = name.removeprefix("_")
    return "_" not in word and word not in VERBS.split()


def main() -> None:
    package = read_package(ROOT / "bayeslaw", "bayeslaw")
    everything = package + read_package(ROOT / "models", "bayeslaw.models")
    rooms = {f"bayeslaw.{name}" for name in sys.argv[1:]}
    functions: Counter[str] = Counter()
    nouns: Counter[str] = Counter()
    for source in everything:
        place = room(source.module)
        if rooms and place not in rooms:
            continue
        names = list(private_functions(source))
        listed = [f"{line}: {name}" for name, line in names if is_noun(name)]
        functions[place] += len(names)
        nouns[place] += len(listed)
        if listed:
            print(f"- {source.module}, {', '.join(listed)}")
    print("\n| room | private functions | one-word nouns |\n|---|---|---|")
    for place, number in functions.most_common():
        print(f"| {place} | {number} | {nouns[place]} |")
    print(f"| all | {functions.total()} | {nouns.total()} |")


if __name__ == "__main__":
    main()

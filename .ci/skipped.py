"""Which tests no step of CI ran, and why.

    python .ci/skipped.py RESULTS.xml...

Reads pytest's JUnit files. A test that one step skipped and another ran is not told.
Fails where a reason is not among `KNOWN`.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree

# Part of a reason, and why it may stand.
KNOWN = {
    "which is not on this machine": "other people's tables are no part of the project",
    "needs the extra hf": "torch takes 7 GB: run tests/decisions/test_callback.py by hand",
}


def outcomes(path: Path) -> Iterator[tuple[str, str | None]]:
    """Each test of a file of results, and why it was skipped, if it was."""
    for case in ElementTree.parse(path).iter("testcase"):
        place = case.get("classname") or ""
        name = f"{place}::{case.get('name')}".removeprefix("::")
        skipped = case.find("skipped")
        # one that is expected to fail was run
        was_run = skipped is None or skipped.get("type") == "pytest.xfail"
        yield name, None if was_run else _reason(skipped)


def _reason(skipped: ElementTree.Element) -> str:
    """What the test said; of a whole file it stands in the text."""
    message = skipped.get("message") or ""
    if message == "collection skipped":
        message = (skipped.text or "").rstrip("')").split("Skipped: ")[-1]
    return message


def never_run(paths: Sequence[Path]) -> dict[str, str]:
    """Reasons of tests that were skipped wherever they were collected."""
    ran: set[str] = set()
    reasons: dict[str, str] = {}
    for path in paths:
        for name, reason in outcomes(path):
            if reason is None:
                # a file whose tests ran was not skipped as a whole
                ran |= {name, name.partition("::")[0]}
            else:
                reasons[name] = reason
    return {name: why for name, why in reasons.items() if name not in ran}


def main(names: Sequence[str]) -> int:
    """Print them by reason; 1 where one is not known."""
    paths = [Path(name) for name in names]
    steps = Counter()
    for path in paths:
        steps[path.stem] = sum(reason is None for _, reason in outcomes(path))
    told = ", ".join(f"{name} {count}" for name, count in steps.items())
    by_reason: dict[str, list[str]] = defaultdict(list)
    for name, reason in never_run(paths).items():
        by_reason[reason].append(name)
    total = sum(map(len, by_reason.values()))
    print(f"tests run: {told}; skipped by every step: {total}")
    unknown = 0
    for reason, tests in sorted(by_reason.items()):
        why = next((why for part, why in KNOWN.items() if part in reason), None)
        unknown += why is None
        print(f"  {len(tests)}: {reason} ({why or 'NOT EXPECTED'})")
        if why is None:
            print("".join(f"    {name}\n" for name in tests), end="")
    return int(unknown > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

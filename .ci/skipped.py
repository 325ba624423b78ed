"""Which tests no step of CI ran, and why.

    python .ci/skipped.py RESULTS.xml...

Reads pytest's JUnit files. A test that one step skipped and another ran is not told.
Fails where a reason is not among `KNOWN`.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from xml.etree import ElementTree

Outcome = tuple[str, str | None]
"""A test, and why it was skipped, if it was."""

# Part of a reason, and why it may stand.
KNOWN = {
    "which is not on this machine": "other people's tables are no part of the project",
    "needs the extra hf": "torch takes 7 GB: run tests/running/test_callback.py by hand",
}


def outcomes(path: Path) -> Iterator[Outcome]:
    """Each test of a file of results."""
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


def never_run(steps: Mapping[str, Sequence[Outcome]]) -> dict[str, str]:
    """Reasons of tests that were skipped wherever they were collected."""
    ran: set[str] = set()
    reasons: dict[str, str] = {}
    for name, reason in chain.from_iterable(steps.values()):
        if reason is None:
            # a file whose tests ran was not skipped as a whole
            ran |= {name, name.partition("::")[0]}
        else:
            reasons[name] = reason
    return {name: why for name, why in reasons.items() if name not in ran}


def main(names: Sequence[str]) -> int:
    """Print them by reason; 1 where one is not known."""
    steps = {Path(name).stem: list(outcomes(Path(name))) for name in names}
    counts = [
        f"{step} {sum(reason is None for _, reason in tests)}"
        for step, tests in steps.items()
    ]
    told = ", ".join(counts)
    by_reason: dict[str, list[str]] = defaultdict(list)
    for name, reason in never_run(steps).items():
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

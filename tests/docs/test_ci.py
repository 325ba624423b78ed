"""What CI is told by: skips that no step made up for, the lowest versions, and the
places of mutants thought of by hand.
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import mutants
import pytest

ROOT = Path(__file__).parents[2]
SKIPPED = ROOT / ".ci" / "skipped.py"
RESULTS = '<testsuites><testsuite name="pytest">{}</testsuite></testsuites>'
CASE = '<testcase classname="{}" name="{}">{}</testcase>'


def case(place: str, name: str, reason: str | None = None) -> str:
    """A test in a file of results."""
    skip = f'<skipped type="pytest.skip" message="{reason}">at</skipped>'
    return CASE.format(place, name, "" if reason is None else skip)


def told(folder: Path, **steps: str) -> subprocess.CompletedProcess[str]:
    """What the script says of the results of these steps."""
    paths = [folder / f"{name}.xml" for name in steps]
    for path, cases in zip(paths, steps.values(), strict=True):
        path.write_text(RESULTS.format(cases))
    command = [sys.executable, str(SKIPPED), *map(str, paths)]
    return subprocess.run(command, capture_output=True, text=True)


def test_a_test_that_no_step_ran_fails_by_name(tmp_path):
    """One that another step ran does not, and one whose reason is known is counted."""
    there = case("tests.a", "test_peer", "needs the extra peers")
    odd = case("tests.a", "test_odd", "of no use today")
    shared = case("tests.b", "test_real", "needs x, which is not on this machine")
    ran = case("tests.a", "test_peer")
    done = told(tmp_path, suite=there + odd + shared, extras=ran)
    assert done.returncode == 1
    assert "suite 0, extras 1; skipped by every step: 2" in done.stdout
    assert "1: of no use today (NOT EXPECTED)\n    tests.a::test_odd" in done.stdout
    assert "1: needs x, which is not on this machine (other people" in done.stdout
    assert "peers" not in done.stdout
    assert told(tmp_path, suite=there + shared, extras=ran).returncode == 0


def test_one_that_is_expected_to_fail_was_run(tmp_path):
    expected = '<skipped type="pytest.xfail" message="not yet" />'
    done = told(tmp_path, suite=CASE.format("tests.a", "test_it", expected))
    assert done.returncode == 0
    assert "suite 1; skipped by every step: 0" in done.stdout


def test_a_file_skipped_as_a_whole_is_seen(tmp_path):
    """pytest tells such a file by its name alone, and the reason in the text."""
    text = "('/x/test_c.py', 3, 'Skipped: needs the extra peers')"
    whole = CASE.format(
        "", "tests.c", f'<skipped message="collection skipped">{text}</skipped>'
    )
    done = told(tmp_path, suite=whole)
    assert done.returncode == 1
    assert "1: needs the extra peers (NOT EXPECTED)" in done.stdout
    assert (
        told(tmp_path, suite=whole, extras=case("tests.c", "test_it")).returncode == 0
    )


def test_the_lowest_versions_are_those_that_are_declared(script):
    """Of every dependency that has a bound; two of them by hand."""
    found = dict(line.split("==") for line in script("../.ci/lowest.py").lowest([]))
    text = (ROOT / "pyproject.toml").read_text()
    declared = tomllib.loads(text)["project"]["dependencies"]
    names = {re.match(r"[\w.-]+", line)[0] for line in declared if ">=" in line}
    assert set(found) == names
    assert found["jax"] == re.search(r'"jax>=([\d.]+)"', text)[1]
    assert found["arviz-base"] == re.search(r'"arviz-base\[.*\]>=([\d.]+)"', text)[1]


def test_the_list_of_living_faults_has_no_line_numbers():
    """They would be wrong after the next change of a file."""
    alive = mutants.Outcome(mutants.by_hand()[0], "")
    for text in (
        mutants.survivors([alive]),
        (ROOT / "docs/results/mutants.txt").read_text(),
    ):
        assert "| file | change | why it lives |" in text
        assert not re.search(r"\.py:\d", text)


def test_faults_thought_of_by_hand_have_their_place():
    """Each changes a text that stands once in its file: it ends the study if not."""
    assert len(mutants.by_hand()) == len(mutants.NAMED) > 60


@pytest.mark.parametrize("step", ["suite", "slow", "lint", "extras", "turn", "skipped"])
def test_ci_has_each_step(step):
    """And runs it by default."""
    text = (ROOT / ".ci" / "run").read_text()
    assert f"\n{step}() {{" in text
    assert step in re.search(r"set -- (.+)", text)[1].split()


def test_ci_names_files_that_exist():
    """A path that is gone ends the step before its first test."""
    named = re.findall(r"\btests/[\w./]+", (ROOT / ".ci" / "run").read_text())
    assert len(named) > 8
    assert [path for path in named if not (ROOT / path).exists()] == []

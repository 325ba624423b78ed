"""Figures that people read are those of the kept rows, and a row made today is the one
that was kept.
"""

import re
from pathlib import Path

import against
import pandas as pd
import pytest
import true_forms

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def shares(table: str, column: int, rows: str) -> list[float]:
    """Percentages in a column of a table, of the rows whose second cell matches."""
    cells = [[c.strip() for c in line.split("|")[1:-1]] for line in table.splitlines()]
    found = [row[column] for row in cells if re.fullmatch(rows, row[1])]
    return [float(text.removesuffix("%")) for text in found]


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("docs/howto/plan.md", "kept both limits in {}, plug-in plans in {} "),
        ("docs/discrepancy.md", "in {} of a hundred worlds; plans without .* in {}[.]"),
        ("docs/decisions.md", "kept both limits in {} of them, plug-in plans in {} "),
        ("docs/calibration.md", "kept both limits in {} of worlds"),
        ("notebooks/plan.ipynb", "kept both limits in {}, plug-in plans in {} "),
        ("notebooks/story.ipynb", "in {} of those worlds, plug-in plans in {}[.]"),
    ],
)
def test_every_page_says_what_became_of_the_plans(page, words):
    """How often both limits were kept in the worlds of the present study."""
    kept = (DOCS / "results/missed_worlds.txt").read_text()
    of_worlds = [line.split("|")[3].strip() for line in kept.splitlines()[2:]]
    text = (ROOT / page).read_text().replace('\\n",\n', "").replace('    "', " ")
    said = re.search(words.replace("{}", r"(\d+%)"), " ".join(text.split()))
    assert said is not None
    assert list(said.groups()) == of_worlds[: len(said.groups())]


def test_the_comparison_says_what_a_bootstrap_holds():
    """And the average, on the simulated grids."""
    kept = (DOCS / "results/simulated_grids.txt").read_text()
    text = " ".join((DOCS / "comparison.md").read_text().split())
    said = re.search(
        r"held (\d+) to (\d+)% .*? The average's held (\d+) to (\d+)%", text
    ).groups()
    held = shares(kept, 3, ".* bootstrap"), shares(kept, 3, "average")
    expected = [round(of(each)) for each in held for of in (min, max)]
    assert list(map(int, said)) == expected


def test_the_page_against_others_has_the_kept_rows():
    """Each work of the page is in the table, and conversely, with its figures; each loss
    that the figures show is written in the row and below.
    """
    kept = pd.read_csv(against.CACHE)
    page = against.PAGE.read_text()
    written = page.split(against.BEGIN)[1].split(against.END)[0].strip()
    lines = [line.split(" | ") for line in written.splitlines() if line[:2] == "| "]
    works = [line[0].removeprefix("| ") for line in lines[2:]]
    assert sorted(works) == sorted(set(kept["work"]))
    assert written == against.markdown(kept)
    lost = {
        line[0].removeprefix("| ") for line in lines[2:] if "nowhere" not in line[-1]
    }
    assert lost == set(re.findall(r"^- \*\*(.*)\*\*", written, re.MULTILINE))


def test_a_loss_to_others_is_said():
    """Where a published figure, least squares or our own intervals are better or fail."""
    work = next(iter(against.WORK.values()))
    assert work.figure == ("error", 0.0093)
    good = {"error": 0.009, "held": 5, "runs": 6, "width": 0.03, "r2": 0.9}
    bad = good | {"error": 0.01, "held": 4}
    assert against.losses_of(work, good, bad, 0) == []
    assert len(against.losses_of(work, bad, good, 1)) == 4


def test_work_without_its_table_is_skipped_with_a_reason(tmp_path, capsys):
    """All but that on bundled grids; each is named with the file that is missing."""
    jobs = against.list_jobs(tmp_path, "")
    assert {job["work"] for job in jobs} == {"stages, target", "stages, source"}
    said = capsys.readouterr().err.splitlines()
    assert len(said) == len(against.WORK) - 2
    assert all("is skipped" in line and ".csv" in line for line in said)


@pytest.mark.parametrize("form", ["ptpp-floor"])
def test_a_seed_is_as_it_was_kept(form):
    """Coverage, width and error at the stage left out, of the same data; a row of the
    next seed is another.
    """
    kept = pd.read_csv(true_forms.KEPT).set_index(["form", "seed"])
    new = true_forms.one(form, 0)
    assert true_forms.differences(new, kept.loc[(form, 0)]) == []
    assert true_forms.differences(new, kept.loc[(form, 1)]) != []


def test_a_change_beyond_monte_carlo_error_is_told():
    """Of each figure by itself; the table is made of the rows."""
    row = {"coverage90": 0.95, "width90": 0.03, "mae_rel": 0.005}
    assert true_forms.differences(row, row) == []
    others = {"coverage90": 0.9, "width90": 0.033, "mae_rel": 0.0056}
    for name, value in others.items():
        (told,) = true_forms.differences(row | {name: value}, row)
        assert name in told
    rows = [row | {"form": "one", "interval_score90": 0.04}] * 2
    rows.append(rows[0] | {"coverage90": 0.8})
    table = true_forms.table(pd.DataFrame(rows))
    assert table.splitlines()[2] == "| one | 3 | 90.0% | 80.0% | 3.0% | 0.50% | 4.0% |"

"""`update` as people call it: a longer table, a verdict, a page in a real browser; and one that has nothing new."""

import json

import pytest

import bayeslaw
from bayeslaw import datasets
from bayeslaw.cli.running import UpdateOptions, _question
from known import updates
from known.browser import DESK, PHONE, opened
from known.commands import run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    here = tmp_path_factory.mktemp("update")
    updates.old_fit().save(here / "old.nc")
    updates.first_batch().to_csv(here / "first.csv", index=False)
    updates.with_second(1.06).to_csv(here / "both.csv", index=False)
    return here


@pytest.fixture(scope="module")
def done(folder):
    """Once for all tests: the fit, the page and the JSON."""
    wanted = ["-o", folder / "new.nc", "--page", folder / "changes.html", "--json"]
    at = ["--at", "N=8.1B,D=200B", "--at", "N=1B,D=20B"]
    return run(
        "update", folder / "old.nc", folder / "both.csv", "--seed", 1, *wanted, *at
    )


def test_json_says_what_changed_and_stderr_first_whether_it_was_foreseen(done, folder):
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    target = record["domains"]["target"]
    assert record["action"] == "moved"
    assert target["rows"] == {"new": 21, "changed": 0, "gone": 0, "same": 63}
    assert target["surprise"]["p_value"] < 0.01
    assert len(target["forecasts"]) == 2
    assert record["page"] == str(folder / "changes.html")
    assert "surprising" in done.stderr


def test_the_new_fit_is_of_all_rows(done, folder):
    assert done.returncode == 0
    assert len(bayeslaw.load(folder / "new.nc").runs) == 84


def test_nothing_new_says_so_and_writes_nothing(folder):
    wanted = ["-o", folder / "none.nc", "--page", folder / "none.html"]
    same = run("update", folder / "old.nc", folder / "first.csv", *wanted)
    assert same.returncode == 0, same.stderr
    assert same.stdout.startswith("Nothing new")
    assert not list(folder.glob("none.*"))


def test_what_cannot_be_is_one_line_and_exit_2(folder):
    for args, words in (
        (["--plan", "N=1B"], "--source"),
        (["--where", "N > 5e9"], "--allow-missing"),
        (["-o", folder], "is a folder"),
    ):
        refused = run("update", folder / "old.nc", folder / "both.csv", *args)
        assert refused.returncode == 2
        (line,) = [one for one in refused.stderr.splitlines() if "error:" in one]
        assert words in line


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_the_page_opens_without_a_complaint_and_fits(browser, done, folder, width):
    page = opened(browser, folder / "changes.html", width)
    record = json.loads(done.stdout)
    assert page.inner_text("#u-verdict") == record["verdict"]
    assert page.complaints == []
    assert "N 8.1B, D 200B" in page.inner_text("body")
    assert all(url.startswith(("file:", "data:")) for url in page.asked)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    sizes = page.eval_on_selector_all("img", "them => them.map(i => i.naturalWidth)")
    assert len(sizes) == 4
    assert min(sizes) > 0
    page.close()


OF_STATE = {"target": ["state-target"], "source": ["state-source"]}
OF_POWERS = {"target": ["state-power"], "source": ["state-rise"]}  # read no loss_before


@pytest.mark.parametrize(
    ("names", "columns"),
    [
        (OF_STATE, ["loss_before", "source_loss_before"]),
        (OF_POWERS, ["source_loss_before"]),
    ],
)
def test_losses_before_adaptation_are_those_of_the_table(names, columns):
    """As `report` asks, and as the old fits read them; what is given stays."""
    laws = {part: [bayeslaw.law(name) for name in names[part]] for part in names}
    table = datasets.load("microcpt")
    at = table.query("N == 258528 and ptpp == 31 and domain == 'target'").iloc[0]
    plan = ["N=258528", "ptpp=31", "max_target_loss=1.5", "max_forgetting=9%"]
    asked = {"fit_file": "t.nc", "runs": "runs.csv", "source": "s.nc"}
    question = _question(UpdateOptions(**asked, question=plan), table, laws)
    assert question["covariates"] == {name: pytest.approx(at[name]) for name in columns}
    given = [*plan, f"{columns[0]}=2.5"]
    question = _question(UpdateOptions(**asked, question=given), table, laws)
    assert question["covariates"][columns[0]] == 2.5
    alone = _question(
        UpdateOptions(**asked, question=plan), table.drop(columns="domain"), laws
    )
    assert alone["covariates"] == {}

"""``mixture``, as people type it: from a table of shares to a plan."""

import json

import pytest

import bayeslaw
from known import saved
from known.commands import run


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    """The file of a fit of one evaluation set to three simulated domains."""
    path = tmp_path_factory.mktemp("mixture") / "web.nc"
    runs = bayeslaw.simulate("mixture-coupled", design="mixtures", seed=1)
    bayeslaw.fit(runs, "mixture-coupled", preview=True).save(path)
    return path


def test_a_plan_is_printed_as_json(web):
    """Shares within the bounds that sum to one, and the probability of the limits."""
    words = ("--loss", f"web={web}", "--N", "1B", "--max-loss", "web=2.55", "--json")
    answer = run("mixture", *words, "--share", "books=20%:30%")
    assert answer.returncode == 0, answer.stderr
    plan = json.loads(answer.stdout)
    assert plan["feasible"]
    assert plan["probability"] >= 0.9
    assert sum(plan["shares"].values()) == pytest.approx(1)
    assert 0.2 - 1e-9 <= plan["shares"]["books"] <= 0.3 + 1e-9
    assert plan["flops"] == pytest.approx(6e9 * plan["D"])


def test_the_best_mixture_of_a_budget_is_told_in_words(web):
    answer = run("mixture", "--loss", f"web={web}", "--N", "1B", "--D", "20B")
    assert answer.returncode == 0, answer.stderr
    assert "the mean loss is least" in answer.stdout
    assert "web 80.0%" in answer.stdout  # the largest share that was fitted


def test_weights_that_differ_are_told(web):
    """Sets that are not named have none: the mean is then of the others only."""
    words = ("--loss", f"web={web}", "--loss", f"alike={web}", "--N", "1B")
    answer = run("mixture", *words, "--D", "20B", "--weight", "web=2")
    assert answer.returncode == 0, answer.stderr
    assert "the mean loss (web 100.0%, alike 0.0%) is least" in answer.stdout


def test_a_share_beyond_the_fitted_ones_is_warned_of(web):
    """As N and D are: bounds that are given reach where nothing was checked."""
    others = ("--share", "code=0:10%", "--share", "books=0:10%")
    words = ("--loss", f"web={web}", "--N", "1B", "--D", "20B", *others)
    far = "the share of web, 90.0%, lies beyond those that were fitted ("
    assert far in run("mixture", *words, "--share", "web=90%").stderr
    assert "web, 80.0%" not in run("mixture", *words, "--share", "web=80%").stderr


@pytest.mark.parametrize(("most", "is_kept"), [(2.8, True), (1.055, False)])
def test_a_limit_at_a_budget_is_kept_or_none_keeps_it(web, most, is_kept):
    """The limit is in the answer; numbers are those of Python."""
    words = ("--loss", f"web={web}", "--N", "1B", "--D", "20B", "--json")
    answer = run("mixture", *words, "--max-loss", f"web={most}")
    assert answer.returncode == 0, answer.stderr
    told = json.loads(answer.stdout)
    (row,) = told["limits"]
    assert (row["name"], row["limit"]) == ("web", most)
    assert told["feasible"] is is_kept
    assert (told["probability"] >= 0.9) is is_kept
    best = bayeslaw.best_mixture({"web": web}, N=1e9, D=2e10, max_loss={"web": most})
    assert told["shares"] == pytest.approx(best.shares, abs=1e-4)
    assert told["probability"] == pytest.approx(best.probability, abs=0.005)


def test_a_budget_and_its_bound_are_one_too_many(web):
    words = ("--loss", f"web={web}", "--N", "1B", "--D", "20B", "--max-tokens", "9B")
    answer = run("mixture", *words)
    assert answer.returncode == 2
    assert "--D is the budget, and --max-tokens bounds it" in answer.stderr


def test_another_run_is_the_baseline_as_typed_with_every_share(web):
    words = ("--max-loss", "web=+1%", "--baseline-run", "D=20B,web=70%,code=30%")
    answer = run("mixture", "--loss", f"web={web}", "--N", "1B", "--json", *words)
    assert answer.returncode == 0, answer.stderr
    baseline = json.loads(answer.stdout)["settings"]["baseline_run"]
    assert baseline == {"D": 2e10, "web": 0.7, "code": 0.3, "books": 0.0}


def test_what_is_no_question_is_refused_in_a_line(web):
    words = ("--max-loss", "web=2.5", "--share", "code=5%:10%:20%")
    answer = run("mixture", "--loss", f"web={web}", "--N", "1B", *words)
    assert answer.returncode == 2
    line = (
        "error: --share code=5%:10%:20%: write least and largest, 5%:30%, or one share"
    )
    assert answer.stderr.strip() == line


@pytest.fixture(scope="module")
def adapted(tmp_path_factory):
    """The file of a known posterior that reads a checkpoint's losses."""
    start = {"loss_before": 3.1, "source_loss_before": 2.6}
    runs = bayeslaw.simulate("mixture-coupled", design="mixtures", seed=1)
    path = tmp_path_factory.mktemp("adapted") / "web.nc"
    return saved.save_fit(path, name="mixture-state", table=runs.assign(**start))


@pytest.mark.parametrize(
    ("law", "line"),
    [
        ("adapted", "--covariate loss_before names no 'books'; there are: web"),
        ("web", "no law reads the covariate 'loss_before'; they read D, N, share_"),
    ],
)
def test_columns_of_a_set_are_those_that_are_read(law, line, request):
    file = request.getfixturevalue(law)
    words = ("--max-loss", "web=2.5", "--covariate", "loss_before=books=3.1")
    answer = run("mixture", "--loss", f"web={file}", "--N", "1B", *words)
    assert answer.returncode == 2
    assert answer.stderr.strip().splitlines()[-1].startswith(f"error: {line}")


def test_a_table_that_is_kept_keeps_its_shares(tmp_path):
    """``table`` writes shares, with those completed, and a row for each loss."""
    written = tmp_path / "wide.csv"
    written.write_text(
        "N,D,share_web,share_code,loss_web,loss_code,note\n"
        "1e8,2e9,60%,,3.1,1.9,a\n1e8,4e9,30%,70%,3.2,1.6,b\n"
    )
    kept = tmp_path / "runs.csv"
    answer = run("table", str(written), "-o", str(kept))
    assert answer.returncode == 0, answer.stderr
    runs = bayeslaw.read_runs(kept)
    assert runs["domain"].tolist() == ["web", "web", "code", "code"]
    assert runs["share_code"].tolist() == pytest.approx([0.4, 0.7, 0.4, 0.7])
    assert "note" not in runs

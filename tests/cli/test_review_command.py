"""``bayeslaw review``: the contract's JSON, exit codes 0, 4, 5 and 2, and commands that can be pasted."""

import json
import shlex

import pandas as pd
import pytest
from typer.testing import CliRunner

import bayeslaw
from bayeslaw.cli.app import app
from known import saved
from known.commands import run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    here = tmp_path_factory.mktemp("review")
    sound = bayeslaw.simulate("ptpp-floor", seed=1, noise=0.002)
    sound.to_csv(here / "sound.csv", index=False)
    sound[sound["ptpp"] <= 31].to_csv(here / "two_stages.csv", index=False)
    shuffled = sound["loss"].sample(frac=1, random_state=0).to_numpy()
    sound.assign(loss=shuffled).to_csv(here / "noise.csv", index=False)
    sound.assign(loss=-1.0).to_csv(here / "bad.csv", index=False)
    sound.drop(columns="loss").to_csv(here / "planned.csv", index=False)
    saved.save_fit(here / "fit.nc")
    saved.save_average(here / "average.nc")
    return here


@pytest.mark.parametrize(
    ("table", "code", "verdict"),
    [("sound", 0, "pass"), ("two_stages", 4, "look"), ("noise", 5, "fail")],
)
def test_the_exit_code_says_the_verdict(folder, table, code, verdict):
    out = run("review", folder / f"{table}.csv", "--json")
    assert out.returncode == code, out.stderr
    assert out.stderr == ""
    assert out.stdout.count("\n") == 1
    record = json.loads(out.stdout)
    assert record["verdict"] == verdict
    keys = {"name", "verdict", "reason", "next"}
    assert all(set(check) == keys for check in record["checks"])
    assert {check["verdict"] for check in record["checks"]} <= {"pass", "look", "fail"}
    assert record == bayeslaw.review(folder / f"{table}.csv").to_dict()


def test_people_read_a_line_for_each_check_and_the_verdict(folder):
    out = run("review", folder / "two_stages.csv")
    lines = out.stdout.splitlines()
    assert lines[-1].startswith("LOOK: ")
    levels = next(line for line in lines if " levels " in line)
    assert levels.startswith("look")
    assert "ptpp (15, 31)" in levels


BAD = {
    "no such file": (["none.csv"], "none.csv: no such file"),
    "no such fit": (["none.nc"], "none.nc"),
    "a refused table": (["bad.csv"], "not positive"),
    "two tables": (["sound.csv", "noise.csv"], "one table of runs, or fits"),
    "a table and a fit": (["fit.nc", "sound.csv"], "--held-out"),
    "one fit twice": (["fit.nc", "fit.nc"], "named twice"),
    "refit of a table": (["sound.csv", "--refit"], "about posteriors"),
    "where of fits": (["fit.nc", "--where", "N > 1"], "about a table"),
    "two goals": (["sound.csv", "--at", "N=1B", "--goal", "sound.csv"], "not both"),
    "no number": (["sound.csv", "--at", "N=x"], "--at N: 'x' is not a number"),
    "no value": (["sound.csv", "--at", "8.1B"], "write NAME=VALUE"),
}


@pytest.mark.parametrize("fault", BAD)
def test_bad_input_is_one_line_and_exit_2(folder, fault, monkeypatch):
    monkeypatch.chdir(folder)
    words, says = BAD[fault]
    out = run("review", *words)
    assert out.returncode == 2
    assert out.stdout == ""
    assert out.stderr.count("\n") == 1
    assert says in out.stderr


def test_a_goal_is_a_run_or_a_table(folder):
    table = folder / "sound.csv"
    far = run("review", table, "--at", "N=800B,D=1T,ptpp=279", "--json")
    checks = {c["name"]: c for c in json.loads(far.stdout)["checks"]}
    assert far.returncode == 4
    assert "N = 800B" in checks["extrapolation"]["reason"]
    near = run("review", table, "--goal", folder / "planned.csv", "--json")
    checks = {c["name"]: c for c in json.loads(near.stdout)["checks"]}
    assert near.returncode == 0
    assert "inside" in checks["extrapolation"]["reason"]


def test_fits_are_told_from_tables_by_what_they_hold(folder):
    plain = folder / "fit_without_suffix"
    plain.write_bytes((folder / "fit.nc").read_bytes())
    out = run("review", plain, folder / "average.nc", "--json")
    names = {check["name"] for check in json.loads(out.stdout)["checks"]}
    assert f"{plain}: diagnostics" in names
    assert f"{folder / 'average.nc'}: fit" in names
    assert "plan" in names
    # both are of the same losses
    assert out.returncode == 5


def test_held_out_runs_are_selected(folder):
    table = folder / "more.csv"
    bayeslaw.simulate("chinchilla", seed=7).to_csv(table, index=False)
    options = ["--held-out", table, "--where", "N > 2e9", "--json"]
    out = run("review", folder / "average.nc", *options)
    checks = {c["name"]: c for c in json.loads(out.stdout)["checks"]}
    assert "of 63 held-out runs" in checks["calibration"]["reason"]


def test_what_reading_alone_warns_of_reaches_stderr(tmp_path):
    """Percent beside fractions is gone once numbers are read; what the review says is not said twice."""
    runs = bayeslaw.simulate("ptpp-floor", seed=1).assign(N=lambda t: t["N"] / 1e9)
    cells = runs["replay"].map("{:.0%}".format)
    runs["replay"] = cells.where(runs.index % 2 == 0, runs["replay"].astype(str))
    runs.to_csv(tmp_path / "mixed.csv", index=False)
    out = run("review", tmp_path / "mixed.csv")
    assert out.stderr.count("warning:") == 1
    assert "mixes percent with fractions" in out.stderr
    assert "millions or billions?" in out.stdout


def test_commands_to_do_next_are_commands_that_there_are(folder):
    """All that starts with `bayeslaw` is parsed by the program, blanks and all."""
    domains = [
        bayeslaw.simulate("dcpt", seed=seed).assign(domain=domain)
        for seed, domain in ((1, "target"), (2, "source"))
    ]
    review = bayeslaw.review(pd.concat(domains), name="runs.csv")
    far = pd.DataFrame([{"N": 1e12, "D": 1e10}])
    average = bayeslaw.load(folder / "average.nc")
    one_law = bayeslaw.review(folder / "fit.nc")
    beyond = bayeslaw.review(average, goal=far)
    checks = (*review.checks, *one_law.checks, *beyond.checks)
    commands = [c.next for c in checks if c.next.startswith("bayeslaw ")]
    assert len(commands) >= 4
    for command in commands:
        words = shlex.split(command)
        known = CliRunner().invoke(app, [words[1], "--help"])
        assert known.exit_code == 0
        options = [word for word in words if word.startswith("--")]
        assert all(option in known.output for option in options), command


@pytest.mark.parametrize("where", [None, "ptpp <= 31", "ptpp <= 31 or N > 2e9"])
def test_a_command_to_paste_keeps_the_rows_and_mappings_of_the_review(tmp_path, where):
    path = tmp_path / "runs.csv"
    parts = [
        bayeslaw.simulate("ptpp-floor", seed=k, noise=0.002).assign(domain=name)
        for k, name in enumerate(("target", "source"))
    ]
    runs = pd.concat(parts, ignore_index=True)
    runs.assign(D=runs["D"] / 1e9).rename(columns={"D": "tok"}).to_csv(path)
    words = ["review", str(path), "--column", "D=tok*1e9", "--json"]
    words += ["--where", where] if where else []
    record = json.loads(CliRunner().invoke(app, words).stdout)
    (todo,) = [c["next"] for c in record["checks"] if c["name"] == "target: laws"]
    pasted = shlex.split(todo)
    assert pasted[:3] == ["bayeslaw", "fit", str(path)]
    assert pasted[pasted.index("--column") + 1] == "D=tok*1e9"
    query = pasted[pasted.index("--where") + 1]
    of_target = bayeslaw.read_runs(path, columns=["D=tok*1e9"], where=query)
    kept = runs if where is None else runs.query(where)
    assert len(of_target) == (kept["domain"] == "target").sum()
    assert set(of_target["domain"]) == {"target"}

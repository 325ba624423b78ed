"""`follow` as people call it: JSON, exit codes, and a real process that watches a file as it grows."""

import json
import os
import signal
import subprocess
import sys
import time
from io import StringIO

import pandas as pd
import pytest
from rich.console import Console

import bayeslaw
from bayeslaw._base.numbers import format_chance
from bayeslaw.cli.parsing import read_table
from bayeslaw.cli.running import (
    FollowOptions,
    _schedules,
    _stamp,
    _start,
    screen,
)
from known.commands import run

CLI = [sys.executable, "-P", "-m", "bayeslaw.cli"]
N = 7e9
PATIENCE = 120.0  # seconds that a machine at work may take


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A fit of smaller runs, and the curve of a larger one, drawn from the same law."""
    here = tmp_path_factory.mktemp("follow")
    runs = bayeslaw.simulate("chinchilla", seed=3).assign(domain="target")
    fit = bayeslaw.fit(runs[runs["N"] < 5e9], "chinchilla", preview=True)
    fit.save(here / "target.nc")
    large = runs[runs["N"] == runs["N"].max()].iloc[[0]]
    tokens = [0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.99]
    curve = large.loc[large.index.repeat(len(tokens))].reset_index(drop=True)
    curve["D"] = [share * 2e11 for share in tokens]
    law = bayeslaw.law("chinchilla")
    curve["loss"] = bayeslaw.forecast(fit, curve)["median"] * 1.001
    assert law.covariates == ("N", "D")
    curve[["N", "D", "loss", "domain"]].to_csv(here / "whole.csv", index=False)
    return here


def lines(folder, count):
    """The header and so many points."""
    whole = (folder / "whole.csv").read_text().splitlines(keepends=True)
    return "".join(whole[: count + 1])


def test_json_says_what_python_says(folder):
    curve = folder / "four.csv"
    curve.write_text(lines(folder, 4))
    limit = 2.3
    out = run(
        *(
            f"follow {folder}/target.nc {curve} --until 200B --max-loss {limit} --json"
        ).split()
    )
    assert out.returncode == 0, out.stderr
    said = json.loads(out.stdout)
    assert said["points"] == 4
    assert said["final"]["D"] == 2e11
    known = bayeslaw.follow(
        bayeslaw.load(folder / "target.nc"),
        bayeslaw.read_runs(curve),
        2e11,
        max_loss=limit,
    )
    assert said["probability"] == known.probability
    assert said["decision"] == known.decision.action
    words = run(
        "follow", folder / "target.nc", curve, "--until", "200B", "--max-loss", limit
    )
    assert known.sentence() in words.stdout


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["--until", "1B"], "after the planned end"),
        (["--until", "200B", "--max-forgetting", "2%"], "give --source"),
        (["--until", "200B", "--watch", "--json"], "--output FILE"),
    ],
)
def test_bad_input_is_a_line_and_exit_2(folder, asked, said):
    out = run("follow", folder / "target.nc", folder / "whole.csv", *asked)
    assert out.returncode == 2, out.stdout + out.stderr
    assert said in out.stderr
    assert out.stderr.count("error:") == 1
    assert "Traceback" not in out.stderr


# Where tests run in the background of a shell, Ctrl-C is ignored, and so it is in what they start.
HEARS = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from bayeslaw.cli import main; main()"


def watched(*args):
    """A command of its own process that Ctrl-C reaches."""
    command = [sys.executable, "-P", "-c", HEARS, *map(str, args)]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"COLUMNS": "100"},
    )


def wait_for(path, points):
    """What the watching process has written, once it knows so many points."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if path.exists():
            known = json.loads(path.read_text())
            if known["points"] >= points:
                return known
        time.sleep(0.1)
    raise AssertionError(f"{points} points were not learned in {PATIENCE:g} s")


def test_a_file_that_grows_is_watched_and_a_new_start_says_the_same(folder, tmp_path):
    """Points are learned as lines end; a line cut short is not; Ctrl-C leaves what was known; a killed one starts again and says the same."""
    curve, kept = tmp_path / "curve.csv", tmp_path / "known.json"
    curve.write_text(lines(folder, 3))
    asked = ["follow", folder / "target.nc", curve, "--until", "200B"]
    asked += ["--max-loss", "2.3", "--watch", "--every", "0.2", "-o", kept]
    watching = watched(*asked)
    wait_for(kept, 3)
    curve.write_text(
        lines(folder, 5) + "7000000000.0,1.6e11,1."
    )  # a point being written
    five = wait_for(kept, 5)
    time.sleep(1.0)
    assert json.loads(kept.read_text())["points"] == 5
    watching.send_signal(signal.SIGINT)
    shown, told = watching.communicate(timeout=PATIENCE)
    assert watching.returncode == 130
    assert str(kept) in told
    assert "Traceback" not in told
    assert "target" in shown

    curve.write_text(lines(folder, 5))
    kept.unlink()
    again = watched(*asked)
    assert wait_for(kept, 5) == five
    again.kill()
    again.communicate(timeout=PATIENCE)
    at_once = json.loads(
        run(
            *f"follow {folder}/target.nc {curve} --until 200B --max-loss 2.3 --json".split()
        ).stdout
    )
    assert at_once == five


def test_watching_ends_when_the_run_does(folder, tmp_path):
    curve = tmp_path / "curve.csv"
    curve.write_text((folder / "whole.csv").read_text())
    out = run(
        *f"follow {folder}/target.nc {curve} --until".split(),
        str(0.99 * 2e11),
        *f"--watch --every 0.1 -o {tmp_path}/known.json".split(),
    )
    assert out.returncode == 0, out.stderr
    assert json.loads((tmp_path / "known.json").read_text())["points"] == 8


def test_only_whole_lines_of_a_growing_file_are_read(folder, tmp_path):
    curve = tmp_path / "curve.csv"
    curve.write_text(lines(folder, 4)[:-3])
    assert len(read_table(curve, None, None, grows=True)) == 3
    before = _stamp(curve)
    curve.write_text(lines(folder, 4))
    assert len(read_table(curve, None, None, grows=True)) == 4
    assert _stamp(curve) != before
    assert _stamp(tmp_path / "nothing.csv") is None


def test_schedules_go_by_the_names_of_their_files_the_planned_one_first(tmp_path):
    paths = [tmp_path / "planned.csv", tmp_path / "down.csv"]
    for path in paths:
        path.write_text("step,S1_pt,S2_pt,loss\n10,0.1,0,2\n20,0.2,0,2\n")
    assert list(_schedules(paths)) == ["planned", "down"]
    assert _schedules(None) is None
    with pytest.raises(bayeslaw.PlanError, match="two files are called 'down'"):
        _schedules([*paths, tmp_path / "other" / "down.csv"])


@pytest.mark.parametrize("refit", [True, False])
def test_laws_are_fitted_again_only_where_it_is_asked_for(folder, refit):
    files = {"fit_file": folder / "target.nc", "curve": folder / "whole.csv"}
    options = FollowOptions(**files, until="200B", refit=refit)
    follower = _start(options, bayeslaw.read_runs(folder / "whole.csv"))
    assert (follower.tracks["target"].again is not None) == refit


def test_the_screen_shows_curve_band_probability_and_trouble(folder):
    posterior = bayeslaw.load(folder / "target.nc")
    curve = bayeslaw.read_runs(folder / "whole.csv").head(5)
    known = bayeslaw.follow(posterior, curve, 2e11, max_loss=2.3)
    console = Console(width=100, record=True, file=StringIO())
    console.print(screen(known, "line 3, column 'loss': empty"))
    shown = console.export_text()
    assert shown.count("●") == 5
    assert "▒" in shown
    assert f" {format_chance(known.probability)}" in shown
    assert known.decision.action.upper() in shown
    assert "not read: line 3" in shown


def test_both_domains_by_the_names_of_their_tables(folder, tmp_path):
    """Fits of `fi` and `en`, a curve with both: limits reach each, and the baseline is read from the curve."""
    runs = bayeslaw.simulate("chinchilla", seed=3)
    small = runs[runs["N"] < 5e9]
    for name in ("fi", "en"):
        fit = bayeslaw.fit(small.assign(domain=name), "chinchilla", preview=True)
        fit.save(tmp_path / f"{name}.nc")
    whole = bayeslaw.read_runs(folder / "whole.csv").head(4)
    both = [whole.assign(domain=name, source_loss_before=2.2) for name in ("fi", "en")]
    curve = tmp_path / "both.csv"
    pd.concat(both).to_csv(curve, index=False)
    out = run(
        *(
            f"follow {tmp_path}/fi.nc {curve} --until 200B --source "
            f"{tmp_path}/en.nc --max-loss 2.3 --max-forgetting 10% --json"
        ).split()
    )
    assert out.returncode == 0, out.stderr
    domains = json.loads(out.stdout)["domains"]
    assert list(domains) == ["fi", "en"]
    assert domains["fi"]["max_loss"] == 2.3
    assert domains["en"]["max_loss"] == pytest.approx(2.2 * 1.1)


def test_a_page_of_the_run_is_written(folder, tmp_path):
    curve, page = tmp_path / "curve.csv", tmp_path / "run.html"
    curve.write_text(lines(folder, 3))
    asked = ["follow", folder / "target.nc", curve, "--until", "200B", "--page", page]
    out = run(*asked, "--json")
    assert out.returncode == 0, out.stderr
    assert json.loads(out.stdout)["points"] == 3
    assert 'type="range"' in page.read_text()
    assert run(*asked, "--watch").returncode == 2
    assert run(*asked[:-1], tmp_path).returncode == 2

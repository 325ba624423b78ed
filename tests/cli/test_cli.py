"""The command line as checks call it: JSON and nothing else on stdout, exit 2 in one line, exit 3 with what to do."""

import contextlib
import os
import shlex
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import bayeslaw
from bayeslaw._base.errors import warn
from bayeslaw._tables import fitting
from bayeslaw.cli import app as cli
from bayeslaw.cli.output import merge_alike
from known.commands import run, run_json

SMALL = ["--warmup", "300", "--draws", "300"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a simulated table and a fit of it."""
    here = tmp_path_factory.mktemp("cli")
    run_json("simulate", "chinchilla", "-o", here / "runs.csv", "--seed", 3)
    return here


@pytest.fixture(scope="module")
def fitted(folder):
    return run_json(
        *shlex.split(
            f"fit {folder}/runs.csv --law chinchilla --where 'N < 2e9' -o "
            f"{folder}/fit.nc"
        )
    )


def test_laws_lists_every_law_and_shows_one():
    listed = run_json("laws")
    assert [row["name"] for row in listed] == [law.name for law in bayeslaw.laws()]
    assert run_json("laws", "ptpp-gate-floor")["name"] == "ptpp-gate-floor"


def test_several_laws_make_an_average_that_every_command_takes(folder):
    """compare and fit of two laws give the same weights; the saved average forecasts and is checked like a fit."""
    options = ["--where", "N < 2e9", "-o"]
    table = folder / "runs.csv"
    compared = run_json(
        *f"compare {table} --laws chinchilla,coupled".split(),
        *options,
        folder / "compared.nc",
    )
    mixed = run_json(
        *f"fit {table} --law chinchilla --law coupled".split(),
        *options,
        folder / "mixed.nc",
    )
    assert {row["name"]: row["weight"] for row in compared["laws"]} == pytest.approx(
        mixed["weights"]
    )
    assert sum(mixed["weights"].values()) == pytest.approx(1)
    assert any(stage.startswith("N >=") for stage in compared["held_out"])
    assert mixed["law"] == "average"
    rows = run_json("forecast", folder / "mixed.nc", table, "--where", "N > 2e9")[
        "rows"
    ]
    assert all(
        row["low"] < row["law_low"] < row["median"] < row["law_high"] < row["high"]
        for row in rows
    )
    again = run_json("forecast", folder / "compared.nc", table, "--where", "N > 2e9")[
        "rows"
    ]
    # threads add in any order, and a spread is a difference of quantiles
    for row, other in zip(rows, again, strict=True):
        numbers = {k: v for k, v in row.items() if not isinstance(v, str)}
        assert other == row | {
            k: pytest.approx(v, rel=1e-9, abs=1e-9) for k, v in numbers.items()
        }
    assert (
        run_json("check", folder / "mixed.nc", table, "--where", "N > 2e9")["coverage"][
            "0.9"
        ]
        > 0.5
    )


def test_simulate_sets_parameters_and_repeats_by_seed(tmp_path):
    a, b, c = (tmp_path / f"{n}.csv" for n in "abc")
    run_json("simulate", "ptpp-floor", "-o", a, "--seed", 1)
    run_json("simulate", "ptpp-floor", "-o", b, "--seed", 1)
    run_json(
        "simulate", "ptpp-floor", "-o", c, "--seed", 1, "--set", "E=1.5", "--set", "F=0"
    )
    assert a.read_bytes() == b.read_bytes()
    assert (pd.read_csv(c)["loss"] > pd.read_csv(a)["loss"]).mean() > 0.9


def test_fit_prints_the_paper_s_parameters_and_diagnostics(fitted):
    assert fitted["law"] == "chinchilla"
    assert fitted["n"] == 189
    for name in ("E", "A", "B", "alpha", "beta"):
        row = fitted["parameters"][name]
        assert row["low"] < row["mean"] < row["high"]
        assert row["sd"] > 0


def test_forecast_and_check_read_the_fit(folder, fitted):
    rows = run_json(
        *shlex.split(
            f"forecast {folder}/fit.nc {folder}/runs.csv --where 'N > 2e9' -o "
            f"{folder}/f.csv"
        )
    )
    first = rows["rows"][0]
    assert (
        first["low"]
        < first["law_low"]
        < first["median"]
        < first["law_high"]
        < first["high"]
    )
    columns = set(pd.read_csv(folder / "f.csv").columns)
    assert {"median", "log_sd", "loss"} <= columns
    assert not {"mean", "sd"} & columns  # the exponential of a Student-t has none
    result = run_json(
        "check", folder / "fit.nc", folder / "runs.csv", "--where", "N > 2e9"
    )
    assert result["n"] == 63


def test_the_table_a_person_reads_is_on_stdout_too(folder, fitted):
    out = run("check", folder / "fit.nc", folder / "runs.csv", "--where", "N > 2e9")
    assert out.returncode == 0
    assert "held-out runs" in out.stdout


def test_further_checks_are_made_when_asked_for_and_change_no_key(folder):
    """Posterior SBC and the stages left out, each under a key of its own; what they need is refused in a line."""
    table, below = folder / "runs.csv", folder / "preview.nc"
    where = ["--where", "N < 2e9 and replay == 0.1", "--preview", "-o"]
    run_json("fit", table, "--law", "chinchilla", *where, below)
    checked = ["check", below, table, "--where", "N > 2e9 and replay == 0.1"]
    plain = run_json(*checked)
    further = run_json(*checked, "--replicates", 10, "--conformal")
    sbc, conformal = further.pop("posterior_sbc"), further.pop("conformal")
    assert further == plain
    assert sbc["replicates"] == 10
    assert {"E_nats", "sigma", "log likelihood"} < set(sbc["p_values"])
    assert [s["name"] for s in conformal["stages"]] == ["N 1.4B", "N 8.1B"]
    assert conformal["probability"] == pytest.approx(2 / 3)
    assert conformal["factor90"] is None
    told = run(*checked, "--conformal", "--hold-out", "replay").stdout
    assert "\nstages left out: the fitted runs have one stage only" in told
    assert "posterior SBC" not in told
    refused = run(*checked, "--hold-out", "N")
    assert refused.returncode == 2
    assert refused.stdout == ""
    assert refused.stderr.strip().splitlines() == [
        "error: --hold-out names the stages that --conformal leaves out: give --conformal too"
    ]


BAD = {
    "priors of several laws": (
        "fit runs.csv --priors priors.toml -o x.nc",
        "belong to one law",
    ),
    "bad row": ("fit nan.csv --law chinchilla -o x.nc", "row 2, column 'loss'"),
    "bad prior file": (
        "fit runs.csv --law chinchilla --priors bad.toml -o x.nc",
        "no parameter 'alfa'",
    ),
    "bad assignment": ("simulate chinchilla -o x.csv --set alpha", "NAME=VALUE"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line_exit_2_and_writes_nothing(folder, tmp_path, name):
    args, says = BAD[name]
    table = pd.read_csv(folder / "runs.csv")
    table.to_csv(tmp_path / "runs.csv", index=False)
    table.assign(loss=table["loss"].where(table.index != 1)).to_csv(
        tmp_path / "nan.csv", index=False
    )
    (tmp_path / "priors.toml").write_text('[priors]\nalpha = "lognormal(0.3, 0.3)"\n')
    (tmp_path / "bad.toml").write_text('[priors]\nalfa = "lognormal(1, 1)"\n')
    before = sorted(os.listdir(tmp_path))
    out = run(*shlex.split(args), "--json", cwd=tmp_path)
    assert out.returncode == 2
    assert out.stdout == ""
    errors = [line for line in out.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert says in errors[0]
    assert "Traceback" not in out.stderr
    assert sorted(os.listdir(tmp_path)) == before


def test_usage_errors_exit_2_too():
    assert run("fit").returncode == 2


def test_failed_diagnostics_exit_3_and_can_be_accepted(folder):
    short = shlex.split("--warmup 100 --draws 100 --chains 2 --law chinchilla")
    args = ["fit", folder / "runs.csv", *short, "-o", folder / "short.nc"]
    # one chain of 100 draws can never reach 400 effective draws, nor can the draws added up to the limit here
    out = run(*args, "--max-draws", "100")
    assert out.returncode == 3
    assert "--accept-diagnostics" in out.stderr
    assert not (folder / "short.nc").exists()
    assert run(*args, "--max-draws", "100", "--accept-diagnostics").returncode == 0
    assert (folder / "short.nc").exists()


def test_a_priors_file_replaces_priors_and_reference(folder):
    (folder / "p.toml").write_text(
        '[priors]\nbeta = "fixed(0.3)"\n[reference]\nN = "100M"\n'
    )
    out = run_json(
        *(
            f"fit {folder}/runs.csv --law chinchilla --priors {folder}/p.toml "
            "--independent --preview"
        ).split()
    )
    assert out["parameters"]["beta"]["mean"] == pytest.approx(0.3)


def test_a_formula_is_a_law_and_its_fit_reads_back(folder):
    formula = "E + A/N^alpha + B/D^beta"
    out = run_json(
        *f"fit {folder}/runs.csv --independent -o {folder}/formula.nc --law".split(),
        formula,
    )
    named = run_json("fit", folder / "runs.csv", "--law", "chinchilla", "--independent")
    assert out["parameters"]["alpha"]["mean"] == pytest.approx(
        named["parameters"]["alpha"]["mean"], rel=0.05
    )
    assert (
        len(run_json("forecast", folder / "formula.nc", folder / "runs.csv")["rows"])
        == 252
    )


def test_help_shows_an_example_and_starts_no_engine():
    """--help answers without importing what computes."""
    code = "import sys; sys.argv = ['bayeslaw', 'fit', '--help']\n"
    code += "from bayeslaw.cli import main\ntry: main()\nexcept SystemExit: pass\n"
    code += "heavy = {'jax', 'numpyro', 'pandas', 'arviz_base', 'matplotlib'} & set(sys.modules); assert not heavy, heavy"
    out = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False
    )
    assert out.returncode == 0, out.stderr
    assert "Example: bayeslaw fit" in out.stdout


def test_anchors_lists_runs_to_buy_in_order(folder, fitted):
    """Keys of the contract, the budget kept, and a table of rows to measure."""
    table = folder / "runs.csv"
    asked = shlex.split(
        f"--candidates {table} --where 'N < 1e9' --goal {table} --goal-where "
        "'N > 2e9' --least 0"
    )
    out = run_json(
        "anchors",
        folder / "fit.nc",
        *asked,
        *f"--budget 5e18 --max-loss 2.5 --confidence 80% -o {folder}/buy.csv".split(),
    )
    of_runs = out["verdicts"]["runs"]
    assert out["verdicts"]["confidence"] == 0.8
    assert {run["now"] for run in of_runs} <= {"kept", "unsure", "broken"}
    assert 0 < out["goal_sd_after"] < out["goal_sd_before"]
    assert out["spent"] == pytest.approx(sum(p["cost"] for p in out["picks"]))
    assert out["spent"] <= 5e18
    bought = pd.read_csv(folder / "buy.csv")
    assert len(bought) == sum(len(p["rows"]) for p in out["picks"])
    assert bought["run"].is_unique
    assert "loss" not in bought
    made = run(
        "anchors",
        folder / "fit.nc",
        *asked,
        *shlex.split("--offer atpp=1,5 --offer N=50M --budget 5e18"),
    )
    assert made.returncode == 0, made.stderr
    assert "of the loss" in made.stdout


def test_anchors_for_a_plan_are_priced_by_what_they_save(folder):
    """Few runs are fitted: after all of them the next is rightly worth nothing."""
    few = "ptpp == 15 and D < 3e9 and N < 1e9"
    for seed, name in enumerate(("t", "s"), 4):
        table, saved = folder / f"{name}.csv", folder / f"few_{name}.nc"
        run_json("simulate", "dcpt", "-o", table, "--set", "C=0.1", "--seed", seed)
        keywords = ["--law", "dcpt", "--independent", "--preview", "--where", few]
        keywords += ["--accept-diagnostics"]  # 33 runs: k-hat is near its limit
        made = run("fit", table, *keywords, "-o", saved)
        assert made.returncode == 0, made.stderr
    question = {
        "N": "1.4B",
        "ptpp": 31,
        "max_target_loss": 2.05,
        "max_forgetting": "3%",
        "baseline_loss": 2.0,
    }
    asked = [
        part
        for name, value in question.items()
        for part in ("--goal", f"{name}={value}")
    ]
    fits = shlex.split(
        f"--source {folder}/few_s.nc --candidates {folder}/t.csv --where 'N < 1e9'"
    )
    out = run_json(
        "anchors", folder / "few_t.nc", *fits, *asked, "--budget", "1e19", "--least", 0
    )
    assert out["gain"] == "plan"
    assert out["picks"]
    saved = out["plan"]["flops_before"] - out["plan"]["flops_after"]
    assert saved == pytest.approx(sum(p["gain"] for p in out["picks"]))
    assert saved > 0


def test_version():
    assert run("--version").stdout.startswith("bayeslaw ")


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ([], "interrupted: nothing was written"),
        (["report.html"], "interrupted; written so far: OUT/report.html"),
        (
            ["report.html", "target.nc"],
            "interrupted; written so far: OUT/report.html, OUT/target.nc",
        ),
    ],
)
def test_an_interrupted_report_says_what_lies_there(
    written, said, tmp_path, monkeypatch, capsys
):
    """A file of an earlier report is none of it, unless it was written anew."""
    out = tmp_path / "page"
    out.mkdir()
    (out / "source.nc").write_text("of an earlier report")

    def interrupted(*_, **__):
        for name in written:
            (out / name).write_text("so far")
        raise KeyboardInterrupt

    monkeypatch.setattr(bayeslaw, "report", interrupted)
    monkeypatch.setattr("sys.argv", ["bayeslaw", "report", "-o", str(out)])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 130
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == said.replace("OUT", str(out))


@pytest.mark.parametrize(
    "stopped", [KeyboardInterrupt(), SystemExit(130), cli.Resumable(130)], ids=repr
)
def test_an_interrupted_command_says_so_once(stopped, monkeypatch, capsys):
    """Ctrl-C reaches `main` as itself or as typer's exit; a study has said by then where its work is."""

    def interrupted():
        raise stopped

    monkeypatch.setattr(cli, "app", interrupted)
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 130
    told = isinstance(stopped, cli.Resumable)
    assert capsys.readouterr().err == (
        "" if told else "interrupted: nothing was written\n"
    )


def test_warnings_come_at_the_end_each_once_and_nine_alike_as_one(monkeypatch, capsys):
    """Each `catch_warnings` on the way makes Python forget what it has shown."""

    def warns():
        for line in ("look here", *(f"fold {i}: too short" for i in range(9))):
            for _ in range(2):
                with warnings.catch_warnings():
                    warnings.warn(line, bayeslaw.RunTableWarning, stacklevel=1)
        print("the result")
        raise SystemExit(0)

    monkeypatch.setattr(cli, "app", warns)
    monkeypatch.setattr(sys, "stderr", sys.stdout)  # so that their order is seen
    with pytest.raises(SystemExit):
        cli.main()
    assert capsys.readouterr().out.splitlines() == [
        "the result",
        "warning: look here",
        "warning: fold 0: too short (and 8 like it)",
    ]


@pytest.mark.parametrize(
    "ends",
    [lambda: None, lambda: sys.exit(3), lambda: bayeslaw.law("nothing of that name")],
)
def test_a_command_leaves_no_warning_to_the_next(ends, monkeypatch, capsys):
    """Nor does it change where warnings of other code go."""
    before = warnings.showwarning, [*warnings.filters]

    def warns():
        warnings.warn("of this command", bayeslaw.RunTableWarning, stacklevel=1)
        ends()

    monkeypatch.setattr(cli, "app", warns)
    with contextlib.suppress(SystemExit):
        cli.main()
    assert "of this command" in capsys.readouterr().err
    assert (warnings.showwarning, [*warnings.filters]) == before
    monkeypatch.setattr(cli, "app", lambda: None)
    cli.main()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("command", ["fit", "compare"])
def test_several_domains_are_told_before_the_work_and_once(
    command, folder, tmp_path, monkeypatch, capsys
):
    """Chains take a minute, and that the table is of two domains is known before."""
    runs = pd.read_csv(folder / "runs.csv")
    both = [runs.assign(domain=name) for name in ("source", "target")]
    pd.concat(both).to_csv(tmp_path / "both.csv", index=False)

    def works(runs, *_, **options):
        print("the work")
        for part in (runs, runs[runs["N"] < 2e9]):  # all runs, and those of a fold
            warn(str(fitting.domains_mixed(part)))
        raise bayeslaw.LawError("no more of it")

    monkeypatch.setattr(bayeslaw, "average", works, raising=False)
    monkeypatch.setattr(sys, "argv", ["bayeslaw", command, str(tmp_path / "both.csv")])
    monkeypatch.setattr(sys, "stderr", sys.stdout)  # so that their order is seen
    with pytest.raises(SystemExit):
        cli.main()
    told = [line for line in capsys.readouterr().out.splitlines() if line.strip()]
    at = [i for i, line in enumerate(told) if "2 domains are fitted as if" in line]
    assert len(at) == 1
    assert told[at[0]].startswith("warning: runs of 2 domains")
    assert at[0] < next(i for i, line in enumerate(told) if "the work" in line)


def test_lines_that_differ_in_names_and_numbers_become_one():
    """Which laws it was is kept; what is said only once stays as it is."""
    laws = [f"law '{name}' explains {10 + i}% of it" for i, name in enumerate("abcdefgh")]  # fmt: skip
    other = "column 'N' has two levels"
    assert merge_alike([*laws, other, other]) == [
        "law 'a' explains 10% of it (likewise 'b', 'c', 'd', 'e', 'f' and 2 more)",
        other,
    ]


def test_lines_that_differ_in_words_stay_apart():
    assert merge_alike(["3 are odd", "3 are even"]) == ["3 are odd", "3 are even"]


def test_one_law_may_drift_beyond_a_curve(tmp_path):
    """Its 90% interval is wider beyond the runs than the law's and its misfit's, by what
    stages left out teach; and drift is no part of a preview.
    """
    tokens = 200.0 * 2.0 ** np.arange(11)
    # a law with a floor, of losses that fall ever faster
    losses = 3.0 - 0.001 * np.log(tokens) ** 3
    path, planned = tmp_path / "curve.csv", tmp_path / "planned.csv"
    pd.DataFrame({"D": tokens, "loss": losses}).to_csv(path, index=False)
    pd.DataFrame({"D": [1_638_400]}).to_csv(planned, index=False)
    asked = ["fit", str(path), "--law", "rectified", "--drift"]
    saved = tmp_path / "fit.nc"
    out = CliRunner().invoke(cli.app, [*asked, "-o", str(saved), "--json"])
    assert out.exit_code == 0, out.stderr
    row = bayeslaw.forecast(bayeslaw.load(saved), planned).iloc[0]
    without = bayeslaw.average(path, ["rectified"], drift=False)
    narrow = bayeslaw.forecast(without, planned).iloc[0]
    assert row["high"] - row["low"] > 1.2 * (narrow["high"] - narrow["low"])
    refused = CliRunner().invoke(cli.app, [*asked, "--preview"])
    assert "leave out --preview or --drift" in str(refused.exception)

"""Options are records, and what is typed wrongly is one line and exit 2."""

import json
from dataclasses import dataclass
from typing import Annotated

import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

import bayeslaw
from bayeslaw._base.arguments import command
from bayeslaw.cli import app as cli
from bayeslaw.cli.options import Seed
from bayeslaw.cli.output import write_table
from bayeslaw.cli.parsing import assignments, keywords_of
from bayeslaw.cli.plans import PlanOptions


@dataclass(frozen=True, kw_only=True)
class Greeting:
    """Options of a command."""

    name: Annotated[str, typer.Argument(help="Who.")]
    times: Annotated[int, typer.Option(help="How often.", min=1)] = 1
    seed: Seed = 0
    loud: Annotated[bool, typer.Option("--loud")] = False


def test_a_record_is_a_command():
    """Each field is an option, with its default, in the record's order."""
    received = []

    @command
    def greet(options: Greeting) -> None:
        """Say hello."""
        received.append(options)

    app = typer.Typer()
    app.command()(greet)
    shown = CliRunner().invoke(app, ["--help"]).output
    assert "Say hello." in shown
    assert shown.index("--times") < shown.index("--seed") < shown.index("--loud")
    assert CliRunner().invoke(app, ["Ada", "--times", "3"]).exit_code == 0
    assert received == [Greeting(name="Ada", times=3)]
    assert CliRunner().invoke(app, ["Ada", "--times", "0"]).exit_code == 2


def options_of(command: str) -> dict:
    group = typer.main.get_command(cli.app)
    return {p.opts[-1]: p for p in group.commands[command].params}


def test_an_option_is_the_argument_of_the_function():
    """Name and default are its, and help is what the docstring says, as it is typed."""
    there = options_of("plan")
    assert there["--confidence"].default == "0.9"
    assert "target=0.9,forgetting=0.95" in there["--confidence"].help
    assert "with --bytes-per-token" in there["--max-target-loss"].help
    assert there["--N"].help.endswith("(repeatable).")
    assert options_of("mixture")["--share"].help.count("code=5%:30%") == 1
    assert options_of("anchors")["--checks"].help.endswith("default: 48.")
    # an entry that says "As for `fit`" is that of `fit`
    assert "N=100000,D=1000000" in options_of("report")["--reference"].help
    assert assignments(["N=100000,D=1M"], "--reference") == {"N": 1e5, "D": 1e6}


def test_what_is_typed_for_a_plan_is_read_by_name():
    typed = PlanOptions(
        N=["1B"],
        correlation="0.2",
        max_days="36h",
        max_forgetting=["code=2%,en=0.05nats"],
        excess_price=["code=5e4"],
        baseline_run=["D=10B", "replay=30%"],
        law_mean=True,
    )
    assert keywords_of(typed, bayeslaw.plan) == {
        "N": [1e9],
        "correlation": 0.2,
        "max_days": 1.5,
        "max_forgetting": {"code": "2%", "en": "0.05nats"},
        "excess_price": {"code": 5e4},
        "baseline_run": {"D": 10e9, "replay": 0.3},
        "confidence": 0.9,
        "new_run": False,
        "seed": 0,
        "costs": None,
    }


def test_every_option_says_what_it_is():
    for name in typer.main.get_command(cli.app).commands:
        for label, parameter in options_of(name).items():
            if parameter.param_type_name != "option":
                continue  # the lowest typer keeps no help of an argument
            assert (parameter.help or "").strip("."), f"{name} {label}"
            assert "``" not in parameter.help


def refused(monkeypatch, capsys, *words) -> str:
    """The line on stderr of a command that ends with exit 2."""
    monkeypatch.setattr("sys.argv", ["bayeslaw", *map(str, words)])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 2
    out = capsys.readouterr()
    assert out.out == ""
    assert out.err.count("\n") == 1
    return out.err


PLAN = {
    "--target": "t.nc",
    "--source": "s.nc",
    "--N": "8.1B",
    "--ptpp": "279",
    "--max-target-loss": "1.8",
    "--max-forgetting": "2%",
}


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("--max-target-loss", "2,2"),
        ("--max-target-loss", "2,986"),
        ("--max-forgetting", "1,5%"),
        ("--max-loss", "code=1,5"),
        ("--max-forgetting", "0,05nats"),
        ("--N", "1,5B"),
        ("--N", "1e300"),
        ("--ptpp", "2,79"),
        ("--ptpp", "1e300"),
        ("--confidence", "0,9"),
        ("--baseline-loss", "1,9"),
        ("--max-flops", "1,5e20"),
    ],
)
def test_a_number_that_is_none_names_its_option(monkeypatch, capsys, option, text):
    words = [w for pair in (PLAN | {option: text}).items() for w in pair]
    said = refused(monkeypatch, capsys, "plan", *words)
    assert option in said
    assert text.removesuffix("nats").removeprefix("code=") in said


@pytest.mark.parametrize(
    ("words", "begin"),
    [
        ("optimum {law} --budget 1,5e21", "--budget must be"),
        ("optimum {law} --budget 1e21 --served-tokens zz", "--served-tokens must be"),
        ("optimum {law} --budget 1e21 --fixed-cost=-4", "--fixed-cost must be"),
        ("optimum {law} --budget 1e21 --hardware zz", "--hardware 'zz': "),
        ("optimum {law} --budget 1e21 --prob 0", "--prob must be"),
        ("recipes {law} --at N=1B --at N=2B --budget zz", "--budget must be"),
        ("recipes {law} --at N=zz --at N=2B", "--at N: 'zz'"),
        ("follow {law} {runs} --until zz", "--until must be"),
        ("follow {law} {runs} --until 1T --within 7", "--within must be"),
        ("fit {runs} --law chinchilla --reference N=zz", "--reference N: 'zz'"),
        ("table {runs} --column N=zz", "the table has no column 'zz'"),
        ("fit {runs} --law zz --preview", "unknown law 'zz'"),
    ],
)
def test_an_error_of_a_function_names_the_option_that_was_typed(
    monkeypatch, capsys, tmp_path, words, begin
):
    runs = tmp_path / "runs.csv"
    bayeslaw.simulate("chinchilla").to_csv(runs, index=False)
    law = "chinchilla@E=1.69,A=406.4,B=410.7,alpha=.34,beta=.28"
    typed = words.format(law=law, runs=runs).split()
    assert f"error: {begin}" in refused(monkeypatch, capsys, *typed)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("priors = 3\n", "write it as a table"),
        ('[reference]\nN = "1,5B"\n', "comma"),
        ("[reference]\nN = nan\n", "not a number"),
        (b"\xff\xfe\x00", "cannot be read as TOML"),
        ("[priors\n", "cannot be read as TOML"),
    ],
)
def test_odd_prior_files_are_refused(monkeypatch, capsys, tmp_path, content, named):
    path = tmp_path / "priors.toml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    words = ["fit", tmp_path / "runs.csv", "--law", "chinchilla", "--priors", path]
    assert named in refused(monkeypatch, capsys, *words)


@pytest.mark.parametrize(
    "options",
    [["--where", "1"], ["--where", "@pd.x == 1"], ["--column", "D=N/0"]],
)
def test_odd_questions_of_a_table_are_refused(monkeypatch, capsys, tmp_path, options):
    path = tmp_path / "runs.csv"
    bayeslaw.simulate("chinchilla").drop(columns="D").to_csv(path, index=False)
    refused(monkeypatch, capsys, "fit", path, "--law", "chinchilla", *options)


def test_text_that_starts_a_formula_is_escaped_in_csv(tmp_path):
    """A spreadsheet would run it when the file is opened."""
    texts = ["=cmd|' /C calc'!A0", "@SUM(A1)", "+1+1", "-2+3", "\t=1", "-5", "plain"]
    table = pd.DataFrame({"run": texts, "loss": [-1.5] * 7, "=x": 1})
    path = tmp_path / "rows.csv"
    write_table(table, path)
    kept = pd.read_csv(path, dtype=str)
    assert list(kept.columns) == ["run", "loss", "'=x"]
    assert list(kept["run"]) == [f"'{text}" for text in texts[:5]] + texts[5:]
    assert set(kept["loss"]) == {"-1.5"}
    write_table(table, tmp_path / "rows.parquet")
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "rows.parquet"), table)


def test_a_written_table_does_not_say_how_another_was_read(tmp_path):
    """Commands proposed for it would otherwise select rows as for the first table."""
    runs = bayeslaw.simulate("chinchilla").iloc[:5]
    runs.attrs["read_with"] = ["--where", "N > 1e9"]
    write_table(runs, tmp_path / "rows.parquet")
    assert bayeslaw.read_runs(tmp_path / "rows.parquet").attrs == {}


def test_where_no_run_is_worth_its_cost_anchors_says_so(tmp_path):
    from known import saved

    saved.save_fit(tmp_path / "fit.nc")
    runs = saved.runs().drop(columns="loss")
    runs.to_csv(tmp_path / "runs.csv", index=False)
    runs.iloc[[-1]].assign(N=1e11).to_csv(tmp_path / "goal.csv", index=False)
    words = [
        *("anchors", str(tmp_path / "fit.nc"), "--budget", "1e30"),
        *("--candidates", str(tmp_path / "runs.csv"), "--least", "1e9"),
        *("--goal", str(tmp_path / "goal.csv"), "--checks", "0"),
    ]
    done = CliRunner().invoke(cli.app, words)
    assert done.exit_code == 0, done.exception
    assert done.stdout.startswith("Buy nothing")


def test_a_law_file_is_trusted_by_an_option(monkeypatch, capsys, tmp_path):
    """forecast refuses a fit whose law is a file, and runs it where told so."""
    from pathlib import Path

    models = Path(__file__).parents[2] / "models"
    law = tmp_path / "mine.py"
    law.write_text((models / "chinchilla.py").read_text())
    runs = bayeslaw.simulate("chinchilla").iloc[::4]
    runs.to_csv(tmp_path / "runs.csv", index=False)
    fitted = bayeslaw.fit(runs, str(law), preview=True, on_failure="ignore")
    fitted.save(tmp_path / "fit.nc")
    words = ["forecast", str(tmp_path / "fit.nc"), str(tmp_path / "runs.csv"), "--json"]
    assert "--trust-law-file" in refused(monkeypatch, capsys, *words)
    monkeypatch.setattr("sys.argv", ["bayeslaw", *words, "--trust-law-file"])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 0
    assert len(json.loads(capsys.readouterr().out)["rows"]) == len(runs)


def test_forecasts_of_runs_at_several_rates_are_told_apart(tmp_path):
    """Each line has the columns that the law reads, also those that are the user's own."""
    planned = tmp_path / "planned.csv"
    planned.write_text("N,D,lr,note\n1e9,2e10,0.001,a\n1e9,2e10,0.002,b\n")
    words = ["forecast", str(planned), "--law", "chinchilla+lr", "--prior-only"]
    shown = CliRunner().invoke(cli.app, words).stdout
    (names,) = [line.split() for line in shown.splitlines() if " median " in line]
    assert names[:3] == ["N", "D", "lr"]
    rates = [line.split()[3] for line in shown.splitlines() if " 20B " in line]
    assert rates == ["0.001", "0.002"]

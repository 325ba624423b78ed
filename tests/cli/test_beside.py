"""``bayeslaw.toml`` beside a table: read by every command, behind what is typed, refused in one line."""

import dataclasses
import inspect
import json
import typing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw import LawError
from bayeslaw.cli import app as cli
from bayeslaw.cli.beside import columns_there, read_file, with_file
from bayeslaw.cli.buying import AnchorsOptions
from bayeslaw.cli.fits import CompareOptions, FitOptions
from bayeslaw.cli.forecasts import ForecastOptions
from bayeslaw.cli.parsing import read_table
from bayeslaw.cli.reporting import ReportOptions
from bayeslaw.cli.running import UpdateOptions
from known.commands import call

FILE = """
unit = "nats per byte"

[columns]
N = "size_M*1e6"
D = "tokens_B*1e9"
replay = "mix_pct/100"
loss = "val_loss"
ptpp = 20

[reference]
N = "100k"

[plan]
N = "8.1B"
ptpp = 279
max_target_loss = 1.8
max_forgetting = "2%"

[anchors]
budget = 2e20
offer = { N = ["241M", "517M"], ptpp = 279 }
"""


@pytest.fixture
def folder(tmp_path):
    """A table of foreign names, and the file that says what they are."""
    ours = bayeslaw.simulate("dcpt", seed=2)
    table = pd.DataFrame(
        {
            "size_M": ours["N"] / 1e6,
            "tokens_B": ours["D"] / 1e9,
            "mix_pct": ours["replay"] * 100,
            "val_loss": ours["loss"],
        }
    )
    table.to_csv(tmp_path / "mine.csv", index=False)
    (tmp_path / "bayeslaw.toml").write_text(FILE)
    return tmp_path


def test_a_table_is_read_as_python_reads_it_with_the_mapping(folder):
    """The other route is `read_runs` with a dictionary."""
    done = call("table", folder / "mine.csv", "-o", folder / "kept.csv")
    columns = {"size_M*1e6": "N", "tokens_B*1e9": "D", "mix_pct/100": "replay"}
    columns |= {"val_loss": "loss", "20": "ptpp"}
    expected = bayeslaw.read_runs(folder / "mine.csv", columns=columns)
    kept = bayeslaw.read_runs(folder / "kept.csv")
    np.testing.assert_allclose(kept[list(expected)], expected, rtol=1e-9)
    (line,) = [x for x in done.stderr.splitlines() if x.startswith("from ")]
    assert line.startswith(f"from {folder / 'bayeslaw.toml'}: --column 'N=size_M*1e6'")


def test_a_table_under_the_schema_s_names_lies_beside_it_unharmed(folder):
    """What the mapping is of is not there: nothing of it is taken."""
    call("table", folder / "mine.csv", "-o", folder / "kept.csv")
    again = call("table", folder / "kept.csv", "--json")
    record = json.loads(again.stdout)
    assert record["columns"]["N"]["high"] > 1e7
    assert again.stderr == ""


def test_what_is_typed_goes_before_the_file_name_by_name(folder, capsys):
    path = folder / "mine.csv"
    given = FitOptions(runs=path, column=["N=5M"], reference=["D=1B"])
    got = with_file(given, path)
    assert got.column[-1] == "N=5M"
    assert [pair for pair in got.column if pair.startswith("N=")] == ["N=5M"]
    assert "D=tokens_B*1e9" in got.column
    assert got.reference == ["N=100k", "D=1B"]
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "size_M" not in said


def test_a_command_takes_what_it_has_options_for(folder):
    path = folder / "mine.csv"
    report = with_file(ReportOptions(runs=path), path)
    assert report.unit == "nats per byte"
    assert report.question == ["N=8.1B", "ptpp=279", "max_target_loss=1.8", "max_forgetting=2%"]  # fmt: skip
    forecast = with_file(ForecastOptions(fit_file=Path("f.nc"), runs=path), path)
    assert forecast.column == report.column
    asked = AnchorsOptions(candidates=path, max_picks=3)
    anchors = with_file(asked, path)
    assert anchors.offer == ["N=241M,517M", "ptpp=279"]
    assert (anchors.budget, anchors.goal) == ("2e+20", report.question)
    # priors are placed where laws are still to be fitted
    assert anchors.reference is None
    following = dataclasses.replace(asked, next_batch=True)
    assert with_file(following, path).reference == report.reference
    typed = dataclasses.replace(asked, budget="1e18", goal=["goal.csv"])
    got = with_file(typed, path)
    assert (got.budget, got.goal) == ("1e18", ["goal.csv"])


def test_without_a_file_nothing_changes(folder, capsys):
    given = CompareOptions(runs=folder / "mine.csv")
    (folder / "bayeslaw.toml").unlink()
    assert with_file(given, folder / "mine.csv") is given
    assert with_file(given, Path("tensorboard:runs/")) is given
    assert with_file(given, None) is given
    assert capsys.readouterr().err == ""


def test_every_command_that_takes_a_table_reads_it():
    """By their sources: who has ``--column`` asks for the file."""
    seen = 0
    for command in cli.COMMANDS:
        function = inspect.unwrap(command)
        (options,) = [
            t for n, t in typing.get_type_hints(function).items() if n != "return"
        ]
        if "column" in {field.name for field in dataclasses.fields(options)}:
            assert "with_file(" in inspect.getsource(function), command.__name__
            seen += 1
    assert seen == 11


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("colums = 3", "unknown key 'colums'; there are: [columns], [reference], [plan]"),
        ("columns = 3", "columns is a value; write it as names and values under [columns]"),
        ("[columns]\nN = true", "columns.N is a number or text, as on the command line"),
        ("[columns]\nN = [1]", "columns.N is a number or text, as on the command line"),
        ("[plan]\nmax_forgeting = '2%'", "unknown key 'max_forgeting' in [plan]; there are: "),
        ("[anchors]\nprice = 1", "unknown key 'price' in [anchors]; there are: budget, offer"),
        ("[anchors.offer]\nM = 1", "unknown key 'M' in [anchors.offer]; there are: N, ptpp"),
        ("unit = 3", "unit is text, such as 'nats per byte'; got 3"),
        ("N = ", "cannot be read as TOML"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_in_one_line(tmp_path, text, says):
    path = tmp_path / "bayeslaw.toml"
    path.write_text(text)
    with pytest.raises(LawError) as refused:
        read_file(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_all_numbers_of_a_plan_may_stand_in_the_file(tmp_path):
    """As its signature has them: none is forgotten here when the planner learns one."""
    no_number = {"target", "source", "covariates", "point", "forgetting_unit", "costs"}
    names = set(inspect.signature(bayeslaw.plan).parameters) - no_number
    path = tmp_path / "bayeslaw.toml"
    path.write_text("[plan]\n" + "".join(f"{name} = 1\n" for name in sorted(names)))
    assert read_file(path)["question"] == [f"{name}=1" for name in sorted(names)]


def test_remember_writes_what_is_read_again(folder):
    (folder / "bayeslaw.toml").unlink()
    words = ["N=size_M*1e6", "D=tokens_B*1e9", "replay=mix_pct/100", "loss=val_loss"]
    typed = [word for pair in words for word in ("--column", pair)]
    done = call("table", folder / "mine.csv", *typed, "--remember")
    assert "which every command reads" in done.stdout
    first = json.loads(call("table", folder / "mine.csv", *typed, "--json").stdout)
    (folder / "here").mkdir()
    again = json.loads(call("table", folder / "mine.csv", "--json").stdout)
    assert again == first
    call(
        "table", folder / "mine.csv", *typed, "--remember"
    )  # the same again is no harm
    with pytest.raises(LawError, match=r"is there already; write into its \[columns\]"):
        call("table", folder / "mine.csv", *typed[2:], "--remember")


def test_names_that_need_quotes_are_quoted(tmp_path):
    pd.DataFrame({'a "b"': [1.0]}).to_csv(tmp_path / "t.csv", index=False)
    from bayeslaw.cli.beside import write_columns

    pairs = ['N=a "b"', "my law=x"]
    path = write_columns(tmp_path / "t.csv", pairs)
    assert read_file(path)["column"] == pairs
    assert columns_there(pairs, tmp_path / "t.csv") == pairs[:1]


def test_the_page_repeats_what_came_from_the_file(folder):
    """Its command holds the mapping itself, so that it is true without the file, too."""
    path = folder / "mine.csv"
    options = with_file(ReportOptions(runs=path), path)
    words = read_table(path, None, options.column).attrs["read_with"]
    assert words[:2] == ["--column", "N=size_M*1e6"]
    assert words.count("--column") == 5


def test_update_makes_a_plan_only_of_both_fits(folder):
    path = folder / "mine.csv"
    one = UpdateOptions(fit_file=Path("t.nc"), runs=path)
    assert with_file(one, path).question is None
    both = dataclasses.replace(one, source=Path("s.nc"), question=["max_forgetting=3%"])
    asked = with_file(both, path).question
    assert asked == ["N=8.1B", "ptpp=279", "max_target_loss=1.8", "max_forgetting=3%"]

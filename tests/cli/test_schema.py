"""The JSON schemas of the run table and of answers, as programs read them.

Every answer of every test is held against its schema by `known.answers`.
"""

import copy
import json
import subprocess
import sys

import pandas as pd
import pytest
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

import bayeslaw
from bayeslaw import datasets
from bayeslaw._tables.runs import check_values
from bayeslaw.cli import app as cli
from bayeslaw.cli.schema import answers
from known.answers import trouble_with, wrong


def schema(*words) -> dict:
    done = CliRunner().invoke(cli.app, ["schema", *words])
    assert done.exit_code == 0, done.exception
    return json.loads(done.stdout)


def objects(within):
    """Every schema of an object, of those within it too."""
    parts = within.values() if isinstance(within, dict) else within
    if isinstance(within, dict) and "properties" in within:
        yield within
    for part in parts if isinstance(within, dict | list) else ():
        if isinstance(part, dict | list):
            yield from objects(part)


def test_every_command_has_a_schema():
    names = {command.__name__ for command in cli.COMMANDS}
    assert names == {*answers(), "schema"}
    for name in answers():
        made = schema(name)
        Draft202012Validator.check_schema(made)
        closed = [each for each in objects(made) if not each["additionalProperties"]]
        assert closed


def test_a_real_process_prints_it():
    """As the tests' hook for shapes is not there, and annotations are read without it."""
    command = [sys.executable, "-P", "-m", "bayeslaw.cli", "schema", "check", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == schema("check")


def test_descriptions_are_those_of_the_records():
    promises = schema("plan")["properties"]["promises"]
    assert promises["description"].startswith("For each promise: ``limit``, ``unit``,")
    assert promises["items"]["additionalProperties"] is False
    verdict = schema("check")["properties"]["verdict"]
    assert '"do not extrapolate"' in verdict["description"]


def test_a_new_key_or_another_type_is_seen():
    runs = bayeslaw.simulate("chinchilla").iloc[::3]
    answer = bayeslaw.review(runs).to_dict()
    answer = json.loads(json.dumps(answer))
    assert trouble_with("review", answer) == ""
    deep = copy.deepcopy(answer)
    deep["checks"][0]["colour"] = "red"
    assert "'colour' was unexpected" in trouble_with("review", deep)
    assert "'colour' was unexpected" in trouble_with("review", answer | {"colour": 1})
    assert "'subject' is a required" in trouble_with("review", {"checks": []})
    assert "is not of type" in trouble_with("review", answer | {"subject": 3})


def test_the_suite_sees_it(monkeypatch, tmp_path):
    """A command that prints one key more than its schema has."""
    path = tmp_path / "runs.csv"
    bayeslaw.simulate("chinchilla").to_csv(path, index=False)
    to_dict = bayeslaw.Review.to_dict
    monkeypatch.setattr(
        bayeslaw.Review, "to_dict", lambda self: to_dict(self) | {"colour": "red"}
    )
    CliRunner().invoke(cli.app, ["review", str(path), "--json"])
    assert wrong
    assert "'colour' was unexpected" in wrong[0]
    wrong.clear()


ROWS = [
    ({"N": 1e8, "D": 2e9, "loss": 3.1}, True),
    ({"N": 0, "D": 2e9, "loss": 3.1}, False),
    ({"N": 1e8, "D": 2e9, "loss": -3.1}, False),
    ({"N": 1e30, "D": 2e9, "loss": 3.1}, False),
    ({"N": 1e8, "D": 2e9, "loss": 3.1, "replay": 0.3}, True),
    ({"N": 1e8, "D": 2e9, "loss": 3.1, "replay": 30}, False),
    ({"N": 1e8, "D": 2e9, "loss": 3.1, "cost": 0, "step": 0}, True),
    ({"N": 1e8, "D": 2e9, "loss": 3.1, "loss_sd": -0.1}, False),
    ({"N": 1e8, "D": 2e9, "loss": 3.1, "share_code": 1.2}, False),
]


@pytest.mark.parametrize(("row", "is_read"), ROWS)
def test_the_schema_of_a_row_refuses_what_reading_refuses(row, is_read):
    """Values of numbers, by the schema and by the check that reading makes."""
    assert Draft202012Validator(schema()).is_valid(row) == is_read
    table = pd.DataFrame([row, row])
    try:
        check_values(table, row)
    except bayeslaw.RunTableError:
        assert not is_read
    else:
        assert is_read


@pytest.mark.parametrize("name", ["microcpt", "microcpt-mixtures", "minicpt"])
def test_bundled_tables_are_as_the_schema_says(name):
    rows = datasets.load(name).head(50)
    row_is = Draft202012Validator(schema())
    for row in json.loads(rows.to_json(orient="records")):
        assert row_is.is_valid(row), row


def test_an_unknown_command_is_refused_in_one_line():
    done = CliRunner().invoke(cli.app, ["schema", "plans"])
    assert "no command 'plans' prints an answer; there are: laws," in str(
        done.exception
    )

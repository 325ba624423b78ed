"""A path where a table is wanted is read as the command line reads it."""

import pandas as pd
import pytest

import bayeslaw
from bayeslaw import RunTableError
from bayeslaw._tables.runs import as_runs
from known import saved


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("tables") / "runs.csv"
    saved.runs().to_csv(path, index=False)
    return path


def test_forecast_and_check_read_a_path(path, tmp_path):
    fit = bayeslaw.load(saved.save_average(tmp_path / "average.nc"))
    table = bayeslaw.read_runs(path)
    pd.testing.assert_frame_equal(
        bayeslaw.forecast(fit, str(path)), bayeslaw.forecast(fit, table)
    )
    told, expected = bayeslaw.check(fit, path), bayeslaw.check(fit, table)
    assert told.reason == expected.reason


@pytest.mark.parametrize(
    "ask",
    [
        lambda path: bayeslaw.fit(path, "ptpp-floor"),
        lambda path: bayeslaw.average(path, ["ptpp-floor"]),
        lambda path: bayeslaw.compare(path, ["ptpp-floor"]),
    ],
)
def test_fit_average_and_compare_read_a_path(path, tmp_path, ask):
    """What they refuse is what is in the file: a row without tokens."""
    table = pd.read_csv(path)
    table["D"] = table["D"].where(table.index != 4)
    short = tmp_path / "short.csv"
    table.to_csv(short, index=False)
    with pytest.raises(RunTableError, match="row 5, column 'D': empty"):
        ask(str(short))
    with pytest.raises(RunTableError, match="no such file"):
        ask(tmp_path / "none.csv")


def test_what_is_no_table_is_refused_in_one_line():
    with pytest.raises(RunTableError, match=r"the path of a file .*; got list"):
        as_runs([1e9])
    table = saved.runs()
    pd.testing.assert_frame_equal(as_runs(table), table)

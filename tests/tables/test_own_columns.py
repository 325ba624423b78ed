"""Columns of the user's own that reach 0 or less have linear axes, and runs far beyond them are told."""

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw import RunTableError, RunTableWarning
from bayeslaw._inference.discrepancy.process import (
    process_from_dict,
    process_of,
    process_to_dict,
)
from bayeslaw._posteriors.averaging.distance import doubts
from bayeslaw._tables.beyond import own_beyond
from known.power_laws import PowerLaws, Reads

HEATS = {
    "below 0": np.linspace(-3.0, 5.0, 9),
    "at 0": np.linspace(0.0, 1.0, 9),
    "a flag": np.tile([0.0, 1.0, 2.0], 3),
}


@pytest.mark.parametrize("heat", HEATS)
def test_an_own_column_at_0_or_below_is_an_axis_without_a_gap(heat):
    """As even as the column is; its logarithm lay 27 e-folds apart at 0."""
    columns = {"heat": HEATS[heat]}
    process = process_of(columns)
    assert process is not None
    (axis,) = process.axes
    at = axis.position(columns, np)
    scaled = HEATS[heat] * np.ptp(at) / np.ptp(HEATS[heat])
    np.testing.assert_allclose(at, scaled)
    assert np.ptp(at) == pytest.approx(2.0)
    again = process_from_dict(process_to_dict(process))
    assert again == process
    np.testing.assert_allclose(
        again.features(columns, np), process.features(columns, np)
    )


def test_a_positive_own_column_and_those_of_the_schema_keep_their_logarithms():
    columns = {"heat": np.array([0.5, 1.0, 2.0]), "N": np.array([1e8, 1e9, 1e10])}
    process = process_of(columns)
    assert process is not None
    assert [axis.unit for axis in process.axes] == [0.0, 0.0]
    old = process_to_dict(process)
    assert old is not None
    for axis in old["axes"]:
        del axis["unit"]  # as it was saved once
    assert process_from_dict(old) == process


def asked(**columns) -> pd.DataFrame:
    return pd.DataFrame({"N": [1e8], "D": [2e9]} | {n: [v] for n, v in columns.items()})


class Heated(PowerLaws):
    """Power laws that read an own column."""

    def pieces(self):
        return (Reads(("N", "D", "heat")),)


def heated(values) -> Heated:
    runs = pd.DataFrame({"N": 1e8, "D": 2e9, "heat": values, "unread": 1.0})
    one = np.full(20, 1.0)
    return Heated(1.6 * one, 0.8 * one, 0.3 * one, runs=runs)


@pytest.mark.parametrize(
    ("values", "far", "near"),
    [([1.0, 2.0, 3.0], 500.0, 20.0), ([1.0, 2.0], -1.0, 0.2), ([-1.0, 1.0], 40.0, 5.0)],
)
def test_a_forecast_far_beyond_an_own_column_is_warned_of(values, far, near):
    posterior = heated(values)
    says = "heat = .* beyond the runs that were fitted"
    with pytest.warns(RunTableWarning, match=says):
        bayeslaw.forecast(posterior, asked(heat=far))
    bayeslaw.forecast(posterior, asked(heat=near))  # warnings are errors


def test_only_columns_that_laws_read_count():
    runs = heated([1.0, 2.0]).runs
    assert not own_beyond(runs, asked(unread=1e9), ("N", "D", "heat"))
    assert own_beyond(runs, asked(heat=332.0), ("heat", "heat")) == [
        "heat = 332 (a column of your own) lies 166 times beyond the runs that were "
        "fitted (1 to 2)"
    ]


def test_a_unit_that_a_formula_states_is_repeated():
    fitted = pd.DataFrame({"N": 1e9, "heat": [1.0, 2.0]})
    (line,) = own_beyond(
        fitted, fitted.assign(heat=500.0), ("N", "heat"), units={"heat": "degC"}
    )
    assert line.startswith("heat = 500 degC (a column of your own) lies 250 times")


def test_a_plan_far_beyond_an_own_column_is_told():
    run = {"N": 1e8, "D": 2e9, "heat": 500.0}
    (line,) = doubts(heated([1.0, 2.0]), {}, run)
    assert line.startswith("the plan's heat = 500 ")
    assert not doubts(heated([1.0, 2.0]), {}, run | {"heat": 4.0})


def test_a_root_is_a_factor_of_a_column():
    """A standard error is the spread of batches over the root of their number, or a number
    over the root of the tokens; the root itself is no column of the table.
    """
    sizes = {"N": [1e8, 2e8], "loss": [3.0, 2.9]}
    table = pd.DataFrame(sizes | {"spread": [0.2, 0.4], "batches": [100, 16]})
    runs = bayeslaw.read_runs(table, columns=["loss_sd=spread/sqrt(batches)"])
    assert runs["loss_sd"].tolist() == pytest.approx([0.02, 0.1])
    assert "sqrt(batches)" not in runs
    runs = bayeslaw.read_runs(table, columns=["loss_sd=2/sqrt(batches)"])
    assert runs["loss_sd"].tolist() == pytest.approx([0.2, 0.5])
    below = table.assign(batches=[-1, 4])
    with pytest.raises(RunTableError, match=r"-1 has no square root"):
        bayeslaw.read_runs(below, columns=["loss_sd=2/sqrt(batches)"])
    with pytest.raises(RunTableError, match="batch"):
        bayeslaw.read_runs(table, columns=["loss_sd=spread/sqrt(batch)"])


@pytest.mark.parametrize(
    ("expression", "values"),
    [
        ("old/(old+new)", [0.25, 0.5]),
        ("(new - old) / new", [2 / 3, 0.0]),
        ("old*2/new/2", [1 / 3, 1.0]),
        ("sqrt(old*new)/ln(new-part)", [np.sqrt(3) / np.log(2), 2 / np.log(1.5)]),
        ("new-part", [2.0, 1.5]),
    ],
)
def test_columns_are_made_of_others_by_arithmetic(expression, values):
    """``new-part`` is a column's name, which counts before a difference."""
    table = pd.DataFrame({"old": [1, 2], "new": [3, 2], "new-part": [2.0, 1.5]})
    runs = bayeslaw.read_runs(table, columns={expression: "heat"})
    assert runs["heat"].tolist() == pytest.approx(values)


@pytest.mark.parametrize(
    "expression",
    [
        *("(old)(new)", "old**new", "exp(old)", "old if new else old", "-"),
        *("old*" * 300 + "old", "(" * 300 + "old"),
    ],
)
def test_other_code_is_no_expression(expression):
    table = pd.DataFrame({"old": [1, 2], "new": [3, 2]})
    with pytest.raises(RunTableError, match="the table has no column"):
        bayeslaw.read_runs(table, columns={expression: "heat"})

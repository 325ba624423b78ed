"""Columns of shares, and a loss for each evaluation set in one row."""

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw import RunTableError, RunTableWarning


def table(**columns):
    first = next(iter(columns.values()))
    rows = len(first)
    runs = {"N": [1e8] * rows, "D": [1e9] * rows, "loss": 3.0 - 0.1 * np.arange(rows)}
    return pd.DataFrame(runs | columns)


def shares(runs):
    return runs.filter(like="share_").round(12).to_dict("list")


def test_shares_of_one_are_as_they_are():
    runs = bayeslaw.read_runs(table(share_a=[0.25, 0.5], share_b=[0.75, 0.5]))
    assert shares(runs) == {"share_a": [0.25, 0.5], "share_b": [0.75, 0.5]}


def test_cells_in_percent_are_shares():
    """34% is .34, cell by cell, as of replay."""
    runs = bayeslaw.read_runs(table(share_a=["30%", "40%"], share_b=["70%", "60%"]))
    assert shares(runs) == {"share_a": [0.3, 0.4], "share_b": [0.7, 0.6]}


def test_numbers_that_sum_to_a_hundred_are_percent():
    with pytest.warns(RunTableWarning, match="percent"):
        runs = bayeslaw.read_runs(table(share_a=[30, 40], share_b=[70, 60]))
    assert shares(runs) == {"share_a": [0.3, 0.4], "share_b": [0.7, 0.6]}


def test_tokens_by_domain_become_shares():
    """What trackers log: tokens of each domain, whatever their sum."""
    written = table(web_tokens=[3e9, 1e9], code_tokens=[1e9, 1e9])
    names = {"web_tokens": "share_web", "code_tokens": "share_code"}
    with pytest.warns(RunTableWarning, match="tokens by domain"):
        runs = bayeslaw.read_runs(written, columns=names)
    assert shares(runs) == {"share_web": [0.75, 0.5], "share_code": [0.25, 0.5]}


def test_one_empty_share_is_what_the_others_leave():
    runs = bayeslaw.read_runs(table(share_a=[0.3, None], share_b=[0.7, 0.2]))
    assert shares(runs) == {"share_a": [0.3, 0.8], "share_b": [0.7, 0.2]}


def test_a_missing_last_domain_is_the_rest():
    with pytest.warns(RunTableWarning, match="share_rest"):
        runs = bayeslaw.read_runs(table(share_a=[0.3, 0.4], share_b=[0.5, 0.6]))
    assert shares(runs)["share_rest"] == [0.2, 0.0]


def test_what_rounding_leaves_is_shared_out():
    """Seven shares of two digits may sum to .97: each is taken by the sum."""
    rounded = {f"share_{i}": [0.14, 1.0 if i == 0 else 0.0] for i in range(7)}
    runs = bayeslaw.read_runs(table(**rounded))
    assert runs.filter(like="share_").sum(axis=1).tolist() == pytest.approx([1, 1])
    assert runs["share_3"].iloc[0] == pytest.approx(1 / 7)


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        ({"share_a": [0.3, 0.9], "share_b": [0.7, 0.4]}, "row 2.*sum to 1.3, not 1"),
        ({"share_a": [0.3, -0.1], "share_b": [0.7, 1.1]}, "row 2.*-0.1 is outside"),
    ],
)
def test_a_row_beyond_the_simplex_is_refused_in_a_line(columns, line):
    with pytest.raises(RunTableError, match=line) as refusal:
        bayeslaw.read_runs(table(**columns))
    assert "\n" not in str(refusal.value)


def test_rows_that_are_not_selected_may_lie_anywhere():
    rows = table(share_a=[0.3, 0.9], share_b=[0.7, 0.4])
    assert len(bayeslaw.read_runs(rows, where="loss > 2.95")) == 1


def test_losses_by_evaluation_set_become_a_row_each():
    """A column ``loss_NAME`` for each set; a cell that is empty has no row."""
    wide = table(share_a=[0.3, 0.4], share_b=[0.7, 0.6]).drop(columns="loss")
    wide = wide.assign(loss_a=[3.0, 2.9], loss_b=[2.0, None])
    runs = bayeslaw.read_runs(wide)
    rows = [["a", 3.0], ["a", 2.9], ["b", 2.0]]
    assert runs[["domain", "loss"]].to_numpy().tolist() == rows
    assert not {"loss_a", "loss_b"} & set(runs)


def test_a_table_that_was_read_is_the_same_when_read_again():
    runs = bayeslaw.read_runs(table(share_a=[0.331, 0.4], share_b=[0.669, 0.6]))
    again = bayeslaw.read_runs(runs)
    pd.testing.assert_frame_equal(runs, again)

"""Columns of shares, and a loss for each evaluation set in one row."""

import re

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from known.reading import read, refusal


def table(**columns):
    first = next(iter(columns.values()))
    rows = len(first)
    runs = {"N": [1e8] * rows, "D": [1e9] * rows, "loss": 3.0 - 0.1 * np.arange(rows)}
    return pd.DataFrame(runs | columns)


@pytest.mark.parametrize(
    ("first", "second", "shares", "said"),
    [
        ([0.25, 0.5], [0.75, 0.5], [[0.25, 0.5], [0.75, 0.5]], ""),
        # 34% is .34, cell by cell, as of replay
        (["30%", "40%"], ["70%", "60%"], [[0.3, 0.4], [0.7, 0.6]], ""),
        ([30, 40], [70, 60], [[0.3, 0.4], [0.7, 0.6]], "percent"),
        # what trackers log: tokens of each domain, whatever their sum
        ([3e9, 1e9], [1e9, 1e9], [[0.75, 0.5], [0.25, 0.5]], "tokens by domain"),
        # an empty cell is what the others leave, and so is a missing last domain
        ([0.3, None], [0.7, 0.2], [[0.3, 0.8], [0.7, 0.2]], ""),
        ([0.3, 0.4], [0.5, 0.6], [[0.3, 0.4], [0.5, 0.6], [0.2, 0.0]], "share_rest"),
    ],
)
def test_cells_of_any_kind_are_completed_to_shares(first, second, shares, said):
    written = table(web_tokens=first, code_tokens=second)
    columns = {"web_tokens": "share_web", "code_tokens": "share_code"}
    runs, words = read(written, columns=columns)
    found = runs.filter(like="share_").round(12)
    assert list(found)[:2] == ["share_web", "share_code"]
    assert found.T.to_numpy().tolist() == shares
    assert said in words
    assert bool(said) == bool(words)


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
    assert re.match(line, refusal(table(**columns)))


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

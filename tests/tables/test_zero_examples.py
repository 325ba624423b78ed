"""Rows of no examples in a table of fine-tuned models: the loss before, and no runs."""

import pandas as pd
import pytest

from bayeslaw import RunTableError, RunTableWarning, read_runs

ROWS = pd.DataFrame(
    {
        "model": ["a"] * 3 + ["b"] * 3,
        "D": [0, 200, 400] * 2,
        "loss": [8.5, 4.2, 4.0, 3.0, 2.5, 2.4],
    }
)


def test_each_model_s_row_of_no_examples_is_its_loss_before():
    with pytest.warns(RunTableWarning, match="2 rows of no tokens"):
        runs = read_runs(ROWS)
    assert (runs["D"] > 0).all()
    before = runs.groupby("model")["loss_before"].unique()
    assert before.map(list).to_dict() == {"a": [8.5], "b": [3.0]}


def test_without_models_they_are_refused():
    with pytest.raises(RunTableError, match="column 'D': 0 is not positive"):
        read_runs(ROWS[["D", "loss"]])

"""Rows that are new, changed or gone are told apart, with names of runs and without, and what is no longer table is refused."""

import numpy as np
import pandas as pd
import pytest

from bayeslaw import RunTableError
from bayeslaw._running.updating.changes import check_enough, row_changes

NAMED = pd.DataFrame(
    {
        "run": ["a", "a", "b", "b"],
        "step": [1.0, 2.0, 1.0, 2.0],
        "N": [1e6] * 4,
        "D": [1e7, 2e7, 1e7, 2e7],
        "loss": [3.0, 2.9, 3.1, 2.8],
    }
)
NAMELESS = NAMED.drop(columns=["run", "step"])


@pytest.mark.parametrize("old", [NAMED, NAMELESS])
def test_the_same_table_in_any_order_has_no_changes(old):
    changes = row_changes(old, old.iloc[::-1])
    assert not changes.any
    assert changes.same == 4


def test_a_named_row_is_new_changed_or_gone():
    new = pd.DataFrame({"run": ["c"], "step": [1.0], "N": [1e6], "D": [1e7], "loss": 2})
    after = pd.concat([NAMED.iloc[1:], new], ignore_index=True)
    after.loc[1, "loss"] = 3.3
    changes = row_changes(NAMED, after)
    assert list(changes.new["run"]) == ["c"]
    assert list(changes.gone.index) == [0]
    assert changes.changed[["run", "loss", "loss_was"]].to_numpy().tolist() == [
        ["b", 3.3, 3.1]
    ]
    assert changes.sentence() == "1 new row, 1 changed, 1 gone, 2 as they were"


def test_without_names_replicates_are_paired_by_their_losses_first():
    """Two runs alike but for their losses, and a third: it is the new one, whichever row it is."""
    after = pd.concat([NAMELESS.iloc[[2]].assign(loss=9.0), NAMELESS])
    changes = row_changes(NAMELESS, after)
    assert list(changes.new["loss"]) == [9.0]
    assert changes.same == 4
    mended = NAMELESS.assign(loss=[3.0, 2.9, 3.4, 2.8])
    (row,) = row_changes(NAMELESS, mended).changed.itertuples()
    assert (row.loss, row.loss_was) == (3.4, 3.1)


def test_a_run_named_by_a_number_is_the_same_as_text_or_float():
    saved = NAMED.assign(run=[1.0, 1.0, 2.0, 2.0])
    assert not row_changes(saved, NAMED.assign(run=[1, 1, 2, 2])).any


def test_rounding_of_a_file_is_no_change_and_a_corrected_covariate_is():
    assert not row_changes(NAMED, NAMED.assign(loss=NAMED["loss"] * (1 + 1e-13))).any
    assert len(row_changes(NAMED, NAMED.assign(N=[1e6, 1e6, 1e6, 2e6])).changed) == 1
    empty = NAMED.assign(cost=np.nan)
    assert not row_changes(empty, empty).any


def test_a_second_batch_alone_is_refused():
    alone = NAMED.assign(run="z")
    with pytest.raises(RunTableError, match=r"lacks 4 of the 4 rows .* in one table"):
        check_enough(row_changes(NAMED, alone), NAMED, "the fit")
    half = NAMED.iloc[:2]
    check_enough(row_changes(NAMED, half), NAMED, "the fit")

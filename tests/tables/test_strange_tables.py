"""Thousands of generated tables: read exactly as they were meant, or refused in one line."""

import pytest
from studies.strange_tables import is_right, judge

from known import strange_tables as strange


@pytest.fixture(scope="module")
def judged():
    return judge(range(600))


def test_none_is_misread_or_called_right_and_none_ends_in_a_traceback(judged):
    bad = ("misread", "traceback", "called right")
    wrong = [row for row in judged if row.outcome in bad]
    assert not wrong, wrong[:3]


def test_good_tables_are_read_and_faults_are_refused_warned_of_told_or_named(judged):
    wrong = [row for row in judged if not is_right(row)]
    assert not wrong, wrong[:3]


def test_every_fault_was_met(judged):
    """So that the two tests above prove something of each."""
    met = {row.fault for row in judged}
    of_cells = {fault.__name__ for fault in strange.CELL_FAULTS}
    others = {*strange.LINE_FAULTS, *strange.UNIT_FAULTS}
    assert met == {"", strange.TWICE, strange.CURVE_TWICE} | of_cells | others


def test_a_refusal_is_one_line_that_names_the_column_and_row_of_a_cell(judged):
    of_cells = {fault.__name__ for fault in strange.CELL_FAULTS}
    for row in judged:
        if row.outcome == "refused":
            assert "\n" not in row.message
        if row.fault in of_cells:
            assert row.message.startswith("row"), row
            assert "column" in row.message, row

"""Thousands of generated tables: read exactly as they were meant, or refused in one line."""

import pytest
from studies.strange_tables import judge

from known.strange_tables import CELL_FAULTS, LINE_FAULTS

TABLES = 600


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    return judge(range(TABLES), tmp_path_factory.mktemp("tables"))


def test_none_is_misread_and_none_ends_in_a_traceback(judged):
    wrong = [row for row in judged if row.outcome in ("misread", "traceback")]
    assert not wrong, wrong[:3]


def test_good_tables_are_read_and_faults_are_refused(judged):
    assert all(row.outcome == "read" for row in judged if not row.fault)
    assert all(row.outcome == "refused" for row in judged if row.fault)


def test_every_fault_was_met(judged):
    """So that the two tests above prove something of each."""
    met = {row.fault for row in judged}
    assert met == {"", *(fault.__name__ for fault in CELL_FAULTS), *LINE_FAULTS}


def test_a_refusal_is_one_line_that_names_the_column_and_row_of_a_cell(judged):
    of_cells = {fault.__name__ for fault in CELL_FAULTS}
    for row in judged:
        if row.fault:
            assert "\n" not in row.message
        if row.fault in of_cells:
            assert row.message.startswith("row"), row
            assert "column" in row.message, row

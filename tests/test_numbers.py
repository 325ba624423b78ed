"""Numbers are read as people write them, and a comma that may be decimal is no number."""

import pytest

from bayeslaw import RunTableError
from bayeslaw._base.numbers import (
    format_count,
    format_counts,
    format_spread,
    parse_number,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [("8.1B", 8.1e9), ("517M", 517e6), ("2e20", 2e20), ("34%", 0.34), ("12k", 12e3), ("1.4T", 1.4e12), ("1,000", 1e3),
     ("4.1B", 4.1e9), (" 7 ", 7.0), (".5", 0.5), ("-3e-2", -0.03), (5, 5.0)],
)  # fmt: skip
def test_numbers_are_read_as_people_write_them(text, value):
    assert parse_number(text) == value


def test_a_range_of_one_count_is_one_and_a_large_spread_is_a_factor():
    assert format_counts(258528, 8.19e6) == "259k to 8.19M"
    assert format_counts(553680, 553900) == "554k"
    assert [format_spread(x, ".2%") for x in (0.0124, 1.24)] == [
        "1.24%",
        "a factor of 3.46",
    ]


@pytest.mark.parametrize("text", ["", "abc", "8.1X", "1e", "--3", "8 1B"])
def test_what_is_no_number_is_refused(text):
    with pytest.raises(RunTableError, match="is not a number"):
        parse_number(text)


@pytest.mark.parametrize(
    "text", ["1,8", "2,98", "0,250", "1,5B", "12,34,567", ",5", "1,2345", "1,500M"]
)
def test_a_comma_that_groups_no_thousands_is_refused(text):
    with pytest.raises(RunTableError):
        parse_number(text)


@pytest.mark.parametrize(
    ("text", "point"), [("3,5", "3.5"), ("3,2.9", "1.8"), ("1,2,3", "1.8")]
)
def test_what_is_proposed_for_a_comma_is_a_number(text, point):
    with pytest.raises(RunTableError, match=rf"with a point \({point}\)"):
        parse_number(text)


@pytest.mark.parametrize("text", ["2,986", "1,000", "15,5", "2,986%"])
def test_a_comma_that_may_be_decimal_is_refused_where_numbers_are_small(text):
    with pytest.raises(RunTableError, match="comma"):
        parse_number(text, counts=False)


@pytest.mark.parametrize(
    ("text", "value"),
    [("1,234,567", 1234567), ("1,234.5", 1234.5), ("-1,234,567", -1234567)],
)
def test_commas_between_thousands_are_read(text, value):
    assert parse_number(text) == parse_number(text, counts=False) == value


@pytest.mark.parametrize(
    ("count", "text"),
    [(999.9e6, "1B"), (999_499, "999k"), (8.14e9, "8.14B"), (0.5, "0.5"), (999.9, "1k")],
)  # fmt: skip
def test_counts_are_rounded_before_their_unit_is_chosen(count, text):
    assert format_count(count) == text

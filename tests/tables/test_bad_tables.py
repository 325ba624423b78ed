"""Tables that read as something else than was meant are refused or warned about."""

import gzip
from itertools import product

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw import RunTableError, RunTableWarning
from bayeslaw._base.numbers import parse_number
from bayeslaw._tables.fitting import check_fittable
from known.said import said_by

GOOD = "N,D,replay,ptpp,loss\n1e8,1e9,.1,30,2.5\n1e9,1e9,.2,30,2.3\n"


def refusal(path, content: str | bytes, **options) -> str:
    """The one line that refuses a file."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(RunTableError) as caught:
        bayeslaw.read_runs(path, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# -- commas ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["1,8", "2,98", "0,250", "1,5B", "12,34,567", ",5", "1,2345", "1,500M"]
)
def test_a_comma_that_groups_no_thousands_is_refused(text):
    with pytest.raises(RunTableError):
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
    ("column", "cell"),
    [("loss", "1,8"), ("loss", "2,986"), ("replay", "0,25"), ("ptpp", "2,790")],
)
def test_decimal_commas_are_refused_by_row_and_column(tmp_path, column, cell):
    """1,8 is not 18, and 2,986 not 2986."""
    row = {"N": "1e8", "D": "1e9", "replay": "0.2", "ptpp": "30", "loss": "2.5"}
    table = pd.DataFrame([row | {column: cell}])
    said = refusal(tmp_path / "t.csv", table.to_csv(index=False))
    assert f"row 1, column '{column}'" in said
    assert cell in said


def test_thousands_of_tokens_are_read(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('N,D,loss\n"241,000","1,234,567",2.5\n')
    row = bayeslaw.read_runs(path).iloc[0]
    assert (row["N"], row["D"]) == (241000, 1234567)


# -- files -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("N,D,loss,loss\n1e8,1e9,2.5,2.6\n", "2 columns are called 'loss'"),
        # else every column would be read under its neighbour's name
        ("N,D,loss\n7,1e8,1e9,2.5\n8,1e9,1e9,2.3\n", "4 fields"),
        # else the loss would be read as D, and be empty
        (
            "loss,N,D\n3,1e9,1e10\n\n1e9,2e10\n",
            "row 2 has 2 fields, the header 3 names",
        ),
        ("N,D,loss\n", "no rows"),
    ],
)
def test_files_of_which_a_column_is_unclear_are_refused(tmp_path, content, says):
    assert says in refusal(tmp_path / "t.csv", content)


def test_a_frame_without_rows_is_refused():
    with pytest.raises(RunTableError, match="no rows"):
        bayeslaw.read_runs(pd.DataFrame({"N": [], "loss": []}))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("cut.csv.gz", gzip.compress(GOOD.encode() * 50, mtime=0)[:60]),
        ("text.csv.gz", GOOD.encode()),
        ("flipped.csv.gz", gzip.compress(GOOD.encode(), mtime=0)[:-12] + b"damaged"),
        ("table.xlsx", b"PK\x03\x04\x14\x00\x06\x00\x08\x00\xff\xfe" * 9),
        ("table.csv.zip", b"PK\x03\x04 no archive"),
        ("table.csv.xz", b"no archive"),
        ("table.parquet", b"PAR1 no table"),
    ],
)
def test_damaged_files_are_refused(tmp_path, name, content):
    assert "cannot be read as a table" in refusal(tmp_path / name, content)


@pytest.mark.parametrize("theirs", ["D/0", "D*0", "D*1.2.3", "D/1e400", "D*1e999"])
def test_a_factor_that_is_none_is_refused(tmp_path, theirs):
    assert "factor" in refusal(tmp_path / "t.csv", GOOD, columns={theirs: "N"})


@pytest.mark.parametrize("cell", ["1e300", "1e25", "1e999"])
def test_sizes_beyond_reason_are_refused(tmp_path, cell):
    said = refusal(tmp_path / "t.csv", f"N,D,loss\n{cell},1e9,2.5\nabout,1e9,2\n")
    assert "column 'N'" in said


# -- rows ------------------------------------------------------------------------------


def test_the_same_rows_exported_twice_are_warned_about(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("run,step,N,D,loss\na,1,1e8,1e9,2.5\nb,1,1e9,1e9,2.3\n")
    runs = bayeslaw.read_runs(path)  # warnings are errors
    with pytest.warns(RunTableWarning, match="rows 3, 4: the same as an earlier row"):
        bayeslaw.read_runs(pd.concat([runs, runs]))


def test_two_domains_fitted_as_one_are_warned_about():
    runs = bayeslaw.simulate("chinchilla").assign(domain="target")
    both = bayeslaw.read_runs(pd.concat([runs, runs.assign(domain="source")]))
    with pytest.warns(RunTableWarning, match="runs of 2 domains are fitted as if of"):
        check_fittable(bayeslaw.law("chinchilla"), both)


# -- other files -----------------------------------------------------------------------

ROWS = pd.DataFrame(
    {"N": [1e9, 2e9, 3e9], "D": [1e10, 2e10, 3e10], "loss": [3.0, 2.9, 2.8]}
)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("a.csv", lambda path: ROWS.to_csv(path, sep=";", index=False)),
        ("b.csv", lambda path: ROWS.to_csv(path, sep="\t", index=False)),
        ("c.csv.gz", lambda path: ROWS.to_csv(path, index=False)),
        ("d.csv.zip", lambda path: ROWS.to_csv(path, index=False)),
        ("e.tsv.xz", lambda path: ROWS.to_csv(path, sep="\t", index=False)),
        ("f.jsonl", lambda path: ROWS.to_json(path, orient="records", lines=True)),
        ("g.parquet", lambda path: ROWS.to_parquet(path)),
    ],
)
def test_tables_of_other_kinds_are_read(tmp_path, name, write):
    """Semicolons, tabs, JSON lines, compressed."""
    write(tmp_path / name)
    assert np.array_equal(bayeslaw.read_runs(tmp_path / name)[["N", "D", "loss"]], ROWS)


def test_two_units_in_one_column_are_warned_about():
    """Half of the tokens in billions."""
    D = [1e10, 2e10, 30.0, 40.0]
    mixed = pd.DataFrame({"N": 1e9, "D": D, "loss": [3.0, 2.9, 2.8, 2.7]})
    with pytest.warns(RunTableWarning, match="two units in one column. look at rows"):
        bayeslaw.read_runs(mixed)


def sizes_and_tokens():
    """Runs of four sizes, with seven budgets and three shares of replay."""
    grid = product((1.2e8, 3.5e8, 7.6e8, 1.6e9), np.geomspace(2.5e8, 1.6e10, 7))
    table = pd.DataFrame(
        [(*pair, replay) for pair in grid for replay in (0.1, 0.25, 0.5)],
        columns=["N", "D", "replay"],
    )
    table["ptpp"] = np.resize([320.0, 320.0, 80.0, 20.0, 320.0], len(table))
    return table.assign(loss=loss_of)


def loss_of(table):
    """A law's loss, with noise of .3%."""
    noise = 0.003 * np.random.default_rng(0).standard_normal(len(table))
    seen = table["D"] * (1 - table["replay"]) + table["N"] * table["ptpp"] / 10
    return (1.7 + 400 / table["N"] ** 0.34 + 410 / seen**0.28) * np.exp(noise)


def said_of(table):
    return said_by(bayeslaw.read_runs, table)[1]


@pytest.mark.parametrize(
    ("column", "factor", "says"),
    [
        ("D", 1000, "row 8, column 'D': 1T is 62.5 times the next largest"),
        ("N", 1000, "row 8, column 'N': 120B is 75 times the next largest"),
        ("ptpp", 1000, "row 8, column 'ptpp': 80k is 250 times the next largest"),
        ("D", 1e-3, "row 8, column 'D': 1M is 1/250 of the next smallest"),
    ],
)
@pytest.mark.parametrize("columns", [["loss"], ["target_loss", "source_loss"]])
def test_one_cell_in_another_unit_is_told_and_a_run_so_long_is_not(
    column, factor, says, columns
):
    """The loss tells them apart: a wrong cell keeps that of its true setting."""
    table = sizes_and_tokens()
    table.loc[7, column] *= factor

    def written(losses):
        wide = table.drop(columns="loss")
        return wide.assign(**dict.fromkeys(columns, losses))

    assert not said_of(written(loss_of(table)))
    (line,) = said_of(written(table["loss"]))
    assert line.startswith(says)
    assert "with nothing between" in line
    assert "a wrong unit? correct the cell" in line


def test_a_long_run_may_have_a_high_loss_where_losses_may_rise():
    """On the source, on other tokens than the rest, and where tokens are repeated."""
    table = sizes_and_tokens()
    table.loc[7, "D"] *= 1000
    assert said_of(table)
    assert not said_of(table.assign(domain="source"))
    assert not said_of(table.assign(U=1e9))
    corpus = ["b" if i == 7 else "a" for i in table.index]
    assert not said_of(table.assign(corpus=corpus))


def test_a_failed_run_among_the_others_makes_no_honest_row_odd():
    table = sizes_and_tokens()
    table.loc[7, "D"] /= 1000
    honest = table.assign(loss=loss_of(table))
    honest.loc[12, "loss"] = 9.0
    assert not said_of(honest)


def test_three_rows_far_out_are_a_design():
    table = sizes_and_tokens()
    table.loc[[6, 7, 8], "D"] *= 1000
    assert not said_of(table)


@pytest.mark.parametrize("column", ["D", "N", "loss"])
def test_a_row_that_is_not_above_0_comes_with_the_query_that_leaves_it_out(column):
    table = pd.DataFrame(
        {"N": [1e8, 1e8, 1e9], "D": [1e9, 2e9, 2e9], "loss": [3.0, 2.9, 2.7]}
    )
    table.loc[0, column] = 0
    with pytest.raises(RunTableError, match="row 1") as refused:
        bayeslaw.read_runs(table)
    query = str(refused.value).partition('--where "')[2].partition('"')[0]
    assert len(bayeslaw.read_runs(table, where=query)) == 2

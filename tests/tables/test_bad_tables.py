"""Tables that read as something else than was meant are refused or warned about."""

import gzip
from itertools import product

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw import RunTableWarning
from known.reading import read, refusal, written

GOOD = "N,D,replay,ptpp,loss\n1e8,1e9,.1,30,2.5\n1e9,1e9,.2,30,2.3\n"


# -- files -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("N,D,loss,loss\n1e8,1e9,2.5,2.6\n", "2 columns are called 'loss'"),
        # else every column would be read under its neighbour's name
        ("N,D,loss\n7,1e8,1e9,2.5\n8,1e9,1e9,2.3\n", "4 fields"),
        # else the loss would be read as D, and be empty
        ("loss,N,D\n3,1e9,1e10\n\n1e9,2e10\n", "row 2 has 2 fields, the header 3"),
        ("N,D,loss\n", "no rows"),
        # 1,8 is not 18, and 2,986 not 2986
        ('N,D,replay,loss\n1e8,1e9,0.2,"1,8"\n', "row 1, column 'loss': '1,8'"),
        ('N,D,loss\n1e8,1e9,"2,986"\n', "'2,986' may mean 2.986 or 2986"),
        ('N,D,ptpp,loss\n1e8,1e9,"2,790",2\n', "row 1, column 'ptpp': '2,790' may"),
        *(
            (f"N,D,loss\n{cell},1e9,2.5\nabout,1e9,2\n", "column 'N'")
            for cell in ("1e300", "1e25", "1e999")
        ),
        ("", "it is empty"),
        ("\n\n", "it is empty"),
        (" ; ;\n", "it is empty"),
        *(
            (content, "not fields with commas")
            for content in ('[{"N": 1}]', '{"N": [1, 2]}', "<html></html>")
        ),
    ],
)
def test_files_of_which_something_is_unclear_are_refused(tmp_path, content, says):
    assert says in refusal(written(tmp_path / "t.csv", content))


def test_a_file_that_is_not_there_is_told(tmp_path):
    assert "no such file" in refusal(tmp_path / "t.csv")


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
    assert "cannot be read as a table" in refusal(written(tmp_path / name, content))


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


# -- rows ------------------------------------------------------------------------------


def test_the_same_rows_exported_twice_are_warned_about(tmp_path):
    rows = "run,step,N,D,loss\na,1,1e8,1e9,2.5\nb,1,1e9,1e9,2.3\n"
    runs = bayeslaw.read_runs(written(tmp_path / "t.csv", rows))  # warnings are errors
    with pytest.warns(RunTableWarning, match="rows 3, 4: the same as an earlier row"):
        bayeslaw.read_runs(pd.concat([runs, runs]))


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

    def with_losses(losses):
        wide = table.drop(columns="loss")
        return wide.assign(**dict.fromkeys(columns, losses))

    assert not read(with_losses(loss_of(table)))[1]
    line = read(with_losses(table["loss"]))[1]
    assert line.startswith(says)
    assert "with nothing between" in line
    assert line.endswith("correct the cell, or leave the row out (--where)")
    assert " | " not in line


def test_a_long_run_may_have_a_high_loss_where_losses_may_rise():
    """On the source, on other tokens than the rest, where tokens are repeated, and where
    three runs are so long.
    """
    table = sizes_and_tokens()
    table.loc[7, "D"] *= 1000
    assert read(table)[1]
    corpus = ["b" if i == 7 else "a" for i in table.index]
    for other in ({"domain": "source"}, {"U": 1e9}, {"corpus": corpus}):
        assert not read(table.assign(**other))[1]
    table.loc[[6, 8], "D"] *= 1000
    assert not read(table)[1]


def test_a_failed_run_among_the_others_makes_no_honest_row_odd():
    table = sizes_and_tokens()
    table.loc[7, "D"] /= 1000
    honest = table.assign(loss=loss_of(table))
    honest.loc[12, "loss"] = 9.0
    assert not read(honest)[1]


@pytest.mark.parametrize("column", ["D", "N", "loss"])
def test_a_row_that_is_not_above_0_comes_with_the_query_that_leaves_it_out(column):
    table = pd.DataFrame(
        {"N": [1e8, 1e8, 1e9], "D": [1e9, 2e9, 2e9], "loss": [3.0, 2.9, 2.7]}
    )
    table.loc[0, column] = 0
    said = refusal(table)
    assert "row 1" in said
    query = said.partition('--where "')[2].partition('"')[0]
    assert len(bayeslaw.read_runs(table, where=query)) == 2

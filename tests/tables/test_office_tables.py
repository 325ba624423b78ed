"""Tables as offices and notebooks write them are read as they were meant, with a word on
what was left out, or refused with a way out.
"""

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import bayeslaw
from bayeslaw import RunTableError
from bayeslaw._tables.runs import as_runs
from bayeslaw.cli.app import app
from bayeslaw.cli.parsing import read_question
from known.reading import hint, read, refusal, written

SIZES, TOKENS = (0.15, 0.4, 1.1), (0.4, 0.8, 1.6, 3.2)


def true_loss(size, tokens):
    return round(2 + 0.5 / size**0.3 + 0.4 / tokens**0.2, 3)


def lines(number=lambda x: str(x).replace(".", ",")):
    """Rows of a German sheet: run, size in billions, tokens in billions, percent, loss."""
    rows = [(n, d, true_loss(n, d)) for n in SIZES for d in TOKENS]
    return [
        ";".join([f"V{i}", number(n), number(d), str(5 * (i % 3)), number(loss)])
        for i, (n, d, loss) in enumerate(rows)
    ]


HEADER = "Versuch;Modell;Token;Anteil;Verlust"
COLUMNS = [
    *("run=Versuch", "N=Modell*1e9", "D=Token*1e9", "replay=Anteil/100"),
    "loss=Verlust",
]


@pytest.fixture
def sheet(tmp_path):
    """Write a sheet of these lines."""
    return lambda *rows: written(tmp_path / "sheet.csv", "\n".join(rows))


def is_true(runs):
    size, tokens = runs["N"] / 1e9, runs["D"] / 1e9
    truth = [true_loss(n, d) for n, d in zip(size, tokens, strict=True)]
    return len(runs) == 12 and np.allclose(runs["loss"], truth, atol=6e-4)


@pytest.mark.parametrize(
    ("above", "below", "said"),
    [
        ([], [], "comma is read as the decimal sign"),
        (["Modell;;Training;;Verlust"], [], "header is line 2"),
        (["Export vom 3. März, gesamt", ";;;;"], [], "header is line 2"),
        ([], [";Mrd.;Mrd.;%;nats"], "states units (Modell Mrd."),
        (["Modell;;Training;;Verlust"], [";Mrd.;Mrd. Token;%;nats/Token"], "units"),
    ],
)
@pytest.mark.parametrize("total", ["", "Summe;;18,0;;", "Mittelwert;0,55;1,5;5;2,9"])
def test_titles_units_totals_and_decimal_commas_are_read_as_meant(
    tmp_path, above, below, said, total
):
    text = "\r\n".join([*above, HEADER, *below, *lines(), *filter(None, [total])])
    path = written(tmp_path / "sheet.csv", text.encode("cp1252"))
    runs, words = read(path, columns=COLUMNS)
    assert is_true(runs)
    assert said in words
    assert ("a mean or total" in words) == bool(total)
    assert ("Windows-1252" in words) == ("ä" in text)


def test_units_become_part_of_a_name_and_are_proposed(sheet):
    runs, _ = read(sheet(HEADER, ";Mio.;Mrd.;%;nats", *lines()))
    said = bayeslaw.review(runs)["table"].reason
    assert "name the loss: " in said
    assert "perhaps Verlust" in said
    assert '"D=Token [Mrd.]*1e9"' in hint(runs)


def test_a_column_of_the_schema_in_another_unit_is_not_taken_as_it_is(sheet):
    runs, _ = read(sheet("run;N;D;replay;loss", ";Mrd.;Mrd.;%;nats", *lines()))
    assert not {"N", "D", "replay"} & {*runs.columns}
    assert {"N [Mrd.]", "loss"} <= {*runs.columns}


@pytest.mark.parametrize("number", [str, "{:.3f}".format])
def test_points_stay_points(sheet, number):
    runs, words = read(sheet(HEADER, *lines(number)), columns=COLUMNS)
    assert is_true(runs)
    assert not words


def test_a_point_that_may_group_thousands_is_refused_among_decimal_commas(sheet):
    rows = lines()
    rows[3] = rows[3].replace("3,2;", "3.200;")
    said = refusal(sheet(HEADER, *rows), columns=COLUMNS)
    assert "row 4, column 'Token': '3.200' may mean 3200" in said


def test_groups_of_thousands_by_points_are_counts(sheet):
    rows = ["V1;150.000.000;1.500.000.000;3,25", "V2;400.000.000;800.000.000;3,0"]
    runs, _ = read(sheet("run;N;D;loss", *rows))
    assert runs["D"].tolist() == [1.5e9, 8e8]
    assert runs["loss"].tolist() == [3.25, 3.0]


def test_an_excel_sheet_with_a_title_and_units_is_read_below_them(tmp_path):
    pytest.importorskip("openpyxl")
    path = tmp_path / "sheet.xlsx"
    rows = [
        ["Runs of March", None, None],
        ["run", "D", "loss"],
        [None, "B", "nats"],
        *([f"r{i}", 2.0 + i, 3.0 - i / 10] for i in range(4)),
    ]
    pd.DataFrame(rows).to_excel(path, index=False, header=False)
    runs, words = read(path, columns=["D=D [B]*1e9"])
    assert runs["D"].tolist() == [2e9, 3e9, 4e9, 5e9]
    assert "header is line 2" in words


def test_a_first_row_without_numbers_is_a_row_where_the_column_holds_text(sheet):
    """A row of units states them for at least two columns of numbers."""
    rows = ["a,1B,nan,3", "b,2B,2e9,2.9", "c,3B,3e9,2.8", "d,1B,1e9,3.1"]
    runs, words = read(sheet("run,N,D,loss", *rows), where="D > 0")
    assert len(runs) == 3
    assert "units" not in words


@pytest.mark.parametrize(
    "content",
    [
        'D;N;loss\n"9,255,000,000";1e9;2.5\n"1,000,000,000";2e9;2.4;7\n',
        'loss;N;D\n"2,51";1e9;5e9\n"2,42";2e9;5e9;7\n"2,31";4e9;5e9\n"2,2";4e9;9e9;1\n',
        'D|N|loss\n"9;255;0"|1e9|2.5|1\n"1;000;0"|2e9|2.4\n',
    ],
)
def test_commas_in_fields_do_not_hide_a_field_too_many(sheet, content):
    """A line with a field too many makes the separator's count uneven; marks inside
    fields are even, and separate nothing.
    """
    assert "fields" in refusal(sheet(content))


def test_looking_for_units_and_commas_reads_few_cells(tmp_path, monkeypatch):
    """A table without a row of units is not read as one: the time is the columns' own."""
    numbers = np.arange(1.0, 2001.0)
    table = pd.DataFrame({"run": numbers, "N": 1e8, "D": 1e9 * numbers, "loss": 2.5})
    table["run"] = "r" + table["run"].astype(str)
    table.assign(host="a", notes="b").to_csv(tmp_path / "t.csv", index=False)
    looked = []

    def is_number(text):
        looked.append(text)
        return text[:1].isdigit()

    monkeypatch.setattr("bayeslaw._tables.sources.layout._is_number", is_number)
    assert len(bayeslaw.read_runs(tmp_path / "t.csv")) == 2000
    assert len(looked) < 2100


# -- what notebooks hold ---------------------------------------------------------------


def frame():
    rows = [(n * 1e9, d * 1e9, true_loss(n, d)) for n in SIZES for d in TOKENS]
    return pd.DataFrame(rows, columns=["N", "D", "loss"])


@pytest.mark.parametrize("name", ["run", None, "run_name"])
def test_an_index_of_names_names_the_runs(tmp_path, name):
    """Also in a file that it was written to."""
    labels = [f"{n:g}B-{k}" for n in SIZES for k in range(len(TOKENS))]
    table = frame().set_index(pd.Index(labels, name=name))
    table.to_csv(tmp_path / "runs.csv")
    for source in (table, tmp_path / "runs.csv"):
        assert bayeslaw.read_runs(source)["run"].tolist() == labels
    again = as_runs(as_runs(table))
    assert again["run"].tolist() == again.index.tolist() == labels


def test_two_losses_of_one_run_in_the_index_are_refused_as_in_a_column():
    table = frame().set_index(pd.Index(["a", "a", *"bcdefghijk"], name="run"))
    table["D"] = 1e9
    assert "different losses for one run a, D" in refusal(table)


@pytest.mark.parametrize(
    "row",
    [
        {"N": "7B", "D": "20B", "replay": "25%"},
        pd.Series({"N": "7B", "D": "20B", "replay": "25%"}),
        [{"N": 7e9, "D": 2e10, "replay": 0.25}],
        {"N": [7e9], "D": [2e10], "replay": 0.25},
    ],
    ids=["mapping", "series", "rows", "columns"],
)
def test_one_row_is_a_table(row):
    runs = as_runs(row)
    assert runs[["N", "D", "replay"]].to_numpy().tolist() == [[7e9, 2e10, 0.25]]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (frame()["loss"], "give the table of which it is a column"),
        (frame().set_index(pd.Index([*"abcdefghijkl"]))["loss"], "it is a column"),
        ("chinchilla", "is a law, not a table of runs; the table comes first"),
        ("Chinchilla", "fit(runs, 'chinchilla')"),
        (bayeslaw.law("dcpt"), "first where a law does"),
        ([1, 2], "got list: make it one by pandas.Data"),
        (3.1, "got float: make it one by pandas"),
        ({}, "got dict"),
        ({"N": [1e9, 2e9], "D": [1e9, 2e9, 3e9]}, "same length"),
    ],
)
def test_what_is_no_table_is_refused_with_a_way_out(given, message):
    with pytest.raises(RunTableError) as refused:
        as_runs(given)
    assert message in str(refused.value)


def test_a_saved_fit_in_the_place_of_a_table_is_told(tmp_path):
    said = refusal(written(tmp_path / "fit.nc", b"\x89HDF\r\n\x1a\n\0\0\0"))
    assert "a saved fit" in said
    assert "before the table" in said


def test_a_table_in_the_place_of_a_fit_is_not_to_be_overwritten(tmp_path):
    path = tmp_path / "runs.csv"
    frame().to_csv(path)
    with pytest.raises(bayeslaw.FitFileError, match=r"fit .*runs.csv -o fit.nc"):
        bayeslaw.load(path)


def test_a_point_fit_and_a_table_in_the_place_of_a_fit_are_told(tmp_path):
    point = bayeslaw.point_fit(frame(), "chinchilla", starts=2)
    assert point.loss({"N": "7B", "D": "20B"}).shape == (1,)
    says = r"no posterior: fit\(runs, 'chinchilla'\)"
    with pytest.raises(bayeslaw.LawError, match=says):
        bayeslaw.forecast(point, {"N": "7B", "D": "20B"})
    with pytest.raises(bayeslaw.LawError, match="the fit comes first"):
        bayeslaw.forecast(frame(), frame())


def test_options_that_are_nearly_right_are_named():
    says = "ptpp is pre-training tokens per param"
    with pytest.raises(bayeslaw.PlanError, match=says):
        bayeslaw.plan("t.nc", "s.nc", N=7e9, pretrain_tokens=3e11)
    with pytest.raises(bayeslaw.PlanError, match="did you mean 'max_tokens'"):
        bayeslaw.plan("t.nc", "s.nc", N=7e9, ptpp=3, max_token=3e11)


def test_the_read_question_a_plan_takes_pretraining_tokens_as_a_table_does():
    question = read_question(["N=7B", "pretrain_tokens=140B", "max_forgetting=2%"])
    assert question["ptpp"] == 20
    assert "pretrain_tokens" not in question


def test_one_name_of_a_law_is_a_list_of_one():
    with pytest.raises(RunTableError, match="law 'chinchilla' needs column 'D'"):
        bayeslaw.compare(frame().drop(columns="D"), "chinchilla")


# -- what cells say themselves ---------------------------------------------------------


def sound(rows=8, **columns):
    """Eight runs with unlike settings, one of each run's losses on either domain."""
    table = pd.DataFrame({"run": [f"r{i}" for i in range(rows)]})
    table["N"] = [1e8, 4e8] * (rows // 2)
    table["tokens"] = [str(1 + i) for i in range(rows)]
    table["mix"] = [str(5 * i) for i in range(rows)]
    table["target_loss"] = np.linspace(4, 3, rows).round(3)
    table["source_loss"] = np.linspace(2.5, 2.6, rows).round(3)
    return table.assign(**columns)


def sound_but(row, column, cell):
    table = sound().astype({column: object})
    table.loc[row, column] = cell
    return table


MAPPED = ["D=tokens*1e9", "replay=mix/100"]
SHARES = ["D=tokens*1e9", "replay=mix"]
FIVES = [f"{0.05 * i:g}" for i in range(8)]


def shares(*cells):
    return sound(len(cells), mix=cells)


@pytest.mark.parametrize(
    ("column", "cell", "ours", "value"),
    [
        ("mix", "25%", "replay", 0.25),
        ("mix", "25 %", "replay", 0.25),
        ("tokens", "20B", "D", 2e10),
        ("tokens", "500m", "D", 5e8),
    ],
)
def test_a_cell_with_its_own_unit_is_not_multiplied_again(column, cell, ours, value):
    runs, words = read(sound_but(3, column, cell), columns=MAPPED)
    assert np.allclose(runs[ours][runs["run"] == "r3"], value)
    assert "1 cells of" in words
    assert "state their unit themselves" in words
    assert np.allclose(runs["D"][runs["run"] == "r1"], 2e9)


def test_a_product_of_a_column_that_states_thousands_keeps_its_factor():
    table = sound(steps=["2k"] * 8)
    runs, words = read(table, columns=["D=steps*512", "replay=mix/100"])
    assert set(runs["D"]) == {2000 * 512}
    assert "themselves" not in words


ONE_AGAIN = ["0.1", "0.25", "0.5", "0.0025", "0.1", "0.25", "0.5", "0.1"]
SAID = {
    "shares divided by 100 once more": (
        sound(mix=FIVES),
        MAPPED,
        "divided by 100 once more",
    ),
    "half of the shares": (
        sound(mix=[*FIVES[:4], "5", "10", "15", "20"]),
        MAPPED,
        "divided by 100 once more",
    ),
    "one share, with its row": (
        shares(*ONE_AGAIN),
        SHARES,
        "replay' is at most 0.25% in 2 of 16 rows (row 4): shares that were divided by "
        "100 once more? write replay as a share",
    ),
    "a name that two unlike rows have": (
        sound_but(5, "run", "r2").rename(columns={"run": "Name"}),
        MAPPED,
        "'Name' names rows 'r2' that differ, so it is not taken",
    ),
    "a name that is empty in a few rows": (
        pd.concat([sound_but(5, "run", None), sound(4)])
        .rename(columns={"run": "Name"})
        .assign(tokens=[str(i) for i in range(1, 13)]),
        ["D=tokens*1e9"],
        "is empty in 1 rows",
    ),
    "one run with two sizes": (
        sound_but(5, "run", "r2"),
        ["D=tokens*1e9"],
        "rows 3, 6 are of one run, 'r2', and differ in 'N'",
    ),
}


@pytest.mark.parametrize("case", SAID)
def test_cells_that_contradict_others_are_told(case):
    table, columns, said = SAID[case]
    assert said in read(table, columns=columns)[1]


@pytest.mark.parametrize(
    ("table", "columns"),
    [
        (shares("0.1", "0.25", "0.5", "0.004", "0.1", "0.25", "0.5", "0.1"), SHARES),
        (shares("0.1", "0.5", "0.1", "0.5", "0.05", "0.01", "0.005", "0.1"), SHARES),
        (shares("0", "0.005", "0.5", "0", "0.005", "0.5", "0", "0"), SHARES),
        (sound(mix=["0", "0.5", "1", "5"] * 2), MAPPED),
    ],
    ids=["of no other share", "a sweep of small shares", "a grid", "percent"],
)
def test_a_small_share_that_may_be_meant_is_no_fault(table, columns):
    assert not read(table, columns=columns)[1]


PERPLEXITY = sound(ppl=[20.0, "01. Mrz", *[19.0] * 6]).drop(columns="target_loss")


@pytest.mark.filterwarnings("ignore:no column is called D")
@pytest.mark.parametrize(
    ("table", "columns", "said"),
    [
        (sound_but(2, "target_loss", "diverged"), None, "row 3, column 'target_loss': 'diverged'"),
        (sound_but(2, "source_loss", "diverged"), None, "row 3, column 'source_loss': 'diverged'"),
        (PERPLEXITY, ["D=tokens*1e9", "target_loss=ln(ppl)"], "row 2, column 'target_loss': '01. Mrz'"),
    ],
)  # fmt: skip
def test_text_in_one_of_two_losses_is_refused_not_dropped(table, columns, said):
    assert said in refusal(table, columns=columns)


@pytest.mark.filterwarnings("ignore:no column is called D")
def test_text_in_both_losses_is_refused_unless_its_row_is_left_out():
    both = sound_but(2, "target_loss", "nats").astype({"source_loss": object})
    both.loc[2, "source_loss"] = "nats"
    assert "_loss': 'nats'" in refusal(both)
    assert len(bayeslaw.read_runs(both, where="run != 'r2'")) == 14


def test_losses_that_are_empty_are_counted_in_a_note(tmp_path):
    table = sound()
    table.loc[[1, 4], "target_loss"] = np.nan
    table.to_csv(tmp_path / "runs.csv", index=False)
    words = ["table", str(tmp_path / "runs.csv"), "--column", "D=tokens*1e9"]
    done = CliRunner().invoke(app, words)
    assert "rows 2, 5: no loss on target, and no row of it" in done.output


@pytest.mark.parametrize("sign", [",", ";", "\t", "|"])
def test_blank_rows_an_index_column_and_any_separator_change_nothing(sheet, sign):
    text = sound().drop(columns="mix").to_csv(sep=sign).splitlines()
    text.insert(4, sign * 5)
    runs, words = read(sheet(*text), columns=["D=tokens*1e9"])
    assert runs["run"].tolist() == [f"r{i}" for i in range(8)] * 2
    assert not words


@pytest.mark.parametrize("line", ["| {} |", "{}"])
def test_a_markdown_table_is_read_as_its_cells(sheet, line):
    """As `DataFrame.to_markdown` writes it, and without bars at the ends; below prose."""
    table = sound().drop(columns="mix")
    cells = [list(table), [":---", "---:"] * 2, *table.astype(str).to_numpy().tolist()]
    cells[1] = (cells[1] * 2)[: len(cells[0])]
    lines = [line.format(" | ".join(row)) for row in cells]
    runs, _ = read(sheet("Our runs", *lines), columns=["D=tokens*1e9"])
    plain = bayeslaw.read_runs(table, columns=["D=tokens*1e9"])
    pd.testing.assert_frame_equal(runs, plain, check_names=False)


def test_a_table_between_bars_keeps_its_empty_cells(sheet):
    runs = sheet("|N|D|loss|note|", "|-|-|-|-|", "|1e8|2e9|3.1||", "|2e8|4e9|2.9|x|")
    table = bayeslaw.read_runs(runs)
    assert table["note"].isna().tolist() == [True, False]
    assert table["loss"].tolist() == [3.1, 2.9]


def test_losses_that_slipped_by_a_row_are_told_by_the_review():
    runs = bayeslaw.simulate("ptpp-floor", seed=1)
    # sizes and stages as they are, and budgets in a random order
    order = np.random.default_rng(2).permutation(len(runs))
    runs = runs.iloc[order].reset_index(drop=True)
    slipped = runs.assign(loss=np.roll(runs["loss"], 1))
    assert "off a smooth surface" in bayeslaw.review(slipped)["mixture"].reason
    assert bayeslaw.review(runs)["mixture"].verdict == "pass"


@pytest.mark.parametrize("unit", ["[B]", "(B)"])
@pytest.mark.parametrize("expression", ["tokens*1e9", "tokens {}*1e9"])
def test_a_unit_in_either_brackets_may_be_left_out(unit, expression):
    table = pd.DataFrame({f"tokens {unit}": [1.0, 2.0], "N": 1e8, "loss": [3.0, 2.9]})
    runs = bayeslaw.read_runs(table, columns=[f"D={expression.format(unit)}"])
    assert list(runs["D"]) == [1e9, 2e9]


def test_a_name_with_two_units_is_not_shortened():
    """Which of them is meant, nobody could say."""
    table = pd.DataFrame({"tokens (B)": [1.0], "tokens (M)": [1e3], "loss": [3.0]})
    assert "tokens" in refusal(table, columns=["D=tokens*1e9"])

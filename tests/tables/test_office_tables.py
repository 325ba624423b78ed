"""Tables as offices and notebooks write them are read as they were meant, with a word on
what was left out, or refused with a way out.
"""

import re

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw import RunTableError
from bayeslaw._posteriors.averaging.compare import _choose_laws
from bayeslaw._posteriors.fits.candidates import default_laws
from bayeslaw._tables.fitting import by_domain, losses
from bayeslaw._tables.proposals import mapping_hint
from bayeslaw._tables.runs import as_runs, read_with_notes
from bayeslaw._tables.sources import layout
from bayeslaw.cli.parsing import read_question
from known.said import said_by

SIZES, TOKENS = (0.15, 0.4, 1.1), (0.4, 0.8, 1.6, 3.2)
MEANT = {"N=Modell": "N", "D=Token": "D"}


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


def read(path, **options):
    """Runs, and what was said of them."""
    runs, lines = said_by(bayeslaw.read_runs, path, **options)
    return runs, " | ".join(lines)


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
    path = tmp_path / "sheet.csv"
    text = "\r\n".join([*above, HEADER, *below, *lines(), *filter(None, [total])])
    path.write_text(text, encoding="cp1252")
    runs, words = read(path, columns=COLUMNS)
    assert is_true(runs)
    assert said in words
    assert ("a mean or total" in words) == bool(total)
    assert ("Windows-1252" in words) == ("ä" in text)


def test_units_become_part_of_a_name_and_are_proposed(tmp_path):
    path = tmp_path / "sheet.csv"
    path.write_text("\n".join([HEADER, ";Mio.;Mrd.;%;nats", *lines()]))
    runs, _ = read(path)
    hint = mapping_hint(runs)
    with pytest.raises(RunTableError, match=r"name the loss: .*perhaps Verlust"):
        losses(runs)
    assert '"D=Token [Mrd.]*1e9"' in hint


def test_a_column_of_the_schema_in_another_unit_is_not_taken_as_it_is(tmp_path):
    path = tmp_path / "sheet.csv"
    names = "run;N;D;replay;loss"
    path.write_text("\n".join([names, ";Mrd.;Mrd.;%;nats", *lines()]))
    runs, _ = read(path)
    assert not {"N", "D", "replay"} & {*runs.columns}
    assert {"N [Mrd.]", "loss"} <= {*runs.columns}


@pytest.mark.parametrize("number", [str, "{:.3f}".format])
def test_points_stay_points(tmp_path, number):
    path = tmp_path / "sheet.csv"
    path.write_text("\n".join([HEADER, *lines(number)]))
    runs, words = read(path, columns=COLUMNS)
    assert is_true(runs)
    assert not words


def test_a_point_that_may_group_thousands_is_refused_among_decimal_commas(tmp_path):
    path = tmp_path / "sheet.csv"
    rows = lines()
    rows[3] = rows[3].replace("3,2;", "3.200;")
    path.write_text("\n".join([HEADER, *rows]))
    says = r"row 4, column 'Token': '3.200' may mean 3200"
    with pytest.raises(RunTableError, match=says):
        bayeslaw.read_runs(path, columns=COLUMNS)


def test_groups_of_thousands_by_points_are_counts(tmp_path):
    path = tmp_path / "sheet.csv"
    rows = ["V1;150.000.000;1.500.000.000;3,25", "V2;400.000.000;800.000.000;3,0"]
    path.write_text("\n".join(["run;N;D;loss", *rows]))
    runs, _ = read(path)
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


def test_a_first_row_without_numbers_is_a_row_where_the_column_holds_text(tmp_path):
    """A row of units states them for at least two columns of numbers."""
    path = tmp_path / "runs.csv"
    path.write_text(
        "run,N,D,loss\na,1B,nan,3\nb,2B,2e9,2.9\nc,3B,3e9,2.8\nd,1B,1e9,3.1\n"
    )
    runs, words = read(path, where="D > 0")
    assert len(runs) == 3
    assert "units" not in words


# -- what notebooks hold ---------------------------------------------------------------


def frame():
    rows = [(n * 1e9, d * 1e9, true_loss(n, d)) for n in SIZES for d in TOKENS]
    return pd.DataFrame(rows, columns=["N", "D", "loss"])


@pytest.mark.parametrize("name", ["run", None, "run_name"])
def test_an_index_of_names_names_the_runs(name):
    labels = [f"{n:g}B-{k}" for n in SIZES for k in range(len(TOKENS))]
    table = frame().set_index(pd.Index(labels, name=name))
    assert bayeslaw.read_runs(table)["run"].tolist() == labels
    read_again = as_runs(as_runs(table))
    assert read_again["run"].tolist() == labels
    assert read_again.index.tolist() == labels


def test_two_losses_of_one_run_in_the_index_are_refused_as_in_a_column():
    table = frame().set_index(pd.Index(["a", "a", *"bcdefghijk"], name="run"))
    table["D"] = 1e9
    with pytest.raises(RunTableError, match="different losses for one run a, D"):
        bayeslaw.read_runs(table)


def test_an_index_written_to_a_file_names_the_runs_too(tmp_path):
    table = frame().set_index(pd.Index([f"v{i}" for i in range(12)]))
    table.to_csv(tmp_path / "runs.csv")
    assert bayeslaw.read_runs(tmp_path / "runs.csv")["run"].iloc[3] == "v3"


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
        ("Chinchilla", r"fit\(runs, 'chinchilla'\)"),
        (bayeslaw.law("dcpt"), "first where a law does"),
        ([1, 2], r"got list: make it one by pandas\.Data"),
        (3.1, "got float: make it one by pandas"),
        ({}, "got dict"),
        ({"N": [1e9, 2e9], "D": [1e9, 2e9, 3e9]}, "same length"),
    ],
)
def test_what_is_no_table_is_refused_with_a_way_out(given, message):
    with pytest.raises(RunTableError, match=message):
        as_runs(given)


def test_a_saved_fit_in_the_place_of_a_table_is_told(tmp_path):
    path = tmp_path / "fit.nc"
    path.write_bytes(b"\x89HDF\r\n\x1a\n\0\0\0")
    with pytest.raises(RunTableError, match=r"a saved fit .* before the table"):
        bayeslaw.read_runs(path)


# -- proposals -------------------------------------------------------------------------


def export(**columns):
    """An export of a tracker: both losses, and only the source's before adaptation."""
    rows = {
        "Name": [f"r{i}" for i in range(6)],
        "config.size": ["160M", "160M", "160M", "1.3B", "1.3B", "1.3B"],
        "config.pretrain_tokens": ["20B", "20B", "100B", "20B", "20B", "100B"],
        "config.replay_pct": [0, 25, 50, 0, 25, 50],
        "summary.eval/fi/loss": [4.1, 4.2, 4.3, 3.1, 3.2, 3.3],
        "summary.eval/en/loss": [2.9, 2.8, 2.7, 2.5, 2.4, 2.3],
        "summary.eval/en/loss_before": [2.6, np.nan, 2.5, 2.2, 2.2, 2.0],
    }
    return pd.DataFrame(rows | columns)


def proposed(table):
    hint = mapping_hint(table)
    return dict(part.split("=", 1) for part in re.findall('--column "([^"]+)"', hint))


def test_tokens_of_a_batch_are_not_the_tokens_of_a_run():
    table = export(**{"config.batch_tokens": 524288, "_step": [*range(900, 906)]})
    assert proposed(table)["D"] == "_step*config.batch_tokens"


def test_a_setting_that_all_runs_share_is_not_proposed_beside_one_that_varies():
    planned = {"seq_tokens_max": 4096, "val_tokens": 5e6}
    table = export(train_tokens=[1e9, 2e9, 4e9] * 2, **planned)
    assert proposed(table)["D"] == "train_tokens"


def test_planned_tokens_are_proposed_where_no_others_are():
    table = export(**{"config.token_budget": ["1B", "2B", "4B"] * 2})
    assert proposed(table)["D"] == "config.token_budget"


def test_a_proposed_query_never_leaves_out_a_whole_domain():
    """Only the source's losses before adaptation are given, with a gap; so no law of them
    is chosen for the target.
    """
    table = export(**{"config.token_budget": ["1B", "2B", "4B"] * 2})
    assert "loss_before.notna()" not in mapping_hint(table)
    columns = [f"{ours}={theirs}" for ours, theirs in proposed(table).items()]
    runs, _ = read(table, columns=columns)
    assert runs["domain"].value_counts().to_dict() == {"target": 6, "source": 6}
    laws = {domain: default_laws(rows) for domain, rows in by_domain(runs).items()}
    read_by = [bayeslaw.law(name).covariates for name in laws["target"]]
    assert not any("loss_before" in columns for columns in read_by)
    assert laws["source"] == ["state-rise"]


def test_perplexities_are_proposed_as_their_logarithms():
    table = pd.DataFrame(
        {"params": [1e9, 2e9], "ppl_fi": [20.0, 19], "ppl_en": [9.0, 8]}
        | {"ppl_en_before": [8.0, 7]}
    )
    proposals = proposed(table)
    assert proposals["target_loss"] == "ln(ppl_fi)"
    assert proposals["source_loss_before"] == "ln(ppl_en_before)"
    assert proposed(table[["params", "ppl_fi"]])["loss"] == "ln(ppl_fi)"


# -- what cells say themselves ---------------------------------------------------------


def sound(rows=8):
    """Eight runs with unlike settings, one of each run's losses on either domain."""
    table = pd.DataFrame({"run": [f"r{i}" for i in range(rows)]})
    table["N"] = [1e8, 4e8] * (rows // 2)
    table["tokens"] = [str(1 + i) for i in range(rows)]
    table["mix"] = [str(5 * i) for i in range(rows)]
    table["target_loss"] = np.linspace(4, 3, rows).round(3)
    table["source_loss"] = np.linspace(2.5, 2.6, rows).round(3)
    return table


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
    table = sound()
    table.loc[3, column] = cell
    runs, words = read(table, columns=["D=tokens*1e9", "replay=mix/100"])
    assert np.allclose(runs[ours][runs["run"] == "r3"], value)
    assert "1 cells of" in words
    assert "state their unit themselves" in words
    assert np.allclose(runs["D"][runs["run"] == "r1"], 2e9)


def test_a_product_of_a_column_that_states_thousands_keeps_its_factor():
    table = sound().assign(steps=["2k"] * 8)
    runs, words = read(table, columns=["D=steps*512", "replay=mix/100"])
    assert set(runs["D"]) == {2000 * 512}
    assert "themselves" not in words


@pytest.mark.parametrize("half", [False, True])
def test_shares_divided_by_100_once_more_are_told(half):
    table = sound()
    shares = [f"{0.05 * i:g}" for i in range(8)]
    table["mix"] = [*shares[:4], *(["5", "10", "15", "20"] if half else shares[4:])]
    _, words = read(table, columns=["D=tokens*1e9", "replay=mix/100"])
    assert "divided by 100 once more" in words


def replay_of(*cells):
    """What is said of shares as they are written."""
    table = sound(len(cells)).assign(mix=cells)
    return read(table, columns=["D=tokens*1e9", "replay=mix"])[1]


def test_one_share_divided_by_100_once_more_is_told_with_its_row():
    cells = ["0.1", "0.25", "0.5", "0.0025", "0.1", "0.25", "0.5", "0.1"]
    words = replay_of(*cells)
    assert "replay' is at most 0.25% in 2 of 16 rows (row 4): shares" in words
    assert "divided by 100 once more? write replay as a share" in words


@pytest.mark.parametrize(
    "cells",
    [
        ["0.1", "0.25", "0.5", "0.004", "0.1", "0.25", "0.5", "0.1"],
        ["0.1", "0.5", "0.1", "0.5", "0.05", "0.01", "0.005", "0.1"],
        ["0", "0.005", "0.5", "0", "0.005", "0.5", "0", "0"],
    ],
    ids=["of no other share", "a sweep of small shares", "a grid"],
)
def test_a_small_share_that_may_be_meant_is_no_fault(cells):
    assert not replay_of(*cells)


def test_replay_of_one_percent_and_less_is_no_fault_by_itself():
    table = sound()
    table["mix"] = ["0", "0.5", "1", "5"] * 2
    _, words = read(table, columns=["D=tokens*1e9", "replay=mix/100"])
    assert not words


@pytest.mark.parametrize("column", ["target_loss", "source_loss"])
def test_text_in_one_of_two_losses_is_refused_not_dropped(column):
    table = sound().astype({column: object})
    table.loc[2, column] = "diverged"
    with pytest.raises(RunTableError, match=f"row 3, column '{column}': 'diverged'"):
        bayeslaw.read_runs(table)


@pytest.mark.filterwarnings("ignore:no column is called D")
def test_text_in_a_perplexity_or_in_both_losses_is_refused_too():
    table = sound()
    table["ppl"] = [20.0, "01. Mrz", *[19.0] * 6]
    columns = ["D=tokens*1e9", "target_loss=ln(ppl)"]
    table = table.drop(columns="target_loss")
    with pytest.raises(RunTableError, match=r"row 2, column 'target_loss': '01. Mrz'"):
        bayeslaw.read_runs(table, columns=columns)
    both = sound().astype({"target_loss": object, "source_loss": object})
    both.loc[2, ["target_loss", "source_loss"]] = "nats"
    says = r"row 3, column '(source|target)_loss': 'nats'"
    with pytest.raises(RunTableError, match=says):
        bayeslaw.read_runs(both)
    assert len(bayeslaw.read_runs(both, where="run != 'r2'")) == 14


def test_losses_that_are_empty_are_counted_in_a_note():
    table = sound()
    table.loc[[1, 4], "target_loss"] = np.nan
    notes = read_with_notes(table, columns=["D=tokens*1e9"]).notes
    assert "rows 2, 5: no loss on target, and no row of it" in notes


def test_names_that_a_few_rows_contradict_are_told_not_dropped():
    table = sound().rename(columns={"run": "Name"})
    table.loc[5, "Name"] = "r2"
    _, words = read(table, columns=["D=tokens*1e9", "replay=mix/100"])
    assert "'Name' names rows 'r2' that differ, so it is not taken" in words
    table.loc[5, "Name"] = None
    both = pd.concat([table, sound(4).rename(columns={"run": "Name"})])
    both["tokens"] = [str(i) for i in range(1, 13)]
    _, words = read(both, columns=["D=tokens*1e9"])
    assert "is empty in 1 rows" in words


def test_rows_of_one_run_with_two_sizes_are_told():
    table = sound()
    table.loc[5, "run"] = "r2"
    _, words = read(table, columns=["D=tokens*1e9"])
    assert "rows 3, 6 are of one run, 'r2', and differ in 'N'" in words


@pytest.mark.parametrize("sign", [",", ";", "\t", "|"])
def test_blank_rows_an_index_column_and_any_separator_change_nothing(tmp_path, sign):
    table = sound().drop(columns="mix")
    text = table.to_csv(sep=sign).splitlines()
    text.insert(4, sign * 5)
    path = tmp_path / "runs.csv"
    path.write_text("\n".join(text))
    runs, words = read(path, columns=["D=tokens*1e9"])
    assert runs["run"].tolist() == [f"r{i}" for i in range(8)] * 2
    assert not words


def test_losses_that_slipped_by_a_row_are_told_by_the_review():
    runs = bayeslaw.simulate("ptpp-floor", seed=1)
    # sizes and stages as they are, and budgets in a random order
    order = np.random.default_rng(2).permutation(len(runs))
    runs = runs.iloc[order].reset_index(drop=True)
    slipped = runs.assign(loss=np.roll(runs["loss"], 1))
    reasons = {c.name: c.reason for c in bayeslaw.review(slipped).checks}
    assert "off a smooth surface" in reasons["mixture"]
    sound_reasons = {c.name: c.verdict for c in bayeslaw.review(runs).checks}
    assert sound_reasons["mixture"] == "pass"


def test_shares_are_proposed_where_columns_are_named_like_the_losses_sets():
    table = pd.DataFrame({"params": [1e8, 2e8], "tokens": [1e9, 2e9]})
    table = table.assign(
        web=[60, 30], code=[40, 70], loss_web=[3, 2.9], loss_code=[2, 1.9]
    )
    hint = mapping_hint(table)
    assert proposed(table)["share_web"] == "web/100"
    assert "may be the loss" not in hint
    columns = [f"{ours}={theirs}" for ours, theirs in proposed(table).items()]
    runs = bayeslaw.read_runs(table, columns=columns)
    assert runs["share_code"].tolist()[:2] == pytest.approx([0.4, 0.7])


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
    chosen = _choose_laws(frame(), "chinchilla", {}, "none")
    assert [law.name for law in chosen] == ["chinchilla"]


@pytest.mark.parametrize(
    "content",
    [
        'D;N;loss\n"9,255,000,000";1e9;2.5\n"1,000,000,000";2e9;2.4;7\n',
        'loss;N;D\n"2,51";1e9;5e9\n"2,42";2e9;5e9;7\n"2,31";4e9;5e9\n"2,2";4e9;9e9;1\n',
        'D|N|loss\n"9;255;0"|1e9|2.5|1\n"1;000;0"|2e9|2.4\n',
    ],
)
def test_commas_in_fields_do_not_hide_a_field_too_many(tmp_path, content):
    """A line with a field too many makes the separator's count uneven; marks inside
    fields are even, and separate nothing.
    """
    path = tmp_path / "runs.csv"
    path.write_text(content)
    with pytest.raises(RunTableError, match=r"fields"):
        bayeslaw.read_runs(path)


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

    monkeypatch.setattr(layout, "_is_number", is_number)
    assert len(bayeslaw.read_runs(tmp_path / "t.csv")) == 2000
    assert len(looked) < 2100


@pytest.mark.parametrize("unit", ["[B]", "(B)"])
@pytest.mark.parametrize("written", ["tokens*1e9", "tokens {}*1e9"])
def test_a_unit_in_either_brackets_may_be_left_out(unit, written):
    table = pd.DataFrame({f"tokens {unit}": [1.0, 2.0], "N": 1e8, "loss": [3.0, 2.9]})
    runs = bayeslaw.read_runs(table, columns=[f"D={written.format(unit)}"])
    assert list(runs["D"]) == [1e9, 2e9]


def test_a_name_with_two_units_is_not_shortened():
    """Which of them is meant, nobody could say."""
    table = pd.DataFrame({"tokens (B)": [1.0], "tokens (M)": [1e3], "loss": [3.0]})
    with pytest.raises(bayeslaw.RunTableError, match="tokens"):
        bayeslaw.read_runs(table, columns=["D=tokens*1e9"])

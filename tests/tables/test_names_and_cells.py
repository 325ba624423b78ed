"""Names keep their spelling, and cells that are no numbers are told in one line."""

import json

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw import LawError, RunTableError, RunTableWarning
from bayeslaw.cli.parsing import levels_of, prior_file, read_question
from known.reading import refusal, written

NAMES = ["1.10", "1.1", "001", "1", "NA", "nan", "1e3", "1000", "null", "True"]


def table(names=NAMES):
    n = len(names)
    sizes = np.geomspace(1e8, 1e9, n)
    rows = {"N": sizes, "D": sizes * 20, "loss": np.linspace(3, 2, n)}
    return pd.DataFrame({"run": names} | rows)


# -- names -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["run", "checkpoint", "domain", "run_id", "config.run"]
)
def test_names_that_look_like_numbers_keep_their_spelling(tmp_path, name):
    table().rename(columns={"run": name}).to_csv(tmp_path / "t.csv", index=False)
    runs = bayeslaw.read_runs(tmp_path / "t.csv")
    ours = name if name in ("checkpoint", "domain") else "run"
    assert list(runs[ours]) == NAMES


def test_a_column_that_is_mapped_to_a_name_keeps_its_spelling(tmp_path):
    path = tmp_path / "t.csv"
    table().rename(columns={"run": "label"}).to_csv(path, index=False)
    assert list(bayeslaw.read_runs(path, columns={"label": "run"})["run"]) == NAMES
    one = bayeslaw.read_runs(path, columns={"label": "run"}, where="run == '1.10'")
    assert len(one) == 1


def test_a_number_is_no_name_in_a_query(tmp_path):
    table().to_csv(tmp_path / "t.csv", index=False)
    for query in ("run == 1", "run != 1000", "run > 3"):
        assert "column 'run' holds names" in refusal(tmp_path / "t.csv", where=query)


# -- summaries -------------------------------------------------------------------------


def with_last(**last):
    return pd.concat([table([*"abcde"]), pd.DataFrame([last])], ignore_index=True)


NUMBERS = table([*"abcde"])[["N", "D", "loss"]]
SUMMARIES = [
    *("mean", "Average", "TOTAL:", "std", "Overall mean", "avg of above"),
    *("Grand total", "mean of all runs", "Std. dev.", "total général"),
]


@pytest.mark.parametrize(
    "given",
    [
        *(with_last(run=label, N=4e8, D=8e9, loss=2.5) for label in SUMMARIES),
        # without a name
        with_last(**NUMBERS.mean()),
        with_last(**NUMBERS.sum()),
        with_last(**NUMBERS.mean()).drop(columns="run"),
        with_last(**NUMBERS.sum()).drop(columns="run"),
    ],
)
def test_a_row_of_means_or_totals_is_left_out(given):
    with pytest.warns(RunTableWarning, match="row 6: a mean or total"):
        assert len(bayeslaw.read_runs(given)) == 5


@pytest.mark.parametrize(
    "given",
    [
        *(
            table([*"abcd", n])
            for n in ("min-lr", "mean-pooling", "summer", "max_steps")
        ),
        table(["mean", "total", "a", "b"]),
        table([*"abcde"]).assign(kind="mean"),
    ],
)
def test_names_with_such_a_word_and_runs_called_so_everywhere_stay(given):
    assert len(bayeslaw.read_runs(given)) == len(given)


@pytest.mark.parametrize("place", [0, 2])
@pytest.mark.parametrize("column", ["run", "Name"])
def test_a_mean_between_the_runs_is_told(place, column):
    names = [*"abcde"]
    names[place] = "mean of seeds"
    given = table(names).rename(columns={"run": column})
    says = f"row {place + 1}: column {column!r} says"
    with pytest.warns(RunTableWarning, match=says):
        assert len(bayeslaw.read_runs(given)) == 5


# -- which column is the loss ----------------------------------------------------------


@pytest.mark.parametrize("setting", ["config.loss", "params.loss", "config/loss"])
def test_a_setting_is_not_the_measured_loss(setting):
    given = table().rename(columns={"loss": "eval/loss"}).assign(**{setting: 0.5})
    with pytest.warns(RunTableWarning, match="called loss, and none is renamed"):
        runs = bayeslaw.read_runs(given)
    assert "loss" not in runs
    with pytest.raises(RunTableError, match='--column "loss=eval/loss"'):
        bayeslaw.fit(given, "chinchilla")


# -- JSON, Parquet and other formats ---------------------------------------------------


LINE = '{"N": 1e8, "D": 1e9, "loss": 2.5}\n'


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (LINE + '{"N": 1, "loss": 2, "loss": 3}', "line 2: 'loss' is there 2 times"),
        (LINE + '{"a": {"N": 1, "N": 2}}', "line 2: 'N' is there 2 times"),
        (LINE + "[1, 2]", "line 2 is no record"),
        (LINE + "N,D,loss", "line 2: not JSON"),
        ('{"a":' * 100_000, "line 1: records within records"),
        ("[" * 100_000, "records within records"),
        ("[[1, 2, 3]]", "record 1 is no record"),
        ("[1, 2", "not JSON"),
    ],
)
def test_json_that_is_no_table_is_told_in_a_line(tmp_path, content, said):
    assert said in refusal(written(tmp_path / "t.jsonl", content))


EVALUATED = {
    "results": {"arc_easy": {"acc,none": 0.61, "alias": "arc_easy"}},
    "configs": {"arc_easy": {"num_fewshot": 0}},
    "date": 1.7e9,
}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(EVALUATED),
        json.dumps(EVALUATED, indent=2),
        json.dumps({"model": "pythia-1b", "results": {"piqa": {"acc": 0.7}}}, indent=1),
    ],
)
def test_an_evaluation_is_told_for_what_it_is(tmp_path, text):
    said = refusal(written(tmp_path / "results.json", text))
    assert "one model's evaluation" in said
    assert "a row for each model" in said


NESTED = [
    {"config": {"N": 1e8, "more": {"D": d}}, "summary": {"loss": x}, "run": name}
    | {"tags": ["a"]}
    for d, x, name in ((1e9, 2.5, "a"), (2e9, 2.4, "b"))
]
COLUMNS = pd.DataFrame(
    {"run": ["a", "b"], "N": 1e8, "D": [1e9, 2e9], "loss": [2.5, 2.4]}
)


@pytest.mark.parametrize(
    ("name", "text", "rows"),
    [
        ("t.json", json.dumps(NESTED), 2),
        ("t.jsonl", "\n".join(map(json.dumps, NESTED)), 2),
        # one record over several lines
        ("t.json", json.dumps(NESTED[0] | {"results": {"best": 2.4}}, indent=2), 1),
        ("t.json", json.dumps(COLUMNS.to_dict("list")), 2),
        *(
            ("t.json", COLUMNS.to_json(orient=o), 2)
            for o in ("columns", "records", "index")
        ),
    ],
)
def test_json_of_records_or_columns_is_read(tmp_path, name, text, rows):
    columns = {"config.more.D": "D"} if "config" in text else None
    runs = bayeslaw.read_runs(written(tmp_path / name, text), columns=columns)
    pd.testing.assert_frame_equal(
        runs[[*COLUMNS]].reset_index(drop=True), COLUMNS.head(rows), check_dtype=False
    )


def test_structs_maps_and_lists_of_parquet_are_read_or_told(tmp_path):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    settings = [{"N": 1e8, "D": 1e9}, {"N": 2e8, "D": 1e9}]
    pairs = [[("loss", 2.5)], [("loss", 2.4)]]
    maps = pa.array(pairs, pa.map_(pa.string(), pa.float64()))
    pq.write_table(
        pa.table({"config": settings, "summary": maps}), tmp_path / "t.parquet"
    )
    runs = bayeslaw.read_runs(tmp_path / "t.parquet")
    assert runs["loss"].tolist() == [2.5, 2.4]
    assert runs["N"].tolist() == [1e8, 2e8]
    lists = pa.table({"N": [1e8], "D": [1e9], "loss": [[2.5, 2.4]]})
    pq.write_table(lists, tmp_path / "l.parquet")
    said = refusal(tmp_path / "l.parquet")
    assert "row 1, column 'loss': '[2.5, 2.4]' is" in said


@pytest.mark.parametrize("column", ["loss", "replay", "N"])
def test_truth_values_are_no_numbers(tmp_path, column):
    given = table().assign(replay=0.1)
    given[column] = [True, False] * 5
    path = tmp_path / "t.csv"
    given.to_csv(path, index=False)
    for source in (given, path):
        assert f"column {column!r}: True is a truth value" in refusal(source)


# -- factors, suffixes -----------------------------------------------------------------


def test_a_factor_meets_no_row_that_where_drops(tmp_path):
    path = tmp_path / "t.csv"
    rows = "1e8,1,ok,2.5\n1e8,crashed,bad,2.4\n1e9,3,ok,2.3\n"
    path.write_text(f"N,tok,state,loss\n{rows}")
    columns = {"tok*1e9": "D"}
    runs = bayeslaw.read_runs(path, columns=columns, where="state == 'ok'")
    assert runs["D"].tolist() == [1e9, 3e9]
    for given in (columns, {"tok/10": "D"}, {"tok": "D"}):
        assert "row 2, column 'D': 'crashed" in refusal(path, columns=given)


@pytest.mark.parametrize(
    ("column", "cell"),
    [("loss", "3565m"), ("loss", "2.5%"), ("replay", "1k"), ("N", "5%")],
)
def test_a_suffix_stands_where_it_makes_sense(column, cell):
    given = table().assign(replay=0.1).astype({column: object})
    given.loc[1, column] = cell
    assert f"row 2, column '{column}': '{cell}' ends" in refusal(given)


# -- the command line ------------------------------------------------------------------


@pytest.mark.parametrize("text", ["N=1,5B", "N=1B,2,5B", "ptpp=1,5k", "replay=2,5%"])
def test_a_decimal_comma_among_levels_is_refused(text):
    with pytest.raises(RunTableError, match="or two levels"):
        levels_of([text])


def test_levels_with_their_units_are_read():
    levels = levels_of(["N=1B,5B", "ptpp=1,5", "replay=0.1,0.25"])
    assert levels == {"N": [1e9, 5e9], "ptpp": [1, 5], "replay": [0.1, 0.25]}


@pytest.mark.parametrize(
    "levels",
    [
        *({"N": [1, 5]}, {"N": [0.05]}, {"N": [8.1, 1e9]}, {"N": [1e30]}),
        *({"ptpp": [1e9]}, {"ptpp": [np.inf]}, {"atpp": [1e12]}, {"atpp": [0]}),
        *({"replay": [20]}, {"replay": [np.nan]}),
    ],
)
def test_no_run_is_offered_at_levels_that_none_can_have(levels):
    """``N=1,5`` would be runs of one parameter and of five."""
    with pytest.raises(RunTableError, match="is not a level a run can have"):
        bayeslaw.candidates(table().assign(ptpp=30.0, replay=0.1), **levels)


def test_what_is_given_twice_is_refused():
    with pytest.raises(LawError, match=r"offer N is given 2 times \(1B, 2B\)"):
        levels_of(["N=1B", "N=2B"])
    with pytest.raises(LawError, match="--plan N is given 2 times"):
        read_question(["N=1B", "ptpp=20", "N=2B"], "--plan")
    with pytest.raises(LawError, match="max_loss de is given 2 times"):
        read_question(["max_loss=de=1.8,de=1.9"])


def test_values_too_deep_are_told_in_a_line(tmp_path):
    path = tmp_path / "p.toml"
    path.write_text("priors = " + "[" * 50_000)
    with pytest.raises(LawError, match="too deep") as caught:
        prior_file(path)
    assert "\n" not in str(caught.value)
    for query in ("-" * 900 + "N > 1", "(" * 400 + "N" + ")" * 400 + " > 1"):
        assert "is not a query of this" in refusal(table(), where=query)


def test_levels_of_candidates_are_written_as_people_write_numbers():
    runs = table(["a", "b", "c"]).assign(replay=0.25, ptpp=20.0)
    levels = {"N": ["7B"], "ptpp": 43, "replay": "25%", "atpp": ["1", 2]}
    offered = bayeslaw.candidates(runs, **levels)
    assert set(offered["N"]) == {7e9}
    assert list(offered["D"]) == [7e9, 14e9]
    with pytest.raises(RunTableError, match="'many' is not a number"):
        bayeslaw.candidates(runs, N="many")


def test_a_loss_before_that_is_missing_names_what_may_forecast_it():
    with pytest.raises(RunTableError, match=r"--before, docs/howto/chains\.md"):
        bayeslaw.fit(table().assign(replay=0.25), "state-target")


# -- columns that a mapping read -------------------------------------------------------

OTHERS = pd.DataFrame(
    {
        "size": ["100M", "100M", "1B", "1B"],
        "tok (Bn)": [1.0, 2.0, 1.0, 2.0],
        "new bits/tok": [4.0, 3.9, 3.8, 3.7],
        "old bits/tok": [5.0, 4.9, 4.8, 4.7],
    }
)
BY_NAME = ["N=size", "D=tok (Bn)*1e9", "loss=new bits/tok*0.6931"]


@pytest.mark.parametrize(
    "tokens", ["tok (Bn)*1e9", "tok*1e9", "tok (Bn)*1e9*new bits/tok/new bits/tok"]
)
def test_a_column_is_mapped_by_its_name_beside_one_that_ends_in_it(tokens):
    columns = ["N=size", f"D={tokens}", "loss=new bits/tok*0.6931"]
    runs = bayeslaw.read_runs(OTHERS, columns=columns)
    assert runs["D"].tolist() == pytest.approx([1e9, 2e9, 1e9, 2e9])
    assert runs["loss"].tolist() == pytest.approx(OTHERS["new bits/tok"] * 0.6931)


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ("size > 2e8", [3, 4]),
        ("`tok (Bn)` > 1 and N > 2e8", [4]),
        ("`new bits/tok` < 3.95 and D > 1.5e9", [2, 4]),
        ("`old bits/tok` < 4.75", [4]),
    ],
)
def test_a_query_reads_mapped_columns_by_either_name(where, rows):
    runs = bayeslaw.read_runs(OTHERS, columns=BY_NAME, where=where)
    assert runs.index.tolist() == rows
    assert "size" not in runs


def test_a_query_reads_them_where_a_row_becomes_two():
    table = OTHERS.rename(columns={"new bits/tok": "fi", "old bits/tok": "en"})
    columns = ["N=size", "D=tok*1e9", "target_loss=fi", "source_loss=en"]
    runs = bayeslaw.read_runs(table, columns=columns, where="en < 4.85 and size > 2e8")
    assert sorted(runs["loss"]) == [3.7, 3.8, 4.7, 4.8]

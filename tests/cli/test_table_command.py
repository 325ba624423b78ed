"""``bayeslaw table``: any source in, a table under the schema's names out, and what was
made of it.
"""

import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw import LawError, RunTableError
from bayeslaw.cli.running import _stamp
from known.commands import call

MAPPING = (
    *("--column", "N=size_M*1e6", "--column", "D=tokens_B*1e9"),
    *("--column", "replay=mix_pct/100", "--column", "loss=val_loss"),
)


@pytest.fixture
def ours() -> pd.DataFrame:
    runs = bayeslaw.simulate("dcpt", seed=2)
    return runs[["N", "D", "replay", "loss"]]


@pytest.fixture
def foreign(ours) -> pd.DataFrame:
    table = pd.DataFrame(
        {
            "size_M": ours["N"] / 1e6,
            "tokens_B": ours["D"] / 1e9,
            "mix_pct": ours["replay"] * 100,
            "val_loss": ours["loss"],
        }
    )
    return table.assign(corpus="web", grad_norm=1.5)


def typed(*words: object) -> str:
    return call("table", *words).stdout


def write(table: pd.DataFrame, path) -> None:
    """In the format of the name."""
    kinds = {
        ".csv": lambda: table.to_csv(path, index=False),
        ".tsv": lambda: table.to_csv(path, index=False, sep="\t"),
        ".jsonl": lambda: table.to_json(path, orient="records", lines=True),
        ".parquet": lambda: table.to_parquet(path, index=False),
        ".xlsx": lambda: table.to_excel(path, index=False),
    }
    kinds[path.suffix]()


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet", "xlsx"])
@pytest.mark.parametrize("kept", ["kept.csv", "kept.parquet"])
def test_every_format_becomes_the_same_table(tmp_path, foreign, ours, kind, kept):
    if kind == "xlsx":
        pytest.importorskip("openpyxl", reason="needs the extra excel")
    write(foreign, tmp_path / f"mine.{kind}")
    typed(tmp_path / f"mine.{kind}", *MAPPING, "-o", tmp_path / kept)
    again = bayeslaw.read_runs(tmp_path / kept)
    assert list(again) == list(ours)
    np.testing.assert_allclose(again, ours, rtol=1e-9)


def test_it_says_what_it_made_of_the_table(tmp_path, foreign, ours):
    write(foreign, tmp_path / "mine.csv")
    said = typed(tmp_path / "mine.csv", *MAPPING, "--keep", "corpus")
    assert "left out (--keep NAME keeps one): grad_norm" in said
    assert "laws that fit takes for runs: dcpt" in said
    assert "nothing was written: -o" in said
    assert list(tmp_path.iterdir()) == [tmp_path / "mine.csv"]
    out = tmp_path / "runs.csv"
    record = json.loads(
        typed(tmp_path / "mine.csv", *MAPPING, "--keep", "corpus", "-o", out, "--json")
    )
    assert record["rows"] == len(ours)
    low, high = ours["N"].min(), ours["N"].max()
    levels = ours["N"].nunique()
    expected = {"low": low, "high": high, "levels": levels, "empty": 0}
    assert record["columns"]["N"] == pytest.approx(expected)
    assert record["columns"]["corpus"] == {"levels": 1, "empty": 0}
    assert record["laws"] == {"runs": ["dcpt"]}
    assert record["trouble"] is None
    assert record["next"] == f"bayeslaw review {out}"
    assert set(pd.read_csv(out)) == {"N", "D", "replay", "loss", "corpus"}


def test_settings_of_rows_that_are_alike_in_all_else_are_kept(tmp_path, ours):
    """Without them the rows of a cell would be runs of one setting."""
    swept = [ours.assign(batch=b, loss=ours["loss"] * (1 + b / 1e4)) for b in (64, 128)]
    pd.concat(swept).assign(corpus="web").to_csv(tmp_path / "runs.csv", index=False)
    out = tmp_path / "kept.csv"
    said = typed(tmp_path / "runs.csv", "-o", out)
    assert "left out (--keep NAME keeps one): corpus" in said
    assert pd.read_csv(out)["batch"].tolist() == [64] * len(ours) + [128] * len(ours)


def test_a_column_that_looks_meant_and_is_not_mapped_is_named(tmp_path, foreign):
    write(foreign.rename(columns={"val_loss": "loss"}), tmp_path / "mine.csv")
    said = typed(tmp_path / "mine.csv", *MAPPING[:4])
    assert 'not used: perhaps --column "replay=mix_pct/100"' in said


@pytest.mark.filterwarnings("ignore:no column names the runs")
def test_what_cannot_be_fitted_yet_is_kept_and_said(tmp_path, foreign):
    write(foreign, tmp_path / "mine.csv")
    without_tokens = [*MAPPING[:2], *MAPPING[4:]]
    said = typed(tmp_path / "mine.csv", *without_tokens, "-o", tmp_path / "runs.csv")
    assert "not to be fitted as it is: no law is compared by default" in said
    assert len(pd.read_csv(tmp_path / "runs.csv")) == len(foreign)


@pytest.mark.filterwarnings("ignore:no column names the runs")
@pytest.mark.parametrize("rows", [8, 12, 60])
def test_runs_of_one_size_can_be_fitted(tmp_path, foreign, rows):
    """`table` said that they could not, and `fit` fitted them."""
    one_size = foreign.head(rows).assign(size_M=foreign["size_M"].min())
    write(one_size, tmp_path / "mine.csv")
    said = typed(tmp_path / "mine.csv", *MAPPING)
    assert "laws that fit takes for runs: " in said


def test_a_handful_can_be_fitted(tmp_path, foreign):
    write(foreign.head(3), tmp_path / "mine.csv")
    said = typed(tmp_path / "mine.csv", *MAPPING, "-o", tmp_path / "runs.csv")
    assert "laws that fit takes for runs: chinchilla" in said


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "perhaps --column"),
        ((*MAPPING, "--keep", "corpse"), "the table lacks column 'corpse' of --keep"),
        ((*MAPPING, "--where", "N < 0"), "selects none"),
        ((*MAPPING[:6], "--column", "loss=bad"), "column 'loss': -1 is not positive"),
    ],
)
def test_what_is_refused_leaves_the_output_as_it_was(tmp_path, foreign, words, says):
    """Whole or not at all."""
    write(foreign.assign(bad=-1.0), tmp_path / "mine.csv")
    (tmp_path / "runs.csv").write_text("as it was")
    with pytest.raises((RunTableError, LawError), match=says):
        typed(tmp_path / "mine.csv", *words, "-o", tmp_path / "runs.csv")
    assert (tmp_path / "runs.csv").read_text() == "as it was"
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.filterwarnings("ignore:no column names the runs")
def test_a_number_that_all_rows_share(tmp_path, foreign):
    write(foreign, tmp_path / "mine.csv")
    said = typed(tmp_path / "mine.csv", *MAPPING[2:], "--column", "N=124M", "--json")
    assert json.loads(said)["columns"]["N"]["low"] == 124e6
    with pytest.raises(RunTableError, match="has a column 'corpus' already"):
        bayeslaw.read_runs(foreign, columns={"7": "corpus"})


def test_one_column_for_two_names_is_refused(tmp_path, foreign):
    write(foreign, tmp_path / "mine.csv")
    words = (*MAPPING, "--column", "target_loss=val_loss")
    with pytest.raises(RunTableError, match="read the same column"):
        typed(tmp_path / "mine.csv", *words)


def test_steps_stay_beside_the_tokens_they_count():
    runs = pd.DataFrame({"step": [1, 2], "N": [1e8, 1e9], "loss": [3.0, 2.0]})
    read = bayeslaw.read_runs(runs, columns={"step*1e9": "D"})
    assert read["step"].tolist() == [1, 2]
    assert read["D"].tolist() == [1e9, 2e9]


# -- Excel -----------------------------------------------------------------------------


@pytest.fixture
def book(tmp_path, ours):
    """Sheets with rows, of which one is a table with numbers as text, and an empty one."""
    openpyxl = pytest.importorskip("openpyxl", reason="needs the extra excel")
    file = openpyxl.Workbook()
    first = file.active
    first.title = "runs"
    for row in [("N", "D", "replay", "loss"), ("8.1B", "20B", "34%", 2.5)]:
        first.append(row)
    first.append((1e9, 2e10, "10%", 2.0))
    other = file.create_sheet("notes")
    other.append(("N", "N"))
    other.append((1, 2))
    headless = file.create_sheet("headless")
    headless.append(("N", None))
    headless.append((1, 2))
    file.create_sheet("empty")
    path = tmp_path / "book.xlsx"
    file.save(path)
    return path


def test_a_sheet_is_named_where_several_have_rows(book):
    with pytest.raises(RunTableError, match=r"rows in 3 sheets .*book.xlsx#runs"):
        bayeslaw.read_runs(book)
    runs = bayeslaw.read_runs(f"{book}#runs")
    assert runs["N"].tolist() == [8.1e9, 1e9]
    assert runs["replay"].tolist() == [0.34, 0.1]


@pytest.mark.parametrize(
    ("sheet", "says"),
    [
        ("none", "no sheet 'none'; it has: runs, notes, headless, empty"),
        ("notes", "2 columns are called 'N'"),
        ("headless", "a column has cells but no name"),
        ("empty", "no rows"),
    ],
)
def test_a_sheet_that_is_no_table_is_refused(book, sheet, says):
    with pytest.raises(RunTableError, match=says):
        bayeslaw.read_runs(f"{book}#{sheet}")


# -- stores of trackers, as all commands see them ----------------------------------------


@pytest.fixture
def store(tmp_path):
    """A Trainer's state, as `tests/tables/test_trackers.py` reads a real one."""
    rows = [{"step": step, "eval_loss": 2 + 1 / step} for step in (1, 2, 4, 8)]
    state = {"log_history": rows, "global_step": 8}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    return f"hf:{tmp_path}"


def test_a_store_is_kept_as_a_table(tmp_path, store):
    columns = ("N=124M", "D=step*1e8", "loss=eval/loss")
    words = [word for column in columns for word in ("--column", column)]
    said = typed(store, *words, "-o", tmp_path / "runs.csv")
    assert f"{store}: 4 rows, 1 run\n" in said
    kept = bayeslaw.read_runs(tmp_path / "runs.csv")
    assert kept["D"].tolist() == [1e8, 2e8, 4e8, 8e8]
    assert set(kept["run"]) == {tmp_path.name}


def test_functions_take_a_store_like_a_path(store):
    with pytest.raises(LawError, match='perhaps --column "loss=eval/loss"'):
        bayeslaw.compare(store)


def test_a_store_that_is_watched_is_read_each_time(tmp_path, store):
    assert _stamp(Path(store)) != _stamp(Path(store))
    file = tmp_path / "trainer_state.json"
    assert _stamp(file) == _stamp(file)


def test_a_place_that_looks_like_a_scheme_is_a_file_otherwise(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "at:10.csv").write_text("N,loss\n1e8,2\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(bayeslaw.read_runs("at:10.csv")) == 1


@pytest.mark.parametrize("name", ["size_M", "tokens_B", "mix_pct"])
def test_a_column_that_is_mapped_can_be_kept_and_queried(tmp_path, foreign, name):
    """Under its own name, beside the one of the schema."""
    write(foreign, tmp_path / "f.csv")
    least = foreign[name].median()
    words = ["--keep", name, "--where", f"{name} >= {least}", "-o", tmp_path / "o.csv"]
    typed(tmp_path / "f.csv", *MAPPING, *words)
    kept = pd.read_csv(tmp_path / "o.csv")
    assert kept[name].min() >= least
    assert len(kept) == (foreign[name] >= least).sum()

"""Exports as they are: what a table tells in other words is read, and it is said; what
would be read wrongly is refused with what to write.
"""

import re
import shlex

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import bayeslaw
from bayeslaw import RunTableError, RunTableWarning
from bayeslaw._report.buying import known_starts
from bayeslaw._tables.proposals import mapping_hint
from bayeslaw._tables.runs import read_with_notes
from bayeslaw.cli.app import app
from known.said import said_by
from known.stranger import CRASHED, PRETRAINED, RUNS, SIZES, stranger


def read(table, columns=None, where=None):
    """The runs, and what was said."""
    options = {"columns": columns, "where": where}
    reading, lines = said_by(read_with_notes, pd.DataFrame(table), **options)
    return reading.runs, " | ".join(lines)


# -- products and ratios ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "ours", "expected"),
    [
        ({"pre_B*1e9/N": "ptpp"}, "ptpp", [300.0, 150.0]),
        ({"pre_B*1e9/N": "ptpp", "size_M*1e6": "N"}, "ptpp", [3e4, 1.5e4]),
        ({"step*batch*eval/len": "D"}, "D", [2e6, 4e6]),
        ({"a/b / batch": "replay"}, "replay", [0.1, 0.2]),
        ({"N*1e3": "N"}, "N", [1e11, 2e11]),
    ],
)
def test_products_and_ratios_of_columns_are_read(columns, ours, expected):
    """Names may hold the signs; what is made of other columns can be in them."""
    table = {"pre_B": [30, 30], "size_M": [1, 2], "N": [1e8, 2e8], "step": [10, 20]}
    table |= {"batch": [100, 100], "eval/len": [2000, 2000], "a/b": [10, 20]}
    runs, _ = read(table, columns)
    assert runs[ours].tolist() == pytest.approx(expected)
    assert runs["step"].tolist() == [10, 20]


def test_columns_made_of_each_other_are_refused():
    table = {"x": [1.0], "loss": [2.0]}
    with pytest.raises(RunTableError, match="each made from the other"):
        read(table, {"x*D": "N", "x*N": "D"})


@pytest.mark.parametrize("theirs", ["pre_tokens_B", "pre_tokens_B*1e9", "pt_tokens"])
def test_tokens_are_not_taken_for_tokens_per_parameter(theirs):
    table = {"pre_tokens_B": [30.0], "pt_tokens": [3e10], "N": [1e8], "loss": [2.0]}
    with pytest.raises(RunTableError, match=r'write --column "ptpp=.*/N"') as error:
        read(table, {theirs: "ptpp"})
    (proposed,) = re.findall(r'--column "ptpp=(.*?)"', str(error.value))
    assert read(table, {proposed: "ptpp"})[0]["ptpp"].tolist() == [300.0]


def test_tokens_of_pretraining_are_a_column_of_their_own():
    runs, said = read({"N": [1e8], "pretrain_tokens": ["30B"], "loss": [2.0]})
    assert runs["ptpp"].tolist() == [300.0]
    assert "ptpp is pretrain_tokens / N" in said


# -- which column is meant -------------------------------------------------------------


def test_a_loss_that_is_asked_for_goes_before_the_tables_own_and_it_is_said():
    runs, said = read({"loss": [9.0], "val_loss": [2.0]}, {"val_loss": "loss"})
    assert runs["loss"].tolist() == [2.0]
    assert "'loss' is read from 'val_loss'" in said


@pytest.mark.parametrize("ours", ["loss", "target_loss"])
def test_bits_per_byte_are_converted_on_request_only(ours):
    table = {"val_bpb": [1.0], "bytes_per_token": [4.0]}
    with pytest.raises(RunTableError, match="bits per byte"):
        read(table, {"val_bpb": ours})
    runs, _ = read(table, {"val_bpb*0.6931*bytes_per_token": ours})
    assert runs[ours].tolist() == pytest.approx([4 * np.log(2)], rel=1e-4)
    assert "val_bpb is bits per byte" in mapping_hint(pd.DataFrame(table))


@pytest.mark.parametrize(
    ("names", "proposed", "said"),
    [
        (
            ("tokens_planned", "total_tokens"),
            "D=total_tokens",
            "also be tokens_planned",
        ),
        (("max_tokens", "tokens_seen"), "D=tokens_seen", "also be max_tokens"),
        (("active_params", "total_params"), "N=active_params", "also be total_params"),
        (("gpu_hours", "note"), "cost=gpu_hours", ""),
        (("config.pt_tokens", "N"), "ptpp=config.pt_tokens/N", ""),
    ],
)
def test_of_columns_alike_one_is_proposed_and_the_other_named(names, proposed, said):
    hint = mapping_hint(pd.DataFrame({name: [3e9, 4e9] for name in names}))
    assert f'--column "{proposed}"' in hint
    assert said in hint


def test_tokens_of_steps_are_proposed():
    table = {"step": [10], "config.global_batch_size": [64], "config.seq_len": [2048]}
    hint = mapping_hint(pd.DataFrame(table))
    product = "step*config.global_batch_size*config.seq_len"
    assert f'--column "D={product}"' in hint
    runs, _ = read(table, {product: "D"})
    assert runs["D"].tolist() == [10 * 64 * 2048]


# -- wide tables -----------------------------------------------------------------------


def test_a_panel_of_runs_becomes_rows(tmp_path):
    path = tmp_path / "panel.csv"
    path.write_text(
        '"Step","a - b - eval/loss","a - b - eval/loss__MIN","a - b - eval/loss__MAX",'
        '"c - eval/loss"\n10,3.0,2.9,3.1,\n20,2.5,2.5,2.5,2.6\n'
    )
    with pytest.warns(RunTableWarning, match="a panel of 2 runs"):
        runs = bayeslaw.read_runs(path, columns={"eval/loss": "loss", "step*1e6": "D"})
    assert runs["run"].tolist() == ["a - b", "a - b", "c"]
    assert runs["loss"].tolist() == [3.0, 2.5, 2.6]
    assert runs["D"].tolist() == [1e7, 2e7, 2e7]


def test_a_column_for_each_size_becomes_rows():
    runs, said = read({"D": [1e9, 2e9], "loss_70M": [3, 2.9], "loss_1.4B": [2.5, None]})
    rows = [[7e7, 1e9, 3.0], [7e7, 2e9, 2.9], [1.4e9, 1e9, 2.5]]
    assert runs[["N", "D", "loss"]].to_numpy().tolist() == rows
    assert "became a row each, by N" in said


def test_other_names_with_a_dash_or_a_size_stay():
    table = pd.DataFrame({"N": [1e8], "D": [1e9], "loss": [2.0], "loss_70M": [1.0]})
    assert list(read(table)[0]) == list(table)
    table = pd.DataFrame({"eval - loss": [1.0], "x": [1.0], "y": [1.0]})
    assert list(read(table)[0]) == list(table)


# -- rows ------------------------------------------------------------------------------


@pytest.mark.parametrize("column", ["state", "config.status", "State"])
def test_runs_that_did_not_end_are_named_with_what_leaves_them_out(column):
    states = ["finished", "crashed", "running", "failed"]
    table = {"N": [1e8] * 4, "D": [1e9, 2e9, 3e9, 4e9], "loss": [3.0, 2.9, 2.8, 2.7]}
    _, said = read(table | {column: states})
    assert "3 of 4 rows are of runs that did not end" in said
    (query,) = re.findall(r'--where "(.*?)"', said)
    runs, said = read(table | {column: states}, where=query)
    assert (runs[column].tolist(), said) == (["finished"], "")


def test_an_empty_loss_of_a_crashed_run_is_refused_with_what_leaves_it_out():
    table = {"D": [1e9, 2e9], "loss": [3.0, None], "state": ["finished", "crashed"]}
    with pytest.raises(RunTableError, match="state != 'crashed'") as error:
        read(table)
    (query,) = re.findall(r'--where "(.*?)"', str(error.value))
    assert len(read(table, where=query)[0]) == 1


def test_gaps_are_filled_from_the_same_checkpoint_and_it_is_said():
    table = {"N": [1, 1, 2, 3, 3], "ptpp": [5.0] * 5, "loss": [2.0] * 5}
    table["N"] = [1e8 * n for n in table["N"]]
    before = [4.0, None, None, 3.0, 3.5]  # one has none, of one they differ
    runs, said = read(table | {"source_loss_before": before})
    filled = runs["source_loss_before"].to_numpy()
    np.testing.assert_array_equal(filled, [4.0, 4.0, np.nan, 3.0, 3.5])
    assert "1 empty cells are filled" in said


def test_a_gap_is_filled_with_a_value_of_the_table():
    """Not with a mean, whose last digit would make two checkpoints of one."""
    before = [3.992, 3.992, 3.992, None]
    assert np.mean(before[:3]) != before[0]
    table = {"N": [1e8] * 4, "ptpp": [5.0] * 4, "loss": [2.0] * 4}
    runs, _ = read(table | {"source_loss_before": before})
    assert runs["source_loss_before"].unique().tolist() == [3.992]


def test_rows_of_no_tokens_are_the_loss_before():
    table = {
        "N": [1e8] * 4,
        "ptpp": [20.0] * 4,
        "replay": [0.1] * 4,
        "D": [0.0, 1e9, 0.0, 1e9],
        "domain": ["target", "target", "source", "source"],
        "loss": [4.0, 3.0, 2.0, 2.2],
    }
    runs, said = read(table)
    assert runs["loss"].tolist() == [3.0, 2.2]
    assert runs["loss_before"].tolist() == [4.0, 2.0]
    assert runs["source_loss_before"].tolist() == [2.0, 2.0]
    assert "2 rows of no tokens" in said


OF_MODELS = pd.DataFrame(
    {
        "model": ["a"] * 3 + ["b"] * 3,
        "D": [0, 200, 400] * 2,
        "loss": [8.5, 4.2, 4.0, 3.0, 2.5, 2.4],
    }
)


def test_each_model_s_row_of_no_examples_is_its_loss_before():
    with pytest.warns(RunTableWarning, match="2 rows of no tokens"):
        runs = bayeslaw.read_runs(OF_MODELS)
    assert (runs["D"] > 0).all()
    before = runs.groupby("model")["loss_before"].unique()
    assert before.map(list).to_dict() == {"a": [8.5], "b": [3.0]}


def test_without_models_they_are_refused():
    with pytest.raises(RunTableError, match="column 'D': 0 is not positive"):
        bayeslaw.read_runs(OF_MODELS[["D", "loss"]])


# -- a stranger's table ----------------------------------------------------------------


def options_of(text: str) -> list[str]:
    """What is proposed, as a shell hands it on."""
    option = r"--(?:column|where) (?:\"[^\"]*\"|'[^']*') ?"
    return shlex.split(re.search(rf"perhaps ((?:{option})+)", text)[1])


PLAN = ["--plan", "N=7B", "--plan", "ptpp=43", "--plan", "max_target_loss=2.6"]
PLAN += ["--plan", "max_forgetting=5%", "--plan", "baseline_loss=2.3"]
PLAN += ["--plan", "loss_before=4.2"]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_what_the_first_error_proposes_reads_a_strangers_table(seed, tmp_path):
    """Tokens of pre-training, states and gaps in one line to paste."""
    path = tmp_path / "runs.csv"
    stranger(seed).to_csv(path, index=False)
    refused = CliRunner().invoke(app, ["report", str(path), *PLAN])
    assert isinstance(refused.exception, RunTableError)
    options = options_of(str(refused.exception))
    # theirs -> ours
    columns = dict(reversed(pair.split("=", 1)) for pair in options[1:-2:2])
    runs, _ = said_by(bayeslaw.read_runs, path, columns=columns, where=options[-1])
    assert 2 * (RUNS - CRASHED - 9) <= len(runs) < 2 * (RUNS - CRASHED) + 1
    sizes = sorted(runs["N"].unique())
    assert sizes == pytest.approx([1e6 * size for size in SIZES])
    budgets = (runs["ptpp"] * runs["N"] / 1e9).round(6).unique()
    assert sorted(budgets) == pytest.approx(PRETRAINED)
    full = runs[["loss_before", "source_loss_before", "replay", "D"]]
    assert full.notna().all(axis=None)


def test_runs_on_offer_from_checkpoints_without_a_loss_are_left_out():
    offered = pd.DataFrame({"N": [1e8, 2e8], "source_loss_before": [2.0, np.nan]})
    assert known_starts(offered, ["source_loss_before"])["N"].tolist() == [1e8]
    with pytest.raises(RunTableError, match="six checkpoints at least"):
        known_starts(offered[1:], ["source_loss_before"])


# -- as people write columns -----------------------------------------------------------

PERPLEXITIES = {"n": [1e8, 2e8], "tok": [1e9, 1e9], "eval_ppl": [np.e**3, np.e**2.5]}


def test_columns_are_taken_as_the_command_line_writes_them():
    """A mapping and a list of texts are one."""
    texts = ["N=n", "D=tok", "loss = ln(eval_ppl)"]
    named = {"n": "N", "tok": "D", "ln(eval_ppl)": "loss"}
    table = pd.DataFrame(PERPLEXITIES)
    first, second = (bayeslaw.read_runs(table, columns=c) for c in (texts, named))
    pd.testing.assert_frame_equal(first, second)
    assert first["loss"].tolist() == pytest.approx([3.0, 2.5])


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        (["N=n", "N=tok"], "given twice"),
        (["N"], "says nothing"),
        (["N=n", "D=n"], "read the same column"),
        (["loss=eval_ppl"], r'perplexity by its name.* --column "loss=ln\(eval_ppl\)"'),
        (["loss=ln(nothing)"], "no column 'ln"),
    ],
)
def test_columns_that_say_nothing_are_refused(columns, says):
    with pytest.raises(RunTableError, match=says):
        bayeslaw.read_runs(pd.DataFrame(PERPLEXITIES), columns=columns)


def test_what_has_no_logarithm_is_refused():
    table = pd.DataFrame(PERPLEXITIES | {"eval_ppl": [0.0, 2.0]})
    with pytest.raises(RunTableError, match="0 has no logarithm"):
        bayeslaw.read_runs(table, columns=["N=n", "D=tok", "loss=ln(eval_ppl)"])


def test_a_refusal_says_how_python_takes_it():
    table = pd.DataFrame({"n_params": [1e8, 2e8], "tokens_seen": [1e9, 2e9]})
    with pytest.raises(RunTableError, match=r'in Python columns=\["N=n_params", ...\]'):
        bayeslaw.point_fit(table.assign(web_loss=3.0), "chinchilla")


def test_starts_of_several_checkpoints_are_not_averaged_unsaid():
    """Two checkpoints of one size whose stage is in no column that is read."""
    rows = {"N": 1e8, "replay": 0.1, "D": [0.0, 1e9, 0.0, 1e9]}
    rows |= {
        "loss": [2.8, 2.5, 2.6, 2.4],
        "pretrain_tokens": np.repeat([1e11, 3e11], 2),
    }
    table = pd.DataFrame(rows)
    _, said = read(table.drop(columns="pretrain_tokens"))
    assert "differ in loss by up to 8%" in said
    runs, said = read(table)
    assert "differ in loss" not in said
    assert runs["loss_before"].tolist() == [2.8, 2.6]

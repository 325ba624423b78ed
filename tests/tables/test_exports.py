"""Exports as they are: what a table tells in other words is read, and it is said; what
would be read wrongly is refused with what to write.
"""

import re

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import bayeslaw
from bayeslaw import RunTableError, RunTableWarning
from bayeslaw.cli.app import app
from known.reading import hint, options_of, pasted, read, refusal
from known.stranger import CRASHED, PRETRAINED, RUNS, SIZES, stranger

# -- products and ratios ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "ours", "expected"),
    [
        ({"pre_B*1e9/N": "ptpp"}, "ptpp", [300.0, 150.0]),
        ({"pre_B*1B/N": "ptpp"}, "ptpp", [300.0, 150.0]),
        ({"pre_B*1e9/N": "ptpp", "size_M*1e6": "N"}, "ptpp", [3e4, 1.5e4]),
        ({"step*batch*eval/len": "D"}, "D", [2e6, 4e6]),
        ({"a/b / batch": "replay"}, "replay", [0.1, 0.2]),
        ({"N*1e3": "N"}, "N", [1e11, 2e11]),
        ({"old/(old+new)": "heat"}, "heat", [0.25, 0.5]),
        ({"(new - old) / new": "heat"}, "heat", [2 / 3, 0.0]),
        ({"old*2/new/2": "heat"}, "heat", [1 / 3, 1.0]),
        ({"sqrt(old*new)/ln(new-part)": "heat"}, "heat", [np.sqrt(3) / np.log(2), 2 / np.log(1.5)]),
        ({"new-part": "heat"}, "heat", [2.0, 1.5]),
        ({"-old*(+new)": "heat"}, "heat", [-3.0, -4.0]),
    ],
)  # fmt: skip
def test_columns_are_made_of_others_by_arithmetic(columns, ours, expected):
    """Names may hold the signs, and count before them; what is made of other columns can
    be in them.
    """
    table = {"pre_B": [30, 30], "size_M": [1, 2], "N": [1e8, 2e8], "step": [10, 20]}
    table |= {"batch": [100, 100], "eval/len": [2000, 2000], "a/b": [10, 20]}
    table |= {"old": [1, 2], "new": [3, 2], "new-part": [2.0, 1.5]}
    runs, _ = read(table, columns=columns)
    assert runs[ours].tolist() == pytest.approx(expected)
    assert runs["step"].tolist() == [10, 20]


@pytest.mark.parametrize("theirs", ["pre_tokens_B", "pre_tokens_B*1e9", "pt_tokens"])
def test_tokens_are_not_taken_for_tokens_per_parameter(theirs):
    table = {"pre_tokens_B": [30.0], "pt_tokens": [3e10], "N": [1e8], "loss": [2.0]}
    said = refusal(pd.DataFrame(table), columns={theirs: "ptpp"})
    (proposed,) = re.findall(r'write --column "ptpp=(.*?/N)"', said)
    assert read(table, columns={proposed: "ptpp"})[0]["ptpp"].tolist() == [300.0]


def test_tokens_of_pretraining_are_a_column_of_their_own():
    runs, said = read({"N": [1e8], "pretrain_tokens": ["30B"], "loss": [2.0]})
    assert runs["ptpp"].tolist() == [300.0]
    assert "ptpp is pretrain_tokens / N" in said


# -- which column is meant -------------------------------------------------------------


def test_a_loss_that_is_asked_for_goes_before_the_tables_own_and_it_is_said():
    runs, said = read({"loss": [9.0], "val_loss": [2.0]}, columns=["loss=val_loss"])
    assert runs["loss"].tolist() == [2.0]
    assert "'loss' is read from 'val_loss'" in said


@pytest.mark.parametrize("ours", ["loss", "target_loss"])
def test_bits_per_byte_are_converted_on_request_only(ours):
    table = {"val_bpb": [1.0], "bytes_per_token": [4.0]}
    said = refusal(pd.DataFrame(table), columns={"val_bpb": ours})
    assert "bits per byte" in said
    runs, _ = read(table, columns={"val_bpb*0.6931*bytes_per_token": ours})
    assert runs[ours].tolist() == pytest.approx([4 * np.log(2)], rel=1e-4)
    assert "val_bpb is bits per byte" in hint(table)


def test_tokens_of_steps_are_proposed():
    table = {"step": [10], "config.global_batch_size": [64], "config.seq_len": [2048]}
    product = "step*config.global_batch_size*config.seq_len"
    assert f'--column "D={product}"' in hint(table)
    runs, _ = read(table, columns={product: "D"})
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
    (query,) = re.findall(r'--where "(.*?)"', refusal(pd.DataFrame(table)))
    assert "state != 'crashed'" in query
    assert len(read(table, where=query)[0]) == 1


@pytest.mark.parametrize(
    ("N", "before", "filled"),
    [
        # one has none, of one they differ
        ([1e8, 1e8, 2e8, 3e8, 3e8], [4.0, None, None, 3.0, 3.5], [4.0, 4.0, np.nan, 3.0, 3.5]),
        # not a mean, whose last digit would make two checkpoints of one
        (1e8, [3.992, 3.992, 3.992, None], [3.992] * 4),
    ],
)  # fmt: skip
def test_gaps_are_filled_from_the_same_checkpoint_and_it_is_said(N, before, filled):
    table = pd.DataFrame({"source_loss_before": before, "ptpp": 5.0, "loss": 2.0})
    runs, said = read(table.assign(N=N))
    np.testing.assert_array_equal(runs["source_loss_before"], filled)
    assert "1 empty cells are filled" in said


BY_DOMAIN = pd.DataFrame({
    "N": 1e8, "ptpp": 20.0, "replay": 0.1, "D": [0.0, 1e9, 0.0, 1e9],
    "domain": ["target", "target", "source", "source"], "loss": [4.0, 3.0, 2.0, 2.2],
})  # fmt: skip
OF_MODELS = pd.DataFrame({
    "model": ["a"] * 3 + ["b"] * 3, "D": [0, 200, 400] * 2, "loss": [8.5, 4.2, 4.0, 3.0, 2.5, 2.4],
})  # fmt: skip
# two checkpoints of one size: whose stage is in a column, or in none
OF_STAGES = pd.DataFrame({
    "N": 1e8, "replay": 0.1, "D": [0.0, 1e9, 0.0, 1e9], "loss": [2.8, 2.5, 2.6, 2.4],
    "pretrain_tokens": np.repeat([1e11, 3e11], 2),
})  # fmt: skip
# one model on two data sets, each with its own loss before
OF_SETS = pd.DataFrame({
    "model": "a", "D": [0, 200] * 2, "loss": [8.5, 4.2, 6.0, 3.1], "set": np.repeat(["x", "y"], 2),
})  # fmt: skip


@pytest.mark.parametrize(
    ("table", "before"),
    [
        (BY_DOMAIN, {"loss_before": [4.0, 2.0], "source_loss_before": [2.0, 2.0]}),
        (OF_MODELS, {"loss_before": [8.5, 8.5, 3.0, 3.0]}),
        (OF_STAGES, {"loss_before": [2.8, 2.6]}),
        (OF_SETS, {"loss_before": [8.5, 6.0]}),
    ],
)
def test_rows_of_no_tokens_are_the_loss_before(table, before):
    runs, said = read(table)
    assert runs["loss"].tolist() == table["loss"][table["D"] > 0].tolist()
    assert runs[[*before]].to_dict("list") == before
    assert "2 rows of no tokens" in said
    assert "differ in loss" not in said


def test_rows_of_no_tokens_are_not_averaged_unsaid_nor_taken_without_models():
    _, said = read(OF_STAGES.drop(columns="pretrain_tokens"))
    assert "differ in loss by up to 8%" in said
    assert "column 'D': 0 is not positive" in refusal(OF_MODELS[["D", "loss"]])


# -- a stranger's table ----------------------------------------------------------------


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
    said = str(refused.exception)
    (_, where) = options_of(said)[-1]
    runs, _ = read(path, columns=pasted(said), where=where)
    assert 2 * (RUNS - CRASHED - 9) <= len(runs) < 2 * (RUNS - CRASHED) + 1
    sizes = sorted(runs["N"].unique())
    assert sizes == pytest.approx([1e6 * size for size in SIZES])
    budgets = (runs["ptpp"] * runs["N"] / 1e9).round(6).unique()
    assert sorted(budgets) == pytest.approx(PRETRAINED)
    full = runs[["loss_before", "source_loss_before", "replay", "D"]]
    assert full.notna().all(axis=None)


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


GOOD = {"N": [1e8, 2e8], "D": [1e9, 1e9], "loss": [2.5, 2.3]}
NAMED = {"Model": [1e8, 2e8], "Name": ["a", "b"], "loss": [2.5, 2.3]}
SPREADS = GOOD | {
    "spread": [0.2, 0.4],
    "batches": [-1, 4],
    "old": [1, 2],
    "new": [3, 2],
}


@pytest.mark.parametrize(
    ("table", "columns", "says"),
    [
        (PERPLEXITIES, ["N=n", "N=tok"], "given twice"),
        (PERPLEXITIES, ["N"], "says nothing"),
        (PERPLEXITIES, ["N=n", "D=n"], "read the same column"),
        (PERPLEXITIES, ["loss=eval_ppl"], "perplexity by its name, and loss is nats per token: write --column "
         '"loss=ln(eval_ppl)"'),
        (PERPLEXITIES, ["loss=ln(nothing)"], "no column 'ln"),
        (PERPLEXITIES | {"eval_ppl": [0.0, 2.0]}, ["loss=ln(eval_ppl)"], "0 has no logarithm"),
        (SPREADS, ["loss_sd=2/sqrt(batches)"], "-1 has no square root"),
        (SPREADS, ["loss_sd=spread/sqrt(batch)"], "batch"),
        (GOOD, {"loss*D": "N", "loss*N": "D"}, "each made from the other"),
        (NAMED, {"Modle": "N"}, "did you mean 'Model'"),
        (NAMED, {"N": "Model"}, "--column N=Model"),
        (NAMED, {"Name*2": "N"}, "not numbers"),
        *((GOOD, {theirs: "N"}, "factor") for theirs in ("D/0", "D*0", "D*1.2.3", "D/1e400", "D*1e999")),
        *((SPREADS, {code: "heat"}, "the table has no column") for code in
          ("(old)(new)", "old**new", "exp(old)", "old if new else old", "-", "old*" * 300 + "old", "(" * 300 + "old")),
    ],
)  # fmt: skip
def test_columns_that_cannot_be_read_are_refused(table, columns, says):
    assert says in refusal(pd.DataFrame(table), columns=columns)


def test_a_refusal_says_how_python_takes_it():
    table = pd.DataFrame({"n_params": [1e8, 2e8], "tokens_seen": [1e9, 2e9]})
    with pytest.raises(RunTableError, match=r'in Python columns=\["N=n_params", ...\]'):
        bayeslaw.point_fit(table.assign(web_loss=3.0), "chinchilla")

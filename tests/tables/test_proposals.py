"""Foreign columns: what is proposed for them can be pasted, and then it works; nothing
is applied unasked.
"""

import re
import shlex

import numpy as np
import pandas as pd
import pytest
from study import app as studies
from typer.testing import CliRunner

import bayeslaw
from bayeslaw import RunTableError
from bayeslaw._tables.fitting import check_fittable
from bayeslaw._tables.proposals import mapping_hint
from bayeslaw.cli.app import app
from bayeslaw.cli.parsing import columns_of
from known import saved


def pasted(hint: str) -> dict[str, str]:
    """A proposed mapping as a shell and the command line understand it."""
    proposal = re.search(r"perhaps ((?:--column ('[^']*'|\"[^\"]*\") ?)+)", hint)
    words = shlex.split(proposal[1]) if proposal else []
    return columns_of(words[1::2])


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (
            {"model_M": 70, "adapt_tokens_M": 900, "replay_pct": 20, "pretrain_tpp": 9},
            "N=model_M*1e6 D=adapt_tokens_M*1e6 replay=replay_pct/100 ptpp=pretrain_tpp",
        ),
        (
            {"params": 7e7, "tokens_B": 2, "mix %": 5, "val_loss": 3, "loss_before": 4},
            "N=params D=tokens_B*1e9 replay=mix_%/100 loss=val_loss",
        ),
        ({"Model size (M)": 7, "trainTokens": 1e9}, "N=Model_size_(M)*1e6 D=trainTokens"),
        (
            {"n_params": 1e8, "tok_M": 50, "eval/loss": 3, "train/loss": 2},
            "N=n_params D=tok_M*1e6 loss=eval/loss",
        ),
        (
            {"config.model_size": 1e9, "params.tokens": 1e9, "metrics.eval_loss": 2},
            "N=config.model_size D=params.tokens loss=metrics.eval_loss",
        ),
        (
            {"N": 1e8, "eval_target_loss": 2, "eval_source_loss": 3},
            "target_loss=eval_target_loss source_loss=eval_source_loss",
        ),
        ({"n": 1, "tokens_per_step": 5, "pretrain_tokens": 9, "n_layers": 3}, ""),
        ({"N": 1e8, "D": 1e9, "loss_before": 3}, ""),
        ({"N": 1e8, "D": 1e9, "loss": 3}, ""),
        ({"D": 1e9, "loss": 3, "model": "llama"}, ""),
        ({"D": 1e9, "loss": 3, "params": 1, "params_total": 2}, ""),
        ({"size_M": 7e7, "tokens_M": 1e10}, "N=size_M D=tokens_M"),
        ({"params": "8.1B", "tokens_B": "20", "mix": "34%"}, "N=params D=tokens_B*1e9 replay=mix"),
    ],
)  # fmt: skip
def test_what_looks_meant_is_proposed_with_its_unit(columns, expected):
    """By name, where only one column is called so and holds numbers."""
    table = pd.DataFrame({name: [value] for name, value in columns.items()})
    mapping = pasted(mapping_hint(table))
    shown = [f"{ours}={theirs}".replace(" ", "_") for theirs, ours in mapping.items()]
    assert " ".join(shown) == expected


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"params": [14, 70, 410]}, {"N": 1e6}),
        ({"params": [7, 13, 70]}, {"N": 1e9}),
        ({"params": [0.4, 1.4]}, {"N": 1e9}),
        ({"params": [7e3, 1e5]}, {"N": 1.0}),
        ({"N": [1e9, 2e9], "tokens": [10, 40]}, {"D": 1e9}),
        ({"N": [7e7, 7e7], "tokens": [500, 900]}, {"D": 1e6}),
        ({"tokens": [2e9, 4e9]}, {"D": 1.0}),
        ({"mix": [0, 10, 50]}, {"replay": 0.01}),
        ({"mix": [0, 0.1, 1]}, {"replay": 1.0}),
    ],
)
def test_units_are_guessed_from_the_range_and_it_is_said(columns, expected):
    table = pd.DataFrame(columns)
    hint = mapping_hint(table)
    runs = bayeslaw.read_runs(table, columns=pasted(hint))
    for ours, factor in expected.items():
        theirs = next(name for name in columns if name not in ("N", ours))
        assert runs[ours].to_numpy() == pytest.approx(table[theirs] * factor)
        assert (f"unit of {ours} guessed" in hint) == (factor != 1)


def test_names_that_a_shell_would_change_are_quoted():
    table = pd.DataFrame({'params "$HOME"': [1e8], "tokens": [1e9]})
    runs = bayeslaw.read_runs(table, columns=pasted(mapping_hint(table)))
    assert runs["N"].tolist() == [1e8]


def test_losses_alike_are_named_and_none_is_chosen():
    hint = mapping_hint(pd.DataFrame({"eval/fi_loss": [2.0], "eval/de_loss": [3.0]}))
    assert "perhaps" not in hint
    assert "2 columns may be the loss (eval/fi_loss, eval/de_loss)" in hint


def test_nothing_is_mapped_unasked():
    table = pd.DataFrame({"n_params": [1e8], "val_loss": [2.0]})
    with pytest.warns(bayeslaw.RunTableWarning, match="called N and loss") as said:
        assert list(bayeslaw.read_runs(table)) == ["n_params", "val_loss"]
    assert pasted(str(said[0].message)) == {"n_params": "N", "val_loss": "loss"}


def test_functions_propose_it():
    runs = pd.DataFrame({"size_M": [1.0, 2.0], "tokens_B": [1.0, 2.0], "x": [2.0, 3.0]})
    with pytest.raises(RunTableError, match=r'perhaps --column "N=size_M\*1e6" --col'):
        bayeslaw.report(runs)
    with pytest.raises(RunTableError, match=r'--column "D=tokens_B\*1e9"'):
        check_fittable(bayeslaw.law("chinchilla"), runs.assign(loss=runs["x"]))


# -- every command ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    here = tmp_path_factory.mktemp("foreign")
    runs = bayeslaw.simulate("ptpp-floor", seed=1)
    ours = runs[["N", "D", "replay", "ptpp", "loss"]]
    ours.to_csv(here / "ours.csv", index=False)
    foreign = ours / [1e6, 1e9, 0.01, 1, 1]
    foreign.columns = ["n_params", "tokens_b", "replay_ratio", "tpp", "val_loss"]
    foreign.to_csv(here / "foreign.csv", index=False)
    saved.save_fit(here / "fit.nc")
    return here


COMMANDS = [
    "table FOREIGN",
    "fit FOREIGN -o OUT",
    "fit FOREIGN --law dcpt -o OUT",
    "fit FOREIGN --where ptpp<=31 -o OUT",
    "compare FOREIGN",
    "forecast FIT FOREIGN",
    "check FIT FOREIGN",
    "review FOREIGN",
    "report FOREIGN -o OUT",
    "follow FIT FOREIGN --until 20B",
    "anchors FIT --candidates FOREIGN --goal FOREIGN --budget 1e20",
    "anchors --next --candidates FOREIGN --goal FOREIGN --budget 1e20",
    "study pool FOREIGN --offer tpp<=31 --goal tpp>31 --budgets 10%",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_first_error_of_every_command_proposes_the_whole_mapping(folder, command):
    """A line that can be pasted: with it, the same table is read as if it were ours."""
    paths = {"FOREIGN": folder / "foreign.csv", "FIT": folder / "fit.nc"}
    paths |= {"OUT": folder / "out"}
    words = [str(paths.get(word, word)) for word in command.split()]
    program = studies if words[0] == "study" else app
    done = CliRunner().invoke(program, words[program is studies :])
    said = str(done.exception) if "review" not in command else done.stdout
    mapping = pasted(said)
    assert set(mapping.values()) == {"N", "D", "replay", "ptpp", "loss"}
    read = bayeslaw.read_runs(folder / "foreign.csv", columns=mapping)
    ours = bayeslaw.read_runs(folder / "ours.csv")
    np.testing.assert_allclose(read[list(ours)], ours)


def test_pre_training_tokens_and_losses_before_are_known_by_their_values():
    """Names as people have them: no word says tokens, and none says loss."""
    rows = pd.DataFrame(
        {
            "model": ["160M", "1.3B"],
            "pretrain budget": ["50B", "300B"],
            "pretrain lr": [3e-4, 2e-4],
            "adapt tokens [B]": [1, 4],
            "eval/fi loss": [3.51, 2.84],
            "eval/en loss": [4.26, 3.17],
            "fi before": [5.27, 4.41],
            "en before": [4.24, 3.05],
        }
    )
    mapping = pasted(mapping_hint(rows))
    assert mapping["pretrain budget/N"] == "ptpp"
    assert mapping["fi before"] == "target_loss_before"
    assert mapping["en before"] == "source_loss_before"


MIXTURE = {
    **{"size": ["150M", "1B"], "tokens (B)": [3, 10]},
    **{"web %": [60, 30], "code_pct": [30, 40], "books": [0.1, 0.3]},
    **{"loss_web": [2.7, 2.5], "loss_code": [1.6, 1.5], "loss_books": [3.1, 2.9]},
}


def test_shares_are_known_beside_losses_with_or_without_their_unit():
    mapping = pasted(mapping_hint(pd.DataFrame(MIXTURE)))
    assert mapping["web %/100"] == "share_web"
    assert mapping["code_pct/100"] == "share_code"
    assert mapping["books"] == "share_books"


def test_a_query_of_domains_before_the_mapping_proposes_it():
    """It is the first command that a how-to shows."""
    with pytest.raises(RunTableError, match="perhaps --column") as refused:
        bayeslaw.read_runs(pd.DataFrame(MIXTURE), where="domain == 'web'")
    assert pasted(str(refused.value))["size"] == "N"


# -- what a proposal must not say ------------------------------------------------------

LOSSES = {"val_loss": [3.0, 2.9, 2.8, 2.7]}
SIZES = {"params": [1e8, 1e8, 1e9, 1e9]}
TOKENS = {"tokens_B": [1.0, 2.0, 1.0, 2.0]}


@pytest.mark.parametrize(
    "name", ["init.tokens_seen_B", "pt_tokens_B", "initial tokens B"]
)
def test_tokens_of_the_checkpoint_are_not_those_of_the_run(name):
    table = pd.DataFrame(SIZES | {name: [2, 2, 20, 20]} | LOSSES)
    mapping = pasted(mapping_hint(table))
    assert "D" not in mapping.values()
    assert mapping[f"{name}*1e9/N"] == "ptpp"
    runs = bayeslaw.read_runs(table, columns=mapping)
    assert runs["ptpp"].tolist() == [20.0] * 4


@pytest.mark.parametrize(
    "name", ["train_batch_size", "eval_size", "hidden size", "model_dim", "vocab_size"]
)
def test_a_size_of_something_else_is_not_the_models(name):
    table = pd.DataFrame({name: [256, 256, 512, 512]} | TOKENS | LOSSES)
    assert "N" not in pasted(mapping_hint(table)).values()


@pytest.mark.parametrize(
    "columns",
    [
        {"GFLOPs": [1.8, 1.8, 4.1, 4.1]},
        {"flops_per_image": [1e18] * 4},
        {"forward_flops": [2e8, 2e8, 2e9, 2e9]},
    ],
)
def test_the_compute_of_one_pass_is_not_a_runs_cost(columns):
    assert "cost=" not in mapping_hint(pd.DataFrame(SIZES | columns | LOSSES))
    whole = pd.DataFrame(SIZES | {"train_flops": [6e17, 1e18, 6e18, 1e19]} | LOSSES)
    assert "cost=train_flops" in mapping_hint(whole)


OF_BITS = {"new bits/tok": "0.6931", "bits_per_token": "0.6931"}
OF_BITS |= {"bits/byte": "0.6931*BYTES_PER_TOKEN"}


@pytest.mark.parametrize(("name", "factor"), OF_BITS.items())
def test_bits_are_read_as_those_of_their_name(name, factor):
    table = pd.DataFrame(SIZES | TOKENS | {name: [4.0, 3.9, 3.8, 3.7]})
    option = f'--column "loss={name}*{factor}"'
    assert option in mapping_hint(table)
    with pytest.raises(RunTableError, match=re.escape(option)):
        bayeslaw.read_runs(table, columns={name: "loss"})


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (
            {"params_nonemb": [9e7] * 4, "params_all": [1e8] * 4},
            "params_nonemb or params_all may be N: choose",
        ),
        (
            {"student_size": [9e7] * 4, "teacher_size": [1e9] * 4},
            "student_size or teacher_size may be N: choose",
        ),
        (
            {"total_tokens": [1e9] * 4, "tokens_seen": [9e8] * 4},
            "D may also be tokens_seen: total_tokens is taken",
        ),
    ],
)
def test_columns_alike_are_named(columns, said):
    assert said in mapping_hint(pd.DataFrame(columns | LOSSES))


@pytest.mark.parametrize(
    "shares",
    [
        {"mix_web": [0.5, 0.4, 0.3, 0.2], "mix_code": [0.5, 0.6, 0.7, 0.8]},
        {"web_pct": [50, 40, 30, 20], "code_pct": [50, 60, 70, 80]},
        {"web": [0.5, 0.4, 0.3, 0.2], "code": [0.5, 0.6, 0.7, 0.8]},
    ],
)
def test_shares_and_losses_of_a_mixture_are_proposed(shares):
    losses = {f"val/{name}_loss": [3.0, 2.9, 2.8, 2.7] for name in ("web", "code")}
    table = pd.DataFrame(SIZES | TOKENS | shares | losses)
    runs = bayeslaw.read_runs(table, columns=pasted(mapping_hint(table)))
    assert runs["share_web"].tolist()[:4] == [0.5, 0.4, 0.3, 0.2]
    assert sorted(runs["domain"].unique()) == ["code", "web"]
    assert len(runs) == 8


OLD = {"old_data_fraction": 1.0, "general data (%)": 0.01}
OLD |= {"source_pct": 0.01, "general share": 1.0}


@pytest.mark.parametrize(("name", "factor"), OLD.items())
def test_a_share_of_old_data_is_replay(name, factor):
    written = np.array([0.1, 0.2, 0.1, 0.2]) / factor
    table = pd.DataFrame(SIZES | TOKENS | {name: written} | LOSSES)
    runs = bayeslaw.read_runs(table, columns=pasted(mapping_hint(table)))
    assert runs["replay"].tolist() == pytest.approx([0.1, 0.2, 0.1, 0.2])


@pytest.mark.parametrize("name", ["old_tokens_B", "general_loss", "source_data_B"])
def test_other_numbers_of_old_data_are_not_replay(name):
    table = pd.DataFrame(SIZES | TOKENS | {name: [11.0, 12.5, 14.5, 19.5]} | LOSSES)
    assert "replay" not in pasted(mapping_hint(table)).values()


def test_two_shares_of_which_one_is_replay_are_no_mixture():
    shares = {"new_fraction": [0.9, 0.8] * 2, "old_fraction": [0.1, 0.2] * 2}
    table = pd.DataFrame(SIZES | TOKENS | shares | LOSSES)
    assert pasted(mapping_hint(table))["old_fraction"] == "replay"


@pytest.mark.parametrize("sums_to", [1.0, 0.9, 100.0])
def test_weights_beside_evaluations_of_the_same_names_are_shares(sums_to):
    """No word says loss; and the weights are shares though one domain is not listed."""
    share = sums_to * np.array([0.5, 0.4, 0.3, 0.2])
    weights = {"cc_weight": share, "code_weight": sums_to - share}
    losses = {"val_cc": [2.71, 2.62, 2.53, 2.44], "val_code": [0.91, 0.82, 0.83, 0.74]}
    mapping = pasted(mapping_hint(pd.DataFrame(SIZES | TOKENS | weights | losses)))
    meant = {name.split("/")[0]: ours for name, ours in mapping.items()}
    assert (meant["val_cc"], meant["val_code"]) == ("loss_cc", "loss_code")
    shares = meant["cc_weight"], meant["code_weight"]
    assert shares == ("share_cc", "share_code")


def test_an_accuracy_is_no_loss():
    table = pd.DataFrame(SIZES | TOKENS | {"val_acc": [0.71, 0.72, 0.73, 0.74]})
    assert "loss" not in pasted(mapping_hint(table)).values()
    named = table.rename(columns={"val_acc": "val"})
    assert pasted(mapping_hint(named))["val"] == "loss"


@pytest.mark.parametrize(
    ("new", "old"),
    [("bpb_new", "bpb_old"), ("new bits/tok", "old bits/tok"), ("fi_bpb", "en_bpb")],
)
def test_bits_of_new_and_old_data_are_losses_of_target_and_source(new, old):
    bits = {new: [1.4, 1.3, 1.2, 1.1], old: [0.9, 0.91, 0.92, 0.93]}
    table = pd.DataFrame(SIZES | TOKENS | bits)
    hint = mapping_hint(table)
    runs = bayeslaw.read_runs(table, columns=pasted(hint))
    assert sorted(runs["domain"].unique()) == ["source", "target"]
    target = runs.loc[runs["domain"] == "target", "loss"]
    assert target.tolist() == pytest.approx(0.6931 * table[new])
    assert "guessed from its name" in hint
    assert ("BYTES_PER_TOKEN" in hint) == ("bpb" in new)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        (
            {"step": [1, 2, 3, 4], "tokens": [2e9] * 4, "run": "a", "params": 1e8},
            "D is the same at all steps of a run",
        ),
        ({"params": [2e11] * 4, "tokens": [1e9, 2e9] * 2}, "tokens per parameter"),
        ({"params": [2e4] * 4, "tokens": [1e11, 2e11] * 2}, "tokens per parameter"),
    ],
)
def test_what_is_pasted_is_checked(columns, says):
    table = pd.DataFrame(columns | LOSSES)
    mapping = {"params": "N", "tokens": "D", "val_loss": "loss"}
    with pytest.warns(bayeslaw.RunTableWarning, match=says):
        bayeslaw.read_runs(table, columns=mapping)


@pytest.mark.parametrize("missing", ["N", "D", "loss"])
def test_a_foreign_name_beside_ours_is_told(missing):
    ours = {"N": SIZES["params"], "D": [1e9, 2e9, 1e9, 2e9], "loss": LOSSES["val_loss"]}
    theirs = {"N": "n_params", "D": "tokens", "loss": "val_loss"}[missing]
    table = pd.DataFrame(ours).rename(columns={missing: theirs})
    with pytest.warns(bayeslaw.RunTableWarning, match=f"called {missing}, .*{theirs}"):
        bayeslaw.read_runs(table)


@pytest.mark.parametrize(
    "other", ["loss_weight", "loss_train", "loss coef", "aux_loss"]
)
def test_the_measured_loss_is_proposed_wherever_the_word_stands(other):
    table = pd.DataFrame(SIZES | {other: [4.0, 3.9, 3.8, 3.7]} | LOSSES)
    assert pasted(mapping_hint(table))["val_loss"] == "loss"

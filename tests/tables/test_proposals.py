"""Foreign columns: what is proposed for them can be pasted, and then it works; nothing
is applied unasked.
"""

import numpy as np
import pandas as pd
import pytest
from study import app as studies
from typer.testing import CliRunner

import bayeslaw
from bayeslaw import RunTableWarning
from bayeslaw.cli.app import app
from known import saved
from known.reading import hint, pasted, proposed, read, refusal


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
    shown = [pair.replace(" ", "_") for pair in pasted(hint([columns]))]
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
    table, said = pd.DataFrame(columns), hint(columns)
    runs = bayeslaw.read_runs(table, columns=pasted(said))
    for ours, factor in expected.items():
        theirs = next(name for name in columns if name not in ("N", ours))
        assert runs[ours].to_numpy() == pytest.approx(table[theirs] * factor)
        assert (f"unit of {ours} guessed" in said) == (factor != 1)


def test_names_that_a_shell_would_change_are_quoted():
    table = pd.DataFrame({'params "$HOME"': [1e8], "tokens": [1e9]})
    runs = bayeslaw.read_runs(table, columns=pasted(hint(table)))
    assert runs["N"].tolist() == [1e8]


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
    assert set(proposed(said)) == {"N", "D", "replay", "ptpp", "loss"}
    runs = bayeslaw.read_runs(folder / "foreign.csv", columns=pasted(said))
    ours = bayeslaw.read_runs(folder / "ours.csv")
    np.testing.assert_allclose(runs[list(ours)], ours)


# -- which columns are meant -----------------------------------------------------------

LOSSES = {"val_loss": [3.0, 2.9, 2.8, 2.7]}
SIZES = {"params": [1e8, 1e8, 1e9, 1e9]}
TOKENS = {"tokens_B": [1.0, 2.0, 1.0, 2.0]}
# names as people have them: no word says tokens, and none says loss
PEOPLES = {
    "model": ["160M", "1.3B"],
    "pretrain budget": ["50B", "300B"],
    "pretrain lr": [3e-4, 2e-4],
    "adapt tokens [B]": [1, 4],
    "eval/fi loss": [3.51, 2.84],
    "eval/en loss": [4.26, 3.17],
    "fi before": [5.27, 4.41],
    "en before": [4.24, 3.05],
}
MIXTURE = {
    **{"size": ["150M", "1B"], "tokens (B)": [3, 10]},
    **{"web %": [60, 30], "code_pct": [30, 40], "books": [0.1, 0.3]},
    **{"loss_web": [2.7, 2.5], "loss_code": [1.6, 1.5], "loss_books": [3.1, 2.9]},
}


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
    return rows | columns


STEPS = {"config.batch_tokens": [524288] * 6, "_step": [*range(900, 906)]}
PLANNED = {"seq_tokens_max": [4096] * 6, "val_tokens": [5e6] * 6}
TRAINED = {"train_tokens": [1e9, 2e9, 4e9] * 2}
BUDGETS = {"config.token_budget": ["1B", "2B", "4B"] * 2}
PERPLEXITIES = {"params": [1e9, 2e9], "ppl_fi": [20.0, 19]}
ENGLISH = {"ppl_en": [9.0, 8], "ppl_en_before": [8.0, 7]}
NEW_AND_OLD = {"new_fraction": [0.9, 0.8] * 2, "old_fraction": [0.1, 0.2] * 2}
# table, and of what is proposed: ours -> theirs, or None for what is not
MEANT = {
    "pre-training tokens, and losses before by their values": (
        PEOPLES,
        {"ptpp": "pretrain budget/N", "target_loss_before": "fi before"}
        | {"source_loss_before": "en before"},
    ),
    "shares beside losses, with or without their unit": (
        MIXTURE,
        {"share_web": "web %/100", "share_code": "code_pct/100"}
        | {"share_books": "books"},
    ),
    "shares named like the losses' sets": (
        {"web": [60, 30], "code": [40, 70], "loss_web": [3, 2.9], "loss_code": [2, 1]},
        {"share_web": "web/100", "share_code": "code/100"},
    ),
    "tokens of a batch are not the tokens of a run": (
        export(**STEPS),
        {"D": "_step*config.batch_tokens"},
    ),
    "a setting that all runs share, beside one that varies": (
        export(**TRAINED, **PLANNED),
        {"D": "train_tokens"},
    ),
    "planned tokens, where there are no others": (
        export(**BUDGETS),
        {"D": "config.token_budget"},
    ),
    "perplexities as their logarithms": (
        PERPLEXITIES | ENGLISH,
        {"target_loss": "ln(ppl_fi)", "source_loss_before": "ln(ppl_en_before)"},
    ),
    "one perplexity": (PERPLEXITIES, {"loss": "ln(ppl_fi)"}),
    "two shares of which one is replay are no mixture": (
        SIZES | TOKENS | NEW_AND_OLD | LOSSES,
        {"replay": "old_fraction"},
    ),
    "an accuracy is no loss": (
        SIZES | TOKENS | {"val_acc": [0.71, 0.72, 0.73, 0.74]},
        {"loss": None},
    ),
    "an evaluation is": (
        SIZES | TOKENS | {"val": [0.71, 0.72, 0.73, 0.74]},
        {"loss": "val"},
    ),
    **{
        f"{name} is not the model's size": (
            {name: [256, 256, 512, 512]} | TOKENS | LOSSES,
            {"N": None},
        )
        for name in ("train_batch_size", "eval_size", "hidden size", "vocab_size")
    },
    **{
        f"{name} is not replay": (
            SIZES | TOKENS | {name: [11.0, 12.5, 14.5, 19.5]} | LOSSES,
            {"replay": None},
        )
        for name in ("old_tokens_B", "general_loss", "source_data_B")
    },
    **{
        f"{name} is not the measured loss": (
            SIZES | {name: [4.0, 3.9, 3.8, 3.7]} | LOSSES,
            {"loss": "val_loss"},
        )
        for name in ("loss_weight", "loss_train", "loss coef", "aux_loss")
    },
    **{
        f"{next(iter(flops))} are not a run's cost": (
            SIZES | flops | LOSSES,
            {"cost": None},
        )
        for flops in (
            {"GFLOPs": [1.8, 1.8, 4.1, 4.1]},
            {"flops_per_image": [1e18] * 4},
            {"forward_flops": [2e8, 2e8, 2e9, 2e9]},
        )
    },
    "FLOPs of a run are its cost": (
        SIZES | {"train_flops": [6e17, 1e18, 6e18, 1e19]} | LOSSES,
        {"cost": "train_flops"},
    ),
}


@pytest.mark.parametrize("case", MEANT)
def test_the_column_that_is_meant_is_proposed(case):
    table, expected = MEANT[case]
    mapping = proposed(hint(table))
    assert {ours: mapping.get(ours) for ours in expected} == expected


def test_a_query_of_domains_before_the_mapping_proposes_it():
    """It is the first command that a how-to shows."""
    said = refusal(pd.DataFrame(MIXTURE), where="domain == 'web'")
    assert proposed(said)["N"] == "size"


def test_a_proposed_query_never_leaves_out_a_whole_domain():
    """Only the source's losses before adaptation are given, with a gap; so no law of them
    is taken for the target.
    """
    table = pd.DataFrame(export(**BUDGETS))
    assert "loss_before.notna()" not in hint(table)
    runs, _ = read(table, columns=pasted(hint(table)))
    assert runs["domain"].value_counts().to_dict() == {"target": 6, "source": 6}
    laws = {}
    for domain, rows in runs.groupby("domain"):
        reason = bayeslaw.review(rows)["laws"].reason
        laws[domain] = reason.removesuffix(" can be fitted").split(", ")
    read_by = [bayeslaw.law(name).covariates for name in laws["target"]]
    assert not any("loss_before" in columns for columns in read_by)
    assert "state-rise" in laws["source"]


@pytest.mark.parametrize(
    "name", ["init.tokens_seen_B", "pt_tokens_B", "initial tokens B"]
)
def test_tokens_of_the_checkpoint_are_not_those_of_the_run(name):
    table = pd.DataFrame(SIZES | {name: [2, 2, 20, 20]} | LOSSES)
    mapping = proposed(hint(table))
    assert "D" not in mapping
    assert mapping["ptpp"] == f"{name}*1e9/N"
    runs = bayeslaw.read_runs(table, columns=pasted(hint(table)))
    assert runs["ptpp"].tolist() == [20.0] * 4


OF_BITS = {"new bits/tok": "0.6931", "bits_per_token": "0.6931"}
OF_BITS |= {"bits/byte": "0.6931*BYTES_PER_TOKEN"}


@pytest.mark.parametrize(("name", "factor"), OF_BITS.items())
def test_bits_are_read_as_those_of_their_name(name, factor):
    table = pd.DataFrame(SIZES | TOKENS | {name: [4.0, 3.9, 3.8, 3.7]})
    option = f'--column "loss={name}*{factor}"'
    assert option in hint(table)
    assert option in refusal(table, columns={name: "loss"})


def alike(*names):
    return {name: [3e9, 4e9, 3e9, 4e9] for name in names} | LOSSES


@pytest.mark.parametrize(
    ("columns", "taken", "said"),
    [
        (alike("params_nonemb", "params_all"), "", "params_nonemb or params_all may be N: choose"),
        (alike("student_size", "teacher_size"), "", "student_size or teacher_size may be N: choose"),
        (alike("total_tokens", "tokens_seen"), "D=total_tokens", "D may also be tokens_seen: total_tokens is"),
        (alike("tokens_planned", "total_tokens"), "D=total_tokens", "also be tokens_planned"),
        (alike("max_tokens", "tokens_seen"), "D=tokens_seen", "also be max_tokens"),
        (alike("active_params", "total_params"), "N=active_params", "also be total_params"),
        (alike("gpu_hours", "note"), "cost=gpu_hours", ""),
        (alike("config.pt_tokens", "N"), "ptpp=config.pt_tokens/N", ""),
        ({"eval/fi_loss": [2.0], "eval/de_loss": [3.0]}, "", "2 columns may be the loss (eval/fi_loss, eval/de_loss)"),
    ],
)  # fmt: skip
def test_of_columns_alike_one_is_proposed_and_the_others_are_named(
    columns, taken, said
):
    assert not taken or taken in pasted(hint(columns))
    assert said in hint(columns)


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
    assert "may be the loss" not in hint(table)
    runs = bayeslaw.read_runs(table, columns=pasted(hint(table)))
    assert runs["share_web"].tolist()[:4] == pytest.approx([0.5, 0.4, 0.3, 0.2])
    assert sorted(runs["domain"].unique()) == ["code", "web"]
    assert len(runs) == 8


OLD = {"old_data_fraction": 1.0, "general data (%)": 0.01}
OLD |= {"source_pct": 0.01, "general share": 1.0}


@pytest.mark.parametrize(("name", "factor"), OLD.items())
def test_a_share_of_old_data_is_replay(name, factor):
    shares = np.array([0.1, 0.2, 0.1, 0.2]) / factor
    table = pd.DataFrame(SIZES | TOKENS | {name: shares} | LOSSES)
    runs = bayeslaw.read_runs(table, columns=pasted(hint(table)))
    assert runs["replay"].tolist() == pytest.approx([0.1, 0.2, 0.1, 0.2])


@pytest.mark.parametrize("sums_to", [1.0, 0.9, 100.0])
def test_weights_beside_evaluations_of_the_same_names_are_shares(sums_to):
    """No word says loss; and the weights are shares though one domain is not listed."""
    share = sums_to * np.array([0.5, 0.4, 0.3, 0.2])
    weights = {"cc_weight": share, "code_weight": sums_to - share}
    losses = {"val_cc": [2.71, 2.62, 2.53, 2.44], "val_code": [0.91, 0.82, 0.83, 0.74]}
    mapping = proposed(hint(SIZES | TOKENS | weights | losses))
    assert (mapping["loss_cc"], mapping["loss_code"]) == ("val_cc", "val_code")
    shares = [mapping[f"share_{name}"].split("/")[0] for name in ("cc", "code")]
    assert shares == ["cc_weight", "code_weight"]


@pytest.mark.parametrize(
    ("new", "old"),
    [("bpb_new", "bpb_old"), ("new bits/tok", "old bits/tok"), ("fi_bpb", "en_bpb")],
)
def test_bits_of_new_and_old_data_are_losses_of_target_and_source(new, old):
    bits = {new: [1.4, 1.3, 1.2, 1.1], old: [0.9, 0.91, 0.92, 0.93]}
    table = pd.DataFrame(SIZES | TOKENS | bits)
    said = hint(table)
    runs = bayeslaw.read_runs(table, columns=pasted(said))
    assert sorted(runs["domain"].unique()) == ["source", "target"]
    target = runs.loc[runs["domain"] == "target", "loss"]
    assert target.tolist() == pytest.approx(0.6931 * table[new])
    assert "guessed from its name" in said
    assert ("BYTES_PER_TOKEN" in said) == ("bpb" in new)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        (
            {"step": [1, 2, 3, 4], "tokens": [2e9] * 4, "run": "a", "params": 1e8},
            "D is the same at all steps of a run",
        ),
        (
            {"step": [1, 2, 3, 4], "tokens": [1e9, 2e9] * 2, "run": "a", "params": 1e8},
            r"1 of 4 rows \(row 3\) have fewer tokens D than an earlier step",
        ),
        ({"params": [2e11] * 4, "tokens": [1e9, 2e9] * 2}, "tokens per parameter"),
        ({"params": [2e4] * 4, "tokens": [1e11, 2e11] * 2}, "tokens per parameter"),
    ],
)
def test_what_is_pasted_is_checked(columns, says):
    mapping = {"params": "N", "tokens": "D", "val_loss": "loss"}
    with pytest.warns(RunTableWarning, match=says):
        bayeslaw.read_runs(pd.DataFrame(columns | LOSSES), columns=mapping)


@pytest.mark.parametrize("missing", [["N"], ["D"], ["loss"], ["N", "loss"]])
def test_a_foreign_name_beside_ours_is_told_and_nothing_is_mapped_unasked(missing):
    ours = {"N": SIZES["params"], "D": [1e9, 2e9, 1e9, 2e9], "loss": LOSSES["val_loss"]}
    names = {"N": "n_params", "D": "tokens", "loss": "val_loss"}
    theirs = {name: names[name] for name in missing}
    table = pd.DataFrame(ours).rename(columns=theirs)
    with pytest.warns(
        RunTableWarning, match=f"called {' and '.join(missing)}, "
    ) as said:
        assert list(bayeslaw.read_runs(table)) == list(table)
    assert proposed(str(said[0].message)) == theirs

"""Stores of experiment trackers, each written by the tracker's own library, read as
tables of runs.

The runs are the same in all of them: two sizes, four evaluations, training losses at
more steps, 64 tokens a step.
"""

import json
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw import RunTableError, RunTableWarning
from known.reading import refusal
from known.said import said_by

SIZES, STEPS, EVERY, PER_STEP = (10_000, 20_000), 40, 10, 64
SETTINGS = {"batch_size": 4, "seq_len": 16, "data": {"mix": 0.25}}
OURS = {"n_params": "N", "eval/loss": "loss", "data.mix": "replay"}
assumed = pytest.warns(RunTableWarning, match="D is steps x 64 tokens")


def loss(size: int, step: int) -> float:
    return 2 + 300 / size + 1 / step


def logs(size: int) -> Iterator[tuple[int, dict[str, float]]]:
    """What a training logs, call by call."""
    for step in range(1, STEPS + 1):
        yield step, {"train/loss": loss(size, step) - 0.1}
        if step % EVERY == 0:
            yield step, {"eval/loss": loss(size, step)}


def flat_settings(size: int) -> dict[str, float]:
    """For trackers that have no nested ones."""
    return {"n_params": size, "batch_size": 4, "seq_len": 16, "data.mix": 0.25}


def check(runs: pd.DataFrame) -> None:
    """These are the runs above: a row for each evaluation, and tokens by steps."""
    assert len(runs) == len(SIZES) * STEPS // EVERY
    steps = np.arange(EVERY, STEPS + 1, EVERY)
    for size in SIZES:
        run = runs[runs["run"] == f"size{size}"].sort_values("D")
        assert set(run["N"]) == {size}
        assert run["D"].tolist() == (PER_STEP * steps).tolist()
        expected = [loss(size, step) for step in steps]
        np.testing.assert_allclose(run["loss"], expected, rtol=1e-6)
        assert set(run["replay"]) == {0.25}


def needs(name: str, extra: str):
    return pytest.importorskip(name, reason=f"needs the extra {extra}")


@pytest.fixture(scope="module")
def outside():
    """A Python that does not take the folder tests/datasets for Hugging Face's."""
    with pytest.MonkeyPatch.context() as patch:
        found = find_spec("datasets")
        if found is not None and found.origin is None:
            patch.setitem(sys.modules, "datasets", None)
        yield


# -- TensorBoard -----------------------------------------------------------------------


def write_events(folder: Path, size: int) -> None:
    """An event file in TensorBoard's own format, and one of hyperparameters below it,
    as torch's `SummaryWriter` leaves them.
    """
    writers = needs("tensorboard.summary.writer.event_file_writer", "tensorboard")
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams import summary_v2

    writer = writers.EventFileWriter(str(folder))
    for step, values in logs(size):
        named = [Summary.Value(tag=k, simple_value=v) for k, v in values.items()]
        summary = Summary(value=named)
        writer.add_event(Event(step=step, wall_time=1e9 + step, summary=summary))
    writer.close()
    settings = flat_settings(size)
    below = writers.EventFileWriter(str(folder / "1700000000.0"))
    below.add_event(Event(wall_time=1e9, summary=summary_v2.hparams_pb(settings)))
    below.close()


@pytest.fixture(scope="module")
def event_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tensorboard")
    for size in SIZES:
        write_events(folder / f"size{size}", size)
    return folder


def test_event_files(event_folder):
    with assumed:
        check(bayeslaw.read_runs(f"tensorboard:{event_folder}", columns=OURS))


def test_event_files_of_torch(tmp_path):
    """Its writer, with `add_hparams`; more steps than TensorBoard keeps of a sample."""
    torch = needs("torch.utils.tensorboard", "hf (torch)")
    needs("tensorboard", "tensorboard")
    for size in SIZES:
        writer = torch.SummaryWriter(str(tmp_path / f"size{size}"))
        writer.add_hparams(flat_settings(size), {"hparam/none": 0.0})
        for step in range(1, 12_001):
            writer.add_scalar("grad_norm", 1.0, step)
        for step, values in logs(size):
            for name, value in values.items():
                writer.add_scalar(name, value, step)
        writer.close()
    with assumed:
        check(bayeslaw.read_runs(f"tensorboard:{tmp_path}", columns=OURS))
    with assumed:
        table = bayeslaw.read_runs(f"tensorboard:{tmp_path}/size{SIZES[0]}")
    assert len(table) == 12_000


def test_what_was_logged_again_after_a_restart_holds(tmp_path):
    torch = needs("torch.utils.tensorboard", "hf (torch)")
    needs("tensorboard", "tensorboard")
    for value in (3.0, 2.0):
        writer = torch.SummaryWriter(str(tmp_path))
        writer.add_scalar("eval/loss", value, 10)
        writer.close()
    runs = bayeslaw.read_runs(
        f"tensorboard:{tmp_path}", columns={"eval/loss": "loss", "step*64": "D"}
    )
    assert runs[["step", "D", "loss"]].to_numpy().tolist() == [[10, 640, 2]]


# -- MLflow ----------------------------------------------------------------------------


def write_mlflow(address: str, experiment: str = "grid") -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what MLflow uses
        _write_mlflow(address, experiment)


def _write_mlflow(address: str, experiment: str) -> None:
    tracking = needs("mlflow.tracking", "mlflow")
    client = tracking.MlflowClient(tracking_uri=address)
    at = client.create_experiment(experiment)
    for size in SIZES:
        run = client.create_run(at, run_name=f"size{size}").info.run_id
        for name, value in flat_settings(size).items():
            client.log_param(run, name, value)
        for step, values in logs(size):
            for name, value in values.items():
                client.log_metric(run, name, value, step=step)
        client.set_terminated(run)


@pytest.fixture(scope="module")
def mlflow_file(tmp_path_factory):
    needs("sqlalchemy", "mlflow")
    file = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    write_mlflow(f"sqlite:///{file}")
    return file


def test_an_mlflow_database(mlflow_file):
    """The only experiment with runs; and by its name."""
    for place in (mlflow_file, f"{mlflow_file}#grid"):
        with assumed:
            check(bayeslaw.read_runs(f"mlflow:{place}", columns=OURS))


def test_an_mlflow_folder(tmp_path, monkeypatch):
    """MLflow itself refuses to open one without a word in the environment."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    write_mlflow((tmp_path / "mlruns").as_uri())
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE")
    with assumed:
        check(bayeslaw.read_runs(f"mlflow:{tmp_path}/mlruns", columns=OURS))


def test_an_experiment_is_named_where_there_are_several(tmp_path, mlflow_file):
    file = tmp_path / "two.db"
    shutil.copy(mlflow_file, file)
    write_mlflow(f"sqlite:///{file}", "other")
    with pytest.raises(RunTableError, match=r"runs in 2 experiments.*#(grid|other): "):
        bayeslaw.read_runs(f"mlflow:{file}")
    with pytest.raises(RunTableError, match=r"no experiment 'grit'; there are: .*grid"):
        bayeslaw.read_runs(f"mlflow:{file}#grit")


# -- Trackio ---------------------------------------------------------------------------

TRACKIO = """
import json, sys, trackio
for size, settings, rows in json.loads(sys.stdin.read()):
    trackio.init(project="grid", name=f"size{size}", config=settings)
    for step, values in rows:
        trackio.log(values, step=step)
    trackio.finish()
"""


def test_a_trackio_project(tmp_path, outside):
    """Read in a process of its own, as Trackio settles its folder when imported."""
    needs("trackio", "trackio")
    environment = os.environ | {"TRACKIO_DIR": str(tmp_path)}
    rows = [(size, SETTINGS | {"n_params": size}, list(logs(size))) for size in SIZES]
    command = [sys.executable, "-P", "-c", TRACKIO]
    told = {"capture_output": True, "text": True, "env": environment}
    subprocess.run(command, input=json.dumps(rows), check=True, cwd=tmp_path, **told)
    read = [sys.executable, "-P", "-m", "bayeslaw.cli", "table"]
    mapping = [w for o, t in OURS.items() for w in ("--column", f"{t}={o}")]
    kept = ["-o", str(tmp_path / "runs.csv")]
    done = subprocess.run([*read, "trackio:grid", *mapping, *kept], check=False, **told)
    assert done.returncode == 0, done.stderr
    assert "warning: D is steps x 64 tokens" in done.stderr
    check(bayeslaw.read_runs(tmp_path / "runs.csv"))
    other = subprocess.run([*read, "trackio:grit"], check=False, **told)
    assert other.returncode == 2
    assert "no such project; there are: grid" in other.stderr


# -- Weights & Biases ------------------------------------------------------------------


@pytest.fixture(scope="module")
def offline_folder(tmp_path_factory):
    """Runs of the real library that never reached its server, one call a metric as
    Hugging Face's Trainer does.
    """
    wandb = needs("wandb", "wandb")
    folder = tmp_path_factory.mktemp("wandb")
    quiet = wandb.Settings(console="off", silent=True)
    for size in SIZES:
        config = SETTINGS | {"n_params": size}
        options = {"config": config, "settings": quiet, "dir": str(folder)}
        run = wandb.init(project="grid", name=f"size{size}", mode="offline", **options)
        for step, values in logs(size):
            # long enough for records that go over blocks of the file
            padding = {f"norms/layer{i}": step + i / 7 for i in range(40)}
            run.log(values | padding | {"train/global_step": step})
        run.finish()
    return folder


def test_offline_runs_of_wandb(offline_folder):
    """Steps are those of the training, not calls of `log`."""
    files = list(offline_folder.rglob("run-*.wandb"))
    assert min(file.stat().st_size for file in files) > 2 * 2**15
    with assumed:
        check(bayeslaw.read_runs(f"wandb:{offline_folder}", columns=OURS))


def test_a_run_that_is_still_going_is_read_up_to_its_last_whole_record(
    offline_folder, tmp_path
):
    content = next(iter(offline_folder.rglob("run-*.wandb"))).read_bytes()
    (tmp_path / "run-half.wandb").write_bytes(content[: len(content) // 2])
    unnamed = pytest.warns(RunTableWarning, match="no column is called N and loss")
    with unnamed, assumed:
        part = bayeslaw.read_runs(f"wandb:{tmp_path}")
    assert 5 < part["step"].max() < STEPS


def test_damaged_offline_runs_are_refused(offline_folder, tmp_path):
    content = bytearray(next(iter(offline_folder.rglob("run-*.wandb"))).read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "run-bad.wandb").write_bytes(content)
    assert "damaged at byte" in refusal(f"wandb:{tmp_path}")
    (tmp_path / "run-bad.wandb").write_text("no run")
    assert "not a file of W&B" in refusal(f"wandb:{tmp_path}")


def test_runs_of_the_wandb_api(monkeypatch):
    """A stand-in for the objects that its documentation describes: the server cannot be
    reached from here.
    """
    wandb = needs("wandb", "wandb")

    def scanned(size):
        rows = [{"_step": i, "_timestamp": 1e9 + i} | v for i, v in logs(size)]
        return lambda: iter(rows)

    runs = []
    for size in SIZES:
        config = SETTINGS | {"n_params": size, "_wandb": {"t": 1}}
        named = {"id": f"id{size}", "name": f"size{size}", "config": config}
        runs.append(SimpleNamespace(**named, scan_history=scanned(size)))
    asked = []
    api = SimpleNamespace(runs=lambda path: asked.append(path) or iter(runs))
    monkeypatch.setattr(wandb, "Api", lambda: api)
    with assumed:
        check(bayeslaw.read_runs("wandb:team/grid", columns=OURS))
    assert asked == ["team/grid"]


def test_an_api_that_cannot_be_reached_is_one_line(monkeypatch):
    wandb = needs("wandb", "wandb")

    def api():
        raise wandb.errors.CommError("no route\nto host")

    monkeypatch.setattr(wandb, "Api", api)
    with pytest.raises(
        RunTableError, match=r"\(no route\); see that .* can be reached$"
    ):
        bayeslaw.read_runs("wandb:team/grid")


# -- Hugging Face's Trainer ------------------------------------------------------------


@pytest.fixture(scope="module")
def trainer_folder(tmp_path_factory, outside):
    """A tiny model trained by the real Trainer, with checkpoints, counting its tokens."""
    needs("accelerate", "hf")
    torch = needs("torch", "hf")
    hf = needs("transformers", "hf")
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("hf")
    rows = np.random.default_rng(0).integers(0, 32, (64, 16)).tolist()
    texts = [{"input_ids": row, "labels": row} for row in rows]
    for run, seed in (("first", 0), ("second", 1)):
        config = hf.GPT2Config(
            vocab_size=32, n_positions=16, n_embd=8, n_layer=1, n_head=1,
            bos_token_id=0, eos_token_id=0,
        )  # fmt: skip
        arguments = hf.TrainingArguments(
            str(folder / run), max_steps=20, eval_steps=5, eval_strategy="steps",
            save_strategy="steps", save_steps=10, logging_steps=2, report_to=[],
            per_device_train_batch_size=4, use_cpu=True, disable_tqdm=True, seed=seed,
            dataloader_pin_memory=False, include_num_input_tokens_seen="all",
        )  # fmt: skip
        data = {"train_dataset": texts, "eval_dataset": texts[:8]}
        hf.Trainer(model=hf.GPT2LMHeadModel(config), args=arguments, **data).train()
    return folder


def test_states_of_a_trainer(trainer_folder):
    """The longest log of each run, tokens as the Trainer counted them."""
    columns = {"eval/loss": "loss", "10k": "N"}
    runs = bayeslaw.read_runs(f"hf:{trainer_folder}", columns=columns)
    assert sorted(set(runs["run"])) == ["first", "second"]
    for _, run in runs.groupby("run"):
        assert run["step"].tolist() == [5, 10, 15, 20]
        assert run["D"].tolist() == [5 * 64, 10 * 64, 15 * 64, 20 * 64]
        assert set(run["N"]) == {1e4}
    last = trainer_folder / "first/checkpoint-20/trainer_state.json"
    state = json.loads(last.read_text())
    logged = [row["eval_loss"] for row in state["log_history"] if "eval_loss" in row]
    assert runs.loc[runs["run"] == "first", "loss"].tolist() == logged
    (one,) = {*bayeslaw.read_runs(f"hf:{trainer_folder}/first")["run"]}
    assert one == "first"


@pytest.mark.parametrize("text", ["{", "[]", '{"log_history": 3, "global_step": 1}'])
def test_a_state_that_is_none_is_refused(tmp_path, text):
    (tmp_path / "trainer_state.json").write_text(text)
    # the path is told once
    place = tmp_path / "trainer_state.json"
    said = f"hf:{place}: not a state that a Trainer has written"
    assert refusal(f"hf:{tmp_path}") == said


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[" * 100_000, id="deep"),
        '{"log_history": [{"step": "a", "eval_loss": 1}, {"step": 1}], "global_step": 1}',
        '{"log_history": [{"step": {}, "eval_loss": 1}], "global_step": 1}',
    ],
)
def test_a_store_that_is_damaged_inside_is_one_line(tmp_path, text):
    (tmp_path / "trainer_state.json").write_text(text)
    # a step that is text is passed over, unless the types are checked, which looks at
    # one row drawn at random
    said = refusal(f"hf:{tmp_path}")
    assert "cannot be read as a table" in said or "has logged a number" in said


# -- any of them -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("extra", "module"),
    [
        ("tensorboard", "tensorboard.backend.event_processing.event_accumulator"),
        ("mlflow", "mlflow.tracking"),
        ("trackio", "trackio"),
        ("wandb", "wandb"),
    ],
)
def test_a_library_that_is_missing_is_named_with_its_extra(
    tmp_path, monkeypatch, extra, module
):
    monkeypatch.setitem(sys.modules, module, None)
    (tmp_path / "a.tfevents").touch()
    says = rf'{extra} is needed to read this .*pip install "bayeslaw\[{extra}\]"$'
    with pytest.raises(RunTableError, match=says):
        bayeslaw.read_runs(f"{extra}:{tmp_path}")


@pytest.mark.parametrize("scheme", ["tensorboard", "mlflow", "hf"])
def test_a_store_that_is_not_there_is_said_and_not_made(tmp_path, scheme):
    assert "no such" in refusal(f"{scheme}:{tmp_path}/nothing")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("scheme", "module", "says"),
    [
        ("tensorboard", "tensorboard", "no .tfevents"),
        ("mlflow", "mlflow", "no runs in any experiment"),
        ("wandb", "wandb", "no run-"),
        ("hf", "json", "no trainer_state.json"),
    ],
)
def test_an_empty_store_is_said(tmp_path, scheme, module, says):
    needs(module, scheme)
    with pytest.raises(RunTableError, match=says):
        bayeslaw.read_runs(f"{scheme}:{tmp_path}")


def test_a_scheme_alone_asks_for_a_place():
    assert "write hf:PLACE" in refusal("hf:")


def state_of(folder: Path, *logged: dict, **more) -> str:
    folder.mkdir(exist_ok=True, parents=True)
    state = {"log_history": list(logged), "global_step": len(logged)} | more
    (folder / "trainer_state.json").write_text(json.dumps(state))
    return f"hf:{folder.parent}"


def test_runs_without_the_metric_are_left_out_and_named(tmp_path):
    state_of(tmp_path / "a", {"step": 1, "eval_loss": 3.0})
    source = state_of(tmp_path / "b", {"step": 1, "loss": 3.0})
    columns = {"eval/loss": "loss", "step*64": "D"}
    with pytest.warns(RunTableWarning, match="no loss in 1 runs, left out: b"):
        runs = bayeslaw.read_runs(source, columns=columns)
    assert runs["run"].tolist() == ["a"]
    said = refusal(source, columns={"eval/nll": "loss"})
    assert "the table has no column 'eval/nll'" in said


def test_a_loss_that_diverged_is_refused_not_skipped(tmp_path):
    rows = {"step": 1, "eval_loss": 3.0}, {"step": 2, "eval_loss": float("nan")}
    source = state_of(tmp_path / "a", *rows)
    columns = {"eval/loss": "loss", "step*64": "D"}
    assert "row 2, column 'loss': inf" in refusal(source, columns=columns)
    assert len(bayeslaw.read_runs(source, columns=columns, where="step < 2")) == 1


def test_an_evaluation_before_the_first_token_is_no_point_of_the_run(tmp_path):
    rows = {"step": 0, "eval_loss": 4.0}, {"step": 1, "eval_loss": 3.0}
    source = state_of(tmp_path / "a", *rows)
    columns = {"eval/loss": "loss", "step*64": "D"}
    assert bayeslaw.read_runs(source, columns=columns)["loss"].tolist() == [3.0]


def test_without_tokens_it_is_said_how_to_count_them(tmp_path):
    source = state_of(tmp_path / "a", {"step": 1, "eval_loss": 3.0})
    runs = bayeslaw.read_runs(source, columns={"eval/loss": "loss", "124M": "N"})
    assert "D" not in runs
    with pytest.raises(bayeslaw.LawError, match=r'--column "D=step\*TOKENS_OF_A_STEP"'):
        bayeslaw.compare(runs)


# -- tokens ----------------------------------------------------------------------------


def read_of(folder: Path, settings: dict, *logged: tuple[float, dict]):
    """The runs of one Trainer with these settings, and what was said."""
    rows = [{"step": step} | values for step, values in logged]
    source = state_of(folder / "a", *rows, trial_params=settings)
    return said_by(bayeslaw.read_runs, source, columns={"eval/loss": "loss"})


def test_a_logged_counter_is_on_a_line_between_its_steps_and_unknown_beyond(tmp_path):
    runs, said = read_of(
        tmp_path,
        {"tokens_per_step": 7},
        (5, {"eval_loss": 4.0}),
        (10, {"num_tokens": 100.0}),
        (15, {"eval_loss": 2.0}),
        (20, {"num_tokens": 300.0, "eval_loss": 1.5}),
        (30, {"eval_loss": 1.0}),
    )
    np.testing.assert_array_equal(runs["D"], [np.nan, 200, 300, np.nan])
    assert not [line for line in said if "D is" in line]


def test_counters_that_differ_are_refused_unless_one_is_named(tmp_path):
    rows = [
        {"step": s, "eval_loss": 3.0 / s, "num_tokens": 10 * s, "tokens_seen": 11 * s}
        for s in (1, 2)
    ]
    source = state_of(tmp_path / "a", *rows)
    said = refusal(source, columns={"eval/loss": "loss"})
    assert "both count tokens, and differ" in said
    assert '--column "D=train/tokens_seen"' in said
    columns = {"eval/loss": "loss", "train/tokens_seen": "D"}
    assert bayeslaw.read_runs(source, columns=columns)["D"].tolist() == [11, 22]
    same = [row | {"tokens_seen": row["num_tokens"]} for row in rows]
    source = state_of(tmp_path / "a", *same)
    assert bayeslaw.read_runs(source, columns={"eval/loss": "loss"})["D"][2] == 20


@pytest.mark.parametrize(
    ("settings", "per_step", "is_assumed"),
    [
        ({"tokens_per_step": 512}, 512, False),
        ({"global_batch_size": 8, "seq_len": 4, "world_size": 2}, 32, True),
        (
            {"per_device_train_batch_size": 2, "seq_length": 8}
            | {"gradient_accumulation_steps": 4, "world_size": 3},
            192,
            True,
        ),
        ({"train": {"batch_size": 2, "block_size": 8}}, 16, True),
        ({"batch_size": 2, "max_length": 20}, None, False),
        ({"batch_size": "auto", "seq_len": 8}, None, False),
    ],
)
def test_tokens_of_a_step_are_the_product_of_the_settings(
    tmp_path, settings, per_step, is_assumed
):
    runs, said = read_of(tmp_path, settings, (3, {"eval_loss": 2.0}))
    assert any("D is steps" in line for line in said) == is_assumed
    assert list(runs.get("D", [])) == ([] if per_step is None else [3 * per_step])


def test_runs_of_one_name_and_settings_called_like_metrics_are_told_apart(monkeypatch):
    config = {"loss": "cross", "lr": 1}
    one = SimpleNamespace(name="a", config=config, scan_history=lambda: [{"loss": 2.0}])
    wandb = ModuleType("wandb")
    wandb.Api = lambda: SimpleNamespace(runs=lambda _: [one] * 2)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    runs, _ = said_by(bayeslaw.read_runs, "wandb:team/grid")
    assert runs["run"].tolist() == ["a", "a#2"]
    assert runs["config.loss"].tolist() == ["cross"] * 2


def test_runs_without_a_number_are_refused(tmp_path):
    source = state_of(tmp_path / "a", {"step": 1, "note": "none"})
    assert "no run has logged a number (runs: a)" in refusal(source)

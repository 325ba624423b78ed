"""A Trainer's evaluations are the points of a follower, and its loggers are told."""

import json
import logging
import math
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest

from bayeslaw import Follower, PlanError
from known.power_laws import Reads

needs_hf = pytest.mark.usefixtures("hf")
STEPS, BATCH, LENGTH, SYMBOLS = 30, 4, 16, 32
PER_STEP = BATCH * LENGTH
UNTIL = STEPS * PER_STEP
KEYS = {"final_median", "final_low", "final_high", "surprise", "decision"}


class Guess:
    """A power law in tokens, near the loss of a model that knows nothing, log(32)."""

    name, warnings = "guess", ()

    def pieces(self):
        return (Reads(("D",)),)

    def log_loss(self, runs, *, noise=False, seed=0):
        rng = np.random.default_rng(0)
        floor = rng.normal(3.3, 0.1, (300, 1))
        law = np.log(floor + 0.5 * runs["D"].to_numpy(float) ** -0.3)
        rng = np.random.default_rng(seed)
        return law + 0.01 * noise * rng.standard_normal(law.shape)


@pytest.fixture(scope="module")
def hf():
    """transformers; it takes the folder tests/datasets for the package of that name,
    unless that is installed.
    """
    reason = "needs the extra hf: pip install bayeslaw[hf]"
    with pytest.MonkeyPatch.context() as patch:
        found = find_spec("datasets")
        if found is not None and found.origin is None:
            patch.setitem(sys.modules, "datasets", None)
        pytest.importorskip("accelerate", reason=reason)
        torch = pytest.importorskip("torch", reason=reason)
        torch.set_num_threads(1)  # the model is tiny, and tests share their machine
        yield pytest.importorskip("transformers", reason=reason)


@pytest.fixture
def callback(hf):
    from bayeslaw.callbacks import FollowCallback

    return FollowCallback


def start(*domains: str, **question) -> Follower:
    """Before the first point: of one domain, or of several."""
    posterior = {name: Guess() for name in domains} or Guess()
    return Follower.start(posterior, {"N": 8000.0}, UNTIL, **question)


def places(follow) -> list[float]:
    """Tokens of the points that a callback followed."""
    return follow.follower.following().first.history["at"].to_list()


def texts(seed: int, count: int) -> list[dict]:
    """Random bytes, each predicted from those before it."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, SYMBOLS, (count, LENGTH)).tolist()
    return [{"input_ids": row, "labels": row} for row in rows]


@pytest.fixture
def train(hf, tmp_path):
    """A Trainer of a tiny model on random bytes, evaluated every 10 steps."""

    def trainer(callbacks=(), evaluated=None, **options):
        config = hf.GPT2Config(
            vocab_size=SYMBOLS,
            n_positions=LENGTH,
            n_embd=16,
            n_layer=2,
            n_head=2,
            bos_token_id=0,
            eos_token_id=0,
        )
        options = {
            "max_steps": STEPS,
            "eval_steps": 10,
            "logging_steps": 5,
            "save_strategy": "no",
            "report_to": [],
        } | options
        args = hf.TrainingArguments(
            str(tmp_path / "out"),
            per_device_train_batch_size=BATCH,
            eval_strategy="steps",
            use_cpu=True,
            disable_tqdm=True,
            dataloader_pin_memory=False,
            seed=0,
            **options,
        )
        return hf.Trainer(
            model=hf.GPT2LMHeadModel(config),
            args=args,
            train_dataset=texts(0, STEPS * BATCH),
            eval_dataset=texts(1, 8) if evaluated is None else evaluated,
            data_collator=hf.default_data_collator,
            callbacks=list(callbacks),
        )

    return trainer


def rows(history: list[dict], key: str) -> list[dict]:
    return [row for row in history if key in row]


def listener(hf) -> tuple[object, list[dict]]:
    """A logger as TensorBoard's: it comes before the callback, and sees what is
    logged.
    """
    heard = []

    class Listener(hf.TrainerCallback):
        def on_log(self, args, state, control, logs=None, **kwargs):
            heard.append({**logs, "step": state.global_step})

    return Listener(), heard


def warned(caplog) -> list[str]:
    """What the callback warned of."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == "bayeslaw.callbacks"
    ]


# -- one domain ------------------------------------------------------------------------


@needs_hf
def test_what_is_logged_is_what_a_plain_loop_knows(hf, callback, train):
    """The same numbers, in the log's history and in a logger that comes first."""
    logger, heard = listener(hf)
    trainer = train([logger])
    callback(start(max_loss=3.6), tokens_per_step=PER_STEP).attach(trainer)
    trainer.train()
    logged = rows(trainer.state.log_history, "follow/decision")
    assert [row["step"] for row in logged] == [10, 20, 30]
    assert [
        {k: v for k, v in row.items() if k.startswith("follow")}
        for row in rows(heard, "follow/decision")
    ] == [{k: v for k, v in row.items() if k.startswith("follow")} for row in logged]
    follower = start(max_loss=3.6)
    measured = rows(trainer.state.log_history, "eval_loss")
    for row, told in zip(measured, logged, strict=True):
        follower = follower.after(row["step"] * PER_STEP, row["eval_loss"])
        known = follower.following()
        assert told["follow/final_median"] == known.final["median"]
        assert told["follow/final_low"] == known.final["low"]
        assert told["follow/final_high"] == known.final["high"]
        assert told["follow/probability"] == known.probability
        assert told["follow/surprise"] == known.surprise
        assert told["follow/decision"].startswith(f"{known.decision.action}: ")
    assert told["follow/final_low"] < row["eval_loss"] < told["follow/final_high"]


@needs_hf
def test_metrics_stay_as_they_are(callback, train):
    """Hyperparameter search adds them up."""
    trainer = train(max_steps=10)
    callback(start(), tokens_per_step=3 * PER_STEP).attach(trainer)
    trainer.train()
    again = trainer.evaluate()
    assert not [key for key in again if key.startswith("follow")]
    history = trainer.state.log_history
    assert len(rows(history, "eval_loss")) == 2
    (told,) = rows(history, "follow/decision")  # a step evaluated twice is one point
    assert {k.removeprefix("follow/") for k in told} - {"step", "epoch"} == KEYS


@needs_hf
def test_without_attach_the_history_alone_is_told(hf, callback, train, caplog):
    logger, heard = listener(hf)
    follow = callback(start(), tokens_per_step=PER_STEP)
    trainer = train([logger, follow])
    with caplog.at_level(logging.WARNING, "bayeslaw.callbacks"):
        trainer.train()
    assert len(rows(trainer.state.log_history, "follow/final_median")) == 3
    assert not rows(heard, "follow/final_median")
    assert ["attach(trainer)" in line for line in warned(caplog)] == [True]


@needs_hf
def test_a_callback_that_is_handed_over_can_be_attached(callback, train):
    """It is called once all the same."""
    follow = callback(start(), tokens_per_step=PER_STEP)
    trainer = train([follow])
    assert follow.attach(trainer) is follow
    trainer.train()
    assert len(rows(trainer.state.log_history, "follow/final_median")) == 3


@needs_hf
@pytest.mark.parametrize(
    ("warmup", "followed"), [(10, [10, 20, 30]), (11, [20, 30]), (25, [30])]
)
def test_the_warm_up_is_left_out(callback, train, warmup, followed):
    trainer = train(warmup_steps=warmup)
    callback(start(), tokens_per_step=PER_STEP).attach(trainer)
    trainer.train()
    logged = rows(trainer.state.log_history, "follow/final_median")
    assert [row["step"] for row in logged] == followed


@needs_hf
def test_an_evaluation_before_the_first_step_is_none(callback, train):
    trainer = train(eval_on_start=True, max_steps=10)
    callback(start(), tokens_per_step=3 * PER_STEP).attach(trainer)
    trainer.train()
    history = trainer.state.log_history
    assert [row["step"] for row in rows(history, "eval_loss")] == [0, 10]
    assert [row["step"] for row in rows(history, "follow/final_median")] == [10]


@needs_hf
def test_the_trainers_count_of_tokens_is_taken(callback, train):
    """As many as batches hold, so that both counts say the same."""
    told = []
    for tokens, counted in ((PER_STEP, False), (None, True)):
        trainer = train(include_num_input_tokens_seen=counted)
        follow = callback(start(), tokens_per_step=tokens).attach(trainer)
        trainer.train()
        told.append(places(follow))
    assert told[0] == told[1] == [640, 1280, 1920]


@needs_hf
def test_tokens_that_nobody_counts_are_asked_for(callback, train):
    trainer = train()
    callback(start()).attach(trainer)
    with pytest.raises(PlanError, match="tokens_per_step"):
        trainer.train()
    with pytest.raises(PlanError, match="tokens_per_step must be a positive"):
        callback(start(), tokens_per_step=0)


@needs_hf
@pytest.mark.parametrize(
    ("limit", "stop", "steps"), [(1.0, True, 10), (9.0, True, 30), (1.0, False, 30)]
)
def test_a_run_is_stopped_that_cannot_keep_its_limit(
    callback, train, limit, stop, steps
):
    """After its first evaluation, where that is asked for; any other goes on."""
    trainer = train()
    follower = start(max_loss=limit)
    callback(follower, tokens_per_step=PER_STEP, stop=stop).attach(trainer)
    trainer.train()
    assert trainer.state.global_step == steps
    last = rows(trainer.state.log_history, "follow/decision")[-1]
    assert last["follow/decision"].startswith("stop: ") == (limit == 1.0)


# -- several domains -------------------------------------------------------------------


@needs_hf
@pytest.mark.parametrize("named", [True, False])
def test_domains_of_one_step_are_one_point(callback, train, named):
    """Evaluation sets by domain; by any name, if it is said; others are passed over."""
    names = ("target", "source") if named else ("fi", "en")
    sets = {name: texts(seed, 8) for seed, name in enumerate((*names, "code"), 1)}
    losses = None if named else {"target": "eval_fi_loss", "source": "eval_en_loss"}
    trainer = train(evaluated=sets)
    follower = start("target", "source", max_loss={"target": 3.6})
    callback(follower, tokens_per_step=PER_STEP, losses=losses).attach(trainer)
    trainer.train()
    history = trainer.state.log_history
    logged = rows(history, "follow/decision")
    assert [row["step"] for row in logged] == [10, 20, 30]
    measured = [rows(history, f"eval_{name}_loss") for name in names]
    for target, source, told in zip(*measured, logged, strict=True):
        losses = {
            "target": target[f"eval_{names[0]}_loss"],
            "source": source[f"eval_{names[1]}_loss"],
        }
        follower = follower.after(told["step"] * PER_STEP, losses)
        known = follower.following()
        for name in ("target", "source"):
            for key in ("median", "low", "high"):
                one = known[name].final[key]
                assert told[f"follow/{name}/final_{key}"] == one
        assert told["follow/target/probability"] == known["target"].probability
        assert told["follow/probability"] == known.probability
        assert "follow/source/probability" not in told


@needs_hf
def test_a_loss_that_is_not_there_is_told(callback, train, caplog):
    """Nothing is followed, and the training goes on."""
    trainer = train()
    follower = start("target", "source")
    callback(follower, tokens_per_step=PER_STEP).attach(trainer)
    with caplog.at_level(logging.WARNING, "bayeslaw.callbacks"):
        trainer.train()
    assert not rows(trainer.state.log_history, "follow/decision")
    told = warned(caplog)
    assert [t.split(" is not")[0] for t in told] == ["step 10", "step 20", "step 30"]
    assert "no finite loss of target, source" in told[0]
    assert "eval_target_loss, eval_source_loss" in told[0]


@needs_hf
def test_losses_of_other_domains_are_refused(callback):
    with pytest.raises(PlanError, match=r"'fi'; followed: target, source"):
        callback(start("target", "source"), losses={"fi": "eval_fi_loss"})
    same = {"target": "eval_loss", "source": "eval_loss"}
    with pytest.raises(PlanError, match="two domains"):
        callback(start("target", "source"), losses=same)


# -- what goes wrong -------------------------------------------------------------------


@needs_hf
@pytest.mark.parametrize("loss", [math.nan, math.inf, 0.0])
def test_a_loss_that_cannot_be_ends_no_training(hf, callback, train, caplog, loss):
    """It is passed over, with a word; the next point is followed."""

    class Diverges(hf.TrainerCallback):
        """Runs before the callback, and spoils the loss of step 20."""

        def on_evaluate(self, args, state, control, metrics=None, **kwargs):
            if state.global_step == 20:
                metrics["eval_loss"] = loss

    trainer = train([Diverges()])
    callback(start(), tokens_per_step=PER_STEP).attach(trainer)
    with caplog.at_level(logging.WARNING, "bayeslaw.callbacks"):
        trainer.train()
    logged = rows(trainer.state.log_history, "follow/final_median")
    assert [row["step"] for row in logged] == [10, 30]
    assert ["step 20" in line for line in warned(caplog)] == [True]


@needs_hf
def test_an_end_that_differs_is_told(callback, train, caplog):
    """Tokens of a step that are twice what they were planned: evaluations after the
    planned end are no points, and end no training.
    """
    trainer = train()
    callback(start(), tokens_per_step=2 * PER_STEP).attach(trainer)
    with caplog.at_level(logging.WARNING, "bayeslaw.callbacks"):
        trainer.train()
    logged = rows(trainer.state.log_history, "follow/final_median")
    assert [row["step"] for row in logged] == [10]
    (line,) = warned(caplog)
    assert "are tokens_per_step" in line


@needs_hf
def test_a_last_step_that_is_not_whole_is_the_end(callback, train, caplog):
    trainer = train()
    follow = callback(start(), tokens_per_step=PER_STEP * 1.004).attach(trainer)
    with caplog.at_level(logging.WARNING, "bayeslaw.callbacks"):
        trainer.train()
    assert places(follow)[-1] == UNTIL
    assert not warned(caplog)


@needs_hf
def test_a_resumed_run_has_its_earlier_points(callback, train, tmp_path):
    """The Trainer's checkpoint holds its log: the whole run and the resumed one say
    the same.
    """
    whole = train(save_strategy="steps", save_steps=20)
    first = callback(start(), tokens_per_step=PER_STEP).attach(whole)
    whole.train()
    checkpoint = tmp_path / "out" / "checkpoint-20"
    state = json.loads((checkpoint / "trainer_state.json").read_text())
    assert len(rows(state["log_history"], "follow/decision")) == 2
    resumed = train()
    second = callback(start(), tokens_per_step=PER_STEP).attach(resumed)
    resumed.train(resume_from_checkpoint=str(checkpoint))
    assert places(second) == places(first) == [640, 1280, 1920]
    known = [f.follower.following().first.history["loss"] for f in (first, second)]
    assert known[0][:2].equals(known[1][:2])


@needs_hf
def test_tensorboard_is_told(callback, train, tmp_path, monkeypatch):
    """Numbers as scalars, the decision as a text, as its own reader finds them."""
    reading = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator",
        reason="needs tensorboard",
    )
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "board"))
    trainer = train(report_to=["tensorboard"])
    callback(start(), tokens_per_step=PER_STEP).attach(trainer)
    trainer.train()
    board = reading.EventAccumulator(str(tmp_path / "board")).Reload()
    logged = rows(trainer.state.log_history, "follow/final_median")
    shown = board.Scalars("train/follow/final_median")
    assert [one.step for one in shown] == [10, 20, 30]
    np.testing.assert_allclose(
        [one.value for one in shown],
        [row["follow/final_median"] for row in logged],
        rtol=1e-6,
    )
    assert "train/follow/decision/text_summary" in board.Tags()["tensors"]


# -- without transformers --------------------------------------------------------------


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_without_transformers_one_line_says_what_to_install():
    told = run(
        "import sys; sys.modules['transformers'] = None\n"
        "try: import bayeslaw.callbacks\n"
        "except ModuleNotFoundError as error: print(error, error.__suppress_context__)"
    )
    assert told.endswith('needs the extra: pip install "bayeslaw[hf]" True')
    assert "\n" not in told


def test_the_package_imports_no_transformers():
    """Nor does following."""
    told = run(
        "import bayeslaw, sys, bayeslaw._running.following.follow\n"
        "print(*{'torch', 'transformers', 'accelerate'} & set(sys.modules))"
    )
    assert not told

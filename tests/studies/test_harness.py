"""The harness that measures runs: the same rows by seed, and after a kill; a table that bayeslaw reads; no leak."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("equinox", reason="training needs equinox: the extra 'train'")
pytest.importorskip("optax", reason="training needs optax: the extra 'train'")

import jax
import jax.numpy as jnp
import typer
from harness import debian_text, train, work
from harness.__main__ import main
from harness.adaptation import (
    Adaptation,
    at_replays,
    simplex_mixtures,
    varied,
)
from harness.corpus import read_corpus
from harness.grid import Grid, measure
from harness.grids import GRIDS
from harness.model import SIZES, Decoder, parameters
from harness.plan import train_plan
from harness.table import COLUMNS, Checkpoint, Table
from harness.work import open_work

import bayeslaw
from bayeslaw import RunTableError, datasets

GRID = Grid(
    cells=(("12k", 0),),
    stages=(0.5, 1.0),
    adaptations=at_replays((0.25, 0.75)),
    ladder=(0.25, 0.5, 1.0),
)
FILES, FILE_WORDS = 100, 2400


def write_text(folder: Path, alphabet: str, seed: int) -> Path:
    """Files of made-up words; each domain has its own letters and words."""
    rng = np.random.default_rng(seed)
    lexicon = [
        "".join(rng.choice(list(alphabet), rng.integers(2, 9))) for _ in range(300)
    ]
    folder.mkdir(parents=True)
    for i in range(FILES):
        words = rng.choice(lexicon, FILE_WORDS)
        (folder / f"{i}.txt").write_text(" ".join(words) + f"\nfile {i}\n")
    return folder


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    return write_text(folder / "source", "abcdefgh", 1), write_text(
        folder / "target", "opqrstuv", 2
    )


@pytest.fixture(scope="module")
def measured(text, tmp_path_factory):
    """The grid measured without interruption: its states, and its table."""
    folder = tmp_path_factory.mktemp("measured")
    states = open_work(*text, folder / "work")
    measure(GRID, states, folder / "runs.csv")
    return states, folder / "runs.csv"


@pytest.mark.parametrize(
    ("size", "count"),
    [
        ("12k", 12_368),
        ("23k", 23_160),
        ("54k", 53_960),
        ("123k", 123_200),
        ("259k", 258_528),
        ("0.26M", 258_528),
        ("0.55M", 553_680),
        ("0.96M", 959_424),
        ("2.1M", 2_102_688),
        ("4.0M", 3_995_600),
    ],
)
def test_sizes_have_the_parameters_they_are_named_by(size, count):
    arrays = [
        x
        for x in jax.tree.leaves(Decoder(SIZES[size].width, jax.random.key(0)))
        if isinstance(x, jax.Array)
    ]
    assert parameters(size) == count == sum(x.size for x in arrays)
    assert size in (f"{round(count / 1000)}k", f"{count / 1e6:.2}M")


def test_a_byte_is_predicted_from_those_before_it_only():
    decoder = Decoder(16, jax.random.key(0))
    one = jnp.arange(20) + 60
    other = one.at[12:].set(90)
    a, b = decoder(one), decoder(other)
    np.testing.assert_allclose(a[:12], b[:12], atol=1e-6)
    assert float(jnp.abs(a[12:] - b[12:]).max()) > 1e-3


def test_nothing_of_a_validation_file_is_trained_on(tmp_path):
    folder = write_text(tmp_path / "text", "abc", 3)
    (folder / "copy.md").write_text((folder / "7.txt").read_text())
    corpus = read_corpus(folder, context=128, windows=8)
    trained = corpus.train.tobytes()
    assert corpus.files == FILES - 5  # the copy counts once
    assert corpus.validation_files == 5
    assert corpus.validation.shape == (8, 129)
    for window in corpus.validation:
        assert window.tobytes() not in trained


def test_text_that_is_not_there_or_too_little_is_refused(tmp_path):
    with pytest.raises(RunTableError, match="no text files"):
        read_corpus(tmp_path, context=128, windows=8)
    for i in range(3):
        (tmp_path / f"{i}.txt").write_text(f"{i} " * 200)
    with pytest.raises(RunTableError, match="leave room for"):
        read_corpus(tmp_path, context=128, windows=8)


BOUNDARY, AVAILABLE = 1000, 1000  # bytes of source and of target text


def drawn_windows(adaptation: Adaptation, steps: int) -> np.ndarray:
    """Windows of each step of a run of so many: the source's bytes are 0, the target's
    count up from 1; shape (step, window, byte).
    """
    target = jnp.arange(AVAILABLE) // 10 + 1  # 1 to 100
    text = jnp.concatenate([jnp.zeros(BOUNDARY), target]).astype(jnp.uint8)
    courses = train.courses("12k", 5, 15.0, [adaptation], steps, (AVAILABLE,))
    course = jax.tree.map(lambda x: x[0], courses)
    begins = jnp.array([BOUNDARY])
    drawn = jax.vmap(lambda step: train.batch(text, begins, course, step, 4))
    return np.asarray(drawn(jnp.arange(steps)))


@pytest.mark.parametrize("replay", [0.05, 0.25, 0.5, 1.0])
def test_the_share_of_source_windows_is_the_replay(replay):
    drawn = drawn_windows(Adaptation(replay), 100)
    from_source = (drawn[..., 0] == 0).reshape(-1)
    assert abs(int(from_source.sum()) - replay * from_source.size) <= 1
    # no window crosses from one domain into the other
    assert ((drawn == 0) == (drawn[..., :1] == 0)).all()


@pytest.mark.parametrize("adaptation", simplex_mixtures(("fr", "de")))
@pytest.mark.parametrize("steps", [25, 400])
def test_the_shares_of_several_targets_are_those_of_the_mixture(adaptation, steps):
    """Within a window or two over a short run and a long one; no window crosses."""
    lengths = (BOUNDARY, 800, 900)
    text = np.repeat(np.arange(3, dtype=np.uint8), lengths)
    begins = jnp.cumsum(jnp.array(lengths[:-1]))
    courses = train.courses("12k", 5, 15.0, [adaptation], steps, lengths[1:])
    course = jax.tree.map(lambda x: x[0], courses)
    places = jnp.arange(steps)
    drawn = jax.vmap(
        lambda step: train.batch(jnp.asarray(text), begins, course, step, 4)
    )(places)
    assert (drawn == drawn[..., :1]).all()
    counts = np.bincount(np.asarray(drawn[..., 0]).reshape(-1), minlength=3)
    shares = [adaptation.replay, *dict(adaptation.mixture).values()]
    assert np.abs(counts - 4 * steps * np.array(shares)).max() <= 2


def test_a_mixture_is_measured_on_every_domain(text, tmp_path):
    """Rows for each domain, with the shares; a domain is learned best where it has most; folders of other names
    are refused.
    """
    third = write_text(tmp_path / "third", "ijklmn", 3)
    names = {"target": text[1], "third": third}
    states = open_work(text[0], names, tmp_path / "work")
    shares = ((0.1, 0.8, 0.1), (0.1, 0.1, 0.8))
    mixtures = tuple(
        Adaptation(source, mixture=tuple(zip(names, others, strict=True)))
        for source, *others in shares
    )
    grid = Grid((("12k", 0),), (0.5,), mixtures, (0.5, 1.0))
    measure(grid, states, tmp_path / "runs.csv")
    runs = bayeslaw.read_runs(tmp_path / "runs.csv")
    assert set(runs["domain"]) == {"source", *names}
    assert len(runs) == 2 * 2 * 3
    columns = ["share_source", "share_target", "share_third"]
    assert set(map(tuple, runs[columns].to_numpy().round(6))) == set(shares)
    last = runs[runs["step"] == runs["step"].max()]
    for name in names:
        losses = last[last["domain"] == name].set_index(f"share_{name}")["loss"]
        assert losses.loc[0.8] < losses.loc[0.1]
    with pytest.raises(RunTableError, match="give a folder for each"):
        measure(grid, open_work(*text, tmp_path / "two"), tmp_path / "other.csv")


def test_the_share_changes_where_it_is_told():
    """Before the change the run is that of its first share, after it the second's."""
    changing = Adaptation(0.1, then=0.5, changed_at=0.25)
    drawn = drawn_windows(changing, 200)
    np.testing.assert_array_equal(drawn[:50], drawn_windows(Adaptation(0.1), 200)[:50])
    from_source = (drawn[..., 0] == 0).mean(axis=1)
    assert from_source[50:].mean() == pytest.approx(0.5, abs=0.005)
    seen = from_source.cumsum() / np.arange(1, 201)
    for step in (20, 50, 100, 200):
        told = changing.mean_replay(step, 200)
        assert told == pytest.approx(seen[step - 1], abs=0.01)


def test_repeated_text_is_the_first_of_all_there_is():
    """Half the tokens are of the target: at four epochs, an eighth of them are unique."""
    steps = 13  # so few that the text is not all of it
    run = Adaptation(0.5, epochs=16.0)
    unique = run.unique(steps * train.tokens_per_step("12k"), steps, AVAILABLE)
    assert unique == round(0.5 * steps * 512 / 16)
    largest = drawn_windows(run, steps).max()
    assert largest <= (unique - 1) // 10 + 1
    assert drawn_windows(Adaptation(0.5), steps).max() > 2 * largest
    # more than there is cannot be asked for
    assert run.unique(10**6, steps, AVAILABLE) == AVAILABLE


def test_the_rate_scales_every_step(text, tmp_path):
    """A first step at double the rate moves the weights twice as far; at once, what
    others do beside it changes nothing.
    """
    states = open_work(*text, tmp_path / "work")
    trainer = states.trainer("12k")
    begun = trainer.fresh(0)
    adaptations = [Adaptation(0.5), Adaptation(0.5, rate=2.0)]
    courses = train.courses("12k", 0, 1.0, adaptations, 9, states.available)
    # the warm-up's first rate is 0
    moved = trainer.train(trainer.branch(begun, 2), courses, 2)
    for before, after in zip(
        jax.tree.leaves(begun.weights), jax.tree.leaves(moved.weights), strict=True
    ):
        change = np.asarray(after) - np.asarray(before)
        np.testing.assert_allclose(change[1], 2 * change[0], atol=2e-6)
        assert np.abs(change[0]).max() > 1e-5


def test_tables_tell_what_their_runs_vary(text, tmp_path):
    """Phases, rates and repeats have columns of their own; what is done beside a plain
    run does not change it, and a table is of one grid.
    """
    plain = Adaptation(0.25)
    other = Adaptation(0.25, then=0.5, changed_at=0.5, rate=2.0, epochs=4.0)
    grid = Grid((("12k", 0),), (0.5,), (plain, other), (0.5, 1.0))
    states = open_work(*text, tmp_path / "work")
    measure(grid, states, tmp_path / "varied.csv")
    alone = replace(grid, adaptations=(plain,))
    measure(alone, states, tmp_path / "plain.csv")
    runs = bayeslaw.read_runs(tmp_path / "varied.csv").query("domain == 'target'")
    last = runs[runs["step"] == 24].set_index("run")
    usual, changed = (last.loc[f"12k-s0-ptpp0.5-{a.name}"] for a in (plain, other))
    assert changed.name.endswith("-r0.25-r0.5-at0.5-x2-e4")
    assert changed["replay"] == pytest.approx(0.375)
    assert (changed["replay_first"], changed["replay_then"]) == (0.25, 0.5)
    assert (usual["replay"], usual["replay_then"], usual["rate"]) == (0.25, 0.25, 1.0)
    assert (changed["changed_at"], changed["rate"]) == (0.5, 2.0)
    assert changed["epochs"] == pytest.approx(4.0, rel=1e-3)
    assert changed["D"] / changed["U"] == pytest.approx(changed["epochs"], rel=1e-3)
    assert (usual["unique_target"],) == states.available
    assert changed["loss"] != usual["loss"]
    by_itself = pd.read_csv(tmp_path / "plain.csv").query("domain == 'target'")
    assert "rate" not in by_itself
    np.testing.assert_allclose(
        by_itself["loss"], runs[runs["run"] == usual.name]["loss"], rtol=1e-5
    )
    with pytest.raises(RunTableError, match="not a table of this harness and grid"):
        measure(alone, states, tmp_path / "varied.csv")


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"replay": 1.5}, "at most 1"),
        ({"replay": 0.5, "then": -0.1}, "at least 0"),
        ({"replay": 0.5, "rate": 0.0}, "above 0"),
        ({"replay": 0.5, "epochs": 0.0}, "above 0"),
        ({"replay": 0.5, "mixture": (("fr", 0.2), ("de", 0.2))}, "sum to 0.9, not 1"),
        ({"replay": 0.5, "mixture": (("fr", 0.5),), "then": 0.1}, "keeps its shares"),
    ],
)
def test_adaptations_that_are_none_are_refused(told, says):
    with pytest.raises(RunTableError, match=says):
        Adaptation(**told)


def test_the_share_of_source_windows_stays_on_long_runs():
    """After a million windows it is still a twentieth; in floats it had become a tenth."""
    target = jnp.ones(AVAILABLE)
    text = jnp.concatenate([jnp.zeros(BOUNDARY), target]).astype(jnp.uint8)
    courses = train.courses("2.1M", 0, 15.0, [Adaptation(0.05)], 40_000, (AVAILABLE,))
    course = jax.tree.map(lambda x: x[0], courses)
    steps = 31_000 + jnp.arange(100)
    begins = jnp.array([BOUNDARY])
    drawn = jax.vmap(lambda step: train.batch(text, begins, course, step, 32))(steps)
    from_source = (drawn[..., 0] == 0).reshape(-1)
    assert abs(int(from_source.sum()) - 0.05 * from_source.size) <= 1


def test_stages_packed_together_give_the_rows_of_stages_alone(text, measured, tmp_path):
    states = open_work(*text, tmp_path / "work")
    measure(replace(GRID, packed=True), states, tmp_path / "packed.csv")
    keys = ["run", "step", "domain"]
    packed, alone = (
        pd.read_csv(path).set_index(keys).sort_index()
        for path in (tmp_path / "packed.csv", measured[1])
    )
    pd.testing.assert_frame_equal(packed, alone, rtol=1e-5)


def test_the_average_is_the_power_average():
    """Weights of steps 1..T proportional to t^7, up to terms of order 1/T."""
    steps = np.arange(1, 401)
    shares = np.asarray(train.average_share(jnp.asarray(steps)), float)
    weights = shares * np.append(np.cumprod((1 - shares)[::-1])[::-1][1:], 1.0)
    assert weights.sum() == pytest.approx(1, abs=1e-5)
    assert np.average(steps, weights=weights) == pytest.approx(400 * 8 / 9, rel=0.01)


def test_the_table_is_complete_and_bayeslaw_reads_it(measured):
    runs = bayeslaw.read_runs(measured[1])
    assert tuple(runs.columns) == COLUMNS
    n = parameters("12k")
    assert len(runs) == 2 * 2 * 3 * 2
    assert not runs.duplicated(["run", "step", "domain"]).any()
    assert set(runs["D"]) == {512.0 * s for s in (6, 12, 24)}
    np.testing.assert_allclose(runs["cost"], 6 * n * runs["D"])
    source = runs[runs["domain"] == "source"]
    assert (source["loss_before"] == source["source_loss_before"]).all()
    target = runs[runs["domain"] == "target"]
    assert (
        target["loss_before"] > target["source_loss_before"]
    ).all()  # it has seen the source only
    assert (target["loss"] < target["loss_before"]).all()
    late = target[target["step"] == 24].set_index(["ptpp", "replay"])["loss"]
    assert (
        late.xs(0.25, level="replay") < late.xs(0.75, level="replay")
    ).all()  # more target text, lower target loss


def test_adaptation_starts_from_the_checkpoint(measured):
    """Losses before are those of the saved states, and of a branch that has not moved."""
    states, path = measured
    checkpoint = Checkpoint("12k", 0, 1.0)
    trainer = states.trainer("12k")
    state = train.load(states.saved(checkpoint), trainer.fresh(0))
    assert int(state.step[0]) == train.steps_for("12k", parameters("12k"))
    (saved,) = work.losses(trainer, state)
    branched = work.losses(trainer, trainer.branch(state, 2))
    before = (
        pd.read_csv(path).query("ptpp == 1").groupby("domain")["loss_before"].first()
    )
    for domain in ("source", "target"):
        assert saved[domain] == pytest.approx(before[domain], abs=1e-6)
        assert [b[domain] for b in branched] == pytest.approx(
            [saved[domain]] * 2, abs=1e-6
        )


def test_the_seed_decides_everything(text, measured, tmp_path):
    """Same seed: the same rows, again and stage by stage; another seed: others."""
    one = Grid(
        cells=(("12k", 0), ("12k", 1)),
        stages=(0.5,),
        adaptations=at_replays((0.25, 0.75)),
        ladder=(0.25, 0.5),
    )
    states = open_work(*text, tmp_path / "work")
    measure(one, states, tmp_path / "runs.csv")
    keys = ["seed", "run", "step", "domain"]
    again = pd.read_csv(tmp_path / "runs.csv").set_index(keys)["loss"]
    first = (
        pd.read_csv(measured[1])
        .query("ptpp == .5 and step < 20")
        .set_index(keys)["loss"]
    )
    pd.testing.assert_series_equal(again.xs(0, drop_level=False), first, rtol=1e-6)
    other = again.xs(1).to_numpy()
    assert np.abs(other - first.to_numpy()).min() > 1e-5


def test_after_a_kill_the_same_rows(text, measured, tmp_path):
    """Killed for good while it measures, with half a row written: what was there stays, what was not is measured."""
    output = tmp_path / "runs.csv"
    command = [sys.executable, "-m", "harness", "--source", text[0], "--target", text[1], "-o", output,
               "--sizes", "12k", "--stages", ".5,1", "--replay", ".25,.75", "--ladder", ".25,.5,1"]  # fmt: skip
    process = subprocess.Popen(
        list(map(str, command)), stderr=subprocess.PIPE, cwd=Path(__file__).parent
    )
    deadline = time.monotonic() + 300
    while not (output.exists() and output.read_text().count("\n") > 6):
        assert process.poll() is None, process.stderr and process.stderr.read().decode()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    there = output.read_text()
    assert there.endswith("\n")
    assert 5 < there.count("\n") - 1 < 24, "it was to be killed half-way"
    with output.open("a") as stream:
        stream.write("12k-s0-ptpp0.5-r0.2")

    measure(GRID, open_work(*text, output.with_suffix(".work")), output)
    assert output.read_text().startswith(there)
    keys = ["run", "step", "domain"]
    resumed, whole = (
        pd.read_csv(p).set_index(keys).sort_index() for p in (output, measured[1])
    )
    pd.testing.assert_frame_equal(resumed, whole, rtol=1e-5)
    assert not list(output.with_suffix(".work").glob("*.part.eqx"))


def test_training_goes_on_from_the_last_saved_state(text, tmp_path):
    """Stopped between two measurements, an adaptation takes up its saved state: fewer steps are trained the second time."""
    states = replace(open_work(*text, tmp_path / "work"), save_seconds=0.0)
    grid = Grid(
        cells=(("12k", 0),),
        stages=(0.25,),
        adaptations=at_replays((0.5,)),
        ladder=(0.5, 3.0),
    )

    trainer = states.trainer("12k")
    checkpoint = Checkpoint("12k", 0, 0.25)

    def stop_at(tokens):
        done = []

        def tick(n, seconds, doing):
            done.append(n)
            if sum(done) >= tokens:
                raise KeyboardInterrupt

        return tick, done

    work.pretrain(states, trainer, [checkpoint], stop_at(1e9)[0])
    steps, half = grid.steps("12k"), at_replays([0.5])
    tick, first = stop_at(60 * train.tokens_per_step("12k"))
    with pytest.raises(KeyboardInterrupt):
        list(work.adapt(states, trainer, [checkpoint], half, steps, tick))
    tick, second = stop_at(1e9)
    after_kill = list(work.adapt(states, trainer, [checkpoint], half, steps[1:], tick))
    assert 0 < sum(second) < steps[-1] * train.tokens_per_step("12k")
    assert sum(first) + sum(second) >= steps[-1] * train.tokens_per_step("12k")
    straight = list(
        work.adapt(states, trainer, [checkpoint], half, steps, stop_at(1e9)[0])
    )
    assert after_kill[-1][0] == straight[-1][0] == steps[-1]
    assert after_kill[-1][1][0] == pytest.approx(straight[-1][1][0], abs=1e-6)


def test_a_planned_run_at_a_cell_of_the_grid_gives_the_grid_s_losses(measured):
    states, path = measured
    plan = train_plan(states, "12k", 1.0, 0.25, 0.5 * parameters("12k"))
    cell = (
        pd.read_csv(path)
        .query("ptpp == 1 and replay == .25 and step == 12")
        .set_index("domain")
    )
    assert plan["D"] == cell["D"].iloc[0] == 12 * 512
    for domain in ("source", "target"):
        assert plan[f"{domain}_loss"] == pytest.approx(
            cell.loc[domain, "loss"], rel=1e-4
        )
        assert plan[f"{domain}_loss_before"] == pytest.approx(
            cell.loc[domain, "loss_before"], rel=1e-6
        )
    assert plan["forgetting"] == pytest.approx(
        plan["source_loss"] / plan["source_loss_before"] - 1
    )
    with pytest.raises(
        RunTableError, match=r"no checkpoint 12k-s7-ptpp1.*12k-s0-ptpp0.5"
    ):
        train_plan(states, "12k", 1.0, 0.25, 1000, seed=7)


def test_states_of_other_text_and_tables_in_use_are_refused(text, measured, tmp_path):
    states, path = measured
    with pytest.raises(RunTableError, match="other text or another recipe"):
        open_work(text[1], text[0], states.folder)
    with Table(path), pytest.raises(RunTableError, match="another process"):
        Table(path)
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(RunTableError, match="not a table of this harness"):
        Table(tmp_path / "other.csv")


@pytest.mark.parametrize(
    ("levels", "says"),
    [({"cells": (("9k", 0),)}, "no size '9k'"), ({"stages": (31.0, 15.0)}, "rising order"), ({"adaptations": at_replays((0.5, 0.5))}, "each once"),
     ({"ladder": ()}, "ladder"), ({"cells": (("12k", -1),)}, "seed -1")],
)  # fmt: skip
def test_levels_that_are_none_are_refused(levels, says):
    with pytest.raises(RunTableError, match=says):
        Grid(**levels)


def test_every_measured_table_has_its_grid(text, tmp_path, capsys):
    """`--table` takes the names of the bundled tables, and an unknown one is refused before anything is read."""
    measured_tables = set(datasets.TABLES) - {"simulated-ptpp-grid"}
    assert set(GRIDS) == measured_tables
    for name, grid in GRIDS.items():
        runs = datasets.load(name)
        assert {(parameters(size), seed) for size, seed in grid.cells} >= set(
            zip(runs["N"], runs["seed"], strict=True)
        )
        assert {*COLUMNS, *varied(grid.adaptations)} == set(runs.columns)
    with pytest.raises(typer.Exit):
        main(
            source=text[0],
            target=[text[1]],
            output=tmp_path / "runs.csv",
            table="nosuch",
        )
    assert (
        "no table 'nosuch'; there are: microcpt, microcpt-de" in capsys.readouterr().err
    )
    assert not list(tmp_path.iterdir())


def test_markup_goes_and_words_stay():
    page = "<html><head><title>T</title><script>x()</script></head><body><nav>menu</nav><p>One &amp; <b>two</b>.<br>Three<a class='headerlink'>#</a></p></body></html>"
    assert debian_text.html_text(page) == "One & two.\nThree\n"
    manual = '.\\" comment\n.TH LS 1\n.SH NOM\nls \\- afficher\n.B \\-l\nlong\\f[B]gras\\f[R] d\\(aqun\n'
    assert debian_text.man_text(manual) == "NOM\nls - afficher\n-l\nlonggras d'un\n"

"""Train runs with states saved in a folder: checkpoints, and runs in training.

After a kill, training goes on from the latest saved state.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from bayeslaw._base.errors import RunTableError
from bayeslaw._base.files import atomic_write
from harness import model, train
from harness.adaptation import SOURCE, TARGET, Adaptation
from harness.corpus import Corpus, read_corpus
from harness.table import Checkpoint
from harness.train import Courses, Trainer, TrainingState

# called with the tokens trained, the seconds they took, and words for the progress line
Tick = Callable[[int, float, str], None]


@dataclass(frozen=True)
class Work:
    """Corpora by domain, the source's first, and the folder in which states of training
    on them are saved every ``save_seconds``.
    """

    corpora: Mapping[str, Corpus]
    folder: Path
    save_seconds: float = 60.0

    def trainer(self, size: str) -> Trainer:
        return train.trainer(size, self.corpora)

    @property
    def available(self) -> tuple[int, ...]:
        """Bytes of training text of each target domain."""
        _, *targets = self.corpora.values()
        return tuple(len(corpus.train) for corpus in targets)

    def saved(self, checkpoint: Checkpoint) -> Path:
        return self.folder / f"{checkpoint.name}.eqx"

    def part(self, name: str) -> Path:
        return self.folder / f"{name}.part.eqx"


def open_work(
    source: str | Path,
    target: str | Path | Mapping[str, str | Path],
    folder: str | Path,
    *,
    windows: int = 512,
) -> Work:
    """Read folders of text, and open or make a folder of states.

    ``target`` is the folder of the only target domain, or the folders of several by
    name. ``windows`` is the number of validation windows of a domain.

    Raises
    ------
    RunTableError
        There is too little text, or the states in the folder come from other text or
        from another recipe.
    """
    targets = target if isinstance(target, Mapping) else {TARGET: target}
    corpora = {
        domain: read_corpus(path, context=model.LAYOUT.context, windows=windows)
        for domain, path in {SOURCE: source, **targets}.items()
    }
    recipe = _recipe(corpora, windows)
    record = Path(folder) / "recipe.json"
    if record.exists() and json.loads(record.read_text()) != recipe:
        raise RunTableError(
            f"{record}: the states there come from other text or another recipe; "
            "name another folder"
        )
    with atomic_write(record) as part:
        part.write_text(json.dumps(recipe, indent=2) + "\n")
    return Work(corpora, Path(folder))


def _recipe(corpora: dict[str, Corpus], windows: int) -> dict[str, Any]:
    """Collect the settings, besides levels and seeds, on which losses depend."""
    return {
        "text": {domain: _facts(corpus) for domain, corpus in corpora.items()},
        **train.OPTIMIZER._asdict(),
        "windows": windows,
        "context": model.LAYOUT.context,
        "layers": model.LAYOUT.layers,
        "heads": model.LAYOUT.heads,
        "sizes": {name: list(size) for name, size in model.SIZES.items()},
    }


def _facts(corpus: Corpus) -> dict[str, Any]:
    """Count and digest a corpus."""
    text = corpus.train.tobytes() + corpus.validation.tobytes()
    return {
        "files": corpus.files,
        "bytes": len(corpus.train),
        "validation_files": corpus.validation_files,
        "validation_bytes": corpus.validation_bytes,
        "sha256": hashlib.sha256(text).hexdigest(),
    }


def pretrain(
    work: Work, trainer: Trainer, stages: Sequence[Checkpoint], tick: Tick
) -> TrainingState:
    """Read the state of the last of ``stages``; if it was not saved, train it on from
    the latest state of its run.
    """
    goal = stages[-1]
    fresh = trainer.fresh(goal.seed)
    if work.saved(goal).exists():
        return train.load(work.saved(goal), fresh)
    part = work.part(f"{goal.size}-s{goal.seed}")
    until = train.steps_for(goal.size, goal.ptpp * trainer.parameters)
    # earlier stages of the run, and a state saved on the way to this one
    paths = [*map(work.saved, stages[:-1]), part]
    saved = [train.load(path, fresh) for path in paths if path.exists()]
    begun = max((s for s in saved if _step(s) <= until), key=_step, default=fresh)

    # pre-training is one run, on source text only
    runs = TrainedRuns(train.pretraining(goal.seed, work.available), part)

    def tell(tokens: int, seconds: float) -> None:
        tick(tokens, seconds, f"to ptpp {goal.ptpp:g}")

    state = _advance(trainer, begun, runs, until, tell, work.save_seconds)
    train.save(work.saved(goal), state)
    part.unlink(missing_ok=True)
    return state


def adapt(
    work: Work,
    trainer: Trainer,
    checkpoints: Sequence[Checkpoint],
    adaptations: Sequence[Adaptation],
    steps: Sequence[int],
    tick: Tick,
) -> Iterator[tuple[int, list[dict[str, float]]]]:
    """Adapt saved checkpoints of one size, each in several ways, all runs together.

    Yields each of ``steps`` with the losses of every run by domain; the runs of the
    first checkpoint come first.
    """
    begun = _stacked(
        [train.load(work.saved(c), trainer.fresh(c.seed)) for c in checkpoints]
    )
    states = trainer.branch(begun, len(adaptations))
    stages = "-".join(f"{c.ptpp:g}" for c in checkpoints[1:])
    names = [adaptation.name for adaptation in adaptations]
    part = work.part("-".join(filter(None, [checkpoints[0].name, stages, *names])))
    # a state saved beyond the first step is of no use: training cannot go back
    if part.exists():
        saved = train.load(part, states)
        states = saved if _step(saved) <= steps[0] else states
    courses = _stacked(
        [
            train.courses(
                c.size, c.seed, c.ptpp, adaptations, steps[-1], work.available
            )
            for c in checkpoints
        ]
    )
    runs = TrainedRuns(courses, part)

    def tell(tokens: int, seconds: float) -> None:
        ptpp = ", ".join(f"{c.ptpp:g}" for c in checkpoints)
        tick(tokens, seconds, f"ptpp {ptpp} adapting")

    for step in steps:
        states = _advance(trainer, states, runs, step, tell, work.save_seconds)
        # The state is saved after the losses: a kill in between only repeats them.
        yield step, losses(trainer, states)
        train.save(part, states)
    part.unlink(missing_ok=True)


def losses(trainer: Trainer, states: TrainingState) -> list[dict[str, float]]:
    """Evaluate the validation losses of each run by domain, nats per byte."""
    measured = trainer.evaluate(states)
    return [
        {domain: float(of_runs[i]) for domain, of_runs in measured.items()}
        for i in range(len(states.step))
    ]


def _stacked(trees: Sequence[Any]) -> Any:
    """Concatenate trees of arrays, leaf by leaf, along the first axis."""
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *trees)


def _step(states: TrainingState) -> int:
    return int(states.step[0])


@dataclass(frozen=True)
class TrainedRuns:
    """Runs that train together, and the file in which their states are saved meanwhile."""

    courses: Courses
    part: Path

    def __len__(self) -> int:
        return len(self.courses.key)


def _advance(
    trainer: Trainer,
    states: TrainingState,
    runs: TrainedRuns,
    until: int,
    tell: Callable[[int, float], None],
    save_seconds: float,
    *,
    first_dispatch: int = 20,
    dispatch_seconds: float = 10.0,
) -> TrainingState:
    """Train to the step ``until``, and save states on the way.

    Steps are dispatched in groups: ``first_dispatch`` steps at first, then as many as
    take about ``dispatch_seconds``. After each group ``tell`` gets the tokens and the
    seconds, and the states are saved if ``save_seconds`` have passed.
    """
    # A call with no steps only compiles, so that the speed does not count compilation.
    states = trainer.train(states, runs.courses, 0)
    at, steps = _step(states), first_dispatch
    saved = time.monotonic()
    while at < until:
        now = min(steps, until - at)
        started = time.monotonic()
        states = trainer.train(states, runs.courses, now)
        states = jax.block_until_ready(states)
        seconds = time.monotonic() - started
        at += now
        # the steps that fill the time of a group, at most twice as many as before
        in_time = int(dispatch_seconds * now / seconds)
        steps = max(first_dispatch, min(2 * steps, in_time))
        tell(now * train.tokens_per_step(trainer.size) * len(runs), seconds)
        if time.monotonic() - saved > save_seconds:
            train.save(runs.part, states)
            saved = time.monotonic()
    return states

"""The folder of saved states: checkpoints, and what is in training.

Every step on the way can be taken up again after a kill.
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
from bayeslaw.datasets.microcpt import model, train
from bayeslaw.datasets.microcpt.adaptation import SOURCE, TARGET, Adaptation
from bayeslaw.datasets.microcpt.corpus import Corpus, read_corpus
from bayeslaw.datasets.microcpt.table import Checkpoint
from bayeslaw.datasets.microcpt.train import Courses, Trainer, TrainingState

# told of tokens trained, seconds taken, and what was done
Tick = Callable[[int, float, str], None]


@dataclass(frozen=True)
class Work:
    """Corpora by domain, the source's first, and the folder of states trained on them,
    saved so often.
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
    """Read folders of text, and open a folder of states, or make it.

    ``target``: a folder, or those of several target domains by name. ``windows``:
    validation windows of a domain.

    Raises
    ------
    RunTableError
        Too little text, or the folder's states come from other text or another recipe.
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
    """What losses depend on besides levels and seeds."""
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
    """Size and digest of a corpus."""
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
    """The last of a run's stages: read, or trained on from its latest state."""
    goal = stages[-1]
    fresh = trainer.fresh(goal.seed)
    if work.saved(goal).exists():
        return train.load(work.saved(goal), fresh)
    part = work.part(f"{goal.size}-s{goal.seed}")
    until = train.steps_for(goal.size, goal.ptpp * trainer.parameters)
    # Earlier stages of the run, and what a kill left of this one.
    paths = [*map(work.saved, stages[:-1]), part]
    saved = [train.load(path, fresh) for path in paths if path.exists()]
    begun = max((s for s in saved if _step(s) <= until), key=_step, default=fresh)

    # Pre-training is one run that sees source text only.
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
    """Adapt saved checkpoints of a size, each in several ways, all together.

    Yields each of the steps with the losses there, by domain, of each run: those of the
    first checkpoint first.
    """
    begun = _stacked(
        [train.load(work.saved(c), trainer.fresh(c.seed)) for c in checkpoints]
    )
    states = trainer.branch(begun, len(adaptations))
    stages = "-".join(f"{c.ptpp:g}" for c in checkpoints[1:])
    names = [adaptation.name for adaptation in adaptations]
    part = work.part("-".join(filter(None, [checkpoints[0].name, stages, *names])))
    # Saved beyond the first step asked for, it cannot be gone back to.
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
        # Saved after its losses are taken: a kill between repeats them.
        yield step, losses(trainer, states)
        train.save(part, states)
    part.unlink(missing_ok=True)


def losses(trainer: Trainer, states: TrainingState) -> list[dict[str, float]]:
    """Validation losses of each run by domain, nats per byte."""
    measured = trainer.evaluate(states)
    return [
        {domain: float(of_runs[i]) for domain, of_runs in measured.items()}
        for i in range(len(states.step))
    ]


def _stacked(trees: Sequence[Any]) -> Any:
    """One tree of arrays, those of each tree one after another."""
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *trees)


def _step(states: TrainingState) -> int:
    return int(states.step[0])


@dataclass(frozen=True)
class TrainedRuns:
    """Runs that train together, and the file that keeps their states on the way."""

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
    """Train to a step, saving on the way.

    ``first_dispatch``: steps at once, until it is known how many fill
    ``dispatch_seconds``, after which the clock is looked at.
    """
    # No steps: only compiles, so that the speed told is the training's.
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
        # As many steps as fill the time between two looks, at most twice as many.
        in_time = int(dispatch_seconds * now / seconds)
        steps = max(first_dispatch, min(2 * steps, in_time))
        tell(now * train.tokens_per_step(trainer.size) * len(runs), seconds)
        if time.monotonic() - saved > save_seconds:
            train.save(runs.part, states)
            saved = time.monotonic()
    return states

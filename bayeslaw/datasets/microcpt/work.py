"""The folder of saved states: checkpoints, and what is in training; every step on the way can be taken up again after a kill."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from bayeslaw._errors import RunTableError
from bayeslaw._files import whole
from bayeslaw.datasets.microcpt import model, train
from bayeslaw.datasets.microcpt.corpus import Corpus, read_corpus
from bayeslaw.datasets.microcpt.table import DOMAINS, Checkpoint
from bayeslaw.datasets.microcpt.train import State, Trainer

WINDOWS = 512  # validation windows of a domain
SAVE_EVERY = 60.0  # seconds
DISPATCH = 10.0  # seconds of training between two looks at the clock
FIRST_DISPATCH = 20  # steps

Tick = Callable[[int, float, str], None]  # told of tokens trained, seconds taken, and what was done


@dataclass(frozen=True)
class Work:
    """Two corpora, and the folder of states trained on them."""

    source: Corpus
    target: Corpus
    folder: Path

    def trainer(self, size: str) -> Trainer:
        return train.trainer(size, self.source, self.target)

    def saved(self, checkpoint: Checkpoint) -> Path:
        return self.folder / f"{checkpoint.name}.eqx"

    def part(self, name: str) -> Path:
        return self.folder / f"{name}.part.eqx"


def open_work(source: str | Path, target: str | Path, folder: str | Path, *, windows: int = WINDOWS) -> Work:
    """Read two folders of text; the folder of states is made, or must have been made from them with this recipe.

    Raises
    ------
    RunTableError
        Too little text, or the folder's states come from other text or another recipe.
    """
    read = {
        domain: read_corpus(path, context=model.CONTEXT, windows=windows)
        for domain, path in zip(DOMAINS, (source, target), strict=True)
    }
    recipe, record = _recipe(read, windows), Path(folder) / "recipe.json"
    if record.exists() and json.loads(record.read_text()) != recipe:
        raise RunTableError(f"{record}: the states there come from other text or another recipe; name another folder")
    with whole(record) as part:
        part.write_text(json.dumps(recipe, indent=2) + "\n")
    return Work(read["source"], read["target"], Path(folder))


def _recipe(corpora: dict[str, Corpus], windows: int) -> dict[str, Any]:
    """What losses depend on besides levels and seeds."""
    text = {
        domain: {
            "files": c.files, "bytes": len(c.train), "validation_files": c.validation_files,
            "validation_bytes": c.validation_bytes,
            "sha256": hashlib.sha256(c.train.tobytes() + c.validation.tobytes()).hexdigest(),
        }
        for domain, c in corpora.items()
    }  # fmt: skip
    return {"text": text, "batch": train.BATCH, "rate_times_width": train.RATE, "warm_up": train.WARM_UP,
            "weight_decay": train.WEIGHT_DECAY, "average_power": train.AVERAGE_POWER, "windows": windows,
            "context": model.CONTEXT, "layers": model.LAYERS, "heads": model.HEADS, "widths": model.WIDTHS}  # fmt: skip


def pretrain(work: Work, trainer: Trainer, stages: Sequence[Checkpoint], tick: Tick) -> State:
    """The last of a run's stages: read, or trained on from the latest state there is of it."""
    goal, fresh = stages[-1], trainer.fresh(stages[-1].seed)
    if work.saved(goal).exists():
        return train.load(work.saved(goal), fresh)
    part, until = work.part(f"{goal.size}-s{goal.seed}"), train.steps_for(goal.ptpp * trainer.parameters)
    saved = [train.load(path, fresh) for path in (*map(work.saved, stages[:-1]), part) if path.exists()]
    begun = max((s for s in saved if _step(s) <= until), key=_step, default=fresh)
    everything, keys = jnp.ones(1, jnp.float32), train.run_key(goal.seed)[None]
    state = _advance(trainer, begun, everything, keys, until, part, lambda n, s: tick(n, s, f"to ptpp {goal.ptpp:g}"))
    train.save(work.saved(goal), state)
    part.unlink(missing_ok=True)
    return state


def adapt(
    work: Work, trainer: Trainer, checkpoint: Checkpoint, replays: Sequence[float], steps: Sequence[int], tick: Tick
) -> Iterator[tuple[int, list[dict[str, float]]]]:
    """Adapt a saved checkpoint at several replays together; at each of the steps, its losses for each replay, by domain."""
    begun = train.load(work.saved(checkpoint), trainer.fresh(checkpoint.seed))
    states = trainer.branch(begun, len(replays))
    part = work.part("-".join([checkpoint.name, *(f"r{r:g}" for r in replays)]))
    if part.exists():
        saved = train.load(part, states)
        states = saved if _step(saved) <= steps[0] else states
    shares, keys = jnp.asarray(replays, jnp.float32), train.run_keys(checkpoint.seed, checkpoint.ptpp, replays)
    for step in steps:
        states = _advance(
            trainer, states, shares, keys, step, part, lambda n, s: tick(n, s, f"ptpp {checkpoint.ptpp:g} adapting")
        )
        yield step, losses(trainer, states)
        train.save(part, states)
    part.unlink(missing_ok=True)


def losses(trainer: Trainer, states: State) -> list[dict[str, float]]:
    """Validation losses of each run by domain, nats per byte."""
    measured = trainer.evaluate(states)
    return [{domain: float(measured[domain][i]) for domain in DOMAINS} for i in range(len(states.step))]


def _step(states: State) -> int:
    return int(states.step[0])


def _advance(
    trainer: Trainer, states: State, replays: jax.Array, keys: jax.Array, until: int, part: Path,
    tick: Callable[[int, float], None],
) -> State:  # fmt: skip
    """Train to a step, saving every minute on the way."""
    states = trainer.train(states, replays, keys, 0)  # compiles, so that the speed told is the training's
    saved, at, steps = time.monotonic(), _step(states), FIRST_DISPATCH
    while at < until:
        started, now = time.monotonic(), min(steps, until - at)
        states = jax.block_until_ready(trainer.train(states, replays, keys, now))
        seconds = time.monotonic() - started
        at += now
        steps = max(FIRST_DISPATCH, min(2 * steps, int(DISPATCH * now / seconds)))
        tick(now * train.TOKENS_PER_STEP * len(replays), seconds)
        if time.monotonic() - saved > SAVE_EVERY:
            train.save(part, states)
            saved = time.monotonic()
    return states

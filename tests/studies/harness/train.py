"""Train runs of one size by AdamW at a constant rate, and evaluate averaged weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from bayeslaw._base.files import atomic_write
from harness.adaptation import Adaptation
from harness.corpus import Corpus
from harness.model import LAYOUT, SIZES, Decoder, loss, parameters


class Optimizer(NamedTuple):
    """Settings that all runs share."""

    rate_times_width: float = (
        0.04  # learning rate times width, for a batch of one window
    )
    warm_up: int = 10  # steps
    weight_decay: float = 0.01
    # the average weighs step t by t^7, which is about the last eighth of a run
    average_power: float = 7.0


OPTIMIZER = Optimizer()


class TrainingState(NamedTuple):
    """State of runs in training; every array has shape (run, ...)."""

    weights: Any  # the arrays of a Decoder
    average: Any
    optimizer: Any
    step: Array


class Courses(NamedTuple):
    """Training schedules of runs: their data and learning rates. Arrays have shape
    (run,) unless another one is given.

    Parameters
    ----------
    key
        Random key of the order of the data.
    replay, then, change
        Share of source windows: ``replay`` before the step ``change``, ``then`` after.
    rate
        Factor on the usual learning rate.
    unique
        Bytes at the beginning of each target's text from which windows are drawn; shape
        (run, target).
    within
        Ends of the targets' parts in all target windows, 0 to 1. The last part ends at
        1, which is left out; shape (run, target - 1).
    """

    key: Array
    replay: Array
    then: Array
    change: Array
    rate: Array
    unique: Array
    within: Array


class Trainer(NamedTuple):
    """Pure functions that train one size, compiled once for each number of runs.

    ``fresh(seed)`` starts one run. ``branch(state, runs)`` starts ``runs`` adaptations
    from the averaged weights of one run. ``train(states, courses, steps)`` trains for
    ``steps`` steps; it donates ``states``, which cannot be used afterwards.
    ``evaluate(states)`` computes the losses of the averaged weights, nats per byte, as
    domain -> shape (run,).
    """

    size: str
    parameters: int
    fresh: Callable[[int], TrainingState]
    branch: Callable[[TrainingState, int], TrainingState]
    train: Callable[[TrainingState, Courses, int], TrainingState]
    evaluate: Callable[[TrainingState], dict[str, np.ndarray]]


def trainer(size: str, corpora: Mapping[str, Corpus]) -> Trainer:
    """Make the trainer of one size on corpora by domain, the source's first."""
    texts = [jnp.asarray(corpus.train) for corpus in corpora.values()]
    text = jnp.concatenate(texts)
    ends = np.cumsum([len(t) for t in texts], dtype=np.int32)
    boundaries = jnp.asarray(ends[:-1])
    # four batches are evaluated together
    together = (-1, 4 * SIZES[size].batch, LAYOUT.context + 1)
    windows = {
        domain: jnp.asarray(corpus.validation, jnp.int32).reshape(together)
        for domain, corpus in corpora.items()
    }

    def fresh(seed: int) -> TrainingState:
        return _fresh(jax.random.key(np.uint32(seed)), size=size)

    def branch(state: TrainingState, runs: int) -> TrainingState:
        return _branch(state.average, size=size, runs=runs)

    def train(states: TrainingState, courses: Courses, steps: int) -> TrainingState:
        return _train(states, courses, text, boundaries, jnp.int32(steps), size=size)

    def evaluate(states: TrainingState) -> dict[str, np.ndarray]:
        return {
            domain: np.asarray(_losses(states.average, windows[domain], size=size))
            for domain in windows
        }

    return Trainer(size, parameters(size), fresh, branch, train, evaluate)


@cache
def _optimizer(size: str) -> optax.GradientTransformation:
    """Make AdamW with clipped gradients, a warm-up, and a rate by the size's width and
    batch.
    """
    # The rate is proportional to sqrt(batch) / width, so that all sizes share one
    # number.
    rate = OPTIMIZER.rate_times_width * SIZES[size].batch ** 0.5 / SIZES[size].width
    schedule = optax.linear_schedule(0.0, rate, OPTIMIZER.warm_up)
    decay = OPTIMIZER.weight_decay
    adamw = optax.adamw(schedule, b1=0.9, b2=0.99, weight_decay=decay)
    return optax.chain(optax.clip_by_global_norm(1.0), adamw)


@cache
def _skeleton(size: str) -> Any:
    """Make a decoder without its arrays."""
    shapes = eqx.filter_eval_shape(Decoder, SIZES[size].width, jax.random.key(0))
    return eqx.filter(shapes, lambda x: not isinstance(x, jax.ShapeDtypeStruct))


def _start(size: str, weights: Any) -> TrainingState:
    # The average is a copy, because `_train` cannot donate the same array twice.
    average = jax.tree.map(jnp.copy, weights)
    return TrainingState(weights, average, _optimizer(size).init(weights), jnp.int32(0))


@partial(jax.jit, static_argnames="size")
def _fresh(key: Array, *, size: str) -> TrainingState:
    state = _start(size, eqx.filter(Decoder(SIZES[size].width, key), eqx.is_array))
    return jax.tree.map(lambda x: x[None], state)


@partial(jax.jit, static_argnames=("size", "runs"))
def _branch(average: Any, *, size: str, runs: int) -> TrainingState:
    weights = jax.tree.map(lambda x: jnp.repeat(x, runs, axis=0), average)
    return jax.vmap(lambda w: _start(size, w))(weights)


@partial(jax.jit, static_argnames="size", donate_argnames="states")
def _train(
    states: TrainingState,
    courses: Courses,
    text: Array,
    boundaries: Array,
    steps: Array,
    *,
    size: str,
) -> TrainingState:
    """Train all runs for ``steps`` steps.

    ``steps`` is traced, so that one compiled loop serves any number of steps.
    """
    optimizer = _optimizer(size)

    def of_run(state: TrainingState, course: Courses) -> TrainingState:
        windows = batch(text, boundaries, course, state.step, SIZES[size].batch)

        def score(weights: Any) -> Array:
            precise = jax.tree.map(lambda x: x.astype(SIZES[size].precision), weights)
            return loss(eqx.combine(precise, _skeleton(size)), windows)

        gradient = jax.grad(score)(state.weights)
        change, memory = optimizer.update(gradient, state.optimizer, state.weights)
        # Both parts of AdamW's change are proportional to the rate.
        change = jax.tree.map(lambda x: course.rate * x, change)
        weights = optax.apply_updates(state.weights, change)
        share = average_share(state.step + 1)
        average = optax.incremental_update(weights, state.average, share)
        return TrainingState(weights, average, memory, state.step + 1)

    def of_all(_: Array, states: TrainingState) -> TrainingState:
        return jax.vmap(of_run)(states, courses)

    return jax.lax.fori_loop(0, steps, of_all, states)


@partial(jax.jit, static_argnames="size")
def _losses(averages: Any, windows: Array, *, size: str) -> Array:
    """Compute the loss of each run, shape (run,), one part of the windows at a time."""

    def of_run(weights: Any) -> Array:
        decoder = eqx.combine(weights, _skeleton(size))
        return jax.lax.map(lambda part: loss(decoder, part), windows).mean()

    # By default a GPU would round the factors of products to ten bits.
    with jax.default_matmul_precision("highest"):
        return jax.lax.map(of_run, averages)


def average_share(step: Array) -> Array:
    """Compute the share of the newest weights in the average: ``1 - (1 - 1/t)^8``.

    This is the power-function average of Karras et al. 2024, section 3.1. Its window
    grows with the run, so that the average at any step approximates weights whose
    learning rate was annealed by that step.
    """
    power = OPTIMIZER.average_power + 1
    return -jnp.expm1(power * jnp.log1p(-1 / step.astype(jnp.float32)))


def batch(
    text: Array,
    boundaries: Array,
    course: Courses,
    step: Array,
    windows: int,
    golden: int = 2_654_435_769,
) -> Array:
    """Draw the windows of one step at random places, shape (window, context + 1).

    The target texts begin at ``boundaries`` of the text, shape (target,); the source
    text is before the first. Windows are numbered, and the number of a window decides
    its domain. With one target, every 1/replay-th window is from the source, so that
    the share of source windows is exact in any part of a run. With several targets,
    each window moves on by the ``golden`` section of a circle of 2^32 (Knuth 1998,
    section 6.4), which visits the arcs of all domains evenly.
    """
    replay = jnp.where(step < course.change, course.replay, course.then)
    # Window t is from the source where t * replay passes a whole number. The circle is
    # 32-bit integers, which wrap around exactly. Floats would round, and on long runs
    # the share would be wrong.
    offset = jax.random.uniform(jax.random.fold_in(course.key, 0), dtype=jnp.float32)
    turn = step * windows + jnp.arange(windows, dtype=jnp.int32)
    whole_turn = 2.0**32
    part = (replay * whole_turn).astype(jnp.uint32)
    start = (offset * whole_turn).astype(jnp.uint32)
    targets = len(boundaries)
    pace = part if targets == 1 else jnp.uint32(golden)
    passed = turn.astype(jnp.uint32) * pace + start
    from_source = (passed < part) | (replay >= 1)
    beyond = (passed - part).astype(jnp.float32) / ((1 - replay) * whole_turn)
    # which target, by the window's place in the part of the circle after the source
    which = jnp.sum(beyond[:, None] >= course.within[None, :], axis=1)
    k1, k2 = jax.random.split(jax.random.fold_in(course.key, step + 1))
    in_source = jax.random.randint(
        k1, (windows,), 0, boundaries[0] - LAYOUT.context, jnp.int32
    )
    last = boundaries + course.unique - LAYOUT.context
    in_target = jax.random.randint(
        k2, (windows,), boundaries[which], last[which], jnp.int32
    )
    first = jnp.where(from_source, in_source, in_target)  # (window,)
    window = jnp.arange(LAYOUT.context + 1, dtype=jnp.int32)
    places = first[:, None] + window[None, :]
    return text[places].astype(jnp.int32)


def run_key(seed: int, ptpp: float = 0.0, replay: float = 1.0) -> Array:
    """Make the random key of a run's data order: from its seed, and for an adaptation
    from its stage and replay, too.
    """
    # only integers can be folded in: ptpp in thousandths, replay in millionths
    key = jax.random.fold_in(jax.random.key(np.uint32(seed)), 1)
    key = jax.random.fold_in(key, round(1e3 * ptpp))
    return jax.random.fold_in(key, round(1e6 * replay))


def courses(
    size: str,
    seed: int,
    ptpp: float,
    adaptations: Sequence[Adaptation],
    last: int,
    available: Sequence[int],
) -> Courses:
    """Make the training schedules of adaptations of ``last`` steps; ``available`` is
    the number of bytes of each target's text.

    Adaptations that begin with the same replay share their random numbers, so that only
    their schedules differ.
    """
    tokens = last * tokens_per_step(size)
    unique = [
        [a.unique(tokens, last, there) for there in available] for a in adaptations
    ]
    return Courses(
        key=jnp.stack([run_key(seed, ptpp, a.replay) for a in adaptations]),
        replay=jnp.asarray([a.replay for a in adaptations], jnp.float32),
        then=jnp.asarray([a.last_replay for a in adaptations], jnp.float32),
        change=jnp.asarray([a.change(last) for a in adaptations], jnp.int32),
        rate=jnp.asarray([a.rate for a in adaptations], jnp.float32),
        unique=jnp.asarray(unique, jnp.int32),
        within=jnp.asarray([a.within for a in adaptations], jnp.float32),
    )


def pretraining(seed: int, available: Sequence[int]) -> Courses:
    """Make the training schedule of one run on source text only."""
    return Courses(
        key=run_key(seed)[None],
        replay=jnp.ones(1, jnp.float32),
        then=jnp.ones(1, jnp.float32),
        change=jnp.zeros(1, jnp.int32),
        rate=jnp.ones(1, jnp.float32),
        unique=jnp.asarray([available], jnp.int32),
        within=jnp.ones((1, len(available) - 1), jnp.float32),
    )


def tokens_per_step(size: str) -> int:
    return SIZES[size].batch * LAYOUT.context


def steps_for(size: str, tokens: float) -> int:
    """Convert tokens to the nearest number of steps, at least one."""
    steps = round(tokens / tokens_per_step(size))
    return max(1, steps)


def save(path: Path, state: TrainingState) -> None:
    """Write a state to a file; an interrupted write leaves the old file."""
    with atomic_write(path) as part:
        eqx.tree_serialise_leaves(part, state)


def load(path: Path, like: TrainingState) -> TrainingState:
    """Read a state with the structure of ``like``."""
    return eqx.tree_deserialise_leaves(path, like)

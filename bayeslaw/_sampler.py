"""NUTS in the coordinates of `_geometry`, in chunks of one compiled program: progress, interruption, more draws.

Chains run side by side, one host device per core. The program depends on the law and the padded size of the table
only: another table, seed or fold of the same size compiles nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import PartitionSpec
from numpyro.infer import NUTS

from bayeslaw import _diagnostics, _geometry, _point
from bayeslaw._density import error_start, from_vector, hessian, potential, to_vector, whitening
from bayeslaw._law import Law
from bayeslaw._model import DOF_MIN, constrain_error
from bayeslaw._padding import Padded

CHUNK = 100  # iterations between two looks at the clock
TARGET_ACCEPT = 0.95  # steps are cheap in these coordinates
TREE_DEPTH = (6, 7)  # in warm-up, then: 63 and 127 steps; laws that suit their table take 20 to 40, others 1,023
SHRINKS = 3  # times the step size is halved, and the draws begun again, while too many diverge


class Problem(NamedTuple):
    """Everything the compiled program takes: table, coordinates, and the affine step (centre, scale)."""

    table: Padded
    at: _geometry.Anchors
    centre: Array
    scale: Array


class Chains(NamedTuple):
    """Draws in NumPyro's unconstrained sites, each (chain, draw); sampler statistics, each (chain, draw)."""

    sites: dict[str, np.ndarray]
    stats: dict[str, np.ndarray]


class Program(NamedTuple):
    """What one sampler does its own way, in functions of a module (their identity names the compiled program).

    ``kernel(law, problem)``: NUTS; ``first(problem, key)``: coordinates to start a chain from; ``sites(law, problem, w)``:
    what is kept of a draw.
    """

    kernel: Callable[[Law, Any], NUTS]
    first: Callable[[Any, Array], Any]
    sites: Callable[[Law, Any, Any], dict[str, Array]]


STATS = {"num_steps": "n_steps", "diverging": "diverging", "accept_prob": "acceptance_rate", "energy": "energy"}


def sites_of(law: Law, problem: Problem, w: Array) -> dict[str, Array]:
    """Whitened vector to NumPyro's unconstrained sites."""
    vector = problem.centre + problem.scale @ w
    return _geometry.to_sites(law, problem.at, from_vector(law, problem.table.shared, vector))[0]


def _kernel(law: Law, problem: Problem) -> NUTS:
    def whitened(w: Array) -> Array:
        return potential(law, problem.table, problem.at, problem.centre + problem.scale @ w)

    return NUTS(potential_fn=whitened, dense_mass=True, target_accept_prob=TARGET_ACCEPT, max_tree_depth=TREE_DEPTH)  # pyright: ignore[reportArgumentType]


def _first(problem: Problem, key: Array) -> Array:
    """Around the mode."""
    return jax.random.normal(key, problem.centre.shape)


ONE_TABLE = Program(_kernel, _first, sites_of)


def prepare(law: Law, table: Padded, at: _geometry.Anchors, seed: int) -> Problem:
    """Find the posterior's mode from many starts and the coordinates that whiten it."""
    z, noise = _point.posterior_mode(law, table, at, seed=seed)
    centre = to_vector(law, table.shared, z | error_start(table.shared, noise))
    return whitened_at(law, table, at, np.asarray(centre))


def whitened_at(law: Law, table: Padded, at: _geometry.Anchors, centre: np.ndarray) -> Problem:
    """The problem in coordinates whitened by the curvature at a vector."""
    return Problem(table, at, jnp.asarray(centre), jnp.asarray(whitening(hessian(law, table, at, centre))))


def _by_chain(f: Callable, chains: int) -> Callable:
    """Map over the leading chain axis of the last argument, spread over the host devices."""
    devices = max(d for d in range(1, len(jax.devices()) + 1) if chains % d == 0)
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:devices]), ("chain",))

    def local(problem, each):
        return jax.lax.map(partial(f, problem), each)

    spread = PartitionSpec("chain")
    return jax.shard_map(local, mesh=mesh, in_specs=(PartitionSpec(), spread), out_specs=spread, check_vma=False)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _start(program: Program, law: Law, warmup: int, problem, keys: Array):
    """First state of every chain."""

    def one(problem, key):
        spread, key = jax.random.split(key)
        w = program.first(problem, spread)
        return program.kernel(law, problem).init(key, warmup, init_params=w, model_args=(), model_kwargs={})

    return _by_chain(one, len(keys))(problem, keys)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _advance(program: Program, law: Law, warmup: int, problem, states):
    """A chunk of iterations of every chain; the new states, and draws and statistics of the chunk."""

    def one(problem, state):
        kernel = program.kernel(law, problem)
        kernel.init(state.rng_key, warmup, init_params=state.z, model_args=(), model_kwargs={})  # sets the kernel up

        def step(state, _):
            state = kernel.sample(state, (), {})
            return state, (program.sites(law, problem, state.z), {k: getattr(state, k) for k in STATS})

        return jax.lax.scan(step, state, None, length=CHUNK)

    chains = jax.tree.leaves(states)[0].shape[0]
    return _by_chain(one, chains)(problem, states)


def sample(
    law: Law,
    problem: Any,
    *,
    program: Program = ONE_TABLE,
    seed: int,
    chains: int,
    warmup: int,
    draws: int,
    max_draws: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Chains:
    """Draw from the posterior.

    While R-hat or ESS fail, ``draws`` more are added, up to ``max_draws`` a chain; while too many draws diverge, they are
    dropped and drawn again at half the step size.

    Parameters
    ----------
    problem, program
        What is sampled, and how.
    warmup, draws
        Iterations per chain, rounded up to whole chunks.
    progress
        Called with the iterations of each chain done and to do.
    """
    total = warmup + draws
    warmup, draws = (-(-n // CHUNK) * CHUNK for n in (warmup, draws))
    states = _start(program, law, warmup, problem, jax.random.split(jax.random.PRNGKey(seed), chains))
    done, shrinks, kept = 0, 0, []
    while True:
        for _ in range((draws if done else warmup + draws) // CHUNK):
            states, chunk = _advance(program, law, warmup, problem, states)
            done += CHUNK
            if done > warmup:
                kept.append(jax.tree.map(np.asarray, chunk))
            if progress:
                progress(done, max(total, done))
        sites, stats = jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *kept)
        if stats["diverging"].mean() > _diagnostics.MAX_DIVERGENT and shrinks < SHRINKS:
            step = states.adapt_state.step_size / 2
            states = states._replace(adapt_state=states.adapt_state._replace(step_size=step))
            shrinks, kept = shrinks + 1, []
            continue
        if (len(kept) * CHUNK) + draws > (max_draws or draws) or _diagnostics.are_enough(sites):
            return Chains(sites, {STATS[k]: v for k, v in stats.items()})


def draw(
    law: Law, problem: Problem, *, seed: int, chains: int, warmup: int, draws: int, max_draws: int | None = None
) -> tuple[dict[str, np.ndarray], dict]:
    """Draws of the law's values and of the error, chains one after another, each of shape (draw,); and diagnostics."""
    drawn = sample(law, problem, seed=seed, chains=chains, warmup=warmup, draws=draws, max_draws=max_draws)
    rhat, ess = _diagnostics.of_chains(drawn.sites)
    values = _values(law, problem.table, {n: v.reshape(-1) for n, v in drawn.sites.items()})
    divergences = int(drawn.stats["diverging"].sum())
    note = {"sampler": f"NUTS, R-hat {rhat:.3f}", "rhat": rhat, "ess": ess, "divergences": divergences}
    return {n: np.asarray(v) for n, v in values.items()}, note


@partial(jax.jit, static_argnums=0)
def _values(law: Law, table: Padded, sites):
    def one(u):
        error = constrain_error(u, table.shared)
        return _geometry.constrain(law, u) | error | {"dof": DOF_MIN + error["dof_above_2"]}

    return jax.vmap(one)(sites)

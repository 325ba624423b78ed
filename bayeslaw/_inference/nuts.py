"""Sample by NUTS in `coordinates`. One compiled program runs a chunk of iterations, so
that there can be progress, interruption and more draws.

Chains run side by side, one host device per core. The program depends only on the law
and the padded size of the table, so another table, seed or fold of the same size needs
no new compilation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import PartitionSpec

from bayeslaw._base.machine.runtime import WARMUP
from bayeslaw._base.programs import OFTEN, compiled
from bayeslaw._base.progress.time_left import Progress
from bayeslaw._inference import coordinates, diagnostics
from bayeslaw._inference.coordinates import ContrastPoints, Unconstrained
from bayeslaw._inference.density import (
    potential,
    sites_of,
)
from bayeslaw._inference.modes import Peak
from bayeslaw._inference.noise import error_values
from bayeslaw._inference.table import Padded
from bayeslaw._law.law import Law

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Shaped
    from numpyro import infer
    from numpyro.infer.mcmc import MCMCKernel


CHUNK = 100  # iterations between two reports of progress
TARGET_ACCEPT = 0.95  # steps are cheap in these coordinates


@dataclass(frozen=True)
class NUTS:
    """Settings of the chains.

    Parameters
    ----------
    chains
        Number of chains; they run side by side, one host device for each core.
    warmup, draws
        Iterations per chain, rounded up to whole chunks.
    max_draws
        While R-hat or ESS fail, ``draws`` more iterations are added, up to this number
        for each chain; with None there are no more.
    """

    chains: int = 4
    warmup: int = WARMUP
    draws: int = 1000
    max_draws: int | None = None


class WhitenedPosterior(NamedTuple):
    """Inputs of the compiled program for one table: the table, the runs of its
    coordinates, and the affine step.

    ``centre``: shape (coordinate,); ``scale``: shape (coordinate, coordinate).
    """

    table: Padded
    points: ContrastPoints
    centre: Float[Any, " coordinate"]
    scale: Float[Any, "coordinate coordinate"]


class Chains(NamedTuple):
    """Draws in NumPyro's unconstrained sites, each of shape (chain, draw, ...); sampler
    statistics, each (chain, draw).
    """

    sites: dict[str, Float[np.ndarray, "chain draw *site"]]
    stats: dict[str, Shaped[np.ndarray, "chain draw"]]


class Program(NamedTuple):
    """The functions in which samplers differ. They must be functions of a module,
    because programs are compiled for them.

    ``potential(law, problem)`` gives the negative log density as a function of whitened
    coordinates. ``kernel(potential)`` makes NUTS, or another kernel of NumPyro that takes
    a potential and adapts a step size. ``first(problem, key)`` chooses coordinates to
    start a chain from. ``sites(law, problem, w)`` computes the values of a draw that are
    kept.
    """

    potential: Callable[[Law, Any], Callable[[Any], Float[Array, ""]]]
    kernel: Callable[[Callable], MCMCKernel]
    first: Callable[[Any, Array], Any]
    sites: Callable[[Law, Any, Any], dict[str, Array]]


class Statistic(NamedTuple):
    """A statistic of a draw: its name in ArviZ, and its default value."""

    name: str
    default: float | bool = math.nan


# by field of a kernel's state; without ``num_steps`` a draw takes one gradient
STATS = {
    "num_steps": Statistic("n_steps", 1),
    "diverging": Statistic("diverging", False),
    "accept_prob": Statistic("acceptance_rate"),
    "energy": Statistic("energy"),
}


def _unwhiten(
    problem: WhitenedPosterior, w: Float[Array, " coordinate"]
) -> Float[Array, " coordinate"]:
    moved = problem.scale @ w
    return problem.centre + moved


def _convert_to_sites(
    law: Law, problem: WhitenedPosterior, w: Float[Array, " coordinate"]
) -> Unconstrained:
    """Convert whitened coordinates to NumPyro's unconstrained sites."""
    vector = _unwhiten(problem, w)
    return sites_of(
        law,
        problem.table,
        problem.points,
        vector,
    )


def _build_potential(
    law: Law, problem: WhitenedPosterior
) -> Callable[[Float[Array, " coordinate"]], Float[Array, ""]]:
    """Return the negative log density as a function of whitened coordinates."""

    def whitened(w: Float[Array, " coordinate"]) -> Float[Array, ""]:
        vector = _unwhiten(problem, w)
        return potential(law, problem.table, problem.points, vector)

    return whitened


def _make_kernel(potential_fn: Callable) -> infer.NUTS:
    from numpyro import infer

    # At most 63 steps a draw in warm-up and 255 afterwards. Laws that suit their table
    # take 20 to 40, heavy tails 160 to 210, others 1,023. (With at most 127 steps,
    # chains now and then stayed in a tail: R-hat 1.06.)
    depth: Any = (6, 8)
    return infer.NUTS(
        potential_fn=potential_fn,
        dense_mass=True,
        target_accept_prob=TARGET_ACCEPT,
        max_tree_depth=depth,
    )


def _choose_first_point(
    problem: WhitenedPosterior, key: Array
) -> Float[Array, " coordinate"]:
    shape = problem.centre.shape
    return jax.random.normal(key, shape)


ONE_TABLE = Program(
    _build_potential, _make_kernel, _choose_first_point, _convert_to_sites
)


def whitened_at(table: Padded, points: ContrastPoints, peak: Peak) -> WhitenedPosterior:
    """Choose the coordinates in which the posterior is about standard normal at a peak."""
    return WhitenedPosterior(table, points, centre=peak.centre, scale=peak.root)


def _by_chain(f: Callable, chains: int) -> Callable:
    """Map over the leading chain axis of the last argument, on all host devices."""
    # Every device gets the same number of chains, because all wait for the slowest.
    devices = max(d for d in range(1, len(jax.devices()) + 1) if chains % d == 0)
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:devices]), ("chain",))

    def local(problem, last):
        of_chain = partial(f, problem)
        return jax.lax.map(of_chain, last)

    spread = PartitionSpec("chain")
    return jax.shard_map(
        local,
        mesh=mesh,
        in_specs=(PartitionSpec(), spread),
        out_specs=spread,
        check_vma=False,
    )


@compiled(static_argnums=(0, 1, 2))
def _start_chains(program: Program, law: Law, warmup: int, problem, keys: Array):
    def one(problem, key):
        spread, key = jax.random.split(key)
        potential_fn = program.potential(law, problem)
        w = _move_nearer(potential_fn, program.first(problem, spread))
        return program.kernel(potential_fn).init(
            key, warmup, init_params=w, model_args=(), model_kwargs={}
        )

    return _by_chain(one, len(keys))(problem, keys)


def _move_nearer(potential_fn: Callable, w: Any) -> Any:
    """Move a start towards the mode, halving its distance until its density is defined,
    because NUTS never leaves a point of undefined density.
    """

    def at(share: Float[Array, ""]) -> Any:
        return jax.tree.map(lambda v: share * v, w)

    def is_undefined(share: Float[Array, ""]) -> Bool[Array, ""]:
        # at a smaller share the start is the mode itself
        is_far = share > 1e-3
        return ~jnp.isfinite(potential_fn(at(share))) & is_far

    share = jax.lax.while_loop(is_undefined, lambda share: share / 2, jnp.ones(()))
    return at(share)


@compiled(static_argnums=(0, 1, 2), level=OFTEN)
def _advance_chains(program: Program, law: Law, warmup: int, problem, states):
    """Advance every chain by a chunk: new states, draws and statistics."""

    def one(problem, state):
        kernel = program.kernel(program.potential(law, problem))
        # sets the kernel up
        kernel.init(
            state.rng_key, warmup, init_params=state.z, model_args=(), model_kwargs={}
        )

        def step(state, _):
            state = kernel.sample(state, (), {})
            stats = {
                statistic.name: jnp.asarray(getattr(state, field, statistic.default))
                for field, statistic in STATS.items()
            }
            sites = program.sites(law, problem, state.z)
            return state, (sites, stats)

        return jax.lax.scan(step, state, None, length=CHUNK)

    chains = jax.tree.leaves(states)[0].shape[0]
    return _by_chain(one, chains)(problem, states)


def sample(
    law: Law,
    problem: Any,
    sampler: NUTS,
    *,
    seed: int,
    program: Program = ONE_TABLE,
    progress: Progress | None = None,
    most_halvings: int = 3,
) -> Chains:
    """Draw from the posterior by NUTS.

    While R-hat or ESS fail, more draws are added; while too many draws diverge, they
    are dropped and drawn again at half the step size.

    Parameters
    ----------
    problem, program
        The posterior, and the sampler's functions.
    progress
        Called with the iterations of each chain done and to do.
    most_halvings
        Most times that the step size is halved and the draws are begun again.
    """
    # whole chunks of iterations, because the compiled program runs one chunk
    warmup, draws = _whole_chunks(sampler.warmup), _whole_chunks(sampler.draws)
    most = sampler.max_draws or draws
    total = sampler.warmup + sampler.draws
    keys = jax.random.split(jax.random.PRNGKey(seed), sampler.chains)
    states = _start_chains(program, law, warmup, problem, keys)
    done, halvings, chunks = 0, 0, []
    while True:
        for _ in range((draws if done else warmup + draws) // CHUNK):
            states, chunk = _advance_chains(program, law, warmup, problem, states)
            done += CHUNK
            if done > warmup:
                chunks.append(jax.tree.map(np.asarray, chunk))
            if progress:
                progress(done, max(total, done))
        sites, stats = jax.tree.map(
            lambda *parts: np.concatenate(parts, axis=1), *chunks
        )
        divergent = stats["diverging"].mean()
        if divergent > diagnostics.MAX_DIVERGENT and halvings < most_halvings:
            # With too long a step, chains cannot enter narrow regions. These draws are
            # biased, so none is kept.
            adapted = states.adapt_state
            adapted = adapted._replace(step_size=adapted.step_size / 2)
            states, chunks = states._replace(adapt_state=adapted), []
            halvings += 1
            continue
        is_longest = len(chunks) * CHUNK + draws > most
        if is_longest or diagnostics.are_enough(sites):
            return Chains(sites, stats)


def _whole_chunks(iterations: int) -> int:
    chunks = -(-iterations // CHUNK)  # rounded up
    return chunks * CHUNK


def draw(
    law: Law, problem: WhitenedPosterior, sampler: NUTS, *, seed: int
) -> tuple[dict[str, Float[np.ndarray, " draw"]], dict[str, Any]]:
    """Draw the law's values and the error, chains one after another, each of shape
    (draw,). Also returns a note (`refits.Refit`).
    """
    chains = sample(law, problem, sampler, seed=seed)
    rhat, ess = diagnostics.of_chains(chains.sites)
    sites = {name: v.reshape(-1) for name, v in chains.sites.items()}
    values = _convert_to_values(law, problem.table, sites)
    diverging = chains.stats["diverging"]
    note = {
        "sampler": f"NUTS, R-hat {rhat:.3f}",
        "rhat": rhat,
        "ess": ess,
        "divergences": int(diverging.sum()),
        "draws": int(diverging.size),
    }
    return {name: np.asarray(v) for name, v in values.items()}, note


@compiled(static_argnums=0)
def _convert_to_values(law: Law, table: Padded, sites):
    """Convert sites of draws to values of law and error, in one program."""

    def one(draw: Unconstrained):
        of_law = coordinates.constrain(law, draw)
        of_error = error_values(draw, table.shared)
        return of_law | of_error

    return jax.vmap(one)(sites)

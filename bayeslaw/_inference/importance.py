"""Posteriors without chains: a Student-t proposal around the mode, then mixtures of
them fitted to the weighted draws.

Importance weights with Pareto-smoothed tails; k-hat says whether they can be trusted
(Vehtari et al. 2024: below .7). One compiled program per law and padded size, as for
NUTS. What it is for: hold-out folds, resamples, designs. A posterior to report comes
from `fit`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import gammaln

from bayeslaw._base.machine.blas import one_thread
from bayeslaw._base.programs.compiled import OFTEN, ONCE, compiled
from bayeslaw._inference import coordinates
from bayeslaw._inference.coordinates import ContrastPoints, Unconstrained
from bayeslaw._inference.density import (
    at_each,
    error_start,
    from_vector,
    hessian,
    potential,
    sites_of,
    to_vector,
    whitening,
)
from bayeslaw._inference.diagnostics import (
    ENOUGH_ESS,
    GOOD_K,
    REFIT_ESS,
    TRUSTED_K,
    by_weight,
    pareto_smoothed,
)
from bayeslaw._inference.noise import error_names, error_values
from bayeslaw._inference.point import Objective, least_cost
from bayeslaw._inference.table import Padded, at_once
from bayeslaw._law.law import Law

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from bayeslaw._base.arrays import AnyArray

DRAWS = 2000  # of a round
# of proposals, each fitted to the weighted draws of those before: seconds, where chains
# took 15
ROUNDS = 36
DOF = 5.0  # of the proposal: heavier tails than the posterior's
# of the mixture that is fitted, and steps of its fit in a round
COMPONENTS, EM_STEPS = 6, 3
# of the scales found by the rounds before: tails found late spoil the weights
INFLATE = 1.6
# weight below which a draw has no say in the next proposal; most draws that have one:
# with all of them a late round would cost as much as all before it
TELLING, MOST_TELLING = 1e-6, 4000
# below which a component goes; towards the scale of all draws
LEAST_SHARE, SHRINK = 0.02, 0.1
# stop when a step gains less than this in log density
NEWTON_STEPS, TOLERANCE = 100, 1e-6
SAME = 1e-3  # difference of coordinates below which two starts are one
SHORTENED = 0.3 ** np.arange(7.0)  # of a Newton step, all tried at once
LONGEST = 10.0  # norm of a Newton step


@dataclass(frozen=True)
class Importance:
    """What is asked of a posterior without chains.

    Parameters
    ----------
    draws
        Draws of equal weight, resampled from the weighted ones.
    min_ess
        Effective draws of the weights below which it is not to be trusted.
    enough
        Effective draws of the weights above which no further round is made.
    """

    draws: int = 1000
    min_ess: float = REFIT_ESS
    enough: float = ENOUGH_ESS


class Approximation(NamedTuple):
    """Weighted draws of a posterior.

    ``vectors``: coordinates, shape (draw, coordinate); ``values``: the law's values and
    ``sigma``, ``dof`` and what else the error has, each of shape (draw,); ``weight``:
    shape (draw,), sum 1; ``k``: Pareto k-hat; ``mode``: the coordinates it was found
    at, from where a similar table can start, shape (coordinate,).
    """

    vectors: Float[np.ndarray, "draw coordinate"]
    values: dict[str, Float[np.ndarray, " draw"]]
    weight: Float[np.ndarray, " draw"]
    k: float
    mode: Float[np.ndarray, " coordinate"]

    @property
    def ess(self) -> float:
        """Effective draws of the weights."""
        if not len(self.weight):
            return 0.0
        total = np.sum(self.weight**2)
        return float(1 / total)

    def is_trusted(self, min_ess: float = 0.0) -> bool:
        has_tame_tail = self.k < TRUSTED_K
        return has_tame_tail and self.ess >= min_ess

    def chosen(self, draws: int, seed: int) -> Int[np.ndarray, " chosen"]:
        """Which draws make an equally weighted sample, shape (draws,): systematic
        resampling, in random order.
        """
        rng = np.random.default_rng(seed)
        index = by_weight(self.weight, draws, rng)
        return rng.permutation(index)

    def resample(
        self, draws: int, seed: int
    ) -> dict[str, Float[np.ndarray, " chosen"]]:
        """Values of equal weight, each of shape (draws,)."""
        chosen = self.chosen(draws, seed)
        return {name: v[chosen] for name, v in self.values.items()}


def _telling(
    weight: Float[np.ndarray, " draw"], rng: np.random.Generator
) -> tuple[Int[np.ndarray, " told"], Float[np.ndarray, " told"]]:
    """Which draws have a say in the next proposal, shape (told,), and their weights."""
    index = np.flatnonzero(weight > TELLING)
    told = weight[index] / weight[index].sum()
    if len(index) <= MOST_TELLING:
        return index, told
    chosen = by_weight(told, MOST_TELLING, rng)
    kept, times = np.unique(chosen, return_counts=True)
    return index[kept], times / MOST_TELLING


@one_thread()
def approximate(
    law: Law,
    table: Padded,
    points: ContrastPoints,
    starts: Float[AnyArray, "start coordinate"],
    *,
    seed: int,
    seen: Float[AnyArray, "visited coordinate"] | None = None,
    enough: float = ENOUGH_ESS,
    level: int = OFTEN,
) -> Approximation:
    """Approximate the posterior of one table; rows of weight 0 are left out.

    Parameters
    ----------
    starts
        Coordinate vectors to search from, shape (start, coordinate); the best mode
        found is taken.
    seen
        Coordinate vectors where chains have been, shape (visited, coordinate): the
        first proposal covers them, whatever modes they lie around.
    enough
        Effective draws above which, with a tame tail, no further round is made.
    level
        `ONCE` for a single posterior, whose rounds take less than a faster program of
        the density takes to compile.
    """
    evaluate = _evaluate_once if level == ONCE else _evaluate
    nearer = [_least_squares(law, table, points, start) for start in np.asarray(starts)]
    minima = [_minimum(law, table, points, start) for start in _distinct(nearer)]
    mode, height = min(minima, key=lambda minimum: minimum[1])
    if not np.isfinite(height):
        nowhere = np.zeros((0, len(mode)))
        return Approximation(nowhere, {}, np.zeros(0), np.inf, mode)
    rng, rounds = np.random.default_rng(seed), Rounds.none(len(mode))
    # Laplace: near the mode the posterior is about normal with the inverse curvature as
    # covariance; a Student-t of that scale covers its tails.
    proposal = around(mode, whitening(hessian(law, table, points, mode)))
    if seen is not None:
        visited = np.asarray(seen)
        alike = np.full(len(visited), 1 / len(visited))
        proposal = fitted_to(visited, alike, proposal, rng)
    while True:
        vectors = draw_from(proposal, DRAWS, rng)
        log_p, values = evaluate(law, table, points, vectors)
        log_p = np.nan_to_num(np.asarray(log_p), nan=-np.inf)
        rounds = rounds.joined(proposal, vectors, log_p, values)
        weight, k = pareto_smoothed(rounds.log_weight)
        is_good = 1 / np.sum(weight**2) > enough and k < GOOD_K
        if is_good or not np.isfinite(k) or len(rounds.proposals) == ROUNDS:
            return Approximation(rounds.vectors, rounds.values, weight, k, mode)
        # Smoothed weights fit the next proposal: one raw weight that dwarfs the others
        # would pull all components to its draw.
        index, told = _telling(weight, rng)
        proposal = fitted_to(rounds.vectors[index], told, proposal, rng)


class Rounds(NamedTuple):
    """Draws of all rounds so far, weighed against the mixture of all their proposals
    (Cornuet et al. 2012).

    ``vectors``: shape (draw, coordinate); ``log_p``: log density of the posterior,
    ``log_q``: log of the sum of the proposals' densities, and ``values``, each of shape
    (draw,).
    """

    proposals: tuple[Mixture, ...]
    vectors: Float[np.ndarray, "draw coordinate"]
    log_p: Float[np.ndarray, " draw"]
    log_q: Float[np.ndarray, " draw"]
    values: dict[str, Float[np.ndarray, " draw"]]

    @classmethod
    def none(cls, coordinates: int) -> Rounds:
        return cls(
            proposals=(),
            vectors=np.zeros((0, coordinates)),
            log_p=np.zeros(0),
            log_q=np.zeros(0),
            values={},
        )

    @property
    def log_weight(self) -> Float[np.ndarray, " draw"]:
        # AMIS (Cornuet et al. 2012): a draw of round t is weighed not by its own
        # proposal but by the deterministic mixture of all T, w = p / (1/T sum_t q_t).
        # The rounds have equally many draws, so that their shares in the mixture are
        # alike. A draw that a poor early proposal placed far out is then no longer
        # worth much.
        return self.log_p - self.log_q + np.log(len(self.proposals))

    def joined(
        self,
        proposal: Mixture,
        vectors: Float[np.ndarray, "draw coordinate"],
        log_p: Float[np.ndarray, " draw"],
        values: Mapping[str, Float[AnyArray, " draw"]],
    ) -> Rounds:
        """With the draws of another round."""
        proposals = (*self.proposals, proposal)
        # the draws so far could have come from the new proposal, and the new draws from
        # any proposal so far
        old = self.log_q
        if len(self.vectors):
            old = np.logaddexp(old, log_density_of(proposal, self.vectors))
        each = [log_density_of(p, vectors) for p in proposals]
        new = np.logaddexp.reduce(each, axis=0)
        joined = {name: np.asarray(v) for name, v in values.items()}
        if self.values:
            joined = {n: np.concatenate([self.values[n], v]) for n, v in joined.items()}
        return Rounds(
            proposals,
            np.concatenate([self.vectors, vectors]),
            np.concatenate([self.log_p, log_p]),
            np.concatenate([old, new]),
            joined,
        )


# -- proposals -------------------------------------------------------------------------


class Mixture(NamedTuple):
    """Student-t components.

    ``share``: shape (component,); ``centre``: (component, coordinate); ``root`` of the
    scale matrices: (component, coordinate, coordinate).
    """

    share: Float[np.ndarray, " component"]
    centre: Float[np.ndarray, "component coordinate"]
    root: Float[np.ndarray, "component coordinate coordinate"]


def around(
    centre: Float[np.ndarray, " coordinate"],
    root: Float[np.ndarray, "coordinate coordinate"],
) -> Mixture:
    """One component."""
    return Mixture(
        share=np.ones(1),
        centre=centre[None],
        root=root[None],
    )


def draw_from(
    mixture: Mixture, draws: int, rng: np.random.Generator
) -> Float[np.ndarray, "draw coordinate"]:
    """Draws, shape (draw, coordinate)."""
    d = mixture.centre.shape[1]
    chosen = rng.choice(len(mixture.share), size=draws, p=mixture.share)
    normal = rng.standard_normal((draws, d))
    # Multivariate Student-t: a normal vector over the root of one chi-square for all of
    # its coordinates, which are uncorrelated but not independent.
    student = normal / np.sqrt(rng.chisquare(DOF, (draws, 1)) / DOF)
    spread = np.einsum("nij,nj->ni", mixture.root[chosen], student)
    return mixture.centre[chosen] + spread


def _components(
    mixture: Mixture, vectors: Float[np.ndarray, "draw coordinate"]
) -> tuple[Float[np.ndarray, "component draw"], Float[np.ndarray, "component draw"]]:
    """Log density of each component times its share, and squared distances, each of
    shape (component, draw).
    """
    d = vectors.shape[1]
    # one product with all draws is several times faster than solving for them
    inverse = np.linalg.inv(mixture.root)
    far = np.stack(
        [
            np.sum((i @ (vectors - c).T) ** 2, axis=0)
            for c, i in zip(mixture.centre, inverse, strict=True)
        ]
    )
    # log t_d(x; c, L L') = norm - log |L| - (dof + d)/2 log(1 + |L^-1 (x - c)|^2 / dof)
    log_norm = gammaln((DOF + d) / 2) - gammaln(DOF / 2) - 0.5 * d * np.log(DOF * np.pi)
    log_size = np.linalg.slogdet(mixture.root)[1][:, None]
    log_tail = 0.5 * (DOF + d) * np.log1p(far / DOF)
    log_share = np.log(mixture.share)[:, None]
    return log_share + log_norm - log_size - log_tail, far


def log_density_of(
    mixture: Mixture, vectors: Float[np.ndarray, "draw coordinate"]
) -> Float[np.ndarray, " draw"]:
    """Log density, shape (draw,)."""
    log_each, _ = _components(mixture, vectors)
    return np.logaddexp.reduce(log_each, axis=0)


def fitted_to(
    vectors: Float[np.ndarray, "draw coordinate"],
    weight: Float[np.ndarray, " draw"],
    before: Mixture,
    rng: np.random.Generator,
) -> Mixture:
    """A mixture closer to weighted draws: steps of expectation maximisation (Cappe et
    al. 2008), scales kept from closing.

    A single component becomes several: they start at draws chosen by weight, each as
    wide as all draws together.
    """
    centre = weight @ vectors
    covariance = _scatter(vectors, centre, weight)
    # a Student-t's scale matrix from its covariance
    whole = covariance * (DOF - 2) / DOF
    # Few effective draws may span fewer directions than there are coordinates: the
    # diagonal keeps the Cholesky factor there.
    whole = whole + 1e-12 * np.diag(np.diag(covariance))
    if len(before.share) == 1:
        others = vectors[rng.choice(len(weight), COMPONENTS - 1, p=weight)]
        root = np.linalg.cholesky(whole)
        before = Mixture(
            np.full(COMPONENTS, 1 / COMPONENTS),
            np.vstack([centre, others]),
            np.stack([root] * COMPONENTS),
        )
    for _ in range(EM_STEPS):
        before = _em_step(before, vectors, weight, whole)
    return before


def _em_step(
    mixture: Mixture,
    vectors: Float[np.ndarray, "draw coordinate"],
    weight: Float[np.ndarray, " draw"],
    whole: Float[np.ndarray, "coordinate coordinate"],
) -> Mixture:
    """One step of expectation maximisation, of Student-t components of known degrees of
    freedom (Peel and McLachlan 2000); scales are drawn to that of all draws, ``whole``.
    """
    d = vectors.shape[1]
    log_each, far = _components(mixture, vectors)
    # E step: the probability that a draw is of each component, times its weight.
    part = weight * np.exp(log_each - np.logaddexp.reduce(log_each, axis=0))
    # draws far out count less for centre and scale: the tail accounts for them
    heavy = part * (DOF + d) / (DOF + far)
    # M step. A component with hardly any weight has too few draws for a scale.
    share = part.sum(axis=1)
    kept = share > LEAST_SHARE
    share, heavy = share[kept], heavy[kept]
    centres = heavy @ vectors / heavy.sum(axis=1, keepdims=True)
    roots = []
    for centre, h, s in zip(centres, heavy, share, strict=True):
        scale = _scatter(vectors, centre, h) / s
        # Wider than the fit: a proposal with lighter tails than the posterior gives
        # weights without variance, one too wide only wastes some draws.
        wide = (1 - SHRINK) * scale * INFLATE + SHRINK * whole
        roots.append(np.linalg.cholesky(wide))
    return Mixture(share / share.sum(), centres, np.stack(roots))


def _scatter(
    vectors: Float[np.ndarray, "draw coordinate"],
    centre: Float[np.ndarray, " coordinate"],
    weight: Float[np.ndarray, " draw"],
) -> Float[np.ndarray, "coordinate coordinate"]:
    """Weighted sum of outer products around a centre, shape (coordinate, coordinate)."""
    away = vectors - centre
    return away.T * weight @ away


# -- the posterior ---------------------------------------------------------------------


@compiled(static_argnums=0)
def vectors_at(
    law: Law, table: Padded, points: ContrastPoints, sites: Unconstrained
) -> Float[Array, "draw coordinate"]:
    """NumPyro's unconstrained sites, each of shape (draw,), to coordinate vectors."""

    def one(draw):
        z = coordinates.from_sites(law, points, draw)
        of_error = {n: draw[n] for n in error_names(table.shared)}
        return to_vector(law, table.shared, z | of_error)

    return jax.vmap(one)(sites)


def starts_near(
    law: Law,
    table: Padded,
    points: ContrastPoints,
    values: Sequence[dict[str, Any]],
    noise: float,
) -> Float[np.ndarray, "start coordinate"]:
    """Coordinate vectors of given values of the law, at a given scale of the noise,
    shape (start, coordinate).
    """
    names = values[0]
    stacked = {name: np.array([each[name] for each in values], float) for name in names}
    return np.asarray(_starts_near(law, table, points, stacked, np.asarray(noise)))


@compiled(static_argnums=0)
def _starts_near(
    law: Law, table: Padded, points: ContrastPoints, values, noise: Float[Array, ""]
) -> Float[Array, "start coordinate"]:
    error = error_start(table.shared, jnp.log(noise))

    def one(of_law):
        sites = coordinates.unconstrain(law, of_law)
        z = coordinates.from_sites(law, points, sites)
        with_error = z | error
        return to_vector(law, table.shared, with_error)

    return jax.vmap(one)(values)


def _evaluated(
    law: Law,
    table: Padded,
    points: ContrastPoints,
    vectors: Float[Array, "vector coordinate"],
):
    """Log density of many vectors, and their values, each of shape (vector,)."""

    def one(vector):
        sites = sites_of(law, table, points, vector)
        of_law = coordinates.constrain(law, sites)
        of_error = error_values(sites, table.shared)
        height = potential(law, table, points, vector)
        return -height, of_law | of_error

    return jax.lax.map(one, vectors, batch_size=at_once(table))


_evaluate = compiled(_evaluated, static_argnums=0, level=OFTEN)
# of Form 3, .2 CPU s to compile and 5 ms a round, where the other takes 1 s and 3 ms
_evaluate_once = compiled(_evaluated, static_argnums=0, many=60_000)


def _least_squares(
    law: Law, table: Padded, points: ContrastPoints, x: Float[np.ndarray, " coordinate"]
) -> Float[np.ndarray, " coordinate"]:
    """From a start to the least squares of the residuals and the priors, if that is a
    better start: a step of those costs a hundredth of a Newton step's.
    """
    z = from_vector(law, table.shared, x)
    sigma = float(np.exp(z["sigma"]))
    objective = Objective.posterior(sigma)
    found, _ = least_cost(
        law,
        table,
        points,
        {name: v[None] for name, v in z.items()},
        objective,
    )
    moved = np.asarray(to_vector(law, table.shared, z | found))
    heights, _ = at_each(law, table, points, np.stack([x, moved]))
    return moved if heights[1] < heights[0] else x


def _distinct(
    vectors: Sequence[Float[np.ndarray, " coordinate"]],
) -> list[Float[np.ndarray, " coordinate"]]:
    """Vectors that are not all but the same as one before."""
    kept: list[np.ndarray] = []
    for vector in vectors:
        is_close = partial(np.allclose, vector, rtol=SAME, atol=SAME)
        if not any(map(is_close, kept)):
            kept.append(vector)
    return kept


def _minimum(
    law: Law, table: Padded, points: ContrastPoints, x: Float[np.ndarray, " coordinate"]
) -> tuple[Float[np.ndarray, " coordinate"], float]:
    """A minimum of the negative log density by Newton steps along its axes of
    curvature, uphill ones turned round.
    """
    heights, slopes = at_each(law, table, points, x[None])
    height, slope = float(heights[0]), slopes[0]
    for _ in range(NEWTON_STEPS):
        scale = whitening(hessian(law, table, points, x))
        # scale scale' is the inverse of the curvature with its eigenvalues made
        # positive: a saddle is left downhill (Nocedal and Wright 2006, section 3.4).
        move = scale @ (scale.T @ slope)
        # Where the density is flat a Newton step can leave all that is plausible.
        move *= min(1.0, LONGEST / max(np.linalg.norm(move), 1e-300))
        tried = x - SHORTENED[:, None] * move
        heights, slopes = at_each(law, table, points, tried)
        best = int(np.argmin(heights))
        if not heights[best] < height - TOLERANCE:
            break
        x, height, slope = tried[best], float(heights[best]), slopes[best]
    return x, height

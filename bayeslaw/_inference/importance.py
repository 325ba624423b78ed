"""Draw posteriors without chains: by importance sampling from a Student-t around the
mode, then from mixtures of Student-t fitted to the weighted draws.

The weights have Pareto-smoothed tails, and k-hat tells whether they can be trusted
(Vehtari et al. 2024: below .7). There is one compiled program for each law and padded
size, as for NUTS. It serves hold-out folds, resamples and designs; a posterior to
report comes from `fit`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import gammaln

from bayeslaw._base.machine.blas import one_thread
from bayeslaw._base.programs import OFTEN, ONCE, compiled
from bayeslaw._base.streams import generator
from bayeslaw._inference import coordinates
from bayeslaw._inference.coordinates import ContrastPoints, Unconstrained
from bayeslaw._inference.density import (
    error_start,
    potential,
    sites_of,
    to_vector,
)
from bayeslaw._inference.diagnostics import (
    TRUSTED_K,
    by_weight,
    pareto_smoothed,
)
from bayeslaw._inference.modes import Peak
from bayeslaw._inference.noise import error_names, error_values
from bayeslaw._inference.table import Padded, at_once
from bayeslaw._law.law import Law

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from bayeslaw._base.arrays import AnyArray


MANY = 16  # coordinates; no law of the catalogue has more


@dataclass(frozen=True)
class AMIS:
    """Settings of adaptive multiple importance sampling (Cornuet et al. 2012): rounds
    of draws, each from a mixture of Student-t fitted to the weighted draws of earlier
    rounds.

    Parameters
    ----------
    draws
        Draws of a round.
    rounds
        Most rounds. All rounds take seconds, where chains took 15.
    good_k
        Pareto k-hat below which, with enough effective draws, no further round is made.
    dof
        Degrees of freedom of the proposals, for heavier tails than the posterior's.
    components, em_steps
        Components of the mixture, and steps of its fit in a round.
    inflate
        Factor on the fitted scales. Without it, late rounds find draws in the tails
        whose weights are too large.
    shrink
        Share by which scales are shrunk towards the scale of all draws.
    least_share
        Share of the weight below which a component is dropped.
    least_weight, most_fitted
        Weight below which a draw is not used in the fit of the next proposal, and the
        most draws that are used: with all draws, a late round would cost as much as all
        earlier ones.
    """

    draws: int = 2000
    rounds: int = 36
    good_k: float = 0.5
    dof: float = 5.0
    components: int = 6
    em_steps: int = 3
    inflate: float = 1.6
    shrink: float = 0.1
    least_share: float = 0.02
    least_weight: float = 1e-6
    most_fitted: int = 4000

    @classmethod
    def of(cls, coordinates: int) -> AMIS:
        """Choose the settings for a number of coordinates. With many (terms of
        settings), most draws of proposals this wide lie in the posterior's tails.
        """
        if coordinates <= MANY:
            return cls()
        return cls(draws=4000, dof=10.0, inflate=1.3, most_fitted=8000)


@dataclass(frozen=True)
class Importance:
    """Requirements on a posterior without chains.

    Parameters
    ----------
    draws
        Number of draws of equal weight, resampled from the weighted ones.
    min_ess
        Effective draws of the weights below which the posterior is not trusted.
    enough
        Effective draws of the weights above which no further round is made.
    """

    draws: int = 1000
    min_ess: float = 200
    enough: float = 1500


class Approximation(NamedTuple):
    """Weighted draws of a posterior.

    ``vectors``: coordinates, shape (draw, coordinate); ``values``: the law's values and
    those of the error (``sigma``, ``dof``, ...), each of shape (draw,); ``weight``:
    shape (draw,), sum 1; ``k``: Pareto k-hat.
    """

    vectors: Float[np.ndarray, "draw coordinate"]
    values: dict[str, Float[np.ndarray, " draw"]]
    weight: Float[np.ndarray, " draw"]
    k: float

    @property
    def ess(self) -> float:
        """Compute the effective draws of the weights."""
        if not len(self.weight):
            return 0.0
        total = np.sum(self.weight**2)
        return float(1 / total)

    def is_trusted(self, min_ess: float = 0.0) -> bool:
        has_tame_tail = self.k < TRUSTED_K
        return has_tame_tail and self.ess >= min_ess

    def chosen(self, draws: int, seed: int) -> Int[np.ndarray, " chosen"]:
        """Choose draws of equal weight by systematic resampling, shuffled."""
        rng = generator(seed)
        index = by_weight(self.weight, draws, rng)
        return rng.permutation(index)

    def resample(
        self, draws: int, seed: int
    ) -> dict[str, Float[np.ndarray, " chosen"]]:
        """Resample values to equal weight, each of shape (draws,)."""
        chosen = self.chosen(draws, seed)
        return {name: v[chosen] for name, v in self.values.items()}


def _fitted_draws(
    weight: Float[np.ndarray, " draw"], amis: AMIS, rng: np.random.Generator
) -> tuple[Int[np.ndarray, " chosen"], Float[np.ndarray, " chosen"]]:
    """Select the draws to which the next proposal is fitted: their indices and weights."""
    index = np.flatnonzero(weight > amis.least_weight)
    weights = weight[index] / weight[index].sum()
    if len(index) <= amis.most_fitted:
        return index, weights
    chosen = by_weight(weights, amis.most_fitted, rng)
    places, times = np.unique(chosen, return_counts=True)
    return index[places], times / amis.most_fitted


@one_thread()
def approximate(
    law: Law,
    table: Padded,
    points: ContrastPoints,
    peaks: Sequence[Peak],
    *,
    seed: int,
    visited: Float[AnyArray, "visited coordinate"] | None = None,
    enough: float = 1500,
    level: int = OFTEN,
) -> Approximation:
    """Approximate the posterior of one table by adaptive multiple importance sampling;
    rows of weight 0 are left out.

    Parameters
    ----------
    peaks
        Where the mass is (`find_peaks`): the first proposal.
    visited
        Coordinate vectors that chains have visited, shape (visited, coordinate). The
        first proposal covers them and their modes.
    enough
        Effective draws above which no further round is made, if k-hat is low.
    level
        Level of compilation: `ONCE` for a single posterior, whose rounds take less time
        than compiling a faster program.
    """
    dimension = len(peaks[0].centre)
    amis = AMIS.of(dimension)
    evaluate = _evaluate_once if level == ONCE else _evaluate
    if not np.isfinite(peaks[0].log_mass):
        nowhere = np.zeros((0, dimension))
        return Approximation(nowhere, {}, np.zeros(0), np.inf)
    rng = generator(seed)
    proposal = mixture_of(peaks if visited is None else peaks[:1], amis.dof)
    if visited is not None:
        chain_vectors = np.asarray(visited)
        alike = np.full(len(chain_vectors), 1 / len(chain_vectors))
        proposal = fitted_to(chain_vectors, alike, proposal, rng, amis)

    def evaluate_law(vectors: np.ndarray) -> tuple[np.ndarray, dict]:
        log_p, values = evaluate(law, table, points, vectors)
        return np.asarray(log_p), values

    rounds, weight, k = sample_adaptively(evaluate_law, proposal, rng, enough, amis)
    return Approximation(rounds.vectors, rounds.values, weight, k)


def sample_adaptively(
    evaluate: Callable[[np.ndarray], tuple[np.ndarray, Mapping[str, AnyArray]]],
    proposal: Mixture,
    rng: np.random.Generator,
    enough: float,
    amis: AMIS = AMIS(),
) -> tuple[Rounds, Float[np.ndarray, " draw"], float]:
    """Draw in rounds, until ``enough`` draws are effective and k-hat is low, each from a
    mixture fitted to the weighted draws of earlier rounds. ``evaluate``: log density,
    shape (draw,), and what is kept of each draw. Returns the draws, their smoothed
    weights and k-hat.
    """
    rounds = Rounds.none(proposal.centre.shape[1])
    while True:
        vectors = draw_from(proposal, amis.draws, rng)
        log_p, values = evaluate(vectors)
        log_p = np.nan_to_num(log_p, nan=-np.inf)
        rounds = rounds.joined(proposal, vectors, log_p, values)
        weight, k = pareto_smoothed(rounds.log_weight)
        is_good = 1 / np.sum(weight**2) > enough and k < amis.good_k
        is_last = len(rounds.proposals) == amis.rounds
        if is_good or is_last or not np.isfinite(k):
            return rounds, weight, k
        # Smoothed weights fit the next proposal: one raw weight that dwarfs the others
        # would pull all components to its draw.
        index, weights = _fitted_draws(weight, amis, rng)
        proposal = fitted_to(rounds.vectors[index], weights, proposal, rng, amis)


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
        """Start without draws."""
        return cls(
            proposals=(),
            vectors=np.zeros((0, coordinates)),
            log_p=np.zeros(0),
            log_q=np.zeros(0),
            values={},
        )

    @property
    def log_weight(self) -> Float[np.ndarray, " draw"]:
        """Compute the log importance weights of all draws so far, shape (draw,)."""
        # AMIS (Cornuet et al. 2012): a draw of round t is weighed not by its own
        # proposal but by the deterministic mixture of all T, w = p / (1/T sum_t q_t).
        # The rounds have equally many draws, so their shares in the mixture are equal.
        # A draw that a poor early proposal placed far out then gets little weight.
        return self.log_p - self.log_q + np.log(len(self.proposals))

    def joined(
        self,
        proposal: Mixture,
        vectors: Float[np.ndarray, "draw coordinate"],
        log_p: Float[np.ndarray, " draw"],
        values: Mapping[str, Float[AnyArray, " draw"]],
    ) -> Rounds:
        """Add the draws of another round."""
        proposals = (*self.proposals, proposal)
        # the draws so far could have come from the new proposal, and the new draws from
        # any proposal so far
        old = self.log_q
        if len(self.vectors):
            old = np.logaddexp(old, log_density_of(proposal, self.vectors))
        log_each = [log_density_of(p, vectors) for p in proposals]
        new = np.logaddexp.reduce(log_each, axis=0)
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
    """A mixture of Student-t components.

    ``share``: shape (component,). ``centre``: shape (component, coordinate). ``root``:
    Cholesky factors of the scale matrices, shape (component, coordinate, coordinate).
    ``dof``: degrees of freedom of all components.
    """

    share: Float[np.ndarray, " component"]
    centre: Float[np.ndarray, "component coordinate"]
    root: Float[np.ndarray, "component coordinate coordinate"]
    dof: float


def mixture_of(peaks: Sequence[Peak], dof: float) -> Mixture:
    """Make a mixture with a component for each peak, by its mass."""
    masses = np.exp([peak.log_mass - peaks[0].log_mass for peak in peaks])
    return Mixture(
        share=masses / masses.sum(),
        centre=np.stack([peak.centre for peak in peaks]),
        root=np.stack([peak.root for peak in peaks]),
        dof=dof,
    )


def draw_from(
    mixture: Mixture, draws: int, rng: np.random.Generator
) -> Float[np.ndarray, "draw coordinate"]:
    """Draw from the mixture, shape (draw, coordinate)."""
    d, dof = mixture.centre.shape[1], mixture.dof
    chosen = rng.choice(len(mixture.share), size=draws, p=mixture.share)
    normal = rng.standard_normal((draws, d))
    # Multivariate Student-t: a normal vector over the root of one chi-square for all of
    # its coordinates, which are uncorrelated but not independent.
    student = normal / np.sqrt(rng.chisquare(dof, (draws, 1)) / dof)
    spread = np.einsum("nij,nj->ni", mixture.root[chosen], student)
    return mixture.centre[chosen] + spread


def _evaluate_components(
    mixture: Mixture, vectors: Float[np.ndarray, "draw coordinate"]
) -> tuple[Float[np.ndarray, "component draw"], Float[np.ndarray, "component draw"]]:
    """Compute components' log densities times shares, and squared distances."""
    d, dof = vectors.shape[1], mixture.dof
    # one product with all draws is several times faster than solving for them
    inverse = np.linalg.inv(mixture.root)
    far = np.stack(
        [
            np.sum((i @ (vectors - c).T) ** 2, axis=0)
            for c, i in zip(mixture.centre, inverse, strict=True)
        ]
    )
    # log t_d(x; c, L L') = norm - log |L| - (dof + d)/2 log(1 + |L^-1 (x - c)|^2 / dof)
    log_norm = gammaln((dof + d) / 2) - gammaln(dof / 2) - 0.5 * d * np.log(dof * np.pi)
    log_size = np.linalg.slogdet(mixture.root)[1][:, None]
    log_tail = 0.5 * (dof + d) * np.log1p(far / dof)
    log_share = np.log(mixture.share)[:, None]
    return log_share + log_norm - log_size - log_tail, far


def log_density_of(
    mixture: Mixture, vectors: Float[np.ndarray, "draw coordinate"]
) -> Float[np.ndarray, " draw"]:
    """Compute the log density, shape (draw,)."""
    log_each, _ = _evaluate_components(mixture, vectors)
    return np.logaddexp.reduce(log_each, axis=0)


def fitted_to(
    vectors: Float[np.ndarray, "draw coordinate"],
    weight: Float[np.ndarray, " draw"],
    before: Mixture,
    rng: np.random.Generator,
    amis: AMIS,
) -> Mixture:
    """Fit a mixture to weighted draws by steps of expectation maximisation (Cappe et
    al. 2008); shrinkage keeps scales from collapsing.

    If the mixture has one component, several new ones start at draws chosen by weight,
    each as wide as all draws together.
    """
    centre = weight @ vectors
    covariance = _compute_scatter(vectors, centre, weight)
    # a Student-t's scale matrix from its covariance
    pooled = covariance * (amis.dof - 2) / amis.dof
    # all components are shrunk towards it, so it must span every direction
    pooled = pooled + 1e-12 * np.diag(np.diag(covariance))
    if len(before.share) == 1:
        count = amis.components
        centres = vectors[rng.choice(len(weight), count - 1, p=weight)]
        root = _take_root(pooled)
        before = Mixture(
            np.full(count, 1 / count),
            np.vstack([centre, centres]),
            np.stack([root] * count),
            amis.dof,
        )
    for _ in range(amis.em_steps):
        before = _em_step(before, vectors, weight, pooled, amis)
    return before


def _em_step(
    mixture: Mixture,
    vectors: Float[np.ndarray, "draw coordinate"],
    weight: Float[np.ndarray, " draw"],
    pooled: Float[np.ndarray, "coordinate coordinate"],
    amis: AMIS,
) -> Mixture:
    """Make one step of expectation maximisation for Student-t components with known
    degrees of freedom (Peel and McLachlan 2000); scales are shrunk towards that of all
    draws, ``pooled``.
    """
    d = vectors.shape[1]
    log_each, far = _evaluate_components(mixture, vectors)
    # E step: the probability that a draw is of each component, times its weight.
    part = weight * np.exp(log_each - np.logaddexp.reduce(log_each, axis=0))
    # draws far out have less weight in centre and scale, as for a Student-t
    heavy = part * (amis.dof + d) / (amis.dof + far)
    # M step. A component with hardly any weight has too few draws for a scale.
    share = part.sum(axis=1)
    is_heavy = share > amis.least_share
    share, heavy = share[is_heavy], heavy[is_heavy]
    centres = heavy @ vectors / heavy.sum(axis=1, keepdims=True)
    roots = []
    for centre, h, s in zip(centres, heavy, share, strict=True):
        scale = _compute_scatter(vectors, centre, h) / s
        # Wider than the fit: if a proposal has lighter tails than the posterior,
        # weights have infinite variance. One that is too wide only wastes some draws.
        wide = (1 - amis.shrink) * scale * amis.inflate + amis.shrink * pooled
        roots.append(_take_root(wide))
    return Mixture(share / share.sum(), centres, np.stack(roots), amis.dof)


def _take_root(
    scale: Float[np.ndarray, "coordinate coordinate"],
) -> Float[np.ndarray, "coordinate coordinate"]:
    """Factorise a scale matrix by Cholesky. Few effective draws may span fewer directions
    than there are coordinates, so as much is added to the diagonal as rounding needs.
    """
    sizes = np.diag(np.diag(scale))
    for share in (0.0, 1e-12, 1e-9, 1e-6, 1e-3):
        with contextlib.suppress(np.linalg.LinAlgError):
            return np.linalg.cholesky(scale + share * sizes)
    return np.sqrt(sizes)


def _compute_scatter(
    vectors: Float[np.ndarray, "draw coordinate"],
    centre: Float[np.ndarray, " coordinate"],
    weight: Float[np.ndarray, " draw"],
) -> Float[np.ndarray, "coordinate coordinate"]:
    """Sum weighted outer products around a centre, shape (coordinate, coordinate)."""
    away = vectors - centre
    return away.T * weight @ away


# -- the posterior ---------------------------------------------------------------------


@compiled(static_argnums=0)
def vectors_at(
    law: Law, table: Padded, points: ContrastPoints, sites: Unconstrained
) -> Float[Array, "draw coordinate"]:
    """Convert NumPyro's unconstrained sites of draws to coordinate vectors."""

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
    """Convert values of the law, at a noise scale, to coordinate vectors."""
    names = values[0]
    stacked = {
        name: np.array([value[name] for value in values], float) for name in names
    }
    return np.asarray(_starts_near(law, table, points, stacked, np.asarray(noise)))


@compiled(static_argnums=0)
def _starts_near(
    law: Law, table: Padded, points: ContrastPoints, values, noise: Float[Array, ""]
) -> Float[Array, "start coordinate"]:
    """Convert values of the law at a noise scale to vectors, in one program."""
    error = error_start(table.shared, jnp.log(noise))

    def one(of_law):
        sites = coordinates.unconstrain(law, of_law)
        z = coordinates.from_sites(law, points, sites)
        with_error = z | error
        return to_vector(law, table.shared, with_error)

    return jax.vmap(one)(values)


def _evaluate_vectors(
    law: Law,
    table: Padded,
    points: ContrastPoints,
    vectors: Float[Array, "vector coordinate"],
):
    """Evaluate the log density of many vectors, and their values."""

    def one(vector):
        sites = sites_of(law, table, points, vector)
        of_law = coordinates.constrain(law, sites)
        of_error = error_values(sites, table.shared)
        height = potential(law, table, points, vector)
        return -height, of_law | of_error

    return jax.lax.map(one, vectors, batch_size=at_once(table))


_evaluate = compiled(_evaluate_vectors, static_argnums=0, level=OFTEN)
# for Form 3 it takes .2 CPU s to compile and 5 ms a round; the other takes 1 s and 3 ms
_evaluate_once = compiled(_evaluate_vectors, static_argnums=0, many=60_000)

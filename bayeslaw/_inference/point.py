"""Fit as the papers do: minimise the Huber loss of log residuals from many starts, with
a bootstrap; and find the mode from which NUTS starts.

With its exponents fixed, a law is linear in its coefficients. So a start needs only
exponents; one linear least-squares problem gives the coefficients of all starts. Then
Levenberg-Marquardt minimises in `coordinates`. For starts it is scipy's, which needs no
compilation (2 s for 32 starts of Form 3; a program for all of them took 13 s to
compile). For a thousand bootstrap refits it is one compiled program.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array

from bayeslaw._base.errors import warn
from bayeslaw._base.frames import Table
from bayeslaw._base.limits import POSITIVE, check_count, checked
from bayeslaw._base.machine import runtime
from bayeslaw._base.programs import OFTEN, compiled
from bayeslaw._base.shown import paragraphs, table_html
from bayeslaw._base.streams import generator
from bayeslaw._inference import coordinates
from bayeslaw._inference.coordinates import ContrastPoints, Unconstrained
from bayeslaw._inference.table import Padded, pad
from bayeslaw._law.find import as_law
from bayeslaw._law.law import Law, as_arrays, log_loss
from bayeslaw._tables import fitting
from bayeslaw._tables.runs import as_runs

if TYPE_CHECKING:
    from jaxtyping import Float

    from bayeslaw._base.arrays import AnyArray


@dataclass(frozen=True)
class PointFit:
    """A point fit.

    ``parameters`` are in the paper's units. ``objective`` is the mean Huber loss.
    ``bootstrap`` has the parameters refitted to resampled runs, each of shape
    (resample,); it is empty without a bootstrap.
    """

    law: Law
    parameters: Mapping[str, float]
    objective: float
    delta: float
    bootstrap: Mapping[str, Float[np.ndarray, " resample"]]

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={x:.4g}" for name, x in self.parameters.items())
        again = len(next(iter(self.bootstrap.values()), ()))
        resamples = f", {again} resamples" if again else ""
        return f"PointFit({self.law.name!r}: {values}{resamples})"

    def _repr_html_(self) -> str:
        rows = {name: {"value": x} for name, x in self.parameters.items()}
        for name, draws in self.bootstrap.items():
            low, high = np.quantile(draws, [0.05, 0.95])
            rows[name] |= {"low": float(low), "high": float(high)}
        table = pd.DataFrame.from_dict(rows, orient="index")
        return paragraphs(repr(self).partition(":")[0] + ")") + table_html(table)

    def loss(
        self, runs: pd.DataFrame | Mapping[str, Any] | str | Path
    ) -> Float[np.ndarray, " run"]:
        """Compute the fitted loss at a table of runs, shape (run,)."""
        x = as_arrays(fitting.covariates(self.law, as_runs(runs)))
        of_law = self.law.from_paper(as_arrays(self.parameters))
        return np.exp(np.asarray(log_loss(self.law, x, of_law)))


def point_fit(
    runs: Table | str | Path,
    law: Law | str | None = None,
    *,
    delta: float = 0.02,
    bootstrap: int = 0,
    seed: int = 0,
    starts: int = 12,
) -> PointFit:
    """Fit a law as the papers do, by minimising the Huber loss of log residuals
    (Goffinet 2025, fitting constraints).

    Parameters
    ----------
    runs, law
        The table, or the path of one, and the law, or its name. The law's priors only
        choose the starts and bound directions that the data leave free.
    delta
        Residual at which the Huber loss turns linear, in log loss: .02 in Goffinet
        2025, 1e-4 in Bethune 2025.
    bootstrap
        Number of refits to runs drawn with replacement.
    starts
        Number of starts. A single start misses the best optimum in a fifth of cases.

    Raises
    ------
    RunTableError
        The table lacks a column the law reads.
    PlanError
        ``delta``, ``bootstrap`` or ``starts`` is out of its range.

    Examples
    --------
    >>> law = bayeslaw.law("chinchilla")
    >>> point = bayeslaw.point_fit(pretrained, law)
    >>> sorted(point.parameters)
    ['A', 'B', 'E', 'alpha', 'beta']
    """
    check_count("bootstrap", bootstrap, least=0)
    check_count("starts", starts)
    delta = checked("delta", delta, POSITIVE)
    runs = as_runs(runs)
    law = as_law(law, runs)
    if mixed := fitting.domains_mixed(runs):
        warn(mixed)
    covariates = fitting.covariates(law, runs)
    fitting.check_finite(law, runs, covariates)
    runtime.start()
    table = pad(covariates, fitting.log_losses(runs))
    points = coordinates.contrast_points(law, covariates)
    # As in variable projection (Golub and Pereyra 1973): a law is linear in its coefficients,
    # so that starts need exponents only.
    vectors = start_points(law, table, points, starts, seed)
    best, cost = least_cost(law, table, points, vectors, Objective(delta))
    best_parameters = _convert_to_published(
        law, points, jax.tree.map(lambda v: v[None], best)
    )
    resampled: dict[str, np.ndarray] = {}
    if bootstrap:
        weights = np.zeros((bootstrap, len(table.weight)))
        # how often each row is drawn in each resample
        alike = np.full(len(runs), 1 / len(runs))
        counts = generator(seed).multinomial(len(runs), alike, size=bootstrap)
        weights[:, : len(runs)] = counts
        refitted = _refit(law, table, points, best, weights, delta)
        published = _convert_to_published(law, points, refitted)
        resampled = {name: np.asarray(v) for name, v in published.items()}
    parameters = {name: float(v[0]) for name, v in best_parameters.items()}
    return PointFit(law, parameters, cost / len(runs), delta, resampled)


def start_points(
    law: Law, table: Padded, points: ContrastPoints, starts: int, seed: int
) -> Unconstrained:
    """Draw starts in `coordinates`, with exponents from their priors."""
    rng = generator(seed)
    exponents = {e.name: e.prior.draw(rng, starts) for e in law.exponents}
    for e in law.exponents:
        exponents[e.name][0] = e.prior.median
    draws = as_arrays(exponents)
    return _solve_starts(law, starts, table, points, draws)


@compiled(static_argnums=(0, 1))
def _solve_starts(
    law: Law, starts: int, table: Padded, points: ContrastPoints, exponents
):
    """Solve for the coefficients by relative least squares given the exponents;
    positive coefficients are kept positive.

    A light ridge towards the priors' medians fixes directions that the table leaves
    open.
    """
    x, y = table.covariates, jnp.exp(table.y)
    reference = as_arrays(law.reference)
    offset = 0.0 if law.offset is None else law.offset(x)
    centre = jnp.array([t.prior.median for t in law.terms])
    is_positive = jnp.array([t.prior.support == "positive" for t in law.terms])
    lowest = jnp.where(is_positive, 1e-2 * jnp.abs(centre), -jnp.inf)
    # a relative error is about an error of the logarithm
    weight = table.weight / y

    def one(e):
        scales = [t.basis(reference, e) if t.in_nats else 1.0 for t in law.terms]
        columns = [
            jnp.broadcast_to(t.sign * t.basis(x, e) / s, y.shape)
            for t, s in zip(law.terms, scales, strict=True)
        ]
        # (A'A + R) c = A'(y - known) + R centre, with R small against A'A.
        a = jnp.stack(columns, -1) * weight[:, None]
        ridge = 1e-4 * jnp.eye(len(law.terms)) * jnp.sum(a**2) / len(law.terms)
        right = a.T @ ((y - offset) * weight) + ridge @ centre
        c = jnp.linalg.solve(a.T @ a + ridge, right)
        # least squares may give a negative coefficient, which has no logarithm
        c = jnp.maximum(jnp.where(jnp.isfinite(c), c, centre), lowest)
        values = e | {t.site: v for t, v in zip(law.terms, c, strict=True)}
        return coordinates.from_sites(law, points, coordinates.unconstrain(law, values))

    return jax.vmap(one, axis_size=starts)(exponents)


@compiled(static_argnums=0)
def _convert_to_published(law: Law, points: ContrastPoints, z) -> dict[str, Array]:
    """Convert vectors to parameters in the paper's units, each of shape (fit,)."""

    def one(z):
        sites, _ = coordinates.to_sites(law, points, z)
        values = coordinates.constrain(law, sites)
        return law.to_paper(values)

    return jax.vmap(one)(z)


def prior_centre(law: Law) -> dict[str, tuple[float, float]]:
    """Approximate free sites' priors by (centre, sd) in unconstrained units."""
    centres = {}
    for name, prior in law.priors.items():
        if prior.family == "lognormal":
            centres[name] = (math.log(prior.args[0]), prior.args[1])
        elif prior.family == "normal":
            centres[name] = prior.args
        elif prior.family == "beta":
            a, b = prior.args
            # The logit of a beta(a, b) has about the mean log(a / b) and the variance
            # 1/a + 1/b (exactly: digamma and trigamma functions).
            centres[name] = (math.log(a / b), math.sqrt(1 / a + 1 / b))
    return centres


class Objective(NamedTuple):
    """The objective: a Huber loss of residuals over ``scale`` that turns linear at
    ``delta``, plus the priors times ``prior_weight``. With weight 0, the priors only
    bound directions that the data leave free.
    """

    delta: Float[AnyArray, ""] | float
    scale: float = 1.0
    prior_weight: float = 0.0

    @classmethod
    def posterior(cls, sd: float) -> Objective:
        """Make the Huber approximation of the Student-t objective with scale `sd`."""
        return cls(1.5 * sd, sd, 1.0)


def _compute_residuals(
    law: Law,
    table: Padded,
    points: ContrastPoints,
    z: Unconstrained,
    objective: Objective,
) -> tuple[Float[Array, " row"], Float[Array, " free_site"]]:
    """Compute signed square roots of twice the Huber loss of every run, shape (row,),
    and of the prior's part, shape (free site,).
    """
    delta, scale, prior_weight = objective
    sites = coordinates.to_sites(law, points, z)[0]
    values = coordinates.constrain(law, sites)
    r = log_loss(law, table.covariates, values) - table.y
    # The Huber loss is r^2 / 2 within delta and delta |r| - delta^2 / 2 beyond. Least
    # squares minimises half the sum of squares of the returned values, so they are the
    # signed square roots of twice the Huber loss.
    far = jnp.abs(r) > delta
    # 1 where the square root is not used, because it has no derivative at 0
    twice = jnp.where(far, 2 * delta * jnp.abs(r) - delta**2, 1.0)
    root = jnp.where(far, jnp.sign(r) * jnp.sqrt(twice), r)
    huber = root * jnp.sqrt(table.weight) / scale
    # a steep penalty from six prior sds on bounds directions that the data leave free
    t = jnp.stack([(sites[n] - m) / s for n, (m, s) in prior_centre(law).items()])
    stop = jnp.sign(t) * jnp.maximum(jnp.abs(t) - 6.0, 0.0)
    return huber, jnp.where(prior_weight > 0, prior_weight * t, stop)


@compiled(static_argnums=0)
def _linearise(
    law: Law,
    table: Padded,
    points: ContrastPoints,
    vector: Float[AnyArray, " coordinate"],
    objective: Objective,
) -> tuple[Float[Array, " residual"], Float[Array, "coordinate residual"]]:
    """Compute residuals at a vector, shape (residual,), and their derivatives, shape
    (coordinate, residual), in one program. NaN and infinity count as 1000.
    """

    def flat(v):
        z = dict(zip(law.free_priors, v, strict=True))
        parts = _compute_residuals(law, table, points, z, objective)
        return jnp.concatenate(parts)

    # Forward mode: there are more residuals than coordinates.
    values, along = jax.linearize(flat, vector)
    derivatives = jax.vmap(along)(jnp.eye(len(vector)))
    return jnp.nan_to_num(values, nan=1e3), jnp.nan_to_num(derivatives)


def least_cost(
    law: Law,
    table: Padded,
    points: ContrastPoints,
    starts: Unconstrained,
    objective: Objective,
    max_steps: int = 300,
) -> tuple[Unconstrained, float]:
    """Find the best optimum from starts: coordinates, half the sum of squares."""
    from scipy.optimize import least_squares

    # constant inputs go to the device once
    table, points = jax.device_put((table, points))
    # scipy asks for the residuals at a vector, then for their derivatives there
    last: dict[bytes, tuple] = {}

    def linearised(v):
        if v.tobytes() not in last:
            last.clear()
            last[v.tobytes()] = _linearise(law, table, points, v, objective)
        return last[v.tobytes()]

    # MINPACK writes into its arrays, so it gets copies
    def residuals(v):
        values, _ = linearised(v)
        return np.array(values)

    def jacobian(v):
        _, derivatives = linearised(v)
        return np.array(derivatives).T

    vectors = np.stack([np.asarray(starts[n]) for n in law.free_priors], axis=-1)
    optima = [
        least_squares(residuals, v, jac=jacobian, method="lm", max_nfev=max_steps)
        for v in vectors
    ]
    best = min(optima, key=lambda optimum: optimum.cost)
    optimum = {
        name: np.asarray(v) for name, v in zip(law.free_priors, best.x, strict=True)
    }
    return optimum, float(best.cost)


@compiled(static_argnums=0, level=OFTEN)
def _refit(
    law: Law,
    table: Padded,
    points: ContrastPoints,
    z: Unconstrained,
    weights: Float[AnyArray, "refit row"],
    delta: Float[AnyArray, ""] | float,
) -> Unconstrained:
    """Refit from one start with different weights, shape (refit, row)."""
    import optimistix

    solver = optimistix.LevenbergMarquardt(rtol=1e-8, atol=1e-10)

    def one(weight):
        def residuals(z, _):
            part = table._replace(weight=weight)
            objective = Objective(delta)
            return _compute_residuals(law, part, points, z, objective)

        solution = optimistix.least_squares(
            residuals, solver, z, max_steps=300, throw=False
        )
        return solution.value

    return jax.lax.map(one, weights, batch_size=32)


def posterior_mode(
    law: Law,
    table: Padded,
    points: ContrastPoints,
    starts: int = 12,
    seed: int = 0,
) -> tuple[Unconstrained, float]:
    """Find the coordinates of the posterior's mode (Huber in place of Student-t), and
    the noise scale there. Rows of weight 0 have no effect.
    """
    z, scale = start_points(law, table, points, starts, seed), 0.02
    counts = np.asarray(table.weight) > 0
    # from every start at a wide scale, then twice from the best at the scale found
    for _ in range(3):
        best, _ = least_cost(law, table, points, z, Objective.posterior(scale))
        miss = np.abs(misses(law, table, points, best)[counts])
        # the sd of a normal from its median absolute deviation
        scale = float(np.clip(1.4826 * np.median(miss), 1e-5, 0.3))
        z = {name: v[None] for name, v in best.items()}
    return best, scale


def misses(
    law: Law, table: Padded, points: ContrastPoints, z: Unconstrained
) -> Float[np.ndarray, " row"]:
    """Compute the law's log loss minus each row's; 0 at rows of weight 0."""
    counts = np.asarray(table.weight) > 0
    once = table._replace(weight=np.where(counts, 1.0, 0.0))
    vector = np.stack([np.asarray(z[n]) for n in law.free_priors])
    # With a huge delta (1e6) the objective is quadratic, so its residuals are the plain
    # differences. The residuals of the priors come after those of the rows.
    plain = Objective(1e6, 1.0, 1.0)
    residuals, _ = _linearise(law, once, points, vector, plain)
    return np.asarray(residuals)[: len(table.weight)]

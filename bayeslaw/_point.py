"""The papers' fit: Huber loss on log residuals from many starts; its bootstrap; and the mode NUTS starts from.

A law is linear in its coefficients once the exponents are fixed, so a start needs only exponents: the coefficients
that go with them come from one linear least-squares problem, all starts at once. From there Levenberg-Marquardt in
the coordinates of `_geometry`: scipy's from start to start (it needs no compilation: 2 s for 32 starts of Form 3,
where a program for all of them took 13 s to compile), and one compiled program for a thousand bootstrap refits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from bayeslaw import _engine, _geometry, _runs
from bayeslaw._law import Law
from bayeslaw._model import log_loss
from bayeslaw._padding import Padded, pad

DELTA = 0.02  # Goffinet 2025: Huber loss on log residuals; Bethune 2025 uses 1e-4
STARTS = 12  # one alone misses the best optimum in a fifth of cases
BOX = 6.0  # prior sds beyond which a parameter the data do not hold is stopped
STEPS = 300
UNBENT = 1e6  # a delta with which residuals are plain differences


@dataclass(frozen=True)
class PointFit:
    """A point fit.

    ``parameters`` in the paper's units; ``objective`` the mean Huber loss; ``bootstrap`` the same parameters refitted
    to resampled runs, each of shape (resample,), empty without a bootstrap.
    """

    law: Law
    parameters: Mapping[str, float]
    objective: float
    delta: float
    bootstrap: Mapping[str, np.ndarray]

    def loss(self, runs: pd.DataFrame) -> np.ndarray:
        """Fitted loss at a table of runs, shape (run,)."""
        return np.exp(self._log_loss(runs, {k: np.asarray([v]) for k, v in self.parameters.items()})[0])

    def bootstrap_loss(self, runs: pd.DataFrame) -> np.ndarray:
        """Loss of every resample at a table of runs, shape (resample, run)."""
        return np.exp(self._log_loss(runs, self.bootstrap))

    def _log_loss(self, runs: pd.DataFrame, parameters: Mapping[str, np.ndarray]) -> np.ndarray:
        x = {c: jnp.asarray(v) for c, v in _runs.covariates(self.law, runs).items()}

        def one(p):
            return log_loss(self.law, x, self.law.from_paper(p))

        return np.asarray(jax.vmap(one)({k: jnp.asarray(v) for k, v in parameters.items()}))


def point_fit(
    runs: pd.DataFrame, law: Law, *, delta: float = DELTA, bootstrap: int = 0, seed: int = 0, starts: int = STARTS
) -> PointFit:
    """Fit a law as the papers do: least Huber loss on log residuals (Goffinet 2025, fitting constraints).

    Parameters
    ----------
    runs, law
        The table and the law; its priors only choose the starts and bound what the data leave free.
    delta
        Where the Huber loss turns linear, in log loss.
    bootstrap
        Refits to runs drawn with replacement.

    Raises
    ------
    RunTableError
        The table lacks a column the law reads.
    """
    _engine.start()
    table = pad(_runs.covariates(law, runs), np.log(_runs.losses(runs)))
    at = _geometry.anchors(law, _runs.covariates(law, runs))
    best, cost = _best(law, table, at, start_points(law, table, at, starts, seed), delta, 1.0, 0.0)
    published = jax.jit(jax.vmap(partial(_published, law, at)))
    resampled: dict[str, np.ndarray] = {}
    if bootstrap:
        n = len(runs)
        counts = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=bootstrap)
        weights = np.zeros((bootstrap, table.weight.shape[0]))
        weights[:, :n] = counts
        zs = _refit(law, table, at, best, jnp.asarray(weights), delta)
        resampled = {k: np.asarray(v) for k, v in published(zs).items()}
    one = published(jax.tree.map(lambda v: v[None], best))
    return PointFit(law, {k: float(v[0]) for k, v in one.items()}, cost / len(runs), delta, resampled)


def start_points(law: Law, table: Padded, at: _geometry.Anchors, starts: int, seed: int):
    """Starts in the coordinates of `_geometry`, leading axis (start,): exponents from their priors."""
    rng = np.random.default_rng(seed)
    exponents = {e.name: e.prior.draw(rng, starts) for e in law.exponents}
    for e in law.exponents:
        exponents[e.name][0] = e.prior.median
    return _starts(law, starts, table, at, {k: jnp.asarray(v) for k, v in exponents.items()})


@partial(jax.jit, static_argnums=(0, 1))
def _starts(law: Law, starts: int, table: Padded, at: _geometry.Anchors, exponents):
    """Coefficients by relative least squares given the exponents, kept positive where they must be."""
    x, y = table.covariates, jnp.exp(table.y)
    reference = {c: jnp.asarray(v) for c, v in law.reference.items()}

    def one(e):
        scale = [t.basis(reference, e) if t.in_nats else 1.0 for t in law.terms]
        columns = [jnp.broadcast_to(t.sign * t.basis(x, e) / s, y.shape) for t, s in zip(law.terms, scale, strict=True)]
        known = 0.0 if law.offset is None else law.offset(x)
        centre = jnp.array([t.prior.median for t in law.terms])
        w = table.weight / y
        a = jnp.stack(columns, -1) * w[:, None]
        ridge = 1e-4 * jnp.eye(len(law.terms)) * jnp.sum(a**2) / len(law.terms)
        c = jnp.linalg.solve(a.T @ a + ridge, a.T @ ((y - known) * w) + ridge @ centre)
        low = jnp.where(jnp.array([t.prior.support == "positive" for t in law.terms]), 1e-2 * jnp.abs(centre), -jnp.inf)
        c = jnp.maximum(jnp.where(jnp.isfinite(c), c, centre), low)
        values = e | {t.site: v for t, v in zip(law.terms, c, strict=True)}
        return _geometry.from_sites(law, at, _geometry.unconstrain(law, values))

    return jax.vmap(one, axis_size=starts)(exponents)


def _values(law: Law, at: _geometry.Anchors, z):
    return _geometry.constrain(law, _geometry.to_sites(law, at, z)[0])


def _published(law: Law, at: _geometry.Anchors, z):
    return law.to_paper(_values(law, at, z))


def _prior_centre(law: Law) -> dict[str, tuple[float, float]]:
    """Each free site's prior as (centre, sd) in unconstrained coordinates; beta by its normal approximation."""
    out = {}
    for n, p in law.priors.items():
        if p.family == "lognormal":
            out[n] = (math.log(p.args[0]), p.args[1])
        elif p.family == "normal":
            out[n] = p.args
        elif p.family == "beta":
            a, b = p.args
            out[n] = (math.log(a / b), math.sqrt(1 / a + 1 / b))
    return out


def _residuals(law: Law, table: Padded, at: _geometry.Anchors, z, weight, delta, scale, prior_weight):
    """Signed square roots of twice the Huber loss of every run and of what the prior adds."""
    u = _geometry.to_sites(law, at, z)[0]
    r = log_loss(law, table.covariates, _geometry.constrain(law, u)) - table.y
    far = jnp.abs(r) > delta
    tail = jnp.sign(r) * jnp.sqrt(jnp.where(far, 2 * delta * jnp.abs(r) - delta**2, 1.0))
    huber = jnp.where(far, tail, r) * jnp.sqrt(weight) / scale
    t = jnp.stack([(u[n] - m) / s for n, (m, s) in _prior_centre(law).items()])
    stop = jnp.sign(t) * jnp.maximum(jnp.abs(t) - BOX, 0.0)
    return huber, jnp.where(prior_weight > 0, prior_weight * t, stop)


@partial(jax.jit, static_argnums=0)
def _linearised(law: Law, table: Padded, at: _geometry.Anchors, vector, delta, scale, prior_weight):
    """Residuals at a vector, shape (residual,), and their derivatives, shape (coordinate, residual): one program for both."""

    def flat(v):
        z = dict(zip(_free(law), v, strict=True))
        return jnp.concatenate(_residuals(law, table, at, z, table.weight, delta, scale, prior_weight))

    values, along = jax.linearize(flat, vector)
    return values, jax.vmap(along)(jnp.eye(len(vector)))


def _free(law: Law) -> list[str]:
    return [n for n, p in law.priors.items() if not p.is_fixed]


def _best(law: Law, table: Padded, at: _geometry.Anchors, starts, delta, scale, prior_weight):
    """The best optimum from these starts (leading axis): its coordinates and half the sum of squares."""
    from scipy.optimize import least_squares

    last: dict[bytes, tuple] = {}  # scipy asks for the residuals at a vector, then for their derivatives there

    def linearised(v):
        if v.tobytes() not in last:
            last.clear()
            last[v.tobytes()] = _linearised(law, table, at, v, delta, scale, prior_weight)
        return last[v.tobytes()]

    def residuals(v):
        return np.nan_to_num(linearised(v)[0], nan=1e3)

    def jacobian(v):
        return np.nan_to_num(linearised(v)[1]).T

    vectors = np.stack([np.asarray(starts[n]) for n in _free(law)], axis=-1)
    found = [least_squares(residuals, v, jac=jacobian, method="lm", max_nfev=STEPS) for v in vectors]
    best = min(found, key=lambda f: f.cost)
    return dict(zip(_free(law), jnp.asarray(best.x), strict=True)), float(best.cost)


@partial(jax.jit, static_argnums=0)
def _refit(law: Law, table: Padded, at: _geometry.Anchors, z, weights, delta):
    """From one start, other weights each time (leading axis)."""
    import optimistix

    solver = optimistix.LevenbergMarquardt(rtol=1e-8, atol=1e-10)

    def one(weight):
        def residuals(z, _):
            return _residuals(law, table, at, z, weight, delta, 1.0, 0.0)

        return optimistix.least_squares(residuals, solver, z, max_steps=STEPS, throw=False).value

    return jax.lax.map(one, weights, batch_size=32)


def posterior_mode(law: Law, table: Padded, at: _geometry.Anchors, starts: int = STARTS, seed: int = 0):
    """Coordinates of the posterior's mode (Huber in place of Student-t), and the scale of the noise there."""
    z, scale = start_points(law, table, at, starts, seed), 0.02
    for _ in range(3):  # from every start at a wide scale, then twice from the best at the scale found
        z, _ = _best(law, table, at, z, 1.5 * scale, scale, 1.0)
        n = int(table.weight.sum())
        miss = np.abs(misses(law, table, at, z)[:n])
        scale = float(np.clip(1.4826 * np.median(miss), 1e-5, 0.3))
        z = {k: v[None] for k, v in z.items()}
    return {k: v[0] for k, v in z.items()}, scale


def misses(law: Law, table: Padded, at: _geometry.Anchors, z) -> np.ndarray:
    """Log loss of the law minus that of each row, shape (row,); 0 at rows of weight 0."""
    vector = jnp.stack([z[n] for n in _free(law)])
    return np.asarray(_linearised(law, table, at, vector, UNBENT, 1.0, 1.0)[0])[: len(table.weight)]

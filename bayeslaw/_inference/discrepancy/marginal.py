"""Compute the marginal likelihood of a misfit's scales, and draw the scales and the
weights, which are linear given the scales.

With normal weights the process is a Bayesian linear model: its log scales (lengths,
sizes, noise, what a checkpoint shares) have a closed marginal likelihood and gradient,
and its weights are drawn exactly (Rasmussen and Williams 2006, sections 2.1 and 5.4.1).
Weights are divided by their prior sds, so no inverse variance is formed. Only columns
that are nonzero at some row enter; the others keep their priors. Heavy tails become
weights of rows, updated at the mode (Student-t noise as a mixture of normals: Lange,
Little and Taylor 1989).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import linalg, optimize
from scipy.linalg import lapack

from bayeslaw._inference.diagnostics import by_weight, weighted_student
from bayeslaw._inference.discrepancy.process import Process, Spectrum
from bayeslaw._law.priors import Prior, lognormal

if TYPE_CHECKING:
    from jaxtyping import Float


class RemainingError(NamedTuple):
    """Priors of the errors beside the misfit.

    ``sigma``: scale of a run's own error; the others: scales of the effects that rows
    of a group share.
    """

    # .05-.1% for large models, .6% for tiny ones
    sigma: Prior = lognormal(0.003, 0.8, "seeds differ by .05-.6%")
    model: Prior = lognormal(
        0.006, 0.5, "left-out sizes of four grids of tiny models: .4-.5%, and 1%"
    )
    checkpoint: Prior = lognormal(
        0.003, 0.7, "seeds of tiny models: .36% of a checkpoint"
    )
    run: Prior = lognormal(
        0.002, 0.7, "seeds of large models differ by .05-.1%, tiny .4-.9%"
    )
    setting: Prior = lognormal(0.003, 0.8, "settings lie .2-1% off a smooth law")


class Rows(NamedTuple):
    """Rows from which a process is learned. Points along one run have correlated
    errors; the rows are transformed so that errors are independent
    (`independent_rows`).

    Parameters
    ----------
    features
        Basis functions, shape (row, function).
    groups
        One-hot groups by kind, each of shape (row, group).
    combine
        Function that transforms measured residuals, shape (draw, row).
    precision
        Precision of a row relative to the first row of its run, shape (row,).
    along_run
        Whether the table has several points along a run.
    row_sd
        Standard errors of log loss that the table states, shape (row,), before the
        transformation; or None.
    """

    features: Float[np.ndarray, "row function"]
    groups: Mapping[str, Float[np.ndarray, "row group"]]
    combine: Callable[[Float[np.ndarray, "draw row"]], Float[np.ndarray, "draw row"]]
    precision: Float[np.ndarray, " row"]
    along_run: bool = False
    row_sd: Float[np.ndarray, " row"] | None = None

    def over(self, factor: Float[np.ndarray, " row"]) -> Rows:
        """Divide residuals of the rows by the scale of their errors, shape (row,) as
        measured.
        """
        return self._replace(combine=lambda residual: self.combine(residual / factor))


@dataclass(eq=False)
class Marginal:
    """The marginal likelihood of the log scales, given weights of rows.

    ``spectrum``: prior variances of all columns, given the scales of ``names``.
    ``linear``: columns whose coefficients are drawn (basis functions, groups, and the
    errors that the table states), shape (row, column). ``law``: directions of the law's
    uncertainty, shape (row, direction). ``residual``: mean residual, shape (row,).
    ``weight``: weights of rows, shape (row,).
    """

    spectrum: Spectrum
    linear: Float[np.ndarray, "row column"]
    law: Float[np.ndarray, "row direction"]
    residual: Float[np.ndarray, " row"]
    precision: Float[np.ndarray, " row"]
    weight: Float[np.ndarray, " row"]
    names: tuple[str, ...]
    centre: Float[np.ndarray, " scale"]
    spread: Float[np.ndarray, " scale"]

    @classmethod
    def of(
        cls, process: Process, rows: Rows, residuals: Float[np.ndarray, "draw row"]
    ) -> Marginal:
        """Set up the marginal likelihood of a process from rows and residuals of shape
        (draw, row).
        """
        priors = scale_priors(process, list(rows.groups))
        sizes = [groups.shape[1] for groups in rows.groups.values()]
        moments = np.array([(np.log(p.args[0]), p.args[1]) for p in priors.values()])
        law = _find_directions(residuals)
        row_sd = _stated_errors(rows)
        of_unit_variance = row_sd.shape[1] + law.shape[1]
        return cls(
            _collect_variances(process, sizes, of_unit_variance, len(priors)),
            np.hstack([rows.features, *rows.groups.values(), row_sd]),
            law,
            residuals.mean(axis=0),
            rows.precision,
            rows.precision,
            tuple(priors),
            moments[:, 0],
            moments[:, 1],
        )

    def __post_init__(self) -> None:
        columns = np.hstack([self.linear, self.law])
        # false for groups without rows here
        self._reached = np.any(columns != 0, axis=0)
        self._columns = columns[:, self._reached]
        self.weigh(self.weight)

    def weigh(self, weight: Float[np.ndarray, " row"]) -> None:
        """Compute the products that depend on the weights of the rows."""
        columns = self._columns
        weighted = columns * weight[:, None]
        self.weight = weight
        self._gram = columns.T @ weighted
        self._product = weighted.T @ self.residual
        square = self.residual @ (weight * self.residual)
        self._square = float(square)
        log_weights = np.log(weight)
        self._log_weights = float(np.sum(log_weights))

    def _root_variances(
        self, log_scales: Float[np.ndarray, " scale"]
    ) -> Float[np.ndarray, " column"]:
        """Compute the prior sds of all columns, shape (column,)."""
        log_variances = self.spectrum.log_variances(log_scales)
        return np.exp(np.maximum(log_variances, -80.0) / 2)

    @property
    def _sigma(self) -> int:
        return self.names.index("sigma")

    def log_density(self, log_scales: Float[np.ndarray, " scale"]) -> float:
        """Compute the log marginal likelihood plus log prior, up to a constant."""
        return self._solve(log_scales)[0]

    def _solve(self, log_scales: Float[np.ndarray, " scale"]):
        """Compute the log density, the Cholesky factor, the whitened solution and the
        prior sds, for columns that are reached.
        """
        # With V = diag(root^2) and noise precision n W, in weights over their sds: B =
        # I + n V^1/2 X'WX V^1/2 = L L'. Then |n^-1 W^-1 + X V X'| = n^-rows |B| / |W|,
        # and the quadratic form is n r'Wr - |L^-1 n V^1/2 X'Wr|^2 (Woodbury; Rasmussen
        # and Williams 2006, eqs. A.9 and A.10). Only matrices of the size of
        # the basis are factored.
        root = self._root_variances(log_scales)[self._reached]
        noise = np.exp(-2 * log_scales[self._sigma])
        factor = _factor_gram(self._gram, np.sqrt(noise) * root)
        half, _ = lapack.dtrtrs(factor, noise * root * self._product, lower=True)
        rows = len(self.residual)
        log_p = -0.5 * (
            2 * rows * log_scales[self._sigma]
            - self._log_weights
            + 2 * np.sum(np.log(np.diag(factor)))
            + noise * self._square
            - half @ half
        )
        log_p -= 0.5 * np.sum(((log_scales - self.centre) / self.spread) ** 2)
        return float(log_p), factor, half, root

    def gradient(
        self, log_scales: Float[np.ndarray, " scale"]
    ) -> tuple[float, Float[np.ndarray, " scale"]]:
        """Compute the log density and its gradient.

        For a weight of prior variance v and posterior mean m and variance s, the slope
        in log v is (m^2 / v + s / v - 1) / 2.
        """
        log_p, factor, half, root = self._solve(log_scales)
        # The posterior of the scaled weights is normal with covariance B^-1 = L^-T
        # L^-1, of which only the diagonal is needed, and mean L^-T half.
        inverse, _ = lapack.dtrtri(factor, lower=True)
        mean = inverse.T @ half
        shrunk = np.sum(inverse**2, axis=0)
        along_log_variances = 0.5 * (mean**2 + shrunk - 1)
        slopes = self.spectrum.slopes(log_scales)[self._reached]
        slope = along_log_variances @ slopes
        noise = np.exp(-2 * log_scales[self._sigma])
        fitted = root * mean
        # The slope in log sigma is n (sum of squared residuals) + (effective
        # parameters) - rows. By Fisher's identity it is the mean slope of the complete
        # log likelihood. The trace of X cov X'W n is the number of columns minus the
        # trace of B^-1.
        squares = (
            self._square - 2 * fitted @ self._product + fitted @ self._gram @ fitted
        )
        used = len(shrunk) - np.sum(shrunk)
        slope[self._sigma] += noise * squares + used - len(self.residual)
        of_prior = (log_scales - self.centre) / self.spread**2
        return log_p, slope - of_prior

    def mode(self, rounds: int = 4, dof: float = 8.0) -> Float[np.ndarray, " scale"]:
        """Find the most probable log scales; the rows are reweighted a number of times.

        A row's weight is the mean precision of Student-t noise given its residual: (dof
        + 1) / (dof + (residual^2 + leverage) / sigma^2).
        """
        at = self.centre
        for _ in range(rounds):
            at = self.climb(at)
            # the E step of Student-t noise; the next round finds the scales again
            square = self.scaled_squares(at)
            heavy = (dof + 1) / (dof + square)
            self.weigh(self.precision * heavy)
        return at

    def climb(
        self, start: Float[np.ndarray, " scale"], farthest: float = 5.0
    ) -> Float[np.ndarray, " scale"]:
        """Maximise the log density by L-BFGS from a start, with fixed weights of rows,
        within ``farthest`` prior sds of the prior's centre.
        """

        def negative(log_scales):
            log_p, slope = self.gradient(log_scales)
            return -log_p, -slope

        reach = farthest * self.spread
        optimum = optimize.minimize(
            negative,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=optimize.Bounds(self.centre - reach, self.centre + reach),
            options={"maxiter": 60},
        )
        return optimum.x

    def scaled_squares(
        self, log_scales: Float[np.ndarray, " scale"]
    ) -> Float[np.ndarray, " row"]:
        """Compute the mean square of each row's noise over sigma's square, shape
        (row,).
        """
        _, factor, half, root = self._solve(log_scales)
        columns = self._columns * root
        mean, _ = lapack.dtrtrs(factor, half, lower=True, trans=True)
        # Var of the fit at a row: |L^-1 V^1/2 x|^2.
        whitened, _ = lapack.dtrtrs(factor, columns.T, lower=True)
        leverage = np.sum(whitened**2, axis=0)
        squares = (self.residual - columns @ mean) ** 2 + leverage
        return self.precision * squares * np.exp(-2 * log_scales[self._sigma])

    def draw_scales(
        self,
        mode: Float[np.ndarray, " scale"],
        tries: int,
        count: int,
        rng: np.random.Generator,
        step: float = 1e-2,
        flattest: float = 0.15,
        dof: int = 6,
    ) -> tuple[Float[np.ndarray, "draw scale"], float]:
        """Draw equally weighted log scales, shape (count, scale), by importance
        sampling; also returns k-hat.

        The proposal is a Student-t around the mode, with ``dof`` degrees of freedom.
        """
        steps = step * np.eye(len(mode))
        slopes = [
            self.gradient(mode + s)[1] - self.gradient(mode - s)[1] for s in steps
        ]
        # Central differences of the exact gradient; flat or uphill directions get the
        # flattest curvature, so that the proposal stays bounded.
        curvature = -np.array(slopes) / (2 * step)
        sizes, axes = np.linalg.eigh((curvature + curvature.T) / 2)
        root = axes / np.sqrt(np.maximum(sizes, flattest))

        def log_densities(tried):
            return np.array([self.log_density(log_scales) for log_scales in tried])

        tried, weight, khat = weighted_student(
            log_densities, mode, root, dof, tries, rng
        )
        return tried[by_weight(weight, count, rng)], khat

    def draw_linear(
        self,
        log_scales: Float[np.ndarray, " scale"],
        projected: Float[np.ndarray, "draw column"],
        rng: np.random.Generator,
    ) -> Float[np.ndarray, "draw column"]:
        """Draw the coefficients of the linear columns given each draw's residuals.

        ``projected``: weighted products of the columns with them, (draw, column).
        """
        columns = self.linear.shape[1]
        reached = self._reached[:columns]
        root = self._root_variances(log_scales)[:columns, None]
        noise = np.exp(-2 * log_scales[self._sigma])
        coefficients = rng.standard_normal((columns, len(projected)))
        of_linear = slice(np.count_nonzero(reached))
        gram = self._gram[of_linear, of_linear]
        factor = _factor_gram(gram, np.sqrt(noise) * root[reached, 0])
        right = noise * root[reached] * projected.T[reached]
        # mean L^-T L^-1 right, and L^-T z has covariance B^-1: an exact draw around it
        half, _ = lapack.dtrtrs(factor, right, lower=True)
        coefficients[reached], _ = lapack.dtrtrs(
            factor, half + coefficients[reached], lower=True, trans=True
        )
        return (root * coefficients).T


def scale_priors(
    process: Process, kinds: Sequence[str], error: RemainingError = RemainingError()
) -> dict[str, Prior]:
    """Collect the priors of all scales: of the process, of a run's own error, and of
    the effects of each kind of group.
    """
    taus = {tau_name(kind): getattr(error, kind) for kind in kinds}
    return {**process.priors, "sigma": error.sigma, **taus}


def tau_name(kind: str) -> str:
    """Name the scale of the effects of a kind of group."""
    return f"tau {kind}"


def _stated_errors(rows: Rows) -> Float[np.ndarray, "row column"]:
    """Build a column for each row's stated error, for a weight of unit variance; rows
    without one get no column.
    """
    if rows.row_sd is None:
        return np.zeros((len(rows.features), 0))
    errors = np.diag(rows.row_sd)[rows.row_sd > 0]
    return rows.combine(errors).T


def _collect_variances(
    process: Process, groups: Sequence[int], of_unit_variance: int, scales: int
) -> Spectrum:
    """Collect prior variances: of the process's functions, then of groups (each kind
    has its own scale among the last ones), then of columns of unit variance.
    """
    columns = process.size + sum(groups) + of_unit_variance
    offset = np.zeros(columns)
    linear, square = np.zeros((2, columns, scales))
    functions = slice(process.size)
    smooth = functions, slice(len(process.priors))
    offset[functions], linear[smooth], square[smooth] = process.spectrum
    start, first = process.size, scales - len(groups)
    for scale, count in enumerate(groups, first):
        linear[start : start + count, scale] = 2.0
        start += count
    return Spectrum(offset, linear, square)


def _factor_gram(
    gram: Float[np.ndarray, "column column"], scale: Float[np.ndarray, " column"]
) -> Float[np.ndarray, "column column"]:
    """Compute the lower Cholesky factor of I + S G S.

    ``scale``: prior sds over that of the noise, the diagonal of S.
    """
    inner = gram * scale
    inner *= scale[:, None]
    inner[np.diag_indices_from(inner)] += 1
    # symmetric, so that its transpose is itself in LAPACK's order
    factor, failed = lapack.dpotrf(inner.T, lower=True)
    if failed:
        # With huge scales the identity is smaller than the rounding of the largest
        # entries, so a ridge is added that makes the matrix positive definite again.
        ridge = 1e-12 * inner.diagonal().max()
        raised = inner + ridge * np.eye(len(inner))
        return linalg.cholesky(raised, lower=True, check_finite=False)
    return factor


def _find_directions(
    residuals: Float[np.ndarray, "draw row"], count: int = 14
) -> Float[np.ndarray, "row direction"]:
    """Find the principal directions of the law's uncertainty at the runs, up to a
    number, shape (row, direction).
    """
    # The leading directions of the draws' covariance at the runs enter the linear model
    # as columns of unit prior variance. With fewer draws than runs, the eigenvalues
    # come from the smaller matrix, draws x draws.
    freedom = max(len(residuals) - 1, 1)
    away = residuals - residuals.mean(axis=0)
    centred = away / np.sqrt(freedom)
    by_draw = len(centred) < centred.shape[1]
    square = centred @ centred.T if by_draw else centred.T @ centred
    most = len(square)
    leading = (max(most - count, 0), most - 1)
    squares, axes = linalg.eigh(square, subset_by_index=leading)
    sizes = np.sqrt(np.maximum(squares, 0.0))
    is_large = sizes > 1e-3 * max(sizes[-1], 1e-12)
    if by_draw:
        return centred.T @ axes[:, is_large]
    return axes[:, is_large] * sizes[is_large]

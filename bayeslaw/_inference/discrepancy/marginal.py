"""Compute the marginal likelihood of a misfit's scales, and draw the scales and the
weights, which are linear given the scales.

With normal weights the process is a Bayesian linear model: its log scales (lengths,
sizes, noise, what a checkpoint shares) have a closed marginal likelihood and gradient,
and its weights are drawn exactly (Rasmussen and Williams 2006, sections 2.1 and 5.4.1).
Weights are divided by their prior sds, so no inverse variance is formed. Only columns
that are nonzero at some row enter; the others keep their priors. Many columns of which no
two meet in a row, such as the effects of a thousand runs, are eliminated first, for their
part of the matrix is diagonal. Heavy tails become weights of rows, updated at the mode
(Student-t noise as a mixture of normals: Lange, Little and Taylor 1989).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import linalg, optimize, sparse
from scipy.linalg import lapack

from bayeslaw._inference.diagnostics import by_weight, weighted_student
from bayeslaw._inference.discrepancy.process import Process, Spectrum, at_size
from bayeslaw._inference.table import MANY
from bayeslaw._law.priors import Prior, lognormal

if TYPE_CHECKING:
    from jaxtyping import Bool, Float


class RemainingError(NamedTuple):
    """Priors of the errors beside the misfit.

    ``sigma``: scale of a run's own error; the others: scales of the effects that rows
    of a group share. ``model``: at models of `process.TINY` parameters; it falls by the
    power ``model_by_size`` of size.
    """

    # .05-.1% for large models, .6% for tiny ones
    sigma: Prior = lognormal(0.003, 0.8, "seeds differ by .05-.6%")
    model: Prior = lognormal(
        0.005, 0.5, "left-out sizes of tiny models: .4-.5%, of tinier 1%; large: seeds"
    )
    model_by_size: float = 1 / 6
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
    transform
        Matrix that transforms what is measured, shape (row, row).
    scale
        Scales of the errors, by which what is measured is divided, shape (row,).
    precision
        Precision of a row relative to the first row of its run, shape (row,).
    along_run
        Whether the table has several points along a run.
    row_sd
        Standard errors of log loss that the table states, shape (row,), before the
        transformation; or None.
    """

    features: Float[np.ndarray, "row function"]
    groups: Mapping[str, sparse.csr_array]
    transform: sparse.csr_array
    scale: Float[np.ndarray, " row"]
    precision: Float[np.ndarray, " row"]
    along_run: bool = False
    row_sd: Float[np.ndarray, " row"] | None = None

    def combine(
        self, residual: Float[np.ndarray, "*draw row"]
    ) -> Float[np.ndarray, "*draw row"]:
        """Transform measured residuals."""
        return (self.transform @ (residual / self.scale).T).T


@dataclass(eq=False)
class Marginal:
    """The marginal likelihood of the log scales, given weights of rows.

    Columns are basis functions, groups, the errors that the table states (these are
    drawn: the first ``linear`` of all), and directions of the law's uncertainty.
    ``spectrum``: their prior variances, given the scales of ``names``. ``single``: those
    of which no two meet in a row, (row, single), which ``is_single`` tells among all, and
    ``columns`` the others, (row, column). ``residual``: mean residual, shape (row,).
    ``weight``: weights of rows, shape (row,).
    """

    spectrum: Spectrum
    columns: Float[np.ndarray, "row column"]
    single: sparse.csr_array
    is_single: Bool[np.ndarray, " any"]
    linear: int
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
        """Set up the marginal likelihood of a process from rows and residuals."""
        priors = scale_priors(process, list(rows.groups))
        sizes = [groups.shape[1] for groups in rows.groups.values()]
        moments = np.array([(np.log(p.args[0]), p.args[1]) for p in priors.values()])
        law = _find_directions(residuals)
        row_sd = _stated_errors(rows)
        of_unit_variance = row_sd.shape[1] + law.shape[1]
        blocks = [rows.features, *rows.groups.values(), row_sd, law]
        place = _find_single(blocks)
        others = [block for i, block in enumerate(blocks) if i != place]
        dense = [
            block.toarray() if isinstance(block, sparse.csr_array) else block
            for block in others
        ]
        is_single = [
            np.full(block.shape[1], i == place) for i, block in enumerate(blocks)
        ]
        return cls(
            _collect_variances(process, sizes, of_unit_variance, len(priors)),
            np.hstack(dense),
            sparse.csr_array((len(law), 0)) if place is None else blocks[place],
            np.concatenate(is_single),
            process.size + sum(sizes) + row_sd.shape[1],
            residuals.mean(axis=0),
            rows.precision,
            rows.precision,
            tuple(priors),
            moments[:, 0],
            moments[:, 1],
        )

    def __post_init__(self) -> None:
        # false for groups without rows here
        is_reached = np.any(self.columns != 0, axis=0)
        self._columns = self.columns[:, is_reached]
        self._of_columns = np.flatnonzero(~self.is_single)[is_reached]
        is_reached = abs(self.single).sum(axis=0) > 0
        self._single = self.single[:, is_reached]
        self._of_single = np.flatnonzero(self.is_single)[is_reached]
        self.weigh(self.weight)

    def weigh(self, weight: Float[np.ndarray, " row"]) -> None:
        """Compute the products that depend on the weights of the rows."""
        columns = self._columns
        weighted = columns * weight[:, None]
        self.weight = weight
        self._gram = columns.T @ weighted
        self._product = weighted.T @ self.residual
        single = sparse.diags_array(weight) @ self._single
        self._cross = single.T @ columns
        self._singles = single.multiply(self._single).sum(axis=0)
        self._single_product = single.T @ self.residual
        square = self.residual @ (weight * self.residual)
        self._square = float(square)
        log_weights = np.log(weight)
        self._log_weights = float(np.sum(log_weights))

    def projection(self, rows: Rows) -> Callable[[np.ndarray], np.ndarray]:
        """Return the function that computes the weighted products of the linear columns
        with measured residuals, from shape (draw, row) to (draw, linear).
        """
        # X'W T r/s = ((T'W X) / s)' r: the rows are combined once, not for every draw
        combined = sparse.diags_array(1 / rows.scale) @ rows.transform.T
        weighted = combined @ sparse.diags_array(self.weight)
        of_columns, of_single = weighted @ self.columns, (weighted @ self.single).T

        def project(residuals: Float[np.ndarray, "draw row"]):
            products = np.empty((len(residuals), len(self.is_single)))
            products[:, ~self.is_single] = residuals @ of_columns
            products[:, self.is_single] = (of_single @ residuals.T).T
            return products[:, : self.linear]

        return project

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

    def _factor(self, log_scales: Float[np.ndarray, " scale"], most: int) -> Factor:
        """Factor the matrix of the first ``most`` columns that are reached."""
        # With V = diag(root^2) and noise precision n W, in weights over their sds: B =
        # I + n V^1/2 X'WX V^1/2 = L L'. Only matrices of the size of the basis are
        # factored: of single columns the part of B is diagonal, and comes first.
        root = self._root_variances(log_scales)
        of_columns, of_single = root[self._of_columns[:most]], root[self._of_single]
        noise = np.exp(-2 * log_scales[self._sigma])
        scale = np.sqrt(noise) * of_columns
        diagonal = np.sqrt(1 + noise * of_single**2 * self._singles)
        cross = self._cross[:, :most] * (np.sqrt(noise) * of_single / diagonal)[:, None]
        cross *= scale
        lower = _factor_gram(self._gram[:most, :most], scale, cross)
        return Factor(lower, diagonal, cross, of_columns, of_single, float(noise))

    def _solve(self, log_scales: Float[np.ndarray, " scale"]):
        """Compute log density, factor, and whitened columns."""
        # |n^-1 W^-1 + X V X'| = n^-rows |B| / |W|, and the quadratic form is n r'Wr -
        # |L^-1 n V^1/2 X'Wr|^2 (Woodbury; Rasmussen and Williams 2006, eqs. A.9, A.10).
        f = self._factor(log_scales, len(self._of_columns))
        half, of_single = f.whiten(
            f.noise * f.root * self._product,
            f.noise * f.single_root * self._single_product,
        )
        rows = len(self.residual)
        log_determinant = np.sum(np.log(np.diag(f.lower))) + np.sum(np.log(f.diagonal))
        log_p = -0.5 * (
            2 * rows * log_scales[self._sigma]
            - self._log_weights
            + 2 * log_determinant
            + f.noise * self._square
            - half @ half
            - of_single @ of_single
        )
        log_p -= 0.5 * np.sum(((log_scales - self.centre) / self.spread) ** 2)
        return float(log_p), f, half, of_single

    def gradient(
        self, log_scales: Float[np.ndarray, " scale"]
    ) -> tuple[float, Float[np.ndarray, " scale"]]:
        """Compute the log density and its gradient.

        For a weight of prior variance v and posterior mean m and variance s, the slope
        in log v is (m^2 / v + s / v - 1) / 2.
        """
        log_p, f, half, of_single = self._solve(log_scales)
        # The posterior of the scaled weights is normal with covariance B^-1, of which
        # only the diagonal is needed.
        inverse, _ = lapack.dtrtri(f.lower, lower=True)
        mean = inverse.T @ half
        shrunk = np.sum(inverse**2, axis=0)
        single_mean = (of_single - f.cross @ mean) / f.diagonal
        whitened = np.sum((inverse @ f.cross.T) ** 2, axis=0)
        single_shrunk = (1 + whitened) / f.diagonal**2
        slopes = self.spectrum.slopes(log_scales)
        slope = 0.5 * (mean**2 + shrunk - 1) @ slopes[self._of_columns]
        slope += 0.5 * (single_mean**2 + single_shrunk - 1) @ slopes[self._of_single]
        fitted, single_fitted = f.root * mean, f.single_root * single_mean
        # The slope in log sigma is n (sum of squared residuals) + (effective
        # parameters) - rows. By Fisher's identity it is the mean slope of the complete
        # log likelihood. The trace of X cov X'W n is the number of columns minus the
        # trace of B^-1.
        squares = (
            self._square - 2 * fitted @ self._product + fitted @ self._gram @ fitted
        )
        squares += single_fitted @ (
            2 * (self._cross @ fitted - self._single_product)
            + self._singles * single_fitted
        )
        used = len(shrunk) - np.sum(shrunk) + len(single_shrunk) - np.sum(single_shrunk)
        slope[self._sigma] += f.noise * squares + used - len(self.residual)
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
        """Compute the mean square of each row's noise over sigma's square."""
        _, f, half, of_single = self._solve(log_scales)
        mean, single_mean = f.unwhiten(half, of_single)
        columns = self._columns * f.root
        single = self._single @ sparse.diags_array(f.single_root)
        # Var of the fit at a row: |L^-1 V^1/2 x|^2.
        by_diagonal = single @ sparse.diags_array(1 / f.diagonal)
        rest = columns - by_diagonal @ f.cross
        whitened, _ = lapack.dtrtrs(f.lower, rest.T, lower=True)
        leverage = np.sum(whitened**2, axis=0)
        leverage = leverage + by_diagonal.multiply(by_diagonal).sum(axis=1)
        missed = self.residual - columns @ mean - single @ single_mean
        squares = missed**2 + leverage
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
        root = self._root_variances(log_scales)[: self.linear, None]
        f = self._factor(log_scales, int(np.sum(self._of_columns < self.linear)))
        columns, single = self._of_columns[: len(f.root)], self._of_single
        coefficients = rng.standard_normal((self.linear, len(projected)))
        right = f.noise * root * projected.T
        # mean L^-T L^-1 right, and L^-T z has covariance B^-1: an exact draw around it
        half, of_single = f.whiten(right[columns], right[single])
        coefficients[columns], coefficients[single] = f.unwhiten(
            half + coefficients[columns], of_single + coefficients[single]
        )
        return (root * coefficients).T


class Factor(NamedTuple):
    """Cholesky factor L of B, with single columns first: they have its diagonal, and
    ``cross`` times it leads from them to the others.

    ``root``, ``single_root``: prior sds. ``noise``: precision of the noise.
    """

    lower: Float[np.ndarray, "column column"]
    diagonal: Float[np.ndarray, " single"]
    cross: Float[np.ndarray, "single column"]
    root: Float[np.ndarray, " column"]
    single_root: Float[np.ndarray, " single"]
    noise: float

    def whiten(
        self,
        right: Float[np.ndarray, " column *draw"],
        of_single: Float[np.ndarray, " single *draw"],
    ) -> tuple[Float[np.ndarray, " column *draw"], Float[np.ndarray, " single *draw"]]:
        """Multiply by L^-1."""
        of_single = (of_single.T / self.diagonal).T
        rest = right - self.cross.T @ of_single
        return lapack.dtrtrs(self.lower, rest, lower=True)[0], of_single

    def unwhiten(
        self,
        half: Float[np.ndarray, " column *draw"],
        of_single: Float[np.ndarray, " single *draw"],
    ) -> tuple[Float[np.ndarray, " column *draw"], Float[np.ndarray, " single *draw"]]:
        """Multiply by L^-T."""
        solved, _ = lapack.dtrtrs(self.lower, half, lower=True, trans=True)
        return solved, ((of_single - self.cross @ solved).T / self.diagonal).T


def scale_priors(
    process: Process, kinds: Sequence[str], error: RemainingError = RemainingError()
) -> dict[str, Prior]:
    """Collect the priors of all scales: of process, errors and effects."""
    taus = {tau_name(kind): getattr(error, kind) for kind in kinds}
    model = tau_name("model")
    if model in taus:
        taus[model] = at_size(error.model, process.models, error.model_by_size)
    return {**process.priors, "sigma": error.sigma, **taus}


def tau_name(kind: str) -> str:
    """Name the scale of the effects of a kind of group."""
    return f"tau {kind}"


def _stated_errors(rows: Rows) -> sparse.csr_array:
    """Build a column for each row's stated error, for a weight of unit variance, shape
    (row, column); rows without one get no column.
    """
    if rows.row_sd is None:
        return sparse.csr_array((len(rows.features), 0))
    errors = sparse.diags_array(rows.row_sd / rows.scale).tocsr()
    return (rows.transform @ errors)[:, rows.row_sd > 0]


def _find_single(blocks: Sequence[np.ndarray | sparse.csr_array]) -> int | None:
    """Find the largest block with many columns of which no two meet in a row."""
    single = [
        i
        for i, block in enumerate(blocks)
        if isinstance(block, sparse.csr_array)
        and block.shape[1] > MANY
        and np.diff(block.indptr).max() <= 1
    ]
    return max(single, key=lambda i: blocks[i].shape[1], default=None)


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
    gram: Float[np.ndarray, "column column"],
    scale: Float[np.ndarray, " column"],
    cross: Float[np.ndarray, "single column"],
) -> Float[np.ndarray, "column column"]:
    """Compute the lower Cholesky factor of I + S G S - C' C.

    ``scale``: prior sds over that of the noise, the diagonal of S.
    """
    inner = gram * scale
    inner *= scale[:, None]
    inner.flat[:: len(inner) + 1] += 1
    largest = inner.diagonal().max(initial=1.0)
    if len(cross):
        inner -= cross.T @ cross
    # symmetric, so that its transpose is itself in LAPACK's order
    factor, failed = lapack.dpotrf(inner.T, lower=True)
    if failed:
        # With huge scales the identity is smaller than the rounding of the largest
        # entries, so a ridge is added that makes the matrix positive definite again.
        ridge = 1e-12 * largest
        raised = inner + ridge * np.eye(len(inner))
        return linalg.cholesky(raised, lower=True, check_finite=False)
    return factor


def _find_directions(
    residuals: Float[np.ndarray, "draw row"], count: int = 14
) -> Float[np.ndarray, "row direction"]:
    """Find the principal directions of the law's uncertainty at runs."""
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

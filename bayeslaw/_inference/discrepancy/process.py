"""Expand a law's smooth misfit in basis functions with normal weights.

The misfit is a Gaussian process on log loss (Kennedy and O'Hagan 2001): a sum of
squared-exponential pieces over each axis and over pairs of axes.

A piece is a sum of cosines on an interval a little wider than the data (Hilbert space
approximation with reflecting ends: Solin and Sarkka 2020, Riutort-Mayol et al. 2022).
Beyond its interval a piece is constant; what a law errs beyond the data is `drift`.
The cosines do not depend on the length scales, so a draw of weights is a draw of the
process: a pure function of the run, for JAX.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from bayeslaw._base.errors import FitFileError
from bayeslaw._inference.discrepancy.axes import (
    AXES,
    REPLAY_ODDS,
    axis_names,
    linear_unit,
    position,
    varies,
)
from bayeslaw._law.columns import starts_from_losses
from bayeslaw._law.priors import Prior, lognormal

if TYPE_CHECKING:
    from jaxtyping import Float

    from bayeslaw._base.arrays import AnyArray


# Power of the own domain's share by which errors of runs fall. Seeds of tiny models: .27
# and .23 (source), .34 and .34 (target).
OWN_POWER = 0.25
LEAST_SHARE = 0.02  # of the own domain: with less, errors are as large as with this
TINY = 1e6  # parameters of the models at which scales that fall with size are stated


def at_size(prior: Prior, size: float, power: float, least: float = 0.0) -> Prior:
    """Restate a scale's prior at a size: its median falls, to ``least``."""
    median, spread = prior.args
    return lognormal(max(median * (size / TINY) ** -power, least), spread, prior.source)


class MisfitPriors(NamedTuple):
    """Priors of a misfit's scales.

    ``length``: length scale of a piece, in units of its axis. ``misfit``: sd of all
    pieces together, in log loss (pieces share the variance equally). ``state_misfit``:
    the same for a law that starts from the checkpoint's loss, at models of `TINY`
    parameters; it falls by the power ``by_size`` of size down to ``misfit``.
    """

    length: Prior = lognormal(1.0, 0.5, "one unit of the axis; measured .6 to 1.5")
    misfit: Prior = lognormal(0.005, 1.0, "laws of N and D miss public tables by .1-1%")
    state_misfit: Prior = lognormal(
        0.010, 1.0, "state laws miss models of 1e6 parameters by .4-.9%, of 6e4 by 1-2%"
    )
    by_size: float = 1 / 3

    def of_all_pieces(self, columns: Iterable[str], size: float) -> Prior:
        """Choose the prior of the misfit's sd for columns and size."""
        if not starts_from_losses(columns):
            return self.misfit
        return at_size(self.state_misfit, size, self.by_size, self.misfit.median)


PRIORS = MisfitPriors()


@dataclass(frozen=True)
class Fading:
    """Scale errors by (D / largest)^-power up to the longest run; beyond it by 1.

    ``largest``: tokens of the longest run that the law was fitted to.
    """

    power: float
    largest: float

    def factor(
        self, covariates: Mapping[str, Any], xp: ModuleType = jnp
    ) -> Float[AnyArray, "*run"]:
        """Compute the scale of errors at each run relative to the longest run."""
        tokens = xp.maximum(xp.asarray(covariates["D"], float), 1.0)
        below = xp.minimum(xp.log(tokens / self.largest), 0.0)
        # NumPy makes scalars of arrays without axes
        return xp.asarray(xp.exp(-self.power * below))

    def sizes(self, covariates: Mapping[str, Any]) -> Float[np.ndarray, "*run"]:
        """Compute `factor` in NumPy."""
        return np.asarray(self.factor(covariates, np))


@dataclass(frozen=True)
class OwnShare:
    """Scale the errors of runs by (usual / share)^`OWN_POWER`, with the share of the data
    that is of the loss's own domain: replay for a loss of the source, else the rest.

    Seeds of tiny models show it, and so do forecasts of left-out sizes and stages
    (docs/state_laws.md). ``usual``: the share at which the scale is 1.
    """

    is_source: bool
    usual: float

    @classmethod
    def of(cls, replay: Float[np.ndarray, " run"], is_source: bool) -> OwnShare:
        """State the scale so that its mean square over runs is 1."""
        square = np.mean(cls(is_source, 1.0).sizes(replay) ** 2)
        return cls(is_source, float(square) ** (-0.5 / OWN_POWER))

    def sizes(self, replay: Float[AnyArray, "*run"]) -> Float[np.ndarray, "*run"]:
        """Compute the scale of errors at each run."""
        own = np.asarray(replay, float)
        if not self.is_source:
            own = 1 - own
        return (self.usual / np.maximum(own, LEAST_SHARE)) ** OWN_POWER


@dataclass(frozen=True)
class Axis:
    """The interval of an axis, a little wider than the data, and its cosines.

    ``functions``, ``pair_functions``: number of cosines in the piece over this axis, and
    in a piece over two axes; ``unit``: column values per unit of the axis, 0 for a log.
    """

    name: str
    low: float
    high: float
    functions: int
    pair_functions: int
    unit: float = 0.0

    def position(
        self, covariates: Mapping[str, Any], xp: ModuleType
    ) -> Float[AnyArray, "*run"]:
        """Locate each run on the axis, shape (run,)."""
        return position(self.name, covariates, xp, self.unit)

    @property
    def length(self) -> float:
        return self.high - self.low

    def cosines(
        self, x: Float[AnyArray, "*run"], xp: ModuleType
    ) -> Float[AnyArray, "*run function"]:
        """Evaluate the cosines at positions ``x`` of shape (run,): (run, function).

        Chebyshev's recurrence computes cos(j t) from cos(t), the one cosine evaluated.
        """
        # Eigenfunctions of the Laplacian with reflecting ends on an interval of length
        # L: sqrt(2 / L) cos(pi j t), and sqrt(1 / L) for j = 0. Solin and Sarkka (2020)
        # use sines, which vanish at the ends.
        share = xp.clip((x - self.low) / self.length, 0.0, 1.0)
        first = xp.cos(np.pi * share)
        waves = [xp.ones_like(first), first]
        while len(waves) < self.functions:
            waves.append(2 * first * waves[-1] - waves[-2])
        height = np.full(self.functions, np.sqrt(2.0 / self.length))
        height[0] = np.sqrt(1.0 / self.length)
        stacked = xp.stack(waves, axis=-1)
        return xp.broadcast_to(height, stacked.shape) * stacked


@dataclass(frozen=True)
class Process:
    """The basis of a misfit. Hashable, because compiled programs are cached by it.

    Order of the weights: pieces over each axis, pieces over each pair. ``fading`` scales
    the misfit and the errors of runs up at small budgets, ``own_share`` the latter by
    replay. ``models``: the middle of the models' sizes, in parameters.
    """

    axes: tuple[Axis, ...]
    pairs: tuple[tuple[int, int], ...]
    fading: Fading | None = None
    models: float = TINY
    own_share: OwnShare | None = None

    def error_sizes(
        self, covariates: Mapping[str, Any]
    ) -> Float[np.ndarray, "*run"] | float:
        """Compute the scale of a run's error beside the misfit, relative to that of the
        noise.
        """
        size: Any = 1.0
        if self.fading is not None:
            size = self.fading.sizes(covariates)
        if self.own_share is not None:
            size = size * self.own_share.sizes(covariates["replay"])
        return size

    @property
    def size(self) -> int:
        """Number of basis functions."""
        return sum(self.sizes)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of basis functions in each piece."""
        single = [axis.functions for axis in self.axes]
        paired = [
            self.axes[i].pair_functions * self.axes[j].pair_functions
            for i, j in self.pairs
        ]
        return (*single, *paired)

    @cached_property
    def pieces(self) -> tuple[str, ...]:
        """Names of the pieces: ``"D"``, ``"N x replay"``."""
        names = [axis.name for axis in self.axes]
        paired = [f"{names[i]} x {names[j]}" for i, j in self.pairs]
        return (*names, *paired)

    @cached_property
    def priors(self) -> dict[str, Prior]:
        """Priors of length scales (units of the axis) and of the pieces' sds."""
        total = PRIORS.of_all_pieces((axis.name for axis in self.axes), self.models)
        median, spread = total.args
        # Variances add up: divided by sqrt(pieces), the misfit's sd is the same for any
        # number of pieces.
        piece = lognormal(median / np.sqrt(len(self.pieces)), spread, total.source)
        lengths = {f"length {axis.name}": PRIORS.length for axis in self.axes}
        return lengths | dict.fromkeys(self.pieces, piece)

    @cached_property
    def spectrum(self) -> Spectrum:
        """Prior variances of the weights; scales are in the order of `priors`."""
        return Spectrum.of(self)

    def features(self, covariates: Mapping[str, Any], xp: ModuleType = jnp) -> Any:
        """Evaluate every basis function at every run, shape (run, function)."""
        at = {axis.name: axis.position(covariates, xp) for axis in self.axes}
        shape = np.broadcast_shapes(*(x.shape for x in at.values()))
        at = {name: xp.broadcast_to(x, shape) for name, x in at.items()}
        blocks = [axis.cosines(at[axis.name], xp) for axis in self.axes]
        for i, j in self.pairs:
            first = blocks[i][..., : self.axes[i].pair_functions]
            second = blocks[j][..., : self.axes[j].pair_functions]
            # Basis functions and spectral densities of a product kernel are products of
            # those of its axes.
            product = first[..., :, None] * second[..., None, :]
            blocks.append(product.reshape(*shape, -1))
        functions = xp.concatenate(blocks, axis=-1)
        if self.fading is None:
            return functions
        return functions * self.fading.factor(covariates, xp)[..., None]

    def along(
        self, column: str, weights: Any, covariates: Mapping[str, Any]
    ) -> Callable[[Any], Any]:
        """Return one draw's misfit as a function of one column.

        Terms of the other columns are summed once. An evaluation then costs the cosines
        of one axis.

        Parameters
        ----------
        column
            Name of the free column, with or without an axis. The function takes a
            positive value of shape ().
        weights
            Weights of the basis functions, shape (function,).
        covariates
            Values of the other columns, each of shape ().
        """
        pieces = jnp.split(weights, np.cumsum(self.sizes)[:-1])
        single, paired = pieces[: len(self.axes)], pieces[len(self.axes) :]
        names = [axis.name for axis in self.axes]
        waves = {
            axis.name: axis.cosines(axis.position(covariates, jnp), jnp)
            for axis in self.axes
            if axis.name != column
        }
        level = jnp.zeros(())
        slopes = jnp.zeros(0)  # weights of the free axis's cosines
        if column in names:
            slopes = single[names.index(column)]
        for name, piece_weights in zip(names, single, strict=True):
            if name != column:
                level += waves[name] @ piece_weights
        for (i, j), flat in zip(self.pairs, paired, strict=True):
            first, second = self.axes[i], self.axes[j]
            counts = first.pair_functions, second.pair_functions
            matrix = flat.reshape(counts)
            if second.name == column:
                slopes = slopes.at[: counts[1]].add(
                    waves[first.name][: counts[0]] @ matrix
                )
                continue
            across = matrix @ waves[second.name][: counts[1]]
            if first.name == column:
                slopes = slopes.at[: counts[0]].add(across)
            else:
                level += waves[first.name][: counts[0]] @ across
        fixed = {name: value for name, value in covariates.items() if name != column}
        return Partial(partial(self._evaluate_at, column), level, slopes, fixed)

    def _evaluate_at(self, column, level, slopes, fixed, value):
        """Evaluate the misfit at a value of the column, from the sums of `along`."""
        covariates = fixed | {column: value}
        total = level
        for axis in self.axes:
            if axis.name == column:
                waves = axis.cosines(axis.position(covariates, jnp), jnp)
                total += waves @ slopes
        if self.fading is not None:
            total = total * self.fading.factor(covariates)
        return total


def process_of(
    covariates: Mapping[str, Float[np.ndarray, " run"]],
    along_run: bool = False,
) -> Process | None:
    """Build the process of a law that reads these columns, each of shape (run,).

    Returns None where no axis varies. ``along_run``: rows are points of learning
    curves. Areas under the learning rate then get no axis: each run has its own error
    process along its curve (`noise`), which forecast better than a shared misfit.
    """
    names = axis_names(covariates)
    if along_run:
        names = tuple(name for name in names if name not in AXES.areas)
    units = {name: linear_unit(name, covariates[name]) for name in names}
    at = {name: position(name, covariates, np, units[name]) for name in names}
    at = {name: x for name, x in at.items() if varies(x)}
    if list(at) == ["replay"]:
        at = {REPLAY_ODDS: position(REPLAY_ODDS, covariates, np)}
        units[REPLAY_ODDS] = 0.0
    if not at:
        return None
    start = next((name for name in AXES.starts if name in at), None)
    # Margin of the interval beyond the data, in units. It is narrower if the
    # checkpoint's loss is an axis, because an unseen model size lies far outside the
    # data on that axis.
    margin = 1.0 if start is None else 0.7
    axes = [_build_axis(name, x, margin, units[name]) for name, x in at.items()]
    pairs = _choose_pairs(tuple(at), start)
    return Process(tuple(axes), pairs, models=middle_size(covariates))


def middle_size(covariates: Mapping[str, Float[np.ndarray, " run"]]) -> float:
    """Compute the geometric middle of the sizes of models; `TINY` where none is known."""
    sizes = covariates.get("N")
    return TINY if sizes is None else float(np.sqrt(np.min(sizes) * np.max(sizes)))


def _choose_pairs(
    names: tuple[str, ...], start: str | None
) -> tuple[tuple[int, int], ...]:
    """Choose the pairs of axes that get a piece, as indices into ``names``.

    A table of adaptations has few sizes. A piece over size, or the checkpoint's loss,
    and tokens would carry what one of them does along its tokens to the next size
    (docs/state_laws.md).
    """
    if start is not None:
        wanted = [(start, "replay"), ("D", "replay")]
    else:
        wanted = [] if "ptpp" in names else [("N", "D")]
        wanted += [("D", "replay"), ("N", "replay"), ("ptpp", "D"), ("ptpp", "replay")]
    return tuple(
        (names.index(a), names.index(b)) for a, b in wanted if {a, b} <= set(names)
    )


def _build_axis(
    name: str, x: Float[AnyArray, " run"], margin: float, unit: float
) -> Axis:
    """Build an axis's interval around the data, and choose its cosines."""
    low, high = float(x.min()) - margin, float(x.max()) + margin

    def count(per_unit: float, least: int, most: int) -> int:
        return int(np.clip(np.ceil((high - low) * per_unit), least, most))

    # enough cosines for length scales down to .6 of a unit, in pairs down to 1
    return Axis(name, low, high, count(1.6, 4, 18), count(1.0, 3, 9), unit)


def process_to_dict(process: Process | None) -> dict | None:
    """Convert a process to JSON types."""
    if process is None:
        return None
    return asdict(process)


def process_from_dict(content: Mapping[str, Any] | None) -> Process | None:
    """Convert the output of `process_to_dict` back to a process.

    Raises
    ------
    FitFileError
        The misfit has walks, which it had before they were taken out.
    """
    if content is None:
        return None
    if content.get("walks"):
        raise FitFileError(
            "saved by an earlier version, whose misfit had walks; fit again"
        )
    axes = [Axis(**axis) for axis in content["axes"]]
    pairs = [(int(i), int(j)) for i, j in content["pairs"]]
    fading, own_share = content["fading"], content.get("own_share")
    return Process(
        tuple(axes),
        tuple(pairs),
        None if fading is None else Fading(**fading),
        content.get("models", TINY),
        None if own_share is None else OwnShare(**own_share),
    )


class Spectrum(NamedTuple):
    """Log prior variance of every weight as a formula of the log scales.

    The prior variance of a weight is the kernel's spectral density at its frequency w
    (Solin and Sarkka 2020): sqrt(2 pi) l exp(-l^2 w^2 / 2) for one axis of length scale
    l. Spectral densities of a pair multiply. Log variances are thus
    offset + linear @ log scales - square @ exp(2 log scales) / 2.

    ``offset``: shape (function,); ``linear`` and ``square`` (w^2, 0 but for length
    scales): shape (function, scale).
    """

    offset: Float[np.ndarray, " function"]
    linear: Float[np.ndarray, "function scale"]
    square: Float[np.ndarray, "function scale"]

    def log_variances(
        self, log_scales: Float[np.ndarray, "*draw scale"]
    ) -> Float[np.ndarray, "*draw function"]:
        """Log prior variance of each weight, shape (..., function)."""
        decay = np.exp(2 * log_scales) @ self.square.T
        return self.offset + log_scales @ self.linear.T - 0.5 * decay

    def slopes(
        self, log_scales: Float[np.ndarray, " scale"]
    ) -> Float[np.ndarray, "function scale"]:
        """Jacobian of `log_variances`, shape (function, scale)."""
        return self.linear - self.square * np.exp(2 * log_scales)

    @classmethod
    def of(cls, process: Process) -> Spectrum:
        """Build the formula of all log variances of a process, piece by piece."""
        index = {name: i for i, name in enumerate(process.priors)}
        lengths = [index[f"length {axis.name}"] for axis in process.axes]
        blocks = []
        alone = [(place,) for place in range(len(process.axes))]
        pieces = zip([*alone, *process.pairs], process.sizes, strict=True)
        for places, size in pieces:  # indices of a piece's axes
            linear, square = np.zeros((2, size, len(index)))
            axes = [process.axes[place] for place in places]
            counts = [a.functions if len(axes) == 1 else a.pair_functions for a in axes]
            numbers = np.unravel_index(np.arange(size), counts)
            # as in `features`, the index of the second axis varies fastest
            for place, number in zip(places, numbers, strict=True):
                frequency = np.pi * number / process.axes[place].length
                linear[:, lengths[place]] = 1.0
                square[:, lengths[place]] = frequency**2
            # log of sqrt(2 pi) along each axis
            offset = np.full(size, len(places) * 0.5 * np.log(2 * np.pi))
            linear[:, index[process.pieces[len(blocks)]]] = 2.0
            blocks.append((offset, linear, square))
        return cls(*(np.concatenate(parts) for parts in zip(*blocks, strict=True)))

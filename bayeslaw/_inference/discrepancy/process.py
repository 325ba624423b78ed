"""The smooth misfit of a law as a finite sum of basis functions with normal weights.

A Gaussian process on log loss: a squared-exponential piece over each axis and over pairs
of axes, and two integrated Wiener processes along compute and tokens per parameter,
whose wiggle inside the data says how fast to widen beyond them (Kennedy and O'Hagan
2001; Wahba 1990 for the splines).

Pieces are written in cosines on an interval a little wider than the data (the Hilbert
space approximation of Solin and Sarkka 2020, Riutort-Mayol et al. 2022, with reflecting
ends): the functions do not depend on the length scales, so that a draw of the process is
a draw of weights, a pure function of the run that can be jitted and solved for its roots.
Beyond the interval a piece stays what it is at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from bayeslaw._inference.discrepancy.axes import (
    AREAS,
    STARTS,
    WALKS,
    axis_names,
    linear_unit,
    position,
    varies,
    walk_position,
)
from bayeslaw._inference.discrepancy.fading import Fading
from bayeslaw._law.priors import Prior, lognormal

if TYPE_CHECKING:
    from jaxtyping import Float

    from bayeslaw._base.arrays import AnyArray


LENGTH = lognormal(1.0, 0.5, "one unit of the axis; measured .6 to 1.5")
WIGGLE = lognormal(
    0.002, 1.0, "public tables of N and D: .001-.003 an e-fold to the power 1.5"
)
# Of all pieces together, in log loss: each has this by the square root of their number.
MISFIT = lognormal(0.005, 1.0, "laws of N and D miss public tables by .1-1%")
STATE_MISFIT = lognormal(
    0.028, 1.0, "state laws miss tiny models by 3% in replay, 2.5% in D, 2% in S0 x D"
)


@dataclass(frozen=True)
class Axis:
    """An interval that is a little wider than the data, and how many functions it has.

    ``functions``: of the piece over this axis alone; ``pair_functions``: in pairs;
    ``unit``: of an axis along the column itself, 0 along its logarithm.
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
        """Where each run lies, shape (run,)."""
        return position(self.name, covariates, xp, self.unit)

    @property
    def length(self) -> float:
        return self.high - self.low

    def cosines(
        self, x: Float[AnyArray, "*run"], xp: ModuleType
    ) -> Float[AnyArray, "*run function"]:
        """The functions at positions ``x`` of shape (run,): (run, function).

        cos(j t) by Chebyshev's recurrence: one cosine in place of many.
        """
        # Eigenfunctions of the Laplacian with reflecting ends on an interval of length
        # L: sqrt(2 / L) cos(pi j t), and sqrt(1 / L) for j = 0. Solin and Sarkka (2020)
        # have sines, which are 0 at the ends.
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
class Walk:
    """An integrated Wiener process from the low end of the data, cell by cell.

    ``edges``: of the cells in which its second derivative is constant, in e-folds.
    """

    name: str
    edges: tuple[float, ...]

    @property
    def widths(self) -> Float[np.ndarray, " cell"]:
        return np.diff(self.edges)

    def ramps(
        self, x: Float[AnyArray, "*run"], xp: ModuleType
    ) -> Float[AnyArray, "*run cell"]:
        """Twice integrated cells of unit white noise at ``x``: (run, cell)."""
        edges = np.asarray(self.edges)
        shape = (*x.shape, len(self.widths))
        starts = xp.broadcast_to(edges[:-1], shape)
        ends = xp.broadcast_to(edges[1:], shape)
        # A second derivative of 1 / sqrt(width) within one cell (white noise, averaged)
        # integrates twice to ((x - a)+^2 - (x - b)+^2) / (2 sqrt(width)): nothing
        # before the cell, a line after it.
        begun = xp.maximum(x[..., None] - starts, 0.0)
        over = xp.maximum(x[..., None] - ends, 0.0)
        size = 2 * np.sqrt(self.widths)
        return (begun**2 - over**2) / xp.broadcast_to(size, shape)

    def spline(self, weights: Any) -> tuple[Any, Any, Any]:
        """Level, slope and half the curvature at the start of each piece of the walk
        with these weights, shape (cell,): before the data, in each cell, and beyond.
        """
        widths = self.widths
        # within a cell the second derivative is weight / sqrt(width)
        half = weights / (2 * np.sqrt(widths))
        none = jnp.zeros(1)
        slope = jnp.concatenate([none, jnp.cumsum(2 * half * widths)])
        rise = slope[:-1] * widths + half * widths**2
        level = jnp.concatenate([none, jnp.cumsum(rise)])
        return (
            jnp.concatenate([none, level]),
            jnp.concatenate([none, slope]),
            jnp.concatenate([none, half, none]),
        )

    def on_spline(self, x: Any, pieces: tuple[Any, Any, Any]) -> Any:
        """The walk at ``x`` of shape (), from its `spline`: ``ramps(x) @ weights``."""
        edges = np.asarray(self.edges)
        starts = np.concatenate([edges[:1], edges])
        piece = (x > edges).sum()
        level, slope, half = (values[piece] for values in pieces)
        along = x - jnp.asarray(starts)[piece]
        return level + along * (slope + along * half)


@dataclass(frozen=True)
class Process:
    """The basis of a misfit; plain tuples, so that it can key compiled programs.

    Its weights, in order: the pieces over each axis, over each pair, and each walk.
    With ``fading`` the sum is larger at small budgets.
    """

    axes: tuple[Axis, ...]
    pairs: tuple[tuple[int, int], ...]
    walks: tuple[Walk, ...]
    fading: Fading | None = None

    @cached_property
    def program_name(self) -> str:
        """What its compiled programs are kept under."""
        return repr(self)

    @property
    def size(self) -> int:
        """How many basis functions there are."""
        return sum(self.sizes)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Basis functions of each piece, walks last."""
        single = [axis.functions for axis in self.axes]
        paired = [
            self.axes[i].pair_functions * self.axes[j].pair_functions
            for i, j in self.pairs
        ]
        cells = [len(walk.widths) for walk in self.walks]
        return (*single, *paired, *cells)

    @cached_property
    def pieces(self) -> tuple[str, ...]:
        """What each piece varies with: ``"D"``, ``"N x replay"``, ``"walk N*D"``."""
        names = [axis.name for axis in self.axes]
        paired = [f"{names[i]} x {names[j]}" for i, j in self.pairs]
        walks = [f"walk {walk.name}" for walk in self.walks]
        return (*names, *paired, *walks)

    @cached_property
    def priors(self) -> dict[str, Prior]:
        """Priors of the scales: lengths (units), pieces (log loss), walks."""
        state = any(axis.name in STARTS for axis in self.axes)
        total = STATE_MISFIT if state else MISFIT
        smooth = len(self.axes) + len(self.pairs)
        median, spread = total.args
        # Variances of pieces add up, so that the misfit's size does not depend on how
        # many pieces a law has.
        piece = lognormal(median / np.sqrt(max(smooth, 1)), spread, total.source)
        lengths = {f"length {axis.name}": LENGTH for axis in self.axes}
        sizes = dict.fromkeys(self.pieces[:smooth], piece)
        return lengths | sizes | dict.fromkeys(self.pieces[smooth:], WIGGLE)

    @cached_property
    def spectrum(self) -> Spectrum:
        """Prior variances of the weights, by the scales in the order of `priors`."""
        return Spectrum.of(self)

    def features(self, covariates: Mapping[str, Any], xp: ModuleType = jnp) -> Any:
        """Every basis function at every run, shape (run, function)."""
        at = {axis.name: axis.position(covariates, xp) for axis in self.axes}
        shape = np.broadcast_shapes(*(x.shape for x in at.values()))
        at = {name: xp.broadcast_to(x, shape) for name, x in at.items()}
        blocks = [axis.cosines(at[axis.name], xp) for axis in self.axes]
        for i, j in self.pairs:
            first = blocks[i][..., : self.axes[i].pair_functions]
            second = blocks[j][..., : self.axes[j].pair_functions]
            # A product kernel has the products of the axes' functions, each with the
            # product of their spectral densities.
            product = first[..., :, None] * second[..., None, :]
            blocks.append(product.reshape(*shape, -1))
        for walk in self.walks:
            x = walk_position(walk.name, covariates, xp)
            blocks.append(walk.ramps(xp.broadcast_to(x, shape), xp))
        functions = xp.concatenate(blocks, axis=-1)
        if self.fading is None:
            return functions
        return functions * self.fading.factor(covariates, xp)[..., None]

    def along(
        self, column: str, weights: Any, covariates: Mapping[str, Any]
    ) -> Callable[[Any], Any]:
        """One draw's misfit as a function of one column, every other one given.

        The terms of the others are summed once, so that each value of the column costs
        the functions of its own axis and of the walks.

        Parameters
        ----------
        column
            Whose positive values, of shape (), the function takes; with `axes` of the
            same name, or none.
        weights
            Weights of the basis functions, shape (function,).
        covariates
            The other columns, each of shape ().
        """
        pieces = jnp.split(weights, np.cumsum(self.sizes)[:-1])
        single, further = pieces[: len(self.axes)], pieces[len(self.axes) :]
        paired, walks = further[: len(self.pairs)], further[len(self.pairs) :]
        names = [axis.name for axis in self.axes]
        waves = {
            axis.name: axis.cosines(axis.position(covariates, jnp), jnp)
            for axis in self.axes
            if axis.name != column
        }
        level = jnp.zeros(())
        slopes = jnp.zeros(0)  # weights of the free axis's functions
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
        splines = [
            walk.spline(piece_weights)
            for walk, piece_weights in zip(self.walks, walks, strict=True)
        ]
        return Partial(partial(self._at, column), level, slopes, splines, fixed)

    def _at(self, column, level, slopes, splines, fixed, value):
        """The misfit at one value of the column, from what `along` summed."""
        covariates = fixed | {column: value}
        total = level
        for axis in self.axes:
            if axis.name == column:
                waves = axis.cosines(axis.position(covariates, jnp), jnp)
                total += waves @ slopes
        for walk, spline in zip(self.walks, splines, strict=True):
            x = walk_position(walk.name, covariates, jnp)
            total += walk.on_spline(x, spline)
        if self.fading is not None:
            total = total * self.fading.factor(covariates)
        return total


def process_of(
    covariates: Mapping[str, Float[np.ndarray, " run"]], along_run: bool = False
) -> Process | None:
    """The process for a law that reads these columns, each of shape (run,).

    None where the runs differ along no axis. Of rows ``along_run`` the areas under the
    learning rate are none: where a law misses along a run is that run's own process
    (`noise`), which a misfit that all runs share forecast worse.
    """
    names = axis_names(covariates)
    if along_run:
        names = tuple(name for name in names if name not in AREAS)
    units = {name: linear_unit(name, covariates[name]) for name in names}
    at = {name: position(name, covariates, np, units[name]) for name in names}
    at = {name: x for name, x in at.items() if varies(x)}
    if not at:
        return None
    start = next((name for name in STARTS if name in at), None)
    # Units beyond the data in which a piece still moves; fewer where the checkpoint's
    # own loss is an axis, along which an unseen size lies far out.
    margin = 1.0 if start is None else 0.7
    axes = [_axis(name, x, margin, units[name]) for name, x in at.items()]
    pairs = _pairs(tuple(at), start)
    walks = [_walk(name, covariates) for name in WALKS]
    return Process(tuple(axes), pairs, tuple(walk for walk in walks if walk))


def _pairs(names: tuple[str, ...], start: str | None) -> tuple[tuple[int, int], ...]:
    """Which of these axes have a piece together, by their places."""
    index = {name: i for i, name in enumerate(names)}
    if start is None:
        wanted = [
            ("N", "D"),
            ("D", "replay"),
            ("N", "replay"),
            ("ptpp", "D"),
            ("ptpp", "replay"),
        ]
    else:
        index["start"] = index[start]
        wanted = [
            ("start", "D"),
            ("start", "replay"),
            ("D", "replay"),
            ("N", "replay"),
        ]
    present = [(a, b) for a, b in wanted if a in index and b in index]
    return tuple((index[a], index[b]) for a, b in present)


def _axis(name: str, x: Float[AnyArray, " run"], margin: float, unit: float) -> Axis:
    low, high = float(x.min()) - margin, float(x.max()) + margin

    def count(per_unit: float, least: int, most: int) -> int:
        return int(np.clip(np.ceil((high - low) * per_unit), least, most))

    # lengths down to .6 of a unit alone, 1 in pairs
    return Axis(name, low, high, count(1.6, 4, 18), count(1.0, 3, 9), unit)


def _walk(
    name: str, covariates: Mapping[str, Float[np.ndarray, " run"]]
) -> Walk | None:
    """A walk over the data and 14 e-folds beyond, if they tell anything of it."""
    if not set(WALKS[name]) <= set(covariates):
        return None
    x = walk_position(name, covariates, np)
    # inside a shorter range it learns nothing
    if not varies(x, 0.5):
        return None
    # twelve cells of constant second derivative cross the data
    inside = np.linspace(x.min(), x.max(), 13)
    steps = [0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 14.0]
    beyond = x.max() + np.asarray(steps)
    edges = map(float, (*inside, *beyond))
    return Walk(name, tuple(edges))


def process_to_dict(process: Process | None) -> dict | None:
    """A process as JSON types."""
    if process is None:
        return None
    return asdict(process)


def process_from_dict(given: Mapping[str, Any] | None) -> Process | None:
    """The process of `process_to_dict`."""
    if given is None:
        return None
    axes = [Axis(**axis) for axis in given["axes"]]
    pairs = [(int(i), int(j)) for i, j in given["pairs"]]
    walks = [Walk(walk["name"], tuple(walk["edges"])) for walk in given["walks"]]
    fading = given.get("fading")
    return Process(
        tuple(axes),
        tuple(pairs),
        tuple(walks),
        None if fading is None else Fading(**fading),
    )


class Spectrum(NamedTuple):
    """Log prior variance of every weight as a formula of the log scales.

    The prior variance of a weight is the kernel's spectral density at its frequency
    (Solin and Sarkka 2020): along one axis sqrt(2 pi) l exp(-l^2 w^2 / 2), in log
    linear in log l but for l^2 w^2; logs of a product over the axes add up.

    ``offset``: shape (function,); ``linear``: slope in each log scale, and ``square``:
    squared angular frequency along the axis of a length scale, each of shape (function,
    scale).
    """

    offset: Float[np.ndarray, " function"]
    linear: Float[np.ndarray, "function scale"]
    square: Float[np.ndarray, "function scale"]

    def log_variances(
        self, log_scales: Float[np.ndarray, "*draw scale"]
    ) -> Float[np.ndarray, "*draw function"]:
        """Log prior variance of each weight, shape (..., function)."""
        bent = np.exp(2 * log_scales) @ self.square.T
        return self.offset + log_scales @ self.linear.T - 0.5 * bent

    def slopes(
        self, log_scales: Float[np.ndarray, " scale"]
    ) -> Float[np.ndarray, "function scale"]:
        """Slopes of each log variance in each log scale, shape (function, scale)."""
        return self.linear - self.square * np.exp(2 * log_scales)

    @classmethod
    def of(cls, process: Process) -> Spectrum:
        index = {name: i for i, name in enumerate(process.priors)}
        lengths = [index[f"length {axis.name}"] for axis in process.axes]
        blocks = []
        for places, size in zip(_places(process), process.sizes, strict=True):
            linear, square = np.zeros((2, size, len(index)))
            counts = [_count(process, place, places) for place in places]
            numbers = np.unravel_index(np.arange(size), counts or [size])
            # the order of `features`: the second axis fastest
            for place, number in zip(places, numbers, strict=bool(places)):
                frequency = np.pi * number / process.axes[place].length
                linear[:, lengths[place]] = 1.0
                square[:, lengths[place]] = frequency**2
            # log of sqrt(2 pi) along each axis
            offset = np.full(size, len(places) * 0.5 * np.log(2 * np.pi))
            linear[:, index[process.pieces[len(blocks)]]] = 2.0
            blocks.append((offset, linear, square))
        return cls(*(np.concatenate(parts) for parts in zip(*blocks, strict=True)))


def _places(process: Process) -> list[tuple[int, ...]]:
    """The axes of each piece, by their places; none of a walk."""
    single = [(place,) for place in range(len(process.axes))]
    return [*single, *process.pairs, *(() for _ in process.walks)]


def _count(process: Process, place: int, places: tuple[int, ...]) -> int:
    """Functions along an axis, alone or in a pair."""
    axis = process.axes[place]
    return axis.functions if len(places) == 1 else axis.pair_functions

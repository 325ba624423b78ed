"""Define posteriors: laws with draws, and the log loss of a draw at any table of runs.
Forecasts, plans and designs read laws only through it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array
from jax.tree_util import Partial

from bayeslaw._base.machine import runtime
from bayeslaw._base.machine.blas import one_thread
from bayeslaw._base.programs import compiled
from bayeslaw._base.shown import paragraphs, table_html
from bayeslaw._base.streams import Stream, generator
from bayeslaw._inference.discrepancy.drift import Range, distances
from bayeslaw._inference.discrepancy.process import Fading, Process
from bayeslaw._inference.noise import GAUSSIAN, NOISE, Effects, RunNoise, find_learned
from bayeslaw._law.law import Law, log_loss
from bayeslaw._tables import fitting

if TYPE_CHECKING:
    from jaxtyping import Float, Int
    from xarray import DataTree

    from bayeslaw._base.arrays import AnyArray

Draw = Mapping[str, Array]
# names of leaves: the misfit's weights, and log loss per unit of distance by side
WEIGHTS, DRIFT = "misfit", "drift"
ROWS = 64  # rows of a table that are evaluated together


@dataclass(frozen=True)
class Piece:
    """Draws that share one formula: those of a `Fit`, or of one law in an `Average`.

    ``log_loss(draw, covariates)`` is a pure function that returns the law's log loss for
    one draw at each run. Index i of every leaf of ``values`` is draw i; ``sigma`` and
    ``dof`` are the scale and degrees of freedom of a new run's Student-t noise on log
    loss. ``covariates``: columns that ``log_loss`` reads. ``effects``: as of `Member`.
    """

    log_loss: Callable[
        [Draw, Mapping[str, Float[AnyArray, " run"]]], Float[Array, " run"]
    ]
    values: Mapping[str, Float[np.ndarray, "draw ..."]]
    covariates: tuple[str, ...]
    effects: Effects = field(default_factory=dict)

    @property
    def draws(self) -> int:
        leaf = next(iter(self.values.values()))
        return len(leaf)

    @property
    def noise(self) -> RunNoise:
        return RunNoise.of_piece(self.values)

    @property
    def formula(self) -> Any:
        """The law's own formula: the innermost ``main`` of formulas within."""
        formula = self.log_loss
        while hasattr(formula, "main"):
            formula = formula.main
        return formula

    @property
    def law(self) -> Law | None:
        """The law of its formula; None of a plain function."""
        return getattr(self.formula, "law", None)

    @property
    def first_steps(self) -> float:
        """Tokens per parameter up to which its law does not describe a run."""
        return self.law.first_steps if self.law else 0.0

    @property
    def tuned(self) -> tuple[str, ...]:
        """Columns of settings that a new run may lack. It is then tuned."""
        return self.law.tuned if self.law else ()

    @property
    def fading(self) -> Fading | None:
        """Scale of errors by tokens, as learned with the misfit; None: all are alike."""
        process = getattr(self.formula, "process", None)
        return None if process is None else process.fading

    @property
    def diverges_at_start(self) -> bool:
        """Tell whether its first draw has no finite loss before the first token, with all
        replay, so that it gives no baseline for forgetting.
        """
        # any checkpoint will do, since laws diverge in tokens
        run = dict.fromkeys(self.covariates, 1.0)
        run |= dict(self.law.reference if self.law else {})
        run |= {"D": 0.0, "replay": 1.0}
        covariates = {column: jnp.full(1, value) for column, value in run.items()}
        draw = {name: jnp.asarray(leaf[0]) for name, leaf in self.values.items()}
        return not bool(jnp.isfinite(self.log_loss(draw, covariates)).all())

    def columns_in(self, there: Container[str]) -> list[str]:
        """List the columns read of those there: all but absent tuned settings."""
        return [c for c in self.covariates if c in there or c not in self.tuned]

    def at(
        self, covariates: Mapping[str, Float[np.ndarray, " run"]]
    ) -> Float[np.ndarray, "draw run"]:
        """Evaluate the law's log loss at runs with these columns, shape (draw, run)."""
        return over_draws(self.log_loss, self.values, covariates)

    def fill(self, table: pd.DataFrame) -> dict[str, Float[np.ndarray, " run"]]:
        """Collect the columns of a table that `formula` reads, each of shape (run,), and
        those that formulas around it fill in, at their mean over draws.
        """
        columns = {c: table[c].to_numpy(float) for c in self.columns_in(table)}
        if self.law is None or self.log_loss is self.formula:
            return columns
        filled = {c for c in self.law.columns_in(table) if c not in self.covariates}
        return columns | {
            c: over_draws(_read_within(self.log_loss, c), self.values, columns).mean(0)
            for c in filled
        }

    def error_size(
        self,
        covariates: Mapping[str, Float[np.ndarray, "..."]],  # noqa: UP037
    ) -> Float[np.ndarray, "..."] | float:  # noqa: UP037
        """Scale of a run's error relative to `noise`, in the shape that columns have."""
        process = getattr(self.formula, "process", None)
        return 1.0 if process is None else process.error_sizes(covariates)

    def take(self, index: Int[np.ndarray, " taken"]) -> Piece:
        """Select the draws ``index``, shape (taken,); repeats are allowed."""
        values = {name: np.asarray(leaf)[index] for name, leaf in self.values.items()}
        return replace(self, values=values, effects=take_effects(self.effects, index))


def take_effects(effects: Effects, index: Int[np.ndarray, " taken"]) -> Effects:
    """Select the draws ``index`` of learned effects."""
    return {
        kind: {label: effect.take(index) for label, effect in of_kind.items()}
        for kind, of_kind in effects.items()
    }


@dataclass(frozen=True)
class _Column:
    """Read a column in place of a formula."""

    name: str

    def __call__(
        self, draw: Draw, covariates: Mapping[str, Float[AnyArray, " run"]]
    ) -> Float[AnyArray, " run"]:
        return covariates[self.name]


def _read_within(formula: Any, column: str) -> Callable:
    """Make a function of a draw that returns a column as it reaches the innermost
    formula.
    """
    if not hasattr(formula, "main"):
        return _Column(column)
    return replace(formula, main=_read_within(formula.main, column))


@dataclass(frozen=True)
class LogLoss:
    """A law's log loss for one draw, plus misfit (weights in the leaf `WEIGHTS`, shape
    (function,)) and drift: outside the range of the training runs, the leaf `DRIFT`,
    shape (side,), times the distance. Equal records share a compiled program.
    """

    law: Law
    process: Process | None = None
    training_range: Range | None = None

    def __call__(
        self, draw: Draw, covariates: Mapping[str, Float[AnyArray, " run"]]
    ) -> Float[Array, " run"]:
        """Evaluate the log loss at each run, shape (run,)."""
        columns = self._take(covariates)
        value = log_loss(self.law, columns, draw)
        if self.process is not None:
            value = value + self.process.features(columns) @ draw[WEIGHTS]
        if self.training_range is not None:
            value = value + distances(columns, self.training_range) @ draw[DRIFT]
        return value

    def beyond(
        self, covariates: Mapping[str, Float[np.ndarray, " run"]]
    ) -> Float[np.ndarray, "run side"]:
        """Compute how far runs lie beyond the training runs, to each side."""
        assert self.training_range is not None
        columns = self._take(covariates)
        return np.asarray(distances(columns, self.training_range, np))

    def _take(self, covariates: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
        """Take the columns that the law reads."""
        return {c: covariates[c] for c in self.law.columns_in(covariates)}

    def piece(self, draws: Mapping[str, Float[np.ndarray, "draw ..."]]) -> Piece:
        """Build the piece of a law's draws, by name. Its ``sigma``, if a run has noise,
        is the total scale of a new run's error: effects of checkpoint and run included.
        """
        names = {*self.law.priors, *NOISE, WEIGHTS, DRIFT}
        values = {name: leaf for name, leaf in draws.items() if name in names}
        if "sigma" in draws:
            values["sigma"] = noise_of(draws).scale
        return Piece(self, values, self.law.covariates)

    def along_tokens(
        self, draw: Draw, covariates: Mapping[str, Float[AnyArray, ""]]
    ) -> Callable[[Float[Array, ""]], Float[Array, ""]]:
        """Return one draw's log loss as a function of one run's tokens D, shape ().

        The other covariates, each of shape (), are fixed. Their part of the misfit is
        computed once.
        """
        law_and_drift = LogLoss(self.law, training_range=self.training_range)
        values = {name: leaf for name, leaf in draw.items() if name != WEIGHTS}
        beside_misfit = Partial(partial(_at_tokens, law_and_drift), values, covariates)
        if self.process is None:
            return beside_misfit
        columns = {c: covariates[c] for c in self.law.covariates if c in covariates}
        misfit = self.process.along("D", draw[WEIGHTS], columns)
        return Partial(_sum_at, beside_misfit, misfit)


def along_tokens(
    log_loss: Callable, draw: Draw, covariates: Mapping[str, Float[AnyArray, ""]]
) -> Callable[[Float[Array, ""]], Float[Array, ""]]:
    """Return any piece's log loss of one draw as a function of tokens D, shape ().

    The other covariates, each of shape (), are fixed. The function is a pytree, so
    `jax.vmap` over draws can return it.
    """
    method = getattr(log_loss, "along_tokens", None)
    if method is not None:
        return method(draw, covariates)
    return Partial(partial(_at_tokens, log_loss), draw, covariates)


def _at_tokens(
    log_loss: Callable,
    draw: Draw,
    covariates: Mapping[str, Float[AnyArray, ""]],
    tokens: Float[Array, ""],
) -> Float[Array, ""]:
    run = {**covariates, "D": tokens}
    return log_loss(draw, {name: column[None] for name, column in run.items()})[0]


def _sum_at(
    beside_misfit: Callable, misfit: Callable, tokens: Float[Array, ""]
) -> Float[Array, ""]:
    return beside_misfit(tokens) + misfit(tokens)


@one_thread()
def over_draws(
    log_loss: Callable,
    draws: Mapping[str, Float[np.ndarray, "draw ..."]],
    covariates: Mapping[str, Float[np.ndarray, " run"]],
) -> Float[np.ndarray, "draw run"]:
    """Evaluate a piece's log loss of each draw at a table of runs, shape (draw, run).

    Of a `LogLoss` only the law is compiled, so that all fits of a law share its
    programs. Misfit and drift, which are linear in a draw's weights, are matrix
    products.
    """
    if not isinstance(log_loss, LogLoss):
        return _map_in_blocks(log_loss, draws, covariates)
    law = log_loss.law
    columns = {c: covariates[c] for c in law.columns_in(covariates)}
    of_law = {name: draws[name] for name in law.priors}
    value = _map_in_blocks(LogLoss(law), of_law, columns)
    if log_loss.process is not None:
        value += draws[WEIGHTS] @ log_loss.process.features(columns, np).T
    if log_loss.training_range is not None:
        value += draws[DRIFT] @ log_loss.beyond(columns).T
    return value


def _map_in_blocks(
    log_loss: Callable,
    draws: Mapping[str, Float[np.ndarray, "draw ..."]],
    covariates: Mapping[str, Float[np.ndarray, " run"]],
) -> Float[np.ndarray, "draw run"]:
    """Map over draws at blocks of rows of one size, which share a program."""
    rows = max(len(column) for column in covariates.values())
    count = len(next(iter(draws.values())))
    values = np.empty((count, rows))
    for first in range(0, rows, ROWS):
        # the last row is repeated up to the size
        block = np.minimum(np.arange(first, first + ROWS), rows - 1)
        columns = {name: np.asarray(x)[block] for name, x in covariates.items()}
        evaluated = np.asarray(map_over_draws(log_loss, dict(draws), columns))
        values[:, first : first + ROWS] = evaluated[:, : rows - first]
    return values


@compiled(static_argnums=0)
def map_over_draws(
    log_loss: Callable,
    draws: Draw,
    covariates: Mapping[str, Float[AnyArray, " run"]],
) -> Float[Array, "draw run"]:
    """Map a piece's log loss over draws, shape (draw, run), by a program for each number
    of runs. Leaves may have an axis of runs.
    """
    return jax.vmap(log_loss, in_axes=(0, None))(draws, covariates)


def noise_of(draws: Mapping[str, Float[np.ndarray, "draw ..."]]) -> RunNoise:
    """Read the error of a run off a law's draws; Gaussian without ``dof``."""
    gaussian = {"dof": np.full(len(draws["sigma"]), GAUSSIAN)}
    return RunNoise.of(gaussian | dict(draws))


def row_sds(
    runs: pd.DataFrame, log_loss: Float[np.ndarray, "draw run"]
) -> Float[np.ndarray, " run"]:
    """Convert the standard errors ``loss_sd`` of a table to sds of log loss, at the
    median of the draws, shape (run,); 0 if the table has none.
    """
    nats = np.exp(np.median(log_loss, axis=0))
    row_sd = fitting.sds_of_log_loss(runs, nats)
    return np.zeros(len(runs)) if row_sd is None else row_sd


@dataclass(frozen=True, eq=False)
class Member:
    """A law's share of a posterior.

    ``process``: basis of its misfit. ``training_range``: range beyond which it drifts.
    ``values``: draws by name: parameters and noise, shape (draw,); weights of the
    misfit, (draw, function); drifts, (draw, side). ``effects``: learned effects by kind
    of group (checkpoint, run) and label, shape (draw,).
    """

    law: Law
    weight: float
    process: Process | None
    training_range: Range | None
    values: Mapping[str, Float[np.ndarray, "draw ..."]]
    effects: Effects = field(default_factory=dict)

    def __repr__(self) -> str:
        draws = self.piece.draws
        return f"Member({self.law.name!r} at weight {self.weight:.2f}, {draws} draws)"

    def _repr_html_(self) -> str:
        table = self.draws().describe().loc[["mean", "std", "min", "max"]].T
        return paragraphs(repr(self)) + table_html(table)

    @property
    def posterior(self) -> Mapping[str, Float[np.ndarray, "draw ..."]]:
        """The draws by name, as in a `Fit`."""
        return self.values

    def pieces(self) -> tuple[Piece, ...]:
        """The draws of this law alone."""
        return (self.piece,)

    @cached_property
    def piece(self) -> Piece:
        formula = LogLoss(self.law, self.process, self.training_range)
        return replace(formula.piece(self.values), effects=self.effects)

    def log_loss(
        self, runs: pd.DataFrame, rng: np.random.Generator | None
    ) -> Float[np.ndarray, "draw run"]:
        """Draw the log loss of the law, or with ``rng`` of a new run."""
        columns = fitting.covariates(self.law, runs)
        log_loss = self.piece.at(columns)
        if rng is None or "sigma" not in self.values:
            return log_loss
        noise, size = noise_of(self.values), self.piece.error_size(columns)
        own_size = noise.size_with(size, row_sds(runs, log_loss))
        own = own_size * noise.draw(len(runs), rng)
        return log_loss + own + self.draw_effects(runs, rng)

    def draw_effects(
        self, runs: pd.DataFrame, rng: np.random.Generator
    ) -> Float[np.ndarray, "draw run"]:
        """Draw the effects that rows of one checkpoint, run or setting share, shape
        (draw, run): the learned ones, else new ones.
        """
        noise, columns = noise_of(self.values), fitting.covariates(self.law, runs)
        shared = noise.draw_shared(runs, self.law.untuned, rng, self.effects)
        return self.piece.error_size(columns) * shared

    def known_effects(
        self, runs: pd.DataFrame, kinds: Sequence[str]
    ) -> Float[np.ndarray, "draw run"]:
        """The learned effects of the rows' groups, by kind; 0 of unfitted ones."""
        total = np.zeros((self.piece.draws, len(runs)))
        for kind in kinds:
            learned = find_learned(self.effects, kind, runs, self.law.untuned)
            for row, effect in learned.items():
                total[:, row] += effect.draws
        return self.piece.error_size(fitting.covariates(self.law, runs)) * total

    def parameter_draws(self) -> dict[str, Float[np.ndarray, " draw"]]:
        """Draws of parameters in the paper's units and of noise scales, by name."""
        of_law = {name: self.values[name] for name in self.law.priors}
        published = _convert_to_paper(self.law, of_law)
        draws = {name: np.asarray(published[name]) for name in self.law.parameters}
        # the sampler's scales of errors may be negative
        noise = {n: np.abs(self.values[n]) for n in NOISE if n in self.values}
        return draws | noise

    def draws(self) -> pd.DataFrame:
        """Draws of each parameter in the paper's units, and of the noise."""
        return pd.DataFrame(self.parameter_draws()).rename_axis("draw")

    @property
    def inference_data(self) -> DataTree:
        """ArviZ data of this law's share, as one chain, in the paper's units."""
        from xarray import Dataset, DataTree

        draws = self.parameter_draws()
        arrays = {n: (("chain", "draw"), v[None]) for n, v in draws.items()}
        labels = {"chain": np.arange(1), "draw": np.arange(self.piece.draws)}
        return DataTree.from_dict({"posterior": Dataset(arrays, labels)})


@compiled(static_argnums=0)
def _convert_to_paper(
    law: Law, values: Mapping[str, Float[AnyArray, " draw"]]
) -> Mapping[str, Float[AnyArray, " draw"]]:
    return law.to_paper(values)


def summarize(draws: Mapping[Any, Any], prob: float) -> pd.DataFrame:
    """Summarise draws, by name, by mean, sd and central interval."""
    rows, tail = {}, (1 - prob) / 2
    for name, values in draws.items():
        low, high = np.quantile(values, [tail, 1 - tail])
        sd = values.std(ddof=1) if values.size > 1 else 0.0
        rows[name] = {"mean": values.mean(), "sd": sd, "low": low, "high": high}
    return pd.DataFrame.from_dict(rows, orient="index")


class LawPosterior:
    """Laws with draws: what a `Fit`, an `Average`, a prior, a law at given constants and
    a pool's domain have in common.
    """

    if TYPE_CHECKING:
        # a field or a property of each
        @property
        def members(self) -> Sequence[Member]: ...

    def pieces(self) -> tuple[Piece, ...]:
        """The draws of each law. The noise of a new run includes the effects of a new
        checkpoint and a new run, whose scales are also given.
        """
        return tuple(member.piece for member in self.members)

    def log_loss(
        self, runs: pd.DataFrame, *, noise: bool = False, seed: int = 0
    ) -> Float[np.ndarray, "draw run"]:
        """Draw the log loss, shape (draw, run): of the laws, or with ``noise`` of a new
        run.

        Rows of one checkpoint or run share its effect: of a fitted one what was learned
        (of runs only by a `Fit`), and what may differ in a new run; else a new one.

        Raises
        ------
        RunTableError
            The table lacks a column that one of the laws reads.
        """
        runtime.start()
        rng = generator(seed, Stream.NEW_RUN) if noise else None
        return np.concatenate([member.log_loss(runs, rng) for member in self.members])

    def known_effects(
        self, runs: pd.DataFrame, kinds: Sequence[str]
    ) -> Float[np.ndarray, "draw run"]:
        """The learned effects of the rows' groups, as `Member.known_effects`."""
        return np.concatenate([m.known_effects(runs, kinds) for m in self.members])


class Posterior(Protocol):
    """A `Fit`, an `Average` or anything else that has draws of laws."""

    @property
    def name(self) -> str:
        """Name of the law, or of the average."""
        ...

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons for distrust, one line each (failed diagnostics, ...)."""
        ...

    def pieces(self) -> tuple[Piece, ...]:
        """Group the posterior's draws by formula."""
        ...

    def log_loss(
        self, runs: pd.DataFrame, *, noise: bool = False, seed: int = 0
    ) -> Float[np.ndarray, "draw run"]:
        """Draw the law's log loss, or with ``noise`` a new run's, shape (draw, run)."""
        ...


class KeptPosterior(Posterior, Protocol):
    """A posterior that keeps its training runs and can be saved to a file."""

    @property
    def runs(self) -> pd.DataFrame: ...

    @property
    def seconds(self) -> float: ...

    def parameters(self, prob: float = 0.9) -> pd.DataFrame: ...

    def parameter_draws(self) -> Mapping[str, Any]: ...

    def draws(self) -> pd.DataFrame: ...

    def save(self, path: str | Path) -> Path: ...


def columns_read(
    *posteriors: Posterior, there: Container[str] | None = None
) -> list[str]:
    """List the columns that laws of posteriors read, each once; given those that are
    ``there``, without tuned settings that are not.
    """
    pieces = [piece for posterior in posteriors for piece in posterior.pieces()]
    read = [p.covariates if there is None else p.columns_in(there) for p in pieces]
    return list(dict.fromkeys(column for columns in read for column in columns))


def without_prefix(prefix: str, leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Select the values whose names begin with a prefix; remove the prefix."""
    return {
        name.removeprefix(prefix): leaf
        for name, leaf in leaves.items()
        if name.startswith(prefix)
    }


def is_prior_only(posterior: object) -> bool:
    """Tell whether a posterior is only a prior, without measured runs."""
    return getattr(posterior, "is_prior_only", False)


def is_kept(posterior: object) -> TypeGuard[KeptPosterior]:
    """Tell whether a posterior keeps its training runs, as fits and averages do."""
    return hasattr(posterior, "runs") and hasattr(posterior, "parameter_draws")

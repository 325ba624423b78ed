"""Build chains: if a law's covariate is not measured, another fit forecasts it, and its
draws go into the law.

The losses of a checkpoint before adaptation (``source_loss_before``, ``loss_before``)
cost one evaluation. If the checkpoint does not exist yet, a law of pre-training in N
and D forecasts them. It is fitted to the existing checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array

from bayeslaw._base.draws import Draws as ValueDraws
from bayeslaw._base.errors import LawError, PlanError, RunTableError
from bayeslaw._base.frames import Table
from bayeslaw._base.limits import COUNT, checked
from bayeslaw._base.machine import runtime
from bayeslaw._base.numbers import format_count
from bayeslaw._base.streams import Stream, generator
from bayeslaw._law.columns import SOURCE_LOSS_BEFORE
from bayeslaw._posteriors.draws import Draws, pair_draws, places
from bayeslaw._posteriors.posterior import (
    Draw,
    Piece,
    Posterior,
    along_tokens,
    columns_read,
    map_over_draws,
    without_prefix,
)
from bayeslaw._tables.proposals import check_columns
from bayeslaw._tables.runs import NUMERIC, as_runs

if TYPE_CHECKING:
    from jaxtyping import Float

    from bayeslaw._base.arrays import AnyArray
    from bayeslaw._inference.discrepancy.process import Fading

# columns that forecast a checkpoint's loss; its tokens D are ptpp * N
CHECKPOINT = ("N", "ptpp")
# leaf: the error on log loss of a checkpoint of the most tokens, shape (draw,), or
# (draw, run) at a table
ERROR = "error"


class Link(NamedTuple):
    """A covariate, the formula that forecasts it, and how the errors of this forecast fade
    with tokens. Its draws are the leaves ``column:name``.
    """

    column: str
    log_loss: Any
    fading: Fading | None


def chain(
    posterior: Posterior, before: Mapping[str, Posterior], *, seed: int = 0
) -> Chain:
    """Carry forecasts of the checkpoint's losses through a law that reads them.

    Parameters
    ----------
    posterior
        A posterior whose law reads the columns of ``before``.
    before
        Column -> posterior of a law in N and D, fitted to `checkpoints`. Its N is the N
        of the chain. Its D, the tokens of pre-training, is ptpp * N.
    seed
        Seed that pairs the independent draws of the fits and draws the errors of
        checkpoints.

    Returns
    -------
    Chain
        A posterior that forecasts, checks and plans like any other. It reads N and ptpp
        in place of the columns; a table may have the columns measured at some rows.

    Raises
    ------
    LawError
        The law does not read a column of ``before``, or a fit of ``before`` reads a
        column that a checkpoint does not have.

    Examples
    --------
    >>> before = bayeslaw.fit(checkpoints, "chinchilla", preview=True)
    >>> chained = bayeslaw.chain(state, {"source_loss_before": before})
    >>> new = pd.DataFrame({"N": [5e5], "ptpp": [279.0], "D": [1e6], "replay": [0.3]})
    >>> bayeslaw.forecast(chained, new).shape
    (1, 6)
    """
    covariates = columns_read(posterior)
    for column, fit in before.items():
        if column not in covariates:
            raise LawError(
                f"the law does not read {column!r}, so nothing is to forecast; "
                f"it reads: {', '.join(covariates)}"
            )
        unknown = set(columns_read(fit)) - {"D", *CHECKPOINT}
        if unknown:
            raise LawError(
                f"the fit for {column!r} reads {min(unknown)!r}, which a checkpoint "
                "before adaptation does not have: fit a law of N and D, for instance "
                "chinchilla, to the table of checkpoints"
            )
    return Chain(posterior, dict(before), seed)


@dataclass(frozen=True, eq=False)
class Chain:
    """A posterior with covariates that other posteriors forecast; made by `chain`."""

    posterior: Posterior
    before: Mapping[str, Posterior]
    seed: int

    @property
    def name(self) -> str:
        """Name of the main posterior, whose covariates are forecast."""
        return self.posterior.name

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings of every fit in the chain."""
        before = [
            f"{column}: {warning}"
            for column, fit in self.before.items()
            for warning in fit.warnings
        ]
        return (*self.posterior.warnings, *before)

    def pieces(self) -> tuple[Piece, ...]:
        """Build joint draws of all fits. A draw has the error of one checkpoint, so
        these draws describe one checkpoint at a time.

        `plan` pairs the draws of its posteriors at random, so two chains in a plan do
        not share the checkpoint's error. To share it, give `losses_before` as
        covariates.
        """
        return tuple(draws.piece for draws in self._join_draws(None))

    def log_loss(
        self, runs: pd.DataFrame, *, noise: bool = False, seed: int = 0
    ) -> Float[np.ndarray, "draw run"]:
        """Draw the log loss, shape (draw, run): of the law, or with ``noise`` of a new
        run.

        Both include the error of a forecast checkpoint, because the law starts from the
        checkpoint's actual losses. Rows of one checkpoint (column ``checkpoint``, else
        N and ptpp) share this error.

        Raises
        ------
        RunTableError
            The table lacks a column that the chain reads, or the column is empty at a
            row that needs it.
        """
        runtime.start()
        # checkpoints by their column, else by N and ptpp, else all rows are of one
        names = runs.get("checkpoint")
        if names is None or names.isna().any():
            nothing = [""] * len(runs)
            parts = [runs[c].map(str) if c in runs else nothing for c in CHECKPOINT]
            names = pd.Series([" ".join(row) for row in zip(*parts, strict=True)])
        codes, checkpoints = pd.factorize(names)
        joint = self._join_draws(len(checkpoints))
        read = {c for draws in joint for c in draws.piece.columns_in(runs)}
        table = self._read_columns(runs, read)
        log_loss = np.empty((sum(draws.piece.draws for draws in joint), len(runs)))
        for draws in joint:
            # each row has the error of its own checkpoint
            values = {
                name: leaf[:, codes] if name.endswith(f":{ERROR}") else leaf
                for name, leaf in draws.piece.values.items()
            }
            log_loss[draws.rows] = map_over_draws(draws.piece.log_loss, values, table)
        return log_loss + self._draw_noise(runs, seed) if noise else log_loss

    def _join_draws(self, checkpoints: int | None) -> list[Draws]:
        """Build joint draws of all fits, in the order of the posterior's draws, with
        errors of a number of checkpoints; None: of one checkpoint, without an axis.
        """
        rng = generator(self.seed, Stream.CHAINED)
        fits = [fit.pieces() for fit in (self.posterior, *self.before.values())]
        counts = [sum(piece.draws for piece in pieces) for pieces in fits]
        orders = pair_draws(counts, rng, counts[0])
        # the piece of each fit, and the draw's place in it, of each joint draw
        found = [places(fit, order) for fit, order in zip(fits, orders, strict=True)]
        which, place = (np.stack(each) for each in zip(*found, strict=True))
        joint = []
        # draws that come from the same piece of every fit share a formula
        for combination in np.unique(which, axis=1).T:
            rows = np.flatnonzero((which == combination[:, None]).all(axis=0))
            main, *before = [
                fit[number].take(index[rows])
                for fit, number, index in zip(fits, combination, place, strict=True)
            ]
            values = dict(main.values)
            for column, piece in zip(self.before, before, strict=True):
                error = piece.noise.draw(checkpoints or 1, rng)
                leaves = {**piece.values, ERROR: error if checkpoints else error[:, 0]}
                values |= {f"{column}:{name}": leaf for name, leaf in leaves.items()}
            links = [
                Link(column, piece.log_loss, piece.fading)
                for column, piece in zip(self.before, before, strict=True)
            ]
            formula = ChainLogLoss(main.log_loss, tuple(links))
            unchained = [c for c in main.covariates if c not in self.before]
            covariates = tuple(dict.fromkeys([*unchained, *CHECKPOINT]))
            piece = Piece(formula, values, covariates, main.effects)
            joint.append(Draws(piece, rows))
        return joint

    def _read_columns(
        self, runs: pd.DataFrame, covariates: set[str]
    ) -> dict[str, Float[np.ndarray, " run"]]:
        """Read the columns, each of shape (run,): those that every row has, and the
        measured values of the chained ones, with NaN for the rest.
        """
        measured = {c: _read_column(runs, c) for c in self.before}
        unknown = np.isnan(np.stack(list(measured.values()))).any(axis=0)
        of_law = columns_read(self.posterior)
        table = {}
        for name in sorted(covariates):
            table[name] = _read_column(runs, name)
            needed = True if name in of_law else unknown
            bad = np.isnan(table[name]) & needed
            if not bad.any():
                continue
            what, why = f"{name!r} ({NUMERIC.get(name, 'covariate')})", ""
            if name not in of_law:
                why = f", to forecast {' and '.join(self.before)} where not measured"
            where = "the table lacks it"
            if name in runs:
                where = f"it is empty at row {runs.index[bad][0]}"
            raise RunTableError(f"the chain needs column {what}{why}; {where}")
        return table | measured

    def _draw_noise(
        self, runs: pd.DataFrame, seed: int
    ) -> Float[np.ndarray, "draw run"]:
        """Draw a new run's noise, which does not depend on losses before."""
        at = runs
        if set(CHECKPOINT) <= set(runs):
            at = runs.assign(D=runs["N"] * runs["ptpp"])
        losses = {}
        for column, fit in self.before.items():
            losses[column] = _read_column(runs, column)
            empty = np.isnan(losses[column])
            if empty.any():
                middle = np.median(fit.log_loss(at[empty]), axis=0)
                losses[column][empty] = np.exp(middle)
        filled = runs.assign(**losses)
        new = self.posterior.log_loss(filled, noise=True, seed=seed)
        return new - self.posterior.log_loss(filled)


def _read_column(runs: pd.DataFrame, name: str) -> Float[np.ndarray, " run"]:
    """Convert a column to numbers, shape (run,); NaN if the table lacks it."""
    if name not in runs:
        return np.full(len(runs), np.nan)
    return runs[name].to_numpy(float, copy=True)


def checkpoints(runs: Table, column: str = SOURCE_LOSS_BEFORE) -> pd.DataFrame:
    """Extract the table of checkpoints from a table of runs, to which a law of
    pre-training is fitted.

    Returns
    -------
    DataFrame
        A row for each checkpoint at which ``column`` is measured: ``checkpoint`` if the
        table has it, ``N``, ``ptpp``, ``D`` (tokens of pre-training, ptpp * N) and
        ``loss``, which is ``column``.

    Raises
    ------
    RunTableError
        A column is missing, is empty at all rows, or has two values at one checkpoint.

    Examples
    --------
    >>> from bayeslaw import datasets
    >>> measured = bayeslaw.checkpoints(datasets.load("minicpt"))
    >>> list(measured.columns)
    ['checkpoint', 'N', 'D', 'ptpp', 'loss']
    """
    runs = as_runs(runs)
    check_columns(runs, (*CHECKPOINT, column), ", which checkpoints need")
    names = ["checkpoint"] if "checkpoint" in runs else []
    measured = runs.dropna(subset=[column])
    table = measured[[*names, *CHECKPOINT, column]].drop_duplicates()
    if table.empty:
        raise RunTableError(
            f"column {column!r} is empty at every row; no checkpoint was measured"
        )
    twice = table[names or list(CHECKPOINT)].duplicated()
    if twice.any():
        first = table[twice].iloc[0]
        named = f"N {first['N']:g}, ptpp {first['ptpp']:g}"
        if names:
            named = first["checkpoint"]
        raise RunTableError(
            f"checkpoint {named} has several values of {column!r}: select one domain, "
            "or name the checkpoints apart (column 'checkpoint')"
        )
    table = table.rename(columns={column: "loss"})
    table.insert(len(names) + 1, "D", table["N"] * table["ptpp"])
    return table


def losses_before(
    before: Mapping[str, Posterior], N: Any, ptpp: Any, *, seed: int = 0
) -> dict[str, ValueDraws | list[ValueDraws]]:
    """Draw the losses of models that do not exist yet, with their own errors, as
    ``covariates`` of a plan.

    With them, target, source and baseline of a plan share the checkpoint's error. With
    two chains they would not.

    Parameters
    ----------
    before
        As in `chain`.
    N, ptpp
        One model, or sequences as `plan` takes them.

    Returns
    -------
    dict
        Column -> `Draws` of the loss in nats per token; with several models a list of
        one per model.

    Raises
    ------
    PlanError
        ``ptpp`` is None: the tokens of pre-training are ptpp * N.

    Examples
    --------
    >>> drawn = bayeslaw.losses_before({"loss_before": pretraining}, N=1e9, ptpp=20.0)
    >>> drawn["loss_before"].ndim
    1
    """
    if before and ptpp is None:
        are = "are" if len(before) > 1 else "is"
        raise PlanError(
            f"{' and '.join(before)} {are} forecast from the tokens of pre-training: "
            "give ptpp (--ptpp 43)"
        )
    models = models_of(N, ptpp)
    draws = {}
    for k, (column, fit) in enumerate(before.items()):
        at = pd.DataFrame(models, columns=[*CHECKPOINT])
        at = at.assign(D=at["N"] * at["ptpp"])
        log_losses = fit.log_loss(at, noise=True, seed=seed + k)
        losses = [ValueDraws(of_model) for of_model in np.exp(log_losses).T]
        draws[column] = losses if len(models) > 1 else losses[0]
    return draws


@dataclass(frozen=True)
class ChainLogLoss:
    """A chain's log loss of one draw: ``main`` starts from the checkpoint's losses, which
    are given or forecast by ``links``. The record is frozen, so equal records share a
    compiled program.
    """

    main: Callable[[Draw, Mapping[str, Float[AnyArray, " run"]]], Float[Array, " run"]]
    links: tuple[Link, ...]

    @property
    def forecast(self) -> tuple[str, ...]:
        """Columns that are forecast where they are not given."""
        return tuple(link.column for link in self.links)

    def __call__(
        self, draw: Draw, covariates: Mapping[str, Float[AnyArray, " run"]]
    ) -> Float[Array, " run"]:
        """Evaluate the log loss at each run, shape (run,)."""
        return self.main(draw, self._complete(draw, covariates))

    def along_tokens(
        self, draw: Draw, covariates: Mapping[str, Float[AnyArray, ""]]
    ) -> Callable[[Float[Array, ""]], Float[Array, ""]]:
        """Return log loss as a function of tokens; the checkpoint is forecast once."""
        run = {name: column[None] for name, column in covariates.items()}
        completed = self._complete(draw, run)
        point = {name: column[0] for name, column in completed.items()}
        return along_tokens(self.main, draw, point)

    def _complete(
        self, draw: Draw, covariates: Mapping[str, Float[AnyArray, " run"]]
    ) -> dict[str, Float[AnyArray, " run"]]:
        """Complete the covariates by the forecasts of the checkpoint."""
        checkpoint = {**covariates, "D": covariates["ptpp"] * covariates["N"]}
        completed = dict(covariates)
        for link in self.links:
            leaves = without_prefix(f"{link.column}:", draw)
            size = 1.0 if link.fading is None else link.fading.factor(checkpoint)
            error = size * leaves[ERROR]
            forecast = jnp.exp(link.log_loss(leaves, checkpoint) + error)
            measured = covariates.get(link.column)
            if measured is not None:
                forecast = jnp.where(jnp.isnan(measured), forecast, measured)
            completed[link.column] = forecast
        return completed


def models_of(
    N: Any, ptpp: Any, fewest: int = 1000, longest: float = 1e6
) -> list[tuple[float, float | None]]:
    """List the candidate models as (N, ptpp), from numbers or texts ("8.1B"); ptpp None:
    not known. ``fewest``: least number of parameters of a model; ``longest``: most
    pre-training tokens for each.
    """
    sizes, stages = (np.atleast_1d(np.asarray(v)) for v in (N, ptpp))
    if 1 != len(sizes) != len(stages) != 1:
        raise PlanError(
            "N and ptpp must have one length, or one of them be a single number; "
            f"got {len(sizes)} and {len(stages)}"
        )
    pairs = np.broadcast_arrays(sizes, stages)
    models = [
        (checked("N", n, COUNT), None if s is None else checked("ptpp", s, COUNT))
        for n, s in zip(*pairs, strict=True)
    ]
    for n, s in models:
        if n < fewest:
            raise PlanError(
                f"N = {n:g} is too few parameters for a model; in billions? "
                f"write {n:g}B"
            )
        if s is not None and s > longest:
            raise PlanError(
                f"ptpp = {format_count(s)} is too many tokens for each parameter; all "
                f"tokens of pre-training? then it is {s / n:.4g} for a model of "
                f"{format_count(n)}"
            )
    return models

"""Chains: a law's covariate forecast by another fit where it is not measured, draws carried through.

The losses of a checkpoint before adaptation (``source_loss_before``, ``loss_before``) cost one evaluation. Where the
checkpoint does not exist yet, a law of pre-training in N and D, fitted to the checkpoints there are, forecasts them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array

from bayeslaw import _engine, _runs
from bayeslaw._errors import LawError, RunTableError
from bayeslaw._fit import new_run_noise
from bayeslaw._plan_question import models_of
from bayeslaw._posterior import Draw, Piece, Posterior, over_draws

CHECKPOINT = ("N", "ptpp")  # what forecasts a checkpoint's loss; its tokens D are ptpp * N
READABLE = ("N", "D", "ptpp")  # by a fit of checkpoints
ERROR = "error"  # leaf: the checkpoint's own error on log loss, shape (draw,), or (draw, run) at a table


class Link(NamedTuple):
    """A covariate and the formula that forecasts it; its draws are leaves ``column:name``."""

    column: str
    log_loss: Any

    def own(self, draw: Draw) -> dict[str, Array]:
        """The leaves of this link, under the names they had in its fit."""
        return {k.removeprefix(f"{self.column}:"): v for k, v in draw.items() if k.startswith(f"{self.column}:")}

    def name(self, draw: Mapping[str, Any]) -> dict[str, Any]:
        """The inverse of `own`."""
        return {f"{self.column}:{k}": v for k, v in draw.items()}


def chain(posterior: Posterior, before: Mapping[str, Posterior], *, seed: int = 0) -> Chain:
    """Carry forecasts of the checkpoint's losses through a law that reads them.

    Parameters
    ----------
    posterior
        A posterior whose law reads the columns of ``before``.
    before
        Column -> posterior of a law in N and D, fitted to `checkpoints`: N of the chain is its N, and its D, the
        tokens of pre-training, is ptpp * N.
    seed
        Pairs the draws of the fits, which are independent, and draws the errors of checkpoints.

    Returns
    -------
    Chain
        A posterior that forecasts, checks and plans like any other and reads N and ptpp in place of the columns; a
        table may have them measured at some rows.

    Raises
    ------
    LawError
        The law does not read a column of ``before``, or a fit before reads something that a checkpoint does not have.
    """
    read = {c for piece in posterior.pieces() for c in piece.covariates}
    for column, fit in before.items():
        if column not in read:
            raise LawError(f"the law does not read {column!r}, so nothing is to forecast; it reads: {', '.join(read)}")
        odd = {c for piece in fit.pieces() for c in piece.covariates} - set(READABLE)
        if odd:
            raise LawError(
                f"the fit for {column!r} reads {min(odd)!r}, which a checkpoint before adaptation does not have: fit a law "
                "of N and D, for instance chinchilla, to the table of checkpoints"
            )
    return Chain(posterior, dict(before), seed)


@dataclass(frozen=True, eq=False)
class Chain:
    """A posterior some of whose covariates are forecast by others; made by `chain`."""

    posterior: Posterior
    before: Mapping[str, Posterior]
    seed: int

    @property
    def name(self) -> str:
        """Name of the posterior whose covariates are forecast."""
        return self.posterior.name

    @property
    def warnings(self) -> tuple[str, ...]:
        """Those of every fit in the chain."""
        return (*self.posterior.warnings, *(f"{c}: {w}" for c, fit in self.before.items() for w in fit.warnings))

    def pieces(self) -> tuple[Piece, ...]:
        """Joint draws of all fits. A draw has one error of the checkpoint, so these are about one checkpoint at a time.

        `plan` pairs the draws of its posteriors at random, so that two chains do not share a checkpoint there;
        `losses_before` as covariates do.
        """
        return tuple(piece for _, piece in self._joint(None))

    def log_loss(self, runs: pd.DataFrame, *, noise: bool = False, seed: int = 0) -> np.ndarray:
        """Draws of the log loss, shape (draw, run): of the law, or with ``noise`` of a new run.

        The error of a checkpoint that is forecast is in both, since the law is about a checkpoint's actual losses. Rows
        of one checkpoint (column ``checkpoint``, else N and ptpp) share it.

        Raises
        ------
        RunTableError
            The table lacks a column that the chain reads, or has it empty where it is needed.
        """
        _engine.start()
        codes = pd.factorize(_identity(runs))[0]
        joint = self._joint(int(codes.max()) + 1)
        table = self._table(runs, sorted({c for _, piece in joint for c in piece.covariates}))
        out = np.empty((sum(piece.draws for _, piece in joint), len(runs)))
        for rows, piece in joint:
            values = {k: v[:, codes] if k.endswith(f":{ERROR}") else v for k, v in piece.values.items()}
            out[rows] = over_draws(piece.log_loss)(values, table)
        return out + self._noise(runs, seed) if noise else out

    def _joint(self, checkpoints: int | None) -> list[tuple[np.ndarray, Piece]]:
        """Pieces, and which draws of the posterior each holds; errors of so many checkpoints, or of one without an axis."""
        rng = np.random.default_rng(self.seed)
        own = self.posterior.pieces()
        fits = [own, *(fit.pieces() for fit in self.before.values())]
        total = sum(p.draws for p in own)
        orders = [np.arange(total), *(_permuted(rng, sum(p.draws for p in fit), total) for fit in fits[1:])]
        which, local = map(np.stack, zip(*(_places(f, o) for f, o in zip(fits, orders, strict=True)), strict=True))
        joint = []
        for combination in np.unique(which, axis=1).T:
            rows = np.flatnonzero((which == combination[:, None]).all(axis=0))
            chosen = [fit[i] for fit, i in zip(fits, combination, strict=True)]
            draws = [
                {k: np.asarray(v)[at[rows]] for k, v in p.values.items()} for p, at in zip(chosen, local, strict=True)
            ]
            links = tuple(Link(c, p.log_loss) for c, p in zip(self.before, chosen[1:], strict=True))
            values = dict(draws[0])
            for link, draw in zip(links, draws[1:], strict=True):
                error = new_run_noise(draw, checkpoints or 1, rng)
                values |= link.name(draw | {ERROR: error if checkpoints else error[:, 0]})
            covariates = dict.fromkeys([*(c for c in chosen[0].covariates if c not in self.before), *CHECKPOINT])
            joint.append((rows, Piece(_chained(chosen[0].log_loss, links), values, tuple(covariates))))
        return joint

    def _table(self, runs: pd.DataFrame, read: list[str]) -> dict[str, np.ndarray]:
        """Columns of shape (run,): what every row has, and what was measured of the chained ones, NaN where not."""
        measured = {c: runs[c].to_numpy(float) if c in runs else np.full(len(runs), np.nan) for c in self.before}
        unknown = np.isnan(np.stack(list(measured.values()))).any(axis=0)
        own = {c for piece in self.posterior.pieces() for c in piece.covariates}
        table = {}
        for name in read:
            values = runs[name].to_numpy(float) if name in runs else np.full(len(runs), np.nan)
            bad = np.isnan(values) & (True if name in own else unknown)
            if bad.any():
                what = f"{name!r} ({_runs.NUMERIC.get(name, 'covariate')})"
                where = f"it is empty at row {runs.index[bad][0]}" if name in runs else "the table lacks it"
                why = "" if name in own else f", to forecast {' and '.join(self.before)} where not measured"
                raise RunTableError(f"the chain needs column {what}{why}; {where}")
            table[name] = values
        return table | measured

    def _noise(self, runs: pd.DataFrame, seed: int) -> np.ndarray:
        """A new run's noise on log loss, which does not depend on the losses before, shape (draw, run)."""
        at = runs.assign(D=runs["N"] * runs["ptpp"]) if set(CHECKPOINT) <= set(runs) else runs
        known = {}
        for column, fit in self.before.items():
            given = runs[column].to_numpy(float) if column in runs else np.full(len(runs), np.nan)
            empty = np.isnan(given)
            if empty.any():
                given[empty] = np.exp(np.median(fit.log_loss(at[empty]), axis=0))
            known[column] = given
        filled = runs.assign(**known)
        return self.posterior.log_loss(filled, noise=True, seed=seed) - self.posterior.log_loss(filled)


def checkpoints(runs: pd.DataFrame, column: str = "source_loss_before") -> pd.DataFrame:
    """The table of checkpoints in a table of runs: what a law of pre-training is fitted to.

    Returns
    -------
    DataFrame
        A row per checkpoint at which ``column`` is measured: ``checkpoint`` where the table has it, ``N``, ``ptpp``,
        ``D`` (tokens of pre-training, ptpp * N) and ``loss``, which is the column.

    Raises
    ------
    RunTableError
        A column is missing, all empty, or has two values at one checkpoint.
    """
    missing = [c for c in (*CHECKPOINT, column) if c not in runs]
    if missing:
        raise RunTableError(f"a table of checkpoints needs column {missing[0]!r}; it has: {', '.join(map(str, runs))}")
    names = ["checkpoint"] if "checkpoint" in runs else []
    found = runs.dropna(subset=[column])[[*names, *CHECKPOINT, column]].drop_duplicates()
    if found.empty:
        raise RunTableError(f"column {column!r} is empty at every row; no checkpoint was measured")
    twice = found[names or list(CHECKPOINT)].duplicated()
    if twice.any():
        first = found[twice].iloc[0]
        named = first["checkpoint"] if names else f"N {first['N']:g}, ptpp {first['ptpp']:g}"
        raise RunTableError(
            f"checkpoint {named} has several values of {column!r}: select one domain, or name the checkpoints apart (column "
            "'checkpoint')"
        )
    found = found.rename(columns={column: "loss"})
    found.insert(len(names) + 1, "D", found["N"] * found["ptpp"])
    return found


def losses_before(before: Mapping[str, Posterior], N: Any, ptpp: Any, *, seed: int = 0) -> dict[str, Any]:
    """Draws of the losses of models that do not exist yet, their own errors included: ``covariates`` of a plan.

    In a plan, target, source and baseline then share the checkpoint, which two chains would not.

    Parameters
    ----------
    before
        As in `chain`.
    N, ptpp
        One model, or sequences as `plan` takes them.

    Returns
    -------
    dict
        Column -> losses in nats per token, shape (draw,); with several models a list of one per model.
    """
    models = models_of(N, ptpp)
    drawn = {}
    for k, (column, fit) in enumerate(before.items()):
        at = pd.DataFrame([{"N": n, "ptpp": p, "D": n * p} for n, p in models])
        losses = list(np.exp(fit.log_loss(at, noise=True, seed=seed + k)).T)
        drawn[column] = losses if len(models) > 1 else losses[0]
    return drawn


# -- formula ---------------------------------------------------------------------------------------------------------


def _chain_log_loss(main, links: tuple[Link, ...], draw: Draw, covariates: Mapping[str, Array]) -> Array:
    """The law's log loss at each run, given or forecast losses before; pure."""
    checkpoint = {**covariates, "D": covariates["ptpp"] * covariates["N"]}
    known = dict(covariates)
    for link in links:
        own = link.own(draw)
        forecast = jnp.exp(link.log_loss(own, checkpoint) + own[ERROR])
        given = covariates.get(link.column)
        known[link.column] = forecast if given is None else jnp.where(jnp.isnan(given), forecast, given)
    return main(draw, known)


@lru_cache(maxsize=64)
def _chained(main, links: tuple[Link, ...]):
    """The chain's log loss of one draw; one function for each chain of formulas, so that what is compiled is found again."""
    return partial(_chain_log_loss, main, links)


# -- draws and rows --------------------------------------------------------------------------------------------------


def _permuted(rng: np.random.Generator, draws: int, size: int) -> np.ndarray:
    """Indices of draws, shape (size,): permutations of all, one after the other."""
    return rng.permuted(np.tile(np.arange(draws), (-(-size // draws), 1)), axis=1).ravel()[:size]


def _places(pieces: tuple[Piece, ...], order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The piece that holds each draw, and the draw's place in it."""
    ends = np.cumsum([p.draws for p in pieces])
    which = np.searchsorted(ends, order, side="right")
    return which, order - np.concatenate([[0], ends])[which]


def _identity(runs: pd.DataFrame) -> pd.Series:
    """What tells the checkpoints of a table apart: its column, else N and ptpp, else nothing (all rows are one)."""
    if "checkpoint" in runs and runs["checkpoint"].notna().all():
        return runs["checkpoint"]
    parts = [runs[c].map(str).to_list() if c in runs else [""] * len(runs) for c in CHECKPOINT]
    return pd.Series([" ".join(map(str, row)) for row in zip(*parts, strict=True)], index=runs.index)

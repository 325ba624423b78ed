"""Locate runs along the axes of a misfit, in units with similar effects on a loss.

A unit is the distance over which a law's misfit changes by its own size. It is two
e-folds of size, of tokens and of pre-training, .9 of the log of a domain's share (with
replay, the target's share), and a factor of 1.6 of the loss that a checkpoint starts
from. Units were measured on the bundled grid of tiny models and on published tables of
N and D (docs/discrepancy.md).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bayeslaw._law.columns import (
    LOSS_BEFORE,
    SOURCE_LOSS_BEFORE,
    is_share,
)

if TYPE_CHECKING:
    from jaxtyping import Float

    from bayeslaw._base.arrays import AnyArray


class Axes(NamedTuple):
    """Columns by kind of axis, and the size of each axis's unit in logs.

    ``starts``: losses of the checkpoint (one is enough); ``areas``: areas under the
    learning rate.
    """

    starts: tuple[str, ...] = (SOURCE_LOSS_BEFORE, LOSS_BEFORE)
    counts: tuple[str, ...] = ("D", "N", "ptpp", "S1_pt")
    areas: tuple[str, ...] = ("S1_pt", "S1_cpt")
    loss_unit: float = 0.45
    share_unit: float = 0.9
    count_unit: float = 2.0

    @property
    def of_laws(self) -> tuple[str, ...]:
        """Collect the columns of the package's laws; others are the user's own."""
        return (*self.starts, *self.counts, "replay", "S2_pt", "S1_cpt", "S2_cpt")


AXES = Axes()
# the axis of replay where nothing else varies, on which both domains' shares count: a
# source's loss bends at small replays, where the target's share hardly changes
REPLAY_ODDS = "replay/(1-replay)"


def axis_names(columns: Collection[str]) -> tuple[str, ...]:
    """List the axes of a law's columns, the checkpoint's loss first.

    A column of the user's own is an axis of its own.
    """
    start = [c for c in AXES.starts if c in columns][:1]
    counts = [c for c in AXES.counts if c in columns]
    replay = [c for c in ("replay",) if c in columns]
    losses = ("source_loss", "target_loss")
    further = [c for c in columns if c not in (*AXES.of_laws, *losses)]
    return (*start, *counts, *replay, *further)


def linear_unit(axis: str, values: Float[np.ndarray, " run"]) -> float:
    """Find the unit of an axis without a logarithm: half of the range of a user's
    column that reaches 0 or less; 0 for other axes.
    """
    if axis in AXES.of_laws or is_share(axis) or values.min() > 0:
        return 0.0
    return float(np.ptp(values)) / 2


def position(
    axis: str, covariates: Mapping[str, Any], xp: ModuleType, unit: float = 0.0
) -> Float[AnyArray, "*run"]:
    """Compute the position of each run along an axis, shape (run,). If ``unit`` is not
    0, it is the column itself in this unit. ``xp`` is NumPy or JAX's NumPy.
    """
    if unit:
        return xp.asarray(xp.asarray(covariates[axis], float) / unit)
    if axis == REPLAY_ODDS:
        of_source = share_position(xp.asarray(covariates["replay"], float), xp, 1e-3)
        return of_source - position("replay", covariates, xp)
    if axis == "replay":
        return share_position(1.0 - xp.asarray(covariates["replay"], float), xp, 1e-3)
    if is_share(axis):
        return share_position(xp.asarray(covariates[axis], float), xp)
    value = xp.log(xp.maximum(xp.asarray(covariates[axis], float), 1e-12))
    unit = AXES.loss_unit if axis in AXES.starts else AXES.count_unit
    return xp.asarray(value / unit)


def share_position(
    share: Float[AnyArray, "*run"], xp: ModuleType, least: float = 0.01
) -> Float[AnyArray, "*run"]:
    """Compute the positions of runs with this share of a domain, shape (run,). A share
    of 0 is not infinitely far away; it counts as ``least``.
    """
    log_share = xp.log(xp.clip(share, least, 1.0))
    # NumPy makes scalars of arrays without axes
    return xp.asarray(log_share / AXES.share_unit)


def varies(values: Float[AnyArray, " run"], least: float = 1e-6) -> bool:
    """Tell whether any two positions differ by more than ``least``."""
    reach = np.ptp(values)
    return bool(reach > least)

"""Prepare a table for compiled programs: pad it to one of a few sizes, so that one
program serves many tables, and find the rows that share errors: runs from one
checkpoint, and points along one training run.

Two seeds of tiny models differ by .6% of their loss, and .4% is common to all runs from
a checkpoint. Twenty points of one run are not twenty independent runs. Checkpoints are
read from the column ``checkpoint`` (else N and ptpp), runs from the column ``run``
(else ``schedule``, if there are steps).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from bayeslaw._tables.fitting import losses, sds_of_log_loss

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int, Real

    from bayeslaw._base.arrays import AnyArray


RUN_LENGTH = 0.3  # correlation length of errors along a run, in e-folds
# share of the variance of a row's error that is common to its run, or its setting
COMMON = 0.5
KINDS = ("model", "checkpoint", "run", "setting")  # of groups of rows
OF_CHECKPOINT = KINDS[:2]  # those of all runs from one checkpoint
OF_FIT = KINDS[1:]  # those of which one has an effect in the law's own fit
MANY = 256  # groups of rows that are worth telling from a few, or eliminating
# least distance of two points of a run, in e-folds
MIN_GAP = 1e-4


class Group(NamedTuple):
    """Rows by group, and by blocks of about equal size, each with rows of one group.

    ``code``: index of each row's group, shape (row,). ``slots``: zeros, one for each
    group and some spare ones, shape (slot,). ``members``: rows of each block, filled up
    with -1, shape (member, block). ``block``: index of each block's group, shape
    (block,).
    """

    code: Int[AnyArray, " row"]
    slots: Float[AnyArray, " slot"]
    members: Int[AnyArray, "member block"]
    block: Int[AnyArray, " block"]

    @classmethod
    def of(
        cls, code: Int[np.ndarray, " row"], slots: Float[np.ndarray, " slot"]
    ) -> Group:
        """Arrange rows in blocks of the groups' mean size, so that a sum over a block
        is a sum along an axis. Even if groups differ much in size, all blocks together
        have at most about twice as many places as there are rows.
        """
        counts = np.bincount(code, minlength=len(slots))
        groups = int(np.count_nonzero(counts))
        width = on_ladder(-(-len(code) // groups))  # the mean, rounded up
        blocks = -(-counts // width)  # of each group
        total = int(blocks.sum())
        first = np.cumsum(blocks) - blocks
        # position of each row among the rows of its group
        place = pd.Series(code).groupby(code).cumcount().to_numpy()
        members = np.full((width, _with_spare(total)), -1)
        members[place % width, first[code] + place // width] = np.arange(len(code))
        block = np.zeros(members.shape[1], int)
        block[:total] = np.repeat(np.arange(len(slots)), blocks)
        return cls(code, slots, members, block)


class SharedError(NamedTuple):
    """Structure of the error; a field is None if the table shows no such structure.

    Parameters
    ----------
    checkpoint, run, setting
        Groups of rows that share an effect: on learning curves the rows of a run, else
        the rows of a checkpoint; of a law with tuned settings the rows that are alike
        but in these. Never two of them.
    previous
        Previous row of the same run, shape (row,); the row itself if it is the first.
    gap
        E-folds of steps (or tokens) since the previous row, shape (row,); infinite for
        the first row.
    row_sd
        Standard errors of log loss that the table states, shape (row,).
    """

    checkpoint: Group | None = None
    run: Group | None = None
    setting: Group | None = None
    previous: Int[AnyArray, " row"] | None = None
    gap: Float[AnyArray, " row"] | None = None
    row_sd: Float[AnyArray, " row"] | None = None

    @property
    def kind(self) -> str | None:
        """Kind of group with an effect, one of `OF_FIT`, or None."""
        return next((k for k in OF_FIT if getattr(self, k) is not None), None)

    @property
    def group(self) -> Group:
        """The groups of rows that share an effect; there must be such groups."""
        assert self.kind is not None
        return getattr(self, self.kind)

    @property
    def along_run(self) -> bool:
        return self.previous is not None

    @property
    def independent(self) -> SharedError:
        """Build the structure without shared errors."""
        return SharedError(row_sd=self.row_sd)


NONE = SharedError()


def labels(kind: str, runs: pd.DataFrame) -> pd.Series | None:
    """Label each row's checkpoint or run (``kind``); None without such names."""
    if kind in runs and runs[kind].notna().all():
        return runs[kind].astype(str)
    needed, naming = _TELLING[kind]
    if not set(needed) <= set(runs):
        return None
    return join_names(runs, naming)


def join_names(runs: pd.DataFrame, columns: Sequence[str]) -> pd.Series:
    """Join the columns that are there to a name for each row. An empty cell, such as a
    seed, names nothing.
    """
    texts = [_format_names(runs[column]) for column in columns if column in runs]
    rows = [" ".join(filter(None, row)) for row in zip(*texts, strict=True)]
    return pd.Series(rows, index=runs.index)


# kind -> columns of which the table must have all, and columns that then name a group
_TELLING = {
    # all stages, replays and domains of a size share the luck of its pre-training
    "model": (("N", "ptpp", "replay"), ("N", "seed")),
    "checkpoint": (("N", "ptpp", "replay"), ("N", "ptpp")),
    "run": (("schedule", "step"), ("N", "schedule")),
}


def _format_names(column: pd.Series) -> list[str]:
    return [
        "" if pd.isna(v) else f"{v:g}" if isinstance(v, float) else str(v)
        for v in column
    ]


def shared_error(runs: pd.DataFrame, curve: int = 10) -> SharedError:
    """Find the errors that the rows of a table share.

    In learning curves (runs of ``curve`` points or more) each run has an effect. In
    other tables each checkpoint has an effect. In both, errors of neighbouring points
    of a run are correlated. A single checkpoint or run gets no effect, because its
    effect could not be distinguished from the law.
    """
    run, along = labels("run", runs), _compute_efolds(runs)
    row_sd = sds_of_log_loss(runs, losses(runs)) if "loss" in runs else None
    if run is None or along is None or run.nunique() == len(run):
        checkpoint = index_groups(labels("checkpoint", runs))
        return SharedError(checkpoint=checkpoint, row_sd=row_sd)
    previous, gap = _find_predecessors(pd.factorize(run)[0], along)
    if run.value_counts().max() >= curve:
        return SharedError(
            run=index_groups(run), previous=previous, gap=gap, row_sd=row_sd
        )
    checkpoint = index_groups(labels("checkpoint", runs))
    return SharedError(checkpoint, previous=previous, gap=gap, row_sd=row_sd)


class Sharing(NamedTuple):
    """Shared errors of rows beyond the law, for the second step of a fit.

    Parameters
    ----------
    groups
        Index of each row's group, shape (row,), by kind (`KINDS`). A kind is left out
        if each group has one row, if there is one group, or if the groups are those of
        an earlier kind.
    previous, gap
        As in `SharedError`.
    """

    groups: Mapping[str, Int[np.ndarray, " row"]] = {}
    previous: Int[np.ndarray, " row"] | None = None
    gap: Float[np.ndarray, " row"] | None = None

    @property
    def along_run(self) -> bool:
        return self.previous is not None

    def only(self, is_kept: Bool[np.ndarray, " row"]) -> Sharing:
        """Select rows by a mask of shape (row,). Groups keep their indices. If the
        previous row of a point is removed, the point begins a run.
        """
        groups = {kind: code[is_kept] for kind, code in self.groups.items()}
        if self.previous is None or self.gap is None:
            return Sharing(groups)
        place = np.cumsum(is_kept) - 1
        follows = is_kept[self.previous]
        previous = np.where(follows, place[self.previous], place)[is_kept]
        gap = np.where(follows, self.gap, np.inf)[is_kept]
        return Sharing(groups, previous, gap)


def row_weights(
    shared: Sharing, rows: int, kinds: Sequence[str] = ("run", "setting")
) -> Float[np.ndarray, " row"]:
    """Weigh rows by the independent measurements that their run or setting (``kinds``)
    is worth, shape (row,).

    If neighbours along a run have correlation rho, its n points determine its level as
    well as 1 + sum (1 - rho) / (1 + rho) independent ones. In addition, a share
    `COMMON` of the variance is common to all points.
    """
    weight = np.ones(rows)
    for kind in kinds:
        if kind not in shared.groups:
            continue
        code = shared.groups[kind]
        worth = np.ones(rows)
        if kind == "run" and shared.gap is not None:
            alike = np.exp(-shared.gap / RUN_LENGTH)
            worth = (1 - alike) / (1 + alike)
        points = np.bincount(code)
        independent = np.bincount(code, worth)
        effective = 1 / (COMMON + (1 - COMMON) / np.maximum(independent, 1.0))
        weight *= (effective / np.maximum(points, 1))[code]
    return weight


def group_labels(
    kind: str, runs: pd.DataFrame, columns: Sequence[str]
) -> pd.Series | None:
    """Name each row's group: `labels`, or the settings that a law reads."""
    if kind != "setting":
        return labels(kind, runs)
    texts = [_format_names(runs[column]) for column in columns]
    rows = [" ".join(row) for row in zip(*texts, strict=True)]
    return pd.Series(rows, index=runs.index)


def sharing(runs: pd.DataFrame, columns: Sequence[str]) -> Sharing:
    """Find the shared errors of rows: of a checkpoint, a run, a setting of the columns
    that the law reads, and of neighbours along a run.
    """
    groups: dict[str, Int[np.ndarray, " row"]] = {}
    for kind in KINDS:
        names = group_labels(kind, runs, columns)
        if names is None or not 1 < names.nunique() < len(names):
            continue
        code = pd.factorize(names, sort=True)[0]
        if _is_rarely_shared(code):
            continue
        if not any(_same_partition(code, earlier) for earlier in groups.values()):
            groups[kind] = code
    run, along = labels("run", runs), _compute_efolds(runs)
    if run is None or along is None or run.nunique() == len(run):
        return Sharing(groups)
    return Sharing(groups, *_find_predecessors(pd.factorize(run)[0], along))


def _is_rarely_shared(code: Int[np.ndarray, " row"], share: float = 0.1) -> bool:
    """Tell whether there are many groups and nearly all have one row: what they share
    cannot be told from a row's own error, and costs a column a row.
    """
    sizes = np.bincount(code)
    return len(sizes) > MANY and bool(np.mean(sizes[code] > 1) < share)


def _same_partition(
    code: Int[np.ndarray, " row"], second: Int[np.ndarray, " row"]
) -> bool:
    pairs = len(set(zip(code.tolist(), second.tolist(), strict=True)))
    return pairs == len(np.unique(code)) == len(np.unique(second))


def twice(shared: SharedError) -> SharedError:
    """Double the error structure for a table followed by new runs of the same design.
    The new runs have new checkpoints and runs, with their own effects.
    """
    doubled: dict[str, Any] = {}
    if shared.kind is not None:
        code = np.asarray(shared.group.code)
        groups = int(code.max()) + 1
        codes = np.concatenate([code, code + groups])
        doubled[shared.kind] = Group.of(codes, _make_slots(2 * groups))
    if shared.previous is not None and shared.gap is not None:
        previous = np.asarray(shared.previous)
        doubled["previous"] = np.concatenate([previous, previous + len(previous)])
        doubled["gap"] = np.tile(np.asarray(shared.gap), 2)
    if shared.row_sd is not None:
        doubled["row_sd"] = np.tile(np.asarray(shared.row_sd), 2)
    return SharedError(**doubled)


def _compute_efolds(runs: pd.DataFrame) -> Float[np.ndarray, " row"] | None:
    """Place each row along its run, in e-folds of steps, or else of tokens."""
    for column in ("step", "D"):
        if column in runs:
            return np.log(np.maximum(runs[column].to_numpy(float), 1.0))
    return None


def index_groups(names: pd.Series | None) -> Group | None:
    """Find the groups of rows by name; None for one group, or one of each row."""
    if names is None or not 1 < names.nunique() < len(names):
        return None
    code, levels = pd.factorize(names, sort=True)
    return Group.of(code, _make_slots(len(levels)))


def _make_slots(groups: int) -> Float[np.ndarray, " slot"]:
    return np.zeros(_with_spare(groups))


def _with_spare(groups: int, multiple: int = 8) -> int:
    """Round up to the next multiple, so that tables share compiled programs."""
    return -(-groups // multiple) * multiple


def _find_predecessors(
    run: Int[np.ndarray, " row"], along: Float[np.ndarray, " row"]
) -> tuple[Int[np.ndarray, " row"], Float[np.ndarray, " row"]]:
    """Find each row's predecessor in its run, and the gap to it, each of shape (row,)."""
    order = np.lexsort((along, run))
    previous, gap = np.arange(len(run)), np.full(len(run), np.inf)
    # neighbours in the sorted order that belong to one run
    is_same = run[order][1:] == run[order][:-1]
    later, earlier = order[1:][is_same], order[:-1][is_same]
    previous[later] = earlier
    gap[later] = np.maximum(along[later] - along[earlier], MIN_GAP)
    return previous, gap


class Padded(NamedTuple):
    """Covariates and log losses; ``weight`` is 0 at rows of padding, else 1."""

    covariates: Mapping[str, Float[AnyArray, " row"]]
    y: Float[AnyArray, " row"]
    weight: Float[AnyArray, " row"]
    shared: SharedError = NONE

    def weighed(self, weights: Float[np.ndarray, " measured"]) -> Padded:
        """Weigh the measured rows, shape (measured,); padding has weight 0."""
        weight = np.zeros(len(self.weight))
        weight[: len(weights)] = weights
        return self._replace(weight=weight)


def at_once(table: Padded, cells: int = 1_000_000) -> int:
    """Compute how many draws to evaluate together at all rows of a table: draws x rows
    is at most ``cells``, which bounds the memory.
    """
    rows = len(table.weight)
    return max(1, cells // rows)


def padded_size(n: int) -> int:
    """Compute the padded number of rows for ``n`` rows: `on_ladder`, a multiple of 16."""
    return on_ladder(n, 16)


def on_ladder(n: int, least: int = 1) -> int:
    """Round a size up to the next step of a ladder. Steps are an eighth of the power of
    two below, and at least ``least``.
    """
    step = max(least, 2 ** max(0, n.bit_length() - 4))
    steps = -(-n // step)  # rounded up
    return steps * step


def pad(
    covariates: Mapping[str, Real[np.ndarray, " row"]],
    y: Float[np.ndarray, " row"],
    shared: SharedError = NONE,
    size: int | None = None,
) -> Padded:
    """Repeat the last row up to the padded size (or ``size``), with weight 0."""
    n = len(y)
    size = size or padded_size(n)
    index = np.minimum(np.arange(size), n - 1)
    groups: dict[str, Any] = {}
    if shared.kind is not None:
        groups[shared.kind] = shared.group._replace(code=shared.group.code[index])
    if shared.previous is not None and shared.gap is not None:
        groups |= {"previous": shared.previous[index], "gap": shared.gap[index]}
    if shared.row_sd is not None:
        groups["row_sd"] = shared.row_sd[index]
    padded = {c: np.asarray(v, float)[index] for c, v in covariates.items()}
    weight = (np.arange(size) < n) * 1.0
    return Padded(padded, y[index], weight, shared._replace(**groups))

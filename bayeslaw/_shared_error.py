"""Which rows of a table share their error: runs from one checkpoint, and points along one training run.

Two seeds of tiny models differ by .6% of their loss, of which .4% is common to all runs from a checkpoint. Twenty points
of one run are not twenty runs. Both are seen from the table: its columns ``checkpoint`` (else N and ptpp) and ``run``
(else ``schedule``, where there are steps).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

CURVE = 10  # rows of one run from which it is a learning curve, whose neighbouring points are alike
MIN_GAP = 1e-4  # e-folds; two points of a run closer than this are taken to be this far apart
SLOTS = 8  # groups are padded to multiples of this, so that tables share compiled programs


class Group(NamedTuple):
    """``code``: index of each row's group, shape (row,); ``slots``: zeros, one a group and some to spare, shape (slot,)."""

    code: Any
    slots: Any


class SharedError(NamedTuple):
    """Structure of the error; a field is None where the table shows none of its kind.

    Parameters
    ----------
    checkpoint, run
        Rows that share an effect: of their run on learning curves, elsewhere of their checkpoint; never both.
    previous
        Row measured just before in the same run, itself where there is none, shape (row,).
    gap
        E-folds of steps (or tokens) since then, infinite where there is none, shape (row,).
    """

    checkpoint: Group | None = None
    run: Group | None = None
    previous: Any = None
    gap: Any = None

    @property
    def kind(self) -> str | None:
        """``"checkpoint"``, ``"run"``, or None: what the effect belongs to."""
        return "checkpoint" if self.checkpoint is not None else "run" if self.run is not None else None

    @property
    def group(self) -> Group:
        found = self.run if self.checkpoint is None else self.checkpoint
        assert found is not None
        return found

    @property
    def along_run(self) -> bool:
        return self.previous is not None


NONE = SharedError()


def labels(kind: str, runs: pd.DataFrame) -> pd.Series | None:
    """Each row's checkpoint or run (``kind``) as text, or None where the table does not tell."""
    if kind in runs and runs[kind].notna().all():
        return runs[kind].astype(str)
    together = {"checkpoint": ("N", "ptpp", "replay"), "run": ("schedule", "step")}[kind]
    if not set(together) <= set(runs):
        return None
    named = [c for c in ("N", "ptpp" if kind == "checkpoint" else "schedule") if c in runs]
    written = [runs[c].map(lambda v: f"{v:g}" if isinstance(v, float) else str(v)).to_list() for c in named]
    return pd.Series([" ".join(map(str, parts)) for parts in zip(*written, strict=True)], index=runs.index)


def shared_error(runs: pd.DataFrame) -> SharedError:
    """What the rows of a table share.

    Learning curves (runs of many points): an effect of each run, and neighbours alike. Other tables: an effect of each
    checkpoint, and points along one run alike. A single checkpoint or run has no effect that could be told from the law.
    """
    run = labels("run", runs)
    along = next((np.log(np.maximum(runs[c].to_numpy(float), 1.0)) for c in ("step", "D") if c in runs), None)
    if run is None or along is None or run.nunique() == len(run):
        return SharedError(checkpoint=_group(labels("checkpoint", runs)))
    previous, gap = _before(pd.factorize(run)[0], along)
    if run.value_counts().max() >= CURVE:
        return SharedError(run=_group(run), previous=previous, gap=gap)
    return SharedError(_group(labels("checkpoint", runs)), previous=previous, gap=gap)


def _group(names: pd.Series | None) -> Group | None:
    if names is None or not 1 < names.nunique() < len(names):
        return None
    code, levels = pd.factorize(names, sort=True)
    return Group(code, np.zeros(-(-len(levels) // SLOTS) * SLOTS))


def _before(run: np.ndarray, along: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each row's predecessor in its run, and the gap to it."""
    order = np.lexsort((along, run))
    previous, gap = np.arange(len(run)), np.full(len(run), np.inf)
    follows = run[order][1:] == run[order][:-1]
    here, there = order[1:][follows], order[:-1][follows]
    previous[here], gap[here] = there, np.maximum(along[here] - along[there], MIN_GAP)
    return previous, gap

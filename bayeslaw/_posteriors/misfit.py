"""A law's draws with their misfit: what single fits and averages share."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from bayeslaw._inference.discrepancy.learning import (
    TRIES,
    Misfit,
    independent_rows,
    learn,
)
from bayeslaw._inference.discrepancy.marginal import Rows
from bayeslaw._inference.discrepancy.process import (
    Process,
    process_from_dict,
    process_of,
    process_to_dict,
)
from bayeslaw._inference.noise import CURVE_LENGTH, LADDER_LENGTH, NOISE
from bayeslaw._inference.table import NONE, Group, SharedError, shared_error
from bayeslaw._law.law import Law
from bayeslaw._posteriors.artifact import SLASH
from bayeslaw._posteriors.posterior import WEIGHTS, LogLoss, over_draws

if TYPE_CHECKING:
    from jaxtyping import Bool, Float
    from xarray import Dataset


class TrainingRuns(NamedTuple):
    """Runs that a law was fitted to.

    ``covariates``: by column, (row,); ``y``: log losses, (row,); ``shared``: which rows
    share their error, unpadded.
    """

    covariates: Mapping[str, Float[np.ndarray, " row"]]
    y: Float[np.ndarray, " row"]
    shared: SharedError

    def only(self, kept: Bool[np.ndarray, " row"]) -> TrainingRuns:
        """The rows that are kept, shape (row,) of truth values.

        A point whose predecessor in its run is gone begins a run.
        """
        covariates = {c: v[kept] for c, v in self.covariates.items()}
        kind, shared = self.shared.kind, self.shared
        if kind is not None:
            code = np.asarray(shared.group.code)[kept]
            cut = Group.of(code, np.asarray(shared.group.slots))
            shared = shared._replace(**{kind: cut})
        if shared.previous is not None and shared.gap is not None:
            place = np.cumsum(kept) - 1
            follows = kept[shared.previous]
            previous = np.where(follows, place[shared.previous], place)[kept]
            gap = np.where(follows, shared.gap, np.inf)[kept]
            shared = shared._replace(previous=previous, gap=gap)
        return TrainingRuns(covariates, self.y[kept], shared)


def fitted_errors(law: Law, runs: pd.DataFrame) -> SharedError:
    """The errors that rows share while a law itself is fitted, before its misfit.

    A law that starts from the checkpoint's own losses has in them what an effect of the
    checkpoint stands for: with the effect too, it can lose to it what it should learn
    between checkpoints (docs/state_laws.md). What a checkpoint shares beside them is
    learned with the misfit.
    """
    shown = shared_error(runs)
    starts = {"loss_before", "source_loss_before"} & set(law.covariates)
    if starts and shown.kind == "checkpoint":
        return NONE
    return shown


def learn_misfit(
    law: Law,
    values: Mapping[str, Float[np.ndarray, "draw ..."]],
    runs: TrainingRuns,
    kept: Bool[np.ndarray, " row"] | None = None,
    *,
    seed: int,
    tries: int = TRIES,
) -> Misfit | None:
    """The misfit of each draw of a law; None where the runs differ along no axis.

    Parameters
    ----------
    values
        Draws of the law's values and of its error, by name, each of shape (draw,).
    kept
        Runs to learn from, shape (row,) of truth values; all by default.
    """
    left = runs if kept is None else runs.only(kept)
    process = process_of(left.covariates, left.shared.along_run)
    if process is None:
        return None
    of_law = {name: np.asarray(values[name]) for name in law.priors}
    log_losses = over_draws(LogLoss(law))

    def means(block: slice) -> Float[np.ndarray, "draw row"]:
        """Log loss of a slice of the draws at the runs, shape (draw, row)."""
        part = {name: draws[block] for name, draws in of_law.items()}
        # at all runs: another number of them would be another program to compile
        everywhere = np.asarray(log_losses(part, dict(runs.covariates)))
        return everywhere if kept is None else everywhere[:, kept]

    return learn(
        process,
        _rows(process, values, left),
        left.y,
        means,
        len(values["sigma"]),
        seed=seed,
        tries=tries,
    )


def _rows(
    process: Process,
    values: Mapping[str, Float[np.ndarray, "draw ..."]],
    runs: TrainingRuns,
) -> Rows:
    shared, groups = runs.shared, None
    features = process.features(runs.covariates, np)
    if shared.kind is not None:
        code = np.asarray(shared.group.code)
        groups = np.eye(len(shared.group.slots))[code]
    usual = CURVE_LENGTH if shared.kind == "run" else LADDER_LENGTH
    length = float(np.median(values.get("run_length", usual.args[0])))
    return independent_rows(features, groups, shared.previous, shared.gap, length)


def with_misfit(
    values: Mapping[str, Float[np.ndarray, "draw ..."]],
    misfit: Misfit | None,
    kind: str | None,
) -> dict[str, Float[np.ndarray, "draw ..."]]:
    """A law's draws with the weights of its misfit and the noise that this leaves.

    ``kind``: of group whose errors are shared, ``"checkpoint"`` or ``"run"``.
    """
    if misfit is None:
        return dict(values)
    again = [name for name in NOISE if name != "run_length"]  # that a misfit says
    kept = {name: v for name, v in values.items() if name not in again}
    noise = {"sigma": misfit.sigma, "dof": misfit.dof}
    if misfit.tau is not None:
        noise[f"tau_{kind}"] = misfit.tau
    return kept | noise | {WEIGHTS: misfit.weights}


# -- in a saved fit --------------------------------------------------------------------

SCALE = "scale: "  # before the name of a scale, among the variables of the file


def to_dataset(misfit: Misfit, kind: str | None, groups: Sequence[str]) -> Dataset:
    """A misfit for a fit's tree; ``groups`` names the groups that share an error."""
    import xarray as xr

    arrays = {
        "weights": (("draw_index", "function"), misfit.weights),
        "sigma": ("draw_index", misfit.sigma),
        "dof": ("draw_index", misfit.dof),
    }
    for name, draws in misfit.scales.items():
        arrays[SCALE + name.replace("/", SLASH)] = ("draw_index", draws)
    coords = {}
    if misfit.tau is not None and misfit.effects is not None:
        arrays["tau"] = ("draw_index", misfit.tau)
        effects = misfit.effects[:, : len(groups)]
        arrays["effects"] = (("draw_index", "group"), effects)
        coords["group"] = np.asarray(groups, object)
    attrs = {
        "process": json.dumps(process_to_dict(misfit.process)),
        "khat": misfit.khat,
        "kind": kind or "",
    }
    return xr.Dataset(arrays, coords, attrs)


def from_dataset(saved: Dataset) -> Misfit:
    """The misfit of `to_dataset`.

    Raises
    ------
    ValueError
        There is none in it.
    """
    arrays = {str(name): v.to_numpy() for name, v in saved.data_vars.items()}
    process = process_from_dict(json.loads(saved.attrs["process"]))
    if process is None:
        raise ValueError("its misfit has no process")
    scales = {
        name.removeprefix(SCALE).replace(SLASH, "/"): v
        for name, v in arrays.items()
        if name.startswith(SCALE)
    }
    return Misfit(
        process,
        arrays["weights"],
        arrays["sigma"],
        arrays["dof"],
        arrays.get("tau"),
        arrays.get("effects"),
        scales,
        float(saved.attrs["khat"]),
    )

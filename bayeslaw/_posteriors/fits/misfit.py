"""A law's draws with their misfit: what single fits and averages share."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from bayeslaw._inference.discrepancy.fading import Fading
from bayeslaw._inference.discrepancy.learning import (
    TRIES,
    Misfit,
    fading_power,
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
from bayeslaw._inference.noise import NOISE
from bayeslaw._inference.table import (
    NONE,
    RUN_LENGTH,
    SharedError,
    Sharing,
    group_labels,
    row_weights,
    shared_error,
    sharing,
)
from bayeslaw._law.columns import LOSS_BEFORE, SOURCE_LOSS_BEFORE
from bayeslaw._law.law import Law
from bayeslaw._posteriors.fits.artifact import SLASH
from bayeslaw._posteriors.posterior import WEIGHTS, LogLoss, over_draws
from bayeslaw._tables import fitting

if TYPE_CHECKING:
    from jaxtyping import Bool, Float
    from xarray import Dataset


class TrainingRuns(NamedTuple):
    """Runs that a law was fitted to.

    ``covariates``: by column, (row,); ``y``: log losses, (row,); ``sharing``: what rows
    share.
    """

    covariates: Mapping[str, Float[np.ndarray, " row"]]
    y: Float[np.ndarray, " row"]
    sharing: Sharing

    @classmethod
    def of(cls, law: Law, runs: pd.DataFrame, independent: bool) -> TrainingRuns:
        """The runs of a table, as a law reads them."""
        shared = Sharing() if independent else sharing(runs, law.covariates)
        y = np.log(fitting.losses(runs))
        return cls(fitting.covariates(law, runs), y, shared)

    @property
    def row_weights(self) -> Float[np.ndarray, " row"]:
        """What each row counts for while the law is fitted by itself, shape (row,)."""
        return row_weights(self.sharing, len(self.y))

    def only(self, kept: Bool[np.ndarray, " row"]) -> TrainingRuns:
        """The rows that are kept, shape (row,) of truth values."""
        covariates = {c: v[kept] for c, v in self.covariates.items()}
        return TrainingRuns(covariates, self.y[kept], self.sharing.only(kept))


def fitted_errors(law: Law, runs: pd.DataFrame) -> SharedError:
    """The errors that rows share while a law itself is fitted, before its misfit.

    A law that starts from the checkpoint's own losses has in them what an effect of the
    checkpoint stands for: with the effect too, it can lose to it what it should learn
    between checkpoints (docs/state_laws.md). What a checkpoint shares beside them is
    learned with the misfit.
    """
    errors = shared_error(runs)
    starts = {LOSS_BEFORE, SOURCE_LOSS_BEFORE} & set(law.covariates)
    if starts or errors.kind != "checkpoint":
        return NONE
    return SharedError(checkpoint=errors.checkpoint)


def learn_misfit(
    law: Law,
    values: Mapping[str, Float[np.ndarray, "draw ..."]],
    runs: TrainingRuns,
    kept: Bool[np.ndarray, " row"] | None = None,
    *,
    power: float | None = None,
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
    power
        Power of tokens by which errors fade; learned by default.
    """
    judged = runs if kept is None else runs.only(kept)
    process = process_of(judged.covariates, judged.sharing.along_run)
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

    rows = _rows(process, judged)
    count = len(values["sigma"])
    if "D" in judged.covariates:
        tokens = judged.covariates["D"]
        if power is None:
            power = fading_power(process, rows, judged.y, means, count, tokens)
        fading = Fading(power, float(tokens.max()))
        process = replace(process, fading=fading)
        rows = rows.over(fading.sizes(judged.covariates))
    return learn(process, rows, judged.y, means, count, seed=seed, tries=tries)


def _rows(process: Process, runs: TrainingRuns) -> Rows:
    features = process.features(runs.covariates, np)
    groups = {
        kind: np.eye(int(code.max()) + 1)[code]
        for kind, code in runs.sharing.groups.items()
    }
    sharing = runs.sharing
    return independent_rows(features, groups, sharing.previous, sharing.gap, RUN_LENGTH)


def with_misfit(
    values: Mapping[str, Float[np.ndarray, "draw ..."]],
    misfit: Misfit | None,
) -> dict[str, Float[np.ndarray, "draw ..."]]:
    """A law's draws with the weights of its misfit and the noise that this leaves."""
    if misfit is None:
        return dict(values)
    of_law = {name: v for name, v in values.items() if name not in NOISE}
    noise = {"sigma": misfit.sigma, "dof": misfit.dof}
    noise |= {f"tau_{kind}": tau for kind, tau in misfit.tau.items()}
    if misfit.along_run:
        noise["run_length"] = np.full(len(misfit.sigma), RUN_LENGTH)
    return of_law | noise | {WEIGHTS: misfit.weights}


# -- in a saved fit --------------------------------------------------------------------

# before a name among the variables of the file
SCALE, TAU, EFFECTS, GROUP = "scale: ", "tau ", "effects ", "group "


def group_names(
    misfit: Misfit, law: Law, runs: pd.DataFrame
) -> dict[str, Sequence[str]]:
    """Name the groups whose effects a misfit has, by kind, in the order of effects."""
    names = {}
    for kind in misfit.tau:
        labels = group_labels(kind, runs, law.covariates)
        assert labels is not None
        names[kind] = list(np.unique(labels.to_numpy(str)))
    return names


def to_dataset(misfit: Misfit, groups: Mapping[str, Sequence[str]]) -> Dataset:
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
    for kind, tau in misfit.tau.items():
        arrays[TAU + kind] = ("draw_index", tau)
        of_kind = GROUP + kind
        arrays[EFFECTS + kind] = (("draw_index", of_kind), misfit.effects[kind])
        coords[of_kind] = np.asarray(groups[kind], object)
    attrs = {
        "process": json.dumps(process_to_dict(misfit.process)),
        "khat": misfit.khat,
        "along_run": int(misfit.along_run),
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
    scales = _after(SCALE, arrays)
    return Misfit(
        process,
        arrays["weights"],
        arrays["sigma"],
        arrays["dof"],
        _after(TAU, arrays),
        _after(EFFECTS, arrays),
        {name.replace(SLASH, "/"): v for name, v in scales.items()},
        float(saved.attrs["khat"]),
        bool(saved.attrs["along_run"]),
    )


def _after(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays whose names begin with a prefix, by the rest of their names."""
    return {
        name.removeprefix(prefix): values
        for name, values in arrays.items()
        if name.startswith(prefix)
    }

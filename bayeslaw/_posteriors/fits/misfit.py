"""Learn, add and save the misfit of a law's draws, for fits and averages."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import sparse

from bayeslaw._inference.discrepancy.learning import (
    TRIES,
    Misfit,
    fading_power,
    independent_rows,
    learn,
)
from bayeslaw._inference.discrepancy.process import (
    Fading,
    OwnShare,
    process_from_dict,
    process_of,
    process_to_dict,
)
from bayeslaw._inference.noise import NOISE, Effects, Learned
from bayeslaw._inference.table import (
    OF_CHECKPOINT,
    RUN_LENGTH,
    SharedError,
    Sharing,
    group_labels,
    index_groups,
    join_names,
    labels,
    row_weights,
    shared_error,
    sharing,
)
from bayeslaw._law.columns import starts_from_losses
from bayeslaw._law.law import Law
from bayeslaw._posteriors.fits.artifact import NAMES
from bayeslaw._posteriors.posterior import (
    WEIGHTS,
    LogLoss,
    over_draws,
    without_prefix,
)
from bayeslaw._tables import fitting
from bayeslaw._tables.surface import BESIDE_REPLAY, CLEAR, partial_slope

if TYPE_CHECKING:
    from jaxtyping import Bool, Float
    from xarray import Dataset


class TrainingRuns(NamedTuple):
    """Runs that a law was fitted to: columns and log losses, groups of rows that share an
    error, and standard errors of the log losses, if the table has them.
    """

    covariates: Mapping[str, Float[np.ndarray, " row"]]
    y: Float[np.ndarray, " row"]
    sharing: Sharing
    row_sd: Float[np.ndarray, " row"] | None = None
    # whether what a tuned setting's runs share is an effect in the law's fit
    has_cells: bool = False

    @classmethod
    def of(cls, law: Law, runs: pd.DataFrame, independent: bool) -> TrainingRuns:
        """Read the columns of a law from a table of runs."""
        shared = Sharing() if independent else sharing(runs, law.untuned)
        y = fitting.log_losses(runs)
        row_sd = fitting.sds_of_log_loss(runs, np.exp(y))
        return cls(fitting.covariates(law, runs), y, shared, row_sd, bool(law.tuned))

    @property
    def row_weights(self) -> Float[np.ndarray, " row"]:
        """Weight of each row in the fit without misfit, shape (row,)."""
        kinds = ("run",) if self.has_cells else ("run", "setting")
        return row_weights(self.sharing, len(self.y), kinds)

    def only(self, kept: Bool[np.ndarray, " row"]) -> TrainingRuns:
        """Select rows by a mask of shape (row,)."""
        covariates = {c: v[kept] for c, v in self.covariates.items()}
        row_sd = None if self.row_sd is None else self.row_sd[kept]
        sharing = self.sharing.only(kept)
        return self._replace(
            covariates=covariates, y=self.y[kept], sharing=sharing, row_sd=row_sd
        )


def fitted_errors(law: Law, runs: pd.DataFrame) -> SharedError:
    """Choose the effects of groups in the fit without misfit.

    A law that reads the checkpoint's losses gets no checkpoint effect: the effect would
    explain differences between checkpoints in place of the law (docs/state_laws.md).
    The misfit has its own checkpoint effect.

    Runs that are alike but in a tuned setting share an effect. If their rows weighed as
    few instead, what tells the setting's best value would weigh as little as their level.
    """
    errors = shared_error(runs)
    if law.tuned:
        cells = index_groups(group_labels("setting", runs, law.untuned))
        return errors.independent._replace(setting=cells)
    if starts_from_losses(law.covariates) or errors.kind != "checkpoint":
        return errors.independent
    return errors.independent._replace(checkpoint=errors.checkpoint)


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
    """Draw the misfit of each draw of a law from the ``kept`` runs (all by default); None
    where no axis varies between them. ``power``: of tokens by which errors fade; learned
    by default.
    """
    judged = runs if kept is None else runs.only(kept)
    # a swept setting bends the losses as the law says: it gets no axis of its own
    axes = {c: judged.covariates[c] for c in law.untuned}
    process = process_of(axes, judged.sharing.along_run)
    if process is None:
        return None
    of_law = {name: np.asarray(values[name]) for name in law.priors}

    def means(block: slice) -> Float[np.ndarray, "draw row"]:
        """Compute the log loss of a slice of the draws, shape (draw, row)."""
        part = {name: draws[block] for name, draws in of_law.items()}
        return over_draws(LogLoss(law), part, judged.covariates)

    # The basis and the groups at the runs. Points along one run have correlated errors;
    # the rows are transformed so that errors are independent.
    shared = judged.sharing
    every = np.arange(len(judged.y))
    groups = {
        kind: sparse.csr_array((np.ones(len(every)), (every, of_row)))
        for kind, of_row in shared.groups.items()
    }
    features = process.features(judged.covariates, np)
    rows = independent_rows(features, groups, shared.previous, shared.gap, RUN_LENGTH)
    rows = rows._replace(row_sd=judged.row_sd)
    count = len(values["sigma"])
    if "D" in judged.covariates:
        tokens = judged.covariates["D"]
        if power is None:
            power = fading_power(process, rows, judged.y, means, count, tokens)
        fading = Fading(power, float(tokens.max()))
        process = replace(process, fading=fading)
        rows = rows._replace(scale=fading.sizes(judged.covariates))
    misfit = learn(process, rows, judged.y, means, count, seed=seed, tries=tries)
    return replace(misfit, process=replace(process, own_share=find_own_share(judged)))


def find_own_share(runs: TrainingRuns) -> OwnShare | None:
    """Find by which share errors of runs change: replay if losses fall with it, as those of
    the source do, and the rest if they rise; None where it does not vary, or they do
    neither.
    """
    read = (*BESIDE_REPLAY, "replay")
    columns = {c: v for c, v in runs.covariates.items() if c in read}
    table = pd.DataFrame(columns).assign(loss=np.exp(runs.y))
    slope, error = partial_slope(table, "replay", BESIDE_REPLAY)
    if not abs(slope) > CLEAR * error > 0:
        return None
    return OwnShare.of(runs.covariates["replay"], is_source=slope < 0)


def with_misfit(
    values: Mapping[str, Float[np.ndarray, "draw ..."]],
    misfit: Misfit | None,
) -> dict[str, Float[np.ndarray, "draw ..."]]:
    """Add the misfit's weights to draws, whose noise becomes the misfit's."""
    if misfit is None:
        return dict(values)
    of_law = {name: v for name, v in values.items() if name not in NOISE}
    noise = {"sigma": misfit.sigma, "dof": misfit.dof}
    noise |= {f"tau_{kind}": tau for kind, tau in misfit.tau.items()}
    if misfit.along_run:
        noise["run_length"] = np.full(len(misfit.sigma), RUN_LENGTH)
    return of_law | noise | {WEIGHTS: misfit.weights}


def label_effects(misfit: Misfit, runs: pd.DataFrame, shared: Sharing) -> Effects:
    """Name the learned effects of the models and checkpoints of rows."""
    effects = {}
    for kind in OF_CHECKPOINT:
        if kind in misfit.effects:
            names, code = labels(kind, runs), shared.groups[kind]
            assert names is not None, "the rows have groups of the kind"
            groups = dict(zip(names, code, strict=True))
            by_group = misfit.effects[kind].T
            effects[kind] = name_learned(
                kind, runs, groups.keys(), by_group[[*groups.values()]]
            )
    return effects


def name_learned(
    kind: str,
    runs: pd.DataFrame,
    names: Iterable[str],
    effects: Iterable[Float[np.ndarray, " draw"]],
) -> dict[str, Learned]:
    """Name effects of groups of a kind, and find the most tokens of their rows; effects
    of single runs and settings do not change with tokens.
    """
    most: Mapping[Any, float] = {}
    of_rows = labels(kind, runs) if kind in OF_CHECKPOINT and "D" in runs else None
    if of_rows is not None:
        most = runs["D"].groupby(of_rows.map(str)).max().to_dict()
    named = zip(map(str, names), effects, strict=True)
    return {name: Learned(draws, most.get(name, math.inf)) for name, draws in named}


def add_short_names(effects: Effects, runs: pd.DataFrame) -> Effects:
    """Find effects of checkpoints also by what is left of their names: a row that names
    neither checkpoint nor seed is of the only one of its size, or of its size and stage,
    and one that names the seed of the only one of these.
    """
    named = {kind: dict(of_kind) for kind, of_kind in effects.items()}
    for kind in named.keys() & {*OF_CHECKPOINT}:
        unnamed = runs.drop(columns=[kind, "seed"], errors="ignore")
        short, full = labels(kind, unnamed), labels(kind, runs)
        if short is None or full is None or short.equals(full):
            continue
        seeded = short
        if kind == "checkpoint" and "seed" in runs:
            seeded = join_names(runs.assign(short=short), ["short", "seed"])
        for names in (short, seeded):
            groups = full.groupby(names).unique()
            only = groups[groups.map(len) == 1].explode()
            by_name = only.map(effects[kind]).dropna()
            named[kind] |= {str(name): effect for name, effect in by_name.items()}
    return named


# -- in a saved fit --------------------------------------------------------------------


def to_dataset(misfit: Misfit, groups: Mapping[str, Sequence[str]]) -> Dataset:
    """Convert a misfit to a dataset; ``groups``: labels of groups, by kind."""
    import xarray as xr

    arrays = {
        "weights": (("draw_index", "function"), misfit.weights),
        "sigma": ("draw_index", misfit.sigma),
        "dof": ("draw_index", misfit.dof),
    }
    for name, draws in misfit.scales.items():
        scale = NAMES.scale + name.replace("/", NAMES.slash)
        arrays[scale] = ("draw_index", draws)
    coords = {}
    for kind, tau in misfit.tau.items():
        arrays[NAMES.tau + kind] = ("draw_index", tau)
        of_kind = NAMES.group + kind
        effects = misfit.effects[kind]
        arrays[NAMES.effects + kind] = (("draw_index", of_kind), effects)
        coords[of_kind] = np.asarray(groups[kind], object)
    attrs = {
        "process": json.dumps(process_to_dict(misfit.process)),
        "khat": misfit.khat,
        "along_run": int(misfit.along_run),
    }
    return xr.Dataset(arrays, coords, attrs)


def from_dataset(saved: Dataset) -> Misfit:
    """Convert the output of `to_dataset` back to a misfit."""
    arrays = {str(name): v.to_numpy() for name, v in saved.data_vars.items()}
    process = process_from_dict(json.loads(saved.attrs["process"]))
    if process is None:
        raise ValueError("the saved misfit has no process")
    scales = without_prefix(NAMES.scale, arrays)
    return Misfit(
        process,
        arrays["weights"],
        arrays["sigma"],
        arrays["dof"],
        without_prefix(NAMES.tau, arrays),
        without_prefix(NAMES.effects, arrays),
        {name.replace(NAMES.slash, "/"): v for name, v in scales.items()},
        float(saved.attrs["khat"]),
        bool(saved.attrs["along_run"]),
    )

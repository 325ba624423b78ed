"""What saved posteriors of a law have in common: draws, run table, diagnostics,
provenance, and the netCDF file.
"""

from __future__ import annotations

import json
import platform
import warnings
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bayeslaw._base.errors import DiagnosticsError, FitFileError, FitWarning, LawError
from bayeslaw._base.files import write_bytes
from bayeslaw._inference.diagnostics import (
    MAX_DIVERGENT,
    MAX_RHAT,
    MIN_ESS,
    rhat_and_ess,
)
from bayeslaw._law.law import Law
from bayeslaw._law.recipe import law_of, recipe_of

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped
    from xarray import DataTree

SLASH = "\u2215"  # in place of / in the names of columns
# leaves: effects of the groups of rows that share one, by kind
EFFECTS = {"checkpoint": "checkpoint_effect", "run": "run_effect"}
PACKAGES = ("bayeslaw", "numpyro", "jax", "numpy", "arviz-base", "arviz-stats")


# -- what is in it ---------------------------------------------------------------------


def draws_of(tree: DataTree) -> dict[str, Float[np.ndarray, "draw ..."]]:
    """Draws by name, each of shape (draw, ...), chains one after another."""
    arrays = {str(k): v.to_numpy() for k, v in tree["posterior"].data_vars.items()}
    return {k: v.reshape(-1, *v.shape[2:]) for k, v in arrays.items()}


def runs_of(tree: DataTree) -> pd.DataFrame:
    """The run table of ``constant_data``."""
    data = tree["constant_data"].to_dataset()
    columns = {}
    for name, values in data.data_vars.items():
        column = str(name).replace(SLASH, "/")
        columns[column] = values.to_numpy()
    rows = data["run_row"].to_index()
    return pd.DataFrame(columns, index=rows)


def columns_of(runs: pd.DataFrame) -> dict[str, Shaped[np.ndarray, " run"]]:
    """A run table for ``constant_data``: numbers as floats, all else as text; a tree's
    names hold no slash.
    """
    return {
        str(c).replace("/", SLASH): v.to_numpy(float)
        if pd.api.types.is_numeric_dtype(v)
        else v.astype(str).to_numpy(object)
        for c, v in runs.items()
    }


def tree_of(
    groups: Mapping[str, Mapping[str, Shaped[np.ndarray, "*shape"]]],
    dims: Mapping[str, Sequence[str]],
    coords: Mapping[str, Shaped[np.ndarray, " label"]],
) -> DataTree:
    """ArviZ data of arrays by group and name, as its `from_dict` makes them: importing
    that brings matplotlib, a tenth of a second.

    Parameters
    ----------
    groups
        Arrays begin with chain and draw but for those of ``..._data``.
    dims
        Further dimensions of an array, by its name.
    coords
        Labels along a dimension, else 0, 1, ...
    """
    from xarray import Dataset, DataTree

    datasets = {}
    for group, arrays in groups.items():
        leading = [] if group.endswith("_data") else ["chain", "draw"]
        variables = {
            name: ([*leading, *dims.get(name, [])], array)
            for name, array in arrays.items()
        }
        dataset = Dataset(variables)
        labels = {
            str(dim): coords.get(str(dim), np.arange(size))
            for dim, size in dataset.sizes.items()
        }
        datasets[group] = dataset.assign_coords(labels)
    return DataTree.from_dict(datasets)


def constant_data(runs: pd.DataFrame) -> DataTree:
    """The run table as a group of ArviZ data, made apart from the draws: one of its
    columns may be called as a parameter, which has other dimensions.
    """
    columns = columns_of(runs)
    tree = tree_of(
        {"constant_data": columns},
        dims={name: ["run_row"] for name in columns},
        coords={"run_row": runs.index.to_numpy()},
    )
    return tree.children["constant_data"]


def provenance(law: Law, seed: int, kind: str) -> dict:
    """Attributes that say what was fitted, and by what."""
    recipe = json.dumps(recipe_of(law))
    named = {
        "kind": kind,
        "law": law.name,
        "law_version": law.version,
        "law_recipe": recipe,
    }
    return named | {"seed": seed, "versions": versions()}


def versions() -> str:
    """Versions of what computed, as JSON."""
    return json.dumps(
        {p: version(p) for p in PACKAGES} | {"python": platform.python_version()}
    )


# -- diagnostics -----------------------------------------------------------------------


def diagnostics_of(tree: DataTree, sampled: Iterable[str]) -> dict[str, float]:
    """Largest R-hat, smallest bulk ESS over the sampled sites, divergences, leapfrog
    steps a draw, seconds.
    """
    stats = tree["sample_stats"]
    rhat, ess = rhat_and_ess({n: tree["posterior"][n].to_numpy() for n in sampled})
    divergent = stats["diverging"].to_numpy()
    return {
        "rhat": max(rhat.values()),
        "ess": min(ess.values()),
        "divergences": int(divergent.sum()),
        "divergent_share": float(divergent.mean()),
        "steps_per_draw": float(stats["n_steps"].to_numpy().mean()),
        "draws": int(divergent.size),
        "seconds": float(tree.attrs["seconds"]),
    }


def doubts(
    what: str, diagnostics: Mapping[str, float], remedy: str, *, dash: str = ""
) -> tuple[str, ...]:
    """What the diagnostics hold against a posterior, a line each; ``remedy`` is for
    divergences, ``dash`` before options.
    """
    d, found = diagnostics, []
    if not d["rhat"] <= MAX_RHAT:
        options = f"{dash}warmup, {dash}draws"
        found.append(
            f"R-hat {d['rhat']:.3f} is over {MAX_RHAT}: the chains disagree; draw more ({options})"
        )
    if not d["ess"] >= MIN_ESS:
        found.append(
            f"bulk ESS {d['ess']:.0f} is under {MIN_ESS}: too few effective draws; "
            f"draw more ({dash}draws)"
        )
    if d["divergent_share"] > MAX_DIVERGENT:
        found.append(f"{d['divergences']} of {d['draws']} draws diverged: {remedy}")
    return tuple(f"{what}: {line}" for line in found)


def settle(found: tuple[str, ...], on_failure: str, accept: str) -> None:
    """Raise, warn of, or ignore what `doubts` found; ``accept`` says how to keep the
    posterior all the same.

    Raises
    ------
    DiagnosticsError
        Something was found and ``on_failure`` is ``"raise"``.
    """
    if found and on_failure == "raise":
        raise DiagnosticsError(f"{'; '.join(found)}; or accept as it is ({accept})")
    if on_failure == "warn":
        warn_each(found, stacklevel=4)


def warn_each(lines: Iterable[str], stacklevel: int = 3) -> None:
    """A warning for each line."""
    for line in lines:
        warnings.warn(line, FitWarning, stacklevel=stacklevel)


# -- the file --------------------------------------------------------------------------


def write(tree: DataTree, path: str | Path) -> Path:
    """Write to a netCDF file, whole or not at all."""
    path = Path(path)
    # in memory first: where a disk is full, HDF5 ends the process; as it is: draws
    # compressed by a seventh took three times as long
    content = tree.to_netcdf(None, engine="h5netcdf")
    write_bytes(path, content)
    return path


def read(
    path: str | Path, kind: str, make: str, trust_law_file: bool
) -> tuple[Law, DataTree]:
    """A saved posterior and its law; ``kind`` is what the file should be, ``make`` how
    to make one, ``trust_law_file`` whether a Python file that it names may be run.

    Raises
    ------
    FitFileError
        The file is missing, is not a saved posterior, or its law is no longer what it
        was.
    """
    import xarray

    if not Path(path).is_file():
        raise FitFileError(f"{path}: no such file; {make}")
    try:
        tree = xarray.open_datatree(path, engine="h5netcdf").load()
        tree.close()
        recipe = json.loads(tree.attrs["law_recipe"])
        found = tree.attrs.get("kind", "fit")
    except (OSError, KeyError, ValueError) as error:
        raise FitFileError(
            f"{path}: not a {kind} saved by bayeslaw ({type(error).__name__})"
        ) from None
    if found != kind:
        raise FitFileError(f"{path}: holds a {found}, not a {kind}")
    return law_from_recipe(recipe, path, trust_law_file), tree


def law_from_recipe(recipe: dict, path: str | Path, trust_law_file: bool) -> Law:
    """The law as it was fitted.

    Raises
    ------
    FitFileError
        The law is not here, or is no longer what it was.
    """
    try:
        return law_of(recipe, trust_law_file=trust_law_file)
    except LawError as error:
        raise FitFileError(f"{path}: its law is not to be had: {error}") from None

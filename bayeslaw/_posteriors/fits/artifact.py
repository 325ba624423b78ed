"""Save posteriors of laws: draws, run table, diagnostics, provenance."""

from __future__ import annotations

import gc
import json
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from bayeslaw._base.checksum import checksum
from bayeslaw._base.errors import (
    DiagnosticsError,
    FitFileError,
    FitWarning,
    LawError,
    warn,
)
from bayeslaw._base.files import write_bytes
from bayeslaw._inference.diagnostics import (
    MAX_DIVERGENT,
    MAX_RHAT,
    MIN_ESS,
    rhat_and_ess,
)
from bayeslaw._inference.table import OF_FIT
from bayeslaw._law.law import Law
from bayeslaw._law.recipe import law_of, recipe_of

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped
    from xarray import DataTree


class Names(NamedTuple):
    """Names in the file of a fit, and prefixes of the misfit's variables."""

    slash: str = "\u2215"  # replaces / in the names of columns
    checksum: str = "checksum"  # attribute of the file
    misfit: str = "misfit"  # group of the tree
    drift: str = "drift"
    scale: str = "scale: "
    tau: str = "tau "
    effects: str = "effects "
    group: str = "group "


NAMES = Names()
# kind of group -> leaf with the effects of its groups
EFFECTS = {kind: f"{kind}_effect" for kind in OF_FIT}


# -- what is in it ---------------------------------------------------------------------


def draws_of(tree: DataTree) -> dict[str, Float[np.ndarray, "draw ..."]]:
    """Collect draws by name, each of shape (draw, ...), chains one after another."""
    arrays = {str(k): v.to_numpy() for k, v in tree["posterior"].data_vars.items()}
    return {k: v.reshape(-1, *v.shape[2:]) for k, v in arrays.items()}


def runs_of(tree: DataTree) -> pd.DataFrame:
    """Read the run table from ``constant_data``: empty text as a gap."""
    data = tree["constant_data"].to_dataset()
    columns = {}
    for name, values in data.data_vars.items():
        column = values.to_numpy()
        if column.dtype.kind not in "biuf":
            column = np.where(column == "", np.nan, column.astype(object))
        columns[str(name).replace(NAMES.slash, "/")] = column
    return pd.DataFrame(columns, index=data["run_row"].to_index())


def constant_data(runs: pd.DataFrame) -> DataTree:
    """Build the group of the run table in ArviZ data: numbers as floats, other cells as
    text, empty cells as empty text. It is apart from the draws, because a column and a
    parameter may have one name and different dimensions.
    """
    columns = {}
    for name, values in runs.items():
        if pd.api.types.is_numeric_dtype(values):
            column = values.to_numpy(float, na_value=np.nan)
        else:
            column = np.where(values.isna(), "", values.astype(str)).astype(object)
        # names in a tree cannot hold a slash
        columns[str(name).replace("/", NAMES.slash)] = column
    tree = tree_of(
        {"constant_data": columns},
        dims={name: ["run_row"] for name in columns},
        coords={"run_row": runs.index.to_numpy()},
    )
    return tree.children["constant_data"]


def tree_of(
    groups: Mapping[str, Mapping[str, Shaped[np.ndarray, "*shape"]]],
    dims: Mapping[str, Sequence[str]],
    coords: Mapping[str, Shaped[np.ndarray, " label"]],
) -> DataTree:
    """Build ArviZ data from arrays by group and name, like ArviZ's `from_dict`, which
    would import matplotlib (a tenth of a second).

    Arrays begin with axes chain and draw, except in the groups ``..._data``; ``dims``
    names their further dimensions, ``coords`` the labels along them.
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


def provenance(law: Law, seed: int, kind: str) -> dict:
    """Collect attributes that record what was fitted, and with which versions."""
    return {
        "kind": kind,
        "law": law.name,
        "law_version": law.version,
        "law_recipe": json.dumps(recipe_of(law)),
        "seed": seed,
        "versions": versions(),
    }


def versions() -> str:
    """Record the versions of the libraries used, as JSON."""
    packages = ("bayeslaw", "numpyro", "jax", "numpy", "arviz-base", "arviz-stats")
    installed = {name: version(name) for name in packages}
    return json.dumps(installed | {"python": platform.python_version()})


# -- diagnostics -----------------------------------------------------------------------


def diagnostics_of(tree: DataTree, sampled: Iterable[str]) -> dict[str, float]:
    """Compute the largest R-hat, the smallest bulk ESS over the sampled sites,
    divergences, leapfrog steps a draw, and seconds.
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


def failed_diagnostics(
    what: str, diagnostics: Mapping[str, float], remedy: str, *, dash: str = ""
) -> tuple[str, ...]:
    """Describe the diagnostics that a posterior fails, a line each. ``remedy`` is the
    advice for divergences, ``dash`` the prefix of options.
    """
    d, lines = diagnostics, []
    if not d["rhat"] <= MAX_RHAT:
        options = f"{dash}warmup, {dash}draws"
        lines.append(
            f"R-hat {d['rhat']:.3f} is over {MAX_RHAT}: the chains disagree; draw more ({options})"
        )
    if not d["ess"] >= MIN_ESS:
        lines.append(
            f"bulk ESS {d['ess']:.0f} is under {MIN_ESS}: too few effective draws; "
            f"draw more ({dash}draws)"
        )
    if d["divergent_share"] > MAX_DIVERGENT:
        lines.append(f"{d['divergences']} of {d['draws']} draws diverged: {remedy}")
    return tuple(f"{what}: {line}" for line in lines)


def raise_or_warn(lines: tuple[str, ...], on_failure: str, accept: str) -> None:
    """Raise, warn of, or ignore `failed_diagnostics`. ``accept`` tells the user how to
    keep the posterior all the same.
    """
    if lines and on_failure == "raise":
        raise DiagnosticsError(f"{'; '.join(lines)}; or accept as it is ({accept})")
    if on_failure == "warn":
        warn_each(lines)


def warn_each(lines: Iterable[str]) -> None:
    for line in lines:
        warn(line, FitWarning)


# -- the file --------------------------------------------------------------------------


def write(tree: DataTree, path: str | Path) -> Path:
    """Write a netCDF file with a checksum of its content, whole or not at all."""
    path = Path(path)
    sealed = tree.copy()
    sealed.attrs[NAMES.checksum] = checksum(tree)
    # First in memory, because HDF5 ends the process if a disk is full. Uncompressed,
    # because compression saved a seventh and took three times as long.
    content = sealed.to_netcdf(None, engine="h5netcdf")
    write_bytes(path, content)
    return path


def read(path: str | Path, kinds: Sequence[str], make: str) -> DataTree:
    """Read a saved posterior of one of these kinds (``"fit"``, ``"pool"``, ``"average"``;
    the first is the one that the user wants), and check its checksum. ``make`` says how
    to make such a file.

    Raises
    ------
    FitFileError
        The file is missing, holds no such posterior, or has changed since it was
        written.
    """
    wanted = kinds[0]
    if not Path(path).is_file():
        raise FitFileError(f"{path}: no such file; {make}")
    tree, failure = _open_tree(path)
    if tree is None:
        # the mend must not write a fit over a table
        if Path(path).suffix.lower() in (".csv", ".tsv", ".xlsx", ".parquet"):
            make = f"a table is fitted first: `bayeslaw fit {path} -o fit.nc`"
        raise FitFileError(
            f"{path}: not a {wanted} saved by bayeslaw, or a damaged one ({failure}); "
            f"{make}"
        )
    saved_checksum = tree.attrs.pop(NAMES.checksum, None)
    if "average" in tree.attrs:
        kind = "average"
    elif "law_recipe" in tree.attrs:
        kind = str(tree.attrs.get("kind", "fit"))
    else:
        raise FitFileError(f"{path}: not a {wanted} saved by bayeslaw; {make}")
    if saved_checksum is None:
        raise FitFileError(
            f"{path}: has no checksum, as files from before version 0.1.0, which are no "
            "longer read; fit again"
        )
    if saved_checksum != checksum(tree):
        raise FitFileError(
            f"{path}: damaged: it no longer holds what was saved (its checksum differs); "
            "take a copy of it, or fit again"
        )
    if kind not in kinds:
        how = ""
        if kind in ("fit", "average"):
            how = f"; read it with bayeslaw.load({str(path)!r}), which takes either"
        if kind == "pool":
            how = f"; read it with bayeslaw.Pool.load({str(path)!r}), and take .domain(NAME)"
        raise FitFileError(f"{path}: holds a {kind}, not a {wanted}{how}")
    return tree


def _open_tree(path: str | Path) -> tuple[DataTree | None, str]:
    """Open a netCDF file. Returns its tree, or None and the name of the error."""
    import xarray

    before = sys.unraisablehook
    try:
        with xarray.open_datatree(path, engine="h5netcdf") as tree:
            return tree.load(), ""
    # HDF5 and its readers raise many errors for a damaged file
    except Exception as error:
        failure = type(error).__name__
        # The error holds an incomplete reader of h5netcdf, which prints another error
        # when it is deleted. So delete it here, with such errors silenced.
        sys.unraisablehook = lambda _: None
    gc.collect()
    sys.unraisablehook = before
    return None, failure


@contextmanager
def readable(path: str | Path) -> Iterator[None]:
    """Turn errors while a file's content is converted into a `FitFileError`."""
    try:
        yield
    except FitFileError:
        raise
    except Exception as error:  # an untrusted file may cause any error
        said = " ".join(str(error).split())
        raise FitFileError(
            f"{path}: does not hold a whole posterior ({type(error).__name__}: {said}); "
            "fit again"
        ) from None


def law_from_recipe(recipe: dict, path: str | Path, trust_law_file: bool) -> Law:
    """Find the law from its recipe, as it was fitted, or raise a `FitFileError`."""
    try:
        return law_of(recipe, trust_law_file=trust_law_file)
    except LawError as error:
        raise FitFileError(f"{path}: its law is not to be had: {error}") from None


def check_draws(draws: Mapping[str, Shaped[np.ndarray, "draw ..."]], law: Law) -> None:
    """Refuse draws that lack a value of a law or its noise, or differ in number."""
    missing = [name for name in (*law.priors, "sigma", "dof") if name not in draws]
    if missing:
        raise ValueError(f"no draws of {missing[0]!r}")
    if len({len(values) for values in draws.values()}) != 1:
        raise ValueError("draws of several lengths")

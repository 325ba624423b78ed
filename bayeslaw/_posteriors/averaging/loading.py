"""Load saved posteriors, a fit or an average, whichever the file holds; and fit the same
laws with the same settings to another table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from bayeslaw._base.errors import LawError
from bayeslaw._base.progress.time_left import Progress
from bayeslaw._inference.point import PointFit
from bayeslaw._law.recipe import law_of
from bayeslaw._posteriors.averaging.record import Average
from bayeslaw._posteriors.fits.artifact import read
from bayeslaw._posteriors.fits.record import Fit
from bayeslaw._posteriors.posterior import Posterior

# one, or several by name
Posteriors = Posterior | str | Path | Mapping[str, Posterior | str | Path]


def as_posterior(given: Posterior | str | Path) -> Posterior:
    """Return a posterior as it is, or read it from the path of its file; all functions
    that take a posterior use this.

    Raises
    ------
    FitFileError
        The file holds neither a fit nor an average.
    LawError
        The argument is neither a posterior nor a path.
    """
    if isinstance(given, str | Path):
        return load(given)
    if not (hasattr(given, "pieces") or hasattr(given, "log_loss")):
        instead = ""
        if isinstance(given, pd.DataFrame):
            instead = ": the fit comes first, then the table"
        if isinstance(given, PointFit):
            instead = (
                f", which has no posterior: fit(runs, {given.law.name!r}) has, in seconds "
                "with preview=True; the point fit itself forecasts by .loss(runs)"
            )
        raise LawError(
            "a posterior is a fit or an average (`bayeslaw.fit`, `bayeslaw.average`), or "
            f"the path of its file; got {type(given).__name__}{instead}"
        )
    return given


def by_name(given: Posteriors, alone: str) -> dict[str, Posterior]:
    """Read one posterior or several, by name; a single one is called ``alone``."""
    several = given if isinstance(given, Mapping) else {alone: given}
    return {name: as_posterior(posterior) for name, posterior in several.items()}


def load(path: str | Path, *, trust_law_file: bool = False) -> Fit | Average:
    """Load a saved `Fit` or `Average`.

    Parameters
    ----------
    trust_law_file
        Run the Python file that holds a saved fit's law, if it has one. Read it first:
        it can do everything that you can.

    Raises
    ------
    FitFileError
        The file is missing, holds neither, or its law has changed since.

    Examples
    --------
    >>> path = target.save("target.nc")
    >>> bayeslaw.load(path).law.name
    'ptpp-gate-floor'
    """
    make = f"make it with `bayeslaw fit RUNS -o {path}`"
    tree = read(path, ["fit", "average"], make)
    if "average" in tree.attrs:
        return Average.from_tree(tree, path, trust_law_file)
    return Fit.from_tree(tree, path, trust_law_file)


def refit_like(
    old: Posterior,
    runs: pd.DataFrame,
    *,
    seed: int = 0,
    on_failure: str = "raise",
    progress: Progress | None = None,
) -> Fit | Average:
    """Fit the law of ``old`` with its priors, or an average of its laws, to other runs;
    raises as `fit` and `average` do, and a `LawError` if ``old`` is neither.
    """
    # imported here, because to read a posterior needs no sampler
    from bayeslaw._posteriors.averaging.average import average
    from bayeslaw._posteriors.fits.fit import fit

    common = {"seed": seed, "on_failure": on_failure, "progress": progress}
    if not isinstance(old, Fit | Average):
        raise LawError(
            f"{type(old).__name__} cannot be updated: give a fit or an average "
            "(`bayeslaw fit`)"
        )
    attrs = old.attrs if isinstance(old, Average) else old.inference_data.attrs
    if "settings" not in attrs:
        raise LawError("the posterior does not keep how it was fitted; fit it again")
    settings = json.loads(str(attrs["settings"]))
    if isinstance(old, Average):
        # files of laws were run when the average was read
        laws = [law_of(r, trust_law_file=True) for r in settings.pop("laws")]
        return average(runs, laws, drift=bool(attrs["drift"]), **settings, **common)
    # Importance sampling may also have replaced chains that disagreed. Such a fit is
    # not a preview, and is made again with chains.
    preview = old.is_preview and "chains_rhat" not in attrs
    plain = {"discrepancy": old.misfit is not None, "preview": preview}
    return fit(runs, old.law, **plain | settings, **common)

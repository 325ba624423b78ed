"""Kept posteriors read back: a fit or an average, whichever the file holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bayeslaw._base.errors import LawError
from bayeslaw._posteriors.averaging.record import Average
from bayeslaw._posteriors.fits.artifact import (
    read,
)
from bayeslaw._posteriors.fits.record import Fit

if TYPE_CHECKING:
    from bayeslaw._posteriors.posterior import Posterior


def as_posterior(given: Posterior | str | Path) -> Posterior:
    """A posterior as it was given, or read from the path of its file: one place for all
    functions that take a posterior.

    Raises
    ------
    FitFileError
        The file is none of a fit or an average.
    LawError
        It is neither a posterior nor a path.
    """
    if isinstance(given, str | Path):
        return load(given)
    if not (hasattr(given, "pieces") or hasattr(given, "log_loss")):
        raise LawError(
            "a posterior is a fit or an average (`bayeslaw.fit`, `bayeslaw.average`), or "
            f"the path of its file; got {type(given).__name__}"
        )
    return given


def load(path: str | Path, *, trust_law_file: bool = False) -> Fit | Average:
    """Read a saved `Fit` or `Average` back.

    Parameters
    ----------
    trust_law_file
        Run the Python file that holds the law, where the law came from a file. Read
        that file first: it can do all that you can.

    Raises
    ------
    FitFileError
        The file is missing, is neither, or its law is no longer what it was.

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

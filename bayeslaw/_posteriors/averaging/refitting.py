"""Fit the same laws with the same settings to another table."""

from __future__ import annotations

import json

import pandas as pd

from bayeslaw._base.errors import LawError
from bayeslaw._base.progress.time_left import Progress
from bayeslaw._law.recipe import law_of
from bayeslaw._posteriors.averaging.average import average
from bayeslaw._posteriors.averaging.record import Average
from bayeslaw._posteriors.fits.fit import fit
from bayeslaw._posteriors.fits.record import Fit
from bayeslaw._posteriors.posterior import Posterior


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

"""Fit the same laws with the same settings to another table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

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
    """Fit the law of ``old`` with its priors, or an average of its laws, to other runs.

    Raises
    ------
    LawError
        ``old`` is neither a fit nor an average.
    RunTableError
        The laws cannot be fitted to these runs.
    DiagnosticsError
        The diagnostics fail and ``on_failure`` is ``"raise"``.
    """
    common = {"seed": seed, "on_failure": on_failure, "progress": progress}
    if isinstance(old, Fit):
        return fit(runs, old.law, **_of_fit(old), **common)
    if isinstance(old, Average):
        settings = _settings(old.attrs)
        # files of laws were run when the average was read
        laws = [law_of(r, trust_law_file=True) for r in settings.pop("laws")]
        drift = bool(old.attrs["drift"])
        return average(runs, laws, drift=drift, **settings, **common)
    raise LawError(
        f"{type(old).__name__} cannot be updated: give a fit or an average "
        "(`bayeslaw fit`)"
    )


def _settings(attrs: Mapping[Any, Any]) -> dict[str, Any]:
    """Read the settings that a posterior keeps.

    Raises
    ------
    LawError
        It keeps none.
    """
    if "settings" not in attrs:
        raise LawError("the posterior does not keep how it was fitted; fit it again")
    return json.loads(attrs["settings"])


def _of_fit(old: Fit) -> dict[str, Any]:
    settings = _settings(old.inference_data.attrs)
    # Importance sampling may also have replaced chains that disagreed. Such a fit is
    # not a preview, and is made again with chains.
    preview = old.is_preview and "chains_rhat" not in old.inference_data.attrs
    return {"discrepancy": old.misfit is not None, "preview": preview} | settings

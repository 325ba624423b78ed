"""Posteriors of known values, saved: no sampler is needed to make them."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from arviz_base import from_dict

import bayeslaw
from bayeslaw._inference.discrepancy.drift import training_range
from bayeslaw._posteriors.averaging.record import Average, Member
from bayeslaw._posteriors.fits import artifact
from bayeslaw._posteriors.fits.record import Fit

DRAWS = 20


def runs(name: str = "chinchilla") -> pd.DataFrame:
    return bayeslaw.simulate(name, seed=1)


def values(draws: int = DRAWS, name: str = "chinchilla") -> dict[str, np.ndarray]:
    law = bayeslaw.law(name)
    parameters = law.from_paper(law.plausible) | {"sigma": 0.005, "dof": 8.0}
    return {name: np.full(draws, float(v)) for name, v in parameters.items()}


def save_fit(
    path: Path,
    draws: int = DRAWS,
    name: str = "chinchilla",
    given: Mapping[str, np.ndarray] | None = None,
    table: pd.DataFrame | None = None,
) -> Path:
    """One chain, all of whose draws are the plausible parameters, or those given; of
    simulated runs, or those of a table.
    """
    law = bayeslaw.law(name)
    one_chain = {
        site: each[None] for site, each in (given or values(draws, name)).items()
    }
    tree = from_dict({"posterior": one_chain})
    tree["constant_data"] = artifact.constant_data(
        runs(name) if table is None else table
    )
    tree.attrs.update(artifact.provenance(law, 0, "fit"))
    tree.attrs.update(preview_khat=0.1, preview_ess=1000.0, seconds=1.0)
    stats = {"diverging": np.zeros((1, draws), bool)}
    tree["sample_stats"] = from_dict({"sample_stats": stats})["sample_stats"]
    return Fit(law, tree).save(path)


def save_average(path: Path) -> Path:
    """Of one law, without drift or misfit."""
    law, table = bayeslaw.law("chinchilla"), runs()
    known = training_range({c: table[c].to_numpy(float) for c in law.covariates})
    drift = np.zeros((DRAWS, 2 * len(known.axes)))
    member = Member(law, 1.0, None, known, values() | {"drift": drift})
    row = {"weight": 1.0, "rhat": 1.0, "ess": 1000.0, "divergences": 0, "draws": DRAWS}
    judged = pd.DataFrame([row], index=pd.Index(["chinchilla"], name="name"))
    return Average((member,), judged, table, {"seconds": 1.0}).save(path)

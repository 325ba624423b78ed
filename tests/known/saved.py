"""Posteriors of known values, saved: no sampler is needed to make them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from arviz_base import from_dict

import bayeslaw
from bayeslaw._inference.discrepancy.drift import training_range
from bayeslaw._posteriors.averaging.record import Member
from bayeslaw._posteriors.fits import artifact

DRAWS = 20


def runs(name: str = "chinchilla") -> pd.DataFrame:
    return bayeslaw.simulate(name, seed=1)


def unnamed_runs() -> pd.DataFrame:
    """Runs that name neither themselves nor their checkpoints, one at each place."""
    table = bayeslaw.simulate("chinchilla", seed=4).drop_duplicates(["N", "D"])
    return table.drop(columns=["run", "checkpoint"])


def values(draws: int = DRAWS, name: str = "chinchilla") -> dict[str, np.ndarray]:
    law = bayeslaw.law(name)
    parameters = law.from_paper(law.plausible) | {"sigma": 0.005, "dof": 8.0}
    return {name: np.full(draws, float(v)) for name, v in parameters.items()}


def make_fit(law: bayeslaw.Law, given: Mapping, table: pd.DataFrame) -> bayeslaw.Fit:
    """One chain of these draws, each of shape (draw,)."""
    one_chain = {site: each[None] for site, each in given.items()}
    draws = len(next(iter(given.values())))
    stats = {"diverging": np.zeros((1, draws), bool)}
    tree = from_dict({"posterior": one_chain, "sample_stats": stats})
    tree["constant_data"] = artifact.constant_data(table)
    tree.attrs.update(artifact.provenance(law, 0, "fit"))
    tree.attrs.update(preview_khat=0.1, preview_ess=1000.0, seconds=1.0)
    return bayeslaw.Fit(law, tree)


def make_average(
    given: Sequence[tuple[bayeslaw.Law, Mapping]], table: pd.DataFrame
) -> bayeslaw.Average:
    """Of laws with these draws and no misfit; drift is none where no draws of it are."""
    members, rows = [], {}
    total = sum(len(values["sigma"]) for _, values in given)
    for law, values in given:
        known = training_range({c: table[c].to_numpy(float) for c in law.covariates})
        draws = len(values["sigma"])
        still = {"drift": np.zeros((draws, 2 * len(known.axes)))}
        members.append(Member(law, draws / total, None, known, still | dict(values)))
        row = {"weight": draws / total, "rhat": 1.0, "ess": 1000.0}
        rows[law.name] = row | {"divergences": 0, "draws": draws}
    judged = pd.DataFrame.from_dict(rows, orient="index").rename_axis("name")
    return bayeslaw.Average(tuple(members), judged, table, {"seconds": 1.0})


def save_fit(
    path: Path,
    draws: int = DRAWS,
    name: str = "chinchilla",
    given: Mapping[str, np.ndarray] | None = None,
    table: pd.DataFrame | None = None,
) -> Path:
    """All draws are the plausible parameters, or those given; of simulated runs, or
    those of a table.
    """
    known = values(draws, name) if given is None else given
    table = runs(name) if table is None else table
    return make_fit(bayeslaw.law(name), known, table).save(path)


def save_average(path: Path) -> Path:
    """Of one law, without drift or misfit."""
    return make_average([(bayeslaw.law("chinchilla"), values())], runs()).save(path)

"""Which run carries a plan: by weights what a fit without the run says."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import bayeslaw
from bayeslaw import PlanError, influence
from known import example, plans

QUESTION = {
    "N": 4e9,
    "ptpp": 20,
    "max_target_loss": 2.32,
    "max_forgetting": "5%",
    "baseline_loss": 2.3,
    "min_replay": 0,
    "max_replay": 0.9,
    "draws": 2000,
}


def replayed(seed, sign):
    """Losses of 14 runs along size, tokens and replay; the last is far off."""
    rng = np.random.default_rng(seed)
    runs = pd.DataFrame(
        {
            "N": np.resize([1e8, 3e8, 1e9], 14),
            "D": np.geomspace(1e9, 1e11, 14),
            "replay": np.resize([0.1, 0.3, 0.6], 14),
        }
    )
    level = np.log(2.4) + sign * 0.1 * (runs["replay"] - 0.3)
    slope = -0.02 * np.log(runs["D"] / 1e10) - 0.02 * np.log(runs["N"] / 1e9)
    noise = 0.004 * rng.standard_normal(14)
    runs["loss"] = np.exp(level + slope + noise)
    return runs


@dataclass(frozen=True, eq=False)
class Kept(plans.Draws):
    """A posterior that keeps its runs, their likelihood and its prior, as fits do."""

    inference_data: xr.DataTree | None = None
    name: str = "kept"


def test_the_probability_without_a_run_is_that_of_draws_weighed_by_hand():
    """Where only the target's limit binds; a run's likelihood is a number for each draw."""
    rng = np.random.default_rng(0)
    (piece,) = plans.target(sd=0.01, draws=plans.DRAWS).of
    losses = rng.normal(0, 0.2, (1, plans.DRAWS, 4))
    losses[0, :, 0] += 20 * np.log(
        piece.values["E_nats"]
    )  # a run that holds the floor up
    tree = xr.DataTree.from_dict(
        {
            "log_likelihood": xr.Dataset(
                {"log_loss": (("chain", "draw", "run"), losses)}
            ),
            "log_prior": xr.Dataset({"E": (("chain", "draw"), losses[..., 0] / 2)}),
        }
    )
    runs = pd.DataFrame({"N": 1e9, "D": np.geomspace(1e9, 1e10, 4), "run": [*"abcd"]})
    target, source = Kept((piece,), runs=runs, inference_data=tree), plans.source()
    question = example.QUESTION | {"max_forgetting": "90%", "draws": plans.DRAWS}
    planned = bayeslaw.plan(target, source, **question)
    found = influence(planned, target, source, again=1, **question)

    at = {"N": question["N"], "ptpp": question["ptpp"], "D": planned.D}
    at |= {"replay": planned.replay}
    one = {name: np.array([at[name]]) for name in piece.covariates}
    keeps = np.exp(piece.at(one)[:, 0]) <= question["max_target_loss"]
    assert 0.5 < keeps.mean() < 1
    assert found.probability == pytest.approx(keeps.mean(), abs=1e-12)
    rows = found.rows.set_index("name")["probability"]
    for k, name in enumerate(runs["run"]):
        weights = np.exp(-losses[0, :, k])
        by_hand = np.average(keeps, weights=weights)
        assert rows[f"run {name}"] == pytest.approx(by_hand, abs=2e-3)
    assert abs(rows["run a"] - found.probability) > 0.01
    by_hand = np.average(keeps, weights=np.exp(-losses[0, :, 0] / 4))
    assert rows["E"] == pytest.approx(by_hand, abs=2e-3)
    rows = runs.drop(columns="run").set_axis([2, 3, 5, 8])
    unnamed = Kept((piece,), runs=rows, inference_data=tree)
    told = influence(planned, unnamed, source, again=0, **question).rows["name"]
    assert {name.split(" (")[0] for name in told} == {
        "E",
        *(f"row {k}" for k in rows.index),
    }
    assert found.rows["D"].notna().sum() == 1
    assert found.to_dict()["rows"][-1]["D"] is None


@pytest.fixture(scope="module")
def fits():
    law = "chinchilla"
    target, source = replayed(0, 1.0), replayed(1, -1.0)
    settings = {"discrepancy": False, "preview": True, "on_failure": "ignore"}
    return {
        "law": law,
        "tables": (target, source),
        "settings": settings,
        "target": bayeslaw.fit(target, law, **settings),
        "source": bayeslaw.fit(source, law, **settings),
    }


def test_a_run_left_out_by_weights_is_a_fit_without_it(fits):
    """Of the run that carries most, and of one that carries little."""
    planned = bayeslaw.plan(fits["target"], fits["source"], **QUESTION)
    assert planned.feasible
    found = influence(planned, fits["target"], fits["source"], again=1, **QUESTION)
    runs = found.rows[
        (found.rows["kind"] == "run") & (found.rows["domain"] == "target")
    ]
    assert len(runs) == 14
    assert found.probability == pytest.approx(planned.probability, abs=0.02)
    for row in (runs.iloc[0], runs.iloc[-1]):
        place = int(row["name"].split()[1])
        rest = fits["tables"][0].drop(index=place).reset_index(drop=True)
        refit = bayeslaw.fit(rest, fits["law"], **fits["settings"])
        problem = bayeslaw._plans.plan.problem_of(refit, fits["source"], **QUESTION)
        kept = problem.kept(float(np.log(planned.D)), planned.replay).all(axis=0)
        assert row["probability"] == pytest.approx(kept.mean(), abs=0.1)
    assert found.rows.loc[found.rows["kind"] == "run", "D"].iloc[0] > 0
    assert found.rows["D"].notna().sum() == 1
    assert "runs that carry the plan: without row" in found.sentence()
    assert "priors that carry the plan: at half the prior of" in found.sentence()


def test_without_a_plan_or_a_likelihood_it_is_refused(fits):
    none = bayeslaw.plan(
        fits["target"], fits["source"], **(QUESTION | {"max_target_loss": 0.5})
    )
    with pytest.raises(PlanError, match="there is no plan"):
        influence(none, fits["target"], fits["source"], **QUESTION)
    planned = bayeslaw.plan(fits["target"], fits["source"], **QUESTION)
    known = bayeslaw.law_at(
        "chinchilla", {"E": 1.7, "A": 400, "B": 400, "alpha": 0.3, "beta": 0.3}
    )
    with pytest.raises(PlanError, match="influence is of fits of one law"):
        influence(planned, known, known, **QUESTION)

"""Which run carries a plan: by weights what a fit without the run says."""

import numpy as np
import pytest

import bayeslaw
from bayeslaw import PlanError, influence

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
    import pandas as pd

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

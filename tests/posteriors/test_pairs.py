"""Posteriors that cannot be of a target and its sources are refused; a plan far beyond the runs says so."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from bayeslaw import PlanError, RunTableWarning, forecast, plan
from known import example, lines
from known.plans import DRAWS, WIDE, source, target

RUNS = pd.DataFrame(
    [
        (N, D, replay, ptpp)
        for N in (3e8, 3e9)
        for D in (1e9, 1e10)
        for replay in (0.1, 0.5)
        for ptpp in (15.0, 31.0)
    ],
    columns=["N", "D", "replay", "ptpp"],
)
NOISE = np.random.default_rng(0).normal(0, 0.002, len(RUNS))


def losses(slope: float, times: float = 1.0) -> pd.DataFrame:
    """The runs, with losses that move so much in log with replay, and so much noise."""
    log_loss = 1 - 0.05 * np.log(RUNS["D"] / 1e9) + slope * RUNS["replay"]
    return RUNS.assign(loss=np.exp(log_loss + times * NOISE))


RISING, FALLING = losses(0.1), losses(-0.1)


def planned(
    of_target: pd.DataFrame = RISING, of_source: pd.DataFrame = FALLING, **asked
):
    made = {"sd": WIDE["sd"], "draws": DRAWS}
    posteriors = (
        replace(of(**made), runs=runs)
        for of, runs in ((target, of_target), (source, of_source))
    )
    question = example.QUESTION | {"new_run": False, "draws": DRAWS}
    return plan(*posteriors, **(question | asked))


def test_target_and_source_swapped_are_refused_by_the_names_of_their_domains():
    planned()
    named = RISING.assign(domain="source"), FALLING.assign(domain="target")
    with pytest.raises(PlanError, match="they are swapped"):
        planned(*named)


def test_losses_that_move_the_wrong_way_with_replay_are_told():
    """A warning: a misfit that many runs share can turn both slopes round."""
    told = [w for w in planned(FALLING, RISING).warnings if "swapped" in w]
    assert len(told) == 1
    assert not [w for w in planned().warnings if "swapped" in w]
    slight = planned(losses(-0.02), losses(0.02)).warnings
    assert not [w for w in slight if "swapped" in w]


@pytest.mark.parametrize(("times", "told"), [(10, 1), (20, 0)])
def test_slopes_are_clear_from_four_standard_errors(times, told):
    """By least squares written out: the target's slope is 4.4 of its errors, then 1.2."""
    falling, rising = losses(-0.1, times), losses(0.1, times)
    columns = [np.log(RUNS[c]) for c in ("N", "D", "ptpp")]
    design = np.column_stack([RUNS["replay"], np.ones(len(RUNS)), *columns])
    y = np.log(falling["loss"].to_numpy())
    slope, *_ = found = np.linalg.lstsq(design, y, rcond=None)[0]
    variance = np.sum((y - design @ found) ** 2) / (len(y) - 5)
    error = np.sqrt(variance * np.linalg.inv(design.T @ design)[0, 0])
    assert (-slope > 4 * error) == bool(told)
    swapped = [w for w in planned(falling, rising).warnings if "swapped" in w]
    assert len(swapped) == told


def test_one_fit_given_twice_is_refused():
    with pytest.raises(PlanError, match="the same 16 losses"):
        planned(RISING, RISING.sample(frac=1, random_state=0))
    with pytest.raises(PlanError, match="both of domain 'code'"):
        planned(RISING.assign(domain="code"), FALLING.assign(domain="code"))


def test_fits_of_other_checkpoints_are_told():
    others = FALLING.assign(ptpp=FALLING["ptpp"] * 2.5)
    told = [line for line in planned(RISING, others).warnings if "checkpoint" in line]
    assert len(told) == 1
    assert not [line for line in planned().warnings if "checkpoint" in line]


def test_a_plan_far_beyond_the_runs_says_by_how_much():
    """The example plans 8.1B parameters, 27 times the largest of runs of up to 3e8."""
    small = RISING.assign(N=RISING["N"] / 10), FALLING.assign(N=FALLING["N"] / 10)
    (line,) = [w for w in planned(*small).warnings if w.startswith("the plan's N")]
    assert "27 times the largest fitted" in line
    (line,) = [w for w in planned().warnings if w.startswith("the plan's N")]
    assert "2.7 times the largest fitted" in line


def test_the_end_of_what_is_looked_at_is_not_told_as_a_plan():
    easy = planned(max_target_loss=20, max_forgetting="1000%")
    assert easy.atpp == pytest.approx(1e-4, rel=1e-3)
    assert any("least budget" in line for line in easy.warnings)
    assert not any("least budget" in line for line in planned().warnings)


@pytest.mark.parametrize("column", ["N", "ptpp", "D", "replay"])
def test_a_covariate_cannot_override_what_is_asked(column):
    with pytest.raises(PlanError, match=f"covariates cannot set '{column}'"):
        planned(covariates={column: 5.0})


def test_a_covariate_that_no_law_reads_is_refused():
    with pytest.raises(PlanError, match="no law reads the covariate 'los_before'"):
        planned(covariates={"los_before": 2.0})


@pytest.mark.parametrize("share", [1, 1.0, {"target": 0.9, "forgetting": 1}])
def test_certainty_is_not_promised(share):
    with pytest.raises(PlanError, match="finitely many draws"):
        planned(confidence=share)


# -- forecasts -------------------------------------------------------------------------


def test_a_forecast_far_beyond_warns():
    posterior = lines.spread(example.TARGET_LAW, example.TARGET, 0.0, 8, 0)
    posterior.runs = RISING
    near, far = RUNS.iloc[:2], RUNS.iloc[:2].assign(ptpp=1000.0)
    with pytest.warns(RunTableWarning, match="32.3 times beyond"):
        forecast(posterior, far)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        forecast(posterior, near)


def test_one_loss_in_common_is_not_the_same_fit():
    """Nor are tables of which one lacks what tells checkpoints apart."""
    common = FALLING.copy()
    common.iloc[0] = RISING.iloc[0]
    planned(RISING, common)
    planned(RISING, FALLING.drop(columns="ptpp"))

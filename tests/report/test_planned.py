"""What the page says of a plan that lies beyond all runs that were left out."""

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw import Plan
from bayeslaw._report.planned import beyond_left_out


def planned(distance):
    """A plan of which nothing is known but where it lies."""
    plan = object.__new__(Plan)
    object.__setattr__(plan, "distance", distance)
    return plan


def place(value, times, tested, low=1.0, high=5.0):
    inside = times == 1
    ends = {"value": value, "low": low, "high": high, "times": times}
    return {"D/N": ends | {"inside": inside, "tested": tested}}


@pytest.mark.parametrize(
    ("distance", "said"),
    [
        ({}, ()),
        (place(3.0, 1.0, 1.0), ()),
        # left-out runs lay as far beyond the others
        (place(10.0, 2.0, 2.0), ()),
        (place(60.0, 12.0, 2.0), ("60 tokens per parameter (fitted from 1 to 5)",)),
        # below the fitted runs nothing is left out
        (place(0.2, 0.2, 4.0), ("0.2 tokens per parameter (fitted from 1 to 5)",)),
    ],
)
def test_tokens_per_parameter_beyond_all_left_out_runs_are_untested(distance, said):
    assert beyond_left_out(planned(distance)) == said


def test_replay_beyond_the_fitted_runs_is_untested():
    (ends,) = place(0.9, 1.8, 1.0, low=0.1, high=0.5).values()
    said = beyond_left_out(planned({"replay": ends}))
    assert said == ("replay 0.9 (fitted from 0.1 to 0.5)",)
    (ends,) = place(0.9, None, 1.0, low=0.0, high=0.0).values()
    said = beyond_left_out(planned({"replay": ends}))
    assert said == ("replay 0.9 (fitted from 0 to 0)",)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_plan_of_laws_without_stages_has_a_page(tmp_path):
    """Without ptpp in table and question, as for a checkpoint whose tokens nobody told."""
    parts = []
    for seed, domain in ((1, "target"), (2, "source")):
        runs = bayeslaw.simulate("dcpt", seed=seed, noise=0.002)
        levels = np.sort(runs["D"].unique())[::7]
        part = runs[runs["D"].isin(levels)][["N", "D", "replay", "loss"]]
        parts.append(part.assign(domain=domain))
    question = {"N": 8e9, "max_target_loss": 2.2, "max_forgetting": 0.05}
    question |= {"baseline_loss": 2.0, "draws": 200}
    made = bayeslaw.report(
        pd.concat(parts), tmp_path, law="dcpt", question=question, quick=True
    )
    assert "own 200 draws for N = 8B:" in " ".join(made.path.read_text().split())

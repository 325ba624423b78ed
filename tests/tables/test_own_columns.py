"""Columns of the user's own: runs far beyond them are told."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw._posteriors.averaging.distance import doubts
from known.plans import DRAWS, STATE, Draws, source_piece, target_piece
from known.power_laws import PowerLaws, Reads
from known.said import said_by


def asked(**columns) -> pd.DataFrame:
    return pd.DataFrame({"N": [1e8], "D": [2e9]} | {n: [v] for n, v in columns.items()})


class Heated(PowerLaws):
    """Power laws that read an own column."""

    def pieces(self):
        return Reads(("N", "D", "heat")), Reads(("N", "D", "heat"))


def heated(values) -> Heated:
    runs = pd.DataFrame({"N": 1e8, "D": 2e9, "heat": values, "unread": 1.0})
    one = np.full(20, 1.0)
    return Heated(1.6 * one, 0.8 * one, 0.3 * one, runs=runs)


@pytest.mark.filterwarnings("ignore:priors? guessed")
@pytest.mark.parametrize(
    ("values", "far", "near", "says"),
    [
        ([1.0, 2.0], 332.0, 20.0, "heat = 332 degC (a column of your own) lies 166 times beyond the runs that were fitted (1 to 2)"),
        ([1.0, 2.0, 3.0], 500.0, 20.0, "lies 167 times"),
        ([1.0, 2.0], -1.0, 0.2, "lies inf times"),
        ([-1.0, 1.0], 40.0, 5.0, "lies 40 halves of their range"),
    ],
)  # fmt: skip
def test_a_forecast_far_beyond_an_own_column_is_warned_of(values, far, near, says):
    """In the unit that a formula states; columns that laws do not read do not count."""
    posterior = heated(values)
    formula = "E + A/N^0.3 + H*heat[degC]"
    law = bayeslaw.law_from_formula(formula, columns={"heat": 1.5})
    posterior.members = [SimpleNamespace(law=law)]
    _, said = said_by(bayeslaw.forecast, posterior, asked(heat=far, unread=1.0))
    assert [says in line for line in said] == [True]
    bayeslaw.forecast(posterior, asked(heat=near, unread=1e9))  # warnings are errors


def test_a_plan_far_beyond_an_own_column_is_told():
    run = {"N": 1e8, "D": 2e9, "heat": 500.0}
    (line,) = doubts(heated([1.0, 2.0]), {}, run)
    assert line.startswith("the plan's heat = 500 ")
    assert not doubts(heated([1.0, 2.0]), {}, run | {"heat": 4.0})


@pytest.mark.parametrize(("heat", "is_told"), [(1.5, False), (200.0, True)])
def test_the_planner_tells_of_an_own_column_of_the_source_too(heat, is_told):
    """Not only of the columns that it chooses."""
    runs = pd.DataFrame({"N": 1e9, "D": [1e8, 1e12], "ptpp": 30.0, "heat": [1.0, 2.0]})
    piece = source_piece()
    piece = replace(piece, covariates=(*piece.covariates, "heat"))
    plan = bayeslaw.plan(
        Draws((target_piece(),)),
        Draws((piece,), runs=runs),
        N=1e9,
        max_target_loss=2.45,
        max_forgetting=0.03,
        covariates=STATE | {"heat": heat},
        draws=DRAWS,
    )
    told = "the plan's heat = 200 (a column of your own) lies 100 times beyond the runs"
    assert [line.startswith(told) for line in plan.warnings] == [True] * is_told


def test_a_root_is_a_factor_of_a_column():
    """A standard error is the spread of batches over the root of their number, or a number
    over the root of the tokens; the root itself is no column of the table.
    """
    sizes = {"N": [1e8, 2e8], "loss": [3.0, 2.9]}
    table = pd.DataFrame(sizes | {"spread": [0.2, 0.4], "batches": [100, 16]})
    runs = bayeslaw.read_runs(table, columns=["loss_sd=spread/sqrt(batches)"])
    assert runs["loss_sd"].tolist() == pytest.approx([0.02, 0.1])
    assert "sqrt(batches)" not in runs
    runs = bayeslaw.read_runs(table, columns=["loss_sd=2/sqrt(batches)"])
    assert runs["loss_sd"].tolist() == pytest.approx([0.2, 0.5])

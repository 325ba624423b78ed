"""Runs that a posterior was fitted to are not offered for buying."""

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from bayeslaw import anchors, candidates
from known.lines import posterior_of

DRAWS = 400


def fitted(runs, columns=("N", "D")):
    """Log loss linear in log D, fitted to a table that it keeps."""

    def line(draw, x):
        return draw["level"] + draw["slope"] * jnp.log(x["D"] / 1e9)

    level, slope = 0.02 * np.random.default_rng(0).standard_normal((2, DRAWS))
    values = {"level": level, "slope": slope, "sigma": np.full(DRAWS, 0.003)}
    return posterior_of(line, values, columns, runs)


HAD = pd.DataFrame(
    {
        "N": 1e8,
        "ptpp": 20.0,
        "replay": 0.1,
        "D": [1e8, 1e9, 2e9],
        "loss": [3.0, 2.9, 2.8],
    }
)
GOAL = pd.DataFrame({"N": 8e9, "D": [9e9], "width": 1.0})


def bought(posterior, table, **options):
    return anchors(posterior, table, GOAL, 1e19, least=0.0, checks=0, **options)


def test_candidates_made_from_a_table_do_not_bring_its_runs_back():
    table = candidates(HAD, atpp=[1, 10, 20, 40], along_run=False)
    anew, again = bought(fitted(None), table), bought(fitted(HAD), table)
    assert {p["row"] for p in anew.picks} & {1, 2, 3}
    assert {p["row"] for p in again.picks} == {4}
    assert again.warnings[0].startswith("3 of 4 candidates are not offered")
    assert anew.warnings == []


def test_a_file_s_rounding_does_not_hide_a_run():
    table = candidates(HAD, atpp=[10], along_run=False)
    rounded = HAD.assign(D=HAD["D"] * (1 + 1e-13))
    assert (
        bought(fitted(rounded), table).sentence()
        == "Buy nothing: all runs on offer are had already."
    )


def test_a_run_that_goes_further_than_one_has_is_offered():
    table = candidates(HAD, atpp=[1, 10, 20, 40])
    made = bought(fitted(HAD), table, replicates=1)
    assert [p["row"] for p in made.picks] == [4]
    assert made.picks[0]["rows"] == [1, 2, 3, 4]
    assert made.spent == pytest.approx(6 * 1e8 * 4e9)


def test_a_run_that_the_fit_has_goes_on_for_the_difference():
    """The same run by its name; another of the same settings is made anew."""
    table = candidates(HAD, atpp=[1, 10, 20, 40])
    (name,) = table["run"].unique()
    made = bought(fitted(HAD.assign(run=name)), table, replicates=3)
    assert [p["rows"] for p in made.picks] == [[4]]
    assert made.spent == pytest.approx(6 * 1e8 * (4e9 - 2e9))
    assert not any("as a new run" in line for line in made.warnings)
    told = bought(fitted(HAD.assign(run=name)), table.tail(1)).warnings
    assert f"run {name} was measured, but none of its measured points" in told[-1]
    anew = bought(fitted(HAD.assign(run="another")), table, replicates=1)
    assert [p["rows"] for p in anew.picks] == [[1, 2, 3, 4]]


@pytest.mark.parametrize("more", [{"seed": 7}, {"loss": 2.9}])
def test_another_seed_and_runs_named_to_be_made_again_are_offered(more):
    table = candidates(HAD, atpp=[10], along_run=False).assign(**more)
    made = bought(fitted(HAD.assign(seed=0)), table, replicates=2)
    assert [p["replicate"] for p in made.picks] == [1, 2]
    assert made.warnings == []


def test_what_only_the_law_knows_tells_runs_apart():
    """A law of one's own may read any column."""
    posterior = fitted(HAD.assign(width=1.0), ("N", "D", "width"))
    table = candidates(HAD, atpp=[10], along_run=False)
    assert bought(posterior, table.assign(width=2.0)).picks
    assert not bought(posterior, table.assign(width=1.0)).picks


def test_the_same_seed_is_had():
    table = candidates(HAD, atpp=[10], along_run=False).assign(seed=0)
    assert bought(fitted(HAD.assign(seed=0)), table).picks == []

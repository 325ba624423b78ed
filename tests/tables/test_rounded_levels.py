"""Values that differ by rounding are one level: wherever a table is read, its columns hold each level's value, and whatever counts, groups or leaves out compares exactly."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bayeslaw
from bayeslaw._forecasts.sensitivity import few_levels
from bayeslaw._running.updating.changes import row_changes
from bayeslaw._tables.fitting import fitted
from bayeslaw._tables.holdouts import default_axes, largest_stages, stages_in_direction
from bayeslaw._tables.rows.levels import at_levels
from known.reading import settings_said

FAST = settings(max_examples=60, deadline=None)


def codes(values) -> list[int]:
    return np.unique(values, return_inverse=True)[1].tolist()


def grid(noise=0.003) -> pd.DataFrame:
    """Three sizes at two stages, three budgets and two replays."""
    rng = np.random.default_rng(0)
    sizes, stages = (1.03e8, 2.07e8, 5.17e8), (20.0, 100.0)
    budgets, replays = (1e9, 2e9, 4e9), (0.1, 0.3)
    index = pd.MultiIndex.from_product([sizes, stages, budgets, replays])
    runs = index.to_frame(index=False, name=["N", "ptpp", "D", "replay"])
    tokens = runs["D"] + 0.1 * runs["ptpp"] * runs["N"]
    loss = 1.7 + 420 / runs["N"] ** 0.34 + 410 / tokens**0.28 + 0.05 * runs["replay"]
    return runs.assign(loss=loss * np.exp(noise * rng.normal(size=len(runs))))


def computed(runs: pd.DataFrame) -> pd.DataFrame:
    """Compute the stage as the docs do, from billions of tokens."""
    billions = runs["ptpp"] * runs["N"] / 1e9
    return runs.assign(ptpp=billions * 1e9 / runs["N"])


def really_seen(runs: pd.DataFrame, batch=131072) -> pd.DataFrame:
    """Count the tokens of whole batches, and a few more in some runs."""
    steps = np.ceil(runs["D"] / batch) + np.arange(len(runs)) % 3
    return runs.assign(D=steps * batch)


def single(runs: pd.DataFrame) -> pd.DataFrame:
    """Some of the rows went through 32-bit floats."""
    is_single = np.arange(len(runs)) % 5 < 2
    columns = {
        c: runs[c].where(~is_single, runs[c].astype(np.float32).astype(float))
        for c in ("N", "ptpp", "D", "replay")
    }
    return runs.assign(**columns)


def shared_out(runs: pd.DataFrame) -> pd.DataFrame:
    """Compute replay from old and new tokens."""
    tokens = runs["D"] * runs["N"] ** 0.1
    old, new = runs["replay"] * tokens, (1 - runs["replay"]) * tokens
    return runs.assign(replay=old / (old + new))


BY_ROUNDING = [computed, really_seen, single, shared_out]


# -- what a level is -------------------------------------------------------------------


@FAST
@given(
    levels=st.lists(st.integers(1, 400), min_size=1, max_size=12, unique=True),
    factor=st.floats(1e-9, 1e9),
)
def test_levels_are_the_same_after_any_factor_and_single_precision(levels, factor):
    values = np.repeat(1.1 ** np.array(levels), 3)
    noisy = values.copy()
    noisy[::3] = values[::3] * factor / factor
    noisy[1::3] = (values[1::3] / factor) * factor
    assert codes(at_levels(noisy)) == codes(values)
    noisy[2::3] = noisy[2::3].astype(np.float32)
    assert codes(at_levels(noisy)) == codes(values)
    assert np.allclose(at_levels(noisy), values, rtol=1e-6, atol=0)


@FAST
@given(st.integers(0, 10**6))
def test_levels_found_have_no_levels_in_them(seed):
    """Values at random hardly merge, and none moves by over a thousandth."""
    values = np.random.default_rng(seed).lognormal(sigma=1.0, size=200)
    levels = at_levels(values)
    assert len(np.unique(levels)) >= 185  # of 30,000 tables the fewest had 188
    assert np.abs(levels / values - 1).max() < 1e-3
    assert set(levels) <= set(values)


STEPS = np.arange(1.0, 3000.0) * 131072
THRICE = np.concatenate([STEPS, STEPS / 7 * 7, STEPS.astype(np.float32)])
FINE = {
    "steps": STEPS,
    "a fine grid": np.geomspace(1e8, 1.05e8, 100),
    "a thousandth and more": [1e9, 1.002e9, 1.004e9],
    "no levels": [0.0, -1.0, np.nan, np.inf],
}
AT_LEVELS = {
    **{name: (values, values) for name, values in FINE.items()},
    "rounding within a fine grid": (THRICE, np.tile(STEPS, 3)),
    "the roundest": ([100.00000000000001, 100.0, 99.99999999999999], [100.0] * 3),
}


@pytest.mark.parametrize("case", AT_LEVELS)
def test_values_are_those_of_their_levels(case):
    values, levels = AT_LEVELS[case]
    np.testing.assert_array_equal(at_levels(np.array(values)), levels)


def test_shares_near_one_differ_by_what_is_left():
    shares = np.array([0.999, 0.9995, 0.25, 0.2500001])
    assert codes(at_levels(shares, of_share=True)) == [1, 2, 0, 0]


def test_points_of_one_run_are_never_one_level():
    """The last step of a run is often one more than a round one."""
    steps = np.array([100.0, 500.0, 1000.0, 1001.0])
    losses = [3.0, 2.8, 2.7, 2.6]
    run = pd.DataFrame({"N": 1e8, "D": steps * 1e6, "run": "a", "loss": losses})
    runs = pd.concat([run, run.assign(run="b", loss=run["loss"] + 0.1)])
    assert bayeslaw.read_runs(runs)["D"].nunique() == 4
    apart = runs.assign(run=[f"run {i}" for i in range(8)])
    assert bayeslaw.read_runs(apart)["D"].nunique() == 3


def test_runs_of_one_schedule_are_not_points_of_one_run():
    D = [12000034816, 12000165888, 24000069632, 24000331776]
    runs = pd.DataFrame(
        {"N": 1e8, "D": D, "schedule": "wsd", "loss": [3, 2.9, 2.8, 2.7]}
    )
    assert bayeslaw.read_runs(runs)["D"].nunique() == 2
    curve = runs.assign(step=[1, 2, 3, 4])
    assert bayeslaw.read_runs(curve)["D"].nunique() == 4


def test_a_design_is_forecast_as_asked():
    asked = pd.DataFrame({"N": [1e8, 1.0002e8], "D": [1e9, 1.0001e9]})
    assert bayeslaw.read_runs(asked)["N"].tolist() == asked["N"].tolist()


# -- what a table says -----------------------------------------------------------------


@pytest.mark.parametrize("rounded", BY_ROUNDING)
def test_a_review_of_rounded_values_is_that_of_the_values(rounded):
    runs = grid()
    assert rounded(runs)[["N", "D", "ptpp", "replay"]].nunique().sum() > 10
    plain, of_rounded = bayeslaw.review(runs), bayeslaw.review(rounded(runs))
    assert of_rounded["levels"] == plain["levels"]
    verdicts = [[check.verdict for check in r.checks] for r in (plain, of_rounded)]
    assert verdicts[0] == verdicts[1]


@pytest.mark.parametrize("rounded", [computed, single])
def test_a_table_of_rounded_values_is_read_as_that_of_the_values(rounded):
    """So all that is computed from them is the same to the last digit."""
    runs = bayeslaw.read_runs(grid())
    pd.testing.assert_frame_equal(bayeslaw.read_runs(rounded(grid())), runs)
    named = runs.rename_axis("row")
    pd.testing.assert_frame_equal(bayeslaw.read_runs(rounded(named)), runs)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_laws_are_compared_as_on_the_values():
    scores = [
        bayeslaw.compare(runs, ["dcpt", "ptpp-floor"], discrepancy=False).table["score"]
        for runs in (grid(), computed(grid()))
    ]
    assert scores[0].tolist() == scores[1].tolist()


@pytest.mark.parametrize("rounded", BY_ROUNDING)
def test_the_same_stages_are_left_out_and_rows_found_again(rounded):
    runs, noisy = bayeslaw.read_runs(grid()), bayeslaw.read_runs(rounded(grid()))
    held = [
        [stage.is_held(table).tolist() for stage in largest_stages(table, axes)]
        for table in (runs, noisy)
        for axes in [default_axes(table)]
    ]
    assert held[0] == held[1]
    assert fitted(runs, noisy).all()
    assert fitted(noisy.head(5), runs).sum() == 5
    assert not row_changes(runs, noisy).any


@pytest.mark.parametrize("rounded", BY_ROUNDING)
def test_a_column_computed_after_reading_has_its_levels_too(rounded):
    runs = rounded(bayeslaw.read_runs(grid()))
    offer = bayeslaw.candidates(runs, atpp=[1, 5])
    plain = bayeslaw.candidates(bayeslaw.read_runs(grid()), atpp=[1, 5])
    assert len(offer) == len(plain)
    assert offer["checkpoint"].nunique() == 6


def test_tokens_per_parameter_have_the_levels_of_tokens_and_sizes():
    sizes = np.repeat([1.03e8, 2.07e8, 5.17e8, 1.13e9], 3)
    runs = grid().head(12).assign(N=sizes, D=np.tile([20.0, 40.0, 80.0], 4) * sizes)
    table = bayeslaw.read_runs(runs)
    (stage,) = largest_stages(table, ["D/N"])
    assert stage.is_held(table).sum() == 4


def test_a_rate_in_single_precision_is_the_same_setting():
    runs = grid().assign(lr=np.where(np.arange(36) % 2, 3e-4, np.float32(3e-4)))
    runs = pd.concat([runs, runs.assign(lr=3e-4, loss=runs["loss"] * 1.01)])
    assert not settings_said(bayeslaw.read_runs(runs))


@pytest.mark.parametrize(("D", "lines"), [(1.2e10, 0), (1.2001e10, 0), (1.3e10, 1)])
def test_a_run_at_a_level_is_not_beyond_it(D, lines):
    fitted_runs = pd.DataFrame({"N": [1e8, 2e8, 4e8], "D": 12000034816.0})
    goal = pd.DataFrame({"N": [2e8], "D": [D]})
    told = few_levels([bayeslaw.law("chinchilla")], fitted_runs, goal)
    assert len(told) == lines


def test_the_direction_of_a_run_is_not_that_of_a_level_it_has():
    runs = pd.DataFrame({"N": [1e8, 2e8, 4e8], "ptpp": [20.0, 100.0, 100.0]})
    goal = pd.DataFrame({"N": [8e8], "ptpp": [100.00000000000001]})
    stages = ["N >= 400M", "ptpp >= 100"]
    assert stages_in_direction(stages, runs, goal) == ["N >= 400M"]

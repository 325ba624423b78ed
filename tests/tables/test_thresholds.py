"""What a table is refused or warned for, from both sides of each limit."""

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw import RunTableError, RunTableWarning
from bayeslaw._tables import fitting
from bayeslaw._tables.beyond import far_beyond
from bayeslaw._tables.surface import Surface, outliers, partial_slope
from known import reading
from known.said import said_by

ROW = {"N": 1e8, "D": 1e9, "replay": 0.2, "ptpp": 30.0, "loss": 2.5}


def read(**columns):
    """Two good rows, with these columns; the second is looked at."""
    table = pd.DataFrame([ROW, ROW | {"D": 2e9, "loss": 2.4}])
    return bayeslaw.read_runs(table.assign(**columns))


def refusal(**columns):
    table = pd.DataFrame([ROW, ROW | {"D": 2e9, "loss": 2.4}])
    return reading.refusal(table.assign(**columns))


POSITIVE = (
    *("N", "D", "ptpp", "loss", "loss_before", "source_loss_before"),
    *("target_loss_before", "source_loss", "target_loss"),
)
OTHERS = (
    *("U", "pretrain_tokens", "loss_sd", "replay", "cost", "step", "lr"),
    *("S1_pt", "S2_pt", "S1_cpt", "S2_cpt"),
)


# a row of no tokens is the loss before adaptation
NONE_OR_LESS = [(n, c) for n in POSITIVE for c in (0.0, -2.0) if (n, c) != ("D", 0.0)]


@pytest.mark.parametrize(("name", "cell"), NONE_OR_LESS)
def test_sizes_and_losses_are_above_nothing(name, cell):
    said = refusal(**{name: [ROW.get(name, 2.5), cell]})
    assert f"row 2, column '{name}': {cell:g} is not positive" in said


@pytest.mark.parametrize("name", OTHERS[-7:])
def test_costs_and_steps_may_be_nothing_but_not_less_and_areas_of_either_sign(name):
    assert read(**{name: [1.0, 0.0]})[name].tolist() == [1.0, 0.0]
    if name.startswith("S"):
        assert read(**{name: [1.0, -1.0]})[name].tolist() == [1.0, -1.0]
    else:
        said = refusal(**{name: [1.0, -1.0]})
        assert f"row 2, column '{name}': -1 is negative" in said


@pytest.mark.parametrize("name", [*POSITIVE, *OTHERS])
def test_nothing_is_infinite(name):
    assert "is infinite" in refusal(**{name: [ROW.get(name, 1.0), np.inf]})


@pytest.mark.parametrize("cell", [-0.01, 1.01])
def test_replay_is_a_share(cell):
    assert read(replay=[0.0, 1.0])["replay"].tolist() == [0.0, 1.0]
    said = refusal(replay=[0.3, cell])
    assert f"{cell:g} is outside [0, 1]" in said
    assert "replay is a share" in said
    assert "replay is a share" in refusal(replay=[1.5, 0.2])
    assert "look like percent" in refusal(replay=[20.0, 30.0])


def test_a_loss_is_not_empty_but_a_covariate_may_be():
    assert "row 2, column 'loss': NaN or empty" in refusal(loss=[2.5, np.nan])
    assert '--where "loss > 0"' in refusal(loss=[2.5, np.nan])
    crashed = pd.DataFrame([ROW | {"loss": 2.5}, ROW | {"loss": np.nan}])
    assert len(bayeslaw.read_runs(crashed, where="loss > 0")) == 1
    runs = read(N=[1e8, 2e8], loss_before=[2.5, np.nan])
    assert runs["loss_before"].isna().tolist() == [False, True]


def test_one_run_has_one_loss_at_one_point_of_one_domain():
    """Keyed by run, step (else tokens) and domain: each of them may tell rows apart."""
    same = {"run": ["a", "a"], "D": [1e9, 1e9]}
    assert "different losses for one run a" in refusal(**same)
    for other in (
        {"run": ["a", "b"], "D": [1e9, 1e9]},
        {"run": ["a", "a"], "D": [1e9, 2e9]},
        same | {"step": [1, 2]},
        same | {"domain": ["source", "target"]},
        same | {"loss": [2.5, 2.5], "replay": [0.2, 0.3]},
    ):
        assert len(read(**other)) == 2
    assert "different losses" in refusal(**same, domain=["source", "source"])
    # where there are steps, tokens do not tell points apart
    stepped = {"run": ["a", "a"], "step": [1, 1], "D": [1e9, 2e9]}
    assert "rows 1, 2, column 'loss': different losses for one run a, step 1" in (
        refusal(**stepped)
    )


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"N": [999.0, 500.0], "D": [1e9, 2e9]}, "in millions or billions?"),
        ({"N": [1000.0, 500.0]}, None),
        ({"D": [9999.0, 5000.0]}, "D is tokens"),
        ({"D": [10000.0, 5000.0]}, None),
        ({"D": [9999.0, 5000.0], "N": [10000.0, 10000.0]}, None),
        ({"D": [1e9, 1.01e13]}, "two units in one column?"),
        ({"cost": [1e-5, 0.2]}, "two units in one column?"),
        ({"D": [1e9, 0.99e13]}, None),
    ],
)
def test_units_are_doubted_at_their_limits(columns, said):
    _, lines = said_by(read, **columns)
    assert len(lines) == (said is not None)
    assert all(said in line for line in lines)


def test_rows_are_named_up_to_three():
    table = pd.DataFrame([ROW] * 8).assign(D=np.geomspace(1e9, 8e9, 8))
    for wrong, named in (
        (1, "row 4, "),
        (3, "rows 4, 5, 6, "),
        (5, "rows 4, 5, 6 and 2 more, "),
    ):
        losses = [2.5] * 3 + [-1.0] * wrong + [2.5] * (5 - wrong)
        said = reading.refusal(table.assign(loss=losses))
        assert said.startswith(f"{named}column 'loss'")


# -- what a law may be fitted to -------------------------------------------------------


def grid(rows):
    """Distinct sizes and budgets, three levels at least of each, not on one line."""
    tokens = np.geomspace(1e9, 1e11, rows) * np.resize([1.0, 2.0, 0.7], rows)
    sizes, losses = np.geomspace(1e8, 1e10, rows), np.linspace(3, 2, rows)
    return pd.DataFrame({"N": sizes, "D": tokens, "loss": losses})


def test_there_are_as_many_rows_as_parameters():
    """Chinchilla has five: five rows will do, four will not."""
    law = bayeslaw.law("chinchilla")
    fitting.check_fittable(law, grid(5))
    with pytest.raises(RunTableError, match="4 rows for the 5 parameters"):
        fitting.check_fittable(law, grid(4))
    held = law.with_priors({"alpha": "fixed(0.34)"})
    fitting.check_fittable(held, grid(4), requested=["alpha"])


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_one_level_and_two_are_warned_about(levels):
    table = grid(6).assign(N=np.resize(np.geomspace(1e8, 1e9, levels), 6))
    law = bayeslaw.law("chinchilla")
    if levels == 1:
        with pytest.warns(RunTableWarning, match=r"'N' has one level only.*alpha"):
            fitting.check_fittable(law, table)
        fitting.check_fittable(law, table, requested=["alpha"])
        return
    _, told = said_by(fitting.check_fittable, law, table)
    assert len(told) == (levels == 2)
    assert all("two levels only (100M and 1B)" in line for line in told)


@pytest.mark.parametrize(
    ("sizes", "far"),
    [
        ((1e6, 9.9e6), True),  # all under a hundredth of 1e9
        ((1e6, 1.01e7), False),
        ((1.01e11, 1e12), True),
        ((0.99e11, 1e12), False),
    ],
)
def test_models_a_hundred_times_off_the_reference_are_told(sizes, far):
    table = grid(6).assign(N=np.geomspace(*sizes, 6))
    found = fitting.reference_near(table)
    assert bool(found) == far
    if far:
        middle = np.sqrt(sizes[0] * sizes[1])
        assert found["N"] == float(f"{middle:.0e}")
        assert found["D"] == 1e10
    law = bayeslaw.law("chinchilla")
    assert bool(said_by(fitting.check_fittable, law, table)[1]) == far


@pytest.mark.parametrize(("off", "is_ladder"), [(0.049, True), (0.051, False)])
def test_runs_whose_tokens_follow_the_size_are_told(off, is_ladder):
    """Within 5% of 20 tokens a parameter, as a standard deviation; along one size or one budget nothing follows."""
    size = np.geomspace(1e8, 1e10, 8)
    # orthogonal to a line in the logarithm, so that the line is not moved
    wave = np.array([1.0, -1.0, -1.0, 1.0, 1.0, -1.0, -1.0, 1.0])
    tokens = 20 * size * np.exp(off * wave)
    table = pd.DataFrame({"N": size, "D": tokens, "loss": np.linspace(3, 2, 8)})
    law = bayeslaw.law("chinchilla")
    _, told = said_by(fitting.check_fittable, law, table)
    assert len(told) == is_ladder
    assert all("tokens follow the size in all runs (D as N^1," in line for line in told)
    fitting.check_fittable(law, table.assign(D=1e9), requested=["beta"])


def test_a_reference_lies_amid_the_logs_of_sizes():
    """Three models of 10k and one of a million: at the mean of their logs."""
    table = pd.DataFrame({"N": [1e4, 1e4, 1e4, 1e6]})
    assert fitting.reference_near(table) == {"N": 3e4}


def test_rows_that_were_fitted_are_known_by_all_their_numbers():
    table = pd.DataFrame({"N": [1.0, 2.0], "loss": [2.5, 2.4], "D": [np.nan, 3.0]})
    asked = pd.concat([table, table.assign(loss=2.6), table.assign(N=9.0)])
    assert fitting.fitted(table, asked).tolist() == [True, True] + [False] * 4
    assert not fitting.fitted(None, table).any()
    assert not fitting.fitted(table, table.drop(columns="loss")).any()


# -- where runs lie --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "told"), [(0.99e12, 0), (1.01e12, 1), (1.01e8, 0), (0.99e8, 1)]
)
def test_ten_times_beyond_the_runs_is_far(tokens, told):
    """Either way; sizes are inside, and of tokens per parameter nothing is known."""
    table = pd.DataFrame({"D": [1e9, 1e11]})
    lines = far_beyond(table, pd.DataFrame({"D": [1e10, tokens]}))
    assert len(lines) == told
    assert all("10.1 times beyond" in line for line in lines)


def test_a_partial_slope_is_that_of_least_squares():
    """By statistics written out: beside size in logs, replay as it is."""
    rng = np.random.default_rng(2)
    n, r = np.exp(rng.uniform(18, 22, 30)), rng.uniform(0, 0.5, 30)
    y = 1.0 - 0.1 * np.log(n) + 0.3 * r + 0.01 * rng.standard_normal(30)
    runs = pd.DataFrame({"N": n, "replay": r, "loss": np.exp(y), "ptpp": 15.0})
    slope, error = partial_slope(runs, "replay", ("N", "D", "ptpp"))
    # Frisch and Waugh: what is left of replay, and of the losses, beside size
    design = np.column_stack([np.log(n), np.ones(30)])
    left = np.eye(30) - design @ np.linalg.pinv(design)
    alone = left @ r
    expected = alone @ y / (alone @ alone)
    rest = left @ y - expected * alone
    assert slope == pytest.approx(expected)
    assert error == pytest.approx(np.sqrt(rest @ rest / 27 / (alone @ alone)))
    assert partial_slope(runs.head(3), "replay", ("N",)) == (0.0, 0.0)
    assert partial_slope(runs.drop(columns="loss"), "replay", ()) == (0.0, 0.0)
    assert partial_slope(runs.assign(replay=0.1), "replay", ()) == (0.0, 0.0)


@pytest.mark.parametrize(("tokens", "told"), [(1e12, 1), (1.001e12, 2)])
def test_rows_far_beyond_are_counted(tokens, told):
    """By axis; more than ten times, not ten."""
    table = pd.DataFrame({"N": 1e9, "D": [1e9, 1e11]})
    asked = pd.DataFrame({"N": 1e9, "D": [5e10, tokens, 2e12]})
    lines = far_beyond(table, asked)
    assert [line.split(" = ")[0] for line in lines] == ["D", "D/N"]
    assert all(f"in {told} of 3 rows" in line for line in lines)
    assert all("in 1 of 2 rows" in line for line in far_beyond(table, asked[::2]))
    assert not any("rows" in line for line in far_beyond(table, asked.tail(1)))
    assert far_beyond(table, asked.head(1)) == far_beyond(None, asked) == []


@pytest.mark.parametrize("rows", [17, 18])
def test_a_surface_is_curved_where_there_are_three_rows_a_term(rows):
    """Two axes: a level, two slopes and three squares and products."""
    rng = np.random.default_rng(4)
    n, d = np.exp(rng.uniform(18, 22, (2, rows)))
    x, z = np.log(n) - 20, np.log(d) - 20
    y = 1.0 - 0.1 * x - 0.2 * z + 0.03 * x**2 - 0.02 * x * z + 0.01 * z**2
    runs = pd.DataFrame({"N": n, "D": d, "ptpp": 15.0, "loss": np.exp(y)})
    misses = Surface.of(runs, ["N", "D", "ptpp", "replay"]).misses
    is_curved = bool(np.abs(misses).max() < 1e-6)
    assert is_curved == (rows == 18)


def test_one_wrong_row_does_not_bend_a_surface():
    """It is off by what is wrong with it, and the others by next to nothing; a fit by
    least squares shares it out.
    """
    rng = np.random.default_rng(5)
    n, d = np.exp(rng.uniform(18, 22, (2, 40)))
    noise = 1e-4 * rng.standard_normal(40)
    y = 1.0 - 0.1 * np.log(n) - 0.2 * np.log(d) + noise
    y[7] += 0.5
    runs = pd.DataFrame({"N": n, "D": d, "loss": np.exp(y)})
    misses = Surface.of(runs, ["N", "D"]).misses
    assert misses[7] == pytest.approx(0.5, abs=0.01)
    assert np.abs(np.delete(misses, 7)).max() < 0.01


def test_exact_losses_lie_on_their_surface():
    """Those that are a plane's to the last digit have no scale to weigh a miss by."""
    runs = pd.DataFrame({"N": [1e8, 1e9, 1e8, 1e9], "loss": [2.0, 2.0, 2.0, 2.0]})
    np.testing.assert_allclose(Surface.of(runs, ["N"]).misses, 0.0, atol=1e-12)


@pytest.mark.parametrize(
    ("rows", "far", "told"), [(40, 5, 5), (40, 6, 0), (200, 10, 10), (200, 11, 0)]
)
def test_outliers_are_few(rows, far, told):
    """Five, or one row in twenty; more of them are the surface's fault."""
    misses = 0.001 * np.cos(np.arange(rows))
    misses[:far] = -0.2
    found = outliers(misses, 10.0)
    assert found.sum() == told
    assert not found[far:].any()


@pytest.mark.parametrize(
    ("fitted", "asked", "told"),
    [
        ({"domain": "target"}, {"domain": "source"}, 1),
        ({"domain": "target"}, {"domain": "target"}, 0),
        ({"domain": "target"}, {}, 0),
        ({}, {"domain": "source"}, 0),
    ],
)
def test_runs_of_another_domain_are_warned_of(fitted, asked, told):
    table = pd.DataFrame([ROW, ROW])
    tables = table.assign(**fitted), table.assign(**asked)
    _, lines = said_by(fitting.warn_other_domain, *tables)
    assert len(lines) == told
    assert all("2 of 2 rows are of 'source'" in line for line in lines)

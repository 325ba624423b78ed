"""Learning-rate schedules and their areas, against the sums as the papers write them and against real loss curves."""

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw import RunTableError, RunTableWarning, read_runs
from bayeslaw._tables.rates import areas

COLUMNS = ["S1_pt", "S2_pt", "S1_cpt", "S2_cpt"]
LAMBDA = 0.999  # by which the momentum of a step decays (Wang 2025)
SCHEDULES = {
    "constant": bayeslaw.constant(3e-4, 60, warmup=7),
    "cosine": bayeslaw.cosine(3e-4, 60, final=3e-5, warmup=7),
    "linear": bayeslaw.wsd(3e-4, 60, decay=20, warmup=7),
    "exponential": bayeslaw.wsd(
        3e-4, 60, decay=20, final=1e-6, shape="exponential", warmup=7
    ),
    "steps": bayeslaw.multi_step(3e-4, 60, drops={20: 0.3, 40: 0.1}, warmup=7),
    "array": np.random.default_rng(0).uniform(0, 1e-3, 60),
}


def double_sum(rates, lam=LAMBDA, power=0.0):
    """S1 and S2 at every step, as Wang 2025 writes eq. 1 and eq. 9."""
    eta = np.concatenate([[0.0], rates])
    steps = range(1, len(eta))
    m = [
        sum((eta[k - 1] - eta[k]) * lam ** (i - k) for k in range(1, i + 1))
        for i in steps
    ]
    weighted = [m[i - 1] * eta[i] ** power for i in steps]
    return np.cumsum(rates), np.cumsum(weighted)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("power", [0.0, 0.1, 0.2])
def test_areas_are_the_sums_of_the_paper(name, power):
    """One linear pass gives the double sum, warm-up included, LR-weighted or not."""
    s1, s2 = double_sum(SCHEDULES[name], power=power)
    got = bayeslaw.schedule_areas(SCHEDULES[name], lr_power=power)
    np.testing.assert_allclose(got["S1_pt"], s1, rtol=1e-12)
    np.testing.assert_allclose(got["S2_pt"], s2, rtol=1e-10, atol=1e-18)


@pytest.mark.parametrize(
    "name", ["constant", "cosine", "linear", "exponential", "steps"]
)
def test_schedules_have_their_shape(name):
    """A linear ramp to the peak at the end of the warm-up, never above it, falling afterwards."""
    rates = SCHEDULES[name]
    assert rates.shape == (60,)
    np.testing.assert_allclose(rates[:7], 3e-4 * np.arange(1, 8) / 7)
    assert rates.max() == pytest.approx(3e-4)
    assert np.all(np.diff(rates[6:]) <= 1e-18)


def test_schedules_end_where_they_say():
    """The last step has the final rate; the decay starts where it says; drops multiply."""
    assert SCHEDULES["cosine"][-1] == pytest.approx(3e-5)
    assert SCHEDULES["linear"][[39, 40, -1]] == pytest.approx([3e-4, 3e-4 * 0.95, 0.0])
    exponential, steps = SCHEDULES["exponential"], SCHEDULES["steps"]
    middle = np.sqrt(3e-4 * 1e-6)
    assert exponential[[39, 49, -1]] == pytest.approx([3e-4, middle, 1e-6])
    assert steps[[18, 19, 38, 39]] == pytest.approx([3e-4, 9e-5, 9e-5, 9e-6])


def test_rewarming_starts_from_where_it_is_told():
    """Adaptation may ramp up from 0 or from the last rate of pre-training."""
    assert bayeslaw.cosine(2e-5, 100, warmup=10)[0] == pytest.approx(2e-6)
    np.testing.assert_allclose(
        bayeslaw.constant(2e-5, 100, warmup=10, start=1e-5)[:10],
        1e-5 + 1e-6 * np.arange(1, 11),
    )


def test_adaptation_without_shift_continues_the_curve_of_pretraining():
    """S1pt + S1cpt and S2pt + S2cpt are the areas of the two phases joined (Wang 2025, eq. 2)."""
    first, second = SCHEDULES["linear"], bayeslaw.cosine(1e-4, 40, warmup=5)
    table = bayeslaw.schedule_areas(first, second)
    s1, s2 = double_sum(np.concatenate([first, second]))
    np.testing.assert_allclose(table["S1_pt"] + table["S1_cpt"], s1, rtol=1e-12)
    np.testing.assert_allclose(table["S2_pt"] + table["S2_cpt"], s2, rtol=1e-10)
    assert (table[["S1_cpt", "S2_cpt"]].iloc[: len(first)] == 0).all(axis=None)
    assert table["S2_pt"].iloc[len(first) :].nunique() == 1


def test_momentum_of_pretraining_can_be_left_out():
    """Without the momentum S2_cpt sums over drops of adaptation only, the first from the last rate before it."""
    first, second = SCHEDULES["linear"][:50], bayeslaw.cosine(1e-4, 40)
    table = bayeslaw.schedule_areas(first, second, carry_momentum=False)
    eta = np.concatenate([first[-1:], second])
    m = [
        sum((eta[k - 1] - eta[k]) * 0.999 ** (i - k) for k in range(1, i + 1))
        for i in range(1, len(eta))
    ]
    np.testing.assert_allclose(table["S2_cpt"].iloc[50:], np.cumsum(m), rtol=1e-10)


def test_larger_batches_count_as_so_many_steps():
    """With batches 4 times as large, a step's areas are those of 4 steps at its rate."""
    first, second = SCHEDULES["cosine"], SCHEDULES["array"][:20]
    large = bayeslaw.schedule_areas(first, second, batch_ratio=4.0).iloc[len(first) :]
    small = bayeslaw.schedule_areas(first, np.repeat(second, 4)).iloc[
        len(first) + 3 :: 4
    ]
    np.testing.assert_allclose(
        large[["S1_cpt", "S2_cpt"]], small[["S1_cpt", "S2_cpt"]], rtol=1e-10
    )


def test_a_phase_after_larger_batches_inherits_their_momentum():
    """Splitting a phase in two changes nothing, whatever its batch size."""
    rates = SCHEDULES["array"]
    whole = areas.areas(rates, batch_ratio=4.0)
    head = areas.areas(rates[:25], batch_ratio=4.0)
    tail = areas.areas(
        rates[25:], before=rates[24], momentum=head.momentum[-1], batch_ratio=4.0
    )
    np.testing.assert_allclose(tail.S2 + head.S2[-1], whole.S2[25:], rtol=1e-10)


def test_areas_of_a_million_steps():
    """By the sum over drops of the rate, each weighed by what its momentum comes to by the end; a loop over pairs of steps would not end."""
    rates = bayeslaw.cosine(3e-4, 1_000_000, warmup=2000)
    last = bayeslaw.schedule_areas(rates[:800_000], rates[800_000:]).iloc[-1]
    drops = -np.diff(rates, prepend=0.0)
    lasting = np.arange(len(rates), 0, -1)
    weights = (1 - LAMBDA**lasting) / (1 - LAMBDA)
    assert last["S1_pt"] + last["S1_cpt"] == pytest.approx(rates.sum(), rel=1e-9)
    assert last["S2_pt"] + last["S2_cpt"] == pytest.approx(drops @ weights, rel=1e-9)


def sparse(rates, every, name, first):
    steps = np.arange(first, len(rates) + 1, every)
    return pd.DataFrame({"schedule": name, "step": steps, "lr": rates[steps - 1]})


def test_sparse_tables_give_the_areas_of_their_schedules():
    """Logs every 10 steps that start after the warm-up: areas as from every step, each schedule on its own."""
    linear = bayeslaw.wsd(3e-4, 500, decay=200, warmup=100)
    constant = bayeslaw.constant(1e-4, 500, warmup=100)
    table = pd.concat(
        [sparse(linear, 10, "linear", 100), sparse(constant, 10, "constant", 100)]
    )
    table = table.sample(frac=1, random_state=0).reset_index(drop=True)
    with pytest.warns(RunTableWarning, match="2 of 2 curves start at step 100"):
        got = bayeslaw.areas_from_table(table)
    for name, rates in {"linear": linear, "constant": constant}.items():
        rows = got[got["schedule"] == name]
        full = bayeslaw.schedule_areas(rates).set_index("step")
        want = full.loc[rows["step"], COLUMNS]
        np.testing.assert_allclose(rows[COLUMNS], want, rtol=1e-9, atol=1e-15)


def test_the_warm_up_that_logs_leave_out_is_a_choice():
    """A log from step 120 on after 100 steps of warm-up: told so, the areas are exact."""
    rates = bayeslaw.constant(1e-4, 500, warmup=100)
    got = bayeslaw.areas_from_table(sparse(rates, 20, "a", 120), warmup=100)
    expected = bayeslaw.schedule_areas(rates)["S2_pt"][got["step"] - 1]
    np.testing.assert_allclose(got["S2_pt"], expected, rtol=1e-10)
    in_a_column = bayeslaw.areas_from_table(
        sparse(rates, 20, "a", 120).assign(warmup=100)
    )
    pd.testing.assert_frame_equal(in_a_column[got.columns], got)
    with pytest.warns(RunTableWarning, match="warm-up"):
        untold = bayeslaw.areas_from_table(sparse(rates, 20, "a", 120))
    assert not np.allclose(untold["S1_pt"], got["S1_pt"], rtol=1e-3)


def test_tables_that_go_on_into_adaptation():
    """Rows after the last step of pre-training get the areas of adaptation; step 0 has none at all."""
    first = bayeslaw.cosine(3e-4, 200, warmup=20)
    second = bayeslaw.cosine(1e-4, 100, warmup=20)
    rates = np.concatenate([[0.0], first, second])
    table = pd.DataFrame({"step": np.arange(0, 301), "lr": rates, "run": "a"})
    got = bayeslaw.areas_from_table(table, adaptation_start=200)
    want = bayeslaw.schedule_areas(first, second)
    assert (got[COLUMNS].iloc[0] == 0).all()
    np.testing.assert_allclose(got[COLUMNS].iloc[1:], want[COLUMNS], rtol=1e-12)
    in_a_column = bayeslaw.areas_from_table(table.assign(adaptation_start=200))
    pd.testing.assert_frame_equal(in_a_column[got.columns], got)


def test_adaptation_of_a_model_of_unknown_pretraining():
    """All of the log is adaptation: the areas of pre-training stay empty."""
    rates = bayeslaw.cosine(1e-4, 100, warmup=20)
    got = bayeslaw.areas_from_table(sparse(rates, 1, "a", 1), adaptation_start=0)
    assert got[["S1_pt", "S2_pt"]].isna().all(axis=None)
    expected = bayeslaw.schedule_areas(rates)[["S1_pt", "S2_pt"]]
    np.testing.assert_allclose(got[["S1_cpt", "S2_cpt"]], expected, rtol=1e-12)


LOGGED = {"step": [0, 100, 200], "lr": [0.0, 2e-4, 0.0]}


@pytest.mark.parametrize(
    ("table", "named"),
    [
        (LOGGED | {"lr": ["a", "b", "c"]}, "column 'lr' holds others"),
        (LOGGED | {"step": ["0", "100", "x"]}, "column 'step' holds others"),
        (LOGGED | {"lr": True}, "column 'lr' holds others"),
        (LOGGED | {"lr": [1j, 1j, 0j]}, "column 'lr' holds others"),
        ({"step": [], "lr": []}, "areas need rows"),
        (pd.DataFrame(LOGGED).iloc[:, [0, 1, 1]], "2 columns are called 'lr'"),
        ({"step": [1, 2]}, "'lr'"),
        ({"step": [1, 1], "lr": [1e-4, 2e-4]}, "step 1"),
        ({"step": [1.5, 2], "lr": [1e-4, 2e-4]}, "whole"),
        ({"step": [1, 2], "lr": [1e-4, np.nan]}, "finite"),
        ({"step": [0], "lr": [1e-4]}, "step 0"),
        ({"step": [1, 2e9], "lr": [1e-4, 1e-4]}, "10,000,000 steps"),
        (
            {"step": [5, 6], "lr": [1e-4, 1e-4], "warmup": [4, 5]},
            "'warmup' must be one whole number",
        ),
        (
            {"step": [5, 6], "lr": [1e-4, 1e-4], "adaptation_start": ["no", "no"]},
            "'adaptation_start' must be one",
        ),
    ],
)
def test_tables_without_a_schedule_are_refused(table, named):
    """The message names what is wrong."""
    with pytest.raises(RunTableError, match=named):
        bayeslaw.areas_from_table(pd.DataFrame(table))


# -- on reading ------------------------------------------------------------------------------------------------------


def curves(**columns):
    """Two schedules logged at every tenth step from the first on, with losses."""
    linear = bayeslaw.wsd(3e-4, 500, decay=200, warmup=100)
    constant = bayeslaw.constant(1e-4, 500, warmup=100)
    both = sparse(linear, 10, "linear", 1), sparse(constant, 10, "constant", 1)
    return pd.concat(both, ignore_index=True).assign(loss=3.0, **columns)


def test_areas_are_computed_on_reading():
    """Columns step, lr and a curve's name: the areas are those of `areas_from_table`, also where rows are selected."""
    table = curves(N=1e8)
    want = bayeslaw.areas_from_table(table)[COLUMNS]
    np.testing.assert_allclose(read_runs(table)[COLUMNS], want, rtol=0)
    late = read_runs(table, where="step > 300 and S1_pt > 0")
    np.testing.assert_allclose(late[COLUMNS], want[table["step"] > 300], rtol=0)


def test_what_names_a_curve():
    """`run` does; else the name of a schedule at one size and domain."""
    table = curves()
    low = table.assign(lr=table["lr"] / 2)
    want = bayeslaw.areas_from_table(low)["S1_pt"].to_numpy()
    names = {"N": (1e8, 2e8), "domain": ("source", "target"), "run": ("a", "b")}
    for column, (first, second) in names.items():
        parts = table.assign(**{column: first}), low.assign(**{column: second})
        both = pd.concat(parts)
        if column == "run":  # names a curve by itself
            both["run"] += both["schedule"]
            both = both.drop(columns="schedule")
        np.testing.assert_allclose(
            read_runs(both)["S1_pt"].iloc[len(table) :], want, rtol=1e-12
        )


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.drop(columns="lr"),
        lambda t: t.drop(columns="schedule"),
        lambda t: t.assign(schedule=[f"s{i}" for i in range(len(t))]),
        lambda t: t.drop_duplicates("schedule").assign(domain="source"),
        lambda t: t.assign(S1_pt=1.0),
    ],
    ids=["no rates", "no name", "a name for each row", "one step", "areas already"],
)
def test_other_tables_are_read_as_they_were(change):
    """No curve to sum over, or areas that are there: no column is added and nothing is warned about."""
    table = change(curves())
    assert list(read_runs(table).columns) == list(table.columns)


def test_curves_without_areas_are_warned_about_and_the_others_computed():
    """A curve with two rates at one step and one with a rate left out cost nothing but their own areas."""
    table = curves()
    table.loc[60, ["step", "lr"]] = [1.0, 5e-5]  # of the constant schedule
    table.loc[7, "lr"] = np.nan
    says = r"1 of 2 curves: schedule constant, step 1: two learning rates"
    with pytest.warns(RunTableWarning, match=says):
        got = read_runs(table)
    assert got.loc[got["schedule"] == "constant", "S1_pt"].isna().all()
    linear = got[got["schedule"] == "linear"]
    assert list(linear.index[linear["S1_pt"].isna()]) == [8]


# -- what is no schedule ---------------------------------------------------------------

RATE, STEPS = "a learning rate must be at least 0", "steps must be a whole number"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        # more warm-up or decay than steps, an exponential decay to 0, no pre-training
        (lambda: bayeslaw.wsd(1e-3, 10, decay=8, warmup=4), "steps"),
        (lambda: bayeslaw.wsd(1e-3, 10, decay=5, shape="exponential"), "final"),
        (lambda: bayeslaw.cosine(1e-3, 10, warmup=11), "steps"),
        (lambda: bayeslaw.schedule_areas(np.array([])), "empty"),
        (lambda: bayeslaw.cosine(-1e-3, 10), RATE),
        (lambda: bayeslaw.cosine(float("nan"), 10), RATE),
        (lambda: bayeslaw.constant(1e-3, 10, start=-1.0), RATE),
        (lambda: bayeslaw.wsd(1e-3, 10, decay=2, final=float("inf")), RATE),
        (lambda: bayeslaw.constant(1e-3, True), STEPS),
        (lambda: bayeslaw.constant(1e-3, -1), STEPS),
        (lambda: bayeslaw.multi_step(1e-3, 10, drops={0: 0.1}), "a drop at step"),
        (lambda: bayeslaw.multi_step(1e-3, 10, drops={11: 0.1}), "a drop at step"),
    ],
)
def test_impossible_schedules_are_refused(make, says):
    with pytest.raises(ValueError, match=says):
        make()


@pytest.mark.parametrize(
    "rates", [np.array([1e-3, np.nan]), np.array([1e-3, -1.0]), np.array([np.inf])]
)
def test_areas_of_what_is_no_schedule_are_refused(rates):
    """A rate of nan gave areas of nan, and one below 0 areas below 0."""
    with pytest.raises(RunTableError, match="pretraining: a schedule is one"):
        bayeslaw.schedule_areas(rates)
    with pytest.raises(RunTableError, match="adaptation: a schedule is one"):
        bayeslaw.schedule_areas(np.ones(3), rates)

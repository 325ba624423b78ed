"""Tables with one level of a column: which laws suit them, and what is said."""

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw import RunTableWarning
from bayeslaw._posteriors.fits.candidates import default_laws
from bayeslaw._tables import fitting

RUNS = bayeslaw.simulate("state-target", seed=1)
ONE = RUNS[RUNS["checkpoint"] == RUNS["checkpoint"].iloc[0]]


@pytest.mark.parametrize("name", ["state-target", "state-source"])
def test_one_checkpoint_is_fitted_and_forecast(name):
    runs = bayeslaw.simulate(name, seed=1).assign(domain=name.removeprefix("state-"))
    one = runs[runs["checkpoint"] == runs["checkpoint"].iloc[0]]
    with pytest.warns(RunTableWarning, match="has one level only"):
        fit = bayeslaw.fit(one, name, preview=True, on_failure="ignore")
    held = one.tail(4)
    check = bayeslaw.check(fit, held)
    assert check.mae_rel < 0.02


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_exponent_of_one_level_keeps_its_prior_in_forecasts_beyond():
    """Mixtures at one size: it was held at its prior's median, and at 60 and 1,000 times
    the size no interval held the truth.
    """
    law = bayeslaw.law("mixture-coupled")
    runs = bayeslaw.simulate(law, design="mixtures", seed=3)
    one = runs[runs["N"] == runs["N"].min()]
    fit = bayeslaw.fit(one, law, preview=True, on_failure="ignore")
    for times, least in ((1, 0.0), (60, 0.2), (1000, 0.3)):
        far = one.iloc[::7].assign(N=times * one["N"].iloc[0])
        truth = bayeslaw.simulate(law, design=far, noise=0.0)["loss"].to_numpy()
        rows = bayeslaw.forecast(fit, far)
        assert ((rows["low"] < truth) & (truth < rows["high"])).all()
        assert (rows["high"] / rows["low"] - 1).min() > least
    spread = np.log(fit.posterior["alpha"]).std()
    assert spread > 0.5 * law.priors["alpha"].args[1]


@pytest.mark.filterwarnings("ignore:column")
def test_a_column_that_acts_as_one_with_another_needs_no_levels_of_its_own():
    """One checkpoint's areas: alpha acts on those of both phases together."""
    law = bayeslaw.law("cpt-dynamics-replay-target")
    areas = {
        "S1_pt": 3.0,
        "S2_pt": 0.2,
        "S1_cpt": np.tile(np.linspace(0.1, 2.0, 10), 3),
    }
    areas |= {"S2_cpt": np.tile(np.linspace(0.0, 0.1, 10), 3)}
    replay, loss = np.repeat([0.1, 0.3, 0.6], 10), np.linspace(3.0, 2.5, 30)
    one = pd.DataFrame(areas | {"replay": replay, "loss": loss})
    fitting.check_fittable(law, one)
    with pytest.warns(RunTableWarning, match=r"'S1_pt' has one level only .* alpha"):
        fitting.check_fittable(law, one.assign(S1_cpt=1.0))


# -- one size, or one budget, at any number of rows -------------------------------------


def of_one(column, rows):
    """Rows of Chinchilla's law at one level of a column, with .3% noise."""
    levels = {"N": np.geomspace(1e8, 1e10, rows), "D": np.geomspace(1e9, 1e11, rows)}
    levels[column] = np.full(rows, levels[column][0])
    table = pd.DataFrame(levels)
    return bayeslaw.simulate("chinchilla", design=table, noise=0.003, seed=rows)


PLAIN = RUNS[["N", "D", "replay", "loss"]]
# one mix of an adaptation, whose checkpoints differ
STAGED = PLAIN.assign(replay=0.3, ptpp=np.geomspace(5.0, 50.0, len(PLAIN)))


@pytest.mark.parametrize(
    ("table", "laws"),
    [
        (PLAIN, ["dcpt"]),
        (PLAIN.assign(ptpp=20.0), ["dcpt"]),
        (PLAIN.assign(replay=0.0), ["chinchilla", "coupled"]),
        (STAGED, ["ptpp-tokens"]),
        (STAGED.drop(columns="replay"), ["chinchilla", "coupled"]),
        (ONE, ["state-power-stages"]),
        *(
            (of_one("N", n).assign(replay=np.resize([0.1, 0.3, 0.5], n)), ["dcpt"])
            for n in (8, 12, 25)
        ),
    ],
)
def test_replay_is_not_ignored_where_all_runs_are_of_one_stage_or_size(table, laws):
    """Of one checkpoint a law of its losses is left."""
    assert default_laws(table) == laws


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("column", ["N", "D"])
@pytest.mark.parametrize("rows", [8, 9, 24, 25, 60])
def test_one_level_is_one_rule_for_any_number_of_rows(column, rows):
    """8 rows were fitted, 9 to 24 refused by default, and 25 refused by any command."""
    table = of_one(column, rows)
    for name in default_laws(table):
        law = bayeslaw.law(name)
        with pytest.warns(RunTableWarning, match=f"'{column}' has one level only"):
            fitting.check_fittable(law, table)


@pytest.mark.filterwarnings("ignore:N = 10B")
def test_forecasts_beyond_one_size_are_as_wide_as_the_prior_of_its_exponent():
    """At the size they are narrow; at a hundred times it the truth is inside."""
    table = of_one("N", 30)
    with pytest.warns(RunTableWarning, match="alpha .* keep"):
        fit = bayeslaw.fit(table, "chinchilla", preview=True, on_failure="ignore")
    there = pd.DataFrame({"N": [1e8, 1e10], "D": [2e11, 2e11]})
    truth = bayeslaw.simulate("chinchilla", design=there, noise=0.0)["loss"]
    forecast = bayeslaw.forecast(fit, there)
    width = np.log(forecast["high"] / forecast["low"])
    assert width[0] < 0.05
    assert width[1] > 3 * width[0]
    assert forecast["low"][1] < truth[1] < forecast["high"][1]

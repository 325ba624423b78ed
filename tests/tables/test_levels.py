"""Tables with one level of a column: which laws suit them, what rests, what is refused."""

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw._base.errors import RunTableError, RunTableWarning
from bayeslaw._posteriors.fits.candidates import default_laws
from bayeslaw._tables import fitting

RUNS = bayeslaw.simulate("state-target", seed=1)
ONE = RUNS[RUNS["checkpoint"] == RUNS["checkpoint"].iloc[0]]


def test_replay_is_not_ignored_where_there_is_no_stage():
    """Nor where all runs are of one stage."""
    plain = RUNS[["N", "D", "replay", "loss"]]
    assert default_laws(plain) == ["dcpt"]
    assert default_laws(plain.assign(ptpp=20.0)) == ["dcpt"]
    assert default_laws(plain.assign(replay=0.0)) == ["chinchilla", "coupled"]


def test_of_one_checkpoint_a_law_of_its_losses_is_left():
    assert default_laws(ONE) == ["state-target"]


@pytest.mark.parametrize(
    ("name", "held"), [("state-target", "h4"), ("state-source", "g4")]
)
def test_a_power_of_size_rests_where_there_is_one_size(name, held):
    """At its prior's median, and it is said; with several sizes it is learned."""
    law = bayeslaw.law(name)
    with pytest.warns(RunTableWarning, match=f"{held} is held at 1, "):
        settled = fitting.settled(law, ONE)
    assert settled.priors[held].is_fixed
    assert settled.priors[held].args == (1.0,)
    with pytest.raises(RunTableError, match="'N' has one level only"):
        fitting.check_fittable(law, ONE)
    fitting.check_fittable(settled, ONE)
    assert fitting.settled(law, RUNS) is law


@pytest.mark.parametrize(
    ("name", "held"),
    [("state-target", "h4 is held at 1,"), ("state-source", "S1 is held at 4 and g4")],
)
def test_one_checkpoint_is_fitted_and_forecast(name, held):
    runs = bayeslaw.simulate(name, seed=1)
    one = runs[runs["checkpoint"] == runs["checkpoint"].iloc[0]]
    with pytest.warns(RunTableWarning, match=held):
        fit = bayeslaw.fit(one, name, preview=True, on_failure="ignore")
    held = one.tail(4)
    check = bayeslaw.check(fit, held)
    assert check.mae_rel < 0.02


def test_a_column_that_acts_as_one_with_another_needs_no_levels_of_its_own():
    """One checkpoint's areas: alpha acts on those of both phases together."""
    law = bayeslaw.law("cpt-dynamics-replay-target")
    one = pd.DataFrame(
        {
            "S1_pt": 3.0,
            "S2_pt": 0.2,
            "S1_cpt": np.tile(np.linspace(0.1, 2.0, 10), 3),
            "S2_cpt": np.tile(np.linspace(0.0, 0.1, 10), 3),
            "replay": np.repeat([0.1, 0.3, 0.6], 10),
            "loss": np.linspace(3.0, 2.5, 30),
        }
    )
    fitting.check_fittable(law, one)
    with pytest.raises(RunTableError, match=r"'S1_pt' has one level only .* alpha"):
        fitting.check_fittable(law, one.assign(S1_cpt=1.0))

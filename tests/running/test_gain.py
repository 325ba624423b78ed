"""What a recipe is worth in compute, against roots written out."""

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw import RunTableError
from known.power_laws import N, PowerLaws, power_laws, true_curve

D = 5 * N


def run(loss, tokens=D):
    return pd.DataFrame({"N": [N], "D": [tokens], "loss": [loss]})


def quiet(law: PowerLaws) -> PowerLaws:
    law.noise = 0.0
    return law


def test_the_gain_is_the_root_of_each_draw():
    law = quiet(power_laws())
    loss = float(true_curve(D)) * 0.97
    gain = bayeslaw.compute_gain(law, run(loss))
    short = loss - law.floor
    exact = np.where(
        short > 0, (np.abs(short) / law.height) ** (-1 / law.power) * N / D, np.inf
    )
    reached = exact < 40
    assert reached.mean() > 0.5
    np.testing.assert_allclose(gain.draws[reached], exact[reached], rtol=0.005)
    assert np.isinf(gain.draws[exact > 41]).all()
    assert gain.median > 1
    assert "times the compute" in gain.statement()


def test_a_recipe_against_itself_is_worth_one():
    law = power_laws(draws=2000)
    gain = bayeslaw.compute_gain(law, run(1.0).drop(columns="loss"), rival=law)
    assert gain.median == pytest.approx(1.0, abs=0.12)
    assert gain.probability(low=1.0) == pytest.approx(0.5, abs=0.06)


def test_noise_of_a_run_widens_the_gain():
    loss = float(true_curve(D)) * 0.99
    noisy, still = power_laws(), quiet(power_laws())
    noisy.noise = 0.03
    widths = [
        np.diff(np.log(bayeslaw.compute_gain(one, run(loss)).interval))
        for one in (noisy, still)
    ]
    assert not widths[0] < widths[1]


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (pd.concat([run(2.0), run(2.1)]), "2 rows"),
        (run(2.0).drop(columns="loss"), "lacks column 'loss'"),
    ],
)
def test_what_is_no_run_is_refused(table, said):
    with pytest.raises(RunTableError, match=said):
        bayeslaw.compute_gain(power_laws(), table)

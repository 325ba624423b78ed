"""What trust asks beside the coverage of all runs: groups, 50% intervals, diagnostics; and the interval score by hand."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest

from bayeslaw import check
from bayeslaw._forecasts.check import interval_score, worst_group

DRAWS = 4000


@dataclass(frozen=True)
class Normal:
    """A posterior whose log loss of a new run is normal around the forecast column."""

    sd: float
    warnings: tuple[str, ...] = ()
    name: str = "normal"

    def pieces(self):
        return ()

    def log_loss(self, runs, *, noise=False, seed=0):
        spread = np.random.default_rng(seed).standard_normal((DRAWS, len(runs)))
        return (
            np.log(runs["forecast"].to_numpy()) + (self.sd if noise else 1e-6) * spread
        )


@pytest.fixture(autouse=True)
def no_sensitivity(monkeypatch):
    """What a forecast rests on is another test's."""
    monkeypatch.setattr("bayeslaw._forecasts.check.reasons", lambda *given: ())


def runs_off_by(*errors, **columns):
    """Runs whose log loss is off its forecast by so much."""
    forecast = np.linspace(2.0, 3.0, len(errors))
    return pd.DataFrame(
        {"forecast": forecast, "loss": forecast * np.exp(np.array(errors)), **columns}
    )


def test_interval_score_is_width_and_twenty_times_the_miss():
    """In units of the loss: an interval of 1.9 to 2.1 around 2 costs .1, around 2.2 also twenty times .1 over 2.2."""
    low, high = np.log([1.9, 1.9]), np.log([2.1, 2.1])
    found = interval_score(low, high, np.log([2.0, 2.2]))
    np.testing.assert_allclose(found, [0.2 / 2.0, (0.2 + 20 * 0.1) / 2.2])


def test_check_tells_the_interval_score():
    """Normal intervals of 3.29 sds: their width alone where all runs are inside."""
    found = check(Normal(0.01), runs_off_by(*[0.004] * 12))
    assert found.interval_score90 == pytest.approx(2 * 1.645 * 0.01, rel=0.05)
    assert found.to_dict()["interval_score90"] == found.interval_score90


def test_trust_is_withheld_where_a_group_fails():
    """Half of the sizes are forecast perfectly, one of them never: 83% inside, and no trust."""
    errors = [0.001, -0.005, 0.003] * 10 + [0.05] * 6
    sizes = [1e8] * 10 + [1e9] * 10 + [1e10] * 10 + [1e11] * 6
    good = check(Normal(0.01), runs_off_by(*errors[:30], N=sizes[:30]))
    assert good.verdict == "trust"
    found = check(Normal(0.01), runs_off_by(*errors, N=sizes))
    assert found.coverage["0.9"] > 0.8
    assert found.verdict == "widen"
    assert "of the 6 runs of N 100B they hold 0%" in found.reason
    assert found.group_stretch == pytest.approx(0.05 / (1.645 * 0.01), rel=0.05)
    assert good.group_stretch is None


def test_a_group_of_few_or_of_bad_luck_does_not_fail():
    runs = pd.DataFrame({"N": [1.0] * 4 + [2.0] * 10})
    inside = np.array([False] * 4 + [True] * 8 + [False] * 2)
    assert worst_group(runs, inside) is None
    worst = worst_group(runs, ~inside)
    assert (worst.name, worst.share, len(worst.rows)) == ("N 2", 0.2, 10)
    assert set(runs.iloc[worst.rows]["N"]) == {2.0}


def test_trust_is_withheld_where_50_percent_intervals_fail():
    """Every error between the ends of the 50% and of the 90% interval: 90% hold, 50% do not."""
    found = check(Normal(0.01), runs_off_by(*[0.011, -0.011] * 10))
    assert found.coverage["0.9"] == 1.0
    assert found.verdict == "widen"
    assert "but 50% intervals hold 0%" in found.reason


def test_a_fit_that_failed_its_diagnostics_is_not_trusted():
    runs = runs_off_by(*[0.001, -0.005] * 10)
    assert check(Normal(0.01), runs).verdict == "trust"
    found = check(Normal(0.01, warnings=("law x: R-hat 1.022 is over 1.01",)), runs)
    assert found.verdict == "unknown"
    assert "failed its diagnostics (law x: R-hat 1.022" in found.reason

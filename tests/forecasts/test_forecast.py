"""A forecast in blocks of rows is the forecast of the rows."""

from functools import partial

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw import forecast
from bayeslaw._forecasts import forecast as module
from known import example, lines

RUNS = pd.DataFrame(
    {"N": 3e9, "D": np.geomspace(1e9, 1e11, 11), "replay": 0.2, "ptpp": 31.0},
    index=[f"run{i}" for i in range(11)],
)


@pytest.fixture(scope="module")
def posterior():
    return lines.spread(example.TARGET_LAW, example.TARGET, 0.02, 2000, 0)


@pytest.mark.parametrize("block", [1, 4, 11])
def test_blocks_are_put_together_in_order(posterior, monkeypatch, block):
    """The law's own interval exactly; a new run's to the noise that is drawn for it."""
    whole = forecast(posterior, RUNS)
    blocks = partial(module._blocks, size=block)
    monkeypatch.setattr(module, "_blocks", blocks)
    parts = forecast(posterior, RUNS)
    assert list(parts.index) == list(RUNS.index)
    law = ["law_low", "law_high"]
    np.testing.assert_allclose(parts[law], whole[law], rtol=1e-12)
    np.testing.assert_allclose(parts["median"], whole["median"], rtol=2e-3)


def test_columns_are_quantiles_of_the_draws(posterior):
    """By numpy on the draws themselves."""
    rows = forecast(posterior, RUNS, prob=0.8, seed=5)
    law = np.exp(posterior.log_loss(RUNS))
    new = posterior.log_loss(RUNS, noise=True, seed=5)
    np.testing.assert_allclose(
        rows["law_low"], np.quantile(law, 0.1, axis=0), rtol=1e-3
    )
    np.testing.assert_allclose(
        rows["high"], np.quantile(np.exp(new), 0.9, axis=0), rtol=1e-3
    )
    assert (rows["log_sd"] > 0).all()


@pytest.mark.parametrize(
    ("prob", "said"),
    [
        *((p, "prob must be a probability") for p in (0.0, 1.0, -0.1, float("nan"))),
        (90.0, r"prob 90.0 is 9000%; write 90.0% or 0.9"),
    ],
)
def test_a_probability_that_is_none_is_refused(prob, said):
    at = bayeslaw.law_at("chinchilla", bayeslaw.law("chinchilla").plausible, draws=4)
    runs = pd.DataFrame({"N": [1e9], "D": [2e10]})
    with pytest.raises(bayeslaw.PlanError, match=said):
        bayeslaw.forecast(at, runs, prob=prob)

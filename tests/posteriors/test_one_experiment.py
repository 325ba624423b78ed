"""One experiment of continual pre-training: one size, one budget, five replays."""

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw._inference.discrepancy.process import process_of
from bayeslaw._posteriors.fits.goodness import goodness

REPLAYS = np.array([0.01, 0.05, 0.1, 0.25, 0.5])
BETWEEN = np.array([0.02, 0.07, 0.16, 0.35])
# losses that are lines in log replay: of a source, of a steep one, of a target
LINES = {"source": (2.0, -0.12), "steep": (1.6, -0.25), "target": (2.2, 0.06)}


def losses(domain, replay):
    level, slope = LINES[domain]
    return level + slope * np.log(replay)


def experiment(domain):
    """Five runs of .2% noise."""
    noise = 0.002 * np.random.default_rng(1).standard_normal(5)
    loss = losses(domain, REPLAYS) * np.exp(noise)
    return pd.DataFrame({"N": 1e9, "D": 1e10, "replay": REPLAYS, "loss": loss})


@pytest.mark.filterwarnings("ignore:5 rows", "ignore:half of the rows")
@pytest.mark.parametrize("domain", LINES)
def test_forecasts_at_measured_replays_are_what_was_measured(domain):
    """They were 3% off at fitted rows, outside of their own 90% intervals."""
    runs = experiment(domain)
    fit = bayeslaw.fit(runs, "dcpt", preview=True, on_failure="ignore")
    at = bayeslaw.forecast(fit, runs)
    assert np.abs(at["median"] / runs["loss"] - 1).max() < 0.01
    assert ((at["low"] < runs["loss"]) & (runs["loss"] < at["high"])).all()
    between = bayeslaw.forecast(
        fit, pd.DataFrame({"N": 1e9, "D": 1e10, "replay": BETWEEN})
    )
    truth = losses(domain, BETWEEN)
    assert np.abs(between["median"] / truth - 1).max() < 0.02
    assert ((between["low"] < truth) & (truth < between["high"])).all()


def test_a_misfit_bends_at_small_replays_where_nothing_else_varies():
    """On an axis of both domains' shares; of a grid the axes are as before."""
    one = {"N": np.full(5, 1e9), "D": np.full(5, 1e10), "replay": REPLAYS}
    (axis,) = process_of(one).axes
    at = axis.position(one, np)
    assert np.diff(at).min() > 0.8  # units of a length scale
    grid = one | {"D": np.geomspace(1e9, 1e10, 5)}
    assert [axis.name for axis in process_of(grid).axes] == ["D", "replay"]


@pytest.mark.parametrize(
    ("size", "miss", "is_told"),
    [(1e9, 0.0406, True), (1e9, 0.025, False), (1e6, 0.0406, False), (1e6, 0.06, True)],
)
def test_a_law_that_misses_half_of_the_rows_by_three_percent_is_told(
    size, miss, is_told
):
    """Of tiny models, which all laws miss by 3%, by five."""
    law = bayeslaw.law("chinchilla").with_reference({"N": size})
    tokens = size * np.geomspace(1.0, 100.0, 12)
    table = pd.DataFrame({"N": size, "D": tokens})
    runs = bayeslaw.simulate(law, design=table, noise=0.0)
    values = law.from_paper(law.plausible)
    draws = {name: np.full(4, float(value)) for name, value in values.items()}
    off = miss * np.resize([1.0, -1.0], 12)
    fitted = goodness(law, draws, runs.assign(loss=runs["loss"] * np.exp(off)))
    assert any("half of the rows" in line for line in fitted.doubts) == is_told

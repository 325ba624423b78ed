"""The exchange rate of target for source loss along replay."""

import warnings
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw import PlanError, RunTableError, datasets
from bayeslaw._posteriors.fits.candidates import default_laws
from known.lines import Known, posterior_of


def _loss(draw, x):
    return jnp.log(draw["level"] + draw["slope"] * x["replay"])


def straight(slopes: list[float]) -> Known:
    """Losses that are lines in replay, a draw for each slope."""
    values = {"level": np.full(len(slopes), 2.0), "slope": np.array(slopes)}
    return posterior_of(_loss, values, ("replay",))


MIXES = pd.DataFrame({"N": 1e8, "D": 1e9, "replay": [0.1, 0.5, 1.0]})


def test_lines_have_the_ratio_of_their_slopes():
    rates = bayeslaw.exchange_rate(straight([0.6]), straight([-0.3]), MIXES)
    np.testing.assert_allclose(rates[["rate", "low", "high"]], 2.0, rtol=1e-6)
    assert (rates["chance"] == 1).all()


def test_the_source_s_law_starts_from_the_source_s_loss():
    def fall(draw, x):
        return _loss(draw, x) + jnp.log(x["loss_before"])

    (piece,) = straight([-0.3]).pieces()
    reads = replace(piece, log_loss=fall, covariates=("replay", "loss_before"))
    mixes = MIXES.assign(loss_before=4.0, source_loss_before=2.0)
    rates = bayeslaw.exchange_rate(straight([0.6]), Known(reads), mixes)
    np.testing.assert_allclose(rates["rate"], 1.0, rtol=1e-6)


def test_draws_that_exchange_nothing_are_counted():
    """Half of the source's draws rise with replay, too."""
    source = straight([-0.3, 0.3] * 50)
    rates = bayeslaw.exchange_rate(straight([0.6] * 100), source, MIXES)
    np.testing.assert_allclose(rates["chance"], 0.5)
    np.testing.assert_allclose(rates["rate"], 2.0, rtol=1e-6)
    never = bayeslaw.exchange_rate(straight([0.6]), straight([0.3]), MIXES)
    assert never["rate"].isna().all()
    assert (never["chance"] == 0).all()


def test_a_table_without_replay_is_refused():
    with pytest.raises(RunTableError, match="lacks column 'replay'"):
        bayeslaw.exchange_rate(straight([1.0]), straight([-1.0]), MIXES[["N", "D"]])


def test_three_measured_mixes_at_one_size_tell_of_the_others():
    """The rate between the two mixes that were left out lies inside the interval."""
    grid = datasets.load("microcpt").query("seed == 0 and ptpp == 93 and 5e4 < N < 6e4")
    ends = grid[grid["D"] == grid["D"].max()]
    kept = ends[ends["replay"].isin([0.05, 0.25, 0.75])]
    columns = ["N", "D", "replay", "loss", "domain"]
    fits = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for domain, rows in kept.groupby("domain"):
            (law,) = default_laws(rows[columns])
            near = {"N": 1e5, "D": 1e6}
            fits[domain] = bayeslaw.fit(
                rows[columns], law, reference=near, preview=True
            )
    assert law == "dcpt"
    losses = ends.pivot_table(index="replay", columns="domain", values="loss")
    change = losses.loc[0.5] - losses.loc[0.25]
    mix = ends[["N", "D"]].head(1).assign(replay=0.375)
    (row,) = bayeslaw.exchange_rate(fits["target"], fits["source"], mix).itertuples()
    assert row.low < -change["target"] / change["source"] < row.high
    assert row.chance > 0.9


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"prob": 90}, "prob 90 is 9000%; write 90% or 0.9"),
        ({"prob": "ninety"}, "prob must be a probability"),
        ({"step": 0}, "step must be a positive number below 1"),
    ],
)
def test_a_rate_asks_for_a_probability(asked, says):
    with pytest.raises(PlanError, match=says):
        bayeslaw.exchange_rate(straight([0.6]), straight([-0.3]), MIXES, **asked)


def test_a_probability_may_be_written_in_percent():
    sides = straight([0.6, 0.7, 0.8]), straight([-0.3])
    written = bayeslaw.exchange_rate(*sides, MIXES, prob="80%")
    assert written.equals(bayeslaw.exchange_rate(*sides, MIXES, prob=0.8))

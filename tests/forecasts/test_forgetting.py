"""The progress of pre-training that forgetting costs (Bethune 2025)."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from forgetting_grid import finetuning_grid

import bayeslaw
from bayeslaw import RunTableError, cost_of_forgetting, progress_lost
from bayeslaw._law.law import log_loss

MODELS = pd.DataFrame(
    {
        "N": [41e6, 109e6, 334e6, 665e6, 1.27e9],
        "loss_before": [3.19, 2.92, 2.60, 2.39, 2.27],
    }
)


def test_progress_lost_is_the_way_back_along_the_curve():
    """On E + B D^-beta: exactly 1 - t/T; nothing where the loss has not risen; bounded by the curve's first point."""
    total = 1e11
    tokens = total * np.geomspace(1e-6, 1, 4001)

    def loss(t):
        return 1.8 + 2000 * t**-0.36

    back = np.array([0.9, 0.5, 0.05, 1e-4])
    np.testing.assert_allclose(
        progress_lost(loss(back * total), tokens, loss(tokens)), 1 - back, atol=1e-6
    )
    ends = progress_lost(
        np.array([loss(total) - 0.1, loss(total), 99.0]), tokens, loss(tokens)
    )
    np.testing.assert_allclose(ends, [0, 0, 1 - 1e-6], atol=1e-12)
    each = progress_lost(
        np.full(2, loss(0.5 * total)),
        tokens,
        np.stack([loss(tokens), loss(tokens) + 0.05]),
    )
    assert each[0] == pytest.approx(0.5, abs=1e-6)
    assert each[1] < each[0]


def test_a_noisy_curve_counts_from_the_first_time_it_was_as_low():
    tokens, losses = np.array([1.0, 2, 4, 8]), np.array([5.0, 3.0, 3.5, 2.0])
    np.testing.assert_allclose(
        progress_lost(np.array([3.0, 5.0]), tokens, losses), [1 - 2 / 8, 1 - 1 / 8]
    )


def of_law(law, draw, x):
    return log_loss(law, x, draw)


def known(name, *changes):
    """A posterior with one draw for each change of the law's plausible parameters."""
    law = bayeslaw.law(name)
    draws = [law.from_paper({**law.plausible, **change}) for change in changes]

    def predict(runs):
        x = {c: runs[c].to_numpy(float) for c in law.covariates}
        return np.array([of_law(law, d, x) for d in draws])

    return SimpleNamespace(log_loss=predict)


@pytest.mark.filterwarnings("ignore:70 of 1500 losses")  # where its curves begin
def test_cost_of_forgetting_by_measured_curves_and_by_a_law():
    """A curve that is the law's gives what the law gives where it ends at the loss before, and more replay costs less."""
    runs = (
        finetuning_grid(MODELS)
        .query("D == 3e7 and N in (41e6, 1.27e9)")
        .assign(ptpp=100.0)
    )
    after = known("forgetting", {}, {"A": 600.0})
    before = known("chinchilla", {})
    by_law = cost_of_forgetting(after, runs, before)
    assert by_law.lost.shape == (2, len(runs))
    table = by_law.table()
    assert ((by_law.lost >= 0) & (by_law.lost < 1)).all()
    assert (by_law.lost[1] > by_law.lost[0]).all()
    for _, rows in table.assign(N=runs["N"]).groupby("N"):
        assert (np.diff(rows["median"]) < 0).all()
    np.testing.assert_allclose(
        table["flops"], 6 * runs["N"] * 100 * runs["N"] * table["median"]
    )
    assert (
        table["median"].iloc[0] > table["median"].iloc[5]
    )  # the small model loses more

    curves = []
    for n, end in zip(MODELS["N"], MODELS["loss_before"], strict=True):
        curve = pd.DataFrame({"N": n, "D": 100 * n * np.geomspace(1e-4, 1, 300)})
        curve["loss"] = np.exp(before.log_loss(curve)[0])
        curves.append(curve.assign(loss=curve["loss"] - curve["loss"].iloc[-1] + end))
    measured = cost_of_forgetting(
        after, runs, pd.concat(curves).assign(run=lambda curve: curve["N"])
    )
    np.testing.assert_allclose(measured.lost, by_law.lost, atol=1e-3)
    first = measured.statements()[0]
    assert first.startswith("41M parameters, fine-tuned on 30M tokens: ")
    assert f"{measured.table()['median'].iloc[0]:.0%} of pre-training is lost" in first


def test_what_the_cost_of_forgetting_needs():
    runs = finetuning_grid(MODELS).head(2)
    after, curve = (
        known("forgetting", {}),
        pd.DataFrame({"N": 7e9, "D": [1e9, 1e10], "loss": [3.0, 2.5]}),
    )
    cost = partial(cost_of_forgetting, after)
    with pytest.raises(
        RunTableError,
        match="row 0: no curve of pre-training of a model of 41M; there are: 7B",
    ):
        cost(runs, curve)
    of_two = pd.concat([curve, curve.assign(loss=2.0)]).assign(N=runs["N"].iloc[0])
    with pytest.raises(RunTableError, match=r"two losses .* N = 41M, D = 1B: select"):
        cost(runs, of_two.assign(domain=[*"ssft"]))
    with pytest.raises(RunTableError, match="lacks column 'loss'"):
        cost(runs, curve.drop(columns="loss"))
    with pytest.raises(RunTableError, match="lacks column 'ptpp'"):
        cost(runs, known("chinchilla", {}))

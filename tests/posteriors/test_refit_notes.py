"""What a refit says of itself: how it was drawn, and how many of how many draws diverged."""

import numpy as np
import pytest

import bayeslaw
from bayeslaw._inference import coordinates
from bayeslaw._inference.importance import Importance
from bayeslaw._inference.nuts import NUTS, prepare
from bayeslaw._inference.table import pad
from bayeslaw._posteriors.fits.refits import bootstrap_weights, refit, spread
from bayeslaw._tables import fitting


@pytest.fixture(scope="module")
def case():
    law = bayeslaw.law("chinchilla")
    runs = bayeslaw.simulate(law, seed=1)
    x, y = fitting.covariates(law, runs), np.log(fitting.losses(runs))
    table, points = pad(x, y), coordinates.contrast_points(law, x)
    return law, table, points, prepare(law, table, points, 0).centre[None]


def test_importance_sampling_has_the_draws_asked_for(case):
    values, note = refit(*case, seed=1, importance=Importance(draws=300))
    assert note["sampler"].startswith("importance")
    assert (note["divergences"], note["draws"]) == (0, 300)
    assert len(values["sigma"]) == 300


def test_chains_say_how_many_draws_their_divergences_are_of(case):
    """Importance sampling is refused by asking more of it than it can give; chains are
    asked for in two ways, and a seed is one's own.
    """
    refused = Importance(min_ess=1e9)
    asked = {"chains": 2, "warmup": 100, "draws": 100}
    values, note = refit(*case, seed=1, importance=refused, nuts=asked)
    assert note["sampler"].startswith("NUTS")
    assert note["draws"] == 200 == len(values["sigma"])
    assert 0 <= note["divergences"] <= note["draws"]
    again, _ = refit(*case, seed=1, importance=refused, nuts=NUTS(2, 100, 100))
    np.testing.assert_array_equal(again["sigma"], values["sigma"])
    other, _ = refit(*case, seed=2, importance=refused, nuts=asked)
    assert (np.asarray(other["sigma"]) != np.asarray(values["sigma"])).any()


def test_results_come_in_the_order_of_their_jobs_and_progress_counts_them():
    told = []
    parts = spread(
        lambda *job: [10 * each for each in job],
        [(1, 2), (3,)],
        None,
        lambda done, total: told.append((done, total)),
        3,
    )
    assert parts == [10, 20, 30]
    assert told == [(2, 3), (3, 3)]


def test_whole_groups_are_drawn():
    """As many as there are, in each resample, and all rows of one as often."""
    group = ["a", "a", "b", "c", "c", "c"]
    counts = bootstrap_weights(6, 50, seed=1, group=group)
    first = counts[:, [0, 2, 3]]
    np.testing.assert_array_equal(counts, first[:, [0, 0, 1, 2, 2, 2]])
    assert (first.sum(axis=1) == 3).all()
    assert len(np.unique(first, axis=0)) > 5

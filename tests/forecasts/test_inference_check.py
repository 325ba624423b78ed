"""Posterior SBC passes what is right, by posteriors known exactly, and finds what is wrong at the user's own runs."""

import json
from functools import partial

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw import InferenceCheck
from bayeslaw._forecasts.checking.inference import FittedLaw, replicate
from bayeslaw._inference.likelihood import log_likelihood
from bayeslaw._inference.ranks import uniformity
from bayeslaw._inference.table import pad, shared_error, twice
from known import exact, saved
from known.updates import first_batch, lines

MANY = 400


def least(ranked) -> float:
    """The smallest p-value over what was ranked, times how many that is."""
    names = ranked[0].shares
    p = [uniformity([one.shares[name] for one in ranked]) for name in names]
    return min(p) * len(p)


# -- posteriors in closed form ---------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_a_right_inference_gives_uniform_shares(seed):
    assert least(replicate(exact.Line(), MANY, seed=seed)) > 0.01


@pytest.mark.parametrize(
    "wrong",
    [
        exact.Line(narrow=1.5, always=True),
        exact.Line(narrow=1 / 1.5, always=True),
        exact.Line(shift=1.0),
        exact.Line(shift=1.0, always=True),
    ],
)
def test_a_wrong_inference_is_caught(wrong):
    """Too narrow or too wide by half, or an sd off; also where only the posterior given the table is."""
    assert least(replicate(wrong, MANY, seed=1)) < 0.01


def test_forty_replicates_find_a_shift_of_one_sd():
    assert least(replicate(exact.Line(shift=1.0), 40, seed=2)) < 0.01


@pytest.mark.parametrize("wrong", [{"narrow": 3.0}, {"shift": 3.0}])
def test_draws_weighed_by_the_new_losses_alone_would_find_nothing(wrong):
    """Why the second posterior begins from the prior: any posterior is its own prior's."""
    assert least(replicate(exact.Line(**wrong, reweighs=True), MANY, seed=1)) > 0.01
    assert least(replicate(exact.Line(**wrong), MANY, seed=1)) < 0.01


def test_each_seed_has_replicates_of_its_own():
    first, same, other = (replicate(exact.Line(), 30, seed=seed) for seed in (1, 1, 2))
    assert first == same
    assert len({one.shares["level"] for one in [*first, *other]}) > 50


def test_an_interruption_leaves_what_has_not_begun():
    done = []

    def interrupt(count, total):
        done.append(count)
        raise KeyboardInterrupt

    begun = []

    class Counted(exact.Line):
        def draw(self, rng):
            begun.append(1)
            return super().draw(rng)

    with pytest.raises(KeyboardInterrupt):
        replicate(Counted(), 5000, progress=interrupt)
    assert done == [1]
    assert len(begun) < 5000


# -- a table and new runs of its design -------------------------------------------------


def curves() -> pd.DataFrame:
    """Two runs of twelve points, not in their order."""
    step = np.tile(np.geomspace(100, 5000, 12), 2)
    runs = pd.DataFrame({"step": step, "run": np.repeat(["a", "b"], 12)})
    return runs.sample(frac=1, random_state=1)


@pytest.mark.parametrize(
    "runs",
    [
        bayeslaw.simulate("chinchilla", seed=2),
        curves(),
        pd.DataFrame({"N": np.ones(9)}),
    ],
    ids=["checkpoints", "curves", "independent"],
)
def test_new_runs_share_no_error_with_the_fitted_ones(runs):
    """Given the parameters two tables are independent: their log likelihoods add up."""
    error = {"sigma": 0.01, "dof_above_2": 2.0, "run_length": 0.5}
    error |= {"tau_checkpoint": 0.02, "tau_run": 0.02}
    shared, n = shared_error(runs), len(runs)
    first, second = 0.02 * np.random.default_rng(0).standard_normal((2, n))

    def height(y, structure):
        table = pad({"N": np.ones(len(y))}, y, structure)
        mean = np.zeros(len(table.y))
        rows = table.y, table.weight, error, table.shared
        return float(log_likelihood(mean, *rows))

    apart = height(first, shared) + height(second, shared)
    together = height(np.concatenate([first, second]), twice(shared))
    assert together == pytest.approx(apart, rel=1e-10)


# -- fits ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def check_grid():
    """Posterior SBC of the law of which all but E is fixed, drawn from a grid."""
    far = pd.DataFrame({"N": [1e9, 8e9], "D": [1e10, 1e11]})
    return lambda shift: bayeslaw.check_inference(
        exact.fit_on_a_grid(shift=shift), far, replicates=60, seed=4
    )


@pytest.fixture(scope="module")
def right(check_grid):
    return check_grid(0.0)


def test_a_fit_whose_draws_are_exact_passes(right):
    """Prior, likelihood and sampler against a posterior that was summed over a grid."""
    assert right.is_uniform, right.table
    assert right.wrong == ()
    named = {
        "E_nats",
        "sigma",
        "dof_above_2",
        "log likelihood",
        "log loss, mean of the runs",
    }
    assert set(right.shares) == named | {"log loss of row 0", "log loss of row 1"}
    assert right.replicates == 60
    assert right.left_out == ""
    assert "no fault of the inference shows" in right.sentence()
    assert "not about whether the law is right" in right.sentence()


def test_a_fit_whose_draws_are_an_sd_off_does_not(check_grid):
    wrong = check_grid(1.0)
    assert wrong.p_values["E_nats"] < 0.01 / 7
    assert "E_nats" in wrong.wrong
    assert "NOT" in wrong.sentence()
    assert "E_nats (p " in wrong.sentence()


def test_a_check_as_json_and_as_a_table(right):
    record = json.loads(json.dumps(right.to_dict()))
    assert record["uniform"] is True
    assert record["p_values"] == right.p_values
    assert record["limit"] == pytest.approx(0.01 / 7)
    assert len(record["shares"]["sigma"]) == 60
    assert right.table.index[0] == min(right.p_values, key=right.p_values.get)
    assert "<table" in right._repr_html_()


def test_what_chains_drew_is_said():
    shares = {"E": np.linspace(0.01, 0.99, 40)}
    check = InferenceCheck("x", shares, 3, 1, "the misfit", 1.0)
    assert "3 posteriors were drawn by NUTS" in check.sentence()
    assert "1 of which did not converge" in check.sentence()
    assert "not checked: the misfit" in check.sentence()


@pytest.fixture(scope="module")
def missing_fit():
    """A fit of a small table, with its misfit."""
    return bayeslaw.fit(first_batch(), "chinchilla", preview=True, seed=1)


def test_replicates_are_of_the_law_before_its_misfit(missing_fit):
    """Same seed, same numbers; the misfit is left out, which is said; progress is told to its end."""
    told = []
    again = partial(bayeslaw.check_inference, missing_fit, replicates=10, seed=3)
    check = again(progress=lambda done, total: told.append((done, total)))
    assert "misfit" in check.left_out
    assert f"not checked: {check.left_out}" in check.sentence()
    assert told == [(i + 1, 10) for i in range(10)]
    same = again()
    for name, shares in check.shares.items():
        np.testing.assert_array_equal(shares, same.shares[name])
    assert {"tau_checkpoint", "alpha", "log likelihood"} < set(check.shares)


def test_points_of_runs_count_as_much_as_in_the_fit():
    """Rows of a run weigh less than one each; with whole weights for the fitted rows the truths lay outside the draws."""
    N, D = np.meshgrid(np.geomspace(1e8, 1e10, 4), np.geomspace(2e9, 2e11, 12))
    runs = pd.DataFrame({"N": N.ravel(), "D": D.ravel()})
    runs["run"] = runs["N"].map("{:.3g}".format)
    noise = 0.003 * np.random.default_rng(5).standard_normal(len(runs))
    loss = 1.7 + 400 / runs["N"] ** 0.34 + 410 / runs["D"] ** 0.28
    runs["loss"] = loss * np.exp(noise)
    fit = bayeslaw.fit(runs, "chinchilla", preview=True, seed=1)
    check = bayeslaw.check_inference(fit, replicates=25, seed=2)
    assert check.is_uniform, check.table


def test_the_noise_of_replicates_is_that_of_the_law_by_itself(missing_fit):
    """Not what its misfit leaves over."""
    inference = FittedLaw.of(missing_fit, None)
    own = missing_fit.inference_data["posterior"]["sigma"].to_numpy().ravel()
    np.testing.assert_array_equal(inference.draws["sigma"], own)
    assert not np.array_equal(missing_fit.posterior["sigma"], own)


def test_parameters_and_error_are_drawn_together():
    """One draw of the posterior, not each from its own."""
    inference = FittedLaw.of(exact.fit_on_a_grid(), None)
    truth = inference.draw(np.random.default_rng(2))
    (at,) = np.flatnonzero(inference.draws["sigma"] == truth["sigma"])
    assert truth == {name: draws[at] for name, draws in inference.draws.items()}


def test_eight_runs_are_ranked_of_many_from_the_lowest_to_the_highest(missing_fit):
    runs = bayeslaw.simulate("chinchilla", seed=5)
    named = FittedLaw.of(missing_fit, runs).named
    posterior = missing_fit.inference_data["posterior"]
    E, A, B, alpha, beta = (
        posterior[name].to_numpy().reshape(-1, 1)
        for name in ("E", "A", "B", "alpha", "beta")
    )
    N, D = runs["N"].to_numpy(), runs["D"].to_numpy()
    median = np.median(E + A / N**alpha + B / D**beta, axis=0)
    places = list(named.values())
    assert len(places) == 8
    assert median[places[0]] == median.min()
    assert median[places[-1]] == median.max()
    assert (np.diff(median[places]) > 0).all()
    assert list(named) == [f"log loss of row {runs.index[at]}" for at in places]


def test_what_cannot_be_checked_is_refused_in_a_line(tmp_path, missing_fit):
    average = bayeslaw.load(saved.save_average(tmp_path / "average.nc"))
    with pytest.raises(bayeslaw.LawError, match=r"an average weighs.*--law chinchilla"):
        bayeslaw.check_inference(average)
    with pytest.raises(bayeslaw.LawError, match="not from a Lines"):
        bayeslaw.check_inference(lines())
    with pytest.raises(bayeslaw.LawError, match="3 replicates tell nothing: draw 10"):
        bayeslaw.check_inference(missing_fit, replicates=3)
    with pytest.raises(bayeslaw.RunTableError, match="needs column 'D'"):
        bayeslaw.check_inference(missing_fit, pd.DataFrame({"N": [1e9]}))

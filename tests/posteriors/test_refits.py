"""Many posteriors: right, the same whoever computes them, and refused when the weights are not weights."""

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_all_start_methods, get_context
from threading import Barrier, Thread

import numpy as np
import pytest
from resumable import study
from threadpoolctl import threadpool_info, threadpool_limits

import bayeslaw
from bayeslaw import BayeslawError, LawError, RunTableError, bootstrap_weights, refits
from bayeslaw._base.machine.blas import one_thread
from bayeslaw._inference import importance as weighted
from bayeslaw._inference import nuts
from bayeslaw._inference.modes import Peak, start_near_mode
from bayeslaw._posteriors.fits import refits as module
from known.problems import problem
from known.saved import unnamed_runs


@pytest.fixture(scope="module")
def runs():
    return unnamed_runs()


@pytest.fixture(scope="module")
def folds(runs):
    """Each size left out."""
    return np.array([(runs["N"] != n) * 1.0 for n in runs["N"].unique()])


@pytest.fixture(scope="module")
def found(runs, folds):
    return refits(runs, "chinchilla", folds, independent=True, draws=4000, seed=1)


def test_a_refit_is_the_posterior_of_the_rows_that_count(runs, folds, found):
    """Means within a fifth of an sd of NUTS on the rows kept, sds within 15%."""
    assert len(found) == len(folds)
    for weight, (values, note) in zip(folds[:2], found, strict=False):
        assert note["sampler"].startswith("importance")
        alone = bayeslaw.fit(
            runs[weight > 0],
            "chinchilla",
            independent=True,
            discrepancy=False,
            experience="none",  # as the refit has
            seed=2,
        ).posterior
        for name in ("E_nats", "A_nats", "alpha", "beta", "sigma"):
            sd = alone[name].std()
            assert abs(values[name].mean() - alone[name].mean()) < 0.2 * sd, name
            assert values[name].std() == pytest.approx(sd, rel=0.15), name


def test_a_refit_has_as_many_draws_as_asked(runs, folds):
    (values, note), *_ = refits(
        runs, "chinchilla", folds[:1], independent=True, draws=300
    )
    assert len(values["sigma"]) == note["draws"] == 300
    assert note["divergences"] == 0


def test_chains_say_how_many_draws_their_divergences_are_of(runs):
    """Importance sampling is refused by asking more of it than it can give; chains are
    asked for in two ways, and a seed is one's own.
    """
    case = problem("chinchilla", runs)
    case = *case, start_near_mode(*case, 0)[None]
    refused = weighted.Importance(min_ess=1e9)
    asked = {"chains": 2, "warmup": 100, "draws": 100}
    values, note = module.refit(*case, seed=1, importance=refused, nuts=asked)
    assert note["sampler"].startswith("NUTS")
    assert note["draws"] == 200 == len(values["sigma"])
    assert 0 <= note["divergences"] <= note["draws"]
    again, _ = module.refit(
        *case, seed=1, importance=refused, nuts=nuts.NUTS(2, 100, 100)
    )
    np.testing.assert_array_equal(again["sigma"], values["sigma"])
    other, _ = module.refit(*case, seed=2, importance=refused, nuts=asked)
    assert (np.asarray(other["sigma"]) != np.asarray(values["sigma"])).any()


@pytest.mark.parametrize(
    ("k", "ess", "is_trusted"), [(0.69, 51, True), (0.71, 51, False), (0.1, 49, False)]
)
def test_chains_take_over_where_weights_are_poor(runs, monkeypatch, k, ess, is_trusted):
    """From a k-hat of .7, or below the effective draws that are asked for."""
    weight = np.r_[np.full(ess, 1 / ess), np.zeros(10)]
    values = {"sigma": np.ones(len(weight))}
    poor = weighted.Approximation(np.zeros((len(weight), 3)), values, weight, k)
    peaks = [Peak(np.zeros(3), np.eye(3), 0.0)]
    monkeypatch.setattr(module, "find_peaks", lambda *given: peaks)
    monkeypatch.setattr(module, "approximate", lambda *given, **more: poor)
    chains = {"sigma": np.ones(3)}, {"sampler": "NUTS"}
    monkeypatch.setattr(module, "draw", lambda *given, **more: chains)
    asked = weighted.Importance(min_ess=50)
    case = *problem("chinchilla", runs), np.zeros((1, 3))
    _, note = module.refit(*case, seed=0, importance=asked)
    assert (note["sampler"] != "NUTS") == is_trusted


@pytest.mark.filterwarnings("ignore:rows 29")  # the copies
def test_counts_are_copies(runs):
    """A row that counts twice is two rows."""
    twice = np.ones((1, len(runs)))
    twice[0, :5] = 2
    copied = runs.loc[[*runs.index, *runs.index[:5]]].reset_index(drop=True)
    (by_count,) = refits(runs, "chinchilla", twice, independent=True, draws=4000)
    (by_copy,) = refits(
        copied, "chinchilla", np.ones((1, len(copied))), independent=True, draws=4000
    )
    for name in ("E_nats", "alpha", "beta"):
        a, b = by_count.values[name], by_copy.values[name]
        assert abs(a.mean() - b.mean()) < 0.15 * b.std(), name


def test_the_same_numbers_in_other_processes(runs, folds, found):
    """On an executor of processes, in its order of finishing: equal to the last digit."""
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        seen = []
        elsewhere = refits(
            runs, "chinchilla", folds, independent=True, draws=4000, seed=1,
            executor=pool, progress=lambda done, total: seen.append((done, total)),
        )  # fmt: skip
    assert seen[-1] == (len(folds), len(folds))
    for here, there in zip(found, elsewhere, strict=True):
        for name, values in here.values.items():
            np.testing.assert_array_equal(values, there.values[name], err_msg=name)


def refits_on(pool):
    runs = bayeslaw.simulate("chinchilla", seed=1)
    return refits(runs, "chinchilla", np.ones((2, len(runs))), executor=pool)


def spread_on(pool):
    return module.spread(list, [("ab",), ("cd",)], pool)


def resumed_on(pool):
    return study(dict, [{"a": 1}, {"a": 2}], executor=pool)


@pytest.mark.skipif("fork" not in get_all_start_methods(), reason="nothing forks here")
@pytest.mark.parametrize("work", [refits_on, spread_on, resumed_on])
def test_an_executor_that_forks_is_refused_before_it_hangs(work):
    """A fork has the locks of JAX's threads but not the threads."""
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
        with pytest.raises(BayeslawError, match=r'get_context\("forkserver"\)'):
            work(pool)
        assert not pool._processes


def test_results_come_in_the_order_of_their_jobs_and_progress_counts_them():
    told = []
    parts = module.spread(
        lambda *job: [10 * each for each in job],
        [(1, 2), (3,)],
        None,
        lambda done, total: told.append((done, total)),
        3,
    )
    assert parts == [10, 20, 30]
    assert told == [(2, 3), (3, 3)]


def test_threads_are_no_forks():
    with ThreadPoolExecutor(2) as pool:
        assert spread_on(pool) == ["a", "b", "c", "d"]


@pytest.mark.filterwarnings("ignore::bayeslaw.RunTableWarning")
def test_the_same_numbers_on_one_core_and_on_two():
    """Whatever threads linear algebra has: equal to the last digit, of a law whose
    products are large enough to be shared among them.
    """
    simulated = bayeslaw.simulate("ptpp-gate-floor", seed=1).query("ptpp <= 31")
    runs = simulated.drop(columns=["run", "checkpoint"])
    weights = np.ones((1, len(runs)))
    (here,) = refits(runs, "ptpp-gate-floor", weights, independent=True)
    with threadpool_limits(1, user_api="blas"):
        (there,) = refits(runs, "ptpp-gate-floor", weights, independent=True)
    for name, values in here.values.items():
        np.testing.assert_array_equal(values, there.values[name], err_msg=name)


def test_linear_algebra_keeps_to_one_thread_until_the_last_has_left():
    """Of two threads that overlap, the first to leave does not undo the second's; then
    all is as before.
    """

    def threads() -> list[int]:
        return [each["num_threads"] for each in threadpool_info()]

    inside, left, before = Barrier(2), Barrier(2), threads()

    def leaves_first() -> None:
        with one_thread():
            inside.wait()
        left.wait()

    other = Thread(target=leaves_first)
    other.start()
    with one_thread():
        inside.wait()
        left.wait()
        assert set(threads()) == {1}
    other.join()
    assert threads() == before


def test_bootstrap_weights_count_rows_or_groups():
    counts = bootstrap_weights(10, 200, seed=3)
    assert counts.shape == (200, 10)
    assert (counts.sum(axis=1) == 10).all()
    assert counts.mean() == 1.0
    assert 0.8 < counts.var() < 1.0  # multinomial: 1 - 1/10
    grouped = bootstrap_weights(6, 50, group=["a", "a", "b", "b", "b", "c"])
    assert (grouped[:, 0] == grouped[:, 1]).all()
    assert (grouped[:, 2] == grouped[:, 4]).all()
    assert ((grouped[:, 0] + grouped[:, 2] + grouped[:, 5]) == 3).all()
    assert len(np.unique(grouped, axis=0)) > 5


@pytest.mark.parametrize(
    ("weights", "error", "says"),
    [
        (np.ones((2, 3)), RunTableError, "weights of 3 rows for a table of"),
        (-1, LawError, "give numbers of 0 and above"),
        (0, LawError, "not all 0"),
    ],
)
def test_weights_that_are_none_are_refused(runs, weights, error, says):
    weights = (
        np.full((1, len(runs)), float(weights)) if np.isscalar(weights) else weights
    )
    with pytest.raises(error, match=says):
        refits(runs, "chinchilla", weights)

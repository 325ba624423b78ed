"""Many posteriors: right, the same whoever computes them, and refused when the weights are not weights."""

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_all_start_methods, get_context
from threading import Barrier, Thread

import numpy as np
import pytest
from resumable import study
from threadpoolctl import threadpool_info, threadpool_limits

import bayeslaw
from bayeslaw import LawError, RunTableError, bootstrap_weights, refits
from bayeslaw._base.errors import WorkersError
from bayeslaw._base.machine.blas import one_thread
from bayeslaw._inference import coordinates
from bayeslaw._inference.importance import Importance
from bayeslaw._inference.nuts import NUTS, prepare
from bayeslaw._inference.table import pad
from bayeslaw._posteriors.fits import refits as module
from bayeslaw._posteriors.fits.refits import refit
from bayeslaw._tables import fitting


@pytest.fixture(scope="module")
def runs():
    return (
        bayeslaw.simulate("chinchilla", seed=4)
        .drop_duplicates(["N", "D"])
        .drop(columns=["run", "checkpoint"])
    )


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
    law = bayeslaw.law("chinchilla")
    x, y = fitting.covariates(law, runs), fitting.log_losses(runs)
    table, points = pad(x, y), coordinates.contrast_points(law, x)
    case = law, table, points, prepare(law, table, points, 0).centre[None]
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
        with pytest.raises(WorkersError, match=r'get_context\("forkserver"\)'):
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


def test_the_same_numbers_in_any_tasks(runs, folds, found, monkeypatch):
    """All refits in one task, in place of one in each: equal to the last digit."""
    alone = module._tasks(len(folds))
    assert len(alone) == len(folds)
    monkeypatch.setattr(module, "_tasks", lambda refits: [slice(0, refits)])
    together = refits(runs, "chinchilla", folds, independent=True, draws=4000, seed=1)
    for here, there in zip(found, together, strict=True):
        for name, values in here.values.items():
            np.testing.assert_array_equal(values, there.values[name], err_msg=name)


@pytest.mark.parametrize("count", [1, 17, 64, 1000])
def test_every_refit_is_in_one_task_and_the_last_tasks_are_small(count):
    tasks = module._tasks(count)
    assert [i for task in tasks for i in range(count)[task]] == list(range(count))
    sizes = [task.stop - task.start for task in tasks]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == 1
    assert max(sizes) <= module.MOST_TO_A_TASK


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

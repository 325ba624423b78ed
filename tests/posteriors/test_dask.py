"""On real Dask workers, processes of their own: the same numbers, also when one is killed half-way."""

import os
import signal
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster
from resumable import study
from study import _resumable

import bayeslaw
from bayeslaw import BayeslawError, bootstrap_weights, refits
from bayeslaw._base.machine.executors import as_done, executor_at
from known.saved import unnamed_runs

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as made:
        yield made


@pytest.fixture(scope="module")
def runs():
    return unnamed_runs()


def test_a_killed_worker_s_refits_are_done_again(cluster, runs):
    """One of two workers is killed after the first results; all are there, equal to those made here."""
    weights, killed = bootstrap_weights(len(runs), 24, seed=1), []

    def kill(done: int, total: int) -> None:
        if not killed:
            with Client(cluster) as client:
                killed.append(min(client.run(os.getpid).values()))
            os.kill(killed[0], signal.SIGKILL)

    with executor_at(cluster.scheduler_address) as executor:
        found = refits(
            runs,
            "chinchilla",
            weights,
            independent=True,
            draws=200,
            executor=executor,
            progress=kill,
        )
    assert killed
    here = refits(runs, "chinchilla", weights, independent=True, draws=200)
    for ours, theirs in zip(here, found, strict=True):
        np.testing.assert_array_equal(ours.values["alpha"], theirs.values["alpha"])
        np.testing.assert_array_equal(ours.values["E_nats"], theirs.values["E_nats"])


def test_laws_compared_by_workers_have_the_same_weights(cluster, runs):
    with executor_at(cluster.scheduler_address) as executor:
        there = bayeslaw.compare(
            runs, ["chinchilla", "coupled"], hold_out="N", executor=executor
        )
    here = bayeslaw.compare(runs, ["chinchilla", "coupled"], hold_out="N")
    np.testing.assert_allclose(there.weights, here.weights, rtol=1e-9)
    assert there.judged[0].law is here.judged[0].law


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="of glibc")
def test_a_worker_keeps_the_memory_that_it_frees(cluster):
    """Mapped anew each time, 200 arrays are 51,200 pages; Dask sets its workers to it."""

    # within the test, so that it is sent whole: a worker cannot import the tests
    def page_faults() -> int:
        """How often the system had to find a page while arrays of 1 MiB were made, one
        after another, 200 in all.
        """
        import resource

        import numpy as np

        from bayeslaw._base.machine import runtime

        runtime.start()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(200):
            np.ones(2**17)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    with executor_at(cluster.scheduler_address) as executor:
        assert executor.submit(page_faults).result(timeout=60) < 5000


SCHEDULER = """
from distributed import LocalCluster
import time
cluster = LocalCluster(
    n_workers=1, processes=False, protocol="tcp", dashboard_address=None
)
print(cluster.scheduler_address, flush=True)
time.sleep(60)
"""


@pytest.fixture
def scheduler():
    """A scheduler with a worker, as another process."""
    command = [sys.executable, "-c", SCHEDULER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def test_a_scheduler_that_is_killed_is_one_line_and_what_was_done_is_kept(
    scheduler, tmp_path, capfd
):
    """In a study: the same command does only what is left."""
    address, path = scheduler.stdout.readline().strip(), tmp_path / "study.csv"

    def task(seed: int):
        import time

        time.sleep(0 if seed == 0 else 20)
        return [{"seed": seed, "found": 1.0}]

    def kill(done: int, total: int) -> None:
        if done == 1:
            scheduler.kill()

    jobs = [{"seed": seed} for seed in range(3)]
    with (
        pytest.raises(
            BayeslawError, match=r"scheduler .* was lost.*what was done is in"
        ) as lost,
        _resumable(path),
        executor_at(address, timeout=2) as executor,
    ):
        study(task, jobs, path, executor=executor, progress=kill)
    assert "\n" not in str(lost.value)
    assert pd.read_csv(path)["seed"].tolist() == [0]
    assert "Traceback" not in capfd.readouterr().err


def test_what_a_task_itself_raises_is_not_blamed_on_the_scheduler(cluster):
    def fails():
        raise OSError(28, "No space left on device")

    with (
        pytest.raises(OSError, match="No space left"),
        executor_at(cluster.scheduler_address) as executor,
    ):
        list(as_done([fails], executor))


def test_no_scheduler_at_the_address_is_said_in_one_line():
    with (
        pytest.raises(BayeslawError, match="no Dask scheduler answers"),
        executor_at("tcp://127.0.0.1:9", timeout=0.2),
    ):
        pass


def test_without_a_scheduler_the_work_is_done_here():
    with executor_at(None) as executor:
        assert executor is None

"""Random numbers: what one command draws for two purposes is independent."""

import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

import bayeslaw
from bayeslaw._base.streams import Stream, generator

CONSTANTS = {"E": 1.69, "A": 406.4, "B": 410.7, "alpha": 0.34, "beta": 0.28}
RUNS = pd.DataFrame({"N": [7e9, 1e9, 3e8], "D": [1e11, 2e10, 1e10]})


def uncertain(**errors):
    """Write Chinchilla's law with some uncertain constants and 1% noise."""
    return bayeslaw.law_at("chinchilla", CONSTANTS, sd=errors, sigma=0.01)


def test_an_optimum_has_the_noise_of_a_new_run():
    best = bayeslaw.optimum(uncertain(E=0.05), 1e21).rows[0]
    width = np.log(best["loss_high"] / best["loss_low"])
    exact = bayeslaw.optimum(uncertain(), 1e21).rows[0]
    of_noise = np.log(exact["loss_high"] / exact["loss_low"])
    assert width > 2 * of_noise


def test_laws_at_other_constants_are_independent():
    """Target and source, each at its own constants, do not err together."""
    laws = [
        bayeslaw.law_at(name, bayeslaw.law(name).plausible, sd={"E": 0.1})
        for name in ("dcpt", "ptpp-floor", "chinchilla")
    ]
    errors = [law.values["E_nats"] for law in (*laws, uncertain(E=0.05))]
    off_diagonal = np.corrcoef(errors) - np.eye(4)
    assert np.abs(off_diagonal).max() < 0.1


# -- streams that a command opens -------------------------------------------------------


def of_forecast(target, source):
    return bayeslaw.forecast(target, RUNS.assign(replay=0.2, ptpp=30.0))


def of_plan(target, source):
    limits = {"max_target_loss": 3.0, "max_forgetting": 0.5}
    model = {"N": 1e9, "ptpp": 30.0, "baseline_loss": 2.5}
    return bayeslaw.plan(target, source, **model, **limits)


def of_recipes(target, source):
    table = pd.DataFrame(
        {"N": [1e9, 1e9], "D": [1e9, 2e9], "replay": [0.1, 0.3], "ptpp": [30.0, 30.0]}
    )
    return bayeslaw.recipes(target, table, source=source)


def of_exchange(target, source):
    return bayeslaw.exchange_rate(target, source, RUNS.assign(replay=0.2, ptpp=30.0))


def of_check(target, source):
    runs = RUNS.assign(replay=0.2, ptpp=30.0, loss=[2.1, 2.4, 2.6])
    return bayeslaw.check(target, runs)


def of_optimum(target, source):
    return bayeslaw.optimum(uncertain(E=0.05), [1e21, 1e22])


def line_that_draws(frame):
    """Find the line of the package that opens a stream; None if a library does."""
    if frame.f_globals["__name__"].startswith("scipy"):
        return None
    while frame.f_code.co_name == "generator" or not frame.f_globals[
        "__name__"
    ].startswith("bayeslaw"):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


COMMANDS = [of_forecast, of_plan, of_recipes, of_exchange, of_check, of_optimum]


@pytest.fixture
def opened(monkeypatch):
    """Lines that open a stream, by the number with which it begins."""
    sources = defaultdict(set)
    seeded = np.random.default_rng

    def record(*seed):
        rng = seeded(*seed)
        line = line_that_draws(sys._getframe(1))
        if line is not None:
            first = rng.bit_generator.state["state"]["state"]
            sources[first].add(line)
        return rng

    monkeypatch.setattr(np.random, "default_rng", record)
    return sources


@pytest.mark.parametrize("command", COMMANDS)
def test_no_two_sources_of_one_command_share_a_stream(command, opened):
    """Streams of different lines of the package begin with different numbers."""
    target, source = (
        bayeslaw.law_at(
            name,
            bayeslaw.law(name).plausible,
            sd={"E": 0.01},
            sigma=0.01,
        )
        for name in ("dcpt", "ptpp-floor")
    )
    command(target, source)
    assert len(opened) > 2
    shared = {first: lines for first, lines in opened.items() if len(lines) > 1}
    assert shared == {}


# what draws from a fit's own stream, the seed without words
OF_A_FIT = {"point.py", "importance.py", "learning.py", "judge.py", "average.py"}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("make", [bayeslaw.fit, bayeslaw.average])
def test_only_a_fit_s_own_draws_share_a_stream(make, opened):
    runs = bayeslaw.simulate("chinchilla", seed=1)
    options = {"law": "chinchilla", "preview": True} if make is bayeslaw.fit else {}
    made = make(runs, **options, on_failure="ignore")
    bayeslaw.forecast(made, runs.head(3))
    shared = [lines for lines in opened.values() if len(lines) > 1]
    assert len(shared) == 1
    assert {Path(file).name for file, _ in shared[0]} <= OF_A_FIT


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_draws_of_a_law_and_of_its_misfit_s_scales_are_independent():
    """They come from one stream, in another order."""
    runs = bayeslaw.simulate("chinchilla", noise=0.02, seed=1)
    fit = bayeslaw.fit(runs, "chinchilla", preview=True, on_failure="ignore")
    of_law = fit.inference_data["posterior"].to_dataset()
    of_misfit = fit.inference_data["misfit"].to_dataset()
    parameters = [of_law[name].values.ravel() for name in ("E", "A", "B", "sigma")]
    scales = [v.values for n, v in of_misfit.items() if str(n).startswith("scale")]
    correlations = spearmanr(np.transpose([*parameters, *scales])).statistic
    between = correlations[: len(parameters), len(parameters) :]
    # 256 draws of the scales, so that one standard error is 1/16
    assert between.size >= 8
    assert np.abs(between).max() < 4 / 16


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("rows", [Stream.REWEIGHTING, Stream.NEW_RUN])
def test_a_handful_s_fit_shares_no_stream_with_what_is_made_of_it(rows, monkeypatch):
    """Its drifts had the number of runs as their word: of 22 runs they were drawn from
    the numbers of a new run's noise.
    """
    seeds = []
    seeded = np.random.default_rng

    def recorded(*seed):
        rng = seeded(*seed)
        seeds.append(rng.bit_generator.state["state"]["state"])
        return rng

    monkeypatch.setattr(np.random, "default_rng", recorded)
    few = bayeslaw.simulate("chinchilla", seed=1).iloc[: int(rows)]
    fit = bayeslaw.fit(few, "chinchilla", preview=True, on_failure="ignore")
    assert fit.drift is not None
    of_fit = set(seeds)
    seeds.clear()
    bayeslaw.forecast(fit, RUNS)
    seeds.append(generator(0, Stream.REWEIGHTING).bit_generator.state["state"]["state"])
    assert len(seeds) > 1
    assert not of_fit & set(seeds)

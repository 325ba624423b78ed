"""A run of a setting that was fitted: it departs from what the fitted runs did, not from the law."""

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw._running.following.course import CourseGrid, course
from bayeslaw._running.following.departure import Outlook
from bayeslaw._running.following.track import Track
from known.power_laws import UNTIL, Mixed, N, PowerLaws, points, true_curve

PLACES = np.linspace(1 / 37, 1.0, 37)
OWN = 0.0005  # of a seed: its level, and its points' noise


def shared_by_seeds(tokens, size=0.01):
    """A bump that no power law has, and a decay at the end of the run."""
    place = tokens / UNTIL
    bump = size * np.exp(-0.5 * ((np.log(place) + 0.5) / 0.3) ** 2)
    return bump - size * np.clip((place - 0.7) / 0.3, 0.0, 1.0)


def seeds(count, seed=0, shared=shared_by_seeds, places=PLACES, **columns):
    rng = np.random.default_rng(seed)
    tokens = places * UNTIL
    law = np.log(true_curve(tokens)) + shared(tokens)
    runs = []
    for i in range(count):
        own = OWN * rng.standard_normal() + OWN * rng.standard_normal(len(tokens))
        losses = np.exp(law + own)
        runs.append(points(tokens, losses, run=f"seed {i}", **columns))
    return runs


def narrow_laws(runs=None, kind=PowerLaws, draws=300):
    """Draws close to the law that seeds have but for what they share."""
    rng = np.random.default_rng(1)
    floor, height, power = (
        value + 0.001 * rng.standard_normal(draws) for value in (1.62, 0.8, 0.31)
    )
    return kind(floor, height, power, noise=0.005, runs=runs)


def ends(along, run, prefixes):
    """90% intervals of the log loss at the end, and its median, after each prefix."""
    departure = Track.start("loss", along, UNTIL).departure
    rows = []
    for place, tokens, loss in zip(PLACES, run["D"], run["loss"], strict=True):
        clock = float(np.log(tokens))
        departure = departure.after(clock, np.log(loss) - along.at(clock))
        if place in prefixes:
            end = float(np.log(UNTIL))
            outlook = Outlook.of(departure, end, along.at(end))
            rows.append(outlook.quantiles([0.05, 0.5, 0.95]))
    return np.array(rows)


def test_intervals_of_a_tenth_seed_hold_and_are_those_of_seeds():
    """Of 24 ends of six seeds, at 20, 40, 60 and 80% of the run."""
    *fitted, _, _, _, _, _, _ = runs = seeds(15)
    table = pd.concat(fitted, ignore_index=True)
    law, grid = narrow_laws(table), CourseGrid(draws=100)
    after = [PLACES[int(share * 37)] for share in (0.2, 0.4, 0.6, 0.8)]
    held, error, of_law = [], [], []
    for run in runs[9:]:
        y = np.log(run["loss"].iloc[-1])
        low, median, high = ends(course(law, run, UNTIL, grid=grid), run, after).T
        held.append((low <= y) & (y <= high))
        error.append(np.abs(median - y))
        alone = course(law, run, UNTIL, grid=grid, fitted=table.iloc[:0])
        of_law.append(np.abs(ends(alone, run, after)[:, 1] - y))
    assert 0.8 <= np.mean(held) <= 1.0
    assert np.mean(error) < 2 * OWN
    assert np.mean(error) < 0.4 * np.mean(of_law)


@pytest.mark.parametrize(
    ("count", "share"), [(1, (0.3, 0.7)), (2, (0.9, 1.0)), (9, (0.99, 1.0))]
)
def test_the_fewer_runs_the_less_of_their_excess_is_shared(count, share):
    law = narrow_laws(pd.concat(seeds(count)))
    along = course(law, points([UNTIL], [2.0]), UNTIL)
    at = along.shared.clock[along.shared.clock > np.log(0.4 * UNTIL)]
    assert share[0] < np.interp(at, along.shared.clock, along.shared.weight).mean()
    assert along.shared.weight.max() <= share[1]
    beyond = np.median(along.beyond_law(at), axis=0)
    expected = along.shared.weight[-len(at) :] * shared_by_seeds(np.exp(at))
    assert np.abs(beyond - expected).max() < 0.003


def test_seeds_that_share_nothing_leave_the_law_as_it_is():
    runs = seeds(9, shared=np.zeros_like)
    along = course(narrow_laws(pd.concat(runs)), points([UNTIL], [2.0]), UNTIL)
    assert np.abs(np.median(along.beyond_law(along.clock), axis=0)).max() < 2 * OWN


@pytest.mark.parametrize(
    "other",
    [
        {"N": 1.1 * N},
        {"replay": 0.3},
        {"run": "seed 0"},
        {"D": np.nan},
    ],
    ids=str,
)
def test_runs_of_other_settings_and_the_run_itself_are_not_shared(other):
    table = seeds(1, replay=0.1)[0]
    run = points([UNTIL], [2.0], replay=0.1, run="new")
    assert course(narrow_laws(table, Mixed), run, UNTIL).shared is not None
    changed = run.assign(run="seed 0") if "run" in other else run
    table = table if "run" in other else table.assign(**other)
    assert course(narrow_laws(table, Mixed), changed, UNTIL).shared is None


def test_a_setting_in_rounded_numbers_is_the_same():
    """Tokens per parameter of a stage come to 99.99999999999999."""
    table = seeds(2, replay=0.1 * 3)
    run = points([UNTIL], [2.0], replay=0.3)
    assert course(narrow_laws(pd.concat(table), Mixed), run, UNTIL).shared is not None


def test_single_losses_at_other_tokens_are_no_course():
    tokens = np.array([0.1, 0.3, 1.0]) * UNTIL
    table = points(tokens, true_curve(tokens), run=["a", "b", "c"])
    assert course(narrow_laws(table), points([UNTIL], [2.0]), UNTIL).shared is None
    last = pd.concat([table, table.tail(1).assign(run="d")])
    along = course(narrow_laws(last), points([UNTIL], [2.0]), UNTIL)
    np.testing.assert_allclose(along.shared.clock, np.log(UNTIL))


def test_beyond_the_fitted_runs_their_excess_wanes_and_the_spread_is_the_laws():
    runs = pd.concat(seeds(9, places=0.5 * PLACES))
    law = narrow_laws(runs)
    along = course(law, points([UNTIL], [2.0]), UNTIL)
    at_last, at_end = (
        np.median(along.beyond_law(float(np.log(share * UNTIL))))
        for share in (0.5, 1.0)
    )
    assert at_end == pytest.approx(0.5**0.6 * at_last, abs=1e-4)
    assert abs(at_end) > 0.002
    assert along.shared.own is None
    assert along.error.std() == pytest.approx(0.005, rel=0.1)
    whole = course(narrow_laws(pd.concat(seeds(9))), points([UNTIL], [2.0]), UNTIL)
    assert whole.error.std() < 0.002


def test_rows_without_names_are_runs_by_their_order():
    runs = pd.concat(seeds(3)).drop(columns="run")
    along = course(narrow_laws(runs), points([UNTIL], [2.0]), UNTIL)
    named = course(narrow_laws(pd.concat(seeds(3))), points([UNTIL], [2.0]), UNTIL)
    np.testing.assert_allclose(along.shared.excess, named.shared.excess)


# -- what a recipe is worth ----------------------------------------------------------------


@pytest.mark.parametrize("place", [20, 36])
def test_a_fitted_run_of_the_usual_recipe_is_worth_one(place):
    """Where its seeds share a bump, and where they decay."""
    runs = seeds(9)
    law = narrow_laws(pd.concat(runs))
    run = runs[4].iloc[[place]]
    gain = bayeslaw.compute_gain(law, run)
    assert gain.median == pytest.approx(1.0, abs=0.03)
    assert 0.05 < gain.probability(low=1.0) < 0.95
    against_the_law = bayeslaw.compute_gain(narrow_laws(), run)
    assert abs(np.log(against_the_law.median)) > 3 * abs(np.log(gain.median))


def test_a_fitted_recipe_against_itself_is_worth_one():
    runs = seeds(9)
    law = narrow_laws(pd.concat(runs))
    run = points([UNTIL], [2.0]).drop(columns="loss")
    gain = bayeslaw.compute_gain(law, run, rival=law)
    assert gain.median == pytest.approx(1.0, abs=0.02)

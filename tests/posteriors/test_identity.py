"""Save, load, pickle and send change nothing: priors to their last digit, draws to their last bit."""

import multiprocessing
import pickle
import warnings
from concurrent.futures import ProcessPoolExecutor
from operator import attrgetter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw import Prior
from known import saved

MODELS = Path(__file__).parents[2] / "models"
DRAWS = 5
CATALOGUE = ["chinchilla", "coupled", "ptpp-floor", "dcpt", "forgetting"]
FORMULAS = [
    "E + A/N^alpha + B/D^beta",
    "E + A/N^alpha + B*replay^nu/D^beta",
    "E + A/(N^alpha*ptpp^gamma) + B/D^0.3",
]
pytestmark = pytest.mark.filterwarnings("ignore:prior")


@pytest.fixture(scope="module")
def law_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("laws") / "mine.py"
    path.write_text((MODELS / "chinchilla.py").read_text())
    return path


@pytest.fixture(scope="module")
def laws(law_file):
    """Laws of all kinds, with priors and a reference run of many digits, by seed."""
    bases = [*CATALOGUE, *FORMULAS, str(law_file)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        found = [bayeslaw.find_law(text) for text in bases]
    return [_changed(law, np.random.default_rng(i)) for i, law in enumerate(found)]


def _changed(law, rng):
    priors = {name: _prior(prior, rng) for name, prior in law.priors.items()}
    kept = {name: p for name, p in priors.items() if rng.random() < 0.8}
    column = rng.choice(law.covariates)
    moved = {str(column): law.reference[column] * rng.uniform(0.5, 0.9)}
    return law.with_priors(kept).with_reference(moved)


def _prior(prior, rng):
    """Another of a family that may take its place."""
    args = tuple(rng.uniform(0.1, 0.9, size=2))
    family = {"positive": "lognormal", "unit": "beta"}.get(prior.support, "normal")
    if rng.random() < 0.2:
        return Prior("fixed", args[:1], "held")
    return Prior(family, args, 'of "our" own: é, 1/3')


def _values(law, rng):
    sites = {name: prior.draw(rng, DRAWS) for name, prior in law.priors.items()}
    scales = {"sigma": rng.uniform(1e-3, 1e-2, DRAWS), "dof": rng.uniform(3, 9, DRAWS)}
    return sites | scales


def _table(law, rng, rows=7):
    table = {c: law.reference[c] * rng.uniform(0.8, 1.1, rows) for c in law.covariates}
    told = {"loss": rng.uniform(2, 3, rows), "note": ["a", None, "é", "1.10", *"xyz"]}
    return pd.DataFrame(table | told | {"tokens/step": range(rows)})


def _same_law(one, other):
    assert one.priors == other.priors
    assert dict(one.reference) == dict(other.reference)
    assert (one.name, one.version, one.origin) == (
        other.name,
        other.version,
        other.origin,
    )


def _drawn(law):
    """Draws of the priors, and log losses of them."""
    rng = np.random.default_rng(5)
    values, table = _values(law, rng), _table(law, rng)
    columns = {c: table[c].to_numpy() for c in law.covariates}
    of_first = {name: draws[0] for name, draws in values.items()}
    return values, np.asarray(law.loss(columns, of_first))


def test_a_prior_of_nine_digits_comes_back():
    law = bayeslaw.law("chinchilla")
    own = law.with_priors({"A": "lognormal(0.123456789, .3)"})
    again = pickle.loads(pickle.dumps(own))
    assert again.priors["A_nats"].args == (0.123456789, 0.3)


def test_laws_pickled_are_the_same(laws):
    for law in laws:
        other = pickle.loads(pickle.dumps(law))
        _same_law(law, other)
        values, losses = _drawn(law)
        others, other_losses = _drawn(other)
        for name, draws in values.items():
            np.testing.assert_array_equal(others[name], draws)
        np.testing.assert_array_equal(other_losses, losses)


def test_laws_sent_to_another_process_are_the_same(laws):
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as workers:
        there = list(workers.map(attrgetter("origin", "priors"), laws))
    assert there == [(law.origin, law.priors) for law in laws]


# -- posteriors -----------------------------------------------------------------------


def _ways(posterior, load, tmp_path):
    """The posterior after each way to keep or send it."""
    once = load(posterior.save(tmp_path / "once.nc"), trust_law_file=True)
    twice = load(once.save(tmp_path / "twice.nc"), trust_law_file=True)
    return once, twice, pickle.loads(pickle.dumps(posterior))


def _same_draws(one, other, table):
    for noise in (False, True):
        np.testing.assert_array_equal(
            other.log_loss(table, noise=noise, seed=4),
            one.log_loss(table, noise=noise, seed=4),
        )


def test_fits_saved_and_pickled_are_the_same(laws, tmp_path):
    few = [laws[1], laws[5], laws[-1]]  # of the catalogue, a formula, a file
    for i, law in enumerate(few):
        rng = np.random.default_rng(i)
        table = _table(law, rng)
        fit = saved.make_fit(law, _values(law, rng), table)
        for other in _ways(fit, bayeslaw.load, tmp_path):
            _same_law(law, other.law)
            _same_draws(fit, other, table)
            assert set(other.posterior) == set(fit.posterior)
            pd.testing.assert_frame_equal(other.runs, fit.runs)
            assert other.inference_data.attrs == fit.inference_data.attrs
            assert other.runs["note"].isna().tolist() == table["note"].isna().tolist()


def test_averages_saved_and_pickled_are_the_same(laws, tmp_path):
    alike = [law for law in laws if set(law.covariates) == {"N", "D"}]
    assert len({law.name for law in alike}) > 1
    alike = list({law.name: law for law in alike}.values())
    rng = np.random.default_rng(0)
    table = _table(alike[0], rng)
    drift = {"drift": rng.normal(0, 0.01, (DRAWS, 8))}
    given = [(law, _values(law, rng) | drift) for law in alike]
    average = saved.make_average(given, table)
    for other in _ways(average, bayeslaw.load, tmp_path):
        for ours, theirs in zip(average.members, other.members, strict=True):
            _same_law(ours.law, theirs.law)
            assert (ours.weight, ours.training_range, ours.process) == (
                theirs.weight,
                theirs.training_range,
                theirs.process,
            )
        _same_draws(average, other, table)
        pd.testing.assert_frame_equal(other.table, average.table, rtol=0, atol=0)
        pd.testing.assert_frame_equal(
            other.runs, average.runs, check_dtype=False, check_names=False
        )
        assert dict(other.attrs) == dict(average.attrs)

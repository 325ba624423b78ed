"""Save, load, pickle and send change nothing: priors to their last digit, draws to their last bit."""

import json
import multiprocessing
import pickle
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray

import bayeslaw
from bayeslaw import Average, Fit, Pool, Prior
from bayeslaw._base.errors import FitWarning
from bayeslaw._inference.discrepancy.drift import training_range
from bayeslaw._inference.discrepancy.learning import Misfit
from bayeslaw._inference.discrepancy.process import process_of
from bayeslaw._law.law import NATS
from bayeslaw._law.recipe import law_of, recipe_of
from bayeslaw._posteriors.averaging.record import Member
from bayeslaw._posteriors.fits import artifact, misfit
from bayeslaw._posteriors.posterior import WEIGHTS

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
        warnings.simplefilter("ignore", FitWarning)
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


def test_laws_pickled_and_of_their_recipe_are_the_same(laws):
    for law in laws:
        recipe = json.loads(json.dumps(recipe_of(law)))
        for other in (
            pickle.loads(pickle.dumps(law)),
            law_of(recipe, trust_law_file=True),
        ):
            _same_law(law, other)
            values, losses = _drawn(law)
            others, other_losses = _drawn(other)
            for name, draws in values.items():
                np.testing.assert_array_equal(others[name], draws)
            np.testing.assert_array_equal(other_losses, losses)


def test_laws_sent_to_another_process_are_the_same(laws):
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as workers:
        there = list(workers.map(recipe_of, laws))
    assert there == [recipe_of(law) for law in laws]


# -- posteriors --------------------------------------------------------------------------


def _fit(law, rng):
    table = _table(law, rng)
    chains = {name: draws[None] for name, draws in _values(law, rng).items()}
    stats = {"diverging": np.zeros((1, DRAWS), bool)}
    tree = artifact.tree_of({"posterior": chains, "sample_stats": stats}, {}, {})
    tree["constant_data"] = artifact.constant_data(table)
    tree.attrs.update(artifact.provenance(law, 3, "fit"))
    tree.attrs.update(preview_khat=rng.random(), preview_ess=1e3 / 3, seconds=0.1)
    process = process_of({c: table[c].to_numpy() for c in law.covariates}, False)
    columns = {c: table[c].to_numpy() for c in law.covariates}
    size = process.features(columns, np).shape[1]
    learned = Misfit(
        process,
        rng.normal(0, 0.01, (DRAWS, size)),
        *rng.uniform(1e-3, 1e-2, (1, DRAWS)),
        *rng.uniform(3, 9, (1, DRAWS)),
        {"run": rng.uniform(1e-3, 1e-2, DRAWS)},
        {"run": rng.normal(0, 0.01, (DRAWS, 2))},
        {"length N/D": rng.random(DRAWS)},
        rng.random(),
    )
    tree[artifact.NAMES.misfit] = xarray.DataTree(
        misfit.to_dataset(learned, {"run": ["1.10", "b"]})
    )
    return Fit(law, tree), table


def _average(laws, rng):
    members, table = [], _table(laws[0], rng)
    for law in laws:
        columns = {c: table[c].to_numpy(float) for c in law.covariates}
        known, process = training_range(columns), process_of(columns, False)
        more = {
            "drift": rng.normal(0, 0.01, (DRAWS, 2 * len(known.axes))),
            WEIGHTS: rng.normal(
                0, 0.01, (DRAWS, process.features(columns, np).shape[1])
            ),
        }
        members.append(
            Member(law, rng.random(), process, known, _values(law, rng) | more)
        )
    row = {"weight": 1 / 3, "rhat": np.nan, "ess": 1e3 / 7, "divergences": 0}
    rows = [row | {"draws": DRAWS, "score": rng.normal()} for _ in laws]
    judged = pd.DataFrame(rows, index=pd.Index([law.name for law in laws], name="name"))
    return Average(tuple(members), judged, table, {"seconds": 0.1, "seed": 3}), table


def _pool(law, rng):
    table = _table(law, rng).assign(domain=[*"aaabbbb"])
    names = [*law.priors, "sigma"]
    one = {name: _values(law, rng)[name] for name in names}
    by_domain = {name: np.stack([v, v * 0.9], axis=-1)[None] for name, v in one.items()}
    sites = [n for n, p in law.priors.items() if not p.is_fixed] + ["sigma"]
    common = {
        f"{kind}_{name}": rng.normal(0, 0.1, (1, DRAWS))
        for kind in ("population", "spread")
        for name in sites
    }
    stats = {
        "diverging": np.zeros((1, DRAWS), bool),
        "n_steps": np.ones((1, DRAWS), int),
    }
    groups = {
        "posterior": by_domain | common | {"dof": rng.uniform(3, 9, (1, DRAWS))},
        "sample_stats": stats,
    }
    labels = np.asarray(["a", "b"], object)
    dims = {name: ["domain"] for name in by_domain}
    tree = artifact.tree_of(groups, dims, {"domain": labels})
    tree["constant_data"] = artifact.constant_data(table)
    shares = {name.removesuffix(NATS): ("domain", rng.random(2)) for name in law.priors}
    tree["own"] = xarray.DataTree(xarray.Dataset(shares, coords={"domain": labels}))
    tree.attrs.update(artifact.provenance(law, 3, "pool"))
    tree.attrs.update(pooled_by="domain", spread=1 / 3, seconds=0.1)
    return Pool(law, "domain", tree), table


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
        fit, table = _fit(law, np.random.default_rng(i))
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
    average, table = _average(alike, np.random.default_rng(0))
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


def test_pools_saved_and_pickled_are_the_same(laws, tmp_path):
    law = laws[1]
    pool, table = _pool(law, np.random.default_rng(0))
    for other in _ways(pool, Pool.load, tmp_path):
        _same_law(law, other.law)
        for domain in ("a", "b"):
            ours = pool.domain(domain, discrepancy=False)
            theirs = other.domain(domain, discrepancy=False)
            _same_draws(ours, theirs, table)
        _same_draws(pool.unseen(seed=1), other.unseen(seed=1), table)
        pd.testing.assert_frame_equal(other.own, pool.own)
        pd.testing.assert_frame_equal(other.runs, pool.runs)

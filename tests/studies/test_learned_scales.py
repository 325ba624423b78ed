"""Scales learned from real tables: populations, and the file that the study writes."""

import tomllib

import numpy as np
import pandas as pd
import pytest
from learned_scales import Learned, population, toml

from bayeslaw._inference.discrepancy.process import process_of
from bayeslaw._law.priors import parse_prior

PRIOR = {"prior_mean": 0.0, "prior_sd": 1.0}


def rows_of(truth, sds, tables=1, seed=0):
    """What each lab's tables say of a parameter that is its own ``truth``."""
    rng = np.random.default_rng(seed)
    rows = []
    for lab, (value, sd) in enumerate(zip(truth, sds, strict=True)):
        measured = value + sd * rng.standard_normal()
        # a normal posterior under the prior N(0, 1)
        variance = 1 / (1 / sd**2 + 1)
        said = {"mean": variance * measured / sd**2, "sd": np.sqrt(variance)}
        rows += [
            {"case": f"{lab}, {i}", "lab": f"lab {lab}", **said, **PRIOR}
            for i in range(tables)
        ]
    return pd.DataFrame(rows)


def test_a_population_is_found_whatever_the_prior_was():
    """The prior's part of each posterior is taken out: a population at 2, far from it."""
    rng = np.random.default_rng(1)
    truth = 2 + 0.3 * rng.standard_normal(1000)
    found = population(rows_of(truth, np.full(1000, 0.1)))
    assert found.mean == pytest.approx(2, abs=0.05)
    assert found.spread == pytest.approx(0.3, abs=0.02)
    assert found.labs == 1000


def test_all_tables_of_a_lab_count_as_one():
    """A lab with ten equal tables says what it says with one."""
    truth, sds = [1.0, -1.0, 0.5], [0.1, 0.1, 0.1]
    one, ten = (population(rows_of(truth, sds, tables=n)) for n in (1, 10))
    assert ten.mean == pytest.approx(one.mean, abs=1e-9)
    assert ten.spread == pytest.approx(one.spread, abs=1e-9)
    assert (one.labs, one.tables, ten.labs, ten.tables) == (3, 3, 3, 30)


def test_tables_that_say_nothing_leave_the_prior():
    """Posteriors equal to the prior, or wider, give the prior set by hand."""
    rows = rows_of([0.0, 0.0], [1.0, 1.0]).assign(mean=0.3, sd=[1.0, 1.2])
    found = population(rows)
    assert found.mean == pytest.approx(0, abs=1e-6)
    assert found.spread == pytest.approx(1, abs=0.02)


def told(name, law, mean, **about):
    """A row of the study: a sure statement of one lab."""
    prior = {"prior_mean": np.log(0.005), "prior_sd": 1.0}
    row = {"name": name, "law": law, "support": "positive", "mean": mean, "sd": 0.01}
    return {"case": "a", "lab": "a", "kind": "web-text", **row, **prior, **about}


def test_learned_scales_replace_those_that_tables_told_of():
    """One lab says that pieces along N are e times as large: half of it is believed, of
    laws of N and D only, and only of the misfit along N.
    """
    rows = pd.DataFrame([told("misfit N", "chinchilla", np.log(0.005) + 1)])
    columns = {"N": np.array([1e8, 1e9]), "D": np.array([1e9, 1e11])}
    process = process_of(columns)
    assert process is not None
    by_hand = Learned.of(rows, "by hand").scale_priors(process, [])
    found = Learned.of(rows, "both").scale_priors(process, ["run"])
    ratio = found["N"].median / by_hand["N"].median
    assert np.log(ratio) == pytest.approx(0.5, abs=0.01)
    medians = Learned.of(rows, "both, medians only").scale_priors(process, [])
    assert medians["N"].median == found["N"].median
    assert medians["N"].args[1] == by_hand["N"].args[1]
    others = set(by_hand) - {"N"}
    for name in others:
        assert found[name].args == pytest.approx(by_hand[name].args, rel=1e-12)
    state = process_of(columns | {"source_loss_before": np.array([2.0, 3.0])})
    assert state is not None
    of_state = Learned.of(rows, "both").scale_priors(state, [])["N"]
    assert of_state.args == pytest.approx(state.priors["N"].args, rel=1e-12)


def test_what_the_study_writes_is_toml_with_names_that_need_quotes():
    rows = [told("alpha", "chinchilla", -1.0), told("walk N*D", "chinchilla", -6.0)]
    found = tomllib.loads(toml(pd.DataFrame(rows)))["web-text"]["chinchilla"]
    assert found.pop("reference") == {"N": 1e9, "D": 2e10}
    assert list(found) == ["alpha", "walk N*D"]
    assert found["alpha"]["tables"] == 1
    parse_prior(found["alpha"]["prior"])

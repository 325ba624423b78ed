"""Laws of mixtures: one for any number of domains, found by the table's shares."""

import pickle

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw import find_law
from bayeslaw._law.catalogue import law
from bayeslaw._law.columns import share_domains

MIXTURES = [one.name for one in bayeslaw.laws() if one.name.startswith("mixture-")]
SEVEN = ("arxiv", "book", "c4", "github", "commoncrawl", "stackexchange", "wikipedia")


def runs_of(domains, seed=0, rows=20):
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.ones(len(domains)), rows)
    sizes = {"N": rng.uniform(1e8, 1e10, rows), "D": rng.uniform(1e9, 1e11, rows)}
    columns = [f"share_{name}" for name in domains]
    return pd.DataFrame(shares, columns=columns).assign(**sizes)


def arrays(runs):
    return {name: jnp.asarray(column) for name, column in runs.items()}


def test_the_rise_of_two_domains_is_the_source_s_exactly():
    """Also with nothing but the source, where no level of another domain is reached."""
    mixture, plain = law("mixture-rise", ("source", "target")), law("state-rise")
    runs = runs_of(("source", "target")).assign(ptpp=30.0, source_loss_before=2.5)
    runs.loc[0, ["share_source", "share_target"]] = 1.0, 0.0
    runs["replay"] = runs["share_source"]
    parameters = dict(plain.plausible)
    ours = parameters | {"S1_target": parameters.pop("S1")}
    np.testing.assert_allclose(
        mixture.loss(arrays(runs), mixture.from_paper(ours)),
        plain.loss(arrays(runs), plain.from_paper(plain.plausible)),
        rtol=1e-9,
    )


@pytest.mark.parametrize("name", MIXTURES)
@pytest.mark.parametrize("domains", [("a", "b"), SEVEN])
def test_a_law_of_mixtures_is_one_for_any_number_of_domains(name, domains):
    """It reads their shares, and more of its own domain is worth more than of another."""
    of_domains = law(name, domains)
    assert share_domains(of_domains.covariates) == domains
    first, last = f"share_{domains[0]}", f"share_{domains[-1]}"
    equal = {c: jnp.full(2, v) for c, v in of_domains.reference.items()}
    moved = equal | {first: jnp.array([0.6, 0.1]), last: jnp.array([0.1, 0.6])}
    more, less = of_domains.loss(moved, of_domains.from_paper(of_domains.plausible))
    assert more < less - 0.01


@pytest.mark.parametrize("name", MIXTURES)
def test_a_name_means_the_law_of_the_tables_domains(name):
    """By the table's shares, the evaluated domain first where it is one of them."""
    before = {"ptpp": 30.0, "loss_before": 3.0, "source_loss_before": 2.5}
    table = runs_of(SEVEN).assign(**before)
    assert share_domains(find_law(name, table).covariates) == SEVEN
    of_github = find_law(name, table.assign(domain="github"))
    assert share_domains(of_github.covariates)[0] == "github"
    of_both = pd.concat([table.assign(domain=n) for n in ("c4", "github")])
    assert share_domains(find_law(name, of_both).covariates) == SEVEN


@pytest.mark.parametrize("name", MIXTURES)
def test_a_law_of_mixtures_is_found_again(name):
    """From its recipe, as it is pickled: the same record, of its domains."""
    of_domains = law(name, SEVEN)
    assert pickle.loads(pickle.dumps(of_domains)) is of_domains


def test_a_tables_losses_are_fitted_by_the_law_of_its_domains(tmp_path):
    """Three simulated domains: a fit finds the parameters, forecasts, and is loaded."""
    truth = {"t_code": 0.05, "t_books": 0.3, "gamma": 0.25}
    runs = bayeslaw.simulate(
        "mixture-coupled", design="mixtures", seed=1, parameters=truth
    )
    fitted = bayeslaw.fit(runs, "mixture-coupled", preview=True)
    parameters = fitted.parameters(0.99)
    for name, value in truth.items():
        assert parameters.loc[name, "low"] < value < parameters.loc[name, "high"]
    path = fitted.save(tmp_path / "mixture.nc")
    again = bayeslaw.load(path).log_loss(runs.head(3))
    np.testing.assert_array_equal(fitted.log_loss(runs.head(3)), again)


def test_shares_of_two_domains_are_replay():
    """A column read as the share of ``source`` leaves the target's, and is replay."""
    table = pd.DataFrame({"N": 1e8, "D": [1e9, 2e9], "mix": [0.2, 0.5], "loss": 3.0})
    with pytest.warns(bayeslaw.RunTableWarning, match="share_rest"):
        runs = bayeslaw.read_runs(table, columns={"mix": "share_source"})
    assert runs["replay"].tolist() == [0.2, 0.5]
    assert runs["share_rest"].tolist() == [0.8, 0.5]

"""A domain of a pool stands where a fit does, or is refused in a line."""

import warnings
from dataclasses import replace

import pandas as pd
import pytest

import bayeslaw
from bayeslaw import BayeslawError, DomainPosterior, LawError
from bayeslaw._pooling import pool
from known import saved

LAW = bayeslaw.law("chinchilla")
LANGUAGES = {"fi": 1.0, "et": 1.02, "sw": 1.1}


def domain(name="code"):
    """Of known values, without sampling: its ``runs`` are a number."""
    return DomainPosterior(LAW, saved.values(), name, 5, {}, 2, ())


def curve():
    return saved.runs().iloc[:3].assign(N=1e9, run="a")


ANSWERED = {
    "follow": lambda one: bayeslaw.follow(one, curve(), 1e11),
    "forecast": lambda one: bayeslaw.forecast(one, curve()),
    "check": lambda one: bayeslaw.check(one, saved.runs()),
    "width_parts": lambda one: bayeslaw.width_parts(one, curve()),
    "anchors": lambda one: bayeslaw.anchors(
        one, saved.runs().iloc[:9].assign(cost=1.0), curve(), budget=2, checks=0
    ),
    "compute_gain": lambda one: bayeslaw.compute_gain(one, curve().iloc[:1]),
}
REFUSED = {
    "check_stages": bayeslaw.check_stages,
    "check_inference": bayeslaw.check_inference,
    "refit": lambda one: bayeslaw.Follower.start(one, curve(), 1e11, refit=True),
}


@pytest.mark.parametrize("name", ANSWERED)
def test_a_domain_is_taken_like_a_fit(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        ANSWERED[name](domain())


@pytest.mark.parametrize("name", REFUSED)
def test_what_needs_a_fit_says_so_in_a_line(name):
    with pytest.raises(BayeslawError) as caught:
        REFUSED[name](domain())
    assert "\n" not in str(caught.value)


@pytest.mark.filterwarnings("ignore")
def test_evaluation_sets_of_a_mixture_are_fitted_apart():
    """A law of mixtures is another law for each domain; other domains are pooled as they are."""
    grid = bayeslaw.simulate("mixture-coupled", design="mixtures")
    runs = pd.concat([grid.assign(domain=name) for name in ("web", "code")])
    with pytest.raises(LawError, match=r"each domain of the mixtures \(code, web\)"):
        bayeslaw.pool(runs, "mixture-coupled")
    law = bayeslaw.law("mixture-coupled")
    with pytest.raises(LawError, match=r"fit\(runs\[runs\['domain'\] == 'code'\]"):
        bayeslaw.pool(runs, law.with_priors({"q": "lognormal(0.5, 0.3)"}))
    teams = runs.assign(domain=runs["domain"].map({"web": "a", "code": "b"}))
    # a formula names the shares that it reads
    formula = replace(law, origin="formula:E + A/N^alpha + C*(1 - share_web)^gamma")
    for of, table in ((law, teams), (formula, runs)):
        names = pool._read_domains(of, table, "domain", [])
        assert set(names) == set(table["domain"])


def test_what_is_followed_has_the_name_of_the_domain():
    assert list(bayeslaw.follow(domain(), curve(), 1e11).domains) == ["code"]
    assert list(bayeslaw.follow(domain(None), curve(), 1e11).domains) == ["loss"]


def test_the_domains_that_are_pooled_are_no_settings():
    """Three languages at the same sizes are not runs alike at other settings."""
    runs = saved.runs()[["N", "D", "loss"]].drop_duplicates(["N", "D"])
    each = [
        runs.assign(language=x, loss=runs["loss"] * f) for x, f in LANGUAGES.items()
    ]
    table = pd.concat(each, ignore_index=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pool._read_domains(LAW, table, "language", [])
    assert not [w for w in caught if "alike in all" in str(w.message)]

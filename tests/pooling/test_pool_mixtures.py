"""Evaluation sets of the same mixtures: one law for all, with each set's own share under one name."""

import pickle
import warnings

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw import LawError, RunTableError, pool
from bayeslaw._base.errors import FitWarning
from bayeslaw._law.catalogue import law, law_names, law_of_set
from bayeslaw._pooling.pool import Pool
from bayeslaw._pooling.roles import by_role, unread, with_own_shares
from bayeslaw._tables.simulate import mixture_grid

DOMAINS = ("web", "code", "books")
SETS = ("web", "code")
MIXTURES = [name for name in law_names() if name.startswith("mixture-")]


@pytest.fixture(scope="module")
def runs():
    """Losses on two of three domains at thirty mixtures, sizes and budgets."""
    grid = mixture_grid().iloc[::3]
    tables = [
        bayeslaw.simulate("mixture-coupled", design=grid.assign(domain=name), seed=seed)
        for seed, name in enumerate(SETS)
    ]
    return pd.concat(tables, ignore_index=True)


@pytest.fixture(scope="module")
def pooled(runs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        brief = {"chains": 1, "warmup": 60, "draws": 60, "max_draws": None}
        return pool(runs, "mixture-coupled", on_failure="ignore", **brief)


@pytest.mark.parametrize("name", MIXTURES)
def test_a_set_reads_the_pooled_law_as_the_law_of_its_own_domain(name):
    """Parameters of the first domain are those of ``own``; what the set's domain counts for others plays no part."""
    pooled_law = law(name, ("own", *DOMAINS))
    of_set, usual = law_of_set(pooled_law, "code"), law(name, ("code", "web", "books"))
    rng = np.random.default_rng(0)
    parameters = {n: v * rng.uniform(0.7, 1.3) for n, v in pooled_law.plausible.items()}
    # what the set's domain counts for others, in either law's word
    of_others = unread(pooled_law, "code")
    nothing = {n: 0.0 for n in ("t_code", "c_code") if n in parameters}
    renamed = {
        n.replace("_own", "_code"): v
        for n, v in parameters.items()
        if n not in of_others
    }
    theirs = {n: renamed[n] for n in usual.parameters}
    grid = mixture_grid().assign(loss_before=3.0, source_loss_before=2.5)
    x = {c: jnp.asarray(grid[c]) for c in usual.covariates}
    assert set(of_set.covariates) == set(usual.covariates)
    expected = usual.loss(x, usual.from_paper(theirs))
    exact = of_set.loss(x, pooled_law.from_paper(parameters | nothing))
    np.testing.assert_allclose(exact, expected, rtol=1e-12)
    # shares are kept off 0 by 1e-9, a root of which is not as small
    near = of_set.loss(x, pooled_law.from_paper(parameters))
    np.testing.assert_allclose(near, expected, rtol=1e-4)


def test_rows_are_fitted_as_their_set_reads_them(runs):
    """The loss of the pooled law on rows by role is that of each set's law on the table."""
    pooled_law = by_role("mixture-coupled", runs, "domain").law
    rows = with_own_shares(runs, runs["domain"])
    values = pooled_law.from_paper(pooled_law.plausible)

    def losses(of, table):
        return of.loss({c: jnp.asarray(table[c]) for c in of.covariates}, values)

    for name, part in runs.groupby("domain"):
        of_set = law_of_set(pooled_law, name)
        np.testing.assert_allclose(
            losses(of_set, part), losses(pooled_law, rows.loc[part.index]), rtol=1e-12
        )
    shares = rows[["share_own", *(f"share_{name}" for name in DOMAINS)]]
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    assert (rows.loc[rows["domain"] == "web", "share_web"] == 0).all()


def test_a_set_that_is_none_of_the_domains_has_no_share_of_its_own(runs):
    """Its losses depend on what each domain counts for it."""
    told = runs.assign(domain=runs["domain"].replace("code", "quiz"))
    rows = with_own_shares(told, told["domain"])
    quiz = rows["domain"] == "quiz"
    assert (rows.loc[quiz, "share_own"] == 0).all()
    assert rows.loc[quiz, "share_code"].equals(told.loc[quiz, "share_code"])
    of_set = law_of_set(law("mixture-coupled", ("own", *DOMAINS)), "quiz")
    values = of_set.from_paper({**of_set.plausible, "t_code": 0.5})
    x = {c: jnp.asarray(told.loc[quiz, c]) for c in of_set.covariates}
    more = {**x, "share_code": x["share_code"] + 0.1}
    assert (of_set.loss(more, values) < of_set.loss(x, values)).all()


def test_the_law_of_a_set_is_sent_as_it_is():
    of_set = law_of_set(law("mixture-coupled", ("own", *DOMAINS)), "code")
    changed = of_set.with_priors({"t_web": "lognormal(0.3, 0.5)"})
    for record in (of_set, changed):
        again = pickle.loads(pickle.dumps(record))
        assert again.covariates == record.covariates
        assert again.priors == record.priors
        assert again.origin == "set:code"


def test_a_set_of_a_pool_is_taken_like_a_fit(runs, pooled, tmp_path):
    """It forecasts the table as it came, keeps bounds of shares in plans, and comes back from its file."""
    code = pooled.domain("code")
    rows = runs[runs["domain"] == "code"]
    assert bayeslaw.check(code, rows).mae_rel < 0.05
    assert pooled.runs.columns.tolist() == runs.columns.tolist()
    planned = bayeslaw.best_mixture(
        {name: pooled.domain(name) for name in SETS}, N=3e8, D=8e9, draws=60
    )
    assert set(planned.shares) == set(DOMAINS)
    assert min(planned.shares.values()) >= 0.1 - 1e-6  # the least that was fitted
    loaded = Pool.load(pooled.save(tmp_path / "pool.nc"))
    for one in (loaded.domain("code"), pickle.loads(pickle.dumps(code))):
        np.testing.assert_array_equal(one.log_loss(rows), code.log_loss(rows))
    # a domain that nobody evaluated, by what the others have in common
    books = pooled.unseen("books")
    few = mixture_grid().iloc[[0, -1]]
    assert np.isfinite(books.log_loss(few)).all()
    assert not np.allclose(books.log_loss(few), pooled.unseen().log_loss(few))


def test_a_set_has_no_parameter_of_what_its_domain_counts_for_others(pooled):
    table = pooled.parameters()
    assert ("web", "t_code") in table.index
    assert ("web", "t_web") not in table.index
    assert np.isnan(pooled.own.loc["web", "t_web"])
    assert pooled.own.loc["web", "t_code"] >= 0
    assert "t_web" not in pooled.domain("web").statement()


def test_a_law_that_names_its_shares_is_pooled_as_it_is(runs):
    """A formula, and a column that names no domain of the mixtures."""
    formula = "E + A/N^alpha + C*(1 - share_web)^gamma"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        assert by_role(formula, runs, "domain").runs is runs
    teams = runs[runs["domain"] == "web"].assign(team=["a", "b"] * 15)
    roles = by_role("mixture-coupled", teams, "team")
    assert roles.runs is teams
    assert roles.law is law("mixture-coupled", DOMAINS)


def test_what_cannot_be_pooled_by_role_is_refused_in_a_line(runs):
    with pytest.raises(LawError, match="takes a law of mixtures by its name"):
        pool(runs, law("mixture-coupled", DOMAINS))
    called_own = runs.rename(columns={"share_web": "share_own"}).assign(
        domain=runs["domain"].replace("web", "own")
    )
    with pytest.raises(RunTableError, match="a domain is called 'own'"):
        pool(called_own, "mixture-coupled")
    with pytest.raises(RunTableError, match="one domain only"):
        pool(runs[runs["domain"] == "web"], "mixture-coupled")
    without = runs.drop(columns=[f"share_{name}" for name in DOMAINS])
    with pytest.raises(RunTableError, match="needs column 'share_web'"):
        pool(without, "mixture-coupled")
    with pytest.raises(RunTableError, match="no column 'set' to pool by"):
        pool(runs, "mixture-coupled", by="set")


def test_one_budget_rests_as_in_a_fit(runs):
    """Exponents along a column of one level are held, and not refused."""
    at_once = runs[runs["D"] == 8e9]
    brief = {"chains": 1, "warmup": 10, "draws": 10, "max_draws": None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        pooled = pool(at_once, "mixture-tokens", on_failure="ignore", **brief)
    assert pooled.law.priors["beta"].is_fixed
    assert set(pooled.posterior["beta"].ravel()) == {pooled.law.priors["beta"].args[0]}

"""Partial pooling: the density is the plain hierarchical model's, few runs borrow, and say so."""

import warnings
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from forgetting_grid import MODELS, finetuning_grid, read_domains, simulate_domains
from scipy.stats import kstest, t

import bayeslaw
from bayeslaw import (
    FitFileError,
    LawError,
    Pool,
    RunTableError,
    pool,
)
from bayeslaw._inference import nuts
from bayeslaw._pooling import modes
from bayeslaw._pooling import pool as pooling

DOMAINS = 12
short = partial(pool, chains=2, warmup=500)


@pytest.fixture(scope="module")
def world(script):
    """Parameters of twelve domains around the law's plausible ones, and their 125 runs each."""
    return script("studies/benchmarks/samplers.py").twelve_domains()


@pytest.fixture(scope="module")
def five(world):
    """Five runs a domain."""
    return world[1].groupby("domain").sample(5, random_state=1)


@pytest.fixture(scope="module")
def pooled(five):
    return short(five, "forgetting", seed=1, draws=2000)


# -- the model -------------------------------------------------------------------------------------------------------


def test_own_runs_weigh_what_the_formula_of_shrinkage_says(world):
    """With a law of one parameter: P s^2/(1 + P s^2), P the information of the domain's rows; nil without any."""
    fixed = {"A": "fixed(0.01)", "beta": "fixed(0.34)", "B": "fixed(400)"}
    law = bayeslaw.law("forgetting").with_priors(fixed)
    rows = world[1].query("domain in ('domain 00', 'domain 01')")
    rows = pd.concat(
        [
            rows.query("domain == 'domain 00'"),
            rows.query("domain == 'domain 01'").head(3),
        ]
    )
    domains, _ = pooling._arrange_domains(law, rows, rows["domain"])
    u, spread, dof = (
        jnp.log(jnp.array([[0.74, 0.005], [0.6, 0.01]])),
        jnp.array([0.02, 0.5]),
        8.0,
    )
    own = np.asarray(modes.own_shares(law, domains, u, dof - 2, spread[None]))
    for d, (name, each) in enumerate(rows.groupby("domain")):
        x = {c: each[c].to_numpy() for c in law.covariates}

        def mean(v, x=x):
            held = {n: p.args[0] for n, p in law.priors.items()}
            return jnp.log(law.loss(x, held | {"alpha": jnp.exp(v)}))

        slope, sigma = np.asarray(jax.jacfwd(mean)(u[d, 0])), float(jnp.exp(u[d, 1]))
        known = (
            (slope**2).sum() * (dof + 1) / (dof + 3) / sigma**2 * float(spread[0]) ** 2
        )
        assert own[d, 0] == pytest.approx(known / (1 + known), rel=1e-8), name
    rows_only_of_one = domains._replace(code=np.zeros_like(domains.code))
    assert (
        np.asarray(modes.own_shares(law, rows_only_of_one, u, dof - 2, spread[None]))[1]
        == 0
    ).all()


# -- the posterior ---------------------------------------------------------------------------------------------------


def test_the_sampler_passes_its_diagnostics(pooled):
    d = pooled.diagnostics
    assert d["rhat"] <= 1.01
    assert d["ess"] >= 400
    assert d["divergent_share"] <= 0.001
    assert d["steps_per_draw"] < 50
    assert pooled.warnings == ()


def test_the_truth_lies_inside_the_intervals(world, pooled):
    """Of 48 domain parameters at least 80% inside 90% intervals; five runs leave them wide, and the noise is found."""
    known, table = world[0], pooled.parameters()
    inside = [
        table.loc[(d, n), "low"] < known.loc[d, n] < table.loc[(d, n), "high"]
        for d in known.index
        for n in known
    ]
    assert np.mean(inside) >= 0.8
    sigma = pooled.population().loc["sigma"]
    assert sigma["low"] < 0.004 * np.sqrt(np.pi / 2) < sigma["high"]


def test_five_runs_borrow_and_say_so(pooled):
    """Own runs carry part of each parameter, most of the contribution and little of B; the statement names the rest."""
    own = pooled.own
    assert own.shape == (DOMAINS, 4)
    assert ((own > 0) & (own < 1)).all().all()
    assert own["A"].mean() > own["B"].mean()
    for name, statement in zip(pooled.domains, pooled.statements(), strict=True):
        borrowed = own.columns[own.loc[name] < 0.5]
        assert f"Domain {name!r} has 5 runs" in statement
        assert "from the other 11 domains" in statement
        assert all(f"{n} ({own.loc[name, n]:.0%} own)" in statement for n in borrowed)
        assert ("mostly borrowed" in statement) == (len(borrowed) > 0)


@pytest.mark.slow
def test_pooling_five_runs_beats_separate_fits(published):
    """CRPS on the 120 runs left out of each of six of the paper's twelve domains: lower pooled than fitted by themselves,
    once the priors are three times as wide (the law's own are the median and spread of these very domains).
    """
    known = read_domains(published("bethune2025_table2.csv"))
    runs = simulate_domains(
        "forgetting", finetuning_grid(MODELS), known, known["mre"].to_dict(), seed=1
    )
    few = runs.groupby("domain").sample(5, random_state=1)
    own = bayeslaw.law("forgetting")
    law = own.with_priors(
        {n: replace(p, args=(p.args[0], 3 * p.args[1])) for n, p in own.priors.items()}
    )
    brief = {"warmup": 200, "draws": 200, "max_draws": 200, "on_failure": "ignore"}
    together, pooled, alone = short(few, law, **brief), [], []
    for domain, held in list(runs.drop(few.index).groupby("domain"))[::2]:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # five runs may have two sizes only, or one far from the others
            separate = bayeslaw.fit(
                few[few["domain"] == domain], law, chains=2, **brief
            )
        for scores, posterior in (
            (alone, separate),
            (pooled, together.domain(str(domain))),
        ):
            scores.append(bayeslaw.check(posterior, held).crps)
    assert np.mean(np.log(pooled) - np.log(alone)) < -0.2
    assert np.sum(np.less(pooled, alone)) >= 4


def test_a_domain_without_runs_is_drawn_from_the_population(world, pooled):
    """Its log parameters have the population's mean and variance; its forecasts are wider and hold what they say."""
    new, draws = pooled.unseen(seed=2), pooled.posterior
    for n in ("alpha", "B", "sigma"):
        mean, spread = draws[f"population_{n}"], draws[f"spread_{n}"]
        assert np.log(new.values[n]).mean() == pytest.approx(
            mean.mean(), abs=0.1 * spread.mean()
        )
        assert np.log(new.values[n]).var() == pytest.approx(
            mean.var() + (spread**2).mean(), rel=0.1
        )
    rows = world[1].query("domain == 'domain 03'")
    widths = [
        bayeslaw.check(p, rows).width90 for p in (new, pooled.domain("domain 03"))
    ]
    assert widths[0] > widths[1]
    assert bayeslaw.check(new, world[1]).coverage["0.9"] > 0.8
    assert "without runs" in new.statement()
    assert "12 domains" in new.statement()


def test_a_domain_is_a_posterior_like_any_other(world, pooled):
    """Forecast, check and the law's own loss work on it; noise widens it; its name says what it is."""
    rows = world[1].query("domain == 'domain 03'")
    one = pooled.domain("domain 03")
    assert one.name == "forgetting (domain 03)"
    (piece,) = one.pieces()
    draw = {n: jnp.asarray(v[7]) for n, v in piece.values.items()}
    x = {c: rows[c].to_numpy() for c in piece.covariates}
    np.testing.assert_allclose(
        one.log_loss(rows)[7], piece.log_loss(draw, x), rtol=1e-12
    )
    table = bayeslaw.forecast(one, rows)
    assert (
        table["high"] - table["low"] > 0.99 * (table["law_high"] - table["law_low"])
    ).all()
    scale = piece.values["sigma"][:, None] * piece.error_size(
        x
    )  # shorter runs err more
    added = (one.log_loss(rows, noise=True, seed=1) - one.log_loss(rows)) / scale
    assert (
        kstest(t.cdf(added, piece.values["dof"][:, None]).reshape(-1), "uniform").pvalue
        > 0.001
    )
    assert one.warnings == pooled.warnings
    # as a fit's, its law drifts beyond the runs of all domains, and not within them
    beyond = rows.head(1).assign(D=30 * world[1]["D"].max())
    assert bayeslaw.drift_parts(one, beyond).sum(axis=None) > 0.001
    assert bayeslaw.drift_parts(one, pooled.runs).sum(axis=None) == 0


def test_same_seed_same_numbers(five, pooled):
    """The first draws of a shorter run with the same seed are those of the longer; a short run that fails says so."""
    before = nuts._advance_chains.count()
    with pytest.warns(UserWarning, match="law forgetting pooled by domain: "):
        again = short(
            five, "forgetting", seed=1, draws=100, max_draws=100, on_failure="warn"
        )
    assert nuts._advance_chains.count() == before  # nothing is compiled again
    assert any(
        "too few effective draws; draw more (draws)" in line for line in again.warnings
    )
    for n in ("alpha", "spread_B", "dof"):
        shorter = again.inference_data["posterior"][n].to_numpy()
        np.testing.assert_array_equal(
            shorter, pooled.inference_data["posterior"][n].to_numpy()[:, :100]
        )


def test_a_saved_pool_comes_back_as_it_was(five, pooled, tmp_path):
    loaded = Pool.load(pooled.save(tmp_path / "pool.nc"))
    assert [p.name for p in tmp_path.iterdir()] == ["pool.nc"]
    for domain in (pooled.domain("domain 05"), pooled.unseen(seed=4)):
        other = loaded.domain("domain 05") if domain.runs else loaded.unseen(seed=4)
        np.testing.assert_array_equal(
            other.log_loss(five, noise=True, seed=2),
            domain.log_loss(five, noise=True, seed=2),
        )
        assert other.statement() == domain.statement()
    assert loaded.diagnostics == pooled.diagnostics
    assert loaded.domains == pooled.domains
    pd.testing.assert_frame_equal(
        loaded.runs[five.columns], five, check_dtype=False, check_names=False
    )
    with pytest.raises(
        FitFileError, match=r"holds a pool, not a fit; read it with bayeslaw\.Pool"
    ):
        bayeslaw.load(tmp_path / "pool.nc")


def test_what_cannot_be_pooled_is_refused(five, pooled):
    with pytest.raises(RunTableError, match=r"lacks column 'corpus'.*it has: N, "):
        pool(five, "forgetting", by="corpus")
    with pytest.raises(RunTableError, match=r"one domain only.*use fit"):
        pool(five.assign(domain="one"), "forgetting")
    row = five.index[3]
    with pytest.raises(RunTableError, match=f"row {row}, column 'domain': empty"):
        pool(five.assign(domain=five["domain"].where(five.index != row)), "forgetting")
    with pytest.raises(RunTableError, match="needs column 'loss_before'"):
        pool(five.drop(columns="loss_before"), "forgetting")
    with pytest.raises(LawError, match="spread must be above 0"):
        pool(five, "forgetting", spread=0.0)
    with pytest.raises(
        LawError, match=r"no domain 'arxiv'.*domain 00, domain 01.*unseen"
    ):
        pooled.domain("arxiv")


def test_what_pooling_cannot_tell_is_warned_about(five):
    """Three domains do not tell their spread; rows of one checkpoint are not independent."""
    law, few = bayeslaw.law("forgetting"), five[five["domain"] < "domain 03"]
    with pytest.warns(UserWarning, match="3 domains only"):
        pooling._read_domains(law, few, "domain", [])
    with pytest.warns(UserWarning, match="share their error"):
        pooling._read_domains(law, five.assign(ptpp=100.0), "domain", [])

"""One contract for all laws, and what the papers say about single ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayeslaw import law, laws

jax.config.update("jax_enable_x64", True)

DRAWS = 400
RUNS = 12
NAMES = [one.name for one in laws()]
ALL = pytest.mark.parametrize("name", NAMES)

# where runs are drawn: the ranges of the papers' grids and of tiny models; log-uniform where "log"
RANGES = {
    "N": (1e7, 1e10, "log"),
    "D": (1e7, 1e11, "log"),
    "U": (1e7, 1e11, "log"),
    "replay": (0.0, 0.95, "linear"),
    "ptpp": (5.0, 500.0, "log"),
    "loss_before": (1.0, 5.0, "linear"),
    "source_loss_before": (1.5, 5.0, "linear"),
    "source_loss": (1.5, 5.0, "linear"),
    "target_loss": (1.0, 5.0, "linear"),
    "S1_pt": (0.3, 60.0, "log"),
    "S2_pt": (-0.5, 0.3, "linear"),
    "S1_cpt": (0.01, 10.0, "log"),
    "S2_cpt": (-0.5, 0.3, "linear"),
}
SHARES = (0.0, 1.0, "linear")  # before they are divided by their sum


def random_runs(names, seed=0, n=RUNS):
    """Columns of shape (n,), within the ranges above."""
    rng = np.random.default_rng(seed)

    def column(low, high, scale):
        return (
            np.exp(rng.uniform(np.log(low), np.log(high), n))
            if scale == "log"
            else rng.uniform(low, high, n)
        )

    runs = {c: jnp.asarray(column(*RANGES.get(c, SHARES))) for c in names}
    shares = [c for c in names if c.startswith("share_")]
    total = sum(runs[c] for c in shares)
    return runs | {c: runs[c] / total for c in shares}


def prior_draws(a_law, seed=0, n=DRAWS):
    """Draws of every site, shape (n,) each."""
    rng = np.random.default_rng(seed)
    return {
        site: jnp.asarray(prior.draw(rng, n)) for site, prior in a_law.priors.items()
    }


def log_loss(a_law, runs, values):
    return jnp.log(a_law.loss(runs, values))


@ALL
def test_a_law_says_what_it_is(name):
    """Name, title, source and formula are there; every prior says where it is from; parameters are all named."""
    a_law = law(name)
    assert a_law.name == name
    assert all((a_law.title, a_law.source, a_law.latex))
    assert all(t.latex for t in a_law.terms)
    assert [site for site, prior in a_law.priors.items() if not prior.source] == []
    assert set(a_law.covariates) == set(a_law.reference)
    assert {e.covariate for e in a_law.exponents} <= set(a_law.covariates)
    assert len(a_law.priors) == len(a_law.terms) + len(a_law.exponents)


@ALL
def test_parameters_round_trip(name):
    """Parameters in the paper's units go to sampled values and back."""
    a_law = law(name)
    back = a_law.to_paper(a_law.from_paper(a_law.plausible))
    for parameter, value in a_law.plausible.items():
        assert float(back[parameter]) == pytest.approx(value, rel=1e-12), parameter


@ALL
def test_values_may_be_plain_numbers(name):
    """As means of draws are: NumPy's numbers, or Python's."""
    a_law = law(name)
    values = a_law.from_paper(a_law.plausible)
    published = a_law.to_paper(values)
    for number in (float, np.float64):
        plain = a_law.to_paper({site: number(x) for site, x in values.items()})
        for parameter, x in published.items():
            assert float(plain[parameter]) == pytest.approx(float(x), rel=1e-6)


@ALL
def test_values_round_trip(name):
    """Every draw of the prior has parameters in the paper's units that lead back to it; one name has one unit."""
    a_law = law(name)
    values = prior_draws(a_law, n=50)
    published = jax.vmap(a_law.to_paper)(values)
    back = jax.vmap(a_law.from_paper)(published)
    for site in a_law.priors:
        np.testing.assert_allclose(back[site], values[site], rtol=1e-8, err_msg=site)
        np.testing.assert_allclose(
            published.get(site, values[site]), values[site], rtol=1e-8, err_msg=site
        )


@ALL
def test_contributions_are_nats_at_the_reference_run(name):
    """A sampled contribution is what its term adds to the loss at the reference run."""
    a_law = law(name)
    reference = {c: jnp.asarray([v]) for c, v in a_law.reference.items()}
    values = {k: v[0] for k, v in prior_draws(a_law, n=1).items()}
    added = a_law.contributions(reference, values)
    for term in a_law.terms:
        if term.in_nats:
            assert float(added[term.coefficient][0]) == pytest.approx(
                term.sign * float(values[term.site]), rel=1e-10
            )


REDUCTIONS = [(n, parent, dict(at)) for n in NAMES for parent, at in law(n).reduces_to]


@pytest.mark.parametrize(
    ("child", "parent", "at"), REDUCTIONS, ids=[f"{c}->{p}" for c, p, _ in REDUCTIONS]
)
def test_a_law_reduces_to_its_parent(child, parent, at):
    """With the parameters it names, the law is its parent at any run; at its plausible ones it is not."""
    a_law, its_parent = law(child), law(parent)
    runs = random_runs(a_law.covariates)
    for seed in range(5):
        free = {
            k: float(v)
            for k, v in a_law.to_paper(
                {s: d[seed] for s, d in prior_draws(a_law, n=5).items()}
            ).items()
        }
        parameters = free | at
        shared = {p: parameters[p] for p in its_parent.parameters}
        want = its_parent.loss(runs, its_parent.from_paper(shared))
        np.testing.assert_allclose(
            a_law.loss(runs, a_law.from_paper(parameters)), want, rtol=1e-9
        )
    apart = a_law.loss(runs, a_law.from_paper(a_law.plausible))
    shared = {p: a_law.plausible[p] for p in its_parent.parameters}
    assert not np.allclose(
        apart, its_parent.loss(runs, its_parent.from_paper(shared)), rtol=1e-4
    )


MONOTONE = [
    (n, column, sign) for n in NAMES for column, sign in law(n).monotone.items()
]


@pytest.mark.parametrize(
    ("name", "column", "sign"), MONOTONE, ids=[f"{n}-{c}" for n, c, _ in MONOTONE]
)
def test_the_loss_rises_or_falls_where_claimed(name, column, sign):
    """Over the prior, at random runs, the loss moves in the claimed direction along the column, and does move."""
    a_law = law(name)
    runs = random_runs(a_law.covariates)

    def slope(values):
        _, tangent = jax.jvp(
            lambda c: a_law.loss({**runs, column: c}, values),
            (runs[column],),
            (jnp.ones(RUNS),),
        )
        return tangent * jnp.abs(runs[column])

    slopes = np.asarray(jax.jit(jax.vmap(slope))(prior_draws(a_law)))
    assert np.all(sign * slopes >= 0)
    assert (sign * slopes > 0).mean() > 0.9


@ALL
def test_gradients_are_finite_over_the_prior(name):
    """The log loss can be differentiated in every value at every draw of the prior, at and off the reference run."""
    a_law = law(name)
    runs = random_runs(a_law.covariates, n=RUNS - 1)
    runs = {c: jnp.append(v, a_law.reference[c]) for c, v in runs.items()}
    gradients = jax.jit(
        jax.vmap(jax.jacrev(lambda v: jnp.log(jnp.maximum(a_law.loss(runs, v), 1e-6))))
    )(prior_draws(a_law))
    for site, gradient in gradients.items():
        assert np.isfinite(np.asarray(gradient)).all(), site


@ALL
def test_the_prior_predicts_losses_of_language_models(name):
    """At the reference run at least 95% of the prior's losses are within .2 and 12 nats per token."""
    a_law = law(name)
    reference = {c: jnp.asarray([v]) for c, v in a_law.reference.items()}
    losses = np.asarray(
        jax.vmap(lambda v: a_law.loss(reference, v)[0])(prior_draws(a_law, n=4000))
    )
    assert np.mean((losses > 0.2) & (losses < 12)) >= 0.95
    assert 1 < np.median(losses) < 5


@ALL
def test_plausible_parameters_are_plausible(name):
    """Every plausible value is within the central 99% of its prior, and its law gives losses of .2 to 12 nats."""
    a_law = law(name)
    values = a_law.from_paper(a_law.plausible)
    for site, prior in a_law.priors.items():
        assert prior.quantile(0.005) <= float(values[site]) <= prior.quantile(0.995), (
            site
        )
    losses = np.asarray(
        a_law.loss({c: jnp.asarray([v]) for c, v in a_law.reference.items()}, values)
    )
    assert np.all((losses > 0.2) & (losses < 12))


# -- single laws -----------------------------------------------------------------------------------------------------


def losses(name, runs, **changes):
    a_law = law(name)
    return np.asarray(
        a_law.loss(runs, a_law.from_paper({**a_law.plausible, **changes}))
    )


def test_rectified_begins_flat_and_ends_as_a_power():
    """At D = 0 it is E + B/D0; far beyond the pre-learned data E + B/D^beta; between them it
    bends where D^beta = D0, at half of B/D0 (Lin 2024, eq. 3).
    """
    p = law("rectified").plausible
    first, middle, last = losses(
        "rectified", {"D": jnp.array([1e-300, 25.0 ** (1 / 0.4), 1e14])}
    )
    assert first == pytest.approx(p["E"] + p["B"] / p["D0"])
    assert middle == pytest.approx(p["E"] + p["B"] / (2 * p["D0"]))
    assert last - p["E"] == pytest.approx(p["B"] / 1e14 ** p["beta"], rel=1e-3)


def test_transferred_tokens_bend_the_curve_and_leave_its_power():
    """D + D_T tokens of `ptpp-floor`: finite before the first token, and the same law far
    beyond what pre-training was worth (Hernandez 2021, eq. 1.1).
    """
    tokens = jnp.array([0.0, 5e7, 1e14])
    run = {"N": 1e9, "replay": 0.25, "ptpp": 30.0}
    columns = {c: jnp.full(3, value) for c, value in run.items()}
    worth = law("ptpp-transfer").plausible["D_T"]
    bent = losses("ptpp-transfer", columns | {"D": tokens})
    straight = losses("ptpp-floor", columns | {"D": tokens + worth})
    np.testing.assert_allclose(bent, straight, rtol=1e-12)
    assert bent[2] == pytest.approx(losses("ptpp-floor", columns | {"D": tokens})[2])


def test_published_coefficients_are_those_of_the_paper():
    """Eq. 8 written out by hand, at one run of each domain."""
    x = {"S1_pt": 7.2, "S2_pt": -0.02, "S1_cpt": 1.3, "S2_cpt": 0.05, "replay": 0.3}
    base = (x["S1_pt"] + x["S1_cpt"]) ** -0.510
    moved = [1 - (1 + e * x["S1_cpt"]) ** -b for e, b in ((99.35, 0.3), (100.34, 7e-4))]
    source = 3.067 + 0.480 * base - 0.280 * -0.02 - 0.263 * 0.05 * np.exp(0.055 * 0.3)
    source += 0.276 * moved[0] * (1 - np.exp(-3.238 * 0.7))
    target = 2.992 + 0.456 * base - 0.285 * -0.02 - 0.279 * 0.05 * np.exp(0.037 * 0.7)
    target += -0.526 * moved[1] * (np.exp(5.696 * 0.7) - 1)
    runs = {k: jnp.asarray([v]) for k, v in x.items()}
    assert losses("cpt-dynamics-replay-source", runs)[0] == pytest.approx(
        source, rel=1e-12
    )
    assert losses("cpt-dynamics-replay-target", runs)[0] == pytest.approx(
        target, rel=1e-12
    )


def test_forgetting_of_the_paper():
    """Eq. 7 with the coefficients of Arxiv, by hand, at the largest model and budget without replay."""
    runs = {
        "N": jnp.asarray([1.27e9]),
        "D": jnp.asarray([3e7]),
        "replay": jnp.zeros(1),
        "loss_before": jnp.asarray([2.27]),
    }
    assert losses("forgetting", runs)[0] == pytest.approx(
        2.27 + 526 * 3e7**0.34 / 1.27e9**0.74, rel=1e-12
    )


@pytest.mark.parametrize(
    "name",
    ["state-target", "state-power", "mixture-state", "state-source", "state-rise", "mixture-rise"],
)  # fmt: skip
def test_first_steps_are_those_in_which_a_law_does_not_start_at_the_checkpoint(name):
    a_law = law(name)
    start = "loss_before" if "loss_before" in a_law.covariates else "source_loss_before"
    runs = random_runs(a_law.covariates) | {"D": jnp.full(RUNS, 1e-9)}
    is_described = np.allclose(losses(name, runs), runs[start], rtol=1e-6)
    assert (a_law.first_steps == 0) == is_described


def test_state_laws_start_at_the_checkpoint_and_end_at_their_level():
    """D = 0 leaves both losses where they were; without replay and with endless data they
    reach S1's share and T1; pure replay leaves the target where it was.
    """
    runs = random_runs(law("state-target").covariates) | {"replay": jnp.zeros(RUNS)}
    none, endless = {**runs, "D": jnp.zeros(RUNS)}, {**runs, "D": jnp.full(RUNS, 1e40)}
    np.testing.assert_allclose(
        losses("state-source", none), runs["source_loss_before"], rtol=1e-12
    )
    np.testing.assert_allclose(
        losses("state-target", none), runs["loss_before"], rtol=1e-12
    )
    at_level = losses("state-source", endless, a=1.0, g=0.0, S1=4.2)
    np.testing.assert_allclose(at_level, 4.2, rtol=1e-12)
    floor = losses("state-target", endless, beta=2.0, c=0.9)
    np.testing.assert_allclose(floor, 0.9 * runs["source_loss_before"], rtol=1e-8)
    replayed = losses("state-target", {**runs, "replay": jnp.ones(RUNS)}, q=2.0)
    np.testing.assert_allclose(replayed, runs["loss_before"], rtol=1e-8)

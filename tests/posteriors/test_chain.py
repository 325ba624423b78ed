"""Chains: a checkpoint's losses forecast by a law of pre-training, carried through a law that reads them."""

import json
from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw import chain, checkpoints, losses_before
from bayeslaw._inference.discrepancy import process
from bayeslaw._plans.plan import problem_of
from known.commands import run
from known.lines import Known, posterior_of

DRAWS = 4000


def adapted(draw, x):
    """A law of adaptation: a share ``a`` of the loss before, more with replay."""
    return jnp.log(
        x["source_loss_before"]
        * draw["a"]
        * (1 + draw["b"] * x["replay"] * jnp.log1p(x["D"] / 1e9))
    )


def pretrained(draw, x):
    return jnp.log(draw["E"] + draw["B"] * (x["N"] * x["D"] / 1e18) ** -0.1)


def posterior(seed=0, draws=DRAWS):
    rng = np.random.default_rng(seed)
    values = {
        "a": np.exp(0.01 * rng.standard_normal(draws)),
        "b": -0.01 * np.exp(0.1 * rng.standard_normal(draws)),
    }
    values |= {"sigma": np.full(draws, 0.004), "dof": np.full(draws, 8.0)}
    return posterior_of(adapted, values, ("D", "replay", "source_loss_before"))


def before(seed=1, draws=DRAWS, sigma=0.01, spread=0.02):
    rng = np.random.default_rng(seed)
    values = {
        "E": 1.5 * np.exp(spread * rng.standard_normal(draws)),
        "B": np.full(draws, 1.2),
    }
    values |= {"sigma": np.full(draws, sigma), "dof": np.full(draws, 20.0)}
    return posterior_of(pretrained, values, ("N", "D"))


def runs(**columns):
    table = pd.DataFrame(
        {
            "N": [2e8, 2e8, 1e9, 1e9],
            "D": [1e9, 4e9, 1e9, 4e9],
            "replay": [0.1, 0.5, 0.1, 0.5],
        }
    )
    return table.assign(ptpp=20.0, **columns)


def test_a_draw_of_the_chain_is_the_composition_of_its_draws():
    """Each joint draw gives the loss that its leaves give by hand; every draw of the fit before is used equally often."""
    joint = chain(posterior(), {"source_loss_before": before(draws=1000)}).pieces()
    assert len(joint) == 1
    v = joint[0].values
    assert joint[0].covariates == ("D", "replay", "N", "ptpp")
    x = {c: runs()[c].to_numpy() for c in joint[0].covariates}
    got = np.asarray(jax.vmap(joint[0].log_loss, in_axes=(0, None))(cast(Any, v), x))
    tokens = x["N"] * x["ptpp"]
    s0 = v["source_loss_before:E"][:, None] + 1.2 * (x["N"] * tokens / 1e18) ** -0.1
    s0 = s0 * np.exp(v["source_loss_before:error"])[:, None]
    by_hand = (
        s0
        * v["a"][:, None]
        * (1 + v["b"][:, None] * x["replay"] * np.log1p(x["D"] / 1e9))
    )
    np.testing.assert_allclose(np.exp(got), by_hand, rtol=1e-12)
    counts = np.unique(v["source_loss_before:E"], return_counts=True)[1]
    np.testing.assert_array_equal(counts, np.full(1000, 4))
    assert abs(np.corrcoef(v["a"], v["source_loss_before:E"])[0, 1]) < 0.05


def test_the_interval_is_the_chain_s():
    """Variances of law, checkpoint law and checkpoint error add up; plugging in the mean leaves the last two out."""
    made = chain(posterior(), {"source_loss_before": before()})
    mean = np.exp(before().log_loss(runs().assign(D=lambda t: t.N * t.ptpp)).mean(0))
    plugged = posterior().log_loss(runs(source_loss_before=mean))
    share = 1.5 / mean  # of the checkpoint's loss in E
    want = plugged.var(0) + (0.02 * share) ** 2 + 0.01**2 * 20 / 18
    np.testing.assert_allclose(made.log_loss(runs()).var(0), want, rtol=0.08)
    assert np.all(made.log_loss(runs()).std(0) > 1.5 * plugged.std(0))
    noisy = made.log_loss(runs(), noise=True, seed=3)
    np.testing.assert_allclose(noisy.var(0), want + 0.004**2 * 8 / 6, rtol=0.08)


def test_runs_of_a_checkpoint_share_its_error():
    """Two runs of one checkpoint move together; those of another, or named apart, do not."""
    made = chain(posterior(), {"source_loss_before": before(spread=1e-9)})
    flat = posterior().log_loss(runs(source_loss_before=2.0))
    r = np.corrcoef((made.log_loss(runs()) - flat).T)
    assert r[0, 1] > 0.999
    assert abs(r[0, 2]) < 0.05
    apart = np.corrcoef((made.log_loss(runs(checkpoint=["a", "b", "c", "c"])) - flat).T)
    assert abs(apart[0, 1]) < 0.05
    assert apart[2, 3] > 0.999


@dataclass(frozen=True)
class Fading:
    """`pretrained`, with errors that shrink up to 20B tokens."""

    process: ClassVar = process.Process((), (), process.Fading(0.2, 2e10))

    def __call__(self, draw, x):
        return pretrained(draw, x)


def test_the_error_of_a_checkpoint_of_few_tokens_is_as_large_as_in_its_forecasts():
    (piece,) = before(spread=0.0).pieces()
    fading = Known(replace(piece, log_loss=Fading()))
    made = chain(posterior(), {"source_loss_before": fading})
    few = made.log_loss(runs().assign(ptpp=2.0))[:, 2].var()
    many = made.log_loss(runs())[:, 2].var()
    own = 0.01**2 * 20 / 18  # of 20 degrees of freedom
    assert few - many == pytest.approx((10**0.4 - 1) * own, rel=0.15)


def test_measured_rows_use_what_was_measured():
    """Where the loss before is there it is used, and the fit before does nothing; elsewhere it is forecast."""
    made = chain(posterior(), {"source_loss_before": before()})
    some = runs(source_loss_before=[2.1, np.nan, 2.3, np.nan])
    got = made.log_loss(some)
    measured = [0, 2]
    np.testing.assert_allclose(
        got[:, measured], posterior().log_loss(some.iloc[measured]), rtol=1e-12
    )
    np.testing.assert_allclose(
        got[:, [1, 3]].std(0), made.log_loss(runs())[:, [1, 3]].std(0), rtol=0.05
    )
    known = (
        some.assign(source_loss_before=2.2)
        .drop(columns=["N", "ptpp"])
        .assign(N=1e9, ptpp=np.nan)
    )
    np.testing.assert_allclose(
        made.log_loss(known), posterior().log_loss(known), rtol=1e-12
    )
    new = made.log_loss(known, noise=True, seed=5)
    np.testing.assert_allclose(
        new, posterior().log_loss(known, noise=True, seed=5), rtol=1e-12
    )


def test_mixtures_are_chained_by_part():
    """A posterior of two formulas and a fit before of two make four parts, in proportion and in the posterior's order."""

    def raised(of, by):
        """The same, this much higher."""
        (piece,) = of.pieces()
        return replace(piece, log_loss=lambda d, x: piece.log_loss(d, x) + by)

    half, other = posterior(0, 1000), posterior(7, 3000)
    both = Known(*half.pieces(), raised(other, 0.5))
    low, high = before(1, 500, spread=1e-9, sigma=1e-9), before(2, 500)
    mixed = Known(*low.pieces(), raised(high, 1.0))
    made = chain(both, {"source_loss_before": mixed})
    assert sorted(p.draws for p in made.pieces()) == pytest.approx(
        [500, 500, 1500, 1500], rel=0.1
    )
    x = made.log_loss(runs())[:, 0]
    assert len(x) == 4000
    own = np.r_[np.zeros(1000), np.full(3000, 0.5)]
    assert np.mean(x - own > x.min() + 0.6) == pytest.approx(
        0.5, abs=0.03
    )  # half of each part has the higher checkpoint


def test_the_chain_compiles_once_and_can_be_differentiated():
    """Two chains of the same formulas are equal; their gradient is finite at measured and at empty rows."""
    a, b = (
        chain(posterior(), {"source_loss_before": before()}, seed=s).pieces()[0]
        for s in (0, 1)
    )
    assert a.log_loss == b.log_loss
    assert hash(a.log_loss) == hash(b.log_loss)  # so one compiled program serves both
    draw = {k: jnp.asarray(v[0]) for k, v in a.values.items()}
    x = {
        str(c): jnp.asarray(v)
        for c, v in runs(source_loss_before=[2.0, np.nan, 2.0, np.nan]).items()
    }
    gradient = jax.grad(lambda d: a.log_loss(d, x).sum())(draw)
    assert all(np.isfinite(v) for v in gradient.values())
    assert float(gradient["source_loss_before:E"]) > 0


def test_a_chain_is_forecast_and_checked_like_a_posterior():
    """`forecast` and `check` take it: the interval of the law is inside that of a new run, medians are their own truth."""
    made = chain(posterior(), {"source_loss_before": before()})
    rows = bayeslaw.forecast(made, runs())
    assert (
        (rows["low"] < rows["law_low"]) & (rows["law_low"] < rows["law_high"])
    ).all()
    held = bayeslaw.check(made, runs(loss=rows["median"]))
    assert held.mae_rel < 1e-9


@pytest.mark.parametrize("new_run", [False, True])
def test_a_chain_of_a_known_checkpoint_plans_as_the_measured_one(new_run):
    """Nothing unknown about the checkpoint: the same draws meet the same noise, so the plans agree to the roots' precision.

    With 500 of 4,000 draws: other draws would be another plan, tokens have an sd of 15% from seed to seed.
    """
    sure = {"source_loss_before": before(spread=1e-12, sigma=1e-12)}
    s0 = 1.5 + 1.2 * (1e9 * 2e10 / 1e18) ** -0.1
    asked = {
        "N": 1e9,
        "ptpp": 20,
        "max_target_loss": 0.99 * s0,
        "max_forgetting": 0.05,
        "draws": 500,
    }
    chains, known = (
        (chain(posterior(), sure), chain(posterior(2), sure)),
        {"source_loss_before": s0},
    )
    chained = bayeslaw.plan(*chains, **asked, new_run=new_run, baseline_loss=s0)
    measured = bayeslaw.plan(
        posterior(), posterior(2), **asked, new_run=new_run, covariates=known
    )
    assert chained.feasible
    assert chained.D is not None
    assert measured.D is not None
    np.testing.assert_allclose(chained.D, measured.D, rtol=1e-6)
    assert chained.replay == pytest.approx(measured.replay, abs=1e-9)
    assert [p["probability"] for p in chained.promises] == [
        p["probability"] for p in measured.promises
    ]


def test_a_plan_through_a_chain_takes_the_tokens_of_its_joint_draws():
    """Solved for D by hand, draw by draw: 90% of the joint draws keep the target loss from the plan's tokens on.

    The toy law falls most with pure replay, where it forgets nothing; not to know the checkpoint costs tokens.
    """
    s0 = 1.5 + 1.2 * (1e9 * 2e10 / 1e18) ** -0.1
    made = chain(posterior(), {"source_loss_before": before()})
    v = made.pieces()[0].values
    s = (v["source_loss_before:E"] + 1.2 * (1e9 * 2e10 / 1e18) ** -0.1) * np.exp(
        v["source_loss_before:error"]
    )
    tokens = 1e9 * np.expm1((0.99 * s0 / (s * v["a"]) - 1) / v["b"])
    question = {
        "N": 1e9,
        "ptpp": 20,
        "max_target_loss": 0.99 * s0,
        "max_forgetting": 0.05,
    }
    found = bayeslaw.plan(
        made,
        posterior(2),
        **question,
        new_run=False,
        baseline_loss=s0,
    )
    assert found.replay == pytest.approx(1, abs=1e-6)
    assert found.D is not None
    np.testing.assert_allclose(
        found.D, np.sort(tokens)[int(0.9 * DRAWS) - 1], rtol=1e-5
    )
    known = 1e9 * np.expm1((0.99 / v["a"] - 1) / v["b"])
    assert np.quantile(known, 0.9) < found.D / 3


def test_a_plan_s_target_and_source_share_the_checkpoint():
    """Draws of a checkpoint as covariate of a plan: forgetting is relative to the same checkpoint's loss, draw by draw."""
    drawn = losses_before({"source_loss_before": before(spread=0.2)}, 1e9, 20)
    found = bayeslaw.plan(
        posterior(), posterior(2), N=1e9, ptpp=20, max_target_loss=9.0, max_forgetting=0.05, covariates=drawn, draws=1000,
        baseline_tokens=None,
    )  # fmt: skip
    (forgetting,) = (p for p in found.promises if p["name"] == "forgetting")
    assert forgetting["high"] - forgetting["low"] < 0.06  # 20% of the loss would be .6
    several = losses_before({"source_loss_before": before()}, [1e9, 2e9], 20)[
        "source_loss_before"
    ]
    assert [len(v) for v in several] == [DRAWS, DRAWS]
    assert several[0].mean() > several[1].mean()


def test_a_plan_through_a_chain_takes_the_measured_loss_in_place_of_its_forecast():
    made = chain(posterior(), {"source_loss_before": before(spread=0.2)})
    asked = {"N": 1e9, "ptpp": 20.0, "max_target_loss": 9.0, "max_forgetting": 0.05}
    given = {"covariates": {"source_loss_before": 2.4}, "draws": 300}
    plans = [
        problem_of(one, posterior(2), **asked, **given) for one in (posterior(), made)
    ]
    known, same = (
        np.sort(plan.constraints[0].of_law.log_losses(20.0, 0.3)) for plan in plans
    )
    np.testing.assert_allclose(same, known)


def test_what_cannot_be_chained_is_refused():
    """A column the law does not read, a fit before that reads replay, a table without stage."""
    with pytest.raises(bayeslaw.LawError, match="does not read 'loss_before'"):
        chain(posterior(), {"loss_before": before()})
    with pytest.raises(bayeslaw.LawError, match="reads 'replay'"):
        chain(posterior(), {"source_loss_before": posterior()})
    two = {"source_loss_before": before(), "loss_before": before()}
    with pytest.raises(bayeslaw.PlanError, match=r"and loss_before are forecast.*ptpp"):
        losses_before(two, 1e9, None)
    made = chain(posterior(), {"source_loss_before": before()})
    with pytest.raises(
        bayeslaw.RunTableError,
        match=r"needs column 'ptpp'.*to forecast source_loss_before",
    ):
        made.log_loss(runs().drop(columns="ptpp"))
    with pytest.raises(bayeslaw.RunTableError, match="needs column 'replay'"):
        made.log_loss(runs().drop(columns="replay"))
    with pytest.raises(bayeslaw.RunTableError, match="empty at row 2"):
        made.log_loss(
            runs(source_loss_before=[2.0, 2.0, np.nan, 2.0]).assign(
                ptpp=[np.nan, 5, np.nan, 5]
            )
        )


@pytest.mark.filterwarnings("ignore:column 'source_loss_before'")  # filled
def test_the_table_of_checkpoints():
    """One row per checkpoint, its tokens and its loss; a loss that differs between rows is refused."""
    table = runs(source_loss_before=[2.1, 2.1, 2.0, np.nan], loss=1.9)
    found = checkpoints(table)
    assert found[["N", "D", "ptpp", "loss"]].to_numpy().tolist() == [
        [2e8, 4e9, 20, 2.1],
        [1e9, 2e10, 20, 2.0],
    ]
    seeds = table.assign(
        checkpoint=["a", "a", "b", "c"], source_loss_before=[2.1, 2.1, 2.2, 2.2]
    )
    assert checkpoints(seeds)["checkpoint"].tolist() == ["a", "b", "c"]
    with pytest.raises(
        bayeslaw.RunTableError, match=r"N 2e\+08, ptpp 20 has several values"
    ):
        checkpoints(table.assign(source_loss_before=[2.1, 2.2, 2.0, 2.0]))
    with pytest.raises(bayeslaw.RunTableError, match="lacks column 'loss_before'"):
        checkpoints(table, "loss_before")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Fits of both state laws and of the checkpoints at two stages of a simulated grid, and the runs of the third."""
    here, few = (
        tmp_path_factory.mktemp("chain"),
        {
            "warmup": 200,
            "draws": 200,
            "max_draws": 200,
            "chains": 2,
            "on_failure": "ignore",
        },
    )
    for domain, column in (("source", "source_loss_before"), ("target", "loss_before")):
        # a source may rise, and a table says that it is one
        table = bayeslaw.simulate(f"state-{domain}", seed=1).assign(domain=domain)
        old = table[table["ptpp"] < 100]
        bayeslaw.fit(old[old["N"] < 5e9], f"state-{domain}", **few).save(
            here / f"{domain}.nc"
        )
        bayeslaw.fit(checkpoints(old, column), "chinchilla", **few).save(
            here / f"{column}.nc"
        )
        table[table["ptpp"] > 100].drop(
            columns=["source_loss_before", "loss_before"]
        ).to_csv(here / f"{domain}.csv")
    return here


def test_forecast_from_the_command_line(files):
    """`--before FIT.nc` fills the one loss before that the law reads; its forecast holds most of the runs it never saw."""
    out = run(
        "forecast",
        files / "source.nc",
        files / "source.csv",
        "--before",
        files / "source_loss_before.nc",
        "--json",
    )
    assert out.returncode == 0, out.stderr
    rows = pd.DataFrame(json.loads(out.stdout)["rows"])
    measured = pd.read_csv(files / "source.csv")["loss"]
    assert ((rows["low"] < measured) & (measured < rows["high"])).mean() > 0.9
    assert np.abs(np.log(rows["median"] / measured)).max() < 0.03
    made = chain(
        bayeslaw.Fit.load(files / "source.nc"),
        {"source_loss_before": bayeslaw.Fit.load(files / "source_loss_before.nc")},
    )
    want = bayeslaw.forecast(made, bayeslaw.read_runs(files / "source.csv"))
    np.testing.assert_allclose(rows["high"], want["high"], rtol=1e-9)


def test_plan_from_the_command_line(files):
    """A model that does not exist yet is planned for with `--before`; without it, or with a bare file for two, exit 2."""
    question = [
        "plan", "--target", files / "target.nc", "--source", files / "source.nc", "--N", "8.1B", "--ptpp", "279",
        "--max-target-loss", "1.95", "--max-forgetting", "5%", "--confidence", "0.8", "--json",
    ]  # fmt: skip
    columns = ("source_loss_before", "loss_before")
    both = [part for c in columns for part in ("--before", f"{c}={files / c}.nc")]
    out = run(*question, *both)
    assert out.returncode == 0, out.stderr
    found = json.loads(out.stdout)
    assert found["feasible"]
    assert found["settings"]["baseline"]["forgetting"] == pytest.approx(2.053, rel=0.02)
    bare = run(*question, "--before", files / "loss_before.nc")
    assert bare.returncode == 2
    assert "write NAME=VALUE" in bare.stderr
    odd = run(*question, "--before", f"ptpp={files / 'loss_before.nc'}")
    assert odd.returncode == 2
    assert "the laws read loss_before, source_loss_before" in odd.stderr

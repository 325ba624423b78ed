"""Anchors: which runs are bought, what they are worth, and what is refused."""

import itertools
import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from arviz_base import from_dict
from matplotlib.figure import Figure

from bayeslaw import _anchors_design as design
from bayeslaw import _anchors_study as studied
from bayeslaw import _anchors_summary as summed
from bayeslaw import _plan_example as example
from bayeslaw import plots
from bayeslaw._anchors import Anchors, anchors, appraise
from bayeslaw._anchors_evidence import log_losses, noise_of, rows_of
from bayeslaw._anchors_menu import candidates, menu
from bayeslaw._average import Member
from bayeslaw._catalogue import law
from bayeslaw._discrepancy import training_range
from bayeslaw._errors import LawError, PlanError, RunTableError
from bayeslaw._fit import Fit
from bayeslaw._model import log_loss
from bayeslaw._posterior import Piece
from bayeslaw._simulate import ptpp_grid
from bayeslaw._study import study

SIGMA, DRAWS = 0.005, 4000


class Known:
    """A posterior with given pieces."""

    def __init__(self, *pieces: Piece):
        self._pieces = pieces

    name, warnings = "known", ()

    def pieces(self) -> tuple[Piece, ...]:
        return self._pieces

    def log_loss(self, runs, *, noise=False, seed=0):
        return log_losses(rows_of(self._pieces), runs, "the table")


def _line(draw, x):
    return draw["level"] + draw["slope"] * x["x"]


def _bent(draw, x):
    return draw["level"] + draw["slope"] * x["x"] ** 2


def straight(draws: int = DRAWS, seed: int = 0, log_loss=_line, **leaves: float) -> Known:
    """Log loss linear in x with independent Gaussian level and slope, sds .02 and .01, and Gaussian noise."""
    rng = np.random.default_rng(seed)
    values = {"level": 0.02 * rng.standard_normal(draws), "slope": 0.01 * rng.standard_normal(draws)}
    values |= {k: np.full(draws, v) for k, v in ({"sigma": SIGMA, "dof": 1e9} | leaves).items()}
    return Known(Piece(log_loss, values, ("x",)))


def exact_sd(x, goal, values, sigma=SIGMA):
    """Sd of the goal after measuring at x, by Bayesian linear regression on the draws' covariance."""
    prior = np.cov(np.stack([values["level"], values["slope"]]))
    rows = np.stack([np.ones(len(x)), x], axis=1)
    after = np.linalg.inv(np.linalg.inv(prior) + rows.T @ rows / sigma**2)
    at = np.array([1.0, goal])
    return float(np.sqrt(at @ after @ at))


def table(**columns) -> pd.DataFrame:
    """Candidates with rows numbered from 1."""
    made = pd.DataFrame(columns)
    return made.set_index(pd.RangeIndex(1, len(made) + 1))


GOAL = pd.DataFrame({"x": [3.0]})


# -- gains -----------------------------------------------------------------------------------------------------------


def test_expected_sds_are_those_of_bayesian_linear_regression():
    posterior, offered = straight(), table(x=[0.0, 1.0, 2.0], cost=[1.0, 1.0, 1.0])
    made = anchors(posterior, offered, GOAL, 4.0, least=0.0, checks=0)
    values = posterior.pieces()[0].values
    x = [offered["x"].loc[p["row"]] for p in made.picks]
    assert made.goal_sd_before == pytest.approx(exact_sd([], 3.0, values), rel=1e-6)
    for k, pick in enumerate(made.picks):
        assert pick["goal_sd"] == pytest.approx(exact_sd(x[: k + 1], 3.0, values), rel=1e-6)
    total = sum(p["gain"] for p in made.picks)
    assert total == pytest.approx(made.goal_sd_before**2 - made.goal_sd_after**2, rel=1e-9)


def test_the_importance_weighted_check_agrees_where_the_approximation_is_exact():
    made = anchors(straight(), table(x=[0.0, 1.0, 2.0], cost=1.0), GOAL, 2.0, least=0.0, checks=200)
    assert made.check is not None
    assert made.check["picks"] == 2
    assert made.check["reliable"]
    assert made.check["correction"] == pytest.approx(1.0, abs=0.04)


def test_the_check_shows_where_the_approximation_fails():
    """The goal bends with what is measured: a line leaves most of its variance, weighted draws see that little is left."""

    def bent(draw, x):
        return draw["level"] + x["bend"] * 40 * draw["level"] ** 2

    rng = np.random.default_rng(0)
    values = {"level": 0.02 * rng.standard_normal(DRAWS), "sigma": np.full(DRAWS, 1e-3), "dof": np.full(DRAWS, 1e9)}
    made = anchors(
        Known(Piece(bent, values, ("bend",))), table(bend=[0.0], cost=1.0), pd.DataFrame({"bend": [1.0]}), 1.0,
        replicates=1, checks=100,
    )  # fmt: skip
    assert made.check is not None
    assert made.check["reliable"]
    assert made.goal_sd_after == pytest.approx(40 * 0.02**2 * np.sqrt(2), rel=0.1)
    assert made.check["correction"] < 0.2


def test_information_is_the_mutual_information_of_two_gaussians():
    posterior = straight()
    offered = table(x=[1.0], cost=1.0)
    made = anchors(posterior, offered, GOAL, 1.0, gain="information", replicates=1, least=0.0, checks=0)
    draws = posterior.pieces()[0].values
    seen, goal = (draws["level"] + x * draws["slope"] for x in (1.0, 3.0))
    covariance = np.cov(seen, goal) + SIGMA**2 * np.eye(2)
    expected = -0.5 * np.log(1 - covariance[0, 1] ** 2 / (covariance[0, 0] * covariance[1, 1]))
    assert made.picks[0]["gain"] == pytest.approx(expected, rel=1e-4)
    assert made.unit.startswith("nats")


def test_a_d_optimal_list_takes_the_ends_and_one_for_the_goal_does_not():
    offered = table(x=[-4.0, 0.0, 3.0], cost=1.0)
    everything = anchors(straight(), offered, GOAL, 2.0, gain="parameters", replicates=1, least=0.0, checks=0)
    aimed = anchors(straight(), offered, GOAL, 2.0, replicates=2, least=0.0, checks=0)
    assert {p["row"] for p in everything.picks} == {1, 3}
    assert [p["row"] for p in aimed.picks] == [3, 3]
    assert aimed.goal_sd_after < everything.goal_sd_after


def test_the_saving_of_a_plan_is_what_simulating_outcomes_gives():
    """One promise, linear cost: cost * E exp(price (z (s' - s) + shift of the mean)), outcomes drawn."""
    rows, rest, price, z = np.array([[0.01]]), np.array([0.004**2]), np.array([60.0]), np.array([1.5])
    goal = design.Saving(rows, rest, price, z, 1e21)
    precision = np.array([[5.0]])
    after = 0.01**2 / 5.0
    shift = np.sqrt(0.01**2 - after) * np.random.default_rng(0).standard_normal(400_000)
    narrower = np.sqrt(after + rest[0]) - np.sqrt(0.01**2 + rest[0])
    simulated = 1e21 * (1 - np.exp(60.0 * (1.5 * narrower + shift)).mean())
    assert goal.value(precision) == pytest.approx(simulated, rel=0.02)
    assert goal.value(np.eye(1)) == 0.0


def test_batches_of_draws_give_the_monte_carlo_error_of_gains():
    """Over forty posteriors that differ by their draws alone, gains spread as their stated errors say."""
    offered = table(x=[1.0], cost=1.0)
    first = [
        anchors(straight(1000, s), offered, GOAL, 1.0, replicates=1, least=0.0, checks=0).picks[0] for s in range(40)
    ]
    spread = np.std([p["gain"] for p in first], ddof=1)
    assert np.mean([p["gain_error"] for p in first]) == pytest.approx(spread, rel=0.4)


# -- the search ------------------------------------------------------------------------------------------------------


def random_problem(seed: int):
    """A few runs of a few stops, some checkpoints to be paid for, a budget that buys some, and one of four goals."""
    rng = np.random.default_rng(seed)
    runs, coordinates, checkpoints = (int(rng.integers(*r)) for r in ((4, 8), (2, 7), (1, 4)))
    stops = int(rng.integers(1, 4 if runs < 6 else 3))
    loadings = rng.standard_normal((runs, stops, coordinates)) * rng.lognormal(0, 0.7, (runs, 1, 1))
    cost = np.cumsum(rng.lognormal(0, 1.2, (runs, 1)) * rng.lognormal(0, 0.8, (runs, stops)), axis=1)
    extra = np.where(rng.random(checkpoints) < 0.5, 0, rng.lognormal(0.5, 1, checkpoints))
    noise = np.tile(rng.choice([0.03, 0.3, 1.0]) * np.eye(stops), (runs, 1, 1))
    offer = design.Offer(loadings, noise, 1, cost, rng.integers(0, checkpoints, runs), extra)
    rows = rng.standard_normal((2, coordinates))
    some = np.ones(2)
    goals = [design.Variance(rows), design.Information(rows.T @ rows / 0.3), design.Information(None)]
    goal = [*goals, design.Saving(0.3 * rows, 0.2 * some, some, 1.5 * some, 100.0)][seed % 4]
    least = (cost[:, 0] + extra[offer.checkpoint]).min()
    budget = least + (cost[:, -1].sum() + extra.sum() - least) * rng.uniform(0.05, 0.6)
    return offer, goal, design.Limits(budget, 1, 99)


def exhaustive(offer, goal, limits) -> float:
    """The best gain of all affordable sets."""
    runs, stops = offer.cost.shape
    sets = ([(r, k) for r, k in enumerate(c) if k >= 0] for c in itertools.product(range(-1, stops), repeat=runs))
    affordable = (s for s in sets if offer.price(s) <= limits.budget * (1 + 1e-12))
    return max(goal.value(design.precision_of(offer, s)) for s in affordable)


@pytest.mark.parametrize("seed", range(16))
def test_the_search_finds_at_least_95_percent_of_the_best_gain(seed):
    offer, goal, limits = random_problem(seed)
    found, best = design.choose(offer, goal, limits), exhaustive(offer, goal, limits)
    assert offer.price(found) <= limits.budget * (1 + 1e-9)
    assert goal.value(design.precision_of(offer, found)) >= 0.95 * best


@pytest.mark.parametrize("seed", range(4))
def test_gains_on_offer_are_differences_of_values(seed):
    """Batched gains of every run up to every stop against the value of the set with it."""
    offer, goal, _ = random_problem(seed)
    had = design.precision_of(offer, [(0, 0), (2, 0)])
    gains = goal.gains(had, offer)
    for run, stop in itertools.product(*map(range, offer.cost.shape)):
        more = goal.value(had + offer.information((run, stop))) - goal.value(had)
        assert gains[run, stop] == pytest.approx(more, rel=1e-6, abs=1e-9)


def test_principal_coordinates_reproduce_covariances():
    rng = np.random.default_rng(0)
    columns = rng.standard_normal((500, 5)) @ rng.standard_normal((5, 80)) + 3.0
    draws, loadings = design.principal(columns, 1e-9)
    assert loadings.shape[1] < 80
    assert np.allclose(loadings @ loadings.T, np.cov(columns.T), atol=1e-8)
    assert np.allclose(draws.T @ draws, np.eye(draws.shape[1]), atol=1e-10)


# -- runs, checkpoints, replicates -----------------------------------------------------------------------------------


def test_points_along_a_run_cost_the_run_and_bring_those_before():
    offered = table(x=[0.0, 1.0, 2.0, 2.5], D=[1.0, 2.0, 4.0, 1.0], run=["a", "a", "a", "b"], cost=[1.0, 2.0, 4.0, 9.0])
    made = anchors(straight(), offered, GOAL, 4.0, replicates=1, least=0.0, checks=0, run_length=0)
    (pick,) = made.picks
    assert (pick["row"], pick["rows"], pick["run"]) == (3, [1, 2, 3], "a")
    assert made.spent == pick["cost"] == 4.0
    assert list(made.runs(offered)["x"]) == [0.0, 1.0, 2.0]


def test_points_of_one_run_that_err_alike_are_worth_less():
    runs = table(x=3.0, D=[1e9, 1.1e9, 1.2e9, 1.3e9], run="a")
    _, apart = appraise(straight(), runs, GOAL, run_length=0)
    _, alike = appraise(straight(), runs, GOAL, run_length=5.0)
    _, once = appraise(straight(), runs.tail(1), GOAL)
    assert apart < alike < once


def test_a_checkpoint_is_paid_once():
    offered = table(
        x=[0.0, 3.0, 1.5], cost=1.0, checkpoint=["new", "new", "old"], checkpoint_cost=[5.0, 5.0, 0.0]
    )  # fmt: skip
    made = anchors(straight(), offered, GOAL, 8.0, replicates=2, least=0.0, checks=0)
    used = {offered["checkpoint"].loc[p["row"]] for p in made.picks}
    assert "new" in used
    assert made.spent == pytest.approx(5.0 + len(made.picks))
    assert sorted(p["cost"] for p in made.picks)[-1] == 6.0
    cheap = anchors(straight(), offered, GOAL, 4.0, replicates=2, least=0.0, checks=0)
    assert {p["row"] for p in cheap.picks} == {3}


def test_twenty_runs_of_one_checkpoint_are_not_twenty():
    """A shared effect limits what one checkpoint can tell: never below its scale, and other checkpoints are bought."""
    tau = 0.004
    posterior = straight(tau_checkpoint=tau, sigma=np.hypot(SIGMA, tau))
    offered = table(x=3.0, cost=[1.0, 1.1, 1.2], checkpoint=["a", "b", "c"])
    only = anchors(posterior, offered.head(1), GOAL, 20.0, replicates=20, least=0.0, checks=100)
    all_ = anchors(posterior, offered, GOAL, 20.0, replicates=20, least=0.0, checks=0)
    free = anchors(straight(), offered, GOAL, 20.0, replicates=20, least=0.0, checks=0)
    assert len(only.picks) > 3
    assert only.goal_sd_after > 0.98 * tau
    assert only.check is not None
    assert only.check["correction"] == pytest.approx(1.0, abs=0.05)
    assert {p["row"] for p in all_.picks} == {1, 2, 3}
    assert {p["row"] for p in free.picks} == {1}


def test_a_run_of_the_goals_own_checkpoint_measures_its_effect_too():
    posterior = straight(tau_checkpoint=0.01, sigma=np.hypot(SIGMA, 0.01))
    offered = table(x=3.0, N=[1e9, 2e9], ptpp=[279.0, 279.0], cost=1.0)
    made = anchors(posterior, offered, GOAL.assign(N=2e9, ptpp=279.0), 3.0, replicates=3, least=0.0, checks=100)
    assert {p["row"] for p in made.picks} == {2}
    assert made.goal_sd_after < 0.005
    assert made.check is not None
    assert made.check["correction"] == pytest.approx(1.0, abs=0.06)


@pytest.mark.parametrize("kind", ["fit", "average"])
def test_a_fit_and_an_average_tell_what_their_rows_shared(kind):
    """Else twenty runs of one checkpoint would count as twenty."""
    chinchilla, some = law("chinchilla"), np.linspace(0.001, 0.002, 40)
    values = {n: np.ones(40) for n in chinchilla.priors}
    values |= {"sigma": 3 * some, "dof": np.full(40, 5.0), "tau_checkpoint": 4 * some, "run_length": np.full(40, 0.2)}
    if kind == "fit":
        (piece,) = Fit(chinchilla, from_dict({"posterior": {k: v[None] for k, v in values.items()}})).pieces()
    else:
        known = training_range({"N": np.array([1e8, 1e9]), "D": np.array([1e9, 1e10])})
        piece = Member(chinchilla, 1.0, known, values | {"drift": np.zeros((40, 4))}).piece
    noise = noise_of(rows_of([piece]))
    assert noise.checkpoint == pytest.approx(4 * some)
    assert noise.sigma == pytest.approx(3 * some)
    assert noise.length == pytest.approx(0.2)
    assert piece.values["sigma"] == pytest.approx(5 * some)


def test_replicates_are_allowed_and_counted():
    made = anchors(straight(), table(x=[3.0, 0.0], cost=1.0), GOAL, 10.0, replicates=3, least=0.0, checks=0)
    again = [p for p in made.picks if p["row"] == 1]
    assert [p["replicate"] for p in again] == [1, 2, 3]
    assert again[0]["gain"] > again[1]["gain"] > again[2]["gain"]
    names = made.runs(table(x=[3.0, 0.0], cost=1.0))["run"]
    assert names.is_unique


def test_runs_that_tell_laws_apart_are_bought():
    """Two laws agree at x = 1, where each could be refined; the goal is where they part, and so is the run bought."""
    rng = np.random.default_rng(0)
    half = DRAWS // 2
    values = {"level": np.full(half, 0.5), "slope": 0.1 + 1e-3 * rng.standard_normal(half)}
    values |= {"sigma": np.full(half, SIGMA), "dof": np.full(half, 30.0)}
    pieces = Piece(_line, values, ("x",)), Piece(_bent, values, ("x",))
    offered = table(x=[1.0, 2.0], cost=[1.0, 20.0])
    average = anchors(Known(*pieces), offered, GOAL, 20.0, replicates=1, least=0.0, checks=60)
    one = anchors(Known(pieces[0]), offered, GOAL, 20.0, replicates=1, least=0.0, checks=0)
    assert [p["row"] for p in average.picks] == [2]
    assert average.goal_sd_before > 0.25  # the laws are .6 apart there
    assert average.goal_sd_after < 0.1 * average.goal_sd_before
    assert one.goal_sd_before < 0.01
    assert average.check is not None
    assert average.check["goal_sd"] < 0.1 * average.goal_sd_before


# -- when to stop ----------------------------------------------------------------------------------------------------


def test_the_list_ends_where_a_run_gains_too_little_for_its_cost():
    offered = table(x=[3.0, 0.0], cost=[1.0, 1.0])
    long = anchors(straight(), offered, GOAL, 30.0, replicates=30, least=0.0, checks=0)
    short = anchors(straight(), offered, GOAL, 30.0, replicates=30, least=0.05, checks=0)
    assert 0 < len(short.picks) < len(long.picks)
    assert "less for its cost" in short.stop
    assert long.stop == "nothing else fits the budget"
    few = anchors(straight(), offered, GOAL, 30.0, replicates=2, least=0.0, checks=0)
    assert few.stop == "what fits the rest of the budget has been bought as often as allowed (replicates: 2)"
    assert few.table(offered).columns[-2] == "gain (squared log loss)"
    rate = 0.05 * long.goal_sd_before**2 / 30.0
    assert short.picks[-1]["gain"] >= rate > long.picks[len(short.picks)]["gain"]


def test_nothing_is_bought_for_gains_within_monte_carlo_error():
    """The candidate varies apart from the goal; what the draws show of a link between them is chance."""

    def apart(draw, x):
        return jnp.where(x["x"] > 2, draw["level"], draw["slope"])

    made = anchors(straight(log_loss=apart), table(x=[0.0], cost=1.0), GOAL, 1.0, least=0.0)
    assert made.picks == []
    assert "Monte Carlo" in made.stop
    assert made.sentence().startswith("Buy nothing")
    assert made.goal_sd_after == made.goal_sd_before


def test_a_batch_holds_as_many_runs_as_asked_for():
    made = anchors(straight(), table(x=[3.0, 0.0, 1.0], cost=1.0), GOAL, 9.0, max_picks=2, least=0.0, checks=0)
    assert len(made.picks) == 2
    assert made.stop == "the batch is full"


def test_same_seed_same_numbers_and_a_record_that_survives_json():
    ask = partial(anchors, straight(), table(x=[0.0, 2.0], cost=1.0), GOAL, 3.0, least=0.0, seed=5)
    made = ask()
    assert made == ask()
    assert Anchors.from_dict(json.loads(json.dumps(made.to_dict(), allow_nan=False))) == made
    with pytest.raises(PlanError, match="not a saved list"):
        Anchors.from_dict({"picks": []})


# -- candidates ------------------------------------------------------------------------------------------------------


def test_generated_candidates_are_priced_by_run_and_by_checkpoint():
    grid = ptpp_grid().query("N < 1e9 and ptpp < 100")
    made = candidates(grid, ptpp=(15, 279), replay=(0.2,), atpp=(1, 10))
    assert len(made) == 2 * 2 * 2
    assert made["run"].nunique() == 4
    row = made.query("N == 241e6 and ptpp == 279 and D == 2.41e9").iloc[0]
    assert row["cost"] == pytest.approx(6 * 241e6 * 2.41e9)
    assert row["checkpoint_cost"] == pytest.approx(6 * 241e6 * 279 * 241e6)
    known = made.query("ptpp == 15")
    assert (known["checkpoint_cost"] == 0).all()
    assert set(known["checkpoint"]) == {"241M-15", "517M-15"}
    assert known["loss_before"].notna().all()
    assert made.query("ptpp == 279")["loss_before"].isna().all()
    apart = candidates(grid, replay=(0.2,), atpp=(1, 10), along_run=False)
    assert apart["run"].is_unique


def test_rows_without_a_run_are_runs_of_their_own_priced_at_6_n_d():
    offered = menu(table(N=[1e9, 1e9], D=[1e9, 2e9]))
    assert offered.cost.tolist() == [[6e18], [12e18]]


# -- the plan --------------------------------------------------------------------------------------------------------


def spread(name: str, parameters: dict, share: float, draws: int, seed: int) -> Known:
    """A posterior spread log-normally around known parameters."""
    rng = np.random.default_rng(seed)
    known = law(name).from_paper(parameters)
    values = {k: float(v) * np.exp(share * rng.standard_normal(draws)) for k, v in known.items()}
    values |= {"sigma": np.full(draws, 0.002), "dof": np.full(draws, 8.0)}
    return Known(Piece(partial(_loss_of, name), values, law(name).covariates))


def _loss_of(name, draw, covariates):
    return log_loss(law(name), covariates, draw)


@pytest.fixture(scope="module")
def plan_posteriors():
    made = [(example.TARGET_LAW, example.TARGET), (example.SOURCE_LAW, example.SOURCE)]
    return [spread(n, p, 0.004, 1000, s) for s, (n, p) in enumerate(made)]


QUESTION = example.QUESTION | {"max_target_loss": 1.83, "max_forgetting": 0.03, "draws": 1000}


def test_runs_are_bought_for_what_they_save_the_plan(plan_posteriors):
    """The expected saving is that of plans made again under simulated outcomes, and a run is bought only if it pays."""
    target, source = plan_posteriors
    offered = candidates(ptpp_grid().query("N < 1e9"), ptpp=(279,), atpp=(1, 5, 20))
    made = anchors(target, offered, QUESTION, 2e19, source=source, checks=24, max_picks=4)
    assert made.gain == "plan"
    assert made.plan is not None
    assert made.check is not None
    assert all(p["gain"] >= p["cost"] for p in made.picks)
    assert made.plan["flops_before"] - made.plan["flops_after"] == pytest.approx(sum(p["gain"] for p in made.picks))
    again, error = made.check["flops"], made.check["flops_error"]
    assert made.check["share_with_a_plan"] == 1.0
    assert again < made.plan["flops_before"]
    assert abs(again - made.plan["flops_after"]) < 3 * error + 0.1 * (made.plan["flops_before"] - again)


ILL_POSED = {
    "no plan reaches the confidence yet": QUESTION | {"max_target_loss": 1.2},
    "kept without adapting at all": QUESTION | {"max_target_loss": 50.0, "max_forgetting": 9.0},
    "needs ptpp, max_target_loss, max_forgetting": {"N": 8.1e9},
    "'budgte' is not part": QUESTION | {"budgte": 1.0},
}


def test_a_checkpoint_without_a_loss_is_named():
    """A new checkpoint has no measured loss for a law that starts from it."""
    runs = pd.DataFrame({"N": 1e8, "D": [1e9, 2e9, 4e9], "ptpp": 20.0, "replay": 0.1, "loss_before": 3.0})
    offered = candidates(runs, N=[1e8, 2e8], atpp=[10.0])
    names = ("loss_before",)
    posterior = Known(
        Piece(lambda draw, x: draw["level"] + jnp.log(x["loss_before"]), {"level": np.linspace(-0.1, 0.1, 64)}, names)
    )
    with pytest.raises(
        RunTableError, match=r"column 'loss_before': empty .*checkpoint \(N 200M, ptpp 20\) does not exist"
    ):
        anchors(posterior, offered, runs.head(1), 1e20, checks=0)


@pytest.mark.parametrize("message", ILL_POSED)
def test_a_plan_that_cannot_be_improved_or_posed_is_refused(plan_posteriors, message):
    target, source = plan_posteriors
    offered = candidates(ptpp_grid().query("N < 1e9"), ptpp=(279,), atpp=(1,))
    with pytest.raises(PlanError, match=message):
        anchors(target, offered, ILL_POSED[message], 1e19, source=source)


# -- refused ---------------------------------------------------------------------------------------------------------

GOOD = {"x": [0.0, 1.0], "cost": [1.0, 2.0]}
BAD = {
    "negative cost": (GOOD | {"cost": [1.0, -2.0]}, {}, RunTableError, "row 2, column 'cost': negative"),
    "missing cost": (GOOD | {"cost": [np.nan, 2.0]}, {}, RunTableError, "row 1, column 'cost': missing"),
    "cost in words": (GOOD | {"cost": ["a lot", "2"]}, {}, RunTableError, "row 1, column 'cost': missing, or not a number"),
    "no cost at all": ({"x": [0.0]}, {}, RunTableError, "need a column 'cost', or N and D"),
    "cost falls along a run": (GOOD | {"cost": [2.0, 1.0], "run": "a", "D": [1.0, 2.0]}, {}, RunTableError, "less than at the point before"),
    "two checkpoints in a run": (GOOD | {"run": "a", "checkpoint": ["u", "v"]}, {}, RunTableError, "two checkpoints"),
    "checkpoint cost missing": (GOOD | {"checkpoint_cost": [0.0, np.nan]}, {}, RunTableError, "row 2, column 'checkpoint_cost'"),
    "no covariate": ({"y": [0.0], "cost": [1.0]}, {}, RunTableError, "candidates lacks column 'x'"),
    "empty covariate": (GOOD | {"x": [0.0, np.nan]}, {}, RunTableError, "row 2, column 'x': empty"),
    "no rows": ({"x": [], "cost": []}, {}, RunTableError, "no rows"),
    "small budget": (GOOD, {"budget": 0.5}, PlanError, "budget 0.5 is below the cheapest candidate, row 1 at 1"),
    "budget is no number": (GOOD, {"budget": -1.0}, PlanError, "budget must be a positive number"),
    "unknown gain": (GOOD, {"gain": "money"}, PlanError, "gain must be one of variance"),
    "plan without a plan": (GOOD, {"gain": "plan"}, PlanError, "needs a plan as the goal"),
    "plan without a source": (GOOD, {"goal": {"N": 1e9}}, PlanError, "needs the source's posterior"),
    "goal without covariate": (GOOD, {"goal": pd.DataFrame({"y": [1.0]})}, RunTableError, "the goal's table lacks column 'x'"),
    "goal without rows": (GOOD, {"goal": pd.DataFrame({"x": []})}, RunTableError, "no rows"),
    "no replicate": (GOOD, {"replicates": 0}, PlanError, "replicates must be a whole number of at least 1"),
    "half a pick": (GOOD, {"max_picks": 1.5}, PlanError, "max_picks must be a whole number"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_in_one_line(case):
    columns, changed, kind, message = BAD[case]
    asked = {"goal": GOAL, "budget": 5.0} | changed
    with pytest.raises(kind, match=message) as raised:
        anchors(straight(100), table(**columns), asked.pop("goal"), asked.pop("budget"), **asked)
    assert "\n" not in str(raised.value)


def test_rows_of_one_name_are_refused():
    twice = pd.concat([table(x=[0.0], cost=1.0)] * 2)
    with pytest.raises(RunTableError, match="two candidates are called row 1"):
        anchors(straight(100), twice, GOAL, 5.0)


@pytest.mark.parametrize("given", [{"atpp": (0, 1)}, {"N": ()}, {"replay": (0.2, 1.5)}])
def test_levels_no_run_can_have_are_refused(given):
    with pytest.raises(RunTableError, match="not a level a run can have"):
        candidates(ptpp_grid(), **given)


# -- studies ---------------------------------------------------------------------------------------------------------

JOBS = [{"law": name, "seed": seed} for seed in range(2) for name in ("a", "b")]


class Task:
    """Two rows a job; interrupted at one job, if asked to."""

    def __init__(self, stop: dict | None = None):
        self.stop, self.done = stop, []

    def __call__(self, law: str, seed: int) -> list[dict]:
        if {"law": law, "seed": seed} == self.stop:
            raise KeyboardInterrupt
        self.done.append((law, seed))
        return [{"list": name, "width": seed + 0.1 * len(name)} for name in ("x", "xx")]


def test_an_interrupted_study_goes_on_where_it_was(tmp_path):
    path, first, second = tmp_path / "rows.csv", Task(stop=JOBS[2]), Task()
    with pytest.raises(KeyboardInterrupt):
        study(first, JOBS, path)
    assert len(pd.read_csv(path)) == 4
    seen = []
    rows = study(second, JOBS, path, progress=lambda done, total: seen.append((done, total)))
    assert second.done == [("a", 1), ("b", 1)]
    assert seen == [(2, 4), (3, 4), (4, 4)]
    assert rows[["law", "seed"]].drop_duplicates().to_dict("records") == JOBS
    pd.testing.assert_frame_equal(rows, study(Task(stop=JOBS[0]), JOBS, path))


def test_a_study_on_an_executor_has_the_same_rows(tmp_path):
    with ThreadPoolExecutor(2) as executor:
        spread = study(Task(), JOBS, tmp_path / "rows.csv", executor=executor)
    pd.testing.assert_frame_equal(spread, study(Task(), JOBS))


def test_rows_of_another_study_are_refused(tmp_path):
    pd.DataFrame({"law": ["a"]}).to_csv(tmp_path / "other.csv", index=False)
    with pytest.raises(RunTableError, match="lacks column 'seed'"):
        study(Task(), JOBS, tmp_path / "other.csv")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"measured": "twice"}, "measured must be one of once, along, trajectories"),
        ({"menu": "all"}, "menu must be one of"),
        ({"laws": ["state-target"]}, "reads more than N, D, replay and ptpp"),
        ({"seeds": []}, "at least one law, one seed"),
        ({"lists": ["best"]}, "lists are of none, paper, chosen"),
    ],
)
def test_a_study_that_cannot_be_made_is_refused(asked, message):
    with pytest.raises(LawError, match=message):
        studied.anchors_study(**asked)


def test_the_paper_s_twenty_anchors_cost_what_their_tokens_cost():
    """6 N times 117.75 tokens per parameter less the dearest 20; as points of three runs, 20 + 20 + 10."""
    once, along = (studied.paper_runs(m) for m in ("once", "along"))
    assert len(once) == len(along) == 20
    assert studied.price(once) == pytest.approx(6 * 241e6**2 * (3 * 39.25 - 20))
    assert studied.price(along) == pytest.approx(6 * 241e6**2 * (20 + 20 + 10))
    assert studied.price(studied.paper_runs("trajectories")) == studied.price(once)
    runs_on_offer = [studied.on_offer("grid", m)["run"].nunique() for m in ("once", "along", "trajectories")]
    assert runs_on_offer == [189, 27, 27]


def test_noise_of_a_world_is_as_stated():
    """Checkpoints keep their effects over streams; points of one run err alike as exp(-gap / length)."""
    runs = pd.DataFrame({"N": 1e9, "ptpp": 15.0, "replay": 0.1, "run": np.repeat(np.arange(4000), 2)})
    runs["D"] = np.tile([1e9, np.exp(0.5) * 1e9], 4000)
    world = studied.World("ptpp-floor", 0, 0.0, 0.003)
    miss = [np.log(world.measured(runs, k)["loss"]) - world.truth(runs) for k in (0, 1)]
    effect = miss[0].mean()
    assert effect == pytest.approx(miss[1].mean(), abs=4 * studied.NOISE / np.sqrt(4000))
    pairs = miss[0].to_numpy().reshape(-1, 2)
    assert np.corrcoef(pairs.T)[0, 1] == pytest.approx(np.exp(-1), abs=0.05)
    assert pairs.std() == pytest.approx(studied.NOISE, rel=0.05)
    alone = studied.World("ptpp-floor", 0, 0.0, 0.0).measured(runs, 0)
    free = (np.log(alone["loss"]) - world.truth(runs)).to_numpy().reshape(-1, 2)
    assert abs(np.corrcoef(free.T)[0, 1]) < 0.06


def test_worlds_have_parameters_of_their_own():
    worlds = [studied.World("ptpp-gate", seed, 0.15, 0.0) for seed in range(400)]
    moved = [{k: np.log(v[0]) for k, v in w.known(1).values.items()} for w in worlds]
    plausible = studied.World("ptpp-gate", 0, 0.0, 0.0).known(1).values
    for name in ("alpha", "beta"):
        log = np.array([m[name] for m in moved]) - np.log(plausible[name][0])
        assert abs(log.mean()) < 0.03
        assert log.std() == pytest.approx(0.15, rel=0.15)
    assert max(np.exp(m["lam"]) for m in moved) <= 0.95


def test_a_summary_counts_worlds_and_compares_reductions():
    paper = {"list": "paper", "share": 1.0, "rmse": 0.2, "width": 0.2, "rmse_new": 0.3, "width_new": 0.3}
    told = {"sd_before": 1.0, "sd_expected": 0.5, "sd": 0.6}
    ours = paper | {"list": "chosen", "width": 0.1, "sd_before": 1.0, "sd_expected": 0.25, "sd": 0.3}
    rows = pd.DataFrame(
        [
            {"law": "a", "seed": s, **row}
            for s in range(4)
            for row in (paper | told, ours | {"rmse": 0.1 if s else 0.4, "rmse_new": 0.1})
        ]
    )
    won = summed.wins(rows).mean()
    assert won["rmse"] == won["both"] == 0.75
    assert won["width"] == 1.0
    fit = summed.calibration(rows)
    assert fit["correlation"] == pytest.approx(1.0)
    assert fit["slope"] == pytest.approx((0.7 - 0.4) / (0.75 - 0.5))


def test_design_curves_show_means_over_worlds():
    """A point for each cost, at the mean in percent; the star is the paper's grid."""
    lists = {("none", 0.0): 0.3, ("paper", 1.0): 0.2, ("chosen", 0.5): 0.15, ("chosen", 1.0): 0.1}
    rows = pd.DataFrame(
        [{"list": n, "share": s, "width": w + 0.01 * k, "law": "a"} for (n, s), w in lists.items() for k in (-1, 1)]
    )
    ax = Figure().subplots()
    assert plots.design_curves(ax, rows, measure="width") is ax
    drawn = dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    assert set(drawn) == {"nothing bought", "chosen", "the paper's grid"}
    curve = drawn["chosen"].lines[0].get_xydata()
    assert curve == pytest.approx(np.array([[0.5, 15.0], [1.0, 10.0]]))
    assert drawn["the paper's grid"].get_xydata() == pytest.approx(np.array([[1.0, 20.0]]))


def test_a_small_study_buys_within_its_budget_and_foretells_what_comes(monkeypatch, tmp_path):
    """One world of Form 1: sds realised are those expected within a fifth, at most half the cost is spent."""
    monkeypatch.setattr(studied, "LISTS", {"none": (0.0,), "paper": (1.0,), "chosen": (0.5,)})
    rows = studied.anchors_study(
        tmp_path / "a.csv",
        laws=["ptpp-floor"],
        seeds=[3],
        lists=list(studied.LISTS),
        measured="along",
        menu="grid",
        plan=True,
    ).set_index("list")
    assert rows.loc["chosen", "cost"] <= 0.5
    assert rows.loc["paper", "cost"] == pytest.approx(1.0)
    told = rows.loc[["paper", "chosen"]]
    assert told["sd"].to_numpy() == pytest.approx(told["sd_expected"].to_numpy(), rel=0.2)
    assert (told["sd"] < 0.5 * told["sd_before"]).all()
    assert told["sd_before"].to_numpy() == pytest.approx(rows.loc["none", "sd"], rel=0.05)
    assert told["plan_cost"].to_numpy() == pytest.approx(1.0, abs=0.25)
    assert rows["plan_kept"].between(0.5, 1.0).all()
    text = summed.markdown(rows.reset_index().assign(law="ptpp-floor"))
    assert "| chosen 0.5 | 1 | 0." in text

"""Runs bought batch by batch: from nothing to an answer, and the same if broken off."""

import warnings

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw import LawError, PlanError, RunTableError
from bayeslaw._designs.evidence import covariance, less_drift
from bayeslaw._posteriors.draws import all_draws
from bayeslaw._posteriors.repetition import repeating
from known import saved
from known.pool import pool

LAWS = ["chinchilla"]
BUDGET = 2e20


@pytest.fixture(scope="module")
def measured_pool():
    """A measured pool of a separable law, .3% of noise, and a goal ten times as dear."""
    runs = pool()
    runs["cost"] = 6 * runs["N"] * runs["D"]
    offered, goal = (runs[runs["split"] == part] for part in ("train", "test"))
    return offered.set_index(pd.RangeIndex(100, 136)), goal.reset_index(drop=True)


@pytest.fixture(scope="module")
def sequence(measured_pool):
    """Every batch of a sequence, until it stops."""
    offered, goal = measured_pool
    return buy_all(bayeslaw.next_runs(offered, goal, BUDGET, laws=LAWS), offered)


def buy_all(first, offered, losses=("loss",)):
    batches = [first]
    while not batches[-1].stop:
        now = batches[-1]
        measured = offered.loc[now.runs["row"], [*losses]].reset_index(drop=True)
        batches.append(now.update(now.runs.assign(**measured)))
        assert len(batches) < 10
    return batches


def test_the_first_batch_is_what_priors_choose_for_a_fifth_of_the_budget(sequence):
    first = sequence[0]
    assert first.posterior.name == "prior of chinchilla"
    assert first.spent == 0
    assert first.runs["cost"].sum() <= 0.2 * BUDGET
    # enough to fit five values of the law and two rows more
    assert len(first.runs) >= len(bayeslaw.law("chinchilla").priors) + 2


def test_a_fifth_of_the_budget_also_pays_for_the_checkpoints(measured_pool):
    """Of the runs that priors choose, each size once."""
    offered, goal = measured_pool
    names = offered["N"].map("{:.3g}".format)
    offered = offered.assign(checkpoint=names, checkpoint_cost=6e18)
    first = bayeslaw.next_runs(offered, goal, BUDGET, laws=LAWS).runs
    bought = offered.loc[first["row"]]
    checkpoints = 6e18 * bought["checkpoint"].nunique()
    assert first["cost"].sum() + checkpoints <= 0.2 * BUDGET


def test_a_sequence_spends_its_budget_and_learns(sequence, measured_pool):
    offered, goal = measured_pool
    last = sequence[-1]
    rows = last.campaign.bought["row"]
    assert rows.is_unique
    assert last.spent == pytest.approx(offered["cost"].loc[rows].sum())
    assert last.spent <= BUDGET
    assert last.spent >= 0.5 * BUDGET
    sds = [batch.goal_sd for batch in sequence]
    assert sds[-1] < 0.1 * sds[0]
    draws = last.posterior.log_loss(goal, noise=True)
    low, high = np.quantile(draws, [0.005, 0.995], axis=0)
    truth = np.log(goal["loss"])
    assert ((low <= truth) & (truth <= high)).all()


def test_a_smaller_budget_than_was_spent_says_so(sequence, measured_pool):
    offered, goal = measured_pool
    bought = sequence[1].campaign.bought
    short = bayeslaw.next_runs(offered, goal, 1e18, laws=LAWS, measured=bought)
    assert short.stop.startswith("what was measured cost")
    assert short.runs.empty


def test_nothing_is_bought_that_costs_a_trifle_of_the_budget(sequence):
    cheapest = min(batch.runs["cost"].min() for batch in sequence[:-1])
    assert cheapest >= 2e-3 * BUDGET


def test_broken_off_anywhere_a_sequence_ends_as_it_would_have(sequence, measured_pool):
    offered, goal = measured_pool
    for batch in sequence[1:]:
        again = bayeslaw.next_runs(
            offered, goal, BUDGET, laws=LAWS, measured=batch.campaign.bought
        )
        pd.testing.assert_frame_equal(again.runs, batch.runs)
        assert again.to_dict() == batch.to_dict()


def test_the_goals_losses_and_those_on_offer_are_not_looked_at(sequence, measured_pool):
    offered, goal = measured_pool
    strange = bayeslaw.next_runs(
        offered.assign(loss=9.0), goal.assign(loss=0.1), BUDGET, laws=LAWS
    )
    pd.testing.assert_frame_equal(strange.runs, sequence[0].runs)


def test_a_failed_run_is_paid_for_and_not_bought_again(sequence, measured_pool):
    offered, _ = measured_pool
    first = sequence[0]
    rows = first.runs.assign(loss=offered["loss"].loc[first.runs["row"]].to_numpy())
    rows.loc[0, "loss"] = np.nan
    after = first.update(rows)
    lost = rows["row"][0]
    assert [str(row) for row in after.failed] == [str(lost)]
    assert after.spent == pytest.approx(rows["cost"].sum())
    assert lost not in set(after.runs["row"])
    made_again = after.update(
        pd.DataFrame({"row": [lost], "loss": [offered["loss"].loc[lost]]})
    )
    assert made_again.failed == []


def test_a_run_that_comes_back_odd_is_told(sequence, measured_pool):
    offered, _ = measured_pool
    last = sequence[-1].campaign.bought
    told = sequence[-2]
    rows = last.assign(loss=offered["loss"].loc[last["row"]].to_numpy())
    rows.loc[3, "loss"] *= 1.3
    again = bayeslaw.next_runs(
        offered, told.campaign.goal, BUDGET, laws=LAWS, measured=rows
    )
    assert again.odd == [rows["row"][3]]


def test_small_batches_are_the_cheapest_of_the_list(sequence, measured_pool):
    offered, goal = measured_pool
    two = bayeslaw.next_runs(offered, goal, BUDGET, laws=LAWS, batch=2)
    pd.testing.assert_frame_equal(two.runs, sequence[0].runs.head(2))


def test_it_stops_where_the_goal_is_known_well_enough(sequence, measured_pool):
    offered, goal = measured_pool
    known = sequence[1]
    enough = bayeslaw.next_runs(
        offered,
        goal,
        BUDGET,
        laws=LAWS,
        measured=known.campaign.bought,
        enough=known.goal_sd * 1.01,
    )
    assert "asked for" in enough.stop
    assert len(enough.runs) == 0


@pytest.mark.parametrize(
    ("measured", "words"),
    [
        ({"row": [7], "loss": [2.0]}, "none of the candidates"),
        ({"row": [100], "loss": ["fine"]}, "no loss above 0"),
        ({"row": [100], "loss": [-2.0]}, "no loss above 0"),
        ({"row": [100, 100], "loss": [2.0, 2.1]}, "there twice"),
        ({"row": [100]}, "lacks column 'loss'"),
    ],
)
def test_what_cannot_be_a_batch_is_refused(measured_pool, measured, words):
    offered, goal = measured_pool
    with pytest.raises(RunTableError, match=words):
        bayeslaw.next_runs(offered, goal, BUDGET, measured=pd.DataFrame(measured))


def test_a_budget_that_buys_nothing_is_refused(measured_pool):
    offered, goal = measured_pool
    with pytest.raises(PlanError, match="buys none"):
        bayeslaw.next_runs(offered, goal, 1.0, laws=LAWS)
    with pytest.raises(PlanError, match="batch"):
        bayeslaw.next_runs(offered, goal, BUDGET, laws=LAWS, batch=0)
    with pytest.raises(LawError):
        bayeslaw.next_runs(offered, goal, BUDGET, laws=["no-such-law"])


# -- what is asked of the goal ---------------------------------------------------------


@pytest.fixture(scope="module")
def recipes():
    """Two ways to spend the same compute, of which the law knows the better one."""
    return pd.DataFrame({"N": [2e9, 8e9], "D": [4e11, 1e11], "recipe": ["small", "large"]})  # fmt: skip


def test_runs_are_bought_until_a_choice_is_sure_enough(measured_pool, recipes):
    offered, _ = measured_pool
    first = bayeslaw.next_runs(
        offered, recipes, BUDGET, laws=LAWS, gain="best", enough=1e-3
    )
    batches = buy_all(first, offered)
    last = batches[-1]
    losses = bayeslaw.simulate("chinchilla", design=recipes, noise=1e-12)["loss"]
    truly_best = recipes["recipe"].iloc[int(np.argmin(losses))]
    assert last.choice["best"] == truly_best
    assert last.choice["chance"] > 0.9
    assert last.choice["regret"] <= 1e-3
    assert "asked for" in last.stop
    assert last.spent < BUDGET
    assert last.choice["regret"] < first.choice["regret"]
    assert f"{truly_best} is best by" in last.sentence()
    assert last.to_dict()["gain"] == "best"


def test_before_anything_is_measured_runs_are_bought_that_tell_laws_apart(
    measured_pool,
):
    offered, goal = measured_pool
    both = {"laws": ["chinchilla", "coupled"]}
    for_laws = bayeslaw.next_runs(offered, goal, BUDGET, gain="law", **both)
    for_losses = bayeslaw.next_runs(offered, goal, BUDGET, **both)
    assert for_laws.gain == "law"
    assert for_laws.choice["chance"] == pytest.approx(0.5)
    assert for_laws.goal_sd == pytest.approx(0.5, abs=0.01)
    assert set(for_laws.runs["row"]) != set(for_losses.runs["row"])


def test_with_one_law_nothing_is_to_be_told_apart(sequence, measured_pool):
    offered, goal = measured_pool
    made = bayeslaw.next_runs(
        offered,
        goal,
        BUDGET,
        laws=LAWS,
        gain="law",
        measured=sequence[0].runs.assign(
            loss=offered["loss"].loc[sequence[0].runs["row"]].to_numpy()
        ),
    )
    assert made.gain == "variance"
    assert made.runs["row"].tolist() == sequence[1].runs["row"].tolist()


def test_where_the_optimum_lies_is_learned_batch_by_batch(sequence, measured_pool):
    """More tokens are better under the law; with its misfit only the runs tell."""
    offered, _ = measured_pool
    sweep = pd.DataFrame({"N": 5e9, "D": [1e11, 2e11, 4e11]})
    asked = {"laws": LAWS, "gain": "optimum"}
    first = bayeslaw.next_runs(offered, sweep, BUDGET, **asked)
    assert first.gain == "optimum"
    assert "the optimum's position is" in first.sentence()
    measured = sequence[1].campaign.bought
    later = bayeslaw.next_runs(offered, sweep, BUDGET, measured=measured, **asked)
    assert later.goal_sd < 0.5 * first.goal_sd


def test_a_reference_run_moves_the_priors_of_the_laws_that_read_it(measured_pool):
    offered, goal = measured_pool
    at = {"N": 1e5, "D": 1e6}
    made = bayeslaw.next_runs(offered, goal, BUDGET, laws=LAWS, reference=at)
    (law,) = made.campaign.laws
    assert {c: law.reference[c] for c in at} == at
    with pytest.raises(LawError, match="reads 'replay'"):
        bayeslaw.next_runs(offered, goal, BUDGET, laws=LAWS, reference={"replay": 0.1})


# -- what is known ---------------------------------------------------------------------


def test_with_too_few_runs_for_stages_one_law_is_fitted_and_before_it_priors(
    measured_pool,
):
    offered, goal = measured_pool
    rows = offered.iloc[[0, 7, 14, 21, 28, 35]].reset_index(names="row")
    names = {}
    for count in (2, 6):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            now = bayeslaw.next_runs(
                offered, goal, BUDGET, laws=LAWS, measured=rows.head(count)
            )
        names[count] = now.posterior.name
    assert names == {2: "prior of chinchilla", 6: "chinchilla"}


# -- drift -----------------------------------------------------------------------------


def test_the_process_of_drift_has_the_variance_that_a_refit_leaves():
    near, goal = np.geomspace(0.01, 3.0, 40), np.full(40, 3.0)
    left = goal**2 - covariance(near, goal) ** 2 / near**2
    np.testing.assert_allclose(left, (goal - near) ** 2, atol=1e-12)
    matrix = covariance(near[:, None], near)
    assert np.linalg.eigvalsh(matrix).min() > -1e-9


def test_a_run_beyond_the_data_teaches_of_the_drift_what_a_refit_learns():
    law = bayeslaw.law("chinchilla")
    runs = pd.DataFrame({"N": [1e8, 1e9], "D": [1e9, 1e10], "loss": 2.0})
    rng = np.random.default_rng(0)
    draws, tau = 20_000, 0.01
    values = {n: np.full(draws, p.median) for n, p in law.priors.items()}
    values |= {"sigma": np.full(draws, 1e-3), "dof": np.full(draws, 1e6)}
    values["drift"] = tau * rng.standard_normal((draws, 8))
    (piece,) = saved.make_average([(law, values)], runs).pieces()
    parts = all_draws([piece])

    # Distances beyond, of the candidate and of the goal: D, D/N (of which the runs have
    # one value), and N x D, along which the candidate is inside.
    middle, half = np.sqrt(1e8 * 1e9), np.log(10) / 2
    near, far = np.array([1.0, half + 1, 0.0]), np.array([3.0, half + 3, 3 - half])
    candidate = pd.DataFrame({"N": [middle], "D": [1e10 * np.e]})
    goal = pd.DataFrame({"N": [middle], "D": [1e10 * np.e**3]})
    said, wanted = (
        piece.at({c: table[c].to_numpy() for c in ("N", "D")})[:, 0]
        for table in (candidate, goal)
    )
    assert wanted.var() / tau**2 == pytest.approx(np.sum(far**2), rel=0.05)

    taught = said + less_drift(parts, candidate, goal)[:, 0]
    assert taught.var() / tau**2 == pytest.approx(np.sum(near**2), rel=0.05)
    shared = np.cov(taught, wanted)[0, 1] / tau**2
    # c^1.5 (2 g - c)^.5, side by side
    by_hand = np.sum(near**1.5 * (2 * far - near) ** 0.5)
    assert shared == pytest.approx(by_hand, rel=0.05)
    line = np.cov(said, wanted)[0, 1] / tau**2
    assert line == pytest.approx(np.sum(near * far), rel=0.05)
    assert line > 1.15 * shared


def test_a_law_drifts_alike_within_a_formula_that_fills_in_its_columns():
    law = bayeslaw.law("data-constrained")
    runs = pd.DataFrame({"N": [1e8, 1e9], "D": [1e9, 1e10], "U": 1e10, "loss": 2.0})
    values = {n: np.full(400, p.median) for n, p in law.priors.items()}
    values |= {"sigma": np.full(400, 1e-3), "dof": np.full(400, 1e6)}
    values["drift"] = 0.01 * np.random.default_rng(0).standard_normal((400, 8))
    (piece,) = saved.make_average([(law, values)], runs).pieces()
    (filling,) = repeating([piece], 1e10)
    at = pd.DataFrame({"N": 1e9, "D": [2e10, 6e10], "U": 1e10, "replay": 0.0})
    plain, within = (
        less_drift(all_draws([p]), table[:1], table[1:])
        for p, table in ((piece, at), (filling, at.drop(columns="U")))
    )
    assert plain.std() > 0
    np.testing.assert_allclose(within, plain)


# -- for a plan ------------------------------------------------------------------------

LIMIT, SIZE = 2.2, 8e9


@pytest.fixture(scope="module")
def planned_pool(measured_pool):
    """A pool measured on two domains, of which the second never binds."""
    offered, _ = measured_pool
    second = bayeslaw.simulate("chinchilla", design=offered, noise=0.003, seed=5)
    return offered.assign(source_loss=0.9 * second["loss"].to_numpy())


PLAN = {
    "N": SIZE,
    "ptpp": 20.0,
    "max_target_loss": LIMIT,
    "max_forgetting": 0.5,
    "baseline_loss": 3.0,
}
FOR_A_PLAN = {"laws": LAWS, "source_laws": LAWS, "least": 0.0}


@pytest.fixture(scope="module")
def plan_sequence(planned_pool):
    first = bayeslaw.next_runs(planned_pool, PLAN, BUDGET, **FOR_A_PLAN)
    return buy_all(first, planned_pool, ("loss", "source_loss"))


def test_a_sequence_for_a_plan_ends_with_the_plan_of_one_who_knows(plan_sequence):
    """The true law says exactly how many tokens reach the limit."""
    tokens = np.geomspace(1e9, 1e13, 4001)
    settings = pd.DataFrame({"N": SIZE, "D": tokens})
    loss = bayeslaw.simulate("chinchilla", design=settings, noise=1e-12)["loss"]
    needed = tokens[np.argmax(loss.to_numpy() <= LIMIT)]

    first, last = plan_sequence[0], plan_sequence[-1]
    assert first.plan is None
    assert first.runs[["loss", "source_loss"]].isna().all(axis=None)
    assert last.plan is not None
    assert last.plan["reaches"]
    # 90% sure of a run ten times beyond those on offer, so more than needed
    assert needed < last.plan["tokens"] < 2.5 * needed
    assert last.plan["flops"] == pytest.approx(6 * SIZE * last.plan["tokens"])
    assert last.spent <= BUDGET
    assert f"{last.plan['replay']:.2f}" in last.sentence()
    run = pd.DataFrame({"N": [SIZE], "D": [last.plan["tokens"]]})
    kept = last.posterior.log_loss(run, noise=True, seed=3) <= np.log(LIMIT)
    assert kept.mean() == pytest.approx(0.9, abs=0.02)


def test_numbers_of_a_plan_may_be_text_as_for_plan(plan_sequence, planned_pool):
    asked = PLAN | {"N": "8B", "ptpp": "20", "baseline_loss": "3.0"}
    first = bayeslaw.next_runs(planned_pool, asked, BUDGET, **FOR_A_PLAN)
    assert first.runs.equals(plan_sequence[0].runs)


def test_a_plan_needs_both_losses_of_a_run(plan_sequence, planned_pool):
    first = plan_sequence[0]
    losses = planned_pool.loc[first.runs["row"], ["loss", "source_loss"]]
    rows = first.runs.assign(**losses.reset_index(drop=True))
    rows.loc[2, "source_loss"] = np.nan
    with pytest.raises(RunTableError, match="no 'source_loss' beside its other loss"):
        first.update(rows)
    with pytest.raises(RunTableError, match="lacks column 'source_loss'"):
        first.update(rows[["row", "loss"]])


def test_questions_that_are_none_are_refused_before_anything_is_drawn(planned_pool):
    with pytest.raises(PlanError, match="needs max_forgetting"):
        bayeslaw.next_runs(
            planned_pool, {"N": 1e9, "ptpp": 1, "max_target_loss": 2.0}, BUDGET
        )
    with pytest.raises(PlanError, match="one model"):
        bayeslaw.next_runs(planned_pool, PLAN | {"N": [1e9, 2e9]}, BUDGET)
    with pytest.raises(PlanError, match="a forecast has none"):
        bayeslaw.next_runs(planned_pool, planned_pool, BUDGET, source_laws=LAWS)

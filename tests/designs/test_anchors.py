"""Anchors: which runs are bought, when the list ends, and what is refused."""

import json
from dataclasses import replace
from functools import partial

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from bayeslaw import (
    Anchors,
    PlanError,
    RunTableError,
    anchors,
    appraise,
    candidates,
)
from bayeslaw._inference.noise import Learned
from known.lines import (
    DRAWS,
    GOAL,
    SIGMA,
    Known,
    _bent,
    _line,
    buy,
    grid,
    posterior_of,
    straight,
    table,
)


def test_points_along_a_run_cost_the_run_and_bring_those_before():
    offered = table(
        x=[0.0, 1.0, 2.0, 2.5],
        D=[1.0, 2.0, 4.0, 1.0],
        run=["a", "a", "a", "b"],
        cost=[1.0, 2.0, 4.0, 9.0],
    )
    made = buy(straight(), offered, 4.0, replicates=1, run_length=0)
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
    made = buy(straight(), offered, 8.0, replicates=2)
    used = {offered["checkpoint"].loc[p["row"]] for p in made.picks}
    assert "new" in used
    assert made.spent == pytest.approx(5.0 + len(made.picks))
    assert sorted(p["cost"] for p in made.picks)[-1] == 6.0
    cheap = buy(straight(), offered, 4.0, replicates=2)
    assert {p["row"] for p in cheap.picks} == {3}


def test_twenty_runs_of_one_checkpoint_are_not_twenty():
    """A shared effect limits what one checkpoint can tell: never below its scale, and other checkpoints are bought."""
    tau = 0.004
    posterior = straight(tau_checkpoint=tau, sigma=np.hypot(SIGMA, tau))
    offered = table(x=3.0, cost=[1.0, 1.1, 1.2], checkpoint=["a", "b", "c"])
    only = buy(posterior, offered.head(1), 20.0, replicates=20, checks=100)
    all_ = buy(posterior, offered, 20.0, replicates=20)
    free = buy(straight(), offered, 20.0, replicates=20)
    assert len(only.picks) > 3
    assert only.goal_sd_after > 0.98 * tau
    assert only.check is not None
    assert only.check["correction"] == pytest.approx(1.0, abs=0.05)
    assert {p["row"] for p in all_.picks} == {1, 2, 3}
    assert {p["row"] for p in free.picks} == {1}


@pytest.mark.parametrize("stage", [20.0, 43.0])
def test_what_is_learned_of_a_checkpoint_is_as_sure_as_in_forecasts(stage):
    """Of an effect of .03 that the fit knows to .001, half of the variance is still open
    for new runs. If those on offer start from its checkpoint they tell it, else it is
    the luck of a new run.
    """
    posterior = straight(sigma=0.0305, tau_checkpoint=0.03)
    (piece,) = posterior.pieces()
    known = 0.02 + 0.001 * np.random.default_rng(1).standard_normal(DRAWS)
    learned = {"checkpoint": {"1e+09 20": Learned(known)}}
    goal = GOAL.assign(N=1e9, ptpp=20.0, replay=0.0)
    offered = table(x=[0.0, 3.0], N=1e9, ptpp=stage, replay=0.0, cost=1.0)
    knows = Known(replace(piece, effects=learned))
    made = buy(knows, offered, 2.0, goal, checks=20, replicates=1)
    own = 0.0305**2 - 0.03**2
    law = np.var(piece.at({"x": np.array([3.0])})[:, 0] + known)
    change = 0.49 * 0.03**2
    told = law + change * (stage == goal["ptpp"].item())
    assert made.goal_sd_before == pytest.approx(np.sqrt(told), rel=1e-3)
    assert made.new_run is not None
    half = 1.645 * np.sqrt(law + own + change)
    assert made.new_run["before"] == pytest.approx(half, rel=1e-3)
    assert made.check is not None
    assert made.check["goal_sd"] == pytest.approx(made.goal_sd_after, rel=0.15)


def test_a_new_run_keeps_its_own_noise_and_that_is_said():
    """Its 90% interval is that of the law, of its noise, and of a new checkpoint's effect."""
    offered = table(x=3.0, N=[1e9, 2e9], ptpp=[279.0, 279.0], cost=1.0)
    posterior = straight(tau_checkpoint=0.01, sigma=np.hypot(SIGMA, 0.01))
    for N, new in ((2e9, SIGMA), (9e9, np.hypot(SIGMA, 0.01))):
        made = buy(posterior, offered, 3.0, GOAL.assign(N=N, ptpp=279.0))
        assert made.new_run is not None
        sds = {"before": made.goal_sd_before, "after": made.goal_sd_after}
        for when, sd in sds.items():
            half = 1.645 * np.hypot(sd, new)
            assert made.new_run[when] == pytest.approx(half, rel=1e-3)
        assert f"lie within {made.new_run['after']:.1%} of" in made.sentence()
    noisy = Anchors(**made.to_dict() | {"new_run": {"before": 0.02, "after": 0.0195}})
    assert "hardly narrower" in noisy.sentence()
    assert "hardly narrower" not in made.sentence()


def test_verdicts_on_a_limit_come_as_often_as_in_simulated_purchases():
    """A linear-normal law, whose posterior after the purchase is exact, is drawn, bought and judged again."""
    posterior, bought = straight(), table(x=[2.0, 2.5], cost=1.0)
    goal, limit, confidence, z = GOAL.assign(x=3.0), 1.03, 0.8, 0.8416
    made = buy(
        posterior,
        bought,
        2.0,
        goal,
        replicates=1,
        max_loss=limit,
        confidence=confidence,
    )
    assert made.verdicts is not None
    (run,) = made.verdicts["runs"]
    (piece,) = posterior.pieces()
    prior = np.cov([piece.values["level"], piece.values["slope"]])
    middle = [piece.values[name].mean() for name in ("level", "slope")]

    rng = np.random.default_rng(1)
    design, at = np.array([[1.0, 2.0], [1.0, 2.5]]), np.array([1.0, 3.0])
    truth = rng.multivariate_normal(middle, prior, 100_000)
    measured = truth @ design.T + SIGMA * rng.standard_normal((100_000, 2))
    after = np.linalg.inv(np.linalg.inv(prior) + design.T @ design / SIGMA**2)
    weighed = np.linalg.solve(prior, middle) + measured @ design / SIGMA**2
    mean, sd = weighed @ after @ at, np.sqrt(at @ after @ at + SIGMA**2)
    often = {
        "kept": np.mean(mean + z * sd <= np.log(limit)),
        "broken": np.mean(mean - z * sd >= np.log(limit)),
    }
    often["unsure"] = 1 - often["kept"] - often["broken"]
    new = truth @ at + SIGMA * rng.standard_normal(100_000)
    assert run["now"] == "unsure"
    assert run["probability"] == pytest.approx(np.mean(new <= np.log(limit)), abs=6e-3)
    for name, share in often.items():
        assert 0.02 < share < 0.98
        assert run[name] == pytest.approx(share, abs=6e-3)
    changes = made.verdicts["changes"]
    assert changes == pytest.approx(1 - run["unsure"])
    assert f"after them another with {changes:.0%} (kept" in made.sentence()
    priced = replace(made, days=1.0, spent=900.0)
    assert f": {900 / changes:,.0f} for each verdict that changes" in priced.sentence()
    assert Anchors.from_dict(json.loads(json.dumps(made.to_dict()))) == made


def test_runs_that_tell_nothing_change_no_verdict():
    dull = table(x=[0.0], cost=1.0, checkpoint="other")
    posterior = straight(sigma=3.0)
    made = buy(posterior, dull, 1.0, pd.DataFrame({"x": [3.0, 3.0]}), max_loss=1.01)
    assert made.verdicts is not None
    assert made.verdicts["changes"] < 1e-6
    assert "with 90% is now 2 unsure, and after" in made.sentence()
    assert ": they hardly decide" in made.sentence()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"gain": "information"}, "needs a table as the goal"),
        ({"confidence": 0.3}, "confidence must be"),
        ({"max_loss": -1.0}, "max_loss must be"),
    ],
)
def test_a_limit_that_cannot_be_judged_is_refused(options, said):
    offered = table(x=3.0, cost=[1.0])
    with pytest.raises(PlanError, match=said):
        buy(straight(), offered, 3.0, **{"max_loss": 1.1} | options)


@pytest.mark.parametrize("size", [2e9, 1.995e9])
def test_a_run_of_the_goals_own_checkpoint_measures_its_effect_too(size):
    """Also where people have rounded its size."""
    posterior = straight(tau_checkpoint=0.01, sigma=np.hypot(SIGMA, 0.01))
    offered = table(x=3.0, N=[1e9, size], ptpp=[279.0, 279.0], cost=1.0)
    made = buy(
        posterior,
        offered,
        3.0,
        GOAL.assign(N=2e9, ptpp=279.0),
        replicates=3,
        checks=100,
    )
    assert {p["row"] for p in made.picks} == {2}
    assert made.goal_sd_after < 0.005
    assert made.check is not None
    assert made.check["correction"] == pytest.approx(1.0, abs=0.06)


def test_replicates_are_allowed_and_counted():
    made = buy(straight(), table(x=[3.0, 0.0], cost=1.0), 10.0, replicates=3)
    again = [p for p in made.picks if p["row"] == 1]
    assert [p["replicate"] for p in again] == [1, 2, 3]
    assert again[0]["gain"] > again[1]["gain"] > again[2]["gain"]
    names = made.runs(table(x=[3.0, 0.0], cost=1.0))["run"]
    assert names.is_unique


@pytest.mark.parametrize(
    ("replicates", "offers"), [(3, [3.0]), (3, [3.0, 0.0]), (1, [3.0])]
)
def test_replicates_of_a_run_are_listed_once(replicates, offers):
    offered = table(x=offers, cost=1.0)
    made = buy(straight(), offered, 10.0, replicates=replicates)
    shown = made.table(offered)
    assert shown["run"].is_unique
    assert len(made.picks) == replicates * len(offers)
    assert ("times" in shown) == (replicates > 1)
    spent = shown["cost"].astype(float).sum()
    assert spent == pytest.approx(made.spent)
    gains = sum(pick["gain"] for pick in made.picks)
    shown_gains = shown[f"gain ({made.unit})"].astype(float).sum()
    assert shown_gains == pytest.approx(gains, rel=0.02)


def test_runs_at_several_rates_are_told_apart():
    """Two runs that differ in their rate alone are two lines, each with its rate."""
    offered = table(x=[3.0, 0.0, 3.0], cost=1.0).assign(
        N=1e9, D=[1e9, 1e9, 2e9], replay=0.1, lr=[1e-3, 2e-3, 1e-3], loss=2.0, seed=0
    )
    shown = buy(straight(), offered, 2.0, replicates=1).table(offered)
    bought = offered.loc[shown["row"]]
    assert shown["lr"].tolist() == bought["lr"].tolist()
    assert {"loss", "seed"}.isdisjoint(shown)


def test_runs_that_tell_laws_apart_are_bought():
    """Two laws agree at x = 1, where each could be refined; the goal is where they part, and so is the run bought."""
    rng = np.random.default_rng(0)
    half = DRAWS // 2
    values = {
        "level": np.full(half, 0.5),
        "slope": 0.1 + 1e-3 * rng.standard_normal(half),
    }
    values |= {"sigma": np.full(half, SIGMA), "dof": np.full(half, 30.0)}
    line, bend = (posterior_of(f, values, ("x",)) for f in (_line, _bent))
    offered = table(x=[1.0, 2.0], cost=[1.0, 20.0])
    average = buy(
        Known(*line.pieces(), *bend.pieces()), offered, 20.0, replicates=1, checks=60
    )
    one = buy(line, offered, 20.0, replicates=1)
    assert [p["row"] for p in average.picks] == [2]
    assert average.goal_sd_before > 0.25  # the laws are .6 apart there
    assert average.goal_sd_after < 0.1 * average.goal_sd_before
    assert one.goal_sd_before < 0.01
    assert average.check is not None
    assert average.check["goal_sd"] < 0.1 * average.goal_sd_before


def test_the_list_ends_where_a_run_gains_too_little_for_its_cost():
    offered = table(x=[3.0, 0.0], cost=[1.0, 1.0])
    long = buy(straight(), offered, 30.0, replicates=30)
    short = anchors(
        straight(), offered, GOAL, 30.0, replicates=30, least=0.05, checks=0
    )
    assert 0 < len(short.picks) < len(long.picks)
    assert "less for its cost" in short.stop
    assert long.stop == "nothing else fits the budget"
    few = buy(straight(), offered, 30.0, replicates=2)
    assert (
        few.stop
        == "what fits the rest of the budget has been bought as often as allowed (replicates: 2)"
    )
    assert few.table(offered).columns[-2] == "gain (squared log loss)"
    rate = 0.05 * long.goal_sd_before**2 / 30.0
    assert short.picks[-1]["gain"] >= rate > long.picks[len(short.picks)]["gain"]


def test_nothing_is_bought_for_gains_within_monte_carlo_error():
    """The candidate varies apart from the goal; what the draws show of a link between them is chance."""

    def apart(draw, x):
        return jnp.where(x["x"] > 2, draw["level"], draw["slope"])

    offered = table(x=[0.0], cost=1.0)
    made = buy(straight(log_loss=apart), offered, 1.0, checks=48)
    assert made.picks == []
    assert made.table(offered).empty
    assert "Monte Carlo" in made.stop
    assert made.sentence().startswith("Buy nothing")
    assert made.goal_sd_after == made.goal_sd_before


def test_a_gain_that_may_be_chance_does_not_end_the_list():
    """A run that costs next to nothing is first in order of gain for cost; what it gains
    is chance, and the dear run after it is bought all the same.
    """

    def apart(draw, x):
        return jnp.where(x["x"] > 2, draw["level"], draw["slope"])

    made = buy(
        straight(log_loss=apart),
        table(x=[0.0, 3.0], cost=[0.01, 1.0]),
        2.0,
        replicates=1,
    )
    assert [pick["row"] for pick in made.picks] == [2]
    assert made.spent == 1.0
    assert "Monte Carlo" in made.stop


def test_gains_that_may_be_chance_one_by_one_are_bought_where_they_are_none_together():
    """The goal is the sum of ten numbers, each measured by a run, and a wide one that none
    measures, which hides what each tells.
    """
    rng = np.random.default_rng(2)
    names = [f"part{k}" for k in range(10)]
    values = {name: 0.01 * rng.standard_normal(600) for name in names}
    values |= {"rest": 0.07 * rng.standard_normal(600), "sigma": np.full(600, 1e-4)}

    def parts_of(draw, x):
        is_goal = x["x"] > 50
        parts = [draw[n] * (is_goal | (x["x"] == k)) for k, n in enumerate(names)]
        return sum(parts) + draw["rest"] * is_goal

    made = buy(
        posterior_of(parts_of, values, ("x",)),
        table(x=[float(k) for k in range(10)], cost=1.0),
        10.0,
        table(x=[99.0]),
        replicates=1,
    )
    doubtful = [p for p in made.picks if p["gain"] <= 2 * p["gain_error"]]
    assert len(doubtful) > 3
    assert len(made.picks) == 10


def test_a_run_that_pays_only_with_those_after_it_does_not_end_the_list():
    """The first run of a checkpoint bears its cost, and alone gains too little for it."""
    offered = table(x=3.0, cost=1e-3, checkpoint=["new"] * 8, checkpoint_cost=[1.0] * 8)
    made = anchors(
        straight(sigma=0.02), offered, GOAL, 2.0, replicates=1, checks=0, least=1.6
    )
    first = made.picks[0]
    rate = 1.6 * made.goal_sd_before**2 / 2.0
    assert first["gain"] < rate * first["cost"]
    assert len(made.picks) > 1


def test_a_batch_holds_as_many_runs_as_asked_for():
    made = buy(straight(), table(x=[3.0, 0.0, 1.0], cost=1.0), 9.0, max_picks=2)
    assert len(made.picks) == 2
    assert made.stop == "the batch is full"


def test_same_seed_same_numbers_and_a_record_that_survives_json():
    ask = partial(
        anchors, straight(), table(x=[0.0, 2.0], cost=1.0), GOAL, 3.0, least=0.0, seed=5
    )
    made = ask()
    assert made == ask()
    assert (
        Anchors.from_dict(json.loads(json.dumps(made.to_dict(), allow_nan=False)))
        == made
    )
    with pytest.raises(PlanError, match="not a saved list"):
        Anchors.from_dict({"picks": []})


def test_generated_candidates_are_priced_by_run_and_by_checkpoint():
    runs = grid().query("N < 1e9 and ptpp < 100")
    made = candidates(runs, ptpp=(15, 279), replay=(0.2,), atpp=(1, 10))
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
    apart = candidates(runs, replay=(0.2,), atpp=(1, 10), along_run=False)
    assert apart["run"].is_unique


def test_a_checkpoint_is_one_size_and_stage_up_to_rounding_by_hand():
    """As for a plan: 4M names a checkpoint of 3995600 parameters, which is not charged."""
    runs = grid().query("N < 1e9 and ptpp < 100").replace({"N": {241e6: 239.9e6}})
    written = candidates(runs, N=["240M", "241M"], ptpp=15.1, replay=0.2, atpp=10)
    exact = candidates(runs, N=239.9e6, ptpp=15, replay=0.2, atpp=10)
    pd.testing.assert_frame_equal(written, exact)
    assert written["checkpoint_cost"].tolist() == [0.0]
    other = candidates(runs, N="245M", ptpp=15, replay=0.2, atpp=10)
    assert other["checkpoint_cost"].tolist() == [6 * 245e6 * 15 * 245e6]


def test_candidates_take_tokens_in_place_of_tokens_per_parameter():
    """As people write them; each size has the same tokens."""
    runs = grid().query("N < 1e9 and ptpp < 100")
    made = candidates(runs, ptpp=15, replay=0.2, D=["1B", "5B"])
    assert set(zip(made["N"], made["D"], strict=True)) == {
        (size, tokens) for size in (241e6, 517e6) for tokens in (1e9, 5e9)
    }
    assert made["cost"].tolist() == (6 * made["N"] * made["D"]).tolist()
    assert made["run"].nunique() == 2
    assert candidates(runs, D=1e9, along_run=False)["run"].is_unique
    same = candidates(runs, N=241e6, replay=0.2, atpp=10)
    pd.testing.assert_frame_equal(
        same, candidates(runs, N=241e6, replay=0.2, D=2.41e9), check_like=True
    )
    with pytest.raises(RunTableError, match="not both"):
        candidates(runs, atpp=1, D=1e9)
    with pytest.raises(RunTableError, match=r"D \(adaptation .* tokens\): -1 is not"):
        candidates(runs, D=-1)


def test_rows_without_a_price_cost_6_n_d():
    offered = table(x=[3.0, 0.0], N=1e9, D=[1e9, 2e9])
    made = buy(straight(), offered, 2e19, replicates=1)
    assert {p["row"]: p["cost"] for p in made.picks} == {1: 6e18, 2: 12e18}


GOOD = {"x": [0.0, 1.0], "cost": [1.0, 2.0]}
BAD = {
    "negative cost": (GOOD | {"cost": [1.0, -2.0]}, {}, RunTableError, "row 2, column 'cost': -2 is negative"),
    "missing cost": (GOOD | {"cost": [np.nan, 2.0]}, {}, RunTableError, "row 1, column 'cost': missing"),
    "cost in words": (GOOD | {"cost": ["a lot", "2"]}, {}, RunTableError, "row 1, column 'cost': 'a lot' is not a number"),
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
        anchors(
            straight(100),
            table(**columns),
            asked.pop("goal"),
            asked.pop("budget"),
            **asked,
        )
    assert "\n" not in str(raised.value)


def test_rows_of_one_name_are_refused():
    twice = pd.concat([table(x=[0.0], cost=1.0)] * 2)
    with pytest.raises(RunTableError, match="two candidates are called row 1"):
        anchors(straight(100), twice, GOAL, 5.0)


@pytest.mark.parametrize("given", [{"atpp": (0, 1)}, {"N": ()}, {"replay": (0.2, 1.5)}])
def test_levels_no_run_can_have_are_refused(given):
    with pytest.raises(RunTableError, match="not a level a run can have"):
        candidates(grid(), **given)

"""Every number that a plan tells, computed again by brute force on problems in closed
form; nothing here is compiled.
"""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

from bayeslaw._base.limits import SUPPLIES, Supply
from bayeslaw._plans import value
from bayeslaw._plans.constraint import Constraint
from bayeslaw._plans.plan import Solution
from bayeslaw._plans.question import Model
from bayeslaw._plans.sampled import (
    Part,
    SampledConstraint,
    draws_needed,
    losses_on_grid,
)
from bayeslaw._plans.search import Choice, search
from bayeslaw._posteriors.posterior import Piece
from known import straight_plans as known
from known.straight_plans import BILLION, PTPP, N

UNIQUE = "unique_target_tokens"
SOURCE_TOKENS = Supply("source tokens", "source", (0.0, 1.0), is_repeated=False)
SEARCH = 1e-3  # log tokens that the search over replay may leave
PLAN = Choice(BILLION + 1.7, 0.55, 0.0)


@pytest.fixture(scope="module")
def problem():
    return known.problem()


@pytest.fixture(scope="module")
def plan(problem):
    return search(problem)


@pytest.fixture(scope="module")
def several():
    return known.problem(others=2)


# -- limits ----------------------------------------------------------------------------


def test_a_draw_keeps_its_limit_where_its_loss_with_noise_is_under_it(several):
    """From the losses themselves: every unit, at budgets where some draws do."""
    for x in (0.5, 1.4, 2.0):
        told = several.kept(BILLION + x, 0.4)
        np.testing.assert_array_equal(told, known.kept(several, BILLION + x, 0.4))
    assert 0 < told[0].mean() < 1
    assert 0 < told[1].mean() < 1
    assert 0 < told[2].mean() < 1


def test_a_plan_of_source_data_alone_names_its_limits_too(problem):
    """At a replay of 1 no token is of the target, and no logarithm of that is taken."""
    only = Choice(BILLION + 1.7, 1.0, 0.0)
    worths = {"target": 1.0, "web": 0.5}
    assert value.binding(problem, only, worths) == "target and web"


def test_a_plan_with_a_draw_fewer_is_the_same_problem_of_those_draws(several):
    index = np.array([5, 5, 199, 0])
    some = several.with_draws(index)
    np.testing.assert_array_equal(
        some.kept(BILLION + 1.4, 0.4), several.kept(BILLION + 1.4, 0.4)[:, index]
    )


@pytest.mark.parametrize(
    ("share", "draws", "needed"),
    [(0.9, 10, 9), (0.9, 11, 10), (0.5, 7, 4), (0.7, 10, 7), (0.999, 10, 10)],
)
def test_draws_that_make_up_a_share(share, draws, needed):
    assert draws_needed(share, draws) == needed


# -- the plan --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"confidence": 0.6},
        {"confidence": 0.7, "least": 0.62},
        {"others": 2, "confidence": 0.5},
        {"draws": 1601, "confidence": 0.8},
        {"noise": 0.0, "supplies": {UNIQUE: 2.4e9}},
    ],
)
def test_the_plan_is_the_cheapest_of_all_replays(fields):
    problem = known.problem(**fields)
    found = search(problem)
    replays = known.REPLAYS
    if problem.draws > 1000:
        near = replays[np.abs(replays - found.replay) < 0.01]
        replays = np.append(replays[::10], near)
    replays = replays[replays >= problem.least]
    needed, replay = known.cheapest(problem, problem.confidence, replays)
    most = problem.supplies.get(UNIQUE, np.inf)
    if np.isfinite(most):
        free = needed
        # by bisection on the replays whose target tokens are few enough
        tokens = [known.tokens_needed(problem, 0.8, r) for r in replays]
        allowed = np.exp(tokens) * (1 - replays) <= most
        needed = np.where(allowed, tokens, np.inf).min()
        assert needed > free + SEARCH
    assert found.log_tokens == pytest.approx(needed, abs=0.012)
    assert np.exp(found.log_tokens) * (1 - found.replay) <= most * (1 + 1e-9)
    at = found.log_tokens + 1e-9, found.replay
    share = known.kept(problem, *at).all(axis=0).mean()
    assert share >= problem.confidence
    if not np.isfinite(most):
        assert found.replay == pytest.approx(replay, abs=0.05)


def test_each_promise_may_have_its_own_confidence():
    shares = {"target": 0.9, "web": 0.7}
    problem = known.problem(confidence=shares)
    needed = []
    for replay in known.REPLAYS:
        start, _ = known.by_draw(problem, replay, ["target"])
        _, end = known.by_draw(problem, replay, ["web"])
        x = np.sort(start)[179]  # 90% of 200 draws have begun
        needed.append(x if np.sum(x <= end) >= 140 else np.inf)
    found = search(problem)
    assert found.log_tokens == pytest.approx(min(needed), abs=2 * SEARCH)
    held = known.kept(problem, found.log_tokens, found.replay).mean(axis=1)
    assert held[0] >= 0.9
    assert held[1] >= 0.7
    assert problem.margin_at(*found[:2]) == pytest.approx(
        min(held[0] - 0.9, held[1] - 0.7)
    )


def test_within_a_budget_the_plan_is_the_most_probable(problem, plan):
    """And the cheapest with which as many draws keep their limits."""
    most = np.exp(plan.log_tokens - 0.1)
    limited = replace(problem, max_tokens=float(most))
    shares = []
    for replay in known.REPLAYS:
        start, end = known.by_draw(problem, replay)
        at = np.append(start[start <= np.log(most)], np.log(most))[:, None]
        shares.append(((start <= at) & (at <= end)).mean(axis=1).max())
    found = search(limited)
    assert found.log_tokens <= np.log(most) + 1e-9
    assert found.margin + 0.8 == pytest.approx(max(shares), abs=0.006)
    assert found.margin < 0


# -- what is told of it ----------------------------------------------------------------


def test_probabilities_count_every_constraint(several):
    """Of forgetting: all sources with a baseline, not the last; neither the target's
    loss nor that of a third domain.
    """
    kept = known.kept(several, *PLAN[:2])
    told = value.probabilities(several, *PLAN[:2])
    assert told == {
        "probability": np.mean(kept[0] & kept[1] & kept[2] & kept[3]),
        "probability_target": np.mean(kept[0]),
        "probability_forgetting": np.mean(kept[1] & kept[2]),
    }
    shares = [kept[[1, 2]].all(0).mean(), kept[1].mean(), kept[2].mean()]
    assert len({*shares, kept[1:].all(0).mean(), kept.all(0).mean()}) == 5


def test_promises_tell_the_loss_of_a_new_run(several):
    rows = value.promises(several, PLAN)
    kept = known.kept(several, *PLAN[:2])
    for row, c, of_c in zip(rows, several.constraints, kept, strict=True):
        loss = np.exp(c.of_law.log_losses(*PLAN[:2]) + c.noise)
        told = {"loss": loss, "relative": loss / c.baseline - 1}
        outcome = told.get(c.unit, loss - c.baseline)
        assert row["name"] == c.name
        assert (row["limit"], row["unit"]) == (c.limit, c.unit)
        assert row["probability"] == of_c.mean()
        assert row["mean"] == pytest.approx(outcome.mean())
        expected = np.sort(outcome)
        # of 200 draws: 9.95 steps from either end
        low, high = 0.05 * expected[9] + 0.95 * expected[10], expected[189:191]
        assert row["low"] == pytest.approx(low)
        assert row["high"] == pytest.approx(0.95 * high[0] + 0.05 * high[1])


def test_budget_of_a_choice():
    problem = known.problem(draws=2)
    row = value.budget(problem, np.log(2e9), 0.25)
    expected = {"atpp": 20.0, "D": 2e9, "replay": 0.25, "flops": 6 * N * 2e9}
    assert row == pytest.approx(expected)
    assert set(value.budget(problem, np.inf, 0.1).values()) == {None}


def test_draws_further_out_keep_less(problem):
    """Further from the median with their noise, as the intervals that checks judge."""
    factors = {"target": 2.0, "web": 1.5}
    kept = []
    for c, most in zip(problem.constraints, known.limits(problem), strict=True):
        log_loss = c.of_law.log_losses(*PLAN[:2]) + c.noise
        middle = np.median(log_loss)
        further = middle + factors[c.name] * (log_loss - middle)
        kept.append(further <= most + c.noise)
    told = value.stretched_probability(problem, *PLAN[:2], factors)
    assert told == np.mean(kept[0] & kept[1])
    unchanged = value.stretched_probability(problem, *PLAN[:2], {})
    assert unchanged == known.kept(problem, *PLAN[:2]).all(axis=0).mean()
    assert told != unchanged


def test_worth_is_what_a_looser_limit_saves():
    """One draw, whose plan is where its two limits meet: by roots of the two equations."""
    problem = known.problem(draws=1).relaxed("web", 0.012)
    plan = search(problem)

    def needed(most_loss, most_forgetting):
        limited = problem.relaxed("target", most_loss).relaxed("web", most_forgetting)

        def room(replay):
            start, end = known.by_draw(limited, replay)
            return (end - start).item()

        replay = optimize.brentq(room, 0.0, 0.99)
        return known.by_draw(limited, replay)[0].item()

    loss, forgetting = known.MOST_LOSS, 0.012
    now = needed(loss, forgetting)
    assert plan.log_tokens == pytest.approx(now, abs=1e-4)
    worths = value.worth(problem, plan)
    assert worths == pytest.approx(
        {
            "target": now - needed(1.001 * loss, forgetting),
            "web": now - needed(loss, forgetting + 0.001),
        },
        rel=0.03,
    )
    assert value.binding(problem, plan, worths) == "target and web"
    assert value.binding(problem, plan, {"target": 1.0, "web": 0.09}) == "target"
    assert value.binding(problem, plan, {"target": 1.0, "web": 0.11}) == (
        "target and web"
    )


def test_within_a_budget_worth_is_probability(problem, plan):
    limited = replace(problem, max_tokens=float(np.exp(plan.log_tokens - 0.1)))
    choice = search(limited)
    worths = value.worth(limited, choice)
    assert worths["target"] > 0
    relaxed = limited.relaxed("target", known.MOST_LOSS * 1.001)
    share = known.kept(relaxed, *choice[:2]).all(axis=0).mean()
    assert worths["target"] >= share - (choice.margin + 0.8) - 1e-12
    assert worths["target"] < 0.2
    assert "budget" in value.binding(limited, choice, worths)
    ample = replace(problem, max_tokens=1e12)
    assert "budget" not in value.binding(ample, search(ample), {"target": 1.0})


def test_caps_bind_where_they_are_met(problem, monkeypatch):
    choice = Choice(BILLION, 0.5, 0.0)
    met = replace(problem, supplies={UNIQUE: 0.5e9 * 1.0005})
    assert value.binding(met, choice, {"target": 1.0}) == (
        "target and unique target tokens"
    )
    free = replace(problem, supplies={UNIQUE: 0.5e9 * 1.002})
    assert value.binding(free, choice, {"target": 1.0}) == "target"
    # another supply is one more entry: half of the tokens are of the source
    monkeypatch.setitem(SUPPLIES, "unique_source_tokens", SOURCE_TOKENS)
    met = replace(problem, supplies={"unique_source_tokens": 0.5e9 * 1.0005})
    assert value.binding(met, choice, {"target": 1.0}) == "target and source tokens"
    assert np.exp(met.log_cap(0.25)) == pytest.approx(2e9, rel=1e-3)
    least = replace(problem, least=0.49995)
    assert value.binding(least, choice, {"target": 1.0}) == "target and least replay"
    below = replace(problem, least=0.4998)
    assert value.binding(below, choice, {"target": 1.0}) == "target"


def test_the_frontier_is_the_cheapest_plan_of_each_confidence(problem, plan):
    rows = value.frontier(problem, plan)
    assert [row["confidence"] for row in rows] == [0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99]
    replays = known.REPLAYS
    for row in rows:
        needed, _ = known.cheapest(problem, row["confidence"], replays)
        if not np.isfinite(needed):
            assert row["D"] is None
            continue
        assert np.log(row["D"]) == pytest.approx(needed, abs=0.012)
        assert row["atpp"] == pytest.approx(row["D"] / N)


def test_the_region_is_the_share_of_draws_on_a_grid(several):
    told = value.region(several, PLAN.log_tokens, size=5)
    atpp = np.exp(PLAN.log_tokens) / N * np.array([0.1, 10**-0.5, 1, 10**0.5, 10])
    assert told["atpp"] == pytest.approx(atpp)
    assert told["replay"] == pytest.approx([0, 0.25, 0.5, 0.75, 1])
    for replay, row in zip(told["replay"], told["probability"], strict=True):
        for tokens, share in zip(told["atpp"], row, strict=True):
            kept = known.kept(several, np.log(tokens * N), replay)
            # with all replay no target token is seen: that is no plan
            assert share == (kept.all(axis=0).mean() if replay < 1 else 0)
    assert len(np.unique(told["probability"])) > 4
    least = replace(several, least=0.2)
    assert value.region(least, PLAN.log_tokens, size=3)["replay"][0] == 0.2
    most = replace(several, largest=0.6)
    assert value.region(most, PLAN.log_tokens, size=3)["replay"][-1] == 0.6


def test_the_trade_off_is_along_replay_at_one_budget(several):
    told = value.tradeoff(several, PLAN.log_tokens, size=3)
    assert told["replay"] == pytest.approx([0.01, 0.5, 0.99])
    assert told["atpp"] == pytest.approx(np.exp(PLAN.log_tokens) / N)
    for c in several.constraints:
        band = told["bands"][c.name]
        assert (band["limit"], band["unit"]) == (c.limit, c.unit)
        for k, replay in enumerate(told["replay"]):
            law = c.of_law.log_losses(PLAN.log_tokens, replay)
            loss = np.exp(law + c.noise)
            outcome = {"loss": loss, "nats": loss - c.baseline}.get(
                c.unit, loss / c.baseline - 1
            )
            expected = np.quantile(outcome, [0.05, 0.5, 0.95])
            found = [band[name][k] for name in ("low", "median", "high")]
            assert found == pytest.approx(expected)


# -- the truth known -------------------------------------------------------------------


@pytest.fixture(scope="module")
def truth(problem):
    """Log tokens and replay that each draw would choose, of all replays."""
    best = np.full(problem.draws, np.inf)
    replays = np.full(problem.draws, np.nan)
    for replay in known.REPLAYS:
        start, end = known.by_draw(problem, replay)
        is_better = (start <= end) & (start < best)
        best[is_better] = start[is_better]
        replays[is_better] = replay
    return best, replays


def test_each_draw_known_has_its_own_cheapest_plan(problem, plan, truth):
    """Exact within what a search of the coordinate to a 4,000th leaves."""
    x, replay = value.cheapest_if_known(problem, plan)
    best, replays = truth
    np.testing.assert_array_equal(np.isfinite(x), np.isfinite(best))
    some = np.isfinite(best)
    np.testing.assert_allclose(x[some], best[some], atol=0.004)
    np.testing.assert_allclose(replay[some], replays[some], atol=0.01)
    fresh, _ = value.cheapest_if_known(problem, Choice(*value.NO_CHOICE, -1.0))
    np.testing.assert_allclose(fresh[some], best[some], atol=0.004)


@pytest.mark.parametrize("choice", [PLAN, Choice(BILLION + 2.7, 0.8, 0.0)])
def test_regret_and_perfect_information_are_means_of_the_draws_named(
    problem, choice, truth
):
    told = value.perfect_information(problem, choice)
    tokens = np.exp(truth[0])
    spent = np.exp(choice.log_tokens)
    kept = known.kept(problem, choice.log_tokens, choice.replay).all(axis=0)
    assert told["regret"] == pytest.approx(
        np.mean([spent - own for own in tokens[kept]]), abs=0.004 * spent
    )
    # the plans of 160 of 200 draws are needed for 80%; the cheapest of them
    fewest = sorted(tokens)[:160]
    assert told["perfect_information"] == pytest.approx(
        spent - np.mean(fewest), abs=0.004 * spent
    )
    assert kept.sum() < 150
    possible = tokens[np.isfinite(tokens)]
    assert told["share_with_a_plan"] == len(possible) / 200
    assert told["quantiles"] == [0.05, 0.25, 0.5, 0.75, 0.95]
    assert told["atpp"] == pytest.approx(
        np.quantile(possible, told["quantiles"]) / N, rel=0.006
    )
    replays = truth[1][np.isfinite(tokens)]
    assert told["replay"] == pytest.approx(
        np.quantile(replays, told["quantiles"]), abs=0.01
    )


def test_within_a_budget_perfect_information_is_of_the_draws_that_keep(problem, truth):
    """As many of the cheapest plans as draws keep their promises."""
    limited = replace(problem, max_tokens=float(np.exp(PLAN.log_tokens)))
    told = value.perfect_information(limited, PLAN)
    kept = known.kept(problem, *PLAN[:2]).all(axis=0)
    tokens = np.where(truth[0] <= PLAN.log_tokens, np.exp(truth[0]), np.inf)
    fewest = np.sort(tokens)[: kept.sum()]
    expected = np.exp(PLAN.log_tokens) - fewest.mean()
    assert told["perfect_information"] == pytest.approx(expected, rel=0.02)
    nowhere = value.perfect_information(problem, Choice(BILLION - 5, 0.5, -1.0))
    assert nowhere["regret"] is None
    assert nowhere["perfect_information"] is None


# -- none ------------------------------------------------------------------------------


@pytest.mark.parametrize("confidence", [0.3, {"target": 0.9, "web": 0.3}])
@pytest.mark.parametrize("name", ["target", "web"])
def test_the_limit_that_a_point_needs_is_an_order_statistic(name, confidence):
    """Just reached at that limit, and not a hair under it."""
    problem = known.problem(confidence=confidence)
    x, replay = BILLION + 2.7, 0.8
    log_losses = [c.log_losses(x, replay) for c in problem.constraints]
    needed = float(value.limit_needed(problem, name, log_losses))
    for limit, reached in ((needed + 1e-9, True), (needed - 1e-9, False)):
        kept = known.kept(problem.relaxed(name, limit), x, replay)
        if isinstance(confidence, dict):
            shares = kept.mean(axis=1)
            assert (shares[0] >= 0.9 and shares[1] >= 0.3) == reached
        else:
            assert (kept.all(axis=0).mean() >= 0.3) == reached


def test_relaxed_limits_are_the_least_that_make_a_plan():
    """By brute force over replay and tokens, at a confidence out of reach."""
    problem = known.problem(confidence=0.97).relaxed("web", 0.0085)
    assert not np.isfinite(known.cheapest(problem, 0.97, known.REPLAYS[::5])[0])
    rows = value.relaxations(problem)
    assert [row["promise"] for row in rows] == ["target", "web"]
    for row in rows:
        assert row["limit"] < row["needed"] < row["comfortable"]["limit"]
        step = row["needed"] - row["limit"]
        easy = row["comfortable"]
        assert easy["limit"] == pytest.approx(row["limit"] + 1.25 * step)
        replays = known.REPLAYS[::5]
        enough = problem.relaxed(row["promise"], easy["limit"])
        tokens, _ = known.cheapest(enough, 0.97, replays)
        assert np.log(easy["D"]) == pytest.approx(tokens, abs=0.02)
        at = np.log(row["D"]), row["replay"]
        there = problem.relaxed(row["promise"], row["needed"] + 1e-9)
        assert known.kept(there, *at).all(axis=0).mean() >= 0.97
        # a tenth of the way back there is none at any replay
        short = problem.relaxed(row["promise"], row["needed"] - 0.1 * step)
        assert known.cheapest(short, 0.97, replays)[0] == np.inf
        alone = problem.constraints[["target", "web"].index(row["promise"])]
        assert row["unit"] == alone.unit
        assert row["probability_alone"] == 1.0  # with tokens enough, or few enough
    assert problem.ptpp == PTPP


# -- of several models -----------------------------------------------------------------


def solution(size, log_tokens, margin, **fields):
    """A choice for a model of so many parameters."""
    problem = replace(known.problem(draws=4), N=size, **fields)
    return Solution(
        Model(size, PTPP, {}, {}), problem, problem, Choice(log_tokens, 0.3, margin)
    )


def test_the_cheapest_model_that_reaches_the_confidence_comes_first():
    """In FLOPs, not in tokens; where none does, the most probable of them."""
    large, small = solution(4e9, 22.0, 0.0), solution(1e9, 23.0, 0.1)
    dear = solution(1e9, 24.0, 0.1)
    short, shorter = solution(1e7, 20.0, -0.1), solution(1e7, 19.0, -0.2)
    order = [small, large, dear, short, shorter]  # e^23 x 1e9 is less than e^22 x 4e9
    assert sorted(order[::-1], key=Solution.rank) == order
    assert [one.is_reached for one in order] == [True] * 3 + [False] * 2
    assert not short.is_plan


def test_within_a_budget_the_most_probable_model_comes_first():
    """Of equals the cheapest; a plan short of the confidence is one, too."""
    likely, cheap, dear, short = (
        solution(size, 22.0, margin, max_tokens=1e12)
        for size, margin in ((4e9, 0.2), (1e9, 0.1), (2e9, 0.1), (1e8, -0.3))
    )
    order = [likely, cheap, dear, short]
    assert sorted(order[::-1], key=Solution.rank) == order
    assert short.is_plan
    assert not solution(1e8, np.inf, -1.0, max_tokens=1e12).is_plan


def test_a_candidate_tells_its_budget_and_probability(several):
    tried = Solution(solution(N, 0.0, 0.0).model, several, several, PLAN)
    row = tried.describe()
    kept = known.kept(several, *PLAN[:2]).all(axis=0).mean()
    expected = {"N": N, "ptpp": PTPP, "feasible": True, "probability": kept}
    expected |= {"atpp": 10 * np.exp(1.7), "D": 1e9 * np.exp(1.7), "replay": 0.55}
    assert row == pytest.approx(expected | {"flops": 6 * N * 1e9 * np.exp(1.7)})
    none = Choice(np.inf, np.nan, -0.8)
    row = tried._replace(choice=none).describe()
    assert (row["feasible"], row["D"], row["probability"]) == (False, None, 0.0)


def test_worth_is_told_as_a_share_of_tokens_or_as_probability(problem):
    gains = {"target": np.log(2), "web": 0.0}
    rows = value.promises(problem, PLAN, gains)
    assert [row["worth"] for row in rows] == pytest.approx([0.5, 0.0])
    limited = replace(problem, max_tokens=1e10)
    rows = value.promises(limited, PLAN, {"target": 0.03})
    assert [row["worth"] for row in rows] == [0.03, None]


def test_pictures_are_drawn_at_a_finite_budget(problem):
    low, high = problem.span
    assert problem.at_finite_tokens(PLAN) == PLAN
    at = problem.at_finite_tokens(PLAN._replace(log_tokens=np.inf)).log_tokens
    assert at == (low + high) / 2
    assert problem.at_finite_tokens(PLAN._replace(log_tokens=-np.inf)).log_tokens == low


# -- losses that turn ------------------------------------------------------------------


def _rooted(values, columns):
    """Log loss that is a steep arctangent around 5.1 and falls on a line from 10 on, of log tokens."""
    x = jnp.log(columns["D"]) - values["from"]
    bent = jnp.where(x < 10, jnp.arctan(30.0 * (x - 5.1)), 1.0 - 0.4 * (x - 10.0))
    return bent + columns["replay"]


def _part(function, values, rows):
    return Part(Piece(function, {"from": values}, ("D", "replay")), rows, {})


def _constraint(function, values, span=(0.0, 30.0), limit=1.0):
    """A limit on the losses of one formula's draws, or of two formulas' that share them."""
    draws = len(values)
    parts = [_part(function, values, np.arange(draws))]
    ones, asked = np.ones(draws), Constraint("target", limit, "loss")
    return SampledConstraint(asked, tuple(parts), ones, 0 * ones, span)


@pytest.mark.parametrize("draws", [5, 1203])
def test_losses_are_those_of_numpy_at_any_number_of_draws_tokens_and_replays(draws):
    """Draws, replays and tokens that fill up a call change nothing."""
    at = np.linspace(-3.0, 3.0, draws)
    tokens, replay = np.linspace(0.0, 20.0, 150), np.linspace(0.0, 1.0, 20)
    x = tokens[:, None] - at
    expected = np.where(x < 10, np.arctan(30.0 * (x - 5.1)), 1.0 - 0.4 * (x - 10.0))
    made = _constraint(_rooted, at)
    on_grid = made.log_losses_on_grid(tokens, replay)
    by_replay = expected.T[:, None] + replay[:, None]
    np.testing.assert_allclose(on_grid, by_replay, atol=1e-9)
    own = np.linspace(0.0, 1.0, draws)
    along = made.log_losses_on_grid(tokens, own[None])[:, 0].T
    np.testing.assert_allclose(along, expected + own, atol=1e-9)
    np.testing.assert_allclose(made.log_losses(tokens[7], own), along[7])


def test_laws_of_any_share_are_one_program():
    """Draws split between two laws' parts as three and five, then as one and seven."""
    replay = np.linspace(0.0, 1.0, 8)
    programs = []
    for share in (3, 1):
        split = np.split(np.arange(8), [share])
        parts = [_part(_rooted, rows - 3.0, rows) for rows in split]
        two = replace(_constraint(_rooted, np.arange(8) - 3.0), parts=tuple(parts))
        grid = two.log_losses_on_grid(np.array([25.0, 26.0]), np.array([0.0, 0.5]))
        np.testing.assert_allclose(grid[:, 1, 0], two.log_losses(25.0, 0.5))
        # on the line from 10 on
        line = 1.0 - 0.4 * (25.0 - (np.arange(8) - 3.0) - 10.0) + replay
        np.testing.assert_allclose(two.log_losses(25.0, replay), line)
        programs.append(losses_on_grid.count())
    assert programs[0] == programs[1]


def test_a_loss_that_is_no_number_keeps_no_limit(problem):
    losses = [np.full((200, 2), -1.0), np.full((200, 2), -1.0)]
    losses[0][150:, 1] = np.nan
    room, margin = problem.room(losses)
    assert margin == pytest.approx([0.2, -0.05])
    assert room[0] > 0
    assert room[1] == -np.inf


def test_the_room_is_the_rise_of_all_losses_that_the_confidence_bears(several):
    """By bisection on the rise, of one confidence and of one for each limit."""
    at = BILLION + 1.7, 0.55
    for confidence in (0.3, {"target": 0.5, "web": 0.3, "code": 0.4, "math": 0.2}):
        asked = replace(several, confidence=confidence)
        losses = [c.log_losses(*at) for c in asked.constraints]
        room, margin = asked.room(losses)
        for rise, is_kept in ((room - 1e-9, True), (room + 1e-9, False)):
            _, risen = asked.room([loss + rise for loss in losses])
            assert (risen >= 0) == is_kept
        assert (margin >= 0) == (room >= 0)


def test_fewest_tokens_of_a_draw_are_found_between_two_rungs(several):
    """Also where two limits leave a draw less than a step; within 1e-3 of the closed form."""
    replay = np.linspace(0.0, 0.99, several.draws)
    start, end = known.by_draw(several, replay)
    expected = np.where(start <= end, start, np.inf)
    told = value.log_tokens_needed(several, replay)
    is_sure = np.abs(start - end) > 1e-6
    np.testing.assert_allclose(told[is_sure], expected[is_sure], atol=1e-9)
    assert 0 < np.isfinite(expected).sum() < several.draws

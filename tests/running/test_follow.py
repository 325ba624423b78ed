"""A run while it trains: the filter against written-out Gaussians, forecasts that cover, and what becomes of runs that leave their law."""

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import bayeslaw
from bayeslaw import Follower, PlanError, RunTableError
from bayeslaw._running.following import departure
from bayeslaw._running.following.course import course
from known.power_laws import (
    END,
    TOKENS,
    UNTIL,
    Mixed,
    N,
    PowerLaws,
    Reads,
    points,
    power_laws,
    true_curve,
)

# of a run that changes its share of replay: what stays of the old one, and the error
REMEMBERED, CHANGED = 0.35, 0.005

# -- the filter ----------------------------------------------------------------------------

NO_SPIKES = departure.PointNoise(spikes=1e-300)
SCALES = departure.Scales.draw(departure.DeparturePriors.usual_error)


def covariance(
    scales: departure.Scales, g: int, clocks: np.ndarray, end: float
) -> np.ndarray:
    """Of points at these clocks around the law, written out from the definition."""
    gaps = np.abs(clocks[:, None] - clocks)
    apart = gaps * np.sqrt(3) / scales.length[g]
    waned = scales.wander[g] * np.exp(scales.waning[g] * (end - clocks))
    wander = np.outer(waned, waned) * (1 + apart) * np.exp(-apart)
    slope = scales.slope[g] ** 2 * np.outer(clocks - end, clocks - end)
    noise = scales.noise[g] * np.exp(scales.fading[g] * (end - clocks))
    alike = np.exp(
        -gaps / departure.PointNoise().length
    ) + departure.PointNoise().independent ** 2 * (gaps == 0)
    return scales.level[g] ** 2 + slope + wander + np.outer(noise, noise) * alike


def test_the_filter_is_the_gaussian_written_out():
    rng = np.random.default_rng(0)
    clocks, end = np.array([-3.0, -2.5, -1.0, -0.4]), 0.0
    law = rng.normal(0.0, 0.003, (5, 5))  # at the points and the end, of five draws
    y = rng.normal(0.0, 0.003, 4)
    known = replace(departure.Departure.before(SCALES, 5, end), point_noise=NO_SPIKES)
    for j, clock in enumerate(clocks):
        known = known.after(clock, y[j] - law[:, j])
    outlook = departure.Outlook.of(known, end, law[:, 4])

    scales = known.scales
    log_weight = np.empty_like(known.log_weight)
    for g in range(len(scales.level)):
        everywhere = np.append(clocks, end)
        whole = covariance(scales, g, everywhere, end)
        seen, across = whole[:4, :4], whole[:4, 4]
        left = y - law[:, :4]
        log_weight[g] = stats.multivariate_normal(np.zeros(4), seen).logpdf(left)
        gain = np.linalg.solve(seen, across)
        np.testing.assert_allclose(outlook.mean[g], law[:, 4] + left @ gain, rtol=1e-8)
        np.testing.assert_allclose(
            outlook.sd[g] ** 2, whole[4, 4] - across @ gain, rtol=1e-7
        )
    log_weight -= np.logaddexp.reduce(log_weight, axis=None)
    np.testing.assert_allclose(known.log_weight, log_weight, atol=1e-8)


def test_departures_at_two_points_to_come_vary_together_as_written_out():
    clocks, later = np.array([-2.0, -1.2]), np.array([-0.7, 0.0])
    known = replace(departure.Departure.before(SCALES, 2, 0.0), point_noise=NO_SPIKES)
    for clock in clocks:
        known = known.after(clock, np.array([0.01, 0.0]))
    shared = known.covariance_ahead(*later)
    for g in range(0, len(shared), 7):
        whole = covariance(known.scales, g, np.append(clocks, later), 0.0)
        gain = np.linalg.solve(whole[:2, :2], whole[:2, 2:])
        left = whole[2:, 2:] - whole[2:, :2] @ gain
        assert shared[g] == pytest.approx(left[0, 1], rel=1e-6, abs=1e-15)


def test_quantiles_are_those_of_the_mixture():
    rng = np.random.default_rng(3)
    weight = rng.dirichlet(np.ones(12)).reshape(3, 4)
    outlook = departure.Outlook(
        rng.normal(0, 1, (3, 4)), np.array([0.1, 0.5, 1.0]), weight
    )
    for prob, found in zip(
        (0.05, 0.5, 0.95), outlook.quantiles([0.05, 0.5, 0.95]), strict=True
    ):
        assert outlook.below(float(found)) == pytest.approx(prob, abs=0.004)


def test_intervals_of_runs_made_as_assumed_hold_at_every_prefix():
    """A hundred and fifty runs drawn from a law's draw and the prior of departures: 90% intervals hold 90%."""
    law, scales = power_laws(seed=1), departure.Scales.draw(1.0, 256, seed=9)
    clocks = np.log(np.append(TOKENS, UNTIL))
    at = law.log_loss(pd.DataFrame({"D": np.exp(clocks)}))
    rng = np.random.default_rng(2)
    inside = []
    for _ in range(150):
        g, s = rng.integers(len(scales.level)), rng.integers(len(at))
        whole = covariance(scales, g, clocks, clocks[-1])
        y = at[s] + rng.multivariate_normal(np.zeros(9), whole)
        known = departure.Departure.before(SCALES, len(at), clocks[-1])
        held = []
        for j in range(8):
            known = known.after(clocks[j], y[j] - at[:, j])
            if j in (0, 3, 7):
                low, high = departure.Outlook.of(
                    known, clocks[-1], at[:, -1]
                ).quantiles([0.05, 0.95])
                held.append(low <= y[-1] <= high)
        inside.append(held)
    share = np.mean(inside, axis=0)
    # three standard errors of 150 runs are .073
    assert np.all(np.abs(share - 0.9) < 0.075), share


# -- runs ----------------------------------------------------------------------------------


def test_a_run_that_keeps_to_the_law_ends_where_the_law_says_and_sharper_than_before():
    known = decided(None)
    final, before = known.final, known.first.final_before
    assert abs(final["median"] / END - 1) < 0.002
    assert final["low"] < END < final["high"]
    assert final["high"] - final["low"] < 0.6 * (before["high"] - before["low"])


def test_a_run_that_leaves_the_law_is_followed_along_its_own_line():
    tokens = np.geomspace(0.3, 10.0, 14) * N
    losses = 1.3 * true_curve(tokens)
    known = bayeslaw.follow(power_laws(), points(tokens, losses), UNTIL)
    assert known.first.final_before["high"] < 1.1 * END  # the law never heard of it
    assert abs(known.final["median"] / (1.3 * END) - 1) < 0.02
    assert known.surprise < 0.01
    assert "above" in known.first.verdict
    assert "surprising" in known.first.verdict


def test_one_gross_point_moves_the_end_little():
    losses = true_curve(TOKENS)
    spiked = losses.copy()
    spiked[5] *= 1.2
    plain = decided(None).final["median"]
    shaken = bayeslaw.follow(power_laws(), points(TOKENS, spiked), UNTIL).final[
        "median"
    ]
    assert abs(shaken / plain - 1) < 0.004


def test_points_one_by_one_are_points_at_once():
    curve = points(TOKENS, true_curve(TOKENS))
    at_once = decided(END).to_dict()
    one_by_one = Follower.start(power_laws(), {"N": N}, UNTIL, max_loss=END)
    for at, loss in zip(curve["D"], curve["loss"], strict=True):
        one_by_one = one_by_one.after(at, loss)
    growing = Follower.start(power_laws(), curve.head(1), UNTIL, max_loss=END)
    for rows in (2, 2, 5, 8):
        growing = growing.read(curve.head(rows))
    assert one_by_one.following().to_dict() == at_once
    assert growing.following().to_dict() == at_once


def test_a_curve_that_was_written_anew_is_learned_anew():
    first = points(TOKENS, true_curve(TOKENS) * 1.02)
    second = points(TOKENS, true_curve(TOKENS))
    begun = Follower.start(power_laws(), first, UNTIL, max_loss=END)
    follower = begun.read(first).read(second)
    assert follower.following().to_dict() == decided(END).to_dict()


def test_a_point_that_comes_late_is_learned_in_its_place():
    curve = points(TOKENS, true_curve(TOKENS))
    begun = Follower.start(power_laws(), curve, UNTIL, max_loss=END)
    without = begun.read(curve.drop(index=3))
    late = without.read(curve)
    assert late.following().to_dict() == begun.read(curve).following().to_dict()
    assert late.following().final != without.following().final


def test_no_certainty_is_claimed_of_finite_draws():
    said = decided(3 * END).sentence()
    assert "over 99.9%" in said
    assert "100.0%" not in said
    assert "under 0.1%" in decided(0.5 * END).sentence()


def test_a_thousand_points_need_no_more_memory_than_ten():
    follower = Follower.start(power_laws(draws=50), {"N": N}, UNTIL)
    sizes = set()
    for at in np.geomspace(0.03, 19.9, 1000) * N:
        follower = follower.after(at, float(true_curve(at)))
        known = follower.tracks["loss"].departure
        sizes.add((known.mean.nbytes, known.covariance.nbytes, known.log_weight.nbytes))
    assert len(sizes) == 1
    assert follower.following().first.points == 1000


@pytest.mark.parametrize("last", [1.0, 0.998])
def test_a_run_that_ended_has_the_loss_that_was_measured(last):
    """Also where its last point is too near the one before to be used."""
    tokens = np.append(TOKENS, UNTIL * np.array([0.4, 0.994, last]))
    curve = points(tokens, true_curve(tokens))
    measured = float(curve["loss"].iloc[-1])
    for limit, kept in ((measured - 1e-4, 0.0), (measured, 1.0)):
        known = bayeslaw.follow(power_laws(), curve, UNTIL, max_loss=limit)
        ends = [known.final[end] for end in ("median", "low", "high")]
        assert ends == pytest.approx([measured] * 3)
        assert known.probability == pytest.approx(kept)
        assert known.decision.action == ("go on" if kept else "stop")
        verdict = "keeps" if kept else "breaks"
        assert known.decision.reason.startswith(
            f"the run is over, and its end {verdict}"
        )
        assert known.decision.regret == pytest.approx({"go on": 0.0, "stop": 0.0})
    assert Follower.start(power_laws(), curve, UNTIL).read(curve).is_done


def test_points_too_near_or_too_early_are_passed_over_and_told():
    tokens = np.concatenate([[UNTIL / 5000], TOKENS, TOKENS[-1:] * 1.001])
    losses = np.concatenate([[9.0], true_curve(TOKENS), [3.0]])
    known = bayeslaw.follow(power_laws(), points(tokens, losses), UNTIL)
    assert known.final == decided(None).final
    assert known.first.notes[0].startswith("2 points passed over")


class FromFirstToken(PowerLaws):
    """Power laws that do not describe the first token per parameter."""

    def pieces(self):
        return (Reads(("N", "D"), first_steps=1.0),)


@pytest.mark.parametrize("until", [UNTIL, 4 * N])
def test_first_steps_that_a_law_does_not_describe_are_passed_over(until):
    law = power_laws()
    passes = FromFirstToken(law.floor, law.height, law.power)
    tokens = TOKENS[until > TOKENS]
    losses = true_curve(tokens)
    # at most an eighth of the run is passed over
    is_early = tokens < min(N, until / 8)
    assert 0 < is_early.sum() < len(tokens)
    known = bayeslaw.follow(passes, points(tokens, losses + is_early), until)
    without = points(tokens[~is_early], losses[~is_early])
    assert known.final == bayeslaw.follow(passes, without, until).final
    assert known.first.notes[0].startswith(f"{is_early.sum()} points passed over")


@pytest.mark.parametrize("until", [UNTIL, 4 * N])
def test_a_point_where_the_law_begins_is_used(until):
    """Up to the rounding of whole batches: tokens and sizes are alike within .1%."""
    law = power_laws()
    passes = FromFirstToken(law.floor, law.height, law.power)
    tokens = min(N, until / 8) * np.array([0.9995, 2.0])
    known = bayeslaw.follow(passes, points(tokens, true_curve(tokens)), until)
    assert known.first.points == 2


def test_a_chain_passes_over_the_first_steps_of_its_law():
    target = bayeslaw.prior_only("state-power")
    before = bayeslaw.prior_only("chinchilla")
    chained = bayeslaw.chain(target, {"source_loss_before": before})
    assert [piece.first_steps for piece in chained.pieces()] == [1.0]


@pytest.mark.parametrize("told", ["lr", "column", "argument"])
def test_points_of_the_warm_up_are_left_out_with_a_word(told):
    losses = true_curve(TOKENS)
    warm = losses.copy()
    warm[:2] += 0.5
    steps = np.arange(8) * 10.0 + 10
    curve = points(TOKENS, warm, step=steps)
    if told == "lr":
        curve["lr"] = [1e-4, 2e-4, 3e-4, 3e-4, 2.9e-4, 2.8e-4, 2e-4, 1e-4]
    if told == "column":
        curve["warmup"] = 30
    known = bayeslaw.follow(
        power_laws(), curve, UNTIL, warmup=30 if told == "argument" else None
    )
    without = bayeslaw.follow(power_laws(), points(TOKENS[2:], losses[2:]), UNTIL)
    assert known.final == without.final
    assert "2 points of the warm-up left out" in known.first.notes


def test_before_the_first_point_all_is_as_it_was_foreseen():
    law = power_laws(draws=4000)
    follower = Follower.start(law, {"N": N}, UNTIL, max_loss=END)
    known = follower.following()
    assert known.first.points == 0
    assert known.surprise == 1.0
    before = known.first.final_before
    assert known.final["median"] == pytest.approx(before["median"], rel=0.003)
    assert known.probability == pytest.approx(known.probability_before, abs=0.1)


def test_the_law_between_its_nodes_is_the_law():
    law = power_laws()
    along = course(law, pd.DataFrame({"N": [N]}), UNTIL)
    tokens = np.geomspace(0.05, 70, 333) * N
    exact = law.log_loss(pd.DataFrame({"N": N, "D": tokens}))
    found = np.array([along.at(np.log(d)) for d in tokens]).T
    assert np.abs(found - exact).max() < 2e-5


def test_a_posterior_without_noise_is_followed_too():
    law = power_laws()
    law.noise = 0.0
    known = bayeslaw.follow(law, points(TOKENS, true_curve(TOKENS)), UNTIL)
    assert known.final["low"] < known.final["median"] < known.final["high"]
    assert abs(known.final["median"] / END - 1) < 0.002


def test_from_when_on_the_end_was_known():
    known = bayeslaw.follow(
        power_laws(), points(TOKENS, true_curve(TOKENS)), UNTIL, within=0.01
    )
    history = known.first.history
    half = (history["final_high"] - history["final_low"]) / 2 / history["final_median"]
    wide = history["at"][half > 0.01]
    assert known.first.known_from > wide.max()
    assert known.first.known_from in set(history["at"])
    never = bayeslaw.follow(
        power_laws(), points(TOKENS, true_curve(TOKENS)), UNTIL, within=1e-5
    )
    assert never.first.known_from is None


# -- surprise ------------------------------------------------------------------------------


def test_runs_of_the_law_are_as_surprising_as_stated():
    """Of two hundred runs drawn from the forecast, about one in ten is called unusual."""
    law = power_laws(seed=4)
    at = law.log_loss(pd.DataFrame({"D": TOKENS}))
    rng = np.random.default_rng(5)
    surprises = []
    for _ in range(200):
        y = at[rng.integers(len(at))] + law.noise * rng.standard_normal()
        y = y + 0.0005 * rng.standard_normal(8)
        follower = Follower.start(law, {"N": N}, UNTIL)
        for tokens, log_loss in zip(TOKENS, y, strict=True):
            follower = follower.after(tokens, float(np.exp(log_loss)))
        surprises.append(follower.tracks["loss"].surprise)
    assert np.mean(np.array(surprises) < 0.1) < 0.16
    assert np.mean(np.array(surprises) < 0.01) < 0.04


@pytest.mark.parametrize(("factor", "side"), [(1.15, "above"), (0.85, "below")])
def test_a_run_that_breaks_away_half_way_is_surprising_and_reasons_are_named(
    factor, side
):
    losses = true_curve(TOKENS)
    losses[4:] *= factor
    known = bayeslaw.follow(power_laws(), points(TOKENS, losses), UNTIL)
    assert known.surprise < 0.01
    assert known.first.side == side
    expected = {"above": "learning rate", "below": "validation text"}
    assert expected[side] in known.first.verdict


# -- decisions -----------------------------------------------------------------------------


@cache
def decided(limit):
    """What is known of a run of the law that has this limit."""
    curve = points(TOKENS, true_curve(TOKENS))
    return bayeslaw.follow(power_laws(), curve, UNTIL, max_loss=limit)


def test_each_decision_where_it_is_due():
    assert decided(None).decision.action == "go on"
    going_on = decided(1.012 * END)
    assert going_on.decision.action == "stop early"
    assert going_on.decision.stop_at < UNTIL
    lost = decided(0.985 * END)
    assert lost.decision.action == "stop"
    assert lost.probability < 0.1
    assert lost.decision.needed > UNTIL
    unsure = decided(END)
    assert unsure.decision.action == "wait"
    assert TOKENS[-1] < unsure.decision.look_again < UNTIL
    assert 0.5 <= unsure.decision.sure_by_then < 1


def test_where_a_run_may_stop_early_the_loss_there_keeps_the_limit():
    known = decided(1.03 * END)
    early = known.decision.stop_at
    assert known.decision.saved == pytest.approx(1 - early / UNTIL)
    path = known.first.path
    upper = np.interp(early, path["D"], path["high"])  # 95% of runs are below
    assert float(true_curve(early)) <= 1.03 * END < 1.01 * upper


def mixed() -> Mixed:
    plain = power_laws()
    return Mixed(plain.floor, plain.height, plain.power)


def test_another_share_of_replay_ends_near_its_law_with_the_runs_own_departure():
    """The run lies 2% over its law at replay .3: so will its end at any other share, and less surely than as planned; of the old share something stays."""
    losses = 1.02 * true_curve(TOKENS) * np.exp(0.3)
    curve = points(TOKENS, losses, replay=0.3)
    known = bayeslaw.follow(mixed(), curve, UNTIL, max_loss=1.1 * 1.02 * END)
    ends = known.first.replays.set_index("replay")["median"]
    as_planned = known.final["median"]
    moved = 1 - REMEMBERED * TOKENS[-1] / UNTIL
    for replay, median in ends.items():
        expected = as_planned * np.exp(moved * (replay - 0.3))
        assert median == pytest.approx(expected, rel=0.003)
    planned = np.log(known.final["high"] / known.final["low"])
    row = known.first.replays.iloc[3]  # the same share
    assert row["replay"] == 0.3
    assert np.log(row["high"] / row["low"]) == pytest.approx(
        np.hypot(planned, 2 * 1.645 * CHANGED), rel=0.05
    )
    assert known.decision.action == "stop"
    # of one domain alone that would be advice to forget the other
    assert known.decision.replay is None
    both = {"target": mixed(), "source": mixed()}
    curves = pd.concat([curve.assign(domain=name) for name in both])
    limits = dict.fromkeys(both, 1.1 * 1.02 * END)
    advised = bayeslaw.follow(both, curves, UNTIL, max_loss=limits).decision
    assert advised.replay == 0.05
    best = known.first.replays["probability"].max()
    assert advised.replay_probability == pytest.approx(best**2)


def test_late_in_a_run_no_other_share_is_told():
    tokens = np.append(TOKENS, 0.6 * UNTIL)
    curve = points(tokens, true_curve(tokens) * np.exp(0.3), replay=0.3)
    known = bayeslaw.follow(mixed(), curve, UNTIL, max_loss=1.1 * END)
    assert known.first.replays.empty
    assert known.decision.replay is None


def test_regret_is_what_is_thrown_away():
    known = decided(END)
    left = UNTIL - TOKENS[-1]
    regret = known.decision.regret
    assert regret["go on"] == pytest.approx((1 - known.probability) * left)
    assert regret["stop"] == pytest.approx(known.probability * UNTIL)


def test_looking_again_makes_sure_as_often_as_said():
    """Sixty runs go on from where the decision waits, drawn from what is known there."""
    law = power_laws(seed=6)
    curve = points(TOKENS, true_curve(TOKENS))
    follower = Follower.start(law, curve, UNTIL, max_loss=END).read(curve)
    decision = follower.following().decision
    assert decision.action == "wait"
    track = follower.tracks["loss"]
    there = track.outlook(np.log(decision.look_again))
    drawn = there.draw(60, np.random.default_rng(7))
    sure = 0
    for log_loss in drawn:
        later = follower.after(decision.look_again, float(np.exp(log_loss)))
        chance = later.tracks["loss"].probability()
        sure += chance >= 0.9 or chance <= 0.1
    assert sure / 60 == pytest.approx(decision.sure_by_then, abs=0.25)


def test_two_domains_keep_their_promises_together():
    target, source = power_laws(domain="target"), power_laws(seed=8, domain="source")
    curve = pd.concat(
        [points(TOKENS, true_curve(TOKENS), domain="target"), points(TOKENS, 1.001 * true_curve(TOKENS), domain="source")]
    )  # fmt: skip
    limits = {"target": 1.003 * END, "source": 1.004 * END}
    known = bayeslaw.follow(
        {"target": target, "source": source}, curve, UNTIL, max_loss=limits
    )
    alone = [known[name].probability for name in ("target", "source")]
    assert known.probability == pytest.approx(alone[0] * alone[1])
    only = bayeslaw.follow(target, curve, UNTIL, max_loss=limits["target"])
    assert only.probability == known["target"].probability


def test_the_verdict_of_several_domains_is_of_each_and_the_side_of_the_strangest():
    losses = {"target": true_curve(TOKENS), "source": 0.9 * true_curve(TOKENS)}
    posteriors = {name: power_laws(domain=name) for name in losses}
    curve = pd.concat(points(TOKENS, loss, domain=n) for n, loss in losses.items())
    known = bayeslaw.follow(posteriors, curve, UNTIL).to_dict()
    each = {name: known["domains"][name]["verdict"] for name in losses}
    assert known["verdict"] == "; ".join(f"{name}: {v}" for name, v in each.items())
    assert each["target"] == "as foreseen"
    assert each["source"].startswith("surprising")
    assert known["side"] == "below"
    assert known["surprise"] < 0.01


# -- bad input -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "asked", "said"),
    [
        ({"run": list("aabbaabb")}, {}, "has 2 runs"),
        ({"D": [1e8, 1e8, *TOKENS[2:]]}, {}, "two losses at D = 100M"),
        ({}, {"until": TOKENS[5]}, "after the planned end"),
        ({"N": [N] * 7 + [2 * N]}, {}, "'N' changes along the run"),
        ({}, {"max_loss": -1.0}, "max_loss of loss must be a positive number"),
        ({}, {"max_loss": {"source": 1.0}}, "max_loss of 'source'"),
        ({}, {"max_loss": 300}, "max_loss of loss must be .* at most 20"),
        ({}, {"confidence": 1.0}, "confidence must be a probability"),
        ({}, {"confidence": 90}, "confidence 90 is 9000%; write 90% or 0.9"),
        ({}, {"prob": float("nan")}, "prob must be a probability"),
        ({}, {"until": 1e30}, "until must be a positive number of at most"),
        ({}, {"within": 2}, "within must be a positive number below 1"),
        ({}, {"warmup": 5.0}, "lacks column 'step'"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_a_line(change, asked, said):
    curve = points(TOKENS, true_curve(TOKENS)).assign(**change)
    with pytest.raises((PlanError, RunTableError), match=said) as refused:
        bayeslaw.follow(power_laws(), curve, **({"until": UNTIL} | asked))
    assert "\n" not in str(refused.value)


class OfRate(Reads):
    """What is read of a law of a swept rate, which a run may lack."""

    def columns_in(self, there):
        return [name for name in self.covariates if name in there or name != "rate"]


class Swept(PowerLaws):
    """Power laws whose loss rises with the rate of the whole run, if it is given."""

    def pieces(self):
        return (OfRate(("N", "D", "rate")),)

    def log_loss(self, runs, *, noise=False, seed=0):
        law = super().log_loss(runs, noise=noise, seed=seed)
        return law + (runs["rate"].to_numpy(float) if "rate" in runs else 0.0)


def test_a_setting_that_steps_is_no_schedule():
    """A law reads one rate of a whole run: neither the curve nor a schedule changes it."""
    law = power_laws()
    swept = Swept(law.floor, law.height, law.power)
    curve = points(TOKENS, true_curve(TOKENS) * np.exp(0.1))
    refused = pytest.raises(
        RunTableError, match="peak in all rows, or leave the column"
    )
    with refused:
        bayeslaw.follow(swept, curve.assign(rate=[0.1] * 4 + [0.05] * 4), UNTIL)
    tokens = np.geomspace(0.05 * TOKENS[0], UNTIL, 60)
    steps = pd.DataFrame({"D": tokens, "rate": np.geomspace(0.1, 1e-3, 60)})
    at_peak = curve.assign(rate=0.1)
    with refused:
        bayeslaw.follow(swept, at_peak, UNTIL, schedule=steps)
    known = bayeslaw.follow(swept, at_peak, UNTIL, schedule=steps.drop(columns="rate"))
    before = known["loss"].final_before["median"]
    assert before == pytest.approx(END * np.exp(0.1), rel=0.01)


@pytest.mark.parametrize("column", ["N", "D", "loss"])
def test_a_missing_column_is_named(column):
    curve = points(TOKENS, true_curve(TOKENS)).drop(columns=column)
    with pytest.raises(RunTableError, match=f"lacks.*{column}|{column}.*lacks"):
        bayeslaw.follow(power_laws(), curve, UNTIL)


def test_a_loss_that_cannot_be_is_refused_as_it_comes():
    follower = Follower.start(power_laws(), {"N": N}, UNTIL)
    for at, loss, said in ((1e8, float("nan"), "loss of loss"), (3 * UNTIL, 2.0, "after the planned end"), (0.0, 2.0, "D must be"), (1e8, {"x": 2.0}, "loss of 'x'")):  # fmt: skip
        with pytest.raises(PlanError, match=said):
            follower.after(at, loss)


def test_before_its_points_a_run_is_forecast_as_by_the_forecast():
    """With what the fit learned of its model: band, end and probability are of one forecast."""
    table = bayeslaw.datasets.load("microcpt")
    is_few = (
        "seed == 0 and domain == 'target' and replay in (0.1, 0.25, 0.5) and N < 1e5"
    )
    table = table.query(is_few).drop(columns=["loss_before", "source_loss_before"])
    seen, run = table[table.ptpp < 279], table[table.run == "54k-s0-ptpp279-r0.1"]
    reference = {"N": 1e5, "D": 1e6, "ptpp": 100.0}
    fit = bayeslaw.fit(
        seen, "ptpp-tokens", reference=reference, preview=True, on_failure="ignore"
    )
    (member,) = fit.members
    assert member.known_effects(run, ("model",)).any()
    until = float(run["D"].max())
    (foreseen,) = bayeslaw.forecast(fit, run.tail(1)).to_dict("records")
    known = bayeslaw.follow(fit, run.head(2), until, max_loss=foreseen["median"])
    before = known.first.final_before
    for end in ("median", "low", "high"):
        assert before[end] == pytest.approx(foreseen[end], rel=0.01)
        assert known.first.path[f"before_{end}"].iloc[-1] == pytest.approx(before[end])
    assert known.probability_before == pytest.approx(0.5, abs=0.06)

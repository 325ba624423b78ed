"""What laws are judged by, computed again: which rows a stage's fit sees, its forecast
with drift and noise by quadrature, its miss by loops; and the average of such judgements.
"""

import json
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy import integrate, stats
from typer.testing import CliRunner

import bayeslaw
from bayeslaw import Comparison, RunTableError
from bayeslaw._inference import diagnostics
from bayeslaw._inference.coordinates import contrast_points
from bayeslaw._inference.discrepancy.drift import (
    DriftPrior,
    DriftPriors,
    Miss,
    Range,
    _Summary,
    draw_scales,
)
from bayeslaw._inference.importance import Approximation
from bayeslaw._inference.noise import ERROR, RunNoise
from bayeslaw._inference.table import NONE, pad
from bayeslaw._posteriors.averaging import compare as comparing
from bayeslaw._posteriors.averaging import judge as judging
from bayeslaw._posteriors.averaging.average import DRAWS, of_comparison, shares
from bayeslaw._posteriors.averaging.compare import (
    Comparing,
    Stacking,
    best_probabilities,
    weigh,
)
from bayeslaw._posteriors.averaging.folds import Fold, default_axes, folds
from bayeslaw._posteriors.averaging.judge import (
    Forecast,
    HeldOutScore,
    Judged,
    Setting,
    judge,
)
from bayeslaw._posteriors.fits import refits
from bayeslaw.cli.app import app

LAW = bayeslaw.law("chinchilla")
CENTRE = {name: float(v) for name, v in LAW.from_paper(LAW.plausible).items()}


def draws_of_law(draws=40, seed=0, **error):
    """Draws around the law's plausible parameters, and its error's."""
    rng = np.random.default_rng(seed)
    values = {
        name: value * np.exp(0.01 * rng.standard_normal(draws))
        for name, value in CENTRE.items()
    }
    error = {"sigma": 0.01, "dof": 6.0} | error
    return values | {name: np.full(draws, v) for name, v in error.items()}


def by_hand(values, runs):
    """Log loss of each draw at each run from E + A / N^alpha + B / D^beta."""
    published = LAW.to_paper(values)
    p = {name: np.asarray(v)[:, None] for name, v in published.items()}
    N, D = runs["N"].to_numpy(), runs["D"].to_numpy()
    return np.log(p["E"] + p["A"] / N ** p["alpha"] + p["B"] / D ** p["beta"])


# -- what a stage's fit sees -----------------------------------------------------------


@pytest.fixture
def runs():
    grid = pd.MultiIndex.from_product(
        [[1e8, 2e8, 4e8, 8e8], [1e9, 4e9, 1.6e10, 6.4e10]], names=["N", "D"]
    ).to_frame(index=False)
    rng = np.random.default_rng(5)
    loss = np.exp(by_hand(draws_of_law(1), grid)[0] + 0.01 * rng.standard_normal(16))
    return grid.assign(loss=loss)


@pytest.fixture
def calls(monkeypatch):
    """What the sampler and the misfit are given, in order; draws that are known come back."""
    seen = []

    def refit(law, part, at, vectors, *, seed, importance, nuts):
        seen.append(
            {"weight": np.asarray(part.weight), "points": at, "importance": importance}
        )
        notes = {"sampler": "none", "rhat": [1.0, 1.0, 1.02][len(seen) % 3]}
        notes |= {"ess": 500.0, "divergences": 0, "draws": 40}
        return refits.Refit(draws_of_law(seed=len(seen)), notes)

    def learn(law, values, training, kept, *, power, seed, tries):
        seen[-1] |= {"kept": kept, "tries": tries, "power": power}

    def points(law, columns):
        return columns

    monkeypatch.setattr(judging, "refit", refit)
    monkeypatch.setattr(judging, "learn_misfit", learn)
    monkeypatch.setattr(judging.coordinates, "contrast_points", points)
    prepared = SimpleNamespace(centre=np.zeros(3))
    monkeypatch.setattr(judging, "prepare", lambda *given: prepared)
    monkeypatch.setattr(judging, "starts_near", lambda *given: np.zeros((3, 3)))
    return seen


def test_a_stage_is_forecast_from_the_runs_kept_alone(runs, calls):
    """Neither the sampler nor the misfit nor the range knows of the runs left out."""
    fitted = np.arange(16) != 4
    stages = [s.among(fitted) for s in folds(runs[fitted], ["N", "D"], 5)]
    judged = judge(LAW, runs, fitted, stages, Setting(seed=2), lambda: None)
    known = [fitted, *(stage.kept for stage in stages)]
    assert len(calls) == len(known) == 3
    for call, kept in zip(calls, known, strict=True):
        np.testing.assert_array_equal(call["weight"][:16], kept)
        assert call["weight"][16:].sum() == 0
        np.testing.assert_array_equal(call["kept"], kept)
        np.testing.assert_array_equal(call["points"]["N"], runs["N"][kept])
    assert calls[0]["importance"] is judging.OF_THE_TABLE.importance
    assert (
        calls[1]["importance"]
        is calls[2]["importance"]
        is judging.OF_A_STAGE.importance
    )
    assert calls[1]["tries"] == calls[0]["tries"] // 2
    held = [stage.held.sum() for stage in stages]
    assert [len(score.density) for score in judged.held_out] == held
    assert not any((s.held & s.kept).any() or s.held[4] for s in stages)
    # R-hat of the second posterior, the first stage's, is over 1.01
    assert judged.failed == (stages[0].name,)
    np.testing.assert_array_equal(
        judged.values["E_nats"], draws_of_law(seed=1)["E_nats"]
    )
    low, high = np.log(runs["N"][fitted].min()), np.log(runs["N"][fitted].max())
    place = judged.training_range.axes.index("N")
    assert (
        judged.training_range.low[place],
        judged.training_range.high[place],
    ) == pytest.approx((low, high))


def test_each_stage_is_scored_with_the_draws_of_its_own_fit(runs, calls):
    """From the same random numbers: drift by what all stages taught, then noise."""
    everything = np.ones(16, bool)
    stages = folds(runs, ["N", "D"], 5)
    judged = judge(LAW, runs, everything, stages, Setting(seed=2), lambda: None)
    y = np.log(runs["loss"].to_numpy())
    forecasts = []
    for k, stage in enumerate(stages):
        values = draws_of_law(seed=k + 2)
        mean = by_hand(values, runs[stage.held])
        logs = {c: np.log(runs[c][stage.held].to_numpy()) for c in ("N", "D")}
        products = {"N": {"N": 1}, "D": {"D": 1}}
        products |= {"D/N": {"D": 1, "N": -1}, "N*D": {"D": 1, "N": 1}}
        away = []
        for powers in products.values():
            whole = sum(p * np.log(runs[c]) for c, p in powers.items())
            low, high = whole[stage.kept].min(), whole[stage.kept].max()
            at = sum(p * logs[c] for c, p in powers.items())
            away += [np.maximum(at - high, 0), np.clip(low - at, 0, 3.0)]
        forecasts.append((values, mean, np.stack(away, axis=1), y[stage.held]))
    misses = [
        Miss(
            y_held - mean.mean(axis=0),
            np.cov(mean.T) + 0.01**2 * 1.5 * np.eye(len(y_held)),  # 6 / (6 - 2)
            away,
        )
        for _, mean, away, y_held in forecasts
    ]
    rng = np.random.default_rng(2)
    # above and below in N, D, D/N and N*D
    mean_drift = (0.0, 0.0, 0.0, 0.0, 2.0, 0.0, -2.0, 0.0)
    prior = DriftPrior(DriftPriors().size_tau, mean_drift)
    np.testing.assert_allclose(judged.tau, draw_scales(misses, prior, rng), rtol=1e-6)
    for score, (_, mean, away, y_held) in zip(judged.held_out, forecasts, strict=True):
        tau = judged.tau[rng.integers(len(judged.tau), size=40)]
        moved = np.minimum(tau, 0.003) * mean_drift
        drift = moved + tau * rng.standard_normal((40, away.shape[1]))
        centre = mean + drift @ away.T
        each = stats.t.pdf((y_held - centre) / 0.01, 6) / 0.01
        np.testing.assert_allclose(score.density, np.log(each.mean(axis=0)), rtol=1e-6)
        new = centre + 0.01 * rng.standard_t(6.0, centre.shape)
        low, middle, high = np.quantile(new, [0.05, 0.5, 0.95], axis=0)
        np.testing.assert_array_equal(score.inside, (low <= y_held) & (y_held <= high))
        np.testing.assert_allclose(score.error, abs(np.expm1(middle - y_held)))


# -- a forecast scored -----------------------------------------------------------------


def forecast(y, draws=40_000, away=0.0, sigma=0.01, dof=5.0, **shared):
    """Of two runs, the law known exactly, at a distance along one axis."""
    values = {"sigma": np.full(draws, sigma), "dof": np.full(draws, dof)}
    values |= {name: np.full(draws, v) for name, v in shared.items()}
    same = {"checkpoint": np.ones((2, 2), bool)} if shared else {}
    mean = np.tile([0.7, 0.9], (draws, 1))
    distance = np.array([[away, 0.0]] * 2)
    unstated = np.zeros(len(y))
    ones = np.ones(len(y))
    return Forecast(mean, values, distance, same, np.array(y), ones, unstated)


TAU = 0.01
SURE = np.full((1, 2), TAU)  # scales of the drift to two sides
CENTRED = DriftPrior(DriftPriors().tau, (0.0, 0.0))
DISTANCE = 0.02 / TAU  # at which the drift's sd is .02


def density(error, sigma=0.01, dof=5.0, drift=0.02):
    """Of a Student-t and a normal error together, by quadrature over the normal."""

    def part(d):
        return (
            stats.t.pdf((error - d) / sigma, dof) / sigma * stats.norm.pdf(d, 0, drift)
        )

    return integrate.quad(part, -8 * drift, 8 * drift, limit=200)[0]


def test_the_score_is_the_density_of_drift_and_noise_together():
    scored = judging._score_stage(
        forecast([0.72, 0.84], away=DISTANCE), SURE, CENTRED, np.random.default_rng(0)
    )
    expected = [np.log(density(0.02)), np.log(density(0.06))]
    np.testing.assert_allclose(scored.density, expected, atol=0.03)
    without = stats.t.logpdf(np.array([2.0, -6.0]), 5) - np.log(0.01)
    assert np.abs(scored.density - without).min() > 0.2


def test_the_score_s_noise_has_what_a_new_checkpoint_adds():
    scored = judging._score_stage(
        forecast([0.72, 0.84], tau_checkpoint=0.03),
        SURE,
        CENTRED,
        np.random.default_rng(0),
    )
    expected = [np.log(density(error, drift=0.03)) for error in (0.02, 0.06)]
    np.testing.assert_allclose(scored.density, expected, atol=0.03)


def test_inside_are_those_between_5_and_95_percent():
    """Runs a twentieth of the half width within either end, and as much beyond."""
    reach = 0.01 * stats.t.ppf(0.95, 5)
    for y, inside in (
        ([0.7 + 0.95 * reach, 0.9 - 0.95 * reach], [True, True]),
        ([0.7 + 1.05 * reach, 0.9 - 1.05 * reach], [False, False]),
    ):
        scored = judging._score_stage(
            forecast(y, draws=1_000_000), SURE, CENTRED, np.random.default_rng(1)
        )
        assert scored.inside.tolist() == inside
        assert scored.error == pytest.approx(
            abs(np.expm1([0.7, 0.9] - np.array(y))), abs=5e-4
        )
        low, high = np.exp(-reach), np.exp(reach)
        off = np.exp(np.array(y) - [0.7, 0.9])
        beyond = np.maximum(low - off, 0) + np.maximum(off - high, 0)
        expected = (high - low + 20 * beyond) / off
        np.testing.assert_allclose(scored.interval, expected, atol=2e-3)


def test_a_miss_has_the_covariance_of_law_noise_and_what_runs_share():
    rng = np.random.default_rng(3)
    mean = np.array([0.5, 0.6, 0.7]) + rng.normal(0.0, 0.01, (30, 3))
    values = {
        "sigma": np.exp(rng.normal(-5, 0.5, 30)),
        "dof": 3 + 5 * rng.random(30),
        "tau_checkpoint": rng.normal(0, 0.02, 30),
    }
    values["tau_setting"] = np.abs(rng.normal(0, 0.01, 30))
    same = np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1]], bool)
    alike = np.array([[1, 0, 1], [0, 1, 0], [1, 0, 1]], bool)
    # a misfit without runs has no scale of what they share
    pairs = {"checkpoint": same, "setting": alike, "run": np.ones((3, 3), bool)}
    y = np.array([0.51, 0.6, 0.72])
    away = rng.random((3, 2))
    ones, unstated = np.ones(3), np.zeros(3)
    miss = judging._measure_miss(Forecast(mean, values, away, pairs, y, ones, unstated))
    centre = [sum(mean[:, i]) / 30 for i in range(3)]
    np.testing.assert_allclose(miss.residual, y - centre)
    np.testing.assert_array_equal(miss.distance, away)
    own = [
        s**2 * min(d / (d - 2), 2.0)
        for s, d in zip(values["sigma"], values["dof"], strict=True)
    ]
    shared = np.mean([tau**2 for tau in values["tau_checkpoint"]])
    of_setting = np.mean([tau**2 for tau in values["tau_setting"]])
    for i in range(3):
        for j in range(3):
            pair = (mean[:, i] - centre[i]) * (mean[:, j] - centre[j])
            expected = pair.sum() / 29 + shared * same[i, j]
            expected += of_setting * alike[i, j]
            expected += np.median(own) if i == j else 0.0
            assert miss.covariance[i, j] == pytest.approx(expected)
    alone = judging._measure_miss(
        Forecast(mean[:, :1], values, away[:1], {}, y[:1], ones[:1], unstated[:1])
    )
    assert alone.covariance.shape == (1, 1)
    assert alone.covariance[0, 0] == pytest.approx(
        np.var(mean[:, 0], ddof=1) + np.median(own)
    )


def test_scales_of_drift_are_weighed_by_normal_densities():
    """By scipy's multivariate normal, of scales for each side."""
    rng = np.random.default_rng(8)
    misses = []
    for _ in range(2):
        root = 0.01 * rng.standard_normal((4, 4))
        away = rng.random((4, 2))
        residual = 0.02 * rng.standard_normal(4)
        misses.append(Miss(residual, root @ root.T + 1e-5 * np.eye(4), away))
    scales = np.exp(rng.normal(-5, 1.5, (20, 2)))
    mean = np.array([0.01, -0.004])
    for miss in misses:
        expected = []
        for tau in scales:
            of_drift = (miss.distance * tau**2) @ miss.distance.T
            centre = miss.distance @ mean
            rows = stats.multivariate_normal(centre, miss.covariance + of_drift)
            expected.append(rows.logpdf(miss.residual))
        means = np.tile(mean, (len(scales), 1))
        told = _Summary.of(miss).log_likelihood(scales, means, np.ones(2, bool))
        np.testing.assert_allclose(told - told[0], np.array(expected) - expected[0])


def test_one_gross_residual_is_drawn_in_to_five_robust_sds():
    """Of the median absolute deviation, a normal's sd times .6745."""
    residual = np.array([-0.002, -0.001, 0.0, 0.001, 0.5])
    sd = 0.001 / stats.norm.ppf(0.75)
    drawn = np.array([-0.002, -0.001, 0.0, 0.001, 5 * sd])
    away, noise = np.ones((5, 2)), 1e-6 * np.eye(5)
    np.testing.assert_allclose(
        _Summary.of(Miss(residual, noise, away)).product,
        _Summary.of(Miss(drawn, noise, away)).product,
        rtol=1e-3,
    )


# -- weights and draws -----------------------------------------------------------------


def test_smoothed_weights_tell_the_tail_of_a_pareto():
    """Ratios with tail index k have that k-hat; the largest are drawn in, the small stay."""
    u = (np.arange(4000) + 0.5) / 4000
    for k in (0.3, 0.9):
        log_weight = -k * np.log(u)
        weight, khat = diagnostics.pareto_smoothed(log_weight)
        assert khat == pytest.approx(k, abs=0.1)
        assert weight.sum() == pytest.approx(1)
        small = u > 0.5
        plain = u**-k / np.sum(u**-k)
        ratio = weight[small] / plain[small]
        np.testing.assert_allclose(ratio, ratio[0])
        # the largest are replaced by the quantiles of the fitted Pareto
        tail = np.abs(weight / plain - ratio[0])[:20]
        assert tail.max() > 0.01
    assert diagnostics.pareto_smoothed(np.zeros(99))[1] == np.inf
    few = np.r_[np.zeros(99), np.full(500, -np.inf)]
    assert diagnostics.pareto_smoothed(few)[1] == np.inf
    none = diagnostics.pareto_smoothed(np.full(7, -np.inf))
    assert (none[0] == 1 / 7).all()
    assert none[1] == np.inf


@pytest.mark.parametrize(
    ("k", "ess", "trusted"), [(0.69, 51, True), (0.71, 51, False), (0.1, 49, False)]
)
def test_chains_take_over_where_weights_are_poor(monkeypatch, k, ess, trusted):
    approximation = refits_stand_in(k, ess)
    monkeypatch.setattr(refits, "approximate", lambda *given, **more: approximation)
    monkeypatch.setattr(refits, "whitened_at", lambda *given: None)
    chains = ({"sigma": np.ones(3)}, {"sampler": "NUTS"})
    monkeypatch.setattr(refits, "draw", lambda *given, **more: chains)
    x = {"N": np.array([1e8, 1e9]), "D": np.array([1e9, 1e10])}
    table, points = pad(x, np.zeros(2), NONE), contrast_points(LAW, x)
    made = refits.refit(
        LAW,
        table,
        points,
        np.zeros((1, 3)),
        seed=0,
        importance=judging.OF_A_STAGE.importance,
    )
    assert (made[1]["sampler"] == "NUTS") != trusted
    if trusted:
        assert made[1]["ess"] == pytest.approx(ess)
        assert f"k-hat {k:.2f}" in made[1]["sampler"]
        assert len(made[0]["sigma"]) == judging.OF_A_STAGE.importance.draws


def refits_stand_in(k, ess):
    """Weighted draws with so many effective ones: so many of equal weight, others of none."""
    weight = np.r_[np.full(ess, 1 / ess), np.zeros(10)]
    values = {"sigma": np.ones(len(weight))}
    return Approximation(np.zeros((len(weight), 3)), values, weight, k, jnp.zeros(3))


EVERYWHERE = np.full((1, 4), TAU)  # both sides of N and D


def judged(law="chinchilla", draws=40, tau=EVERYWHERE, **fields):
    score = HeldOutScore(
        np.array([1.0, 3.0]),
        np.array([True, False]),
        np.array([0.01, 0.03]),
        np.array([0.1, 0.4]),
    )
    other = HeldOutScore(np.array([8.0]), np.array([True]), *np.array([[0.02], [0.1]]))
    known = Range(("N", "D"), (18.0, 20.0), (20.0, 24.0))
    told = {"errors": "shared", "failed": ("N >= 1B",), "sampler": "chains"}
    told |= {"rhat": 1.005, "ess": 900.0, "divergences": 1, "draws": 2000}
    told["held_out"] = (score, other)
    values = draws_of_law(draws)
    prior = DriftPriors().of(known)
    return Judged(bayeslaw.law(law), None, values, tau, prior, known, **(told | fields))


def comparison(weights, *members):
    return Comparison(
        members, np.array(weights), np.array(weights[::-1]), ("N >= 1B",), 12
    )


def test_a_sentence_says_what_is_too_wide_and_who_is_blind():
    """Intervals that hold what they state, eleven times as wide as the errors; a law without the checkpoint's losses."""
    wide = HeldOutScore(*np.array([[1.0], [1.0], [0.01], [0.11]]))
    narrow = HeldOutScore(*np.array([[1.0], [1.0], [0.01], [0.09]]))
    told = comparison([1.0], judged(held_out=(wide,))).sentence()
    assert "are 11 times as wide as its errors, where 4 would do" in told
    assert "times" not in comparison([1.0], judged(held_out=(narrow,))).sentence()
    both = comparison([1.0, 0.0], judged("state-target"), judged("dcpt")).sentence()
    assert "; dcpt do not read the checkpoint's losses" in both


def test_the_table_has_means_over_all_runs_left_out():
    """Of runs, not of stages; the drift is the mean of its scales over all sides."""
    half = np.array([[TAU, 0.0, 0.0, 0.0], [TAU, TAU, TAU, 0.0]])
    made = comparison([0.2, 0.8], judged(tau=half), judged("coupled"))
    assert list(made.table.index) == ["coupled", "chinchilla"]
    row = made.table.loc["chinchilla"]
    assert row["score"] == pytest.approx(4.0)
    assert row["coverage"] == pytest.approx(2 / 3)
    assert row["mae"] == pytest.approx(0.02)
    assert row["interval_score90"] == pytest.approx(0.2)
    assert row["drift"] == pytest.approx(TAU / 2)
    assert (row["weight"], row["probability"]) == (0.2, 0.8)
    assert (row["rhat"], row["ess"], row["divergences"]) == (1.005, 900.0, 1)
    assert row["failed_stages"] == "N >= 1B"
    said = made.sentence()
    assert "coupled has weight 0.80 of 2 laws" in said
    assert "best with probability 0.20" in said
    assert "90% intervals hold 67%" in said


def scored(law, score):
    held_out = HeldOutScore(*np.array([[score], [1.0], [0.01], [0.05]]))
    return judged(law, held_out=(held_out,))


@pytest.mark.parametrize(
    ("weights", "scores", "told"),
    [
        (
            [1.0, 0.0],
            {"state-target": 1.0, "dcpt": 2.0},
            {"dcpt": "does not read the checkpoint's losses, as state-target does"},
        ),
        (
            [1.0, 0.0],
            {"chinchilla": 1.0, "coupled": 2.0},
            {
                "coupled": "chinchilla adds more to the mixture, where stages of one "
                "column count as one"
            },
        ),
        (
            [0.6, 0.4, 0.0],
            {"state-target": 1.0, "state-power": 1.5, "dcpt": 2.0},
            {
                "state-power": "state-target adds more to the mixture, where stages of "
                "one column count as one",
                "dcpt": "does not read the checkpoint's losses, as state-target does",
            },
        ),
        ([1.0, 0.0], {"chinchilla": 2.0, "coupled": 1.0}, {}),
    ],
)
def test_what_decides_stands_in_the_row_of_the_law(
    weights, scores, told, tmp_path, monkeypatch
):
    """In Python, on the command line and in JSON; it stood below the command's table."""
    laws = [scored(law, score) for law, score in scores.items()]
    compared = comparison(weights, *laws)
    wanted = {law: told.get(law, "") for law in scores}
    assert compared.table["reason"].to_dict() == wanted
    assert all(phrase in compared._repr_html_() for phrase in told.values())

    stand_in = SimpleNamespace(table=compared.table, attrs={"folds": "N >= 1B"})
    monkeypatch.setattr(bayeslaw, "average", lambda *_, **__: stand_in)
    path = tmp_path / "runs.csv"
    bayeslaw.simulate("dcpt", seed=1).to_csv(path, index=False)
    command = ["compare", str(path), "--laws", ",".join(scores)]
    printed = CliRunner().invoke(app, command).stdout
    assert ("why_less_weight" in printed) == bool(told)
    for law, phrase in wanted.items():
        (row,) = [line for line in printed.splitlines() if line.startswith(f"{law} ")]
        assert row.endswith(f" {phrase}" if phrase else ("chains", " "))
    record = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    assert {row["name"]: row["reason"] for row in record["laws"]} == wanted


def test_a_law_whose_columns_are_missing_is_refused_before_any_is_judged():
    """So it never stands in the table without a reason."""
    runs = bayeslaw.simulate("chinchilla", seed=1)
    with pytest.raises(RunTableError, match=r"dcpt.*needs column 'replay'"):
        bayeslaw.compare(runs[["N", "D", "loss"]], ["chinchilla", "dcpt"])


def average(*members, weights=None, **options):
    weights = weights or [1 / len(members)] * len(members)
    table = pd.DataFrame({"N": [1e9], "D": [1e10], "loss": [2.0]})
    return of_comparison(comparison(weights, *members), table, **options)


def test_an_average_tells_the_worst_of_the_laws_that_have_draws():
    good = {"rhat": 1.001, "ess": 3000.0, "divergences": 1}
    poor = {"rhat": 1.009, "ess": 450.0, "divergences": 2}
    worst = {"rhat": 1.5, "ess": 5.0, "divergences": 900}
    made = average(
        judged(**good),
        judged("coupled", **poor),
        judged("forgetting", **worst),
        weights=[0.3, 0.7, 0.0],
    )
    told = made.diagnostics
    assert (told["rhat"], told["ess"], told["divergences"]) == (1.009, 450.0, 3)
    assert told["draws"] == DRAWS
    assert made.warnings == ()
    assert made.heaviest.law.name == "coupled"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"rhat": 1.0101}, "R-hat 1.010 is over 1.01"),
        ({"rhat": 1.01}, None),
        ({"rhat": float("nan")}, None),
        ({"ess": 399.0}, "399 effective draws, under 400"),
        ({"ess": 400.0}, None),
        ({"divergences": 3}, "3 of 2000 draws diverged"),
        ({"divergences": 2}, None),
    ],
)
def test_an_average_warns_at_each_threshold(fields, said):
    lines = average(judged(**fields)).warnings
    assert len(lines) == (said is not None)
    assert all(said in line and "law chinchilla" in line for line in lines)


def test_draws_are_shared_out_by_largest_remainder():
    thirds = shares(np.array([1 / 3, 1 / 3, 1 / 3]))
    assert sorted(thirds) == [1333, 1333, 1334]
    exact = np.array([0.50010, 0.29995, 0.19995])
    assert shares(exact).tolist() == [2000, 1200, 800]  # 2000.4, 1199.8, 799.8
    none = shares(np.array([1.0 - 2e-4, 2e-4]))
    assert none.tolist() == [4000, 0]


def test_an_average_takes_each_draw_as_often_and_drifts_by_tau():
    one, other = judged(draws=1000), judged("coupled", draws=3000)
    made = average(one, other, weights=[0.25, 0.75], seed=1)
    first, second = made.members
    for name, leaf in one.values.items():
        np.testing.assert_array_equal(np.sort(first.values[name]), np.sort(leaf))
    assert len(second.values["sigma"]) == 3000
    drift = np.concatenate([m.values["drift"] for m in made.members])
    assert drift.shape == (DRAWS, 4)
    assert stats.kstest((drift / TAU).ravel(), "norm").pvalue > 0.01
    still = average(one, other, weights=[0.25, 0.75], drift=False, seed=1)
    for member, plain in zip(made.members, still.members, strict=True):
        assert (plain.values["drift"] == 0).all()
        np.testing.assert_array_equal(member.values["sigma"], plain.values["sigma"])


def test_an_average_forecasts_each_law_with_its_own_drift_and_noise():
    """Inside the range the law alone; beyond, its drifts times e-folds; then the noise."""
    made = average(judged(draws=4000))
    (member,) = made.members
    inside = pd.DataFrame({"N": [np.exp(19.0)], "D": [np.exp(22.0)]})
    np.testing.assert_allclose(made.log_loss(inside), by_hand(member.values, inside))
    beyond = pd.DataFrame({"N": [np.exp(21.5)], "D": [np.exp(19.0)]})
    drift = member.values["drift"]
    expected = (
        by_hand(member.values, beyond) + (1.5 * drift[:, 0] + drift[:, 3])[:, None]
    )
    np.testing.assert_allclose(made.log_loss(beyond), expected)
    noise = made.log_loss(inside, noise=True, seed=4) - made.log_loss(inside)
    assert stats.kstest(noise[:, 0] / 0.01, stats.t(6).cdf).pvalue > 0.01


def test_parameters_of_an_average_are_in_the_paper_s_units():
    (member,) = average(judged(draws=4000)).members
    rows = average(judged(draws=4000)).parameters(prob=0.8)
    published = {k: np.asarray(v) for k, v in LAW.to_paper(member.values).items()}
    in_order = [f"chinchilla.{name}" for name in LAW.parameters]
    assert list(rows.index[: len(in_order)]) == in_order
    for name in ("E", "A", "alpha"):
        row = rows.loc[f"chinchilla.{name}"]
        assert row["mean"] == pytest.approx(published[name].mean())
        assert row["sd"] == pytest.approx(published[name].std(ddof=1))
        ends = np.quantile(published[name], [0.1, 0.9])
        assert (row["low"], row["high"]) == pytest.approx(tuple(ends))
    assert rows.loc["chinchilla.sigma", "mean"] == pytest.approx(0.01)


# -- stages ----------------------------------------------------------------------------


def test_the_largest_level_is_held_out_where_enough_is_left():
    table = pd.DataFrame({"N": [1.0] * 8 + [2.0] * 4})
    (fold,) = folds(table, ["N"])
    np.testing.assert_array_equal(fold.held, table["N"] == 2.0)
    np.testing.assert_array_equal(fold.kept, table["N"] == 1.0)
    assert folds(table.iloc[1:], ["N"]) == []  # 7 rows are left, under 8
    assert len(folds(table, ["N"], 8)) == 1
    assert folds(table, ["N"], 9) == []
    long = pd.DataFrame({"N": [1.0] * 29 + [2.0] * 71})
    assert folds(long, ["N"]) == []  # 29% are left
    assert len(folds(pd.DataFrame({"N": [1.0] * 30 + [2.0] * 70}), ["N"])) == 1
    assert folds(pd.DataFrame({"N": [1.0] * 20}), ["N"]) == []


def test_many_levels_are_cut_into_six_bins():
    x = np.geomspace(1.0, 100.0, 24)
    (fold,) = folds(pd.DataFrame({"D": x}), ["D"])
    np.testing.assert_array_equal(fold.held, np.arange(24) >= 20)
    twelve = np.repeat(np.geomspace(1.0, 100.0, 12), 2)
    (fold,) = folds(pd.DataFrame({"D": twelve}), ["D"])
    assert fold.held.sum() == 2


def test_a_single_curve_leaves_out_its_two_and_three_largest_levels_too():
    """One run, one level ahead, says little of how a law goes astray farther on."""
    curve = pd.DataFrame({"N": 1e9, "D": np.geomspace(200, 204_800, 11)})
    stages = folds(curve, default_axes(curve))
    assert [stage.held.sum() for stage in stages] == [1, 2, 3]
    assert all(stage.held[-1] for stage in stages)
    # eight are needed to fit
    assert [stage.held.sum() for stage in folds(curve[1:], ["D"])] == [1, 2]
    assert len(folds(pd.concat([curve, curve]), ["D"])) == 1


def test_products_and_stages_that_are_the_same_count_once():
    grid = pd.DataFrame({"N": np.repeat([1e8, 1e9], 8), "D": np.tile([1e9, 4e9], 8)})
    assert default_axes(grid) == ["N", "D", "D/N", "N*D"]
    assert default_axes(grid[["N"]]) == ["N"]
    assert default_axes(grid.assign(N=1e8)) == ["D", "D/N", "N*D"]
    assert default_axes(grid.assign(ptpp=grid["N"])) == ["ptpp", "N", "D", "D/N", "N*D"]
    (by_size,) = folds(grid, ["N"])
    again = folds(grid.assign(ptpp=grid["N"]), ["ptpp", "N"])
    assert [stage.column for stage in again] == ["ptpp"]
    assert (folds(grid, ["N*D"])[0].held == (grid["N"] * grid["D"] >= 4e18)).all()
    assert (folds(grid, ["D/N"])[0].held == (grid["D"] / grid["N"] >= 40)).all()
    assert by_size.name == "N >= 1B"
    part = np.arange(20) < 16
    wide = by_size.among(part)
    assert isinstance(wide, Fold)
    np.testing.assert_array_equal(wide.held, np.r_[by_size.held, np.zeros(4, bool)])
    np.testing.assert_array_equal(wide.kept, np.r_[by_size.kept, np.zeros(4, bool)])


# -- noise -----------------------------------------------------------------------------


def test_the_scale_of_noise_is_expected_at_half_a_percent():
    """Published fits miss by .2-1%, seeds differ by .1-.6%: 90% of the prior around."""
    assert ERROR.sigma.quantile(0.5) == pytest.approx(0.005)
    assert ERROR.sigma.quantile(0.95) == pytest.approx(0.005 * np.exp(1.645), rel=1e-3)


def test_a_capped_variance_and_what_a_run_tells():
    noise = RunNoise(np.array([0.1, 0.1]), np.array([3.0, 10.0]))
    np.testing.assert_allclose(noise.capped_variance, [0.02, 0.0125])
    assert noise.learned_at == pytest.approx(0.01 * np.mean([6 / 4, 13 / 11]))


# -- a whole comparison, judged by a stand-in ------------------------------------------


@pytest.mark.parametrize("independent", [True, False])
def test_a_comparison_hands_on_what_is_known_and_weighs_what_comes_back(
    runs, independent, monkeypatch
):
    """Stages of the known runs alone; weights by column, chances by group of runs: by
    checkpoint, unless runs are independent.
    """
    runs = runs.assign(ptpp=np.resize([15.0, 31.0], 16), replay=0.0)
    fitted = np.arange(16) != 5
    seen, rng = [], np.random.default_rng(9)

    def stand_in(law, table, known, stages, setting, tick):
        seen.append((table, known, stages, setting))
        tick()
        scores = [
            HeldOutScore(rng.normal(0, 0.3, n), np.ones(n, bool), *np.ones((2, n)))
            for n in (stage.held.sum() for stage in stages)
        ]
        return judged(law.name, held_out=tuple(scores))

    monkeypatch.setattr(comparing, "judge", stand_in)
    steps = []
    settings = Comparing(
        hold_out=["N", "D"],
        seed=3,
        discrepancy=False,
        independent=independent,
        progress=lambda done, total: steps.append((done, total)),
    )
    laws = ["chinchilla", "coupled"]
    made = comparing.compare_part(runs, fitted, laws, settings)
    assert len(seen) == 2
    assert [one.law.name for one in made.judged] == laws
    assert sorted(steps) == [(1, 6), (2, 6)]  # of two laws, each whole and two stages
    for table, known, stages, setting in seen:
        assert table is runs
        np.testing.assert_array_equal(known, fitted)
        assert setting == Setting(independent, discrepancy=False, seed=3)
        assert [stage.column for stage in stages] == ["N", "D"]
        for stage in stages:
            largest = runs[stage.column] == runs[stage.column][fitted].max()
            np.testing.assert_array_equal(stage.held, fitted & largest)
            np.testing.assert_array_equal(stage.kept, fitted & ~largest)
    expected = weigh(made.judged, ["N", "D"], Stacking.of(len(runs[fitted])))
    np.testing.assert_array_equal(made.weights, expected)
    joined = [
        np.concatenate([score.density for score in one.held_out]) for one in made.judged
    ]
    rows = np.concatenate([np.flatnonzero(stage.held) for stage in seen[0][2]])
    checkpoints = runs.groupby(["N", "ptpp"]).ngroup().to_numpy()
    groups = rows if independent else checkpoints[rows]
    assert len(set(checkpoints[rows])) < len(set(rows))
    np.testing.assert_allclose(
        made.probabilities, best_probabilities(joined, groups, 3), atol=0.03
    )
    assert made.n == 15
    assert made.folds == ("N >= 800M", "D >= 64B")


def test_one_law_is_compared_with_nothing_left_out():
    """Where nothing can be: weight and chance are its own."""
    made = comparison([1.0], judged(held_out=()))
    assert np.isnan(made.table.loc["chinchilla", "score"])
    assert best_probabilities([np.zeros(0)], np.zeros(0)).tolist() == [1.0]

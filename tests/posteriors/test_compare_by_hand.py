"""What laws are judged by, computed again: which rows a stage's fit sees, its forecast
with drift and noise by quadrature, its miss by loops; and the average of such judgements.
"""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import integrate, stats
from typer.testing import CliRunner

import bayeslaw
from bayeslaw import Comparison, RunTableError
from bayeslaw._inference.discrepancy import drift
from bayeslaw._posteriors.averaging import average as averaging
from bayeslaw._posteriors.averaging import compare as comparing
from bayeslaw._posteriors.averaging import judge as judging
from bayeslaw._posteriors.fits.refits import Refit
from bayeslaw._tables.holdouts import largest_stages
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
    """What the sampler, the misfit and the scores are given; known draws come back."""
    seen = []

    def refit(law, part, at, vectors, *, seed, importance, nuts):
        seen.append({"weight": np.asarray(part.weight), "points": at})
        notes = {"sampler": "none", "rhat": [1.0, 1.0, 1.02][len(seen) % 3]}
        notes |= {"ess": 500.0, "divergences": 0, "draws": 40}
        return Refit(draws_of_law(seed=len(seen)), notes)

    def learn(law, values, training, kept, *, power, seed, tries):
        seen[-1] |= {"kept": kept}

    def score(forecast, *rest, inner=judging.score_stage):
        seen.append({"distance": forecast.away})
        return inner(forecast, *rest)

    monkeypatch.setattr(judging, "refit", refit)
    monkeypatch.setattr(judging, "learn_misfit", learn)
    monkeypatch.setattr(judging, "score_stage", score)
    monkeypatch.setattr(judging.coordinates, "contrast_points", lambda law, x: x)
    monkeypatch.setattr(judging, "start_near_mode", lambda *given: np.zeros(3))
    monkeypatch.setattr(judging, "starts_near", lambda *given: np.zeros((3, 3)))
    return seen


def test_a_stage_is_forecast_from_the_runs_kept_alone(runs, calls):
    """Neither the sampler nor the misfit nor the range knows of the runs left out."""
    fitted = ~np.isin(np.arange(16), [4, 15])
    stages = largest_stages(runs[fitted], ["N", "D"], 5)
    setting = judging.Setting(seed=2)
    result = judging.judge(LAW, runs, fitted, stages, setting, lambda: None)
    known = [fitted, *(fitted & stage.is_kept(runs) for stage in stages)]
    for call, kept in zip(calls[:3], known, strict=True):
        np.testing.assert_array_equal(call["weight"][:16], kept)
        assert call["weight"][16:].sum() == 0
        np.testing.assert_array_equal(call["kept"], kept)
        np.testing.assert_array_equal(call["points"]["N"], runs["N"][kept])
    # the largest size lies an octave beyond the runs kept, the most tokens two
    for call, axis, octaves in zip(calls[3:], ("N", "D"), (1, 2), strict=True):
        above = 2 * result.training_range.axes.index(axis)
        np.testing.assert_allclose(call["distance"][:, above], octaves * np.log(2))
    # three of the four runs in each stage are among the fitted ones
    assert [len(score.density) for score in result.held_out] == [3, 3]
    # R-hat of the second posterior, the first stage's, is over 1.01
    assert result.failed == (stages[0].name,)
    np.testing.assert_array_equal(
        result.values["E_nats"], draws_of_law(seed=1)["E_nats"]
    )


# -- a forecast scored -----------------------------------------------------------------

TAU = 0.01
SURE = np.full((1, 2), TAU)  # scales of the drift to two sides
CENTRED = drift.DriftPrior(drift.DriftPriors().tau, (0.0, 0.0))


def score(y, draws=40_000, away=0.0, **shared):
    """A stage of two runs, the law known exactly, at a distance along one axis."""
    values = {"sigma": np.full(draws, 0.01), "dof": np.full(draws, 5.0)}
    values |= {name: np.full(draws, v) for name, v in shared.items()}
    same = {"checkpoint": np.ones((2, 2), bool)} if shared else {}
    mean = np.tile([0.7, 0.9], (draws, 1))
    distance = np.array([[away, 0.0]] * 2)
    given = (mean, values, distance, same, np.array(y), np.ones(2), np.zeros(2))
    rng = np.random.default_rng(0)
    return judging.score_stage(judging.Forecast(*given), SURE, CENTRED, rng)


@pytest.mark.parametrize(
    ("sd", "stage"),
    [(0.02, {"away": 0.02 / TAU}), (0.03, {"tau_checkpoint": 0.03})],
    ids=["drift", "a new checkpoint's effect"],
)
def test_the_score_is_the_density_of_all_errors_together(sd, stage):
    """Of the noise, a Student-t, and another normal error, by quadrature."""

    def density(error):
        def part(d):
            return stats.t.pdf(error - d, 5, scale=0.01) * stats.norm.pdf(d, 0, sd)

        return integrate.quad(part, -8 * sd, 8 * sd, limit=200)[0]

    expected = np.log([density(0.02), density(0.06)])
    found = score([0.72, 0.84], **stage).density
    np.testing.assert_allclose(found, expected, atol=0.03)


@pytest.mark.parametrize(("part", "inside"), [(0.95, True), (1.05, False)])
def test_inside_are_those_between_5_and_95_percent(part, inside):
    """Runs a twentieth of the half width within either end, and as much beyond."""
    reach = 0.01 * stats.t.ppf(0.95, 5)
    y = np.array([0.7 + part * reach, 0.9 - part * reach])
    found = score(y, draws=300_000)
    assert found.inside.tolist() == [inside, inside]
    off = np.exp(y - [0.7, 0.9])
    assert found.error == pytest.approx(1 / off - 1, abs=1e-3)
    low, high = np.exp(-reach), np.exp(reach)
    beyond = np.maximum(low - off, 0) + np.maximum(off - high, 0)
    expected = (high - low + 20 * beyond) / off
    np.testing.assert_allclose(found.interval, expected, atol=5e-3)


@pytest.mark.parametrize("draws", [30, 2])
def test_a_miss_has_the_covariance_of_law_noise_and_what_runs_share(draws):
    """In the directions of drift: it says of drifts what their least squares do."""
    rng = np.random.default_rng(3)
    mean = np.array([0.5, 0.6, 0.7]) + rng.normal(0.0, 0.01, (draws, 3))
    values = {
        "sigma": np.exp(rng.normal(-5, 0.5, draws)),
        "dof": 3 + 5 * rng.random(draws),
        "tau_checkpoint": rng.normal(0, 0.02, draws),
        "tau_setting": np.abs(rng.normal(0, 0.01, draws)),
    }
    same = np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1]], bool)
    alike = np.array([[1, 0, 1], [0, 1, 0], [1, 0, 1]], bool)
    # a misfit without runs has no scale of what they share
    groups = {
        "checkpoint": np.array([4, 4, 7]),
        "setting": np.array([1, 0, 1]),
        "run": np.zeros(3, int),
    }
    y, away = np.array([0.51, 0.6, 0.72]), rng.random((3, 2))
    given = (mean, values, away, groups, y, np.ones(3), np.zeros(3))
    miss = judging.measure_miss(judging.Forecast(*given))
    # a heavy tail's variance is taken as twice its square scale at most
    tails = np.minimum(values["dof"] / (values["dof"] - 2), 2.0)
    expected = np.cov(mean.T) + np.median(values["sigma"] ** 2 * tails) * np.eye(3)
    expected += np.mean(values["tau_checkpoint"] ** 2) * same
    expected += np.mean(values["tau_setting"] ** 2) * alike
    # the drift of each side that least squares find, and its covariance
    solve = np.linalg.pinv(away)
    precision = np.linalg.inv(solve @ expected @ solve.T)
    told = miss.distance.T @ np.linalg.inv(miss.covariance)
    np.testing.assert_allclose(told @ miss.distance, precision)
    found = solve @ (y - mean.mean(axis=0))
    np.testing.assert_allclose(told @ miss.residual, precision @ found)


def test_a_stage_that_was_forecast_too_low_does_not_show_a_drift_downwards():
    """Four runs err together, two of them twice as much, and are missed by .4 and 1%.
    Weighed by the inverse of their covariance they show a drift of -.2%, not of .7%.
    """
    rng = np.random.default_rng(5)
    together = 0.02 * rng.standard_normal(400)[:, None]
    mean = 0.5 + together * [1.0, 1.0, 2.0, 2.0]
    miss = np.array([0.004, 0.004, 0.010, 0.010])
    values = {"sigma": np.full(400, 0.001), "dof": np.full(400, 50.0)}
    y, away = mean.mean(axis=0) + miss, np.ones((4, 1))
    given = (mean, values, away, {}, y, np.ones(4), np.zeros(4))
    told = judging.measure_miss(judging.Forecast(*given))
    found = told.residual / told.distance[:, 0]
    assert found == pytest.approx([0.007])
    covariance = np.cov(mean.T) + 1e-6 * np.eye(4)
    weighed = np.linalg.solve(covariance, np.ones(4))
    assert weighed @ miss / weighed.sum() == pytest.approx(-0.002, abs=1e-4)
    # its forecast of the drift knows what the runs' mean can miss
    np.testing.assert_allclose(told.covariance, [[covariance.mean() * 4]], rtol=0.02)


def test_one_gross_miss_does_not_move_a_stage():
    """Eleven of twelve runs are where they should be, one is 30% off."""
    rng = np.random.default_rng(6)
    values = {"sigma": np.full(30, 0.001), "dof": np.full(30, 50.0)}
    miss = 0.001 * rng.standard_normal(12)
    miss[3] = 0.3
    given = (np.full((30, 12), 0.5), values, np.ones((12, 1)), {}, 0.5 + miss)
    told = judging.measure_miss(judging.Forecast(*given, np.ones(12), np.zeros(12)))
    assert abs(told.residual / told.distance[:, 0]) < 0.001


def test_a_stage_within_the_range_tells_nothing_of_drift():
    values = {"sigma": np.full(30, 0.001), "dof": np.full(30, 50.0)}
    y, inside = np.full(3, 0.5), np.zeros((3, 4))
    given = (np.full((30, 3), 0.51), values, inside, {}, y, np.ones(3), np.zeros(3))
    told = judging.measure_miss(judging.Forecast(*given))
    assert told.distance.shape == (0, 4)
    assert told.covariance.shape == (0, 0)
    prior = drift.DriftPriors().of(drift.Range(("N", "D"), (18.0, 20.0), (20.0, 24.0)))
    scales = (
        drift.draw_scales(misses, prior, np.random.default_rng(0))
        for misses in ([told], [])
    )
    np.testing.assert_array_equal(*scales)


# -- a comparison, and an average of it ------------------------------------------------

EVERYWHERE = np.full((1, 4), TAU)  # both sides of N and D


def judged(law="chinchilla", draws=40, tau=EVERYWHERE, **fields):
    score = judging.HeldOutScore(
        np.array([1.0, 3.0]),
        np.array([True, False]),
        np.array([0.01, 0.03]),
        np.array([0.1, 0.4]),
    )
    other = judging.HeldOutScore(
        np.array([8.0]), np.array([True]), *np.array([[0.02], [0.1]])
    )
    known = drift.Range(("N", "D"), (18.0, 20.0), (20.0, 24.0))
    told = {"errors": "shared", "failed": ("N >= 1B",), "sampler": "chains"}
    told |= {"rhat": 1.005, "ess": 900.0, "divergences": 1, "draws": 2000}
    told["held_out"] = (score, other)
    values = draws_of_law(draws)
    prior = drift.DriftPriors().of(known)
    return judging.Judged(
        bayeslaw.law(law), None, values, tau, prior, known, **(told | fields)
    )


def comparison(weights, *members):
    return Comparison(
        members, np.array(weights), np.array(weights[::-1]), ("N >= 1B",), 12
    )


def test_a_sentence_says_what_is_too_wide_and_who_is_blind():
    """Intervals that hold what they state, eleven times as wide as the errors; a law without the checkpoint's losses."""
    wide = judging.HeldOutScore(*np.array([[1.0], [1.0], [0.01], [0.11]]))
    narrow = judging.HeldOutScore(*np.array([[1.0], [1.0], [0.01], [0.09]]))
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


def test_what_decides_stands_in_the_row_of_the_law(tmp_path, monkeypatch):
    """Where a better score has less weight: in Python, and of the command line in its
    table and in JSON.
    """
    scores = {"state-target": 1.0, "state-power": 1.5, "dcpt": 2.0}
    one = np.array([[1.0], [0.01], [0.05]])
    laws = [
        judged(law, held_out=(judging.HeldOutScore(np.array([score]), *one),))
        for law, score in scores.items()
    ]
    wanted = {
        "state-target": "",
        "state-power": "state-target adds more to the mixture, where stages of one "
        "column count as one",
        "dcpt": "does not read the checkpoint's losses, as state-target does",
    }
    compared = comparison([0.6, 0.4, 0.0], *laws)
    assert compared.table["reason"].to_dict() == wanted
    ordered = comparison([0.6, 0.4], laws[1], laws[0]).table["reason"]
    assert (ordered == "").all()

    stand_in = SimpleNamespace(table=compared.table, attrs={"folds": "N >= 1B"})
    monkeypatch.setattr(bayeslaw, "average", lambda *_, **__: stand_in)
    path = tmp_path / "runs.csv"
    bayeslaw.simulate("dcpt", seed=1).to_csv(path, index=False)
    command = ["compare", str(path), "--laws", ",".join(scores)]
    printed = CliRunner().invoke(app, command).stdout
    for law, phrase in wanted.items():
        (row,) = [line for line in printed.splitlines() if line.startswith(f"{law} ")]
        assert phrase in row
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
    return averaging.of_comparison(comparison(weights, *members), table, **options)


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
    assert told["draws"] == averaging.DRAWS
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


def test_where_one_law_failed_the_others_are_offered(monkeypatch):
    both = comparison([0.6, 0.4], judged(), judged("coupled", ess=10.0))
    monkeypatch.setattr(averaging, "compare_part", lambda *_: both)
    runs = bayeslaw.simulate("chinchilla")[["N", "D", "loss"]]
    said = r"law coupled: 10 effective.*leave out the laws that failed \(--law chinchilla\)"
    with pytest.raises(bayeslaw.DiagnosticsError, match=said):
        bayeslaw.average(runs, ["chinchilla", "coupled"])


def test_an_average_takes_each_draw_as_often_and_drifts_by_tau():
    one, other = judged(draws=1000), judged("coupled", draws=3000)
    made = average(one, other, weights=[0.25, 0.75], seed=1)
    first, second = made.members
    for name, leaf in one.values.items():
        np.testing.assert_array_equal(np.sort(first.values[name]), np.sort(leaf))
    assert len(second.values["sigma"]) == 3000
    drift = np.concatenate([m.values["drift"] for m in made.members])
    assert drift.shape == (averaging.DRAWS, 4)
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


# -- a whole comparison, judged by a stand-in ------------------------------------------


@pytest.mark.parametrize("independent", [True, False])
def test_chances_count_groups_of_runs_and_weights_stages(
    runs, independent, monkeypatch
):
    """Runs of a checkpoint are one witness, unless they are said to be independent."""
    runs = runs.assign(ptpp=np.resize([15.0, 31.0], 16), replay=0.0)
    fitted = np.arange(16) != 5
    held, rng = [], np.random.default_rng(9)

    def stand_in(law, table, known, stages, setting, tick):
        held[:] = [known & stage.is_held(table) for stage in stages]
        scores = [
            judging.HeldOutScore(
                rng.normal(0, 0.3, n), np.ones(n, bool), *np.ones((2, n))
            )
            for n in (each.sum() for each in held)
        ]
        return judged(law.name, held_out=tuple(scores))

    monkeypatch.setattr(comparing, "judge", stand_in)
    settings = comparing.Comparing(
        hold_out=["N", "D"], seed=3, discrepancy=False, independent=independent
    )
    laws = ["chinchilla", "coupled"]
    made = comparing.compare_part(runs, fitted, laws, settings)
    stacking = comparing.Stacking.of(15)
    expected = comparing.weigh(made.judged, ["N", "D"], stacking)
    np.testing.assert_array_equal(made.weights, expected)
    density = [
        np.concatenate([score.density for score in one.held_out]) for one in made.judged
    ]
    rows = np.concatenate([np.flatnonzero(each) for each in held])
    checkpoints = runs.groupby(["N", "ptpp"]).ngroup().to_numpy()[rows]
    assert len(set(checkpoints)) < len(set(rows))
    groups = rows if independent else checkpoints
    chances = comparing.best_probabilities(density, groups, 3)
    np.testing.assert_allclose(made.probabilities, chances, atol=0.03)


def test_one_law_is_compared_with_nothing_left_out():
    """Where nothing can be: weight and chance are its own."""
    made = comparison([1.0], judged(held_out=()))
    assert np.isnan(made.table.loc["chinchilla", "score"])
    assert comparing.best_probabilities([np.zeros(0)], np.zeros(0)).tolist() == [1.0]

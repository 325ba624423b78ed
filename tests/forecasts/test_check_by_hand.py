"""Every number of a check, each computed again run by run and draw by draw, and every
threshold of its verdict from both sides.
"""

from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from bayeslaw import Check, check
from bayeslaw._base.streams import Stream, generator
from bayeslaw._forecasts import check as room
from bayeslaw._forecasts.check import RunGroup, judge, worst_group

NUMBERS = ("huber_log", "rmse_log", "mae_rel", "mape_clip", "intercept", "slope", "crps", "width90", "interval_score90")  # fmt: skip
RNG = np.random.default_rng(12)
DRAWS, RUNS = 19, 40
TRUE = RNG.uniform(1.2, 4.0, RUNS)
LOSS = TRUE * np.exp(0.02 * RNG.standard_normal(RUNS))
LAW = np.log(TRUE) + 0.01 + 0.01 * RNG.standard_normal((DRAWS, RUNS))
NEW = LAW + 0.02 * RNG.standard_normal((DRAWS, RUNS))


@dataclass(frozen=True)
class Known:
    """A posterior with these draws of the law and of new runs, shape (draw, run)."""

    law: np.ndarray
    new: np.ndarray
    warnings: tuple[str, ...] = ()
    runs: pd.DataFrame | None = None
    seeds: list = field(default_factory=list)

    def pieces(self):
        return ()

    def log_loss(self, runs, *, noise=False, seed=0):
        self.seeds.append((noise, seed))
        return self.new if noise else self.law


@pytest.fixture(scope="module")
def found():
    return check(Known(LAW, NEW), pd.DataFrame({"loss": LOSS}), seed=3)


def quantile(values, prob):
    """Linear between order statistics, at (n - 1) prob of the way."""
    ordered = sorted(values)
    place = prob * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def metrics(log_forecast):
    """Of one forecast of all runs, from Goffinet 2025, appendix A."""
    y = np.log(LOSS)
    residuals = [f - t for f, t in zip(log_forecast, y, strict=True)]
    misses = [abs(np.exp(f) - t) for f, t in zip(log_forecast, LOSS, strict=True)]
    line = stats.linregress(log_forecast, y)
    return {
        "huber_log": np.mean(
            [r**2 / 2 if abs(r) <= 0.02 else 0.02 * abs(r) - 0.0002 for r in residuals]
        ),
        "rmse_log": np.mean([r**2 for r in residuals]) ** 0.5,
        "mae_rel": np.mean([m / t for m, t in zip(misses, LOSS, strict=True)]),
        "mape_clip": np.mean([m / t for m, t in zip(misses, LOSS, strict=True)]),
        "intercept": line.intercept,
        "slope": line.slope,
        "bias_log": np.mean(residuals),
    }


def test_point_metrics_are_of_the_median_of_a_new_run(found):
    middle = [quantile(NEW[:, i], 0.5) for i in range(RUNS)]
    for name, value in metrics(middle).items():
        assert getattr(found, name) == pytest.approx(value), name


def test_intervals_are_those_of_the_law_s_draws(found):
    by_draw = [metrics(draw) for draw in LAW]
    for name in set(by_draw[0]) - {"slope"}:
        values = [one[name] for one in by_draw]
        expected = quantile(values, 0.05), quantile(values, 0.95)
        assert found.intervals[name] == pytest.approx(expected), name


def test_the_slope_s_interval_has_the_error_of_each_draw_s_regression(found):
    """One Student-t of n - 2 degrees of freedom and the textbook error, a draw."""
    lines = [stats.linregress(draw, np.log(LOSS)) for draw in LAW]
    standard = generator(3, Stream.SLOPES).standard_t(RUNS - 2, DRAWS)
    drawn = [a.slope + a.stderr * t for a, t in zip(lines, standard, strict=True)]
    expected = quantile(drawn, 0.05), quantile(drawn, 0.95)
    assert found.intervals["slope"] == pytest.approx(expected)


def test_coverage_counts_runs_between_quantiles_of_new_runs(found):
    for prob in (0.5, 0.8, 0.9, 0.95):
        tail = (1 - prob) / 2
        inside = [
            quantile(NEW[:, i], tail)
            <= np.log(LOSS[i])
            <= quantile(NEW[:, i], 1 - tail)
            for i in range(RUNS)
        ]
        assert found.coverage[f"{prob:g}"] == pytest.approx(np.mean(inside))
    assert len(set(found.coverage.values())) == 4


def test_crps_is_of_losses_in_nats(found):
    """E|X - y| - E|X - X'| / 2, pair by pair, of losses and not of their logs."""
    scores = []
    for i in range(RUNS):
        losses = np.exp(NEW[:, i])
        to_truth = np.mean([abs(x - LOSS[i]) for x in losses])
        to_each_other = np.mean([abs(a - b) for a in losses for b in losses])
        scores.append(to_truth - to_each_other / 2)
    assert found.crps == pytest.approx(np.mean(scores), rel=1e-9)


def test_widths_scores_and_stretch(found):
    widths, scores, reaches = [], [], []
    for i in range(RUNS):
        low, middle, high = (quantile(NEW[:, i], q) for q in (0.05, 0.5, 0.95))
        y = np.log(LOSS[i])
        widths.append((np.exp(high) - np.exp(low)) / np.exp(middle))
        miss = max(np.exp(low) - LOSS[i], LOSS[i] - np.exp(high), 0.0)
        scores.append((np.exp(high) - np.exp(low) + 20 * miss) / LOSS[i])
        half = high - middle if y > middle else middle - low
        reaches.append(abs(y - middle) / half)
    assert found.width90 == pytest.approx(np.mean(widths))
    assert found.interval_score90 == pytest.approx(np.mean(scores))
    assert found.stretch == pytest.approx(quantile(reaches, 0.9))


def test_the_rest_of_a_check(found):
    below = [np.mean([x < np.log(LOSS[i]) for x in NEW[:, i]]) for i in range(RUNS)]
    np.testing.assert_allclose(found.pit, below)
    assert 0 < np.mean(below) < 1
    assert found.n == RUNS
    assert found.group_stretch is None
    posterior = Known(LAW, NEW)
    check(posterior, pd.DataFrame({"loss": LOSS}), seed=5)
    assert (True, 5) in posterior.seeds
    assert found.to_dict()["pit"] == list(found.pit)


def test_small_losses_are_clipped_at_a_thousandth():
    """A loss of .0005 missed by .0005 is off by all of itself, by half of the clip."""
    metric = room.point_metrics(np.log([[0.001, 2.0]]), np.log([0.0005, 2.0]))
    assert metric["mae_rel"][0] == pytest.approx(0.5)
    assert metric["mape_clip"][0] == pytest.approx(0.25)


def test_equal_forecasts_and_few_runs_have_no_slope():
    flat = room.point_metrics(np.zeros((1, 3)), np.array([0.0, 1.0, 2.0]))
    assert np.isnan([flat["slope"][0], flat["intercept"][0]]).all()
    forecast, y = np.array([[0.0, 1.0, 2.0]] * 4), np.array([0.0, 1.0, 2.5])
    assert np.isnan(room.slope_interval(forecast[:, :2], y[:2], 0)).all()
    assert np.isfinite(room.slope_interval(forecast, y, 0)).all()


# -- the verdict -----------------------------------------------------------------------

ON_PRIOR = ("one stage only: ptpp 31 fitted",)


def measured(runs, coverage90, bias=(-0.01, 0.01), half=0.5, **fields):
    """A check whose slope is not told, and that is on no side."""
    intervals = {"bias_log": bias, "slope": (np.nan, np.nan)}
    return Check(
        n=runs,
        coverage={"0.5": half, "0.9": coverage90},
        intervals=intervals,
        **{name: np.nan for name in NUMBERS},
        **{"stretch": 1.0, "bias_log": 0.0, "reasons": ()} | fields,
        group_stretch=None,
        verdict="",
        reason="",
        pit=np.zeros(runs),
    )


@pytest.mark.parametrize(
    ("runs", "coverage", "stretch", "reasons", "verdict"),
    [
        (5, 0.8, 9.0, (), "trust"),
        (5, 0.79, 3.0, (), "widen"),
        (5, 0.79, 3.01, (), "do not extrapolate"),
        (5, 0.8, 1.0, ON_PRIOR, "trust"),
        (4, 1.0, 1.0, (), "unknown"),
        (4, 1.0, 1.0, ON_PRIOR, "do not extrapolate"),
        (4, 1.0, 1.0, ("forecast prior-dominated: so",), "do not extrapolate"),
        (4, 1.0, 1.0, ("two levels only: N",), "unknown"),
    ],
)
def test_verdict_at_each_threshold(runs, coverage, stretch, reasons, verdict):
    record = measured(runs, coverage, stretch=stretch, reasons=reasons)
    told, (why, *_) = judge(record)
    assert told == verdict
    assert f"hold {coverage:.0%} of {runs} held-out runs" in why
    assert ("too few to tell" in why) == (runs < 5)
    assert (f"{stretch:.1f} times as wide" in why) == (runs >= 5 and coverage < 0.8)
    assert "on average" not in why


@pytest.mark.parametrize("coverage", [0.75, 0.9])
def test_the_factor_that_is_advised_is_among_the_reasons(coverage):
    """Also where it is that of a group: two numbers would contradict each other."""
    worst = RunGroup("N 23.2k", 0.4, np.arange(5))
    record = replace(measured(20, coverage, stretch=1.5), group_stretch=2.4)
    verdict, lines = judge(record, worst)
    told = replace(record, verdict=verdict, reason="; ".join(lines))
    assert told.next == "take intervals 2.4 times as wide, or compare laws"
    where = "of the 5 runs of N 23.2k they hold 40%, where they would have to be 2.4"
    assert told.reason.count(where) == 1


@pytest.mark.parametrize(
    ("stretch", "said"),
    [(1.001, "1.01"), (1.03, "1.03"), (1.049, "1.05"), (1.06, "1.1"), (12.44, "12.4")],
)
def test_a_factor_above_one_is_never_said_to_be_one(stretch, said):
    """It would advise to take the intervals as they are."""
    _, (why, *_) = judge(measured(7, 5 / 7, stretch=stretch))
    assert f"they would have to be {said} times as wide" in why


@pytest.mark.parametrize(
    ("bias", "interval", "said"),
    [
        (0.021, (0.001, 0.04), "2.1% too high on average"),
        (-0.021, (-0.04, -0.001), "2.1% too low on average"),
        (0.6931, (0.001, 0.8), "100.0% too high on average"),  # twice
        (-0.6931, (-0.8, -0.001), "50.0% too low on average"),  # half
        (0.021, (-0.001, 0.04), None),
        (-0.021, (-0.04, 0.001), None),
    ],
)
@pytest.mark.parametrize("coverage", [0.5, 0.9])
def test_a_one_sided_law_is_named(bias, interval, said, coverage):
    record = measured(9, coverage, interval, stretch=2.0, bias_log=bias)
    _, (why, *_) = judge(record, fitted=1)
    assert ("on average" in why) == (said is not None)
    assert (said or "") in why
    assert "9 runs" in why


@pytest.mark.parametrize(("half", "doubted"), [(0.3, False), (0.29, True)])
def test_half_intervals_that_hold_less_than_three_in_ten_are_doubted(half, doubted):
    record = measured(20, 0.9, half=half)
    told, lines = judge(record)
    assert (told, len(lines)) == (("widen", 2) if doubted else ("trust", 1))
    _, lines = judge(record, RunGroup("N 2", 0.25, np.arange(8)))
    assert len(lines) == 2 + doubted
    assert "of the 8 runs of N 2 they hold 25%" in lines[-1]


@pytest.mark.parametrize(
    ("size", "held", "fails"),
    [
        (5, 1, True),  # one of five or fewer: .0067 at a coverage of .8
        (5, 2, False),  # .058
        (10, 5, True),  # .033
        (10, 6, False),  # .12; at a coverage of .9 it would be .013
        (4, 0, False),  # too few to tell
    ],
)
def test_a_group_fails_where_chance_is_under_one_in_twenty(size, held, fails):
    runs = pd.DataFrame({"ptpp": [15.0] * size + [279.0] * 30})
    inside = np.arange(size + 30) < held
    inside[size:] = True
    worst = worst_group(runs, inside)
    assert (worst is not None) == fails
    if worst:
        assert (worst.name, worst.share) == ("ptpp 15", held / size)
        assert worst.rows.tolist() == list(range(size))


def test_the_least_likely_group_is_named_of_all_columns_looked_at():
    """Each column alone is found; the group least likely by chance comes first."""
    inside = np.array([False] * 6 + [True] * 24)
    levels = ["a"] * 6 + ["b"] * 24
    for column in ("schedule", "domain"):
        worst = worst_group(pd.DataFrame({column: levels}), inside)
        assert worst.name == f"{column} a"
    for column in ("N", "ptpp", "replay"):
        numbers = np.array([0.25] * 6 + [0.5] * 24)
        assert worst_group(pd.DataFrame({column: numbers}), inside).name == (
            f"{column} 0.25"
        )
    assert worst_group(pd.DataFrame({"seed": levels}), inside) is None
    both = pd.DataFrame({"domain": levels, "N": [1.0] * 8 + [2.0] * 22})
    assert worst_group(both, inside).name == "domain a"  # 6 of 6 before 6 of 8
    one_level = pd.DataFrame({"domain": ["a"] * 30})
    assert worst_group(one_level, inside[::-1]) is None


# -- what weakens a verdict ------------------------------------------------------------


def calibrated(runs=20, **fields):
    """A forecast that holds: the runs' errors are the quantiles of its noise."""
    errors = 0.01 * stats.norm.ppf((np.arange(runs) + 0.5) / runs)
    new = 0.01 * stats.norm.ppf((np.arange(99) + 0.5) / 99)
    forecast = np.linspace(0.3, 1.2, runs)
    table = pd.DataFrame({"N": 1e8, "loss": np.exp(forecast + errors)})
    draws = forecast + new[:, None]
    return Known(forecast + 1e-9 * new[:, None], draws, **fields), table


def test_trust_needs_diagnostics_and_unseen_runs():
    posterior, table = calibrated()
    trusted = check(posterior, table)
    assert trusted.verdict == "trust"
    assert "; calibration slope" in trusted.reason
    failed, _ = calibrated(warnings=("law x: R-hat 1.2",))
    assert check(failed, table).verdict == "unknown"
    for seen, verdict in ((9, "trust"), (10, "unknown"), (20, "unknown")):
        partly, _ = calibrated(runs=20)
        partly = Known(partly.law, partly.new, runs=table.head(seen))
        told = check(partly, table)
        assert told.verdict == verdict
        assert f"; {seen} of them were fitted" in told.reason
        assert "20 runs" in told.reason


def test_trust_is_withheld_where_a_group_fails():
    """Three sizes are forecast perfectly, one of them never: 83% inside, and no trust."""
    errors = np.array([0.001, -0.005, 0.003] * 10 + [0.05] * 6)
    sizes = np.repeat([1e8, 1e9, 1e10, 1e11], [10, 10, 10, 6])
    forecast = np.linspace(0.7, 1.1, 36)
    new = forecast + 0.01 * stats.norm.ppf((np.arange(999) + 0.5) / 999)[:, None]
    posterior = Known(forecast + 1e-4 * (new - forecast), new)
    table = pd.DataFrame({"N": sizes, "loss": np.exp(forecast + errors)})
    found = check(posterior, table)
    assert found.coverage["0.9"] > 0.8
    assert found.verdict == "widen"
    assert "of the 6 runs of N 100B they hold 0%" in found.reason
    assert found.group_stretch == pytest.approx(0.05 / (1.645 * 0.01), rel=0.01)
    some = Known(posterior.law[:, :30], new[:, :30])
    good = check(some, table.head(30))
    assert (good.verdict, good.group_stretch) == ("trust", None)


def test_failed_diagnostics_do_not_soften_a_bad_verdict():
    posterior, table = calibrated(warnings=("law x: R-hat 1.2",))
    far = table.assign(loss=1.5 * table["loss"])
    assert check(posterior, far).verdict == "do not extrapolate"


@pytest.mark.parametrize(
    ("reach", "verdict"), [(0.9, "trust"), (0.03, "trust"), (0.004, "unknown")]
)
def test_trust_needs_losses_that_differ_by_more_than_their_noise(reach, verdict):
    """Runs whose slope may as well be 0 as 2 are no evidence that a forecast is right."""
    posterior, table = calibrated(10)
    forecast = np.linspace(0.3, 0.3 + reach, 10)
    errors = np.log(table["loss"]) - np.linspace(0.3, 1.2, 10)
    errors = errors.to_numpy()[[3, 7, 0, 5, 9, 1, 8, 4, 6, 2]]
    new = posterior.new - np.median(posterior.new, axis=0)
    narrow = Known(forecast + 1e-7 * new, forecast + new)
    told = check(narrow, pd.DataFrame({"N": 1e8, "loss": np.exp(forecast + errors)}))
    low, high = told.intervals["slope"]
    assert (told.verdict == "unknown") == (low <= 0 and high >= 2)
    assert told.verdict == verdict
    assert told.reason.count("calibration slope") == 1
    assert ("may be 0 or 2" in told.reason) == (verdict == "unknown")
    assert ("noise" in told.next) == (verdict == "unknown")


def test_four_runs_are_told_without_a_slope():
    posterior, table = calibrated(4)
    told = check(posterior, table)
    assert told.verdict == "unknown"
    assert "calibration slope" not in told.reason

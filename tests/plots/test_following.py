"""Pictures of a run while it trains: what is drawn is what is known."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

import bayeslaw
from bayeslaw import PlanError, plots
from known.power_laws import TOKENS, UNTIL, points, power_laws, true_curve

LIMITS = {"target": 1.96, "source": 1.97}


@pytest.fixture(scope="module")
def following():
    """A run with a point more of its source than of its target."""
    target = points(TOKENS[:3], true_curve(TOKENS[:3]), domain="target")
    source = points(TOKENS[:4], true_curve(TOKENS[:4]), domain="source")
    fits = {name: power_laws(domain=name) for name in LIMITS}
    curve = pd.concat([target, source])
    return bayeslaw.follow(fits, curve, UNTIL, max_loss=LIMITS)


@pytest.fixture(scope="module")
def unlimited():
    return bayeslaw.follow(power_laws(), points(TOKENS[:1], [2.6]), UNTIL)


def drawn(ax, label):
    """Places and values of the line of this name."""
    (line,) = [line for line in ax.lines if line.get_label() == label]
    return line.get_xydata().T


def test_a_run_has_dots_where_measured_and_bands_from_there(ax, following):
    followed = following["target"]
    assert plots.followed_run(ax, followed) is ax
    at, loss = drawn(ax, "measured")
    np.testing.assert_allclose(at, TOKENS[:3])
    np.testing.assert_allclose(loss, true_curve(TOKENS[:3]))
    ahead, median = drawn(ax, "from here")
    assert ahead[[0, -1]] == pytest.approx([TOKENS[2], UNTIL])
    assert median[-1] == pytest.approx(followed.final["median"])
    before, here = (band.get_paths()[0].get_extents() for band in ax.collections)
    assert before.ymax - before.ymin > here.ymax - here.ymin
    assert here.x0 == pytest.approx(TOKENS[2])
    assert set(drawn(ax, "limit")[1]) == {LIMITS["target"]}
    assert ax.get_xscale() == "log"


def test_tokens_along_an_axis_are_counts_as_people_say_them(ax, following):
    plots.followed_run(ax, following["target"])
    ax.figure.canvas.draw()
    low, high = ax.get_xlim()
    places = zip(ax.get_xticks(), ax.get_xticklabels(), strict=True)
    labels = [tick.get_text() for at, tick in places if low <= at <= high]
    assert labels == ["50M", "100M", "200M", "500M", "1B", "2B"]


def test_forecasts_of_the_end_are_those_after_each_point(ax, following):
    followed = following["source"]
    assert plots.closing_forecast(ax, followed) is ax
    before, after = ax.containers
    at, median = after[0].get_xydata().T
    np.testing.assert_allclose(at, TOKENS[:4])
    np.testing.assert_allclose(median, followed.history["final_median"])
    ends = np.array([bar[:, 1] for bar in after[2][0].get_segments()])
    told = followed.history[["final_low", "final_high"]]
    np.testing.assert_allclose(ends, told)
    ((start, foreseen),) = before[0].get_xydata()
    assert start < TOKENS[0]
    assert foreseen == followed.final_before["median"]
    assert "2B" in ax.get_ylabel()


def test_without_a_limit_none_is_drawn(ax, unlimited):
    plots.closing_forecast(plots.followed_run(ax, unlimited.first), unlimited.first)
    assert "limit" not in ax.get_legend_handles_labels()[1]


def test_before_the_first_point_there_is_what_was_foreseen(ax):
    start = bayeslaw.Follower.start(power_laws(), {"N": 1e8}, UNTIL, max_loss=2.0)
    known = start.following()
    plots.followed_run(ax, known.first)
    assert len(drawn(ax, "measured")[0]) == 0
    plots.closing_forecast(ax, known.first)
    other = plots.probability_over_time(Figure().add_subplot(), known)
    ((_, chance),) = drawn(other, "loss").T
    assert chance == known.probability_before


def test_probability_goes_from_before_the_run_to_now(ax, following):
    """A domain's stays as it is until its next point, and all together are their product."""
    assert plots.probability_over_time(ax, following) is ax
    lines = {name: drawn(ax, name) for name in (*LIMITS, "all limits")}
    for name in LIMITS:
        at, chance = lines[name]
        followed = following[name]
        np.testing.assert_allclose(at[1:], TOKENS[:4])
        assert at[0] < TOKENS[0]
        assert chance[0] == followed.probability_before
        assert chance[-1] == followed.probability
    target = lines["target"][1]
    assert target[-2] == target[-1]
    together = lines["all limits"][1]
    assert together[0] == pytest.approx(following.probability_before)
    assert together[-1] == pytest.approx(following.probability)
    levels = [line.get_ydata()[0] for line in ax.lines if line.get_linestyle() == "--"]
    assert levels == pytest.approx([0.9, 0.1])


def test_one_limit_has_one_line(ax):
    curve = points(TOKENS[:2], true_curve(TOKENS[:2]))
    known = bayeslaw.follow(power_laws(), curve, UNTIL, max_loss=1.96)
    plots.probability_over_time(ax, known)
    assert ax.get_legend_handles_labels()[1] == ["loss"]


def test_probability_needs_a_limit(ax, unlimited):
    with pytest.raises(PlanError, match="give max_loss"):
        plots.probability_over_time(ax, unlimited)

"""Pictures of a second batch: what is drawn is what is known."""

import numpy as np
import pytest

import bayeslaw
from bayeslaw import plots
from bayeslaw._running.updating.plans import plan_change
from known import example, plans, updates


@pytest.fixture(scope="module")
def domain():
    return bayeslaw.update(updates.old_fit(), updates.with_second(1.06), seed=1).first


def dots(ax, label):
    (line,) = [one for one in ax.lines if one.get_label() == label]
    return np.asarray(line.get_xdata()), np.asarray(line.get_ydata())


def test_forecasts_before_and_after_are_those_of_the_record(ax, domain):
    plots.updated(ax, domain)
    for when in ("before", "after"):
        assert dots(ax, when)[0] == pytest.approx(domain.forecasts[when])
    assert ax.get_yticklabels()[0].get_text() == "the largest run"


def test_new_rows_lie_where_they_were_missed(ax, domain):
    plots.new_rows(ax, domain)
    rows = domain.surprise.rows
    x, y = dots(ax, "N 8.1B")
    assert x == pytest.approx(rows["D"])
    # in percent of the forecast, as the sentence has it
    assert y == pytest.approx(100 * np.expm1(rows["miss"]))


def test_bars_are_the_refit_all_rows_and_groups(ax, domain):
    plots.what_moved(ax, domain)
    why = domain.attribution
    groups = why.groups[why.groups["by"] != "run"]
    widths = [bar.get_width() for bar in ax.patches]
    assert widths == pytest.approx(
        100 * np.array([why.shift, why.together, *groups["adds"]])
    )


def test_parameters_are_in_sds_that_they_had(ax, domain):
    plots.moved_parameters(ax, domain)
    assert dots(ax, "before")[0] == pytest.approx(0)
    assert dots(ax, "after")[0] == pytest.approx(domain.parameters["shift"])


def test_without_new_rows_there_is_nothing_to_draw(ax):
    same = bayeslaw.update(updates.old_fit(), updates.first_batch()).first
    for picture in (plots.new_rows, plots.what_moved):
        with pytest.raises(ValueError, match="no new rows"):
            picture(ax, same)


def test_the_old_plan_is_drawn_then_and_now(ax):
    posteriors = [
        f(sd=0.004, draws=100, sigma=0.002) for f in (plans.target, plans.source)
    ]
    asked = {**example.QUESTION, "draws": plans.DRAWS}
    change = plan_change(bayeslaw.plan(*posteriors, **asked), tuple(posteriors), asked)
    plots.moved_plan(ax, change)
    (x,), (y,) = dots(ax, "the old plan now")
    assert (x, y) == (change.before.D, change.kept["probability"])

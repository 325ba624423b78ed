"""Forecasts along tokens: a curve with its band also where one run was held out."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from bayeslaw import plots
from bayeslaw._report.domains import best_of_sweeps, curves, panels

TABLE = pd.DataFrame({"D": [1e8, 1e9, 1e10, 1e11]})


def runs(tokens, **columns):
    return pd.DataFrame({"N": 1e9, "D": tokens, "loss": 2.0} | columns)


def forecasts(rows):
    median = 2.0 + 0.1 / np.log(rows["D"])
    return pd.DataFrame({"median": median, "low": median - 0.1, "high": median + 0.1})


@pytest.mark.parametrize(
    ("held", "lines"),
    [
        (runs([1e10]), 1),
        (runs([1e10, 1e10], replay=[0.1, 0.3]), 2),
        (runs([1e9, 1e10], N=[1e9, 8e9], ptpp=[20.0, 100.0]), 2),
        (runs([1e8, 1e9, 1e10, 1e11]), 0),
        (runs([1e10, 1e10], share_web=[0.2, 0.5], share_code=[0.8, 0.5]), 2),
    ],
)
def test_each_line_of_few_runs_has_a_curve(held, lines):
    """Like its run in all but tokens, within the table and a factor of ten."""
    drawn = curves(held, TABLE)
    assert len(drawn) == 12 * lines
    assert not lines or "loss" not in drawn
    for column in set(held) - {"D", "loss"}:
        assert set(drawn[column]) <= set(held[column])
    if lines:
        assert drawn["D"].min() >= held["D"].min() / 10 * (1 - 1e-9)
        assert drawn["D"].max() <= 1e11 * (1 + 1e-9)


def test_a_line_is_of_the_best_runs_of_sweeps():
    swept = runs([1e9, 1e9, 1e10, 1e10], lr=[1e-3, 2e-3] * 2, replay=0.1)
    swept["loss"] = [2.2, 2.1, 2.0, 2.3]
    best = best_of_sweeps(swept, {"lr"})
    assert best.sort_values("D")["loss"].tolist() == [2.1, 2.0]
    assert list(best) == ["N", "D", "loss", "replay"]
    assert best_of_sweeps(swept, {"batch"}) is swept


def test_a_table_of_one_budget_is_drawn_around_it():
    drawn = curves(runs([3e9]), runs([3e9]))
    assert (drawn["D"].min(), drawn["D"].max()) == pytest.approx((1.5e9, 6e9))


@pytest.mark.parametrize("replay", [[0.1], [0.1, 0.3]])
def test_the_page_has_bands_around_dots_that_stand_alone(replay):
    held = runs([1e10] * len(replay), replay=replay)
    rows = pd.concat([held, curves(held, TABLE)], ignore_index=True)
    data = panels((rows, forecasts(rows)), (rows, forecasts(rows)))["held"]
    measured = [loss for loss in data["loss"] if loss is not None]
    assert len(measured) == len(replay)
    assert len(data["low"]) == 13 * len(replay)
    assert data["D"] == sorted(data["D"])


def test_in_print_too():
    """The axis is marked where something was measured."""
    held = runs([1e10], replay=0.1)
    rows = pd.concat([held, curves(held, TABLE)], ignore_index=True)
    ax = plots.forecast_curve(Figure().subplots(), rows, forecasts(rows))
    line, dots = (one for one in ax.lines)
    assert len(line.get_xdata()) == 13
    assert np.isfinite(dots.get_ydata()).sum() == 1
    assert [label.get_text() for label in ax.get_xticklabels()] == ["10B"]


@pytest.mark.parametrize(
    ("tokens", "labels"),
    [
        ([1e9, 1.1e9, 4e9, 1e10], ["1B", "4B", "10B"]),
        ([1e9, 1.1e9, 1.3e9, 2e9, 3e9, 4e9, 6e9, 8e9], ["1B", "2B", "4B", "8B"]),
    ],
)
def test_in_print_labels_do_not_overlap(tokens, labels):
    """Few numbers of tokens or many within a decade: each label has a fifth of the axis."""
    held = runs(tokens, replay=[0.1] * len(tokens))
    ax = plots.forecast_curve(Figure().subplots(), held, forecasts(held))
    assert [label.get_text() for label in ax.get_xticklabels()] == labels
    assert not ax.get_xticks(minor=True).size

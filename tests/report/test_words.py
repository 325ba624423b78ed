"""Numbers, commands and panels of the page, as people read them."""

import shlex

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw import plots
from bayeslaw._costs.costs import format_days
from bayeslaw._plans.constraint import UNITS
from bayeslaw._report import figures
from bayeslaw._report.page import _quote
from bayeslaw._report.summary import advice, against, expected_of
from known import plans


@pytest.mark.parametrize(
    ("word", "written"),
    [
        ("a b", "'a b'"),
        ("State != 'crashed'", "\"State != 'crashed'\""),
        ("plain", "plain"),
        ("it's $HOME", "'it'\"'\"'s $HOME'"),
    ],
)
def test_words_of_the_command_are_quoted_as_people_do(word, written):
    assert _quote(word) == written
    assert shlex.split(_quote(word)) == [word]


def test_ends_of_an_interval_have_the_same_digits():
    promise = {"name": "forgetting", "unit": "relative", "limit": 0.045}
    promise |= {"mean": 0.0251, "low": 0.00924, "high": 0.04, "probability": 0.978}
    row = expected_of(promise)
    assert (row.limit, row.low, row.high) == ("+4.5%", "+0.92%", "+4.00%")
    wide = expected_of(promise | {"high": 0.12})
    assert (wide.low, wide.high) == ("+0.9%", "+12.0%")
    loss = promise | {"unit": "loss", "mean": 2.339, "low": 2.2906, "high": 2.39}
    assert (expected_of(loss).low, expected_of(loss).high) == ("2.291", "2.390")


@pytest.mark.parametrize("name", UNITS)
def test_a_share_is_in_percent_and_a_rise_has_its_sign(name):
    promise = {"name": "forgetting", "unit": name, "limit": 0.4, "mean": 0.4}
    row = expected_of(promise | {"low": 0.3, "high": 0.5, "probability": 0.9})
    for text in (row.limit, row.mean):
        assert text.startswith("+") == UNITS[name].has_baseline
        assert text.endswith("%") == UNITS[name].is_share
        assert float(text.removesuffix("%")) == (40 if UNITS[name].is_share else 0.4)


def test_the_printed_forecast_has_a_panel_for_each_stage(monkeypatch):
    """Runs of two stages are no one line; replays have one colour in all panels."""
    drawn = []
    monkeypatch.setattr(
        figures, "_encode", lambda figure, *_, **__: drawn.append(figure)
    )
    runs = pd.DataFrame(
        {
            "N": 1.3e9,
            "ptpp": [38.0, 38.0, 115.0, 115.0],
            "replay": [0.05, 0.25, 0.25, 0.25],
            "D": [2e9, 2e9, 2e9, 6e9],
            "loss": [2.9, 2.8, 2.7, 2.6],
        }
    )
    rows = runs[["loss"]].rename(columns={"loss": "median"})
    rows = rows.assign(low=2.5, high=3.0)
    figures.forecast_grid(runs, rows, title="t", caption="c", unit="nats per token")
    axes = drawn[0].axes
    assert [ax.get_title() for ax in axes] == [
        "N = 1.3B, ptpp 38",
        "N = 1.3B, ptpp 115",
    ]
    colours = [
        {line.get_color() for line in ax.lines if line.get_label() == "replay 0.25"}
        for ax in axes
    ]
    assert colours[0] == colours[1] == {plots.COLOURS[1]}


def test_bars_of_a_width_are_seen_to_their_tops():
    from matplotlib.figure import Figure

    parts = pd.DataFrame({"noise": [0.01], "parameters": [0.02], "misfit": [0.0]})
    parts = parts.assign(drift=0.0, laws=0.0)
    ax = plots.width_parts(Figure().subplots(), parts, ["a run"])
    assert ax.get_ylim()[1] > 100 * parts.to_numpy().sum()
    assert np.isclose(ax.get_ylim()[0], 0)


def test_a_safer_plan_past_the_deadline_says_so():
    """It was recommended in the same words as one within it."""
    costs = bayeslaw.Costs(hardware="64xH100", price=2.5)
    free = plans.state_plan(costs=costs)
    days = 1.01 * free.cost["days"]
    within = plans.state_plan(costs=costs, max_days=days)
    cheaper, safer, *_ = advice(within)
    offered = [row for row in within.frontier if row["D"]]
    too_long = {x["confidence"] for x in offered if "not" in against(within, x)}
    assert too_long == {0.95, 0.98, 0.99} & {row["confidence"] for row in offered}
    assert safer.startswith("Safer: 95%")
    assert safer.endswith(f"% replay), not within {format_days(days)}.")
    assert cheaper.endswith("% replay).")
    assert [*advice(free)][1].endswith("% replay).")

"""The trade-off along replay where the limits are not one target's loss and one forgetting."""

from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.figure import Figure

from bayeslaw import plots

REPLAY = [0.1, 0.3, 0.5]


def plan(**units):
    """A plan whose promises have these units; each outcome is .2, .3 and .4."""
    values = {"low": [0.1] * 3, "median": [0.2, 0.3, 0.4], "high": [0.5] * 3}
    bands = {name: {"unit": u, "limit": 0.45, **values} for name, u in units.items()}
    tradeoff = {"replay": REPLAY, "atpp": 10.0, "bands": bands}
    return SimpleNamespace(tradeoff=tradeoff, replay=0.3)


def drawn(ax):
    """The lines of an axis by their labels, at its own scale."""
    lines = {str(line.get_label()): line.get_ydata() for line in ax.get_lines()}
    return {name: y for name, y in lines.items() if not name.startswith("_")}


@pytest.mark.parametrize(
    ("units", "left", "right", "name"),
    [
        (
            {"target": "loss", "forgetting": "relative"},
            ["forgetting"],
            ["target loss"],
            "forgetting (%)",
        ),
        (
            {"accuracy": "error", "forgetting": "relative"},
            ["accuracy", "forgetting"],
            [],
            "forgetting, wrong answers (%)",
        ),
        (
            {"fi": "loss", "et": "loss", "forgetting": "nats"},
            ["forgetting"],
            ["fi", "et"],
            "forgetting (nats per token)",
        ),
        (
            {"accuracy": "error", "code": "loss"},
            ["accuracy"],
            ["code"],
            "wrong answers (%)",
        ),
    ],
)
def test_each_promise_is_on_the_axis_of_its_unit(units, left, right, name):
    figure = Figure()
    ax = plots.tradeoff(figure.subplots(), plan(**units))
    twin = figure.axes[1]
    assert sorted(drawn(ax)) == sorted(left)
    assert sorted(drawn(twin)) == sorted(right)
    assert ax.get_ylabel() == name
    scale = 1 if "nats" in units.values() else 100
    for y in drawn(ax).values():
        np.testing.assert_allclose(y, scale * np.array([0.2, 0.3, 0.4]))

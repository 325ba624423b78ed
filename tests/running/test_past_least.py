"""A loss that rises while its law falls is told, with the step of its least."""

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from known.power_laws import TOKENS, UNTIL, PowerLaws, points, power_laws, true_curve

TENTHS = np.linspace(0.1, 0.9, 9) * UNTIL


def rising(rise=0.013, rows=4):
    """Losses of the law that rise over the last rows."""
    losses = true_curve(TENTHS)
    losses[-rows:] = losses[-rows - 1] * (1 + np.linspace(rise / rows, rise, rows))
    return points(TENTHS, losses)


@pytest.mark.parametrize("limits", [{}, {"max_loss": 2.5}, {"max_loss": 1.5}])
def test_a_rise_of_four_rows_is_told_with_its_step(limits):
    known = bayeslaw.follow(power_laws(), rising(), UNTIL, **limits)
    assert known.decision.action == "stop"
    assert known.decision.least_at == TENTHS[4]
    assert known.first.least == pytest.approx(
        {"at": TENTHS[4], "loss": true_curve(TENTHS[4]), "rise": 0.013}
    )
    assert "past its least loss" in known.first.verdict
    assert "keep the checkpoint of 1B tokens" in known.sentence()
    assert known.to_dict()["least"]["at"] == TENTHS[4]


@pytest.mark.parametrize(
    "curve",
    [
        points(TOKENS, true_curve(TOKENS)),
        rising(rows=2),
        rising(rise=0.002),
        pd.concat([rising().head(8), points(TENTHS[8:], true_curve(TENTHS[8:]))]),
    ],
    ids=["falls", "two rows", "within the noise", "rises, and falls below"],
)
def test_what_is_no_rise_is_not_told(curve):
    known = bayeslaw.follow(power_laws(), curve, UNTIL, max_loss=2.5)
    assert known.first.least is None
    assert known.decision.least_at is None
    assert known.decision.action != "stop"


def test_noise_hides_a_small_rise():
    curve = rising(rise=0.01)
    noise = 0.02 * np.random.default_rng(0).standard_normal(len(curve))
    curve["loss"] *= np.exp(noise)
    assert bayeslaw.follow(power_laws(), curve, UNTIL).first.least is None


def test_a_rise_that_the_law_foresees_is_not_told():
    """The loss of a source rises as it is forgotten."""
    law = power_laws()
    source = PowerLaws(law.floor, law.height / 10, -law.power)
    tokens = np.linspace(0.1, 0.9, 9) * UNTIL
    losses = 1.6 + 0.08 * (tokens / (UNTIL / 20)) ** 0.3
    known = bayeslaw.follow(source, points(tokens, losses), UNTIL, max_loss=2.5)
    assert known.first.least is None

"""Parameters of a formula that are below zero: told with what to write, and fitted."""

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw import LawError, law_from_formula
from bayeslaw._posteriors.fits.goodness import other_signs

FORMULAS = {
    "coefficient": ("E + A/N^alpha + B/D^beta + C*x", "C", lambda c, x: (0.0, c * x)),
    "product": ("E + A/N^alpha + B/D^beta + C*x*x", "C", lambda c, x: (0.0, c * x * x)),
    "growth": ("E + A/N^alpha + B/D^beta*exp(C*x)", "C", lambda c, x: (c * x, 0.0)),
}
PAPER = {"E": 1.7, "A": 400.0, "B": 410.0, "alpha": 0.34, "beta": 0.28}
TOLD = {"coefficient": "- C*...", "product": "- C*...", "growth": "-C in place of C"}
pytestmark = pytest.mark.filterwarnings(
    "ignore:prior", "ignore:read as columns", "ignore:.*lie far"
)


def runs_with(kind, truth):
    """Make 32 runs of a formula whose parameter C has this value, with .2% noise."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "N": np.repeat([1e8, 3e8, 1e9, 3e9], 8),
            "D": np.tile([2e9, 4e9, 8e9, 1.6e10], 8),
            "x": rng.uniform(0, 1, 32),
        }
    )
    inside, beside = FORMULAS[kind][2](truth, table["x"])
    of_tokens = PAPER["B"] / table["D"] ** PAPER["beta"] * np.exp(inside)
    loss = PAPER["E"] + PAPER["A"] / table["N"] ** PAPER["alpha"] + of_tokens + beside
    return table.assign(loss=loss * np.exp(0.002 * rng.standard_normal(32)))


def lines(kind, truth, near):
    """Lines of a posterior that has C near a value and the others at the truth."""
    formula = FORMULAS[kind][0]
    law = law_from_formula(formula, columns={"x": 0.6})
    values = law.from_paper({**PAPER, "C": near})
    draws = {name: np.full(9, float(value)) for name, value in values.items()}
    return other_signs(law, draws, runs_with(kind, truth))


@pytest.mark.parametrize(
    ("kind", "truth", "near"),
    [("coefficient", -0.04, 0.005), ("product", -0.06, 0.004), ("growth", -0.3, 0.03)],
)
def test_a_parameter_below_zero_is_told_with_what_to_write(kind, truth, near):
    """R-hat was fine, the interval was above 0, and nothing was said."""
    (line,) = lines(kind, truth, near)
    assert line.startswith("C is above 0 by its prior")
    assert TOLD[kind] in line
    assert '"normal(0, ' in line


@pytest.mark.parametrize(
    ("kind", "truth", "near"),
    [
        ("coefficient", 0.0, 0.005),
        ("coefficient", 0.04, 0.04),
        ("growth", 0.0, 0.02),
        ("growth", 0.3, 0.3),
    ],
)
def test_nothing_is_said_of_zero_or_above(kind, truth, near):
    assert lines(kind, truth, near) == []


def test_a_law_of_the_catalogue_has_the_signs_of_its_paper():
    law = bayeslaw.law("chinchilla")
    with pytest.raises(LawError, match="A must be positive"):
        law.with_priors({"A": "normal(0, 1)"})


@pytest.mark.parametrize(("kind", "truth"), [("coefficient", -0.04), ("growth", -0.3)])
def test_a_prior_of_both_signs_is_taken_and_finds_it(kind, truth):
    runs = runs_with(kind, truth)
    fit = bayeslaw.fit(
        runs, FORMULAS[kind][0], priors={"C": "normal(0, 0.5)"}, preview=True
    )
    row = fit.parameters().loc["C"]
    assert row["low"] < truth < row["high"]
    assert row["high"] < 0

"""Arguments that public functions keep in records: shown, and refused where unknown."""

import doctest

import pandas as pd
import pytest

import bayeslaw
from bayeslaw import LawError
from bayeslaw._base import arguments

FUNCTIONS = [bayeslaw.fit, bayeslaw.pool, bayeslaw.compare, bayeslaw.average]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_an_unknown_argument_is_refused(function):
    message = rf"{function.__name__}\(\) has no option 'sed'; it has: .*seed"
    with pytest.raises(TypeError, match=message):
        function(pd.DataFrame(), "chinchilla", sed=1)


def test_a_missing_argument_is_named():
    with pytest.raises(
        TypeError, match=r"fit\(\): missing a required argument: 'runs'"
    ):
        bayeslaw.fit()  # pyright: ignore[reportCallIssue]


def test_without_a_law_those_that_suit_the_table_are_named():
    runs = bayeslaw.simulate("chinchilla")
    suited = (
        r"name a law: fit\(runs, 'state-power-stages'\); .* average\(runs\) weighs .*"
        r"--law state-power-stages\)"
    )
    for function in (bayeslaw.fit, bayeslaw.pool):
        with pytest.raises(LawError, match=suited):
            function(runs)
    with pytest.raises(LawError, match=r"name a law: one that laws\(\) lists.*none"):
        bayeslaw.point_fit(runs)
    for of_nothing in (bayeslaw.prior_only, bayeslaw.simulate):
        with pytest.raises(LawError, match=r"name a law: .*; got none"):
            of_nothing()


def test_the_example_of_the_mechanism_holds():
    ran = doctest.testmod(arguments)
    assert ran.attempted >= 5
    assert ran.failed == 0

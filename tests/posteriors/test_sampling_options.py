"""Arguments that public functions keep in records: shown, and refused where unknown."""

import doctest
import inspect
from dataclasses import asdict

import pandas as pd
import pytest

import bayeslaw
from bayeslaw import LawError
from bayeslaw._base import arguments
from bayeslaw._inference.nuts import NUTS
from bayeslaw._pooling.pool import PoolArguments
from bayeslaw._posteriors.averaging.average import AverageArguments
from bayeslaw._posteriors.averaging.compare import CompareArguments
from bayeslaw._posteriors.fits.fit import FitArguments

FUNCTIONS = [
    (bayeslaw.fit, FitArguments),
    (bayeslaw.pool, PoolArguments),
    (bayeslaw.compare, CompareArguments),
    (bayeslaw.average, AverageArguments),
]


@pytest.mark.parametrize(("function", "record"), FUNCTIONS)
def test_every_argument_is_shown_with_its_default(function, record):
    shown = inspect.signature(function)
    made = record(pd.DataFrame(), "chinchilla")
    assert list(shown.parameters)[:2] == ["runs", list(shown.parameters)[1]]
    for name, parameter in list(shown.parameters.items())[2:]:
        assert getattr(made, name) == parameter.default
    assert shown.return_annotation == function.__annotations__["return"]


@pytest.mark.parametrize("function", [function for function, _ in FUNCTIONS])
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
    suited = r"name a law: fit\(runs, 'state-power'\); .* average\(runs\) weighs"
    for function in (bayeslaw.fit, bayeslaw.pool):
        with pytest.raises(LawError, match=suited):
            function(runs)
    with pytest.raises(LawError, match=r"name a law: one that laws\(\) lists.*none"):
        bayeslaw.point_fit(runs)
    for of_nothing in (bayeslaw.prior_only, bayeslaw.simulate):
        with pytest.raises(LawError, match=r"name a law: .*; got none"):
            of_nothing()


def test_the_sampler_gets_what_was_asked():
    chains = {"chains": 2, "warmup": 100, "draws": 300, "max_draws": 600}
    of_fit = FitArguments(pd.DataFrame(), "chinchilla", **chains)
    assert of_fit.nuts == NUTS(2, 100, 300, 600)
    assert asdict(of_fit.nuts).items() < of_fit.settings.items()


def test_the_example_of_the_mechanism_holds():
    ran = doctest.testmod(arguments)
    assert ran.attempted >= 5
    assert ran.failed == 0

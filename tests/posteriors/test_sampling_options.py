"""Keywords that public functions keep in records: shown, and refused where unknown."""

import inspect
from dataclasses import asdict

import pandas as pd
import pytest

import bayeslaw
from bayeslaw._inference.nuts import NUTS
from bayeslaw._posteriors.averaging.compare import Comparing, ComparisonOptions
from bayeslaw._posteriors.fits.sampling import (
    FitSampling,
    FitSamplingOptions,
    Sampling,
    SamplingOptions,
)

FUNCTIONS = [
    (bayeslaw.fit, FitSampling, FitSamplingOptions),
    (bayeslaw.pool, Sampling, SamplingOptions),
    (bayeslaw.compare, Comparing, ComparisonOptions),
    (bayeslaw.average, Comparing, ComparisonOptions),
]


@pytest.mark.parametrize(("function", "record", "options"), FUNCTIONS)
def test_every_keyword_is_shown_with_its_default(function, record, options):
    shown = inspect.signature(function).parameters
    assert set(asdict(record())) == set(options.__annotations__)
    for name, default in asdict(record()).items():
        assert shown[name].default == default
    assert not any(p.kind is p.VAR_KEYWORD for p in shown.values())


@pytest.mark.parametrize("function", [function for function, *_ in FUNCTIONS])
def test_an_unknown_keyword_is_refused(function):
    message = rf"{function.__name__}\(\) has no option 'sed'; it has: .*seed"
    with pytest.raises(TypeError, match=message):
        function(pd.DataFrame(), "chinchilla", sed=1)


def test_the_sampler_gets_what_was_asked():
    sampling = FitSampling(chains=2, warmup=100, draws=300, max_draws=600)
    assert isinstance(sampling, NUTS)
    asked = asdict(NUTS(2, 100, 300, 600))
    assert asdict(sampling) == asked | {"preview": False}

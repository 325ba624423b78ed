"""Draws come in any order."""

from functools import cache

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bayeslaw import plan
from known import example
from known.plans import DRAWS, Draws, source, target

NOISY = {"sd": 0.01, "draws": 100, "sigma": 0.002}


@cache
def in_order():
    return plan(target(**NOISY), source(**NOISY), **example.QUESTION, draws=DRAWS)


@settings(max_examples=3, deadline=None, derandomize=True)
@given(st.integers(0, 2**31))
def test_order_of_draws_does_not_matter(seed):
    def shuffled(posterior, k):
        (of,) = posterior.of
        order = np.random.default_rng([seed, k]).permutation(of.draws)
        return Draws((of.take(order),))

    again = plan(
        shuffled(target(**NOISY), 0),
        shuffled(source(**NOISY), 1),
        **example.QUESTION,
        draws=DRAWS,
    )
    assert again == in_order()

"""Plans are ordered in confidence and limits, and draws come in any order."""

from dataclasses import replace
from functools import cache

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bayeslaw import plan
from bayeslaw._plans.search import search
from bayeslaw._posteriors.posterior import Piece
from known import example, straight_plans
from known.plans import DRAWS, QUICK, SEARCH, Draws, source, target


@cache
def small_problem():
    return straight_plans.problem()


def cost(problem):
    found = search(problem)
    return found.log_tokens if found.margin >= 0 else np.inf


@QUICK
@given(st.floats(0.3, 0.97), st.floats(0.3, 0.97))
def test_cost_never_falls_as_confidence_rises(a, b):
    low, high = (cost(replace(small_problem(), confidence=c)) for c in sorted((a, b)))
    assert low <= high + SEARCH


@QUICK
@given(
    st.floats(0.97, 1.03),
    st.floats(0.97, 1.03),
    st.sampled_from(["target", "web"]),
)
def test_looser_limit_never_dearer(a, b, name):
    problem = small_problem()
    limit = next(p.limit for p in problem.constraints if p.name == name)
    unit = limit if name == "target" else 1.0
    tight, loose = (
        cost(problem.relaxed(name, limit + (f - 1) * unit)) for f in sorted((a, b))
    )
    assert loose <= tight + SEARCH


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
        return Draws(
            (
                Piece(
                    of.log_loss,
                    {n: v[order] for n, v in of.values.items()},
                    of.covariates,
                ),
            )
        )

    again = plan(
        shuffled(target(**NOISY), 0),
        shuffled(source(**NOISY), 1),
        **example.QUESTION,
        draws=DRAWS,
    )
    assert again == in_order()

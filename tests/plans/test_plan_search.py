"""The plan found: exact against brute force, safe on its draws."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from bayeslaw._plans.search import Problem, search
from known.plans import (
    DRAWS,
    STATE,
    STATE_SOURCE,
    STATE_TARGET,
    dip_source,
    missed_problem,
    promise,
    random_problem,
    spread,
    state_source,
    state_target,
    wave_source,
)

SOURCES = {
    "rises": (state_source, STATE_SOURCE),
    "dips": (dip_source, {"w": 0.004, "D1": 1e10}),
    "waves": (wave_source, {"w": 0.06, "D1": 1e10}),
}


def random_state_problem(seed, kind="rises"):
    """A source loss that rises, falls and rises, or does so many times with tokens."""
    rng = np.random.default_rng(seed)
    t = spread(STATE_TARGET, 0.05, DRAWS, rng.integers(2**31))
    (s_function, center), known = SOURCES[kind], kind == "rises"
    s = spread(center, 0.05, DRAWS, rng.integers(2**31)) | (
        {} if known else {"L": np.full(DRAWS, 2.3)}
    )
    promises = (
        promise("target", state_target, t, STATE, rng.uniform(2.3, 2.5), model=1e9),
        promise(
            "forgetting",
            s_function,
            s,
            STATE,
            rng.uniform(0.01, 0.03),
            2.4 if known else 2.3,
            model=1e9,
        ),
    )

    def numpy_of(function, values):
        v = {k: np.asarray(a)[:, None, None] for k, a in values.items()}
        return lambda d, r: function(v, STATE | {"D": d, "replay": r}, np)

    return Problem(promises, float(rng.uniform(0.6, 0.9)), 1e9, 30.0), [
        numpy_of(state_target, t),
        numpy_of(s_function, s),
    ]


def most(constraint):
    """The log loss that each draw may have at most, shape (draw,): from the limit itself."""
    loss = constraint.limit
    if constraint.unit == "relative":
        loss = (1 + constraint.limit) * constraint.baseline
    return np.log(loss / np.exp(constraint.noise))


def shares(problem, losses, x, replay):
    """Share of draws that keep both promises on a grid, shape (replay, tokens)."""
    kept = True
    for p, f in zip(problem.constraints, losses, strict=True):
        log_loss = f(np.exp(x)[None, None, :], replay[None, :, None])
        kept = kept & (log_loss <= most(p)[:, None, None])
    return np.mean(kept, axis=0)


def brute_force(problem, losses):
    """The smallest log tokens on a grid over all draws, made finer wherever a replay is within 5% of the best."""
    u, x = np.linspace(0, 1, 101), np.linspace(*problem.span, 300)
    best = np.inf
    for width in (0.05, 0.02, 0.005, 0.001):
        ok = shares(problem, losses, x, problem.at(u)) >= problem.confidence - 1e-12
        needed = np.where(ok.any(axis=1), x[np.argmax(ok, axis=1)], np.inf)
        best, du, dx = min(best, needed.min()), np.diff(u).min(), x[1] - x[0]
        if not np.isfinite(best):
            return best
        near = u[needed <= best + width + dx]
        u = np.unique(np.clip(near[:, None] + du * np.linspace(-1, 1, 11), 0, 1))
        x = np.linspace(best - 3 * dx, best + dx, 25)
    return best


CASES = [(random_problem, k) for k in range(6)] + [
    (random_state_problem, k) for k in range(2)
]
CASES += [
    (partial(random_state_problem, kind=kind), k)
    for kind in ("dips", "waves")
    for k in range(2)
]
CASES += [(missed_problem, k) for k in range(3)]


@pytest.mark.parametrize(("make", "seed"), CASES)
def test_same_cost_as_brute_force_and_no_promise_broken(make, seed):
    """The cost is at most that of a fine grid over all draws and .5%, and the plan's draws keep the promises."""
    problem, losses = make(seed)
    found = search(problem)
    expected = brute_force(problem, losses)
    assert np.isfinite(expected)
    assert found.log_tokens <= expected + 0.005
    share = shares(
        problem, losses, np.array([found.log_tokens + 1e-9]), np.array([found.replay])
    ).item()
    assert share >= problem.confidence - 1e-12
    assert (
        problem.kept(found.log_tokens, found.replay).all(axis=0).mean()
        >= problem.confidence
    )


WITHIN_A_BUDGET = [(random_problem, k, 0.5) for k in range(3)]
# few draws keep the limits, and only near one replay: the others say nothing of it
WITHIN_A_BUDGET += [(random_problem, 1, 0.1), (missed_problem, 2, 0.3)]
WITHIN_A_BUDGET += [(partial(random_state_problem, kind="waves"), 0, 0.95)]


@pytest.mark.parametrize(("make", "seed", "part"), WITHIN_A_BUDGET)
def test_most_probable_plan_as_brute_force(make, seed, part):
    """Within a part of the budget that would do, no point of a fine grid is more probable by over two draws."""
    problem, losses = make(seed)
    enough = float(np.exp(search(problem).log_tokens))
    problem = replace(problem, max_tokens=part * enough)
    found = search(problem)
    u, x = (
        np.linspace(0, 1, 2001),
        np.log(problem.max_tokens) - np.array([0, 0.1, 0.5, 1, 2]),
    )
    best = shares(problem, losses, x, problem.at(u)).max()
    assert found.log_tokens <= np.log(problem.max_tokens) + 1e-9
    assert problem.confidence + found.margin == pytest.approx(best, abs=2.01 / DRAWS)

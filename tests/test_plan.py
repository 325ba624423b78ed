"""The plan: exact against brute force, safe on its draws, ordered in confidence and limits, clear when it refuses."""

import json
from dataclasses import dataclass, replace
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from bayeslaw import _engine, _feasible
from bayeslaw import _plan_example as example
from bayeslaw._catalogue import law
from bayeslaw._errors import PlanError
from bayeslaw._feasible import Part, Promise, cheapest, meet
from bayeslaw._plan import Plan, plan
from bayeslaw._plan_search import Problem, search
from bayeslaw._posterior import Piece

_engine.start()

N, PTPP = example.QUESTION["N"], example.QUESTION["ptpp"]
QUICK = settings(max_examples=12, deadline=None, derandomize=True)
DRAWS = 256  # of most posteriors here: one shape, compiled once
SEARCH = 2e-3  # relative error of tokens that the search over replay may leave


# -- posteriors whose truth is known ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Draws:
    """A posterior made of pieces."""

    of: tuple[Piece, ...]
    warnings: tuple[str, ...] = ()

    def pieces(self):
        return self.of

    def log_loss(self, runs, *, noise=False, seed=0):
        raise NotImplementedError


@cache
def formula(name):
    """One function per law, so that nothing is compiled twice."""
    return lambda values, covariates: jnp.log(law(name).loss(covariates, values))


def spread(values, sd, draws, seed):
    """Log-normal draws around values, shape (draw,)."""
    rng = np.random.default_rng(seed)
    return {k: float(v) * np.exp(sd * rng.standard_normal(draws)) for k, v in values.items()}


def piece(name, parameters, sd=0.0, draws=1, seed=0, sigma=None):
    values = spread(law(name).from_paper(parameters), sd, draws, seed)
    if sigma is not None:
        values |= {"sigma": np.full(draws, sigma), "dof": np.full(draws, 5.0)}
    return Piece(formula(name), values, law(name).covariates)


def target(**options):
    return Draws((piece(example.TARGET_LAW, example.TARGET, **options),))


def source(**options):
    return Draws((piece(example.SOURCE_LAW, example.SOURCE, **({"seed": 1} | options)),))


def state_source(v, x, xp=jnp):
    """S0 + (S1 - S0) a e^(-kappa r) (1 - e^(-D/D1)): the source loss rises with tokens."""
    before = x["source_loss_before"]
    rise = v["a"] * xp.exp(-v["kappa"] * x["replay"]) * -xp.expm1(-x["D"] / v["D1"])
    return xp.log(before + (v["S1"] - before) * rise)


def state_target(v, x, xp=jnp):
    """T1 + (T0 - T1) (1 + D (1-r)^q / D1)^-beta, T1 = c S0."""
    floor = v["c"] * x["source_loss_before"]
    return xp.log(
        floor + (x["loss_before"] - floor) * (1 + x["D"] * (1 - x["replay"]) ** v["q"] / v["D1"]) ** -v["beta"]
    )


def dip_source(v, x, xp=jnp):
    """Falls, then rises: forgetting is within its limit between two budgets."""
    z = xp.log(x["D"] / v["D1"])
    return xp.log(v["L"] + v["w"] * (1.2 - x["replay"]) * z**2)


def wave_source(v, x, xp=jnp):
    """Rises and falls again and again, as a law that drifts at the ends of its training runs may."""
    z = xp.log(x["D"] / v["D1"])
    return xp.log(v["L"] + v["w"] * (1.2 - x["replay"]) * (1 + xp.sin(1.2 * z)))


STATE = {"loss_before": 3.1, "source_loss_before": 2.4}
STATE_SOURCE = {"S1": 2.7, "a": 0.9, "kappa": 4.0, "D1": 3e10}
STATE_TARGET = {"c": 0.8, "q": 1.0, "D1": 2e9, "beta": 0.35}


def state_plan(sd=0.05, draws=DRAWS, **options):
    names = ("loss_before", "source_loss_before", "D", "replay")
    t = Draws((Piece(state_target, spread(STATE_TARGET, sd, draws, 0), names),))
    s = Draws((Piece(state_source, spread(STATE_SOURCE, sd, draws, 1), names[1:]),))
    asked = {"N": 1e9, "ptpp": 30, "max_target_loss": 2.45, "max_forgetting": 0.03, "covariates": STATE}
    return plan(t, s, **({"new_run": False} | asked | options))


def example_plan(sd=0.0, count=1, sigma=None, **options):
    made = {"sd": sd, "draws": count, "sigma": sigma}
    return plan(target(**made), source(**made), **(example.QUESTION | options))


# -- brute force -----------------------------------------------------------------------------------------------------


def promise(name, function, values, fixed, limit, baseline=None, noise=0.0, model=N):
    draws = len(next(iter(values.values())))
    rows = np.arange(draws)
    leaves = {k: jnp.asarray(v) for k, v in values.items()}
    held = {k: jnp.full(draws, float(v)) for k, v in fixed.items()}
    unit = "loss" if baseline is None else "relative"
    base = np.full(draws, 1.0 if baseline is None else baseline)
    span = (float(np.log(model * 1e-4)), float(np.log(model * 1e4)))
    wiggle = noise * np.random.default_rng(len(name)).standard_normal(draws)
    made = Promise(name, limit, unit, (Part(function, leaves, held, rows),), base, wiggle, span)
    return made.with_shape_checked()


def numpy_form(values, D, replay, ptpp=PTPP):
    """Forms 1 and 3 in numpy, from the paper's equations; values of shape (draw, 1, 1)."""
    v = {k: np.asarray(a)[:, None, None] for k, a in values.items()}
    b = v["beta"] * (1 - v["lam"] / (1 + ptpp ** -v["zeta"])) if "lam" in v else v["beta"]
    r = np.clip(replay, 1e-9, 1 - 1e-9)
    data = v["B"] * r ** v["nu"] * np.exp(-b * np.log(D))
    floors = v["E"] + v["A"] * N ** -v["alpha"] + v["F"] * ptpp ** -v["eta"]
    return np.log(floors + data + v["C"] * (r + 1e-5) ** -v["gamma"])


def published(name, values):
    """Parameters in the paper's units, per draw."""
    return {k: np.asarray(v) for k, v in jax.vmap(law(name).to_paper)(values).items()}


def random_problem(seed):
    """Forms 3 and 1 around random parameters, asked for what a random plan gives: the kind of odd seeds has noise."""
    rng = np.random.default_rng(seed)
    draws, noise = DRAWS, 0.004 * (seed % 2)
    sets = {}
    for name, center in ((example.TARGET_LAW, example.TARGET), (example.SOURCE_LAW, example.SOURCE)):
        around = {k: v * np.exp(0.15 * rng.standard_normal()) for k, v in center.items()}
        sets[name] = spread(law(name).from_paper(around), 0.02, draws, rng.integers(2**31))
    paper = {k: published(k, v) for k, v in sets.items()}
    losses = {k: (lambda d, r, k=k: numpy_form(paper[k], d, r)) for k in sets}
    asked, replay = 12 * N, rng.uniform(0.1, 0.6)
    limit, base = (float(np.exp(np.median(f(asked, replay)))) for f in losses.values())
    fixed = {"N": N, "ptpp": PTPP}
    promises = (
        promise("target", formula(example.TARGET_LAW), sets[example.TARGET_LAW], fixed, limit, noise=noise),
        promise("forgetting", formula(example.SOURCE_LAW), sets[example.SOURCE_LAW], fixed, 0.01, base / 1.01, noise),
    )
    return Problem(promises, float(rng.uniform(0.6, 0.95)), N, PTPP), list(losses.values())


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
    s = spread(center, 0.05, DRAWS, rng.integers(2**31)) | ({} if known else {"L": np.full(DRAWS, 2.3)})
    promises = (
        promise("target", state_target, t, STATE, rng.uniform(2.3, 2.5), model=1e9),
        promise("forgetting", s_function, s, STATE, rng.uniform(0.01, 0.03), 2.4 if known else 2.3, model=1e9),
    )

    def numpy_of(function, values):
        v = {k: np.asarray(a)[:, None, None] for k, a in values.items()}
        return lambda d, r: function(v, STATE | {"D": d, "replay": r}, np)

    return Problem(promises, float(rng.uniform(0.6, 0.9)), 1e9, 30.0), [
        numpy_of(state_target, t),
        numpy_of(s_function, s),
    ]


def shares(problem, losses, x, replay):
    """Share of draws that keep both promises on a grid, shape (replay, tokens)."""
    kept = True
    for p, f in zip(problem.promises, losses, strict=True):
        kept = kept & (f(np.exp(x)[None, None, :], replay[None, :, None]) <= p.log_limit[:, None, None])
    return np.mean(kept, axis=0)


def brute_force(problem, losses):
    """The smallest log tokens on a grid over all draws, made finer wherever a replay is within 5% of the best."""
    u, x = np.linspace(0, 1, 101), np.linspace(*problem.span, 300)
    best = np.inf
    for width in (0.05, 0.02, 0.005, 0.001):
        ok = shares(problem, losses, x, problem.replay(u)) >= problem.confidence - 1e-12
        needed = np.where(ok.any(axis=1), x[np.argmax(ok, axis=1)], np.inf)
        best, du, dx = min(best, needed.min()), np.diff(u).min(), x[1] - x[0]
        if not np.isfinite(best):
            return best
        near = u[needed <= best + width + dx]
        u = np.unique(np.clip(near[:, None] + du * np.linspace(-1, 1, 11), 0, 1))
        x = np.linspace(best - 3 * dx, best + dx, 25)
    return best


CASES = [(random_problem, k) for k in range(10)] + [(random_state_problem, k) for k in range(2)]
CASES += [(partial(random_state_problem, kind=kind), k) for kind in ("dips", "waves") for k in range(2)]


@pytest.mark.parametrize(("make", "seed"), CASES)
def test_same_cost_as_brute_force_and_no_promise_broken(make, seed):
    """The cost is that of a fine grid over all draws within .5%, and the plan's draws keep the promises."""
    problem, losses = make(seed)
    found = search(problem)
    expected = brute_force(problem, losses)
    assert np.isfinite(expected)
    assert found.log_tokens == pytest.approx(expected, abs=0.005)
    share = shares(problem, losses, np.array([found.log_tokens + 1e-9]), np.array([found.replay])).item()
    assert share >= problem.confidence - 1e-12
    assert problem.kept(found.log_tokens, found.replay).all(axis=0).mean() >= problem.confidence


@pytest.mark.parametrize("seed", range(3))
def test_most_probable_plan_as_brute_force(seed):
    """Within half the budget that would do, no point of a fine grid is more probable by over two draws."""
    problem, losses = random_problem(seed)
    problem = replace(problem, max_tokens=float(np.exp(search(problem).log_tokens)) / 2)
    found = search(problem)
    u, x = np.linspace(0, 1, 2001), np.log(problem.max_tokens) - np.array([0, 0.1, 0.5, 1, 2])
    best = shares(problem, losses, x, problem.replay(u)).max()
    assert found.log_tokens <= np.log(problem.max_tokens) + 1e-9
    assert problem.confidence + found.margin == pytest.approx(best, abs=2.01 / DRAWS)


def test_smallest_budget_in_overlapping_intervals():
    """The sweep counts draws whose intervals have begun and not ended, ends included."""
    intervals = (np.array([[1.0], [2.0], [3.0]]), np.array([[2.5], [4.0], [np.inf]]))
    assert cheapest([intervals], [2 / 3], np.inf) == (2.0, 0.0)
    assert cheapest([intervals], [1.0], np.inf)[1] == pytest.approx(-1 / 3)
    assert cheapest([intervals], [2 / 3], 1.5) == (1.0, pytest.approx(-1 / 3))
    start, end = meet(intervals, (np.array([[2.6, 5.0]] * 3), np.array([[3.5, 6.0]] * 3)))
    assert np.sort(start[1])[0] == 2.6
    assert np.isinf(start[0]).all()
    assert sorted(zip(start[2][np.isfinite(start[2])], end[2], strict=False)) == [(3.0, 3.5), (5.0, 6.0)]


def test_roots_are_those_of_bisection_whatever_newton_finds(monkeypatch):
    """Where Newton's method fails, a draw's ends come from bisection, in blocks; the other draws keep theirs."""
    promise = random_state_problem(0, "dips")[0].promises[1]
    replay = np.linspace(0, 1, promise.draws)
    found, asked = promise.intervals(replay), []
    crossings = _feasible._crossings

    def failing(*given, newton):
        roots, first, converged = crossings(*given, newton=newton)
        asked.append((len(roots), newton))
        if not newton:
            return roots, first, converged
        spared = np.arange(len(first)) % 9 > 0
        return np.where(spared[:, None], roots, np.nan), first, spared

    monkeypatch.setattr(_feasible, "_crossings", failing)
    again = promise.intervals(replay)
    hard = -(-promise.draws // 9)
    assert sum(n for n, newton in asked if not newton) == -(-hard // _feasible.BLOCK) * _feasible.BLOCK
    for ends, expected in zip(again, found, strict=True):
        np.testing.assert_allclose(ends, expected, rtol=1e-9)


def test_every_crossing_is_found_of_a_loss_that_bends_many_times():
    """Draws keep the promise inside their intervals and nowhere else: four intervals here, where most losses have two."""
    promise = random_state_problem(0, "waves")[0].promises[1]
    replay = np.linspace(0, 1, promise.draws)
    starts, ends = promise.intervals(replay)
    assert np.isfinite(starts).sum(axis=1).max() >= 4
    for x in np.linspace(*promise.span, 57)[1:-1]:
        inside = ((starts <= x) & (x <= ends)).any(axis=1)
        np.testing.assert_array_equal(inside, promise.log_losses(x, replay) <= promise.log_limit)


# -- the paper's problem ---------------------------------------------------------------------------------------------


def numpy_loss(parameters, D, replay):
    return float(np.exp(numpy_form({k: [v] for k, v in parameters.items()}, D, replay)).item())


def test_known_parameters_give_the_published_plan():
    """One known set of parameters: 8.9 tokens per parameter at 34% replay, both promises with equality."""
    made = example_plan(new_run=False)
    assert made.feasible
    assert round(made.atpp, 1) == example.ATPP
    assert round(made.replay, 2) == example.REPLAY
    base = example.QUESTION["baseline_loss"]
    assert numpy_loss(example.TARGET, made.D, made.replay) == pytest.approx(1.8, abs=1e-5)
    assert numpy_loss(example.SOURCE, made.D, made.replay) / base - 1 == pytest.approx(0.02, abs=1e-4)
    needed = optimize.brentq(lambda x: numpy_loss(example.TARGET, np.exp(x), made.replay) - 1.8, 20, 30)
    assert pytest.approx(np.exp(needed), rel=1e-3) == made.D
    assert made.flops == pytest.approx(6 * N * made.D)
    assert made.sentence().startswith("Adapt N = 8.1B at ptpp 279 on 8.9 tokens per parameter")
    assert (made.probability, made.probability_target, made.probability_forgetting) == (1, 1, 1)


@cache
def uncertain():
    return example_plan(
        sd=0.005, count=2000, sigma=0.002, point={"target": exact("target"), "forgetting": exact("source")}
    )


def exact(which):
    name = example.TARGET_LAW if which == "target" else example.SOURCE_LAW
    values = law(name).from_paper(example.TARGET if which == "target" else example.SOURCE)
    return {k: float(v) for k, v in values.items()}


def test_uncertainty_costs_tokens_and_buys_safety():
    """Around the same parameters the 90% plan is dearer; the published one is the plug-in plan, and a gamble."""
    made = uncertain()
    assert made.feasible
    assert made.atpp > 1.1 * example.ATPP
    assert 0.9 <= made.probability < 0.9 + 2 / 4000
    assert made.plug_in["atpp"] == pytest.approx(example.ATPP, abs=0.05)
    assert made.plug_in["replay"] == pytest.approx(example.REPLAY, abs=0.005)
    assert made.plug_in["probability"] < 0.6
    fresh = [spread(exact(w), 0.005, 20_000, 7 + k) for k, w in enumerate(("target", "source"))]
    names = (example.TARGET_LAW, example.SOURCE_LAW)
    noise = 0.002 * np.random.default_rng(9).standard_t(5, (2, 20_000))
    t, s = (
        numpy_form(published(n, v), made.D, made.replay).ravel() + e
        for n, v, e in zip(names, fresh, noise, strict=True)
    )
    kept = (t <= np.log(1.8)) & (s <= np.log(1.02 * example.QUESTION["baseline_loss"]))
    assert kept.mean() == pytest.approx(0.9, abs=0.03)  # 4,000 draws in the plan: four standard errors


def test_what_a_plan_says():
    """Frontier, region, trade-off, truth and promises agree with the plan they describe."""
    made = uncertain()
    costs = [row["D"] for row in made.frontier]
    assert costs == sorted(costs)
    assert next(r["D"] for r in made.frontier if r["confidence"] == 0.9) == made.D
    region, middle = np.array(made.region["probability"]), len(made.region["atpp"]) // 2
    assert made.region["atpp"][middle] == pytest.approx(made.atpp)
    assert abs(region[:, middle].max() - 0.9) < 0.03
    band = made.tradeoff["bands"]["target"]
    assert all(a < b < c for a, b, c in zip(band["low"], band["median"], band["high"], strict=True))
    assert made.tradeoff["atpp"] == pytest.approx(made.atpp)
    truth = made.truth
    assert truth["atpp"] == sorted(truth["atpp"])
    assert truth["atpp"][2] == pytest.approx(example.ATPP, rel=0.1)
    assert 0 < truth["perfect_information"] < made.D
    assert 0 < truth["regret"] < made.D
    assert made.binding == "target and forgetting"
    for row in made.promises:
        assert row["low"] < row["mean"] < row["high"]
        assert row["probability"] >= 0.9
        assert row["worth"] > 0


def test_survives_json():
    made = uncertain()
    assert Plan.from_dict(json.loads(json.dumps(made.to_dict(), allow_nan=False))) == made
    with pytest.raises(PlanError, match="'atpp' is missing"):
        Plan.from_dict({k: v for k, v in made.to_dict().items() if k != "atpp"})


# -- order -----------------------------------------------------------------------------------------------------------


@cache
def small_problem():
    return random_problem(3)[0]


def cost(problem):
    found = search(problem)
    return found.log_tokens if found.margin >= 0 else np.inf


@QUICK
@given(st.floats(0.3, 0.97), st.floats(0.3, 0.97))
def test_cost_never_falls_as_confidence_rises(a, b):
    low, high = (cost(replace(small_problem(), confidence=c)) for c in sorted((a, b)))
    assert low <= high + SEARCH


@QUICK
@given(st.floats(0.97, 1.03), st.floats(0.97, 1.03), st.sampled_from(["target", "forgetting"]))
def test_looser_limit_never_dearer(a, b, name):
    problem = small_problem()
    limit = next(p.limit for p in problem.promises if p.name == name)
    unit = limit if name == "target" else 1.0
    tight, loose = (cost(problem.relaxed(name, limit + (f - 1) * unit)) for f in sorted((a, b)))
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
        return Draws((Piece(of.log_loss, {n: v[order] for n, v in of.values.items()}, of.covariates),))

    again = plan(shuffled(target(**NOISY), 0), shuffled(source(**NOISY), 1), **example.QUESTION, draws=DRAWS)
    assert again == in_order()


# -- a team's constraints --------------------------------------------------------------------------------------------

WIDE = {"sd": 0.01, "count": DRAWS, "new_run": False}


@cache
def wide():
    return example_plan(**WIDE)


def test_budget_buys_the_most_probable_plan():
    """Within the cheapest plan's own budget the most probable plan is as probable; within half of it, less so."""
    same = example_plan(**WIDE, max_tokens=wide().D * 1.0001)
    half = example_plan(**WIDE, max_flops=wide().flops / 2)
    assert same.probability >= wide().probability
    assert not half.feasible
    assert half.D <= wide().D / 2 * (1 + 1e-9)
    assert half.probability < 0.9
    assert "budget" in half.binding
    assert half.sentence().startswith("The budget does not reach the confidence")
    assert half.explanation["relax"]


def test_unique_tokens_and_least_replay_are_kept():
    free = wide()
    unique = 0.8 * free.D * (1 - free.replay)
    capped = example_plan(**WIDE, unique_target_tokens=unique)
    assert capped.D * (1 - capped.replay) <= unique * (1 + 1e-9)
    assert capped.D > free.D
    assert "unique target tokens" in capped.binding
    twice = example_plan(**WIDE, unique_target_tokens=unique, max_epochs=2)
    assert pytest.approx(free.D, rel=SEARCH) == twice.D
    floor = example_plan(**WIDE, min_replay=0.6)
    assert floor.replay >= 0.6
    assert floor.D > free.D
    assert "least replay" in floor.binding


def test_confidence_of_each_promise():
    """90% of each costs less than 90% of both; the joint probability then falls short of 90%."""
    each = example_plan(**WIDE, confidence={"target": 0.9, "forgetting": 0.9})
    assert each.D < wide().D
    assert min(each.probability_target, each.probability_forgetting) >= 0.9
    assert each.probability < 0.9


def test_several_sources():
    """A second source that is easy to keep changes nothing; as hard as the first, it costs tokens."""
    made = {"sd": WIDE["sd"], "draws": DRAWS}
    asked = example.QUESTION | {"new_run": False}
    english, arabic = source(**made), source(**made, seed=5)
    easy = plan(
        target(**made),
        {"english": english, "arabic": arabic},
        **(asked | {"max_forgetting": {"english": 0.02, "arabic": 0.5}}),
    )
    hard = plan(target(**made), {"english": english, "arabic": arabic}, **asked)
    assert pytest.approx(wide().D, rel=SEARCH) == easy.D
    assert hard.D > easy.D
    assert [p["name"] for p in hard.promises] == ["target", "english", "arabic"]


def test_new_run_costs_more_than_the_mean():
    made = {"sd": 0.01, "count": DRAWS, "sigma": 0.005, "draws": DRAWS}
    assert example_plan(**made).D > example_plan(**made, new_run=False).D


def test_cheapest_of_several_models():
    """Of several sizes the one cheapest in FLOPs; the plan is the one it would get alone."""
    asked = {"N": [4e9, 8.1e9, 1.6e10], "ptpp": 279}
    made = example_plan(**WIDE, **asked)
    reached = [c for c in made.candidates if c["feasible"]]
    assert len(made.candidates) == 3
    assert made.flops == min(c["flops"] for c in reached)
    assert pytest.approx(made.D) == example_plan(**WIDE, N=made.N).D


def test_nats_and_relative_agree():
    nats = example_plan(**WIDE, max_forgetting=0.02 * 1.6448, forgetting_unit="nats")
    assert pytest.approx(wide().D, rel=1e-9) == nats.D


def test_average_of_laws():
    """An average is planned for by all its draws: between the plans of its laws."""
    good, worse = (
        piece(example.TARGET_LAW, example.TARGET | {"E": e}, sd=0.005, draws=DRAWS) for e in (example.TARGET["E"], 1.18)
    )
    s = Draws(tuple(piece(example.SOURCE_LAW, example.SOURCE, sd=0.005, draws=DRAWS, seed=k) for k in (1, 2)))
    asked = example.QUESTION | {"new_run": False, "confidence": 0.7, "draws": 2 * DRAWS}
    costs = [plan(Draws((one, other)), s, **asked).D for one, other in ((good, good), (good, worse), (worse, worse))]
    assert costs == sorted(costs)
    assert costs[0] < costs[1] < costs[2]


# -- baselines and losses before adaptation --------------------------------------------------------------------------


def test_state_laws_carry_their_baseline():
    """Forgetting is measured from the checkpoint's own loss; the source loss rises with tokens and bounds them."""
    made = state_plan()
    assert made.feasible
    assert made.settings["baseline"]["forgetting"] == pytest.approx(2.4)
    assert made.replay > 0.05
    same = state_plan(baseline_loss=2.4, covariates={"loss_before": 3.1, "source_loss_before": 2.4})
    assert same.D == made.D
    chained = np.random.default_rng(0).normal(3.1, 0.05, 300)
    assert state_plan(covariates=STATE | {"loss_before": chained}).D > made.D


def test_nothing_to_do():
    """A target loss that is good enough before adaptation needs no tokens."""
    made = state_plan(max_target_loss=3.2)
    assert (made.feasible, made.D, made.atpp) == (True, 0, 0)
    json.dumps(made.to_dict(), allow_nan=False)


def test_diverging_law_refuses_zero_tokens_and_takes_a_budget():
    """Trap: Form 1 has no loss at D = 0; a reference budget of pure replay is a baseline."""
    with pytest.raises(PlanError, match="baseline_loss, the loss measured"):
        example_plan(baseline_loss=None)
    made = example_plan(baseline_loss=None, baseline_tokens=1e10, new_run=False)
    assert made.settings["baseline"]["forgetting"] == pytest.approx(numpy_loss(example.SOURCE, 1e10, 1.0))


# -- when there is none ----------------------------------------------------------------------------------------------


def test_infeasible_says_what_to_relax():
    """The limits it names are enough: asked again with them, there is a plan at about the cost it named."""
    asked = {"max_target_loss": 1.5, "max_forgetting": -0.04}
    made = example_plan(**WIDE, **asked)
    assert (made.feasible, made.atpp, made.probability) == (False, None, None)
    json.dumps(made.to_dict(), allow_nan=False)
    asked = {"max_target_loss": 1.45}
    made = example_plan(**WIDE, **asked)
    assert not made.feasible
    assert "no plan keeps" in made.sentence()
    row = made.explanation["relax"][0]
    assert row["promise"] == "target"
    assert row["needed"] > 1.45
    again = example_plan(**WIDE, max_target_loss=row["needed"] * (1 + 1e-4))
    assert again.feasible
    assert not example_plan(**WIDE, max_target_loss=row["needed"] * (1 - 1e-3)).feasible
    easy = row["comfortable"]
    assert pytest.approx(easy["D"], rel=SEARCH) == example_plan(**WIDE, max_target_loss=easy["limit"]).D


def test_untrustworthy_fits_are_named():
    t = replace(target(), warnings=("R-hat 1.3 in beta",))
    made = plan(t, source(), **example.QUESTION, new_run=False)
    assert made.warnings == ["target: R-hat 1.3 in beta"]


BAD = [
    ({"confidence": 90}, "confidence must be a probability"),
    ({"confidence": {"target": 0.9}}, "confidence by promise needs exactly target, forgetting"),
    ({"max_target_loss": -1}, "max_target_loss must be a positive number"),
    ({"max_target_loss": "low"}, "max_target_loss must be a positive number"),
    ({"max_forgetting": float("nan")}, "max_forgetting must be a number"),
    ({"min_replay": 10}, "min_replay must be a share"),
    ({"N": -1}, "N must be a positive number"),
    ({"N": [1e9, 2e9], "ptpp": [1, 2, 3]}, "one length"),
    ({"N": 6.9}, "write 6.9B"),
    ({"baseline_loss": 0.0}, "must be a positive number"),
    ({"baseline_loss": {"arabic": 1.6}}, "nothing given for source 'forgetting'"),
    ({"baseline_tokens": 1e9}, "not both"),
    ({"forgetting_unit": "percent"}, "'relative' or 'nats'"),
    ({"max_flops": 0}, "max_flops must be a positive number"),
    ({"point": {"target": {"beth": 1.0}}}, "no parameter 'beth'"),
    ({"point": {"goal": {}}}, "point names no promise 'goal'"),
]


@pytest.mark.parametrize(("asked", "message"), BAD)
def test_bad_question_gets_one_clear_line(asked, message):
    with pytest.raises(PlanError, match=message) as raised:
        example_plan(**asked)
    assert "\n" not in str(raised.value)


def test_missing_covariate_is_named():
    with pytest.raises(PlanError, match="loss_before"):
        state_plan(covariates={"source_loss_before": 2.4})
    with pytest.raises(PlanError, match="source_loss_before"):
        state_plan(covariates={"loss_before": 3.1})


# -- pictures --------------------------------------------------------------------------------------------------------


def test_pictures_draw_on_the_axes_they_get():
    """Each picture returns its axes with the plan on them, for a plan and for none."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    from bayeslaw import plots as pictures

    for made in (uncertain(), example_plan(**WIDE, max_target_loss=1.45)):
        for draw in (pictures.frontier, pictures.region, pictures.tradeoff):
            ax = Figure().add_subplot()
            assert draw(ax, made) is ax
            assert ax.get_xlabel()
            assert ax.has_data()

"""Plans on the simplex: the cheapest tokens and shares that keep limits, by brute force."""

import math

import numpy as np
import pytest

import bayeslaw
from bayeslaw import PlanError, law
from bayeslaw._plans.mixing.candidates import simplex_lattice
from bayeslaw._plans.mixing.question import MixtureArguments, question_of
from bayeslaw._plans.mixing.search import bounds_of, cheapest_mixture, rank_weights
from bayeslaw._plans.posing import pose
from bayeslaw._posteriors.posterior import LogLoss

DOMAINS = ("web", "code", "books")
BOUNDS = dict.fromkeys(DOMAINS, (0.02, 0.96))
LIMITS = {"web": 2.48, "code": 2.0}


class Known:
    """A posterior whose draws are known: parameters scattered around plausible ones."""

    def __init__(
        self, own, seed, spread=0.02, draws=400, form="mixture-coupled", **changes
    ):
        others = [name for name in DOMAINS if name != own]
        a_law = law(form, (own, *others))
        rng = np.random.default_rng(seed)
        # draws of each value move by some percent, independently
        values = a_law.from_paper({**a_law.plausible, **changes})
        scattered = {
            name: np.asarray(value) * np.exp(spread * rng.standard_normal(draws))
            for name, value in values.items()
        }
        sizes = {"sigma": np.full(draws, 0.003), "dof": np.full(draws, 8.0)}
        self.piece = LogLoss(a_law).piece(scattered | sizes)
        self.name, self.warnings = own, ()

    def pieces(self):
        return (self.piece,)


BEFORE = {"loss_before": {"web": 3.1, "code": 2.4}, "source_loss_before": 2.6}


def test_each_set_has_its_own_losses_of_the_checkpoint():
    """Adapted from a checkpoint: the plan's losses are each law's at that set's loss before."""
    adapted = {
        name: Known(name, seed, form="mixture-state")
        for seed, name in enumerate(("web", "code"))
    }
    limits = {"web": 2.9, "code": 2.3}
    options = {"covariates": BEFORE, "max_loss": limits, "new_run": False}
    plan = planned(adapted, **options)
    assert plan.feasible
    shares = {f"share_{name}": share for name, share in plan.shares.items()}
    for limit in plan.limits:
        name = limit["name"]
        run = {"N": 1e9, "D": plan.D, "source_loss_before": 2.6, **shares}
        run["loss_before"] = BEFORE["loss_before"][name]
        (piece,) = adapted[name].pieces()
        losses = np.exp(piece.at({c: np.array([v]) for c, v in run.items()}))
        assert np.median(losses) == pytest.approx(limit["median"], rel=1e-3)
    with pytest.raises(PlanError, match="covariates loss_before names no 'books'"):
        planned(adapted, **options | {"covariates": {"loss_before": {"books": 3.0}}})
    without = {"loss_before": {"web": 3.1}, "source_loss_before": 2.6}
    with pytest.raises(PlanError, match=r"the law of code reads 'loss_before'.*by set"):
        planned(adapted, **options | {"covariates": without})


@pytest.fixture(scope="module")
def posteriors():
    return {"web": Known("web", 0), "code": Known("code", 1, E=1.15, t_web=0.25)}


def posed(posteriors, **options):
    defaults = {"N": 1e9, "max_loss": LIMITS, "bounds": BOUNDS, "draws": 400}
    return pose(question_of(MixtureArguments(posteriors, **(defaults | options))))


def planned(posteriors, **options):
    defaults = {"N": 1e9, "max_loss": LIMITS, "bounds": BOUNDS, "draws": 400}
    return bayeslaw.plan_mixture(posteriors, **(defaults | options))


def losses_of_sets(problem, log_tokens, mixtures):
    """Log losses of all evaluation sets, limited or not, (set, draw, mixture)."""
    x, columns = np.array([log_tokens]), problem.columns_of(mixtures)
    sets = problem.sets.values()
    return np.stack([one.log_losses_on_grid(x, columns)[..., 0] for one in sets])


def fewest_tokens(problem, mixture, rounds=3):
    """The fewest log tokens at which a mixture keeps the limits, on finer ladders."""
    low, high = problem.span[0], float(problem.log_cap(mixture))
    for _ in range(rounds):
        rungs = np.linspace(low, high, 32)
        kept = problem.probabilities(rungs, mixture[None])[0] >= problem.confidence
        if high < low or not kept.any():
            return math.inf
        low, high = rungs[max(kept.argmax() - 1, 0)], rungs[kept.argmax()]
    return high


def brute_force(problem, rounds=4, cells=8):
    """The cheapest log tokens on a lattice of mixtures, finer around the best each round."""
    low, high = bounds_of(problem)
    centre, reach, best = np.full(3, 1 / 3), 1.0, math.inf
    for _ in range(rounds):
        steps = np.linspace(-reach, reach, cells + 1)
        points = [centre + np.array([i, j, -i - j]) for i in steps for j in steps]
        inside = [
            p for p in points if (p >= low - 1e-9).all() and (p <= high + 1e-9).all()
        ]
        cost, where = min((fewest_tokens(problem, p), i) for i, p in enumerate(inside))
        best, centre, reach = min(best, cost), inside[where], 2 * reach / cells
    return best


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"confidence": 0.6, "new_run": False},
        {"max_loss": {"code": 1.95}, "max_mean_loss": 2.25},
        {"unique_tokens": {"code": 1.1e10}, "max_epochs": 2.0},
    ],
)
def test_a_plan_is_within_a_percent_of_brute_force(posteriors, options):
    problem = posed(posteriors, **options)
    choice = cheapest_mixture(problem)
    assert choice.is_kept
    assert choice.log_tokens == pytest.approx(brute_force(problem), abs=0.01)
    assert choice.levers.sum() == pytest.approx(1)
    # by other draws, a few percent more or less of the tokens
    plan = planned(posteriors, **options)
    confidence = options.get("confidence", 0.9)
    assert confidence <= plan.probability < confidence + 0.02
    assert math.log(plan.D) == pytest.approx(choice.log_tokens, abs=0.1)


def test_what_there_is_of_a_domain_is_not_exceeded(posteriors):
    """With two epochs of 10B tokens of code the plan takes 20B of them at most, and more
    of all tokens than without that limit.
    """
    free = planned(posteriors)
    assert free.tokens["code"] > 21.5e9
    bound = planned(posteriors, unique_tokens={"code": 1e10}, max_epochs=2.0)
    assert bound.feasible
    assert 19e9 < bound.tokens["code"] <= 20e9 * (1 + 1e-6)
    assert bound.epochs["code"] == pytest.approx(bound.tokens["code"] / 1e10)
    assert free.D < bound.D
    assert bound.binding.endswith(" and tokens of code")
    assert "tokens" not in free.binding


def test_at_the_end_of_a_supply_a_plan_keeps_a_reserve():
    """The smooth quantile holds there and the share of draws does not; without a reserve
    the plan had 1.8 times the tokens.
    """
    harder = {"web": Known("web", 0), "code": Known("code", 1, E=1.17, t_web=0.25)}
    problem = posed(harder, unique_tokens={"code": 1.5e10}, max_epochs=2.0)
    choice = cheapest_mixture(problem)
    assert choice.is_kept
    assert choice.log_tokens == pytest.approx(brute_force(problem), abs=0.01)


def test_at_a_budget_no_limit_is_said_to_bind(posteriors):
    """The least mean decides: a limit kept with 98%, where 90% was asked, did not."""
    plan = planned(posteriors, D=2e10, max_loss={"code": 2.4})
    assert plan.feasible
    assert plan.probability > 0.95
    assert plan.sentence().endswith(f"(code {plan.probability:.1%}).")


def test_of_fixed_shares_the_tokens_are_planned(posteriors):
    """One is fixed, and the others are free; all are, and only tokens are searched."""
    free = planned(posteriors)
    one = planned(posteriors, bounds=BOUNDS | {"books": (0.15, 0.15)})
    assert one.shares["books"] == pytest.approx(0.15)
    assert free.D < one.D
    shares = {"web": 0.4, "code": 0.4, "books": 0.2}
    every = planned(posteriors, bounds={n: (p, p) for n, p in shares.items()})
    assert every.feasible
    assert every.shares == pytest.approx(shares)
    assert every.D > one.D
    assert 0.9 <= every.probability < 0.92


def test_losses_along_a_share_are_those_of_its_mixtures(posteriors):
    """At the plan's own share they are the plan's; more code lowers the loss on code."""
    plan = planned(posteriors)
    row = plan.along["code"]
    medians = row["losses"]["code"]["median"]
    assert medians[0] > medians[-1]
    at_plan = np.interp(plan.shares["code"], row["share"], medians)
    (limit,) = [one for one in plan.limits if one["name"] == "code"]
    assert at_plan == pytest.approx(limit["median"], rel=0.002)


def test_without_a_plan_the_most_probable_mixture_is_told(posteriors):
    """A budget too small: the mixture with the largest probability, brute force agrees."""
    budget = planned(posteriors).D / 2
    plan = planned(posteriors, max_tokens=budget)
    assert not plan.feasible
    assert pytest.approx(budget, rel=1e-6) == plan.D
    problem = posed(posteriors, max_tokens=budget)
    lattice = simplex_lattice(3, 24)
    chances = problem.probabilities(np.log([budget]), lattice[lattice.min(axis=1) > 0])
    assert plan.probability > chances.max() - 0.02


def test_weights_of_ranks_are_around_the_quantile():
    weights = rank_weights(1000, 0.1)
    assert weights.sum() == pytest.approx(1)
    assert weights @ np.arange(1, 1001) == pytest.approx(100, abs=1)


def test_the_best_mixture_is_that_of_a_lattice(posteriors):
    """Least mean loss; the optimum of each draw; which mixtures are nearly as good."""
    best = bayeslaw.best_mixture(
        posteriors, N=1e9, D=2e10, bounds=BOUNDS, draws=400, new_run=False
    )
    problem = posed(posteriors, new_run=False)
    lattice = simplex_lattice(3, 50)
    mixtures = lattice[lattice.min(axis=1) > 0.01]
    losses = np.exp(losses_of_sets(problem, np.log(2e10), mixtures))
    draws = losses.mean(axis=0)
    means = draws.mean(axis=0)
    found = np.array([best.shares[name] for name in problem.domains])
    np.testing.assert_allclose(found, mixtures[means.argmin()], atol=0.02)
    of_each = mixtures[draws.argmin(axis=1)]
    for j, name in enumerate(problem.domains):
        assert best.optimum[name]["median"] == pytest.approx(
            np.median(of_each[:, j]), abs=0.02
        )
        near = mixtures[means <= means.min() * 1.002][:, j]
        assert best.free[name]["low"] == pytest.approx(near.min(), abs=0.02)
        assert best.free[name]["high"] == pytest.approx(near.max(), abs=0.02)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"max_loss": {}}, "give a limit"),
        ({"max_loss": {"french": 2.0}}, "no 'french'; there are: web, code"),
        ({"max_loss": {"web": 25.0}}, "max_loss of web"),
        ({"bounds": {"wiki": (0.0, 1.0)}}, "bounds names no 'wiki'"),
        ({"bounds": dict.fromkeys(DOMAINS, (0.4, 0.5))}, "leave no mixture"),
        ({"bounds": {"web": (0.5, 0.4)}}, "over the largest"),
        ({"unique_tokens": {"wiki": 1e9}}, "unique_tokens names no 'wiki'"),
        ({"max_mean_loss": 2.0, "weights": {"web": -1.0}}, "at least 0"),
        ({"confidence": 1.0}, "confidence"),
    ],
)
def test_a_question_that_is_none_is_refused_in_a_line(posteriors, options, line):
    with pytest.raises(PlanError, match=line) as refusal:
        planned(posteriors, **options)
    assert "\n" not in str(refusal.value)


def test_a_law_without_shares_plans_no_mixture():
    a_law = law("chinchilla")
    values = a_law.from_paper(a_law.plausible)
    plain = Known("web", 0)
    plain.piece = LogLoss(a_law).piece(
        {n: np.full(2, v) for n, v in values.items()}
        | {"sigma": np.full(2, 0.01), "dof": np.full(2, 8.0)}
    )
    with pytest.raises(PlanError, match="reads no shares"):
        planned({"web": plain})

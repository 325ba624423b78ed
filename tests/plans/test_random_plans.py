"""A thousand random plans, no tokens among them: no probability outside [0, 1], and no regret below nothing."""

from dataclasses import replace

import numpy as np
import pytest

from bayeslaw import plan
from bayeslaw._plans import value
from bayeslaw._plans.search import Choice
from known import straight_plans as known
from known.plans import WIDE, source, state_plan, target

N = known.problem(draws=2).N


class Starting(known.Straight):
    """Without tokens the loss is that of the fewest that are looked at."""

    def log_losses(self, log_tokens, replay):
        return super().log_losses(np.maximum(log_tokens, known.SPAN[0]), replay)


@pytest.fixture(scope="module")
def problem():
    made = known.problem(draws=40)
    starting = [Starting(**vars(c)) for c in made.constraints]
    return replace(made, constraints=tuple(starting))


def random_choice(problem, rng) -> tuple:
    """A problem of other limits, and tokens and replay: of one in five plans none."""
    log_tokens = -np.inf if rng.random() < 0.2 else rng.uniform(*problem.span)
    # what a start without tokens keeps, now and then
    is_easy = rng.random() < (0.9 if log_tokens == -np.inf else 0.3)
    easy = 8.0 if is_easy else known.MOST_LOSS
    looser = problem.relaxed("target", easy)
    for c in looser.constraints:
        looser = looser.relaxed(
            c.name, c.limit + rng.normal(0, 20) * value.limit_step(c)
        )
    if rng.random() < 0.2:
        looser = replace(looser, max_tokens=float(N * 10 ** rng.uniform(-3, 3)))
    return looser, Choice(float(log_tokens), float(rng.uniform()), 0.0)


@pytest.mark.parametrize("plans", [100, 1000])
def test_regret_is_never_below_nothing_nor_a_probability_outside_its_range(
    problem, plans
):
    rng = np.random.default_rng(42)
    without_tokens = regrets = 0
    for _ in range(plans):
        asked, choice = random_choice(problem, rng)
        shares = value.probabilities(asked, choice.log_tokens, choice.replay)
        promised = [row["probability"] for row in value.promises(asked, choice)]
        told = value.perfect_information(asked, choice)
        for share in (*shares.values(), *promised, told["share_with_a_plan"]):
            assert 0 <= share <= 1
        assert shares["probability"] <= min(promised) + 1e-12
        if told["regret"] is None:
            continue
        regrets += 1
        assert 0 <= told["regret"] <= np.exp(choice.log_tokens) * (1 + 1e-12)
        if choice.log_tokens == -np.inf:
            without_tokens += 1
            assert told["regret"] == 0
        if shares["probability"] >= problem.confidence:
            assert told["perfect_information"] >= 0
    assert regrets > 0.2 * plans
    assert without_tokens > 0.03 * plans


def test_a_plan_of_no_tokens_has_no_regret():
    """Both promises hold already: it spends nothing, and no draw needs less."""
    made = state_plan(max_target_loss=3.2)
    assert made.D == 0
    assert made.truth["regret"] == made.truth["perfect_information"] == 0
    assert made.truth["atpp"][2] == 0


def test_without_a_limit_on_forgetting_there_is_no_probability_of_it():
    """A source whose loss is limited in its place is none that is forgotten."""
    options = {"sd": WIDE["sd"], "draws": 64}
    asked = {
        "N": 8.1e9,
        "ptpp": 279,
        "max_target_loss": 1.9,
        "max_forgetting": {},
        "max_loss": {"code": 1.7},
        "new_run": False,
    }
    made = plan(target(**options), {"code": source(**options)}, **asked)
    assert made.probability_forgetting is None
    assert 0 < made.probability <= 1
    assert made.to_dict()["probability_forgetting"] is None

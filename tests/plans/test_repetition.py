"""A target set that is seen again: worth what a law of repetition says, and repeated no
more than was measured where none does.
"""

import numpy as np
import pandas as pd
import pytest

from bayeslaw import PlanError, law, plan
from bayeslaw._posteriors.repetition import epochs_allowed, epochs_measured, repeating
from known import example
from known.plans import DRAWS, Draws, formula, piece, source, target

EASY = example.QUESTION | {"max_target_loss": 2.0, "max_forgetting": 0.05}
MADE = {"sd": 0.002, "draws": DRAWS}
UNIQUE = 2e9
NOT_REPEATED = target(**MADE).pieces()


def constrained(sd=0.002):
    """A target of the law of repetition, whose truth is the published one."""
    law_of_repeats = law("data-constrained")
    return piece("data-constrained", law_of_repeats.plausible, sd=sd, draws=DRAWS)


def table(epochs):
    return pd.DataFrame({"D": [1e9 * epochs, 1e8], "U": [1e9, 1e9], "replay": 0.3})


@pytest.mark.parametrize("asked", [4.01, 20])
def test_beyond_four_epochs_without_a_law_a_plan_is_refused(asked):
    """20 epochs of a small set are no "90%" plan."""
    with pytest.raises(PlanError, match=r"no law of the target.*beyond 4 epochs"):
        plan(
            target(**MADE),
            source(**MADE),
            **EASY,
            unique_target_tokens=UNIQUE,
            max_epochs=asked,
        )


REPEATED = (constrained(),)


@pytest.mark.parametrize(
    ("pieces", "asked", "kept", "allowed", "says"),
    [
        (NOT_REPEATED, None, table(1), 1.0, None),
        (NOT_REPEATED, None, table(3), 1.0, None),
        (NOT_REPEATED, 3, table(3), 3.0, None),
        (NOT_REPEATED, 3, table(1), 1.0, "the plan repeats no more often"),
        (NOT_REPEATED, 3, table(2), 2.0, "at most 2 times"),
        (NOT_REPEATED, 3, table(2).drop(columns="U"), 1.0, "at most 1 times"),
        (NOT_REPEATED, 3, None, 3.0, "counted as new"),
        (NOT_REPEATED, 16, table(16), 16.0, None),
        (REPEATED, None, table(5), 5.0, None),
        (REPEATED, None, None, 1.0, None),
        (REPEATED, 20, table(16), 20.0, "beyond that nothing was measured"),
        (REPEATED, 8, table(16), 8.0, None),
    ],
)
def test_epochs_are_those_of_the_table(pieces, asked, kept, allowed, says):
    """No more than there; with a law of repetition more, and as many by default."""
    epochs, lines = epochs_allowed(asked, pieces, kept)
    assert epochs == allowed
    assert len(lines) == (says is not None)
    assert all(says in line for line in lines)


def test_the_cap_reaches_the_plan():
    """A plan that may see its set twice by the keyword, and once by the table, sees it
    once, and says why.
    """
    kept = Draws(NOT_REPEATED, runs=table(1).drop(columns="U"))
    asked = EASY | {"unique_target_tokens": UNIQUE}
    once = plan(kept, source(**MADE), **asked)
    twice = plan(kept, source(**MADE), **asked, max_epochs=2)
    assert (once.D, once.replay) == (twice.D, twice.replay)
    assert not [line for line in once.warnings if "max_epochs" in line]
    assert any("the plan repeats no more often" in line for line in twice.warnings)


def test_a_law_of_repetition_reads_the_mixture_s_own_epochs():
    """U is the target set over its share of the mixture, so that D / U is how often it
    is seen: the same loss as by the law itself.
    """
    own = constrained()
    (wrapped,) = repeating([own], UNIQUE)
    assert set(wrapped.covariates) == {"N", "D", "replay"}
    replay = np.array([0.0, 0.3, 0.9])
    runs = {"N": np.full(3, 1e9), "D": np.array([1e9, 1e10, 1e11])}
    by_law = formula("data-constrained")
    expected = np.stack(
        [
            by_law(
                {name: leaf[k] for name, leaf in own.values.items()},
                runs | {"U": UNIQUE / (1 - replay)},
            )
            for k in range(3)
        ]
    )
    found = wrapped.at(runs | {"replay": replay})[:3]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    # tokens that are seen five times or more are worth less than as many new ones
    unlimited = repeating([own], 1e15)[0].at(runs | {"replay": replay})
    assert (found[:, 1] > unlimited[:3, 1]).all()


def test_laws_of_repetition_of_both_domains_read_the_target_s_epochs():
    """Of the planned run, the source's law, too, has U from the unique target tokens."""
    posteriors = {
        name: Draws(
            (piece(name, law(name).plausible, sd=1e-6, draws=DRAWS),), table(20)
        )
        for name in ("state-power-repeats", "state-rise-repeats")
    }
    model = {"N": 1e9, "ptpp": 20.0, "source_loss_before": 2.4}

    def loss(name, D, replay, unique):
        one, run = law(name), model | {"D": D, "replay": replay}
        run |= {"U": unique / (1 - replay)}
        columns = {c: np.array([run[c]]) for c in one.covariates}
        return float(one.loss(columns, one.from_paper(one.plausible))[0])

    asked = {"N": 1e9, "ptpp": 20.0, "max_forgetting": 0.5, "baseline_loss": 2.4}
    asked |= {"max_target_loss": loss("state-power-repeats", 5e9, 0.05, 1e10)}
    asked |= {"covariates": {"source_loss_before": 2.4}, "min_replay": 0.05}
    plans = {
        unique: plan(*posteriors.values(), **asked, unique_target_tokens=unique)
        for unique in (2e10, 1e13)
    }
    assert plans[2e10].D > 1.01 * plans[1e13].D
    for unique, found in plans.items():
        told = [loss(name, found.D, found.replay, unique) for name in posteriors]
        of_target, forgetting = (promise["mean"] for promise in found.promises)
        assert of_target == pytest.approx(told[0], rel=1e-3)
        assert forgetting == pytest.approx(told[1] / 2.4 - 1, rel=1e-2)


def test_a_law_of_repetition_asks_for_the_tokens_there_are():
    with pytest.raises(PlanError, match="or unique_target_tokens"):
        plan(Draws((constrained(),)), source(**MADE), **EASY)


def test_what_a_table_tells_of_epochs():
    assert epochs_measured(None) is None
    assert epochs_measured(pd.DataFrame({"D": [1.0]})) == 1.0
    assert epochs_measured(table(7)) == 7.0
    assert epochs_measured(table(0.2)) == 1.0
    assert epochs_measured(table(np.nan).iloc[:1]) == 1.0


def test_epochs_without_a_number_of_tokens_are_said_to_limit_nothing():
    """``max_epochs`` was silently dropped."""
    kept = Draws(NOT_REPEATED, runs=table(1).drop(columns="U"))
    asked = plan(kept, source(**MADE), **EASY, max_epochs=3)
    assert any("max_epochs limits nothing" in line for line in asked.warnings)
    without = plan(kept, source(**MADE), **EASY)
    assert not any("max_epochs" in line for line in without.warnings)

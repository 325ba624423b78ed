"""What an update says of a plan that is still missing, or there again."""

from types import SimpleNamespace

import pytest

from bayeslaw._plans.result import Plan
from bayeslaw._running.updating.plans import PlanChange


def plan_of(**fields):
    """A plan that has these fields only."""
    made = object.__new__(Plan)
    for name, x in fields.items():
        object.__setattr__(made, name, x)
    return made


NONE = plan_of(D=None, feasible=False, replay=None, probability=None)
SOME = plan_of(D=1e10, feasible=True, replay=0.3, probability=0.9)


@pytest.mark.parametrize(
    ("before", "after", "moved", "words"),
    [
        (NONE, NONE, False, "No plan could be promised before, and none can be now."),
        (NONE, SOME, True, "No plan could be promised before; now: 10B tokens"),
        (SOME, SOME, False, ""),
    ],
)
def test_no_plan_stays_that_was_never_there(before, after, moved, words):
    made = SimpleNamespace(before=before, after=after, kept={}, regret=None)
    assert PlanChange.moved.fget(made) is moved
    if not moved:
        stays = "the plan stays" if before is SOME else "still no plan can be promised"
        assert PlanChange.stays(made) == stays
    if words:
        assert PlanChange.sentence(made).startswith(words)

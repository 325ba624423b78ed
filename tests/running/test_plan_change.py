"""What an update says of a plan that is still missing, or there again."""

from types import SimpleNamespace

import pandas as pd
import pytest

from bayeslaw import Plan, Updated
from bayeslaw._running.updating.plans import PlanChange
from bayeslaw._running.updating.updated import UpdatedDomain


def plan_of(**fields):
    """A plan that has these fields only."""
    made = object.__new__(Plan)
    for name, x in fields.items():
        object.__setattr__(made, name, x)
    return made


NONE = plan_of(D=None, feasible=False, replay=None, probability=None)
SOME = plan_of(D=1e10, feasible=True, replay=0.3, probability=0.9)


class AsExpected(UpdatedDomain):
    """A domain whose new rows surprise nobody."""

    changes = SimpleNamespace(any=True)
    surprise = None
    headline = pd.Series({"width": 1.0})

    def __init__(self):
        pass


@pytest.mark.parametrize(
    ("before", "after", "says", "stays"),
    [
        (
            NONE,
            NONE,
            "No plan could be promised before, and none can be now.",
            "still no plan can be promised",
        ),
        (NONE, SOME, "No plan could be promised before; now: 10B tokens", None),
        (SOME, SOME, "The old plan", "the plan stays"),
    ],
)
def test_no_plan_stays_that_was_never_there(before, after, says, stays):
    kept = {"probability": 0.9} if before is SOME else {}
    change = PlanChange(before, after, kept, None, None)
    assert change.sentence().startswith(says)
    assert change.moved == (stays is None)
    if stays is not None:
        assert change.stays() == stays
        assert stays in Updated({"target": AsExpected()}, change).verdict()

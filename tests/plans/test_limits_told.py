"""Every limit that `plan` takes is in the answer's JSON, and kept, or the plan is not feasible."""

import json

import pytest
from plans.test_accuracy import LINK
from plans.test_joint import ASKED, SOURCES, of_target

from bayeslaw import Costs, plan
from bayeslaw._costs.costs import COST_LIMITS
from bayeslaw._plans.arguments import NAMES

PAID = Costs(hardware="64xH100", price=2.5)
# limits on what draws forecast -> name of the promise, and a value that none keeps
PROMISES = {
    "max_target_loss": ("target", 1.5),
    "max_forgetting": ("web", {"web": -0.2}),
    "max_loss": ("code", {"code": 0.4}),
    "max_mean_loss": ("mean", "-20%"),
    "min_accuracy": ("accuracy", 0.91),
}
# limits on spending and data -> a value that no plan of the question keeps
SPENDING = {
    "max_flops": 1e17,
    "max_tokens": 1e8,
    "max_cost": 0.1,
    "max_days": 1e-6,
    "unique_target_tokens": 1e7,
    "min_replay": 0.99,
    "max_replay": 0.01,
}
KEPT = {
    "max_flops": lambda made: made["flops"],
    "max_tokens": lambda made: made["D"],
    "max_cost": lambda made: made["cost"]["money"],
    "max_days": lambda made: made["cost"]["days"],
    "unique_target_tokens": lambda made: made["D"] * (1 - made["replay"]),
    "max_replay": lambda made: made["replay"],
    "min_replay": lambda made: -made["replay"],
}


def answered(**options):
    """The plan as JSON, of a question with a source, and a further domain if asked."""
    several = {"max_loss", "max_mean_loss"} & {*options}
    names = ["web", "code"] if several else ["web"]
    sources = {name: SOURCES[name] for name in names}
    question = ASKED | {"max_forgetting": {"web": 0.05}, "costs": PAID}
    if several:
        question["max_loss"] = {"code": 3.0}
    if "min_replay" not in options:
        question["max_replay"] = 0.9
    if "min_accuracy" in options:
        options["accuracy"] = LINK
    made = plan(of_target(), sources, **(question | options))
    return json.loads(json.dumps(made.to_dict()))


def check_kept(made, name, limit):
    sign = -1 if name == "min_replay" else 1
    assert KEPT[name](made) <= sign * limit + 1e-9 * limit


def test_no_limit_of_plan_is_left_out_here():
    of_limits = {n for n in NAMES if n.startswith(("max_", "min_", "unique"))}
    assert of_limits - {"max_epochs"} == {*PROMISES, *SPENDING}
    assert {*COST_LIMITS} <= {*SPENDING}


def test_limits_of_all_kinds_at_once_are_told_and_kept():
    loose = {
        "max_flops": 1e23,
        "max_cost": 1e8,
        "max_days": 1e3,
        "unique_target_tokens": 1e13,
        "min_replay": 0.05,
        "max_replay": 0.9,
        "max_mean_loss": "+10%",
    }
    made = answered(**loose)
    assert made["feasible"]
    assert {row["name"] for row in made["promises"]} == {
        "target",
        "web",
        "code",
        "mean",
    }
    limits = {row["name"]: row["limit"] for row in made["promises"]}
    assert limits == {"target": 2.45, "web": 0.05, "code": 3.0, "mean": 0.1}
    settings = made["settings"]
    told = settings["asked"] | {n: settings[n] for n in ("min_replay", "max_replay")}
    spent = {name: x for name, x in loose.items() if name != "max_mean_loss"}
    assert told == spent | {"max_epochs": 1.0}
    for name, most in spent.items():
        check_kept(made, name, most)


@pytest.mark.parametrize("name", SPENDING)
def test_a_limit_that_no_plan_keeps_is_told(name):
    made = answered(**{name: SPENDING[name]})
    assert (
        made["settings"].get(name, made["settings"]["asked"].get(name))
        == (SPENDING[name])
    )
    if made["D"] is None:
        assert not made["feasible"]
        return
    check_kept(made, name, SPENDING[name])


@pytest.mark.parametrize("name", PROMISES)
def test_a_promise_that_no_plan_keeps_is_told(name):
    promise, limit = PROMISES[name]
    made = answered(**{name: limit})
    (row,) = [row for row in made["promises"] if row["name"] == promise]
    given = limit[promise] if isinstance(limit, dict) else limit
    in_json = {"-20%": -0.2, 0.91: pytest.approx(0.09)}.get(given, given)
    assert row["limit"] == in_json
    assert not made["feasible"]
    assert row["probability"] < 0.9
    assert made["binding"] != "none"

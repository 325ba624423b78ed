"""Scenarios side by side: each is the plan of its own question."""

import json
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure
from plans.test_joint import ASKED, SOURCES, of_target

from bayeslaw import Costs, LawError, PlanError, plan, plots, what_if
from bayeslaw._plans import whatif
from bayeslaw.cli.parsing import keywords_of
from bayeslaw.cli.plans import WhatIfOptions, _scenarios, _with_changes

WEB = {"web": SOURCES["web"]}
SHARED = ASKED | {"max_forgetting": 0.03, "costs": Costs(hardware="8xH100", price=2.5)}
SCENARIOS = {
    "stricter": {"max_forgetting": "1%"},
    "cheap": {"costs": Costs(hardware="8xH100", price=1.0)},
    "unlikely": {"max_forgetting": 0.001},
    "none": {"max_target_loss": 0.5},
}


@pytest.fixture(scope="module")
def what():
    return what_if(of_target(), WEB, SCENARIOS, **SHARED)


def test_each_scenario_is_the_plan_of_its_own_question(what):
    assert list(what.plans) == ["as asked", *SCENARIOS]
    for name, changes in SCENARIOS.items():
        alone = plan(of_target(), WEB, **(SHARED | changes))
        assert what.plans[name].to_dict() == alone.to_dict()
    table = what.table()
    assert table.loc["cheap", "money"] == pytest.approx(
        0.4 * table.loc["as asked", "money"]
    )
    assert table.loc["stricter", "dearer"] > 0 == table.loc["cheap", "dearer"]
    assert not table.loc["none", "feasible"]
    assert json.dumps(what.to_dict())
    best = what.plans["none"].explanation["best"]
    assert table.loc["none", "probability"] == best["probability"]
    # no draw keeps the limits, so that there is no best number of tokens
    assert best["D"] is None
    assert np.isnan(table.loc["none", "D"])
    assert table.loc["none", "relax"].startswith("target 0.5 nats -> ")
    (line,) = [x for x in what.sentence().splitlines() if x.startswith("none: ")]
    assert "no plan can be promised (target in the way): at best" in line
    assert table.loc["none", "relax"] in line


def test_a_small_amount_of_money_is_told_too(what):
    """As the plan tells it; whole units would say that it costs nothing."""
    small = what.plans["as asked"].cost | {"money": 0.0342}
    plans = {"as asked": replace(what.plans["as asked"], cost=small)}
    said = replace(what, plans=plans).sentence()
    assert ", 0.0342 in money; " in said


def test_the_picture_has_each_plan_at_its_cost(what):
    ax = plots.scenarios(Figure().subplots(), what)
    money = what.table()["money"].dropna()
    plans = [p for p in what.plans.values() if p.most_probable()["D"] is not None]
    assert len(plans) == len(what.plans) - 1  # of "none" no draw keeps the limits
    assert [line.get_xdata()[0] for line in ax.lines] == pytest.approx(list(money))
    hollow = [line.get_markerfacecolor() == "none" for line in ax.lines]
    assert hollow == [plan.D is None for plan in plans]
    assert hollow[-1]
    told = [label.get_text() for label in ax.child_axes[0].get_yticklabels()]
    assert len(told) == len(what.plans)
    assert [text.startswith("at best") for text in told[-2:]] == [True, True]
    assert [t.get_text() for t in ax.get_yticklabels()] == list(what.plans)
    assert ax.get_xlabel() == "cost of the plan"


def test_every_label_of_the_picture_is_whole(what):
    figure = Figure(figsize=(6.4, 3.2), layout="constrained")
    long = replace(
        what,
        plans={f"{name} and so on for long": p for name, p in what.plans.items()},
    )
    ax = plots.scenarios(figure.subplots(), long)
    figure.draw_without_rendering()
    edges = figure.bbox
    for text in [*ax.child_axes[0].get_yticklabels(), *ax.get_yticklabels()]:
        box = text.get_window_extent()
        assert box.x0 >= edges.x0
        assert box.x1 <= edges.x1


def test_what_is_wrong_names_the_scenario():
    with pytest.raises(PlanError, match="scenario 'odd': no law reads"):
        what_if(of_target(), WEB, {"odd": {"covariates": {"x": 1.0}}}, **SHARED)
    with pytest.raises(PlanError, match="give a scenario"):
        what_if(of_target(), WEB, {}, **SHARED)


def test_what_a_scenario_lacks_is_said_before_any_is_planned(monkeypatch):
    monkeypatch.setattr(whatif, "answered", lambda *_, **__: pytest.fail("planned"))
    asked = {"cheap": {"max_cost": 9.0}, "by Friday": {"max_days": 1, "costs": Costs()}}
    with pytest.raises(
        PlanError, match="scenario 'by Friday': max_days needs hardware"
    ):
        what_if(of_target(), WEB, asked, **SHARED)


def options(**given):
    base = {"target": ["t.nc"], "source": ["s.nc"], "N": ["1B"], "ptpp": ["20"]}
    return WhatIfOptions(**base, **given)


def test_scenarios_as_typed_and_as_a_file(tmp_path):
    path = tmp_path / "scenarios.toml"
    path.write_text('[smaller]\nN = ["3B", "1B"]\nlaw_mean = true\nprice = 2\n')
    asked = options(
        scenarios=path, scenario=["stricter: max-forgetting=web=1%,code=2% price=1.5"]
    )
    read = _scenarios(asked)
    stricter = _with_changes(asked, "stricter", read["stricter"])
    assert (stricter.max_forgetting, stricter.price) == (["web=1%,code=2%"], "1.5")
    smaller = _with_changes(asked, "smaller", read["smaller"])
    assert (smaller.N, smaller.law_mean, smaller.price) == (["3B", "1B"], True, "2")
    of_mean = options(law_mean=True)
    of_run = _with_changes(of_mean, "run", {"law_mean": False})
    kinds = [keywords_of(one, plan)["new_run"] for one in (of_mean, of_run)]
    assert kinds == [False, True]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "give --scenario"),
        ({"scenario": ["stricter"]}, "write a name and what differs"),
        ({"scenario": ["x: budget=3"]}, "no option of `plan` that may differ"),
        ({"scenario": ["x: target=u.nc"]}, "no option of `plan` that may differ"),
        ({"scenario": ["x: law_mean=perhaps"]}, "true or false"),
        ({"scenario": ["x: max_days='2"]}, "No closing quotation"),
    ],
)
def test_scenarios_that_make_no_sense_are_refused_in_one_line(given, says):
    asked = options(**given)

    def read():
        return [_with_changes(asked, n, c) for n, c in _scenarios(asked).items()]

    with pytest.raises(LawError, match=says) as refused:
        read()
    assert "\n" not in str(refused.value)


def test_a_question_without_a_model_is_refused_by_the_name_that_users_know():
    with pytest.raises(PlanError, match=r"^plan\(\) needs N; missing: N"):
        what_if(of_target(), WEB, {"a": {"max_forgetting": "5%"}})

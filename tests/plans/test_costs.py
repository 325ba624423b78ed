"""Costs in days and money: against arithmetic by hand, as limits of a plan, and as the
price of runs to buy.
"""

import math
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from bayeslaw import Costs, Hardware, Plan, PlanError, Shape, candidates
from bayeslaw._costs.costs import COST_LIMITS, Bill
from bayeslaw._designs.menu import days_of, menu
from bayeslaw._report.summary import budget_of
from bayeslaw.cli.app import app
from bayeslaw.cli.beside import read_file
from bayeslaw.cli.parsing import costs_of
from bayeslaw.cli.plans import PlanOptions
from tests.known.plans import state_plan

CLUSTER = Costs(hardware="64xH100", mfu=0.4, price=2.5)


def test_days_and_money_are_those_by_hand():
    """8.1B parameters on 100B tokens: 6 N D = 4.86e21 FLOPs; 64 devices at 40% of 989e12
    do 2.532e16 a second, so 191,960 s = 2.2218 days; times 64 devices 3,412.6 hours, at
    2.5 each 8,531.5.
    """
    bill = CLUSTER.of_run(8.1e9, 100e9)
    assert bill.flops == pytest.approx(4.86e21)
    assert bill.days == pytest.approx(2.2218, rel=1e-4)
    assert bill.device_hours == pytest.approx(3412.6, rel=1e-4)
    assert bill.money == pytest.approx(8531.5, rel=1e-4)


def test_a_checkpoint_that_must_be_trained_is_paid_once():
    """At 10 tokens per parameter its 81B tokens cost 81% of 100B tokens of adaptation."""
    costs = Costs(hardware="64xH100", price=2.5, train_checkpoint=True, fixed=100)
    alone = CLUSTER.of_run(8.1e9, 100e9)
    bill = costs.of_run(8.1e9, 100e9, ptpp=10)
    assert bill.days == pytest.approx(1.81 * alone.days)
    assert bill.money == pytest.approx(1.81 * alone.money + 100)
    assert costs.sentence().endswith("100 a run, with the checkpoint's pre-training")


def test_flops_by_the_formula_asked_for():
    """By hand: attention 12 x 32 x 4096 x 8192, output layer 6 x 128,000 x 4096."""
    dense = Shape(layers=32, width=4096, context=8192, vocab=128_000)
    assert dense.flops_per_token(8e9) == pytest.approx(
        6 * 8e9 + 12 * 32 * 4096 * 8192 + 6 * 128_000 * 4096
    )
    experts = Costs(shapes=[Shape(N=47e9, active=13e9)])
    assert experts.flops_per_token(47e9) == 6 * 13e9
    with pytest.raises(PlanError, match="no shape is given for N = 8B, only for 47B"):
        experts.flops_per_token(8e9)


def test_measured_rates_go_before_the_peak():
    """Between sizes FLOP/s are interpolated in log N, beyond them the nearest's."""
    costs = Costs(hardware="8xA100", tokens_per_second={1e9: 100e3, 4e9: 30e3})
    assert costs.of_run(1e9, 8.64e9).days == pytest.approx(1.0)
    middle = (100e3 * 1e9 + 30e3 * 4e9) / 2  # FLOP/s over 6, at the middle of log N
    assert costs.of_run(2e9, middle / 2e9 * 86400).days == pytest.approx(1.0)
    assert costs.of_run(8e9, 30e3 * 4 / 8 * 86400).days == pytest.approx(1.0)


def test_runs_side_by_side_end_sooner():
    """Days 3, 2, 2, 1 on two clusters: 3 and 2, then 2 on the second, 1 on the first."""
    assert Costs(side_by_side=2).days_of([3, 2, 2, 1]) == 4.0
    assert Costs().days_of([3, 2, 2, 1]) == 8.0


@pytest.mark.parametrize(
    ("text", "count", "peak"),
    [
        ("64xH100", 64, 989e12),
        ("h100-pcie", 1, 756e12),
        ("8 x mi300x", 8, 1307e12),
        ("4x150TFLOP/s", 4, 150e12),
        ("2x1e15FLOPs", 2, 1e15),
    ],
)
def test_hardware_as_people_write_it(text, count, peak):
    hardware = Hardware.parse(text)
    assert (hardware.count, hardware.peak_flops) == (count, peak)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"hardware": "64xH1000"}, "peak of 'H1000' is not listed; write it"),
        ({"price": 2.5}, "price is per device-hour: give hardware"),
        ({"hardware": "8xA100", "mfu": 40}, "mfu must be a share of the peak"),
        ({"hardware": "8xA100", "fixed": 3}, "fixed cost a run needs a price"),
        ({"side_by_side": 1.5}, "side_by_side must be a whole number"),
        ({"tokens_per_second": {1e9: -1}}, "tokens_per_second must be"),
    ],
)
def test_costs_that_make_no_sense_are_refused_in_one_line(wrong, says):
    with pytest.raises(PlanError, match=says) as refused:
        Costs(**wrong)
    assert "\n" not in str(refused.value)


# -- plans -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def free():
    return state_plan(costs=CLUSTER)


def test_a_plan_says_the_formula_of_its_own_size():
    """Of two models with shapes of their own, that of the chosen one."""
    experts, dense = Shape(N=47e9, active=13e9), Shape(N=8.1e9, vocab=128e3, width=4096)
    costs = Costs(hardware="64xH100", shapes=[experts, dense])
    assert "FLOPs by 6 (13B active) D or 6 N D + 6 vocab width D," in costs.sentence()
    plan = state_plan(N=[47e9, 8.1e9], costs=costs)
    assert plan.N == 8.1e9
    assert plan.settings["costs"].startswith("FLOPs by 6 N D + 6 vocab width D, 64x")


def test_a_plan_says_money_and_days(free):
    """Those of its tokens, and so does every row of its alternatives."""
    bill = CLUSTER.of_run(free.N, free.D)
    assert free.cost == pytest.approx(bill.to_dict())
    assert f"{bill.days * 24:.2g} hours" in free.sentence()
    assert all("money" in row["cost"] for row in free.frontier if row["D"])
    assert Plan.from_dict(free.to_dict()) == free
    old = free.to_dict()
    del old["cost"]
    assert Plan.from_dict(old).cost is None


def test_a_plan_without_costs_says_nothing_of_them(free):
    plain = state_plan()
    assert plain.D == free.D
    assert plain.cost is None
    assert "costs" not in plain.settings


def test_a_deadline_that_binds(free):
    """The most probable plan that ends by it, which is not sure enough."""
    within = state_plan(costs=CLUSTER, max_days=free.cost["days"] / 2)
    assert not within.feasible
    assert within.cost["days"] == pytest.approx(free.cost["days"] / 2, rel=1e-3)
    assert within.probability < 0.9
    assert "deadline" in within.binding
    by_tokens = state_plan(max_tokens=within.D)
    assert within.probability == pytest.approx(by_tokens.probability, abs=1 / 128)


@pytest.mark.parametrize(("share", "is_told"), [(1.1, True), (0.9, False)])
def test_the_plug_in_plan_ends_by_the_deadline(free, share, is_told):
    """Else it is none that could be carried out."""
    days = free.cost["days"] * free.plug_in["D"] / free.D
    within = state_plan(costs=CLUSTER, max_days=share * days)
    assert (within.plug_in["D"] is not None) == is_told


@pytest.mark.parametrize("name", COST_LIMITS)
def test_a_limit_on_the_bill_is_kept_and_stated(free, name):
    """By the plan and its record, on the page, and as an option of the command."""
    limit = COST_LIMITS[name]
    most = free.cost[limit.amount] / 2
    within = state_plan(costs=CLUSTER, **{name: most})
    assert within.cost[limit.amount] == pytest.approx(most, rel=1e-3)
    assert limit.binding in within.binding
    assert within.to_dict()["settings"][name] == most
    assert limit.phrase(most) in budget_of(within)
    assert getattr(PlanOptions, name) is None


def test_the_cheapest_model_is_so_with_its_checkpoint():
    """The larger one's checkpoint exists nowhere: the smaller one wins only where its own
    must be trained, too.
    """
    twice = {"N": [1e9, 2e9], "ptpp": 30}
    free = state_plan(costs=CLUSTER, **twice)
    trained = state_plan(
        costs=Costs(hardware="64xH100", price=2.5, train_checkpoint=True), **twice
    )
    by_size = {row["N"]: row["cost"]["money"] for row in trained.candidates}
    assert trained.cost["money"] == min(by_size.values())
    assert trained.cost["money"] > free.cost["money"]
    checkpoint = CLUSTER.of_run(1e9, 30e9).money
    assert by_size[1e9] == pytest.approx(
        checkpoint + next(r["cost"]["money"] for r in free.candidates if r["N"] == 1e9)
    )


def test_a_model_whose_checkpoint_is_over_the_limit_is_named():
    """It is no candidate: the plan says why, and is that of the other model."""
    costs = Costs(hardware="64xH100", price=2.5, train_checkpoint=True)
    limit = 3 * costs.of_run(1e9, 30e9).money
    plan = state_plan(costs=costs, N=[1e9, 1e11], ptpp=30, max_cost=limit)
    assert [row["N"] for row in plan.candidates] == [1e9]
    (line,) = [line for line in plan.warnings if "no candidate" in line]
    assert line.startswith("N = 100B is no candidate")
    assert line.endswith("is over max_cost")


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"max_cost": 100}, "max_cost is in money: give a price"),
        ({"max_days": 3}, "max_days needs hardware"),
        ({"max_days": -1, "costs": CLUSTER}, "max_days must be a positive number"),
        ({"costs": "64xH100"}, "costs must be bayeslaw.Costs"),
        (
            {
                "max_cost": 1,
                "costs": Costs(hardware="64xH100", price=2.5, train_checkpoint=True),
            },
            "do not pay for what comes before the first token",
        ),
    ],
)
def test_limits_that_make_no_sense_are_refused(wrong, says):
    with pytest.raises(PlanError, match=says):
        state_plan(**wrong)


# -- runs to buy -----------------------------------------------------------------------

RUNS = pd.DataFrame({"N": [1e9, 1e9], "ptpp": [30.0, 30.0], "D": [1e9, 4e9]})


def test_candidates_without_a_price_cost_the_flops_of_their_shape():
    shape = Shape(layers=10, width=1000, context=1000)
    table = candidates(RUNS, N=[1e9], ptpp=[60], atpp=[1], costs=Costs(shapes=[shape]))
    per_token = 6e9 + 12 * 10 * 1000 * 1000
    assert table["cost"].tolist() == [pytest.approx(per_token * 1e9)]
    assert table["checkpoint_cost"].tolist() == [pytest.approx(per_token * 60e9)]


def test_candidates_are_priced_in_money():
    """A run's fixed cost is in every stop's price, and a new checkpoint in its own."""
    costs = Costs(hardware="8xH100", price=2.5, fixed=7)
    table = candidates(RUNS, N=[1e9], ptpp=[30, 60], atpp=[1, 4], costs=costs)
    first = costs.of_run(1e9, 1e9).money
    assert table["cost"].iloc[0] == pytest.approx(first)
    assert first == pytest.approx(7 + costs.of_tokens(1e9, 1e9).money)
    new = table[table["ptpp"] == 60]["checkpoint_cost"]
    assert new.to_numpy() == pytest.approx(costs.of_tokens(1e9, 60e9).money)


def test_a_list_lasts_as_long_as_its_runs_with_their_checkpoints():
    costs = Costs(hardware="8xH100", price=2.5, side_by_side=2)
    table = candidates(RUNS, N=[1e9], ptpp=[30, 60], atpp=[4], costs=costs)
    days = days_of(menu(table, costs), [(0, 0), (1, 0)], costs)
    assert days == pytest.approx(costs.of_tokens(1e9, 64e9).days)


def test_flops_are_no_money():
    with pytest.raises(PlanError, match="6 N D FLOPs and the budget is money"):
        menu(candidates(RUNS, N=[1e9], ptpp=[30]), CLUSTER)
    with pytest.raises(PlanError, match="give a price per device-hour"):
        menu(RUNS, Costs(hardware="64xH100"))


# -- the command line ------------------------------------------------------------------


def test_bayeslaw_toml_has_costs(tmp_path: Path):
    path = tmp_path / "bayeslaw.toml"
    path.write_text(
        '[costs]\nhardware = "64xH100"\nprice = 2.5\n'
        '[costs.tokens_per_second]\n"8.1B" = "120k"\n'
    )
    values = {name: texts for name, texts in read_file(path).items() if texts}
    assert values == {
        "hardware": ["64xH100"],
        "price": ["2.5"],
        "tokens_per_second": ["8.1B=120k"],
    }


def test_costs_as_typed():
    from bayeslaw.cli.options import CostOptions

    typed = CostOptions(
        hardware="64xH100",
        price="2.5",
        side_by_side="4",
        tokens_per_second=["8.1B=120k"],
        shape=["N=8.1B,layers=32,width=4096,context=8k"],
    )
    costs = costs_of(typed)
    assert costs == Costs(
        hardware="64xH100",
        price=2.5,
        side_by_side=4,
        tokens_per_second={8.1e9: 120e3},
        shapes=[Shape(N=8.1e9, layers=32, width=4096, context=8000)],
    )
    assert isinstance(costs.side_by_side, int)  # a list of runs is cut by it
    assert costs_of(CostOptions()) is None


@pytest.mark.parametrize("command", ["plan", "anchors", "report"])
def test_costs_are_options_with_an_example(command):
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).output
    for option in ("--hardware", "--mfu", "--price", "--tokens-per-second"):
        assert option in shown
    assert "64xH100" in shown


def test_a_bill_adds_up():
    total = Bill(1, 2, 3, 4) + Bill(10, 20, 30, math.nan)
    assert (total.flops, total.device_hours, total.days) == (11, 22, 33)
    assert "money" not in total.to_dict()

"""Another learning-rate schedule for what remains of a run: its end, its cost, and when the decision names it."""

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from known.power_laws import Reads

SWITCHED = 0.0025  # the error of a change of schedule
STEPS, FORK, LOWER = np.arange(10, 1001, 10.0), 600.0, 0.05
DROP = 0.02  # of the loss where the rate has come down


class Annealed:
    """Draws of a law of areas: a power of S1, less a share of the loss for each S2."""

    name, warnings, noise, runs = "annealed", (), 0.003, None

    def __init__(self, draws=400):
        rng = np.random.default_rng(0)
        self.height = rng.normal(1.0, 0.01, draws)
        self.power = rng.normal(0.1, 0.003, draws)

    def pieces(self):
        return (Reads(("S1_pt", "S2_pt")),)

    def log_loss(self, runs, *, noise=False, seed=0):
        area, annealed = runs["S1_pt"].to_numpy(), runs["S2_pt"].to_numpy()
        law = self.height[:, None] - self.power[:, None] * np.log(area) - annealed
        if not noise:
            return law
        rng = np.random.default_rng(seed)
        return law + self.noise * rng.standard_normal(law.shape)


def schedule(drop=0.0, last=1000.0, past=1.0) -> pd.DataFrame:
    """A constant rate that is lowered after `FORK`, by which so much of the loss goes."""
    steps = STEPS[last >= STEPS]
    late = np.maximum(steps - FORK, 0) / (last - FORK)
    areas = {"S1_pt": past * steps, "S2_pt": drop * late}
    return pd.DataFrame({"step": steps} | areas)


def points(times=1.0, until=500.0) -> pd.DataFrame:
    steps = np.geomspace(20, until, 10).round(-1)
    loss = times * np.exp(1.0 - 0.1 * np.log(steps))
    return pd.DataFrame({"step": steps, "loss": loss}).drop_duplicates("step")


END = float(np.exp(1.0 - 0.1 * np.log(1000.0)))


def followed(others, limit, times=1.0):
    schedules = {"planned": schedule()} | others
    return bayeslaw.follow(
        Annealed(), points(times), 1000.0, max_loss=limit, schedule=schedules
    )


def test_the_end_by_another_schedule_is_its_laws_with_the_runs_own_departure():
    """The run lies 1% over its law, and so will its end by any schedule; what is not the run's plan moves nothing of it."""
    known = followed({"down": schedule(DROP)}, END, times=1.01)
    alone = bayeslaw.follow(
        Annealed(), points(1.01), 1000.0, max_loss=END, schedule=schedule()
    )
    assert known.final == alone.final
    (row,) = known.first.schedules.to_dict("records")
    assert (row["schedule"], row["step"], row["saved"]) == ("down", 1000.0, 0.0)
    assert row["median"] == pytest.approx(
        known.final["median"] * np.exp(-DROP), rel=5e-4
    )
    planned = np.log(known.final["high"] / known.final["low"])
    assert np.log(row["high"] / row["low"]) == pytest.approx(
        np.hypot(planned, 2 * 1.645 * SWITCHED), rel=0.05
    )
    assert row["probability"] > known.probability


def test_the_decision_names_the_schedule_that_keeps_the_promise_and_what_it_costs():
    others = {"down": schedule(DROP), "down early": schedule(3 * DROP, last=800.0)}
    known = followed(others, 0.985 * END)
    decision = known.decision
    assert decision.action == "stop"
    assert decision.schedule == "down early"
    rows = known.first.schedules.set_index("schedule")
    assert decision.schedule_probability == rows.loc["down early", "probability"]
    assert rows.loc["down early", "saved"] == 200.0
    assert "'down early' from here on, 200 steps fewer" in decision.reason


def test_no_schedule_is_named_that_keeps_the_promise_no_better():
    known = followed({"up": schedule(-DROP)}, 0.985 * END)
    assert known.decision.action == "stop"
    assert known.decision.schedule is None
    assert len(known.first.schedules) == 1
    # the schedule ends with the run, so of longer runs nothing is known
    assert "as long" not in known.decision.reason


@pytest.mark.parametrize(
    "other", [schedule(DROP, past=2.0), schedule(0.0, last=400.0)], ids=["past", "over"]
)
def test_a_schedule_that_the_run_cannot_go_on_by_is_left_out_with_a_word(other):
    """Its past is another, or it is over before the last point."""
    known = followed({"other": other}, 0.985 * END)
    assert known.first.schedules.empty
    assert known.decision.schedule is None
    assert any("schedule 'other' is over" in note for note in known.first.notes)


def test_a_limit_is_kept_in_both_domains_or_not():
    both = {"a": Annealed(), "b": Annealed()}
    curve = pd.concat([points().assign(domain=name) for name in both])
    limits = {"a": 0.985 * END, "b": 0.99 * END}
    schedules = {"planned": schedule(), "down": schedule(DROP)}
    known = bayeslaw.follow(both, curve, 1000.0, max_loss=limits, schedule=schedules)
    odds = [known[name].schedules["probability"].iloc[0] for name in both]
    assert known.decision.schedule_probability == pytest.approx(np.prod(odds))

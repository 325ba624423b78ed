"""Posteriors under review: each check passes on a sound posterior and finds the fault that it is for."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw import Average, PlanError
from bayeslaw._forecasts.review import fits
from bayeslaw._inference.discrepancy.drift import training_range
from bayeslaw._inference.discrepancy.process import process_of
from bayeslaw._posteriors.averaging.record import Member
from known import saved

NOISE = 0.005
FOLDS = "N >= 8.1B; D >= 28B"
DRAWS = 400


def average(
    name: str = "chinchilla",
    *,
    runs: pd.DataFrame | None = None,
    misfit: float = 0.0005,
    spread: float = 1e-3,
    **judged,
) -> Average:
    """Draws around the plausible parameters of a law, with a misfit whose weights have this sd."""
    law = bayeslaw.law(name)
    table = bayeslaw.simulate(name, seed=1, noise=NOISE) if runs is None else runs
    columns = {c: table[c].to_numpy(float) for c in law.covariates}
    process, known = process_of(columns, False), training_range(columns)
    assert process is not None
    rng = np.random.default_rng(0)
    point = law.from_paper(law.plausible)
    values = {
        k: float(v) * np.exp(spread * rng.standard_normal(DRAWS))
        for k, v in point.items()
    }
    functions = process.features(columns, np).shape[1]
    values |= {
        "sigma": np.full(DRAWS, NOISE),
        "dof": np.full(DRAWS, 8.0),
        "misfit": misfit * rng.standard_normal((DRAWS, functions)),
        "drift": np.zeros((DRAWS, 2 * len(known.axes))),
    }
    row = {
        "weight": 1.0,
        "coverage": 0.9,
        "mae": 0.01,
        "interval_score90": 0.03,
        "failed_stages": "",
        "rhat": 1.0,
        "ess": 1000.0,
        "divergences": 0,
        "draws": DRAWS,
    }
    index = pd.Index([name], name="name")
    judgement = pd.DataFrame([row | judged], index=index)
    member = Member(law, 1.0, process, known, values)
    attrs = {"seconds": 1.0, "folds": FOLDS}
    return Average((member,), judgement, table, attrs)


def pair(**options) -> dict[str, Average]:
    """A target and a source of the same checkpoints."""
    made = {}
    for seed, domain in ((1, "target"), (2, "source")):
        runs = bayeslaw.simulate("dcpt", seed=seed, noise=NOISE).assign(domain=domain)
        made[domain] = average("dcpt", runs=runs, **options)
    return made


def test_a_sound_average_passes_every_check():
    posterior = average()
    review = bayeslaw.review(posterior, name="fit.nc", goal=posterior.runs.head(3))
    assert review.verdict == "pass", review.sentence()
    assert [check.name for check in review.checks] == [
        "diagnostics",
        "fit",
        "misfit",
        "calibration",
        "extrapolation",
        "forecast",
    ]
    assert "90% intervals hold 90% of" in review["calibration"].reason
    # the sd of a Student-t of 8 degrees of freedom is its scale times (8/6)^.5
    assert "0.58% of noise" in review["misfit"].reason


JUDGED = {
    "chains that disagree": ({"rhat": 1.2}, "diagnostics", "fail"),
    "few draws": ({"ess": 100.0}, "diagnostics", "fail"),
    "draws that diverge": ({"divergences": 40}, "diagnostics", "fail"),
    "intervals too narrow": ({"coverage": 0.7}, "calibration", "look"),
    "intervals that mislead": ({"coverage": 0.3}, "calibration", "fail"),
    "a stage without convergence": (
        {"failed_stages": "N >= 8.1B"},
        "calibration",
        "look",
    ),
    "largest models that fall off": (
        {"bias": 0.03, "mae": 0.03},
        "calibration",
        "look",
    ),
    "and hardly lie in their intervals": (
        {"bias": 0.03, "mae": 0.03, "coverage": 0.3},
        "calibration",
        "fail",
    ),
    "a large misfit": ({"misfit": 0.1}, "misfit", "look"),
}


@pytest.mark.parametrize("fault", JUDGED)
def test_a_fault_is_found_by_its_check(fault):
    options, name, verdict = JUDGED[fault]
    review = bayeslaw.review(average(**options))
    assert review[name].verdict == verdict, review.sentence()
    assert review[name].next
    others = [check for check in review.checks if check.name != name]
    assert all(check.verdict == "pass" for check in others)


@pytest.mark.parametrize(
    "judged",
    [
        {"bias": -0.03, "mae": 0.03},  # they lie above
        {"bias": 0.03, "mae": 0.04},  # on both sides
        {"bias": 0.009, "mae": 0.009, "runs": "exact"},  # by under a percent
        {"bias": 0.011, "mae": 0.011},  # the law misses its runs by a quarter of that
        {"bias": 0.03, "mae": 0.03, "runs": "tiny"},
        {"bias": 0.03, "mae": 0.03, "folds": "D >= 28B"},  # no larger model is left out
    ],
)
def test_a_fall_is_told_only_of_larger_models_below_all_else(judged):
    """Reasons that it is none, and what a fall means."""
    told = bayeslaw.review(average(bias=0.03, mae=0.03))["calibration"].reason
    assert "3.0% below what smaller ones forecast" in told
    assert "a part of the evaluation set was trained on" in told
    noise = 1e-4 if judged.get("runs") == "exact" else NOISE
    runs = bayeslaw.simulate("chinchilla", seed=1, noise=noise)
    if judged.get("runs") == "tiny":
        runs["N"] = runs["N"] / 1e4
    scores = {name: judged[name] for name in ("bias", "mae")}
    posterior = average(runs=runs, **scores)
    folds = judged.get("folds", FOLDS)
    posterior = replace(posterior, attrs={**posterior.attrs, "folds": folds})
    assert "trained on" not in bayeslaw.review(posterior)["calibration"].reason


def test_a_law_that_explains_nothing_fails():
    sound = average()
    runs = sound.runs.assign(
        loss=np.random.default_rng(0).permutation(sound.runs["loss"])
    )
    assert bayeslaw.review(replace(sound, runs=runs))["fit"].verdict == "fail"
    off = sound.runs.assign(
        loss=sound.runs["loss"] * np.where(np.arange(len(runs)) % 2, 1.08, 0.92)
    )
    assert bayeslaw.review(replace(sound, runs=off))["fit"].verdict == "look"


def test_nothing_left_out_is_looked_at():
    untested = replace(average(), attrs={"seconds": 1.0, "folds": ""})
    check = bayeslaw.review(untested, name="a.nc")["calibration"]
    assert check.verdict == "look"
    assert check.next.startswith("bayeslaw review a.nc --held-out")


def test_runs_left_out_by_any_column_are_counted():
    made = average("dcpt")
    by_replay = replace(made, attrs={"seconds": 1.0, "folds": "replay >= 0.5"})
    by_replay = bayeslaw.review(by_replay)["calibration"]
    count = int((made.runs["replay"] >= 0.5).sum())
    assert count > 20
    assert f"hold 90% of {count} runs" in by_replay.reason
    assert by_replay.verdict == "pass"


def test_a_preview_and_a_fit_without_misfit_are_looked_at(tmp_path):
    path = saved.save_fit(tmp_path / "fit.nc")
    review = bayeslaw.review(path)
    assert review.subject == str(path)
    for name in ("diagnostics", "misfit", "calibration"):
        assert review[name].verdict == "look", name
    assert "preview" in review["diagnostics"].reason
    assert "--refit" in review["calibration"].next


def test_a_fit_is_judged_again_on_stages_left_out_where_asked(tmp_path, monkeypatch):
    """What is left out and found goes through the same check as an average's."""
    asked = {}

    def compare(runs, laws, **options):
        asked.update(options, laws=laws)
        judged = average(coverage=0.3)
        return SimpleNamespace(table=judged.table, folds=("N >= 8.1B",))

    monkeypatch.setattr(fits, "compare", compare)
    path = saved.save_fit(tmp_path / "fit.nc")
    goal = pd.DataFrame([{"N": 16e9}])
    review = bayeslaw.review(path, refit=True, seed=5, goal=goal)
    # N = 8.1B left out lies 5.8 times beyond the rest, 16B twice beyond all
    assert review["extrapolation"].verdict == "pass"
    check = review["calibration"]
    assert check.verdict == "fail"
    assert "(N >= 8.1B), 90% intervals hold 30% of" in check.reason
    assert asked["seed"] == 5
    assert asked["discrepancy"] is False
    assert [law.name for law in asked["laws"]] == ["chinchilla"]


def test_runs_held_out_are_checked_and_test_how_far_it_reaches():
    whole = average()
    largest = whole.runs["N"].max()
    part = replace(whole, runs=whole.runs[whole.runs["N"] < largest])
    held_out = whole.runs[whole.runs["N"] == largest]
    goal = held_out.head(1)
    alone = bayeslaw.review(part, goal=goal)
    assert alone["extrapolation"].verdict == "look"
    assert "nothing held out tests that" in alone["extrapolation"].reason
    review = bayeslaw.review(part, goal=goal, held_out=held_out)
    assert review["calibration"].verdict == "pass"
    assert review["calibration"].reason.startswith("trust: 90% intervals hold")
    assert review["extrapolation"].verdict == "pass"
    wrong = held_out.assign(loss=1.5 * held_out["loss"])
    assert bayeslaw.review(part, held_out=wrong)["calibration"].verdict == "fail"


def test_held_out_rows_of_another_domain_are_left_out():
    both = pair()
    rows = both["target"].runs.head(60)
    review = bayeslaw.review(both, held_out=rows)
    assert "60 runs" in review["target: calibration"].reason
    check = review["source: calibration"]
    assert check.verdict == "look"
    assert "no rows of domain source, which was fitted" in check.reason


def test_a_goal_far_beyond_fails_and_offers_runs_on_the_way():
    posterior = average()
    goal = pd.DataFrame([{"N": 2e12, "D": 1e10}])
    check = bayeslaw.review(posterior, goal=goal, name="a b.nc")["extrapolation"]
    assert check.verdict == "fail"
    assert check.next.startswith(
        "bayeslaw anchors 'a b.nc' --candidates RUNS --offer N="
    )


def test_a_goal_that_lacks_a_column_is_told():
    check = bayeslaw.review(average(), goal=pd.DataFrame([{"N": 1e9}]))["forecast"]
    assert check.verdict == "look"
    assert "'D'" in check.reason


def test_a_forecast_that_rests_on_the_prior_is_looked_at():
    """Two stages fitted, a third asked about (`sensitivity.reasons`)."""
    whole = average("ptpp-floor")
    runs = whole.runs[whole.runs["ptpp"] <= 31]
    goal = whole.runs[whole.runs["ptpp"] == 279].drop(columns="loss")
    check = bayeslaw.review(replace(whole, runs=runs), goal=goal)["forecast"]
    assert check.verdict == "look"
    assert "two stages only" in check.reason
    inside = bayeslaw.review(whole, goal=goal)["forecast"]
    assert inside.verdict == "pass"


# -- a plan of several -----------------------------------------------------------------


def test_a_target_and_a_source_make_a_plan():
    both = pair()
    files = {"s.nc": both["source"], "t.nc": both["target"]}
    goal = pd.DataFrame([{"N": 8.1e9, "ptpp": 279.0, "D": 1e10, "replay": 0.25}])
    review = bayeslaw.review(files, goal=goal)
    assert review["plan"].verdict == "pass"
    command = review["plan"].next
    assert command.startswith("bayeslaw plan --target t.nc --source s.nc --N 8.1e+09")
    # dcpt diverges without tokens, so that forgetting has no baseline of its own
    assert "--ptpp 279" in command
    assert command.endswith("--baseline-loss LOSS")
    names = {check.name for check in review.checks}
    assert {"t.nc: fit", "s.nc: fit", "plan"} <= names


def test_posteriors_that_make_no_plan_fail():
    both = pair()
    same = {"a.nc": both["target"], "b.nc": both["target"]}
    check = bayeslaw.review(same)["plan"]
    assert check.verdict == "fail"
    assert "both of domain 'target'" in check.reason
    with pytest.raises(PlanError, match="both of domain"):
        bayeslaw.plan(
            *same.values(), N=1e9, ptpp=31, max_target_loss=2, max_forgetting=0.02
        )
    unread = both | {"source": average()}
    check = bayeslaw.review(unread)["plan"]
    assert check.verdict == "fail"
    assert "reads both D and replay" in check.reason


def test_other_checkpoints_are_looked_at():
    both = pair()
    runs = both["source"].runs
    moved = replace(both["source"], runs=runs.assign(N=1.03 * runs["N"]))
    check = bayeslaw.review(both | {"source": moved})["plan"]
    assert check.verdict == "look"
    assert "no checkpoint (N, ptpp) in common" in check.reason

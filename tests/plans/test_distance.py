"""How far a plan lies beyond the fitted runs, and what left-out runs say of such a distance."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from plans.test_mixture_limits import BUDGET
from plans.test_mixture_plan import Known

import bayeslaw
from bayeslaw import Plan, datasets, plan
from bayeslaw._base.numbers import format_count
from bayeslaw._posteriors.averaging.distance import doubts
from bayeslaw._tables.before import doubt_baseline
from bayeslaw._tables.beyond import distances
from known import example
from known.plans import DRAWS, WIDE, source, target
from known.saved import save_fit

WIDE_DRAWS = {"sd": WIDE["sd"], "draws": DRAWS}
N, PTPP = example.QUESTION["N"], example.QUESTION["ptpp"]


def runs(sizes, stages=(PTPP / 4, PTPP), loss=2.0):
    rows = [
        (n, n * ratio, replay, ptpp, loss + 0.01 * k + 0.1 * replay)
        for n in sizes
        for ptpp in stages
        for k, (ratio, replay) in enumerate(((1.0, 0.05), (100.0, 0.6)))
    ]
    return pd.DataFrame(rows, columns=["N", "D", "replay", "ptpp", "loss"])


def planned(sizes, folds="", **asked):
    posteriors = (
        replace(of(**WIDE_DRAWS), runs=runs(sizes, loss=loss), attrs={"folds": folds})
        for of, loss in ((target, 2.0), (source, 1.5))
    )
    question = example.QUESTION | {"new_run": False, "draws": DRAWS}
    return plan(*posteriors, **(question | asked))


@pytest.mark.parametrize(("times", "words"), [(1, ""), (2.5, "2.5"), (10, "10")])
def test_a_plan_says_how_far_beyond_the_runs_it_lies(times, words):
    """In its first sentence, its warnings and its JSON; also between one and ten times."""
    made = planned((N / times / 8, N / times))
    first = made.sentence().splitlines()[0]
    lines = [line for line in made.warnings if line.startswith("the plan's N")]
    place = json.loads(json.dumps(made.to_dict()))["distance"]
    assert set(place) == {"N", "ptpp", "D/N", "replay"}
    assert place["N"]["times"] == pytest.approx(times)
    assert place["N"]["inside"] is (times == 1)
    assert place["N"]["value"] == N
    assert place["N"]["high"] == pytest.approx(N / times)
    if times == 1:
        assert first.endswith("within the fitted runs (N, ptpp, D/N, replay).")
        assert lines == []
        return
    assert f"beyond the fitted runs ({words} times the largest N)" in first
    (line,) = lines
    assert f"{words} times the largest fitted" in line
    assert "nothing tested it" in line
    assert Plan.from_dict(made.to_dict()) == made


@pytest.mark.parametrize(
    ("times", "told"),
    [
        (6, "tested up to 8 times"),
        (20, "left out was 8 times the largest of the others"),
    ],
)
def test_left_out_runs_say_what_they_tested(times, told):
    sizes = [N / times / smaller for smaller in (16, 8, 1)]
    made = planned(sizes, f"N >= {format_count(sizes[-1])}; ptpp >= {PTPP}")
    assert made.distance["N"]["tested"] == pytest.approx(8)
    (line,) = [line for line in made.warnings if line.startswith("the plan's N")]
    assert told in line
    assert ("nothing tested that far" in line) is (times == 20)


def test_a_question_without_a_plan_says_how_far_its_model_lies():
    made = planned((N / 80, N / 10), max_target_loss=0.5)
    assert made.D is None
    assert made.distance["N"]["times"] == pytest.approx(10)
    assert "10 times the largest N" in made.sentence()


@pytest.mark.parametrize(
    ("run", "column", "times"),
    [
        ({"N": 1e9, "replay": 0.9}, "replay", 1.5),
        ({"N": 1e9, "replay": 0.025}, "replay", 0.5),
        ({"N": 1e9, "D": 1e12}, "D/N", 10.0),
        ({"N": 1.004e9}, "N", 1.0),  # rounding
        ({"N": 5e7}, "N", 0.5),
    ],
)
def test_a_distance_is_a_factor_of_the_nearer_end(run, column, times):
    place = distances(runs((1e8, 1e9)), pd.DataFrame([run]))[column]
    assert place.times == pytest.approx(times)
    assert place.is_inside is (times == 1)


def test_beyond_a_table_without_replay_there_is_no_factor():
    table = runs((1e8,)).assign(replay=0.0)
    run = pd.DataFrame([{"N": 1e8, "replay": 0.2}])
    place = distances(table, run)["replay"]
    assert place.phrase("replay") == "beyond the largest replay"


# -- fits without misfit, beyond their sizes -------------------------------------------

SIZES = (N / 20, N / 10)
PLAUSIBLE = bayeslaw.law("chinchilla").plausible


def fit_of(path, name, parameters, *, discrepancy):
    """A fit of known draws, to runs of two sizes."""
    law = bayeslaw.law(name)
    points = law.from_paper(parameters) | {"sigma": 0.003, "dof": 8.0}
    given = {site: np.full(DRAWS, float(value)) for site, value in points.items()}
    fit = bayeslaw.load(save_fit(path, name=name, given=given, table=runs(SIZES)))
    fit.inference_data.attrs["settings"] = json.dumps({"discrepancy": discrepancy})
    return fit


@pytest.mark.parametrize(
    ("plain", "size", "told"),
    [
        (True, N, "10 times the largest"),
        (True, N / 40, "0.5 times the smallest"),
        (True, N / 15, None),
        (False, N, None),
    ],
)
def test_a_forecast_of_a_plain_fit_beyond_its_sizes_warns(tmp_path, plain, size, told):
    fit = fit_of(tmp_path / "fit.nc", "chinchilla", PLAUSIBLE, discrepancy=not plain)
    rows = runs((size,))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        bayeslaw.forecast(fit, rows)
    lines = [str(w.message) for w in caught if "law alone" in str(w.message)]
    assert len(lines) == (told is not None)
    if told is not None:
        assert told in lines[0]
        assert "fit with discrepancy=True" in lines[0]


@pytest.mark.parametrize(("size", "count"), [(N, 1), (N / 15, 0)])
def test_a_plan_of_plain_fits_beyond_their_sizes_warns_once(tmp_path, size, count):
    of = {
        name: fit_of(tmp_path / f"{name}.nc", law, parameters, discrepancy=False)
        for name, law, parameters in (
            ("target", example.TARGET_LAW, example.TARGET),
            ("source", example.SOURCE_LAW, example.SOURCE),
        )
    }
    lines = doubts(
        of["target"],
        {"source": of["source"]},
        {"N": size, "ptpp": PTPP, "D": size, "replay": 0.1},
    )
    assert sum("law alone" in line for line in lines) == count


# -- the checkpoint's loss ---------------------------------------------------------------


def with_losses_before(table):
    """Losses of checkpoints, a power of size and stage above a floor."""
    level = 1.2 + 1.4 * (table["N"] / 1e9) ** -0.2 * (table["ptpp"] / 30) ** -0.1
    return table.assign(source_loss_before=level)


@pytest.mark.parametrize(
    ("off", "is_told"), [(1.0, False), (1.1, False), (0.85, True), (1 / 1.44, True)]
)
def test_a_checkpoint_better_than_its_family_is_doubted(off, is_told):
    """A loss in bits, or of other data, halved a plan's tokens without a word."""
    table = with_losses_before(runs((1e8, 3e8, 1e9)))
    run = with_losses_before(pd.DataFrame([{"N": 8e9, "ptpp": PTPP}])).iloc[0].to_dict()
    run["source_loss_before"] *= off
    lines = doubts(replace(target(**WIDE_DRAWS), runs=table), {}, run)
    told = [line for line in lines if "the source's loss before adaptation" in line]
    assert len(told) == is_told
    gaps = table.assign(
        source_loss_before=table["source_loss_before"].where(table["N"] > 2e8)
    )
    assert len(doubt_baseline(gaps, run)) == is_told
    few = table[(table["N"] == 1e9) & (table["ptpp"] == PTPP)]
    assert doubt_baseline(few, run) == []  # one checkpoint tells no trend


@pytest.mark.parametrize("name", ["minicpt", "minicpt-de", "microcpt", "microcpt-de"])
def test_real_checkpoints_of_a_larger_size_are_not_doubted(name):
    table = datasets.load(name).dropna(subset=["source_loss_before"])
    by_checkpoint = table.groupby(["N", "ptpp"], as_index=False)
    checkpoints = by_checkpoint["source_loss_before"].mean()
    sizes = sorted(checkpoints["N"].unique())[2:]
    for size in sizes:
        smaller = table[table["N"] < size]
        of_size = checkpoints[checkpoints["N"] == size]
        for run in of_size.to_dict("records"):
            assert doubt_baseline(smaller, run) == []
    assert sizes


# -- mixtures ----------------------------------------------------------------------------


def runs_of_mixtures(size, tokens):
    shares = {f"share_{name}": [0.2, 0.5] for name in ("books", "code", "web")}
    return pd.DataFrame({"N": size, "D": tokens, "loss": 2.5} | shares)


@pytest.mark.parametrize("make", [bayeslaw.plan_mixture, bayeslaw.best_mixture])
@pytest.mark.parametrize(
    ("times", "words"), [(1, "within"), (2, "2 times the largest N")]
)
def test_a_mixture_says_how_far_beyond_the_runs_it_lies(make, times, words):
    """A plan for up to ten times the largest size said nothing of it."""
    size, tokens = BUDGET["N"], BUDGET["D"]
    fitted = runs_of_mixtures(size / times, [tokens / 2, 2 * tokens])
    posteriors = {name: Known(name, 0) for name in ("web", "code")}
    for posterior in posteriors.values():
        posterior.runs = fitted
    made = make(posteriors, **BUDGET)
    place = json.loads(json.dumps(made.to_dict()))["distance"]
    assert set(place) == {"N", "D/N"}
    assert place["N"]["times"] == pytest.approx(times)
    assert words in made.sentence().splitlines()[0]
    told = [line for line in made.warnings if line.startswith("the plan's N")]
    assert len(told) == (times > 1)

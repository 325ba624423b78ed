"""What stages left out say of the next one: numbers by hand, and each stage as one would forecast it oneself."""

import json

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw import LawError, RunTableError, StagesCheck
from bayeslaw._forecasts.checking.stages import Stage
from known import saved
from known.updates import grown, lines, old_fit


def stages(*stretches, **fields):
    """Stages of ptpp with these stretches."""
    each = [Stage(f"ptpp {i}", 20, 0.9, s, **fields) for i, s in enumerate(stretches)]
    return StagesCheck("ptpp", tuple(each))


# -- by hand ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stretches", "largest", "factor", "probability", "said"),
    [
        ((1.7,), 1.7, 1.7, 1 / 2, "1.70 times as wide hold 90% of its runs with probability 1/2 = 50%"),
        ((0.8, 2.5, 1.2), 2.5, 2.5, 3 / 4, "2.50 times as wide hold 90% of its runs with probability 3/4 = 75%"),
        ((0.8, 0.6), 0.8, 1.0, 2 / 3, "as they are hold 90% of its runs with probability at least 2/3 = 67%"),
        ((1.1,) * 8, 1.1, 1.1, 8 / 9, "takes 9 stages, and here are 8"),
    ],
)  # fmt: skip
def test_the_largest_of_a_few_stages_and_its_probability(
    stretches, largest, factor, probability, said
):
    check = stages(*stretches)
    assert (check.largest, check.factor) == (largest, factor)
    assert check.probability == pytest.approx(probability)
    assert check.factor90 is None
    assert said in check.sentence()
    assert "takes 9 stages" in check.sentence()
    assert "a check and no promise" in check.sentence()
    assert "not exchangeable" in check.sentence()


def test_nine_stages_make_a_statement_at_ninety_percent():
    """By the largest of nine to eighteen, and by the 18th of nineteen: ceil(.9 x 20)."""
    nine = stages(*np.arange(2.0, 11.0))
    assert nine.factor90 == nine.largest == 10.0
    nineteen = stages(*np.arange(2.0, 21.0))
    assert (nineteen.factor90, nineteen.largest) == (19.0, 20.0)
    assert "19.00 times as wide with 90% at least" in nineteen.sentence()
    assert "takes 9 stages" not in nineteen.sentence()
    assert stages(*[0.5] * 9).factor90 == 1.0


@pytest.mark.parametrize("m", [1, 2, 5, 9, 12, 19])
def test_exchangeable_stages_hold_as_often_as_stated(m):
    """Log-normal stretches: the next one is below the largest m times of m + 1, and below that of 90% in 90% or more."""
    worlds = np.exp(np.random.default_rng(m).standard_normal((4000, m + 1))) + 1
    checks = [stages(*world[:-1]) for world in worlds]
    held = np.mean([c.largest >= w[-1] for c, w in zip(checks, worlds, strict=True)])
    assert held == pytest.approx(m / (m + 1), abs=0.02)
    if m >= 9:
        bounds = [check.factor90 for check in checks]
        held = np.mean([b >= w[-1] for b, w in zip(bounds, worlds, strict=True)])
        assert 0.88 < held < 0.93


def test_nothing_is_said_of_one_stage():
    """Neither where the runs have one stage only nor where none of several can be left out."""
    alone = StagesCheck(None, ())
    assert alone.largest is alone.factor is alone.probability is alone.factor90 is None
    assert "one stage only, so there is nothing to say" in alone.sentence()
    refused = StagesCheck("ptpp", (), ("ptpp 31 (too few)",))
    assert "none can be left out along ptpp" in refused.sentence()
    assert "ptpp 31 (too few)" in refused.sentence()
    for check in (alone, refused):
        assert "probability" not in check.sentence()
        assert json.loads(json.dumps(check.to_dict()))["probability"] is None
        assert check.table.empty


def test_failed_fits_and_stages_not_left_out_are_named():
    check = stages(1.5, failed=True)
    assert "diagnostics failed in forecasting ptpp 0" in check.sentence()
    some = StagesCheck("ptpp", check.stages, ("ptpp 31 (3 runs)",))
    assert "not left out: ptpp 31 (3 runs)" in some.sentence()
    assert "<table" in some._repr_html_()


# -- of a fit --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def check():
    """Of the fit below the largest model, and the runs of that."""
    told = []
    runs = grown()
    beyond = runs[runs["N"] == runs["N"].max()]
    done = bayeslaw.check_stages(
        old_fit(), beyond, seed=2, progress=lambda *count: told.append(count)
    )
    return done, beyond, told


def test_each_stage_is_forecast_as_one_would_oneself(check):
    """The fit below the third size, with the same law and settings, checked on it; the runs beyond by the fit itself."""
    done, beyond, told = check
    known = old_fit().runs
    sizes = np.unique(known["N"])
    assert len(sizes) == 3
    assert [stage.name for stage in done.stages] == ["N 1.4B", "N 8.1B"]
    assert done.column == "N"
    with pytest.warns(bayeslaw.RunTableWarning, match="two levels only"):
        below = bayeslaw.fit(
            known[known["N"] < sizes[2]], "chinchilla", preview=True, seed=2
        )
    held = known[known["N"] == sizes[2]]
    third, last = done.stages
    by_hand = bayeslaw.check(below, held, seed=2)
    assert third.stretch == pytest.approx(by_hand.stretch)
    assert third.coverage90 == pytest.approx(by_hand.coverage["0.9"])
    assert third.n == len(held)
    assert last.stretch == bayeslaw.check(old_fit(), beyond, seed=2).stretch
    (why,) = done.skipped
    assert why.startswith("N 517M (column 'N' has one level only")
    assert ";" not in why
    assert told[-1][0] == told[-1][1]


def test_runs_that_are_no_stage_beyond_are_none(check):
    """Runs amid the fitted ones, or fewer than five, add no stage; without runs there are the fit's own."""
    done, beyond, _ = check
    amid = old_fit().runs
    for runs in (None, amid, beyond.head(4)):
        same = bayeslaw.check_stages(old_fit(), runs, column="N", seed=2)
        assert same.stages == done.stages[:1]


def test_stages_that_are_too_small_are_skipped():
    """Of the fitted runs few are left of the largest size, so that only the runs beyond tell."""
    runs = old_fit().runs
    largest = runs["N"] == runs["N"].max()
    few = pd.concat([runs[~largest], runs[largest].head(4)])
    fit = bayeslaw.fit(few, "chinchilla", preview=True, seed=1)
    done = bayeslaw.check_stages(fit, column="N")
    assert done.stages == ()
    assert "N 1.4B (4 runs, and 5 are the fewest that tell)" in done.skipped


def test_one_stage_only_is_said_without_a_refit(monkeypatch):
    from bayeslaw._forecasts.checking import stages as room

    monkeypatch.setattr(room, "refit_like", None)
    assert bayeslaw.check_stages(old_fit(), column="replay").column is None


def test_what_has_no_stages_is_refused_in_a_line():
    with pytest.raises(RunTableError, match="'domain' has no numbers: hold out by one"):
        bayeslaw.check_stages(old_fit(), column="domain")
    with pytest.raises(
        RunTableError, match=r"lacks column 'depth', by which to hold out"
    ):
        bayeslaw.check_stages(old_fit(), column="depth")
    with pytest.raises(LawError, match="not of a Lines"):
        bayeslaw.check_stages(lines())


def test_an_average_is_made_again_below_each_stage(tmp_path, monkeypatch):
    """From the rows below each stage of two levels or more, by what makes any posterior again."""
    from bayeslaw._forecasts.checking import stages as room

    average = bayeslaw.load(saved.save_average(tmp_path / "average.nc"))
    runs, given = average.runs, []

    def made_again(old, rows, **options):
        given.append((old, rows, options))
        return old

    monkeypatch.setattr(room, "refit_like", made_again)
    done = bayeslaw.check_stages(average, column="N", seed=1)
    sizes = np.unique(runs["N"])
    for size, (old, rows, options), stage in zip(
        sizes[2:], given, done.stages, strict=True
    ):
        assert old is average
        pd.testing.assert_frame_equal(rows, runs[runs["N"] < size])
        assert (options["seed"], options["on_failure"]) == (1, "ignore")
        by_hand = bayeslaw.check(average, runs[runs["N"] == size], seed=1)
        assert stage.stretch == by_hand.stretch

"""A table under review: each check passes on a sound table and finds the fault that was put in."""

import json
import re
import shlex

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw import Finding, LawError, Review, RunTableError, RunTableWarning
from bayeslaw._tables.suspicions import past_minimum


def grid(**options) -> pd.DataFrame:
    """A sound table of one domain: two seeds, whose losses differ by .2%."""
    first, second = (
        bayeslaw.simulate("ptpp-floor", seed=seed, noise=0.002).assign(run=_names(seed))
        for seed in (1, 2)
    )
    runs = pd.concat([first, second], ignore_index=True)
    return runs.assign(**options)


def _names(seed):
    return lambda runs: runs["run"].astype(str) + f" seed {seed}"


def two_domains() -> pd.DataFrame:
    parts = [
        bayeslaw.simulate("ptpp-floor", seed=seed, noise=0.002).assign(domain=domain)
        for seed, domain in ((1, "target"), (2, "source"))
    ]
    return pd.concat(parts, ignore_index=True)


def verdicts(runs, **options):
    review = bayeslaw.review(runs, **options)
    return {check.name: check.verdict for check in review.checks}


def test_a_sound_table_passes_every_check():
    runs = grid()
    review = bayeslaw.review(runs, goal=runs[runs["N"] > 2e9])
    assert review.verdict == "pass"
    names = (
        "table",
        "reading",
        "units",
        "laws",
        "rows",
        "levels",
        "reference",
        "stages",
        "noise",
        "outliers",
        "mixture",
        "signal",
        "size",
        "tokens",
        "extrapolation",
    )
    assert tuple(check.name for check in review.checks) == names
    percent = re.search(r"differ by ([\d.]+)%", review["noise"].reason)
    assert percent is not None
    assert float(percent[1]) == pytest.approx(0.2, rel=0.15)


FAULTS = {
    "no loss": (lambda t: t.drop(columns="loss"), "table", "fail"),
    "units": (lambda t: t.assign(N=t["N"] / 1e9), "reading", "look"),
    "exported twice": (lambda t: pd.concat([t, t.head(3)]), "reading", "look"),
    "no law's columns": (
        lambda t: t[["loss", "run"]].assign(lr=1e-3),
        "laws",
        "fail",
    ),
    "an empty column": (
        lambda t: t.assign(D=t["D"].where(t["N"] > 1e9)),
        "laws",
        "fail",
    ),
    "too few rows for the large laws": (
        lambda t: t.iloc[::50],
        "rows",
        "look",
    ),
    "few rows": (lambda t: t.iloc[::26], "rows", "look"),
    "two levels": (lambda t: t[t["ptpp"] <= 31], "levels", "look"),
    "tiny models": (lambda t: t.assign(N=t["N"] / 1e4), "reference", "look"),
    "nothing to leave out": (lambda t: t.iloc[::60], "stages", "look"),
    "seeds that change nothing": (
        lambda t: t.assign(loss=np.tile(t["loss"][: len(t) // 2], 2)),
        "noise",
        "look",
    ),
    "seeds that change all": (
        lambda t: t.assign(
            loss=t["loss"]
            * np.exp(0.2 * np.random.default_rng(0).standard_normal(len(t)))
        ),
        "noise",
        "look",
    ),
    "a wrong row": (
        lambda t: t.assign(loss=t["loss"].where(t.index != 77, 2 * t["loss"])),
        "outliers",
        "look",
    ),
    "shuffled losses": (
        lambda t: t.assign(loss=np.random.default_rng(0).permutation(t["loss"])),
        "signal",
        "fail",
    ),
    "sizes the wrong way round": (
        lambda t: t.assign(N=1e18 / t["N"]),
        "size",
        "look",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_by_its_check(fault):
    put_in, name, verdict = FAULTS[fault]
    review = bayeslaw.review(put_in(grid()))
    check = review[name]
    assert check.verdict == verdict, review.sentence()
    assert check.next
    assert review.verdict in (verdict, "fail")


@pytest.mark.parametrize("times", [0.5, 1.3, 2])
def test_the_wrong_row_is_named_as_in_the_file_with_its_distance_in_percent(times):
    """Of the loss, not of its log: half a loss is 50% off, twice a loss 100%."""
    runs = bayeslaw.read_runs(grid(), where="D > 0")
    runs.loc[400, "loss"] *= times
    some = runs[runs["N"] > 5e8]
    reason = bayeslaw.review(some)["outliers"].reason
    percent = re.match(r"row 400 lies ([\d.]+)% off", reason)
    assert percent is not None
    assert float(percent[1]) == pytest.approx(100 * abs(times - 1), abs=3)


def test_a_fit_tells_the_same_distance_in_percent():
    N, D = np.meshgrid(np.geomspace(1e8, 1e10, 5), np.geomspace(1e9, 1e12, 8))
    runs = pd.DataFrame({"N": N.ravel(), "D": D.ravel()})
    loss = 1.7 + 400 / runs["N"] ** 0.34 + 410 / runs["D"] ** 0.28
    noise = np.exp(0.002 * np.random.default_rng(0).standard_normal(len(runs)))
    runs["loss"] = loss * noise
    runs.loc[20, "loss"] /= 2
    with pytest.warns(UserWarning, match=r"row 20 lies up to (49|50)\.\d% off"):
        bayeslaw.fit(runs, "chinchilla", preview=True, on_failure="ignore")


def test_a_goal_is_told_in_efolds_and_passes_as_far_as_stages_test():
    """The grid's sizes end at 8.1B, 3.4 to 5.8 times the size before: three times beyond is tested, thirty is not."""
    runs = grid()
    largest = runs["N"].max()
    known = dict(runs.iloc[-1][["D", "ptpp", "replay"]])

    def at(times):
        goal = pd.DataFrame([known | {"N": largest * times, "D": 1e10}])
        return bayeslaw.review(runs, goal=goal)["extrapolation"]

    assert at(1.0).verdict == "pass"
    near, far, hopeless = at(3.0), at(30.0), at(300.0)
    # fewer tokens per parameter than any run has are looked at, too
    assert near.verdict == "look" or "D/N" not in near.reason
    assert far.verdict == "look"
    assert "3.4 e-folds (30 times) beyond" in far.reason
    assert "N=44.4B" in far.next
    assert hopeless.verdict == "fail"
    assert verdicts(runs, goal=pd.DataFrame([{"N": 3 * largest}]))["extrapolation"] == (
        "pass"
    )


def test_replay_outside_the_runs_is_looked_at():
    runs = grid()
    goal = runs.head(1).assign(replay=0.95)
    check = bayeslaw.review(runs, goal=goal)["extrapolation"]
    assert check.verdict == "look"
    assert "replay 95%" in check.reason


def test_domains_are_reviewed_apart_and_a_plan_needs_a_baseline():
    runs = two_domains().drop(columns=["source_loss_before", "loss_before"])
    found = verdicts(runs)
    assert found["target: laws"] == found["source: laws"] == "pass"
    assert found["plan"] == "look"
    review = bayeslaw.review(runs, name="my runs.csv")
    assert "source_loss_before" in review["plan"].reason
    assert review["source: laws"].next == (
        "bayeslaw fit 'my runs.csv' --where \"domain == 'source'\" -o source.nc"
    )
    assert verdicts(runs.assign(source_loss_before=2.2))["plan"] == "pass"


PLAN_FAULTS = {
    "one replay": lambda t: t.assign(replay=0.3),
    "other checkpoints": lambda t: t.assign(
        N=t["N"].where(t["domain"] == "target", 1.1 * t["N"])
    ),
    "swapped": lambda t: t.assign(
        loss=t["loss"]
        * np.exp(0.2 * t["replay"] * np.where(t.domain == "target", -1, 1))
    ),
}


@pytest.mark.parametrize("fault", PLAN_FAULTS)
def test_what_a_plan_would_lack_is_told(fault):
    runs = PLAN_FAULTS[fault](two_domains().assign(source_loss_before=2.2))
    assert verdicts(runs)["plan"] == "look"


def test_a_column_that_is_empty_here_and_there_ends_no_review():
    """ptpp is known of two runs only, which no stage left out by it can hold and keep."""
    runs = grid()
    sparse = runs.assign(ptpp=runs["ptpp"].where(runs.index < 2)).drop(columns="replay")
    review = bayeslaw.review(sparse, goal=pd.DataFrame([{"N": 1e10, "ptpp": 300.0}]))
    assert review["extrapolation"].verdict in ("pass", "look")


def test_other_domains_make_no_plan_and_no_fault():
    runs = two_domains().replace({"target": "fi", "source": "en"})
    check = bayeslaw.review(runs)["plan"]
    assert check.verdict == "pass"
    assert "fi" in check.reason


def test_a_table_that_cannot_be_read_is_refused():
    with pytest.raises(RunTableError, match="rows 1, 2, 3 and"):
        bayeslaw.review(grid(loss=-1.0))
    with pytest.raises(RunTableError, match="no such file"):
        bayeslaw.review("none.csv")
    with pytest.raises(RunTableError, match="got int"):
        bayeslaw.review.__wrapped__(3)  # whose types are not checked
    with pytest.raises(RunTableError, match="no posterior"):
        bayeslaw.review({})
    with pytest.raises(LawError, match="about posteriors"):
        bayeslaw.review(grid(), refit=True)


# -- the record ------------------------------------------------------------------------


def test_the_record_survives_json_and_is_read_by_name():
    review = bayeslaw.review(grid())
    record = json.loads(json.dumps(review.to_dict()))
    assert {"verdict", "checks"} <= set(record)
    assert all(
        set(c) == {"name", "verdict", "reason", "next"} for c in record["checks"]
    )
    assert Review.from_dict(record) == review
    assert list(review.table().index) == [check.name for check in review.checks]
    with pytest.raises(KeyError, match="there are: table"):
        review["none"]


def test_a_notebook_shows_it_escaped():
    review = Review("<b>", (Finding("a", "look", "<script>x</script>", "a & b"),))
    shown = review._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    assert "LOOK: &lt;b&gt;" in shown
    assert repr(review) == "Review(LOOK: <b>: 0 pass, 1 look, 0 fail)"


def mixed() -> pd.DataFrame:
    """Losses of 32 mixtures at four sizes and budgets; two have the same share of web."""
    rng = np.random.default_rng(3)
    N, D = np.tile(np.repeat([1e8, 3e8], 8), 2), np.repeat([2e9, 8e9], 16)
    shares = rng.dirichlet([1, 1, 1], 32)
    shares[1] = shares[0][[0, 2, 1]]
    loss = 1.6 + 300 / N**0.33 + 2.5 * (D * (shares[:, 0] + 0.1) / 1e7) ** -0.25
    columns = {
        f"share_{k}": s for k, s in zip(("web", "code", "books"), shares.T, strict=True)
    }
    return pd.DataFrame({"N": N, "D": D, **columns, "loss": loss, "domain": "web"})


def test_another_mixture_is_no_repetition_and_a_plan_of_mixtures_is_named():
    runs = mixed()
    code = runs.assign(domain="code", loss=0.6 * runs["loss"])
    review = bayeslaw.review(pd.concat([runs, code], ignore_index=True))
    assert "no two runs are alike" in review["web: noise"].reason
    assert (
        "bayeslaw mixture --loss code=code.nc --loss web=web.nc" in review["plan"].next
    )


def test_three_runs_can_be_fitted_and_the_review_says_so():
    """`fit` takes a handful of rows, so that their review must not tell to add some."""
    runs = grid().query("replay == replay.min() and ptpp == 15").iloc[::20]
    check = bayeslaw.review(runs.iloc[:3][["N", "D", "loss"]])["laws"]
    assert (check.verdict, check.reason) == (
        "pass",
        "chinchilla, coupled can be fitted",
    )


def settings_of(runs):
    return bayeslaw.review(runs)["settings"]


def test_a_proposed_setting_keeps_a_run_of_most_cells():
    """Where settings that vary by row leave next to nothing, no such query is written."""
    rng = np.random.default_rng(0)
    runs = grid()
    several = pd.concat([runs.assign(batch=b) for b in (1, 1, 2)], ignore_index=True)
    several = several.assign(run=np.arange(len(several)))
    assert 'batch == 1"' in settings_of(several).next
    one_in_many = {
        name: rng.integers(0, len(several) // 3, len(several)) for name in ("a", "b")
    }
    todo = settings_of(several.assign(**one_in_many)).next
    assert "==" not in todo
    assert f" of {len(several)} rows" in todo


def test_a_proposed_setting_is_added_to_the_query_of_the_rows():
    """A command takes one --where."""
    runs = two_domains()
    several = pd.concat([runs.assign(batch=b) for b in (1, 1, 2)], ignore_index=True)
    several = several.assign(run=np.arange(len(several)))
    several.attrs["read_with"] = ["--where", "N > 0"]
    todo = bayeslaw.review(several)["source: settings"].next
    assert todo.count("--where") == 1
    query = shlex.split(todo)[shlex.split(todo).index("--where") + 1]
    assert query == "(N > 0) and domain == 'source' and batch == 1"


def test_of_equally_frequent_settings_the_best_is_proposed():
    runs = grid()
    rates = pd.concat(
        [
            runs.assign(rate=rate, loss=runs["loss"] * (1 + 0.01 * abs(rate - 2)))
            for rate in (1, 2, 3)
        ],
        ignore_index=True,
    )
    rates = rates.assign(run=np.arange(len(rates)))
    assert 'rate == 2"' in settings_of(rates).next


# -- few rows, and values off by rounding ----------------------------------------------


@pytest.mark.parametrize("column", ["N", "D", "ptpp"])
@pytest.mark.parametrize("row", [0, 5])
def test_one_value_off_by_an_ulp_is_the_same_level(column, row):
    rng = np.random.default_rng(0)
    sizes = np.repeat([1e8, 2e8, 4e8, 8e8], 3)
    loss = 1.69 + 406.4 / sizes**0.34 + 410.7 / 2e10**0.28
    runs = pd.DataFrame({"N": sizes, "D": 2e10, "ptpp": 20.0})
    runs["loss"] = loss * np.exp(0.003 * rng.normal(size=12))
    off = runs.copy()
    off.loc[row, column] = np.nextafter(off.loc[row, column], 1e12)
    assert bayeslaw.review(off).sentence() == bayeslaw.review(runs).sentence()


@pytest.mark.parametrize(
    "tokens", [(1e8, 1e9, 1e10, 1e11, 1e12), (1e8, 2e8, 1e9, 5e9, 5e10)]
)
@pytest.mark.parametrize("law", [(1.69, 2e4, 0.5), (2.5, 1e9, 1.0), (2.0, 1e7, 0.8)])
def test_a_law_s_floor_in_few_points_is_signal(tokens, law):
    floor, size, exponent = law
    loss = [floor + size / D**exponent for D in tokens]
    runs = pd.DataFrame({"N": 1e9, "D": tokens, "loss": loss})
    signal = bayeslaw.review(runs)["signal"]
    assert signal.verdict == "pass"
    assert signal.reason == "columns explain 100.0% of the order of the losses"


def test_five_losses_of_noise_are_no_signal():
    loss = [2.2, 1.7, 2.3, 1.8, 2.1]
    runs = pd.DataFrame({"N": 1e9, "D": [1e9, 2e9, 4e9, 8e9, 16e9], "loss": loss})
    assert bayeslaw.review(runs)["signal"].verdict == "fail"


# -- losses that passed their minimum --------------------------------------------------


def curves(rise: float, points=12, noise=5e-4, runs=3) -> pd.DataFrame:
    """Runs of two sizes over epochs: the last one rises over its last third."""
    rng = np.random.default_rng(1)
    parts = []
    for i in range(runs):
        D = np.linspace(1e9, 1.2e10, points)
        late = np.clip(np.linspace(-2, 1, points), 0, 1) * rise * (i == runs - 1)
        noisy = np.exp(late + noise * rng.standard_normal(points))
        loss = (2 + 0.5 * (D / 1e9) ** -0.5 - 0.05 * i) * noisy
        size, steps = 1e8 * 2**i, np.arange(1, points + 1) * 1000.0
        part = {"run": f"run {i}", "N": size, "D": D, "step": steps, "loss": loss}
        parts.append(pd.DataFrame(part))
    return pd.concat(parts, ignore_index=True)


@pytest.mark.parametrize(
    ("rise", "drop", "place"),
    [
        (0.04, (), "run run 2 is least at step 8k and "),
        (0.04, ("step",), "run run 2 is least at D 8B and "),
        (0.08, ("run", "step"), "run curve 3 is least at D 8B and 6."),
    ],
)
def test_a_run_that_rose_again_is_told_with_the_place_of_its_least_loss(
    rise, drop, place
):
    with pytest.warns(RunTableWarning) as warned:
        runs = bayeslaw.read_runs(curves(rise).drop(columns=[*drop]))
    lines = [str(warning.message) for warning in warned]
    assert any(line.startswith(f"the loss of {place}") for line in lines)
    found = bayeslaw.review(runs)
    assert found["tokens"].verdict == "look"
    assert place in found["tokens"].reason
    assert place not in found["reading"].reason


def test_runs_of_one_row_each_are_told_by_their_settings():
    runs = curves(0.08, points=9).drop(columns="step")
    runs["run"] = [f"run {i}" for i in range(len(runs))]
    assert "the loss of N 400M is least at D " in str(past_minimum(runs))


@pytest.mark.parametrize("points", [5, 12, 60])
@pytest.mark.parametrize("noise", [5e-4, 0.005])
def test_runs_that_fall_are_not_told(points, noise):
    assert past_minimum(curves(0.0, points, noise)) is None


def test_a_source_may_rise():
    assert past_minimum(curves(0.04).assign(domain="source")) is None
    assert past_minimum(curves(0.04).assign(domain="target")) is not None
    # a domain that is forgotten lies above its loss before
    assert past_minimum(curves(0.04).assign(loss_before=1.0)) is None
    assert past_minimum(curves(0.04).assign(loss_before=9.0)) is not None


# -- fewer rows than can show anything -------------------------------------------------


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_rows_that_any_surface_passes_through_show_nothing(rows):
    runs = grid().iloc[[0, 5, 11][:rows]]
    review = bayeslaw.review(runs)
    assert review["signal"].verdict == "look"
    assert "cannot show" in review["signal"].reason
    assert "add runs" in review["signal"].next
    assert "nothing shows whether the law fits" in review["rows"].reason
    assert "100.0%" not in review.sentence()
    assert "1 rows" not in review.sentence()

"""A DataFrame is refused by every function as the same table in a file is."""

import warnings

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw import BayeslawError, RunTableError, RunTableWarning
from bayeslaw._tables.runs import as_runs
from known import saved

LAW = bayeslaw.law("chinchilla")


def with_cell(column, value):
    def change(table):
        cells = table[column].astype(object)
        cells.iloc[2] = value
        return table.assign(**{column: cells.infer_objects()})

    return change


def doubled(table):
    return table.set_axis(["loss" if c == "D" else c for c in table], axis=1)


FAULTS = {
    "NaN": with_cell("loss", np.nan),
    "infinite": with_cell("loss", np.inf),
    "zero": with_cell("N", 0.0),
    "negative": with_cell("loss", -1.0),
    "text": with_cell("D", "crashed"),
    "suffix on a loss": with_cell("loss", "3565m"),
    "truth value": lambda t: t.assign(replay=t["replay"] > 0.5),
    "replay over 1": with_cell("replay", 34.0),
    "most replay over 1": lambda t: t.assign(replay=34.0),
    "missing column": lambda t: t.drop(columns="D"),
    "empty": lambda t: t.iloc[:0],
    "one row": lambda t: t.iloc[:1],
    "names twice": doubled,
}
SOUND = {
    "object": lambda t: t.astype(object),
    "nullable": lambda t: t.convert_dtypes(),
    "text of numbers": lambda t: t.assign(N=t["N"].map("{:.0f}".format)),
}


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    folder = tmp_path_factory.mktemp("known")
    return bayeslaw.load(saved.save_average(folder / "fit.nc"))


@pytest.fixture(scope="module")
def table():
    """Eight runs, each with its costs."""
    runs = bayeslaw.simulate("chinchilla", seed=1).iloc[:8]
    return runs.assign(domain="target", cost=1.0, ptpp=30.0)


def follow(fit, t):
    return bayeslaw.follow(fit, t, 1e13)


# what refuses before it fits, and answers at once where it does not refuse
ASKED = {
    "forecast": bayeslaw.forecast,
    "check": bayeslaw.check,
    "follow": follow,
    "mean_relative_error": bayeslaw.mean_relative_error,
    "width_parts": bayeslaw.width_parts,
    "anchors": lambda fit, t: bayeslaw.anchors(
        fit, t, saved.runs().iloc[:2], budget=2, checks=0
    ),
    "anchors' goal": lambda fit, t: bayeslaw.anchors(
        fit, saved.runs().assign(cost=1.0), t, budget=2, checks=0
    ),
    "appraise": lambda fit, t: bayeslaw.appraise(fit, t, saved.runs().iloc[:2]),
}
# what would fit a sound table: it is asked about those alone that are refused
FITS = {
    "fit": lambda fit, t: bayeslaw.fit(t, "chinchilla"),
    "compare": lambda fit, t: bayeslaw.compare(t, ["chinchilla"]),
    "average": lambda fit, t: bayeslaw.average(t, ["chinchilla"]),
    "pool": lambda fit, t: bayeslaw.pool(t, "chinchilla"),
    "point_fit": lambda fit, t: bayeslaw.point_fit(t, LAW),
    "bootstrapped_mre": lambda fit, t: bayeslaw.bootstrapped_mre(t, LAW),
    "refits": lambda fit, t: bayeslaw.refits(t, "chinchilla", np.ones((1, len(t)))),
    "update": bayeslaw.update,
    "report": lambda fit, t: bayeslaw.report(t, law="chinchilla"),
}
ONE_ROW_FITS = {"point_fit", "bootstrapped_mre", "pool"}


def answer(ask, fit, table):
    """The line that refuses, or what is answered."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ask(fit, table)
        except BayeslawError as error:
            return str(error)


def from_file(ask, fit, table, path):
    table.to_csv(path, index=False)
    said = answer(lambda fit, path: ask(fit, bayeslaw.read_runs(path)), fit, path)
    return said.replace(str(path), "the table") if isinstance(said, str) else said


REFUSED = [
    (name, fault)
    for name in (*ASKED, *FITS)
    for fault in FAULTS
    if fault != "one row" or name not in ONE_ROW_FITS  # one row can be fitted
]


@pytest.mark.parametrize(("name", "fault"), REFUSED)
def test_a_frame_is_refused_as_its_file_is(known, table, tmp_path, name, fault):
    ask = (ASKED | FITS)[name]
    wrong = FAULTS[fault](table)
    expected = from_file(ask, known, wrong, tmp_path / "t.csv")
    said = answer(ask, known, wrong)
    assert isinstance(said, str) == isinstance(expected, str)
    if isinstance(said, str):
        assert "\n" not in said
        assert said.removeprefix("the table: ") == expected.removeprefix("the table: ")
    else:
        assert fault in ("one row", "missing column", "NaN", "negative", "infinite")


@pytest.mark.parametrize("kind", SOUND)
def test_other_types_are_read_as_their_file_is(known, table, tmp_path, kind):
    path = tmp_path / "t.csv"
    table.to_csv(path, index=False)
    expected = bayeslaw.read_runs(path)
    frame = SOUND[kind](table)
    read = as_runs(frame)
    pd.testing.assert_frame_equal(
        read.reset_index(drop=True), expected.reset_index(drop=True)
    )
    assert list(read.index) == list(frame.index)
    forecasts = [bayeslaw.forecast(known, t) for t in (frame, expected)]
    np.testing.assert_allclose(*(f.to_numpy() for f in forecasts))


def test_a_table_that_was_changed_after_it_was_read_is_checked_again(known):
    runs = bayeslaw.read_runs(saved.runs())
    runs.loc[3, "loss"] = np.nan
    with pytest.raises(RunTableError, match="row 3, column 'loss': NaN or empty"):
        bayeslaw.point_fit(runs, LAW)
    runs = bayeslaw.read_runs(saved.runs()).assign(D="many")
    with pytest.raises(RunTableError, match="column 'D': 'many' is not a number"):
        bayeslaw.forecast(known, runs)


def test_rows_without_a_step_are_named_where_one_run_has_two_losses():
    table = pd.DataFrame(
        {
            "run": ["a", "a", "b"],
            "step": [np.nan, np.nan, 1],
            "N": 1e8,
            "D": [1e9, 1e9, 2e9],
            "loss": [2.5, 2.6, 2.4],
        }
    )
    said = "rows 1, 2, column 'loss': different losses for one run a, step \\(empty\\)"
    with pytest.raises(RunTableError, match=said):
        bayeslaw.read_runs(table)
    with pytest.raises(RunTableError, match="rows 1, 2, column 'loss'"):
        bayeslaw.read_runs(table.assign(run=["a", "a", None], step=[None, None, 1]))


def test_integers_that_overflowed_are_refused():
    tokens = np.array([10**9, 3 * 10**9], np.int64).astype(np.int32)
    table = pd.DataFrame({"N": [1e8, 1e9], "D": tokens, "loss": [2.5, 2.4]})
    with pytest.raises(RunTableError, match=r"row 2, column 'D': below 0 in integers"):
        bayeslaw.read_runs(table)
    with pytest.raises(RunTableError, match=r"not positive"):
        bayeslaw.read_runs(table.assign(D=tokens.astype(float)))


# -- learning curves -------------------------------------------------------------------


def learning_curves(runs=4, points=12):
    """Curves of runs of two sizes and two shares of replay."""
    rows = [
        {"N": n, "replay": r, "D": d, "loss": 2 + 30 * n**-0.2 + 60 * d**-0.2 + r / 99}
        for n in (1e8, 4e8)
        for r in (0.1, 0.3)
        for d in np.geomspace(1e9, 3e10, points)
    ]
    table = pd.DataFrame(rows)
    table.insert(0, "who", [f"1.{i // points}0" for i in range(len(table))])
    return table


@pytest.mark.parametrize(
    "name", ["run_name", "run_id", "Name", "exp", "model", "Run", "config.run_name"]
)
def test_usual_spellings_name_the_runs(tmp_path, name):
    table = learning_curves().rename(columns={"who": name})
    if name == "model":
        table[name] = "v" + table[name]
    table.to_csv(tmp_path / "t.csv", index=False)
    runs = bayeslaw.read_runs(tmp_path / "t.csv")
    assert runs["run"].nunique() == 4
    assert runs["run"].iloc[0] in ("1.00", "v1.00")


def test_a_column_of_numbers_may_name_the_runs_and_be_read_too(tmp_path):
    table = learning_curves().drop(columns="who").query("replay == .1")
    table = table.rename(columns={"N": "params"})
    runs = bayeslaw.read_runs(table, columns={"params": ("N", "run")})
    assert set(runs["run"]) == {"100000000", "400000000"}
    assert set(runs["N"]) == {1e8, 4e8}
    from bayeslaw.cli.parsing import read_table

    path = tmp_path / "t.csv"
    table.to_csv(path, index=False)
    typed = read_table(path, None, ["N=params", "run=params"])
    assert typed["run"].nunique() == 2


def test_curves_that_nothing_names_are_runs_and_it_is_said():
    table = learning_curves().drop(columns="who")
    with pytest.warns(RunTableWarning, match="no column names the runs, and 4 curves"):
        runs = bayeslaw.read_runs(table)
    assert runs["run"].nunique() == 4
    both = pd.concat([table.assign(domain=d) for d in ("target", "source")])
    with pytest.warns(RunTableWarning, match="no column names the runs"):
        assert bayeslaw.read_runs(both)["run"].nunique() == 4


def test_what_changes_along_a_run_parts_no_curve():
    table = learning_curves().drop(columns="who")
    table["grad_norm"] = np.linspace(1, 2, len(table))
    table["wd"] = np.where(table["replay"] > 0.2, 0.1, 0.01)
    with pytest.warns(RunTableWarning, match="4 curves"):
        bayeslaw.read_runs(table)


def test_a_grid_of_single_runs_is_left_as_it_is():
    grid = bayeslaw.simulate("chinchilla", seed=1).drop(columns=["run", "checkpoint"])
    assert "run" not in bayeslaw.read_runs(grid)
    twice = pd.concat([learning_curves().drop(columns="who")] * 2, ignore_index=True)
    twice["loss"] *= np.linspace(1, 1.01, len(twice))
    assert "run" not in bayeslaw.read_runs(twice)


# -- settings that no law reads --------------------------------------------------------


def tuned(**settings):
    grid = bayeslaw.simulate("chinchilla", seed=1).drop(columns=["run", "checkpoint"])
    rows = [
        grid.assign(
            loss=grid["loss"] * (1 + 0.01 * i), **{c: v[i] for c, v in settings.items()}
        )
        for i in range(2)
    ]
    return pd.concat(rows, ignore_index=True)


@pytest.mark.parametrize(
    "settings",
    [{"lr": [1e-3, 3e-3]}, {"wd": [0.1, 0.01]}, {"optimizer": ["adam", "muon"]}],
)
def test_rows_alike_but_for_a_setting_are_said_before_the_fit(settings):
    from bayeslaw._tables.fitting import check_fittable

    runs = bayeslaw.read_runs(tuned(**settings))
    (name,) = settings
    with pytest.warns(RunTableWarning, match=f"at other settings of '{name}'"):
        check_fittable(LAW, runs)
    found = bayeslaw.review(runs)
    (one,) = [check for check in found.checks if check.name == "settings"]
    assert one.verdict == "look"
    assert name in one.reason


def test_replicates_and_measurements_are_no_settings():
    from bayeslaw._tables.rows.settings import alike_but_settings

    seeds = bayeslaw.read_runs(tuned(seed=[0, 1]))
    assert alike_but_settings(seeds) is None
    hours = seeds.assign(hours=np.linspace(1, 2, len(seeds)))
    assert alike_but_settings(hours) is None
    assert alike_but_settings(tuned(rate=[0.5, 1.0]), ["rate"]) is None

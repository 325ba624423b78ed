"""A DataFrame is refused by every function as the same table in a file is."""

import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import bayeslaw
from bayeslaw import BayeslawError, RunTableError, RunTableWarning
from bayeslaw._tables.fitting import check_fittable
from bayeslaw._tables.runs import as_runs
from known import saved
from known.reading import refusal, settings_said
from known.said import said_by

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


def buy(fit, offers, goal):
    return bayeslaw.anchors(fit, offers, goal, budget=2, checks=0)


def plan_runs(t, goal):
    return bayeslaw.next_runs(t, goal, 1e30, laws=["chinchilla"])


# what refuses before it fits, and answers at once where it does not refuse
ASKED = {
    "forecast": bayeslaw.forecast,
    "check": bayeslaw.check,
    "follow": follow,
    "width_parts": bayeslaw.width_parts,
    "anchors": lambda fit, t: buy(fit, t, saved.runs().iloc[:2]),
    "anchors' goal": lambda fit, t: buy(fit, saved.runs().assign(cost=1.0), t),
    "appraise": lambda fit, t: bayeslaw.appraise(fit, t, saved.runs().iloc[:2]),
    "check_stages": bayeslaw.check_stages,
    "checkpoints": lambda fit, t: bayeslaw.checkpoints(t),
    "cost_of_forgetting": lambda fit, t: bayeslaw.cost_of_forgetting(fit, t, fit),
    "cost_of_forgetting's pretraining": lambda fit, t: bayeslaw.cost_of_forgetting(
        fit, saved.runs().iloc[:2], t
    ),
    "drift_parts": bayeslaw.drift_parts,
    "exchange_rate": lambda fit, t: bayeslaw.exchange_rate(fit, fit, t),
    "compute_gain": lambda fit, t: bayeslaw.compute_gain(fit, t),
    "follow_page": lambda fit, t: bayeslaw.follow_page(fit, t, 1e13, "page.html"),
    "prior_predictive": lambda fit, t: bayeslaw.prior_predictive("chinchilla", t),
    "recipes": bayeslaw.recipes,
    "review": lambda fit, t: bayeslaw.review(t),
    "review's goal": lambda fit, t: bayeslaw.review(saved.runs(), goal=t),
    "tuned": lambda fit, t: bayeslaw.tuned(t, "N"),
    "PointFit": lambda fit, t: bayeslaw.point_fit(saved.runs(), "chinchilla").loss(t),
}
# what reads no losses: a loss that is wrong is no fault, and without rows there is one
DESIGNS = {
    "candidates": lambda fit, t: bayeslaw.candidates(t),
    "mixture_candidates": lambda fit, t: bayeslaw.mixture_candidates(
        t.assign(share_a=0.5, share_b=0.5), N=[1e8], D=[1e9]
    ),
    "prior_only": lambda fit, t: bayeslaw.prior_only("chinchilla", t, draws=20),
    "simulate": lambda fit, t: bayeslaw.simulate("chinchilla", design=t),
    "next_runs": lambda fit, t: plan_runs(t, saved.runs().iloc[:2]),
    "next_runs' goal": lambda fit, t: plan_runs(saved.runs().iloc[:4], t),
}
OF_LOSSES = ("NaN", "negative", "infinite", "suffix on a loss")
# what would fit a sound table: it is asked about those alone that are refused
FITS = {
    "fit": lambda fit, t: bayeslaw.fit(t, "chinchilla"),
    "compare": lambda fit, t: bayeslaw.compare(t, ["chinchilla"]),
    "average": lambda fit, t: bayeslaw.average(t, ["chinchilla"]),
    "pool": lambda fit, t: bayeslaw.pool(t, "chinchilla"),
    "choose_recipe": lambda fit, t: bayeslaw.choose_recipe(
        t, "optimizer", {"N": 1e9, "D": 1e10}, "chinchilla"
    ),
    "point_fit": lambda fit, t: bayeslaw.point_fit(t, LAW),
    "refits": lambda fit, t: bayeslaw.refits(t, "chinchilla", np.ones((1, len(t)))),
    "update": bayeslaw.update,
    "report": lambda fit, t: bayeslaw.report(t, law="chinchilla"),
}
ONE_ROW_FITS = {"point_fit", "pool"}


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
    for name in (*ASKED, *FITS, *DESIGNS)
    for fault in FAULTS
    if (fault != "one row" or name not in ONE_ROW_FITS)  # one row can be fitted
    and (fault not in OF_LOSSES or name not in DESIGNS)
]
# public functions without a table of runs, and those of a table of another kind
WITHOUT_RUNS = {
    *("accuracy_link", "areas_from_table", "best_loss_potential"),
    *("best_mixture", "best_replay", "best_settings", "best_stop"),
    *("bootstrap_weights", "chain"),
    *("constant", "cosine", "critical_point", "law_at"),
    *("law_from_file", "laws", "load", "loss_curve", "losses_before", "multi_step"),
    *("optimum", "plan", "plan_mixture", "progress_bar", "progress_lost"),
    *("schedule_areas", "turning_length", "update_page", "what_if", "wsd", "law"),
    *("influence", "law_from_formula", "read_runs"),
    # the names of columns, and those of a formula; draws of a posterior's own rows
    *("find_law", "check_inference", "misfit_along", "prior_page"),
}


def test_no_public_function_is_missing_here():
    names = {
        name
        for name in bayeslaw.__all__
        if callable(getattr(bayeslaw, name))
        and not isinstance(getattr(bayeslaw, name), type)
    }
    asked = {name.partition("'")[0] for name in (*ASKED, *FITS, *DESIGNS)}
    assert names - WITHOUT_RUNS == asked - {"PointFit"}


@pytest.mark.parametrize(("name", "fault"), REFUSED)
def test_a_frame_is_refused_as_its_file_is(
    known, table, tmp_path, monkeypatch, name, fault
):
    monkeypatch.chdir(tmp_path)  # a page may be written
    ask = (ASKED | FITS | DESIGNS)[name]
    wrong = FAULTS[fault](table)
    expected = from_file(ask, known, wrong, tmp_path / "t.csv")
    said = answer(ask, known, wrong)
    assert isinstance(said, str) == isinstance(expected, str)
    if isinstance(said, str):
        assert "\n" not in said
        assert told(said) == told(expected)
    else:
        assert fault in ("one row", "missing column", "NaN", "negative", "infinite")


def told(said):
    """What is said of a table or of the goal's."""
    if "no rows" in said:
        return "no rows"
    return said.removeprefix("the table: ")


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
    points = {"run": ["a", "a", "b"], "step": [np.nan, np.nan, 1], "N": 1e8}
    points |= {"D": [1e9, 1e9, 2e9], "loss": [2.5, 2.6, 2.4]}
    table = pd.DataFrame(points)
    said = "rows 1, 2, column 'loss': different losses for one run a, step (empty)"
    assert said in refusal(table)
    other = table.assign(run=["a", "a", None], step=[None, None, 1])
    assert "rows 1, 2, column 'loss'" in refusal(other)


def test_integers_that_overflowed_are_refused():
    tokens = np.array([10**9, 3 * 10**9], np.int64).astype(np.int32)
    table = pd.DataFrame({"N": [1e8, 1e9], "D": tokens, "loss": [2.5, 2.4]})
    assert "row 2, column 'D': below 0 in integers" in refusal(table)
    assert "not positive" in refusal(table.assign(D=tokens.astype(float)))


# -- types of cells, and spellings ------------------------------------------------------


def arrow(values, kind):
    return pd.Series(values, dtype=pd.ArrowDtype(kind))


NO_NUMBERS = {
    "complex": lambda t: t.assign(loss=t["loss"] + 0j),
    "complex objects": lambda t: t.assign(D=(t["D"] + 1j).astype(object)),
    "time spans": lambda t: t.assign(D=pd.to_timedelta(t["D"], unit="s")),
    "dates": lambda t: t.assign(D=pd.to_datetime(t["D"], unit="s")),
    "integers without end": lambda t: t.assign(
        D=pd.Series([10**400, *t["D"][1:]], t.index, dtype=object)
    ),
    "lists": lambda t: t.assign(loss=arrow([[3.0]] * len(t), pa.list_(pa.float64()))),
}


@pytest.mark.parametrize("kind", NO_NUMBERS)
def test_cells_that_are_no_real_numbers_are_refused(table, kind):
    with pytest.raises(RunTableError, match=r"row.* 1.*, column '(loss|D)': ") as error:
        as_runs(NO_NUMBERS[kind](table))
    assert "\n" not in str(error.value)


OF_NUMBERS = {
    "objects": lambda x: x.astype(object),
    "categories": lambda x: x.astype("category"),
    "decimals": lambda x: x.map(lambda v: Decimal(str(v))),
    "Arrow's decimals": lambda x: arrow([*x], pa.decimal128(12, 6)),
}


@pytest.mark.filterwarnings("ignore:priors? guessed")
@pytest.mark.parametrize("kind", OF_NUMBERS)
@pytest.mark.parametrize("column", ["loss", "heat"])
def test_numbers_of_any_type_are_read_in_own_columns_too(table, kind, column):
    """A law of an own column takes them as it takes those of a file."""
    sound = table.assign(heat=np.linspace(1, 2, len(table))).round(4)
    other = sound.assign(**{column: OF_NUMBERS[kind](sound[column])})
    expected, read = as_runs(sound), as_runs(other)
    np.testing.assert_allclose(read[column], expected[column], rtol=1e-12)
    assert read[column].dtype == float
    law = bayeslaw.law_from_formula("E + A/N^0.3 + H*heat", columns={"heat": 1.5})
    losses = [bayeslaw.prior_predictive(law, t, draws=2) for t in (sound, other)]
    np.testing.assert_allclose(*losses)


def test_records_of_arrow_become_columns(table):
    kind = pa.struct([("lr", pa.float64())])
    runs = as_runs(table.assign(config=arrow([{"lr": 0.1}] * len(table), kind)))
    assert (runs["lr"] == 0.1).all()


@pytest.mark.parametrize("levels", [2, 3])
def test_names_of_several_levels_are_refused(known, table, levels):
    names = pd.MultiIndex.from_tuples([(c, *[""] * (levels - 1)) for c in table])
    for ask in (bayeslaw.forecast, bayeslaw.check, bayeslaw.update):
        with pytest.raises(RunTableError, match=f"{levels} levels of names"):
            ask(known, table.set_axis(names, axis=1))


@pytest.mark.parametrize("share", [1 + 1e-12, -1e-18, 1 - 1e-17, 1 - 0.7 - 0.3])
def test_a_share_off_an_end_by_an_error_of_arithmetic_is_that_end(table, share):
    replay = as_runs(table.assign(replay=share))["replay"]
    assert set(replay) == {round(share)}
    with pytest.raises(RunTableError, match="outside"):
        as_runs(table.assign(replay=share + np.sign(share - 0.5) * 1e-6))


def test_rows_of_no_domain_among_others_are_refused(table):
    named = table.assign(domain=["target", *[None] * 2, *["source"] * 5])
    for ask in (bayeslaw.review, bayeslaw.report):
        with pytest.raises(RunTableError, match="rows 2, 3, column 'domain': empty"):
            ask(named)
    kept = bayeslaw.read_runs(named, where="domain.notna()")
    assert set(kept["domain"]) == {"target", "source"}
    unnamed = bayeslaw.review(table.assign(domain=None))
    assert "rows" in [check.name for check in unnamed.checks]


@pytest.mark.parametrize("column", ["domain", "run", "checkpoint"])
def test_names_that_differ_in_case_are_told_and_spaces_differ_in_nothing(table, column):
    cased = table.assign(**{column: [*"Aabcdefg"]})
    says = f"'{column}' has names that differ in case"
    with pytest.warns(RunTableWarning, match=says):
        bayeslaw.read_runs(cased)
    spaced = table.assign(**{column: ["a", "a ", *"bcdefg"]})
    assert bayeslaw.read_runs(spaced)[column].nunique() == 7


def test_empty_names_are_empty_cells(table):
    runs = bayeslaw.read_runs(table.assign(run=["", " ", None, *"abcde"]))
    assert runs["run"].isna().tolist() == [True] * 3 + [False] * 5


@pytest.mark.parametrize("names", ["Step,a - loss,a - loss", "N,N,D,loss", "D,70M,70M"])
def test_columns_of_one_name_are_refused_before_anything_is_made_of_them(names):
    """A panel of a column a run ended in a traceback."""
    columns = names.split(",")
    frame = pd.DataFrame(np.ones((3, len(columns))), columns=columns)
    for ask in (bayeslaw.read_runs, as_runs):
        with pytest.raises(RunTableError, match=f"2 columns are called '{columns[1]}'"):
            ask(frame)


@pytest.mark.parametrize("loss", ["", "  ", None])
def test_empty_text_is_an_empty_cell(table, loss):
    with pytest.raises(RunTableError, match="row 1, column 'loss': NaN or empty"):
        as_runs(table.assign(loss=[loss, *table["loss"][1:].astype(str)]))


@pytest.mark.filterwarnings("ignore:priors? guessed")
@pytest.mark.parametrize("cell", [0.0, -1.0])
def test_a_formula_without_a_finite_loss_is_refused_by_every_fit(table, cell):
    heat = table.assign(heat=[2.0, 3.0, cell, *np.linspace(1, 5, 5)])
    formula = "E + A/N^alpha + B/heat^gamma"
    law = bayeslaw.law_from_formula(formula, columns={"heat": 2.0})
    says = "row 3: the formula has no finite loss"
    for ask in (bayeslaw.point_fit, bayeslaw.fit):
        with pytest.raises(RunTableError, match=says):
            ask(heat, law)


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


def twice(curves):
    both = pd.concat([curves] * 2, ignore_index=True)
    return both.assign(loss=both["loss"] * np.linspace(1, 1.01, len(both)))


UNNAMED = learning_curves().drop(columns="who")
ALONG = {"grad_norm": np.linspace(1, 2, len(UNNAMED))}
ALONG |= {"wd": np.where(UNNAMED["replay"] > 0.2, 0.1, 0.01)}


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (UNNAMED, "no column names the runs, and 4 curves"),
        # one run on two domains is one run; what changes along a run parts no curve
        (pd.concat([UNNAMED.assign(domain=d) for d in ("target", "source")]), "no column names the runs"),
        (UNNAMED.assign(**ALONG), "4 curves"),
        *((twice(learning_curves(points=n).drop(columns="who")), "4 curves .* two losses at one D") for n in (10, 12, 30)),
    ],
)  # fmt: skip
def test_curves_that_nothing_names_are_told_and_are_runs_where_points_differ(
    table, says
):
    with pytest.warns(RunTableWarning, match=says):
        runs = bayeslaw.read_runs(table)
    if "two losses" in says:
        assert "run" not in runs
    else:
        assert runs["run"].nunique() == 4


def test_a_grid_of_single_runs_is_left_as_it_is():
    grid = bayeslaw.simulate("chinchilla", seed=1).drop(columns=["run", "checkpoint"])
    assert "run" not in bayeslaw.read_runs(grid)


# -- settings that no law reads --------------------------------------------------------


def tuned(**settings):
    grid = bayeslaw.simulate("chinchilla", seed=1).drop(columns=["run", "checkpoint"])
    levels = ({c: v[i] for c, v in settings.items()} for i in range(2))
    first, second = (grid.assign(**level) for level in levels)
    second["loss"] *= 1.01
    return pd.concat([first, second], ignore_index=True)


@pytest.mark.parametrize(
    "settings",
    [{"lr": [1e-3, 3e-3]}, {"wd": [0.1, 0.01]}, {"optimizer": ["adam", "muon"]}],
)
def test_rows_alike_but_for_a_setting_are_said_before_the_fit(settings):
    runs = bayeslaw.read_runs(tuned(**settings))
    (name,) = settings
    with pytest.warns(RunTableWarning, match=f"at other settings of '{name}'"):
        check_fittable(LAW, runs)
    found = bayeslaw.review(runs)
    (one,) = [check for check in found.checks if check.name == "settings"]
    assert one.verdict == "look"
    assert name in one.reason


def test_replicates_and_measurements_are_no_settings():
    seeds = bayeslaw.read_runs(tuned(seed=[0, 1]))
    assert not settings_said(seeds)
    assert not settings_said(seeds.assign(hours=np.linspace(1, 2, len(seeds))))
    rates = tuned(rate=[0.5, 1.0])
    law = bayeslaw.find_law("chinchilla+rate", rates)
    _, said = said_by(check_fittable, law, rates)
    assert not any("other settings" in line for line in said)

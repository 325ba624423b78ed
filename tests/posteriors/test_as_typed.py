"""Python as people type it: a path or a DataFrame, a law by its name, a fit by its file;
draws by name of fits and of averages; and records that print on one screen.
"""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw import FitFileError, LawError, RunTableError
from known import saved

LINES = 25  # of a record's repr, at most


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table, a fit and an average as files."""
    place = tmp_path_factory.mktemp("typed")
    saved.runs().to_csv(place / "runs.csv", index=False)
    saved.save_fit(place / "fit.nc")
    saved.save_average(place / "average.nc")
    return place


@pytest.fixture(scope="module")
def runs():
    return saved.runs()


@pytest.fixture(scope="module")
def fit(folder):
    return bayeslaw.load(folder / "fit.nc")


@pytest.fixture(scope="module")
def average(runs):
    """Of two laws, the first with twice the draws of the second."""
    draws = {"chinchilla": 20, "coupled": 10}
    given = [(bayeslaw.law(n), saved.values(count, n)) for n, count in draws.items()]
    return saved.make_average(given, runs)


# of a posterior and a table, to a number
OF_A_POSTERIOR = {
    "forecast": lambda fit, runs: bayeslaw.forecast(fit, runs)["median"].sum(),
    "check": lambda fit, runs: bayeslaw.check(fit, runs).crps,
    "width_parts": lambda fit, runs: bayeslaw.width_parts(fit, runs).to_numpy().sum(),
    "appraise": lambda fit, runs: bayeslaw.appraise(fit, runs, runs)[0],
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, "average") for name in OF_A_POSTERIOR),
        # the saved fit keeps no likelihood, by which a check says what rests on priors
        *((name, "fit") for name in OF_A_POSTERIOR if name != "check"),
    ],
)
def test_a_posterior_and_a_table_are_taken_by_their_files(folder, runs, name, kind):
    call, path = OF_A_POSTERIOR[name], folder / f"{kind}.nc"
    by_object = call(bayeslaw.load(path), runs)
    assert call(path, folder / "runs.csv") == pytest.approx(by_object)
    assert call(str(path), str(folder / "runs.csv")) == pytest.approx(by_object)


# of a table and a law, to something that is equal for both
OF_A_LAW = {
    "point_fit": lambda runs, law: bayeslaw.point_fit(runs, law, starts=2).objective,
    "prior_predictive": lambda runs, law: float(
        bayeslaw.prior_predictive(law, runs, draws=5).sum()
    ),
    "simulate": lambda runs, law: bayeslaw.simulate(law, design=runs)["loss"].sum(),
}


@pytest.mark.parametrize("name", OF_A_LAW)
def test_a_law_is_taken_by_its_name_and_a_table_by_its_path(folder, runs, name):
    call = OF_A_LAW[name]
    expected = call(runs, bayeslaw.law("chinchilla"))
    assert call(runs, "chinchilla") == pytest.approx(expected)
    assert call(folder / "runs.csv", "chinchilla") == pytest.approx(expected)


def test_a_run_is_followed_and_a_plan_made_from_files(folder, runs):
    """What cannot be done with these fits is refused in words, not for being files."""
    curve = runs[runs["N"] == runs["N"].min()].iloc[:3].assign(run="a")
    curve.to_csv(folder / "curve.csv", index=False)
    end = 2 * curve["D"].max()
    by_file = bayeslaw.follow(folder / "fit.nc", folder / "curve.csv", end)
    by_object = bayeslaw.follow(bayeslaw.load(folder / "fit.nc"), curve, end)
    assert by_file.to_dict()["final"] == by_object.to_dict()["final"]
    with pytest.raises(bayeslaw.PlanError, match=r"same .* losses"):
        bayeslaw.plan(
            folder / "fit.nc",
            folder / "average.nc",
            N=1e9,
            ptpp=20,
            max_target_loss=2.0,
            max_forgetting=0.02,
        )


@pytest.mark.parametrize("given", [3, None, [1.0]])
def test_what_is_no_posterior_is_refused_in_words(runs, given):
    with pytest.raises(LawError, match=r"a posterior is a fit or an average"):
        bayeslaw.forecast(given, runs)


@pytest.mark.parametrize(
    "ask",
    [
        lambda path: bayeslaw.fit(path, "ptpp-floor"),
        lambda path: bayeslaw.average(path, ["ptpp-floor"]),
        lambda path: bayeslaw.compare(path, ["ptpp-floor"]),
    ],
)
def test_fit_average_and_compare_read_a_path(folder, tmp_path, ask):
    """What they refuse is what is in the file: a row without tokens."""
    table = pd.read_csv(folder / "runs.csv")
    table["D"] = table["D"].where(table.index != 4)
    short = tmp_path / "short.csv"
    table.to_csv(short, index=False)
    with pytest.raises(RunTableError, match="row 5, column 'D': empty"):
        ask(str(short))
    with pytest.raises(RunTableError, match="no such file"):
        ask(tmp_path / "none.csv")


def test_what_is_no_table_is_refused_in_one_line():
    with pytest.raises(RunTableError, match=r"the path of a file .*; got list"):
        bayeslaw.fit([1e9], "chinchilla")


# -- draws, by name ------------------------------------------------------------------------


def test_draws_of_a_fit_are_a_table_in_the_paper_s_units(fit):
    draws = fit.draws()
    assert list(draws) == list(fit.parameters().index)
    assert len(draws) == saved.DRAWS
    np.testing.assert_allclose(draws.mean(), fit.parameters()["mean"])


def test_draws_of_an_average_line_up_by_law(average):
    draws = average.draws()
    assert len(draws) == 30
    assert draws["law"].value_counts().to_dict() == {"chinchilla": 20, "coupled": 10}
    assert list(draws)[1:] == list(average.parameters().index)
    of_law = draws[draws["law"] == "coupled"]
    assert of_law.filter(like="coupled.").notna().all(axis=None)
    assert of_law.filter(like="chinchilla.").isna().all(axis=None)
    np.testing.assert_allclose(
        draws.drop(columns="law").mean(), average.parameters()["mean"]
    )
    by_name = pd.DataFrame(average.parameter_draws())
    pd.testing.assert_frame_equal(by_name, draws.drop(columns="law"), check_names=False)


def test_a_law_of_an_average_is_taken_by_its_name(average):
    member = average["coupled"]
    assert member.law.name == "coupled"
    assert list(member.draws())[:3] == list(member.law.parameters)[:3]
    assert len(member.draws()) == 10
    with pytest.raises(KeyError, match="there are: chinchilla, coupled"):
        average["dcpt"]


def test_an_average_is_arviz_data(average):
    """A node for each law, its parameters as in the paper; forecasts and losses of all."""
    from arviz_stats import summary

    tree = average.inference_data
    assert set(tree.children) >= {"chinchilla", "coupled", "posterior_predictive"}
    rows = len(average.runs)
    assert tree["posterior_predictive"]["log_loss"].shape == (1, 30, rows)
    np.testing.assert_allclose(
        tree["observed_data"]["log_loss"], np.log(average.runs["loss"])
    )
    of_law = summary(average["chinchilla"].inference_data, kind="stats")
    assert set(average["chinchilla"].law.parameters) <= set(of_law.index)
    assert {"E", "A", "B"} <= set(tree["chinchilla"]["posterior"])


def test_saved_laws_have_their_names_and_a_chain(average, tmp_path):
    """And are read back as they were."""
    from xarray import open_datatree

    path = average.save(tmp_path / "two.nc")
    with open_datatree(path) as tree:
        groups = [name for name in tree.children if name.startswith("law")]
        assert groups == ["law0_chinchilla", "law1_coupled"]
        assert tree["law0_chinchilla"]["alpha"].dims == ("chain", "draw")
    again = bayeslaw.load(path)
    for member, read in zip(average.members, again.members, strict=True):
        assert set(member.values) == set(read.values)
        for name, leaf in member.values.items():
            np.testing.assert_array_equal(read.values[name], leaf)


def test_loading_the_other_kind_says_what_to_do(folder):
    with pytest.raises(FitFileError, match=r"holds a average.*bayeslaw\.load\("):
        bayeslaw.Fit.load(folder / "average.nc")


# -- one screen ----------------------------------------------------------------------------


def test_every_record_prints_on_one_screen(fit, average, runs):
    """And has a view for notebooks."""
    law = bayeslaw.law("chinchilla")
    records = [
        law,
        fit,
        average,
        average["coupled"],
        bayeslaw.point_fit(runs, law, starts=2, bootstrap=3),
        bayeslaw.check(average, runs),
        bayeslaw.review(runs),
    ]
    for record in records:
        assert len(repr(record).splitlines()) <= LINES
        assert len(repr(record)) < 2000
        assert "<function" not in repr(record)
        assert "<table" in record._repr_html_()


def test_the_caller_s_own_columns_are_kept_on_request(fit, runs):
    table = runs.assign(note="mine")
    kept = bayeslaw.forecast(fit, table, keep=True)
    alone = bayeslaw.forecast(fit, table)
    assert list(kept) == [*table.columns, *alone.columns]
    pd.testing.assert_frame_equal(kept[list(alone)], alone)


# -- priors, laws, pictures ------------------------------------------------------------------


def test_a_fit_has_a_prior_predictive(fit, runs):
    by_fit = bayeslaw.prior_predictive(fit, runs, draws=5)
    np.testing.assert_array_equal(
        by_fit, bayeslaw.prior_predictive(fit.law, runs, draws=5)
    )


def test_an_average_has_no_one_prior_predictive(average, runs):
    with pytest.raises(LawError, match="one of its members"):
        bayeslaw.prior_predictive(average, runs)
    assert bayeslaw.prior_predictive(average["coupled"], runs, draws=2).shape[0] == 2


def test_fits_of_different_tables_are_not_compared(fit, average):
    other = replace(average, runs=average.runs.assign(loss=average.runs["loss"] + 0.1))
    with pytest.raises(LawError, match="different losses"):
        bayeslaw.compare([fit, other])
    with pytest.raises(LawError, match="or fits of one table"):
        bayeslaw.compare([fit, 3])


def test_swapped_arguments_of_a_law_are_said(tmp_path):
    """A law file that gives the column before the prior ends in a line, not a traceback."""
    path = tmp_path / "mine.py"
    path.write_text(
        "from bayeslaw._law.law import Exponent\n"
        "from bayeslaw._law.priors import lognormal\n"
        "e = Exponent('alpha', 'N', lognormal(0.3, 0.4))\n"
    )
    # types are checked while tests run: what a user meets is read in a process of its own
    code = f"import bayeslaw; bayeslaw.law_from_file({str(path)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "takes a prior and then the column" in done.stderr

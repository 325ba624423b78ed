"""Run tables: numbers as people write them, and one clear line for each thing that cannot be used."""

import re

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw import RunTableError, RunTableWarning
from bayeslaw._base.numbers import format_count, parse_number
from bayeslaw._tables.fitting import check_fittable
from known.said import said_by


def good(n: int = 24) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    sizes = {"N": rng.choice([1e8, 3e8, 1e9], n), "D": rng.uniform(1e9, 1e11, n)}
    shares = {"replay": rng.choice([0.1, 0.2, 0.5], n)}
    stages = {"ptpp": rng.choice([15.0, 31, 60], n)}
    return pd.DataFrame(sizes | shares | stages | {"loss": 2.5})


@pytest.mark.parametrize(
    ("text", "value"),
    [("8.1B", 8.1e9), ("517M", 517e6), ("2e20", 2e20), ("34%", 0.34), ("12k", 12e3), ("1.4T", 1.4e12), ("1,000", 1e3),
     ("4.1B", 4.1e9), (" 7 ", 7.0), (".5", 0.5), ("-3e-2", -0.03), (5, 5.0)],
)  # fmt: skip
def test_numbers_are_read_as_people_write_them(text, value):
    assert parse_number(text) == value


def test_a_query_finds_a_size_as_it_is_written():
    """4.1 * 1e9 is 4099999999.9999995: N >= 4.1e9 left out cells of 4.1B."""
    table = pd.DataFrame({"N": ["4.1B", "410M"], "D": [8.2, 4.1], "loss": [2.2, 2.5]})
    columns = ["N=N", "D=D*1e9"]
    for query, row in (("N >= 4.1e9", 1), ("D == 8.2e9", 1), ("D == 4.1e9", 2)):
        runs = bayeslaw.read_runs(table, columns=columns, where=query)
        assert runs.index.tolist() == [row]


@pytest.mark.parametrize("text", ["", "abc", "8.1X", "1e", "--3", "8 1B"])
def test_what_is_no_number_is_refused(text):
    with pytest.raises(RunTableError, match="is not a number"):
        parse_number(text)


def spoil(column, row, value):
    def change(t):
        t[column] = t[column].astype(object)
        t.loc[row - 1, column] = value
        return t

    return change


REFUSED = {
    "missing loss": (lambda t: t.drop(columns="loss"), "column 'loss'"),
    "missing covariate": (lambda t: t.drop(columns="ptpp"), "needs column 'ptpp'"),
    "text": (spoil("loss", 7, "crashed"), "row 7, column 'loss'"),
    "empty covariate": (spoil("ptpp", 12, np.nan), "row 12, column 'ptpp'"),
    "too few rows": (lambda t: t.iloc[:7], "7 rows for the"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_tables_are_refused_in_one_line_that_names_row_and_column(name):
    change, says = REFUSED[name]
    law = bayeslaw.law("ptpp-gate-floor")
    with pytest.raises(RunTableError) as caught:
        check_fittable(law, bayeslaw.read_runs(change(good())))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


WARNED = {
    "tiny models": (lambda t: t.assign(N=t["N"] / 1e4), "--reference N="),
    "mixed percent": (
        lambda t: t.assign(replay=["34%", "0.5"] * 12),
        "mixes percent with fractions",
    ),
}


@pytest.mark.parametrize("name", WARNED)
def test_suspicious_tables_are_warned_about(name):
    change, says = WARNED[name]
    runs, first = said_by(bayeslaw.read_runs, change(good()))
    _, second = said_by(check_fittable, bayeslaw.law("ptpp-floor"), runs)
    assert any(says in line for line in first + second)


def test_a_good_table_passes_without_a_word():
    check_fittable(bayeslaw.law("ptpp-gate-floor"), bayeslaw.read_runs(good()))


def test_a_single_level_needs_no_word_when_the_prior_is_set_on_request():
    table = bayeslaw.read_runs(good().assign(replay=0.25))
    law = bayeslaw.law("dcpt")
    with pytest.warns(RunTableWarning, match="nu, gamma"):
        check_fittable(law, table)
    with pytest.warns(RunTableWarning, match="exponent nu"):
        check_fittable(law, table, requested=["gamma"])
    check_fittable(law.with_priors({"nu": "fixed(0.2)"}), table, requested=["gamma"])


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_files_read_back_the_same_and_rows_keep_their_numbers(tmp_path, suffix):
    table, path = good(), tmp_path / f"runs.{suffix}"
    table.to_csv(path, index=False) if suffix == "csv" else table.to_parquet(path)
    runs = bayeslaw.read_runs(path, where="ptpp <= 31")
    assert list(runs.index) == [int(i) + 1 for i in table.index[table["ptpp"] <= 31]]
    np.testing.assert_array_equal(runs["D"], table.loc[table["ptpp"] <= 31, "D"])


def test_where_can_leave_out_what_would_be_refused():
    spoiled = spoil("loss", 3, "crashed")(good())
    assert len(bayeslaw.read_runs(spoiled, where="loss == loss")) == 23


def test_own_column_names_are_mapped_and_a_near_miss_is_named():
    odd = good().rename(columns={"N": "params", "loss": "val_loss"})
    runs = bayeslaw.read_runs(odd, columns={"params": "N", "val_loss": "loss"})
    assert {"N", "loss"} <= set(runs)
    odd = bayeslaw.read_runs(good().rename(columns={"ptpp": "PTPP"}))
    says = r"is it 'PTPP'\? write --column .ptpp=PTPP"
    with pytest.raises(RunTableError, match=says):
        check_fittable(bayeslaw.law("ptpp-floor"), odd)


@pytest.mark.parametrize(
    ("content", "says"), [(None, "no such file"), ("", "cannot be read")]
)
def test_unreadable_files_say_so(tmp_path, content, says):
    path = tmp_path / "runs.csv"
    if content is not None:
        path.write_text(content)
    with pytest.raises(RunTableError, match=says):
        bayeslaw.read_runs(path)


def test_exports_of_trackers_are_read_as_they_are():
    """W&B, MLflow: prefixes go, unless the table has the column itself or two columns mean it."""
    export = pd.DataFrame({
        "Name": ["a", "b"], "config.N": ["100M", "1B"], "params.D": [1e9, 2e9], "metrics.loss": [3.0, 2.5],
        "summary/step": [10, 20], "config.step": [1, 2], "tags.run": ["x", "y"], "config.domain": ["t", "t"],
    })  # fmt: skip
    runs = bayeslaw.read_runs(export.assign(domain="source"))
    assert runs["N"].tolist() == [1e8, 1e9]
    assert runs["D"].tolist() == [1e9, 2e9]
    assert runs["loss"].tolist() == [3.0, 2.5]
    assert runs["run"].tolist() == ["x", "y"]
    assert runs["domain"].tolist() == ["source"] * 2
    assert "step" not in runs  # two columns mean it


# -- people's tables -------------------------------------------------------------------------------------------------


def test_other_units_are_multiplied():
    table = good()
    odd = table.assign(billions=table["D"] / 1e9, **{"mix %": 100 * table["replay"]})
    columns = {"billions*1e9": "D", "mix % / 100": "replay"}
    runs = bayeslaw.read_runs(odd.drop(columns=["D", "replay"]), columns=columns)
    np.testing.assert_allclose(runs["D"], table["D"])
    np.testing.assert_allclose(runs["replay"], table["replay"])
    odd = table.rename(columns={"loss": "eval/2"})
    named = bayeslaw.read_runs(odd, columns={"eval/2": "loss"})
    assert (named["loss"] == table["loss"].to_numpy()).all()


def test_a_column_read_in_other_units_goes_but_steps_stay_where_they_are():
    table = good().assign(billions=lambda t: t["D"] / 1e9).drop(columns="D")
    runs = bayeslaw.read_runs(table, columns={"billions*1e9": "D"})
    assert "billions" not in runs
    steps = good().assign(step=lambda t: t["D"] / 1e6).drop(columns="D")
    runs = bayeslaw.read_runs(steps, columns={"step*1e6": "D"})
    np.testing.assert_allclose(runs["step"], good()["D"] / 1e6)
    np.testing.assert_allclose(runs["D"], good()["D"])


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"Modle": "N"}, "did you mean 'Model'"),
        ({"N": "Model"}, "--column N=Model"),
        ({"Name*2": "N"}, "not numbers"),
    ],
)
def test_a_column_that_cannot_be_read_is_named(columns, says):
    table = good().rename(columns={"N": "Model"}).assign(Name="a")
    with pytest.raises(RunTableError, match=re.escape(says)):
        bayeslaw.read_runs(table, columns=columns)


def wide():
    """Both losses of a run in one row; the third run crashed before the source loss was measured."""
    losses = {"target_loss": 2.5, "source_loss": 1.9}
    losses |= {"source_loss_before": 1.8, "loss_before": 3.0}
    both = good().drop(columns="loss").assign(**losses)
    both.loc[2, "source_loss"] = np.nan
    return both


def test_both_losses_in_one_row_become_two_rows():
    """Each with its own loss before adaptation; an empty one has no row; a query may name the domain."""
    runs = bayeslaw.read_runs(wide())
    assert runs.index.is_unique
    assert runs.groupby("domain")["loss"].agg(["size", "first"]).to_dict() == {
        "size": {"source": 23, "target": 24}, "first": {"source": 1.9, "target": 2.5},
    }  # fmt: skip
    before = runs.groupby("domain")["loss_before"].first()
    assert before.to_dict() == {"source": 1.8, "target": 3.0}
    small = bayeslaw.read_runs(wide(), where="domain == 'source' and N < 2e8")
    assert len(small) == (wide()["N"].drop(2) < 2e8).sum()
    own = wide().assign(target_loss_before=2.9)
    own = bayeslaw.read_runs(own, where="domain == 'target'")
    assert (own["loss_before"] == 2.9).all()
    with pytest.raises(RunTableError, match="row 4, column 'loss'"):
        bayeslaw.read_runs(spoil("target_loss", 4, -1.0)(wide()))


def test_a_domain_column_keeps_both_losses_as_covariates():
    runs = bayeslaw.read_runs(wide().drop(index=2).assign(loss=2.2))
    assert len(runs) == 23
    assert {"target_loss", "source_loss"} <= set(runs)


def test_a_slash_in_a_name_survives_a_saved_fit(tmp_path):
    """A column of a tracker's export that no law reads."""
    runs = bayeslaw.simulate("chinchilla", seed=1).drop_duplicates(["N", "D"])
    table = runs[["N", "D", "loss"]].assign(**{"eval/en_loss": 2.0})
    fit = bayeslaw.fit(table, "chinchilla", preview=True, on_failure="ignore")
    again = bayeslaw.load(fit.save(tmp_path / "fit.nc"))
    assert list(again.runs) == ["N", "D", "loss", "eval/en_loss"]


def test_no_column_of_the_schema_is_offered_for_another():
    """A source loss before adaptation is not the target's."""
    table = bayeslaw.read_runs(good().assign(source_loss_before=1.9))
    with pytest.raises(RunTableError, match="needs column 'loss_before'") as raised:
        check_fittable(bayeslaw.law("state-target"), table)
    assert "rename" not in str(raised.value)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (999.9e6, "1B"),
        (999_499, "999k"),
        (8.14e9, "8.14B"),
        (0.5, "0.5"),
        (999.9, "1k"),
    ],
)
def test_counts_are_rounded_before_their_unit_is_chosen(count, text):
    assert format_count(count) == text

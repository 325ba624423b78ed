"""Run tables: one clear line for each thing that cannot be used, and columns under other names."""

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw import RunTableError, RunTableWarning
from bayeslaw._tables.fitting import check_fittable
from known.reading import refusal
from known.said import said_by


def good(n: int = 24) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    sizes = {"N": rng.choice([1e8, 3e8, 1e9], n), "D": rng.uniform(1e9, 1e11, n)}
    shares = {"replay": rng.choice([0.1, 0.2, 0.5], n)}
    stages = {"ptpp": rng.choice([15.0, 31, 60], n)}
    return pd.DataFrame(sizes | shares | stages | {"loss": 2.5})


def test_a_query_finds_a_size_as_it_is_written():
    """4.1 * 1e9 is 4099999999.9999995: N >= 4.1e9 left out cells of 4.1B."""
    table = pd.DataFrame({"N": ["4.1B", "410M"], "D": [8.2, 4.1], "loss": [2.2, 2.5]})
    columns = ["N=N", "D=D*1e9"]
    for query, row in (("N >= 4.1e9", 1), ("D == 8.2e9", 1), ("D == 4.1e9", 2)):
        runs = bayeslaw.read_runs(table, columns=columns, where=query)
        assert runs.index.tolist() == [row]


def spoiled(column, row, value):
    table = good().astype({column: object})
    table.loc[row - 1, column] = value
    return table


STARTED = good().assign(source_loss_before=1.9)


@pytest.mark.parametrize(
    ("table", "law", "says"),
    [
        (good().drop(columns="loss"), "ptpp-gate-floor", "column 'loss'"),
        (good().drop(columns="ptpp"), "ptpp-gate-floor", "needs column 'ptpp'"),
        (spoiled("loss", 7, "crashed"), "ptpp-gate-floor", "row 7, column 'loss'"),
        (spoiled("ptpp", 12, np.nan), "ptpp-gate-floor", "row 12, column 'ptpp'"),
        (good().iloc[:7], "ptpp-gate-floor", "7 rows for the"),
        (good().rename(columns={"ptpp": "PTPP"}), "ptpp-floor", "is it 'PTPP'? write --column \"ptpp=PTPP"),
        # a source loss before adaptation is not the target's
        (STARTED, "state-target", "needs column 'loss_before' "),
    ],
)  # fmt: skip
def test_a_table_that_a_law_cannot_be_fitted_to_is_refused_in_one_line(
    table, law, says
):
    with pytest.raises(RunTableError) as caught:
        check_fittable(bayeslaw.law(law), bayeslaw.read_runs(table))
    said = str(caught.value)
    assert says in said
    assert "\n" not in said
    assert "rename" not in said


BOTH = [good().assign(domain=name) for name in ("target", "source")]


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (good().assign(N=good()["N"] / 1e4), "--reference N="),
        (good().assign(replay=["34%", "0.5"] * 12), "mixes percent with fractions"),
        (pd.concat(BOTH), "runs of 2 domains are fitted as if of"),
    ],
)
def test_suspicious_tables_are_warned_about(table, says):
    runs, first = said_by(bayeslaw.read_runs, table)
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


def test_exports_of_trackers_are_read_as_they_are():
    """W&B, MLflow: prefixes go, unless the table has the column itself or two columns mean it."""
    export = pd.DataFrame({
        "Name": ["a", "b"], "config.N": ["100M", "1B"], "params.D": [1e9, 2e9], "metrics.loss": [3.0, 2.5],
        "summary/step": [10, 20], "config.step": [1, 2], "tags.run": ["x", "y"], "config.domain": ["t", "t"],
    })  # fmt: skip
    runs = bayeslaw.read_runs(export.assign(domain="source"))
    read = runs[["N", "D", "loss", "run", "domain"]].to_numpy().tolist()
    assert read == [[1e8, 1e9, 3.0, "x", "source"], [1e9, 2e9, 2.5, "y", "source"]]
    assert "step" not in runs  # two columns mean it


# -- people's tables -------------------------------------------------------------------------------------------------


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
    negative = wide()
    negative.loc[3, "target_loss"] = -1.0
    assert "row 4, column 'loss'" in refusal(negative)


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

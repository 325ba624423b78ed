"""The best model for a budget, against the closed form of Chinchilla's law."""

import json
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from bayeslaw import Costs, PlanError, RunTableError, Shape, load, optimum, plots
from bayeslaw._forecasts.optimum import parabola, sweeps_of
from bayeslaw._posteriors.posterior import Piece
from bayeslaw._report import figures
from bayeslaw.cli.app import app
from known import saved

TRUTH = {"E": 1.82, "A": 482.0, "B": 2085.0, "alpha": 0.348, "beta": 0.366}
DRAWS = 400


def chinchilla(v, x):
    size, data = x["N"] ** -v["alpha"], x["D"] ** -v["beta"]
    return jnp.log(v["E"] + v["A"] * size + v["B"] * data)


@dataclass(frozen=True, eq=False)
class Draws:
    """A posterior of given draws, without noise, and the table it says it was fitted to."""

    values: dict
    runs: pd.DataFrame | None = None
    warnings: tuple[str, ...] = ()
    name: str = "chinchilla"
    covariates: tuple[str, ...] = ("N", "D")

    def pieces(self):
        return (Piece(chinchilla, self.values, self.covariates),)

    def log_loss(self, runs, *, noise=False, seed=0):
        (piece,) = self.pieces()
        return piece.at({name: runs[name].to_numpy(float) for name in ("N", "D")})


def draws(sd=0.0, **given):
    rng = np.random.default_rng(0)
    values = {k: v * np.exp(sd * rng.standard_normal(DRAWS)) for k, v in TRUTH.items()}
    return Draws(values, **given)


def best_size(budget, v=TRUTH):
    """N* = G (C/6)^(beta/(alpha+beta)), G = (alpha A/(beta B))^(1/(alpha+beta)); Hoffmann
    2022, equation 4.
    """
    a, b = v["alpha"], v["beta"]
    G = (a * v["A"] / (b * v["B"])) ** (1 / (a + b))
    return G * (budget / 6) ** (b / (a + b))


def sweep_table(budgets=(1e19, 1e20, 1e21), spread=8.0, sizes=7, noise=0.0):
    rng = np.random.default_rng(1)
    rows = []
    for budget in budgets:
        middle = best_size(budget)
        for N in middle * spread ** np.linspace(-1, 1, sizes):
            D = budget / (6 * N)
            loss = TRUTH["E"] + TRUTH["A"] * N ** -TRUTH["alpha"]
            loss += TRUTH["B"] * D ** -TRUTH["beta"]
            rows.append((N, D, loss * np.exp(noise * rng.standard_normal())))
    return pd.DataFrame(rows, columns=["N", "D", "loss"])


def test_it_is_the_closed_form():
    best = optimum(draws(), [1e19, 1e21, 1e23])
    for row in best.rows:
        assert row["N"] == pytest.approx(best_size(row["budget"]), rel=2e-3)
        assert row["D"] == pytest.approx(row["budget"] / (6 * row["N"]), rel=1e-6)
    share = TRUTH["beta"] / (TRUTH["alpha"] + TRUTH["beta"])
    assert best.exponent["median"] == pytest.approx(share, abs=1e-3)


def test_intervals_are_those_of_the_draws_own_optima():
    posterior = draws(sd=0.02)
    best = optimum(posterior, [1e21], prob="80%")  # as `forecast` reads it
    assert best.prob == 0.8
    each = best_size(1e21, posterior.values)
    low, middle, high = np.quantile(each, [0.1, 0.5, 0.9])
    row = best.rows[0]
    found = [row["N_low"], row["N"], row["N_high"]]
    assert found == pytest.approx([low, middle, high], rel=5e-3)
    assert row["tokens_per_parameter_low"] < row["tokens_per_parameter"]


@pytest.mark.parametrize("served", [2e12, 5e13, 2e14])
def test_served_tokens_make_it_smaller(served):
    """Once 2 N of each served token are paid, too, by brute force: also where serving
    takes nearly all, so that tokens run out within a step of the search.
    """
    budget = 1e23
    best = optimum(draws(), [budget], served_tokens=served).rows[0]
    assert best["refused"] is None
    N = np.exp(np.linspace(np.log(1e8), np.log(1e11), 200_001))
    D = budget / (6 * N) - served / 3
    N, D = N[D > 0], D[D > 0]
    loss = (
        TRUTH["E"]
        + TRUTH["A"] * N ** -TRUTH["alpha"]
        + TRUTH["B"] * D ** -TRUTH["beta"]
    )
    assert best["N"] == pytest.approx(N[loss.argmin()], rel=5e-3)
    assert best["D"] == pytest.approx(D[loss.argmin()], rel=2e-2)
    assert best["N"] < best_size(budget)


def test_a_budget_of_a_few_tokens_is_no_error():
    """It pays a token of small models, and a part of one of larger ones."""
    assert "still falling" in optimum(draws(), [1e10]).rows[0]["refused"]


def test_money_is_flops_at_a_price():
    costs = Costs(hardware="64xH100", mfu=0.4, price=2.5)
    rate = 64 * 989e12 * 0.4 * 3600 / (64 * 2.5)  # FLOPs for one unit of money
    in_money = optimum(draws(), [10_000], costs=costs)
    in_flops = optimum(draws(), [10_000 * rate])
    assert in_money.unit == "money"
    assert in_money.rows[0]["N"] == pytest.approx(in_flops.rows[0]["N"])
    experts = Costs(shapes=[Shape(active=1e9)])
    assert optimum(draws(), [1e21], costs=experts).rows[0]["refused"]


def test_a_valley_far_from_what_was_measured_is_not_its_optimum():
    """A misfit far outside the table may be lower than the law's own minimum."""

    class Strange(Draws):
        def log_loss(self, runs, *, noise=False, seed=0):
            log_loss = super().log_loss(runs, noise=noise, seed=seed)
            return log_loss - 9.0 * (runs["N"].to_numpy() < 3e6)

    runs = sweep_table()
    strange = Strange(draws().values, runs)
    assert optimum(strange, [1e21]).rows[0]["N"] == pytest.approx(
        best_size(1e21), rel=2e-3
    )


def test_a_minimum_at_an_edge_is_refused_in_words():
    """Of a law in which data hardly matter, the best is ever larger."""
    posterior = draws()
    posterior.values["B"] = np.full(DRAWS, 1e-12)
    best = optimum(posterior, [1e21])
    assert best.rows[0]["N"] is None
    assert "still falling at the largest size" in best.sentence()
    assert best.table()["N"].tolist() == ["-"]


# -- sweeps ----------------------------------------------------------------------------


def test_sweeps_are_found_by_compute():
    found = sweeps_of(sweep_table())
    assert [s.attrs["flops"] for s in found] == pytest.approx([1e19, 1e20, 1e21])
    assert sweeps_of(sweep_table(sizes=4)) == []


def test_a_parabola_is_of_runs_like_those_asked_for():
    """Of sweeps on two corpora it takes one; worse losses on the other move no vertex."""
    runs = sweep_table([1e20]).assign(U=1e10)
    other = runs.assign(U=1e9, loss=runs["loss"] + runs["N"] ** 0.01)
    posterior = draws(runs=pd.concat([runs, other]), covariates=("N", "D", "U"))
    best = optimum(posterior, [1e20], covariates={"U": 1e10})
    assert best.parabolas == [parabola(sweeps_of(runs)[0])]
    assert optimum(posterior, [1e20], covariates={"U": 5e9}).parabolas == []


def test_a_parabola_finds_the_minimum_within_its_own_uncertainty():
    """In 90% of noisy sweeps, give or take what 200 of them may differ by; the law's curve
    is nearly one within a factor of two of its minimum.
    """
    rng = np.random.default_rng(0)
    (clean,) = sweeps_of(sweep_table([1e20], spread=2.0, sizes=12))
    inside = []
    for _ in range(200):
        noisy = clean.copy()
        noisy["loss"] *= np.exp(1e-3 * rng.standard_normal(len(clean)))
        row = parabola(noisy)
        if row["refused"] is None:
            inside.append(row["N_low"] <= best_size(1e20) <= row["N_high"])
    assert len(inside) > 150
    assert 0.84 < np.mean(inside) < 0.96


def test_a_sweep_with_its_minimum_at_an_edge_is_refused():
    (sweep,) = sweeps_of(sweep_table([1e20]))
    upper = sweep[sweep["N"] > 1.5 * best_size(1e20)].copy()
    upper.attrs = sweep.attrs
    row = parabola(upper)
    assert "minimum at an edge, its smallest size" in row["refused"]
    assert row["N"] is None


def test_seven_rows_are_told_what_they_cannot_carry():
    few = optimum(draws(runs=sweep_table([1e20])), [1e21])
    assert "7 rows carry no optimum of their own" in few.warnings[0]
    assert "a third budget would tell" in few.warnings[1]
    assert optimum(draws(runs=sweep_table()), [1e21]).warnings == []


def test_budgets_are_the_table_s_by_default():
    best = optimum(draws(runs=sweep_table()))
    assert [r["budget"] for r in best.rows] == pytest.approx([1e19, 1e20, 1e21, 1e22])
    assert len(best.parabolas) == 3


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"budgets": [-1]}, "budget must be a positive number"),
        ({"budgets": None}, "give the budgets, in FLOPs"),
        ({"budgets": [1e20], "served_tokens": 1e15}, "pays for no model"),
        ({"budgets": [2e4]}, r"2e\+04 FLOPs \(of money with a price.*\) pays for no"),
        ({"budgets": [1e20], "prob": 2}, r"prob 2 is 200%; write 2% or 0.02"),
        ({"budgets": [1e20], "prob": "likely"}, "prob must be a probability"),
        ({"budgets": [1e20], "covariates": {"N": 1e9}}, "covariates cannot set 'N'"),
        ({"budgets": [1e20], "covariates": {"D": 1e9}}, "covariates cannot set 'D'"),
        (
            {"budgets": [1e20], "covariates": {"lr": 1}},
            "no law reads the covariate 'lr'",
        ),
    ],
)
def test_questions_that_make_no_sense_are_refused(asked, says):
    budgets = asked.pop("budgets")
    with pytest.raises(PlanError, match=says):
        optimum(draws(), budgets, **asked)


def test_it_takes_a_file_and_one_budget(tmp_path):
    path = saved.save_fit(tmp_path / "fit.nc")
    assert optimum(path, 1e21).rows == optimum(load(path), [1e21]).rows


def test_budgets_may_be_a_column_of_a_table():
    """A Series is several budgets; so is an array, and a number of numpy is one."""
    budgets = pd.Series([1e20, 1e21])
    rows = optimum(draws(), [1e20, 1e21]).rows
    assert optimum(draws(), budgets).rows == rows
    assert optimum(draws(), budgets.to_numpy()).rows == rows
    assert optimum(draws(), budgets.to_numpy()[0]).rows == rows[:1]


def test_a_law_that_reads_more_says_so():
    with pytest.raises(RunTableError, match="reads 'replay', too: give its value"):
        optimum(draws(covariates=("N", "D", "replay")), [1e20])


def test_the_picture_has_curves_runs_and_optima():
    from matplotlib.figure import Figure

    runs = sweep_table()
    ax = plots.isoflops(Figure().subplots(), optimum(draws(runs=runs)), runs)
    assert ax.get_xscale() == "log"
    dots = [line for line in ax.lines if line.get_marker() == "o"]
    assert sum(len(line.get_xdata()) for line in dots) == len(runs)
    assert len([line for line in ax.lines if line.get_marker() == "*"]) == 4


def test_at_the_command_line(tmp_path, monkeypatch):
    import bayeslaw

    posterior = draws(runs=sweep_table())
    monkeypatch.setattr(bayeslaw, "load", lambda *a, **k: posterior)
    picture = tmp_path / "optimum.png"
    words = [
        "optimum",
        "fit.nc",
        "--budget",
        "1e21",
        "--picture",
        str(picture),
        "--json",
    ]
    done = CliRunner().invoke(app, words)
    record = json.loads(done.stdout)
    assert record["rows"][0]["N"] == pytest.approx(best_size(1e21), rel=2e-3)
    assert picture.stat().st_size > 5000
    shown = CliRunner().invoke(app, ["optimum", "fit.nc"]).stdout
    assert "The best N grows as the budget to the 0.513" in shown


def test_the_page_shows_it_where_a_table_is_sweeps_without_replay():
    runs = sweep_table()
    posterior = draws(sd=0.002, runs=runs)
    shown = figures.best_sizes(posterior, runs, "nats per byte")
    assert shown is not None
    told = " ".join(optimum(posterior).sentence().splitlines())
    assert shown.caption.endswith(told)
    assert figures.best_sizes(posterior, runs.assign(replay=0.2), "nats") is None
    assert figures.best_sizes(draws(), runs.iloc[:3], "nats") is None

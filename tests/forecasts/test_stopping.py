"""When to stop a run that repeats its data, against the law's own minimum."""

import json
import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from scipy.optimize import brentq
from typer.testing import CliRunner

import bayeslaw
from bayeslaw import RunTableError, plots
from bayeslaw._posteriors.constants import LawAt
from bayeslaw.cli.app import app

LAW = "data-constrained-overfitting"
KNOWN = dict(bayeslaw.law(LAW).plausible)
RUN = {"N": 1e9, "U": 2e9}
WRITTEN = f"{LAW}@{','.join(f'{name}={value}' for name, value in KNOWN.items())}"


@dataclass(frozen=True, eq=False)
class Fitted(LawAt):
    """A law at constants that says which table it was fitted to."""

    runs: pd.DataFrame | None = None


def doubtful():
    sd = {"P": 0.1 * KNOWN["P"], "delta": 0.1}
    return bayeslaw.law_at(LAW, KNOWN, sd=sd, sigma=0.01)


def loss_at(D, N, U, p=KNOWN):
    penalty = p["P"] * (D / U - 1) ** p["delta"] * (N / U) ** p["kappa"]
    return p["E"] + p["A"] / N ** p["alpha"] + p["B"] / D ** p["beta"] + penalty


def test_the_stop_is_where_the_law_s_slope_is_zero():
    def slope(D, N, U, p=KNOWN):
        repeats = (D / U - 1) ** (p["delta"] - 1) / U * (N / U) ** p["kappa"]
        return p["P"] * p["delta"] * repeats - p["beta"] * p["B"] * D ** (
            -p["beta"] - 1
        )

    known = bayeslaw.law_at(LAW, KNOWN)
    for N, U in ((1e8, 1e8), (4e9, 1e9)):
        best = bayeslaw.best_stop(known, {"N": N, "U": U, "D": 3 * U})
        root = brentq(slope, 1.0001 * U, 1e3 * U, args=(N, U))
        assert best.verdict == "stop"
        np.testing.assert_allclose(best.D, root, rtol=2e-3)
        assert best.best_D["median"] == pytest.approx(best.D, rel=1e-6)
        assert best.loss["median"] == pytest.approx(loss_at(root, N, U), rel=1e-7)
        three = next(row for row in best.rows if row["D"] == 3 * U)
        change = loss_at(3 * U, N, U) - loss_at(root, N, U)
        assert three["change"] == pytest.approx(change, abs=1e-6)


def test_it_has_the_least_expected_loss_and_regret_is_what_knowing_would_save():
    posterior = doubtful()
    best = bayeslaw.best_stop(posterior, RUN)
    tokens = np.geomspace(10, 200, 2001) * RUN["U"]
    losses = np.exp(posterior.log_loss(pd.DataFrame({**RUN, "D": tokens})))
    at = losses.mean(axis=0).argmin()
    np.testing.assert_allclose(best.D, tokens[at], rtol=5e-3)
    saved = losses[:, at].mean() - losses.min(axis=1).mean()
    assert best.regret == pytest.approx(saved, rel=1e-2)
    low, high = np.quantile(tokens[losses.argmin(axis=1)], [0.05, 0.95])
    assert best.best_D["low"] == pytest.approx(low, rel=5e-3)
    assert best.best_D["high"] == pytest.approx(high, rel=5e-3)
    assert best.verdict == "unknown"  # 34 to 58 epochs
    assert best.new_run["low"] < best.loss["low"]
    lower = {round(row["epochs"]): row["probability"] for row in best.rows}
    assert lower[16] < 0.1


def test_a_law_without_a_minimum_is_told():
    law = bayeslaw.law("data-constrained")
    best = bayeslaw.best_stop(bayeslaw.law_at(law, law.plausible), RUN)
    assert best.verdict == "unknown"
    assert best.no_minimum == 1
    assert best.best_D["median"] == math.inf
    assert f"--law {LAW}" in best.sentence()


def test_a_minimum_beyond_the_table_is_unknown():
    known = bayeslaw.law_at(LAW, KNOWN)
    epochs = bayeslaw.best_stop(known, RUN).epochs
    for seen, verdict in ((0.8, "unknown"), (1.2, "stop")):
        table = pd.DataFrame([{**RUN, "D": seen * epochs * RUN["U"], "loss": 2.5}])
        best = bayeslaw.best_stop(Fitted(known.law, known.values, (), table), RUN)
        assert best.verdict == verdict
        assert ("go on" in best.reason) == (verdict == "unknown")
        assert best.epochs == pytest.approx(epochs, rel=1e-3)


def test_columns_that_are_missing_are_named():
    law = bayeslaw.law_at(LAW, KNOWN)
    with pytest.raises(RunTableError, match=r"depends on U, too: give N=\.\.\.,U="):
        bayeslaw.best_stop(law, {"N": 1e9})
    tuned = bayeslaw.law("anneal")
    with pytest.raises(RunTableError, match="a law in D"):
        bayeslaw.best_stop(bayeslaw.law_at(tuned, tuned.plausible), RUN)


def test_one_run_s_own_points_tell_its_stop_once_they_pass_it():
    """Before, the answer is that it is unknown."""
    rng = np.random.default_rng(3)
    N, U = 1e8, 2e8
    known = bayeslaw.best_stop(bayeslaw.law_at(LAW, KNOWN), {"N": N, "U": U})
    for seen, verdict in ((0.5, "unknown"), (1.5, "stop")):
        D = np.linspace(0.05, 1, 30) * seen * known.D
        loss = loss_at(np.maximum(D, U), N, U) * np.exp(0.001 * rng.normal(size=30))
        curve = pd.DataFrame({"run": "one", "N": N, "U": U, "D": D, "loss": loss})
        with pytest.warns(bayeslaw.RunTableWarning, match="one level only"):
            fit = bayeslaw.fit(curve, LAW, on_failure="warn")
        best = bayeslaw.best_stop(fit, {"N": N, "U": U})
        assert best.verdict == verdict
    np.testing.assert_allclose(best.D, known.D, rtol=0.1)


def test_the_command_answers_from_constants_and_draws_it(tmp_path):
    path = tmp_path / "stop.png"
    words = ["optimum", WRITTEN, "--at", "N=1B,U=2B,D=60B"]
    done = CliRunner().invoke(app, [*words, "--picture", str(path), "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["verdict"] == "stop"
    assert 60e9 in [row["D"] for row in told["rows"]]
    assert path.stat().st_size > 0
    assert "STOP at" in CliRunner().invoke(app, words).output
    refused = CliRunner().invoke(app, [*words, "--budget", "1e21"]).exception
    assert isinstance(refused, RunTableError)
    assert "without budgets" in str(refused)


@pytest.mark.parametrize(
    "words",
    [
        "optimum {} --at N=1B,U=2B,{}",
        "recipes {} --at N=1B,D=2B,U=1B,{} --at N=1B,D=3B,U=1B",
    ],
)
def test_what_no_law_reads_of_a_typed_run_is_told(words):
    typed = words.format(WRITTEN, "warmup=3").split()
    warned = CliRunner().invoke(app, typed).exception  # in tests warnings are errors
    assert "--at warmup: no law reads this" in str(warned)
    typed = words.format(WRITTEN, "ptpp=3").split()
    assert CliRunner().invoke(app, typed).exit_code == 0


def test_the_picture_has_the_stop_its_interval_and_the_points():
    best = bayeslaw.best_stop(doubtful(), RUN)
    rows = [{**RUN, "D": 2e9}, {**RUN, "D": 4e9}, {**RUN, "D": 4e9, "N": 2e9}]
    runs = pd.DataFrame(rows).assign(loss=2.8)
    ax = plots.stopping(Figure().subplots(), best, runs)
    curve, dots, bar, star = ax.get_lines()
    assert curve.get_xdata().min() < best.epochs < curve.get_xdata().max()
    np.testing.assert_allclose(dots.get_xdata(), [1, 2])
    ends = np.array([best.best_D["low"], best.best_D["high"]]) / RUN["U"]
    np.testing.assert_allclose(bar.get_xdata(), ends)
    assert star.get_xdata() == [best.epochs]

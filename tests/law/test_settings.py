"""A law with an optimum of a setting, ``chinchilla+lr``: what it says, from which table,
and that a fit finds the optimum that a simulated sweep has.
"""

import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import bayeslaw
from bayeslaw import LawError, RunTableError, RunTableWarning
from bayeslaw._law.recipe import law_of, recipe_of
from bayeslaw._posteriors.fits.candidates import candidate_laws, default_laws
from bayeslaw._tables import fitting
from bayeslaw.cli.app import app

E, A, B, ALPHA, BETA = 1.8, 480.0, 2085.0, 0.35, 0.37
SIZES, TOKENS = (1e8, 3e8, 1e9), (2e9, 8e9, 3.2e10)
# fits of the law alone, which say that they leave out how far it misses a new size
pytestmark = pytest.mark.filterwarnings("ignore:N = 4B is 4 times the largest fitted")

GOAL = {"N": 4e9, "D": 1.28e11}


def tuned_loss(N, D):
    return E + A / N**ALPHA + B / D**BETA


def best_rate(N, D):
    """Moves with size to the power -.3 and with tokens to the power .1."""
    return 1.5e-3 * (N / 3e8) ** -0.3 * (D / 8e9) ** 0.1


def cost(N):
    """Nats of a factor of two off the best rate: more for larger models."""
    return 0.02 * (N / 3e8) ** 0.1


def sweep(noise=2e-3, seed=0):
    """Nine cells by five rates, a factor of two apart, that hold the best one."""
    rng = np.random.default_rng(seed)
    rows = []
    for N in SIZES:
        for D in TOKENS:
            steps = np.round(np.log2(best_rate(N, D) / 1e-3)) + np.arange(-2, 3)
            for rate in 1e-3 * 2**steps:
                loss = tuned_loss(N, D)
                loss += cost(N) * np.log2(rate / best_rate(N, D)) ** 2
                loss *= np.exp(noise * rng.standard_normal())
                rows.append((N, D, rate, loss))
    return pd.DataFrame(rows, columns=["N", "D", "lr", "loss"])


@pytest.fixture(scope="module")
def fit():
    return bayeslaw.fit(
        sweep(), "chinchilla+lr", discrepancy=False, preview=True, seed=1
    )


def test_at_the_best_setting_it_is_the_law():
    """And off it, it costs what it says, by powers of size and tokens."""
    law = bayeslaw.find_law("chinchilla+lr", sweep())
    of_base = {"E": E, "A": A, "B": B, "alpha": ALPHA, "beta": BETA}
    of_rate = {"lr_best": 1.5e-3, "lr_best_N": -0.3, "lr_best_D": 0.1}
    of_cost = {"lr_cost": 0.02, "lr_cost_N": 0.1, "lr_cost_D": 0.0}
    values = law.from_paper(of_base | of_rate | of_cost)
    N, D = np.array([1e8, 1e9]), np.array([2e9, 3.2e10])
    best = best_rate(N, D)
    at_best = law.loss({"N": N, "D": D, "lr": best}, values)
    np.testing.assert_allclose(at_best, tuned_loss(N, D), rtol=1e-12)
    at_twice = law.loss({"N": N, "D": D, "lr": 2 * best}, values)
    np.testing.assert_allclose(at_twice - at_best, cost(N), rtol=1e-9)
    assert {k: float(v) for k, v in law.to_paper(values).items()} == pytest.approx(
        of_base | of_rate | of_cost
    )


def test_the_fit_finds_the_optimum(fit):
    """99% intervals hold each parameter of the term and the tuned loss at the goal, whose
    best rate lies within 10%.
    """
    assert fit.diagnostics["khat"] < 0.7
    truth = {"lr_best": 1.5e-3, "lr_best_N": -0.3, "lr_best_D": 0.1}
    truth |= {"lr_cost": 0.02, "lr_cost_N": 0.1, "lr_cost_D": 0.0}
    table = fit.parameters(prob=0.99)
    for name, value in truth.items():
        assert table.loc[name, "low"] <= value <= table.loc[name, "high"], name
    best = bayeslaw.best_settings(
        None, fit, GOAL, source_weight=0.0, ranges={"lr": (1e-5, 1e-1)}
    )["lr"]
    assert best.best == pytest.approx(best_rate(**GOAL), rel=0.1)
    low, high = best.interval
    assert low < best_rate(**GOAL) < high
    said = best.statement()
    assert said.startswith("The target loss is expected to be least at peak learning")
    row = bayeslaw.forecast(fit, pd.DataFrame([GOAL | {"lr": best.best}])).iloc[0]
    assert row["law_low"] <= tuned_loss(**GOAL) <= row["law_high"]
    assert row["median"] == pytest.approx(tuned_loss(**GOAL), rel=0.005)


def test_chains_agree_with_the_preview(fit):
    """Sampled in a few steps a draw, with hardly a divergence: whether one draw in 4,000
    is one depends on how the machine rounds.
    """
    chains = bayeslaw.fit(sweep(), "chinchilla+lr", discrepancy=False, seed=1)
    assert chains.diagnostics["rhat"] < 1.01
    assert chains.diagnostics["divergent_share"] <= 0.001
    assert chains.diagnostics["steps_per_draw"] < 40
    ours, theirs = chains.parameters(), fit.parameters()
    away = (ours["mean"] - theirs["mean"]).abs() / theirs["sd"]
    assert away.max() < 0.2


def test_priors_say_where_they_are_from(fit):
    """And what the sweep narrowed: the optimum, hardly from its prior."""
    sources = {name: prior.source for name, prior in fit.law.priors.items()}
    assert "the middle of the sweep, at N 3e+08, D 8e+09" in sources["lr_best"]
    assert "Li 2025" in sources["lr_best_N"]
    assert fit.narrowed()["whose"]["lr_best"] == "runs"


def test_a_saved_fit_has_its_law(fit, tmp_path):
    """Read back without the table that said where the sweep's middle is."""
    again = bayeslaw.Fit.load(fit.save(tmp_path / "fit.nc"))
    assert again.law.priors == fit.law.priors
    row = pd.DataFrame([GOAL | {"lr": 1e-3}])
    pd.testing.assert_frame_equal(
        bayeslaw.forecast(again, row), bayeslaw.forecast(fit, row)
    )


def test_a_law_by_file_takes_it_too(tmp_path):
    """Its recipe runs the file only where it may, and if it is as it was."""
    import bayeslaw.models

    text = Path(bayeslaw.models.__path__[0], "dcpt.py").read_text()
    path = tmp_path / "mine.py"
    path.write_text(text.replace('"dcpt"', '"mine"'))
    law = bayeslaw.find_law(f"{path}+batch")
    assert law.name == "mine+batch"
    assert law.covariates[-1] == "batch"
    recipe = recipe_of(law)
    with pytest.raises(LawError, match="trust_law_file"):
        law_of(recipe)
    assert law_of(recipe, trust_law_file=True).priors == law.priors
    path.write_text(path.read_text() + "\n# edited\n")
    with pytest.raises(LawError, match="was edited"):
        law_of(recipe, trust_law_file=True)


@pytest.mark.parametrize(
    ("change", "error", "reason"),
    [
        ({"lr": None}, RunTableError, r"write --column \"lr=learning_rate\""),
        ({"lr": 0.0}, LawError, "must hold numbers above 0"),
        ({"lr": -1.0}, RunTableError, "column 'lr': -1 is negative"),
        ({"lr": "high"}, RunTableError, "column 'lr': 'high' is not a number"),
    ],
)
def test_refused_in_one_line(change, error, reason):
    table = sweep().assign(**change)
    if change["lr"] is None:
        table = table.rename(columns={"lr": "learning_rate"})
    with pytest.raises(error, match=reason) as refusal:
        bayeslaw.fit(table, "chinchilla+lr", preview=True)
    assert "\n" not in str(refusal.value)
    with pytest.raises(LawError, match="did you mean 'chinchilla'"):
        bayeslaw.find_law("chinchila+lr", table)
    with pytest.raises(LawError, match="reads 'D' already"):
        bayeslaw.find_law("chinchilla+D", table)


def test_a_sweep_of_one_size_keeps_the_prior_of_what_it_cannot_tell():
    runs = sweep()
    runs = runs[runs["N"] == 3e8]
    options = {"priors": {"alpha": "fixed(0.35)"}, "preview": True}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        fit = bayeslaw.fit(runs, "chinchilla+lr", on_failure="ignore", **options)
    assert any("lr_best_N" in str(w.message) for w in said)
    moves = fit.posterior["lr_best_N"]
    assert moves.std() > 0.5 * fit.law.priors["lr_best_N"].args[1]


def test_on_the_command_line(tmp_path):
    """Its priors with their sources, a fit, and a forecast at a rate."""
    shown = CliRunner().invoke(app, ["laws", "chinchilla+lr"])
    assert shown.exit_code == 0
    assert "lr_best_N" in shown.stdout
    sweep().to_csv(tmp_path / "runs.csv", index=False)
    words = ["fit", str(tmp_path / "runs.csv"), "--law", "chinchilla+lr", "--preview"]
    words += ["--plain", "--accept-diagnostics", "-o", str(tmp_path / "fit.nc")]
    fitted = CliRunner().invoke(app, words)
    assert fitted.exit_code == 0, fitted.output
    assert "lr_best " in fitted.stdout
    pd.DataFrame([GOAL | {"lr": 1e-3}]).to_csv(tmp_path / "big.csv", index=False)
    words = ["forecast", str(tmp_path / "fit.nc"), str(tmp_path / "big.csv")]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert "chinchilla+lr" in CliRunner().invoke(app, ["fit", "--help"]).stdout


# -- two settings ------------------------------------------------------------------------


def sweep_of_two(noise=2e-3, seed=0):
    """The same cells and rates, each at three batches around one that grows as D^.6."""
    table = sweep(noise, seed)
    parts = []
    for step in (-1, 0, 1):
        batch = 256 * 2.0 ** (np.round(0.6 * np.log2(table["D"] / TOKENS[1])) + step)
        off = np.log2(batch / (256 * (table["D"] / TOKENS[1]) ** 0.6))
        parts.append(table.assign(bs=batch, loss=table["loss"] + 0.01 * off**2))
    return pd.concat(parts, ignore_index=True)


def test_two_settings_have_an_optimum_each(tmp_path):
    """How the best rate and batch move with N and D; a saved fit is read with both."""
    fit = bayeslaw.fit(
        sweep_of_two(), "chinchilla+lr+bs", discrepancy=False, preview=True, seed=1
    )
    found = fit.parameters()
    assert found.loc["bs_best_D", "low"] < 0.6 < found.loc["bs_best_D", "high"]
    assert abs(found.loc["bs_best_N", "mean"]) < 0.1
    # the best of both at a size that nobody swept is that of each draw's powers
    ranges = {"lr": (1e-5, 1e-1), "bs": (16.0, 1e5)}
    best = bayeslaw.best_settings(None, fit, GOAL, source_weight=0.0, ranges=ranges)
    truth = {"lr": best_rate(**GOAL), "bs": 256 * (GOAL["D"] / 8e9) ** 0.6}
    for name, value in truth.items():
        at = fit.posterior[f"{name}_best"]
        for c, middle in (("N", 3e8), ("D", 8e9)):
            at = at * (GOAL[c] / middle) ** fit.posterior[f"{name}_best_{c}"]
        np.testing.assert_allclose(np.sort(best[name].draws), np.sort(at.ravel()), 1e-3)
        assert best[name].best == pytest.approx(value, rel=0.1)
        assert 0.005 < np.mean(best[name].draws < value) < 0.995
    with pytest.raises(bayeslaw.PlanError, match="no law here reads wd"):
        bayeslaw.best_settings(
            None, fit, GOAL, source_weight=0.0, ranges={**ranges, "wd": (0.01, 1.0)}
        )
    one = bayeslaw.fit(
        sweep(), "chinchilla+lr", discrepancy=False, preview=True, seed=1
    )
    for name in ("lr_best_N", "lr_best_D"):
        row = one.parameters().loc[name]
        assert row["low"] < found.loc[name, "mean"] < row["high"]
    again = bayeslaw.Fit.load(fit.save(tmp_path / "fit.nc"))
    assert again.law.parameters == fit.law.parameters
    new = sweep_of_two().head(2)
    assert bayeslaw.forecast(again, new).equals(bayeslaw.forecast(fit, new))


def test_a_law_that_may_be_off_finds_the_best_settings_as_well():
    """What it misses at a cell is common to its runs, and tells nothing of the settings."""
    ranges = {"lr": (1e-5, 1e-1), "bs": (16.0, 1e5)}
    plain, default = (
        bayeslaw.best_settings(None, fit, GOAL, source_weight=0.0, ranges=ranges)
        for fit in (
            bayeslaw.fit(sweep_of_two(), "chinchilla+lr+bs", preview=True, **options)
            for options in ({"discrepancy": False}, {})
        )
    )
    for name, alone in plain.items():
        assert default[name].best == pytest.approx(alone.best, rel=0.05)
        low, high = default[name].interval
        narrow_low, narrow_high = alone.interval
        assert high / low < (narrow_high / narrow_low) ** 1.5


TURN = -0.6  # octaves of the best batch for an octave of rate off its best


def known_turn():
    """A law of two settings at constants: 1.5e-3 and 300 at its reference run."""
    law = bayeslaw.find_law("chinchilla+lr+bs")
    constants = {**law.plausible, "E": E, "A": A, "B": B, "alpha": ALPHA, "beta": BETA}
    constants |= {"lr_best": 1.5e-3, "bs_best": 300.0, "bs_turn_lr": TURN}
    return law, bayeslaw.law_at(law, constants, draws=2)


@pytest.mark.parametrize("most", [1e-1, 0.75e-3])
def test_the_best_batch_turns_with_the_rate(most):
    """Both are at their best within the ranges; if rates end an octave too early, the
    batch is the best one at that rate.
    """
    law, posterior = known_turn()
    run = {c: law.reference[c] for c in ("N", "D")}
    ranges = {"lr": (1e-5, most), "bs": (16.0, 1e5)}
    best = bayeslaw.best_settings(
        None, posterior, run, source_weight=0.0, ranges=ranges
    )
    rate = min(1.5e-3, most)
    assert best["lr"].best == pytest.approx(rate, rel=2e-3)
    at_rate = 300 * (rate / 1.5e-3) ** TURN
    np.testing.assert_allclose(best["bs"].draws, at_rate, rtol=2e-3)


def test_ends_of_a_wide_range_are_told_on_its_logarithmic_scale():
    law, posterior = known_turn()
    run = {c: law.reference[c] for c in ("N", "D")}
    ranges = {"lr": (1e-6, 100.0), "bs": (16.0, 1e5)}
    best = bayeslaw.best_settings(
        None, posterior, run, source_weight=0.0, ranges=ranges
    )
    assert best["lr"].best == pytest.approx(1.5e-3, rel=2e-3)
    assert best["lr"].at_ends == (0, 0)


def test_a_law_of_an_earlier_version_is_refused_with_what_to_do():
    """Its origin does not say where the sweep ends."""
    recipe = recipe_of(bayeslaw.find_law("chinchilla+lr+bs"))
    assert law_of(recipe).tuned == ("lr", "bs")
    before = recipe["origin"].replace(', "swept": null', "")
    with pytest.raises(LawError, match="by an earlier version"):
        law_of({**recipe, "origin": before})


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("chinchilla+lr+bs", ("lr", "bs")),
        ("ptpp-floor + lr + bs + wd", ("lr", "bs", "wd")),
    ],
)
def test_settings_are_spelled_one_after_the_other(text, columns):
    law = bayeslaw.find_law(text)
    assert law.covariates[-len(columns) :] == columns
    assert law.name == "+".join([text.split("+")[0].strip(), *columns])


@pytest.mark.parametrize("text", ["chinchilla+lr+lr", "chinchilla+lr+bs+lr"])
def test_a_setting_is_named_once(text):
    with pytest.raises(LawError, match="reads 'lr' already"):
        bayeslaw.find_law(text)


# -- runs without the column of a setting ------------------------------------------------


def known_rate(**constants):
    """The law of the sweep at the constants from which it is simulated."""
    law = bayeslaw.find_law("chinchilla+lr", sweep())
    truth = {**law.plausible, "E": E, "A": A, "B": B, "alpha": ALPHA, "beta": BETA}
    truth |= {"lr_best": 1.5e-3, "lr_best_N": -0.3, "lr_best_D": 0.1}
    truth |= {"lr_cost": 0.02, "lr_cost_N": 0.1, "lr_cost_D": 0.0}
    return bayeslaw.law_at(law, {**truth, **constants}, draws=2)


def test_without_the_column_a_run_is_tuned():
    """The best rate of the first run was swept; that of the second lies two octaves above
    all rates, and it gets the largest.
    """
    largest = sweep()["lr"].max()
    far = (4 * largest / 1.5e-3) ** (1 / 0.1) * 8e9
    runs = pd.DataFrame({"N": [3e8, 3e8], "D": [8e9, far]})
    losses = np.exp(known_rate().log_loss(runs)[0])
    np.testing.assert_allclose(losses[0], tuned_loss(3e8, 8e9), rtol=1e-9)
    off = cost(3e8) * np.log2(best_rate(3e8, far) / largest) ** 2
    np.testing.assert_allclose(losses[1], tuned_loss(3e8, far) + off, rtol=1e-9)
    assert off == pytest.approx(0.02 * 2**2)
    given = runs.assign(lr=[best_rate(3e8, 8e9), largest])
    np.testing.assert_allclose(np.exp(known_rate().log_loss(given)[0]), losses, 1e-9)


def test_a_batch_that_is_not_named_suits_the_rate_that_is():
    """An octave off the best rate, the tuned batch is the one that turned with it: the
    run pays for its rate alone.
    """
    law, posterior = known_turn()
    run = pd.DataFrame([{c: law.reference[c] for c in ("N", "D")}])
    at_best = np.exp(posterior.log_loss(run)[0, 0])
    at_twice = np.exp(posterior.log_loss(run.assign(lr=3e-3))[0, 0])
    turned = run.assign(lr=3e-3, bs=300 * 2**TURN)
    np.testing.assert_allclose(at_twice, np.exp(posterior.log_loss(turned)[0, 0]))
    assert at_twice - at_best == pytest.approx(law.plausible["lr_cost"])


def test_a_forecast_and_a_best_size_need_no_setting(fit, tmp_path):
    """And are the same of a saved fit, which has no table's middle and ends to look up."""
    run = pd.DataFrame([GOAL])
    row = bayeslaw.forecast(fit, run).iloc[0]
    assert row["law_low"] <= tuned_loss(**GOAL) <= row["law_high"]
    again = bayeslaw.Fit.load(fit.save(tmp_path / "fit.nc"))
    pd.testing.assert_frame_equal(
        bayeslaw.forecast(again, run), bayeslaw.forecast(fit, run)
    )
    budget = 6 * GOAL["N"] * GOAL["D"]
    open_, fixed = (
        bayeslaw.optimum(known_rate(), [budget], covariates=covariates).rows[0]
        for covariates in (None, {"lr": 1e-5})
    )
    assert open_["loss"] < fixed["loss"]


def test_a_plan_leaves_the_setting_of_one_domain_open():
    """If laws of both domains read it, each would have its own best rate: it is asked
    for."""
    dcpt = bayeslaw.find_law("dcpt")
    source = bayeslaw.law_at(dcpt, dcpt.plausible, draws=2)
    swept = bayeslaw.find_law("dcpt+lr", sweep().assign(replay=0.1))
    posterior = bayeslaw.law_at(swept, swept.plausible, draws=2)
    question = {"N": 3e8, "max_target_loss": 4.0, "max_forgetting": 0.5}
    question |= {"baseline_loss": 2.0, "max_tokens": 1e12}
    plan = bayeslaw.plan(posterior, source, **question)
    base = bayeslaw.plan(source, source, **question)
    assert pytest.approx(base.D, rel=1e-6) == plan.D
    with pytest.raises(
        bayeslaw.PlanError, match=r"laws of target and forgetting read 'lr', and a run"
    ):
        bayeslaw.plan(posterior, posterior, **question)
    both = bayeslaw.plan(posterior, posterior, covariates={"lr": 1e-3}, **question)
    assert both.D > 0


@pytest.mark.parametrize(
    ("effect", "laws"),
    [
        (1.0, ["chinchilla+lr", "coupled+lr"]),
        (0.1, ["chinchilla", "coupled"]),
    ],
)
def test_the_default_laws_read_what_moves_losses_by_more_than_laws_miss(effect, laws):
    """A rate that costs 2% at an octave, and one that costs .2%."""
    runs = sweep(noise=1e-3)
    tuned = tuned_loss(runs["N"], runs["D"])
    runs["loss"] = tuned * (runs["loss"] / tuned) ** (3 * effect)
    assert default_laws(runs) == laws
    assert set(laws) <= set(candidate_laws(runs))
    assert default_laws(runs.head(24)) == ["chinchilla", "coupled"]
    # another setting is swept beside it, and has too few levels to be tuned with it
    beside = runs.assign(optimizer=["adam", "muon", "adam"] * 15)
    assert default_laws(beside) == ["chinchilla", "coupled"]


@pytest.mark.parametrize(
    ("name", "laws"),
    [
        ("η", ["chinchilla+η", "coupled+η"]),
        ("learning rate", ["chinchilla", "coupled"]),
        ("optim/lr", ["chinchilla", "coupled"]),
        ("lr+bs", ["chinchilla", "coupled"]),
    ],
)
def test_default_laws_of_any_name_of_a_setting_can_be_fitted(name, laws):
    """A law's name has words only; the warning has the option that makes one."""
    runs = sweep(noise=1e-3)
    tuned = tuned_loss(runs["N"], runs["D"])
    runs["loss"] = tuned * (runs["loss"] / tuned) ** 3
    runs = runs.rename(columns={"lr": name})
    assert default_laws(runs) == laws
    assert [bayeslaw.find_law(law, runs).name for law in laws] == laws
    review = bayeslaw.review(runs)
    assert review["laws"].verdict == "pass"
    assert review["settings"].verdict == ("pass" if name == "η" else "look")
    if name != "η":
        reason = review["settings"].reason
        typed = re.search(r"--column '?(\w+)=.*? --law '?NAME\+(\w+)'?$", reason)
        assert typed
        assert typed[1] == typed[2]
        renamed = bayeslaw.read_runs(runs, columns=[f"{typed[1]}={name}"])
        assert default_laws(renamed) == [f"{law}+{typed[1]}" for law in laws]


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"lr": 0.0}, "0 is not positive; lr is learning rate and must be above 0"),
        ({"lr": np.nan}, r"leave the column out \(runs then have the best\)"),
    ],
)
def test_a_setting_without_a_logarithm_is_refused(fit, setting, says):
    with pytest.raises(RunTableError, match=says):
        bayeslaw.forecast(fit, pd.DataFrame([GOAL | setting]))


def test_a_setting_under_another_name_is_told():
    """The forecast is of the best setting, not of that of the table."""
    law = bayeslaw.find_law("chinchilla+lr", sweep())
    named = pd.DataFrame([GOAL | {"learning_rate": 4e-3}])
    with pytest.warns(RunTableWarning, match='write --column "lr=learning_rate"'):
        assert list(fitting.covariates(law, named)) == ["N", "D"]


def test_the_default_average_says_which_setting_it_reads():
    runs = sweep(noise=1e-3)
    tuned = tuned_loss(runs["N"], runs["D"])
    runs["loss"] = tuned * (runs["loss"] / tuned) ** 3
    with pytest.warns(RunTableWarning, match=r"chinchilla\+lr, coupled\+lr read them"):
        average = bayeslaw.average(runs, on_failure="ignore", seed=0)
    row = bayeslaw.forecast(average, pd.DataFrame([GOAL])).iloc[0]
    assert row["low"] <= tuned_loss(**GOAL) <= row["high"]
    (finding,) = [f for f in bayeslaw.review(runs).checks if f.name == "settings"]
    assert finding.verdict == "pass"
    assert "a run without these columns" in finding.reason

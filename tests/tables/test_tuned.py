"""The tuned loss of each cell of a sweep: without the luck of the least of noisy runs."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from bayeslaw import RunTableError, RunTableWarning, tuned
from bayeslaw.cli.app import app
from known.reading import settings_said

CELLS = [(N, D) for N in (1e8, 3e8, 1e9) for D in (2e9, 8e9, 3.2e10)]
CURVATURE = 0.01


def sweep(noise=0.0, seed=0, levels=5, off=0.3):
    """Nine cells by a few rates; the best lies ``off`` steps from one of them."""
    rng = np.random.default_rng(seed)
    rows = []
    for N, D in CELLS:
        for step in np.arange(levels) - levels // 2:
            away = CURVATURE * ((step - off) * np.log(2)) ** 2
            loss = lowest(N, D) * np.exp(away + noise * rng.standard_normal())
            rows.append((N, D, 1e-3 * 2.0**step, loss))
    return pd.DataFrame(rows, columns=["N", "D", "lr", "loss"])


def lowest(N, D):
    return 1.8 + 480 / N**0.35 + 2085 / D**0.37


def test_without_noise_it_is_the_vertex():
    table = tuned(sweep(), "lr")
    truth = [lowest(N, D) for N, D in zip(table["N"], table["D"], strict=True)]
    assert table["loss"].to_numpy() == pytest.approx(truth, rel=1e-9)
    assert table["lr_best"].to_numpy() == pytest.approx(1e-3 * 2**0.3)
    assert not table["at_edge"].any()
    assert "lr" not in table
    assert len(table) == 9


def test_the_luck_of_the_least_is_taken_out():
    """Over 200 worlds: the least run is too low by a third of the noise, as some of the
    five are nearly as good as the best; the tuned loss by less than a tenth of it.
    """
    noise = 6e-3
    least, vertex = [], []
    for seed in range(200):
        runs = sweep(noise, seed)
        table = tuned(runs, "lr")
        cells = zip(table["N"], table["D"], strict=True)
        truth = np.array([lowest(N, D) for N, D in cells])
        vertex.append(np.log(table["loss"] / truth).mean())
        least.append(np.log(table["loss_measured"] / truth).mean())
    assert np.mean(least) < -0.3 * noise
    assert abs(np.mean(vertex)) < 0.1 * noise


def test_a_best_beyond_the_sweep_is_said():
    table = tuned(sweep(off=4.0), "lr")
    assert table["at_edge"].all()
    assert table["lr_best"].to_numpy() == pytest.approx(4e-3)


def weakened(runs, share=1 / 3):
    """A sweep with a share of its effect: the default laws do not read the setting."""
    least = runs.groupby(["N", "D"])["loss"].transform("min")
    return runs.assign(loss=least * (runs["loss"] / least) ** share)


def test_the_warning_before_a_fit_names_the_option():
    runs = weakened(sweep(1e-3))
    assert "tuned loss of each cell, by --best-of lr" in settings_said(runs)
    spaced = settings_said(runs.rename(columns={"lr": "peak rate"}))
    assert "--best-of 'peak rate', or name" in spaced
    # a law's name has words only
    assert "--column 'peak_rate=peak rate' --law NAME+peak_rate" in spaced


def test_mixtures_are_cells_of_their_own():
    """The same sweep of two mixtures, one .2 nats above the other, is tuned by mixture."""
    web = sweep().assign(share_web=0.7, share_code=0.3)
    code = sweep().assign(share_web=0.4, share_code=0.6)
    table = tuned(pd.concat([web, code.assign(loss=code["loss"] + 0.2)]), "lr")
    assert len(table) == 2 * len(CELLS)
    alike = settings_said(web.assign(domain="web"))
    both = settings_said(pd.concat([web, code]).assign(domain="web"))
    apart, together = (re.findall(r"up to .*% apart", said) for said in (alike, both))
    assert len(apart) == 1
    assert apart == together


def typed_best_of(folder, runs, *typed):
    """The command's result, and the table that it writes."""
    path, out = folder / "runs.csv", folder / "tuned.csv"
    runs.to_csv(path, index=False)
    words = ["table", str(path), "--best-of", *typed, "-o", str(out)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RunTableWarning)
        done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.exception
    return done, pd.read_csv(out)


def swept_twice():
    """A sweep of rates in which each is run at three batch sizes, 256 the best."""
    times = {batch: 1 + abs(batch - 256) / 1e4 for batch in (64, 256, 1024)}
    runs = sweep()
    parts = [runs.assign(bs=b, loss=runs["loss"] * t) for b, t in times.items()]
    return pd.concat(parts, ignore_index=True)


def test_a_refusal_names_the_level_of_the_best_runs():
    with pytest.raises(RunTableError, match=r"bs == 256\"") as refused:
        tuned(swept_twice(), "lr")
    query = str(refused.value).partition('--where "')[2].partition('"')[0]
    kept = tuned(swept_twice().query(query), "lr")
    assert kept["loss"].to_numpy() == pytest.approx(tuned(sweep(), "lr")["loss"])


@pytest.mark.parametrize(
    "beside",
    [
        {"wd": lambda t: 100 * t["lr"]},  # moves with the rate
        {"name of rate": lambda t: t["lr"].astype(str)},
        {"opt": "adam"},
        {"batch": lambda t: (t["N"] / 1e6).astype(int)},  # one in each cell
        {"accuracy": lambda t: (2 - t["loss"]).round(1)},  # measured
        {"seed": lambda t: np.arange(len(t)) % 2},
    ],
)
def test_what_is_not_swept_beside_it_is_let_be(beside):
    runs = sweep().assign(**beside)
    assert tuned(runs, "lr")["loss"].tolist() == tuned(sweep(), "lr")["loss"].tolist()


def test_the_other_setting_is_not_dropped_at_the_command_line(tmp_path):
    path = tmp_path / "runs.csv"
    swept_twice().to_csv(path, index=False)
    refused = CliRunner().invoke(app, ["table", str(path), "--best-of", "lr"])
    assert "'bs' differs within cells" in str(refused.exception)
    assert "tune them together (--best-of lr,bs)" in str(refused.exception)


@pytest.mark.parametrize(
    "levels",
    [
        {"resumed": lambda t: t["lr"] > 1e-3},  # truth values
        {"size": lambda t: t["lr"].map(lambda rate: f"at {rate}")},  # texts
        {"steps_off": lambda t: (t["lr"] * 1e3).map(np.log2).round()},  # below 0
        {"batch": lambda t: np.where(t["lr"] > 1e-3, 64, 32)},  # two levels
    ],
)
def test_only_numbers_above_0_are_offered_to_best_of(levels):
    alike = settings_said(sweep(1e-3).assign(**levels).drop(columns="lr"))
    assert alike
    assert "best-of" not in alike
    assert "--best-of lr, or" in settings_said(weakened(sweep(1e-3)).assign(**levels))
    # laws read the rate where it matters, and this is no setting beside it
    (in_step,) = levels
    said = settings_said(sweep(1e-3).assign(**levels))
    assert f"chinchilla+lr, coupled+lr read 'lr', with which '{in_step}' moves" in said


# -- two settings ------------------------------------------------------------------------

BEND = np.array([[0.010, 0.004], [0.004, 0.006]])  # log loss over log lr and log batch


def best_rate_and_batch(N, D):
    """Powers near those of a public sweep: N^-.7 D^.25 and N^-.2 D^.6."""
    rate = 1e-3 * (N / 3e8) ** -0.7 * (D / 8e9) ** 0.25
    return rate, 256 * (N / 3e8) ** -0.2 * (D / 8e9) ** 0.6


def sweep_of_two(noise=0.0, seed=0, levels=9, varied=0.0, skew=0.0):
    """Nine cells by rates and batches, a factor of two apart, whose best move with N, D.
    ``varied``: log of a cell's curvature over the next one's; ``skew``: how much steeper
    an octave above the best rate.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for k, (N, D) in enumerate(CELLS):
        bend = BEND * np.exp(varied * (-1) ** k / 2)
        for rate in 1e-3 * 2.0 ** np.arange(-(levels // 2) - 1, levels // 2 + 2):
            for batch in 256 * 2.0 ** np.arange(-(levels // 2), levels // 2 + 1):
                off = np.log([rate, batch]) - np.log(best_rate_and_batch(N, D))
                rise = off @ bend @ off * (1 + skew * off[0] / np.log(2))
                rise += noise * rng.standard_normal()
                rows.append((N, D, rate, batch, lowest(N, D) * np.exp(rise)))
    return pd.DataFrame(rows, columns=["N", "D", "lr", "batch", "loss"])


def truth_of(table):
    """Best rate and batch, and the loss there, of each row's cell: (row, 3)."""
    pairs = zip(table["N"], table["D"], strict=True)
    return np.array([(*best_rate_and_batch(N, D), lowest(N, D)) for N, D in pairs])


def test_of_two_settings_it_is_the_lowest_point():
    table = tuned(sweep_of_two(), ["lr", "batch"])
    found = table[["lr_best", "batch_best", "loss"]].to_numpy()
    assert found == pytest.approx(truth_of(table), rel=1e-6)
    assert not {"lr", "batch"} & {*table}
    assert not table["at_edge"].any()


def test_best_settings_are_near_and_their_intervals_hold():
    """Twenty worlds of nine cells: within a tenth in nine of ten, held in 85 to 95%."""
    near, held, errors, sizes = [], [], [], []
    for seed in range(20):
        table = tuned(sweep_of_two(2e-3, seed), ["lr", "batch"])
        truth = truth_of(table)
        for k, name in enumerate(("lr", "batch")):
            near.append(np.abs(np.log(table[f"{name}_best"] / truth[:, k])) < 0.1)
            low, high = table[f"{name}_low"], table[f"{name}_high"]
            held.append((low < truth[:, k]) & (truth[:, k] < high))
        errors.append(np.log(table["loss"] / truth[:, 2]))
        sizes.append(table["log_sd"])
        # the luckiest run is no better than the tuned one by over its noise
        assert (np.log(table["loss_measured"] / table["loss"]) > -3 * 2e-3).all()
    assert np.mean(near) > 0.9
    assert 0.85 < np.mean(held) < 0.95
    assert abs(np.mean(errors)) < 2e-4
    assert np.std(errors) == pytest.approx(np.mean(sizes), rel=0.2)


def test_a_best_beyond_one_of_two_sweeps_is_taken_at_its_end():
    """The other setting moves along to where the loss is least there."""
    runs = sweep_of_two()
    best = runs[["N", "D"]].apply(lambda c: best_rate_and_batch(*c)[0], axis=1)
    short = runs[runs["lr"] <= best / 1.5]
    table = tuned(short, ["lr", "batch"])
    assert table["at_edge"].all()
    cells = list(zip(table["N"], table["D"], strict=True))
    ends = short.groupby(["N", "D"])["lr"].max().loc[cells]
    assert table["lr_best"].to_numpy() == pytest.approx(ends.to_numpy())
    truth = truth_of(table)
    off = np.log(ends.to_numpy() / truth[:, 0])
    moved = np.log(table["batch_best"] / truth[:, 1]).to_numpy()
    assert moved == pytest.approx(-off * BEND[0, 1] / BEND[1, 1], abs=1e-6)
    assert (table["lr_high"] > table["lr_best"]).all()


def test_a_third_setting_is_refused_and_can_be_tuned_too():
    swept = sweep_of_two(levels=3)
    times = {wd: 1 + 0.01 * np.log(wd / 0.1) ** 2 for wd in (0.05, 0.1, 0.2)}
    runs = pd.concat(
        [swept.assign(wd=wd, loss=swept["loss"] * t) for wd, t in times.items()]
    )
    says = r"'wd' differs within.*--best-of lr,batch,wd"
    with pytest.raises(RunTableError, match=says):
        tuned(runs, ["lr", "batch"])
    table = tuned(runs, ["lr", "batch", "wd"])
    assert table["wd_best"].to_numpy() == pytest.approx(0.1, rel=1e-3)


def test_the_warning_before_a_fit_names_both_settings():
    said = settings_said(weakened(sweep_of_two(1e-3), share=0.1))
    assert "with one level of" not in said
    told = "by --best-of lr,batch, or name a law with an optimum of each, --law NAME+lr+batch"
    assert said.endswith(told)


def errors_of_best(table, truth):
    """Logs of found best rates and batches over the true ones, shape (cell, setting)."""
    return np.log(table[["lr_best", "batch_best"]].to_numpy() / truth[:, :2])


@pytest.mark.parametrize("form", [{"varied": 0.8}, {"skew": 0.1}])
def test_other_bowls_than_one_quadratic_for_all_are_fitted(form):
    """Cells of unlike curvature; losses that rise faster above the best rate."""
    table = tuned(sweep_of_two(1e-3, **form), ["lr", "batch"])
    truth = truth_of(table)
    assert np.abs(errors_of_best(table, truth)).max() < 0.1
    off = np.log(table["loss"] / truth[:, 2]) / table["log_sd"]
    assert np.abs(off).max() < 3


def crossed(runs):
    """Runs at which one of the two settings is at the level nearest to its best."""
    best = truth_of(runs)
    off = np.abs(np.log2(runs[["lr", "batch"]].to_numpy() / best[:, :2]))
    return runs[(off <= 0.5).any(axis=1)]


def test_settings_never_changed_together_are_told():
    """The turn is then unknown: each best is where the other setting was nearest."""
    with pytest.warns(
        RunTableWarning, match="no runs change 'lr' and 'batch' together"
    ):
        table = tuned(crossed(sweep_of_two()), ["lr", "batch"])
    away = errors_of_best(table, truth_of(table))
    # half a level of the other setting, times the turn over the curvature
    most = np.log(2) / 2 * BEND[0, 1] / np.diag(BEND)
    assert (np.abs(away) < most + 1e-6).all()


def test_cells_left_out_are_counted():
    runs = sweep()
    short = runs[(runs["N"] < 1e9) | (runs["lr"] == 1e-3)]
    with pytest.warns(RunTableWarning, match="3 of 9 cells are left out"):
        assert len(tuned(short, "lr")) == 6


def test_a_best_in_a_corner_without_runs_is_at_the_edge():
    """Within the range of each setting, and beyond the runs: the lowest point is taken
    where the runs end.
    """
    runs = sweep_of_two()
    off = np.log2(runs[["lr", "batch"]].to_numpy() / truth_of(runs)[:, :2])
    table = tuned(runs[off.sum(axis=1) < -0.5], ["lr", "batch"])
    assert table["at_edge"].all()
    away = errors_of_best(table, truth_of(table)) / np.log(2)
    assert (away.sum(axis=1) < -0.5).all()


OPTIMIZERS = {64: "a", 256: "b", 1024: "c"}


@pytest.mark.parametrize(
    ("runs", "settings", "says"),
    [
        (sweep().rename(columns={"lr": "rate"}), "lr", "lacks column .lr. of --best-of lr"),
        (sweep().assign(lr=0 * sweep()["lr"]), "lr", "must be numbers above 0"),
        (sweep().query("lr == 1e-3"), "lr", "0 cells have 3 or more levels"),
        (sweep().assign(loss=1 / sweep()["loss"]), "lr", "do not bend upwards"),
        # a sweep of two settings
        (swept_twice(), "lr", "best-of lr: 'bs' differ"),
        (swept_twice(), "bs", "best-of bs: 'lr' differ"),
        (swept_twice().assign(step=lambda t: t["D"] / t["bs"]), "bs", "best-of bs: 'lr' differ"),
        (swept_twice().assign(opt=lambda t: t["bs"].map(OPTIMIZERS)), "lr", "best-of lr: 'bs' and 'opt' differ"),
        (sweep_of_two()[lambda t: np.isclose(t["batch"], 256e3 * t["lr"])], ["lr", "batch"],
         "0 cells .* do not move in step"),
    ],
)  # fmt: skip
def test_sweeps_of_which_no_run_is_known_to_be_tuned_are_refused(runs, settings, says):
    with pytest.raises(RunTableError, match=says):
        tuned(runs, settings)


@pytest.mark.parametrize("typed", [["lr"], ["lr,batch"], ["lr", "--best-of", "batch"]])
def test_settings_at_the_command_line(tmp_path, typed):
    runs = sweep() if typed == ["lr"] else sweep_of_two()
    settings = ["lr", "batch"][: 1 + (typed != ["lr"])]
    done, table = typed_best_of(tmp_path, runs, *typed)
    assert f"to 9 cells by --best-of {','.join(settings)}" in done.stderr
    expected = tuned(runs, settings)["loss"]
    assert table["loss"].to_numpy() == pytest.approx(expected)

"""Draw the README's pictures: ``python docs/make_pictures.py`` the forecasts, and with
``--page report/report.html`` that page as a browser shows it (Chromium and Pillow).
"""

import argparse
import shutil
import warnings
from io import BytesIO
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import bayeslaw
from bayeslaw import datasets, plots

HERE = Path(__file__).parent
TITLE = "simulated grid: forecast at ptpp 279, fitted at 15 and 31"
WIDTH, COLOURS = 1200, 32  # pixels; fewer colours make a small file
BELOW = 24  # pixels
PRELEARNED = {"E": 1.0, "B": 200.0, "beta": 0.55, "D0": 150.0}
POWER = "E + B/D^beta"
CLUSTER = {"hardware": "64xH100", "mfu": 0.4, "price": 2.5}


def picture(held: pd.DataFrame, rows: pd.DataFrame) -> Figure:
    """A panel for each model size: forecasts along D, and what was held out."""
    sizes = sorted(held["N"].unique())
    figure = Figure(figsize=(3.1 * len(sizes), 3.3), layout="constrained")
    axes = figure.subplots(1, len(sizes))
    for ax, size in zip(axes, sizes, strict=True):
        plots.forecast_curve(ax, held[held["N"] == size], rows)
        shown = f"{size / 1e6:.0f}M" if size < 1e9 else f"{size / 1e9:g}B"
        ax.set_title(f"N = {shown}", fontsize=10)
        ax.tick_params(labelsize=8)
    for ax in axes[1:]:
        ax.set_ylabel("")
    lines, labels = axes[0].get_legend_handles_labels()
    place = {"loc": "outside lower center", "ncols": 6}
    figure.legend(lines, labels, fontsize=9, frameon=False, **place)
    figure.suptitle(TITLE, fontsize=11)
    return figure


def draw_forecasts() -> Path:
    warnings.simplefilter("ignore")
    runs = datasets.load("simulated-ptpp-grid").query("domain == 'target'")
    fit = bayeslaw.fit(runs.query("ptpp <= 31"), "ptpp-gate-floor", seed=0)
    held = runs.query("ptpp == 279")
    path = HERE / "forecast.png"
    drawn = picture(held, bayeslaw.forecast(fit, held))
    metadata = {"Software": None}  # equal pictures are equal bytes
    drawn.savefig(path, dpi=110, bbox_inches="tight", metadata=metadata)
    return path


def draw_costs(folder: Path) -> Path:
    """The price of confidence, and what deadlines leave: fits of ``howto/plan.md``."""
    target, source = (bayeslaw.load(folder / f"{n}.nc") for n in ("target", "source"))
    asked = {"N": 8.1e9, "ptpp": 279, "max_target_loss": 1.8, "max_forgetting": 0.02}
    asked |= {"baseline_loss": 1.64, "costs": bayeslaw.Costs(**CLUSTER)}
    plan = bayeslaw.plan(target, source, **asked)
    days = [1.4, 1.6, 1.8, 2.0, 2.2, 2.4, 2.6]
    within = [bayeslaw.plan(target, source, max_days=d, **asked) for d in days]
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    plots.frontier(left, plan)
    right.plot(days, [p.probability for p in within], "o-", color="C0")
    right.axhline(0.9, color="0.6", linestyle="--", linewidth=1)
    right.set_xlabel("deadline (days)")
    right.set_ylabel("probability that all promises are kept")
    path = HERE / "howto" / "costs.png"
    figure.savefig(path, dpi=100, metadata={"Software": None})
    return path


def draw_accuracy() -> Path:
    """A simulated table of nine evaluated models, and the accuracy by the loss."""
    rng = np.random.default_rng(0)
    losses = np.linspace(1.7, 2.6, 9)
    curve = 0.25 + 0.67 / (1 + np.exp((losses - 2.05) / 0.12))
    accuracy = curve + 0.015 * rng.standard_normal(9)
    evaluated = pd.DataFrame({"loss": losses, "accuracy": accuracy})
    link = bayeslaw.accuracy_link(evaluated, chance=0.25)
    grid = np.linspace(1.5, 2.8, 90)
    draws = link.accuracy(np.tile(grid, (link.draws, 1)))
    low, middle, high = np.quantile(draws, [0.05, 0.5, 0.95], axis=0)
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    ax = figure.subplots()
    ax.fill_between(grid, low, high, color="C0", alpha=0.25, linewidth=0)
    ax.plot(grid, middle, color="C0")
    ax.plot(losses, accuracy, "o", color="k", markersize=4)
    ax.axhline(0.25, color="0.6", linestyle="--", linewidth=1)
    ax.set_xlabel("loss (nats per token)")
    ax.set_ylabel("accuracy")
    path = HERE / "howto" / "accuracy.png"
    figure.savefig(path, dpi=100, metadata={"Software": None})
    return path


def draw_whatif(folder: Path) -> Path:
    """Scenarios of a plan for minicpt's largest model: fits of the stages before 279."""
    target, source = (bayeslaw.load(folder / f"{n}.nc") for n in ("target", "source"))
    looked_at = bayeslaw.what_if(
        target,
        source,
        {
            "forget at most 8%": {"max_forgetting": "8%"},
            "target at 1.3": {"max_target_loss": 1.3},
        },
        N=2102688,
        ptpp=279,
        max_target_loss=1.25,
        max_forgetting="12%",
        baseline_loss=1.189,
        draws=1000,
    )
    print(looked_at.sentence())
    figure = Figure(figsize=(6.4, 2.6), layout="constrained")
    plots.scenarios(figure.subplots(), looked_at)
    path = HERE / "howto" / "whatif.png"
    figure.savefig(path, dpi=100, metadata={"Software": None})
    return path


def sweeps() -> pd.DataFrame:
    """Five sweeps of seven sizes from Chinchilla's law (Besiroglu 2024), noise .3%."""
    rng = np.random.default_rng(0)
    rows = []
    for budget in (1e19, 3e19, 1e20, 3e20, 1e21):
        for N in np.sqrt(budget / 120) * 4 ** np.linspace(-1, 1, 7):
            D = budget / (6 * N)
            loss = 1.8172 + 482.01 / N**0.3478 + 2085.43 / D**0.3658
            rows.append((N, D, loss * np.exp(3e-3 * rng.standard_normal())))
    return pd.DataFrame(rows, columns=["N", "D", "loss"])


def draw_optimum() -> Path:
    """IsoFLOP curves of simulated sweeps, and the best size at ten times the compute."""
    runs = sweeps()
    best = bayeslaw.optimum(bayeslaw.average(runs, seed=0))
    print(best.table().to_string(), best.sentence(), sep="\n")
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    plots.isoflops(figure.subplots(), best, runs)
    path = HERE / "howto" / "optimum.png"
    figure.savefig(path, dpi=100, metadata={"Software": None})
    return path


def draw_rectified() -> Path:
    """A simulated fine-tuning, fitted up to 51,200 examples: the law, and a power law."""
    law = bayeslaw.law("rectified")
    D = 200.0 * 2 ** np.arange(14)
    rng = np.random.default_rng(2)
    losses = np.asarray(law.loss({"D": D}, law.from_paper(PRELEARNED)))
    noisy = losses * np.exp(4e-3 * rng.standard_normal(len(D)))
    runs = pd.DataFrame({"D": D, "loss": noisy})
    seen = runs[runs["D"] <= 51_200]
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    for ax, name in zip(figure.subplots(1, 2), ("rectified", POWER), strict=True):
        fit = bayeslaw.fit(seen, law=laws_for(name), seed=0, discrepancy=False)
        rows = bayeslaw.forecast(fit, runs)
        ax.plot(runs["D"], rows["median"], color="C0", label=name)
        ax.fill_between(runs["D"], rows["low"], rows["high"], alpha=0.2, linewidth=0)
        ax.plot(seen["D"], seen["loss"], "ko", markersize=4, label="fitted")
        rest = runs[runs["D"] > 51_200]
        ax.plot(rest["D"], rest["loss"], "o", mfc="none", color="k", label="held out")
        ax.set_xscale("log")
        ax.set_xlabel("fine-tuning examples D")
        ax.set_ylabel("loss")
        ax.legend(fontsize=8)
    path = HERE / "howto" / "finetuning.png"
    figure.savefig(path, dpi=100, metadata={"Software": None})
    return path


def swept(seed: int, noise: float) -> pd.DataFrame:
    """Three cells by five rates, whose best lies between two of them."""
    rng = np.random.default_rng(seed)
    steps = np.arange(-2, 3)
    rows = [
        (N, 2e9, 1e-3 * 2.0**step, lowest * np.exp(0.01 * (0.69 * step - 0.2) ** 2))
        for N, lowest in ((1e8, 3.1), (3e8, 2.9), (1e9, 2.75))
        for step in steps
    ]
    runs = pd.DataFrame(rows, columns=["N", "D", "lr", "loss"])
    return runs.assign(loss=runs["loss"] * np.exp(noise * rng.standard_normal(15)))


def draw_sweeps() -> Path:
    """A sweep with its tuned losses, and how far off the least run and those are."""
    runs = swept(0, 3e-3)
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for (N, cell), colour in zip(runs.groupby("N"), ("C0", "C1", "C2"), strict=True):
        left.plot(cell["lr"], cell["loss"], "o", color=colour, label=f"N = {N:.0e}")
    table = bayeslaw.tuned(runs, "lr")
    left.plot(table["lr_best"], table["loss"], "k*", markersize=12, label="tuned loss")
    left.set(xscale="log", xlabel="learning rate", ylabel="loss")
    left.legend(fontsize=8)
    off: dict[str, list[float]] = {"least of five runs": [], "tuned loss": []}
    noises = np.array([1e-3, 2e-3, 3e-3, 6e-3, 1e-2])
    for noise in noises:
        tables = [bayeslaw.tuned(swept(seed, noise), "lr") for seed in range(200)]
        truth = np.array([3.1, 2.9, 2.75])
        for name, column in zip(off, ("loss_measured", "loss"), strict=True):
            error = [np.log(t[column].to_numpy() / truth).mean() for t in tables]
            off[name].append(100 * float(np.mean(error)))
    for name, errors in off.items():
        right.plot(100 * noises, errors, "o-", label=name)
    right.axhline(0, color="0.6", linewidth=1)
    right.set(xlabel="noise of a run (%)", ylabel="mean error (%)")
    right.legend(fontsize=8)
    path = HERE / "howto" / "sweeps.png"
    figure.savefig(path, dpi=100, metadata={"Software": None})
    return path


def draw_constants() -> Path:
    """The best size at each budget by published constants."""
    hoffmann = {"E": 1.69, "A": 406.4, "B": 410.7, "alpha": 0.34, "beta": 0.28}
    later = {"E": 1.8172, "A": 482.01, "B": 2085.43, "alpha": 0.3478, "beta": 0.3658}
    errors = {"alpha": 0.015, "beta": 0.021}
    laws = {
        "Hoffmann 2022": bayeslaw.law_at("chinchilla", hoffmann),
        "Besiroglu 2024": bayeslaw.law_at("chinchilla", later),
        "with its errors": bayeslaw.law_at("chinchilla", later, sd=errors),
    }
    budgets = list(np.geomspace(1e19, 1e25, 13))
    figure = Figure(figsize=(5.6, 3.6), layout="constrained")
    ax = figure.subplots()
    for name, law in laws.items():
        rows = pd.DataFrame(bayeslaw.optimum(law, budgets).rows)
        (line,) = ax.plot(rows["budget"], rows["N"], label=name)
        ends = rows["N_low"], rows["N_high"]
        ax.fill_between(rows["budget"], *ends, color=line.get_color(), alpha=0.2)
    ax.set(xscale="log", yscale="log", xlabel="budget (FLOPs)", ylabel="best size N")
    ax.legend(fontsize=8)
    path = HERE / "howto" / "constants.png"
    figure.savefig(path, dpi=100, metadata={"Software": None})
    return path


def laws_for(name: str):
    """A law of the catalogue, or of a formula."""
    return bayeslaw.law_from_formula(name) if "+" in name else bayeslaw.law(name)


def draw_page(page: Path) -> Path:
    """The report's page, from its top to the end of the map."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        view = {"width": WIDTH, "height": 900}
        shown = browser.new_page(viewport=view, color_scheme="light")
        shown.goto(page.absolute().as_uri())
        shown.wait_for_selector("#x-map[data-ready]")
        # a small file: without the pictures of what was measured
        shown.eval_on_selector_all(
            "#measured figure", "all => all.map(e => e.remove())"
        )
        end = shown.evaluate("document.querySelector('#explore').offsetHeight")
        top = shown.evaluate("document.querySelector('#explore').offsetTop")
        whole = {"x": 0, "y": 0, "width": WIDTH, "height": top + end + BELOW}
        taken = shown.screenshot(full_page=True, clip=whole)
        browser.close()
    path = HERE / "page.png"
    Image.open(BytesIO(taken)).convert("RGB").quantize(COLOURS).save(
        path, optimize=True
    )
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--costs", type=Path, help="folder of target.nc and source.nc")
    parser.add_argument("--whatif", type=Path, help="folder of such fits of minicpt")
    parser.add_argument("--accuracy", action="store_true", help="of a simulated table")
    parser.add_argument("--optimum", action="store_true", help="of simulated sweeps")
    parser.add_argument("--finetuning", action="store_true", help="simulated, too")
    parser.add_argument("--sweeps", action="store_true", help="simulated, too")
    parser.add_argument("--constants", action="store_true", help="published ones")
    asked = parser.parse_args()
    if asked.finetuning:
        print(draw_rectified())
        return
    if asked.sweeps:
        print(draw_sweeps())
        return
    if asked.constants:
        print(draw_constants())
        return
    if asked.optimum:
        print(draw_optimum())
        return
    if asked.whatif:
        print(draw_whatif(asked.whatif))
        return
    if asked.accuracy:
        print(draw_accuracy())
        return
    if asked.costs:
        print(draw_costs(asked.costs))
        return
    print(draw_page(asked.page) if asked.page else draw_forecasts())


if __name__ == "__main__":
    main()

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
WIDTH, COLOURS = 1200, 96  # pixels; fewer colours make a small file
BELOW = 24  # pixels
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
    parser.add_argument("--optimum", action="store_true", help="of simulated sweeps")
    asked = parser.parse_args()
    if asked.optimum:
        print(draw_optimum())
        return
    if asked.costs:
        print(draw_costs(asked.costs))
        return
    print(draw_page(asked.page) if asked.page else draw_forecasts())


if __name__ == "__main__":
    main()

"""Draw the README's picture: ``python docs/make_pictures.py``."""

import warnings
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

import bayeslaw
from bayeslaw import datasets, plots

TITLE = "simulated grid: forecast at ptpp 279, fitted at 15 and 31"


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


def main() -> None:
    warnings.simplefilter("ignore")
    runs = datasets.load("simulated-ptpp-grid").query("domain == 'target'")
    fit = bayeslaw.fit(runs.query("ptpp <= 31"), "ptpp-gate-floor", seed=0)
    held = runs.query("ptpp == 279")
    path = Path(__file__).with_name("forecast.png")
    drawn = picture(held, bayeslaw.forecast(fit, held))
    metadata = {"Software": None}  # equal pictures are equal bytes
    drawn.savefig(path, dpi=110, bbox_inches="tight", metadata=metadata)
    print(path)


if __name__ == "__main__":
    main()

"""A picture of each law: its loss at its plausible parameters along what it is
about.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import bayeslaw
from bayeslaw.plots import COLOURS

LEVELS = {
    "ptpp": (15.0, 31.0, 279.0),
    "source_loss_before": (2.4, 2.6, 2.8),
    "replay": (0.05, 0.25, 0.5),
    "N": (1e8, 1e9, 1e10),
}
# Bethune 2025: a percent of replay decides
FINETUNING = {"N": 3.34e8, "replay": (0.0, 0.01, 0.05)}
PEAK, BEFORE, AFTER = 2e-4, 20_000, 10_000


def draw(law, path: Path) -> None:
    """Write the picture of a law."""
    figure = Figure(figsize=(5.2, 3.2), layout="constrained")
    ax = figure.subplots()
    if "S1_pt" in law.covariates:
        curves(ax, law)
    elif "D" in law.covariates:
        along(ax, law, "D", np.geomspace(*span(law), 60))
        ax.set(xscale="log", xlabel="D (tokens)")
    else:
        first = law.covariates[0]
        along(ax, law, first, law.reference[first] * np.linspace(0.8, 1.2, 60))
        ax.set_xlabel(first)
    ax.set_ylabel("loss (nats per token)")
    if ax.get_legend_handles_labels()[1]:
        ax.legend(fontsize=8)
    figure.savefig(path, dpi=110)


def span(law) -> tuple[float, float]:
    """Tokens shown: a factor of a hundred around the reference run, each way a tenth
    and ten times.
    """
    return law.reference["D"] / 10, law.reference["D"] * 10


def loss(law, table: pd.DataFrame) -> np.ndarray:
    """Loss at plausible parameters, shape (run,)."""
    return bayeslaw.simulate(law, design=table, noise=0.0)["loss"].to_numpy()


def along(ax, law, column: str, x: np.ndarray) -> None:
    """A line for each of three levels of the covariate that tells most, the others as
    at the reference run.
    """
    by = next((c for c in LEVELS if c in law.covariates and c != column), None)
    levels = LEVELS.get(by or "", (0.0,))
    if law.name.startswith("forgetting"):
        by, levels = "replay", FINETUNING["replay"]
    for level, colour in zip(levels, COLOURS, strict=False):
        table = pd.DataFrame(
            {c: np.full(len(x), law.reference[c]) for c in law.covariates} | {column: x}
        )
        if by is not None:
            table[by] = level
        shown = f"{level / 1e9:g}B" if by == "N" else f"{level:g}"
        label = None if by is None else f"{by} {shown}"
        ax.plot(x, loss(law, table), color=colour, label=label)


def curves(ax, law) -> None:
    """Loss along three learning-rate schedules: of pre-training, or of the adaptation
    after one.
    """
    warm = bayeslaw.wsd(PEAK, BEFORE, warmup=500, decay=4000)
    if "S1_cpt" in law.covariates:
        made = {
            "constant": (warm, bayeslaw.constant(PEAK, AFTER, warmup=200)),
            "cosine": (warm, bayeslaw.cosine(PEAK, AFTER, warmup=200)),
            "cosine from half the peak": (
                warm,
                bayeslaw.cosine(PEAK / 2, AFTER, warmup=200),
            ),
        }
    else:
        made = {
            "constant": (bayeslaw.constant(PEAK, BEFORE, warmup=500),),
            "cosine": (bayeslaw.cosine(PEAK, BEFORE, warmup=500),),
            "warm-up, stable, decay": (warm,),
        }
    for (name, rates), colour in zip(made.items(), COLOURS, strict=False):
        table = bayeslaw.schedule_areas(*rates).iloc[1999::100].copy()
        for column in set(law.covariates) - set(table):
            table[column] = law.reference[column]
        ax.plot(table["step"], loss(law, table), color=colour, label=name)
    ax.set_xlabel("step")

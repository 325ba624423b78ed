"""A pool of runs of known losses: what is on offer, and what it shall foretell."""

import numpy as np
import pandas as pd

import bayeslaw


def pool() -> pd.DataFrame:
    """36 runs to train on, and two larger ones to forecast (``split``)."""
    grid = [
        (n, d) for n in np.geomspace(5e7, 2e9, 6) for d in np.geomspace(1e9, 4e10, 6)
    ]
    settings = pd.DataFrame([*grid, (5e9, 1e11), (8e9, 2e11)], columns=["N", "D"])
    runs = bayeslaw.simulate("chinchilla", design=settings, noise=0.003, seed=0)
    split = np.where(settings["N"] < 3e9, "train", "test")
    return runs[["N", "D", "loss"]].assign(split=split)

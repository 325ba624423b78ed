"""Losses of the resamples of a point fit."""

from dataclasses import replace

import numpy as np
import pandas as pd

from bayeslaw import PointFit


def resampled_losses(point: PointFit, runs: pd.DataFrame) -> np.ndarray:
    """Compute the loss of every resample at a table of runs, shape (resample, run)."""
    resamples = pd.DataFrame(dict(point.bootstrap)).to_dict("records")
    return np.stack([replace(point, parameters=one).loss(runs) for one in resamples])

"""Mark draws of one value, to tell them from values of several models."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayeslaw._base.errors import PlanError


class Draws(np.ndarray):
    """Draws of one uncertain value, such as a forecast loss of a checkpoint, for
    ``covariates`` and ``baseline_loss`` of a plan. (A plain sequence there has one value
    for each model.)

    Parameters
    ----------
    values
        Shape (draw,).

    Raises
    ------
    PlanError
        The values are not numbers in one dimension.

    Examples
    --------
    >>> bayeslaw.Draws([1.7, 1.8, 1.75]).shape
    (3,)
    """

    def __new__(cls, values: Any) -> Draws:
        try:
            draws = np.array(values, float)
        except (TypeError, ValueError):
            draws = np.empty(0)
        if draws.ndim != 1 or not len(draws):
            raise PlanError(
                f"draws are numbers in one dimension, at least one; got {values!r}"[
                    :200
                ]
            )
        return draws.view(cls)

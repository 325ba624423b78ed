"""What a set of runs may be worth, of every kind."""

import numpy as np

from bayeslaw._designs import criteria


def criteria_of(rows) -> list[criteria.Criterion]:
    """A criterion of each kind, about two goals with these loadings."""
    one = np.ones(2)
    return [
        criteria.Variance(rows),
        criteria.Information(rows.T @ rows / 0.3),
        criteria.Information(None),
        criteria.Saving(0.3 * rows, 0.2 * one, one, 1.5 * one, 100.0),
        criteria.Choosing(rows, 0.4 * one),
    ]

"""A misfit's linear model written out."""

import numpy as np


def columns_of(problem) -> np.ndarray:
    """All columns in their order, shape (row, column)."""
    columns = np.zeros((len(problem.residual), len(problem.is_single)))
    columns[:, ~problem.is_single] = problem.columns
    columns[:, problem.is_single] = problem.single.toarray()
    return columns


def linear_of(problem) -> np.ndarray:
    """Those whose coefficients are drawn, shape (row, column)."""
    return columns_of(problem)[:, : problem.linear]

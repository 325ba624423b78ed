"""Solve many small triangular systems side by side, column by column.

LAPACK is called once for each matrix: whitening a dozen domains of four sites then took
10 microseconds of a gradient's 25. Here every step is one operation on all matrices, and
it takes 5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax.numpy as jnp
from jax import Array

if TYPE_CHECKING:
    from jaxtyping import Float

# Column j of each matrix from its diagonal down, shape (matrix, side - j).
TriangularColumns = list[Array]


def cholesky(positive: Float[Array, "matrix side side"]) -> TriangularColumns:
    """Factor each positive definite matrix as L L'; returns the lower triangular L."""
    columns, remainder = [], positive
    for _ in range(positive.shape[-1]):
        # A = [[a, b'], [b, C]]: the first column is (a, b) / sqrt(a), and what is left
        # to factor is C - b b' / a (Golub and Van Loan 2013, section 4.2).
        first = remainder[:, :, 0]
        column = first / jnp.sqrt(first[:, :1])
        columns.append(column)
        below = column[:, 1:]
        remainder = remainder[:, 1:, 1:] - below[:, :, None] * below[:, None, :]
    return columns


def solve(
    lower: TriangularColumns, right: Float[Array, "matrix side"]
) -> Float[Array, "matrix side"]:
    """Solve L x = right for x."""
    solution, remainder = [], right
    for column in lower:
        value = remainder[:, :1] / column[:, :1]
        solution.append(value)
        remainder = remainder[:, 1:] - column[:, 1:] * value
    return jnp.concatenate(solution, axis=1)


def solve_transposed(
    lower: TriangularColumns, right: Float[Array, "matrix side"]
) -> Float[Array, "matrix side"]:
    """Solve L' x = right for x."""
    solution = right[:, :0]
    for j in reversed(range(len(lower))):
        column = lower[j]
        remainder = jnp.sum(column[:, 1:] * solution, axis=1, keepdims=True)
        value = (right[:, j : j + 1] - remainder) / column[:, :1]
        solution = jnp.concatenate([value, solution], axis=1)
    return solution


def log_determinant(lower: TriangularColumns) -> Float[Array, " matrix"]:
    """Compute the log of the product of the diagonal."""
    diagonal = jnp.concatenate([column[:, :1] for column in lower], axis=1)
    return jnp.sum(jnp.log(diagonal), axis=1)

"""Handle small target sets that are seen repeatedly. A law of repetition describes the
value of repeated tokens; without such a law, the number of epochs is limited.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array

from bayeslaw._base.errors import PlanError
from bayeslaw._posteriors.posterior import Draw, Piece

if TYPE_CHECKING:
    from jaxtyping import Float

    from bayeslaw._base.arrays import AnyArray

UNIQUE = "U"  # column: tokens of a mixture that contain the target set once
# up to so many epochs, repeated tokens are nearly as good as new ones (Muennighoff et
# al. 2023)
FEW_EPOCHS = 4.0
ROUNDING = 1.01  # factor by which epochs may exceed a bound
LAWS = "data-constrained, or another that reads U"


@dataclass(frozen=True)
class Repeating:
    """A piece's log loss in a mixture that repeats a target set. Its law reads U, the size
    of the set (``unique_tokens``) over its share of the mixture; D / U is the number of
    epochs. The record is frozen, so equal records share a compiled program.
    """

    main: Callable[..., Float[Array, " run"]]
    unique_tokens: float

    def __call__(
        self, draw: Draw, covariates: Mapping[str, Float[AnyArray, " run"]]
    ) -> Float[Array, " run"]:
        """Evaluate the log loss at each run, shape (run,)."""
        share = jnp.maximum(1 - covariates["replay"], 1e-9)
        return self.main(draw, {**covariates, UNIQUE: self.unique_tokens / share})


def repeating(pieces: Sequence[Piece], unique_tokens: float) -> tuple[Piece, ...]:
    """Fix the number of unique target tokens in the pieces whose law reads U."""
    fixed = []
    for piece in pieces:
        if UNIQUE in piece.covariates:
            columns = [column for column in piece.covariates if column != UNIQUE]
            piece = replace(
                piece,
                log_loss=Repeating(piece.log_loss, float(unique_tokens)),
                covariates=tuple(dict.fromkeys([*columns, "replay"])),
            )
        fixed.append(piece)
    return tuple(fixed)


def epochs_measured(table: pd.DataFrame | None) -> float | None:
    """Find the most epochs in a table, at least 1; None without a table."""
    if table is None:
        return None
    if not {"D", UNIQUE} <= set(table):
        return 1.0
    epochs = table["D"] / table[UNIQUE]
    most = float(np.nanmax(epochs)) if epochs.notna().any() else 1.0
    return max(1.0, most)


NO_CORPUS = (
    "max_epochs limits nothing without the number of unique tokens: give "
    "unique_target_tokens (--unique-target-tokens), or of mixtures unique_tokens "
    "(--unique-tokens)"
)


def epochs_allowed(
    asked: float | None, pieces: Sequence[Piece], table: pd.DataFrame | None
) -> tuple[float, list[str]]:
    """Decide how many epochs of the target set a plan may have: those ``asked`` for, else
    one, or with a law of repetition as many as in the table. Also returns notes for the
    user, a line each.

    Raises
    ------
    PlanError
        No law describes repeated tokens, and more than `FEW_EPOCHS` epochs are asked
        for.
    """
    measured = epochs_measured(table)
    if all(UNIQUE in piece.covariates for piece in pieces):
        most = measured or 1.0
        if asked is None or asked <= ROUNDING * most:
            return asked or most, []
        line = (
            f"max_epochs {asked:g}: the table's runs saw their corpus at most "
            f"{most:.3g} times; beyond that nothing was measured"
        )
        return asked, [line]
    if asked is None or asked <= ROUNDING * (measured or 1.0):
        return asked or 1.0, []
    why = f"no law of the target says what a repeated token is worth (fit {LAWS})"
    if asked > FEW_EPOCHS:
        raise PlanError(
            f"max_epochs {asked:g}: {why}, and beyond {FEW_EPOCHS:g} epochs it is worth "
            "much less than a new token; give fewer epochs, or more unique tokens"
        )
    if measured is None:
        return asked, [f"max_epochs {asked:g}: {why}; each token is counted as new"]
    return measured, [
        f"max_epochs {asked:g}: {why}, and the table's runs saw their corpus at most "
        f"{measured:.3g} times: the plan repeats no more often"
    ]

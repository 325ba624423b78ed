"""A small target set is seen again and again: what that is worth, where a law says so,
and how often it may be, where none does.
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

UNIQUE = "U"  # the column: tokens of a mixture that sees its target set once
# repeated so often, tokens are nearly as good as new ones, and then not (Muennighoff et
# al. 2023)
FEW_EPOCHS = 4.0
ROUNDING = 1.01  # times
LAWS = "data-constrained, or another that reads U"


@dataclass(frozen=True)
class Repeating:
    """A piece's log loss in a mixture that repeats a target set: its law reads U, the
    set over its share of the mixture, so that D / U is how often it is seen.

    A frozen record, so that equal ones share a compiled program.

    Parameters
    ----------
    log_loss
        As a `Piece` has it; reads U.
    unique_tokens
        Tokens in the target set.
    """

    log_loss: Callable[..., Float[Array, " run"]]
    unique_tokens: float

    def __call__(
        self, draw: Draw, covariates: Mapping[str, Float[AnyArray, " run"]]
    ) -> Float[Array, " run"]:
        """Log loss at each run, shape (run,)."""
        share = jnp.maximum(1 - covariates["replay"], 1e-9)
        return self.log_loss(draw, {**covariates, UNIQUE: self.unique_tokens / share})


def is_of_repetition(pieces: Sequence[Piece]) -> bool:
    """Whether all laws say what a repeated token is worth."""
    return all(UNIQUE in piece.covariates for piece in pieces)


def repeating(pieces: Sequence[Piece], unique_tokens: float) -> tuple[Piece, ...]:
    """The pieces, those whose law reads U at a target set of so many tokens."""
    return tuple(
        replace(
            piece,
            log_loss=Repeating(piece.log_loss, float(unique_tokens)),
            covariates=_with_replay(piece.covariates),
        )
        if UNIQUE in piece.covariates
        else piece
        for piece in pieces
    )


def _with_replay(covariates: Sequence[str]) -> tuple[str, ...]:
    columns = [column for column in covariates if column != UNIQUE]
    return tuple(dict.fromkeys([*columns, "replay"]))


def epochs_measured(table: pd.DataFrame | None) -> float | None:
    """How often the runs of a table saw their corpus at most, at least once; None where
    there is no table.
    """
    if table is None:
        return None
    if not {"D", UNIQUE} <= set(table):
        return 1.0
    epochs = table["D"] / table[UNIQUE]
    most = float(np.nanmax(epochs)) if epochs.notna().any() else 1.0
    return max(1.0, most)


def epochs_allowed(
    asked: float | None, pieces: Sequence[Piece], table: pd.DataFrame | None
) -> tuple[float, list[str]]:
    """How often a plan may see the target set, and what to know of that, a line each.

    Parameters
    ----------
    asked
        By the user; None: once, or with a law of repetition as often as the table's
        runs did.
    pieces, table
        The target's draws, and the runs they were fitted to, where they are kept.

    Raises
    ------
    PlanError
        No law says what repeated tokens are worth, and they are asked to be seen more
        than `FEW_EPOCHS` times.
    """
    measured = epochs_measured(table)
    if is_of_repetition(pieces):
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
            "much less than a new one; give fewer, or more unique_target_tokens"
        )
    if measured is None:
        return asked, [f"max_epochs {asked:g}: {why}; each is counted as new"]
    return measured, [
        f"max_epochs {asked:g}: {why}, and the table's runs saw their corpus at most "
        f"{measured:.3g} times: planned within that"
    ]

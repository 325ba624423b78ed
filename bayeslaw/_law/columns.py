"""Name the columns that laws read: a checkpoint's losses before its adaptation, shares
of a mixture, and axes that are products of columns.
"""

from collections.abc import Iterable, Mapping
from typing import Any

LOSS_BEFORE, SOURCE_LOSS_BEFORE = "loss_before", "source_loss_before"
LOSS_SD = "loss_sd"  # standard error of a row's loss

# column -> the domain in whose rows it is the loss's own value before adaptation
LOSSES_BEFORE = {LOSS_BEFORE: "target", SOURCE_LOSS_BEFORE: "source"}

# compound axis -> column -> power: tokens per parameter, compute, tokens of
# pre-training
COMPOUND = {
    "D/N": {"D": 1, "N": -1},
    "N*D": {"N": 1, "D": 1},
    "N*ptpp": {"N": 1, "ptpp": 1},
}

SHARE = "share_"  # prefix of a column with a domain's share of the tokens


def starts_from_losses(columns: Iterable[str]) -> bool:
    """Tell whether a law that reads these columns starts from the checkpoint's losses."""
    return not set(LOSSES_BEFORE).isdisjoint(columns)


def is_share(column: object) -> bool:
    """Tell by its name whether a column is a domain's share."""
    return str(column).startswith(SHARE) and str(column) != SHARE


def share_domains(columns: Iterable[object]) -> tuple[str, ...]:
    """List the domains that a table mixes, in the order of its columns ``share_NAME``."""
    return tuple(str(c).removeprefix(SHARE) for c in columns if is_share(c))


def powers_of(axis: str) -> dict[str, int]:
    """Look up the powers of columns whose product an axis is; a column's is 1."""
    return COMPOUND.get(axis, {axis: 1})


def axis_product(axis: str, columns: Mapping[str, Any]) -> Any:
    """Compute an axis from its columns, each an array of shape (run,)."""
    first, *factors = powers_of(axis).items()
    column, _ = first
    product = columns[column]
    for column, power in factors:
        product = product * columns[column] if power > 0 else product / columns[column]
    return product

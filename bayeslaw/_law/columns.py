"""Columns that laws read and other rooms name: losses of a checkpoint before its
adaptation, shares of a mixture, and products of columns.
"""

from collections.abc import Iterable, Mapping
from typing import Any

LOSS_BEFORE, SOURCE_LOSS_BEFORE = "loss_before", "source_loss_before"
LOSS_SD = "loss_sd"  # standard error of a row's loss

# column -> the domain whose rows have it
LOSSES_BEFORE = {LOSS_BEFORE: "target", SOURCE_LOSS_BEFORE: "source"}

# compound axis -> powers of the columns whose product it is: tokens per parameter,
# compute, tokens of pre-training
COMPOUND = {
    "D/N": {"D": 1, "N": -1},
    "N*D": {"N": 1, "D": 1},
    "N*ptpp": {"N": 1, "ptpp": 1},
}

SHARE = "share_"  # begins a column with a domain's share of the tokens
OWN = "own"  # the domain of the loss, whichever it is, in a law of several sets


def starts_from_losses(columns: Iterable[str]) -> bool:
    """Tell whether a law that reads these columns starts from the checkpoint's losses."""
    return not set(LOSSES_BEFORE).isdisjoint(columns)


def is_share(column: object) -> bool:
    """Tell whether a column is a domain's share, by its name."""
    return str(column).startswith(SHARE) and str(column) != SHARE


def share_domains(columns: Iterable[object]) -> tuple[str, ...]:
    """Name the domains that a table mixes, in the order of its columns ``share_NAME``."""
    return tuple(str(c).removeprefix(SHARE) for c in columns if is_share(c))


def own_first(columns: Mapping[str, Any], domain: str) -> dict[str, Any]:
    """Give the share of the loss's domain as ``share_own``, and 0 under its name.

    What a token of each domain counts for the loss has then one name in all evaluation
    sets. ``share_own`` is 0 for a set that is none of the domains; where there is such a
    column, nothing changes.
    """
    own, named = f"{SHARE}{OWN}", f"{SHARE}{domain}"
    if own in columns:
        return dict(columns)
    if named not in columns:
        some = next(column for name, column in columns.items() if is_share(name))
        return {**columns, own: 0.0 * some}
    return {**columns, own: columns[named], named: 0.0 * columns[named]}


def powers_of(axis: str) -> dict[str, int]:
    """Give the powers of the columns whose product an axis is: a column is an axis."""
    return COMPOUND.get(axis, {axis: 1})


def axis_product(axis: str, columns: Mapping[str, Any]) -> Any:
    """Multiply an axis out of its columns, each an array of shape (run,)."""
    first, *factors = powers_of(axis).items()
    column, _ = first
    product = columns[column]
    for column, power in factors:
        product = product * columns[column] if power > 0 else product / columns[column]
    return product

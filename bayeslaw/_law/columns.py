"""Columns that laws read and other rooms name: losses of a checkpoint before its
adaptation, and shares of a mixture.
"""

from collections.abc import Iterable

LOSS_BEFORE, SOURCE_LOSS_BEFORE = "loss_before", "source_loss_before"

# column -> the domain whose rows have it
LOSSES_BEFORE = {LOSS_BEFORE: "target", SOURCE_LOSS_BEFORE: "source"}

SHARE = "share_"  # begins a column with a domain's share of the tokens


def is_share(column: object) -> bool:
    """Tell whether a column is a domain's share, by its name."""
    return str(column).startswith(SHARE) and str(column) != SHARE


def share_domains(columns: Iterable[object]) -> tuple[str, ...]:
    """Name the domains that a table mixes, in the order of its columns ``share_NAME``."""
    return tuple(str(c).removeprefix(SHARE) for c in columns if is_share(c))

"""Numbers as people say them."""

from typing import Any


def people_number(x: Any) -> str:
    """A count as people say it: 8.1B, 517M, 12k."""
    for size, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(x) >= size:
            return f"{x / size:.3g}{unit}"
    return f"{x:.3g}"

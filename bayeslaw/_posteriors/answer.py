"""An answer that is a distribution over draws, and how its probability is written."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float


@dataclass(frozen=True, eq=False)
class Answer(ABC):
    """A number for every posterior draw, shape (draw,); infinite where there is
    none.
    """

    draws: Float[np.ndarray, " draw"]

    @property
    def median(self) -> float:
        # one of the draws, which may be infinite: nothing to interpolate
        middle = np.quantile(self.draws, 0.5, method="inverted_cdf")
        return float(middle)

    @property
    def interval(self) -> tuple[float, float]:
        """The central 90%."""
        low, high = np.quantile(self.draws, [0.05, 0.95], method="inverted_cdf")
        return float(low), float(high)

    def probability(self, low: float = -math.inf, high: float = math.inf) -> float:
        """That it lies between two values, both included."""
        return float(np.mean((self.draws >= low) & (self.draws <= high)))

    @abstractmethod
    def statement(self) -> str:
        """The answer in words."""


def format_probability(p: float) -> str:
    """Two digits, and never a certainty that is none."""
    if 0.995 <= p < 1:
        return "over .99"
    if 0 < p < 0.005:
        return "under .01"
    return f"{p:.2f}".removeprefix("0")

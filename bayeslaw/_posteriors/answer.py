"""Represent an answer that is a distribution over draws, and format its probability."""

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
    """A number for every posterior draw, shape (draw,); infinite for draws without an
    answer.
    """

    draws: Float[np.ndarray, " draw"]

    @property
    def median(self) -> float:
        # a draw and no interpolated value, because draws may be infinite
        middle = np.quantile(self.draws, 0.5, method="inverted_cdf")
        return float(middle)

    @property
    def interval(self) -> tuple[float, float]:
        """Compute the central 90% interval."""
        low, high = np.quantile(self.draws, [0.05, 0.95], method="inverted_cdf")
        return float(low), float(high)

    def probability(self, low: float = -math.inf, high: float = math.inf) -> float:
        """Compute the probability of an answer between two values, both included."""
        return float(np.mean((self.draws >= low) & (self.draws <= high)))

    @abstractmethod
    def statement(self) -> str:
        """Describe the answer in words."""


def summarise_draws(draws: Float[np.ndarray, " draw"], prob: float) -> dict[str, float]:
    """Compute ``median``, ``low`` and ``high`` of draws that may be infinite."""
    levels = 0.5, (1 - prob) / 2, (1 + prob) / 2
    ends = np.quantile(draws, levels, method="inverted_cdf").tolist()
    return dict(zip(("median", "low", "high"), ends, strict=True))


def format_probability(p: float) -> str:
    """Format a probability with two digits, but never as 0% or 100% if it is not."""
    if 0.995 <= p < 1:
        return "over .99"
    if 0 < p < 0.005:
        return "under .01"
    return f"{p:.2f}".removeprefix("0")

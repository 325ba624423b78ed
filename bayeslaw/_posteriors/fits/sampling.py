"""How a posterior is sampled: the keywords that `fit` and `pool` share, as records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from bayeslaw._inference.nuts import NUTS


class SamplingOptions(TypedDict, total=False):
    """Sampling keywords of `pool`, as editors show them; `Sampling` has their
    defaults.
    """

    chains: int
    warmup: int
    draws: int
    max_draws: int


class FitSamplingOptions(SamplingOptions, total=False):
    """Sampling keywords of `fit`; `FitSampling` has their defaults."""

    preview: bool


@dataclass(frozen=True)
class Sampling(NUTS):
    """How long chains run: as `NUTS`, but that draws are added while diagnostics
    fail.
    """

    max_draws: int | None = 4000


@dataclass(frozen=True)
class FitSampling(Sampling):
    """As `Sampling`, or without chains.

    Parameters
    ----------
    preview
        Draw by importance sampling, as many as the chains have draws together.
    """

    preview: bool = False

"""Define the arguments that all sampling functions share: priors, chains, diagnostics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from bayeslaw._base.progress.time_left import Progress
from bayeslaw._inference.nuts import NUTS
from bayeslaw._law.law import NATS, Law
from bayeslaw._law.priors import Prior
from bayeslaw._posteriors.fits.candidates import law_for


@dataclass(frozen=True, kw_only=True)
class SamplingArguments:
    """Arguments that `fit` and `pool` share, documented in `fit`."""

    priors: Mapping[str, Prior | str] | None = None
    reference: Mapping[str, float] | None = None
    chains: int = NUTS.chains
    warmup: int = NUTS.warmup
    draws: int = NUTS.draws
    max_draws: int | None = 4000
    seed: int = 0
    progress: Progress | None = None
    on_failure: str = "raise"

    @property
    def nuts(self) -> NUTS:
        """Build the settings of the chains."""
        return NUTS(self.chains, self.warmup, self.draws, self.max_draws)

    @property
    def requested(self) -> list[str]:
        """List the parameters whose priors were replaced."""
        return [name.removesuffix(NATS) for name in self.priors or {}]

    def find(self, law: Law | str | None, runs: pd.DataFrame) -> Law:
        """Find the law and replace its priors."""
        law = law_for(law, runs)
        if not (self.priors or self.reference):
            return law
        return law.with_priors(self.priors or {}).with_reference(self.reference or {})

"""Run posterior simulation-based calibration for any inference: make replicates, rank
the true parameters among the draws, and test the ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import pandas as pd

from bayeslaw._base.html import paragraphs, table_html
from bayeslaw._base.machine import executors, runtime
from bayeslaw._base.progress.time_left import Progress
from bayeslaw._inference.ranks import ALPHA, uniformity

if TYPE_CHECKING:
    from jaxtyping import Float

Truth = Mapping[str, float]


class Ranked(NamedTuple):
    """Rank of the true parameters in a posterior: the share of draws below the truth by
    quantity, and how the draws were made.
    """

    shares: dict[str, float]
    by_chains: bool = False
    converged: bool = True


class Inference(Protocol):
    """An inference given a table, to check."""

    def draw(self, rng: np.random.Generator) -> Truth:
        """Draw parameters from the posterior given the table."""
        ...

    def simulate(
        self, truth: Truth, rng: np.random.Generator
    ) -> Float[np.ndarray, " row"]:
        """Simulate new log losses of the table's runs."""
        ...

    def rank(self, truth: Truth, new: Float[np.ndarray, " row"], seed: int) -> Ranked:
        """Draw the posterior given the table and new losses, and rank the parameters."""
        ...


def replicate(
    inference: Inference,
    replicates: int,
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[Ranked]:
    """Draw parameters, new losses and posteriors ``replicates`` times. After an error
    or an interruption no further replicate is begun.
    """
    seeds = np.random.SeedSequence(seed).spawn(replicates)
    calls = [partial(_replicate_once, inference, child) for child in seeds]
    ranked: dict[int, Ranked] = {}
    # compiled programs release Python's lock, so replicates can run in threads
    with runtime.threads() as pool:
        for i, ranks in executors.as_done(calls, pool):
            ranked[i] = ranks
            if progress:
                progress(len(ranked), replicates)
    return [ranked[i] for i in range(replicates)]


def _replicate_once(inference: Inference, seed: np.random.SeedSequence) -> Ranked:
    rng = np.random.default_rng(seed)
    truth = inference.draw(rng)
    new = inference.simulate(truth, rng)
    return inference.rank(truth, new, int(rng.integers(2**31)))


@dataclass(frozen=True, eq=False)
class InferenceCheck:
    """Posterior simulation-based calibration of a fit.

    Parameters
    ----------
    law
        Name of the law.
    shares
        Shares of the posterior below the true parameters, from which the new losses
        were simulated, by quantity, each of shape (replicate,). They are uniform if the
        inference is right.
    by_chains, not_converged
        Number of posteriors that were drawn by NUTS because importance sampling failed,
        and number of these that did not converge. ``shares`` includes all of them.
    left_out
        Parts of the fit that were not checked, in words; empty if there are none.
    seconds
        Duration in seconds.
    """

    law: str
    shares: Mapping[str, Float[np.ndarray, " replicate"]]
    by_chains: int
    not_converged: int
    left_out: str
    seconds: float

    @property
    def replicates(self) -> int:
        return len(next(iter(self.shares.values())))

    @property
    def p_values(self) -> dict[str, float]:
        """Test that shares are uniform, by quantity."""
        return {name: uniformity(shares) for name, shares in self.shares.items()}

    @property
    def limit(self) -> float:
        """P-value below which a quantity is not uniform, 1% over all of them."""
        return ALPHA / len(self.shares)

    @property
    def wrong(self) -> tuple[str, ...]:
        """List the quantities whose shares are not uniform, the least uniform first."""
        p = self.p_values
        return tuple(sorted((n for n in p if p[n] < self.limit), key=lambda n: p[n]))

    @property
    def is_uniform(self) -> bool:
        return not self.wrong

    @property
    def table(self) -> pd.DataFrame:
        """Make a table of the quantities, the least uniform first: p-value, mean share,
        and the number of truths in the middle 90%.
        """
        rows = {
            name: {
                "p": p,
                "mean": float(self.shares[name].mean()),
                "middle90": float(np.mean(np.abs(self.shares[name] - 0.5) < 0.45)),
            }
            for name, p in self.p_values.items()
        }
        return pd.DataFrame.from_dict(rows, orient="index").sort_values("p")

    @property
    def lines(self) -> tuple[str, ...]:
        """Describe the result in words, line by line."""
        p = self.p_values
        head = (
            f"posterior SBC, {self.replicates} replicates of the fitted runs, "
            f"{len(p)} quantities"
        )
        if self.is_uniform:
            least = min(p, key=lambda name: p[name])
            verdict = (
                f"truths lie among the draws as they should (least uniform: {least}, "
                f"p {p[least]:.2g}), so that no fault of the inference shows"
            )
        else:
            named = ", ".join(f"{name} (p {p[name]:.2g})" for name in self.wrong)
            verdict = (
                f"truths do NOT lie among the draws as they should: {named}, where "
                f"p is to be over {self.limit:.2g}; the fit's draws, or those given "
                "the replicates too, are not their posterior's: fit it again with more "
                "draws, or take a smaller law"
            )
        lines = [
            f"{head}: {verdict}",
            "this is about the sampler at these runs, not about whether the law is right",
        ]
        if self.by_chains:
            of_these = f", {self.not_converged} of which did not converge"
            lines.append(
                f"{self.by_chains} posteriors were drawn by NUTS, as importance sampling "
                f"would not do{of_these if self.not_converged else ''}"
            )
        if self.left_out:
            lines.append(f"not checked: {self.left_out}")
        return tuple(lines)

    def sentence(self) -> str:
        """Describe the result in one line."""
        return "; ".join(self.lines)

    def __repr__(self) -> str:
        return f"InferenceCheck({self.sentence()})"

    def _repr_html_(self) -> str:
        """Show the sentence, and a row for each quantity, in notebooks."""
        return paragraphs(self.sentence()) + table_html(self.table)

    def to_dict(self) -> dict[str, Any]:
        """Convert the record to JSON types."""
        return {
            "replicates": self.replicates,
            "uniform": self.is_uniform,
            "limit": self.limit,
            "p_values": self.p_values,
            "shares": {name: v.tolist() for name, v in self.shares.items()},
            "by_chains": self.by_chains,
            "not_converged": self.not_converged,
            "left_out": self.left_out,
            "seconds": self.seconds,
            "reason": self.sentence(),
        }

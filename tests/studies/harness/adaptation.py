"""Describe how a checkpoint is adapted: replay, learning rate, epochs, mixture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, permutations
from typing import Any

from bayeslaw._base.errors import RunTableError
from bayeslaw._law.columns import SHARE

# names of the domain of pre-training, and of a single domain of adaptation
SOURCE, TARGET = "source", "target"


@dataclass(frozen=True)
class Adaptation:
    """Settings of an adaptation that do not depend on the checkpoint it starts from.

    Parameters
    ----------
    replay
        Share of source text.
    then
        Share of source text after the change at ``changed_at``; None: no change.
    changed_at
        Where the share changes: a share of the run's steps.
    rate
        Factor on the usual peak of the learning rate.
    epochs
        Mean number of times that the whole run reads its target text. The text is cut
        to the length at which this holds. None: the run draws from all target text.
    mixture
        Share of each target domain, by name, where there are several. Together with the
        replay they sum to one. Empty: one target domain, with the share ``1 - replay``.

    Raises
    ------
    RunTableError
        A share is below 0 or above 1, shares do not sum to one, a mixture comes with
        ``then`` or ``epochs``, or a rate or number of epochs is not above 0.
    """

    replay: float
    then: float | None = None
    changed_at: float = 1.0
    rate: float = 1.0
    epochs: float | None = None
    mixture: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        of_targets = dict(self.mixture).values()
        for share in (self.replay, self.last_replay, self.changed_at, *of_targets):
            if not 0 <= share <= 1:
                raise RunTableError(
                    f"{self.name}: {share:g} is a share, at least 0 and at most 1"
                )
        if self.rate <= 0 or (self.epochs is not None and self.epochs <= 0):
            raise RunTableError(f"{self.name}: give a rate and epochs above 0")
        if not self.mixture:
            return
        total = self.replay + sum(of_targets)
        if abs(total - 1) > 1e-6:
            raise RunTableError(f"{self.name}: shares sum to {total:.4g}, not 1")
        if self.then is not None or self.epochs is not None:
            raise RunTableError(
                f"{self.name}: a mixture keeps its shares, and reads all text there is"
            )

    @property
    def name(self) -> str:
        """Suffix of the run's name, after the name of its checkpoint."""
        changed = "" if self.then is None else f"-r{self.then:g}-at{self.changed_at:g}"
        rate = "" if self.rate == 1 else f"-x{self.rate:g}"
        epochs = "" if self.epochs is None else f"-e{self.epochs:g}"
        mixture = "".join(f"-{name}{share:g}" for name, share in self.mixture)
        return f"r{self.replay:g}{changed}{rate}{epochs}{mixture}"

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of the target domains."""
        return tuple(name for name, _ in self.mixture) or (TARGET,)

    @property
    def within(self) -> tuple[float, ...]:
        """Ends of the parts of the target domains in all target text, 0 to 1. The last
        part ends at 1, which is left out.
        """
        shares = [share for _, share in self.mixture]
        total = sum(shares) or 1.0
        return tuple(end / total for end in accumulate(shares[:-1]))

    @property
    def last_replay(self) -> float:
        return self.replay if self.then is None else self.then

    def change(self, last: int) -> int:
        """Compute the step at which replay changes, in a run of ``last`` steps."""
        return round(self.changed_at * last)

    def mean_replay(self, step: int, last: int) -> float:
        """Compute the share of source text in all tokens up to ``step``, in a run of
        ``last`` steps.
        """
        later = max(0, step - self.change(last)) / step
        return (1 - later) * self.replay + later * self.last_replay

    def unique(self, tokens: int, last: int, available: int) -> int:
        """Compute how many of the ``available`` bytes of target text a run draws from,
        if it has ``last`` steps and ``tokens`` tokens in all.
        """
        if self.epochs is None:
            return available
        target_tokens = (1 - self.mean_replay(last, last)) * tokens
        return min(available, round(target_tokens / self.epochs))


def at_replays(shares: Sequence[float]) -> tuple[Adaptation, ...]:
    """Make the usual adaptation at each of several shares of source text."""
    return tuple(map(Adaptation, shares))


def simplex_mixtures(targets: Sequence[str]) -> tuple[Adaptation, ...]:
    """Make ten mixtures of the source and two targets: a simplex lattice (Scheffe 1958)
    that keeps away from the edges.

    Three mixtures have .9 of one domain and .05 of each other, six have .6 and .35 of
    two domains and .05 of the third, and one has a third of each.
    """
    corners = {*permutations((0.9, 0.05, 0.05)), *permutations((0.6, 0.35, 0.05))}
    mixtures = [*sorted(corners), (1 / 3, 1 / 3, 1 / 3)]
    return tuple(
        Adaptation(source, mixture=tuple(zip(targets, shares, strict=True)))
        for source, *shares in mixtures
    )


def varied(adaptations: Sequence[Adaptation]) -> tuple[str, ...]:
    """Name the columns, besides ``replay``, in which adaptations of a table differ."""
    columns = []
    if any(a.then is not None for a in adaptations):
        columns += ["replay_first", "replay_then", "changed_at"]
    if any(a.rate != 1 for a in adaptations):
        columns += ["rate"]
    if any(a.epochs is not None for a in adaptations):
        columns += ["unique_target", "U", "epochs"]
    mixed = dict.fromkeys(name for a in adaptations for name, _ in a.mixture)
    if mixed:
        columns += [f"{SHARE}{name}" for name in (SOURCE, *mixed)]
    return tuple(columns)


def cells_of(
    adaptation: Adaptation, step: int, last: int, tokens: int, unique_target: int
) -> dict[str, Any]:
    """Compute ``replay`` and the columns of `varied` for a row measured after ``step``.

    Parameters
    ----------
    last
        Steps of the whole run.
    tokens
        Tokens that the run has read up to the step.
    unique_target
        Bytes of target text that the run draws from.
    """
    replay = adaptation.mean_replay(step, last)
    # The law of repeated tokens reads D / U as the number of epochs, but D also counts
    # replayed tokens. So U is scaled to make D / U the epochs of the target text.
    target_tokens = tokens * (1 - replay)
    return {
        "replay": round(replay, 6),
        "replay_first": adaptation.replay,
        "replay_then": adaptation.last_replay,
        "changed_at": adaptation.changed_at,
        "rate": adaptation.rate,
        "unique_target": unique_target,
        "U": round(unique_target * tokens / target_tokens)
        if target_tokens
        else unique_target,
        "epochs": round(target_tokens / unique_target, 6),
        **{
            f"{SHARE}{name}": round(share, 6)
            for name, share in ((SOURCE, adaptation.replay), *adaptation.mixture)
        },
    }

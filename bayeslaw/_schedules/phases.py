"""Hold learning rates of pre-training and adaptation, and compute the areas under them:
the inputs of loss curves, turning lengths and best schedules. Evaluate the losses of
source and target along them, for every draw.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, no_type_check

import jax
import numpy as np

from bayeslaw._base.errors import PlanError, warn
from bayeslaw._base.limits import NUMBER, Kind, checked, read_numbers
from bayeslaw._base.machine import runtime
from bayeslaw._base.programs import compiled
from bayeslaw._base.streams import Stream, generator
from bayeslaw._posteriors.averaging.loading import as_posterior
from bayeslaw._posteriors.draws import Draws, pair_draws, take_draws
from bayeslaw._posteriors.posterior import Piece, Posterior
from bayeslaw._tables.rates.areas import COLUMNS, LAMBDA, Areas, areas

if TYPE_CHECKING:
    from jaxtyping import Float, Num


ENDLESS = 1e18  # steps that stand for endless training
ABOVE_0 = Kind(lambda x: x > 0, "above 0")
WEIGHT = Kind(lambda x: 0 <= x <= 1, "a share in [0, 1] (the target has the rest)", "")


@no_type_check  # at run time: wrong types get an error message of our own
@dataclass(frozen=True, eq=False)
class Phases:
    """Hold the learning rates of both phases of training, and other columns that laws
    read.

    Parameters
    ----------
    pretraining
        Rates at steps 1, 2, ..., shape (step,), as `bayeslaw._tables.rates.schedules`
        makes them; None if pre-training is unknown (for laws that do not
        read its areas), and then its last rate counts as 0.
    adaptation
        Rates of the adaptation phase, shape (step,); None for a curve of pre-training
        only.
    covariates
        Other columns the laws read, such as ``{"replay": 0.25}`` or ``{"N": 1e9}``.
    carry_momentum, lr_power, batch_ratio
        As in `schedule_areas`; use the values of the tables that the laws were fitted
        to.

    Raises
    ------
    PlanError
        There are no rates, or rates or covariates are not numbers.
    """

    pretraining: Float[np.ndarray, " step"] | None
    adaptation: Float[np.ndarray, " adaptation_step"] | None = None
    covariates: Mapping[str, float] = field(default_factory=dict)
    carry_momentum: bool = True
    lr_power: float = 0.0
    batch_ratio: float = 1.0

    def __post_init__(self) -> None:
        if self.pretraining is None and self.adaptation is None:
            raise PlanError(
                "phases need the learning rates of pre-training, of adaptation, or of "
                "both"
            )
        given = self.covariates.items()
        covariates = {name: checked(name, value, NUMBER) for name, value in given}
        object.__setattr__(self, "covariates", covariates)
        for name in ("pretraining", "adaptation"):
            given = getattr(self, name)
            if given is None:
                continue
            try:
                rates = np.asarray(given, float)
            except (TypeError, ValueError):
                rates = np.array(np.nan)
            is_good = np.isfinite(rates) & (rates >= 0)
            if rates.ndim != 1 or not len(rates) or not is_good.all():
                raise PlanError(
                    f"{name} must be learning rates at steps 1, 2, ...: numbers of at "
                    "least 0 in one dimension"
                )
            object.__setattr__(self, name, rates)
        read_numbers(self, {"batch_ratio": ABOVE_0, "lr_power": NUMBER})


class PhaseAreas(NamedTuple):
    """Compute areas after any steps of a phase; its last rate goes on."""

    rates: Float[np.ndarray, " step"]  # rates at steps 0, 1, ...
    areas: Areas  # areas after steps 0, 1, ...
    weight: float  # weight of the momentum in the annealing area, at the last rate
    batch_ratio: float  # as in `schedule_areas`

    @property
    def steps(self) -> int:
        return len(self.rates) - 1

    @property
    def last(self) -> float:
        return float(self.rates[-1])

    def at(self, steps: Num[np.ndarray, "*step"] | float) -> Areas:
        """Compute the areas and the momentum after ``steps``, within the schedule or
        beyond it. Results have the shape of ``steps``.
        """
        steps = np.asarray(steps, float)
        inside = np.minimum(steps, self.steps).astype(int)
        s1, s2, momentum = (area[inside] for area in self.areas)
        # At a constant rate the momentum m (Wang 2025, eq. 1: m_i = lambda m_{i-1} +
        # eta_{i-1} - eta_i) fades as m lambda^k, and k more steps add the geometric
        # series m lambda (1 - lambda^k) / (1 - lambda) to the annealing area.
        more = self.batch_ratio * np.maximum(steps - self.steps, 0)
        share_left = LAMBDA**more
        fading = self.weight * LAMBDA / (1 - LAMBDA) * momentum * (1 - share_left)
        return Areas(
            S1=s1 + more * self.last,
            S2=s2 + np.where(more > 0, fading, 0.0),
            momentum=momentum * share_left,
        )

    def rate(self, steps: Num[np.ndarray, "*step"]) -> Float[np.ndarray, "*step"]:
        return self.rates[np.minimum(steps, self.steps).astype(int)]

    def grid(self, inside: int = 1000, after: int = 480) -> Float[np.ndarray, " step"]:
        """Lay a grid of steps. ``inside`` steps lie in the schedule, half of them
        evenly and half evenly in log. If the last rate is above 0, ``after`` more lie
        from the schedule's end to `ENDLESS`.
        """
        half = inside // 2
        parts = [np.linspace(1, self.steps, half), np.geomspace(1, self.steps, half)]
        if self.last > 0:
            parts.append(self.steps + np.geomspace(1, ENDLESS, after))
        return np.unique(np.round(np.concatenate(parts)))


def paths(phases: Phases) -> tuple[PhaseAreas | None, PhaseAreas | None]:
    """Compute the paths of pre-training, and of the adaptation that follows it."""
    power = phases.lr_power

    def path_of(
        rates: Float[np.ndarray, " step"], before: float, momentum: float, ratio: float
    ) -> PhaseAreas:
        after = areas(
            rates, before=before, momentum=momentum, lr_power=power, batch_ratio=ratio
        )
        start = (0.0, 0.0, momentum)
        from_start = [np.append(s, a) for s, a in zip(start, after, strict=True)]
        return PhaseAreas(
            rates=np.append(before, rates),
            areas=Areas(*from_start),
            weight=rates[-1] ** power if power else 1.0,
            batch_ratio=ratio,
        )

    first, before, momentum = None, 0.0, 0.0
    if phases.pretraining is not None:
        first = path_of(phases.pretraining, 0.0, 0.0, 1.0)
        before = first.last
        if phases.carry_momentum:
            momentum = float(first.areas.momentum[-1])
    if phases.adaptation is None:
        return first, None
    return first, path_of(phases.adaptation, before, momentum, phases.batch_ratio)


def both_paths(phases: Phases) -> tuple[PhaseAreas | None, PhaseAreas]:
    """Compute the paths of phases that must have an adaptation."""
    first, second = paths(phases)
    if second is None:
        raise PlanError(
            "the phases have no adaptation: Phases(pretraining, adaptation)"
        )
    return first, second


def columns_of(
    first: Areas | None,
    second: Areas | tuple[float, float | Float[np.ndarray, "*step"]] = (0.0, 0.0),
) -> dict[str, Any]:
    """Name the areas of both phases as columns. By default the areas of adaptation are
    0, as before its first step.
    """
    columns = {} if first is None else {"S1_pt": first.S1, "S2_pt": first.S2}
    return columns | {"S1_cpt": second[0], "S2_cpt": second[1]}


def finished(path: PhaseAreas | None) -> Areas | None:
    """Compute the areas at the end of a phase's schedule; None for an unknown phase."""
    return None if path is None else path.at(path.steps)


def after_both(phases: Phases) -> dict[str, Any]:
    """Compute the areas after both schedules, scalars."""
    first, second = both_paths(phases)
    return columns_of(finished(first), second.at(second.steps))


# -- the losses of both sides ----------------------------------------------------------


class WeightedDomain(NamedTuple):
    """Hold one domain's posterior with its draws in paired order, and the weight of its
    loss. ``parts``: the draws of each formula, and the index of each draw's pair, shape
    (draw,); ``pairs``: number of pairs.
    """

    name: str
    weight: float
    parts: tuple[Draws, ...]
    pairs: int

    def loss(
        self, covariates: Mapping[str, Float[np.ndarray, "*point"] | float]
    ) -> Float[np.ndarray, "draw point"]:
        """Compute the loss in nats per token at covariates, of draws or common."""
        values = [np.asarray(value, float) for value in covariates.values()]
        *_, points = np.broadcast_shapes((1,), *(value.shape for value in values))
        # where some are of draws, those common to all have a row for each, too
        by_draw = any(value.ndim > 1 for value in values)
        shape = (self.pairs, points) if by_draw else (points,)
        columns = {
            name: np.broadcast_to(value, shape)
            for name, value in zip(covariates, values, strict=True)
        }
        losses = np.empty((self.pairs, points))
        for part in self.parts:
            piece, rows = part.piece, part.rows
            names = piece.columns_in(columns)
            missing = next((c for c in names if c not in columns), None)
            if missing is not None:
                why = f"{missing!r}: give Phases(..., covariates={{{missing!r}: ...}})"
                if missing in COLUMNS:
                    why = f"{missing}, but the rates of pre-training are not given"
                raise PlanError(f"the law of {self.name} reads {why}")
            inputs = {c: columns[c] for c in names}
            if not by_draw:
                losses[rows] = np.exp(piece.at(inputs))
                continue
            inputs = {c: column[rows] for c, column in inputs.items()}
            of_piece = _over_draws_and_rows(piece.log_loss, dict(piece.values), inputs)
            losses[rows] = np.exp(np.asarray(of_piece))
        if not np.isfinite(losses).all():
            raise PlanError(
                f"the law of {self.name} has no finite loss at some of the steps or "
                "values evaluated"
            )
        return losses


@compiled(static_argnums=0)
def _over_draws_and_rows(log_loss: Callable, draws, covariates):
    """Map over draws like `over_draws`, with covariates per draw, shape (draw, point)."""
    return jax.vmap(log_loss, in_axes=(0, 0))(draws, covariates)


def sides_of(
    source: Posterior | None,
    target: Posterior | None,
    source_weight: float,
    seed: int,
    given: Collection[str],
    *reads: tuple[str, ...],
) -> tuple[WeightedDomain, ...]:
    """Pair the independent draws of both domains at random, and set the weights of eq.
    5.

    ``given``: columns of the run, of which one that no law reads gives a warning.
    ``reads``: groups of columns that the question is about; at least one law must read
    one of each.
    """
    runtime.start()
    source_weight = checked("source_weight", source_weight, WEIGHT)
    # Wang 2025, eq. 5: lambda_1 of the source's loss and lambda_2 = 1 - lambda_1 of the
    # target's
    weights = {"source": source_weight, "target": 1 - source_weight}
    pieces: dict[str, tuple[Piece, ...]] = {}
    for name, posterior in {"source": source, "target": target}.items():
        if posterior is not None:
            pieces[name] = tuple(as_posterior(posterior).pieces())
        elif weights[name]:
            raise PlanError(
                f"the {name} loss has weight {weights[name]:g}, but no posterior of it "
                "is given"
            )
    counts = [sum(piece.draws for piece in of_domain) for of_domain in pieces.values()]
    orders = pair_draws(counts, generator(seed, Stream.PAIRS))
    sides = []
    for (name, of_domain), order in zip(pieces.items(), orders, strict=True):
        parts = tuple(take_draws(of_domain, order))
        sides.append(WeightedDomain(name, weights[name], parts, len(order)))
    covariates = {c for piece in chain(*pieces.values()) for c in piece.covariates}
    for group in reads:
        if not covariates & set(group):
            raise PlanError(
                f"no law here reads {' or '.join(group)}, on which the answer depends"
            )
    unread = sorted({*given} - covariates)
    if unread:
        warn(
            f"no law here reads {', '.join(unread)}, so the answer does not depend on "
            f"it; they read {', '.join(sorted(covariates))}"
        )
    return tuple(sides)


def weighted_loss(
    sides: tuple[WeightedDomain, ...],
    covariates: Mapping[str, Float[np.ndarray, "*point"] | float],
) -> Float[np.ndarray, "draw point"]:
    """Compute the weighted loss of eq. 5, shape (draw, point)."""
    losses = [side.weight * side.loss(covariates) for side in sides if side.weight]
    return sum(losses, np.zeros((1, 1)))


def name_of_loss(sides: tuple[WeightedDomain, ...]) -> str:
    """Name the weighted loss, in words."""
    for side in sides:
        if side.weight == 1:
            return f"the {side.name} loss"
    weighted = [f"{side.weight:.3g} {side.name}" for side in sides]
    return f"the loss weighted {' and '.join(weighted)}"

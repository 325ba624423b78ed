"""Compute what a training run costs: FLOPs, device-hours, days and money. Every cost is
linear in tokens: a rate per token for each model size, plus an amount that is paid once
(for a checkpoint that must be trained first, and a run's fixed cost).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from typing import NamedTuple

import numpy as np

from bayeslaw._base.errors import PlanError
from bayeslaw._base.limits import COUNT, POSITIVE, Kind, checked, read_numbers
from bayeslaw._base.numbers import format_count
from bayeslaw._costs.hardware import Hardware

FLOPS_PER_TOKEN = 6  # and parameter: forward and backward pass (Kaplan et al. 2020)

UTILISATION = Kind(
    lambda x: 0 < x <= 1, "a share of the peak in (0, 1], such as 0.4", ""
)
WHOLE = Kind(lambda x: x >= 1 and x % 1 == 0, "a whole number of at least 1")
AMOUNT = Kind(lambda x: x >= 0, "an amount of money, not negative")


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Describe the FLOPs of one model beyond 6 N D.

    Parameters
    ----------
    N
        Size of the model; None: the shape holds for every size.
    active
        Parameters active for a token, in a mixture of experts; else N.
    layers, width, context
        Depth, attention width (heads times head size) and sequence length: attention adds
        12 layers width context FLOPs a token (Chowdhery 2022, appendix B). All or none.
    vocab
        Size of the vocabulary, if N does not count embeddings: the output layer then
        adds 6 vocab width FLOPs a token. It needs ``width``.
    """

    N: float | None = None
    active: float | None = None
    layers: float | None = None
    width: float | None = None
    context: float | None = None
    vocab: float | None = None

    def __post_init__(self) -> None:
        read_numbers(self, dict.fromkeys(vars(self), COUNT), "shape")
        has_attention = self.layers is not None or self.context is not None
        if has_attention and None in (self.layers, self.width, self.context):
            raise PlanError("the shape's attention needs layers, width and context")
        if self.vocab is not None and self.width is None:
            raise PlanError("the shape's vocab needs the width of the model")

    def is_of(self, N: float) -> bool:
        return self.N is None or abs(N / self.N - 1) < 0.01

    def flops_per_token(self, N: float) -> float:
        """Compute the FLOPs of training on one token."""
        flops = FLOPS_PER_TOKEN * (self.active or N)
        if self.layers and self.width and self.context:
            flops += 12 * self.layers * self.width * self.context
        if self.vocab and self.width:
            flops += FLOPS_PER_TOKEN * self.vocab * self.width
        return flops

    @property
    def formula(self) -> str:
        """Write the formula in words."""
        parts = [
            "6 N D"
            if self.active is None
            else f"6 ({format_count(self.active)} active) D"
        ]
        if self.layers is not None:
            parts.append("12 layers width context D")
        if self.vocab is not None:
            parts.append("6 vocab width D")
        return " + ".join(parts)


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Compute what training costs on stated hardware at a stated price.

    Numbers may be given as text, as in the command line: ``"8.1B"``, ``"40%"``.

    Parameters
    ----------
    hardware
        Cluster that one run trains on: ``"64xH100"``, or ``"64x989TFLOP/s"``.
    mfu
        Share of the peak FLOP/s that training reaches.
    price
        Money per device-hour: ``2.5``.
    tokens_per_second
        Measured tokens per second of the cluster, by model size, in place of the peak
        and ``mfu``: ``{"8.1B": "120k"}``. Between sizes FLOP/s are interpolated in log
        N; beyond them the nearest size's FLOP/s hold.
    shapes
        FLOPs of models of each size beyond 6 N D.
    fixed
        Money that a run costs whatever its length.
    side_by_side
        Runs that train at once, each on its own cluster.
    train_checkpoint
        The checkpoint must be trained first: its pre-training is paid, too.

    Raises
    ------
    PlanError
        A number is out of range, or the device is not known.

    Examples
    --------
    >>> costs = Costs(hardware="64xH100", mfu=0.4, price=2.5)
    >>> round(costs.of_run(8.1e9, 100e9).days, 2)
    2.22
    """

    hardware: Hardware | str | None = None
    mfu: float = 0.4
    price: float | None = None
    tokens_per_second: Mapping[float, float] | None = None
    shapes: Sequence[Shape] = ()
    fixed: float = 0.0
    side_by_side: int = 1
    train_checkpoint: bool = False

    def __post_init__(self) -> None:
        kinds = {"mfu": UTILISATION, "fixed": AMOUNT, "price": POSITIVE}
        read_numbers(self, kinds | {"side_by_side": WHOLE})
        object.__setattr__(self, "side_by_side", int(self.side_by_side))
        if self.tokens_per_second is not None:
            what = "tokens_per_second"
            rates = {
                checked(what, N, COUNT): checked(what, rate, COUNT)
                for N, rate in self.tokens_per_second.items()
            }
            object.__setattr__(self, what, rates)
        if self.hardware is not None:
            Hardware.parse(self.hardware)
        if self.price is not None and not self.has_time:
            raise PlanError(
                "a price is per device-hour: give hardware (64xH100), or measured "
                "tokens_per_second"
            )
        if self.fixed and self.price is None:
            raise PlanError("a fixed cost a run needs a price per device-hour, too")

    @property
    def has_time(self) -> bool:
        """Tell whether hours are known."""
        return self.hardware is not None or bool(self.tokens_per_second)

    @property
    def has_money(self) -> bool:
        """Tell whether money is known."""
        return self.price is not None

    @property
    def devices(self) -> int:
        """Count the devices of a run's cluster; 1 if only its speed is known."""
        return 1 if self.hardware is None else Hardware.parse(self.hardware).count

    # -- rates -------------------------------------------------------------------------

    def shape(self, N: float) -> Shape:
        """Find the shape of a model size.

        Raises
        ------
        PlanError
            Shapes were given, but none for this size.
        """
        if not self.shapes:
            return Shape()
        shape = next((shape for shape in self.shapes if shape.is_of(N)), None)
        if shape is None:
            sizes = ", ".join(format_count(shape.N) for shape in self.shapes)
            raise PlanError(
                f"no shape is given for N = {format_count(N)}, only for {sizes}"
            )
        return shape

    def flops_per_token(self, N: float) -> float:
        """Compute the FLOPs of training on one token."""
        return self.shape(N).flops_per_token(N)

    def flops_per_second(self, N: float) -> float:
        """Compute the FLOP/s that a run's cluster reaches; NaN if not known."""
        if self.tokens_per_second:
            sizes = np.array(sorted(self.tokens_per_second), float)
            reached = [
                self.tokens_per_second[size] * self.flops_per_token(size)
                for size in sorted(self.tokens_per_second)
            ]
            return float(np.interp(math.log(N), np.log(sizes), reached))
        if self.hardware is None:
            return math.nan
        cluster = Hardware.parse(self.hardware)
        return cluster.count * cluster.peak_flops * self.mfu

    # -- bills -------------------------------------------------------------------------

    def of_tokens(self, N: float, D: float) -> Bill:
        """Compute the cost of training on ``D`` tokens, without what is paid once."""
        flops = self.flops_per_token(N) * D
        seconds = flops / self.flops_per_second(N)
        hours = self.devices * seconds / 3600
        money = math.nan if self.price is None else hours * self.price
        return Bill(flops, hours, seconds / 86400, money)

    def once(self, N: float, ptpp: float | None) -> Bill:
        """Compute the cost before the first token: a run's fixed cost, and that of the
        checkpoint if it must be trained (on ptpp N tokens).

        Raises
        ------
        PlanError
            The checkpoint must be trained, and ptpp is None.
        """
        fixed = Bill(money=self.fixed)
        if not self.train_checkpoint:
            return fixed
        if ptpp is None:
            raise PlanError(
                "train_checkpoint pays for the tokens of pre-training: give ptpp (--ptpp "
                "43)"
            )
        return self.of_tokens(N, ptpp * N) + fixed

    def of_run(self, N: float, D: float, ptpp: float | None = 0.0) -> Bill:
        """Compute the total cost of an adaptation, with a checkpoint to be trained."""
        return self.once(N, ptpp) + self.of_tokens(N, D)

    def most_tokens(self, N: float, ptpp: float | None, **limits: float) -> float:
        """Compute the most tokens that keep limits on the bill, by name (`COST_LIMITS`:
        ``max_cost``, ``max_days``); 0 or less if the cost before the first token exceeds
        them.
        """
        once, rate = self.once(N, ptpp), self.of_tokens(N, 1.0)
        tokens = math.inf
        for name, most in limits.items():
            if most < math.inf:
                amount = COST_LIMITS[name].amount
                remaining = most - getattr(once, amount)
                tokens = min(tokens, remaining / getattr(rate, amount))
        return tokens

    def days_of(self, days: Sequence[float]) -> float:
        """Count days until all runs are done, each started when a cluster is free."""
        free = [0.0] * self.side_by_side
        for run in days:
            heapq.heappush(free, heapq.heappop(free) + run)
        return max(free)

    def sentence(self, N: float | None = None) -> str:
        """Describe in words how costs are computed."""
        shapes = [self.shape(N)] if N is not None else self.shapes or [Shape()]
        formulas = dict.fromkeys(shape.formula for shape in shapes)
        words = [f"FLOPs by {' or '.join(formulas)}"]
        if self.tokens_per_second:
            words.append("measured tokens per second")
        elif self.hardware is not None:
            cluster = Hardware.parse(self.hardware)
            words.append(
                f"{cluster} at {self.mfu:.0%} of {cluster.peak_flops / 1e12:.4g} TFLOP/s"
            )
        if self.price is not None:
            words.append(f"{self.price:g} per device-hour")
        if self.fixed:
            words.append(f"{self.fixed:g} a run")
        if self.train_checkpoint:
            words.append("with the checkpoint's pre-training")
        return ", ".join(words)


@dataclass(frozen=True)
class Bill:
    """Hold FLOPs, device-hours, days and money (in the currency of the price); NaN if
    not known.
    """

    flops: float = 0.0
    device_hours: float = 0.0
    days: float = 0.0
    money: float = 0.0

    @classmethod
    def from_dict(cls, amounts: Mapping[str, float]) -> Bill:
        """Read the bill that `to_dict` wrote."""
        unknown = dict.fromkeys((f.name for f in fields(cls)), math.nan)
        return cls(**{**unknown, **amounts})

    def __add__(self, bill: Bill) -> Bill:
        pairs = zip(astuple(self), astuple(bill), strict=True)
        return Bill(*(first + second for first, second in pairs))

    @property
    def price(self) -> float:
        """Choose the number to compare bills by: money if known, else days, else FLOPs."""
        amounts = (x for x in (self.money, self.days, self.flops) if not math.isnan(x))
        return next(amounts)

    def to_dict(self) -> dict[str, float]:
        """Arrange the known amounts for JSON."""
        amounts = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: x for name, x in amounts.items() if not math.isnan(x)}

    def sentence(self) -> str:
        """State money, device-hours and days in words."""
        words = [] if math.isnan(self.money) else [format_money(self.money)]
        if not math.isnan(self.days):
            words += [
                f"{format_money(self.device_hours)} device-hours",
                format_days(self.days),
            ]
        return ", ".join(words)


AMOUNTS = " ".join(f"{field.name}?" for field in fields(Bill))  # keys of a known bill


def format_money(amount: float) -> str:
    """Write an amount as people read it: 12,340; 3.42."""
    return f"{amount:,.0f}" if abs(amount) >= 100 else f"{amount:.3g}"


def format_days(days: float) -> str:
    """Write days, or hours if less than one day."""
    return f"{days:.3g} days" if days >= 1 else f"{24 * days:.2g} hours"


# -- limits on a bill ------------------------------------------------------------------


class CostLimit(NamedTuple):
    """Describe a limit on one amount of a planned run's bill.

    Parameters
    ----------
    amount
        The amount of the `Bill` that is limited.
    binding
        How a plan calls the limit where it binds.
    is_known
        Whether these costs have the amount.
    needs
        What to give where they do not; follows the limit's name.
    phrase
        The limit as the page states it.
    """

    amount: str
    binding: str
    is_known: Callable[[Costs], bool]
    needs: str
    phrase: Callable[[float], str]


# by argument of `bayeslaw.plan`
COST_LIMITS: dict[str, CostLimit] = {
    "max_cost": CostLimit(
        amount="money",
        binding="cost",
        is_known=lambda costs: costs.has_money,
        needs="is in money: give a price per device-hour, "
        "Costs(hardware='64xH100', price=2.5) (--hardware 64xH100 --price 2.5)",
        phrase=lambda most: f"for at most {format_money(most)}",
    ),
    "max_days": CostLimit(
        amount="days",
        binding="deadline",
        is_known=lambda costs: costs.has_time,
        needs="needs hardware or measured tokens per second: "
        "Costs(hardware='64xH100') (--hardware 64xH100)",
        phrase=lambda most: f"within {format_days(most)}",
    ),
}

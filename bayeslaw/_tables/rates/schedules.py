"""Make learning-rate schedules.

A schedule is an array of learning rates at steps 1, 2, ..., shape (step,).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float

    Rates = Float[np.ndarray, " step"]
    Body = Float[np.ndarray, " falling"]


def constant(
    peak: float, steps: int, *, warmup: int = 0, start: float = 0.0
) -> Float[np.ndarray, " step"]:
    """Hold the peak at every step after the warm-up. Shape (step,).

    Parameters
    ----------
    peak, steps
        Highest learning rate, and number of steps with the warm-up.
    warmup, start
        Steps of the linear ramp from ``start`` to ``peak``. An adaptation phase
        re-warms from ``start`` = 0 (Wang 2025, section 4.1) or from the last rate of
        pre-training.

    Examples
    --------
    >>> bayeslaw.constant(2e-4, 4, warmup=2).tolist()
    [0.0001, 0.0002, 0.0002, 0.0002]
    """
    _check(peak, steps, start)
    stable = np.ones(max(steps - warmup, 0))
    return _join_phases(peak, steps, warmup, start, stable, peak)


def cosine(
    peak: float, steps: int, *, final: float = 0.0, warmup: int = 0, start: float = 0.0
) -> Float[np.ndarray, " step"]:
    """Follow half a cosine from the peak to ``final`` at the last step. Shape (step,).

    Examples
    --------
    >>> bayeslaw.cosine(2e-4, 4, warmup=2).round(5).tolist()
    [0.0001, 0.0002, 0.0001, 0.0]
    """
    _check(peak, steps, start, final)
    falling = 0.5 * (1 + np.cos(np.pi * _count_progress(steps - warmup)))
    return _join_phases(peak, steps, warmup, start, falling, final)


def wsd(
    peak: float,
    steps: int,
    *,
    decay: int,
    final: float = 0.0,
    shape: Literal["linear", "exponential"] = "linear",
    warmup: int = 0,
    start: float = 0.0,
) -> Float[np.ndarray, " step"]:
    """Warm up, hold, and decay to ``final`` over the last ``decay`` steps. Shape
    (step,).

    An exponential decay needs ``final`` above 0.

    Examples
    --------
    >>> bayeslaw.wsd(1.0, 4, decay=2).tolist()
    [1.0, 1.0, 0.5, 0.0]
    """
    _check(peak, steps, start, final)
    if not 0 <= decay <= steps - warmup:
        raise ValueError(
            f"decay = {decay} steps, but {steps - warmup} are left after the warm-up"
        )
    stable, progress = np.ones(steps - warmup - decay), _count_progress(decay)
    falling, end = 1 - progress, final
    if shape != "linear":
        if final <= 0:
            raise ValueError(
                f"an exponential decay never reaches {final:g}: give final above 0"
            )
        falling, end = (final / peak) ** progress, 0.0
    return _join_phases(
        peak, steps, warmup, start, np.concatenate([stable, falling]), end
    )


def multi_step(
    peak: float,
    steps: int,
    *,
    drops: Mapping[int, float],
    warmup: int = 0,
    start: float = 0.0,
) -> Float[np.ndarray, " step"]:
    """Hold the rate, and multiply it by ``drops[step]`` from that step on. Shape
    (step,).

    Examples
    --------
    >>> bayeslaw.multi_step(1.0, 4, drops={3: 0.1}).tolist()
    [1.0, 1.0, 0.1, 0.1]
    """
    rates = constant(peak, steps, warmup=warmup, start=start)
    beyond = [step for step in drops if not 1 <= step <= steps]
    if beyond:
        raise ValueError(f"a drop at step {beyond[0]}, but the steps are 1 to {steps}")
    for step, factor in drops.items():
        rates[step - 1 :] *= factor
    return rates


def _check(peak: float, steps: int, *rates: float) -> None:
    """Refuse rates below 0 or no numbers, and a number of steps that is not whole."""
    if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or steps < 0:
        raise ValueError(f"steps must be a whole number of at least 0, got {steps!r}")
    for rate in (peak, *rates):
        is_number = isinstance(rate, int | float | np.integer | np.floating)
        if not (is_number and np.isfinite(rate) and rate >= 0):
            raise ValueError(f"a learning rate must be at least 0, got {rate!r}")


def _count_progress(steps: int) -> Rates:
    """Count 1/steps, ..., 1."""
    return np.arange(1, steps + 1) / max(steps, 1)


def _join_phases(
    peak: float, steps: int, warmup: int, start: float, body: Body, final: float
) -> Rates:
    """Join the ramp and a body that falls from 1 (the peak) to 0 (the final rate)."""
    if not 0 <= warmup <= steps:
        raise ValueError(f"warmup = {warmup} steps of {steps}")
    ramp = start + (peak - start) * _count_progress(warmup)
    return np.concatenate([ramp, final + (peak - final) * body])

"""Link loss and accuracy: the accuracy of an evaluation is a logistic function of the
loss, with its own posterior from a small table.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.special import expit, logit

from bayeslaw._base.errors import FitWarning, RunTableError, warn
from bayeslaw._base.frames import Table, as_frame
from bayeslaw._base.limits import LARGEST_LOSS, Kind, checked
from bayeslaw._base.numbers import parse_number
from bayeslaw._base.streams import Stream, generator
from bayeslaw._inference.diagnostics import TRUSTED_K, by_weight
from bayeslaw._inference.importance import AMIS, mixture_of, sample_adaptively
from bayeslaw._inference.modes import Peak
from bayeslaw._tables.rows.naming import check_repeated

if TYPE_CHECKING:
    from jaxtyping import Float, Int

ACCURACY = Kind(lambda x: 0 < x < 1, "an accuracy between 0 and 1, such as 60%", "")
CHANCE_LEVEL = Kind(lambda x: 0 <= x < 1, "an accuracy by chance, such as 25%", "")
COLUMNS = ("loss", "accuracy")


@dataclass(frozen=True, eq=False)
class AccuracyLink:
    """Draws of the accuracy as a function of the loss. Made by `accuracy_link`.

    Parameters
    ----------
    chance
        Accuracy of guessing, to which the accuracy falls as the loss grows.
    ceiling, middle, width
        The accuracy at very low losses, the loss at half way between ceiling and
        chance, and the scale of the fall in nats, each of shape (draw,).
    sigma
        Sd of a measured accuracy around the curve, shape (draw,).
    losses
        Smallest and largest loss of the table.
    error
        Error of an evaluation, shape (draw,); None for the curve itself.
    warnings
        Reasons to distrust the curve.
    """

    chance: float
    ceiling: Float[np.ndarray, " draw"]
    middle: Float[np.ndarray, " draw"]
    width: Float[np.ndarray, " draw"]
    sigma: Float[np.ndarray, " draw"]
    losses: tuple[float, float]
    error: Float[np.ndarray, " #draw"] = field(default_factory=lambda: np.zeros(1))
    warnings: tuple[str, ...] = ()

    @property
    def draws(self) -> int:
        return len(self.middle)

    def accuracy(
        self, loss: Float[np.ndarray, " draw *point"]
    ) -> Float[np.ndarray, " draw *point"]:
        """Compute the accuracy at each draw's own loss in nats, shape (draw, ...)."""
        shape = (-1, *(1,) * (loss.ndim - 1))
        leaves = (self.ceiling, self.middle, self.width, self.error)
        ceiling, middle, width, error = (leaf.reshape(shape) for leaf in leaves)
        share = expit((middle - loss) / width)
        return self.chance + (ceiling - self.chance) * share + error

    def loss_at(
        self, accuracy: Float[np.ndarray, " draw"] | float
    ) -> Float[np.ndarray, " draw"]:
        """Compute the largest loss at which each draw has this accuracy, shape (draw,):
        infinite if chance reaches it, 0 if no loss is low enough.
        """
        share = (accuracy - self.error - self.chance) / (self.ceiling - self.chance)
        loss = self.middle - self.width * logit(np.clip(share, 1e-12, 1 - 1e-12))
        reachable = np.where(share < 1, np.maximum(loss, 0.0), 0.0)
        return np.where(share > 0, reachable, np.inf)

    def take(self, index: Int[np.ndarray, " taken"]) -> AccuracyLink:
        """Take the draws ``index``, shape (taken,); repeats are allowed."""
        names = ("ceiling", "middle", "width", "sigma", "error")
        error = np.broadcast_to(self.error, self.draws)
        leaves = {name: getattr(self, name) for name in names} | {"error": error}
        return replace(self, **{name: leaf[index] for name, leaf in leaves.items()})

    def at_means(self) -> AccuracyLink:
        """Replace each draw by the mean of all draws."""
        leaves = {name: getattr(self, name) for name in ("ceiling", "middle", "width")}
        means = {k: np.full(self.draws, leaf.mean()) for k, leaf in leaves.items()}
        return replace(self, **means)

    def of_new_evaluation(self, rng: np.random.Generator) -> AccuracyLink:
        """Add the error of an evaluation to each draw."""
        return replace(self, error=self.sigma * rng.standard_normal(self.draws))

    def sentence(self) -> str:
        """Describe the curve in words."""
        low, high = np.quantile(self.middle, [0.05, 0.95])
        return (
            f"accuracy from {self.chance:.0%} by chance to {np.median(self.ceiling):.0%}, "
            f"half way at a loss of {np.median(self.middle):.3g} ({low:.3g} to {high:.3g})"
        )


def accuracy_link(
    table: Table | str | Path,
    *,
    chance: float | str = 0.0,
    draws: int = 4000,
    seed: int = 0,
) -> AccuracyLink:
    """Sample the posterior of an accuracy as a logistic of the loss, by importance
    sampling.

    This is the second step of two-step forecasts of tasks (Llama 3, section 3.2.1;
    Bhagia et al. 2024): accuracy = chance + (ceiling - chance) / (1 + exp((loss -
    middle) / width)), with normal errors. If the accuracies level off at another
    accuracy than ``chance``, a warning says at which.

    Parameters
    ----------
    table
        Columns ``loss`` (nats per token) and ``accuracy`` (0 to 1), a row for each model
        that was evaluated, or the path of such a CSV file.
    chance
        Accuracy of guessing: ``"25%"`` with four choices.
    draws, seed
        Number of draws, and their seed.

    Raises
    ------
    RunTableError
        A column is missing, a value is out of its range, there are fewer than four
        rows, or the accuracy rises with the loss, as error rates do.

    Examples
    --------
    >>> losses = np.linspace(1.6, 2.4, 8)
    >>> evaluated = pd.DataFrame({"loss": losses, "accuracy": 1.2 - 0.35 * losses})
    >>> link = bayeslaw.accuracy_link(evaluated, draws=400)
    >>> bool(np.median(link.accuracy(np.full(400, 2.0))).round(1) == 0.5)
    True
    """
    from scipy import stats

    rows = _read_table(table)
    guess = checked("chance", chance, CHANCE_LEVEL)
    loss, accuracy = rows["loss"].to_numpy(), rows["accuracy"].to_numpy()
    if np.ptp(accuracy):
        tau, p = stats.kendalltau(loss, accuracy, alternative="greater")
        if p < 0.05:
            raise RunTableError(
                f"the accuracy rises with the loss (Kendall's tau {tau:.2f}): are these "
                "error rates? give 1 - error as accuracy"
            )
    ceiling, middle, width, sigma = _draw_curves(loss, accuracy, guess, draws, seed)
    ends = float(loss.min()), float(loss.max())
    lines = _floor_missed(loss, accuracy, guess)
    for line in lines:
        warn(line, FitWarning)
    return AccuracyLink(
        guess, ceiling, middle, width, sigma, ends, warnings=tuple(lines)
    )


def _read_table(table: Table | str | Path) -> pd.DataFrame:
    table = as_frame(table)
    if not isinstance(table, pd.DataFrame):
        try:
            table = pd.read_csv(table)
        except (OSError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise RunTableError(f"{table}: cannot be read as CSV ({reason})") from None
    check_repeated(table.columns, "the table of accuracies: ")
    missing = [name for name in COLUMNS if name not in table]
    if missing:
        raise RunTableError(
            f"a table of accuracies has columns loss and accuracy; {missing[0]!r} is "
            f"missing, there are: {', '.join(map(str, table.columns))}"
        )

    def read(cell: object) -> float:
        try:
            return parse_number(cell, counts=False)
        except RunTableError:
            return np.nan

    numbers = table[list(COLUMNS)].map(read).astype(float)
    is_loss = numbers["loss"].between(0, LARGEST_LOSS, inclusive="right")
    is_possible = is_loss & numbers["accuracy"].between(0, 1)
    if not is_possible.all():
        place = int(np.argmin(is_possible))
        raise RunTableError(
            f"row {place + 1} of the table of accuracies: a positive loss and an accuracy from "
            f"0 to 1 (60% is 0.6), got {table['loss'].iloc[place]} and "
            f"{table['accuracy'].iloc[place]}"
        )
    if len(numbers) < 4 or numbers["loss"].nunique() < 3:
        raise RunTableError(
            f"a table of accuracies needs four rows at three losses, got {len(numbers)}"
        )
    return numbers


def _floor_missed(
    loss: Float[np.ndarray, " row"],
    accuracy: Float[np.ndarray, " row"],
    chance: float,
    level: float = 0.001,
    small: float = 0.01,
) -> list[str]:
    """Write a line if a curve that levels off at another accuracy than chance fits
    better, by the F test of one more parameter, and the curve misses by more than
    ``small``.
    """
    from scipy import stats

    rows = len(loss)
    if rows < 6:
        return []
    squares, _ = _least_squares(loss, accuracy, chance)
    free_squares, floor = _least_squares(loss, accuracy, None)
    if squares < rows * small**2:
        return []
    gain = (squares - free_squares) * (rows - 4) / max(free_squares, 1e-12)
    if stats.f.sf(gain, 1, rows - 4) >= level:
        return []
    return [
        f"the accuracies level off at {floor:.0%} where losses are high, and chance is "
        f"{chance:.0%}: accuracies between are off; give chance={max(floor, 0):.2g} "
        f"(--chance {max(floor, 0):.0%}) if that is what guessing has"
    ]


def _least_squares(
    loss: Float[np.ndarray, " row"],
    accuracy: Float[np.ndarray, " row"],
    chance: float | None,
) -> tuple[float, float]:
    """Fit the curve, its floor if ``chance`` is None: sum of squares, and floor."""
    from scipy import optimize

    low, high, span = accuracy.min(), accuracy.max(), np.ptp(loss)
    half_way = float(loss[np.abs(accuracy - (low + high) / 2).argmin()])
    starts = [[high, half_way, np.log(span / part), low] for part in (2, 4, 12)]
    free = 3 if chance is not None else 4

    def residuals(u: Float[np.ndarray, " parameter"]) -> Float[np.ndarray, " row"]:
        ceiling, middle, log_width = u[:3]
        floor = u[3] if chance is None else chance
        share = expit((middle - loss) / np.exp(np.clip(log_width, -20, 20)))
        return floor + (np.minimum(ceiling, 1.0) - floor) * share - accuracy

    optima = [optimize.least_squares(residuals, start[:free]) for start in starts]
    optimum = min(optima, key=lambda optimum: optimum.cost)
    floor = float(optimum.x[-1]) if chance is None else chance
    return 2 * float(optimum.cost), floor


def _draw_curves(
    loss: Float[np.ndarray, " row"],
    accuracy: Float[np.ndarray, " row"],
    chance: float,
    draws: int,
    seed: int,
    rounding: float = 5e-4,
) -> tuple[Float[np.ndarray, " draw"], ...]:
    """Draw ceiling, middle, width and sigma, each of shape (draw,), by adaptive
    importance sampling around the mode. Draws are of parameters in sds of their prior.

    ``rounding``: sd of the rounding to a tenth of a percent. Without it, a table that
    the curve meets exactly would have no scale.
    """
    from scipy import optimize

    center, span = float(loss.mean()), float(np.ptp(loss))
    # Prior means and sds of four parameters: logit of the ceiling's distance from 1
    # (small: most answers are right), middle, log of width (from the table) and log of
    # sigma (2%).
    means = np.array([logit(0.1), center, np.log(span / 2), np.log(0.02)])
    sds = np.array([1.0, 2 * span, 1.0, 1.0])

    def split(u: Float[np.ndarray, "*draw 4"]) -> tuple[np.ndarray, ...]:
        short, middle, log_width, log_sigma = np.moveaxis(u, -1, 0)[..., None]
        ceiling = 1 - (1 - chance) * expit(short)
        return ceiling, middle, np.exp(log_width), np.exp(log_sigma)

    def log_density(z: Float[np.ndarray, "*draw 4"]) -> Float[Any, "*draw"]:
        ceiling, middle, width, sigma = split(means + sds * z)
        curve = chance + (ceiling - chance) * expit((middle - loss) / width)
        size = np.hypot(sigma, rounding)
        log_likelihood = -0.5 * ((accuracy - curve) / size) ** 2 - np.log(size)
        log_prior = -0.5 * z**2
        return log_likelihood.sum(axis=-1) + log_prior.sum(axis=-1)

    rng = generator(seed, Stream.ACCURACY_CURVE)
    starts = np.array([[0, 0, 0, 0], [0, 0, -1.5, 0], [2, 0, 0, 1]])
    modes = [
        optimize.minimize(lambda z: -float(log_density(z)), start) for start in starts
    ]
    mode = min(modes, key=lambda optimum: optimum.fun)
    amis = AMIS(draws=max(2 * draws, 8000))
    root = np.linalg.cholesky(2 * np.asarray(mode.hess_inv))
    proposal = mixture_of([Peak(mode.x, root, 0.0)], amis.dof)
    rounds, weights, k_hat = sample_adaptively(
        lambda z: (log_density(z), {}), proposal, rng, 4 * draws, amis
    )
    if k_hat > TRUSTED_K:
        warn(
            f"the weights of the accuracy's curve are not to be trusted (k-hat {k_hat:.2f}): "
            "its table hardly says where it falls",
            FitWarning,
        )
    chosen = rng.permutation(by_weight(weights, draws, rng))
    curves = split(means + sds * rounds.vectors[chosen])
    ceiling, middle, width, sigma = (leaf[:, 0] for leaf in curves)
    return ceiling, middle, width, sigma

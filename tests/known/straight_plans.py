"""Planning problems without a compiled line: log losses straight in log tokens, so that
each draw's tokens are known in closed form, and a brute force with limits of its own.

The target's log loss is ``level - .1 (x + log(1.05 - replay))`` and a source's
``level + .02 x (1.1 - replay)``, with x the log tokens over a billion.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from bayeslaw._plans.constraint import Constraint
from bayeslaw._plans.sampled import SampledConstraint
from bayeslaw._plans.search import Problem

N, PTPP = 1e8, 40.0
SPAN = (np.log(1e4), np.log(1e12))
BILLION = np.log(1e9)
FALL, RISE = 0.1, 0.02
MOST_LOSS, MOST_FORGETTING, MOST_OTHER = 1.8, 0.02, 2.08
# but for all replay, with which no target token is seen
REPLAYS = np.sin(np.pi / 2 * np.linspace(0, 1, 1501)[:-1]) ** 2


@dataclass(frozen=True, eq=False)
class Straight(SampledConstraint):
    """A constraint whose draws have known losses and known ends."""

    level: np.ndarray = field(default_factory=lambda: np.zeros(0))

    @property
    def falls(self):
        return self.name == "target"

    def take(self, index):
        return replace(super().take(index), level=self.level[index])

    def log_losses(self, log_tokens, replay):
        x, r = np.asarray(log_tokens) - BILLION, np.asarray(replay)
        with np.errstate(invalid="ignore"):
            if self.falls:
                return self.level + self.noise - FALL * (x + np.log(1.05 - r))
            return self.level + self.noise + RISE * x * (1.1 - r)

    def log_losses_on_grid(self, log_tokens, replay):
        rows = [[self.log_losses(x, r) for x in log_tokens] for r in replay]
        return np.moveaxis(np.array(rows), -1, 0)

    def ends(self, log_limit, replay):
        """Log tokens between which a draw's log loss is under this limit."""
        low, high = np.full((2, len(self.level)), [[SPAN[0]], [np.inf]])
        if self.falls:
            x = (self.level - log_limit) / FALL - np.log(1.05 - replay)
            return x + BILLION, high
        x = (log_limit - self.level) / (RISE * (1.1 - replay))
        return low, x + BILLION


def constraint(name, draws, seed, sd, unit, limit, noise=0.0):
    """Draws around a level of 2 nats, each with a baseline and a noise of its own."""
    rng = np.random.default_rng(seed)
    baseline = 2.0 + 0.01 * rng.standard_normal(draws)
    level = np.log(baseline) + sd * rng.standard_normal(draws)
    if unit == "loss":
        baseline = np.ones(draws)
    wiggle = noise * rng.standard_t(4, draws)
    asked = Constraint(name, limit, unit)
    return Straight(asked, (), baseline, wiggle, SPAN, level=level)


def problem(draws=200, noise=0.003, others=0, **fields):
    """A target, the forgetting of a source, and further sources as wanted."""
    made = [
        constraint("target", draws, 1, 0.02, "loss", MOST_LOSS, noise),
        constraint("web", draws, 2, 0.004, "relative", MOST_FORGETTING, noise),
    ]
    if others > 0:
        # in nats: 2% of a loss of 2
        made.append(constraint("code", draws, 3, 0.006, "nats", 0.05, noise))
    if others > 1:
        made.append(constraint("math", draws, 4, 0.02, "loss", MOST_OTHER, noise))
    asked = {"confidence": 0.8, "N": N, "ptpp": PTPP} | fields
    return Problem(tuple(made), **asked)


# -- by other formulas -----------------------------------------------------------------


def kept(problem, log_tokens, replay):
    """Whether each draw keeps each limit, shape (constraint, draw), from the losses
    themselves.
    """
    rows = []
    for c in problem.constraints:
        loss = np.exp(c.of_law.log_losses(log_tokens, replay)) * np.exp(c.noise)
        if c.constraint.unit == "relative":
            rows.append((loss - c.baseline) / c.baseline <= c.limit)
        elif c.constraint.unit == "nats":
            rows.append(loss - c.baseline <= c.limit)
        else:
            rows.append(loss <= c.limit)
    return np.array(rows)


def limits(problem):
    """The most that each draw's log loss may be without noise, by constraint."""
    most = []
    for c in problem.constraints:
        loss = {
            "loss": c.limit * np.ones(c.draws),
            "relative": c.baseline + c.limit * c.baseline,
            "nats": c.baseline + c.limit,
        }[c.constraint.unit]
        most.append(np.log(loss / np.exp(c.noise)))
    return most


def by_draw(problem, replay, names=None):
    """Log tokens from which, and up to which, each draw keeps these constraints."""
    starts, ends = [], []
    for c, most in zip(problem.constraints, limits(problem), strict=True):
        if names is None or c.name in names:
            start, end = c.ends(most, replay)
            starts.append(start)
            ends.append(end)
    return np.max(starts, axis=0), np.min(ends, axis=0)


def tokens_needed(problem, share, replay, names=None):
    """The least log tokens at which this share of draws keeps the constraints, by
    counting at every draw's start.
    """
    start, end = by_draw(problem, replay, names)
    candidates = np.sort(start[start <= end])[:, None]
    counts = np.sum((start <= candidates) & (candidates <= end), axis=1)
    enough = np.flatnonzero(counts >= share * len(start) - 1e-6)
    return candidates[enough[0], 0] if enough.size else np.inf


def cheapest(problem, share, replays=REPLAYS):
    """The least log tokens of all replays, and its replay."""
    needed = [tokens_needed(problem, share, r) for r in replays]
    best = int(np.argmin(needed))
    return needed[best], replays[best]

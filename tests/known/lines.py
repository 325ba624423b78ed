"""Posteriors of straight lines, of which everything is known."""

from functools import partial

import jax.numpy as jnp
import numpy as np
import pandas as pd

from bayeslaw import Anchors, anchors, law, simulate
from bayeslaw._posteriors.draws import all_draws
from bayeslaw._posteriors.outcomes import log_losses, noise_of
from bayeslaw._posteriors.posterior import Piece, columns_read

SIGMA, DRAWS = 0.005, 4000


class Known:
    """A posterior with given pieces, of runs that it keeps."""

    def __init__(self, *pieces: Piece, runs: pd.DataFrame | None = None):
        self._pieces, self.runs = pieces, runs

    name, warnings = "known", ()

    def pieces(self) -> tuple[Piece, ...]:
        return self._pieces

    def log_loss(self, runs, *, noise=False, seed=0):
        parts = all_draws(self._pieces)
        law = log_losses(parts, runs, "the table")
        if not noise:
            return law
        rng, errors = np.random.default_rng(seed), noise_of(parts)
        shared = errors.draw_shared(runs, columns_read(self), rng)
        return law + errors.draw(len(runs), rng) + shared


def posterior_of(log_loss, values, columns, runs=None) -> Known:
    """One function of a draw and of these columns, and its draws by name."""
    return Known(Piece(log_loss, values, columns), runs=runs)


def grid() -> pd.DataFrame:
    """Settings of 252 runs of adaptation: sizes, tokens, replays and stages."""
    return simulate("dcpt").drop(columns="loss")


def _line(draw, x):
    return draw["level"] + draw["slope"] * x["x"]


def _bent(draw, x):
    return draw["level"] + draw["slope"] * x["x"] ** 2


def straight(
    draws: int = DRAWS, seed: int = 0, log_loss=_line, **leaves: float
) -> Known:
    """Log loss linear in x with independent Gaussian level and slope, sds .02 and .01, and Gaussian noise."""
    rng = np.random.default_rng(seed)
    values = {
        "level": 0.02 * rng.standard_normal(draws),
        "slope": 0.01 * rng.standard_normal(draws),
    }
    values |= {
        k: np.full(draws, v) for k, v in ({"sigma": SIGMA, "dof": 1e9} | leaves).items()
    }
    return posterior_of(log_loss, values, ("x",))


def exact_sd(x, goal, values, sigma=SIGMA):
    """Sd of the goal after measuring at x, by Bayesian linear regression on the draws' covariance."""
    prior = np.cov(np.stack([values["level"], values["slope"]]))
    rows = np.stack([np.ones(len(x)), x], axis=1)
    after = np.linalg.inv(np.linalg.inv(prior) + rows.T @ rows / sigma**2)
    at = np.array([1.0, goal])
    return float(np.sqrt(at @ after @ at))


def table(**columns) -> pd.DataFrame:
    """Candidates with rows numbered from 1."""
    made = pd.DataFrame(columns)
    return made.set_index(pd.RangeIndex(1, len(made) + 1))


GOAL = pd.DataFrame({"x": [3.0]})


def buy(posterior, offered, budget, goal=GOAL, *, checks=0, **options) -> Anchors:
    """Runs for a goal, however little they gain for their cost."""
    return anchors(
        posterior, offered, goal, budget, least=0.0, checks=checks, **options
    )


def spread(name: str, parameters: dict, share: float, draws: int, seed: int) -> Known:
    """A posterior spread log-normally around known parameters."""
    rng = np.random.default_rng(seed)
    known = law(name).from_paper(parameters)
    values = {
        k: float(v) * np.exp(share * rng.standard_normal(draws))
        for k, v in known.items()
    }
    values |= {"sigma": np.full(draws, 0.002), "dof": np.full(draws, 8.0)}
    return posterior_of(partial(_loss_of, name), values, law(name).covariates)


def _loss_of(name, draw, covariates):
    return jnp.log(law(name).loss(covariates, draw))

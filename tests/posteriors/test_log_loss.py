"""The log loss of a law's draws at a table of runs."""

import jax.numpy as jnp
import numpy as np
import pytest

import bayeslaw
from bayeslaw._inference.discrepancy.drift import training_range
from bayeslaw._inference.discrepancy.process import process_of
from bayeslaw._posteriors import posterior
from bayeslaw._posteriors.posterior import LogLoss

LAW = bayeslaw.law("chinchilla")


def draw_runs(rows: int, seed: int) -> dict[str, np.ndarray]:
    """Draw a table of runs, shape (row,)."""
    rng = np.random.default_rng(seed)
    return {"N": 10 ** rng.uniform(7, 9, rows), "D": 10 ** rng.uniform(9, 11, rows)}


def draw_piece(rows: int, seed: int, draws: int = 3):
    """Draw from the law's priors, with a misfit and a drift of a table of runs."""
    rng, runs = np.random.default_rng(seed), draw_runs(rows, seed)
    log_loss = LogLoss(LAW, process_of(runs), training_range(runs))
    values = {name: prior.draw(rng, draws) for name, prior in LAW.priors.items()}
    values["misfit"] = 0.01 * rng.standard_normal((draws, log_loss.process.size))
    sides = 2 * len(log_loss.training_range.axes)
    values["drift"] = 0.01 * rng.standard_normal((draws, sides))
    return log_loss.piece(values)


@pytest.mark.parametrize("rows", [1, 64, 150])
def test_a_table_has_the_log_loss_of_each_draw_with_its_misfit_and_drift(rows):
    piece = draw_piece(20, seed=1)
    runs = {name: column * 30 for name, column in draw_runs(rows, seed=2).items()}
    at_runs = piece.at(runs)
    assert at_runs.shape == (piece.draws, rows)
    for i, of_draw in enumerate(at_runs):
        draw = {name: jnp.asarray(values[i]) for name, values in piece.values.items()}
        alone = piece.log_loss(draw, runs)
        np.testing.assert_allclose(of_draw, alone, rtol=0, atol=1e-13)


def test_tables_of_any_length_and_any_misfit_share_a_program_of_the_law():
    draw_piece(20, seed=1).at(draw_runs(5, seed=1))
    before = posterior.map_over_draws.count()
    draw_piece(30, seed=2).at(draw_runs(150, seed=2))
    assert posterior.map_over_draws.count() == before

"""Tables that a law follows to the last digit, the first that one tries, are fitted and said to be so."""

import numpy as np
import pandas as pd
import pytest

import bayeslaw

TRUTH = {"E": 1.69, "A": 406.4, "B": 410.7, "alpha": 0.34, "beta": 0.28}
SMALL = {"chains": 2, "warmup": 300, "draws": 500}
SAID = "losses follow law 'chinchilla' to . digits.*simulated"


def exact(digits: int | None = None) -> pd.DataFrame:
    rows = [(n, d) for n in (1e8, 3e8, 1e9, 3e9) for d in (2e9, 6e9, 2e10, 6e10, 2e11)]
    runs = pd.DataFrame(rows, columns=["N", "D"])
    loss = 1.69 + 406.4 / runs["N"] ** 0.34 + 410.7 / runs["D"] ** 0.28
    return runs.assign(loss=loss if digits is None else loss.round(digits))


@pytest.mark.parametrize("digits", [None, 4])
@pytest.mark.parametrize("preview", [True, False])
def test_a_law_is_fitted_to_its_own_numbers(digits, preview):
    options = {"preview": True} if preview else SMALL
    with pytest.warns(UserWarning, match=SAID):
        fit = bayeslaw.fit(exact(digits), "chinchilla", discrepancy=False, **options)
    assert not fit.warnings
    found = fit.parameters()["mean"]
    for name, value in TRUTH.items():
        assert found[name] == pytest.approx(value, rel=0.03)


def test_effects_of_checkpoints_do_not_stand_in_the_way():
    """Rows of a checkpoint share an effect, of which there is none; also of another law."""
    runs = bayeslaw.simulate("ptpp-floor", seed=1, noise=0.0)
    runs = runs[(runs["replay"] == 0.1) & (runs["ptpp"] < 100)]
    with pytest.warns(UserWarning, match="losses follow law 'chinchilla'"):
        fit = bayeslaw.fit(
            runs.assign(loss=1.7 + 400 / runs["N"] ** 0.34 + 400 / runs["D"] ** 0.28),
            "chinchilla",
            preview=True,
            discrepancy=False,
        )
    assert not fit.warnings
    assert fit.inference_data["posterior"]["tau_checkpoint"].mean() < 1e-4


def test_noisy_tables_are_not_called_exact():
    runs = exact()
    noise = 0.0005 * np.random.default_rng(0).standard_normal(len(runs))
    noisy = runs.assign(loss=runs["loss"] * np.exp(noise))
    fit = bayeslaw.fit(noisy, "chinchilla", preview=True, discrepancy=False)
    assert not fit.goodness.doubts

"""What must not matter does not: order, names, units with a moved reference, the scale of the losses; and fewer runs tell less."""

import numpy as np
import pandas as pd
import pytest

import bayeslaw

TABLE = bayeslaw.simulate("chinchilla", seed=3)[["N", "D", "loss"]].iloc[::4]
TABLE = TABLE.reset_index(drop=True)
FAR = pd.DataFrame({"N": [3e9, 2e10], "D": [3e11, 1.5e12]})


def forecast(runs: pd.DataFrame, asked: pd.DataFrame = FAR, **options) -> np.ndarray:
    """Median, low and high of new runs, shape (run, 3)."""
    fit = bayeslaw.fit(runs, "chinchilla", preview=True, seed=0, **options)
    return bayeslaw.forecast(fit, asked)[["median", "low", "high"]].to_numpy()


@pytest.fixture(scope="module")
def plain():
    return forecast(TABLE)


def test_the_order_of_rows_and_columns_does_not_matter(plain):
    """To the tolerance to which a mode is found; the misfit's scales are drawn around theirs."""
    shuffled = TABLE.sample(frac=1, random_state=1)[["loss", "D", "N"]]
    np.testing.assert_allclose(forecast(shuffled), plain, rtol=2e-3)


def test_other_names_of_columns_do_not_matter(plain, tmp_path):
    path = tmp_path / "theirs.csv"
    theirs = {"N": "params", "D": "tokens (B)", "loss": "val loss"}
    in_billions = TABLE.assign(D=TABLE["D"] / 1e9)
    in_billions.rename(columns=theirs).to_csv(path, index=False)
    read = bayeslaw.read_runs(
        path, columns={"params": "N", "tokens (B)*1e9": "D", "val loss": "loss"}
    )
    np.testing.assert_allclose(forecast(read), plain, rtol=2e-3)


def test_units_do_not_matter_where_the_reference_moves_with_them(plain):
    """Parameters in millions and tokens in billions, as priors are stated at a run."""
    units = {"N": 1e6, "D": 1e9}
    reference = bayeslaw.law("chinchilla").reference
    moved = {c: reference[c] / unit for c, unit in units.items()}
    in_units = TABLE.assign(**{c: TABLE[c] / unit for c, unit in units.items()})
    asked = FAR.assign(**{c: FAR[c] / unit for c, unit in units.items()})
    np.testing.assert_allclose(
        forecast(in_units, asked, reference=moved), plain, rtol=2e-3
    )


def test_losses_in_bits_are_forecast_in_bits(plain):
    """Priors are in nats and wide: they move the median by less than the interval's tenth."""
    bits = forecast(TABLE.assign(loss=TABLE["loss"] / np.log(2))) * np.log(2)
    width = plain[:, 2] - plain[:, 1]
    assert (np.abs(bits[:, 0] - plain[:, 0]) < 0.1 * width).all()
    assert bits[:, 2] - bits[:, 1] == pytest.approx(width, rel=0.15)


def test_fewer_runs_are_never_narrower(plain):
    """A quarter of the runs, over the same range."""
    few = forecast(TABLE.iloc[::4])
    assert (few[:, 2] - few[:, 1] > plain[:, 2] - plain[:, 1]).all()

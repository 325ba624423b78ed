"""The picture of learned priors: what it drew, read back."""

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw import LawError, plots
from bayeslaw._law.experience import priors, tables

Z90 = 1.6449  # standard errors on each side of a 90% interval
LAW = bayeslaw.law("chinchilla")


def labels(ax) -> list[str]:
    return [label.get_text() for label in ax.get_yticklabels()]


def test_a_row_for_each_lab_and_a_line_for_each_table(ax):
    plots.learned_priors(ax, "chinchilla", "alpha")
    shown = [t for t in tables.learned().of_law("chinchilla") if t.kind == "web-text"]
    assert labels(ax) == list(dict.fromkeys(t.lab for t in shown))
    lines = [line for line in ax.lines if len(set(line.get_ydata())) == 1]
    # a line and a dot for each table
    assert len(lines) == 2 * len(shown)
    mean, sd = shown[0].logs["alpha"]
    np.testing.assert_allclose(
        lines[0].get_xdata(), np.exp(mean + Z90 * sd * np.array([-1, 1]))
    )


def test_the_band_is_what_fits_take_and_the_dashes_the_laws_own(ax):
    plots.learned_priors(ax, LAW, "beta")
    band = priors.populations(LAW, "web-text")["beta"]
    (patch,) = ax.patches
    ends = np.log([patch.get_x(), patch.get_x() + patch.get_width()])
    np.testing.assert_allclose(ends, band.mean + Z90 * band.sd * np.array([-1, 1]))
    own = priors.own_populations(LAW)["beta"]
    dashed = [line.get_xdata()[0] for line in ax.lines if line.get_linestyle() == "--"]
    np.testing.assert_allclose(
        np.log(dashed), own.mean + Z90 * own.sd * np.array([-1, 1])
    )


def test_a_fit_is_on_top_in_the_tables_units(ax):
    """A contribution as share of the floor amid the tables, wherever it was stated."""
    sizes, tokens = [1e8, 2e8, 4e8, 1e9, 2e9], [2e9, 2e9, 1e10, 4e9, 3e9]
    runs = pd.DataFrame({"N": sizes, "D": tokens})
    runs = bayeslaw.simulate("chinchilla", design=runs, noise=0.002)
    fit = bayeslaw.fit(runs, "chinchilla", preview=True, reference={"N": 3e8, "D": 5e9})
    plots.learned_priors(ax, "chinchilla", "A", fit=fit)
    assert labels(ax)[-1] == "yours"
    shown = ax.lines[-1].get_xdata()[0]
    share = fit.posterior["A"] * 1e8 ** -fit.posterior["alpha"] / fit.posterior["E"]
    assert shown == pytest.approx(np.median(share), rel=1e-6)
    assert ax.get_xlabel() == "A, share of the floor, N 100M, D 1B"


def test_what_no_table_teaches_is_refused(ax):
    with pytest.raises(LawError, match="no table teaches of 'gamma'; there is nothing"):
        plots.learned_priors(ax, "dcpt", "gamma")

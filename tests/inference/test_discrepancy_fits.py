"""Fits with a misfit: what it adds to a forecast, and what it leaves alone."""

import numpy as np
import pytest

import bayeslaw
from bayeslaw import datasets
from bayeslaw._forecasts.misfits import too_wide


@pytest.fixture(scope="module")
def measured():
    runs = datasets.load("microcpt")
    return runs[(runs["domain"] == "target") & (runs["D"] > 4 * runs["N"])]


def preview(runs, **keywords):
    reference = {
        c: v for c, v in datasets.TABLES["microcpt"].reference.items() if c != "ptpp"
    }
    return bayeslaw.fit(
        runs,
        "state-target",
        preview=True,
        reference=reference,
        on_failure="ignore",
        **keywords,
    )


@pytest.fixture(scope="module")
def fits(measured):
    """With the misfit, and plain, of all sizes but the largest at ptpp 15, 31 and 93."""
    seen = measured[
        (measured["ptpp"] <= 93)
        & (measured["seed"] == 0)
        & (measured["N"] < measured["N"].max())
    ]
    return preview(seen), preview(seen, discrepancy=False)


def test_law_and_misfit_do_not_trade_places(measured, fits):
    """At a size and stage that were not seen the law with its misfit is at most a third worse than alone, where a
    joint fit was three times as far off; and where it was seen it errs less and is a third sharper.
    """
    unseen = measured[
        (measured["ptpp"] == 279) & (measured["N"] == measured["N"].max())
    ]
    with_misfit, plain = (bayeslaw.check(f, unseen) for f in fits)
    assert with_misfit.mae_rel < 1.34 * plain.mae_rel + 0.002
    assert with_misfit.coverage["0.9"] >= 0.8
    smaller = measured[
        (measured["ptpp"] == 279) & (measured["N"] < measured["N"].max())
    ]
    with_misfit, plain = (bayeslaw.check(f, smaller) for f in fits)
    assert with_misfit.mae_rel < 0.6 * plain.mae_rel
    assert with_misfit.width90 < 0.67 * plain.width90
    assert with_misfit.coverage["0.9"] >= 0.75


def test_parameters_of_the_law_do_not_know_of_the_misfit():
    """Where rows share nothing the law's own parameters are those of the same law fitted
    alone; the noise is another.
    """
    runs = bayeslaw.simulate("chinchilla", seed=3, noise=0.001)
    seen = runs[["N", "D", "loss"]].drop_duplicates(["N", "D"])
    # by 1%, along tokens: what no law of N and D says
    bent = seen["loss"] * np.exp(0.01 * np.sin(np.log(seen["D"])))
    with_misfit, alone = (
        bayeslaw.fit(
            seen.assign(loss=bent), "chinchilla", preview=True, discrepancy=discrepancy
        )
        for discrepancy in (True, False)
    )
    names = list(with_misfit.law.parameters)
    found, expected = (f.parameters().loc[names, "mean"] for f in (with_misfit, alone))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    rows = with_misfit.parameters()
    assert rows.loc["sigma", "mean"] < 0.8 * alone.parameters().loc["sigma", "mean"]
    assert rows.loc["misfit", "mean"] > 0.003


def test_rows_that_share_something_weigh_less_and_what_they_share_is_learned(fits):
    """Points along runs, of a few checkpoints: the law is fitted to weighed rows, and
    the misfit leaves less noise and an effect for each group.
    """
    with_misfit, plain = fits
    misfit = with_misfit.misfit
    assert misfit.along_run
    groups = {kind: effects.shape[1] for kind, effects in misfit.effects.items()}
    named = {"model": "N", "checkpoint": "checkpoint", "run": "run"}  # of one seed
    runs = with_misfit.runs
    assert groups == {kind: runs[column].nunique() for kind, column in named.items()}
    # `sigma` of the parameters is of a new run, which has all effects. The misfit of
    # this law has no piece over the checkpoint's loss and tokens, so it leaves more
    # than a seed's noise.
    assert misfit.sigma.mean() < plain.parameters().loc["sigma", "mean"]
    assert with_misfit.parameters().loc["misfit", "mean"] > 0.01


def test_a_saved_fit_has_its_misfit(fits, measured, tmp_path):
    with_misfit, _ = fits
    some = measured[measured["ptpp"] == 279].iloc[:12]
    again = bayeslaw.load(with_misfit.save(tmp_path / "fit.nc"))
    np.testing.assert_array_equal(
        again.log_loss(some, noise=True), with_misfit.log_loss(some, noise=True)
    )
    assert again.misfit.process == with_misfit.misfit.process


def test_width_is_told_apart(fits, measured):
    """The parts add up to the width that the forecast has, and the plain fit has no misfit."""
    with_misfit, plain = fits
    unseen = measured[measured["ptpp"] == 279].iloc[::7]
    parts = bayeslaw.width_parts(with_misfit, unseen)
    new = np.quantile(with_misfit.log_loss(unseen, noise=True), [0.05, 0.95], axis=0)
    ratio = parts.sum(axis=1).to_numpy() / (new[1] - new[0])
    assert 0.85 < np.median(ratio) < 1.25
    assert (parts["misfit"] > 0).all()
    assert (bayeslaw.width_parts(plain, unseen)["misfit"] == 0).all()


def test_intervals_far_wider_than_the_errors_are_called_so(fits, measured):
    """With the part that costs most; up to ten times as wide nothing is said."""
    with_misfit, _ = fits
    unseen = measured[measured["ptpp"] == 279].iloc[::7]
    assert too_wide(with_misfit, unseen, width=0.05, error=0.005) is None
    said = too_wide(with_misfit, unseen, width=0.06, error=0.003)
    parts = bayeslaw.width_parts(with_misfit, unseen).mean()
    share = parts.max() / parts.sum()
    assert said == (
        "intervals are 20 times as wide as the errors, where 4 would do: "
        f"{share:.0%} of the width is {parts.idxmax()}"
    )


def test_misfit_along_a_column_is_what_the_draws_say(fits):
    with_misfit, plain = fits
    curve = bayeslaw.misfit_along(with_misfit, with_misfit.runs, "replay")
    assert (curve["low"] <= curve["median"]).all()
    assert curve["replay"].iloc[-1] == with_misfit.runs["replay"].max()
    with pytest.raises(bayeslaw.LawError, match="fit without --plain"):
        bayeslaw.misfit_along(plain, plain.runs, "replay")
    with pytest.raises(bayeslaw.LawError, match="does not read 'ptpp'"):
        bayeslaw.misfit_along(with_misfit, with_misfit.runs, "ptpp")

"""Pictures that no other file looks at: they draw on the axes they get what they were given."""

import io
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

import bayeslaw
from bayeslaw import LawError, plots


class Known:
    """A source loss of 2 exp(.1 (1 - replay) atpp^.5 - .02), give or take 1%."""

    def log_loss(self, runs, *, noise=False, seed=0):
        middle = (
            np.log(2.0)
            + 0.1 * (1 - runs["replay"]) * (runs["D"] / runs["N"]) ** 0.5
            - 0.02
        )
        return middle.to_numpy() + 0.01 * np.random.default_rng(seed).standard_normal(
            (400, 1)
        )


def test_the_landscape_of_forgetting_is_the_law_s():
    """Its colours span the median, and its line is where the limit is kept with the probability asked for."""
    ax = Figure().add_subplot()
    assert (
        plots.forgetting_landscape(
            ax, Known(), {"N": 1e9}, 2.0, limit=0.05, confidence=0.9
        )
        is ax
    )
    most = np.exp(0.1 * 0.99 * 40**0.5 - 0.02) - 1
    assert ax.collections[0].get_clim()[1] == pytest.approx(100 * most, rel=0.1)
    replay, atpp = ax.collections[1].get_paths()[0].vertices[::4].T  # the line of 90%
    sd = np.quantile(
        Known().log_loss(pd.DataFrame({"replay": [0.5], "D": [1e9], "N": [1e9]})), 0.9
    )
    reach = np.log(2 * 1.05) - (
        sd - np.log(2.0) - 0.1 * 0.5 + 0.02
    )  # log loss that keeps the limit with that probability
    at = np.log(2.0) + 0.1 * (1 - replay / 100) * atpp**0.5 - 0.02
    np.testing.assert_allclose(at, reach, atol=0.004)
    assert len(ax.figure.axes) == 2
    bare = plots.forgetting_landscape(Figure().add_subplot(), Known(), {"N": 1e9}, 2.0)
    assert len(bare.collections) == 1


@pytest.mark.parametrize("sizes", [3, 40])
def test_sizes_beyond_the_colours_share_one_and_have_no_names(sizes):
    N = np.geomspace(1e8, 1e10, sizes)
    runs = pd.DataFrame({"N": N, "loss": 2.0})
    rows = pd.DataFrame({"median": 2.0, "low": 1.9, "high": 2.1}, index=runs.index)
    ax = plots.observed_against_forecast(Figure().add_subplot(), runs, rows)
    names = ax.get_legend_handles_labels()[1]
    assert len(names) == (3 if sizes == 3 else 0)
    assert len(ax.containers) == (3 if sizes == 3 else 1)


@pytest.mark.parametrize("domains", [(), ("target", "source")])
def test_recipes_are_intervals_with_their_chances_beside_them(domains):
    ends = {"low": 1.9, "median": 2.0, "high": 2.2}
    losses = {"losses": dict.fromkeys(domains, ends)} if domains else ends
    rows = [{"recipe": name, "probability": 0.75} | losses for name in ("a", "b")]
    ax = plots.recipe_losses(Figure().add_subplot(), SimpleNamespace(rows=rows))
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["a", "b"]
    (right,) = ax.child_axes
    assert [tick.get_text() for tick in right.get_yticklabels()] == ["best 75.0%"] * 2
    assert len(ax.containers) == max(1, len(domains))
    dots, _, (bars,) = ax.containers[0].lines
    assert dots.get_xdata().tolist() == [2.0, 2.0]
    assert bars.get_segments()[0][:, 0] == pytest.approx([1.9, 2.2])


def test_a_best_value_is_a_star_on_its_loss_within_the_interval_of_the_best():
    value = np.geomspace(1e-5, 1e-3, 9)
    curve = 2.0 + np.log(value / 1e-4) ** 2
    table = pd.DataFrame({"value": value, "mean": curve})
    best = SimpleNamespace(
        **{"name": "lr", "about": "the loss", "best": 1e-4, "interval": (5e-5, 2e-4)},
        table=table.assign(low=curve - 0.1, high=curve + 0.1),
    )
    ax = plots.best_value(Figure().add_subplot(), best)
    star = next(line for line in ax.lines if line.get_marker() == "*")
    assert star.get_xydata()[0] == pytest.approx([1e-4, 2.0])
    assert ax.patches[0].get_path().get_extents().width > 0
    assert ax.get_xscale() == "log"


def test_learning_curves_have_a_colour_a_run_and_dots_where_measured():
    runs = pd.DataFrame(
        {
            "step": [2, 1, 1, 2],
            "run": ["a", "a", "b", "b"],
            "loss": [2.0, 3.0, 2.5, 2.2],
        }
    )
    rows = pd.DataFrame(
        {"median": runs["loss"], "low": runs["loss"] - 0.1, "high": runs["loss"] + 0.1}
    )
    ax = plots.learning_curves(Figure().add_subplot(), runs, rows)
    assert [line.get_label() for line in ax.lines if line.get_linestyle() == "--"] == [
        "a",
        "b",
    ]
    assert ax.lines[0].get_xydata().tolist() == [[1, 3], [2, 2]]
    assert ax.lines[1].get_color() == ax.lines[0].get_color() != ax.lines[2].get_color()
    planned = plots.learning_curves(
        Figure().add_subplot(), runs.drop(columns=["loss", "run"]).head(2), rows
    )
    assert len(planned.lines) == 1


class Fitted:
    """Draws of `chinchilla`'s parameters around half of their priors' medians."""

    law = bayeslaw.law("chinchilla")

    @property
    def posterior(self):
        around = np.exp(0.1 * np.random.default_rng(0).standard_normal(4000))
        return {n: 0.5 * prior.median * around for n, prior in self.law.priors.items()}


@pytest.mark.parametrize(
    ("name", "site", "unit"),
    [
        ("alpha", "alpha", ""),
        ("A", "A_nats", "per token"),
    ],
)
def test_prior_and_posterior_are_densities_of_one_parameter(name, site, unit):
    """The bars are over the draws and make up one, the line peaks where the prior does."""
    ax = plots.prior_and_posterior(Figure().add_subplot(), Fitted(), name)
    draws, prior = Fitted().posterior[site], Fitted.law.priors[site]
    edges = [bar.get_x() for bar in ax.patches]
    assert min(edges) == pytest.approx(draws.min())
    assert sum(b.get_width() * b.get_height() for b in ax.patches) == pytest.approx(1)
    x, density = ax.lines[0].get_xydata().T
    assert np.trapezoid(density, x) == pytest.approx(0.99, abs=0.02)
    median, sigma = prior.args
    mode = median * np.exp(-(sigma**2))
    assert x[np.argmax(density)] == pytest.approx(mode, rel=0.1)
    assert unit in ax.get_xlabel()
    assert unit in ax.get_ylabel()
    assert ax.get_xlabel().startswith(name)


def test_a_parameter_that_is_not_sampled_is_refused():
    with pytest.raises(LawError, match=r"samples no parameter 'gamma'.*alpha, beta"):
        plots.prior_and_posterior(Figure().add_subplot(), Fitted(), "gamma")


@pytest.mark.parametrize("tokens", [None, 0.0])
def test_no_plan_before_nor_after_is_drawn_as_such(tokens):
    """An axis of no tokens has no logarithm."""
    row = {"confidence": 0.9, "D": tokens}
    nothing = SimpleNamespace(frontier=[row], D=None, probability=None, confidence=0.9)
    change = SimpleNamespace(before=nothing, after=nothing, kept={})
    figure = Figure()
    ax = plots.moved_plan(figure.subplots(), change)
    figure.savefig(io.BytesIO())
    assert "no plan reaches" in ax.texts[0].get_text()


def test_a_misfit_is_drawn_in_percent_of_the_loss(ax):
    """A log loss that is ln 2 above the law is a loss 100% above it."""
    log_misfit = {"low": [-0.1, -0.1], "median": [np.log(2)] * 2, "high": [0.8, 0.8]}
    plots.misfit_curve(ax, pd.DataFrame({"D": [1e9, 1e11]} | log_misfit))
    assert ax.lines[-1].get_ydata() == pytest.approx([100, 100])

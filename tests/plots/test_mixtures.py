"""Pictures of mixtures: what is drawn is what the plan says."""

import numpy as np
import pytest

from bayeslaw import BestMixture, MixturePlan, plots

SHARES = {"books": 0.1, "code": 0.3, "web": 0.6}
ENDS = {"median": [2.6, 2.4], "low": [2.5, 2.3], "high": [2.7, 2.5]}
LOSSES = {"losses": {"web": ENDS, "code": ENDS}}


def plan(region):
    return MixturePlan(
        feasible=True,
        N=1e9,
        D=2e10,
        atpp=20.0,
        flops=1.2e20,
        shares=SHARES,
        tokens={},
        epochs={},
        probability=0.9,
        limits=[
            {"name": "web", "unit": "nats", "limit": 2.5, "max_loss": 2.5},
            {"name": "code", "unit": "percent", "limit": -10.0, "max_loss": 1.9},
        ],
        binding="web",
        along={
            n: {"share": [0.0, 0.9], "probability": [0.2, 0.8], **LOSSES}
            for n in SHARES
        },
        region=region,
        settings={"confidence": 0.9},
        warnings=[],
    )


def test_a_ternary_map_has_the_plan_at_its_shares(ax):
    """A corner is one domain alone; the star lies at the shares' mean of the corners."""
    corners = np.eye(3).tolist()
    plots.ternary(ax, plan({"shares": corners, "probability": [0.0, 0.5, 1.0]}))
    (star,) = [line for line in ax.lines if line.get_marker() == "*"]
    (place,) = star.get_xydata()
    assert place == pytest.approx([0.3 + 0.6 / 2, 0.6 * np.sqrt(0.75)])
    assert [text.get_text() for text in ax.texts] == [
        "all books",
        "all code",
        "all web",
    ]


def test_a_map_of_more_domains_is_refused(ax):
    with pytest.raises(ValueError, match="share_probability"):
        plots.ternary(ax, plan({}))


def test_each_share_has_a_line_and_the_plans_dot(ax):
    plots.share_probability(ax, plan({}))
    dots = [line.get_xydata()[0] for line in ax.lines if line.get_marker() == "o"]
    assert [tuple(dot) for dot in dots] == [(share, 0.9) for share in SHARES.values()]
    assert "share" in ax.get_xlabel()
    assert "probability" in ax.get_ylabel()


def test_a_tradeoff_has_the_losses_along_a_share_and_their_limits(ax):
    plots.mixture_tradeoff(ax, plan({}), "code")
    curves = [line for line in ax.lines if line.get_label() in ("web", "code")]
    assert [line.get_xydata().tolist() for line in curves] == [
        [[0.0, 2.6], [0.9, 2.4]]
    ] * 2
    flat = [line.get_ydata()[0] for line in ax.lines if line.get_linestyle() == "--"]
    assert flat == [2.5, 1.9]
    assert ax.get_xlabel() == "share of code"
    with pytest.raises(ValueError, match="no 'wiki'"):
        plots.mixture_tradeoff(ax, plan({}), "wiki")


def test_best_shares_are_dots_between_their_ends(ax):
    ends = {
        n: {"low": s - 0.05, "median": s, "high": s + 0.1} for n, s in SHARES.items()
    }
    best = BestMixture(1e9, 2e10, SHARES, {}, ends, ends, 0.002)
    plots.best_shares(ax, best)
    dots = [line.get_xydata()[0] for line in ax.lines if line.get_marker() == "o"]
    assert [tuple(dot) for dot in dots] == list(
        zip(SHARES.values(), range(3), strict=True)
    )
    assert [tick.get_text() for tick in ax.get_yticklabels()] == list(SHARES)

"""Draw mixtures: probabilities over three shares, or along each of more shares, and the
uncertainty of a best mixture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bayeslaw.plots.axes import BLACK, COLOURS, GREY, STAR, line_in_band

if TYPE_CHECKING:
    from jaxtyping import Float
    from matplotlib.axes import Axes

    from bayeslaw._plans.mixing.mixture import BestMixture, MixturePlan

CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(0.75)]])


def ternary(ax: Axes, plan: MixturePlan, levels: int = 10) -> Axes:
    """Draw the probability that a plan's limits hold over the mixtures of three
    domains, at the plan's tokens. The star is the plan, the line its confidence; each
    corner is one domain alone.

    Raises
    ------
    ValueError
        The plan is not of three domains.
    """
    if not plan.region:
        raise ValueError(
            f"a ternary map is of three domains, and this plan has {len(plan.shares)}: "
            "draw share_probability"
        )
    x, y = _place_on_triangle(np.array(plan.region["shares"]))
    chance = np.array(plan.region["probability"])
    filled = ax.tricontourf(
        x, y, chance, levels=np.linspace(0, 1, levels + 1), cmap="cividis"
    )
    figure = ax.figure
    figure.colorbar(filled, ax=ax, label="probability of all limits")
    confidence = plan.settings["confidence"]
    if chance.min() < confidence < chance.max():
        ax.tricontour(x, y, chance, levels=[confidence], colors="white")
    outline = np.vstack([CORNERS, CORNERS[:1]])
    ax.plot(*outline.T, color=GREY, linewidth=1)
    for name, corner, side in zip(
        plan.shares, CORNERS, ("right", "left", "center"), strict=True
    ):
        vertical = "bottom" if side == "center" else "top"
        x_corner, y_corner = corner
        ax.text(x_corner, y_corner, f"all {name}", ha=side, va=vertical)
    star = np.array([list(plan.shares.values())])
    ax.plot(*_place_on_triangle(star), **STAR)
    ax.set_aspect("equal")
    ax.set_axis_off()
    return ax


def _place_on_triangle(
    shares: Float[np.ndarray, "mixture domain"],
) -> Float[np.ndarray, "axis mixture"]:
    return (shares @ CORNERS).T


def share_probability(ax: Axes, plan: MixturePlan) -> Axes:
    """Draw the probability that a plan's limits hold along each domain's share. The
    other shares stay as near to the plan's as possible. The plan is a dot on each line.
    """
    for i, (name, row) in enumerate(plan.along.items()):
        colour = COLOURS[i % len(COLOURS)]
        ax.plot(row["share"], row["probability"], color=colour, label=name)
        ax.plot([plan.shares[name]], [plan.probability], "o", color=colour)
    ax.axhline(plan.settings["confidence"], color=GREY, linewidth=1)
    ax.set(xlabel="share of the tokens", ylabel="probability of all limits")
    ax.set_ylim(0, 1.02)
    ax.legend(fontsize=8)
    return ax


def mixture_tradeoff(ax: Axes, plan: MixturePlan, domain: str) -> Axes:
    """Draw the losses that have limits along a domain's share: medians, 90% bands, and
    limits (dashed). The other shares stay as near to the plan's as possible. The dotted
    line is the plan's share.

    Raises
    ------
    ValueError
        The plan mixes no such domain.
    """
    if domain not in plan.along:
        raise ValueError(
            f"the plan mixes no {domain!r}; there are: {', '.join(plan.along)}"
        )
    row = plan.along[domain]
    for i, limit in enumerate(plan.limits):
        colour, losses = COLOURS[i % len(COLOURS)], row["losses"][limit["name"]]
        line_in_band(ax, row["share"], losses, colour, limit["name"])
        ax.axhline(limit["max_loss"], color=colour, linestyle="--", linewidth=1)
    ax.axvline(plan.shares[domain], color=GREY, linestyle=":", linewidth=1)
    ax.set(xlabel=f"share of {domain}", ylabel="loss (nats per token)")
    ax.legend(fontsize=8)
    return ax


def best_shares(ax: Axes, best: BestMixture) -> Axes:
    """Draw the best mixture's shares (dots), the 90% intervals of the best shares
    (thick), and the ranges in which some mixture is as good within the tolerance
    (thin).
    """
    names = list(best.shares)
    for row, name in enumerate(names):
        free, sure = best.free[name], best.optimum[name]
        ax.plot([free["low"], free["high"]], [row, row], color=GREY, linewidth=1.5)
        ax.plot([sure["low"], sure["high"]], [row, row], color=COLOURS[0], linewidth=5)
        ax.plot([best.shares[name]], [row], "o", color=BLACK)
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.set(xlabel="share of the tokens", ylabel="domain")
    return ax

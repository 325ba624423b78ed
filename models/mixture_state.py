"""T0 + (T1 - T0) e^q (1 - (1 + D N^h/D1)^-beta), T1 = c S0: a domain's loss after adaptation
on a mixture, from the checkpoint's own losses.

e = p_1 + sum_j t_j p_j: a token of domain j counts as t_j < 1 tokens of the loss's
domain. T0 = loss_before is the checkpoint's loss on that domain. S0 =
source_loss_before is its loss on the domain of its pre-training. For two domains whose
tokens do not count for each other (t = 0) the law is `state-target`, and e is the
target's share.

The code has d_j = 1 - t_j, the part of a token of domain j that does not count. Where it
is small, the runs tell the product q d_j and not both, and the coordinates of the sampler
follow such a product (`bayeslaw._inference.coordinates`). So q stands after them.
"""

from dataclasses import replace
from functools import cache

import jax.numpy as jnp

from bayeslaw._law.columns import SHARE
from bayeslaw._law.law import Covariates, Law, Term, Values, power
from bayeslaw._law.priors import beta

from . import _state
from ._mixture import EXAMPLE, columns, per_domain
from .state_target import LAW as TARGET


@cache
def law_of(domains: tuple[str, ...]) -> Law:
    """Make the law for these domains; the first is the domain of the loss."""
    shares, others = columns(domains), domains[1:]
    gap, floor = TARGET.terms
    exponents = {e.name: e for e in TARGET.exponents}
    own_power = replace(exponents.pop("q"), covariate=shares[0])

    def effective_share(x: Covariates, e: Values):
        """Compute e, shape (run,), of any shares: relative to their sum, which is one in
        a run. So it also changes with each share by itself.
        """
        uncounted = sum(e[f"d_{name}"] * x[f"{SHARE}{name}"] for name in others)
        return 1 - uncounted / sum(x[share] for share in shares)

    def way(x: Covariates, e: Values):
        """Compute the share of the way to the floor (w of `state-target`), shape
        (run,).
        """
        tokens_seen = x["D"] * _state.factor(x, e, "h") / e["D1_ref"]
        learned = -jnp.expm1(-e["beta"] * jnp.log1p(tokens_seen))
        return power(effective_share(x, e), e["q"]) * learned

    def publish(p: Values) -> dict:
        """Convert each d to the t of the formula, and others as `state-target` does."""
        return TARGET.publish(p) | {f"t_{name}": 1 - p[f"d_{name}"] for name in others}

    def unpublish(p: Values) -> dict:
        """Invert `publish`."""
        return TARGET.unpublish(p) | {
            f"d_{name}": 1 - p[f"t_{name}"] for name in others
        }

    uncounted = beta(
        4.0, 1.0, "t = 1 - d: .01-.5 between domains of one pre-training table"
    )
    equal = dict.fromkeys(shares, 1 / len(domains))
    measured = {c: v for c, v in TARGET.reference.items() if c != "replay"}
    return Law(
        name="mixture-state",
        title="loss after adaptation on a mixture, from the checkpoint's own",
        source=_state.OURS,
        latex=r"T_0 + (c S_0 - T_0)\,e^{q}"
        r"\left(1-\left(1+\frac{D N^{h}}{D_1}\right)^{-\beta}\right),"
        r"\quad e = p_1 + \sum_j t_j p_j",
        covariates=("N", "D", *shares, "loss_before", "source_loss_before"),
        terms=(
            Term(
                gap.coefficient,
                lambda x, e: x["loss_before"] * (1 - way(x, e)),
                gap.prior,
                gap.latex,
                in_nats=False,
            ),
            Term(
                floor.coefficient,
                lambda x, e: x["source_loss_before"] * way(x, e),
                floor.prior,
                floor.latex,
                in_nats=False,
            ),
        ),
        exponents=(
            *per_domain("d", others, uncounted, "d"),
            own_power,
            *exponents.values(),
        ),
        reference=measured | equal,
        plausible=dict(TARGET.plausible) | {f"t_{name}": 0.1 for name in others},
        publish=publish,
        unpublish=unpublish,
        monotone={"loss_before": 1, "source_loss_before": 1},
        version="2",
    )


LAW = law_of(EXAMPLE)

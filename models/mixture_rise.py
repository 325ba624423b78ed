"""S0 + (S1 - S0) a N^g (ptpp/30)^z e^(-kappa p_1^.6) (1 + p_1 D/(delta P))^-beta
- G S0 log(1 + p_1 D/P), S1 = sum_j p_j S_j / (1 - p_1), P = ptpp N: the loss on the
domain of pre-training after adaptation on a mixture.

It is `state-rise` with p_1, the share of that domain, for the replay. Each other domain
j moves the loss towards a level S_j of its own, and S1 is the mean of these levels by
their shares. S0 = source_loss_before is the checkpoint's own loss. For two domains the
law is `state-rise` exactly. docs/microcpt_mixtures.md has the results.
"""

from dataclasses import replace
from functools import cache

from bayeslaw._law.law import Covariates, Law, Values

from . import _state
from ._mixture import EXAMPLE, columns
from .state_rise import LAW as RISE
from .state_rise import gap_left, pretrained_further

NO_SHARE = 1e-12  # is added to other domains' shares, which may all be zero
GAP = (
    r"\left(\frac{\sum_j p_j S_j}{1-p_1}-S_0\right)a N^{g}"
    r"\left(\frac{ptpp}{30}\right)^{z} e^{-\kappa p_1^{.6}}"
    r"\left(1+\frac{p_1 D}{\delta P}\right)^{-\beta}"
)
FURTHER = r"G\,S_0\log\left(1+\frac{p_1 D}{P}\right)"


@cache
def law_of(domains: tuple[str, ...]) -> Law:
    """Make the law for these domains; the first is the domain of pre-training."""
    shares = columns(domains)
    own, *others = shares
    exponents = {one.name: one for one in RISE.exponents}
    level = exponents.pop("S1")
    levels = [
        replace(level, name=f"{level.name}_{name}", latex=rf"S_\mathrm{{{name}}}")
        for name in domains[1:]
    ]

    def as_replay(x: Covariates) -> Covariates:
        """Take the share of the domain of pre-training as the replay."""
        return {**x, "replay": x[own]}

    def mean_level(x: Covariates, e: Values):
        """Compute S1, shape (run,)."""
        weights = [x[share] + NO_SHARE for share in others]
        weighted = (w * e[one.name] for w, one in zip(weights, levels, strict=True))
        return sum(weighted) / sum(weights)

    def gap(x: Covariates, e: Values):
        return gap_left(as_replay(x), {**e, level.name: mean_level(x, e)})

    rise, further = RISE.terms
    equal = dict.fromkeys(shares, 1 / len(domains))
    measured = {c: v for c, v in RISE.reference.items() if c != "replay"}
    plausible = dict(RISE.plausible)
    level_of_all = plausible.pop(level.name)
    return Law(
        name="mixture-rise",
        title="loss on the domain of pre-training after adaptation on a mixture",
        source=_state.OURS,
        latex=rf"S_0 + {GAP} - {FURTHER}",
        covariates=("N", "D", *shares, "ptpp", "source_loss_before"),
        offset=RISE.offset,
        terms=(
            replace(rise, basis=gap, latex=GAP),
            replace(
                further,
                basis=lambda x, e: pretrained_further(as_replay(x), e),
                latex=FURTHER,
            ),
        ),
        exponents=(
            *levels,
            exponents.pop("g4"),
            exponents.pop("z"),
            replace(exponents.pop("kappa"), covariate=own),
            *(replace(one, also=(own,)) for one in exponents.values()),
        ),
        reference=measured | equal,
        plausible=plausible | {one.name: level_of_all for one in levels},
        publish=RISE.publish,
        unpublish=RISE.unpublish,
        first_steps=RISE.first_steps,
    )


LAW = law_of(EXAMPLE)

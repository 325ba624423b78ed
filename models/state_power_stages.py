"""S0^p (1-r)^-v (r + .02)^-w (c + B N^h (ptpp/30)^z (D (1-r)^.5 / 1e7)^-b(N)): `state-power`
of checkpoints of several stages.

A checkpoint that saw more tokens of pre-training has the lower source loss S0, which
lowers the target's loss at any number of adaptation tokens. It also has more to learn
anew: at equal tokens it is farther from its floor, by a power z of its stage (tokens of
pre-training per parameter). Springer 2025 found models that are harder to fine-tune the
longer they were pre-trained. Without z, forecasts of later stages were too low.
docs/state_laws.md tells which forms were tried, and the results.
"""

from dataclasses import replace

from bayeslaw._law.law import Covariates, Exponent, Values
from bayeslaw._law.priors import normal

from . import state_power
from ._state import pretrained

LEVEL, REMAINING = state_power.LAW.terms
STAGE = r"\left(\frac{ptpp}{30}\right)^{z}"


def unlearned(x: Covariates, e: Values):
    """Compute the term in B of `state-power` times (ptpp/30)^z, shape (run,)."""
    return REMAINING.basis(x, e) * pretrained(x, e)


LAW = replace(
    state_power.LAW,
    name="state-power-stages",
    title=f"{state_power.LAW.title}; of several stages",
    latex=r"S_0^{p}\,(1-r)^{-v}\,(r+.02)^{-w}\left(c + B N^{h}"
    rf"{STAGE}\left(\frac{{D\sqrt{{1-r}}}}{{10^7}}\right)^{{-b N^{{m}}}}\right)",
    covariates=("N", "D", "replay", "ptpp", "source_loss_before"),
    terms=(
        LEVEL,
        replace(REMAINING, basis=unlearned, latex=rf"{STAGE}\,{REMAINING.latex}"),
    ),
    exponents=(
        *state_power.LAW.exponents,
        Exponent(
            "z",
            normal(0.01, 0.01, "measured 0 (French) to .03 (German, tiny models)"),
            "ptpp",
            "z",
        ),
    ),
    reference=dict(state_power.LAW.reference) | {"ptpp": 100.0},
    plausible=dict(state_power.LAW.plausible) | {"z": 0.01},
    reduces_to=(("state-power", {"z": 0.0}),),
)

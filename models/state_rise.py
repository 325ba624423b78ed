"""S0 + (S1 - S0) a N^g (ptpp/30)^z e^(-kappa r^.6) (1 + r D/(delta P))^-beta
- G S0 log(1 + r D/P), P = ptpp N: the source loss after adaptation, which goes up at
once and comes down by replayed tokens.

S0 = source_loss_before is the checkpoint's own loss, and S1 is a level common to all
checkpoints. The first steps of adaptation move the source loss a share of the way from
S0 to S1: less far with replay, and for checkpoints that are larger or saw more. After
that r D replayed tokens relearn what was lost. What counts is their number relative to
the tokens P of pre-training. They also continue pre-training, which lowers the loss by
G S0 for each e-fold of tokens. The rise takes less than a quarter of a token per
parameter, and is not modelled: at D = 0 the law is the loss just after it. The sampled
share is that at 1e9 parameters and 30 tokens of pre-training each, without replay.
docs/state_laws.md tells which forms were tried, and the results.
"""

import jax.numpy as jnp

from bayeslaw._law.law import Covariates, Exponent, Law, Term, Values
from bayeslaw._law.priors import lognormal, normal

from ._rise import BETA, DELTA, KAPPA, kept, relearned, replayed
from ._state import (
    OURS,
    REFERENCE,
    factor,
    pretrained,
    publish_share,
    size,
    source_level,
    unpublish_share,
)

RISE = r"(S_1-S_0)\,a N^{g}\left(\frac{ptpp}{30}\right)^{z} e^{-\kappa r^{.6}}"
RELEARNED = r"\left(1+\frac{r D}{\delta P}\right)^{-\beta}"


def gap_left(x: Covariates, e: Values):
    """Compute (S1 - S0) (N/N0)^g (ptpp/30)^z e^(-kappa r^.6) (1 + r D/(delta P))^-beta,
    shape (run,).
    """
    share = factor(x, e, "g") * pretrained(x, e) * kept(x, e) * relearned(x, e)
    return (e["S1"] - x["source_loss_before"]) * share


def pretrained_further(x: Covariates, e: Values):
    """Compute S0 log(1 + r D/P), shape (run,)."""
    return x["source_loss_before"] * jnp.log1p(replayed(x))


LAW = Law(
    name="state-rise",
    title="source loss after adaptation: up at once, down by replayed tokens",
    source=OURS,
    latex=rf"S_0 + {RISE}\,{RELEARNED} - G\,S_0\log\left(1+\frac{{r D}}{{P}}\right)",
    covariates=("N", "D", "replay", "ptpp", "source_loss_before"),
    offset=lambda x: x["source_loss_before"],
    terms=(
        Term(
            "share",
            gap_left,
            lognormal(
                0.1, 1.0, "unpublished; of the gap, without replay: .3 (1e6 parameters)"
            ),
            RISE + RELEARNED,
            in_nats=False,
        ),
        Term(
            "G",
            pretrained_further,
            lognormal(0.1, 0.6, "measured .10 (tiny models, two languages)"),
            r"G\,S_0\log\left(1+\frac{r D}{P}\right)",
            sign=-1,
            in_nats=False,
        ),
    ),
    exponents=(
        source_level(),
        size("g"),
        Exponent(
            "z",
            normal(-0.1, 0.1, "measured -.05 to -.16 (tiny models)"),
            "ptpp",
            "z",
        ),
        KAPPA,
        DELTA,
        BETA,
    ),
    reference={c: REFERENCE[c] for c in ("N", "D", "replay", "source_loss_before")}
    | {"ptpp": 100.0},
    plausible={
        "a": 25.0,
        "G": 0.1,
        "S1": 4.0,
        "g": -0.25,
        "z": -0.1,
        "kappa": 2.3,
        "delta": 0.015,
        "beta": 0.2,
    },
    publish=publish_share,
    unpublish=unpublish_share,
    first_steps=1.0,
)

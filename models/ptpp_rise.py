"""E + A/(N^alpha (P + r D)^epsilon) + C N^g e^(-kappa r^.6) (1 + r D/(delta P))^-beta,
P = ptpp N: the source loss after adaptation, without the checkpoint's losses.

The first two terms are the loss of pre-training, which replayed tokens continue. The
third is what adaptation forgets: it goes up at once, less far with replay, and comes
down by replayed tokens relative to those of pre-training, as in `state-rise`, which is
better where the checkpoint's losses are known. The rise takes less than a quarter of a
token per parameter, and is not modelled: at D = 0 the law is the loss just after it.
docs/state_laws.md tells which forms were tried, and the results.
"""

from bayeslaw._law.law import Covariates, Law, Term, Values, constant
from bayeslaw._law.priors import lognormal

from ._pretrained import (
    ALPHA,
    EPSILON,
    REFERENCE,
    pretraining,
    publish_level,
    size_and_pretraining,
    unpublish_level,
)
from ._rise import BETA, DELTA, KAPPA, kept, relearned
from ._state import N0, OURS, factor, size

CONTINUED = r"\frac{A}{N^{\alpha}(P + r D)^{\epsilon}}"
FORGOTTEN = r"C N^{g} e^{-\kappa r^{.6}}\left(1+\frac{r D}{\delta P}\right)^{-\beta}"


def of_pretraining(x: Covariates, e: Values):
    """Compute (N/N0)^-alpha ((P + r D)/P0)^-epsilon, shape (run,)."""
    return size_and_pretraining(x, e, pretraining(x) + x["replay"] * x["D"])


def forgotten(x: Covariates, e: Values):
    """Compute (N/N0)^g e^(-kappa r^.6) (1 + r D/(delta P))^-beta, shape (run,)."""
    return factor(x, e, "g") * kept(x, e) * relearned(x, e)


def publish(p: Values) -> dict:
    """Convert coefficients at N0 and P0 to those of the formula, and g4 to g."""
    published = publish_level(p, "g")
    return {**published, "C": p["C"] * N0 ** -published["g"]}


def unpublish(p: Values) -> dict:
    """Invert `publish`."""
    return {**unpublish_level(p, "g"), "C": p["C"] * N0 ** p["g"]}


LAW = Law(
    name="ptpp-rise",
    title="source loss after adaptation by size, pre-training and replayed tokens",
    source=OURS,
    latex=rf"E + {CONTINUED} + {FORGOTTEN},\quad P = ptpp\,N",
    covariates=("N", "D", "replay", "ptpp"),
    terms=(
        Term(
            "E",
            constant,
            lognormal(1.0, 0.8, "1.7-1.9 on web text (Besiroglu 2024); .4-.8 a byte"),
            "E",
        ),
        Term(
            "A",
            of_pretraining,
            lognormal(0.5, 1.0, "Besiroglu 2024 has .4 nats (1e9, 1e11 tokens)"),
            CONTINUED,
        ),
        Term(
            "C",
            forgotten,
            lognormal(0.05, 1.0, "measured .05-.2 nats per byte (tiny models)"),
            FORGOTTEN,
        ),
    ),
    exponents=(
        ALPHA,
        EPSILON,
        size("g"),
        KAPPA,
        DELTA,
        BETA,
    ),
    reference=REFERENCE,
    plausible={
        "E": 1.5,
        "A": 4e4,
        "C": 15.0,
        "alpha": 0.33,
        "epsilon": 0.15,
        "g": -0.2,
        "kappa": 2.3,
        "delta": 0.015,
        "beta": 0.2,
    },
    publish=publish,
    unpublish=unpublish,
    first_steps=1.0,
)

"""S0^p (1-r)^-v (r + .02)^-w (c + B N^h (D (1-r)^.5 / 1e7)^-b(N)), b(N) = b N^m: the
target loss after adaptation, with a floor that is a power of the checkpoint's source
loss.

S0 = source_loss_before is the checkpoint's loss on the source. Losses of two data sets
are powers of each other over many models (Brandfonbrener 2024): of two checkpoints, the
one that is 10% better on the source ends 4% better on the target. Replay does two
things. It takes away target tokens, and it raises the loss at any number of tokens. The
target's own loss before adaptation hardly matters after one token per parameter, so the
law does not read it, and it is no law of the first steps: at D = 0 it is infinite.
docs/state_laws.md tells which forms were tried, and the results.
"""

import jax.numpy as jnp

from bayeslaw._law.law import (
    Covariates,
    Exponent,
    Law,
    Term,
    Values,
    clip_replay,
    power,
)
from bayeslaw._law.priors import lognormal

from ._state import DECADES, N0, OURS, REFERENCE, factor, size, size_power

TOKENS = 1e7  # target tokens at which b(N) does not matter
LEAST_REPLAY = 0.02  # replay at which (r + .02)^-w is half way to that without replay


def level(x: Covariates, e: Values):
    """Compute S0^p (1-r)^-v (r + .02)^-w, shape (run,)."""
    replay = clip_replay(x["replay"])
    lost = power(1 - replay, -e["v"]) * power(replay + LEAST_REPLAY, -e["w"])
    return power(x["source_loss_before"], e["p"]) * lost


def unlearned(x: Covariates, e: Values):
    """Compute (N/N0)^h (D (1-r)^.5 / 1e7)^-b(N), shape (run,)."""
    target = x["D"] * jnp.sqrt(1 - clip_replay(x["replay"]))
    exponent = e["b_ref"] * factor(x, e, "m")
    return factor(x, e, "h") * power(target / TOKENS, -exponent)


def publish(p: Values) -> dict:
    """Convert the powers of size from factors over 1e4 (h4, m4), and B and b_ref at 1e9
    parameters to the B and b of the formula.
    """
    h, m = size_power(p, "h"), size_power(p, "m")
    return {**p, "h": h, "m": m, "B": p["B"] * N0**-h, "b": p["b_ref"] * N0**-m}


def unpublish(p: Values) -> dict:
    """Invert `publish`."""
    at_one_billion = {"B": p["B"] * N0 ** p["h"], "b_ref": p["b"] * N0 ** p["m"]}
    return {**p, **at_one_billion, "h4": DECADES ** p["h"], "m4": DECADES ** p["m"]}


LAW = Law(
    name="state-power",
    title="target loss after adaptation, a power of the checkpoint's source loss",
    source=OURS + "; losses as powers of losses: Brandfonbrener 2024",
    latex=r"S_0^{p}\,(1-r)^{-v}\,(r+.02)^{-w}\left(c + B N^{h}"
    r"\left(\frac{D\sqrt{1-r}}{10^7}\right)^{-b N^{m}}\right)",
    covariates=("N", "D", "replay", "source_loss_before"),
    terms=(
        Term(
            "c",
            level,
            lognormal(1.2, 0.5, "measured .8 nats per byte (tiny models)"),
            r"c\,S_0^{p}(1-r)^{-v}(r+.02)^{-w}",
        ),
        Term(
            "B",
            lambda x, e: level(x, e) * unlearned(x, e),
            lognormal(0.25, 1.0, "measured .2-.3 nats per byte (tiny models)"),
            r"B\,S_0^{p}\ldots N^{h}\left(\frac{D\sqrt{1-r}}{10^7}\right)^{-b N^{m}}",
        ),
    ),
    exponents=(
        Exponent(
            "p",
            lognormal(0.45, 0.4, "measured .38-.45 (French, German)"),
            "source_loss_before",
            "p",
        ),
        Exponent(
            "v",
            lognormal(0.08, 0.4, "measured .07-.09; 0 if replay only took tokens"),
            "replay",
            "v",
        ),
        Exponent(
            "w",
            lognormal(0.01, 0.4, "measured .011; a little replay helps the target"),
            "replay",
            "w",
        ),
        size("h"),
        Exponent(
            "b_ref",
            lognormal(0.35, 0.5, "measured .25 at 1e6 parameters, rising with size"),
            "D",
            "b",
        ),
        Exponent(
            "m4",
            lognormal(1.6, 0.4, "measured powers of .04-.1; 1e4^.05 = 1.6"),
            "N",
            "m",
        ),
    ),
    reference={c: REFERENCE[c] for c in ("N", "D", "replay", "source_loss_before")},
    plausible={
        "c": 0.8,
        "B": 0.5,
        "p": 0.42,
        "v": 0.08,
        "w": 0.01,
        "h": -0.05,
        "b": 0.12,
        "m": 0.05,
    },
    publish=publish,
    unpublish=unpublish,
    monotone={"D": -1, "source_loss_before": 1},
    first_steps=1.0,
)

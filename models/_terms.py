"""Share terms and their priors among laws.

Contributions are stated at one reference run of the adaptation laws: a model of 1e9
parameters pre-trained on 30 tokens per parameter and adapted on 5e9 tokens with a
quarter of replay. A log-normal whose log has sd 1 has 90% of its mass within a factor
of 5 of the median.
"""

import jax.numpy as jnp

from bayeslaw._law.law import Exponent, Term, clip_replay, constant, power
from bayeslaw._law.priors import lognormal

HOFFMANN = "Hoffmann 2022, eq. 2"
BESIROGLU = (
    "Besiroglu 2024: alpha .348 (se .015), beta .366 (se .021), E 1.817 (se .026)"
)
GOFFINET = "Goffinet 2025 (arXiv, PTPP-aware adaptation scaling laws)"

REFERENCE = {"N": 1e9, "D": 5e9, "replay": 0.25, "ptpp": 30.0}
EPS_REPLAY = 1e-5  # Goffinet 2025, section 2


def floor(median: float = 1.6, sigma: float = 0.4) -> Term:
    """Make the term E, the floor of the loss: 1.8 nats on web text (Besiroglu 2024),
    0.8-1.5 on code and on single domains.
    """
    return Term(
        "E",
        constant,
        lognormal(
            median, sigma, "1.7-1.9 on web text (Besiroglu 2024); lower for code"
        ),
        "E",
    )


def size(median: float = 0.3, sigma: float = 1.0) -> Term:
    """Make the term A/N^alpha."""
    return Term(
        "A",
        lambda x, e: power(x["N"], -e["alpha"]),
        lognormal(median, sigma, "Besiroglu 2024 has .36 nats at 1e9 parameters"),
        r"\frac{A}{N^{\alpha}}",
    )


def replay_barrier() -> Term:
    """Make the term C/(r+eps)^gamma (Que 2024; Goffinet 2025, eq. 1)."""
    return Term(
        "C",
        lambda x, e: power(clip_replay(x["replay"]) + EPS_REPLAY, -e["gamma"]),
        lognormal(
            0.05,
            1.0,
            "unpublished; replay moves losses by hundredths to tenths of a nat "
            "(Goffinet 2025, fig. 1)",
        ),
        r"\frac{C}{(r+\epsilon)^{\gamma}}",
    )


def ptpp_floor() -> Term:
    """Make the term F/ptpp^eta (Goffinet 2025, eq. 1)."""
    return Term(
        "F",
        lambda x, e: power(x["ptpp"], -e["eta"]),
        lognormal(
            0.1,
            1.0,
            "unpublished; forms 1 and dcpt differ by 1.5% of the loss at ptpp 279 "
            "(Goffinet 2025, table 1)",
        ),
        r"\frac{F}{\mathrm{ptpp}^{\eta}}",
    )


ALPHA = Exponent("alpha", lognormal(0.34, 0.3, BESIROGLU), "N", r"\alpha")
NU = Exponent("nu", lognormal(0.2, 0.7, "unpublished; weak"), "replay", r"\nu")
BETA_ADAPTATION = Exponent(
    "beta",
    lognormal(
        0.25,
        0.5,
        "adaptation: .01-.19 (Bethune 2025, table 2); pre-training .37 (Besiroglu 2024)",
    ),
    "D",
    r"\beta",
)
GAMMA = Exponent("gamma", lognormal(0.4, 0.5, "unpublished; weak"), "replay", r"\gamma")
ETA = Exponent(
    "eta",
    lognormal(
        0.37, 0.35, "pre-training data exponent .37 (Besiroglu 2024), ptpp = D/N"
    ),
    "ptpp",
    r"\eta",
)


def adaptation_data(
    exponent=lambda x, e: e["beta"],
    latex: str = r"\frac{B\,r^{\nu}}{D^{\beta}}",
    tokens=lambda x, e: x["D"],
) -> Term:
    """Make the term B r^nu / tokens(run)^exponent(run). The exponent may depend on the
    run's stage.

    If ``tokens`` is D, the term is infinite at D = 0, and so a plan knows that it needs
    a baseline. `power` is finite there; therefore the basis does not use it for tokens.
    """
    return Term(
        "B",
        lambda x, e: (
            power(clip_replay(x["replay"]), e["nu"])
            * jnp.exp(-exponent(x, e) * jnp.log(tokens(x, e)))
        ),
        lognormal(
            0.4,
            1.0,
            "unpublished; adaptation moves the target loss by tenths of a nat "
            "(Goffinet 2025, fig. 1)",
        ),
        latex,
    )

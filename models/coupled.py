"""E + (A/N^(alpha/k) + B/D^(beta/k))^k: size and data interact; k = 1 is `chinchilla`.

The reducible loss is one term. With the constants N0, D0 below,

(A/N^(alpha/k) + B/D^(beta/k))^k = T (s (N/N0)^(-alpha/k) + (1-s) (D/D0)^(-beta/k))^k,

which is linear in T; s is the share of size in the bracket at (N0, D0).
"""

from bayeslaw._law.law import Covariates, Exponent, Law, Term, Values, power
from bayeslaw._law.priors import beta as beta_prior
from bayeslaw._law.priors import lognormal

from ._terms import ALPHA, HOFFMANN, floor
from .chinchilla import BETA

N0, D0 = 1e9, 2e10


def bracket(x: Covariates, e: Values):
    """Compute (s (N/N0)^(-alpha/k) + (1-s) (D/D0)^(-beta/k))^k, shape (run,)."""
    s, k = e["share"], e["k"]
    size = power(x["N"] / N0, -e["alpha"] / k)
    data = power(x["D"] / D0, -e["beta"] / k)
    return power(s * size + (1 - s) * data, k)


def publish(p: Values) -> dict:
    """Convert T and s to the A and B of the formula."""
    alpha, beta, k = p["alpha"], p["beta"], p["k"]
    total = p["T"] ** (1 / k)
    return {
        "E": p["E"],
        "A": total * p["share"] * N0 ** (alpha / k),
        "B": total * (1 - p["share"]) * D0 ** (beta / k),
        "alpha": alpha,
        "beta": beta,
        "k": k,
    }


def unpublish(p: Values) -> dict:
    """Convert A and B to T and s."""
    alpha, beta, k = p["alpha"], p["beta"], p["k"]
    # contributions of size and of data to the bracket at (N0, D0)
    size = p["A"] * N0 ** (-alpha / k)
    data = p["B"] * D0 ** (-beta / k)
    return {
        "alpha": alpha,
        "beta": beta,
        "k": k,
        "E": p["E"],
        "T": (size + data) ** k,
        "share": size / (size + data),
    }


LAW = Law(
    name="coupled",
    title="law of pre-training in which size and data interact",
    source=f"{HOFFMANN}, generalised: k = 1 is the separable law",
    latex=r"E + \left(\frac{A}{N^{\alpha/k}} + \frac{B}{D^{\beta/k}}\right)^{k}",
    covariates=("N", "D"),
    terms=(
        floor(),
        Term(
            "T",
            bracket,
            lognormal(
                0.6,
                0.8,
                "Besiroglu 2024 has .72 nats above the floor at 1e9 parameters, "
                "2e10 tokens",
            ),
            r"\left(\frac{A}{N^{\alpha/k}} + \frac{B}{D^{\beta/k}}\right)^{k}",
        ),
    ),
    exponents=(
        ALPHA,
        BETA,
        Exponent("k", lognormal(1.0, 0.4, "centred on the separable law"), "D", "k"),
        Exponent(
            "share",
            beta_prior(
                2, 2, "size and data weigh about the same at 20 tokens per parameter"
            ),
            "N",
            "s",
        ),
    ),
    reference={"N": N0, "D": D0},
    plausible={
        "E": 1.8172,
        "A": 5.3e4,
        "B": 6.2e5,
        "alpha": 0.3478,
        "beta": 0.3658,
        "k": 0.6,
    },
    publish=publish,
    unpublish=unpublish,
    reduces_to=(("chinchilla", {"k": 1.0}),),
    monotone={"N": -1, "D": -1},
)

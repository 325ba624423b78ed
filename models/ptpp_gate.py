"""Form 2: dcpt with the data exponent b(ptpp) = beta (1 - lam g), g =
ptpp^zeta/(1+ptpp^zeta).

Pre-training changes how fast the loss falls with adaptation data. The term is B r^nu
D^-b(ptpp), as published. With (D/D0)^-b(ptpp) in place of D^-b(ptpp) it would be
another law, because the exponent depends on ptpp.
"""

import jax
import jax.numpy as jnp

from bayeslaw._law.law import Covariates, Exponent, Law, Values
from bayeslaw._law.priors import beta, normal

from ._terms import GOFFINET, REFERENCE, adaptation_data, floor, replay_barrier, size
from .dcpt import LAW as DCPT


def data_exponent(x: Covariates, e: Values):
    """Compute beta (1 - lam g(ptpp)), at least 1e-6, shape (run,), with
    g = sigmoid(zeta log ptpp).
    """
    gate = jax.nn.sigmoid(e["zeta"] * jnp.log(x["ptpp"]))
    exponent = e["beta"] * (1 - e["lam"] * gate)
    return jnp.maximum(exponent, 1e-6)


GATED = adaptation_data(data_exponent, r"\frac{B\,r^{\nu}}{D^{b}}")

LAW = Law(
    name="ptpp-gate",
    title="Form 2: D-CPT with a data exponent gated by pre-training",
    source=f"{GOFFINET}, eq. 2",
    latex=r"E + \frac{A}{N^{\alpha}} + \frac{B\,r^{\nu}}{D^{b}}"
    r" + \frac{C}{(r+\epsilon)^{\gamma}}, \quad "
    r"b = \beta\left(1 - \lambda \frac{\mathrm{ptpp}^{\zeta}}{1+\mathrm{ptpp}^{\zeta}}\right)",
    covariates=("N", "D", "replay", "ptpp"),
    terms=(floor(1.4), size(), GATED, replay_barrier()),
    exponents=(
        *DCPT.exponents,
        Exponent(
            "lam",
            beta(2, 2, "unpublished; between no gate and a full one"),
            "ptpp",
            r"\lambda",
        ),
        Exponent(
            "zeta",
            normal(
                0.0, 0.5, "unpublished; the gate opens or closes over decades of ptpp"
            ),
            "ptpp",
            r"\zeta",
        ),
    ),
    reference=REFERENCE,
    plausible={**DCPT.plausible, "beta": 0.25, "lam": 0.3, "zeta": 0.25},
    reduces_to=(("dcpt", {"lam": 0.0}),),
    monotone={"N": -1, "D": -1},
)

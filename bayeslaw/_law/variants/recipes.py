"""Let a law differ between recipes, such as optimizers: one law for a table of several.

For recipe l, each term is multiplied by exp(r_l), and each exponent by exp(q_l). The
logarithms of the factors of all recipes sum to zero and are exchangeable: r = H z, where
the columns of H are orthonormal contrasts between the recipes (Helmert), and each z is
normal around 0. So what recipes share (the common law, its misfit and its drift) cancels
between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import pandas as pd
from scipy.linalg import helmert

from bayeslaw._law.law import Basis, Covariates, Exponent, Law, Term, Values
from bayeslaw._law.priors import normal
from bayeslaw._law.variants.setting import Beside

if TYPE_CHECKING:
    from jaxtyping import Float

    from bayeslaw._base.arrays import AnyArray

# exponents of two recipes differ less than their terms do, in sds of the logarithm
SHARE_OF_EXPONENTS = 1 / 3
WHY = "recipes of one table differ by about this factor in each term"


class Varied(NamedTuple):
    """Basis of a term that differs between recipes, whose ``contrasts`` are columns."""

    basis: Basis
    coefficient: str
    exponents: tuple[str, ...]
    contrasts: tuple[str, ...]

    def __call__(self, x: Covariates, e: Values) -> Float[AnyArray, "*run"]:
        def factor(name: str) -> Any:
            return jnp.exp(sum(e[f"{name}_{c}"] * x[c] for c in self.contrasts))

        moved = {name: e[name] * factor(name) for name in self.exponents}
        return self.basis(x, {**e, **moved}) * factor(self.coefficient)


class Contrast(NamedTuple):
    """Basis that is a column itself: the floor's difference between recipes, in nats."""

    column: str

    def __call__(self, x: Covariates, e: Values) -> Float[AnyArray, "*run"]:
        return x[self.column]


def contrasts_of(by: str, levels: Sequence[str]) -> pd.DataFrame:
    """Make the columns that tell recipes apart: a row for each level."""
    columns = [f"{by}_{i}" for i in range(1, len(levels))]
    return pd.DataFrame(helmert(len(levels)).T, index=list(levels), columns=columns)


def between_recipes(law: Law, contrasts: Sequence[str], spread: float) -> Law:
    """Give each recipe, told apart by the columns of `contrasts_of`, terms and exponents
    of its own. ``spread``: sd of the logarithm of a recipe's factor of a term.
    """
    columns, names = tuple(contrasts), tuple(e.name for e in law.exponents)
    terms, sds = [], dict.fromkeys(names, spread * SHARE_OF_EXPONENTS)
    zeros: dict[str, float] = {}
    for t in law.terms:
        if not t.is_floor:
            varied = Varied(t.basis, t.coefficient, names, columns)
            terms.append(replace(t, basis=varied))
            sds[t.coefficient] = spread
            continue
        # the sampler's coordinates begin with the floor, which stays as it is
        terms.append(t)
        prior = normal(0.0, spread * t.prior.median, WHY)
        for c in columns:
            name = f"{t.coefficient}_{c}"
            terms.append(Term(name, Contrast(c), prior, name, in_nats=False))
            zeros[name] = 0.0
    factors = {
        f"{name}_{c}": Exponent(
            f"{name}_{c}", normal(0.0, sd, WHY), c, also=law.covariates
        )
        for name, sd in sds.items()
        for c in columns
    }
    return replace(
        law,
        name=f"{law.name} by recipe",
        covariates=(*law.covariates, *columns),
        terms=tuple(terms),
        exponents=(*law.exponents, *factors.values()),
        reference={**law.reference, **dict.fromkeys(columns, 0.0)},
        plausible={**law.plausible, **zeros, **dict.fromkeys(factors, 0.0)},
        publish=Beside(law.publish),
        unpublish=Beside(law.unpublish),
        reduces_to=(),
        monotone={},
    )

"""Let a law differ between recipes, such as optimizers: one law for a table of several,
in which each recipe's terms and exponents are near common ones.

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
        moved = {name: e[name] * self._factor(name, x, e) for name in self.exponents}
        return self.basis(x, {**e, **moved}) * self._factor(self.coefficient, x, e)

    def _factor(self, name: str, x: Covariates, e: Values) -> Any:
        return jnp.exp(sum(e[f"{name}_{c}"] * x[c] for c in self.contrasts))


class Contrast(NamedTuple):
    """Basis that is a column itself."""

    column: str

    def __call__(self, x: Covariates, e: Values) -> Float[AnyArray, "*run"]:
        return x[self.column]


def _floor_difference(floor: str, contrast: str, sd: float) -> Term:
    name = f"{floor}_{contrast}"
    prior = normal(0.0, sd, WHY)
    return Term(name, Contrast(contrast), prior, name, in_nats=False)


def contrasts_of(by: str, levels: Sequence[str]) -> pd.DataFrame:
    """Make the columns that tell recipes apart: a row for each level."""
    columns = [f"{by}_{i}" for i in range(1, len(levels))]
    return pd.DataFrame(helmert(len(levels)).T, index=list(levels), columns=columns)


def between_recipes(law: Law, contrasts: Sequence[str], spread: float) -> Law:
    """Make the law with terms and exponents of its own for each recipe.

    Parameters
    ----------
    contrasts
        The columns of `contrasts_of`.
    spread
        Sd of the logarithm of a recipe's factor of a term.
    """
    columns, names = tuple(contrasts), tuple(e.name for e in law.exponents)
    terms, sizes = [], dict.fromkeys(names, spread * SHARE_OF_EXPONENTS)
    for t in law.terms:
        if t.is_floor:
            # The floor stays as it is, because the sampler's coordinates begin with it.
            # What recipes differ in is added, in nats.
            sd = spread * t.prior.median
            terms += [t, *(_floor_difference(t.coefficient, c, sd) for c in columns)]
            continue
        terms.append(replace(t, basis=Varied(t.basis, t.coefficient, names, columns)))
        sizes[t.coefficient] = spread
    differences = tuple(
        Exponent(f"{name}_{c}", normal(0.0, sd, WHY), c, also=law.covariates)
        for name, sd in sizes.items()
        for c in columns
    )
    added = [t.coefficient for t in terms if isinstance(t.basis, Contrast)]
    added += [e.name for e in differences]
    zeros = dict.fromkeys(columns, 0.0)
    return replace(
        law,
        name=f"{law.name} by recipe",
        covariates=(*law.covariates, *columns),
        terms=tuple(terms),
        exponents=(*law.exponents, *differences),
        reference={**law.reference, **zeros},
        plausible={**law.plausible, **dict.fromkeys(added, 0.0)},
        publish=Beside(law.publish),
        unpublish=Beside(law.unpublish),
        reduces_to=(),
        monotone={},
    )

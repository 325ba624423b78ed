"""Make laws of loss curves for a model whose pre-training is unknown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import jax.numpy as jnp

from bayeslaw._base.errors import LawError
from bayeslaw._law.law import Basis, Covariates, Exponent, Law, Values
from bayeslaw._law.priors import Prior, lognormal

if TYPE_CHECKING:
    from jaxtyping import Float

    from bayeslaw._base.arrays import AnyArray

T = TypeVar("T")

UNKNOWN = ("S1_pt", "S2_pt")
FORWARD_AREA = lognormal(
    7.0,
    1.0,
    "7 in setting A of Wang 2025; an unknown model may have ten times more or less",
)


class _Closed(NamedTuple):
    """Basis in which S1_pt is a parameter and S2_pt is 0."""

    basis: Basis

    def __call__(self, x: Covariates, e: Values) -> Float[AnyArray, "*run"]:
        return self.basis({**x, "S1_pt": e["S1_pt"], "S2_pt": jnp.zeros(())}, e)


def open_weights(law: Law, forward_area: Prior = FORWARD_AREA) -> Law:
    """Make the law with the forward area of pre-training as a parameter (Wang 2025,
    section 6 and appendix G).

    The law is for one model with open weights whose pre-training was annealed to a
    learning rate of 0. Its S1_pt is inferred, and its annealing area is part of the
    level L0. S2_cpt must start from a last rate of 0: compute it by `schedule_areas` of
    the adaptation alone, or by ``areas(adaptation)``. The source losses are those of a
    proxy for the unknown pre-training data, for instance common-crawl text.

    Raises
    ------
    LawError
        The law is not one of the loss curves of one model's adaptation.
    """
    curves = "cpt-dynamics", "cpt-dynamics-replay-source", "cpt-dynamics-replay-target"
    if law.name not in curves:
        raise LawError(
            f"law {law.name!r} is not a loss curve of one model's adaptation; "
            f"take one of {', '.join(curves)}"
        )
    # alpha acts on S1_pt + S1_cpt; only S1_cpt is still a column
    exponents = tuple(
        replace(e, covariate="S1_cpt") if e.covariate == "S1_pt" else e
        for e in law.exponents
    )
    area = Exponent("S1_pt", forward_area, "S1_cpt", "S_1^{pt}")
    # the annealing area of pre-training is part of the level
    terms = tuple(
        t if t.is_floor else replace(t, basis=_Closed(t.basis))
        for t in law.terms
        if t.coefficient != "C1"
    )
    plausible = {k: v for k, v in law.plausible.items() if k != "C1"}
    return replace(
        law,
        name=f"{law.name}-open",
        title=f"{law.title}; pre-training unknown",
        latex=law.latex.replace(" - C_1 S_2^{pt}", ""),
        covariates=tuple(c for c in law.covariates if c not in UNKNOWN),
        terms=terms,
        exponents=(*exponents, area),
        reference=_without_unknown(law.reference),
        plausible=plausible | {"S1_pt": forward_area.median},
        reduces_to=(),
        monotone=_without_unknown(law.monotone),
    )


def _without_unknown(by_column: Mapping[str, T]) -> dict[str, T]:
    return {c: value for c, value in by_column.items() if c not in UNKNOWN}

"""Define a law: a sum of terms, linear in its coefficients once its exponents are
fixed.

loss(run) = offset(run) + sum_k sign_k c_k basis_k(run; exponents)

A coefficient's prior is stated on its term's *contribution in nats at a fixed reference
run*: a person can judge nats, and the reference does not depend on the data. So a law
has two sets of numbers:

- ``values``, which are sampled: contributions in nats (``"A_nats"``) and exponents
  (``"alpha"``).
- ``parameters``, which are published and compared: the same in the paper's units
  (``"A"``, ``"alpha"``).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import pandas as pd
from jax import Array

from bayeslaw._base.errors import LawError
from bayeslaw._base.shown import paragraphs, table_html
from bayeslaw._law.priors import Prior, parse_prior

if TYPE_CHECKING:
    from jaxtyping import Float

    from bayeslaw._base.arrays import AnyArray

Covariates = Mapping[str, Any]  # arrays of shape (run,), JAX's or NumPy's
Values = Mapping[str, Any]  # scalars
Basis = Callable[[Covariates, Values], "AnyArray"]

NATS = "_nats"
# names that a posterior uses for noise, effects, drift, misfit and its dimensions
RESERVED = frozenset(
    {
        "sigma",
        "dof",
        "dof_above_2",
        "tau",
        "tau_model",
        "tau_checkpoint",
        "tau_run",
        "tau_setting",
        "run_length",
        "checkpoint_effect",
        "run_effect",
        "setting_effect",
        "checkpoint_label",
        "run_label",
        "setting_label",
        "run_row",
        "log_loss",
        "drift",
        "misfit",
        "side",
        "weight",
        "weights",
        "chain",
        "draw",
        "domain",
        "mean",
        "spread",
        "u",
    }
)
POOLED = ("population_", "spread_")  # prefixes of the sites of a pool


def check_parameter_name(name: str) -> None:
    """Refuse a name that a posterior uses for something else.

    Raises
    ------
    LawError
        The name is reserved; the message proposes another.
    """
    if name in RESERVED or name.startswith(POOLED):
        raise LawError(
            f"a parameter cannot be called {name!r}: a posterior uses that name for "
            f"something else; call it {name}_0, for instance"
        )


def constant(x: Covariates, e: Values) -> Float[Array, ""]:
    """Return the basis of a floor: 1 at every run."""
    return jnp.ones(())


def as_arrays(by_name: Mapping[str, Any]) -> dict[str, Array]:
    return {name: jnp.asarray(value) for name, value in by_name.items()}


def clip_replay(replay: Float[AnyArray, "*run"]) -> Float[AnyArray, "*run"]:
    """Keep the replay ratio off 0 and 1 by 1e-9 (Goffinet 2025, fitting constraints)."""
    return jnp.clip(replay, 1e-9, 1 - 1e-9)


def power(
    base: Float[AnyArray, "*#run"] | float, exponent: Float[AnyArray, "*#run"] | float
) -> Float[Array, "*run"]:
    """Compute ``base ** exponent``, shape (run,), for ``base`` of at least 0. A base of 0
    counts as 1e-300, so that derivatives are finite.

    On CPUs XLA's own power is ten times slower than exp and log, and would take most of
    the time of a power law's posterior.
    """
    log_base = jnp.log(jnp.maximum(base, 1e-300))
    return jnp.exp(exponent * log_base)


def covariates_read(
    laws: Iterable[Law], there: Container[str] | None = None
) -> list[str]:
    """List the columns that laws read; of tuned settings those ``there``."""
    read = [law.covariates if there is None else law.columns_in(there) for law in laws]
    return list(dict.fromkeys(column for columns in read for column in columns))


@dataclass(frozen=True)
class Term:
    """One term of a law: ``sign * coefficient * basis(run; exponents)``.

    Parameters
    ----------
    coefficient
        Name of the coefficient in the paper.
    basis
        Pure function of covariates (each of shape (run,)) and exponents (scalars).
    prior
        Prior of the term's contribution, in nats, at the law's reference run. If
        ``in_nats`` is false (the basis may vanish at the reference run), it is the
        prior of the coefficient itself.
    latex
        The term in LaTeX.
    """

    coefficient: str
    basis: Basis
    prior: Prior
    latex: str
    sign: int = 1
    in_nats: bool = True

    def __post_init__(self) -> None:
        if not callable(self.basis) or not isinstance(self.prior, Prior):
            raise LawError(
                f"Term({self.coefficient!r}, ...) takes a function of covariates and "
                f"exponents, and then a prior; got a {type(self.basis).__name__} and a "
                f"{type(self.prior).__name__}"
            )

    @property
    def site(self) -> str:
        if self.in_nats:
            return self.coefficient + NATS
        return self.coefficient

    @property
    def is_floor(self) -> bool:
        return self.basis is constant


@dataclass(frozen=True)
class Exponent:
    """A parameter in which the law is nonlinear.

    ``covariate`` names the column on which the exponent acts; ``also``: further columns
    on which it acts. If none of them varies in a table, the exponent keeps its prior,
    with a warning.
    """

    name: str
    prior: Prior
    covariate: str
    latex: str = ""
    also: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.prior, Prior) or not isinstance(self.covariate, str):
            raise LawError(
                f"Exponent({self.name!r}, ...) takes a prior and then the column along "
                f"which it acts, as Exponent('alpha', lognormal(0.3, 0.4), 'N'); got a "
                f"{type(self.prior).__name__} and a {type(self.covariate).__name__}"
            )


def _copy(parameters: Values) -> dict[str, Array]:
    return dict(parameters)


@dataclass(frozen=True, eq=False)
class Law:
    """A scaling law as a frozen record; see `bayeslaw.laws` for those that ship.

    Parameters
    ----------
    name, title, source
        Catalogue name, one line, and reference (paper and equation).
    covariates
        Columns of the run table the law reads.
    terms, exponents
        The law itself with its priors.
    reference
        The run at which contributions are stated.
    plausible
        Parameters in the paper's units, at which a simulated table is plausible.
    offset
        Known part of the loss, shape (run,), for instance the loss before adaptation.
    publish, unpublish
        Functions from coefficients and exponents to the paper's own parameters and
        back, if these differ.
    reduces_to
        (parent law, parameters at which this law equals its parent): verified by the
        contract test.
    monotone
        Column -> -1 (loss falls) or +1 (loss rises) over the whole prior: verified by
        the contract test.
    first_steps
        Tokens per parameter up to which the law does not describe a run: the loss still
        jumps there.
    tuned
        Columns of settings that a new run may lack. Its setting is then the best one.
    version
        Number that increases when a change of the law makes its saved fits wrong.
    origin
        Origin of a law that is not in the catalogue: ``"formula:..."`` or
        ``"file:..."``.
    digest
        SHA-256 of the file of ``origin``.
    """

    name: str
    title: str
    source: str
    latex: str
    covariates: tuple[str, ...]
    terms: tuple[Term, ...]
    exponents: tuple[Exponent, ...]
    reference: Mapping[str, float]
    plausible: Mapping[str, float]
    offset: Callable[[Covariates], AnyArray] | None = None
    publish: Callable[[Values], dict[str, Array]] = _copy
    unpublish: Callable[[Values], dict[str, Array]] = _copy
    reduces_to: tuple[tuple[str, Mapping[str, float]], ...] = ()
    monotone: Mapping[str, int] = field(default_factory=dict)
    first_steps: float = 0.0
    tuned: tuple[str, ...] = ()
    version: str = "1"
    origin: str = ""
    digest: str = ""

    @cached_property
    def _identity(self) -> tuple:
        """Its functions and numbers, which are all that a compiled program depends on."""
        numbers = {
            "priors": [
                (name, p.family, *map(float, p.args)) for name, p in self.priors.items()
            ],
            "reference": [(name, float(v)) for name, v in self.reference.items()],
            "plausible": [(name, float(v)) for name, v in self.plausible.items()],
        }
        # as text, because -0.0 and 0.0 are equal
        words = repr((self.name, self.covariates, self.digest, numbers))
        terms = tuple((t.coefficient, t.basis, t.sign, t.in_nats) for t in self.terms)
        exponents = tuple((e.name, e.covariate, e.also) for e in self.exponents)
        return words, terms, exponents, self.offset, self.publish, self.unpublish

    def __eq__(self, other: object) -> bool:
        """Tell whether two laws are the same, so that they share compiled programs."""
        if not isinstance(other, Law):
            return NotImplemented
        return self is other or self._identity == other._identity

    def __hash__(self) -> int:
        # by the words alone, for a basis that a user wrote may have no hash
        return hash(self._identity[0])

    def __post_init__(self) -> None:
        missing = [c for c in self.covariates if c not in self.reference]
        if missing:
            raise LawError(
                f"law {self.name!r}: the reference run lacks {', '.join(missing)}"
            )
        for name in (*self.priors, *self.plausible):
            check_parameter_name(name)
        for name in ("reference", "plausible", "monotone"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    def __repr__(self) -> str:
        return f"Law({self.name!r}: {', '.join(self.parameters)})"

    def _repr_html_(self) -> str:
        rows = {
            name: {"prior": str(prior), "from": prior.source}
            for name, prior in self.priors.items()
        }
        text = f"{self.name}: {self.title}\n{self.latex}\n{self.source}"
        table = pd.DataFrame.from_dict(rows, orient="index")
        return paragraphs(text) + table_html(table)

    # -- names -------------------------------------------------------------------------

    @property
    def is_formula(self) -> bool:
        """Tell whether the law is a formula that a user wrote."""
        return self.origin.startswith("formula:")

    @property
    def priors(self) -> dict[str, Prior]:
        """Priors by site, contributions first."""
        of_terms = {t.site: t.prior for t in self.terms}
        of_exponents = {e.name: e.prior for e in self.exponents}
        return of_terms | of_exponents

    @property
    def free_priors(self) -> dict[str, Prior]:
        """Priors by sampled site, without fixed ones."""
        return {name: p for name, p in self.priors.items() if not p.is_fixed}

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters in the paper's units."""
        return tuple(self.plausible)

    @property
    def untuned(self) -> tuple[str, ...]:
        """Columns read beside tuned settings; equal runs share what the law misses."""
        return tuple(c for c in self.covariates if c not in self.tuned)

    def columns_in(self, there: Container[str]) -> list[str]:
        """List the columns read of those there: all but absent tuned settings."""
        return [c for c in self.covariates if c in there or c not in self.tuned]

    # -- the law -----------------------------------------------------------------------

    def coefficients(self, values: Values) -> dict[str, Array]:
        """Compute each term's coefficient from its nats at the reference run."""
        at_reference = as_arrays(self.reference)
        return {
            t.coefficient: jnp.asarray(values[t.site])
            / (t.basis(at_reference, values) if t.in_nats else 1.0)
            for t in self.terms
        }

    def contributions(
        self, covariates: Covariates, values: Values
    ) -> dict[str, Float[AnyArray, "*run"]]:
        """Compute each term's signed contribution in nats, without the offset."""
        c = self.coefficients(values)
        columns = self.columns_in(covariates)
        shape = jnp.broadcast_shapes(*(jnp.shape(covariates[n]) for n in columns))
        return {
            t.coefficient: jnp.broadcast_to(
                t.sign * c[t.coefficient] * t.basis(covariates, values), shape
            )
            for t in self.terms
        }

    def loss(self, covariates: Covariates, values: Values) -> Float[AnyArray, "*run"]:
        """Compute the loss in nats per token at each run, shape (run,)."""
        offset = 0.0 if self.offset is None else self.offset(covariates)
        contributions = self.contributions(covariates, values)
        return jnp.asarray(offset + sum(contributions.values()))

    # -- units -------------------------------------------------------------------------

    def to_paper(self, values: Values) -> dict[str, Array]:
        """Convert sampled values to parameters in the paper's units."""
        exponents = {e.name: values[e.name] for e in self.exponents}
        published = self.publish(self.coefficients(values) | exponents)
        return {name: published[name] for name in self.parameters}

    def from_paper(self, parameters: Values) -> dict[str, Array]:
        """Convert parameters in the paper's units to sampled values.

        Raises
        ------
        LawError
            A parameter is missing or unknown.
        """
        expected, names = set(self.parameters), set(parameters)
        if expected != names:
            what = [f"unknown {n!r}" for n in sorted(names - expected)]
            what += [f"missing {n!r}" for n in sorted(expected - names)]
            raise LawError(
                f"law {self.name!r}: {', '.join(what)}; "
                f"its parameters: {', '.join(self.parameters)}"
            )
        inner = self.unpublish(
            {k: jnp.asarray(v, float) for k, v in parameters.items()}
        )
        exponents = {e.name: inner[e.name] for e in self.exponents}
        at_reference = as_arrays(self.reference)
        return {
            t.site: inner[t.coefficient]
            * (t.basis(at_reference, exponents) if t.in_nats else 1.0)
            for t in self.terms
        } | exponents

    # -- changing priors ---------------------------------------------------------------

    def with_priors(self, priors: Mapping[str, Prior | str]) -> Law:
        """Make the same law with some priors replaced, by name: an exponent, or a term
        by its coefficient (in nats).

        Raises
        ------
        LawError
            The law has no parameter of this name, or the prior's range does not fit it. A
        formula's parameters may have either sign.
        """
        new = {name.removesuffix(NATS): parse_prior(p) for name, p in priors.items()}
        old = {t.coefficient: t.prior for t in self.terms} | {
            e.name: e.prior for e in self.exponents
        }
        for name, prior in new.items():
            if name not in old:
                raise LawError(
                    f"law {self.name!r} has no parameter {name!r}; it has: {', '.join(old)}"
                )
            allowed = {"positive": ("positive", "unit"), "unit": ("unit",)}.get(
                old[name].support, (prior.support,)
            )
            if self.is_formula:
                allowed = (*allowed, "real")
            if prior.support not in (*allowed, "fixed"):
                raise LawError(
                    f"prior of {name!r}: {prior} is {prior.support}, "
                    f"but {name} must be {old[name].support}"
                )
        return replace(
            self,
            terms=tuple(
                replace(t, prior=new.get(t.coefficient, t.prior)) for t in self.terms
            ),
            exponents=tuple(
                replace(e, prior=new.get(e.name, e.prior)) for e in self.exponents
            ),
        )

    def with_reference(self, reference: Mapping[str, float]) -> Law:
        """Restate the law's contributions at another reference run; columns that are
        not named keep their values.

        Raises
        ------
        LawError
            The law does not read this column.
        """
        unknown = [c for c in reference if c not in self.covariates]
        if unknown:
            raise LawError(
                f"law {self.name!r} does not read {unknown[0]!r}; "
                f"it reads: {', '.join(self.covariates)}"
            )
        return replace(self, reference={**self.reference, **reference})


LOSS_MIN = 1e-6  # nats; a law whose terms cancel below this is not a loss


def log_loss(law: Law, covariates: Covariates, values: Values) -> Float[Array, "*run"]:
    """Evaluate the law's log loss at each run, shape (run,)."""
    return jnp.log(jnp.maximum(law.loss(covariates, values), LOSS_MIN))

"""Add a term for a setting of the runs to a law, such as learning rate, batch size or
weight decay: ``chinchilla+lr``, ``chinchilla+lr+batch``.

With a setting off its optimum the loss is higher, by a parabola in the log of the
setting. The optimum and the curvature are power laws in size, tokens and the stage of
pre-training:

    loss + cost (N/N0)^a (D/D0)^b log2(setting / best)^2,  best = best0 (N/N0)^c (D/D0)^d

A run without the column is tuned: its setting is the best one within the sweep.

Of several settings, off the best of an earlier one the best of a later one moves by a
power of how far (``turn``): log2(batch / best) - turn log2(lr / best lr) is squared.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import jax.numpy as jnp

from bayeslaw._base.errors import LawError
from bayeslaw._law.catalogue import law_names
from bayeslaw._law.law import Covariates, Exponent, Law, Term, Values
from bayeslaw._law.priors import Prior, lognormal, normal

if TYPE_CHECKING:
    import pandas as pd
    from jaxtyping import Float

    from bayeslaw._base.arrays import AnyArray

ORIGIN = "setting:"  # prefix of the law's origin; JSON of its parts follows
# name of a law or file, maybe with settings; "+", column
SPELLED = re.compile(
    r"(([a-z][a-z0-9-]*|.+?\.py)(?:\s*\+\s*[^\W\d]\w*)*)\s*\+\s*([^\W\d]\w*)"
)


class SettingPriors(NamedTuple):
    """Priors of the term of a setting.

    Parameters
    ----------
    cost
        Rise of the loss, in nats, at a factor of two off the best setting.
    best_sd
        Sd of the log of the best setting around the middle of the sweep.
    moves
        Exponents of the best setting, by column.
    cost_moves
        Exponents of the cost, for every column.
    turn
        Octaves by which the best setting moves with an octave of an earlier one.
    """

    cost: Prior = lognormal(
        0.01, 1.0, "tiny models: half and twice the rate cost .2-2% (microcpt-rates)"
    )
    best_sd: float = 1.0
    moves: Mapping[str, Prior] = {
        "N": normal(
            -0.3, 0.3, "best rates: N^-.71 (Li 2025), width^-1 is N^-.5 (Yang 2022)"
        ),
        "D": normal(
            0.0, 0.3, "best rates: D^.31 (Li 2025), D^-.32 (Bjorck 2024): either sign"
        ),
        "ptpp": normal(
            0.0, 0.3, "tiny models: the best rate is lower at late stages, unpublished"
        ),
    }
    cost_moves: Prior = normal(
        0.0, 0.2, "unpublished: a tenth of the size costs a factor of 1.6 more or less"
    )
    turn: Prior = normal(
        0.0, 0.5, "unpublished: as much as the square root of the other, either way"
    )


class Swept(NamedTuple):
    """A law, by its name or its file and maybe other settings, and the column of a
    setting.
    """

    law: str
    column: str


def spelled_setting(text: str) -> Swept | None:
    """Split a text such as ``chinchilla+lr+batch`` into a law (a name similar to one is
    enough) and the last column; return None for any other text.

    Examples
    --------
    >>> from bayeslaw._law.variants.setting import spelled_setting
    >>> spelled_setting("chinchilla+lr")
    Swept(law='chinchilla', column='lr')
    >>> spelled_setting("E + A/N^alpha")
    """
    parts = SPELLED.fullmatch(text.strip())
    if parts is None:
        return None
    # A name similar to a law's counts, too: it is misspelled and not a parameter of a
    # formula. `law` then refuses it, with a proposal.
    is_law = difflib.get_close_matches(parts[2], law_names(), 1, 0.8)
    if not (is_law or parts[2].endswith(".py")):
        return None
    return Swept(parts[1], parts[3])


def middle_of(law: Law, column: str, runs: pd.DataFrame | None) -> dict[str, float]:
    """Choose the run at which a setting's best value and cost are stated: the medians
    of the table, to three digits. Without a table it is the law's reference run with a
    rate of 1e-3.

    Raises
    ------
    LawError
        The column has cells that are not numbers above 0.
    """
    columns = [c for c in SettingPriors().moves if c in law.covariates]
    # if the table lacks the column, the fit refuses it with a proposal
    if runs is None or column not in runs:
        return {c: law.reference[c] for c in columns} | {column: 1e-3}
    if runs[column].dtype.kind not in "iuf" or not (runs[column] > 0).all():
        raise LawError(
            f"{law.name}+{column}: column {column!r} must hold numbers above 0 at every "
            "row, as the parabola is in its logarithm"
        )
    present = [c for c in (*columns, column) if c in runs]
    return {c: float(f"{runs[c].median():.3g}") for c in present}


def swept_range(column: str, runs: pd.DataFrame | None) -> tuple[float, float] | None:
    """Find the ends of the sweep of a setting; None without its column."""
    if runs is None or column not in runs:
        return None
    return float(runs[column].min()), float(runs[column].max())


def with_setting(
    law: Law,
    column: str,
    at: Mapping[str, float],
    swept: Sequence[float] | None = None,
) -> Law:
    """Add the term of a setting to a law.

    Parameters
    ----------
    column
        The setting's column, of numbers above 0.
    at
        The run at which the best setting and its cost are stated. It has ``column`` and
        those of ``N``, ``D`` and ``ptpp`` with which the optimum moves.
    swept
        Ends of the sweep. The setting of a run without the column lies between them;
        without ``swept`` it is the best one, wherever that is.

    Raises
    ------
    LawError
        The law reads the column already.

    Examples
    --------
    >>> swept = bayeslaw.find_law("chinchilla+lr")
    >>> swept.parameters[5:]
    ('lr_cost', 'lr_best_N', 'lr_cost_N', 'lr_best_D', 'lr_cost_D', 'lr_best')
    """
    if column in law.covariates:
        raise LawError(f"law {law.name!r} reads {column!r} already")
    priors = SettingPriors()
    moving = {c: value for c, value in at.items() if c != column}
    others = tuple(t.basis for t in law.terms if isinstance(t.basis, Bowl))
    ends = None if swept is None else (float(swept[0]), float(swept[1]))
    bowl = Bowl(column, tuple(moving.items()), others, ends)
    run = ", ".join(f"{c} {value:g}" for c, value in moving.items())
    best = lognormal(at[column], priors.best_sd, f"the middle of the sweep, at {run}")
    exponents = []
    for c in moving:
        exponents += [
            Exponent(bowl.best(c), priors.moves[c], c),
            Exponent(bowl.cost(c), priors.cost_moves, c),
        ]
    exponents += [Exponent(bowl.turn(o), priors.turn, column) for o in others]
    # must be last: the sampler's coordinates then change this exponent by itself
    exponents.append(Exponent(bowl.best(), best, column))
    cost = Term(
        bowl.cost(),
        bowl,
        priors.cost,
        rf"c_{{\mathrm{{{column}}}}} \log_2^2(\mathrm{{{column}}} / "
        rf"\mathrm{{{column}}}^*)",
        in_nats=False,  # at the best setting the term is 0
    )
    medians = {e.name: e.prior.median for e in exponents}
    parts = {"law": law.name, "origin": law.origin, "column": column, "at": dict(at)}
    parts |= {"swept": ends}
    return replace(
        law,
        name=f"{law.name}+{column}",
        title=f"{law.title}, with an optimum of {column}",
        latex=f"{law.latex} + {cost.latex}",
        covariates=(*law.covariates, column),
        tuned=(*law.tuned, column),
        terms=(*law.terms, cost),
        exponents=(*law.exponents, *exponents),
        reference={**law.reference, column: at[column]},
        plausible={**law.plausible, bowl.cost(): priors.cost.median, **medians},
        publish=Beside(law.publish),
        unpublish=Beside(law.unpublish),
        reduces_to=(),
        monotone={},
        origin=f"{ORIGIN}{json.dumps(parts)}",
    )


def base_of(origin: str) -> str:
    """Read the origin of the law to which settings' terms were added, if any."""
    while origin.startswith(ORIGIN):
        origin = json.loads(origin.removeprefix(ORIGIN))["origin"]
    return origin


@dataclass(frozen=True)
class Bowl:
    """Basis of the term: log2(setting / best)^2 times powers of the ``moving`` columns,
    each relative to its middle. The best turns with how far ``others`` are off theirs.
    ``swept``: ends of the sweep, between which a run without the column has its best.
    """

    column: str
    moving: tuple[tuple[str, float], ...]
    others: tuple[Bowl, ...] = ()
    swept: tuple[float, float] | None = None

    def best(self, along: str = "") -> str:
        """Name the parameter of the best setting, or of how it moves along a column."""
        return "_".join(filter(None, (self.column, "best", along)))

    def cost(self, along: str = "") -> str:
        """Name the parameter of the cost, or of how it moves along a column."""
        return "_".join(filter(None, (self.column, "cost", along)))

    def turn(self, other: Bowl) -> str:
        """Name the parameter of how the best setting moves with another one."""
        return "_".join((self.column, "turn", other.column))

    def octaves(self, x: Covariates, e: Values) -> Float[AnyArray, "*run"]:
        """Count the octaves from the best setting, where the others are at their best."""
        return self._count_octaves(x, self._log2_best(x, e))

    def __call__(self, x: Covariates, e: Values) -> Float[AnyArray, "*run"]:
        log2_best = self._log2_best(x, e)
        for other in self.others:
            log2_best = log2_best + e[self.turn(other)] * other.octaves(x, e)
        octaves = self._count_octaves(x, log2_best)
        return jnp.exp(self._move(jnp.zeros(()), self.cost, x, e)) * octaves**2

    def _log2_best(self, x: Covariates, e: Values) -> AnyArray:
        return self._move(jnp.log(e[self.best()]), self.best, x, e) / math.log(2)

    def _count_octaves(self, x: Covariates, log2_best: AnyArray) -> AnyArray:
        """Count octaves from a best setting; 0 for a run without the column."""
        if self.column in x:
            return jnp.log2(x[self.column]) - log2_best
        if self.swept is None:
            return jnp.zeros_like(log2_best)
        low, high = map(math.log2, self.swept)
        return jnp.clip(log2_best, low, high) - log2_best

    def _move(
        self,
        log_value: AnyArray,
        parameter: Callable[[str], str],
        x: Covariates,
        e: Values,
    ) -> AnyArray:
        """Add the powers of the moving columns, by the names of their parameters."""
        for column, middle in self.moving:
            away = jnp.log(x[column]) - math.log(middle)
            log_value = log_value + e[parameter(column)] * away
        return log_value


class Beside(NamedTuple):
    """Change of units by ``change`` that keeps all parameters ``change`` does not have."""

    change: Callable[[Values], Mapping[str, AnyArray]]

    def __call__(self, values: Values) -> dict[str, AnyArray]:
        return {**values, **self.change(values)}

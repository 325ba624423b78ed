"""Make a posterior from a law at given constants, without a table. The constants are
published or your own, with or without a stated uncertainty.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bayeslaw._base.errors import LawError, RunTableError
from bayeslaw._base.limits import NUMBER, POSITIVE, checked
from bayeslaw._base.machine import runtime
from bayeslaw._base.numbers import format_level, parse_number
from bayeslaw._base.streams import Stream, generator
from bayeslaw._law.find import as_law
from bayeslaw._law.law import Law, as_arrays
from bayeslaw._posteriors.posterior import LawPosterior, Member

if TYPE_CHECKING:
    from jaxtyping import Float

WRITTEN = re.compile(r"(?P<law>[A-Za-z][\w-]*)@(?P<constants>\w+=.*)")
NO_DOUBT = (
    "the law is at given constants without uncertainty: intervals hold the noise of a run "
    "only; state one, alpha=0.34+-0.02"
)


@dataclass(frozen=True, eq=False)
class LawAt(LawPosterior):
    """A law at given constants, as a posterior: its sampled values, and ``sigma`` if a new
    run's noise was given. Made by `law_at`.
    """

    law: Law
    values: Mapping[str, Float[np.ndarray, " draw"]]
    warnings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name of the law."""
        return self.law.name

    @property
    def members(self) -> tuple[Member]:
        """The law at its constants."""
        return (Member(self.law, 1.0, None, None, self.values),)


def law_at(
    law: Law | str,
    constants: Mapping[str, float],
    *,
    sd: Mapping[str, float] | None = None,
    sigma: float | None = None,
    draws: int = 2000,
    seed: int = 0,
) -> LawAt:
    """Make a posterior from a law at published or your own constants, without a table.

    Parameters
    ----------
    law
        A law, or its name.
    constants
        Every parameter in the paper's units.
    sd
        Standard errors of some constants: draws are log-normal with that relative sd
        and independent of each other. Published errors rarely come with their
        correlations; without correlations, intervals tend to be too wide.
    sigma
        Relative noise of a new run; none if not given.
    draws, seed
        Number of draws, and their seed.

    Returns
    -------
    LawAt
        A posterior that `forecast`, `optimum` and `plan` take like a `Fit`.

    Raises
    ------
    LawError
        A parameter is missing or unknown, or one with an error is not positive.

    Examples
    --------
    >>> hoffmann = {"E": 1.69, "A": 406.4, "B": 410.7, "alpha": 0.34, "beta": 0.28}
    >>> law = bayeslaw.law_at("chinchilla", hoffmann)
    >>> run = pd.DataFrame({"N": [70e9], "D": [1.4e12]})  # Chinchilla's own
    >>> round(float(np.exp(law.log_loss(run)).mean()), 3)
    1.937
    """
    record = as_law(law)
    # laws at other constants draw other numbers, so that two of them are independent
    identity = zlib.crc32(f"{record.name} {sorted(constants.items())}".encode())
    rng = generator(seed, Stream.CONSTANTS, identity)
    errors = dict(sd or {})
    unknown = [name for name in errors if name not in constants]
    if unknown:
        raise LawError(f"sd names {unknown[0]!r}, which is none of the constants")
    if draws < 1:
        raise LawError(f"draws must be at least 1, got {draws}")
    supports = {term.coefficient: term.prior.support for term in record.terms}
    supports |= {exponent.name: exponent.prior.support for exponent in record.exponents}
    by_name = {}
    for name, constant in constants.items():
        value = checked(f"{record.name}@{name}", constant, NUMBER)
        # the sign of its plausible value, if its prior has one sign
        usual = record.plausible.get(name, value)
        if supports.get(name) in ("positive", "unit") and usual * value < 0:
            raise LawError(
                f"{record.name}@{name}: it is {'below' if usual < 0 else 'above'} 0, got "
                f"{value:g}: the sign of a term is in the law's formula"
            )
        center = np.full(draws, value)
        if errors.get(name):
            if value <= 0:
                raise LawError(
                    f"{name} has an error and must be positive, got {value!r}"
                )
            spread = checked(f"sd of {name}", errors[name], POSITIVE) / value
            if spread > 10:
                raise LawError(
                    f"sd of {name} is {spread:.3g} times {name}: an absolute error, in "
                    f"the unit of {name}"
                )
            center = center * np.exp(spread * rng.standard_normal(draws))
        by_name[name] = center
    runtime.start()
    values = {name: np.asarray(x) for name, x in record.from_paper(by_name).items()}
    values = {name: np.broadcast_to(x, (draws,)) for name, x in values.items()}
    medians = {name: np.median(by_draw) for name, by_draw in values.items()}
    with np.errstate(all="ignore"):
        loss = float(record.loss(as_arrays(record.reference), as_arrays(medians)))
    if not 0 < loss <= 100:
        run = [f"{c} = {format_level(c, x)}" for c, x in record.reference.items()]
        raise LawError(
            f"law {record.name!r} at these constants has a loss of {loss:.3g} nats at "
            f"{', '.join(run)}: a digit or a sign wrong, or constants of other units?"
        )
    if sigma is not None:
        values["sigma"] = np.full(draws, checked("sigma", sigma, POSITIVE))
    return LawAt(record, values, () if errors else (NO_DOUBT,))


def law_as_written(text: str) -> LawAt | None:
    """Read ``chinchilla@E=1.69,A=406.4,B=410.7,alpha=0.34+-0.02,beta=0.28,sigma=0.5%``;
    None for any other text; raises as `law_at` does.
    """
    written = WRITTEN.fullmatch(text.strip())
    if written is None:
        return None
    constants, errors = {}, {}
    for pair in written["constants"].split(","):
        name, _, number = pair.partition("=")
        value, _, error = number.replace("±", "+-").partition("+-")
        try:
            constants[name.strip()] = parse_number(value)
            if error:
                errors[name.strip()] = parse_number(error)
        except RunTableError as wrong:
            raise LawError(f"{written['law']}@{name.strip()}: {wrong}") from None
    sigma = constants.pop("sigma", None)
    return law_at(written["law"], constants, sd=errors, sigma=sigma)

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
import pandas as pd

from bayeslaw._base.errors import LawError, RunTableError
from bayeslaw._base.limits import NUMBER, POSITIVE, checked
from bayeslaw._base.machine import runtime
from bayeslaw._base.numbers import format_level, parse_number
from bayeslaw._base.streams import Stream, generator
from bayeslaw._law.find import as_law
from bayeslaw._law.law import Law, as_arrays
from bayeslaw._posteriors.posterior import LogLoss, Piece, log_loss_at

if TYPE_CHECKING:
    from jaxtyping import Float

WRITTEN = re.compile(r"(?P<law>[A-Za-z][\w-]*)@(?P<constants>\w+=.*)")
NO_DOUBT = (
    "the law is at given constants without uncertainty: intervals hold the noise of a run "
    "only; state one, alpha=0.34+-0.02"
)


@dataclass(frozen=True, eq=False)
class LawAt:
    """A law at given constants, as a posterior. Made by `law_at`.

    Parameters
    ----------
    law
        The law.
    values
        Its sampled values, and ``sigma`` if a new run's noise was given, each of shape
        (draw,).
    warnings
        A line if no uncertainty of the constants was stated.
    """

    law: Law
    values: Mapping[str, Float[np.ndarray, " draw"]]
    warnings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name of the law."""
        return self.law.name

    def pieces(self) -> tuple[Piece, ...]:
        """The draws of the constants."""
        return (Piece(LogLoss(self.law), self.values, self.law.covariates),)

    def log_loss(
        self, runs: pd.DataFrame, *, noise: bool = False, seed: int = 0
    ) -> Float[np.ndarray, "draw run"]:
        """Draw the log loss, shape (draw, run): of the law, or with ``noise`` of a new
        run.

        Raises
        ------
        RunTableError
            The table lacks a column the law reads.
        """
        (piece,) = self.pieces()
        return log_loss_at(self.law, piece, runs, noise=noise, seed=seed)


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
    by_name = {}
    for name, constant in constants.items():
        value = _checked(record, name, constant)
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
    _check_loss(record, values)
    if sigma is not None:
        values["sigma"] = np.full(draws, checked("sigma", sigma, POSITIVE))
    return LawAt(record, values, () if errors else (NO_DOUBT,))


def _checked(law: Law, name: str, constant: object) -> float:
    """Check that a constant is a number that this parameter can be: it has the sign of
    its plausible value, if its prior has one sign.
    """
    value = checked(f"{law.name}@{name}", constant, NUMBER)
    supports = {t.coefficient: t.prior.support for t in law.terms}
    supports |= {e.name: e.prior.support for e in law.exponents}
    has_sign = supports.get(name) in ("positive", "unit")
    usual = law.plausible.get(name, value)
    if has_sign and usual * value < 0:
        raise LawError(
            f"{law.name}@{name}: it is {'below' if usual < 0 else 'above'} 0, got "
            f"{value:g}: the sign of a term is in the law's formula"
        )
    return value


def _check_loss(
    law: Law, values: Mapping[str, Float[np.ndarray, " draw"]], most: float = 100.0
) -> None:
    """Refuse constants at which the loss of the law's reference run is none."""
    medians = {name: np.median(draws) for name, draws in values.items()}
    with np.errstate(all="ignore"):
        loss = float(law.loss(as_arrays(law.reference), as_arrays(medians)))
    if not 0 < loss <= most:
        at = ", ".join(f"{c} = {format_level(c, x)}" for c, x in law.reference.items())
        raise LawError(
            f"law {law.name!r} at these constants has a loss of {loss:.3g} nats at {at}: "
            "a digit or a sign wrong, or constants of other units?"
        )


def law_as_written(text: str) -> LawAt | None:
    """Read ``chinchilla@E=1.69,A=406.4,B=410.7,alpha=0.34+-0.02,beta=0.28,sigma=0.5%``;
    None for any other text.

    Raises
    ------
    LawError
        A constant is missing, unknown, or not a number.
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

"""Find parameters of a formula that the runs would put below zero, where their priors
do not go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import jax
import numpy as np
import pandas as pd

from bayeslaw._law.law import NATS, Law, as_arrays, log_loss
from bayeslaw._tables import fitting

if TYPE_CHECKING:
    from jaxtyping import Float


def other_signs(
    law: Law,
    draws: Mapping[str, Float[np.ndarray, " draw"]],
    runs: pd.DataFrame,
    clear: float = 3.0,
) -> list[str]:
    """Write a line for each positive parameter of a formula that fits better below 0.

    Such a parameter lies at the low end of its prior, and least squares without the
    prior put it below 0: one Gauss-Newton step from the posterior's median, over all
    parameters together.

    Parameters
    ----------
    draws
        Draws by site, shape (draw,) each.
    clear
        Standard errors below 0 from which on the sign counts as found.
    """
    if not law.origin.startswith("formula:"):
        return []
    free = {n: prior for n, prior in law.free_priors.items() if n in draws}
    at_low_end = [
        name
        for name, prior in free.items()
        if prior.support == "positive"
        and np.quantile(draws[name], 0.5) < prior.quantile(0.05)
    ]
    if not at_low_end or len(runs) <= len(free):
        return []
    medians = {name: float(np.median(draws[name])) for name in law.priors}
    step, error = _least_squares(law, list(free), medians, runs)
    best = {name: medians[name] + step[name] for name in at_low_end}
    found = [name for name in at_low_end if best[name] < -clear * error[name]]
    return [_line(law, name, best[name]) for name in found]


def _least_squares(
    law: Law, names: list[str], values: Mapping[str, float], runs: pd.DataFrame
) -> tuple[dict[str, float], dict[str, float]]:
    """Compute the Gauss-Newton step of some values, and their standard errors."""
    columns, y = fitting.covariates(law, runs), fitting.log_losses(runs)
    at = as_arrays(values)
    slopes = jax.jacfwd(lambda some: log_loss(law, columns, at | some))(
        {name: at[name] for name in names}
    )
    jacobian = np.stack([np.asarray(slopes[name]) for name in names], axis=1)
    residuals = y - np.asarray(log_loss(law, columns, at))
    # columns of length 1, so that the rank does not depend on the parameters' units
    length = np.linalg.norm(jacobian, axis=0)
    length[length == 0] = 1.0
    scaled = jacobian / length
    step, _, rank, _ = np.linalg.lstsq(scaled, residuals, rcond=1e-10)
    if rank < len(names):
        return dict.fromkeys(names, 0.0), dict.fromkeys(names, np.inf)
    left = residuals - scaled @ step
    variance = left @ left / (len(y) - len(names))
    error = np.sqrt(variance * np.diag(np.linalg.inv(scaled.T @ scaled)))
    return (
        dict(zip(names, step / length, strict=True)),
        dict(zip(names, error / length, strict=True)),
    )


def _line(law: Law, site: str, best: float) -> str:
    """Say what a parameter would be, and what to write."""
    name = site.removesuffix(NATS)
    signs = {term.coefficient: term.sign for term in law.terms}
    write = f"-{name} in place of {name}"
    if name in signs:
        write = f"- {name}*... in place of + {name}*..."
        if signs[name] < 0:
            write = f"+ {name}*... in place of - {name}*..."
    unit = " nats at the reference run" if site.endswith(NATS) else ""
    return (
        f"{name} is above 0 by its prior, and the runs put it at about {best:.2g}{unit}: "
        f"write {write} in the formula, or give it a prior of both signs, "
        f'{name} = "normal(0, {2 * abs(best):.1g})"'
    )

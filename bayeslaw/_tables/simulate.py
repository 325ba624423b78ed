"""Simulate runs from a law at known parameters, on the paper's grid, or from its prior."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bayeslaw._base.errors import LawError
from bayeslaw._base.frames import Table
from bayeslaw._base.machine import runtime
from bayeslaw._base.streams import generator
from bayeslaw._law.columns import LOSS_BEFORE, SOURCE_LOSS_BEFORE
from bayeslaw._law.find import as_law, find_law
from bayeslaw._law.law import Law, log_loss
from bayeslaw._tables import fitting
from bayeslaw._tables.runs import as_design, as_runs

if TYPE_CHECKING:
    from jaxtyping import Float

NOISE = 0.005  # sd of log loss, about the difference of two seeds
# the grid of Goffinet 2025, section 2
REPLAYS, TOKENS_PER_PARAMETER = (0.10, 0.25, 0.50), (0.25, 0.5, 1, 2.5, 5, 10, 20)


def ptpp_grid() -> pd.DataFrame:
    """Build the paper's grid, 252 runs without losses: every combination of stage,
    size, replay and adaptation budget.

    ``source_loss_before`` and ``loss_before`` come from a separable pre-training law
    (Besiroglu 2024), with the target domain 15% above the source domain. They are
    assumed, not measured.
    """
    stages, sizes = (15, 31, 279), (241e6, 517e6, 1.4e9, 8.1e9)
    design = product(stages, sizes, REPLAYS, TOKENS_PER_PARAMETER)
    rows = [(n, t * n, r, p) for p, n, r, t in design]
    runs = pd.DataFrame(rows, columns=["N", "D", "replay", "ptpp"]).astype(float)
    tokens = runs["ptpp"] * runs["N"]
    # parameters of `chinchilla` by Besiroglu 2024
    before = 1.8172 + 482.01 * runs["N"] ** -0.3478 + 2085.43 * tokens**-0.3658
    runs[SOURCE_LOSS_BEFORE] = before
    runs[LOSS_BEFORE] = 1.15 * before
    runs["checkpoint"] = [
        f"{n / 1e6:.0f}M-{p:.0f}" for n, p in zip(runs["N"], runs["ptpp"], strict=True)
    ]
    runs["run"] = [f"run{i:03d}" for i in range(len(runs))]
    return runs


def mixture_grid() -> pd.DataFrame:
    """Build 90 runs without losses: ten mixtures of three domains, each at three sizes
    and three budgets. Mixtures are spread evenly over the simplex, with at least a
    tenth of each domain.
    """
    thirds = [(i, j, 3 - i - j) for i in range(4) for j in range(4 - i)]
    mixtures = [[0.1 + 0.7 * part / 3 for part in point] for point in thirds]
    design = product((1e8, 3e8, 1e9), (2e9, 8e9, 3.2e10), mixtures)
    rows = [(n, d, *shares) for n, d, shares in design]
    names = ("share_web", "share_code", "share_books")
    return pd.DataFrame(rows, columns=["N", "D", *names])


DESIGNS = {"ptpp": ptpp_grid, "mixtures": mixture_grid}


def simulate(
    law: Law | str | None = None,
    *,
    design: str | Path | Table = "ptpp",
    seed: int = 0,
    noise: float = NOISE,
    parameters: Mapping[str, float] | None = None,
) -> pd.DataFrame:
    """Simulate a table of runs.

    Parameters
    ----------
    law
        A law or its name.
    design
        Name of a design, or a table with the columns the law reads, or the path of one.
        ``"ptpp"``: the grid of Goffinet 2025. ``"mixtures"``: three domains (``web``,
        ``code``, ``books``).
    noise
        Standard deviation of the log loss of a run around the law.
    parameters
        Parameters in the paper's units, in place of the law's plausible ones.
        Parameters that are not named stay plausible.

    Raises
    ------
    LawError
        An unknown design or parameter, a design without a column that the law reads, or
        parameters at which a loss is not positive.

    Examples
    --------
    >>> bayeslaw.simulate("chinchilla", seed=1).equals(bayeslaw.simulate("chinchilla", seed=1))
    True
    """
    runtime.start()
    is_named = isinstance(design, str) and not Path(design).suffix
    table = None if is_named else as_design(design)
    law = as_law(law, table)
    if is_named and design not in DESIGNS:
        raise LawError(
            f"unknown design {design!r}; known: {', '.join(DESIGNS)}; "
            "or give a table of runs"
        )
    if not noise >= 0:
        raise LawError(f"noise must be at least 0, got {noise}")
    runs = DESIGNS[str(design)]() if table is None else table.copy()
    missing = [column for column in law.covariates if column not in runs]
    if is_named and missing:
        advice = "give a table of runs that has it (--design runs.csv)"
        for name, lay in DESIGNS.items():
            if set(law.covariates) <= set(lay()):
                advice = f"design {name!r} has it (--design {name})"
        raise LawError(
            f"law {law.name!r} reads {missing[0]!r}, which design {design!r} lacks: "
            f"{advice}"
        )
    values = law.from_paper({**law.plausible, **(parameters or {})})
    loss = np.asarray(law.loss(fitting.covariates(law, runs), values))
    if not (loss > 0).all():
        raise LawError(
            f"law {law.name!r}: these parameters give a loss of {loss.min():g} nats; "
            "a loss is above 0"
        )
    deviations = generator(seed).standard_normal(len(runs))
    runs["loss"] = loss * np.exp(noise * deviations)
    return runs


def prior_predictive(
    law: Law | str | Any,
    runs: Table | str | Path,
    *,
    draws: int = 1000,
    seed: int = 0,
) -> Float[np.ndarray, "draw run"]:
    """Draw losses at a table of runs from the prior, without the noise of a run, shape
    (draw, run).

    Parameters
    ----------
    law
        A law, its name, or a fit, whose law and priors are taken.
    runs
        A table, or the path of one.

    Raises
    ------
    LawError
        ``law`` is none of these.

    Examples
    --------
    >>> bayeslaw.prior_predictive("chinchilla", pretrained, draws=50).shape[0]
    50
    """
    import jax

    runtime.start()
    runs = as_runs(runs)
    law = find_law(law, runs) if isinstance(law, str) else getattr(law, "law", law)
    if not isinstance(law, Law):
        raise LawError(
            "prior_predictive takes a law, its name, or the fit of one law (of an "
            f"average, one of its members); got {type(law).__name__}"
        )
    rng = generator(seed)
    values = {name: prior.draw(rng, draws) for name, prior in law.priors.items()}
    of_draw = partial(log_loss, law, fitting.covariates(law, runs))
    return np.exp(np.asarray(jax.vmap(of_draw)(values)))

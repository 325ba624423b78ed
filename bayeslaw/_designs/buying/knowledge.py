"""Build the posterior before and after each batch: from the priors of several laws, or
from the measured runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from bayeslaw._base.errors import RunTableError
from bayeslaw._law.find import as_law
from bayeslaw._law.law import Law
from bayeslaw._posteriors.averaging.average import average_part
from bayeslaw._posteriors.averaging.compare import Comparing
from bayeslaw._posteriors.fits.candidates import default_laws
from bayeslaw._posteriors.fits.fit import fit
from bayeslaw._posteriors.posterior import Posterior
from bayeslaw._posteriors.prior import from_priors
from bayeslaw._tables import fitting

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Bool


def laws_for(table: pd.DataFrame, laws: Sequence[Law | str] | None) -> list[Law]:
    """Find the given laws, or those that suit the table's columns."""
    wanted = default_laws(table) if laws is None else list(laws)
    return [as_law(law, table) for law in wanted]


def what_is_known(
    table: pd.DataFrame,
    measured: Bool[np.ndarray, " row"],
    laws: Sequence[Law],
    seed: int,
) -> Posterior:
    """Average the laws on the measured runs. With too few runs to leave any out, fit
    the first law that can be fitted; with too few for that, use the priors.

    Parameters
    ----------
    table
        Measured runs and runs on offer. The ``loss`` of runs on offer is not used, but
        must be a number.
    measured
        Mask of the measured runs, shape (row,).
    """
    measured_runs = table[measured]
    settings = Comparing(seed=seed)
    if len(measured_runs) > fewest(laws):
        try:
            return average_part(
                table, measured, list(laws), settings, on_failure="ignore"
            )
        except RunTableError:
            pass  # there are too few levels to leave a stage out
    for law in laws:
        try:
            fitting.check_fittable(law, measured_runs)
        except RunTableError:
            continue
        return fit(measured_runs, law, seed=seed, preview=True, on_failure="ignore")
    return from_priors(laws, table, seed)


def fewest(laws: Sequence[Law]) -> int:
    """Compute the least size of a first batch: two more runs than the largest law has
    parameters.
    """
    return max(len(law.priors) for law in laws) + 2

"""A law and a table as samplers have them."""

import bayeslaw
from bayeslaw._inference import coordinates
from bayeslaw._inference.table import NONE, pad, shared_error
from bayeslaw._tables import fitting


def problem(law, runs, *, is_shared=False):
    """The law, the padded table, and the points at which its terms are contrasted."""
    law = bayeslaw.law(law) if isinstance(law, str) else law
    columns = fitting.covariates(law, runs)
    errors = shared_error(runs) if is_shared else NONE
    table = pad(columns, fitting.log_losses(runs), errors)
    return law, table, coordinates.contrast_points(law, columns)

"""Define errors and warnings, each of one line: what, where, and what to do."""

import sys
import warnings
from pathlib import Path


class BayeslawError(Exception):
    """Base class of all errors that a user can mend."""


class RunTableError(BayeslawError, ValueError):
    """The run table cannot be used as it is; the message names row and column."""


class LawError(BayeslawError, ValueError):
    """Unknown law, parameter or prior; the message lists the known ones."""


class FitFileError(BayeslawError, ValueError):
    """A file is not a saved fit, or its law has changed since it was fitted."""


class PlanError(BayeslawError, ValueError):
    """The planner cannot answer the question as it stands; the message says what to
    change.
    """


class DiagnosticsError(BayeslawError, RuntimeError):
    """The sampler's diagnostics say that the posterior cannot be trusted."""


class WorkersError(BayeslawError, RuntimeError):
    """The scheduler or its workers were lost during the work."""


class RunTableWarning(UserWarning):
    """The run table can be used, but something in it deserves a look."""


class FitWarning(UserWarning):
    """The fit can be used, but something about it deserves a look."""


def warn(message: str, category: type[Warning] = RunTableWarning) -> None:
    """Warn, at the line outside this package that led here."""
    package = Path(__file__).parents[1]
    level, frame = 2, sys._getframe(1)
    while frame.f_back and Path(frame.f_code.co_filename).is_relative_to(package):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)

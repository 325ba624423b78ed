"""What can go wrong, by kind. Every message is one line: what, where, and what to
do.
"""


class BayeslawError(Exception):
    """Base of all errors a user can mend."""


class RunTableError(BayeslawError, ValueError):
    """The run table cannot be used as it is; the message names row and column."""


class LawError(BayeslawError, ValueError):
    """Unknown law, parameter or prior; the message lists the known ones."""


class FitFileError(BayeslawError, ValueError):
    """A file is not a saved fit, or its law is not what it was when it was fitted."""


class PlanError(BayeslawError, ValueError):
    """The question put to the planner cannot be answered as it stands; the message says
    the way out.
    """


class DiagnosticsError(BayeslawError, RuntimeError):
    """The sampler's diagnostics say that the posterior cannot be trusted."""


class WorkersError(BayeslawError, RuntimeError):
    """The scheduler, or its workers, were lost while they worked."""


class RunTableWarning(UserWarning):
    """The run table is usable, but something in it deserves a look."""


class FitWarning(UserWarning):
    """The fit is usable, but something about it deserves a look."""

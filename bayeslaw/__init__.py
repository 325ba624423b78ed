"""Bayesian scaling laws of continual pre-training: posteriors, calibrated forecasts, plans.

Importing this package imports none of what it does: each name brings its module when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bayeslaw._catalogue import law as law
    from bayeslaw._catalogue import laws as laws
    from bayeslaw._check import Check as Check
    from bayeslaw._check import check as check
    from bayeslaw._errors import BayeslawError as BayeslawError
    from bayeslaw._errors import DiagnosticsError as DiagnosticsError
    from bayeslaw._errors import FitFileError as FitFileError
    from bayeslaw._errors import LawError as LawError
    from bayeslaw._errors import PlanError as PlanError
    from bayeslaw._errors import RunTableError as RunTableError
    from bayeslaw._fit import Fit as Fit
    from bayeslaw._fit import fit as fit
    from bayeslaw._forecast import forecast as forecast
    from bayeslaw._formula import find_law as find_law
    from bayeslaw._formula import law_from_file as law_from_file
    from bayeslaw._formula import law_from_formula as law_from_formula
    from bayeslaw._law import Exponent as Exponent
    from bayeslaw._law import Law as Law
    from bayeslaw._law import Term as Term
    from bayeslaw._plan import Plan as Plan
    from bayeslaw._plan import plan as plan
    from bayeslaw._point import PointFit as PointFit
    from bayeslaw._point import point_fit as point_fit
    from bayeslaw._priors import Prior as Prior
    from bayeslaw._report import report as report
    from bayeslaw._runs import read_runs as read_runs
    from bayeslaw._schedule import areas_from_table as areas_from_table
    from bayeslaw._schedule import schedule_areas as schedule_areas
    from bayeslaw._simulate import prior_predictive as prior_predictive
    from bayeslaw._simulate import simulate as simulate

_HOME = {
    "_catalogue": ("law", "laws"),
    "_check": ("Check", "check"),
    "_errors": ("BayeslawError", "DiagnosticsError", "FitFileError", "LawError", "PlanError", "RunTableError"),
    "_fit": ("Fit", "fit"),
    "_forecast": ("forecast",),
    "_formula": ("find_law", "law_from_file", "law_from_formula"),
    "_law": ("Exponent", "Law", "Term"),
    "_plan": ("Plan", "plan"),
    "_point": ("PointFit", "point_fit"),
    "_priors": ("Prior",),
    "_runs": ("read_runs",),
    "_schedule": ("areas_from_table", "schedule_areas"),
    "_simulate": ("prior_predictive", "simulate"),
    "_report": ("report",),
}
_MODULE = {name: module for module, names in _HOME.items() for name in names}


def __getattr__(name: str):
    if name not in _MODULE:
        raise AttributeError(f"module 'bayeslaw' has no attribute {name!r}")
    return getattr(import_module(f"bayeslaw.{_MODULE[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE})

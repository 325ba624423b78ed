"""Bayesian scaling laws of continual pre-training: posteriors, calibrated forecasts, plans.

Importing this package imports none of what it does: each name brings its module when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bayeslaw._anchors import Anchors as Anchors
    from bayeslaw._anchors import anchors as anchors
    from bayeslaw._anchors import appraise as appraise
    from bayeslaw._anchors_menu import candidates as candidates
    from bayeslaw._anchors_study import anchors_study as anchors_study
    from bayeslaw._average import Average as Average
    from bayeslaw._average import average as average
    from bayeslaw._average import load as load
    from bayeslaw._catalogue import law as law
    from bayeslaw._catalogue import laws as laws
    from bayeslaw._chain import chain as chain
    from bayeslaw._chain import checkpoints as checkpoints
    from bayeslaw._chain import losses_before as losses_before
    from bayeslaw._check import Check as Check
    from bayeslaw._check import check as check
    from bayeslaw._compare import Comparison as Comparison
    from bayeslaw._compare import compare as compare
    from bayeslaw._dynamics import critical_point as critical_point
    from bayeslaw._dynamics import loss_curve as loss_curve
    from bayeslaw._dynamics import turning_length as turning_length
    from bayeslaw._dynamics_best import best_loss_potential as best_loss_potential
    from bayeslaw._dynamics_best import best_peak_lr as best_peak_lr
    from bayeslaw._dynamics_best import best_replay as best_replay
    from bayeslaw._errors import BayeslawError as BayeslawError
    from bayeslaw._errors import DiagnosticsError as DiagnosticsError
    from bayeslaw._errors import FitFileError as FitFileError
    from bayeslaw._errors import LawError as LawError
    from bayeslaw._errors import PlanError as PlanError
    from bayeslaw._errors import RunTableError as RunTableError
    from bayeslaw._errors import RunTableWarning as RunTableWarning
    from bayeslaw._fit import Fit as Fit
    from bayeslaw._fit import fit as fit
    from bayeslaw._forecast import forecast as forecast
    from bayeslaw._forgetting import Cost as Cost
    from bayeslaw._forgetting import RelativeError as RelativeError
    from bayeslaw._forgetting import bootstrapped_mre as bootstrapped_mre
    from bayeslaw._forgetting import cost_of_forgetting as cost_of_forgetting
    from bayeslaw._forgetting import extrapolation as extrapolation
    from bayeslaw._forgetting import finetuning_grid as finetuning_grid
    from bayeslaw._forgetting import mean_relative_error as mean_relative_error
    from bayeslaw._forgetting import progress_lost as progress_lost
    from bayeslaw._forgetting import simulate_domains as simulate_domains
    from bayeslaw._formula import find_law as find_law
    from bayeslaw._formula import law_from_file as law_from_file
    from bayeslaw._formula import law_from_formula as law_from_formula
    from bayeslaw._law import Exponent as Exponent
    from bayeslaw._law import Law as Law
    from bayeslaw._law import Term as Term
    from bayeslaw._phases import Phases as Phases
    from bayeslaw._plan import Plan as Plan
    from bayeslaw._plan import plan as plan
    from bayeslaw._point import PointFit as PointFit
    from bayeslaw._point import point_fit as point_fit
    from bayeslaw._pool import DomainPosterior as DomainPosterior
    from bayeslaw._pool import Pool as Pool
    from bayeslaw._pool import pool as pool
    from bayeslaw._priors import Prior as Prior
    from bayeslaw._refits import Refit as Refit
    from bayeslaw._refits import bootstrap_weights as bootstrap_weights
    from bayeslaw._refits import refits as refits
    from bayeslaw._report import report as report
    from bayeslaw._runs import read_runs as read_runs
    from bayeslaw._schedule import areas_from_table as areas_from_table
    from bayeslaw._schedule import constant as constant
    from bayeslaw._schedule import cosine as cosine
    from bayeslaw._schedule import multi_step as multi_step
    from bayeslaw._schedule import schedule_areas as schedule_areas
    from bayeslaw._schedule import wsd as wsd
    from bayeslaw._simulate import prior_predictive as prior_predictive
    from bayeslaw._simulate import simulate as simulate

_HOME = {
    "_anchors": ("Anchors", "anchors", "appraise"),
    "_anchors_menu": ("candidates",),
    "_anchors_study": ("anchors_study",),
    "_average": ("Average", "average", "load"),
    "_compare": ("Comparison", "compare"),
    "_catalogue": ("law", "laws"),
    "_chain": ("chain", "checkpoints", "losses_before"),
    "_check": ("Check", "check"),
    "_dynamics": ("critical_point", "loss_curve", "turning_length"),
    "_dynamics_best": ("best_loss_potential", "best_peak_lr", "best_replay"),
    "_errors": (
        "BayeslawError",
        "DiagnosticsError",
        "FitFileError",
        "LawError",
        "PlanError",
        "RunTableError",
        "RunTableWarning",
    ),
    "_fit": ("Fit", "fit"),
    "_forecast": ("forecast",),
    "_forgetting": (
        "Cost",
        "RelativeError",
        "bootstrapped_mre",
        "cost_of_forgetting",
        "extrapolation",
        "finetuning_grid",
        "mean_relative_error",
        "progress_lost",
        "simulate_domains",
    ),
    "_formula": ("find_law", "law_from_file", "law_from_formula"),
    "_law": ("Exponent", "Law", "Term"),
    "_phases": ("Phases",),
    "_plan": ("Plan", "plan"),
    "_point": ("PointFit", "point_fit"),
    "_pool": ("DomainPosterior", "Pool", "pool"),
    "_priors": ("Prior",),
    "_refits": ("Refit", "bootstrap_weights", "refits"),
    "_runs": ("read_runs",),
    "_schedule": ("areas_from_table", "constant", "cosine", "multi_step", "schedule_areas", "wsd"),
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

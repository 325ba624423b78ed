"""The public names: a list that changes only on purpose."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import bayeslaw

STUB = Path(bayeslaw.__file__).with_name("__init__.pyi")
NAMES = [
    "AccuracyLink",
    "Anchors",
    "Average",
    "BayeslawError",
    "BestMixture",
    "BestStop",
    "Check",
    "Comparison",
    "Cost",
    "Costs",
    "Draws",
    "DiagnosticsError",
    "DomainPosterior",
    "Exponent",
    "Finding",
    "Fit",
    "FitFileError",
    "Followed",
    "Follower",
    "Following",
    "Gain",
    "Hardware",
    "Influence",
    "InferenceCheck",
    "Law",
    "LawError",
    "MixturePlan",
    "NextRuns",
    "Optimum",
    "Phases",
    "Plan",
    "PlanError",
    "PointFit",
    "Pool",
    "Prior",
    "PriorOnly",
    "PriorPage",
    "Refit",
    "RecipeChoice",
    "Recipes",
    "Review",
    "RunTableError",
    "RunTableWarning",
    "Shape",
    "StagesCheck",
    "Term",
    "Updated",
    "WhatIf",
    "accuracy_link",
    "anchors",
    "appraise",
    "areas_from_table",
    "average",
    "best_loss_potential",
    "best_mixture",
    "best_replay",
    "best_settings",
    "best_stop",
    "bootstrap_weights",
    "candidates",
    "chain",
    "check",
    "check_inference",
    "check_stages",
    "checkpoints",
    "choose_recipe",
    "compare",
    "compute_gain",
    "constant",
    "cosine",
    "cost_of_forgetting",
    "critical_point",
    "drift_parts",
    "exchange_rate",
    "find_law",
    "fit",
    "follow",
    "follow_page",
    "forecast",
    "influence",
    "law",
    "law_at",
    "law_from_file",
    "law_from_formula",
    "laws",
    "load",
    "loss_curve",
    "losses_before",
    "misfit_along",
    "multi_step",
    "next_runs",
    "optimum",
    "mixture_candidates",
    "plan",
    "plan_mixture",
    "point_fit",
    "pool",
    "prior_only",
    "prior_page",
    "prior_predictive",
    "progress_bar",
    "progress_lost",
    "read_runs",
    "recipes",
    "refits",
    "report",
    "review",
    "schedule_areas",
    "simulate",
    "tuned",
    "turning_length",
    "update",
    "update_page",
    "width_parts",
    "what_if",
    "wsd",
]
SUBPACKAGES = ("plots", "datasets")


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_brings_its_module(name):
    assert getattr(bayeslaw, name).__name__ == name


@pytest.mark.parametrize("name", SUBPACKAGES)
def test_a_public_package_is_imported_by_its_name(name):
    assert importlib.import_module(f"bayeslaw.{name}")


def test_all_public_names_are_listed():
    assert dir(bayeslaw) == sorted([*NAMES, *SUBPACKAGES])


def test_the_stub_names_each_once():
    found = [alias for node in ast.parse(STUB.read_text()).body for alias in node.names]  # pyright: ignore
    assert sorted(a.asname for a in found) == sorted([*NAMES, *SUBPACKAGES])
    assert all(a.asname == a.name for a in found)


def test_no_record_of_arguments_has_a_docstring():
    """Editors would show it in place of the function's (`tests/studies/hover.py` asks one)."""
    trees = [ast.parse(p.read_text()) for p in STUB.parent.rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    records = {
        decorator.args[0].id
        for node in nodes
        if isinstance(node, ast.FunctionDef)
        for decorator in node.decorator_list
        if isinstance(decorator, ast.Call)
        and isinstance(decorator.func, ast.Name)
        and decorator.func.id == "takes"
        and isinstance(decorator.args[0], ast.Name)
    }
    assert len(records) > 10
    classes = [n for n in nodes if isinstance(n, ast.ClassDef) and n.name in records]
    assert len(classes) == len(records)
    assert not [n.name for n in classes if ast.get_docstring(n)]


def test_every_public_name_says_what_it_does():
    assert not [name for name in NAMES if not getattr(bayeslaw, name).__doc__]


def test_importing_the_package_imports_none_of_what_it_does():
    code = "import bayeslaw, sys; print(*(m for m in ('jax', 'numpy', 'pandas', 'numpyro') if m in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert not done.stdout.strip()


def test_a_name_that_there_is_not_says_which_is_meant():
    with pytest.raises(AttributeError, match=r"no 'whatif'; did you mean 'what_if'"):
        _ = bayeslaw.whatif
    assert not hasattr(bayeslaw, "nothing_like_it")

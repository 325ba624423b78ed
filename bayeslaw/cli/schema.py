"""Define ``schema``: JSON schemas of the run table and of commands' answers."""

from __future__ import annotations

import json
from typing import Any, Literal

from bayeslaw._base.arguments import argument, command
from bayeslaw._base.errors import LawError
from bayeslaw._base.schema import CELLS, DIALECT, any_of
from bayeslaw._base.terminal import say_block
from bayeslaw.cli.documented import options_of
from bayeslaw.cli.options import AsJson
from bayeslaw.cli.output import emit

WRITTEN = {"output": (str | None, "The file that was written.")}
SUMMARY = {"name title": str, "covariates parameters": list[str]}
PRIORS = {"**": {"prior source": str, "low high": float}}
PRIOR_ONLY = {"prior_only?": (Literal[True], "With --prior-only: nothing is measured.")}
LAW = {
    **SUMMARY,
    "source latex": str,
    "reference plausible": dict[str, float],
    "priors": PRIORS,
}
SIMULATED = {"law design": str, "n seed": int, "noise": float, **WRITTEN}
TABLE = {
    "source": str,
    "rows": int,
    "runs": (int | None, "Number of runs; null without a column run."),
    "columns": {"**": {"low? high?": float, "levels empty": int}},
    "left_out": (list[str], "Columns that --keep would keep."),
    "proposal": (str | None, "Options that map columns which were not used."),
    "notes": (list[str], "Repairs of the table."),
    "laws": (dict[str, list[str]], "Laws that `fit` takes by default, by domain."),
    "trouble": (str | None, "Why it cannot be fitted as it is; null if it can."),
    **WRITTEN,
    "remembered": (str | None, "The file with the mapping."),
    "next": (str | None, "The command to run next."),
}
FIT = {
    "law": (str, "Name of the law, or average."),
    "n": (int, "Number of rows."),
    "parameters": ({"**": "mean sd low high"}, "In the paper's units; 90% intervals."),
    "diagnostics": "rhat ess divergences draws seconds "
    "divergent_share? steps_per_draw? khat?",
    "priors?": PRIORS,
    "narrowed?": {
        "**": {"prior_low prior_high low high narrowed": float, "whose": str}
    },
    "preview?": Literal[True],
    "weights?": (dict[str, float], "Weights of an average, by law."),
    **WRITTEN,
}


def answers() -> dict[str, list[Any]]:
    """List what commands print with ``--json``: one kind of answer, or several."""
    import bayeslaw
    from bayeslaw._forecasts.forecast import FORECAST
    from bayeslaw._posteriors.averaging.compare import SCORES
    from bayeslaw._posteriors.fits.goodness import Goodness
    from bayeslaw._report.measured import Measured
    from bayeslaw._report.pages.before import PriorPage

    forecast = {
        "law": str,
        "prob": (float, "Probability inside the intervals."),
        **PRIOR_ONLY,
        "warnings?": list[str],
        "rows": (
            [{**CELLS, FORECAST: float}],
            "For each run its columns; ``median``, ``low``, ``high`` of a new run's loss "
            "in nats per token, ``log_sd`` of its log; ``law_low``, ``law_high`` of the "
            "law's loss; with --accuracy that of a new run.",
        ),
    }
    check = {
        "law": str,
        "*": bayeslaw.Check,
        "posterior_sbc?": bayeslaw.InferenceCheck,
        "conformal?": bayeslaw.StagesCheck,
    }
    update = {"*": bayeslaw.Updated, "output? source_output? page?": str}
    bought = {"*": bayeslaw.Anchors, **WRITTEN, "prior_only": bool}
    report = {
        "report": (str, "Path of the page."),
        "fits": (dict[str, str], "Files of the fits, by domain."),
        "seconds": float,
        "verdicts": (dict[str, str], "Verdicts of the checks, by domain."),
        "checks": {"**": bayeslaw.Check},
        "trust": (str, "Whether to trust the forecasts, by all that was held out."),
        "plan": bayeslaw.Plan | bayeslaw.MixturePlan | None,
        "probability_if_as_checked": (
            float,
            "Of the same plan, with intervals as wide as the checks ask for.",
        ),
        "measured": Measured | None,
    }
    compared = {"laws": [SCORES], "n": int, "held_out": list[str], **WRITTEN}
    return {
        "laws": [[SUMMARY], LAW],
        "simulate": [SIMULATED],
        "table": [TABLE],
        "fit": [FIT | {"goodness": Goodness}],
        "compare": [compared],
        "forecast": [forecast],
        "check": [check],
        "review": [bayeslaw.Review],
        "plan": [{"*": bayeslaw.Plan, **PRIOR_ONLY, "influence?": bayeslaw.Influence}],
        "mixture": [bayeslaw.MixturePlan, bayeslaw.BestMixture],
        "optimum": [bayeslaw.Optimum, bayeslaw.BestStop],
        "recipes": [bayeslaw.Recipes, bayeslaw.RecipeChoice],
        "follow": [bayeslaw.Following],
        "update": [update],
        "whatif": [bayeslaw.WhatIf],
        "anchors": [bought, {"*": bayeslaw.NextRuns, **WRITTEN}],
        "report": [report, PriorPage],
    }


@options_of()
class SchemaOptions:
    """Options of ``schema``."""

    name: str | None = argument(
        "A command, for the schema of what it prints with --json; without one, that of "
        "a row of the run table.",
        "[COMMAND]",
        default=None,
    )
    as_json: AsJson = False


@command
def schema(options: SchemaOptions) -> None:
    """Print the JSON schema of a row of the run table, or of what a command prints with
    --json.

    Example: bayeslaw schema plan
    """
    from bayeslaw._tables.runs import row_schema

    if options.name is None:
        made = row_schema()
    else:
        there = answers()
        if options.name not in there:
            raise LawError(
                f"no command {options.name!r} prints an answer; there are: "
                f"{', '.join(there)}"
            )
        made = any_of(*there[options.name])
    made = {"$schema": DIALECT, **made}
    emit(made, options.as_json, lambda: say_block(json.dumps(made, indent=1)))

"""Define ``mixture``: plan a mixture of domains."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

from bayeslaw._base.arguments import command, option
from bayeslaw._base.errors import PlanError
from bayeslaw._base.limits import LOSS
from bayeslaw._base.progress.bar import progress_bar
from bayeslaw._base.terminal import say_block
from bayeslaw.cli.options import AsJson, Seed, TrustLawFile
from bayeslaw.cli.output import check_writable, emit, keep_warning, write_json
from bayeslaw.cli.parsing import (
    assignments,
    by_name,
    limit,
    load_fit,
    number_or_none,
    share_bounds,
    values_by_name,
)


@dataclass(frozen=True, kw_only=True)
class MixtureOptions:
    """Options of ``mixture``."""

    loss: list[str] = option(
        "Fit of an evaluation set's loss, by name: code=code.nc (repeatable).",
        default=MISSING,
        metavar="NAME=F.nc",
    )
    N: str = option("Model parameters: 1B.", "--N", default=MISSING)
    max_loss: list[str] | None = option(
        "Most of a set's loss, nats per token: code=1.2 (repeatable)."
    )
    max_mean_loss: str | None = option("Most of the weighted mean of the losses.")
    weight: list[str] | None = option(
        "Weight of a set in the mean: code=2 (repeatable); default: all alike."
    )
    D: str | None = option(
        "Budget: the best mixture of so many tokens, under the limits if there are any.",
        "--D",
    )
    confidence: str = option(
        "Probability of keeping all limits together.", default="0.9"
    )
    share: list[str] | None = option(
        "Least and largest share of a domain: code=5%:30%, or one that is "
        "fixed: code=30% (repeatable); default: those fitted."
    )
    unique_tokens: list[str] | None = option(
        "Tokens there are of a domain: wiki=3e9 (repeatable)."
    )
    max_epochs: str = option("How often each of them may be seen.", default="1")
    max_tokens: str | None = option("Largest budget: 20B.")
    covariate: list[str] | None = option(
        "Another column the laws read, source_loss_before=2.7, or by set, "
        "loss_before=fr=3.2,de=3.4 (repeatable)."
    )
    law_mean: bool = option(
        "Limits on the law's mean, not on the run that will be made.", default=False
    )
    seed: Seed = 0
    output: Path | None = option("JSON file for the answer.", "-o", "--output")
    trust_law_file: TrustLawFile = False
    as_json: AsJson = False


@command
def mixture(options: MixtureOptions) -> None:
    """Find the cheapest tokens and shares of a mixture that keep all limits with a
    stated probability; with --D, the mixture of the least mean loss at that budget
    that keeps them.

    Example: bayeslaw mixture --loss web=web.nc --loss code=code.nc --N 1B
    --max-loss web=2.5 --max-loss code=1.9 --share code=5%:40%
    """
    import bayeslaw

    check_writable(options.output)
    if options.D is not None and options.max_tokens is not None:
        raise PlanError("--D is the budget, and --max-tokens bounds it: give one")
    question = _question(options)
    paths = values_by_name(options.loss, "--loss")
    losses = {
        name: load_fit(path, options.trust_law_file) for name, path in paths.items()
    }
    with progress_bar("mixture", expected=20):
        if options.D is None:
            most = number_or_none("--max-tokens", options.max_tokens)
            answer: Any = bayeslaw.plan_mixture(losses, **question, max_tokens=most)
        else:
            answer = bayeslaw.best_mixture(
                losses, **question, D=limit("--D", options.D)
            )
    record = answer.to_dict()
    write_json(record, options.output)
    for line in record.get("warnings", []):
        keep_warning(line)
    emit(record, options.as_json, lambda: say_block(answer.sentence()))


def _question(options: MixtureOptions) -> dict[str, Any]:
    """Read the arguments that both questions share."""
    most = values_by_name(options.max_loss, "--max-loss")
    mean = options.max_mean_loss
    shares = values_by_name(options.share, "--share")
    return {
        "N": limit("--N", options.N),
        "max_loss": {
            name: limit(f"--max-loss {name}", text, LOSS) for name, text in most.items()
        },
        "max_mean_loss": None if mean is None else limit("--max-mean-loss", mean, LOSS),
        "confidence": limit("--confidence", options.confidence),
        "weights": assignments(options.weight, "--weight") or None,
        "bounds": {
            name: share_bounds(f"--share {name}", text) for name, text in shares.items()
        },
        "unique_tokens": assignments(options.unique_tokens, "--unique-tokens"),
        "max_epochs": limit("--max-epochs", options.max_epochs),
        "covariates": {
            name: by_name(f"--covariate {name}", text, limit)
            for name, text in values_by_name(options.covariate, "--covariate").items()
        },
        "new_run": not options.law_mean,
        "seed": options.seed,
    }

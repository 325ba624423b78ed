"""Choose among recipes that a column of a run table names (optimizers, architectures,
corpora), by one law that differs between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, fields
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri

from bayeslaw._base.arguments import takes
from bayeslaw._base.errors import RunTableError
from bayeslaw._base.frames import Table
from bayeslaw._base.limits import CHANCE, POSITIVE, checked
from bayeslaw._base.numbers import format_count, format_interval
from bayeslaw._base.schema import INTERVAL
from bayeslaw._base.shown import Shown, as_json
from bayeslaw._forecasts.forecast import quantiles_of, warn_of_distance
from bayeslaw._forecasts.forgetting import progress_lost
from bayeslaw._forecasts.recipes import (
    ENDS,
    LOSS,
    compare_pair,
    describe_pair,
    fill_starts,
)
from bayeslaw._law.law import Law
from bayeslaw._law.variants.recipes import between_recipes, contrasts_of
from bayeslaw._posteriors.answer import format_probability, summarise_draws
from bayeslaw._posteriors.fits.candidates import law_for
from bayeslaw._posteriors.fits.fit import SamplingArguments, fit
from bayeslaw._tables.fitting import domains_mixed, names_by
from bayeslaw._tables.rows.levels import ROUNDING, at_levels
from bayeslaw._tables.runs import as_runs

if TYPE_CHECKING:
    from jaxtyping import Float

MOST_SEEDS = 1000
MOST_CELLS = 200  # of a table, in the seeds that it needs
# multiples of the goal's tokens at which losses are compared, an eighth of an e-fold apart
MULTIPLES = np.exp(np.arange(-40, 57) / 8)


@dataclass(frozen=True, repr=False)
class RecipeChoice(Shown):
    """Recipes of a table, compared at a goal. Every field can be stored in JSON.

    Parameters
    ----------
    by, law
        The column that names the recipes, and the name of the law.
    goal
        The run at which recipes are compared, by column.
    rows
        For each recipe, the best first: ``recipe``, number of ``runs``, the
        ``probability`` that its law's loss is the lowest of all at the goal, and the
        ``median``, ``low`` and ``high`` of a new run there.
    pairs
        Each pair once, the likelier winner first: ``recipe``, ``other``;
        ``law_probability`` that the first has the lower loss of the law at the goal, and
        ``probability`` for one run of each; ``difference``, the ratio of the laws'
        losses minus 1; ``tokens`` with which the other reaches the loss of the first at
        the goal, and ``tokens_saved``, those beyond the goal's (None where more than a
        thousand times the tokens do not suffice, or the law reads no tokens); and the
        seeds still needed to name the better with ``confidence``: ``seeds_at_goal`` more
        runs of both at the goal, or ``seeds_of_table`` more of each of their rows (None
        for over 1000).
    choices
        What two ways to choose risk: by the ``forecast``, and by the losses ``measured``
        at the largest runs that all recipes have (None without such runs). Each has the
        chosen ``recipe``; its ``regret``, the ratio of the law's loss to that of the best
        recipe at the goal minus 1; and the ``rank_correlation`` (Spearman) of its order
        with the order at the goal.
    prob, confidence
        Probability inside the intervals, and with which seeds name the better.
    preview
        Whether draws were importance-sampled, without chains.
    notes, warnings
        Changes to the given table, and reasons to distrust the posterior.
    """

    by: str
    law: str
    goal: dict[str, float]
    rows: list[dict[str, Any]]
    pairs: list[dict[str, Any]]
    choices: dict[str, dict[str, Any] | None]
    prob: float
    confidence: float
    preview: bool
    notes: list[str]
    warnings: list[str]

    KEYS: ClassVar = {
        "*": ...,
        "rows": [{"recipe": str, "runs": int, f"probability {INTERVAL}": float}],
        "pairs": [
            {
                "recipe other": str,
                "probability law_probability": float,
                "difference tokens? tokens_saved?": INTERVAL,
                "seeds_at_goal seeds_of_table": int | None,
            }
        ],
        "choices": {
            "forecast? measured?": {
                "recipe": str,
                "regret": f"mean {INTERVAL}",
                "rank_correlation": INTERVAL,
            }
        },
    }

    def table(self) -> pd.DataFrame:
        """Format a row for each recipe, as text."""
        lines = [
            {
                self.by: row["recipe"],
                "runs": row["runs"],
                "loss": format_interval(row, ".4g"),
                "best": format_probability(row["probability"]),
            }
            for row in self.rows
        ]
        return pd.DataFrame(lines)

    def sentence(self) -> str:
        """Describe each pair and the risk of the choice, a line each."""
        lines = []
        for pair in self.pairs:
            parts = [format_interval(pair["difference"], "+.2%", self.prob)]
            if pair["tokens"] is not None:
                tokens = format_interval(pair["tokens"], _format_tokens)
                parts.append(
                    f"tokens that {pair['other']} needs for that loss: {tokens}"
                )
            seeds = [pair["seeds_at_goal"], pair["seeds_of_table"]]
            if seeds != [0, 0]:
                goal, table = (f"over {MOST_SEEDS}" if n is None else n for n in seeds)
                parts.append(
                    f"to be {self.confidence:.0%} sure: {goal} more seeds of both at "
                    f"the goal, or {table} of each of their rows"
                )
            lines.append(describe_pair(pair, parts))
        for how, choice in self.choices.items():
            if choice is not None:
                regret = choice["regret"]
                rank = format_interval(choice["rank_correlation"], ".2f")
                lines.append(
                    f"The {how} losses choose {choice['recipe']}: expected regret "
                    f"{regret['mean']:.2%} (up to {regret['high']:.2%}), rank correlation "
                    f"at the goal {rank}."
                )
        if self.preview:
            lines.append("A PREVIEW.")
        return "\n".join([*lines, *self.notes])


def _format_tokens(tokens: float | None) -> str:
    return "over a thousand times as many" if tokens is None else format_count(tokens)


@dataclass(frozen=True, eq=False)
class ChoiceArguments(SamplingArguments):
    # documented in `choose_recipe`

    runs: Table | str | Path
    by: str
    at: Mapping[str, Any] | Table
    law: Law | str | None = None
    _: KW_ONLY
    spread: float = 0.3
    preview: bool = True
    prob: float | str = 0.9
    confidence: float | str = 0.9


@takes(ChoiceArguments)
def choose_recipe(arguments: ChoiceArguments) -> RecipeChoice:
    """Compare the recipes that a column of a run table names, at a goal.

    One law is fitted to all runs. Each recipe has factors of its own for the law's terms
    and exponents, near 1; the law's misfit over size and tokens, its drift beyond the
    table and all that the recipes share cancel between them, and their own misfits do
    not.

    Parameters
    ----------
    runs
        A table as `read_runs` returns it, or the path of one: one domain, two recipes or
        more, each with a few sizes or tokens, and with seeds if there are any.
    by
        Column that names the recipe of each run: ``"optimizer"``.
    at
        The goal: one run with the columns that the law reads, ``{"N": "7B", "D":
        "140B"}``.
    law
        A law, its name, a formula, or a Python file that defines ``LAW``.
    spread
        Sd of the logarithm of a recipe's factor of a term, before any run; of a floor in
        its own units, and a third of it for exponents.
    preview
        Draw by importance sampling. Chains (``False``) take minutes, and disagreed where
        they were tried (docs/howto/recipes.md).
    prob
        Probability inside the intervals.
    confidence
        Probability with which the seeds still needed shall name the better of two.
    priors, reference, seed, chains, warmup, draws, max_draws, progress, on_failure
        As for `fit`.

    Raises
    ------
    RunTableError, LawError
        The table has no such column, one recipe or several domains, or the goal is not
        one run with the law's columns.
    DiagnosticsError
        The diagnostics fail and ``on_failure`` is ``"raise"``.

    Examples
    --------
    >>> runs = pretrained.drop(columns="run")  # a run has one recipe
    >>> slow = runs.assign(optimizer="adamw")
    >>> fast = runs.assign(optimizer="muon", loss=0.97 * runs["loss"])
    >>> goal = {"N": 7e9, "D": 140e9}
    >>> chosen = bayeslaw.choose_recipe(
    ...     pd.concat([slow, fast], ignore_index=True), "optimizer", goal, "chinchilla",
    ...     on_failure="ignore",
    ... )
    >>> chosen.rows[0]["recipe"]
    'muon'
    """
    by, seed = arguments.by, arguments.seed
    prob = checked("prob", arguments.prob, CHANCE)
    confidence = checked("confidence", arguments.confidence, CHANCE)
    spread = checked("spread", arguments.spread, POSITIVE)
    runs, goal = as_runs(arguments.runs), as_runs(arguments.at)
    if len(goal) != 1:
        raise RunTableError(f"the goal is one run, not {len(goal)}")
    names, mixed = names_by(runs, by, "recipe"), domains_mixed(runs)
    if mixed is not None and by != "domain":
        raise RunTableError(f"recipes are compared on one domain, but {mixed}")
    law, levels = law_for(arguments.law, runs), sorted(names.unique())
    contrasts = contrasts_of(by, levels)
    told_apart = runs.assign(**{str(c): names.map(contrasts[c]) for c in contrasts})
    fitted = fit(
        told_apart,
        between_recipes(law, list(map(str, contrasts)), spread),
        preview=arguments.preview,
        **{f.name: getattr(arguments, f.name) for f in fields(SamplingArguments)},
    )
    # a row for each recipe, equal in all but the contrasts: one draw is of all recipes
    offered, notes = fill_starts(goal.merge(contrasts, how="cross"), fitted, seed)
    warn_of_distance(fitted, offered)
    # law and new runs: at the goal, and at each cell of the table, where further seeds
    # are no runs whose effects were learned
    cells = told_apart.reset_index(drop=True)  # a stacked table repeats its labels
    cells = cells.drop_duplicates(list(fitted.law.covariates))
    cells = cells.drop(columns=["run", "seed"], errors="ignore")
    cells = cells.iloc[:: -(-len(cells) // MOST_CELLS)]
    (at_goal, new), (at_cells, new_cells) = (
        (fitted.log_loss(x), fitted.log_loss(x, noise=True, seed=seed))
        for x in (offered, cells)
    )
    pairs = []
    for two in combinations(range(len(levels)), 2):
        pair = compare_pair(levels, two, {LOSS: at_goal}, {LOSS: new}, prob)
        first, other = levels.index(pair["recipe"]), levels.index(pair["other"])
        del pair["domains"]
        gap, level = at_goal[:, first] - at_goal[:, other], at_goal[:, first]
        pair |= {"difference": _summarise(np.expm1(gap), prob)}
        pair |= {"tokens": None, "tokens_saved": None}
        if "D" in law.covariates:
            tokens = float(goal["D"].iloc[0]) * MULTIPLES
            curve = fitted.log_loss(
                offered.iloc[[other] * len(tokens)].assign(D=tokens)
            )
            reached = tokens[-1] * (1 - progress_lost(level, tokens, curve))
            reached = np.where(curve.min(axis=1) <= level, reached, np.inf)
            pair["tokens"] = _summarise(reached, prob)
            pair["tokens_saved"] = _summarise(reached - goal["D"].iloc[0], prob)
        is_read = (
            names.iloc[cells.index].isin([pair["recipe"], pair["other"]]).to_numpy()
        )
        for key, law_losses, losses in (
            ("seeds_at_goal", at_goal[:, two], new[:, two]),
            ("seeds_of_table", at_cells[:, is_read], new_cells[:, is_read]),
        ):
            pair[key] = seeds_needed(gap, law_losses, losses, confidence)
        pairs.append(pair)
    orders = {
        "forecast": at_goal.mean(axis=0),
        "measured": _largest_runs(runs, names, law.covariates),
    }
    ends, best = quantiles_of(at_goal, new, prob), at_goal.argmin(axis=1)
    return RecipeChoice(
        by=by,
        law=law.name,
        goal={c: float(goal[c].iloc[0]) for c in law.covariates if c in goal},
        rows=[
            {"recipe": levels[i], "runs": int((names == levels[i]).sum())}
            | {"probability": float((best == i).mean())}
            | {end: float(ends[end][i]) for end in ENDS}
            for i in np.argsort(orders["forecast"])
        ],
        pairs=pairs,
        choices={
            how: None if order is None else _judge(levels, order, at_goal, prob)
            for how, order in orders.items()
        },
        prob=prob,
        confidence=confidence,
        preview=fitted.is_preview,
        notes=notes,
        warnings=list(fitted.warnings),
    )


def _summarise(draws: Float[np.ndarray, " draw"], prob: float) -> dict[str, Any]:
    """Compute median and interval of draws; None stands for infinite ones."""
    return as_json(summarise_draws(draws, prob))


def seeds_needed(
    delta: Float[np.ndarray, " draw"],
    law: Float[np.ndarray, "draw cell"],
    new: Float[np.ndarray, "draw cell"],
    confidence: float,
) -> int | None:
    """Find how many more runs of each cell let one name the sign of ``delta`` with this
    probability, before they are made; None for over `MOST_SEEDS`. ``law``, ``new``: log
    losses of the law and of a run.

    In a Gaussian approximation: runs that explain the share q of the variance s^2 of
    delta move its mean by normal(0, q s^2), and leave (1 - q) s^2.
    """
    if max((delta > 0).mean(), (delta < 0).mean()) >= confidence:
        return 0
    errors = np.maximum(quantiles_of(law, new - law, 0.9)["log_sd"], 1e-9)
    mean, variance, away = delta.mean(), delta.var(), (law - law.mean(axis=0)) / errors
    values, axes = np.linalg.eigh(away.T @ away / len(away))
    common = axes.T @ (away.T @ (delta - mean) / len(away))
    seeds = np.arange(1, MOST_SEEDS + 1)[:, None]
    explained = (common**2 / (values + 1 / seeds)).sum(axis=1, keepdims=True)
    explained = np.minimum(explained, (1 - 1e-9) * variance)
    moved = mean + np.sqrt(explained) * ndtri((np.arange(400) + 0.5) / 400)
    chance = ndtr(np.abs(moved) / np.sqrt(variance - explained)).mean(axis=1)
    is_enough = chance >= confidence
    return int(is_enough.argmax()) + 1 if is_enough.any() else None


def _largest_runs(
    runs: pd.DataFrame, names: pd.Series, columns: tuple[str, ...]
) -> Float[np.ndarray, " recipe"] | None:
    """Average the log losses of each recipe at the largest runs (by N D) that all have,
    in the order of the names; None without such runs.
    """
    keys = {c: at_levels(runs[c].to_numpy(float), ROUNDING) for c in columns}
    table = runs.assign(**keys, recipe=names, loss=np.log(runs["loss"]))
    common = table.groupby([*columns, "recipe"])["loss"].mean().unstack().dropna()
    if common.empty:
        return None
    size = common.index.to_frame().filter(["N", "D"]).prod(axis=1)
    return common.iloc[int(size.argmax())].to_numpy()


def _judge(
    levels: list[str],
    order: Float[np.ndarray, " recipe"],
    at_goal: Float[np.ndarray, "draw recipe"],
    prob: float,
) -> dict[str, Any]:
    """Compute the regret of the lowest of an order, and Spearman's rank correlation of
    the order with that of each draw at the goal.
    """
    chosen, count = int(order.argmin()), len(levels)
    regret = np.expm1(at_goal[:, chosen] - at_goal.min(axis=1))
    ranks, of_order = at_goal.argsort(axis=1).argsort(axis=1), order.argsort().argsort()
    squares = ((ranks - of_order) ** 2).sum(axis=1)
    return {
        "recipe": levels[chosen],
        "regret": {**_summarise(regret, prob), "mean": float(regret.mean())},
        "rank_correlation": _summarise(1 - 6 * squares / (count**3 - count), prob),
    }

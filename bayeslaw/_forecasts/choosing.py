"""Choose among recipes that a column of a run table names (optimizers, architectures,
corpora), by one law that differs between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, asdict, dataclass, fields
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri

from bayeslaw._base.arguments import takes
from bayeslaw._base.errors import RunTableError
from bayeslaw._base.html import paragraphs, table_html
from bayeslaw._base.limits import CHANCE, POSITIVE, checked
from bayeslaw._base.numbers import format_count
from bayeslaw._base.schema import INTERVAL
from bayeslaw._forecasts.forecast import ONE_SD, quantiles_of, warn_of_distance
from bayeslaw._forecasts.recipes import ENDS, LOSS, compare_pair, fill_starts
from bayeslaw._law.law import Law
from bayeslaw._law.variants.recipes import between_recipes, contrasts_of
from bayeslaw._posteriors.answer import format_probability
from bayeslaw._posteriors.fits.candidates import law_for
from bayeslaw._posteriors.fits.fit import SamplingArguments, fit
from bayeslaw._posteriors.posterior import Posterior
from bayeslaw._tables.fitting import domains_mixed
from bayeslaw._tables.runs import as_runs

if TYPE_CHECKING:
    from jaxtyping import Float

MOST_SEEDS = 1000
MOST_CELLS = 200  # of a table, in the seeds that it needs
# multiples of the goal's tokens at which losses are compared, an eighth of an e-fold apart
MULTIPLES = np.exp(np.arange(-40, 57) / 8)


@dataclass(frozen=True)
class RecipeChoice:
    """Recipes of a table, compared at a goal. Every field can be stored in JSON.

    Parameters
    ----------
    by
        Column that names the recipes.
    law
        Name of the law.
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
        the goal, and ``tokens_saved``, those beyond the goal's (each with ``median``,
        ``low``, ``high``; None where more than a thousand times the tokens do not
        suffice, or the law reads no tokens); and the seeds still needed to name the
        better with ``confidence``: ``seeds_at_goal`` more runs of both at the goal, or
        ``seeds_of_table`` more of each of their rows (None for over 1000).
    choices
        What two ways to choose risk: by the ``forecast``, and by the losses ``measured``
        at the largest runs that all recipes have (None without such runs). Each has the
        chosen ``recipe``; its ``regret``, the ratio of the law's loss to that of the best
        recipe at the goal minus 1 (``mean``, ``low``, ``high``); and the
        ``rank_correlation`` (Spearman) of its order with the order at the goal
        (``median``, ``low``, ``high``).
    prob
        Probability inside the intervals.
    confidence
        Probability with which ``seeds_at_goal`` and ``seeds_of_table`` name the better.
    preview
        Whether draws were importance-sampled, without chains.
    notes
        Changes to the given table.
    warnings
        Reasons to distrust the posterior.
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
                "regret": "mean low high",
                "rank_correlation": INTERVAL,
            }
        },
    }

    def to_dict(self) -> dict[str, Any]:
        """Convert the record to JSON types."""
        return asdict(self)

    def table(self) -> pd.DataFrame:
        """Format a row for each recipe, as text."""
        lines = [
            {
                self.by: row["recipe"],
                "runs": row["runs"],
                "loss": f"{row['median']:.4g} ({row['low']:.4g} to {row['high']:.4g})",
                "best": format_probability(row["probability"]),
            }
            for row in self.rows
        ]
        return pd.DataFrame(lines)

    def sentence(self) -> str:
        """Describe each pair and the risk of the choice, a line each."""
        lines = []
        for pair in self.pairs:
            better, worse, gap = pair["recipe"], pair["other"], pair["difference"]
            line = (
                f"{better} beats {worse} with probability "
                f"{format_probability(pair['law_probability'])} on average, "
                f"{format_probability(pair['probability'])} run against run: "
                f"{gap['median']:+.2%} ({gap['low']:+.2%} to {gap['high']:+.2%}, "
                f"{self.prob:.0%})"
            )
            if pair["tokens"] is not None:
                middle, low, high = map(_format_tokens, pair["tokens"].values())
                line += (
                    f"; {worse} needs {middle} tokens for that loss ({low} to {high})"
                )
            seeds = [pair["seeds_at_goal"], pair["seeds_of_table"]]
            if seeds != [0, 0]:
                goal, table = (f"over {MOST_SEEDS}" if n is None else n for n in seeds)
                line += (
                    f"; to be {self.confidence:.0%} sure: {goal} more seeds of both at "
                    f"the goal, or {table} of each of their rows"
                )
            lines.append(f"{line}.")
        for how, choice in self.choices.items():
            if choice is not None:
                regret, rank = choice["regret"], choice["rank_correlation"]
                lines.append(
                    f"The {how} losses choose {choice['recipe']}: expected regret "
                    f"{regret['mean']:.2%} (up to {regret['high']:.2%}), rank correlation "
                    f"at the goal {rank['median']:.2f} ({rank['low']:.2f} to "
                    f"{rank['high']:.2f})."
                )
        return "\n".join([*lines, *["A PREVIEW."] * self.preview, *self.notes])

    def __repr__(self) -> str:
        first, *_ = self.sentence().splitlines()
        return f"RecipeChoice({first})"

    def _repr_html_(self) -> str:
        """Show recipes and pairs in notebooks."""
        return table_html(self.table()) + paragraphs(self.sentence())


def _format_tokens(tokens: float | None) -> str:
    return "over a thousand times as many" if tokens is None else format_count(tokens)


@dataclass(frozen=True, eq=False)
class ChoiceArguments(SamplingArguments):
    # documented in `choose_recipe`

    runs: pd.DataFrame | str | Path
    by: str
    at: Mapping[str, Any] | pd.DataFrame
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
    >>> slow = pretrained.assign(optimizer="adamw")
    >>> fast = pretrained.assign(optimizer="muon", loss=0.97 * pretrained["loss"])
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
    names = _read_recipes(runs, by)
    law, levels = law_for(arguments.law, runs), sorted(names.unique())
    contrasts = contrasts_of(by, levels)
    columns = [str(c) for c in contrasts]
    told_apart = runs.assign(**{c: names.map(contrasts[c]) for c in columns})
    settings = {f.name: getattr(arguments, f.name) for f in fields(SamplingArguments)}
    fitted = fit(
        told_apart,
        between_recipes(law, columns, spread),
        preview=arguments.preview,
        **settings,
    )
    # a row for each recipe, equal in all but the contrasts: one draw is of all recipes
    offered = goal.merge(contrasts, how="cross")
    offered, notes = fill_starts(offered, fitted, seed)
    warn_of_distance(fitted, offered)
    at_goal = fitted.log_loss(offered)
    new = fitted.log_loss(offered, noise=True, seed=seed)
    ends = pd.DataFrame(quantiles_of(at_goal, new, prob))[[*ENDS]]
    best = at_goal.argmin(axis=1)
    rows = [
        {"recipe": name, "runs": int((names == name).sum())}
        | {"probability": float((best == i).mean()), **ends.iloc[i].to_dict()}
        for i, name in enumerate(levels)
    ]
    # the law's losses and the errors at each cell of the table, and along the tokens
    cells = told_apart.drop_duplicates(list(fitted.law.covariates))
    cells = cells.iloc[:: -(-len(cells) // MOST_CELLS)]
    at_cells = fitted.log_loss(cells)
    sds = _one_sd(fitted.log_loss(cells, noise=True, seed=seed) - at_cells)
    sds_at_goal, recipe_of_cell = _one_sd(new - at_goal), cells[by].astype(str)
    tokens = goal["D"].iloc[0] * MULTIPLES if "D" in law.covariates else None
    curves = None if tokens is None else _along_tokens(fitted, offered, tokens)
    pairs = []
    for two in combinations(range(len(levels)), 2):
        pair = compare_pair(levels, two, {LOSS: at_goal}, {LOSS: new}, prob)
        first, other = levels.index(pair["recipe"]), levels.index(pair["other"])
        del pair["domains"]
        gap = at_goal[:, first] - at_goal[:, other]
        pair |= {"difference": _summarise(np.expm1(gap), prob)}
        pair |= {"tokens": None, "tokens_saved": None}
        if curves is not None and tokens is not None:
            reached = tokens_to_reach(curves[:, other], at_goal[:, first], tokens)
            pair["tokens"] = _summarise(reached, prob)
            pair["tokens_saved"] = _summarise(reached - goal["D"].iloc[0], prob)
        is_read = recipe_of_cell.isin([pair["recipe"], pair["other"]]).to_numpy()
        for key, seen, errors in (
            ("seeds_at_goal", at_goal[:, two], sds_at_goal[[*two]]),
            ("seeds_of_table", at_cells[:, is_read], sds[is_read]),
        ):
            pair[key] = seeds_needed(gap, seen, errors, confidence)
        pairs.append(pair)
    forecast_order = at_goal.mean(axis=0)
    measured = _largest_runs(runs, names, law.covariates)
    return RecipeChoice(
        by=by,
        law=law.name,
        goal={c: float(goal[c].iloc[0]) for c in law.covariates if c in goal},
        rows=[rows[i] for i in np.argsort(forecast_order)],
        pairs=pairs,
        choices={
            how: None if order is None else _judge(levels, order, at_goal, prob)
            for how, order in (("forecast", forecast_order), ("measured", measured))
        },
        prob=prob,
        confidence=confidence,
        preview=fitted.is_preview,
        notes=notes,
        warnings=list(fitted.warnings),
    )


def _read_recipes(runs: pd.DataFrame, by: str) -> pd.Series:
    """Read the recipe of each run as text; refuse a table that does not compare any."""
    if by not in runs:
        raise RunTableError(
            f"the table has no column {by!r} that names recipes; "
            f"it has: {', '.join(map(str, runs.columns))}"
        )
    if runs[by].isna().any():
        row = runs.index[runs[by].isna()][0]
        raise RunTableError(f"row {row}, column {by!r}: empty; name every run's recipe")
    names = runs[by].astype(str)
    if names.nunique() < 2:
        raise RunTableError(
            f"column {by!r} has one recipe only ({names.iloc[0]!r}): give two or more"
        )
    mixed = domains_mixed(runs)
    if mixed is not None and by != "domain":
        raise RunTableError(f"recipes are compared on one domain, but {mixed}")
    return names


def _summarise(draws: Float[np.ndarray, " draw"], prob: float) -> dict[str, Any]:
    """Compute median and interval of draws that may be infinite, where None stands."""
    at = [0.5, (1 - prob) / 2, (1 + prob) / 2]
    values = np.quantile(draws, at, method="inverted_cdf").tolist()
    numbers = [value if np.isfinite(value) else None for value in values]
    return dict(zip(ENDS, numbers, strict=True))


def _one_sd(errors: Float[np.ndarray, "draw run"]) -> Float[np.ndarray, " run"]:
    """Measure the sd of heavy-tailed errors by their central 68%."""
    low, high = np.quantile(errors, ONE_SD, axis=0)
    return (high - low) / 2


def _along_tokens(
    fitted: Posterior, offered: pd.DataFrame, tokens: Float[np.ndarray, " token"]
) -> Float[np.ndarray, "draw recipe token"]:
    """Compute each recipe's log loss at numbers of tokens."""
    rows = offered.loc[offered.index.repeat(len(tokens))].reset_index(drop=True)
    curves = fitted.log_loss(rows.assign(D=np.tile(tokens, len(offered))))
    return curves.reshape(-1, len(offered), len(tokens))


def tokens_to_reach(
    curve: Float[np.ndarray, "draw token"],
    level: Float[np.ndarray, " draw"],
    tokens: Float[np.ndarray, " token"],
) -> Float[np.ndarray, " draw"]:
    """Find the fewest tokens at which each draw's log loss is down to a level; infinite
    if none are.
    """
    is_down = curve <= level[:, None]
    after = np.maximum(is_down.argmax(axis=1), 1)
    draw = np.arange(len(curve))
    above, below = curve[draw, after - 1], curve[draw, after]
    share = np.clip((above - level) / np.where(above > below, above - below, 1.0), 0, 1)
    log_tokens = np.log(tokens)
    found = np.exp((1 - share) * log_tokens[after - 1] + share * log_tokens[after])
    return np.where(is_down.any(axis=1), found, np.inf)


def seeds_needed(
    delta: Float[np.ndarray, " draw"],
    of_law: Float[np.ndarray, "draw cell"],
    sds: Float[np.ndarray, " cell"],
    confidence: float,
) -> int | None:
    """Find how many more runs of each cell let one name the sign of ``delta`` with this
    probability, before they are made; None for over `MOST_SEEDS`.

    In a Gaussian approximation: runs that explain the share q of the variance s^2 of
    delta move its mean by normal(0, q s^2), and leave (1 - q) s^2.
    """
    if max((delta > 0).mean(), (delta < 0).mean()) >= confidence:
        return 0
    mean, variance = delta.mean(), delta.var()
    away = of_law - of_law.mean(axis=0)
    covariance = away.T @ away / len(away)
    common = away.T @ (delta - mean) / len(away)
    normal = ndtri((np.arange(400) + 0.5) / 400)

    def is_enough(seeds: int) -> bool:
        seen = covariance + np.diag(np.maximum(sds, 1e-9) ** 2 / seeds)
        explained = min(common @ np.linalg.solve(seen, common), (1 - 1e-9) * variance)
        moved = np.abs(mean + np.sqrt(explained) * normal)
        return bool(ndtr(moved / np.sqrt(variance - explained)).mean() >= confidence)

    if not is_enough(MOST_SEEDS):
        return None
    low, high = 0, MOST_SEEDS  # not enough, enough
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def _largest_runs(
    runs: pd.DataFrame, names: pd.Series, columns: tuple[str, ...]
) -> Float[np.ndarray, " recipe"] | None:
    """Average the log losses of each recipe at the largest runs (by N D) that all have,
    in the order of the names; None without such runs.
    """
    keys = [runs[c] for c in columns]
    log_losses = runs["loss"].map(np.log)
    means = log_losses.groupby([*keys, names.rename("recipe")]).mean()
    common = means.unstack("recipe").dropna()
    if common.empty:
        return None
    at = common.index.to_frame()
    size = at[[c for c in ("N", "D") if c in at]].prod(axis=1)
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
    _, low, high = _summarise(regret, prob).values()
    ranks, of_order = at_goal.argsort(axis=1).argsort(axis=1), order.argsort().argsort()
    squares = ((ranks - of_order) ** 2).sum(axis=1)
    correlation = 1 - 6 * squares / (count * (count**2 - 1))
    return {
        "recipe": levels[chosen],
        "regret": {"mean": float(regret.mean()), "low": low, "high": high},
        "rank_correlation": _summarise(correlation, prob),
    }

"""Compare recipes by the probability that a run of one beats another's."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from bayeslaw._base.errors import PlanError, RunTableError
from bayeslaw._base.frames import Table
from bayeslaw._base.limits import CHANCE, COST, checked
from bayeslaw._base.machine import runtime
from bayeslaw._base.numbers import format_count, format_interval
from bayeslaw._base.schema import INTERVAL
from bayeslaw._base.shown import Shown
from bayeslaw._base.streams import Stream, generator
from bayeslaw._costs.costs import Costs
from bayeslaw._forecasts.forecast import quantiles_of, warn_of_distance
from bayeslaw._law.columns import LOSSES_BEFORE
from bayeslaw._posteriors.answer import format_probability
from bayeslaw._posteriors.averaging.checkpoint import fill_losses
from bayeslaw._posteriors.averaging.loading import as_posterior
from bayeslaw._posteriors.draws import pair_draws
from bayeslaw._posteriors.pairs import check_posteriors, table_of
from bayeslaw._posteriors.posterior import Posterior, columns_read
from bayeslaw._tables.before import of_source
from bayeslaw._tables.proposals import check_columns
from bayeslaw._tables.rows.levels import find_checkpoints
from bayeslaw._tables.runs import COUNTS, as_runs

if TYPE_CHECKING:
    from jaxtyping import Float

RECIPE = "recipe"  # column that names recipes
LOSS = "loss"  # the loss that is compared, without a source
WHAT = "the table of recipes"
ENDS = ("median", "low", "high")
CHANCES = "probability law_probability"  # of the lower loss


@dataclass(frozen=True, repr=False)
class Recipes(Shown):
    """Compared recipes. Every field can be stored in JSON.

    Parameters
    ----------
    rows
        For each recipe its name (``recipe``), ``N``, ``D``, ``replay`` and ``ptpp``,
        ``cost``, the ``probability`` that its run has the lowest loss of all (with a
        source: both lowest), and for each domain in ``losses`` the ``median``, ``low``
        and ``high`` of a new run.
    pairs
        Each pair once, the likelier winner first: ``recipe``, ``other``; the
        ``probability`` that a run of the first has a lower loss than a run of the other
        (with a source: both lower); and ``law_probability``, the same for the law's
        losses, which are those of the mean of many runs. ``domains`` has both
        probabilities for each domain, and ``difference``, the ratio of the first loss
        to the other, minus 1 (``median``, ``low``, ``high``).
    prob
        Probability inside the intervals.
    unit
        Unit of the costs: FLOPs, or money.
    notes
        Changes to the given table.
    warnings
        Reasons to distrust the posteriors.
    """

    rows: list[dict[str, Any]]
    pairs: list[dict[str, Any]]
    prob: float
    unit: str
    notes: list[str]
    warnings: list[str]

    KEYS: ClassVar = {
        "*": ...,
        "rows": [
            {
                "recipe": str,
                "cost probability N? D? replay? ptpp?": float,
                "losses": {"**": INTERVAL},
            }
        ],
        "pairs": [
            {
                "recipe other": str,
                CHANCES: float,
                "domains": {"**": {CHANCES: float, "difference": INTERVAL}},
            }
        ],
    }

    def table(self) -> pd.DataFrame:
        """Format a row for each recipe, as text."""
        lines = []
        for row in self.rows:
            line = {"recipe": row["recipe"]}
            line |= {c: format_count(row[c]) for c in ("N", "D") if c in row}
            if "replay" in row:
                line["replay"] = f"{row['replay']:.0%}"
            line[f"cost ({self.unit})"] = f"{row['cost']:.3g}"
            for domain, loss in row["losses"].items():
                line[domain] = format_interval(loss, ".4g")
            line["best"] = format_probability(row["probability"])
            lines.append(line)
        return pd.DataFrame(lines)

    def sentence(self) -> str:
        """Describe which recipe beats which, a line for each pair."""
        lines = []
        for pair in self.pairs:
            is_both = len(pair["domains"]) > 1
            parts = []
            for name, domain in pair["domains"].items():
                part = format_interval(domain["difference"], "+.2%", self.prob)
                if is_both:
                    chance = format_probability(domain["probability"])
                    part = f"{name} {part}, better with {chance}"
                parts.append(part)
            where = " on both losses" if is_both else ""
            lines.append(describe_pair(pair, parts, where))
        return "\n".join([*lines, *self.notes])


def describe_pair(pair: Mapping[str, Any], parts: Sequence[str], what: str = "") -> str:
    """Describe which of two recipes beats the other, and by how much."""
    return (
        f"{pair['recipe']} beats {pair['other']}{what} with probability "
        f"{format_probability(pair['probability'])} run against run, "
        f"{format_probability(pair['law_probability'])} on average: {'; '.join(parts)}."
    )


def recipes(
    posterior: Posterior | str | Path,
    table: Table | str | Path,
    *,
    source: Posterior | str | Path | None = None,
    budget: float | str | None = None,
    costs: Costs | None = None,
    prob: float | str = 0.9,
    seed: int = 0,
) -> Recipes:
    """Compare recipes by Monte Carlo: how probable is it that a run of one beats a run
    of another?

    Both runs use the same draw of the law, so their common uncertainty cancels, and so
    does the effect that runs from one checkpoint share. Each run has its own noise.

    Parameters
    ----------
    posterior
        A `Fit` or an `Average`, or the path of its file; of the target loss if there is
        a source.
    table
        A row for each recipe, with the columns that the law reads; ``recipe`` names
        them. If ``D`` is empty, a recipe trains on as many tokens as ``budget`` pays
        for: a larger model on fewer. If the table lacks losses of a checkpoint before
        adaptation, they are taken from the training runs.
    source
        Posterior of the source loss: a recipe must then win on both losses.
    budget
        Budget of each recipe without ``D``, in FLOPs, or in money if ``costs`` have a
        ``price``: ``1e21``; by default the cost of the first recipe with ``D``.
    costs
        The formula of the FLOPs (by default 6 N D), and their price; with
        ``train_checkpoint`` the checkpoint is paid, too.
    prob
        Probability inside the intervals.
    seed
        Seed that pairs the independent draws of target and source, and draws noise.

    Raises
    ------
    RunTableError
        A column that the law reads is missing, or two recipes are equal or have the
        same name.
    PlanError
        There is one recipe only, the budget is missing, or it pays for no tokens.

    Examples
    --------
    >>> offered = pd.DataFrame({"N": [1e9, 2e9], "D": [4e9, None]})
    >>> offered = offered.assign(replay=0.3, ptpp=31.0, recipe=["small", "large"])
    >>> compared = bayeslaw.recipes(target, offered)
    >>> compared.rows[1]["D"]  # of twice the parameters half the tokens
    2000000000.0
    >>> 0.5 <= compared.pairs[0]["probability"] <= 1
    True
    """
    prob = checked("prob", prob, CHANCE)
    posteriors = {LOSS: as_posterior(posterior)}
    if source is not None:
        posteriors = {"target": posteriors[LOSS], "source": as_posterior(source)}
        check_posteriors(posteriors["target"], {"source": posteriors["source"]})
    runtime.start()
    costs = costs or Costs()
    offered = _fill_tokens(as_runs(table), budget, costs)
    price, unit = _price(offered, costs), "money" if costs.has_money else "FLOPs"
    names, notes = _name_recipes(offered, list(posteriors.values())), []
    if price.max() > 1.01 * price.min():
        least, most = names[int(price.argmin())], names[int(price.argmax())]
        notes.append(
            f"The recipes do not cost the same: {price.min():.3g} {unit} ({least}) to "
            f"{price.max():.3g} ({most}); leave D empty where the budget is to say it."
        )
    law, new, intervals = {}, {}, {}
    for domain, one in posteriors.items():
        runs = of_source(offered) if domain == "source" else offered
        runs, lines = fill_starts(runs, one, seed)
        notes += lines
        warn_of_distance(one, runs)
        law[domain] = one.log_loss(runs)
        new[domain] = one.log_loss(runs, noise=True, seed=seed)
        intervals[domain] = quantiles_of(law[domain], new[domain], prob)
    # domains are independent: equal numbers of draws, in random order
    orders = pair_draws([len(x) for x in law.values()], generator(seed, Stream.PAIRS))
    for domain, order in zip(posteriors, orders, strict=True):
        law[domain], new[domain] = law[domain][order], new[domain][order]
    is_lowest = [x == x.min(axis=1, keepdims=True) for x in new.values()]
    is_best = np.all(is_lowest, axis=0)
    columns = [c for c in ("N", "D", "replay", "ptpp") if c in offered]
    rows = [
        {"recipe": name}
        | {column: float(offered[column].iloc[i]) for column in columns}
        | {"cost": float(price[i]), "probability": float(is_best[:, i].mean())}
        | {
            "losses": {
                domain: {end: float(ends[end][i]) for end in ENDS}
                for domain, ends in intervals.items()
            }
        }
        for i, name in enumerate(names)
    ]
    both = combinations(range(len(names)), 2)
    return Recipes(
        rows=rows,
        pairs=[compare_pair(names, two, law, new, prob) for two in both],
        prob=prob,
        unit=unit,
        notes=notes,
        warnings=[line for one in posteriors.values() for line in one.warnings],
    )


def compare_pair(
    names: Sequence[str],
    two: tuple[int, int],
    law: Mapping[str, Float[np.ndarray, "draw recipe"]],
    new: Mapping[str, Float[np.ndarray, "draw recipe"]],
    prob: float,
) -> dict[str, Any]:
    """Compare two recipes by log losses by domain, the likelier winner first."""

    def chances(domains: Collection[str], one: int, other: int) -> dict[str, float]:
        """Compute the probability that the first has the lower loss in all domains."""
        return {
            name: float(
                np.all([x[d][:, one] < x[d][:, other] for d in domains], axis=0).mean()
            )
            for name, x in (("probability", new), ("law_probability", law))
        }

    one, other = two
    forward, backward = chances(new, one, other), chances(new, other, one)
    if backward["probability"] > forward["probability"]:
        one, other, forward = other, one, backward
    of_domains = {}
    for domain, losses in new.items():
        difference = np.expm1(losses[:, one] - losses[:, other])
        ends = np.quantile(difference, [0.5, (1 - prob) / 2, (1 + prob) / 2])
        of_domains[domain] = {
            **chances([domain], one, other),
            "difference": dict(zip(ENDS, map(float, ends), strict=True)),
        }
    return {
        "recipe": names[one],
        "other": names[other],
        **forward,
        "domains": of_domains,
    }


# -- the recipes -----------------------------------------------------------------------


def _fill_tokens(
    table: pd.DataFrame, budget: float | str | None, costs: Costs
) -> pd.DataFrame:
    if len(table) < 2:
        raise PlanError(
            f"one recipe beats another: give two or more, {WHAT} has {len(table)}"
        )
    check_columns(table, ["N"], " (parameters)", WHAT)
    offered = table.reset_index(drop=True)
    if "D" not in offered:
        offered["D"] = np.nan
    is_open = offered["D"].isna()
    if not is_open.any():
        return offered
    if budget is not None:
        budget = checked("budget", budget, COST)
    elif is_open.all():
        raise PlanError(
            "no recipe says its tokens D: give the budget (--budget 1e21), or D of one "
            "recipe, whose cost the others may have"
        )
    else:
        budget = float(_price(offered[~is_open], costs)[0])
    for row, N, _, ptpp in _list_models(offered[is_open]):
        if costs.has_money:
            tokens = costs.most_tokens(N, ptpp, max_cost=budget)
        else:
            tokens = (budget - costs.once(N, ptpp).flops) / costs.flops_per_token(N)
        if tokens <= 0:
            raise PlanError(
                f"a budget of {budget:.3g} pays for no tokens at N = {format_count(N)}: "
                "what comes before the first token costs more"
            )
        offered.loc[row, "D"] = float(tokens)
    return offered


def _list_models(offered: pd.DataFrame) -> Iterator[tuple[Any, float, float, float]]:
    """List row, N, D and ptpp of each recipe, with 0 for a missing ptpp."""
    numbers = offered.assign(ptpp=offered.get("ptpp", 0.0))[["N", "D", "ptpp"]]
    return numbers.astype(float).itertuples(name=None)


def _price(offered: pd.DataFrame, costs: Costs) -> Float[np.ndarray, " recipe"]:
    """Compute the cost of each recipe, in money if there is a price."""
    bills = [costs.of_run(N, D, ptpp) for _, N, D, ptpp in _list_models(offered)]
    return np.array([b.money if costs.has_money else b.flops for b in bills])


def fill_starts(
    offered: pd.DataFrame, posterior: Posterior, seed: int
) -> tuple[pd.DataFrame, list[str]]:
    """Fill in missing losses before adaptation that the laws read: measured ones from
    the same checkpoint (N and ptpp) in the training runs, else forecasts from other
    checkpoints.
    """
    runs, keys = table_of(posterior), ["N", "ptpp"]
    if runs is None or not {*keys} <= set(runs) & set(offered):
        return offered, []
    columns = [c for c in columns_read(posterior) if c in LOSSES_BEFORE and c in runs]
    measured = runs.groupby(keys)[columns].mean().reset_index()
    own = find_checkpoints(offered, measured[keys])
    there = measured.reindex(own).set_axis(offered.index)
    for column in columns:
        losses = offered.get(column, there[column])
        offered = offered.assign(**{column: losses.fillna(there[column])})
    return fill_losses(offered, runs, columns, seed=seed)


def _name_recipes(offered: pd.DataFrame, posteriors: Sequence[Posterior]) -> list[str]:
    read = columns_read(*posteriors)
    names, places = names_of_rows(read, offered)
    if len(places) < len(offered):
        raise RunTableError(
            f"{WHAT}: two rows are alike in what the laws read "
            f"({', '.join(read)}); give each recipe once"
        )
    if RECIPE not in offered:
        return names
    recipes = offered[RECIPE]
    if recipes.isna().any() or recipes.astype(str).duplicated().any():
        raise RunTableError(
            f"{WHAT}, column {RECIPE!r}: give each recipe a name of its own"
        )
    return recipes.astype(str).tolist()


def differing(read: Sequence[str], table: pd.DataFrame) -> list[str]:
    """List the columns that laws read and in which a table's rows differ."""
    return [c for c in read if c in table and table[c].nunique(dropna=False) > 1]


def names_of_rows(
    read: Sequence[str], table: pd.DataFrame
) -> tuple[list[str], list[np.ndarray]]:
    """Name rows by the columns in which they differ, among those that laws ``read``.
    Rows that are equal in all of them are merged. Returns the names, and the index of
    one row for each name.
    """
    columns = differing(read, table)
    rows = table[columns].drop_duplicates() if columns else table.head(1)
    names = [
        " ".join(f"{c}={format_short(c, row[c])}" for c in columns)
        for row in rows.to_dict("records")
    ]
    unique_names = [
        name if names.count(name) == 1 else f"{name} (row {label})"
        for name, label in zip(names, rows.index, strict=True)
    ]
    places = np.flatnonzero(~table[columns].duplicated()) if columns else [0]
    return unique_names, [np.array([place]) for place in places]


def format_short(column: str, value: float) -> str:
    return format_count(value) if column in COUNTS else f"{value:.4g}"

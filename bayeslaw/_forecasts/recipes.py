"""Compare recipes by the probability that a run of one beats a run of another; on
request at equal compute.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from bayeslaw._base.errors import PlanError, RunTableError
from bayeslaw._base.html import paragraphs, table_html
from bayeslaw._base.limits import CHANCE, COST, checked
from bayeslaw._base.machine import runtime
from bayeslaw._base.numbers import format_count
from bayeslaw._base.streams import Stream, generator
from bayeslaw._costs.costs import Costs
from bayeslaw._forecasts.forecast import forecast
from bayeslaw._law.columns import LOSSES_BEFORE
from bayeslaw._posteriors.answer import format_probability
from bayeslaw._posteriors.averaging.checkpoint import fill_losses
from bayeslaw._posteriors.averaging.loading import as_posterior
from bayeslaw._posteriors.draws import Draws, all_draws, shuffled
from bayeslaw._posteriors.outcomes import error_sizes, log_losses, noise_of
from bayeslaw._posteriors.pairs import check_posteriors, table_of
from bayeslaw._posteriors.posterior import Posterior
from bayeslaw._tables.before import of_source
from bayeslaw._tables.runs import COUNTS, as_runs

if TYPE_CHECKING:
    from jaxtyping import Float

RECIPE = "recipe"  # column that names recipes
LOSS = "loss"  # the loss that is compared, without a source
WHAT = "the table of recipes"


@dataclass(frozen=True)
class Recipes:
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

    def to_dict(self) -> dict[str, Any]:
        """Convert the record to JSON types."""
        return asdict(self)

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
                ends = f"{loss['low']:.4g} to {loss['high']:.4g}"
                line[domain] = f"{loss['median']:.4g} ({ends})"
            line["best"] = format_probability(row["probability"])
            lines.append(line)
        return pd.DataFrame(lines)

    def sentence(self) -> str:
        """Describe which recipe beats which, a line for each pair."""
        lines = [_pair_sentence(pair, self.prob) for pair in self.pairs]
        return "\n".join([*lines, *self.notes])

    def __repr__(self) -> str:
        first, *_ = self.sentence().splitlines()
        return f"Recipes({first})"

    def _repr_html_(self) -> str:
        """Show recipes and pairs in notebooks."""
        return table_html(self.table()) + paragraphs(self.sentence())


def recipes(
    posterior: Posterior | str | Path,
    table: pd.DataFrame | str | Path,
    *,
    source: Posterior | str | Path | None = None,
    budget: float | None = None,
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
        Posterior of the source's loss. With it, one recipe beats another if a run of it
        has both losses lower.
    budget
        Cost of each recipe without ``D``: FLOPs, or money if ``costs`` have a price. By
        default the cost of the first recipe with ``D``.
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
    offered = _with_tokens(as_runs(table), budget, costs)
    price, unit = _prices(offered, costs), "money" if costs.has_money else "FLOPs"
    names = _names(offered, list(posteriors.values()))
    domains, notes = [], _unequal(names, price, unit)
    for number, (name, one) in enumerate(posteriors.items()):
        runs = of_source(offered) if name == "source" else offered
        runs, lines = _with_starts(runs, one, seed)
        rng = generator(seed, Stream.RECIPES, number)
        interval = forecast(one, runs, prob=prob, seed=seed)
        domains.append(_Domain(name, *_draw_losses(one, runs, rng), interval))
        notes += lines
    domains = _paired(domains, seed)
    return Recipes(
        rows=_rows(offered, names, price, domains),
        pairs=[
            _pair(names, one, other, domains, prob)
            for one, other in combinations(range(len(names)), 2)
        ],
        prob=prob,
        unit=unit,
        notes=notes,
        warnings=[line for one in posteriors.values() for line in one.warnings],
    )


# -- the recipes -----------------------------------------------------------------------


def _with_tokens(
    table: pd.DataFrame, budget: float | None, costs: Costs
) -> pd.DataFrame:
    """Fill in the tokens that the budget pays for."""
    if len(table) < 2:
        raise PlanError(
            f"one recipe beats another: give two or more, {WHAT} has {len(table)}"
        )
    if "N" not in table:
        raise RunTableError(f"{WHAT} lacks column 'N' (parameters)")
    offered = table.reset_index(drop=True)
    if "D" not in offered:
        offered["D"] = np.nan
    is_open = offered["D"].isna()
    if is_open.any():
        budget = _budget(offered, budget, costs)
        offered.loc[is_open, "D"] = [
            _tokens(N, ptpp, budget, costs) for N, _, ptpp in _models(offered[is_open])
        ]
    return offered


def _budget(offered: pd.DataFrame, budget: float | None, costs: Costs) -> float:
    """Choose the budget of each recipe."""
    if budget is not None:
        return checked("budget", budget, COST)
    stated = offered.dropna(subset=["D"])
    if stated.empty:
        raise PlanError(
            "no recipe says its tokens D: give the budget (--budget 1e21), or D of one "
            "recipe, whose cost the others may have"
        )
    return float(_prices(stated, costs)[0])


def _tokens(N: float, ptpp: float, budget: float, costs: Costs) -> float:
    """Compute the tokens that a budget pays for, for one model."""
    if costs.has_money:
        tokens = costs.most_tokens(N, ptpp, max_cost=budget)
    else:
        tokens = (budget - costs.once(N, ptpp).flops) / costs.flops_per_token(N)
    if tokens <= 0:
        raise PlanError(
            f"a budget of {budget:.3g} pays for no tokens at N = {format_count(N)}: what "
            "comes before the first token costs more"
        )
    return float(tokens)


def _models(offered: pd.DataFrame) -> list[list[float]]:
    """List N, D and ptpp of each recipe, with 0 for a missing ptpp."""
    numbers = offered.assign(ptpp=offered.get("ptpp", 0.0))[["N", "D", "ptpp"]]
    return numbers.to_numpy(float).tolist()


def _prices(offered: pd.DataFrame, costs: Costs) -> Float[np.ndarray, " recipe"]:
    """Compute the cost of each recipe, in money if there is a price."""
    bills = [costs.of_run(N, D, ptpp) for N, D, ptpp in _models(offered)]
    return np.array([b.money if costs.has_money else b.flops for b in bills])


def _with_starts(
    offered: pd.DataFrame, posterior: Posterior, seed: int
) -> tuple[pd.DataFrame, list[str]]:
    """Fill in missing losses before adaptation that the laws read: measured ones from
    the same checkpoint (N and ptpp) in the training runs, else forecasts from other
    checkpoints.
    """
    runs, keys = table_of(posterior), ["N", "ptpp"]
    read = [c for c in _read(all_draws(posterior.pieces())) if c in LOSSES_BEFORE]
    if runs is None or not {*keys} <= set(runs) & set(offered):
        return offered, []
    columns = [c for c in read if c in runs]
    for column in columns:
        measured = runs.groupby(keys)[column].mean().rename("measured")
        there = offered.join(measured, on=keys)["measured"]
        losses = offered.get(column, np.nan)
        offered = offered.assign(**{column: losses})
        offered[column] = offered[column].fillna(there)
    return fill_losses(offered, runs, columns, seed=seed)


def _unequal(
    names: Sequence[str], price: Float[np.ndarray, " recipe"], unit: str
) -> list[str]:
    """Write a line if recipes do not cost the same."""
    if price.max() <= 1.01 * price.min():
        return []
    least, most = names[int(price.argmin())], names[int(price.argmax())]
    return [
        f"The recipes do not cost the same: {price.min():.3g} {unit} ({least}) to "
        f"{price.max():.3g} ({most}); leave D empty where the budget is to say it."
    ]


def _names(offered: pd.DataFrame, posteriors: Sequence[Posterior]) -> list[str]:
    """Find the recipes' names, and check that they differ."""
    parts = [part for one in posteriors for part in all_draws(one.pieces())]
    names, places = names_of_rows(parts, offered)
    if len(places) < len(offered):
        raise RunTableError(
            f"{WHAT}: two rows are alike in what the laws read "
            f"({', '.join(_read(parts))}); give each recipe once"
        )
    if RECIPE not in offered:
        return names
    recipes = offered[RECIPE]
    if recipes.isna().any() or recipes.astype(str).duplicated().any():
        raise RunTableError(
            f"{WHAT}, column {RECIPE!r}: give each recipe a name of its own"
        )
    return recipes.astype(str).tolist()


def _read(parts: Sequence[Draws]) -> list[str]:
    """List the columns that laws read, each once."""
    return list(dict.fromkeys(c for part in parts for c in part.piece.covariates))


def differing(parts: Sequence[Draws], table: pd.DataFrame) -> list[str]:
    """List the columns that the laws read and in which a table's rows differ."""
    return [c for c in _read(parts) if c in table and table[c].nunique() > 1]


def names_of_rows(
    parts: Sequence[Draws], table: pd.DataFrame
) -> tuple[list[str], list[np.ndarray]]:
    """Name rows by the columns in which they differ. Rows that are equal in all columns
    of the laws are merged. Returns the names, and the index of one row for each name.
    """
    columns = differing(parts, table)
    rows = table[columns].drop_duplicates() if columns else table.head(1)
    names = [
        " ".join(f"{c}={short(c, row[c])}" for c in columns)
        for row in rows.to_dict("records")
    ]
    unique_names = [
        name if names.count(name) == 1 else f"{name} (row {label})"
        for name, label in zip(names, rows.index, strict=True)
    ]
    places = np.flatnonzero(~table[columns].duplicated()) if columns else [0]
    return unique_names, [np.array([place]) for place in places]


def short(column: str, value: float) -> str:
    """Format a column's value."""
    return format_count(value) if column in COUNTS else f"{value:.4g}"


# -- the answer ------------------------------------------------------------------------


class _Domain(NamedTuple):
    """The log losses of one domain's recipes, by draw.

    ``law``, ``new``: log loss of the law, and of a new run, each of shape (draw,
    recipe); ``interval``: ``median``, ``low``, ``high`` of a new run of each recipe.
    """

    name: str
    law: Float[np.ndarray, "draw recipe"]
    new: Float[np.ndarray, "draw recipe"]
    interval: pd.DataFrame


def _draw_losses(
    posterior: Posterior, runs: pd.DataFrame, rng: np.random.Generator
) -> tuple[Float[np.ndarray, "draw recipe"], Float[np.ndarray, "draw recipe"]]:
    """Draw log losses of the law and of a new run of each recipe; the effect that runs
    from one checkpoint share is drawn once.
    """
    parts = all_draws(posterior.pieces())
    law = log_losses(parts, runs, WHAT)
    noise = noise_of(parts)
    noise_draws = noise.draw(len(runs), rng) * error_sizes(parts, runs, WHAT)
    return law, law + noise.draw_shared(runs, _read(parts), rng) + noise_draws


def _paired(domains: Sequence[_Domain], seed: int) -> list[_Domain]:
    """Give the domains equal numbers of draws, in random order, because domains are
    independent.
    """
    most = max(len(domain.law) for domain in domains)
    rng = generator(seed, Stream.RECIPES, len(domains))
    orders = [shuffled(rng, len(domain.law), most) for domain in domains]
    return [
        domain._replace(law=domain.law[order], new=domain.new[order])
        for domain, order in zip(domains, orders, strict=True)
    ]


def _rows(
    offered: pd.DataFrame,
    names: Sequence[str],
    price: Float[np.ndarray, " recipe"],
    domains: Sequence[_Domain],
) -> list[dict[str, Any]]:
    """Build a record for each recipe."""
    is_best = np.all(
        [domain.new == domain.new.min(axis=1, keepdims=True) for domain in domains],
        axis=0,
    )
    columns = [c for c in ("N", "D", "replay", "ptpp") if c in offered]
    return [
        {"recipe": name}
        | {column: float(offered[column].iloc[i]) for column in columns}
        | {"cost": float(price[i]), "probability": float(is_best[:, i].mean())}
        | {"losses": {domain.name: _ends(domain, i) for domain in domains}}
        for i, name in enumerate(names)
    ]


def _ends(domain: _Domain, i: int) -> dict[str, float]:
    return {c: float(domain.interval[c].iloc[i]) for c in ("median", "low", "high")}


def _pair(
    names: Sequence[str],
    one: int,
    other: int,
    domains: Sequence[_Domain],
    prob: float,
) -> dict[str, Any]:
    """Compare two recipes, the likelier winner first."""
    forward, backward = _chances(domains, one, other), _chances(domains, other, one)
    if backward["probability"] > forward["probability"]:
        one, other, forward = other, one, backward
    quantiles = [0.5, (1 - prob) / 2, (1 + prob) / 2]
    of_domains = {}
    for domain in domains:
        difference = np.expm1(domain.new[:, one] - domain.new[:, other])
        ends = np.quantile(difference, quantiles)
        of_domains[domain.name] = {
            **_chances([domain], one, other),
            "difference": dict(
                zip(("median", "low", "high"), map(float, ends), strict=True)
            ),
        }
    return {
        "recipe": names[one],
        "other": names[other],
        **forward,
        "domains": of_domains,
    }


def _chances(domains: Sequence[_Domain], one: int, other: int) -> dict[str, float]:
    """Compute the probability that the first recipe has the lower loss in all domains,
    of a new run and of the law.
    """
    of_run = np.all([d.new[:, one] < d.new[:, other] for d in domains], axis=0)
    of_law = np.all([d.law[:, one] < d.law[:, other] for d in domains], axis=0)
    return {
        "probability": float(of_run.mean()),
        "law_probability": float(of_law.mean()),
    }


def _pair_sentence(pair: Mapping[str, Any], prob: float) -> str:
    """Describe a pair's probability and the difference of its losses."""
    domains = pair["domains"]
    suffix = " on both losses" if len(domains) > 1 else ""
    parts = [
        f"{'' if len(domains) == 1 else f'{name} '}"
        f"{d['difference']['median']:+.2%} "
        f"({d['difference']['low']:+.2%} to {d['difference']['high']:+.2%}, {prob:.0%})"
        + (f", better with {format_probability(d['probability'])}" if suffix else "")
        for name, d in domains.items()
    ]
    return (
        f"{pair['recipe']} beats {pair['other']}{suffix} with probability "
        f"{format_probability(pair['probability'])} run against run, "
        f"{format_probability(pair['law_probability'])} on average: {'; '.join(parts)}."
    )

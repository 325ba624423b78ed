"""Find the best model for a budget: the size, tokens and loss at which compute is spent
best.

At a budget C, a model of N parameters can be trained on D(N) tokens. The optimum is the
N with the lowest loss at (N, D(N)) (Hoffmann et al. 2022, section 3). Here it is found
for each draw of a posterior, so every number has an interval. Their second approach, a
parabola through each sweep at equal compute, is given as a second opinion.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
from scipy import optimize

from bayeslaw._base.errors import PlanError, RunTableError
from bayeslaw._base.limits import CHANCE, COST, TOKENS, checked
from bayeslaw._base.numbers import format_count, format_interval, format_many
from bayeslaw._base.schema import INTERVAL
from bayeslaw._base.shown import Shown
from bayeslaw._costs.costs import Costs
from bayeslaw._posteriors.averaging.loading import as_posterior
from bayeslaw._posteriors.outcomes import check_covariates
from bayeslaw._posteriors.pairs import table_of
from bayeslaw._posteriors.posterior import Posterior, columns_read
from bayeslaw._tables.rows.levels import SAME
from bayeslaw._tables.runs import as_runs

if TYPE_CHECKING:
    from jaxtyping import Bool, Float


# sizes searched, evenly spaced in log N, between the table's ends times a reach
SIZES, REACH = 129, 30.0
EDGE = 0.05  # most draws with their minimum at an end, for which there is an optimum


@dataclass(frozen=True, repr=False)
class Optimum(Shown):
    """The best model at each budget. Every field can be stored in JSON.

    Parameters
    ----------
    rows
        For each budget: ``budget``; ``N``, ``D``, ``tokens_per_parameter`` and ``loss``
        (of the law), each with ``_low`` and ``_high``; ``new_run_low`` and
        ``new_run_high``, the interval of a new run's loss at the optimum; and
        ``refused``, the reason if there is no optimum (then the others are None).
    exponent
        Exponent a of N ~ C^a, with C the budget: ``median``, ``low``, ``high``; None
        with fewer than three budgets.
    parabolas
        For each sweep of the table at equal compute: ``flops``, ``runs``, ``N`` with
        ``N_low`` and ``N_high``, ``loss``; and ``refused``.
    curves
        For each budget, for the picture: ``N``, and the law's loss ``low``, ``median``,
        ``high``.
    prob
        Probability inside the intervals.
    unit
        Unit of the budgets: FLOPs, or money.
    warnings
        Conclusions that the table is too small for.
    """

    rows: list[dict[str, Any]]
    exponent: dict[str, float] | None
    parabolas: list[dict[str, Any]]
    curves: list[dict[str, Any]]
    prob: float
    unit: str
    warnings: list[str]

    KEYS: ClassVar = {
        "*": ...,
        "rows": [
            {
                "budget N N_low N_high D D_low D_high": float,
                "tokens_per_parameter": float,
                "tokens_per_parameter_low tokens_per_parameter_high": float,
                "loss loss_low loss_high new_run_low new_run_high": float,
                "refused": str | None,
            }
        ],
        "exponent": INTERVAL,
        "parabolas": [
            {"flops N N_low N_high loss": float, "runs": int, "refused": str | None}
        ],
        "curves": [{"budget": float, "N low median high": list[float]}],
    }

    def table(self) -> pd.DataFrame:
        """Format a row for each budget, as text."""
        lines = []
        for row in self.rows:
            line = {f"budget ({self.unit})": f"{row['budget']:.3g}"}
            for name, write in SHOWN.items():
                line[name] = "-"
                if row["refused"] is None:
                    ends = write(row[f"{name}_low"]), write(row[f"{name}_high"])
                    line[name] = f"{write(row[name])} ({ends[0]} to {ends[1]})"
            lines.append(line)
        return pd.DataFrame(lines)

    def sentence(self) -> str:
        """Describe the answer in words."""
        sentences = [row["refused"] for row in self.rows if row["refused"]]
        if self.exponent is not None:
            power = format_interval(self.exponent, ".3f", self.prob)
            sentences.append(f"The best N grows as the budget to the {power}.")
        usable = [p for p in self.parabolas if p["refused"] is None]
        if usable:
            last = usable[-1]
            sentences.append(
                f"A parabola through the {last['runs']} runs at {last['flops']:.3g} FLOPs "
                f"has its minimum at N = {format_count(last['N'])} "
                f"({format_count(last['N_low'])} to {format_count(last['N_high'])}), "
                f"loss {last['loss']:.4g}."
            )
        sentences += [p["refused"] for p in self.parabolas if p["refused"]]
        return "\n".join(sentences)


SHOWN = {
    "N": format_count,
    "D": format_count,
    "tokens_per_parameter": lambda x: f"{x:.3g}",
    "loss": lambda x: f"{x:.4g}",
}


def optimum(
    posterior: Posterior | str | Path,
    budgets: Iterable[float | str] | float | str | None = None,
    *,
    costs: Costs | None = None,
    served_tokens: float | str = 0.0,
    covariates: Mapping[str, float] | None = None,
    prob: float | str = 0.9,
    seed: int = 0,
) -> Optimum:
    """Find the best size and tokens at each budget, by the posterior's draws.

    Parameters
    ----------
    posterior
        A `Fit` or an `Average` of a law that reads N and D, or the path of its file.
    budgets
        In FLOPs, or in money if ``costs`` have a ``price``: ``1e21``; by default the
        sweeps of equal compute in the fit's table, and ten times the largest.
    costs
        The formula of the FLOPs (`Costs`), and their price.
    served_tokens
        Tokens that the model will serve: ``"2T"``; the budget pays for them, too, 2 N
        FLOPs each (Sardana et al. 2024).
    covariates
        Further columns that the law reads: ``{"replay": 0.2}``.
    prob
        Probability inside the intervals.
    seed
        Seed of a new run's noise.

    Raises
    ------
    PlanError
        A budget or ``served_tokens`` is out of its range, or the budget pays for no
        model.
    RunTableError
        The law does not read N and D, or reads a column that is not given.

    References
    ----------
    Hoffmann et al. 2022 (Chinchilla), sections 3.2 and 3.3.

    Examples
    --------
    >>> best = bayeslaw.optimum(pretraining, [1e20])
    >>> best.unit, len(best.rows)
    ('FLOPs', 1)
    """
    costs = costs or Costs()
    served = checked("served_tokens", served_tokens, TOKENS)
    prob = checked("prob", prob, CHANCE)
    levels = [(1 - prob) / 2, 0.5, (1 + prob) / 2]
    # read as a row of a table: "25%" is .25
    row_of_table = as_runs(covariates).iloc[0].to_dict() if covariates else {}
    fixed = {str(column): value for column, value in row_of_table.items()}
    posterior = as_posterior(posterior)
    _check_columns(posterior, fixed)
    runs = table_of(posterior)
    sweeps = []
    if runs is not None:
        # sweeps of other data or other replay are no second opinion
        given = {column: value for column, value in fixed.items() if column in runs}
        is_like = np.isclose(runs[[*given]].astype(float), [*given.values()], rtol=SAME)
        sweeps = sweeps_of(runs.iloc[np.flatnonzero(is_like.all(axis=1))])
    # sizes around those of the table, and the range of its tokens per parameter
    span, ratios = (1e8, 1e11), (0.0, math.inf)
    if runs is not None and "N" in runs:
        span = runs["N"].min(), runs["N"].max()
    if runs is not None and {"N", "D"} <= set(runs):
        ratio = runs["D"].astype(float) / runs["N"].astype(float)
        ratios = ratio.min(), ratio.max()
    ends = math.log(span[0] / REACH), math.log(span[1] * REACH)
    grid = np.exp(np.linspace(*ends, SIZES))

    def afford(budget: float, N: float) -> float:
        """Compute the training tokens left after the served ones are paid."""
        if costs.has_money:
            trained = costs.most_tokens(N, 0.0, max_cost=budget)
        else:
            trained = budget / costs.flops_per_token(N)
        # a served token is a forward pass, 2 of the 6 FLOPs a parameter
        return trained - served / 3

    rows, curves, log_sizes = [], [], []
    row: dict[str, Any]
    for budget in _choose_budgets(budgets, sweeps, costs):
        sizes = grid[[afford(budget, N) >= 1 for N in grid]]
        if len(sizes) < 3:
            unit = "" if costs.has_money else " FLOPs (of money with a price: --price)"
            raise PlanError(
                f"a budget of {budget:.3g}{unit} pays for no model: {format_count(served)} "
                "served tokens, or what a run costs in any case, are more"
            )
        if len(sizes) < len(grid):
            # towards the largest affordable size tokens run out within less than a step
            ends = sizes[-1], grid[len(sizes)]
            most = optimize.brentq(
                lambda N, of_budget: afford(of_budget, N) - 1, *ends, args=(budget,)
            )
            near = most * (1 - np.geomspace(0.3, 1e-4, SIZES))
            sizes = np.union1d(sizes, near[near > grid[0]])
        tokens = np.array([afford(budget, N) for N in sizes])
        table = pd.DataFrame({"N": sizes, "D": tokens, **fixed})
        log_loss = posterior.log_loss(table)  # (draw, size)
        quantiles = np.exp(np.quantile(log_loss, levels, axis=0)).tolist()
        bands = dict(zip(("low", "median", "high"), quantiles, strict=True))
        curves.append({"budget": budget, "N": sizes.tolist()} | bands)
        # Start from the lowest median within the measured tokens per parameter. Far
        # beyond, the misfit is so wide that it makes minima which the law does not have.
        is_measured = (tokens / sizes >= ratios[0]) & (tokens / sizes <= ratios[1])
        if not is_measured.any():
            is_measured[:] = True
        median = np.median(log_loss, axis=0)
        start = int(np.where(is_measured, median, np.inf).argmin())
        at, least, is_edge, *_ = find_minima(np.log(sizes), log_loss, start)
        if is_edge.mean() > EDGE:
            is_low = (at < np.log(sizes).mean()).mean() > 0.5
            end, size = ("smallest", sizes[0]) if is_low else ("largest", sizes[-1])
            names = [f"{n}{e}" for n in SHOWN for e in ("", "_low", "_high")]
            row = dict.fromkeys([*names, "new_run_low", "new_run_high"])
            refused = (
                f"At {budget:.3g} the loss is still falling at the {end} size looked "
                f"at, {format_count(size)}: the fit knows no best size there."
            )
            rows.append(row | {"budget": budget, "refused": refused})
            continue
        log_sizes.append((budget, np.where(is_edge, np.nan, at)))
        N = np.exp(at[~is_edge])
        D = np.array([afford(budget, size) for size in N])
        draws = {"N": N, "D": D, "tokens_per_parameter": D / N}
        draws["loss"] = np.exp(least[~is_edge])
        row = {"budget": budget, "refused": None}
        for name, values in draws.items():
            low, median, high = map(float, np.quantile(values, levels))
            row |= {name: median, f"{name}_low": low, f"{name}_high": high}
        planned = pd.DataFrame([{"N": row["N"], "D": row["D"], **fixed}])
        new = np.exp(posterior.log_loss(planned, noise=True, seed=seed)[:, 0])
        low, _, high = map(float, np.quantile(new, levels))
        rows.append(row | {"new_run_low": low, "new_run_high": high})
    exponent = None
    if len(log_sizes) >= 3:
        # the slope of log N in log budget, by least squares for each draw
        x = np.log([budget for budget, _ in log_sizes])
        y = np.stack([sizes for _, sizes in log_sizes])
        slopes = (x - x.mean()) @ y / ((x - x.mean()) ** 2).sum()
        low, median, high = map(float, np.nanquantile(slopes, levels))
        exponent = {"median": median, "low": low, "high": high}
    return Optimum(
        rows=rows,
        exponent=exponent,
        parabolas=[parabola(sweep, prob) for sweep in sweeps],
        curves=curves,
        prob=prob,
        unit="money" if costs.has_money else "FLOPs",
        warnings=[*posterior.warnings, *_warn_of_few_rows(posterior, runs, sweeps)],
    )


def _check_columns(posterior: Posterior, fixed: Mapping[str, float]) -> None:
    """Refuse a law that does not read N and D, or that reads a column without a given
    value, and a value of a column that no law reads.
    """
    covariates = set(columns_read(posterior))
    searched = "size and tokens are what is searched at each budget"
    check_covariates(fixed, covariates, dict.fromkeys("ND", searched))
    if not {"N", "D"} <= covariates:
        raise RunTableError(
            f"{posterior.name} reads {', '.join(sorted(covariates))}: the best size for a budget "
            "is that of a law in N and D"
        )
    missing = sorted({*columns_read(posterior, there=fixed)} - {"N", "D", *fixed})
    if missing:
        raise RunTableError(
            f"{posterior.name} reads {missing[0]!r}, too: give its value, "
            f"covariates={{{missing[0]!r}: ...}} (--covariate {missing[0]}=...)"
        )


def _choose_budgets(
    budgets: Iterable[float | str] | float | str | None,
    sweeps: Sequence[pd.DataFrame],
    costs: Costs,
) -> list[float]:
    """Choose the given budgets, else those of the sweeps and ten times the last."""
    if budgets is not None:
        is_one = isinstance(budgets, str | int | float | np.number)
        several = [budgets] if is_one else budgets
        return [checked("budget", budget, COST) for budget in several]
    if costs.has_money:
        raise PlanError("give the budgets, in money (--budget 20000)")
    if not sweeps:
        raise PlanError(
            "give the budgets, in FLOPs (--budget 1e21): the table has no sweeps of equal "
            "compute to take them from"
        )
    measured = [float(sweep.attrs["flops"]) for sweep in sweeps]
    return [*measured, 10 * measured[-1]]


class Minima(NamedTuple):
    """Minima of curves: place, depth, whether the lowest point is an end of the curve,
    and the points beside the lowest; each of shape (curve,).
    """

    at: Float[np.ndarray, " curve"]
    depth: Float[np.ndarray, " curve"]
    is_edge: Bool[np.ndarray, " curve"]
    low: Float[np.ndarray, " curve"]
    high: Float[np.ndarray, " curve"]


def find_minima(
    x: Float[np.ndarray, "*#curve point"],
    y: Float[np.ndarray, "curve point"],
    start: int | None = None,
) -> Minima:
    """Find the minimum of each curve, along ascending ``x``, by the parabola through its
    lowest point and the neighbours, between these.

    ``start``: place of the point from which each curve is followed downhill; by default
    the lowest of all points is found.
    """
    curves, last = np.arange(len(y)), y.shape[1] - 1
    lowest = np.argmin(y, axis=1)
    if start is not None:
        lowest = np.full(len(y), start)
        walled = np.pad(y, ((0, 0), (1, 1)), constant_values=np.inf)
        for _ in range(last):
            near = np.stack([walled[curves, lowest + k] for k in range(3)])
            lowest = lowest + near.argmin(axis=0) - 1
    x = np.broadcast_to(x, y.shape)
    middle = np.clip(lowest, 1, last - 1)
    left, at, right = (x[curves, middle + k] for k in (-1, 0, 1))
    below, depth, above = (y[curves, middle + k] for k in (-1, 0, 1))
    # slopes on both sides, and the zero of the line between them
    before, after = (depth - below) / (at - left), (above - depth) / (right - at)
    bend = 2 * (after - before) / (right - left)
    is_bowl = bend > 0
    vertex = (left + at) / 2 - before / np.where(is_bowl, bend, 1.0)
    vertex = np.where(is_bowl, np.clip(vertex, left, right), x[curves, lowest])
    return Minima(
        vertex,
        depth - bend / 2 * (vertex - at) ** 2,
        (lowest == 0) | (lowest == last),
        x[curves, np.maximum(lowest - 1, 0)],
        x[curves, np.minimum(lowest + 1, last)],
    )


# -- the second opinion ----------------------------------------------------------------


def sweeps_of(
    runs: pd.DataFrame, least: int = 5, gap: float = 1.3
) -> list[pd.DataFrame]:
    """Find the sweeps of a table with at least ``least`` sizes, in order of compute. A
    sweep has runs with one value of the column ``budget``. Without this column, its
    runs sorted by compute 6 N D differ by less than ``gap`` from each to the next.
    """
    if not {"N", "D", "loss"} <= set(runs):
        return []
    rows = runs.dropna(subset=["N", "D", "loss"])
    flops = 6 * rows["N"].astype(float) * rows["D"].astype(float)
    if "budget" in rows and pd.api.types.is_numeric_dtype(rows["budget"]):
        group = rows["budget"].astype(float)
    else:
        log_flops = flops.map(math.log).sort_values()
        group = (log_flops.diff() > math.log(gap)).cumsum().reindex(rows.index)
    sweeps = []
    for _, sweep in rows.groupby(group):
        spread = flops[sweep.index].max() / flops[sweep.index].min()
        is_one = "budget" in rows or spread < gap
        if sweep["N"].nunique() >= least and is_one:
            by_size = sweep.sort_values("N")
            by_size.attrs = {"flops": float(np.median(flops[sweep.index]))}
            sweeps.append(by_size)
    return sorted(sweeps, key=lambda sweep: sweep.attrs["flops"])


def parabola(
    sweep: pd.DataFrame, prob: float = 0.9, near: float = 6.0, least: int = 5
) -> dict[str, Any]:
    """Fit a parabola in log N to the loss of a sweep of equal compute, near its lowest run.

    ``near``: the parabola is fitted to sizes within this factor of the lowest run's, if
    there are at least ``least``; else to all.

    Returns
    -------
    ``flops``, ``runs``, the vertex ``N`` with its interval by the delta method, ``loss``, and
    ``refused``: why the sweep has no minimum.

    References
    ----------
    Hoffmann et al. 2022, section 3.2.
    """
    from scipy import stats

    flops, lowest = sweep.attrs["flops"], int(sweep["loss"].to_numpy().argmin())
    record: dict[str, Any] = {"flops": flops, "runs": len(sweep), "refused": None}
    record |= dict.fromkeys(("N", "N_low", "N_high", "loss"))
    if lowest in (0, len(sweep) - 1):
        end = "smallest" if lowest == 0 else "largest"
        record["refused"] = (
            f"The sweep at {flops:.3g} FLOPs has its minimum at an edge, its {end} size "
            f"{format_count(sweep['N'].iloc[lowest])}: it says nothing of the best one."
        )
        return record
    log_N = np.log(sweep["N"].to_numpy(float))
    is_near = np.abs(log_N - log_N[lowest]) <= math.log(near)
    is_fitted = is_near if is_near.sum() >= least else np.ones(len(sweep), bool)
    x = log_N[is_fitted] - log_N[lowest]
    y = sweep["loss"].to_numpy(float)[is_fitted]
    (c, b, a), covariance = np.polyfit(x, y, 2, cov=True)
    vertex = -b / (2 * c) if c > 0 else np.inf
    if not x.min() < vertex < x.max():
        record["refused"] = (
            f"The sweep at {flops:.3g} FLOPs has no minimum inside it: a parabola through "
            "its runs turns beyond them."
        )
        return record
    slope = np.array([b / (2 * c**2), -1 / (2 * c), 0.0])
    sd = math.sqrt(slope @ covariance @ slope)
    reach = stats.t.ppf((1 + prob) / 2, len(x) - 3) * sd
    N, loss = math.exp(log_N[lowest] + vertex), float(a + vertex * (b + c * vertex))
    ends = {"N_low": N * math.exp(-reach), "N_high": N * math.exp(reach)}
    return record | {"N": N, "loss": loss} | ends


def _warn_of_few_rows(
    posterior: Posterior, runs: pd.DataFrame | None, sweeps: Sequence[pd.DataFrame]
) -> list[str]:
    if runs is None:
        return []
    lines = []
    sites = {n for p in posterior.pieces() for n, v in p.values.items() if v.ndim == 1}
    parameters = len(sites - {"sigma", "dof", "tau_run", "tau_checkpoint"})
    if len(runs) < 2 * parameters:
        lines.append(
            f"{len(runs)} rows carry no optimum of their own: the law has {parameters} "
            "parameters, so that the exponent and all beyond the table are the priors'; "
            "three budgets of five sizes each would tell"
        )
    if sweeps and len(sweeps) < 3:
        lines.append(
            f"{format_many(len(sweeps), 'sweep')} of equal compute: how the best size grows "
            "is the priors'; a third budget would tell"
        )
    return lines

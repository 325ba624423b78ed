"""``bayeslaw study anchors``: are chosen runs better than the paper's grid, random runs or a D-optimal design, at equal cost?

In each world a form is the truth, at parameters near its plausible ones. Its runs at 15 and 31 pre-training tokens per parameter are
fitted; the goal is the forecast of the 21 runs of 8.1e9 parameters at 279. Checkpoints of all sizes exist at all stages;
on offer are adaptation runs up to 1.4e9 parameters. The paper buys 20 runs of 241e6 parameters at 279 over its grid of
replay and tokens (Goffinet 2025, "Anchors"); what they cost is the budget. Chosen, D-optimal and random runs get that, half
and a quarter of it. Bought losses are simulated, the law is refitted, and its forecast is compared with the truth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm

from bayeslaw import _engine, _geometry, _runs
from bayeslaw._anchors import Gain, anchors, appraise
from bayeslaw._anchors_evidence import RUN_LENGTH, log_losses, rows_of
from bayeslaw._anchors_menu import candidates, menu
from bayeslaw._approximate import starts_near
from bayeslaw._catalogue import law as find
from bayeslaw._errors import LawError, PlanError
from bayeslaw._fit import NOISE as ERROR
from bayeslaw._fit import new_run_noise
from bayeslaw._law import Law
from bayeslaw._model import log_loss_of
from bayeslaw._padding import pad
from bayeslaw._posterior import Piece, new_run_scale, over_draws
from bayeslaw._refits import refit
from bayeslaw._shared_error import NONE, shared_error
from bayeslaw._simulate import NOISE, REPLAYS, TOKENS_PER_PARAMETER, ptpp_grid
from bayeslaw._study import study

FORMS = ("ptpp-floor", "ptpp-gate", "ptpp-gate-floor")
SOURCE = "ptpp-floor"  # law of the source loss, where plans are made
GOAL = "N == 8.1e9 and ptpp == 279"
SHARES = (1.0, 0.5, 0.25)  # of the paper's cost
RULES: dict[str, Gain] = {
    "chosen": "variance",
    "few": "variance",
    "D-optimal": "parameters",
}  # gains that lists maximise
FEW = 20  # runs at most of the list "few": as many as the paper's
LISTS = {
    "none": (0.0,),
    "paper": (1.0,),
    "chosen": SHARES,
    "random": (1.0,),
    "few": (1.0,),
    "D-optimal": (1.0,),
}  # shares of the budget that each gets
WIDE = {"replay": (0.05, 0.1, 0.25, 0.5, 0.75), "atpp": tuple(np.geomspace(0.25, 80, 11))}
MENUS = {"grid": {"replay": REPLAYS, "atpp": TOKENS_PER_PARAMETER}, "wide": WIDE}
MEASURED = ("once", "along", "trajectories")
DRAWS, ROWS = (
    4000,
    128,
)  # of a refit; its tables are padded to multiples of so many rows, so that few programs serve all
PLANNED = {"D": 8.9 * 8.1e9, "replay": 0.34}  # the paper's plan: promises are what the truth just keeps there
MAX_FORGETTING, CONFIDENCE = 0.02, 0.9


@dataclass(frozen=True, eq=False)
class Known:
    """Draws of a law as a posterior; ``values``: each of shape (draw,)."""

    law: Law
    values: Mapping[str, np.ndarray]

    @property
    def name(self) -> str:
        return self.law.name

    @property
    def warnings(self) -> tuple[str, ...]:
        return ()

    def pieces(self) -> tuple[Piece, ...]:
        """All draws; ``sigma`` is that of a new run, shared errors included."""
        values = {**self.values, "sigma": new_run_scale(self.values)}
        return (Piece(log_loss_of(self.law), values, self.law.covariates),)

    def log_loss(self, runs: pd.DataFrame, *, noise: bool = False, seed: int = 0) -> np.ndarray:
        """Draws of the log loss, shape (draw, run): of the law, or with ``noise`` of a new run."""
        (piece,) = self.pieces()
        out = np.asarray(over_draws(piece.log_loss)(dict(piece.values), _runs.covariates(self.law, runs)))
        return out + new_run_noise(piece.values, len(runs), np.random.default_rng(seed)) if noise else out


# -- the world -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class World:
    """A truth and its noise.

    ``spread`` is the sd of the logarithms of its parameters around the law's plausible ones; ``tau`` that of the log loss
    that runs of one checkpoint share, and where there is any, points of a run err alike too.
    """

    law: str
    seed: int
    spread: float
    tau: float

    def known(self, draws: int) -> Known:
        """What one knows who knows the truth, and that noise is Gaussian."""
        law, rng = find(self.law), np.random.default_rng([2025, self.seed])
        made = {k: v * float(np.exp(self.spread * rng.standard_normal())) for k, v in law.plausible.items()}
        made |= {"lam": min(made["lam"], 0.95)} if "lam" in made else {}
        values = {k: np.full(draws, float(v)) for k, v in law.from_paper(made).items()}
        return Known(law, values | {"sigma": np.full(draws, NOISE), "dof": np.full(draws, 1e6)})

    def truth(self, runs: pd.DataFrame) -> np.ndarray:
        """Log loss of the law itself, shape (run,)."""
        return log_losses(rows_of(self.known(1).pieces()), runs, "the table")[0]

    def measured(self, runs: pd.DataFrame, stream: int) -> pd.DataFrame:
        """The runs with their losses; another stream, other noise, but checkpoints keep their effects."""
        rng = np.random.default_rng([self.seed, stream])
        error = NOISE * rng.standard_normal(len(runs))
        if self.tau:
            error = self._along(runs, error) + self.tau * self._effects(runs)
        return runs.assign(loss=np.exp(self.truth(runs) + error))

    def _effects(self, runs: pd.DataFrame) -> np.ndarray:
        keys = zip(runs["N"] / 1e6, runs["ptpp"], strict=True)
        return np.array([np.random.default_rng([self.seed, int(n), int(s)]).standard_normal() for n, s in keys])

    def _along(self, runs: pd.DataFrame, error: np.ndarray) -> np.ndarray:
        """Independent errors made a chain along each run, rows of which come in order."""
        same = (runs["run"] == runs["run"].shift()).to_numpy()
        gap = np.diff(np.log(runs["D"].to_numpy(float)), prepend=0.0)
        carried = np.where(same, np.exp(-gap / RUN_LENGTH), 0.0)
        out = error.copy()
        for j in np.flatnonzero(same):
            out[j] = carried[j] * out[j - 1] + np.sqrt(1 - carried[j] ** 2) * error[j]
        return out


def fitted(world: World, runs: pd.DataFrame, near: Known | None = None) -> Known:
    """The posterior of the true form on a table; the search starts from a draw of one ``near``, or anywhere."""
    from bayeslaw import _sampler

    law, size = find(world.law), -(-len(runs) // ROWS) * ROWS
    x, y = _runs.covariates(law, runs), np.log(_runs.losses(runs))
    table, at = pad(x, y, shared_error(runs) if world.tau else NONE, size), _geometry.anchors(law, x)
    if near is None:
        starts = np.asarray(_sampler.prepare(law, table, at, world.seed).centre)[None]
    else:
        starts = starts_near(law, table, at, [{n: near.values[n][0] for n in law.priors}], NOISE)
    values, _ = refit(law, table, at, starts, seed=world.seed, draws=DRAWS)  # pyright: ignore[reportArgumentType]
    return Known(law, {n: np.abs(v) if n in ERROR else v for n, v in values.items()})


# -- the lists -------------------------------------------------------------------------------------------------------


def on_offer(menu_name: str, measured: str) -> pd.DataFrame:
    """Candidates, whose checkpoints all exist: points along runs, or runs of one point each."""
    return candidates(ptpp_grid().query("N < 2e9"), **MENUS[menu_name], along_run=measured != "once")


def paper_runs(measured: str) -> pd.DataFrame:
    """The paper's 20 anchors with their costs: all but the dearest of its 21 combinations of replay and tokens."""
    grid = ptpp_grid().query("N == 241e6 and ptpp == 279")
    grid = grid.drop(grid["D"].index[-1])
    run = "paper " + grid["replay"].astype(str) if measured == "along" else grid["run"]
    return grid.assign(run=run, cost=6 * grid["N"] * grid["D"])


def price(runs: pd.DataFrame) -> float:
    """Cost of these runs, each up to its last row."""
    listed = menu(runs)
    ends = (listed.rows >= 0).sum(axis=1) - 1
    return float(listed.cost[np.arange(len(ends)), ends].sum())


def random_runs(offered: pd.DataFrame, budget: float, rng: np.random.Generator) -> pd.DataFrame:
    """Random runs up to random points, while any fits the budget."""
    listed, bought, left = menu(offered), [], budget
    while len(open_ := np.argwhere(listed.cost <= left)):
        run, stop = open_[rng.integers(len(open_))]
        bought.append(offered.iloc[listed.rows[run, : stop + 1]].assign(run=f"random {len(bought)}"))
        left -= listed.cost[run, stop]
    return pd.concat(bought, ignore_index=True)


def bought(name: str, budget: float, before: Known, offered: pd.DataFrame, paper: pd.DataFrame, world: World):
    """The runs of a list."""
    if name == "paper":
        return paper
    if name == "random":
        return random_runs(offered, budget, np.random.default_rng([world.seed, 7]))
    goal = ptpp_grid().query(GOAL)
    made = anchors(
        before, offered, goal, budget, gain=RULES[name], least=0.0, checks=0, run_length=None if world.tau else 0.0,
        max_picks=FEW if name == "few" else None,
    )  # fmt: skip
    return made.runs(offered)


# -- what came of them -----------------------------------------------------------------------------------------------


def scores(posterior: Known, world: World) -> dict[str, float]:
    """How far the forecast of the goal misses the truth (and noisy runs), how wide it is, how often it holds them.

    ``rmse``: of the median's log loss; ``width``: mean of the 90% interval's width over the median, of the law and of a
    ``_new`` run; ``coverage`` of those intervals; ``sd``: root mean square sd of the law's log loss over the goal.
    """
    goal = ptpp_grid().query(GOAL)
    truth, noisy = world.truth(goal), np.log(world.measured(goal, 999)["loss"].to_numpy())
    law, new = posterior.log_loss(goal), posterior.log_loss(goal, noise=True, seed=world.seed)
    (low, point, high), (new_low, new_high) = np.quantile(law, [0.05, 0.5, 0.95], 0), np.quantile(new, [0.05, 0.95], 0)
    return {
        "rmse": float(np.sqrt(np.mean((point - truth) ** 2))), "rmse_new": float(np.sqrt(np.mean((point - noisy) ** 2))),
        "width": float(np.mean(np.exp(high - point) - np.exp(low - point))),
        "width_new": float(np.mean(np.exp(new_high - point) - np.exp(new_low - point))),
        "coverage": float(np.mean((low <= truth) & (truth <= high))),
        "coverage_new": float(np.mean((new_low <= noisy) & (noisy <= new_high))),
        "sd": float(np.sqrt(law.var(axis=0, ddof=1).mean())),
    }  # fmt: skip


def plan_scores(target: Known, source: Known, worlds: Sequence[World]) -> dict[str, float]:
    """The plan made: FLOPs over those of one who knows both laws, and how probably a run keeps both promises in truth.

    NaN where no plan reaches the confidence.
    """
    from bayeslaw._anchors_plan import planned

    reference = pd.DataFrame([{"N": 8.1e9, "ptpp": 279.0, **PLANNED}])
    margin = np.exp(norm.ppf(CONFIDENCE**0.5) * NOISE)  # what a run's own noise asks for
    most, source_loss = (float(np.exp(w.truth(reference)[0])) * margin for w in worlds)
    asked = {
        "N": 8.1e9, "ptpp": 279.0, "max_target_loss": most, "max_forgetting": MAX_FORGETTING,
        "baseline_loss": source_loss / (1 + MAX_FORGETTING), "confidence": CONFIDENCE,
    }  # fmt: skip
    knowing = [w.known(DRAWS) for w in worlds]
    try:
        made, best = (planned(t, s, asked) for t, s in ((target, source), knowing))
    except PlanError:
        return {"plan_cost": float("nan"), "plan_kept": float("nan")}
    log_tokens, replay = made.choice[:2]
    run = reference.assign(D=np.exp(log_tokens), replay=replay)
    limits = np.log([most, source_loss])
    slack = [(limit - w.truth(run)[0]) / NOISE for limit, w in zip(limits, worlds, strict=True)]
    return {"plan_cost": made.flops / best.flops, "plan_kept": float(np.prod(norm.cdf(slack)))}


@lru_cache(maxsize=128)
def _known(world: World) -> tuple[pd.DataFrame, Known]:
    """What is known before anything is bought: runs at the early stages, and their posterior."""
    runs = world.measured(ptpp_grid().query("ptpp < 279"), 0)
    return runs, fitted(world, runs)


def one(
    law: str, seed: int, list: str, share: float, measured: str, menu: str, spread: float, tau: float, plan: bool
) -> list[dict[str, Any]]:
    """One list of one world: a row."""
    _engine.start()
    worlds = [World(law, seed, spread, tau), *([World(SOURCE, seed + 5000, spread, tau)] if plan else [])]
    have = [_known(w) for w in worlds]
    before = after = [posterior for _, posterior in have]
    row: dict[str, Any] = {}
    if share:
        paper, goal = paper_runs(measured), ptpp_grid().query(GOAL)
        runs = bought(list, share * price(paper), before[0], on_offer(menu, measured), paper, worlds[0])
        stream = 1 + 10 * [*LISTS].index(list) + SHARES.index(share)
        tables = [
            pd.concat([k, w.measured(runs, stream)], ignore_index=True) for (k, _), w in zip(have, worlds, strict=True)
        ]
        after = [fitted(w, t, near) for w, t, near in zip(worlds, tables, before, strict=True)]
        sd_before, expected = appraise(before[0], runs, goal, run_length=None if tau else 0.0)
        row |= {"cost": price(runs) / price(paper), "runs": runs["run"].nunique(), "points": len(runs)}
        row |= {"sd_before": sd_before, "sd_expected": expected}
    row |= scores(after[0], worlds[0])
    return [row | (plan_scores(after[0], after[1], worlds) if plan else {})]


def anchors_study(
    path: Path | None = None,
    *,
    laws: Sequence[str] = FORMS,
    seeds: Sequence[int] = range(20),
    lists: Sequence[str] = tuple(LISTS),
    measured: str = "once",
    menu: str = "grid",
    spread: float = 0.0,
    tau: float = 0.0,
    plan: bool = False,
    executor: Executor | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> pd.DataFrame:
    """A row for each world and list of runs: cost, expected and realised sd, error, width, coverage (`scores`).

    Parameters
    ----------
    path
        CSV where rows are kept as worlds are done; those in it are not made again.
    laws, seeds
        The truths, each with its own fit, and the noises.
    lists
        What is bought: nothing, the paper's grid, runs chosen for the goal's variance (of them at most 20: few), random
        ones, a D-optimal design. A list is made for all worlds before the next.
    measured
        ``"once"``: every measurement is a run of its own, the paper's and those on offer; ``"along"``: points of a run
        cost the run, the paper's too (three runs); ``"trajectories"``: those on offer only.
    menu
        ``"grid"``: the paper's replays and tokens are on offer; ``"wide"``: more of both.
    spread
        Sd of the logarithms of each world's parameters around the law's plausible ones.
    tau
        Sd of log loss that runs of one checkpoint share in the world, which fits know of; errors along a run are then
        alike too.
    plan
        Measure the source as well, and plan with each posterior.
    executor, progress
        As for `study`.

    Raises
    ------
    LawError
        An unknown law or setting.
    """
    for name, given, allowed in (("measured", measured, MEASURED), ("menu", menu, tuple(MENUS))):
        if given not in allowed:
            raise LawError(f"{name} must be one of {', '.join(allowed)}; got {given!r}")
    for name in lists:
        if name not in LISTS:
            raise LawError(f"lists are of {', '.join(LISTS)}; got {name!r}")
    for name in laws:
        if not {"N", "D", "replay", "ptpp"} >= set(find(name).covariates):
            raise LawError(f"law {name!r} reads more than N, D, replay and ptpp, which is all that the study varies")
    if not (laws and len(seeds) and lists and 0 <= tau < 1 and 0 <= spread < 1):
        raise LawError("a study needs at least one law, one seed and one list, and spread and tau between 0 and 1")
    settings = {"measured": measured, "menu": menu, "spread": float(spread), "tau": float(tau), "plan": plan}
    jobs = [
        {"law": law, "seed": int(seed), "list": name, "share": share, **settings}
        for name in lists for share in LISTS[name] for seed in seeds for law in laws
    ]  # fmt: skip
    return study(one, jobs, path, executor=executor, progress=progress)

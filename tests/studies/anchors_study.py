"""Compare chosen runs with the paper's grid, random runs and a D-optimal design at
equal cost: ``python tests/studies/study.py anchors``.

In each world one form is the truth, at parameters near its plausible ones. Its runs at
15 and 31 pre-training tokens per parameter are fitted. The goal is the forecast of the
21 runs of 8.1e9 parameters at 279. Checkpoints of all sizes exist at all stages;
adaptation runs up to 1.4e9 parameters are on offer. The paper buys 20 runs of 241e6
parameters at 279 over its grid of replay and tokens (Goffinet 2025, "Anchors"), and
their cost is the budget. Chosen, D-optimal and random runs get this budget, half of it
and a quarter of it. The losses of bought runs are simulated, the law is refitted, and
its forecast is compared with the truth.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import KW_ONLY, asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from resumable import study
from scipy.stats import norm

from bayeslaw._base.arguments import takes
from bayeslaw._base.errors import LawError, PlanError
from bayeslaw._base.machine import runtime
from bayeslaw._base.progress.time_left import Progress
from bayeslaw._designs.anchors import GainName, anchors, appraise
from bayeslaw._designs.menu import candidates, menu
from bayeslaw._inference import coordinates
from bayeslaw._inference.importance import Importance, starts_near
from bayeslaw._inference.modes import start_near_mode
from bayeslaw._inference.noise import NOISE as ERROR
from bayeslaw._inference.table import NONE, pad, shared_error
from bayeslaw._law.catalogue import law as find
from bayeslaw._law.law import Law
from bayeslaw._posteriors.draws import all_draws
from bayeslaw._posteriors.fits.refits import refit
from bayeslaw._posteriors.outcomes import RUN_LENGTH, log_losses
from bayeslaw._posteriors.posterior import LogLoss, Piece
from bayeslaw._tables import fitting
from bayeslaw._tables.simulate import NOISE, REPLAYS, TOKENS_PER_PARAMETER, ptpp_grid


@dataclass(frozen=True)
class RunList:
    """Describe how a list of runs is made.

    Parameters
    ----------
    shares
        Budgets, as shares of the paper's cost.
    gain
        The quantity that a chosen list maximises.
    max_picks
        Largest number of runs; None for any number.
    """

    shares: tuple[float, ...] = (1.0,)
    gain: GainName | None = None
    max_picks: int | None = None


LISTS = {
    "none": RunList((0.0,)),
    "paper": RunList(),
    "chosen": RunList((1.0, 0.5, 0.25), "variance"),
    "random": RunList(),
    "few": RunList(gain="variance", max_picks=20),  # as many as the paper's
    "D-optimal": RunList(gain="parameters"),
}
MENUS = {
    "grid": {"replay": REPLAYS, "atpp": TOKENS_PER_PARAMETER},
    "wide": {
        "replay": (0.05, 0.1, 0.25, 0.5, 0.75),
        "atpp": tuple(np.geomspace(0.25, 80, 11)),
    },
}


@dataclass(frozen=True, eq=False)
class LawDraws:
    """Treat draws of a law as a posterior; ``values``: each of shape (draw,)."""

    law: Law
    values: Mapping[str, np.ndarray]

    @property
    def name(self) -> str:
        return self.law.name

    @property
    def warnings(self) -> tuple[str, ...]:
        return ()

    def pieces(self) -> tuple[Piece, ...]:
        """List the one piece: all draws. ``sigma`` is the scale of a new run, with
        shared errors.
        """
        formula = LogLoss(self.law)
        return (formula.piece(self.values),)

    def log_loss(
        self, runs: pd.DataFrame, *, noise: bool = False, seed: int = 0
    ) -> np.ndarray:
        """Draw the log loss, shape (draw, run): of the law, or with ``noise`` of a new
        run.
        """
        (piece,) = self.pieces()
        columns = fitting.covariates(self.law, runs)
        log_loss = piece.at(columns)
        if not noise:
            return log_loss
        return log_loss + piece.noise.draw(len(runs), np.random.default_rng(seed))


# -- the world -------------------------------------------------------------------------


@dataclass(frozen=True)
class World:
    """Simulate a truth and its noise.

    ``spread`` is the sd of the logarithms of its parameters around the law's plausible
    parameters. ``tau`` is the sd of the part of the log loss that runs of one
    checkpoint share. If ``tau`` is above 0, the errors along a run are correlated, too.
    """

    law: str
    seed: int
    spread: float
    tau: float

    def known(self, draws: int) -> LawDraws:
        """Build the posterior of an observer who knows the truth and the Gaussian
        noise.
        """
        law = find(self.law)
        rng = np.random.default_rng([2025, self.seed])
        parameters = {}
        for name, plausible in law.plausible.items():
            factor = float(np.exp(self.spread * rng.standard_normal()))
            parameters[name] = plausible * factor
        if "lam" in parameters:
            # with lam = 1, adaptation tokens would have no effect after long
            # pre-training
            parameters["lam"] = min(parameters["lam"], 0.95)
        # with so many degrees of freedom a Student-t is a Gaussian
        values = {**law.from_paper(parameters), "sigma": NOISE, "dof": 1e6}
        return LawDraws(law, {k: np.full(draws, float(v)) for k, v in values.items()})

    def truth(self, runs: pd.DataFrame) -> np.ndarray:
        """Compute the log loss of the law itself, shape (run,)."""
        pieces = self.known(1).pieces()
        draws = all_draws(pieces)
        return log_losses(draws, runs, "the table")[0]

    def measured(self, runs: pd.DataFrame, stream: int) -> pd.DataFrame:
        """Measure the runs: add losses. Another stream gives other noise, but
        checkpoints keep their effects.
        """
        rng = np.random.default_rng([self.seed, stream])
        error = NOISE * rng.standard_normal(len(runs))
        if self.tau:
            effects = self.tau * self._effects(runs)
            error = self._along(runs, error) + effects
        log_loss = self.truth(runs) + error
        return runs.assign(loss=np.exp(log_loss))

    def _effects(self, runs: pd.DataFrame) -> np.ndarray:
        """Draw the effect of each row's checkpoint, in its sds, shape (run,)."""
        effects = []
        for millions, stage in zip(runs["N"] / 1e6, runs["ptpp"], strict=True):
            stream = [self.seed, int(millions), int(stage)]
            rng = np.random.default_rng(stream)
            effects.append(rng.standard_normal())
        return np.array(effects)

    def _along(self, runs: pd.DataFrame, error: np.ndarray) -> np.ndarray:
        """Turn independent errors into a first-order autoregression along each run,
        shape (run,). The rows of a run are in order.
        """
        same_run = (runs["run"] == runs["run"].shift()).to_numpy()
        gap = np.diff(np.log(runs["D"].to_numpy(float)), prepend=0.0)
        carried = np.where(same_run, np.exp(-gap / RUN_LENGTH), 0.0)
        fresh = np.sqrt(1 - carried**2) * error
        chained = error.copy()
        for j in np.flatnonzero(same_run):
            chained[j] = carried[j] * chained[j - 1] + fresh[j]
        return chained


def fit_world(
    world: World,
    runs: pd.DataFrame,
    near: LawDraws | None = None,
    *,
    draws: int = 4000,
    multiple: int = 128,
) -> LawDraws:
    """Fit the true form to a table.

    Parameters
    ----------
    near
        The search starts from a draw of this posterior; None: from anywhere.
    draws
        Number of posterior draws.
    multiple
        The table is padded to a multiple of this number of rows, so that few compiled
        programs serve all tables.
    """

    law = find(world.law)
    x, y = fitting.covariates(law, runs), fitting.log_losses(runs)
    size = -(-len(runs) // multiple) * multiple  # the next one
    table = pad(x, y, shared_error(runs) if world.tau else NONE, size)
    at = coordinates.contrast_points(law, x)
    if near is None:
        starts = start_near_mode(law, table, at, world.seed)[None]
    else:
        first_draw = {name: near.values[name][0] for name in law.priors}
        starts = starts_near(law, table, at, [first_draw], NOISE)
    importance = Importance(draws)
    values, _ = refit(law, table, at, starts, seed=world.seed, importance=importance)  # pyright: ignore[reportArgumentType]
    # the sampler's scales of errors may be negative
    return LawDraws(law, {n: np.abs(v) if n in ERROR else v for n, v in values.items()})


# -- the lists -------------------------------------------------------------------------


def on_offer(menu_name: str, measured: str) -> pd.DataFrame:
    """List the candidates, whose checkpoints all exist: points along runs, or runs of
    one point each.
    """
    return candidates(
        ptpp_grid().query("N < 2e9"), **MENUS[menu_name], along_run=measured != "once"
    )


def goal_runs() -> pd.DataFrame:
    """List the runs to forecast: the largest model at the last stage."""
    return ptpp_grid().query("N == 8.1e9 and ptpp == 279")


def paper_runs(measured: str) -> pd.DataFrame:
    """List the paper's 20 anchors with their costs: its 21 combinations of replay and
    tokens, without the dearest.
    """
    grid = ptpp_grid().query("N == 241e6 and ptpp == 279").iloc[:-1]
    run = grid["run"]
    if measured == "along":
        run = "paper " + grid["replay"].astype(str)
    return grid.assign(run=run, cost=6 * grid["N"] * grid["D"])


def price(runs: pd.DataFrame) -> float:
    """Sum the cost of these runs, each up to its last row."""
    offered = menu(runs)
    last = (offered.rows >= 0).sum(axis=1) - 1
    runs_on_offer = np.arange(len(last))
    costs = offered.cost[runs_on_offer, last]
    return float(costs.sum())


def random_runs(
    table: pd.DataFrame, budget: float, rng: np.random.Generator
) -> pd.DataFrame:
    """Draw random runs up to random points, while any fits the budget."""
    offered = menu(table)
    runs, remaining = [], budget
    while len(affordable := np.argwhere(offered.cost <= remaining)):
        run, stop = affordable[rng.integers(len(affordable))]
        rows = offered.rows[run, : stop + 1]
        runs.append(table.iloc[rows].assign(run=f"random {len(runs)}"))
        remaining -= offered.cost[run, stop]
    return pd.concat(runs, ignore_index=True)


def runs_of_list(job: ListJob, before: LawDraws) -> pd.DataFrame:
    """Choose the runs that a list buys with its share of the paper's cost."""
    paper = paper_runs(job.measured)
    if job.list == "paper":
        return paper
    offered = on_offer(job.menu, job.measured)
    budget = job.share * price(paper)
    if job.list == "random":
        return random_runs(offered, budget, np.random.default_rng([job.seed, 7]))
    chosen = anchors(
        before,
        offered,
        goal_runs(),
        budget,
        gain=LISTS[job.list].gain,
        least=0.0,
        checks=0,
        run_length=job.run_length,
        max_picks=LISTS[job.list].max_picks,
    )
    return chosen.runs(offered)


# -- what came of them -----------------------------------------------------------------


def scores(posterior: LawDraws, world: World) -> dict[str, float]:
    """Score the forecast of the goal: its error against the truth (and against noisy
    runs), its width, and its coverage.

    ``rmse``: of the median's log loss; ``width``: mean of the 90% interval's width over
    the median, of the law and of a ``_new`` run; ``coverage`` of those intervals;
    ``sd``: root mean square sd of the law's log loss over the goal.
    """
    goal = goal_runs()
    truth = world.truth(goal)
    noisy = np.log(world.measured(goal, 999)["loss"].to_numpy())
    law = posterior.log_loss(goal)
    new = posterior.log_loss(goal, noise=True, seed=world.seed)
    low, point, high = np.quantile(law, [0.05, 0.5, 0.95], 0)
    new_low, new_high = np.quantile(new, [0.05, 0.95], 0)
    return {
        "rmse": float(np.sqrt(np.mean((point - truth) ** 2))),
        "rmse_new": float(np.sqrt(np.mean((point - noisy) ** 2))),
        "width": float(np.mean(np.exp(high - point) - np.exp(low - point))),
        "width_new": float(np.mean(np.exp(new_high - point) - np.exp(new_low - point))),
        "coverage": float(np.mean((low <= truth) & (truth <= high))),
        "coverage_new": float(np.mean((new_low <= noisy) & (noisy <= new_high))),
        "sd": float(np.sqrt(law.var(axis=0, ddof=1).mean())),
    }


def plan_scores(
    target: LawDraws,
    source: LawDraws,
    worlds: Sequence[World],
    max_forgetting: float = 0.02,
    confidence: float = 0.9,
) -> dict[str, float]:
    """Score a posterior's plan: FLOPs over those of one who knows both laws, and how
    probably a run keeps both promises in truth.

    The result is NaN if no plan reaches the confidence.
    """
    from bayeslaw._designs.goals.plan import cheapest_plan

    # the paper's plan: the truth just keeps these promises there
    model = {"N": 8.1e9, "ptpp": 279.0}
    reference = pd.DataFrame([model | {"D": 8.9 * 8.1e9, "replay": 0.34}])
    # A run keeps both promises with the confidence if each is kept with the square root
    # of the confidence and only the run's own noise can break them.
    margin = np.exp(norm.ppf(confidence**0.5) * NOISE)
    target_loss, source_loss = (
        float(np.exp(world.truth(reference)[0])) * margin for world in worlds
    )
    question = model | {
        "max_target_loss": target_loss,
        "max_forgetting": max_forgetting,
        "baseline_loss": source_loss / (1 + max_forgetting),
        "confidence": confidence,
    }
    draws = len(target.values["sigma"])
    true_target, true_source = (world.known(draws) for world in worlds)
    try:
        plan = cheapest_plan(target, source, question)
        best = cheapest_plan(true_target, true_source, question)
    except PlanError:
        return {"plan_cost": float("nan"), "plan_kept": float("nan")}
    tokens, replay = np.exp(plan.choice.log_tokens), plan.choice.replay
    run = reference.assign(D=tokens, replay=replay)
    truth = np.array([world.truth(run)[0] for world in worlds])
    slack = (np.log([target_loss, source_loss]) - truth) / NOISE
    return {
        "plan_cost": plan.flops / best.flops,
        "plan_kept": float(np.prod(norm.cdf(slack))),
    }


# -- the study -------------------------------------------------------------------------


@dataclass(frozen=True)
class ListJob:
    """Identify one list of one world by the items that key its rows. `anchors_study`
    documents them; ``share`` is a share of the paper's cost.
    """

    law: str
    seed: int
    list: str
    share: float
    measured: str
    menu: str
    spread: float
    tau: float
    plan: bool

    @property
    def worlds(self) -> Sequence[World]:
        """Make the worlds of the target and, if plans are made, of the source."""
        target = World(self.law, self.seed, self.spread, self.tau)
        if not self.plan:
            return [target]
        return [target, World("ptpp-floor", self.seed + 5000, self.spread, self.tau)]

    @property
    def run_length(self) -> float | None:
        """Choose the e-folds over which a run's error changes; without ``tau`` points
        share no error.
        """
        return None if self.tau else 0.0

    @property
    def stream(self) -> int:
        """Number the random stream of the noise of bought runs, one for each list and
        share.
        """
        halvings = round(-np.log2(self.share))  # of the paper's cost
        return 1 + 10 * [*LISTS].index(self.list) + halvings


@lru_cache(maxsize=128)
def _known(world: World) -> tuple[pd.DataFrame, LawDraws]:
    """Measure what is known before anything is bought: runs at the early stages, and
    their posterior.
    """
    runs = world.measured(ptpp_grid().query("ptpp < 279"), 0)
    return runs, fit_world(world, runs)


def score_list(**items: Any) -> list[dict[str, Any]]:
    """Do one job of the study, and return a row with the cost and the scores of its
    list's runs.
    """
    runtime.start()
    job = ListJob(**items)
    worlds = job.worlds
    worlds_now = [_known(world) for world in worlds]
    posteriors = [posterior for _, posterior in worlds_now]
    row: dict[str, Any] = {}
    if job.share:
        before = posteriors
        runs = runs_of_list(job, before[0])
        row = _expected(job, runs, before[0])
        posteriors = []
        for world, (table, near) in zip(worlds, worlds_now, strict=True):
            losses = world.measured(runs, job.stream)
            table = pd.concat([table, losses], ignore_index=True)
            posteriors.append(fit_world(world, table, near))
    row |= scores(posteriors[0], worlds[0])
    if job.plan:
        row |= plan_scores(posteriors[0], posteriors[1], worlds)
    return [row]


def _expected(job: ListJob, runs: pd.DataFrame, before: LawDraws) -> dict[str, Any]:
    """Compute the cost of runs, and the sds of the goal that they are expected to
    leave.
    """
    goal = goal_runs()
    sd_before, sd_expected = appraise(before, runs, goal, run_length=job.run_length)
    return {
        "cost": price(runs) / price(paper_runs(job.measured)),
        "runs": runs["run"].nunique(),
        "points": len(runs),
        "sd_before": sd_before,
        "sd_expected": sd_expected,
    }


@dataclass(frozen=True)
class StudyArguments:
    # arguments of `anchors_study`, documented there

    path: Path | None = None
    _: KW_ONLY
    laws: Sequence[str] = ("ptpp-floor", "ptpp-gate", "ptpp-gate-floor")
    seeds: Sequence[int] = range(20)
    lists: Sequence[str] = tuple(LISTS)
    measured: str = "once"
    menu: str = "grid"
    spread: float = 0.0
    tau: float = 0.0
    plan: bool = False
    executor: Executor | None = None
    progress: Progress | None = None

    def check(self) -> None:
        """Refuse arguments that cannot be studied."""
        _check_one_of("measured", self.measured, ("once", "along", "trajectories"))
        _check_one_of("menu", self.menu, MENUS)
        for name in self.lists:
            if name not in LISTS:
                raise LawError(f"lists are of {', '.join(LISTS)}; got {name!r}")
        for name in self.laws:
            if not {"N", "D", "replay", "ptpp"} >= set(find(name).covariates):
                raise LawError(
                    f"law {name!r} reads more than N, D, replay and ptpp, which is all "
                    "that the study varies"
                )
        is_complete = self.laws and len(self.seeds) and self.lists
        if not (is_complete and 0 <= self.tau < 1 and 0 <= self.spread < 1):
            raise LawError(
                "a study needs at least one law, one seed and one list, and spread and "
                "tau between 0 and 1"
            )

    def jobs(self) -> Sequence[ListJob]:
        """List the jobs: one list for all worlds, then the next list."""
        worlds = [(law, int(seed)) for seed in self.seeds for law in self.laws]
        lists = [(name, share) for name in self.lists for share in LISTS[name].shares]
        return [
            ListJob(
                law=law,
                seed=seed,
                list=name,
                share=share,
                measured=self.measured,
                menu=self.menu,
                spread=float(self.spread),
                tau=float(self.tau),
                plan=self.plan,
            )
            for name, share in lists
            for law, seed in worlds
        ]


def _check_one_of(name: str, value: str, allowed: Iterable[str]) -> None:
    if value not in allowed:
        raise LawError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")


@takes(StudyArguments)
def anchors_study(arguments: StudyArguments) -> pd.DataFrame:
    """Simulate worlds, and make a row for each world and list of runs: cost, expected
    and realised sd, error, width, coverage (`scores`).

    Parameters
    ----------
    path
        CSV to which rows are written as worlds are done; rows in it are not made again.
    laws, seeds
        The truths, each with its own fit, and the seeds of the noise.
    lists
        What is bought: nothing, the paper's grid, runs chosen for the goal's variance
        (``few``: at most 20 of these), random runs, a D-optimal design. A list is made
        for all worlds before the next list.
    measured
        ``"once"``: every measurement is a run of its own, both in the paper's grid and
        on offer. ``"along"``: points of a run cost the run, also in the paper's grid
        (three runs). ``"trajectories"``: points of a run cost the run for runs on offer
        only.
    menu
        ``"grid"``: the paper's replays and tokens are on offer; ``"wide"``: more
        replays and tokens.
    spread
        Sd of the logarithms of each world's parameters around the law's plausible
        parameters.
    tau
        Sd of the part of the log loss that runs of one checkpoint share in the world.
        Fits allow for it. Errors along a run are then correlated, too.
    plan
        Measure the source, too, and plan with each posterior.
    executor, progress
        As for `study`.

    Raises
    ------
    LawError
        An unknown law or setting.
    """
    arguments.check()
    return study(
        score_list,
        [asdict(job) for job in arguments.jobs()],
        arguments.path,
        executor=arguments.executor,
        progress=arguments.progress,
    )

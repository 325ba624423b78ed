"""Run simulation-based calibration: draw parameters from the prior, simulate a table, and rank the truth in the posterior.

    python tests/studies/sbc.py [--laws chinchilla,ptpp-floor] [--simulations 100] [--shared] [-o FILE.md]

If posteriors are right, the share of draws below the truth is uniform over simulations (Talts et al. 2018), for every
parameter and for the log likelihood. The latter is the stronger test, because it also depends on the data (Modrák et al.
2023). Posteriors are drawn as in `compare`: by importance sampling if it can be trusted, else by NUTS. All posteriors
count, also those of chains that did not converge. A table with an implausible loss is drawn again. Shares stay uniform
under this rule, because it depends on the data alone.

Prints, for each law, the share of posteriors by NUTS, the number of chains that did not converge, the number of tables
drawn again, and the quantity that is least uniform. There are two measures of uniformity: the simultaneous band of the
empirical distribution (Säilynoja et al. 2022), and the number of truths in the outermost 1% of a posterior on either
side, which is the first to show that draws miss a thin tail.
"""

import argparse
import sys
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import pandas as pd

import bayeslaw
from bayeslaw._base.machine import runtime
from bayeslaw._inference import coordinates
from bayeslaw._inference import nuts as sampler
from bayeslaw._inference.importance import approximate
from bayeslaw._inference.modes import find_peaks, start_near_mode
from bayeslaw._inference.noise import ERROR, draw_errors
from bayeslaw._inference.ranks import ALPHA, shares_below, uniformity
from bayeslaw._inference.table import NONE, Padded, SharedError, pad, shared_error
from bayeslaw._law.columns import share_domains
from bayeslaw._law.law import Law, log_loss
from bayeslaw._tables.simulate import mixture_grid, ptpp_grid

ROWS = 48
MEASURED = (0.01, 100.0)  # nats per token: losses somebody could have measured
MIN_ESS = 200  # effective draws below which importance sampling gives way to NUTS; a share is then off by at most .035
NUTS = {"chains": 2, "warmup": 300, "draws": 400, "max_draws": 1600}
CONVERGED = 1.05  # R-hat above which chains are counted as not converged

# Runs of the papers: Bethune 2025 (fine-tuning), Muennighoff 2023 (repeated tokens), Wang 2025 (areas; 4 schedules of 12
# points), else the grid of Goffinet 2025
FINETUNING = {
    "N": (4e7, 1.3e9),
    "D": (3e5, 3e7),
    "replay": (0.001, 0.05),
    "loss_before": (2.0, 3.5),
}
REPEATED = {"N": (1e7, 1e10), "D": (1e9, 1e11), "U": (1e8, 1e11)}
DOMAINS = {"source_loss": (1.5, 5.0), "target_loss": (1.0, 5.0)}
PEAK_AREAS = (0.3, 60.0)


class Draws(NamedTuple):
    """Values by name, each of shape (draw,), their weights, sum 1, and how they were made."""

    values: dict[str, np.ndarray]
    weight: np.ndarray
    is_nuts: bool
    converged: bool


def design(law: Law, shared: bool = False) -> pd.DataFrame:
    """48 rows of the columns a law reads; with ``shared`` those that tell which rows share their error too."""
    rng, columns = np.random.default_rng(0), set(law.covariates)
    if "S1_pt" in columns:
        curves = [_curve(i, rng) for i in range(4)]
        return pd.concat(curves, ignore_index=True)
    grid = mixture_grid() if share_domains(law.covariates) else ptpp_grid()
    if share_domains(law.covariates) and not columns <= set(grid):
        # mixtures of checkpoints: these are from the other grid
        checkpoints = ptpp_grid().sample(len(grid), random_state=1)
        shares = grid.filter(like="share_").set_index(checkpoints.index)
        grid = pd.concat([checkpoints, shares], axis=1)
    if {"U", "replay"} <= columns:  # adaptations to small texts, of up to 16 epochs
        epochs = np.exp(rng.uniform(-1, np.log(16), len(grid)))
        grid = grid.assign(U=grid["D"] / epochs)
    if law.reference.get("N") == 334e6:
        ranges = FINETUNING
    else:
        ranges = REPEATED if "U" in columns else DOMAINS
    if ranges is FINETUNING or not columns <= set(grid):
        spans = {c: ranges[c] for c in law.covariates}
        return pd.DataFrame(
            {c: np.exp(rng.uniform(*np.log(v), ROWS)) for c, v in spans.items()}
        )
    runs = grid.sample(ROWS, random_state=0).sort_index()
    return runs if shared else runs[list(law.covariates)]


def _curve(i: int, rng: np.random.Generator) -> pd.DataFrame:
    """12 points of an adaptation of one checkpoint: areas grow with the step, annealing at the end."""
    step = np.linspace(500, 10_000, 12)
    s1 = 2e-4 * step * np.exp(rng.uniform(-1, 1))
    annealed = np.clip(step / 10_000 - 0.6, 0, None) * rng.uniform(0, 0.5)
    start = np.exp(rng.uniform(*np.log(PEAK_AREAS)))
    constants = {
        "S1_pt": start,
        "S2_pt": rng.uniform(-0.3, 0.3),
        "replay": 0.2 * i,
        "N": 1e8 * 3.0**i,
    }
    return pd.DataFrame(
        {"step": step, "S1_cpt": s1, "S2_cpt": annealed, "run": f"run{i}", **constants}
    )


# -- one simulation ----------------------------------------------------------------------------------------------------


def draw_error(shared: SharedError, rng: np.random.Generator) -> dict[str, float]:
    """The error's parameters from their priors."""
    error = {
        "sigma": float(ERROR.sigma.draw(rng, 1)[0]),
        "dof_above_2": float(rng.gamma(ERROR.dof_shape, 1 / ERROR.dof_rate)),
    }
    if shared.kind == "checkpoint":
        error["tau_checkpoint"] = ERROR.tau_checkpoint.args[1] * rng.standard_normal()
    if shared.kind == "run":
        error["tau_run"] = float(ERROR.tau_run.draw(rng, 1)[0])
    if shared.along_run:
        error["run_length"] = float(
            (ERROR.curve_length if shared.kind == "run" else ERROR.ladder_length).draw(
                rng, 1
            )[0]
        )
    return error


def draw_table(law: Law, x: dict, shared: SharedError, rng: np.random.Generator):
    """True values and error from the prior, a table of log losses from them, and how many tables were drawn again."""
    for again in range(10_000):
        values = {n: float(p.draw(rng, 1)[0]) for n, p in law.priors.items()}
        error = draw_error(shared, rng)
        y = np.asarray(_mean(law, x, values)) + draw_errors(ROWS, error, shared, rng)
        if np.all((np.log(MEASURED[0]) < y) & (y < np.log(MEASURED[1]))):
            return values, error, y, again
    raise RuntimeError(
        f"law {law.name!r}: its prior gives no table with losses in {MEASURED} nats"
    )


_mean = jax.jit(log_loss, static_argnums=0)


def draw_posterior(
    law: Law, table: Padded, at: coordinates.ContrastPoints, seed: int
) -> Draws:
    """Draws of the posterior of a table, from starts that know nothing of the truth."""
    peaks = find_peaks(law, table, at, start_near_mode(law, table, at, seed)[None])
    found = approximate(law, table, at, peaks, seed=seed)
    if found.is_trusted(MIN_ESS):
        return Draws(found.values, found.weight, False, True)
    problem = sampler.whitened_at(table, at, peaks[0])
    values, note = sampler.draw(law, problem, sampler.NUTS(**NUTS), seed=seed)
    n = len(values["sigma"])
    return Draws(values, np.full(n, 1 / n), True, note["rhat"] < CONVERGED)


# -- many --------------------------------------------------------------------------------------------------------------


class Result(NamedTuple):
    """``shares``: of the posterior below the truth, by quantity, each of shape (simulation,)."""

    shares: dict[str, np.ndarray]
    nuts: int
    not_converged: int
    again: int
    seconds: float

    @property
    def p_values(self) -> dict[str, float]:
        return {n: uniformity(v) for n, v in self.shares.items()}


def calibrate(
    law: Law,
    simulations: int,
    *,
    shared: bool = False,
    seed: int = 0,
    progress=lambda done: None,
) -> Result:
    """Simulate, fit and rank."""
    began, runs = time.perf_counter(), design(law, shared)
    x = {c: runs[c].to_numpy(float) for c in law.covariates}
    structure = shared_error(runs) if shared else NONE
    at, rng = coordinates.contrast_points(law, x), np.random.default_rng(seed)
    rows, nuts, not_converged, again = [], 0, 0, 0
    for i in range(simulations):
        values, error, y, redrawn = draw_table(law, x, structure, rng)
        table = pad(x, y, structure)
        draws = draw_posterior(law, table, at, seed=i)
        rows.append(
            shares_below(law, table, draws.values, draws.weight, values | error)
        )
        nuts, not_converged, again = (
            nuts + draws.is_nuts,
            not_converged + (not draws.converged),
            again + redrawn,
        )
        progress(i + 1)
    shares = {n: np.array([r[n] for r in rows]) for n in rows[0]}
    return Result(shares, nuts, not_converged, again, time.perf_counter() - began)


# -- the table ---------------------------------------------------------------------------------------------------------

HEAD = (
    "law",
    "error",
    "simulations",
    "by NUTS",
    "not converged",
    "tables drawn again",
    "quantities",
    "least uniform",
    "its p",
)


def row(
    law: Law, shared: bool, simulations: int, seed: int
) -> tuple[list[str], dict[str, float]]:
    """A row of the table, and the p-value of each quantity."""

    def progress(done: int) -> None:
        if done % 25 == 0:
            print(f"{law.name}: {done} of {simulations}", file=sys.stderr, flush=True)

    kind = shared_error(design(law, True)).kind if shared else None
    result = calibrate(law, simulations, shared=shared, seed=seed, progress=progress)
    p = result.p_values
    worst = min(p, key=lambda n: p[n])
    print(
        f"{law.name}: {result.seconds:.0f} s; "
        + ", ".join(f"{n} {v:.2g}" for n, v in p.items()),
        file=sys.stderr,
    )
    cells = (
        f"{result.nuts / simulations:.0%}",
        str(result.not_converged),
        str(result.again),
        str(len(p)),
        worst,
    )
    return [
        law.name,
        f"shared by {kind}" if kind else "independent",
        str(simulations),
        *cells,
        f"{p[worst]:.2g}",
    ], p


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--laws", default=",".join(law.name for law in bayeslaw.laws()))
    parser.add_argument("--simulations", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--shared",
        action="store_true",
        help="rows share the errors of their checkpoint or run",
    )
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    runtime.start()
    warnings.simplefilter("ignore")
    lines, found = [HEAD, ["---"] * len(HEAD)], []
    for name in options.laws.split(","):
        cells, p = row(
            bayeslaw.law(name), options.shared, options.simulations, options.seed
        )
        lines.append(cells)
        found += list(p.values())
        table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        least = min(found)
        said = "uniform" if least > ALPHA / len(found) else "NOT uniform"
        table += f"\n\n{len(found)} quantities, smallest p {least:.2g}: {said} at {ALPHA:.0%} over all (limit {ALPHA / len(found):.2g})\n"
        if options.output:
            options.output.write_text(table)
    print(table)


if __name__ == "__main__":
    main()

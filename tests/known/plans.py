"""Planning problems whose truth is known."""

from dataclasses import dataclass, field, replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from bayeslaw import law, plan
from bayeslaw._inference.discrepancy.process import process_of
from bayeslaw._plans.constraint import Constraint
from bayeslaw._plans.sampled import Part, SampledConstraint
from bayeslaw._plans.search import Problem
from bayeslaw._posteriors.posterior import LogLoss, Piece
from known import example

N, PTPP = example.QUESTION["N"], example.QUESTION["ptpp"]
DRAWS = 256  # of most posteriors here: one shape, compiled once
SEARCH = 2e-3  # relative error of tokens that the search over replay may leave


@dataclass(frozen=True, eq=False)
class Draws:
    """A posterior made of pieces, with the table that it keeps, if any."""

    of: tuple[Piece, ...]
    warnings: tuple[str, ...] = ()
    runs: pd.DataFrame | None = None
    name: str = "known"
    attrs: dict[str, str] = field(default_factory=dict)

    def pieces(self):
        return self.of

    def log_loss(self, runs, *, noise=False, seed=0):
        raise NotImplementedError


@cache
def formula(name):
    """One function per law, so that nothing is compiled twice."""
    return lambda values, covariates: jnp.log(law(name).loss(covariates, values))


def spread(values, sd, draws, seed):
    """Log-normal draws around values, shape (draw,)."""
    rng = np.random.default_rng(seed)
    return {
        k: float(v) * np.exp(sd * rng.standard_normal(draws)) for k, v in values.items()
    }


def piece(name, parameters, sd=0.0, draws=1, seed=0, sigma=None):
    values = spread(law(name).from_paper(parameters), sd, draws, seed)
    if sigma is not None:
        values |= {"sigma": np.full(draws, sigma), "dof": np.full(draws, 5.0)}
    return Piece(formula(name), values, law(name).covariates)


def target(**options):
    return Draws((piece(example.TARGET_LAW, example.TARGET, **options),))


def source(**options):
    return Draws(
        (piece(example.SOURCE_LAW, example.SOURCE, **({"seed": 1} | options)),)
    )


def state_source(v, x, xp=jnp):
    """S0 + (S1 - S0) a e^(-kappa r) (1 - e^(-D/D1)): the source loss rises with tokens."""
    before = x["source_loss_before"]
    rise = v["a"] * xp.exp(-v["kappa"] * x["replay"]) * -xp.expm1(-x["D"] / v["D1"])
    return xp.log(before + (v["S1"] - before) * rise)


def state_target(v, x, xp=jnp):
    """T1 + (T0 - T1) (1 + D (1-r)^q / D1)^-beta, T1 = c S0."""
    floor = v["c"] * x["source_loss_before"]
    return xp.log(
        floor
        + (x["loss_before"] - floor)
        * (1 + x["D"] * (1 - x["replay"]) ** v["q"] / v["D1"]) ** -v["beta"]
    )


def dip_source(v, x, xp=jnp):
    """Falls, then rises: forgetting is within its limit between two budgets."""
    z = xp.log(x["D"] / v["D1"])
    return xp.log(v["L"] + v["w"] * (1.2 - x["replay"]) * z**2)


def wave_source(v, x, xp=jnp):
    """Rises and falls again and again, as a law that drifts at the ends of its training runs may."""
    z = xp.log(x["D"] / v["D1"])
    return xp.log(v["L"] + v["w"] * (1.2 - x["replay"]) * (1 + xp.sin(1.2 * z)))


STATE = {"loss_before": 3.1, "source_loss_before": 2.4}
STATE_SOURCE = {"S1": 2.7, "a": 0.9, "kappa": 4.0, "D1": 3e10}
STATE_TARGET = {"c": 0.8, "q": 1.0, "D1": 2e9, "beta": 0.35}
STATE_NAMES = ("loss_before", "source_loss_before", "D", "replay")


def target_piece(seed=0, sd=0.05, draws=DRAWS):
    values = spread(STATE_TARGET, sd, draws, seed)
    return Piece(state_target, values, STATE_NAMES)


def source_piece(seed=1, sd=0.05, draws=DRAWS):
    values = spread(STATE_SOURCE, sd, draws, seed)
    return Piece(state_source, values, STATE_NAMES[1:])


def state_plan(sd=0.05, draws=DRAWS, **options):
    t = Draws((target_piece(sd=sd, draws=draws),))
    s = Draws((source_piece(sd=sd, draws=draws),))
    asked = {
        "N": 1e9,
        "ptpp": 30,
        "max_target_loss": 2.45,
        "max_forgetting": 0.03,
        "covariates": STATE,
    }
    return plan(t, s, **({"new_run": False} | asked | options))


def example_plan(sd=0.0, count=1, sigma=None, **options):
    made = {"sd": sd, "draws": count, "sigma": sigma}
    return plan(target(**made), source(**made), **(example.QUESTION | options))


def promise(name, function, values, fixed, limit, baseline=None, noise=0.0, model=N):
    draws = len(next(iter(values.values())))
    rows = np.arange(draws)
    leaves = {k: np.asarray(v) for k, v in values.items()}
    held = {k: np.full(draws, float(v)) for k, v in fixed.items()}
    unit = "loss" if baseline is None else "relative"
    base = np.full(draws, 1.0 if baseline is None else baseline)
    span = (float(np.log(model * 1e-4)), float(np.log(model * 1e4)))
    wiggle = noise * np.random.default_rng(len(name)).standard_normal(draws)
    part = Part(Piece(function, leaves, (*held, "D", "replay")), rows, held)
    return SampledConstraint(Constraint(name, limit, unit), (part,), base, wiggle, span)


def numpy_form(values, D, replay, ptpp=PTPP):
    """Forms 1 and 3 in numpy, from the paper's equations; values of shape (draw, 1, 1)."""
    v = {k: np.asarray(a)[:, None, None] for k, a in values.items()}
    b = (
        v["beta"] * (1 - v["lam"] / (1 + ptpp ** -v["zeta"]))
        if "lam" in v
        else v["beta"]
    )
    r = np.clip(replay, 1e-9, 1 - 1e-9)
    data = v["B"] * r ** v["nu"] * np.exp(-b * np.log(D))
    floors = v["E"] + v["A"] * N ** -v["alpha"] + v["F"] * ptpp ** -v["eta"]
    return np.log(floors + data + v["C"] * (r + 1e-5) ** -v["gamma"])


def published(name, values):
    """Parameters in the paper's units, per draw."""
    return {k: np.asarray(v) for k, v in jax.vmap(law(name).to_paper)(values).items()}


def random_problem(seed):
    """Forms 3 and 1 around random parameters, asked for what a random plan gives: the kind of odd seeds has noise."""
    rng = np.random.default_rng(seed)
    draws, noise = DRAWS, 0.004 * (seed % 2)
    sets = {}
    for name, center in (
        (example.TARGET_LAW, example.TARGET),
        (example.SOURCE_LAW, example.SOURCE),
    ):
        around = {
            k: v * np.exp(0.15 * rng.standard_normal()) for k, v in center.items()
        }
        sets[name] = spread(
            law(name).from_paper(around), 0.02, draws, rng.integers(2**31)
        )
    paper = {k: published(k, v) for k, v in sets.items()}
    losses = {k: (lambda d, r, k=k: numpy_form(paper[k], d, r)) for k in sets}
    asked, replay = 12 * N, rng.uniform(0.1, 0.6)
    limit, base = (float(np.exp(np.median(f(asked, replay)))) for f in losses.values())
    fixed = {"N": N, "ptpp": PTPP}
    promises = (
        promise(
            "target",
            formula(example.TARGET_LAW),
            sets[example.TARGET_LAW],
            fixed,
            limit,
            noise=noise,
        ),
        promise(
            "forgetting",
            formula(example.SOURCE_LAW),
            sets[example.SOURCE_LAW],
            fixed,
            0.01,
            base / 1.01,
            noise,
        ),
    )
    return Problem(promises, float(rng.uniform(0.6, 0.95)), N, PTPP), list(
        losses.values()
    )


# limits that uncertain laws can keep
LOOSER = {"loss": lambda limit: 1.06 * limit, "relative": lambda limit: limit + 0.09}


def missed_problem(seed):
    """A `random_problem` whose laws miss the truth by one percent, smoothly, and by more beyond the runs."""
    problem, losses = random_problem(seed)
    runs = {
        "N": np.geomspace(N / 50, N, 12),
        "D": np.geomspace(1e8, 1e11, 12)[[7, 1, 10, 3, 8, 0, 11, 4, 9, 2, 6, 5]],
        "replay": np.resize([0.05, 0.25, 0.5], 12),
        "ptpp": np.resize([15.0, 31.0], 12),
    }
    process = process_of(runs)
    scales = np.log([p.args[0] for p in process.priors.values()])
    sd = np.exp(0.5 * process.spectrum.log_variances(scales))
    rng = np.random.default_rng([seed, 5])
    constraints, missed = [], []
    names = example.TARGET_LAW, example.SOURCE_LAW
    for name, constraint, alone in zip(names, problem.constraints, losses, strict=True):
        weights = sd * rng.standard_normal((DRAWS, process.size))
        (part,) = constraint.parts
        values = part.piece.values | {"misfit": weights}
        log_loss = LogLoss(law(name), process)
        part = replace(
            part, piece=replace(part.piece, log_loss=log_loss, values=values)
        )
        looser = constraint.with_limit(
            LOOSER[constraint.constraint.unit](constraint.limit)
        )
        constraints.append(replace(looser, parts=(part,)))

        def loss(d, r, alone=alone, weights=weights):
            at = {"N": np.float64(N), "ptpp": np.float64(PTPP), "D": d, "replay": r}
            features = process.features(at, np)[0]  # (replay, tokens, function)
            return alone(d, r) + np.tensordot(weights, features, (1, 2))

        missed.append(loss)
    return replace(problem, constraints=tuple(constraints)), missed


def numpy_loss(parameters, D, replay):
    return float(
        np.exp(numpy_form({k: [v] for k, v in parameters.items()}, D, replay)).item()
    )


WIDE = {"sd": 0.01, "count": DRAWS, "new_run": False}

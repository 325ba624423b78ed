"""Model the error of a run on log loss: Student-t with its own scale, plus effects that
runs of one checkpoint, or points of one learning curve, share.

This file has the error's priors, its distribution, and its draws for a new run.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array
from scipy.special import gammaln, stdtrit

from bayeslaw._base.numbers import Z90
from bayeslaw._inference.table import (
    KINDS,
    OF_CHECKPOINT,
    SharedError,
    group_labels,
    join_names,
)
from bayeslaw._law.law import Values
from bayeslaw._law.priors import Prior, lognormal, normal
from bayeslaw._tables.rows.levels import find_checkpoints

if TYPE_CHECKING:
    import numpyro.distributions as dist
    from jaxtyping import Float, Int

    from bayeslaw._base.arrays import AnyArray

# names of the error's draws in a posterior, the fields of `RunNoise`
NOISE = (
    "sigma",
    "dof",
    "tau_model",
    "tau_checkpoint",
    "tau_run",
    "tau_setting",
    "run_length",
)


class ErrorPrior(NamedTuple):
    """Priors of the scales and tails of a run's error on log loss."""

    # Scale of a run's own error. Seeds differ by .1% (billions of parameters) to .6%
    # (tiny models). The fits of Bethune 2025 and Wang 2025 miss by .2-1%.
    sigma: Prior = lognormal(
        0.005, 1.0, "seeds differ by .1-.6%; published fits miss by .2-1%"
    )
    # Tails: gamma of degrees of freedom - 2, so that the noise has a variance. Juarez
    # and Steel 2010 use gamma(2, .1) on all of it.
    dof_shape: float = 2.0
    dof_rate: float = 0.1
    dof_min: float = 2.0
    # Scale of the effect that runs from one checkpoint share, half-normal. For the
    # sampler it is a signed normal, so that the posterior has no boundary at 0: effects
    # are the scale times a symmetric z, so the sign has no effect. `density.unsigned`
    # drops the sign. Measured on tiny models: .36%. With a wide prior, effects replace
    # the law: with a half-normal of .02 an effect was 4.6%, and the error of the
    # forecast at a new stage rose from 1.4% to 7%.
    tau_checkpoint: Prior = normal(0.0, 0.004)
    # Scale of the effect that points of one learning curve share. Three curves do not
    # determine it; two seeds of a configuration do.
    tau_run: Prior = lognormal(
        0.002, 0.5, "seeds differ by .1-.6% (Bethune 2025, Wang 2025, tiny models)"
    )
    # Scale of the effect that runs share which are alike but in a tuned setting: what
    # laws miss, as `sigma` is for runs that share nothing.
    tau_setting: Prior = lognormal(0.005, 1.0, "as sigma: fits miss by .2-1%")
    # Correlation length of the remaining error along a run, in e-folds of steps or
    # tokens.
    curve_length: Prior = lognormal(
        0.1, 0.5, "unpublished; what is alike for longer is the effect of the run"
    )
    ladder_length: Prior = lognormal(
        1.0, 0.7, "unpublished; from one measurement to the next, to the whole run"
    )


ERROR = ErrorPrior()
# degrees of freedom at which a Student-t is a Gaussian
GAUSSIAN = 1e9


def error_names(shared: SharedError) -> list[str]:
    """List the scalar sites of the error."""
    names = ["sigma", "dof_above_2"]
    if shared.kind is not None:
        names.append(f"tau_{shared.kind}")
    if shared.along_run:
        names.append("run_length")
    return names


def error_priors(shared: SharedError) -> dict[str, Prior]:
    """Collect the priors of the error's scalar sites, but ``dof_above_2``."""
    priors = {
        "sigma": ERROR.sigma,
        "tau_checkpoint": ERROR.tau_checkpoint,
        "tau_run": ERROR.tau_run,
        "tau_setting": ERROR.tau_setting,
        "run_length": (
            ERROR.curve_length if shared.kind == "run" else ERROR.ladder_length
        ),
    }
    return {name: priors[name] for name in error_names(shared) if name in priors}


def error_sites(shared: SharedError) -> dict[str, dist.Distribution]:
    """Collect the error's scalar priors by name, as NumPyro distributions."""
    # imported here, because NumPyro takes a while, and a saved posterior or a preview
    # does not need it
    import numpyro.distributions as dist

    priors = {name: p.distribution() for name, p in error_priors(shared).items()}
    priors["dof_above_2"] = dist.Gamma(ERROR.dof_shape, ERROR.dof_rate)
    return {name: priors[name] for name in error_names(shared)}


def log_prior_of_error(error: Values, shared: SharedError) -> dict[str, Array]:
    """Compute the log prior density of each scalar site of the error at its value."""
    priors = error_priors(shared)
    log_p = log_prior_of_dof(error["dof_above_2"])
    of_dof = {"dof_above_2": jnp.asarray(log_p)}
    return of_dof | {name: p.log_density(error[name]) for name, p in priors.items()}


def log_wall(
    log_sigma: Float[AnyArray, ""], rounding: float = 1e-5, steepness: float = 8
) -> Float[Array, ""]:
    """Compute a penalty on the log density for error scales near rounding. It is so
    steep that at the noise of real runs it is 0 in double precision.

    Losses are printed to some five digits. If a law follows a table to the last digit,
    the likelihood grows without bound as the scale falls.
    """
    return -jnp.exp(steepness * (math.log(rounding) - log_sigma))


def log_prior_of_dof(
    above_2: Float[AnyArray, "*dof"], xp: ModuleType = jnp
) -> Float[AnyArray, "*dof"]:
    """Compute the log prior density of the degrees of freedom above 2."""
    shape, rate = ERROR.dof_shape, ERROR.dof_rate
    log_size = math.lgamma(shape) - shape * math.log(rate)
    log_power = (shape - 1) * xp.log(above_2)
    return log_power - rate * above_2 - log_size


def constrain_error(sites: Values, shared: SharedError) -> dict[str, Array]:
    """Convert NumPyro's unconstrained sites to the error's values: ``tau_checkpoint``
    unchanged, the exponential of the others.
    """
    return {
        name: sites[name] if name == "tau_checkpoint" else jnp.exp(sites[name])
        for name in error_names(shared)
    }


def unconstrain_error(
    values: Mapping[str, Float[np.ndarray, " draw"]], shared: SharedError
) -> dict[str, Float[np.ndarray, " draw"]]:
    """Invert `constrain_error` for draws."""
    return {
        name: values[name] if name == "tau_checkpoint" else np.log(values[name])
        for name in error_names(shared)
    }


def error_values(sites: Values, shared: SharedError) -> dict[str, Array]:
    """Apply `constrain_error`, and add the degrees of freedom as ``dof``."""
    error = constrain_error(sites, shared)
    dof = ERROR.dof_min + error["dof_above_2"]
    return error | {"dof": dof}


def log_density_of_error(
    error: Values,
    scale: Float[AnyArray, "*#row"],
    residual: Float[AnyArray, "*#row"],
) -> Float[Array, "*row"]:
    """Compute the log density of Student-t errors of this scale, with the degrees of
    freedom of ``error``, shape (row,).

    This is JAX's density. NumPyro's evaluates two gamma functions for every row,
    although all rows have the same degrees of freedom, and this took most of a
    posterior's time.
    """
    dof = ERROR.dof_min + error["dof_above_2"]
    return jax.scipy.stats.t.logpdf(residual, dof, 0.0, scale)


def log_student(
    standard: Float[np.ndarray, "*error"], dof: Float[np.ndarray, "*#error"] | float
) -> Float[np.ndarray, "*error"]:
    """Compute the log density of Student-t errors with scale 1 in NumPy, because
    scipy's statistics take a third of a second to import.
    """
    log_norm = gammaln((dof + 1) / 2) - gammaln(dof / 2) - 0.5 * np.log(dof * np.pi)
    return log_norm - 0.5 * (dof + 1) * np.log1p(standard**2 / dof)


def _make_absent() -> Float[np.ndarray, " 1"]:
    """Return the scale of an absent effect, shape (1,), for all draws."""
    return np.zeros(1)


# By kind, the sd, relative to that of an effect, by which a learned effect of a group is
# another one for its new run, of other replay (docs/state_laws.md). At 0 forecasts of
# stages and replays left out are narrower and hold up to a tenth less than stated. Runs of
# a setting are alike but in their seed.
CHANGE = {"model": 0.7, "checkpoint": 0.7, "run": 0.7, "setting": 0.0}
# variance by which the effect of a model or checkpoint changes with each e-fold of tokens
# beyond its fitted rows, relative to that of an effect (docs/state_laws.md)
CHANGE_BY_TOKENS = 1.0


@dataclass(frozen=True, eq=False)
class Learned:
    """Draws of the effect of a group of fitted rows, shape (draw,), and the most
    ``tokens`` of these rows; infinite where effects do not change with tokens.
    """

    draws: Float[np.ndarray, " draw"]
    tokens: float = math.inf

    def take(self, index: Int[np.ndarray, " taken"]) -> Learned:
        """Select the draws ``index``."""
        return replace(self, draws=self.draws[index])

    def open_share(self, kind: str, tokens: float) -> float:
        """Compute the variance of the effect that is open for a new run with so many
        tokens, relative to that of an unknown effect.
        """
        beyond = math.log(max(tokens / self.tokens, 1.0))
        return CHANGE[kind] ** 2 + CHANGE_BY_TOKENS * beyond


Effects = Mapping[str, Mapping[str, Learned]]
"""Learned effects of a law's rows, by kind of group and its label."""


@dataclass(frozen=True, eq=False)
class RunNoise:
    """Draws of the error of a run on log loss.

    Parameters
    ----------
    sigma, dof
        Scale and degrees of freedom of a run's own Student-t error, shape (draw,).
    tau_checkpoint, tau_run, tau_setting
        Scales of the normal effects of its checkpoint, of its curve and of its setting,
        shape (draw,); by default there are none.
    run_length
        Correlation length of the own error along a run, in e-folds, shape (draw,). By
        default it is 0: points have independent errors.
    tau_model
        Scale of the normal effect of its run of pre-training, shape (draw,).
    """

    sigma: Float[np.ndarray, " draw"]
    dof: Float[np.ndarray, " draw"]
    tau_checkpoint: Float[np.ndarray, " #draw"] = field(default_factory=_make_absent)
    tau_run: Float[np.ndarray, " #draw"] = field(default_factory=_make_absent)
    tau_setting: Float[np.ndarray, " #draw"] = field(default_factory=_make_absent)
    run_length: Float[np.ndarray, " #draw"] = field(default_factory=_make_absent)
    tau_model: Float[np.ndarray, " #draw"] = field(default_factory=_make_absent)

    @classmethod
    def of(cls, values: Mapping[str, Float[np.ndarray, " draw ..."]]) -> RunNoise:
        """Build the noise from a posterior's draws, by name."""
        fields = {name: values[name] for name in NOISE if name in values}
        return cls(**fields)

    @classmethod
    def of_piece(
        cls,
        values: Mapping[str, Float[np.ndarray, " draw ..."]],
        left: Mapping[str, float] = MappingProxyType({}),
    ) -> RunNoise:
        """Build the noise from the leaves of a `Piece`, whose ``sigma`` is the total
        error of a new run; Gaussian if there is no ``dof``. ``left``: as in `given`.
        """
        sigma = values["sigma"]
        dof = values.get("dof", np.full(len(sigma), GAUSSIAN))
        scales = [f"tau_{kind}" for kind in KINDS]
        effects = {name: values[name] for name in scales if name in values}
        shared = cls(sigma, dof, **effects).shared_variance
        own_scale = np.sqrt(np.maximum(sigma**2 - shared, 0.0))
        return cls(own_scale, dof, **effects).given(left).of_new_run()

    def given(self, left: Mapping[str, float]) -> RunNoise:
        """Reduce the effects of kinds of groups to the share of variance that is ``left``,
        because they are known.
        """
        scales = {k: getattr(self, f"tau_{k}") for k in left}
        return replace(
            self, **{f"tau_{k}": math.sqrt(left[k]) * v for k, v in scales.items()}
        )

    # -- of a new run ------------------------------------------------------------------

    @property
    def scale(self) -> Float[np.ndarray, " draw"]:
        """Compute the scale of a new run's error, with its new effects."""
        return np.sqrt(self.sigma**2 + self.shared_variance)

    @property
    def shared_variance(self) -> Float[np.ndarray, " #draw"]:
        """Compute the variance of all effects of a new run, shape (draw,)."""
        of_kinds = [getattr(self, f"tau_{kind}") ** 2 for kind in KINDS]
        return np.sum(np.broadcast_arrays(*of_kinds), axis=0)

    @property
    def variance(self) -> Float[np.ndarray, " draw"]:
        """Compute the variance of a new run's error with its effects, shape (draw,);
        infinite with two degrees of freedom or fewer.
        """
        beyond_two = np.maximum(self.dof - 2, 0.0)
        with np.errstate(divide="ignore"):
            own_variance = self.sigma**2 * self.dof / beyond_two
        return own_variance + self.shared_variance

    def of_new_run(self) -> RunNoise:
        """Merge a new run's effects into its own error: a Student-t with the same 90%
        interval, within 3%.

        Half widths of the parts add up like sds. The smaller the run's own part of the
        scale, the thinner the tails.
        """
        shared = self.shared_variance
        if not shared.any():
            return RunNoise(self.sigma, self.dof)
        own_width = self.sigma * stdtrit(self.dof, 0.95)
        share = self.sigma**2 / np.maximum(self.scale**2, 1e-300)
        # a run whose own error is a smaller share of the scale counts as Gaussian
        dof = self.dof / np.maximum(share, 1e-3)
        width = np.sqrt(own_width**2 + Z90**2 * shared)
        return RunNoise(width / stdtrit(dof, 0.95), dof)

    # -- a run's own -------------------------------------------------------------------

    @property
    def capped_variance(self) -> Float[np.ndarray, " draw"]:
        """Variance of a run's own error, shape (draw,), but at most twice its squared
        scale, because the variance is infinite at two degrees of freedom.
        """
        heavy = np.minimum(self.dof / (self.dof - 2), 2.0)
        return self.sigma**2 * heavy

    @property
    def learned_at(self) -> float:
        """Variance of the Gaussian error that is as informative: Student-t's inverse
        Fisher information (Lange, Little and Taylor 1989), mean over draws.
        """
        variance = self.sigma**2 * (self.dof + 3) / (self.dof + 1)
        return float(np.mean(variance))

    def correlation(
        self, gap: Float[np.ndarray, "*pair"], draws: int = 200
    ) -> Float[np.ndarray, "*pair"]:
        """Compute the correlation between two points of a run that are ``gap`` e-folds
        apart, in the shape of ``gap``: the mean over about ``draws`` draws.
        """
        if not self.run_length.any():
            return (gap == 0).astype(float)
        step = max(1, len(self.run_length) // draws)
        few = np.maximum(self.run_length[::step], 1e-12)
        return np.exp(-gap[..., None] / few).mean(axis=-1)

    def draw(
        self, runs: int, rng: np.random.Generator
    ) -> Float[np.ndarray, "draw run"]:
        """Draw runs' own errors, shape (draw, run)."""
        size = (len(self.sigma), runs)
        if np.all(self.dof >= GAUSSIAN):
            standard = rng.standard_normal(size)
        else:
            standard = rng.standard_t(self.dof[:, None], size)
        return self.sigma[:, None] * standard

    def draw_shared(
        self,
        rows: pd.DataFrame,
        columns: Sequence[str],
        rng: np.random.Generator,
        known: Effects = MappingProxyType({}),
    ) -> Float[np.ndarray, "draw row"]:
        """Draw the effects that rows of one checkpoint, run or setting share, shape
        (draw, row). ``columns`` are those that laws read; all groups that are not
        ``known`` are new.
        """
        total = np.zeros((len(self.sigma), len(rows)))
        tokens = tokens_of(rows)
        for kind in KINDS:
            scale = getattr(self, f"tau_{kind}")
            if not scale.any():
                continue
            names = group_labels(kind, rows, columns)
            # without the column, every row has its own effect
            apart = np.arange(len(rows))
            code, groups = pd.factorize(apart if names is None else names)
            effects = draw_new_effects(scale, len(groups), rng)[:, code]
            learned = find_learned(known, kind, rows, columns)
            for row, effect in learned.items():
                left = math.sqrt(effect.open_share(kind, tokens[row]))
                effects[:, row] = effect.draws + left * effects[:, row]
            total += effects
        return total

    def size_with(
        self,
        size: Float[np.ndarray, "*#draw row"] | float,
        row_sd: Float[np.ndarray, " row"],
    ) -> Float[np.ndarray, "*draw_row"]:
        """Compute the size of the rows' own errors, relative to `sigma`, with the
        stated errors ``row_sd`` of log loss added in quadrature, shape (draw, row).
        Without stated errors ``size`` is returned.
        """
        if not row_sd.any():
            return np.asarray(size)
        return np.hypot(size, row_sd / self.sigma[:, None])

    def density(
        self, error: Float[np.ndarray, "draw run"]
    ) -> Float[np.ndarray, "draw run"]:
        """Compute the density of runs' own errors, shape (draw, run)."""
        sigma = self.sigma[:, None]
        dof = self.dof[:, None]
        return np.exp(log_student(error / sigma, dof)) / sigma


def tokens_of(rows: pd.DataFrame) -> Float[np.ndarray, " row"]:
    """Read the tokens of rows; 0 where laws read none."""
    return rows["D"].to_numpy(float) if "D" in rows else np.zeros(len(rows))


def find_learned(
    learned: Effects, kind: str, rows: pd.DataFrame, columns: Sequence[str]
) -> dict[int, Learned]:
    """Find the learned effect of each row's group of a kind, by the position of the row;
    rows of other groups are left out. A checkpoint without a name is found by its size
    and stage as people round them. ``learned``, ``columns``: as in
    `RunNoise.draw_shared`.
    """
    of_kind = learned.get(kind, {})
    if of_kind and kind in OF_CHECKPOINT:
        rows = _snap(kind, rows, of_kind)
    names = group_labels(kind, rows, columns) if of_kind else None
    if names is None:
        return {}
    if kind == "checkpoint" and "seed" in rows:
        # where seeds of a checkpoint are known, a row that names one is of that seed
        full = join_names(rows.assign(name=names), ["name", "seed"])
        has_seeds = [any(k.startswith(f"{n} ") for k in of_kind) for n in names]
        names = names.mask(np.array(has_seeds), full)
    by_row = enumerate(map(str, names))
    return {row: of_kind[name] for row, name in by_row if name in of_kind}


def _snap(kind: str, rows: pd.DataFrame, known: Collection[str]) -> pd.DataFrame:
    """Replace the size and stage of rows by those that begin a known label, where these
    are the same up to what people round by hand.
    """
    columns = ["N", "ptpp"] if kind == "checkpoint" else ["N"]
    if not {*columns} <= set(rows):
        return rows
    parts = [label.split()[: len(columns)] for label in known]
    whole = [part for part in parts if len(part) == len(columns)]
    levels = pd.DataFrame(whole, columns=columns).apply(pd.to_numeric, errors="coerce")
    levels = levels.dropna().drop_duplicates()
    if levels.empty:
        return rows
    at = find_checkpoints(rows, levels)
    found = levels.iloc[at].set_index(rows.index)
    return rows.assign(**{c: rows[c].where(at < 0, found[c]) for c in columns})


def draw_errors(
    rows: int,
    error: Mapping[str, float],
    shared: SharedError,
    rng: np.random.Generator,
) -> Float[np.ndarray, " row"]:
    """Simulate errors of the rows of a table on log loss, as in the likelihood: new
    effects of their groups, and along a run an autoregression with Student-t
    innovations.

    Parameters
    ----------
    error
        Values of the sites of `error_sites`.
    """
    effect = np.zeros(rows)
    if shared.kind is not None:
        tau = error[f"tau_{shared.kind}"]
        standard = rng.standard_normal(len(shared.group.slots))
        effect = tau * standard[shared.group.code]
    dof = ERROR.dof_min + error["dof_above_2"]
    errors = error["sigma"] * rng.standard_t(dof, rows)
    if shared.row_sd is not None:
        effect = effect + shared.row_sd * rng.standard_normal(rows)
    if shared.previous is None or shared.gap is None:
        return effect + errors
    previous, gap = np.asarray(shared.previous), np.asarray(shared.gap)
    is_done = np.isinf(gap)
    correlation = np.exp(-gap / error["run_length"])
    while not is_done.all():
        # the next point of each run, which may be anywhere in the table
        is_next = ~is_done & is_done[previous]
        before, rho = errors[previous[is_next]], correlation[is_next]
        errors[is_next] = rho * before + np.sqrt(1 - rho**2) * errors[is_next]
        is_done = is_done | is_next
    return effect + errors


def draw_new_effects(
    tau: Float[np.ndarray, " draw"], groups: int, rng: np.random.Generator
) -> Float[np.ndarray, "draw group"]:
    """Draw normal effects of new checkpoints or curves, of scale ``tau``."""
    size = (len(tau), groups)
    standard = rng.standard_normal(size)
    return tau[:, None] * standard

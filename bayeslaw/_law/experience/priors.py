"""Learn priors of a law's parameters from fits of other tables.

Between labs a parameter's log is normal, with the mean and sd of the labs' means. If
there are fewer than `FULL` labs, the law's own prior counts as the missing ones. (This
is a normal with a conjugate prior, and its predictive sd: Gelman et al. 2013, section
3.3).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import jax
import numpy as np

from bayeslaw._base.errors import LawError
from bayeslaw._base.machine import runtime
from bayeslaw._base.numbers import format_many
from bayeslaw._base.programs import compiled
from bayeslaw._base.streams import generator
from bayeslaw._law.catalogue import law as law_by_name
from bayeslaw._law.experience.tables import (
    NATS_PER_TOKEN,
    LearnedTable,
    TableFits,
    learned,
)
from bayeslaw._law.law import Law
from bayeslaw._law.priors import Prior, lognormal

if TYPE_CHECKING:
    from jaxtyping import Float

    from bayeslaw._base.arrays import AnyArray

KINDS = {
    "web-text": "web text",
    "code": "code",
    "adaptation": "adaptation of a checkpoint",
    "fine-tuning": "fine-tuning",
}
NONE = "none"
# a kind with few labs -> the kind whose population is its prior
BASES = {"code": "web-text"}
FULL = 4  # with so many labs the law's own prior no longer counts


@dataclass(frozen=True)
class Population:
    """Normal distribution of a parameter's log over tables nobody has seen."""

    mean: float
    sd: float
    labs: int

    def prior(self, source: str) -> Prior:
        return lognormal(math.exp(self.mean), self.sd, source)


def between_labs(
    by_lab: Mapping[str, Sequence[tuple[float, float]]], base: Population
) -> Population:
    """Predict the parameter of a new lab from those of other labs.

    Parameters
    ----------
    by_lab
        Mean and sd of the log for each of a lab's tables.
    base
        The population before any lab is seen.
    """
    means = [float(np.mean([mean for mean, _ in logs])) for logs in by_lab.values()]
    labs = len(means)
    if not labs:
        return base
    missing = max(FULL - labs, 0)
    middle = float(np.mean(means))
    total = labs + missing
    mean = (missing * base.mean + labs * middle) / total
    squares = (
        missing * base.sd**2
        + float(np.sum((np.array(means) - middle) ** 2))
        + missing * labs / total * (middle - base.mean) ** 2
    )
    variance = squares / (total - 1) * (1 + 1 / total)
    return Population(mean, math.sqrt(variance), labs)


class Within(NamedTuple):
    """Spread of parameters' logs between tables of one lab, as a root mean square over
    all parameters: ``absolute``, and ``relative`` to the sds of the laws' own priors.
    """

    absolute: float
    relative: float

    def sd(self, own_sd: float) -> float:
        """Choose the sd within a lab for a parameter whose own prior has this sd: the
        smaller of the absolute and the relative one. A wide prior may only mean
        ignorance; a narrow prior means that the parameter varies little.
        """
        return min(self.absolute, self.relative * own_sd)


def within_labs(tables: Sequence[LearnedTable]) -> Within:
    """Estimate how far tables of one lab differ, from deviations from the lab's mean."""
    groups: dict[tuple[str, str, str], list[float]] = {}
    for table in tables:
        for site, (mean, _) in table.logs.items():
            groups.setdefault((table.law, table.lab, site), []).append(mean)
    absolute, relative, freedom = 0.0, 0.0, 0
    for (law, _, site), means in groups.items():
        squares = float(np.sum((np.array(means) - np.mean(means)) ** 2))
        absolute += squares
        relative += squares / law_by_name(law).priors[site].args[1] ** 2
        freedom += len(means) - 1
    if not freedom:
        return Within(1.0, 1.0)
    return Within(math.sqrt(absolute / freedom), math.sqrt(relative / freedom))


def populations(
    law: Law, name: str, experience: TableFits | None = None
) -> dict[str, Population]:
    """Learn the distribution of each parameter's log, by site, from a kind of tables, a
    lab, or one table.

    In a law with a floor, contributions are shares of the floor. A site without any fit
    is left out.

    Raises
    ------
    LawError
        No kind, lab or table has this name.
    """
    experience = experience or learned()
    _check_name(name, experience)
    runtime.start()
    tables = experience.of_law(law.name)
    sites = dict.fromkeys(site for table in tables for site in table.logs)
    base = own_populations(law, experience)
    floors = [term.site for term in law.terms if term.is_floor]
    learned_priors = {}
    for site in sites:
        if site not in base:
            continue
        of_site = [table for table in tables if site in table.logs]
        if site in floors:  # only tables in nats per token inform a floor
            of_site = [table for table in of_site if table.unit == NATS_PER_TOKEN]
        if name in KINDS:
            of_kind = base[site]
            for kind in (BASES.get(name), name):
                chosen = [table for table in of_site if table.kind == kind]
                by_lab: dict[str, list[tuple[float, float]]] = {}
                for table in chosen:
                    by_lab.setdefault(table.lab, []).append(table.logs[site])
                of_kind = between_labs(by_lab, of_kind)
        else:
            chosen = [table for table in of_site if table.is_called(name)]
            within = within_labs(experience.tables).sd(base[site].sd)
            of_kind = _predict_same_lab(chosen, site, within)
        if of_kind is not None and of_kind.labs:
            learned_priors[site] = of_kind
    return learned_priors


class Measured(NamedTuple):
    """Runs whose losses determine the level of a law: columns and losses."""

    covariates: Mapping[str, Float[np.ndarray, " run"]]
    losses: Float[np.ndarray, " run"]


def experienced(
    law: Law,
    name: str,
    *,
    reference: Mapping[str, float] | None = None,
    measured: Measured | None = None,
    experience: TableFits | None = None,
    draws: int = 4000,
) -> Law:
    """Replace a law's priors by priors learned from other tables. A parameter that no
    table has keeps its prior.

    Contributions are learned as shares of the floor. The floor, in the unit of the
    user's losses, follows from these losses: for each draw of the shares it is the
    median over the runs of the floors that they imply. Before the first run, the floor
    is learned from the tables in nats per token.

    Parameters
    ----------
    name
        A kind of tables (`KINDS`), a lab, or a table.
    reference
        Columns of the run at which contributions in nats are stated; by default a run
        in the middle of the tables.
    """
    experience = experience or learned()
    learned_priors = populations(law, name, experience)
    if not learned_priors:
        return law
    runtime.start()
    restated = _restate_at_tables(law, experience)
    rng = generator(0)
    values = {site: prior.draw(rng, draws) for site, prior in restated.priors.items()}
    for site, population in learned_priors.items():
        logs = population.mean + population.sd * rng.standard_normal(draws)
        values[site] = np.exp(logs)
    sites = dict.fromkeys(learned_priors)
    floors = [term.site for term in law.terms if term.is_floor]
    if floors:
        if measured is not None:
            # the floor at which the law agrees with the measured losses (their median)
            at_one = {**values, floors[0]: np.ones(draws)}
            relative = _evaluate_losses(restated, dict(measured.covariates), at_one)
            ratios = measured.losses / np.asarray(relative)
            values[floors[0]] = np.median(ratios, axis=1)
            sites[floors[0]] = None
        for site in sites:
            if _is_share(law, site):
                values[site] = values[site] * values[floors[0]]
    result = restated.with_reference(dict(reference or {}))
    contributions = _restate_contributions(restated, result, values)
    source = f"learned: {name}"
    if name in KINDS:
        labs = max(population.labs for population in learned_priors.values())
        source = f"learned: {KINDS[name]}, {format_many(labs, 'lab')}"
    priors = {}
    for site in sites:
        logs = np.log(contributions[site])
        median, sd = f"{np.exp(logs.mean()):.4g}", f"{logs.std():.4g}"
        priors[site] = lognormal(float(median), float(sd), source)
    return result.with_priors(priors)


@compiled(static_argnums=0)
def _evaluate_losses(
    law: Law,
    covariates: Mapping[str, Float[AnyArray, " run"]],
    values: Mapping[str, Float[AnyArray, " draw"]],
) -> Float[AnyArray, "draw run"]:
    return jax.vmap(partial(law.loss, covariates))(values)


def as_learned(
    law: Law, draws: Mapping[str, Float[np.ndarray, " draw"]]
) -> dict[str, Float[np.ndarray, " draw"]]:
    """Restate draws of a law as in the learned tables: contributions at the run in the
    middle of the tables, as shares of the floor if there is one; each of shape (draw,).
    """
    values = {site: np.asarray(draws[site]) for site in law.priors}
    restated = _restate_contributions(law, _restate_at_tables(law, learned()), values)
    floors = [term.site for term in law.terms if term.is_floor]
    shares = [site for site in restated if _is_share(law, site)]
    return restated | {site: restated[site] / restated[floors[0]] for site in shares}


# -- parts -----------------------------------------------------------------------------


def _check_name(name: str, experience: TableFits) -> None:
    if name in KINDS or any(table.is_called(name) for table in experience.tables):
        return
    names = {part for t in experience.tables for part in (t.lab, t.name)}
    raise LawError(
        f"no experience is called {name!r}; there are {', '.join(KINDS)}, {NONE}, and "
        f"labs and tables: {', '.join(sorted(names))}"
    )


def _predict_same_lab(
    tables: Sequence[LearnedTable], site: str, within: float
) -> Population | None:
    if not tables:
        return None
    logs = np.array([table.logs[site] for table in tables])
    fit_variance = float(np.mean(logs[:, 1] ** 2))
    between = within**2 * (1 + 1 / len(tables))
    return Population(float(logs[:, 0].mean()), math.sqrt(fit_variance + between), 1)


def _restate_at_tables(law: Law, experience: TableFits) -> Law:
    """Restate a law's contributions at the reference run of the learned tables."""
    teacher = experience.same.get(law.name, law.name)
    run = experience.reference.get(teacher, {})
    restated = law.with_reference({c: v for c, v in run.items() if c in law.covariates})
    medians = {site: np.array([p.median]) for site, p in law.priors.items()}
    contributions = _restate_contributions(law, restated, medians)
    priors = {}
    for term in law.terms:
        prior = term.prior
        if term.in_nats and prior.family == "lognormal":
            args = (float(contributions[term.site][0]), prior.args[1])
            priors[term.coefficient] = Prior(prior.family, args, prior.source)
    return restated.with_priors(priors)


def own_populations(
    law: Law, experience: TableFits | None = None
) -> dict[str, Population]:
    """Compute the populations that a law's own priors imply for the logs of its
    parameters, by site; contributions are shares of the floor if there is one.
    """
    runtime.start()
    restated = _restate_at_tables(law, experience or learned())
    floors = [t.prior.median for t in law.terms if t.is_floor]
    implied = {}
    for site, prior in restated.free_priors.items():
        if prior.family != "lognormal":
            continue
        median, sd = prior.args
        share = floors[0] if _is_share(law, site) else 1.0
        implied[site] = Population(math.log(median / share), sd, 0)
    return implied


def _is_share(law: Law, site: str) -> bool:
    has_floor = any(term.is_floor for term in law.terms)
    beside = [t.site for t in law.terms if t.in_nats and not t.is_floor]
    return has_floor and site in beside


def _restate_contributions(
    law: Law, target: Law, values: Mapping[str, Float[np.ndarray, " draw"]]
) -> dict[str, Float[np.ndarray, " draw"]]:
    """Restate contributions at the reference run of ``target``, the same law."""
    restated = _evaluate_contributions(law, dict(values), dict(target.reference))
    return {**values, **{site: np.asarray(draws) for site, draws in restated.items()}}


@compiled(static_argnums=0)
def _evaluate_contributions(
    law: Law,
    values: Mapping[str, Float[AnyArray, " draw"]],
    run: Mapping[str, Float[AnyArray, ""]],
) -> dict[str, Float[AnyArray, " draw"]]:
    coefficients = law.coefficients(values)
    return {
        term.site: coefficients[term.coefficient] * term.basis(run, values)
        for term in law.terms
        if term.in_nats
    }

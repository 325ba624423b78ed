"""Learn priors of scales and exponents from all available real tables, and compare their
forecasts with those of priors set by hand.

    python tests/studies/learned_scales.py [--data ../shared/data] [--processes 16]

1. Each law is fitted to each table as in `real_tables.py`, with priors set by hand. For
   each parameter or scale, the mean and sd of the transformed posterior (log, or logit of
   a share) are kept, together with those of the prior.
2. Each parameter has a normal population over tables, whose mean and spread are estimated
   by EM. The prior is divided out of each posterior (as if both were normal). All tables
   of a lab count as one, and the prior set by hand counts as one more lab for the mean and
   two for the spread.
3. Each case is forecast again with scales learned from all *other* labs: those of misfit
   and noise, of drift, of both; of both with spreads set by hand around the learned
   medians; and those of the fading of errors.

Rows are kept as they are made (``--rows``, ``--judged``), and the laws' first posteriors
under ``--cache``, so that an interrupted study goes on. The populations are written to
``--toml``, with a description of the numbers.
"""

import argparse
import hashlib
import pickle
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import jax
import numpy as np
import pandas as pd
from averages import scores
from measured import DATA
from processes import processes
from real_tables import CASES, GRIDS, SEED
from resumable import study
from scipy import optimize, special

import bayeslaw
from bayeslaw import datasets
from bayeslaw._base.files import atomic_write
from bayeslaw._base.machine import runtime
from bayeslaw._forecasts.check import interval_score
from bayeslaw._inference.discrepancy import drift, marginal
from bayeslaw._inference.discrepancy.learning import TRIES, Misfit, Powers
from bayeslaw._inference.discrepancy.process import Process
from bayeslaw._law.columns import starts_from_losses
from bayeslaw._law.priors import Prior, lognormal, normal
from bayeslaw._posteriors.averaging import judge
from bayeslaw._posteriors.fits import misfit as misfits

ROOT = Path(__file__).parents[2]
HAND, SCALES, DRIFT, BOTH = "by hand", "misfit and noise", "drift", "both"
MEDIANS, FADING = "both, medians only", "fading"
PARTS = (HAND, BOTH, SCALES, DRIFT, MEDIANS, FADING)
STATE_LAWS = ("state-target", "state-source")

# -- tables ----------------------------------------------------------------------------

LABS = (  # the longest name that a table's begins with
    "farseer",
    "data_constrained",
    "chinchilla",
    "isoflop_more llama3",
    "isoflop_more comma",
    "isoflop_small",
    "isoflop_marin",
    "six_corpora",
    "ladder",
    "overtraining",
    "mixtures",
    "microcpt-de",
    "microcpt",
    "cpt_replay_70m",
    "finetune_examples",
)
CODE = ("six_corpora starcoder", "ladder dolma_stack", "mixtures github")
# losses that are not in nats per token, or a run far from the others' reference
ELSEWHERE = ("farseer", "isoflop_more llama3", "cpt_replay_70m")
KINDS = ("web-text", "code", "adaptation", "fine-tuning")


def lab_of(table: str) -> str:
    return next(lab for lab in LABS if table.startswith(lab))


def kind_of(table: str) -> str:
    if table in CODE:
        return "code"
    kinds = {"finetune": "fine-tuning", "microcpt": "adaptation", "cpt": "adaptation"}
    return next(
        (k for start, k in kinds.items() if table.startswith(start)), "web-text"
    )


class Table(NamedTuple):
    """A table that no case of `real_tables.py` is made of."""

    runs: pd.DataFrame
    laws: Sequence[str]
    reference: Mapping[str, float] = {}


def adapted(data: Path, grid: str, domain: str) -> Table:
    """Read a bundled grid for the laws that do not read the checkpoint's losses."""
    table = datasets.load(grid)
    is_one = (table["domain"] == domain) & (table["seed"] == 0)
    runs = table[is_one & (table["D"] > 4 * table["N"])]
    laws = ["dcpt", "ptpp-floor", "ptpp-gate", "ptpp-gate-floor"]
    return Table(runs, laws, dict(datasets.TABLES[grid].reference))


def curves(data: Path) -> Table:
    """Read the curves of a model of 70M parameters, adapted to code at four shares of
    replay.
    """
    table = pd.read_csv(data / "cpt_replay_70m.csv")
    code = table[(table["domain"] == "starcoder.python") & (table["kind"] == "ct")]
    # tokens a step are not in the table: a million are assumed
    runs = code[["replay", "loss"]].assign(
        N=7e7, D=code["step"] * 1e6, run=code["replay"].astype(str)
    )
    return Table(runs.reset_index(drop=True), ["dcpt"])


def tuned(data: Path, dataset: str, family: str) -> Table:
    """Read models of one family, fine-tuned on growing numbers of examples."""
    table = pd.read_csv(data / "finetune_examples.csv")
    is_one = (table["dataset"] == dataset) & (table["family"] == family)
    runs = table[is_one & (table["D"] > 0)]
    return Table(runs[["N", "D", "loss"]].reset_index(drop=True), ["finetune"])


def tuned_model(data: Path, dataset: str, model: str) -> Table:
    """Read one model, fine-tuned on growing numbers of examples."""
    table = pd.read_csv(data / "finetune_examples.csv")
    is_one = (table["dataset"] == dataset) & (table["model"] == model)
    runs = table[is_one & (table["D"] > 0)]
    return Table(runs[["D", "loss"]].reset_index(drop=True), ["rectified"])


FAMILIES = ("BART", "Cerebras", "GPT2", "LaMini", "OPT", "T5")
MODELS = (
    "facebook/bart-large",
    "cerebras/Cerebras-GPT-1.3B",
    "gpt2",
    "facebook/opt-1.3b",
    "t5-base",
)
TABLES: dict[str, Callable[[Path], Table]] = {
    f"{grid} {domain}, all stages": partial(adapted, grid=grid, domain=domain)
    for grid in GRIDS
    for domain in ("target", "source")
}
TABLES |= {"cpt_replay_70m python": curves}
for dataset in ("flan", "wmt19"):
    for family in FAMILIES:
        name = f"finetune_examples {dataset} {family}"
        TABLES[name] = partial(tuned, dataset=dataset, family=family)
    for model in MODELS:
        name = f"finetune_examples {dataset} {model}"
        TABLES[name] = partial(tuned_model, dataset=dataset, model=model)


# -- what a table says -----------------------------------------------------------------


def moments(prior: Prior) -> tuple[float, float]:
    """Mean and sd of a prior on the scale of `transformed`."""
    first, second = prior.args
    if prior.support == "positive":
        return float(np.log(first)), second
    if prior.support == "unit":
        mean = special.digamma(first) - special.digamma(second)
        variance = special.polygamma(1, first) + special.polygamma(1, second)
        return float(mean), float(np.sqrt(variance))
    return first, second


def transformed(prior: Prior, draws: np.ndarray) -> np.ndarray:
    """Transform draws to the whole real line: by the log, by the logit for a share, or
    not at all.
    """
    if prior.support == "positive":
        return np.log(draws)
    if prior.support == "unit":
        return special.logit(np.clip(draws, 1e-9, 1 - 1e-9))
    return draws


def told(name: str, prior: Prior, draws: np.ndarray) -> dict[str, Any]:
    """Build a row: the posterior of one parameter, beside its prior."""
    centre, spread = moments(prior)
    at = transformed(prior, draws)
    return {
        "name": name,
        "support": prior.support,
        "mean": round(float(np.mean(at)), 5),
        "sd": round(float(np.std(at)), 5),
        "prior_mean": round(centre, 5),
        "prior_sd": round(spread, 5),
    }


def of_law(law: bayeslaw.Law, values: Mapping[str, np.ndarray]) -> list[dict]:
    return [told(n, p, np.asarray(values[n])) for n, p in law.free_priors.items()]


def learned_name(process: Process, name: str) -> str:
    """Name a scale as in all tables: all pairs of axes are of one kind."""
    if name not in process.pieces:
        return name
    return "misfit pair" if " x " in name else f"misfit {name}"


def of_all_pieces(process: Process, name: str, prior: Prior, by: float) -> Prior:
    """Convert the prior of one piece to the prior of all pieces together (``by`` 1), or
    back (-1). The median of all is the median of one times the square root of their
    number.
    """
    if name not in process.pieces:
        return prior
    number = len(process.axes) + len(process.pairs)
    median, spread = prior.args
    return lognormal(median * number ** (by / 2), spread, prior.source)


def of_misfit(misfit: Misfit) -> list[dict]:
    """List rows of the misfit's scales, with sizes of pieces converted to those of all
    pieces together.
    """
    process = misfit.process
    priors = marginal.scale_priors(process, list(misfit.tau))
    draws = dict(misfit.scales) | {"sigma": misfit.sigma}
    draws |= {marginal.tau_name(kind): tau for kind, tau in misfit.tau.items()}
    rows = []
    for name, prior in priors.items():
        whole = of_all_pieces(process, name, prior, 1)
        factor = whole.args[0] / prior.args[0]
        rows.append(told(learned_name(process, name), whole, factor * draws[name]))
    if process.fading is not None:
        # a point estimate; its prior is half-normal
        at = {"mean": process.fading.power, "sd": 0.0, "prior_mean": 0, "prior_sd": 0.1}
        rows.append({"name": "fading", "support": "half", **at})
    return rows


def of_drift(
    misses: Sequence[drift.Miss], prior: drift.DriftPrior, more: int = 400
) -> list[dict]:
    """Build the row of the common scale of drift: the mean log over many sides without
    a left-out stage, because each of these follows the common scale.
    """
    if not misses:
        return []
    nowhere = [
        m._replace(distance=np.pad(m.distance, ((0, 0), (0, more)))) for m in misses
    ]
    rng = np.random.default_rng(SEED)
    wider = prior._replace(mean=prior.mean + more * (0.0,))
    scales = drift.draw_scales(nowhere, wider, rng)
    common = np.exp(np.log(scales[:, -more:]).mean(axis=1))
    return [told("drift", prior.scale, common)]


class Recorder:
    """Keeps what each law's fit of a whole table says of its parameters and scales."""

    def __init__(self):
        self.rows: list[dict] = []
        self.misses: dict[str, Sequence[drift.Miss]] = {}  # by law
        self.thread = threading.local()  # laws are judged at the same time

    def learn_misfit(self, law, values, training, kept=None, *, tries=TRIES, **options):
        misfit = LEARN_MISFIT(law, values, training, kept, tries=tries, **options)
        if tries == TRIES:  # of the whole table
            self.thread.law = law.name
            found = of_law(law, values) + ([] if misfit is None else of_misfit(misfit))
            self.rows += [{"law": law.name, **row} for row in found]
        return misfit

    def draw_scales(self, misses, prior, rng):
        law = self.thread.law
        self.misses[law] = misses
        self.rows += [{"law": law, **row} for row in of_drift(misses, prior)]
        return DRAW_SCALES(misses, prior, rng)


LEARN_MISFIT, DRAW_SCALES = judge.learn_misfit, judge.draw_scales
FIRST_POSTERIOR, DRIFT_PRIOR = judge.draw_posterior, drift.DriftPriors.of
SCALE_PRIORS, FADING_POWER = marginal.scale_priors, misfits.fading_power


def kept_posterior(folder: Path, law, table, x, weights, starts, seed, *sizes):
    """Read a law's posterior without misfit from the folder, or compute and keep it; it
    does not depend on priors of scales.
    """
    digest = hashlib.sha256()
    digest.update(law.name.encode())
    digest.update(np.ascontiguousarray(weights).tobytes())
    digest.update(np.asarray(table.y).tobytes())
    for column in sorted(x):
        digest.update(column.encode())
        digest.update(np.ascontiguousarray(x[column]).tobytes())
    priors = sorted((name, str(prior)) for name, prior in law.priors.items())
    digest.update(repr((sizes[0], seed, priors)).encode())
    digest.update(str(table.shared.kind).encode())
    path = folder / f"{digest.hexdigest()[:24]}.pkl"
    if path.exists():
        return pickle.loads(path.read_bytes())
    found = FIRST_POSTERIOR(law, table, x, weights, starts, seed, *sizes)
    with atomic_write(path) as part:
        part.write_bytes(pickle.dumps(found))
    return found


@contextmanager
def replaced(module: Any, **functions: Callable) -> Iterator[None]:
    """Judge laws with other functions of a module."""
    with ExitStack() as stack:
        for name, function in functions.items():
            stack.enter_context(patch.object(module, name, function))
        yield


def averaged(case: str, data: Path, cache: Path) -> tuple[Any, pd.DataFrame]:
    """Fit the default average of a case of `real_tables.py`; also return the runs it
    forecasts.
    """
    fitted, forecast, reference, laws = CASES[case](data)
    with replaced(judge, draw_posterior=partial(kept_posterior, cache)):
        found = bayeslaw.average(
            fitted, laws, reference=reference, seed=SEED, on_failure="ignore"
        )
    return found, forecast


def statements(case: str, data: Path, cache: Path) -> list[dict[str, Any]]:
    """List what a table says of each law's parameters and scales, a row each."""
    runtime.start()
    warnings.simplefilter("ignore")
    recorder = Recorder()
    ours = {"learn_misfit": recorder.learn_misfit, "draw_scales": recorder.draw_scales}
    with replaced(judge, **ours):
        if case in CASES:
            averaged(case, data, cache)
        else:
            judged_alone(TABLES[case](data), cache)
    jax.clear_caches()  # programs of this table's shapes, which no other has
    about = {"lab": lab_of(case), "kind": kind_of(case)}
    return [about | row for row in recorder.rows]


def judged_alone(table: Table, cache: Path) -> None:
    """Fit each law, with its misfit, to a whole table; no stage is left out."""
    everything = np.ones(len(table.runs), bool)
    for name in table.laws:
        law = bayeslaw.law(name)
        at = {c: v for c, v in table.reference.items() if c in law.covariates}
        placed = law.with_reference(at) if at else law
        setting = judge.Setting(seed=SEED)
        with replaced(judge, draw_posterior=partial(kept_posterior, cache)):
            judge.judge(placed, table.runs, everything, [], setting, lambda: None)


# -- what tables have in common --------------------------------------------------------


class Population(NamedTuple):
    """A normal population of one transformed parameter over labs.

    ``mean``, ``spread``: of the population; ``labs``, ``tables``: how many told.
    """

    mean: float
    spread: float
    labs: int
    tables: int

    def predictive_sd(self, prior_labs: float) -> float:
        """Sd of the parameter of another lab's table, the mean's own error included."""
        return self.spread * np.sqrt(1 + 1 / (self.labs + prior_labs))


PRIOR_LABS, PRIOR_SPREADS = 1.0, 2.0  # labs that the prior set by hand counts as


def population(rows: pd.DataFrame, steps: int = 200) -> Population:
    """Fit the population of one parameter by EM.

    Each row's posterior N(mean, sd) over its prior N(prior_mean, prior_sd) is what the
    table says by itself. A table of a lab with n counts 1/n. The population's mean and
    spread have the conjugate prior of Gelman et al. (2013, section 3.3) around the
    prior set by hand.
    """
    by_prior = 1 / rows["prior_sd"] ** 2
    precision = 1 / rows["sd"] ** 2 - by_prior
    pull = rows["mean"] / rows["sd"] ** 2 - rows["prior_mean"] * by_prior
    # a posterior no narrower than its prior says nothing
    says = precision > 0
    precision = precision.where(says, 0.0).to_numpy()
    pull = pull.where(says, 0.0).to_numpy()
    weight = 1 / rows.groupby("lab")["lab"].transform("size").to_numpy()
    centre, width = rows["prior_mean"].mean(), rows["prior_sd"].mean()
    mean, square = centre, width**2
    for _ in range(steps):
        variance = 1 / (precision + 1 / square)
        each = variance * (pull + mean / square)
        total = weight.sum()
        mean = (weight @ each + PRIOR_LABS * centre) / (total + PRIOR_LABS)
        away = weight @ ((each - mean) ** 2 + variance)
        away += PRIOR_LABS * (mean - centre) ** 2 + PRIOR_SPREADS * width**2
        # one less: the mean, with an error of its own, is near what it is the mean of
        square = away / (total + PRIOR_LABS + PRIOR_SPREADS - 1)
    labs, tables = rows["lab"].nunique(), rows["case"].nunique()
    return Population(float(mean), float(np.sqrt(square)), labs, tables)


def is_state(rows: pd.DataFrame) -> pd.Series:
    return rows["law"].isin(STATE_LAWS)


def learned(rows: pd.DataFrame) -> dict[str, Population]:
    """Fit the population of each parameter to the rows of some laws."""
    normal = rows[rows["support"] != "half"]
    return {str(name): population(part) for name, part in normal.groupby("name")}


def prior_of(found: Population, support: str) -> Prior:
    """Build the prior for a further table: log-normal or normal; for a share, the beta
    distribution with these moments of its logit.
    """
    sd = float(found.predictive_sd(PRIOR_LABS))
    if support == "unit":
        a, b = _beta_of(found.mean, sd)
        return Prior("beta", (a, b))
    if support == "real":
        return normal(found.mean, sd)
    return lognormal(float(np.exp(found.mean)), sd)


def _beta_of(mean: float, sd: float) -> tuple[float, float]:
    """Find the beta distribution whose logit has nearly this mean and sd."""

    def missed(logs: np.ndarray) -> np.ndarray:
        centre, spread = moments(Prior("beta", tuple(np.exp(logs))))
        return np.array([centre - mean, spread - sd])

    a, b = np.exp(optimize.root(missed, np.zeros(2)).x)
    return float(a), float(b)


# -- judged by leaving each lab out ----------------------------------------------------


class Learned(NamedTuple):
    """What is put in place of the functions that hold priors set by hand; by class of
    law, whether it reads the checkpoint's losses.

    ``part``: of what priors are learned; ``found``: populations by name; ``power``: sd
    of the half-normal prior of the power by which errors fade.
    """

    part: str
    found: Mapping[bool, Mapping[str, Population]]
    power: Mapping[bool, float]

    @classmethod
    def of(cls, rows: pd.DataFrame, part: str) -> "Learned":
        groups = {state: rows[is_state(rows) == state] for state in (True, False)}
        found = {state: learned(group) for state, group in groups.items()}
        powers = {state: power_sd(group) for state, group in groups.items()}
        return cls(part, found, powers)

    def prior(self, name: str, state: bool, by_hand: Prior) -> Prior:
        """Return a learned prior, or the one set by hand if no table has this scale."""
        found = self.found[state].get(name)
        if found is None:
            return by_hand
        prior = prior_of(found, "positive")
        if self.part == MEDIANS:
            return lognormal(prior.args[0], by_hand.args[1])
        return prior

    def scale_priors(self, process: Process, kinds: Sequence[str]) -> dict[str, Prior]:
        priors = SCALE_PRIORS(process, kinds)
        if self.part not in (SCALES, BOTH, MEDIANS):
            return priors
        state = starts_from_losses(axis.name for axis in process.axes)
        return {
            name: of_all_pieces(
                process,
                name,
                self.prior(
                    learned_name(process, name),
                    state,
                    of_all_pieces(process, name, prior, 1),
                ),
                -1,
            )
            for name, prior in priors.items()
        }

    def drift_prior(self, training: drift.Range) -> drift.DriftPrior:
        by_hand = DRIFT_PRIOR(drift.DriftPriors(), training)
        if self.part not in (DRIFT, BOTH, MEDIANS):
            return by_hand
        state = starts_from_losses(training.axes)
        return by_hand._replace(scale=self.prior("drift", state, by_hand.scale))

    def fading_power(self, process: Process, *about: Any) -> float:
        if self.part != FADING:
            return FADING_POWER(process, *about)
        state = starts_from_losses(axis.name for axis in process.axes)
        return FADING_POWER(process, *about, Powers(sd=self.power[state]))


def power_sd(rows: pd.DataFrame) -> float:
    """Sd of the half-normal population of powers by which errors fade."""
    powers = rows[rows["name"] == "fading"]
    by_lab = (powers["mean"] ** 2).groupby(powers["lab"]).mean()
    by_hand = PRIOR_SPREADS * Powers().sd ** 2
    return float(np.sqrt((by_lab.sum() + by_hand) / (len(by_lab) + PRIOR_SPREADS)))


def contest(
    case: str, scales: str, data: Path, cache: Path, rows: pd.DataFrame
) -> list[dict[str, Any]]:
    """Build the row of a case's forecast with scales learned from other labs."""
    runtime.start()
    warnings.simplefilter("ignore")
    others = rows[(rows["lab"] != lab_of(case)) & rows["case"].isin(list(CASES))]
    priors = Learned.of(others, scales)
    with (
        replaced(marginal, scale_priors=priors.scale_priors),
        replaced(drift.DriftPriors, of=priors.drift_prior),
        replaced(misfits, fading_power=priors.fading_power),
    ):
        found, forecast = averaged(case, data, cache)
    y = np.log(forecast["loss"].to_numpy())
    draws = found.log_loss(forecast, noise=True, seed=SEED)
    low, high = np.quantile(draws, [0.05, 0.95], axis=0)
    held = scores(draws, y, 0.9)
    jax.clear_caches()
    return [
        {
            "lab": lab_of(case),
            **{name: held[name] for name in ("mae", "coverage", "width")},
            "interval_score": float(interval_score(low, high, y).mean()),
        }
    ]


# -- the file of hyper-parameters ------------------------------------------------------

HEAD = """\
# Priors learned from real tables: what a further table's parameters are likely to be.
#
# Made by `python tests/studies/learned_scales.py`, which says how. A table for each kind
# of table and law. `reference` is the run at which contributions (`*_nats`, nats per
# token, of microcpt per byte) are stated. Each other key is a parameter of the law or a
# scale beside it:
#
#   prior   as in a priors file: lognormal(median, sd of the log), normal(mean, sd),
#           beta(a, b). The sd is of one further lab's table, with the error of the mean.
#   labs    labs that told of it (all tables of one count as one), tables: how many
#
# Scales are in log loss (.01 is 1% of the loss): `sigma`, `tau run`, `tau checkpoint`,
# `tau setting`; `misfit N` (all smooth pieces together, as told by the one along N),
# `misfit pair`; `drift` (an e-fold); `length N` in units of the axis. `walk N*D` and `walk
# D/N` are of an earlier misfit.
#
# Numbers only; no rows of any table. Few labs (1, 2) say little beyond the prior set by
# hand, which counts as one lab for the mean and two for the spread.
"""


def toml(rows: pd.DataFrame) -> str:
    """Write the populations by kind of table and law, as TOML."""
    in_nats = rows["name"].str.endswith("_nats")
    comparable = rows[~(in_nats & rows["lab"].isin(ELSEWHERE))]
    parts = [HEAD]
    for kind in KINDS:
        of_kind = comparable[comparable["kind"] == kind]
        for law, of_one in of_kind.groupby("law"):
            parts.append(_section(kind, str(law), of_one))
    return "\n".join(parts)


def _section(kind: str, law: str, rows: pd.DataFrame) -> str:
    reference = dict(bayeslaw.law(law).reference)
    if set(rows["lab"]) & set(GRIDS):
        at = datasets.TABLES[GRIDS[0]].reference
        reference |= {c: at[c] for c in reference if c in at}
    inside = ", ".join(f"{c} = {float(v):g}" for c, v in reference.items())
    lines = [f"[{kind}.{law}]", f"reference = {{ {inside} }}"]
    normal = rows[rows["support"] != "half"]
    for name, part in normal.groupby("name", sort=False):
        key = str(name) if str(name).isidentifier() else f'"{name}"'
        found = population(part)
        learned_prior = prior_of(found, part["support"].iloc[0])
        numbers = ", ".join(f"{a:.3g}" for a in learned_prior.args)
        prior = f"{learned_prior.family}({numbers})"
        labs, tables = found.labs, found.tables
        lines.append(
            f'{key} = {{ prior = "{prior}", labs = {labs}, tables = {tables} }}'
        )
    return "\n".join([*lines, ""])


# -- tables ----------------------------------------------------------------------------


def markdown(rows: pd.DataFrame) -> str:
    """Write a table of the cases, with scales set by hand and learned from other labs,
    and of all cases together.
    """
    return summary(rows) + "\n\n" + by_case(rows)


def summary(rows: pd.DataFrame) -> str:
    lines = [
        "| learned from other labs | cover | under 75% | median width "
        "| score over that by hand | cases better, worse by over 5% |",
        "|---|---|---|---|---|---|",
    ]
    hand = rows[rows["scales"] == HAND].set_index("case")
    for name, part in rows.groupby("scales", sort=False):
        at = part.set_index("case")
        ratio = at["interval_score"] / hand["interval_score"]
        lines.append(
            f"| {name} | {at['coverage'].mean():.1%} | {(at['coverage'] < 0.75).sum()} "
            f"| {at['width'].median():.2%} | {np.exp(np.log(ratio).mean()):.3f} "
            f"| {(ratio < 0.95).sum()}, {(ratio > 1.05).sum()} |"
        )
    return "\n".join(lines)


def by_case(rows: pd.DataFrame) -> str:
    lines = [
        "| table | error | cover, width, score by hand | learned: both | score over |",
        "|---|---|---|---|---|",
    ]
    for case, part in rows.groupby("case", sort=False):
        at = part.set_index("scales")
        cells = [
            f"{at['coverage'][name]:.0%}, {at['width'][name]:.1%}, "
            f"{100 * at['interval_score'][name]:.1f}"
            for name in (HAND, BOTH)
        ]
        ratio = at["interval_score"][BOTH] / at["interval_score"][HAND]
        lines.append(
            f"| {case} | {at['mae'][HAND]:.2%} | {' | '.join(cells)} | {ratio:.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    docs = ROOT / "docs/results"
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--rows", type=Path, default=docs / "learned_scales.csv")
    parser.add_argument("--judged", type=Path, default=docs / "learned_judged.csv")
    parser.add_argument("--cache", type=Path, default=Path("learned_scales_cache"))
    parser.add_argument(
        "--toml", type=Path, default=Path("docs/results/learned_scales.toml")
    )
    parser.add_argument("--without", default="", help="labs that the TOML leaves out")
    options = parser.parse_args()
    options.cache.mkdir(exist_ok=True)
    at = {"data": options.data, "cache": options.cache}

    def progress(done: int, total: int) -> None:
        print(f"{done} of {total}", file=sys.stderr, flush=True)

    # the longest first, so that no process waits for them in the end
    slow = ("farseer", "mixtures", "data_constrained", "microcpt")
    names = sorted([*CASES, *TABLES], key=lambda name: not name.startswith(slow))
    with processes(options.processes) as executor:
        run = partial(study, executor=executor, progress=progress)
        jobs = [{"case": name} for name in names]
        rows = run(partial(statements, **at), jobs, options.rows)
        left_out = options.without.split(",")
        options.toml.write_text(toml(rows[~rows["lab"].isin(left_out)]))
        contests = [
            {"case": name, "scales": part}
            # all by hand first: others share their first posteriors
            for part in PARTS
            for name in names
            if name in CASES
        ]
        task = partial(contest, **at, rows=rows)
        print(markdown(run(task, contests, options.judged)))


if __name__ == "__main__":
    main()

"""``average``: the default posterior, several laws at their weights, each with its drift beyond the data."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pandas as pd

from bayeslaw import _engine, _runs
from bayeslaw._artifact import law_from_recipe, settle, versions
from bayeslaw._compare import MIN_ESS, Comparison, compare
from bayeslaw._diagnostics import MAX_RHAT
from bayeslaw._discrepancy import Range, distances, draw_drift
from bayeslaw._errors import FitFileError
from bayeslaw._files import whole
from bayeslaw._fit import Fit, new_run_noise
from bayeslaw._law import Law
from bayeslaw._model import log_loss
from bayeslaw._posterior import Piece, new_run_scale, over_draws
from bayeslaw._recipe import recipe_of

DRAWS = 4000
LEAST = 1 / DRAWS  # weight below which a law has no draw


@dataclass(frozen=True, eq=False)
class Member:
    """A law's share of an average: ``values`` are its draws (those of its drifts, shape (draw, side), among them)."""

    law: Law
    weight: float
    known: Range
    values: Mapping[str, np.ndarray]

    @property
    def posterior(self) -> Mapping[str, np.ndarray]:
        """Draws by name, as a `Fit` has them."""
        return self.values

    def pieces(self) -> tuple[Piece, ...]:
        """This law's draws alone."""
        return (self.piece,)

    @property
    def piece(self) -> Piece:
        told = (*self.law.priors, "dof", "drift", "tau_checkpoint", "tau_run", "run_length")
        values = {n: self.values[n] for n in told if n in self.values}
        values["sigma"] = new_run_scale(self.values)
        return Piece(_drifting(self.law, self.known), values, self.law.covariates)


@dataclass(frozen=True, eq=False)
class Average:
    """A posterior over laws: draws of each in proportion to its weight.

    Parameters
    ----------
    members
        The laws with their draws.
    table
        Every law that was compared: score, weight, coverage, mae, drift, sampler, by name.
    runs
        The table the laws were fitted to.
    attrs
        Seed, versions, seconds, stages left out.
    """

    members: tuple[Member, ...]
    table: pd.DataFrame
    runs: pd.DataFrame
    attrs: Mapping[str, str | float | int]

    def __repr__(self) -> str:
        weights = ", ".join(f"{n} {w:.2f}" for n, w in self.weights.items() if w > 0)
        return f"Average({weights}; on {len(self.runs)} runs, {self.diagnostics['draws']} draws)"

    @property
    def name(self) -> str:
        return "average of " + ", ".join(m.law.name for m in self.members)

    @property
    def seconds(self) -> float:
        return float(self.attrs["seconds"])

    @property
    def weights(self) -> dict[str, float]:
        """Stacking weight of each law."""
        return {str(k): float(v) for k, v in self.table["weight"].items()}

    @property
    def diagnostics(self) -> dict[str, float]:
        """The worst of the laws that have draws: R-hat (NaN where all were drawn by importance), effective draws."""
        used = self.table.loc[[m.law.name for m in self.members]]
        return {
            "rhat": float(used["rhat"].max()),
            "ess": float(used["ess"].min()),
            "divergences": int(used["divergences"].sum()),
            "draws": sum(m.piece.draws for m in self.members),
            "seconds": self.seconds,
        }

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the diagnostics hold against the laws that have draws, a line each."""
        found = []
        for member in self.members:
            name = member.law.name
            rhat, ess = (float(np.asarray(self.table.loc[name, c])) for c in ("rhat", "ess"))
            if rhat > MAX_RHAT:
                found.append(f"law {name}: R-hat {rhat:.3f} is over {MAX_RHAT}: the chains disagree")
            if ess < MIN_ESS:
                found.append(f"law {name}: {ess:.0f} effective draws, under {MIN_ESS}")
        return tuple(found)

    def parameters(self, prob: float = 0.9) -> pd.DataFrame:
        """Mean, sd and central interval of each law's parameters in the paper's units, named ``law.parameter``."""
        rows, tail = {}, (1 - prob) / 2
        for member in self.members:
            v = member.values
            published = member.law.to_paper({n: jnp.asarray(v[n]) for n in member.law.priors})
            noise = {n: np.abs(v[n]) for n in ("sigma", "dof", "tau_checkpoint", "tau_run", "run_length") if n in v}
            for name, draws in ({k: np.asarray(p) for k, p in published.items()} | noise).items():
                low, high = np.quantile(draws, [tail, 1 - tail])
                rows[f"{member.law.name}.{name}"] = {
                    "mean": draws.mean(),
                    "sd": draws.std(ddof=1) if draws.size > 1 else 0.0,
                    "low": low,
                    "high": high,
                }
        return pd.DataFrame.from_dict(rows, orient="index")

    @property
    def heaviest(self) -> Member:
        """The law with most weight."""
        return max(self.members, key=lambda m: m.weight)

    def pieces(self) -> tuple[Piece, ...]:
        """The draws of each law; a new run's noise includes the effects of a new checkpoint and a new run."""
        return tuple(member.piece for member in self.members)

    def log_loss(self, runs: pd.DataFrame, *, noise: bool = False, seed: int = 0) -> np.ndarray:
        """Draws of the log loss, shape (draw, run): of the laws with their drift, or with ``noise`` of a new run.

        Raises
        ------
        RunTableError
            The table lacks a column that one of the laws reads.
        """
        _engine.start()
        rng, parts = np.random.default_rng(seed), []
        for member in self.members:
            piece = member.piece
            out = np.asarray(over_draws(piece.log_loss)(dict(piece.values), _runs.covariates(member.law, runs)))
            parts.append(out + new_run_noise(piece.values, len(runs), rng) if noise else out)
        return np.concatenate(parts)

    def save(self, path: str | Path) -> Path:
        """Write the average to a netCDF file, whole or not at all."""
        import xarray as xr

        path, nodes = Path(path), {}
        for i, member in enumerate(self.members):
            arrays = {n: (("draw", "side") if v.ndim == 2 else ("draw",), v) for n, v in member.values.items()}
            recipe = recipe_of(member.law) | {"weight": member.weight, "known": member.known._asdict()}
            nodes[f"/law{i}"] = xr.Dataset(arrays, attrs={"member": json.dumps(recipe)})
        root = {
            "average": json.dumps(dict(self.attrs)),
            "table": self.table.to_json(),
            "runs": self.runs.to_json(orient="split"),
        }
        nodes["/"] = xr.Dataset(attrs=root)
        with whole(path) as part:
            xr.DataTree.from_dict(nodes).to_netcdf(part, engine="h5netcdf")
        return path

    @classmethod
    def from_tree(cls, tree, path: str | Path) -> Average:
        """Read from the netCDF file's groups."""
        members = []
        for node in (tree[name] for name in sorted(tree.children, key=lambda n: int(n.removeprefix("law")))):
            recipe = json.loads(node.attrs["member"])
            known = Range(*(tuple(recipe["known"][k]) for k in Range._fields))
            values = {str(k): v.to_numpy() for k, v in node.data_vars.items()}
            members.append(Member(law_from_recipe(recipe, path), recipe["weight"], known, values))
        runs = json.loads(tree.attrs["runs"])
        table = pd.DataFrame(json.loads(tree.attrs["table"])).astype({"rhat": float}).rename_axis("name")
        frame = pd.DataFrame(runs["data"], columns=runs["columns"], index=pd.Index(runs["index"], name="row"))
        return cls(tuple(members), table, frame, json.loads(tree.attrs["average"]))


def _log_loss(law: Law, known: Range, draw, covariates):
    own = {c: covariates[c] for c in law.covariates}
    return log_loss(law, own, draw) + distances(own, known) @ draw["drift"]


@lru_cache(maxsize=64)
def _drifting(law: Law, known: Range) -> Callable:
    """The law's log loss of one draw, with its drift beyond the range of the training runs."""
    return partial(_log_loss, law, known)


def average(
    runs: pd.DataFrame,
    laws: Sequence[Law | str] | None = None,
    *,
    reference: Mapping[str, float] | None = None,
    hold_out: str | Sequence[str] | None = None,
    independent: bool = False,
    drift: bool = True,
    seed: int = 0,
    executor: Executor | None = None,
    progress: Callable[[int, int], None] | None = None,
    on_failure: str = "raise",
) -> Average:
    """Fit laws, judge them by forecasts of stages left out, and average them at their weights.

    Parameters
    ----------
    runs, laws, reference, hold_out, independent, executor, progress
        As for `compare`; by default the laws that suit the table's columns. One law alone is averaged with nothing,
        but has its drift.
    drift
        Let each law drift beyond the training runs; without, an average of one law is the plain law.
    on_failure
        ``"raise"``, ``"warn"`` or ``"ignore"`` when the diagnostics of a law with draws fail.

    Raises
    ------
    RunTableError, LawError
        The table cannot be used, or a law is unknown.
    DiagnosticsError
        The diagnostics fail and ``on_failure`` is ``"raise"``.
    """
    began = time.perf_counter()
    judged = compare(
        runs,
        laws,
        reference=reference,
        hold_out=hold_out,
        independent=independent,
        seed=seed,
        executor=executor,
        progress=progress,
    )
    attrs = {"seed": seed, "folds": "; ".join(judged.folds), "versions": versions(), "drift": drift}
    result = of_comparison(judged, runs, drift=drift, seed=seed, attrs=attrs | {"seconds": time.perf_counter() - began})
    settle(result.warnings, on_failure, "--accept-diagnostics")
    return result


def of_comparison(
    judged: Comparison, runs: pd.DataFrame, *, drift: bool = True, seed: int = 0, attrs: Mapping | None = None
) -> Average:
    """The average that a comparison gives."""
    rng, members = np.random.default_rng(seed), []
    for one, weight, draws in zip(judged.judged, judged.weights, shares(judged.weights), strict=True):
        if not draws:
            continue
        chosen = rng.permutation(np.resize(rng.permutation(len(one.values["sigma"])), draws))
        values = {n: v[chosen] for n, v in one.values.items()}
        sides = 2 * len(one.known.axes)
        values["drift"] = draw_drift(one.tau, (draws, sides), rng) if drift else np.zeros((draws, sides))
        members.append(Member(one.law, float(weight), one.known, values))
    return Average(tuple(members), judged.table, runs, dict(attrs or {"seconds": 0.0}))


def shares(weights: np.ndarray) -> np.ndarray:
    """Whole numbers of draws in proportion to the weights, by largest remainder; they sum to `DRAWS`."""
    exact = np.where(weights < LEAST, 0.0, weights)
    exact = exact / exact.sum() * DRAWS
    counts = np.floor(exact).astype(int)
    counts[np.argsort(counts - exact)[: DRAWS - counts.sum()]] += 1
    return counts


def load(path: str | Path) -> Fit | Average:
    """Read a saved `Fit` or `Average` back.

    Raises
    ------
    FitFileError
        The file is missing, is neither, or its law is no longer what it was.
    """
    import xarray

    try:
        if Path(path).is_file():
            tree = xarray.open_datatree(path, engine="h5netcdf").load()
            tree.close()
            if "average" in tree.attrs:
                return Average.from_tree(tree, path)
    except (OSError, ValueError, KeyError) as error:
        raise FitFileError(f"{path}: not a fit saved by bayeslaw ({type(error).__name__})") from None
    return Fit.load(path)

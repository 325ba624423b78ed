"""Define `Average`: draws of several laws in proportion to their weights, and its file.

`bayeslaw.average` makes it. Loading one and forecasting with it imports no sampler.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bayeslaw._base.html import paragraphs, table_html
from bayeslaw._base.machine import runtime
from bayeslaw._base.programs import compiled
from bayeslaw._base.streams import Stream, generator
from bayeslaw._inference.diagnostics import MAX_DIVERGENT, MAX_RHAT, MIN_ESS
from bayeslaw._inference.discrepancy.drift import Range, of_saved
from bayeslaw._inference.discrepancy.process import (
    Process,
    process_from_dict,
    process_to_dict,
)
from bayeslaw._inference.noise import NOISE, RunNoise
from bayeslaw._law.law import Law
from bayeslaw._law.recipe import recipe_of
from bayeslaw._posteriors.fits.artifact import (
    check_draws,
    columns_of,
    law_from_recipe,
    readable,
    runs_of,
    tree_of,
    write,
)
from bayeslaw._posteriors.fits.goodness import Goodness, goodness
from bayeslaw._posteriors.posterior import LogLoss, Piece, row_sds
from bayeslaw._tables import fitting

if TYPE_CHECKING:
    from jaxtyping import Float
    from xarray import Dataset, DataTree

    from bayeslaw._base.arrays import AnyArray


GROUP = re.compile(r"law(\d+)")  # how the group of a saved law begins
UNNAMABLE = re.compile(r"[^\w.-]+")  # characters that a group's name cannot have


@dataclass(frozen=True, eq=False)
class Member:
    """A law's share of an average.

    Parameters
    ----------
    law, weight
        The law and its weight.
    process
        Basis of its misfit; None without one.
    training_range
        Range of the training runs; the law drifts beyond it.
    values
        Draws by name: parameters and noise, shape (draw,); weights of the misfit,
        (draw, function); drifts, (draw, side).
    """

    law: Law
    weight: float
    process: Process | None
    training_range: Range
    values: Mapping[str, Float[np.ndarray, "draw ..."]]

    def __repr__(self) -> str:
        draws = self.piece.draws
        return f"Member({self.law.name!r} at weight {self.weight:.2f}, {draws} draws)"

    def _repr_html_(self) -> str:
        """Show the law and each parameter in notebooks."""
        table = self.draws().describe().loc[["mean", "std", "min", "max"]].T
        return paragraphs(repr(self)) + table_html(table)

    @property
    def posterior(self) -> Mapping[str, Float[np.ndarray, "draw ..."]]:
        """The draws by name, as in a `Fit`."""
        return self.values

    def pieces(self) -> tuple[Piece, ...]:
        """The draws of this law alone."""
        return (self.piece,)

    @property
    def piece(self) -> Piece:
        formula = LogLoss(self.law, self.process, self.training_range)
        return formula.piece(self.values)

    def draws(self) -> pd.DataFrame:
        """Draws of each parameter in the paper's units, and of the noise: a row for each
        draw.
        """
        return pd.DataFrame(dict(_in_paper_units(self))).rename_axis("draw")

    @property
    def inference_data(self) -> DataTree:
        """ArviZ data (a DataTree) of this law's share, with one chain: ``posterior`` has
        the parameters in the paper's units.
        """
        values = {name: v[None] for name, v in _in_paper_units(self)}
        return tree_of({"posterior": values}, {}, {})


@dataclass(frozen=True, eq=False)
class Average:
    """A posterior over several laws, with draws of each in proportion to its weight.

    Parameters
    ----------
    members
        The laws with their draws.
    table
        Score, weight, coverage, mae, drift and sampler of every compared law, by name.
    runs
        The table the laws were fitted to.
    attrs
        Seed, versions, seconds, left-out stages.
    """

    members: tuple[Member, ...]
    table: pd.DataFrame
    runs: pd.DataFrame
    attrs: Mapping[str, str | float | int]

    def __repr__(self) -> str:
        weights = ", ".join(f"{n} {w:.2f}" for n, w in self.weights.items() if w > 0)
        size = f"{len(self.runs)} runs, {self.diagnostics['draws']} draws"
        return f"Average({weights}; on {size})"

    @property
    def name(self) -> str:
        return "average of " + ", ".join(m.law.name for m in self.members)

    @property
    def seconds(self) -> float:
        return float(self.attrs["seconds"])

    @property
    def run_slopes(self) -> dict[str, float]:
        """Root mean square slope of errors along left-out runs, by left-out stage: in
        log loss per e-fold of tokens. Empty if no runs of several points were left out.
        """
        return json.loads(str(self.attrs.get("run_slopes", "{}")))

    @property
    def weights(self) -> dict[str, float]:
        """Stacking weight of each law."""
        return {str(k): float(v) for k, v in self.table["weight"].items()}

    @property
    def diagnostics(self) -> dict[str, float]:
        """The worst diagnostics of the laws with draws: R-hat (NaN if all were drawn by
        importance sampling), effective draws.
        """
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
        """The failed diagnostics of the laws with draws, a line each."""
        lines = []
        columns = ["rhat", "ess", "divergences", "draws"]
        for member in self.members:
            law = f"law {member.law.name}"
            numbers = np.asarray(self.table.loc[member.law.name, columns], float)
            rhat, ess, divergences, draws = numbers
            if rhat > MAX_RHAT:
                over = f"R-hat {rhat:.3f} is over {MAX_RHAT}"
                lines.append(f"{law}: {over}: the chains disagree")
            if ess < MIN_ESS:
                lines.append(f"{law}: {ess:.0f} effective draws, under {MIN_ESS}")
            if divergences > MAX_DIVERGENT * draws:
                of_draws = f"{divergences:.0f} of {draws:.0f} draws"
                lines.append(f"{law}: {of_draws} diverged")
        return tuple(lines)

    def parameters(self, prob: float = 0.9) -> pd.DataFrame:
        """Summarise each law's parameters in the paper's units by mean, sd and central
        interval; names are ``law.parameter``.
        """
        rows, tail = {}, (1 - prob) / 2
        for name, draws in self.parameter_draws().items():
            low, high = np.quantile(draws, [tail, 1 - tail])
            rows[name] = {
                "mean": draws.mean(),
                "sd": draws.std(ddof=1) if draws.size > 1 else 0.0,
                "low": low,
                "high": high,
            }
        return pd.DataFrame.from_dict(rows, orient="index")

    def parameter_draws(self) -> dict[str, pd.Series]:
        """Draws of the numbers that `parameters` summarises, by name, each of shape
        (draw of the law,). They are labelled by the average's draws, so a DataFrame of
        all aligns them.
        """
        draws, start = {}, 0
        for member in self.members:
            stop = start + member.piece.draws
            for name, values in _in_paper_units(member):
                label = f"{member.law.name}.{name}"
                draws[label] = pd.Series(values, index=range(start, stop), name=label)
            start = stop
        return draws

    def draws(self) -> pd.DataFrame:
        """Draws of each law's parameters in the paper's units: a row for each draw, with
        its ``law``, and a column ``law.parameter`` for each name of `parameters`, NaN in
        the draws of other laws.
        """
        table = pd.DataFrame(self.parameter_draws()).rename_axis("draw")
        names = [np.full(m.piece.draws, m.law.name) for m in self.members]
        table.insert(0, "law", np.concatenate(names))
        return table

    def __getitem__(self, law: str) -> Member:
        """Return the share of a law, by its name.

        Raises
        ------
        KeyError
            The law has no draws in this average.
        """
        for member in self.members:
            if member.law.name == law:
                return member
        there = ", ".join(member.law.name for member in self.members)
        raise KeyError(f"no law {law!r} has draws here; there are: {there}")

    @property
    def inference_data(self) -> DataTree:
        """ArviZ data (a DataTree): ``posterior_predictive`` and ``observed_data`` (log
        loss) of the average at its runs, and for each law a node of its name with its
        ``posterior``.
        """
        from xarray import DataTree

        new = self.log_loss(self.runs, noise=True)
        tree = tree_of(
            {
                "posterior_predictive": {"log_loss": new[None].astype(np.float32)},
                "observed_data": {"log_loss": fitting.log_losses(self.runs)},
            },
            {"log_loss": ["run_row"]},
            {"run_row": self.runs.index.to_numpy()},
        )
        nodes = {m.law.name.replace("/", ":"): m.inference_data for m in self.members}
        return DataTree.from_dict(_under({"": tree} | nodes))

    def _repr_html_(self) -> str:
        """Show the laws with their weights and each parameter, in notebooks."""
        columns = [c for c in ("weight", "coverage", "mae", "drift") if c in self.table]
        laws = self.table[columns]
        return paragraphs(repr(self)) + table_html(laws) + table_html(self.parameters())

    @property
    def heaviest(self) -> Member:
        """The law with most weight."""
        return max(self.members, key=lambda m: m.weight)

    def pieces(self) -> tuple[Piece, ...]:
        """The draws of each law. The noise of a new run includes the effects of a new
        checkpoint and a new run.
        """
        pieces = [member.piece for member in self.members]
        return tuple(pieces)

    def log_loss(
        self, runs: pd.DataFrame, *, noise: bool = False, seed: int = 0
    ) -> Float[np.ndarray, "draw run"]:
        """Draw the log loss, shape (draw, run): of the laws with their drift, or of a
        new run if ``noise`` is true.

        Rows of one checkpoint or run share its effect, as in a `Fit`. An average keeps
        no learned effects, so each effect is drawn anew.

        Raises
        ------
        RunTableError
            The table lacks a column that one of the laws reads.
        """
        runtime.start()
        rng, parts = generator(seed, Stream.NEW_RUN), []
        for member in self.members:
            piece = member.piece
            columns = fitting.covariates(member.law, runs)
            log_loss = piece.at(columns)
            if noise:
                error = RunNoise.of(member.values)
                size = piece.error_size(columns)
                own_size = error.size_with(size, row_sds(runs, log_loss))
                new_run = error.draw(len(runs), rng)
                shared = error.draw_shared(runs, member.law.covariates, rng)
                log_loss = log_loss + own_size * new_run + size * shared
            parts.append(log_loss)
        return np.concatenate(parts)

    @cached_property
    def goodness(self) -> Goodness:
        """Goodness of fit of the law with most weight, by itself."""
        heaviest = max(self.members, key=lambda member: member.weight)
        return goodness(heaviest.law, heaviest.values, self.runs)

    def save(self, path: str | Path) -> Path:
        """Write the average to a netCDF file, whole or not at all."""
        import xarray as xr

        nodes = {}
        for i, member in enumerate(self.members):
            # with an axis for chains, which ArviZ expects
            arrays = {
                name: (("chain", "draw", f"{name}_index")[: v.ndim + 1], v[None])
                for name, v in member.values.items()
            }
            recipe = recipe_of(member.law) | {
                "weight": member.weight,
                "known": member.training_range._asdict(),
                "process": process_to_dict(member.process),
            }
            nodes[f"/law{i}_{UNNAMABLE.sub('-', member.law.name)}"] = xr.Dataset(
                arrays, attrs={"member": json.dumps(recipe)}
            )
        root = {
            "average": json.dumps(dict(self.attrs)),
            "table": json.dumps(self.table.to_dict()),
        }
        rows = {name: ("run_row", v) for name, v in columns_of(self.runs).items()}
        nodes["/constant_data"] = xr.Dataset(rows, {"run_row": self.runs.index})
        nodes["/"] = xr.Dataset(attrs=root)
        return write(xr.DataTree.from_dict(nodes), path)

    @classmethod
    def from_tree(
        cls, tree: DataTree, path: str | Path, trust_law_file: bool
    ) -> Average:
        """Read an average from the netCDF file's groups; raises as `load` does."""
        with readable(path):
            average = cls._of_groups(tree, path, trust_law_file)
            _ = average.diagnostics  # raises if the table lacks a law
        return average

    @classmethod
    def _of_groups(
        cls, tree: DataTree, path: str | Path, trust_law_file: bool
    ) -> Average:
        """Read each member from its group of the file, and the table of all compared
        laws.
        """
        members = []
        matches = {name: GROUP.match(name) for name in tree.children}
        numbers = {name: int(match[1]) for name, match in matches.items() if match}
        for name in sorted(numbers, key=lambda name: numbers[name]):
            node = tree[name]
            recipe = json.loads(node.attrs["member"])
            member = Member(
                law_from_recipe(recipe, path, trust_law_file),
                recipe["weight"],
                process_from_dict(recipe["process"]),
                of_saved(recipe["known"]),
                {str(k): v.to_numpy()[0] for k, v in node.data_vars.items()},
            )
            check_draws(member.values, (*member.law.priors, "sigma", "dof"))
            members.append(member)
        table = pd.DataFrame(json.loads(tree.attrs["table"]))
        table = table.astype({"rhat": float}).rename_axis("name")
        attrs = json.loads(tree.attrs["average"])
        return cls(tuple(members), table, runs_of(tree), attrs)


def _under(nodes: Mapping[str, DataTree]) -> dict[str, Dataset]:
    """Collect the groups of trees, each under its name."""
    return {
        f"/{name}/{group}".replace("//", "/"): node.to_dataset()
        for name, tree in nodes.items()
        for group, node in tree.children.items()
    }


def _in_paper_units(member: Member) -> Iterator[tuple[str, Float[np.ndarray, " draw"]]]:
    """Collect draws of a law's parameters in the paper's units and of the scales of its
    noise.
    """
    law, values = member.law, member.values
    of_law = {name: values[name] for name in law.priors}
    published = _published(law, of_law)
    for name in law.parameters:
        yield name, np.asarray(published[name])
    for name in NOISE:
        if name in values:
            # the sampler's scales of errors may be negative
            yield name, np.abs(values[name])


@compiled(static_argnums=0)
def _published(
    law: Law, values: Mapping[str, Float[AnyArray, " draw"]]
) -> Mapping[str, Float[AnyArray, " draw"]]:
    return law.to_paper(values)

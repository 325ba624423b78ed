"""Define `Average`: draws of several laws in proportion to their weights, and its file.

`bayeslaw.average` makes it. Loading one and forecasting with it imports no sampler.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bayeslaw._base.shown import paragraphs, table_html
from bayeslaw._inference.diagnostics import MAX_DIVERGENT, MAX_RHAT, MIN_ESS
from bayeslaw._inference.discrepancy.drift import of_saved
from bayeslaw._inference.discrepancy.process import (
    process_from_dict,
    process_to_dict,
)
from bayeslaw._law.recipe import recipe_of
from bayeslaw._posteriors.fits import artifact
from bayeslaw._posteriors.fits.goodness import Goodness, goodness
from bayeslaw._posteriors.fits.misfit import add_short_names, name_learned
from bayeslaw._posteriors.posterior import LawPosterior, Member, summarize
from bayeslaw._tables import fitting

if TYPE_CHECKING:
    from xarray import DataTree

GROUP = re.compile(r"law(\d+)")  # how the group of a saved law begins
UNNAMABLE = re.compile(r"[^\w.-]+")  # characters that a group's name cannot have


@dataclass(frozen=True, eq=False)
class Average(LawPosterior):
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

    def _repr_html_(self) -> str:
        columns = [c for c in ("weight", "coverage", "mae", "drift") if c in self.table]
        laws = self.table[columns]
        return paragraphs(repr(self)) + table_html(laws) + table_html(self.parameters())

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
    def run_slopes(self) -> dict[str, float]:
        """Root mean square slope of errors along left-out runs, by left-out stage: in
        log loss per e-fold of tokens. Empty if no runs of several points were left out.
        """
        return json.loads(str(self.attrs.get("run_slopes", "{}")))

    @property
    def heaviest(self) -> Member:
        """The law with most weight."""
        return max(self.members, key=lambda m: m.weight)

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

    # -- draws -------------------------------------------------------------------------

    def parameter_draws(self) -> dict[str, pd.Series]:
        """Draws of the numbers that `parameters` summarises, by name, each of shape
        (draw of the law,). They are labelled by the average's draws, so a DataFrame of
        all aligns them.
        """
        draws, start = {}, 0
        for member in self.members:
            stop = start + member.piece.draws
            for name, values in member.parameter_draws().items():
                label = f"{member.law.name}.{name}"
                draws[label] = pd.Series(values, index=range(start, stop), name=label)
            start = stop
        return draws

    def parameters(self, prob: float = 0.9) -> pd.DataFrame:
        """Summarise each law's parameters by mean, sd, interval: ``law.parameter``."""
        return summarize(self.parameter_draws(), prob)

    def draws(self) -> pd.DataFrame:
        """Draws of each law's parameters in the paper's units: a row for each draw, with
        its ``law``, and a column ``law.parameter`` for each name of `parameters`, NaN in
        the draws of other laws.
        """
        table = pd.DataFrame(self.parameter_draws()).rename_axis("draw")
        names = [np.full(m.piece.draws, m.law.name) for m in self.members]
        table.insert(0, "law", np.concatenate(names))
        return table

    @property
    def inference_data(self) -> DataTree:
        """ArviZ data (a DataTree): ``posterior_predictive`` and ``observed_data`` (log
        loss) of the average at its runs, and for each law a node of its name with its
        ``posterior``.
        """
        new = self.log_loss(self.runs, noise=True)
        tree = artifact.tree_of(
            {
                "posterior_predictive": {"log_loss": new[None].astype(np.float32)},
                "observed_data": {"log_loss": fitting.log_losses(self.runs)},
            },
            {"log_loss": ["run_row"]},
            {"run_row": self.runs.index.to_numpy()},
        )
        for member in self.members:
            tree[member.law.name.replace("/", ":")] = member.inference_data
        return tree

    # -- checks ------------------------------------------------------------------------

    @property
    def diagnostics(self) -> dict[str, float]:
        """The worst diagnostics of laws with draws; R-hat is NaN without chains."""
        used = self.table.loc[[m.law.name for m in self.members]]
        return {
            "rhat": float(used["rhat"].max()),
            "ess": float(used["ess"].min()),
            "divergences": int(used["divergences"].sum()),
            "draws": sum(m.piece.draws for m in self.members),
            "seconds": self.seconds,
        }

    @property
    def failures(self) -> dict[str, list[str]]:
        """The failed diagnostics of the laws with draws, a line each, by law."""
        failures = {}
        columns = ["rhat", "ess", "divergences", "draws"]
        for member in self.members:
            lines = []
            numbers = np.asarray(self.table.loc[member.law.name, columns], float)
            rhat, ess, divergences, draws = numbers
            if rhat > MAX_RHAT:
                over = f"R-hat {rhat:.3f} is over {MAX_RHAT}"
                lines.append(f"{over}: the chains disagree")
            if ess < MIN_ESS:
                lines.append(f"{ess:.0f} effective draws, under {MIN_ESS}")
            if divergences > MAX_DIVERGENT * draws:
                of_draws = f"{divergences:.0f} of {draws:.0f} draws"
                lines.append(f"{of_draws} diverged")
            if lines:
                failures[member.law.name] = lines
        return failures

    @property
    def warnings(self) -> tuple[str, ...]:
        """The `failures`, each with its law."""
        of_laws = self.failures.items()
        return tuple(f"law {law}: {line}" for law, lines in of_laws for line in lines)

    @cached_property
    def goodness(self) -> Goodness:
        """Goodness of fit of the law with most weight, by itself."""
        return goodness(self.heaviest.law, self.heaviest.values, self.runs)

    # -- the file ----------------------------------------------------------------------

    def save(self, path: str | Path) -> Path:
        """Write the average to a netCDF file, whole or not at all."""
        import xarray as xr

        nodes = {"/constant_data": artifact.constant_data(self.runs).to_dataset()}
        for i, member in enumerate(self.members):
            # with an axis for chains, which ArviZ expects
            arrays = {
                name: (("chain", "draw", f"{name}_index")[: v.ndim + 1], v[None])
                for name, v in member.values.items()
            }
            assert member.training_range is not None
            labels = {}
            for kind, of_kind in member.effects.items():
                # short names of a group have its array
                names = {id(of_kind[name]): name for name in reversed([*of_kind])}
                labels[kind] = [*reversed(names.values())]
                by_group = [of_kind[name].draws for name in labels[kind]]
                draws = np.stack(by_group, axis=-1)
                dimensions = ("chain", "draw", kind)
                arrays[artifact.NAMES.effects + kind] = (dimensions, draws[None])
            recipe = recipe_of(member.law) | {
                "groups": labels,
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
        nodes["/"] = xr.Dataset(attrs=root)
        return artifact.write(xr.DataTree.from_dict(nodes), path)

    @classmethod
    def from_tree(
        cls, tree: DataTree, path: str | Path, trust_law_file: bool
    ) -> Average:
        """Read an average from the netCDF file's groups; raises as `load` does."""
        with artifact.readable(path):
            members, runs = [], artifact.runs_of(tree)
            matches = {name: GROUP.match(name) for name in tree.children}
            numbers = {name: int(match[1]) for name, match in matches.items() if match}
            for name in sorted(numbers, key=lambda name: numbers[name]):
                node = tree[name]
                recipe = json.loads(node.attrs["member"])
                draws = {str(k): v.to_numpy()[0] for k, v in node.data_vars.items()}
                prefix = artifact.NAMES.effects
                effects = {
                    kind: name_learned(kind, runs, names, draws.pop(prefix + kind).T)
                    # averages of earlier versions kept none
                    for kind, names in recipe.get("groups", {}).items()
                }
                member = Member(
                    artifact.law_from_recipe(recipe, path, trust_law_file),
                    recipe["weight"],
                    process_from_dict(recipe["process"]),
                    of_saved(recipe["known"]),
                    draws,
                    add_short_names(effects, runs),
                )
                artifact.check_draws(member.values, member.law)
                members.append(member)
            table = pd.DataFrame(json.loads(tree.attrs["table"]))
            table = table.astype({"rhat": float}).rename_axis("name")
            attrs = json.loads(tree.attrs["average"])
            average = cls(tuple(members), table, runs, attrs)
            _ = average.diagnostics  # raises if the table lacks a law
        return average

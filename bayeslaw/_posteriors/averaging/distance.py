"""Measure how far a plan lies beyond the fitted runs, say what left-out runs tested of
that, and list the reasons to doubt a plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

import pandas as pd

from bayeslaw._base.numbers import format_count
from bayeslaw._base.shown import as_json
from bayeslaw._posteriors.pairs import (
    doubts_of_tables,
    new_sizes_of_plain_fits,
    own_far,
    table_of,
)
from bayeslaw._posteriors.posterior import Posterior
from bayeslaw._tables.before import doubt_baseline
from bayeslaw._tables.beyond import FAR, Distance, distances, less_data
from bayeslaw._tables.holdouts import HoldOut, axis_values, has_axis, stages_named


def doubts(
    target: Posterior, sources: Mapping[str, Posterior], run: Mapping[str, float]
) -> list[str]:
    """List reasons to doubt a plan that its probability does not account for, a line
    each.

    The plan's run may lie far beyond the fitted runs, the fits may be of different
    checkpoints, or target and source may be swapped. ``run`` has the plan's columns.
    """
    table = table_of(target)
    lines = doubts_of_place({"target": target, **sources}, run)
    lines += [] if table is None else doubt_baseline(table, run)
    for name, posterior in sources.items():
        source = table_of(posterior)
        if table is None or source is None:
            continue
        lines += doubts_of_tables(name, table, source)
    return lines


def doubts_of_place(
    posteriors: Mapping[str, Posterior], run: Mapping[str, float]
) -> list[str]:
    """List reasons to doubt a plan because of where it lies, a line each. The first
    posterior's runs tell how far its tokens lie beyond.
    """
    table = table_of(next(iter(posteriors.values())))
    planned = pd.DataFrame([run])
    tokens = {} if table is None else distances(table, planned, ["D"], above=0)
    lines = [
        f"the plan's {place.sentence('D')}"
        for place in tokens.values()
        if place.factor > FAR
    ]
    for column, place in distance(posteriors, run).items():
        if place.is_inside:
            continue
        nearest = place.high if place.is_above else place.low
        value, end = format_count(place.value), format_count(nearest)
        if column == "replay":
            less = less_data(place.value, place.low, place.high)
            value, end = f"{place.value:.4g}", f"{nearest:.4g} ({less})"
        reached = tested(posteriors, column)
        test = "no runs that far beyond the others were left out: nothing tested it"
        if place.is_tested(reached):
            test = f"left-out runs tested up to {reached:.3g} times the others' largest"
        elif reached > 1 and place.is_above:
            test = (
                f"the farthest left out was {reached:.3g} times the largest of the "
                "others: nothing tested that far"
            )
        lines.append(
            f"the plan's {column} = {value} is {place.phrase('fitted')}, {end}; {test}"
        )
    own = [own_far(posterior, planned) for posterior in posteriors.values()]
    lines += [f"the plan's {line}" for line in dict.fromkeys(chain.from_iterable(own))]
    return lines + new_sizes_of_plain_fits(posteriors.values(), planned)


def tell_distance(
    posteriors: Mapping[str, Posterior], run: Mapping[str, float]
) -> dict[str, dict[str, Any]]:
    """Tell where a run lies and what left-out runs tested there, by column, in JSON's
    types: the fields of a `Distance`, ``inside`` and ``tested``.
    """
    places = {}
    for column, place in distance(posteriors, run).items():
        told = {"inside": place.is_inside, "tested": tested(posteriors, column)}
        places[column] = as_json(place._asdict()) | told
    return places


def distance(
    posteriors: Mapping[str, Posterior], run: Mapping[str, float]
) -> dict[str, Distance]:
    """Measure how far a run lies from the fitted runs in size, stage, tokens per
    parameter and replay: by column, in the table from which it is farthest.
    """
    tables = [table_of(posterior) for posterior in posteriors.values()]
    planned = pd.DataFrame([run])
    places = [distances(table, planned) for table in tables if table is not None]
    columns = dict.fromkeys(column for place in places for column in place)
    return {
        column: max(
            (place[column] for place in places if column in place),
            key=lambda place: place.factor,
        )
        for column in columns
    }


def tested(posteriors: Mapping[str, Posterior], column: str) -> float:
    """Find how far above the others' largest value left-out runs lay in a column, when
    every one of the posteriors was judged by its forecasts of them: a factor, 1 if none
    did.
    """
    farthest = []
    for posterior in posteriors.values():
        table, reached = table_of(posterior), [1.0]
        if table is not None and has_axis(table, column):
            stages = left_out_stages(posterior)
            if axis_values(table, column).max() > 0:
                reached += [stage.reach(table, column) for stage in stages]
        farthest.append(max(reached))
    return min(farthest)


def left_out_stages(posterior: Posterior) -> list[HoldOut]:
    """List the stages by whose forecasts a posterior was judged, if kept."""
    table = table_of(posterior)
    judged = (posterior, getattr(posterior, "posterior", None))  # of a chain
    names = [dict(getattr(one, "attrs", {})).get("folds", "") for one in judged]
    if table is None:
        return []
    return stages_named(table, "; ".join(filter(None, names)).split("; "))

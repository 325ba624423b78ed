"""Write one HTML page about a run while it trains: a slider goes through its points,
frame by frame.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from markupsafe import Markup

from bayeslaw._base.numbers import format_chance, format_count
from bayeslaw._base.progress.time_left import Progress
from bayeslaw._posteriors.averaging.loading import Posteriors
from bayeslaw._report.pages.single import page_path, write_template
from bayeslaw._running.following.course import UNITS
from bayeslaw._running.following.follow import Follower
from bayeslaw._running.following.followed import Followed, Following, format_final


class Frame(NamedTuple):
    """The forecast after a number of points.

    Parameters
    ----------
    at
        Tokens (or steps) of the last point; None before the first.
    points
        Number of tokens (or steps) with a loss of any domain.
    """

    at: float | None
    points: int
    following: Following


def follow_page(
    posterior: Posteriors,
    curve: pd.DataFrame,
    until: float,
    path: str | Path,
    *,
    warmup: float | None = None,
    progress: Progress | None = None,
    **question: Any,
) -> Following:
    """Write a page on which a slider moves through a run and shows the forecast of its
    end after each point.

    It is one self-contained file. A run of more than 40 points is thinned evenly.

    Parameters
    ----------
    path
        Path of the HTML file.
    progress
        Called with frames done and the total; each takes a second or two.
    posterior, curve, until, warmup, question
        As for `follow`: ``max_loss``, ``confidence``, ``prob``, ``within``,
        ``schedule``, ``seed``.

    Returns
    -------
    Following
        The result of `follow` for all points.

    Raises
    ------
    RunTableError, PlanError
        As `follow` does; or ``path`` is a folder.

    Examples
    --------
    >>> known = bayeslaw.follow_page(target, run, run["D"].max(), "run.html")
    >>> Path("run.html").is_file()
    True
    """
    page = page_path(path, "run.html")
    start = Follower.start(posterior, curve, until, **question)
    return write_page(start, curve, page, warmup=warmup, progress=progress)


def write_page(
    start: Follower,
    curve: pd.DataFrame,
    page: Path,
    *,
    warmup: float | None = None,
    progress: Progress | None = None,
) -> Following:
    """Write the page of `follow_page` from a follower at the run's start."""
    frames = []
    for frame, count in _frames(start, start.read(curve, warmup)):
        frames.append(frame)
        if progress is not None:
            progress(len(frames), count)
    # escaped, so that the name of a domain cannot end the script
    text = json.dumps(_data(frames), allow_nan=False).replace("<", "\\u003c")
    script = files("bayeslaw._report").joinpath("templates", "follow.js")
    write_template(
        page,
        "follow.html.jinja",
        run=_run_name(curve),
        last=frames[-1].following,
        data=_data(frames),
        interval=f"{start.question.prob:.0%}",
        text=Markup(text),
        script=Markup(script.read_text(encoding="utf-8")),
    )
    return frames[-1].following


def _frames(start: Follower, final: Follower) -> Iterator[tuple[Frame, int]]:
    """Yield frames from before the first point to the last, with their number.

    Parameters
    ----------
    final
        Follower with all points; its tracks show which points are used.
    """
    losses: dict[float, dict[str, float]] = {}
    for name, side in final.sides.items():
        for moment in side.track.history:
            losses.setdefault(moment.at, {})[name] = moment.loss
    places = sorted(losses)
    numbers = _thinned(len(places))
    follower = start
    for points in range(len(places) + 1):
        if points:
            at = places[points - 1]
            follower = follower.after(at, losses[at])
        if points in numbers:
            # the last frame is `final`, which also has notes on points that were left
            # out
            last = points == len(places)
            following = (final if last else follower).following()
            at = places[points - 1] if points else None
            yield Frame(at, points, following), len(numbers)


def _thinned(points: int, most: int = 40) -> list[int]:
    """Choose the numbers of points with a frame, from none to all."""
    count = min(points + 1, most)
    return [int(n) for n in np.linspace(0, points, count).round()]


def _run_name(curve: pd.DataFrame) -> str:
    """Read the run's name from the table; empty if there is none."""
    if "run" not in curve or curve.empty:
        return ""
    return str(curve["run"].iloc[0])


# -- what the page holds ---------------------------------------------------------------


def _data(frames: list[Frame]) -> dict[str, Any]:
    """Build the data of the pictures, as JSON types."""
    last = frames[-1].following
    return {
        "until": last.until,
        "unit": UNITS[last.first.unit],
        "confidence": last.confidence,
        "domains": [_domain(name, frames) for name in last.domains],
        "frames": [_moment(frame) for frame in frames],
    }


def _domain(name: str, frames: list[Frame]) -> dict[str, Any]:
    """Build all points of a domain, and its forecast from before the first."""
    first, last = (frames[i].following[name] for i in (0, -1))
    foreseen = first.path[["before_median", "before_low", "before_high"]]
    foreseen = foreseen.set_axis(["median", "low", "high"], axis="columns")
    return {
        "name": name,
        "limit": last.max_loss,
        "before": _ends(last.final_before),
        "foreseen": _columns(foreseen, first.path[first.unit]),
        "points": _columns(last.history),
    }


def _moment(frame: Frame) -> dict[str, Any]:
    """Build one frame: numbers for the pictures, and the texts beside them."""
    following = frame.following
    decision = following.decision
    return {
        "at": frame.at,
        "place": _place(frame),
        "probability": _number(following.probability),
        "action": decision.action,
        "reason": decision.reason,
        "domains": [_side(following, name) for name in following.domains],
    }


def _side(following: Following, name: str) -> dict[str, Any]:
    """Build one domain in one frame."""
    followed = following[name]
    path = followed.path
    return {
        "points": followed.points,
        "path": _columns(path[["median", "low", "high"]], path[followed.unit]),
        "final": _ends(followed.final),
        "probability": _number(followed.probability),
        "words": _words(following, followed),
    }


def _words(following: Following, followed: Followed) -> dict[str, str]:
    """Build the texts about one domain in one frame, by field."""
    unit = UNITS[followed.unit]
    share = f"{following.within:.1%}"
    known_text = f"not yet known to within {share}"
    if followed.known_from is not None:
        since = format_count(followed.known_from)
        known_text = f"known to within {share} since {since} {unit}"
    words = {
        "end": format_final(followed.final),
        "known": known_text,
        "verdict": followed.verdict,
        "notes": "; ".join(followed.notes),
    }
    if followed.max_loss is not None:
        words["probability"] = format_chance(followed.probability)
    return words


def _place(frame: Frame) -> str:
    """Describe the position of a frame."""
    if frame.at is None:
        return "before the first point"
    following = frame.following
    points = f"{frame.points} point{'s' if frame.points > 1 else ''}"
    unit = UNITS[following.first.unit]
    share = frame.at / following.until
    return f"{points}, {format_count(frame.at)} {unit} ({share:.0%} of the run)"


def _ends(final: dict[str, float]) -> dict[str, float | None]:
    return {key: _number(final[key]) for key in ("median", "low", "high")}


def _columns(
    table: pd.DataFrame, at: pd.Series | None = None
) -> dict[str, list[float | None]]:
    """Convert a table to columns by name; ``at`` has the tokens or steps."""
    columns = table if at is None else table.assign(at=at)
    return {
        str(name): [_number(value) for value in column]
        for name, column in columns.items()
    }


def _number(value: float) -> float | None:
    """Round to six digits; None for NaN, which JSON does not have."""
    if not math.isfinite(value):
        return None
    return float(f"{value:.6g}")

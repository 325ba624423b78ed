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

from bayeslaw._base.errors import PlanError
from bayeslaw._base.files import atomic_write, try_writing
from bayeslaw._base.numbers import format_chance, format_count
from bayeslaw._base.progress.time_left import Progress
from bayeslaw._running.following.course import UNITS
from bayeslaw._running.following.follow import Follower, Posteriors
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
    page = Path(path)
    _check_writable(page)
    start = Follower.start(posterior, curve, until, **question)
    return write_page(start, curve, page, warmup=warmup, progress=progress)


def _check_writable(page: Path) -> None:
    """Refuse a folder as the page's path, and try to write there."""
    if page.is_dir():
        raise PlanError(
            f"{page} is a folder; give the name of a file, such as run.html"
        )
    try_writing(page)


def write_page(
    start: Follower,
    curve: pd.DataFrame,
    page: Path,
    *,
    warmup: float | None = None,
    progress: Progress | None = None,
) -> Following:
    """Write the page of `follow_page` from a follower at the run's start."""
    _check_writable(page)
    frames = []
    for frame, count in _frames(start, start.read(curve, warmup)):
        frames.append(frame)
        if progress is not None:
            progress(len(frames), count)
    html = _render(frames, _run_name(curve), start.question.prob)
    with atomic_write(page) as part:
        part.write_text(html, encoding="utf-8")
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


# -- the page --------------------------------------------------------------------------


def _render(frames: list[Frame], run: str, prob: float) -> str:
    """Render the page's HTML."""
    import jinja2
    from markupsafe import Markup

    folder = files("bayeslaw._report").joinpath("templates")
    # a misspelt name in the template is an error, not a blank
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    environment.filters["count"] = format_count
    template = folder.joinpath("follow.html.jinja").read_text(encoding="utf-8")
    data = _data(frames)
    # escaped, so that the name of a domain cannot end the script
    text = json.dumps(data, allow_nan=False).replace("<", "\\u003c")
    return environment.from_string(template).render(
        run=run,
        last=frames[-1].following,
        data=data,
        interval=f"{prob:.0%}",
        text=Markup(text),
        script=Markup(folder.joinpath("follow.js").read_text(encoding="utf-8")),
    )

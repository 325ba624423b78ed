"""Write one HTML page about a run while it trains, with a slider of its points."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from bayeslaw._base.frames import Table, as_frame
from bayeslaw._base.numbers import format_chance, format_count, format_many
from bayeslaw._base.progress.time_left import Progress
from bayeslaw._posteriors.averaging.loading import Posteriors
from bayeslaw._report.pages.single import (
    page_path,
    round_cell,
    round_columns,
    write_template,
)
from bayeslaw._running.following.course import UNITS
from bayeslaw._running.following.follow import Follower
from bayeslaw._running.following.followed import Followed, Following, format_final

MOST_FRAMES = 40


def follow_page(
    posterior: Posteriors,
    curve: Table,
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
    page, curve = page_path(path, "run.html"), as_frame(curve)
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
    # losses by tokens (or steps), of the points that are used
    final = start.read(curve, warmup)
    losses: dict[float, dict[str, float]] = {}
    for name, track in final.tracks.items():
        for moment in track.history:
            losses.setdefault(moment.at, {})[name] = moment.loss
    places = sorted(losses)

    # frames from before the first point to the last, of which `final` also has notes on
    # points that were left out
    count = min(len(places) + 1, MOST_FRAMES)
    numbers = np.linspace(0, len(places), count).round().astype(int).tolist()
    follower, followings, frames = start, [], []
    for points in range(len(places) + 1):
        if points:
            at = places[points - 1]
            follower = follower.after(at, losses[at])
        if points in numbers:
            last = points == len(places)
            following = (final if last else follower).following()
            followings.append(following)
            frames.append(_show_frame(following, places[:points]))
            if progress is not None:
                progress(len(frames), count)
    first, last = followings[0], followings[-1]
    data = {
        "until": last.until,
        "unit": UNITS[last.first.unit],
        "confidence": last.confidence,
        "domains": [
            _show_domain(name, first[name], last[name]) for name in last.domains
        ],
        "frames": frames,
    }
    # escaped, so that the name of a domain cannot end the script
    text = json.dumps(data, allow_nan=False).replace("<", "\\u003c")
    templates = files("bayeslaw._report") / "templates"
    scripts = [templates / "page" / "words.js", templates / "follow.js"]
    has_name = "run" in curve and not curve.empty
    write_template(
        page,
        "follow.html.jinja",
        run=str(curve["run"].iloc[0]) if has_name else "",
        last=last,
        data=data,
        interval=f"{start.question.prob:.0%}",
        text=Markup(text),
        script=Markup("".join(path.read_text(encoding="utf-8") for path in scripts)),
    )
    return last


# -- what the page holds, as JSON types ------------------------------------------------


def _show_domain(name: str, first: Followed, last: Followed) -> dict[str, Any]:
    foreseen = first.path[["before_median", "before_low", "before_high"]]
    foreseen = foreseen.set_axis(["median", "low", "high"], axis="columns")
    return {
        "name": name,
        "limit": last.max_loss,
        "before": _round_ends(last.final_before),
        "foreseen": round_columns(foreseen.assign(at=first.path[first.unit])),
        "points": round_columns(last.history),
    }


def _show_frame(following: Following, places: list[float]) -> dict[str, Any]:
    """Show the frame after points at these tokens (or steps), with its texts."""
    unit = UNITS[following.first.unit]
    place = "before the first point"
    if places:
        points = format_many(len(places), "point")
        share = places[-1] / following.until
        place = f"{points}, {format_count(places[-1])} {unit} ({share:.0%} of the run)"
    domains = []
    for followed in following.domains.values():
        known = f"known to within {following.within:.1%}"
        if followed.known_from is None:
            known = f"not yet {known}"
        else:
            known = f"{known} since {format_count(followed.known_from)} {unit}"
        words = {
            "end": format_final(followed.final),
            "known": known,
            "verdict": followed.verdict,
            "notes": "; ".join(followed.notes),
        }
        if followed.max_loss is not None:
            words["probability"] = format_chance(followed.probability)
        path = followed.path[["median", "low", "high"]]
        domains.append(
            {
                "points": followed.points,
                "path": round_columns(path.assign(at=followed.path[followed.unit])),
                "final": _round_ends(followed.final),
                "probability": round_cell(followed.probability),
                "words": words,
            }
        )
    return {
        "at": places[-1] if places else None,
        "place": place,
        "probability": round_cell(following.probability),
        "action": following.decision.action,
        "reason": following.decision.reason,
        "domains": domains,
    }


def _round_ends(final: dict[str, float]) -> dict[str, Any]:
    return {key: round_cell(final[key]) for key in ("median", "low", "high")}

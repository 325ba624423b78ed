"""From a table of runs to one HTML page: fit, forecast the held-out stage, check, draw."""

from __future__ import annotations

import hashlib
import inspect
import json
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd

from bayeslaw import datasets
from bayeslaw._catalogue import law as law_by_name
from bayeslaw._check import Check, check
from bayeslaw._errors import LawError, PlanError, RunTableError
from bayeslaw._files import whole
from bayeslaw._fit import Fit, fit
from bayeslaw._forecast import forecast
from bayeslaw._plan import Plan, plan
from bayeslaw._plan_example import QUESTION
from bayeslaw._report import _figures

PAGE = "report.html"


@dataclass(frozen=True)
class Report:
    """Where the page is, what it took, and the check of each domain."""

    path: Path
    seconds: float
    checks: Mapping[str, Check]
    fits: Mapping[str, Fit]
    plan: Plan | None


@dataclass(frozen=True)
class _Domain:
    """One domain of the table, fitted below the held-out level and checked at it."""

    name: str
    fit: Fit
    check: Check
    pictures: tuple[_figures.Picture, ...]
    parameters: list[dict]
    fitted: int


def suitable_law(runs: pd.DataFrame) -> str:
    """The fullest law of adaptation, or of pre-training, whose columns the table has, with more than one level each.

    Raises
    ------
    RunTableError
        No law suits the table.
    """
    for name in ("ptpp-gate-floor", "dcpt", "chinchilla"):
        needed = law_by_name(name).covariates
        if all(c in runs and runs[c].nunique() > 1 for c in needed):
            return name
    raise RunTableError(
        f"no law suits these columns by itself ({', '.join(map(str, runs.columns))}): the simplest needs N and D at "
        "several levels; name a law (--law) or your columns (--column N=...)"
    )


def report(
    runs: pd.DataFrame | None = None,
    output: str | Path = "report",
    *,
    law: str | None = None,
    hold_out: str = "ptpp",
    seed: int = 0,
    name: str | None = None,
    question: Mapping[str, Any] | None = None,
    progress: Callable[[int, int], None] | None = None,
    on_failure: str = "raise",
) -> Report:
    """Write the page.

    Parameters
    ----------
    runs
        A table as `read_runs` returns it; None for the bundled one. Rows of each ``domain`` are fitted apart.
    output
        Folder for ``report.html``.
    law
        Name of the law; by default one that suits the columns.
    hold_out
        Column whose largest level is held out of the fit and forecast.
    question
        What to plan for, as keyword arguments of `plan`, where the table has the domains ``target`` and ``source``;
        the bundled table comes with one.

    Raises
    ------
    RunTableError, LawError, DiagnosticsError
        As `fit` does, or no level can be held out.
    """
    began = time.perf_counter()
    bundled = runs is None
    table = datasets.load() if runs is None else runs
    name = datasets.DEFAULT if bundled else name or "a table"
    law = law or suitable_law(table)
    folder = Path(output)
    if folder.exists() and not folder.is_dir():
        raise LawError(f"{folder} is a file; give the name of a folder")
    parts = _by_domain(table)
    asked = _question(QUESTION if bundled else question, list(parts), seed)
    domains = []
    for i, (domain, part) in enumerate(parts.items()):
        share = (lambda done, total, i=i: progress(done + i * total, len(parts) * total)) if progress else None
        domains.append(_one_domain(domain, part, law, hold_out, seed, share, on_failure))
    fits = {d.name: d.fit for d in domains}
    answer = plan(fits["target"], fits["source"], **asked) if asked else None
    html = _render(table, domains, law, hold_out, seed, name, bundled, answer)
    path = folder / PAGE
    with whole(path) as part:
        part.write_text(html, encoding="utf-8")
    seconds = time.perf_counter() - began
    return Report(path, seconds, {d.name: d.check for d in domains}, fits, answer)


def _question(asked: Mapping[str, Any] | None, domains: list[str], seed: int) -> dict[str, Any] | None:
    """What to plan for, checked before anything is fitted."""
    if not asked:
        return None
    if not {"target", "source"} <= set(domains):
        raise PlanError(f"a plan needs rows of domain 'target' and 'source'; the table has: {', '.join(domains)}")
    try:
        inspect.signature(plan).bind(None, None, **asked)
    except TypeError as error:
        needed = "N, ptpp, max_target_loss and max_forgetting"
        raise PlanError(f"what to plan for: {error}; it needs {needed}, and takes what `plan` takes") from None
    return {"seed": seed, **asked}


def _by_domain(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    if "domain" not in table:
        return {"runs": table}
    names = sorted(table["domain"].astype(str).unique(), key=lambda d: (d != "target", d != "source", d))
    return {d: table[table["domain"].astype(str) == d] for d in names}


def _split(runs: pd.DataFrame, hold_out: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    if hold_out not in runs:
        raise RunTableError(f"cannot hold out column {hold_out!r}; the table has: {', '.join(map(str, runs.columns))}")
    levels = sorted(runs[hold_out].dropna().unique())
    if len(levels) < 2:
        raise RunTableError(f"column {hold_out!r} has one level only: nothing to hold out; name another (--hold-out)")
    held = runs[hold_out] == levels[-1]
    return runs[~held], runs[held]


def _one_domain(domain, runs, law, hold_out, seed, progress, on_failure) -> _Domain:
    fitted, held = _split(runs, hold_out)
    posterior = fit(fitted, law, seed=seed, progress=progress, on_failure=on_failure)
    rows, seen = forecast(posterior, held, seed=seed), forecast(posterior, fitted, seed=seed)
    result = check(posterior, held, seed=seed)
    level = held[hold_out].iloc[0]
    grid = {"N", "D"} <= set(runs)
    pictures = []
    if grid:
        pictures.append(
            _figures.forecast_grid(
                held,
                rows,
                title=f"{domain}: {hold_out} {level:g}, held out",
                caption=f"Forecasts at {hold_out} {level:g} (dashed: median; band: 90% interval of a new run) against "
                "observations the fit has not seen (dots), as Goffinet 2025, fig. 1, with intervals.",
            )
        )
    pictures += [_figures.calibration(held, rows, result), _figures.term_contributions(posterior, runs)]
    pictures.append(_figures.exponent_intervals(posterior, {}))
    if grid:
        last = fitted[fitted[hold_out] == fitted[hold_out].max()]
        pictures.append(
            _figures.forecast_grid(
                last,
                seen.loc[last.index],
                title=f"{domain}: {hold_out} {fitted[hold_out].max():g}, fitted",
                caption="In the sample: a check of the fit's quality only (as Goffinet 2025, fig. 3).",
            )
        )
    parameters = [{"name": n, **row} for n, row in posterior.parameters().to_dict(orient="index").items()]
    return _Domain(domain, posterior, result, tuple(pictures), parameters, len(fitted))


def _render(table, domains, law, hold_out, seed, name, bundled, answer: Plan | None) -> str:
    import jinja2

    template = files("bayeslaw._report").joinpath("page.html.jinja").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    record = law_by_name(law)
    command = [
        "bayeslaw",
        "report",
        *([] if bundled else [name]),
        "--law",
        law,
        "--hold-out",
        hold_out,
        "--seed",
        str(seed),
    ]
    held = table[table[hold_out] == table[hold_out].max()]
    return environment.from_string(template).render(
        name=name,
        card=datasets.CARDS[name] if bundled else None,
        domains=domains,
        plan=answer,
        plan_pictures=_figures.plan_pictures(answer) if answer else (),
        law=record,
        priors=[(n, str(p), p.source) for n, p in record.priors.items()],
        hold_out=hold_out,
        level=float(held[hold_out].iloc[0]),
        rows=len(table),
        digest=hashlib.sha256(table.to_csv(index=False).encode()).hexdigest()[:16],
        versions=json.loads(domains[0].fit.inference_data.attrs["versions"]),
        seed=seed,
        command=shlex.join(command),
    )

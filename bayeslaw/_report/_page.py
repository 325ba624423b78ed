"""From a table of runs to one HTML page: fit, forecast the held-out stage, check, draw."""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from bayeslaw import _engine, datasets
from bayeslaw._anchors import anchors
from bayeslaw._anchors_menu import candidates
from bayeslaw._artifact import versions
from bayeslaw._average import Average, average
from bayeslaw._check import Check, check
from bayeslaw._errors import LawError, PlanError, RunTableError
from bayeslaw._files import whole
from bayeslaw._fit import Fit, fit
from bayeslaw._forecast import forecast
from bayeslaw._law import Law
from bayeslaw._plan import Plan, plan, problem_of
from bayeslaw._report import _figures
from bayeslaw._report._explorer import can_explore, explorer, sliders
from bayeslaw._words import people_number

PAGE = "report.html"
ANCHOR_SHARE, MOST_ANCHORS = 0.03, 12  # of the plan's cost, to be spent on runs that improve it; how many runs


@dataclass(frozen=True)
class Report:
    """Where the page is, what it took, and the check of each domain."""

    path: Path
    seconds: float
    checks: Mapping[str, Check]
    fits: Mapping[str, Fit | Average]
    plan: Plan | None


@dataclass(frozen=True)
class _Domain:
    """One domain of the table, fitted below the held-out level and checked at it."""

    name: str
    fit: Fit | Average
    check: Check
    pictures: tuple[_figures.Picture, ...]
    parameters: list[dict]
    fitted: int
    laws: tuple[Law, ...]

    @property
    def sampler(self) -> str:
        """How the draws were made, in words."""
        d = self.fit.diagnostics
        if isinstance(self.fit, Average):
            rows = self.fit.table.loc[list(self.fit.weights)]
            return "; ".join(
                f"{name}: {row['sampler']}, {row['ess']:.0f} effective draws" for name, row in rows.iterrows()
            )
        return (
            f"R-hat {d['rhat']:.3f}, bulk ESS {d['ess']:.0f}, {d['divergences']} of {d['draws']} draws divergent, "
            f"{d['steps_per_draw']:.0f} leapfrog steps a draw"
        )


def report(
    runs: pd.DataFrame | None = None,
    output: str | Path = "report",
    *,
    law: str | Sequence[str] | Mapping[str, Sequence[str]] | None = None,
    reference: Mapping[str, float] | None = None,
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
        Name of a law, or several, which are averaged, or those of each domain; by default the average of the laws that
        suit the columns (of the bundled table: of some, so that the page is soon there).
    reference
        Columns of the reference run to replace, for the laws that read them.
    hold_out
        Column whose largest level is held out of the fit and forecast.
    question
        What to plan for, as keyword arguments of `plan`, where the table has the domains ``target`` and ``source``;
        by default that of the bundled table, if that is shown.

    Raises
    ------
    RunTableError, LawError, DiagnosticsError
        As `fit` does, or no level can be held out.
    """
    began = time.perf_counter()
    card = None
    if runs is None:
        opened, name = datasets.TABLES[datasets.DEFAULT], datasets.DEFAULT
        runs, card = datasets.load(name), opened.card
        runs = runs.query(opened.where) if opened.where else runs
        reference, law, question = reference or opened.reference, law or opened.laws, question or opened.question
    folder = Path(output)
    if folder.exists() and not folder.is_dir():
        raise LawError(f"{folder} is a file; give the name of a folder")
    parts = _by_domain(runs)
    laws = {d: _laws(law, d) for d in parts}
    asked = _question(question, list(parts), seed)
    splits = {d: _split(part, hold_out) for d, part in parts.items()}
    alone = any(len(own) == 1 for own in laws.values())  # chains of one law take all cores
    with _engine.threads() as cores, _engine.threads(1 if alone else len(parts)) as helpers:
        told = _together(progress, list(parts))
        fitting = {  # all domains' laws wait for the same cores; what is done is drawn meanwhile
            d: helpers.submit(_posterior, fitted, laws[d], reference, seed, told[d], on_failure, cores)
            for d, (fitted, _) in splits.items()
        }
        domains = [_one_domain(d, fitting[d].result(), *splits[d], hold_out, seed) for d in parts]
    fits = {d.name: d.fit for d in domains}
    answer = plan(fits["target"], fits["source"], **asked) if asked else None
    explored = _explored(fits, asked, answer) if asked and answer else None
    bought = _bought(parts["target"], fits, asked, answer, hold_out) if asked and answer else None
    named, title = _laws(law, ""), name or "a table"
    html = _render(runs, domains, named, reference, hold_out, seed, title, card, answer, explored, bought)
    path = folder / PAGE
    with whole(path) as part:
        part.write_text(html, encoding="utf-8")
    seconds = time.perf_counter() - began
    return Report(path, seconds, {d.name: d.check for d in domains}, fits, answer)


def _laws(law: str | Sequence[str] | Mapping[str, Sequence[str]] | None, domain: str) -> list[str]:
    """Names of the laws asked for in a domain; none for those that suit."""
    own = law.get(domain) if isinstance(law, Mapping) else law
    return [own] if isinstance(own, str) else list(own or [])


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


def _posterior(runs, laws: Sequence[str], reference, seed: int, progress, on_failure: str, cores) -> Fit | Average:
    """One law's posterior, or the average of several, or of those that suit the columns."""
    asked = {"reference": reference, "seed": seed, "progress": progress, "on_failure": on_failure}
    if len(laws) == 1:
        return fit(runs, laws[0], **asked)
    return average(runs, laws or None, executor=cores, **asked)


def _together(progress: Callable[[int, int], None] | None, domains: Sequence[str]) -> dict[str, Callable | None]:
    """Progress of each domain, told as one; a domain that has not begun counts as the longest of the others."""
    if progress is None:
        return dict.fromkeys(domains)
    so_far: dict[str, tuple[int, int]] = dict.fromkeys(domains, (0, 0))

    def tell(domain: str, done: int, total: int) -> None:
        so_far[domain] = done, total
        progress(sum(d for d, _ in so_far.values()), len(domains) * max(t for _, t in so_far.values()))

    return {d: partial(tell, d) for d in domains}


def _one_domain(domain: str, posterior: Fit | Average, fitted, held, hold_out: str, seed: int) -> _Domain:
    runs = pd.concat([fitted, held]).sort_index()
    rows, seen = forecast(posterior, held, seed=seed), forecast(posterior, fitted, seed=seed)
    result = check(posterior, held, seed=seed)
    level, main = held[hold_out].iloc[0], posterior.heaviest if isinstance(posterior, Average) else posterior
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
    pictures.append(_figures.calibration(held, rows, result))
    if isinstance(posterior, Average):
        pictures.append(_figures.law_weights(posterior))
    pictures += [_figures.term_contributions(main, runs), _figures.exponent_intervals(main, {})]
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
    laws_used = [m.law for m in posterior.members] if isinstance(posterior, Average) else [posterior.law]
    return _Domain(domain, posterior, result, tuple(pictures), parameters, len(fitted), tuple(laws_used))


def _explored(fits: Mapping[str, Fit | Average], asked: Mapping[str, Any], answer: Plan) -> dict[str, Any] | None:
    """What the page's sliders need, where they can plan this question."""
    problem = problem_of(fits["target"], fits["source"], **asked)
    if not can_explore(problem, answer.to_dict()) or answer.D is None:
        return None
    at = math.log(answer.D)
    packed = explorer(problem, at)
    return {
        "draws": problem.draws,
        "size": people_number(problem.N),
        "ptpp": problem.ptpp,
        "sliders": sliders(problem, packed),
        "data": Markup(json.dumps(packed)),
        "script": Markup(files("bayeslaw._report").joinpath("explorer.js").read_text(encoding="utf-8")),
    }


def _bought(
    runs: pd.DataFrame, fits: Mapping[str, Fit | Average], asked: Mapping[str, Any], answer: Plan, hold_out: str
) -> dict[str, Any] | None:
    """Runs worth their cost before the plan is carried out: smaller models at the held-out stage, for a share of its cost."""
    if hold_out != "ptpp" or not answer.feasible or not answer.D or not {"N", "replay"} <= set(runs):
        return None
    smaller = sorted(n for n in runs["N"].unique() if n < answer.N)
    if not smaller:
        return None
    offered = candidates(runs, N=smaller, ptpp=[float(runs["ptpp"].max())])
    goal = {k: v for k, v in asked.items() if k != "seed"}
    budget = ANCHOR_SHARE * float(answer.flops or 0)
    if budget < offered["cost"].min():
        return None
    made = anchors(fits["target"], offered, goal, budget, source=fits["source"], max_picks=MOST_ANCHORS, checks=0)
    lines = made.table(offered).drop(columns="row").to_dict(orient="records") if made.picks else []
    return {"sentence": made.sentence(), "lines": lines, "share": ANCHOR_SHARE}


def _render(table, domains, laws, reference, hold_out, seed, name, card, answer: Plan | None, explored, bought) -> str:
    import jinja2

    template = files("bayeslaw._report").joinpath("page.html.jinja").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    named = [part for law in laws for part in ("--law", law)]
    if not card:
        named += [part for c, value in (reference or {}).items() for part in ("--reference", f"{c}={value:g}")]
    command = ["bayeslaw", "report", *([] if card else [name]), *named, "--hold-out", hold_out, "--seed", str(seed)]
    held = table[table[hold_out] == table[hold_out].max()]
    return environment.from_string(template).render(
        name=name,
        card=card,
        domains=domains,
        plan=answer,
        explorer=explored,
        bought=bought,
        plan_pictures=_figures.plan_pictures(answer) if answer else (),
        laws=list({law.name: law for d in domains for law in d.laws}.values()),
        hold_out=hold_out,
        level=float(held[hold_out].iloc[0]),
        rows=len(table),
        digest=hashlib.sha256(table.to_csv(index=False).encode()).hexdigest()[:16],
        versions=json.loads(versions()),
        seed=seed,
        command=shlex.join(command),
    )

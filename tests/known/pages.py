"""Pages of fits that are known, for which nothing is sampled."""

from concurrent.futures import Future
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pandas as pd

import bayeslaw
from bayeslaw._report import page
from bayeslaw._report.domains import DomainResult, PageSetting, Tested
from bayeslaw._tables.holdouts import HoldOut
from known import example, plans, saved

QUESTION = example.QUESTION | {"draws": plans.DRAWS, "seed": 3}
LAWS = {
    "target": (example.TARGET_LAW, example.TARGET),
    "source": (example.SOURCE_LAW, example.SOURCE),
}
LAW_NAMES = {domain: name for domain, (name, _) in LAWS.items()}


def save_fits(folder):
    """The fits of the example's question, as their files, by domain."""
    paths = {}
    for seed, (domain, (name, parameters)) in enumerate(LAWS.items()):
        law = bayeslaw.law(name)
        draws = plans.spread(law.from_paper(parameters), 0.01, plans.DRAWS, seed)
        noise = {"sigma": np.full(plans.DRAWS, 0.004), "dof": np.full(plans.DRAWS, 5.0)}
        paths[domain] = saved.save_fit(
            folder / f"{domain}.nc", name=name, given=draws | noise
        )
    return paths


def table():
    """Runs of both domains; their losses are of no fit."""
    runs = [saved.runs(LAWS[name][0]).assign(domain=name) for name in LAWS]
    return pd.concat(runs, ignore_index=True)


def check_of(verdict, n=20, coverage=0.9, half=0.5, group=None, is_safe=False):
    """All that the page reads of a check."""
    metrics = ("huber_log", "rmse_log", "mae_rel", "mape_clip", "intercept", "slope")
    return SimpleNamespace(
        verdict=verdict,
        n=n,
        coverage={"0.5": half, "0.9": coverage},
        group_stretch=group,
        stretch=1.5,
        is_on_the_safe_side=is_safe,
        reason=f"90% intervals hold {coverage:.0%} of {n} held-out runs",
        intervals={name: (0.0, 1.0) for name in metrics},
        width90=0.02,
        crps=0.01,
        **dict.fromkeys(metrics, 0.5),
    )


def hold_out(axis="N", planned=None, top=4e9):
    return HoldOut(axis, edge=top, below=1e9, top=top, planned=planned)


def drawn(name, fit, *tests):
    """A domain as the page has it; the first test is the main one."""
    tested = tuple(Tested(*test) for test in tests)
    return DomainResult(
        name=name,
        fit=fit,
        check=tested[0].check,
        printed=None,
        panels=None,
        pictures=(),
        inside=(),
        tested=tested,
    )


def written(path, domains, **parts):
    """Write the page of domains."""
    tested = domains[0].tested
    contents = page.Contents(
        runs=domains[0].fit.runs,
        name="runs.csv",
        card=None,
        laws=(),
        setting=PageSetting(None, tuple(t.hold_out for t in tested), 0, "raise"),
        question=parts.pop("question", None),
        domains=domains,
        fits={domain.name: domain.fit for domain in domains},
        **parts,
    )
    page._write(contents, path)
    return path


def ended(result=None, error: Exception | None = None) -> Future:
    """A fit that is done, or has failed."""
    future: Future = Future()
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
    return future


def of_fits(monkeypatch, fits):
    """Let `report` take these fits, and pass their checks."""

    test = (hold_out(), check_of("trust"))
    made = (
        {name: ended(fit) for name, fit in fits.items()},
        {name: ended(drawn(name, fit, test)) for name, fit in fits.items()},
    )
    monkeypatch.setattr(page, "_fit_all", lambda *_, **__: nullcontext(made))

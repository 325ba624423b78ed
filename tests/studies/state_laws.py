"""Compare the state laws with other forms of them, with and without each term, by forecasts of left-out stages.

    python tests/studies/state_laws.py RUNS [--only source,target] [--forms shipped,...] [-o FILE.csv]

RUNS is `cpt_replay_70m.csv` (one model, four shares of replay) or a table of `harness` (steps after the warm-up).
Of the first, each share and the later half are left out in turn. Of the second, these are left out: the largest ptpp, the two largest
ptpp, budgets over 5 tokens per parameter, the largest replay, and the largest of several sizes. Every form is fitted with the law's
priors and shared errors, by importance sampling (`importance`) if it can be trusted, else by NUTS. Its forecast has a new run's noise
and no drift. Prints for each form and stage the mean relative error, coverage and mean relative width of 90% intervals, and CRPS of log loss.
"""

import argparse
import importlib.util
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pandas as pd

import bayeslaw
from bayeslaw._base.machine import runtime
from bayeslaw._forecasts.check import crps
from bayeslaw._inference import coordinates, nuts
from bayeslaw._inference.importance import approximate, starts_near
from bayeslaw._inference.modes import find_peaks, start_near_mode
from bayeslaw._inference.table import Padded, pad, shared_error
from bayeslaw._law.law import Law, clip_replay, constant
from bayeslaw._posteriors.posterior import LogLoss, over_draws
from bayeslaw._tables import fitting

N0 = 1e9
WARM = 20  # steps of adaptation from which microcpt's rows count: its learning rate warms up over the first 10
MIN_ESS, DRAWS = 100, 2000
NUTS = {"chains": 4, "warmup": 300, "draws": 300}


# -- forms -----------------------------------------------------------------------------------------------------------


def basis(law: Law, coefficient: str, function) -> Law:
    """The law with another basis in one term."""
    return replace(
        law,
        terms=tuple(
            replace(t, basis=function) if t.coefficient == coefficient else t
            for t in law.terms
        ),
    )


def without(law: Law, coefficient: str, *exponents: str) -> Law:
    """The law without a term and its exponents."""
    terms = tuple(t for t in law.terms if t.coefficient != coefficient)
    return replace(
        law,
        terms=terms,
        exponents=tuple(e for e in law.exponents if e.name not in exponents),
    )


def size_factor(x, e, name):
    return (x["N"] / N0) ** (jnp.log(e[f"{name}4"]) / jnp.log(1e4))


def gap(x, e, of_replay, of_tokens):
    return (
        (e["S1"] - x["source_loss_before"])
        * size_factor(x, e, "g")
        * of_replay
        * of_tokens
    )


def saturating(x, e):
    return -jnp.expm1(-x["D"] / e["D1"])


def source_forms(law: Law) -> dict[str, Law]:
    """Forms of the source law by name."""
    d2 = lambda e: e["ratio"] * e["D1"]  # noqa: E731
    return {
        "shipped": law,
        "no G": without(law, "G", "ratio"),
        "G, D2 = D1": law.with_priors({"ratio": "fixed(1)"}),
        "G of all tokens": basis(law, "G", lambda x, e: jnp.log1p(x["D"] / d2(e))),
        "G saturates": basis(
            law, "G", lambda x, e: -jnp.expm1(-x["replay"] * x["D"] / d2(e))
        ),
        "G saturates, all tokens": basis(
            law, "G", lambda x, e: -jnp.expm1(-x["D"] / d2(e))
        ),
        "no N": law.with_priors({"g4": "fixed(1)"}),
        "(1-r)^kappa": basis(
            law,
            "share",
            lambda x, e: gap(
                x, e, (1 - clip_replay(x["replay"])) ** e["kappa"], saturating(x, e)
            ),
        ),
        "D/(D+D1)": basis(
            law,
            "share",
            lambda x, e: gap(
                x, e, jnp.exp(-e["kappa"] * x["replay"]), x["D"] / (x["D"] + e["D1"])
            ),
        ),
        "log D": basis(
            law,
            "share",
            lambda x, e: gap(
                x,
                e,
                jnp.exp(-e["kappa"] * x["replay"]),
                0.2 * jnp.log1p(x["D"] / e["D1"]),
            ),
        ),
    }


def target_forms(law: Law) -> dict[str, Law]:
    """Forms of the target law by name."""

    def way(x, e, outside=True, q=None, target_tokens=False):
        share = 1 - clip_replay(x["replay"])
        r = share ** (e["q"] if q is None else q)
        seen = (
            x["D"]
            * size_factor(x, e, "h")
            / e["D1_ref"]
            * (1.0 if outside else r)
            * (share if target_tokens else 1.0)
        )
        return (r if outside else 1.0) * -jnp.expm1(-e["beta"] * jnp.log1p(seen))

    def form(floor, **kwargs):
        first = basis(
            law, "one", lambda x, e: x["loss_before"] * (1 - way(x, e, **kwargs))
        )
        return basis(first, "c", lambda x, e: floor(x) * way(x, e, **kwargs))

    before = lambda x: x["source_loss_before"]  # noqa: E731
    return {
        "shipped": law,
        "proposed (replay inside)": form(before, outside=False),
        "floor c sqrt(S0)": form(lambda x: 1.6 * jnp.sqrt(before(x))),
        "floor c": form(lambda x: constant(x, {}) * 1.6),
        "no N": law.with_priors({"h4": "fixed(1)"}),
        "target tokens, replay outside": form(before, target_tokens=True),
        "target tokens only": form(before, outside=False, q=1.0).with_priors(
            {"q": "fixed(1)"}
        ),
    }


FORMS = {
    "source": ("state-source", source_forms),
    "target": ("state-target", target_forms),
}
ONE_SIZE = {"source": {"g4": "fixed(1)"}, "target": {"h4": "fixed(1)"}}
ONE_CHECKPOINT = {"source": {"S1": "fixed(4)"}, "target": {}}


# -- tables ----------------------------------------------------------------------------------------------------------


def curves(path: Path) -> pd.DataFrame:
    """The learning curves as `tests/schedules/test_replay_curves.py` reads them."""
    spec = importlib.util.spec_from_file_location(
        "curves", Path(__file__).parents[1] / "schedules" / "test_replay_curves.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.curves(path)


def stages(runs: pd.DataFrame) -> dict[str, np.ndarray]:
    """What is left out, by name: shape (run,) each."""
    out = {}
    if "ptpp" not in runs:
        out = {
            f"replay {r:g}": runs["replay"] == r
            for r in sorted(runs["replay"].unique())
        }
        out["steps over half"] = runs["step"] > runs["step"].max() / 2
        return {name: held.to_numpy() for name, held in out.items()}
    levels = np.sort(runs["ptpp"].unique())
    for k in (1, 2):
        if len(levels) > k + 1 or k == 1 < len(levels):
            out[f"ptpp over {levels[-k - 1]:g}"] = runs["ptpp"] > levels[-k - 1]
    out["D/N over 5.1"] = runs["D"] / runs["N"] > 5.1
    out["largest replay"] = runs["replay"] == runs["replay"].max()
    if runs["N"].nunique() > 1:
        out["largest N"] = runs["N"] == runs["N"].max()
    return {name: held.to_numpy() for name, held in out.items()}


# -- scores ----------------------------------------------------------------------------------------------------------


def posterior(
    law: Law, table: Padded, x: dict, kept: np.ndarray, starts: list | None
) -> tuple[dict, str]:
    """Draws given the rows that are kept, and how they were made."""
    weight = np.zeros(len(table.weight))
    weight[: len(kept)] = kept
    part, at = (
        table._replace(weight=weight),
        coordinates.contrast_points(law, {c: v[kept] for c, v in x.items()}),
    )
    if starts is None:
        vectors = start_near_mode(law, part, at, 0)[None]
    else:
        vectors = starts_near(law, part, at, starts, 0.005)
    peaks = find_peaks(law, part, at, vectors)
    found = approximate(law, part, at, peaks, seed=0)
    if found.is_trusted(MIN_ESS):
        return found.resample(DRAWS, 0), f"k-hat {found.k:.2f}"
    problem = nuts.whitened_at(part, at, peaks[0])
    draws, _ = nuts.draw(law, problem, nuts.NUTS(**NUTS), seed=0)
    return draws, "NUTS"


def scores(law: Law, runs: pd.DataFrame, independent: bool) -> list[dict]:
    """A row for each stage left out, and one for all rows fitted."""
    x, y = fitting.covariates(law, runs), np.log(fitting.losses(runs))
    table = pad(x, y) if independent else pad(x, y, shared_error(runs))
    rng, rows = np.random.default_rng(0), []
    everything = np.ones(len(y), bool)
    whole = posterior(law, table, x, everything, None)
    starts = [{n: whole[0][n][i] for n in law.priors} for i in range(3)]
    for stage, held in {"(in the sample)": everything, **stages(runs)}.items():
        draws, sampler = (
            whole if held.all() else posterior(law, table, x, ~held, starts)
        )
        at = {c: v[held] for c, v in x.items()}
        mean = over_draws(LogLoss(law), draws, at)
        own = [
            draws[n] ** 2 for n in ("sigma", "tau_checkpoint", "tau_run") if n in draws
        ]
        new = mean + np.sqrt(sum(own))[:, None] * rng.standard_t(
            draws["dof"][:, None], size=mean.shape
        )
        low, middle, high = np.quantile(new, [0.05, 0.5, 0.95], axis=0)
        rows.append(
            {
                "stage": stage,
                "n": int(held.sum()),
                "mae": float(np.abs(np.exp(middle - y[held]) - 1).mean()),
                "coverage": float(((low <= y[held]) & (y[held] <= high)).mean()),
                "width": float((np.exp(high - middle) - np.exp(low - middle)).mean()),
                "crps": float(crps(new, y[held]).mean()),
                "sampler": sampler,
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path)
    parser.add_argument("--only", default="source,target")
    parser.add_argument(
        "--forms",
        default="",
        help="names to compare, separated by semicolons; all by default",
    )
    parser.add_argument(
        "--independent", action="store_true", help="every row has an error of its own"
    )
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    runtime.start()
    table = pd.read_csv(options.runs)
    runs = curves(options.runs) if "kind" in table else bayeslaw.read_runs(options.runs)
    if "ptpp" in runs:
        runs = runs[runs["step"] > WARM].reset_index(drop=True)
    rows = []
    for domain in options.only.split(","):
        own = runs[runs["domain"] == domain]
        name, forms = FORMS[domain]
        fixed = (ONE_SIZE[domain] if own["N"].nunique() == 1 else {}) | (
            ONE_CHECKPOINT[domain] if own["source_loss_before"].nunique() == 1 else {}
        )
        for form, law in forms(bayeslaw.law(name)).items():
            if options.forms and form not in options.forms.split(";"):
                continue
            start = time.perf_counter()
            have = {e.name for e in law.exponents}
            law = law.with_priors({k: v for k, v in fixed.items() if k in have})
            found = scores(law, own, options.independent)
            rows += [{"domain": domain, "form": form, **row} for row in found]
            shown = "; ".join(
                f"{r['stage']} {r['mae']:.2%} ({r['coverage']:.0%})" for r in found
            )
            print(
                f"{domain}, {form}: {shown} [{time.perf_counter() - start:.0f} s]",
                file=sys.stderr,
                flush=True,
            )
            if options.output:
                pd.DataFrame(rows).to_csv(options.output, index=False)
    print(pd.DataFrame(rows).round(4).to_string(index=False))


if __name__ == "__main__":
    main()

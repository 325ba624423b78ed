"""Check the page's plans against a known truth: whether they are kept, what they cost, and whether the advised runs save as much as stated.

    python tests/studies/stranger_worlds.py [--worlds 20] [--processes 16] [--rows stranger_worlds.csv] [-o docs/results/stranger_worlds.txt]
    python tests/studies/stranger_worlds.py --widths [--worlds 8] [-o docs/results/stranger_widths.txt]

In each world a stranger's table (`tests/known/stranger.py`: 62 runs of four sizes, budgets in tokens, gaps, crashed rows, losses by a formula that is not one
of the laws) is drawn with the world's seed. It is fitted and planned as the page of `bayeslaw.report` does, with the laws that suit and nothing set by hand: the
adaptation of a 7B model, pre-trained on 300B tokens, to a target loss of 2.38 with at most 4.5% of forgetting, at 90%. The loss of the 7B model before
adaptation is forecast from the table's checkpoints; with `--start measured` it is given.

The true formula then tells whether the plan keeps both limits, and how its cost compares with the cheapest plan that keeps them. The runs that the page chooses
to buy before the plan are simulated in the world, with .3% of noise. The plan is made again with them, and its cost is compared with the promised one. If the
page advises against all runs, they are bought all the same, and marked in the table. If there is still no plan, the runs that are then offered are bought, too.

With `--widths` nothing is planned: the widths of the forecasts at the cheapest plan are split into their parts (`bayeslaw.width_parts`). Beside them stands what
a plan costs if both losses are known up to a normal error of a given sd. `--more 7e9` adds three short runs of that size to the table, to see what they are worth.

Worlds are made in parallel, each on one core. After an interruption, the same command goes on.
"""

import argparse
import sys
import time
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
from processes import processes
from resumable import study
from scipy.special import ndtr

import bayeslaw
from bayeslaw._base.numbers import Z90
from bayeslaw._plans.arguments import PlanArguments, with_losses
from bayeslaw._report.buying import choose_runs
from bayeslaw._report.question import check_question
from bayeslaw._tables.fitting import by_domain

sys.path.append(str(Path(__file__).parents[1]))
from known.stranger import read_stranger, true_losses

SIZE, PRETRAINED, NOISE = 7e9, 300e9, 0.003
TARGET, FORGETTING = 2.38, 0.045
QUESTION = {
    "N": SIZE,
    "ptpp": PRETRAINED / SIZE,
    "max_target_loss": TARGET,
    "max_forgetting": FORGETTING,
}
REPLAYS = np.linspace(0.05, 0.5, 451)  # that the tables have runs at
TOKENS = np.geomspace(1e9, 1e12, 8001)
ERRORS = (0.003, 0.005, 0.006, 0.008, 0.01)  # sd of both log losses


def losses(
    size: float, pretrained: float, tokens: Any, replay: Any
) -> dict[str, np.ndarray]:
    """Losses by the hidden formula, by domain, in nats per token."""
    source, target = true_losses(
        size / 1e6, pretrained / 1e9, tokens / 1e9, 100 * replay
    )
    return {"target": target, "source": source}


def start(size: float, pretrained: float) -> dict[str, float]:
    """Losses before adaptation: of no tokens."""
    return {k: float(v) for k, v in losses(size, pretrained, 0.0, 0.5).items()}


def margins(tokens: Any, replay: Any) -> tuple[np.ndarray, np.ndarray]:
    """How far the logs of the true losses lie below their limits."""
    truth = losses(SIZE, PRETRAINED, tokens, replay)
    most = (1 + FORGETTING) * start(SIZE, PRETRAINED)["source"]
    return np.log(TARGET / truth["target"]), np.log(most / truth["source"])


@cache
def cheapest() -> tuple[float, float]:
    """Fewest tokens that keep both limits, without noise, and their replay."""
    kept = np.minimum(*margins(TOKENS[:, None], REPLAYS[None, :])) >= 0
    first = int(np.argmax(kept.any(axis=1)))
    return float(TOKENS[first]), float(REPLAYS[kept[first]].mean())


def times_cheapest(sd: float, probability: float = 0.9) -> float:
    """Cost over the cheapest where both losses are known but for a normal error; infinite
    where no plan keeps both limits with this probability.
    """
    target, source = margins(TOKENS[:, None], REPLAYS[None, :])
    kept = ndtr(target / sd) * ndtr(source / sd) >= probability
    is_kept = kept.any(axis=1)
    return float(TOKENS[is_kept][0]) / cheapest()[0] if is_kept.any() else np.inf


def world(*, seed: int, start: str) -> list[dict[str, Any]]:
    """One world: the plan, the runs bought, and the plan after; without one, again."""
    began = time.process_time()
    question: dict[str, Any] = dict(QUESTION)
    if start == "measured":
        question |= given_start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runs = read_stranger(seed)
        planned = plan_of(runs, question)
        row = outcome(planned.plan)
        for batch, suffix in enumerate(("_after", "_second")):
            made, details = bought(planned)
            if made.empty:
                break
            more = measured(made, seed, batch)
            runs = pd.concat([runs, more], ignore_index=True)
            planned = plan_of(runs, question)
            parts = details | outcome(planned.plan)
            row |= {f"{name}{suffix}": value for name, value in parts.items()}
            if planned.plan.feasible:
                break
    jax.clear_caches()
    return [row | {"seconds": time.process_time() - began}]


class PlannedTable(NamedTuple):
    """A table's fits by domain, the keywords of its plan, and the plan."""

    parts: dict[str, pd.DataFrame]
    fits: dict[str, Any]
    keywords: dict[str, Any]
    plan: bayeslaw.Plan


def plan_of(runs: pd.DataFrame, question: dict[str, Any]) -> PlannedTable:
    """Fit and plan as the page does."""
    parts = by_domain(runs)
    fits = {name: bayeslaw.average(part, seed=0) for name, part in parts.items()}
    asked = check_question(question, parts, dict.fromkeys(parts, ()))
    keywords = {"seed": 0, **asked.keywords}
    known, _ = with_losses(PlanArguments(*asked.unfitted, **keywords))
    keywords["covariates"] = known.covariates
    plan = bayeslaw.plan(fits["target"], fits["source"], **keywords)
    return PlannedTable(parts, fits, keywords, plan)


def bought(planned: PlannedTable) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Choose runs as the page does."""
    purchase = choose_runs(
        planned.fits, planned.keywords, planned.plan, planned.parts["target"]
    )
    if purchase is None or purchase.picked is None or not purchase.picked.picks:
        return pd.DataFrame(), {}
    picks = purchase.picked.picks
    rows = list(dict.fromkeys(row for pick in picks for row in pick["rows"]))
    made = purchase.offered.loc[rows, ["N", "D", "replay", "ptpp"]]
    return made, {
        "advised": purchase.is_advised,
        "bought": len(picks),
        "own": int(made["N"].eq(SIZE).sum()),
        "spent": purchase.picked.spent,
        "promised": sum(pick["gain"] for pick in picks)
        if purchase.is_planned
        else np.nan,
    }


def only_fitted(*, seed: int, more: float) -> list[dict[str, Any]]:
    """Split the forecasts of one world at the cheapest plan into the parts of their
    widths.
    """
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runs = read_stranger(seed)
        if more:
            runs = pd.concat([runs, measured(short_runs(more), seed)])
            runs = runs.reset_index(drop=True)
        parts = by_domain(runs)
        fits = {name: bayeslaw.average(part, seed=0) for name, part in parts.items()}
    row = {
        f"{domain}_{part}": width
        for domain, fit in fits.items()
        for part, width in widths(fit, domain)
    }
    jax.clear_caches()
    return [row | {"seconds": time.perf_counter() - began}]


def short_runs(size: float) -> pd.DataFrame:
    """Make three runs of a size at the plan's stage, with the tokens of the table's
    shortest and its replays.
    """
    columns = {"N": size, "ptpp": PRETRAINED / size, "D": 2e9}
    return pd.DataFrame(columns | {"replay": [0.05, 0.25, 0.5]})


def widths(fit: Any, domain: str) -> Iterator[tuple[str, float]]:
    """Split the width of the forecast of the cheapest plan, drift by side."""
    tokens, replay = cheapest()
    before = start(SIZE, PRETRAINED)
    run = {
        "N": SIZE,
        "D": tokens,
        "replay": replay,
        "ptpp": PRETRAINED / SIZE,
        "loss_before": before[domain],
        "source_loss_before": before["source"],
    }
    runs = pd.DataFrame([run])
    parts = bayeslaw.width_parts(fit, runs).drop(columns="drift").iloc[0]
    sides = bayeslaw.drift_parts(fit, runs).iloc[0]
    yield from parts.items()
    yield from ((f"drift, {side}", width) for side, width in sides.items())


def given_start() -> dict[str, float]:
    """What is known where the 7B model is evaluated before it is adapted."""
    before = start(SIZE, PRETRAINED)
    source = before["source"]
    return {
        "loss_before": before["target"],
        "source_loss_before": source,
        "baseline_loss": source,
    }


def outcome(plan: bayeslaw.Plan) -> dict[str, Any]:
    """What became of a plan; ``chance``: that one new run of each domain keeps both."""
    if not plan.feasible:
        return {"feasible": False}
    target, source = (float(m) for m in margins(plan.D, plan.replay))
    return {
        "feasible": True,
        "D": plan.D,
        "replay": plan.replay,
        "flops": plan.flops,
        "probability": plan.probability,
        "probability_forgetting": plan.probability_forgetting,
        "target_margin": target,
        "forgetting_margin": source,
        "kept": bool(min(target, source) >= 0),
        "chance": float(ndtr(target / NOISE) * ndtr(source / NOISE)),
        "times_cheapest": plan.D / cheapest()[0],
        "plug_in_chance": plug_in_chance(plan),
    }


def plug_in_chance(plan: bayeslaw.Plan) -> float:
    """The same of the plan by best estimates alone."""
    point = plan.plug_in
    if point["D"] is None:
        return np.nan
    target, source = margins(point["D"], point["replay"])
    return float(ndtr(target / NOISE) * ndtr(source / NOISE))


def measured(made: pd.DataFrame, seed: int, batch: int = 0) -> pd.DataFrame:
    """Runs made in the world: rows of both domains, as tables have them."""
    made = made.assign(run=[f"made-{batch}-{i:03d}" for i in range(len(made))])
    pretrained = made["N"] * made["ptpp"]
    truth = losses(made["N"], pretrained, made["D"], made["replay"])
    before = losses(made["N"], pretrained, 0.0, 0.5)
    rng = np.random.default_rng([seed, 1 + batch])
    parts = [
        made.assign(
            domain=domain,
            loss=loss * np.exp(rng.normal(0, NOISE, len(made))),
            loss_before=before[domain],
            target_loss_before=before["target"],
            source_loss_before=before["source"],
        )
        for domain, loss in truth.items()
    ]
    return pd.concat(parts, ignore_index=True)


# -- the table -------------------------------------------------------------------------


def table(rows: pd.DataFrame) -> str:
    """What came of all worlds."""
    has_plan = rows["feasible"].astype(bool)
    plans = rows[has_plan]
    after, second = (
        rows.get(f"feasible_{name}", pd.Series(index=rows.index)).eq(True)
        for name in ("after", "second")
    )
    again = rows[has_plan & after]
    lines = [
        f"{len(plans)} of {len(rows)} worlds have a plan; cheapest in the truth: "
        f"{cheapest()[0] / 1e9:.1f}B tokens. Plans by best estimates alone keep both limits with a "
        f"chance of {plans['plug_in_chance'].mean():.0%}.",
        "",
        "| plan | worlds | kept | chance with noise | stated | median cost over the cheapest |",
        "|---|---|---|---|---|---|",
        line("from the table", plans, ""),
        line("the same table with the runs bought", again, "_after"),
        line(
            "no plan from the table, with the runs that the page offers then",
            rows[~has_plan & after],
            "_after",
        ),
        line("all worlds with the runs that the page offers", rows[after], "_after"),
        line(
            "none after these runs, with those that it offers next",
            rows[second],
            "_second",
        ),
    ]
    if len(again) > 1:
        lines += [
            "",
            "| runs bought | worlds | promised saving (mean) | realised (mean) | slope (standard error) |",
            "|---|---|---|---|---|",
        ]
    is_advised = again["advised_after"].eq(True)
    for name, part in (("advised", again[is_advised]), ("all", again)):
        if len(part) > 1:
            lines.append(saving(name, part))
    return "\n".join(lines) + "\n"


def line(name: str, plans: pd.DataFrame, suffix: str) -> str:
    """Promised against kept."""
    if plans.empty:
        return f"| {name} | 0 | | | | |"
    part = {
        key: plans[f"{key}{suffix}"].astype(float)
        for key in ("kept", "chance", "probability", "times_cheapest")
    }
    return (
        f"| {name} | {len(plans)} | {part['kept'].sum():.0f} | {part['chance'].mean():.0%} | "
        f"{part['probability'].mean():.0%} | {part['times_cheapest'].median():.2f} |"
    )


def widths_table(rows: pd.DataFrame) -> str:
    """Average the parts of the widths over worlds, and show costs by error."""
    lines = [
        f"| width at the cheapest plan, mean of {len(rows)} worlds | target | source |",
        "|---|---|---|",
    ]
    of_domains = {
        domain: rows.filter(regex=f"^{domain}_").fillna(0.0).mean()
        for domain in ("target", "source")
    }
    shares = pd.DataFrame(
        {
            d: means.set_axis(means.index.str.removeprefix(f"{d}_"))
            for d, means in of_domains.items()
        }
    ).fillna(0.0)
    shares = shares[shares.max(axis=1) > 0].sort_values("target", ascending=False)
    shares.loc["all"] = shares.sum()
    lines += [
        f"| {part} | {row['target']:.2%} | {row['source']:.2%} |"
        for part, row in shares.iterrows()
    ]
    return "\n".join([*lines, "", *errors_table()]) + "\n"


def errors_table() -> list[str]:
    """Show what a plan costs by the error of both losses, all else known."""
    lines = [
        "| sd of both losses | 90% interval | cost over the cheapest |",
        "|---|---|---|",
    ]
    for sd in ERRORS:
        times = times_cheapest(sd)
        cost = f"{times:.2f}" if np.isfinite(times) else "no plan at 90%"
        lines.append(f"| {sd:.1%} | {2 * Z90 * sd:.1%} | {cost} |")
    return lines


def saving(name: str, part: pd.DataFrame) -> str:
    """Slope through the origin of what was realised over what was promised."""
    promised = part["promised_after"].to_numpy(float)
    realised = (part["flops"] - part["flops_after"]).to_numpy(float)
    slope = promised @ realised / (promised @ promised)
    residuals = realised - slope * promised
    error = np.sqrt(residuals @ residuals / (len(part) - 1) / (promised @ promised))
    return (
        f"| {name} | {len(part)} | {promised.mean():.2g} | {realised.mean():.2g} | "
        f"{slope:.2f} ({error:.2f}) |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worlds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="seed of the first world")
    parser.add_argument("--processes", type=int, default=1, help="worlds at a time")
    parser.add_argument("--start", choices=("forecast", "measured"), default="forecast")
    parser.add_argument("--widths", action="store_true")
    parser.add_argument(
        "--more", type=float, default=0.0, help="size of three more runs"
    )
    parser.add_argument("--rows", type=Path, default=Path("stranger_worlds.csv"))
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.worlds)
    task, summary, setting = world, table, {"start": options.start}
    if options.widths:
        task, summary, setting = only_fitted, widths_table, {"more": options.more}
    jobs = [{"seed": seed} | setting for seed in seeds]
    with processes(options.processes) as executor:
        rows = study(task, jobs, options.rows, executor=executor, progress=print)
    text = summary(rows)
    print(text)
    if options.output:
        options.output.write_text(text)


if __name__ == "__main__":
    main()

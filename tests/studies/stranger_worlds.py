"""Check the page's plans against a known truth: whether they are kept, what they cost, and whether the advised runs save as much as stated.

    python tests/studies/stranger_worlds.py [--worlds 20] [--processes 16] [--rows stranger_worlds.csv] [-o docs/stranger_worlds.txt]

In each world a stranger's table (`tests/known/stranger.py`: 62 runs of four sizes, budgets in tokens, gaps, crashed rows, losses by a formula that is not one
of the laws) is drawn with the world's seed. `bayeslaw.report` reads it as the command does, with the laws that suit and nothing set by hand. It plans the
adaptation of a 7B model, pre-trained on 300B tokens, to a target loss of 2.38 with at most 4.5% of forgetting, at 90%. The loss of the 7B model before
adaptation is forecast from the table's checkpoints; with `--start measured` it is given.

The true formula then tells whether the plan keeps both limits, and how its cost compares with the cheapest plan that keeps them. The runs that the page chooses
to buy before the plan are simulated in the world, with .3% of noise. The page is made again with them, and the new plan's cost is compared with the promised
one. If the page advises against all runs, they are bought all the same, and marked in the table.

Worlds are made in parallel, each on one core. After an interruption, the same command goes on.
"""

import argparse
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from processes import processes
from scipy.special import ndtr

import bayeslaw
from bayeslaw._report.buying import Purchase, choose_runs
from bayeslaw._report.planned import completed
from bayeslaw._report.question import check_question
from bayeslaw._studies.resumable import study
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


def cheapest() -> float:
    """Fewest tokens that keep both limits, without noise."""
    kept = np.minimum(*margins(TOKENS[:, None], REPLAYS[None, :])) >= 0
    return float(TOKENS[kept.any(axis=1)][0])


def world(*, seed: int, start: str) -> list[dict[str, Any]]:
    """One world: the plan, the runs bought, and the plan after."""
    began = time.perf_counter()
    question: dict[str, Any] = dict(QUESTION)
    if start == "measured":
        question |= given_start()
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        runs = read_stranger(seed)
        page = bayeslaw.report(runs, folder, question=question, quick=True)
        row: dict[str, Any] = {
            f"verdict_{domain}": check.verdict for domain, check in page.checks.items()
        }
        row |= outcome(page.plan)
        bought = purchase(page, runs, question)
        if bought is not None and bought.picked is not None and bought.picked.picks:
            more = pd.concat([runs, measured(bought, seed)], ignore_index=True)
            again = bayeslaw.report(more, folder, question=question, quick=True)
            row |= {
                "advised": bought.is_advised,
                "bought": len(bought.picked.picks),
                "spent": bought.picked.spent,
                "promised": sum(pick["gain"] for pick in bought.picked.picks),
            }
            row |= {f"{name}_after": v for name, v in outcome(again.plan).items()}
    return [row | {"seconds": time.perf_counter() - began}]


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
        "times_cheapest": plan.D / cheapest(),
        "plug_in_chance": plug_in_chance(plan),
    }


def plug_in_chance(plan: bayeslaw.Plan) -> float:
    """The same of the plan by best estimates alone."""
    point = plan.plug_in
    if point["D"] is None:
        return np.nan
    target, source = margins(point["D"], point["replay"])
    return float(ndtr(target / NOISE) * ndtr(source / NOISE))


def purchase(
    page: Any, runs: pd.DataFrame, question: dict[str, Any]
) -> Purchase | None:
    """Runs to buy, chosen as on the page."""
    parts = by_domain(runs)
    asked = check_question(question, parts, dict.fromkeys(parts, ()))
    keywords, _ = completed(asked, parts, seed=0)
    return choose_runs(page.fits, keywords, page.plan, parts["target"])


def measured(bought: Purchase, seed: int) -> pd.DataFrame:
    """The chosen runs made in the world: rows of both domains, as tables have them."""
    rows = [row for pick in bought.picked.picks for row in pick["rows"]]
    made = bought.offered.loc[list(dict.fromkeys(rows)), ["N", "D", "replay", "ptpp"]]
    pretrained = made["N"] * made["ptpp"]
    truth = losses(made["N"], pretrained, made["D"], made["replay"])
    before = losses(made["N"], pretrained, 0.0, 0.5)
    rng = np.random.default_rng([seed, 1])
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
    plans = rows[rows["feasible"].astype(bool)]
    lines = [
        f"{len(plans)} of {len(rows)} worlds have a plan; cheapest in the truth: "
        f"{cheapest() / 1e9:.1f}B tokens. Plans by best estimates alone keep both limits with a "
        f"chance of {plans['plug_in_chance'].mean():.0%}.",
        "",
        "| plan | worlds | kept | chance with noise | stated | median cost over the cheapest |",
        "|---|---|---|---|---|---|",
        line("from the table", plans, ""),
    ]
    bought = plans[plans.get("feasible_after", pd.Series(index=plans.index)).eq(True)]
    if bought.empty:
        return "\n".join(lines) + "\n"
    lines += [line("with the runs bought", bought, "_after")]
    if len(bought) < 2:
        return "\n".join(lines) + "\n"
    lines += [
        "",
        "| runs bought | worlds | promised saving (mean) | realised (mean) | slope (standard error) |",
        "|---|---|---|---|---|",
    ]
    is_advised = bought["advised"].eq(True)
    for name, part in (("advised", bought[is_advised]), ("all", bought)):
        if len(part) > 1:
            lines.append(saving(name, part))
    return "\n".join(lines) + "\n"


def line(name: str, plans: pd.DataFrame, suffix: str) -> str:
    """Promised against kept."""
    part = {
        key: plans[f"{key}{suffix}"].astype(float)
        for key in ("kept", "chance", "probability", "times_cheapest")
    }
    return (
        f"| {name} | {len(plans)} | {part['kept'].sum():.0f} | {part['chance'].mean():.0%} | "
        f"{part['probability'].mean():.0%} | {part['times_cheapest'].median():.2f} |"
    )


def saving(name: str, part: pd.DataFrame) -> str:
    """Slope through the origin of what was realised over what was promised."""
    promised = part["promised"].to_numpy(float)
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
    parser.add_argument("--rows", type=Path, default=Path("stranger_worlds.csv"))
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.worlds)
    jobs = [{"seed": seed, "start": options.start} for seed in seeds]
    with processes(options.processes) as executor:
        rows = study(world, jobs, options.rows, executor=executor, progress=print)
    text = table(rows)
    print(text)
    if options.output:
        options.output.write_text(text)


if __name__ == "__main__":
    main()

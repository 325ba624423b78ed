"""Check promises on 22 source domains and on their weighted mean, at a share of replay that was left out.

    python tests/studies/domain_limits.py ../shared/data/cpt_replay_70m.csv [-o docs/results/domain_limits.txt]

A 70M model was adapted from the Pile to Python code (Ye et al. 2024) and measured along four runs of different replay. Each share of replay is left out in
turn. `state-source` is fitted to each Pile domain and `state-target` to code, by previews of the laws alone, and adaptations with the left-out share are planned.
Limits are forecasts of the fits at 5,000 steps: the target's median loss, each domain's median rise, and for the weighted mean the mean of these rises. They are
loosened by the least of 0, .2, .5, 1, 2 and 4 points with which a plan of all limits exists within the measured steps. Plans are made for all limits, with
correlated and with independent errors of domains, and for the mean alone. They are judged by the measured losses, interpolated linearly between steps.
"""

import argparse
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

import bayeslaw
from bayeslaw._plans.plan import problem_of
from bayeslaw._plans.search import Problem, search

sys.path.insert(0, str(Path(__file__).parents[1] / "schedules"))
from test_replay_curves import FITS, TARGET, TOKENS_PER_STEP, N

STEPS, CONFIDENCES = 5000, (0.5, 0.9)
MEASURED = np.log(10_000 * TOKENS_PER_STEP)  # the last point of the curves
LOOSER = (0.0, 0.002, 0.005, 0.01, 0.02, 0.04)


class Measured:
    """The published table: losses before adaptation, weights, and curves."""

    def __init__(self, path: Path) -> None:
        table = pd.read_csv(path)
        base = table[table["kind"] == "base"].set_index("domain")
        self.before = base["loss"].to_dict()
        self.weights = base["pile_weight"].dropna().to_dict()
        self.domains = list(self.weights)
        total = sum(self.weights.values())
        self.mean_before = (
            sum(self.before[d] * w for d, w in self.weights.items()) / total
        )
        runs = table[table["kind"] == "ct"]
        self.runs = runs.assign(
            N=N,
            D=runs["step"] * TOKENS_PER_STEP,
            run="replay " + runs["replay"].astype(str),
            loss_before=runs["domain"].map(self.before),
        )

    def of(self, domain: str) -> pd.DataFrame:
        """Runs of a domain; a source's loss before adaptation is its own."""
        before = self.mean_before if domain == TARGET else self.before[domain]
        rows = self.runs[self.runs["domain"] == domain]
        return rows.assign(source_loss_before=before).reset_index(drop=True)

    def at(self, domain: str, replay: float, tokens: float) -> float:
        """Measured loss after so many tokens."""
        curve = self.of(domain).query("replay == @replay").sort_values("D")
        return float(np.interp(tokens, curve["D"], curve["loss"]))


def fit(rows: pd.DataFrame, which: str) -> bayeslaw.Fit:
    law, priors = FITS[which]
    settings = {"preview": True, "discrepancy": False, "on_failure": "ignore"}
    return bayeslaw.fit(rows, law, priors=priors, **settings)


def plans(measured: Measured, replay: float) -> list[dict]:
    """Plan the share left out, by way and confidence."""

    def fitted(domain: str, which: str) -> bayeslaw.Fit:
        rows = measured.of(domain)
        return fit(rows[rows["replay"] != replay].reset_index(drop=True), which)

    target = fitted(TARGET, "target")
    sources = {domain: fitted(domain, "source") for domain in measured.domains}
    tokens = STEPS * TOKENS_PER_STEP

    def median(posterior: bayeslaw.Fit, domain: str) -> float:
        row = measured.of(domain).head(1).assign(replay=replay, D=tokens)
        return float(np.exp(np.median(posterior.log_loss(row))))

    rise = {d: median(sources[d], d) / measured.before[d] - 1 for d in sources}
    total = sum(measured.weights.values())
    mean = sum(rise[d] * w for d, w in measured.weights.items()) / total
    loss = median(target, TARGET)
    asked = {
        "N": N,
        "ptpp": 1.0,
        "covariates": {
            "loss_before": measured.before[TARGET],
            "source_loss_before": measured.mean_before,
        },
        "baseline_loss": {d: measured.before[d] for d in sources},
        "mean_weights": measured.weights,
        "min_replay": replay,
        "max_replay": replay,
        "max_target_loss": loss,
        "max_mean_loss": f"{100 * mean:+.6f}%",
        "max_forgetting": dict(rise),
        "draws": 2000,
    }
    correlated = problem_of(target, sources, **asked)
    independent = problem_of(target, sources, **asked, correlation=0)
    rows = []
    for confidence in CONFIDENCES:
        for looser in LOOSER:
            everything = asked_for(correlated, confidence, looser)
            choice = everything.at(replay)
            if choice.margin >= 0 and choice.log_tokens <= MEASURED:
                break
        few = ("target", "mean")
        ways = {
            "each": everything,
            "each, independent": asked_for(independent, confidence, looser),
            "the mean alone": replace(
                everything,
                constraints=tuple(c for c in everything.constraints if c.name in few),
            ),
        }
        for way, problem in ways.items():
            row = {
                "replay": replay,
                "confidence": confidence,
                "looser": looser,
                "way": way,
            }
            rows.append(row | outcome(measured, replay, problem, everything))
            print(rows[-1], flush=True)
    return rows


def asked_for(problem: Problem, confidence: float, looser: float) -> Problem:
    """Loosen the limits of a problem with the same draws: a limit on a loss by a share
    of it.
    """
    constraints = tuple(
        c.with_limit(c.limit * (1 + looser) if c.unit == "loss" else c.limit + looser)
        for c in problem.constraints
    )
    return replace(problem, constraints=constraints, confidence=confidence)


def outcome(
    measured: Measured, replay: float, problem: Problem, everything: Problem
) -> dict:
    """Compute the probabilities that the cheapest plan states, for its limits and for
    all limits, and which limits were kept.
    """
    choice = search(replace(problem, least=replay, largest=replay))
    D = float(np.exp(choice.log_tokens))
    if choice.margin < 0 or choice.log_tokens > MEASURED:
        return {"D": None}

    def promised(of: Problem) -> float:
        return float(of.kept(choice.log_tokens, replay).all(axis=0).mean())

    limits = {c.name: c.limit for c in everything.constraints}
    real = {
        d: measured.at(d, replay, D) / measured.before[d] - 1 for d in measured.domains
    }
    total = sum(measured.weights.values())
    real_mean = sum(real[d] * w for d, w in measured.weights.items()) / total
    over = {d: real[d] - limits[d] for d in real}
    return {
        "D": D,
        "promised": promised(problem),
        "promised_all": promised(everything),
        "target": measured.at(TARGET, replay, D) <= limits["target"],
        "mean": real_mean <= limits["mean"],
        "domains": sum(x <= 0 for x in over.values()),
        "worst": max(over.values()),
    }


def markdown(rows: pd.DataFrame) -> str:
    heads = [
        "replay left out", "confidence", "limits looser by", "planned by", "steps", "promised",
        "of all limits", "target kept", "mean kept", "domains kept of 22", "worst over its limit",
    ]  # fmt: skip
    lines = [heads, ["---"] * len(heads)]
    for row in rows.to_dict("records"):
        start = [
            f"{row['replay']:.1%}",
            f"{row['confidence']:.0%}",
            f"{row['looser']:.1%}",
            row["way"],
        ]
        if pd.isna(row.get("promised", np.nan)):
            lines.append([*start, "no plan", *[""] * 6])
            continue
        lines.append(
            [
                *start,
                f"{row['D'] / TOKENS_PER_STEP:.0f}",
                f"{row['promised']:.0%}",
                f"{row['promised_all']:.0%}",
                *("yes" if row[name] else "no" for name in ("target", "mean")),
                str(int(row["domains"])),
                f"{max(row['worst'], 0):.2%}",
            ]
        )
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    measured = Measured(arguments.table)
    rows = []
    for replay in sorted(measured.runs["replay"].unique()):
        rows += plans(measured, float(replay))
    table = markdown(pd.DataFrame(rows))
    print(table)
    if arguments.output:
        arguments.output.write_text(table + "\n")


if __name__ == "__main__":
    main()

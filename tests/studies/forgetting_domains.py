"""Simulate forgetting and fine-tuning on the domains of Bethune 2025, at the published parameters and errors, and fit them.

    python tests/studies/forgetting_domains.py [--parts domains,extrapolation,five,wide,unseen,cost] [--seeds 5] [-o FILE.md]

Reads the paper's tables 2 and 3 from ../shared/reference (or $BAYESLAW_SHARED/reference). A domain's runs are its grid of
5 sizes x 5 sets x 5 shares of replay, with normal noise on log loss whose mean size is the domain's published error.

- domains: how often 90% intervals hold the parameters, in fits by domain and in one pool. One seed after another.
- extrapolation: errors of set-ups A and B, and bootstrapped errors, compared with the published ones. Seed 0.
- five: five runs of each domain are fitted, pooled and separately, and the others are held out. One seed after another.
- wide: the same with priors three times as wide. (The law's own priors have the median and sd of these very domains.)
- unseen: every domain is forecast by a pool of 25 runs of each of the other domains. Seed 0.
- cost: the pre-training that is lost on Arxiv. The curve of pre-training is a fit of `chinchilla` to the paper's five models. Seed 0.
"""

import argparse
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from forgetting_grid import (
    bootstrapped_mre,
    extrapolation,
    finetuning_grid,
    mean_relative_error,
    simulate_domains,
)
from measured import SHARED

import bayeslaw
from bayeslaw import (
    cost_of_forgetting,
    pool,
)
from bayeslaw._forecasts.check import crps

PREFIX = {"forgetting": "fg_", "finetune": "ft_"}


def reference(name: str) -> pd.DataFrame:
    return pd.read_csv(SHARED / "reference" / f"bethune2025_{name}.csv")


def truth(law: str) -> pd.DataFrame:
    """Published parameters and error (``mre``) of the twelve domains of The Pile."""
    rows = reference("table2").head(12).set_index("domain").filter(like=PREFIX[law])
    return rows.rename(columns=lambda c: c.removeprefix(PREFIX[law])).astype(float)


def runs_of(law: str, seed: int) -> pd.DataFrame:
    models = reference("table3").rename(columns={"loss_rewarmed": "loss_before"})[
        ["N", "loss_before"]
    ]
    known = truth(law)
    return simulate_domains(
        law, finetuning_grid(models), known, known["mre"], seed=seed
    )


def fit(runs: pd.DataFrame, law: str) -> bayeslaw.Fit:
    return bayeslaw.fit(runs, law, on_failure="ignore")


def markdown(head, rows) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in lines)


def note(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


# -- the parts -------------------------------------------------------------------------------------------------------


def domains(seeds: int) -> str:
    """Parameters recovered inside 90% intervals, by law and way of fitting."""
    rows = []
    for law in PREFIX:
        known = truth(law)
        parameters = [c for c in known if c != "mre"]
        found: dict[str, list[pd.DataFrame]] = {"by domain": [], "pooled": []}
        failed, seconds, worst = (
            dict.fromkeys(found, 0),
            dict.fromkeys(found, 0.0),
            dict.fromkeys(found, 0.0),
        )
        for seed in range(seeds):
            runs = runs_of(law, seed)
            alone = {d: fit(own, law) for d, own in runs.groupby("domain")}
            together = pool(runs, law, on_failure="ignore", seed=seed)
            for way, posteriors in (
                ("by domain", list(alone.values())),
                ("pooled", [together]),
            ):
                failed[way] += sum(bool(p.warnings) for p in posteriors)
                seconds[way] += sum(p.diagnostics["seconds"] for p in posteriors)
                worst[way] = max(
                    worst[way], *(p.diagnostics["rhat"] for p in posteriors)
                )
            found["by domain"].append(
                pd.concat({d: f.parameters() for d, f in alone.items()})
            )
            found["pooled"].append(together.parameters())
            note(f"{law} seed {seed}: {together.diagnostics}")
        for way, tables in found.items():
            inside = [_inside(t, known, parameters) for t in tables]
            mean = sum(inside) / seeds
            exponents = [p for p in ("alpha", "beta", "B") if p in parameters]
            rows.append(
                [
                    law,
                    way,
                    f"{inside[0][exponents].to_numpy().mean():.0%}",
                    f"{mean[exponents].to_numpy().mean():.0%}",
                ]
                + [
                    f"{mean[p].mean():.0%}" if p in mean else ""
                    for p in ("alpha", "beta", "B", "A", "E")
                ]
                + [f"{worst[way]:.3f}", failed[way], f"{seconds[way] / seeds:.0f}"]
            )
    head = [
        "law",
        "fitted",
        "exponents, seed 0",
        f"exponents, {seeds} seeds",
        "alpha",
        "beta",
        "B",
        "A",
        "E",
    ]
    return markdown(
        [*head, "worst R-hat", "failed diagnostics", "s for all domains"], rows
    )


def _inside(
    table: pd.DataFrame, known: pd.DataFrame, parameters: list[str]
) -> pd.DataFrame:
    """Whether each parameter's truth is in its interval: domains down, parameters across."""
    return pd.DataFrame(
        {
            p: [
                table.loc[(d, p), "low"] <= known.loc[d, p] <= table.loc[(d, p), "high"]
                for d in known.index
            ]
            for p in parameters
        },
        index=known.index,
    ).astype(float)


def extrapolations(_: int) -> str:
    """Mean relative error over domains: posterior median, the paper's point fit, and the published one."""
    rows, table4 = [], reference("table4").set_index("setup")
    for law, column in (
        ("forgetting", "forgetting_mre"),
        ("finetune", "finetuning_mre"),
    ):
        runs = runs_of(law, 0)
        for setup in ("A", "B"):
            ours, low, high, points = [], [], [], []
            for _, own in runs.groupby("domain"):
                known, held = extrapolation(own, setup)
                error = mean_relative_error(fit(known, law), held)
                ours.append(error.mre)
                low.append(error.interval[0])
                high.append(error.interval[1])
                point = bayeslaw.point_fit(known, bayeslaw.law(law), delta=1e-4)
                points.append(
                    float(np.mean(np.abs(point.loss(held) / held["loss"] - 1)))
                )
            spread = f"{np.mean(low):.2%} to {np.mean(high):.2%}"
            cells = [
                f"{np.mean(ours):.2%}",
                spread,
                f"{np.mean(points):.2%}",
                f"{table4.loc[setup, column]:.2%}",
            ]
            rows.append([law, f"set-up {setup}", *cells])
            note(f"{law} {setup}: {cells}")
        on_resample = [
            bootstrapped_mre(own, law).mre for _, own in runs.groupby("domain")
        ]
        left_out = [
            bootstrapped_mre(own, law, left_out=True).mre
            for _, own in runs.groupby("domain")
        ]
        cells = [
            f"{np.mean(on_resample):.2%} (runs left out: {np.mean(left_out):.2%})",
            f"{truth(law)['mre'].mean():.2%}",
        ]
        rows.append([law, "bootstrapped, all runs", "", "", *cells])
        note(f"{law} bootstrap: {cells}")
    return markdown(
        ["law", "", "posterior median", "90% of draws", "point fit", "published"], rows
    )


def five(seeds: int) -> str:
    """Five random runs a domain, scored on the other 120 of each; the law's own priors."""
    return _five(bayeslaw.law("forgetting"), seeds, 2000)


def wide(seeds: int) -> str:
    """The same with priors three times as wide; no draws are added, for five runs alone hardly hold a chain then."""
    own = bayeslaw.law("forgetting")
    priors = {
        n: replace(p, args=(p.args[0], 3 * p.args[1])) for n, p in own.priors.items()
    }
    return _five(own.with_priors(priors), seeds, 500)


def _five(law: bayeslaw.Law, seeds: int, max_draws: int) -> str:
    ways, own = ("pooled", "separate"), []
    scores, inside, width = ({w: np.zeros((seeds, 12)) for w in ways} for _ in range(3))
    failed, short = (
        dict.fromkeys(ways, 0),
        {"chains": 2, "warmup": 500, "draws": min(max_draws, 1000)},
    )
    for seed in range(seeds):
        runs = runs_of("forgetting", seed)
        few = runs.groupby("domain").sample(5, random_state=seed)
        together = pool(
            few, law, on_failure="ignore", seed=seed, max_draws=max_draws, **short
        )
        failed["pooled"] += bool(together.warnings)
        own.append(together.own.to_numpy().mean())
        for i, (domain, held) in enumerate(runs.drop(few.index).groupby("domain")):
            alone = few[few["domain"] == domain]
            separate = bayeslaw.fit(
                alone, law, on_failure="ignore", max_draws=max_draws, **short
            )
            failed["separate"] += bool(separate.warnings)
            for way, posterior in (
                ("pooled", together.domain(str(domain))),
                ("separate", separate),
            ):
                new, loss = (
                    np.exp(posterior.log_loss(held, noise=True, seed=seed)),
                    held["loss"].to_numpy(),
                )
                low, high = np.quantile(new, [0.05, 0.95], axis=0)
                scores[way][seed, i] = crps(new, loss).mean()
                inside[way][seed, i] = ((low <= loss) & (loss <= high)).mean()
                width[way][seed, i] = ((high - low) / loss).mean()
        note(
            f"five seed {seed}: { ({w: s[seed].mean() for w, s in scores.items()}) } {together.diagnostics}"
        )
    better = scores["pooled"] < scores["separate"]
    by_seed = scores["pooled"].mean(1) < scores["separate"].mean(1)
    rows = []
    for way, found in scores.items():
        wins = (
            ("", "")
            if way == "pooled"
            else (f"{better.sum()} of {better.size}", f"{by_seed.sum()} of {seeds}")
        )
        cells = (
            f"{inside[way].mean():.0%}",
            f"{np.median(width[way]):.1%}",
            failed[way],
        )
        rows.append(
            [
                way,
                f"{np.median(found) * 1000:.2f}",
                f"{np.mean(found) * 1000:.4g}",
                *wins,
                *cells,
            ]
        )
    head = [
        "five runs a domain",
        "median CRPS (10^-3 nats)",
        "mean",
        "pooled is better: domains",
        "seeds",
    ]
    table = markdown(
        [*head, "coverage of 90%", "median width", "failed diagnostics"], rows
    )
    return f"{table}\n\nMean weight of a domain's own five runs: {np.mean(own):.0%}."


def unseen(_: int) -> str:
    """Each domain's 125 runs, forecast from a pool of the others."""
    law, rows, seen = "forgetting", [], []
    runs = runs_of(law, 0)
    some = runs.groupby("domain").sample(25, random_state=0)
    for domain, held in runs.groupby("domain"):
        together = pool(some[some["domain"] != domain], law, on_failure="ignore")
        checked = bayeslaw.check(together.unseen(), held)
        own = bayeslaw.check(fit(some[some["domain"] == domain], law), held)
        seen.append(own.mae_rel)
        rows.append(
            (
                checked.coverage["0.9"],
                checked.width90,
                checked.mae_rel,
                bool(together.warnings),
            )
        )
        note(f"unseen {domain}: {rows[-1]}")
    inside, width, miss, failed = (np.array(c, float) for c in zip(*rows, strict=True))
    cells = [
        f"{inside.mean():.0%}",
        f"{inside.min():.0%}",
        f"{width.mean():.1%}",
        f"{miss.mean():.2%}",
        int(failed.sum()),
    ]
    head = [
        "domains",
        "coverage of 90%",
        "worst domain",
        "width",
        "MAE",
        "failed diagnostics",
        "MAE with 25 runs of its own",
    ]
    return markdown(head, [[len(rows), *cells, f"{np.mean(seen):.2%}"]])


def cost(_: int) -> str:
    """Arxiv, the largest set: the smallest and the largest model, by share of replay."""
    models = reference("table3").rename(
        columns={"pretraining_tokens": "D", "loss_terminal_lr": "loss"}
    )
    before = fit(models[["N", "D", "loss"]], "chinchilla")
    runs = runs_of("forgetting", 0).query("domain == 'Arxiv'")
    after = fit(runs, "forgetting")
    asked = runs[
        (runs["D"] == runs["D"].max())
        & runs["replay"].isin([0, 0.01])
        & runs["N"].isin([41e6, 334e6, 1.27e9])
    ]
    asked = asked.assign(
        ptpp=asked["N"].map(
            dict(zip(models["N"], models["D"] / models["N"], strict=True))
        )
    )
    found = cost_of_forgetting(after, asked, before)
    note(f"cost: {before.diagnostics} {found.statements()}")
    rows = [
        [
            f"{r.N / 1e6:.0f}M",
            f"{r.replay:.0%}",
            f"{t.median:.0%}",
            f"{t.low:.0%} to {t.high:.0%}",
            f"{t.flops:.1e}",
        ]
        for r, t in zip(asked.itertuples(), found.table().itertuples(), strict=True)
    ]
    return markdown(["model", "replay", "pre-training lost", "90%", "FLOPs lost"], rows)


PARTS = {
    "domains": domains,
    "extrapolation": extrapolations,
    "five": five,
    "wide": wide,
    "unseen": unseen,
    "cost": cost,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    tables = []
    for name in options.parts.split(","):
        tables.append(f"{name}\n\n{PARTS[name](options.seeds)}\n")
        print(tables[-1], flush=True)
    if options.output:
        options.output.write_text("\n".join(tables))


if __name__ == "__main__":
    main()

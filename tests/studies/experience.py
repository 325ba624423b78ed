"""Fit laws to measured tables, and keep the parameters from which priors are learned.

    python tests/studies/experience.py [--data ../shared/data]

Fits each law to each table as `bayeslaw.fit` does without a misfit, and writes mean and
sd of the log of each parameter to bayeslaw/_law/experience/tables.toml. Tables that are
in it already are left as they are, so that an interrupted study goes on.
"""

import argparse
import json
import tomllib
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from measured import DATA
from state_laws import curves

import bayeslaw
from bayeslaw import datasets
from bayeslaw._base.files import atomic_write
from bayeslaw._law.law import Law

FILE = Path(__file__).parents[2] / "bayeslaw/_law/experience/tables.toml"
# amid the tables of pre-training and of adaptation: there contributions vary least
PRETRAINING = {"N": 1e8, "D": 1e9}
REFERENCE = {
    "chinchilla": PRETRAINING,
    "coupled": PRETRAINING,
}
SAME = {"data-constrained": "chinchilla"}
NOISY = 3e17  # FLOPs below which budgets of one sweep are far off any law
NATS, BYTES, BITS = "nats per token", "nats per byte", "bits per byte"


class Table(NamedTuple):
    """A measured table; ``runs`` reads it from the folder of tables."""

    lab: str
    kind: str
    laws: tuple[str, ...]
    unit: str
    source: str
    runs: Callable[[Path], pd.DataFrame]


def published(data: Path, file: str, **levels: str) -> pd.DataFrame:
    """Read the rows of a table at these levels of its columns."""
    table = pd.read_csv(data / file)
    for column, level in levels.items():
        table = table[table[column] == level]
    return table[["N", "D", "loss"]].reset_index(drop=True)


def one_epoch(data: Path) -> pd.DataFrame:
    """Read the runs that saw no token twice."""
    table = pd.read_csv(data / "data_constrained.csv")
    return table.loc[table["D"] <= 1.001 * table["U"], ["N", "D", "loss"]]


def above_noise(data: Path, dataset: str) -> pd.DataFrame:
    """Read the budgets of a sweep that are not noise."""
    table = published(data, "isoflop_small.csv", dataset=dataset)
    return table[6 * table["N"] * table["D"] > NOISY]


def grid(data: Path, name: str, domain: str) -> pd.DataFrame:
    """Select the runs of one seed of a bundled grid, after the warm-up."""
    table = datasets.load(name)
    kept = (table["D"] > 4 * table["N"]) & (table["domain"] == domain)
    return table[kept & (table["seed"] == 0)]


def one_model(data: Path, domain: str) -> pd.DataFrame:
    """Read the learning curves of the 70M model, by share of replay."""
    runs = curves(data / "cpt_replay_70m.csv")
    return runs[runs["domain"] == domain]


def examples(data: Path, dataset: str, model: str) -> pd.DataFrame:
    """Read one model's fine-tuning on growing numbers of examples."""
    table = pd.read_csv(data / "finetune_examples.csv")
    kept = (table["dataset"] == dataset) & (table["model"] == model) & (table["D"] > 0)
    return table.loc[kept, ["D", "loss"]]


# the largest model of each family in `finetune_examples.csv`
FAMILIES = {
    "BART": "facebook/bart-large",
    "Cerebras": "cerebras/Cerebras-GPT-2.7B",
    "GPT2": "gpt2-xl",
    "LaMini": "MBZUAI/LaMini-GPT-1.5B",
    "OPT": "facebook/opt-6.7b",
    "Phi": "microsoft/phi-2",
    "Switch": "google/switch-base-32",
    "T5": "google/mt5-large",
}
CORPORA = ("fineweb-100b", "fineweb-edu-100b", "proof-pile-2", "slimpajama-chunk1")
LADDER = ("c4_en", "dolma_books", "dolma_common-crawl", "dolma_wiki", "ice", "pile")


def tables() -> dict[str, Table]:
    """List all tables by name."""
    laws = ("chinchilla", "coupled")
    web = partial(Table, kind="web-text", laws=laws)
    code = partial(Table, kind="code", laws=laws)
    found = {
        "chinchilla": web(
            "Hoffmann 2022", unit=NATS, source="read off by Besiroglu 2024",
            runs=partial(published, file="chinchilla.csv"),
        ),
        "farseer": web(
            "Li 2025", unit=BITS, source="Farseer",
            runs=partial(published, file="farseer.csv"),
        ),
        "data_constrained": web(
            "Muennighoff 2023", unit=NATS, source="runs of up to one epoch",
            runs=one_epoch,
        ),
    }  # fmt: skip
    for name in ("dclm", "nemotron"):
        runs = partial(published, file="isoflop_marin.csv", dataset=name)
        found[f"marin {name}"] = web(
            "Marin 2026", unit=NATS, source="isoFLOP sweep", runs=runs
        )
    for name, lab, unit in (
        ("llama3", "Llama 3 2024", BITS),
        ("comma", "Comma 2025", NATS),
    ):
        runs = partial(published, file="isoflop_more.csv", dataset=name)
        found[name] = web(lab, unit=unit, source="isoFLOP sweep", runs=runs)
    for name in ("base", "tuned"):
        runs = partial(above_noise, dataset=name)
        source = f"above {NOISY:.0e} FLOPs"
        found[f"small {name}"] = web("Porian 2024", unit=NATS, source=source, runs=runs)
    for name in (*CORPORA, "smollm-corpus", "starcoder"):
        kind = code if name == "starcoder" else web
        runs = partial(published, file="six_corpora.csv", dataset=name)
        found[name] = kind(
            "Brandfonbrener 2024", unit=NATS, source="isoFLOP sweep", runs=runs
        )
    for name in (*LADDER, "m2d2_s2orc", "dolma_stack"):
        kind = code if name == "dolma_stack" else web
        runs = partial(published, file="ladder.csv", domain=name)
        found[f"ladder {name}"] = kind(
            "Bhagia 2024", unit=NATS, source="OLMo ladder", runs=runs
        )
    for corpus in ("c4_original", "rpj", "rw_original"):
        for domain, kind in (("c4_val", web), ("paloma_code", code)):
            runs = partial(
                published, file="overtraining.csv", corpus=corpus, domain=domain
            )
            found[f"{corpus} {domain}"] = kind(
                "Gadre 2024", unit=NATS, source="over-trained models", runs=runs
            )
    for name in ("microcpt", "microcpt-de"):
        for domain in ("target", "source"):
            runs = partial(grid, name=name, domain=domain)
            laws = (f"state-{domain}",)
            found[f"{name} {domain}"] = Table(
                "bayeslaw", "adaptation", laws, BYTES, "bundled with bayeslaw", runs
            )
    for domain in ("target", "source"):
        runs = partial(one_model, domain=domain)
        found[f"replay 70M {domain}"] = Table(
            "Ye 2024",
            "adaptation",
            (f"state-{domain}",),
            NATS,
            "one model of 70M, Pile to Python",
            runs,
        )
    for family, model in FAMILIES.items():
        for dataset in ("flan", "wmt19"):
            found[f"{model} {dataset}"] = Table(
                family, "fine-tuning", ("rectified",), NATS, "models by Lin 2024",
                partial(examples, dataset=dataset, model=model),
            )  # fmt: skip
    return found


def fitted(runs: pd.DataFrame, name: str) -> bayeslaw.Fit:
    """Fit by importance sampling, and by chains where that is not to be trusted."""
    fit = partial(
        bayeslaw.fit,
        runs,
        name,
        reference=REFERENCE.get(name),
        # with effects of checkpoints a law of their losses loses what it should learn
        discrepancy=name.startswith("state"),
        experience="none",
        on_failure="ignore",
    )
    quick = fit(preview=True)
    return fit(chains=2) if quick.warnings else quick


def logs(law: Law, draws: Mapping[str, np.ndarray]) -> dict[str, tuple[float, float]]:
    """Mean and sd of the log of each parameter; contributions as shares of the floor."""
    floors = [term.site for term in law.terms if term.is_floor]
    shares = (
        [t.site for t in law.terms if t.in_nats and not t.is_floor] if floors else []
    )
    found = {}
    for site, prior in law.free_priors.items():
        if prior.family != "lognormal":
            continue
        log_draws = np.log(draws[site])
        if site in shares:
            log_draws = log_draws - np.log(draws[floors[0]])
        found[site] = (float(log_draws.mean()), float(log_draws.std()))
    return found


def entry(name: str, table: Table, law: str, runs: pd.DataFrame) -> str:
    """Fit a law to a table, as TOML."""
    fit = fitted(runs, law)
    numbers = logs(fit.law, fit.posterior)
    inside = ", ".join(f"{n} = [{m:.4f}, {sd:.4f}]" for n, (m, sd) in numbers.items())
    texts = {
        "name": name,
        "lab": table.lab,
        "kind": table.kind,
        "law": law,
        "unit": table.unit,
        "source": table.source,
    }
    lines = [
        "[[table]]",
        *(f"{key} = {json.dumps(text)}" for key, text in texts.items()),
    ]
    return "\n".join([*lines, f"rows = {len(runs)}", f"logs = {{ {inside} }}", ""])


def head() -> str:
    """What holds for all tables, as TOML."""
    lines = ["# Made by: python tests/studies/experience.py", "", "[same]"]
    lines += [f'{law} = "{other}"' for law, other in SAME.items()]
    for law, run in REFERENCE.items():
        lines += ["", f"[reference.{law}]", *(f"{c} = {v:g}" for c, v in run.items())]
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA)
    options = parser.parse_args()
    text = FILE.read_text() if FILE.exists() else head()
    done = {(t["name"], t["law"]) for t in tomllib.loads(text).get("table", [])}
    for name, table in tables().items():
        missing = [law for law in table.laws if (name, law) not in done]
        runs = table.runs(options.data) if missing else None
        for law in missing:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                text += "\n" + entry(name, table, law, runs)
            with atomic_write(FILE) as part:
                part.write_text(text)
            print(name, law, flush=True)


if __name__ == "__main__":
    main()

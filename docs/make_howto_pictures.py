"""Pictures of the how-tos: ``python docs/make_howto_pictures.py [NAME ...]`` (default:
all). Terminals show what commands printed when this was run; plots are drawn.
"""

import argparse
import json
import re
import shlex
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from rich.console import Console
from rich.text import Text

import bayeslaw
from bayeslaw import datasets, plots

HERE = Path(__file__).parent
PICTURES = HERE / "howto" / "pictures"
WIDTH = 112  # characters
NAMES = {
    "N": "size_M",
    "D": "tokens_B",
    "replay": "mix_pct",
    "ptpp": "pretrain_tpp",
    "loss": "val_loss",
}
MAPPING = (
    '--column "N=size_M*1e6" --column "D=tokens_B*1e9" --column "replay=mix_pct/100" '
    "--column ptpp=pretrain_tpp --column loss=val_loss"
)
COMMANDS = {
    "own_table": ["bayeslaw fit export.csv -o fit.nc"],
    "keep_table": [f"bayeslaw table export.csv {MAPPING} -o runs.csv"],
    "trackers": ["bayeslaw table hf:out --column N=124M --column loss=eval/loss"],
    "review": ["bayeslaw review grid.csv --at N=30B,D=300B,ptpp=279,replay=25%"],
    "ci": [
        'bayeslaw fit grid.csv --law dcpt --where "ptpp <= 31" --preview -o fit.nc',
        'bayeslaw check fit.nc grid.csv --where "ptpp == 279"',
    ],
    "recipes": [
        "bayeslaw fit grid.csv --law ptpp-gate-floor --preview -o target.nc",
        "bayeslaw recipes target.nc --at N=8.1B,ptpp=279,D=70B,replay=20% "
        "--at N=8.1B,ptpp=279,replay=25% --at N=13B,ptpp=279,replay=20%",
    ],
    "chains": [
        "bayeslaw fit checkpoints.csv --law chinchilla --reference N=1M "
        "--reference D=30M --preview -o before.nc",
        "bayeslaw fit measured.csv --law state-source --reference N=1M "
        "--reference D=10M --preview -o source.nc",
        "bayeslaw forecast source.nc planned.csv --before before.nc",
    ],
}


# -- terminals -------------------------------------------------------------------------


def tables(folder: Path) -> None:
    """Tables that the commands read."""
    target = datasets.load("simulated-ptpp-grid").query("domain == 'target'")
    target.to_csv(folder / "grid.csv", index=False)
    foreign = target[list(NAMES)].rename(columns=NAMES)
    units = {"size_M": 1e-6, "tokens_B": 1e-9, "mix_pct": 100}
    foreign.assign(
        **{name: foreign[name] * unit for name, unit in units.items()}
    ).to_csv(folder / "export.csv", index=False)
    measured = datasets.load("minicpt").query("domain == 'source'")
    measured.to_csv(folder / "measured.csv", index=False)
    bayeslaw.checkpoints(measured).to_csv(folder / "checkpoints.csv", index=False)
    planned = {"N": [4e6, 8e6], "ptpp": 279, "D": [4e7, 8e7], "replay": 0.25}
    pd.DataFrame(planned).to_csv(folder / "planned.csv", index=False)
    log = [
        {"step": step, "eval_loss": 3.2 - 0.1 * i, "num_input_tokens_seen": step * 8192}
        for i, step in enumerate((1000, 2000, 4000, 8000))
    ]
    state = {"log_history": log, "global_step": 8000, "train_batch_size": 8}
    (folder / "out").mkdir()
    (folder / "out" / "trainer_state.json").write_text(json.dumps(state))


def terminal(name: str) -> Path:
    """Run a how-to's commands in an empty folder, and keep what they print."""
    console = Console(record=True, width=WIDTH, file=StringIO())
    with tempfile.TemporaryDirectory() as folder:
        tables(Path(folder))
        for command in COMMANDS[name]:
            console.print(Text(f"$ {command}", style="bold"))
            words = [sys.executable, "-m", *shlex.split(command)]
            done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
            said = [line for line in done.stderr.splitlines() if "%," not in line]
            for line in [*said, *done.stdout.rstrip().splitlines()]:
                if ": done in" not in line:
                    console.print(Text(line))
    path = PICTURES / f"{name}.svg"
    drawn = console.export_svg(title=f"bayeslaw: {name.replace('_', ' ')}")
    # fonts of a network are not asked for
    path.write_text(re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL))
    return path


# -- plots -----------------------------------------------------------------------------


def workers(ax) -> None:
    """Wall time of 10,000 posteriors against the number of workers, as simulated."""
    rows = pd.read_csv(HERE / "../tests/studies/benchmarks/workers.csv")
    counts, seconds = rows.iloc[:, 0], rows.iloc[:, 1]
    ideal = seconds.iloc[0] * counts.iloc[0] / counts
    ax.plot(counts, ideal, "--", color=plots.GREY, label="ideal")
    ax.plot(counts, seconds, "o-", color=plots.COLOURS[0], label="simulated")
    ax.set(xscale="log", yscale="log", xlabel="workers", ylabel=rows.columns[1])
    ax.legend()


def second_batch(ax) -> None:
    """The how-to's example: what a second batch of runs moved."""
    runs = bayeslaw.simulate("chinchilla", seed=3).query("replay == 0.1")
    first = bayeslaw.fit(runs[runs["N"] < 5e9], "chinchilla", preview=True)
    plots.what_moved(ax, bayeslaw.update(first, runs).first)


def first_runs(ax) -> None:
    """The how-to's three runs among what other tables taught."""
    runs = pd.DataFrame({"N": [1e8, 2e8, 4e8], "D": [2e9, 2e9, 1e10]})
    runs = bayeslaw.simulate("chinchilla", design=runs, noise=0.002)
    fit = bayeslaw.fit(runs, "chinchilla", preview=True)
    plots.learned_priors(ax, "chinchilla", "beta", fit=fit)


def three_domains(ax) -> None:
    """The how-to's example: probabilities over mixtures of three simulated domains."""
    posteriors = {}
    domains = ("web", "code", "books")
    for name in ("web", "code"):
        others = tuple(other for other in domains if other != name)
        law = bayeslaw.law("mixture-coupled", (name, *others))
        runs = bayeslaw.simulate(law, design="mixtures", seed=1)
        posteriors[name] = bayeslaw.fit(runs, law, preview=True)
    limits = {"web": 2.52, "code": 2.52}
    plots.ternary(ax, bayeslaw.plan_mixture(posteriors, N=1e9, max_loss=limits))


def optimizers(ax) -> None:
    """Three simulated optimizers, of which two are nearly equal, at a goal beyond."""
    tables = []
    for seed, (name, factor) in enumerate({"A": 1.0, "B": 0.98, "C": 0.983}.items()):
        runs = bayeslaw.simulate("chinchilla", seed=seed, noise=0.004)
        runs = runs[runs["replay"] == 0.1].assign(optimizer=name)
        tables.append(runs.assign(run=name + runs["run"], loss=factor * runs["loss"]))
    goal = {"N": 7e10, "D": 1.4e12}
    table = pd.concat(tables, ignore_index=True)
    options = {"on_failure": "warn"}
    chosen = bayeslaw.choose_recipe(table, "optimizer", goal, "chinchilla", **options)
    plots.recipe_losses(ax, chosen)


def learning_rates(ax) -> None:
    """The best rate of a run ten times larger than simulated sweeps of the rate."""
    rng, rows = np.random.default_rng(0), []
    for N in (2e7, 6e7, 2e8, 6e8):
        for lr in 1e-3 * (N / 1e8) ** -0.3 * 2.0 ** np.arange(-3, 4):
            off = np.log2(lr / 1e-3) + 0.3 * np.log2(N / 1e8)
            loss = 1.7 + 400 * N**-0.34 + 410 * (20 * N) ** -0.28 + 0.01 * off**2
            rows.append((N, 20 * N, lr, loss * np.exp(0.002 * rng.standard_normal())))
    runs = pd.DataFrame(rows, columns=["N", "D", "lr", "loss"])
    fit = bayeslaw.fit(runs, "chinchilla+lr", preview=True, on_failure="warn")
    run, ranges = {"N": 6e9, "D": 1.2e11}, {"lr": (2e-5, 2e-3)}
    options = {"source_weight": 0.0, "ranges": ranges}
    plots.best_value(ax, bayeslaw.best_settings(None, fit, run, **options)["lr"])


def repeated_run() -> pd.DataFrame:
    """Points of a simulated run of 1e8 parameters on 2e8 unique tokens, up to 90 epochs."""
    law = bayeslaw.law("data-constrained-overfitting")
    run = {"N": 1e8, "U": 2e8, "D": 2e8 * np.linspace(3, 90, 30)}
    losses = np.asarray(law.loss(run, law.from_paper(law.plausible)))
    noise = 1e-3 * np.random.default_rng(0).standard_normal(30)
    return pd.DataFrame({"run": "own", **run, "loss": losses * np.exp(noise)})


def when_to_stop(ax) -> None:
    """The how-to's run, and where its loss is least."""
    points = repeated_run()
    options = {"on_failure": "warn", "preview": True}
    fit = bayeslaw.fit(points, "data-constrained-overfitting", **options)
    plots.stopping(ax, bayeslaw.best_stop(fit, {"N": 1e8, "U": 2e8}), points)


PLOTS: dict[str, Callable] = {
    "stopping": when_to_stop,
    "recipe_choice": optimizers,
    "best_rate": learning_rates,
    "cluster": workers,
    "update": second_batch,
    "no_runs": first_runs,
    "mixtures": three_domains,
}


def plot(name: str) -> Path:
    figure = Figure(figsize=(6.4, 3.4), layout="constrained")
    PLOTS[name](figure.subplots())
    path = PICTURES / f"{name}.png"
    figure.savefig(path, dpi=110, metadata={"Software": None})
    return path


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=[*COMMANDS, *PLOTS])
    warnings.simplefilter("ignore")
    for name in parser.parse_args().names:
        print(terminal(name) if name in COMMANDS else plot(name), flush=True)


if __name__ == "__main__":
    main()

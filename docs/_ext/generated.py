"""Pages made from the program itself: the laws, the Python names, the commands.

A page holds a comment, ``<!-- generated: laws -->`` or ``<!-- notebook: plan -->``,
which is replaced when the page is read; pictures go to the site's ``_images``. To
print such a part:

    PYTHONPATH=tests/studies python docs/_ext/generated.py laws
"""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from html import escape as escaped
from importlib import import_module
from pathlib import Path
from types import ModuleType

import audit
import campaigns
import drift_prior
import handful
import known_checkpoints
import learned_scales
import measured_mixtures
import measured_plans
import measured_tables
import mixtures
import new_sizes
import pandas as pd
import planned_table
import prefix
import repeats
import summaries
import true_forms
import two_phases
import unlike_worlds
from lawpictures import draw
from real_tables import markdown
from typer.main import get_command

import bayeslaw
from bayeslaw.cli.app import app

DOCS = Path(__file__).parents[1]
NOTEBOOKS, OUTPUTS = DOCS.parent / "notebooks", DOCS / "outputs"
RESULTS, BENCHMARKS = DOCS / "results", "../../tests/studies/benchmarks"
# Pages that the index names.
OWN = {"index", "laws", "inference", "decisions", "comparison", "architecture"}
OWN |= {"commands", "python", "discrepancy", "follow", "glossary", "gallery"}
OWN |= {"verdicts", "stability", "paper"}
GLOSSARY = DOCS.parent / "bayeslaw/_report/templates/page/glossary.toml"
TUTORIALS = (
    "story",
    "first_forecast",
    "measured_runs",
    "paper_with_uncertainty",
    "plan",
    "three_domains",
    "campaign",
    "follow",
    "anchors",
    "schedules",
    "own_law",
    "arviz",
)
FAMILIES = {
    "Pre-training": lambda law: (
        set(law.covariates) == {"N", "D"} and law.name != "finetune"
    ),
    "Pre-training on a limited corpus": lambda law: "U" in law.covariates,
    "Adaptation with replay": lambda law: (
        law.name == "dcpt" or "ptpp" in law.covariates
    ),
    "Mixtures of domains": lambda law: law.name.startswith("mixture-"),
    "From the state of the checkpoint": lambda law: law.name.startswith("state-"),
    "Fine-tuning and forgetting": lambda law: law.name.startswith(
        ("finetune", "forgetting", "rectified")
    ),
    "Loss curves under a learning-rate schedule": lambda law: "S1_pt" in law.covariates,
}
PEOPLE = {
    "N": "parameters",
    "D": "tokens",
    "replay": "share of source data",
    "ptpp": "pre-training tokens per parameter",
    "U": "unique tokens",
}
TOPICS = {
    "Run tables": ("_tables.runs", "_tables.simulate"),
    "Laws and priors": ("_law",),
    "Fits": (
        "_posteriors.fits.fit",
        "_posteriors.fits.record",
        "_pooling",
        "_inference.point",
        "_posteriors.fits.refits",
    ),
    "Forecasts, checks, averages": (
        "_forecasts.forecast",
        "_forecasts.check",
        "_forecasts.review",
        "_posteriors",
    ),
    "Plans": ("_plans",),
    "A run while it trains": ("_running.following",),
    "Which runs to buy": ("_designs",),
    "Learning-rate schedules": (
        "_tables.rates.schedules",
        "_tables.rates.areas",
        "_tables.rates.logged",
        "_schedules",
    ),
    "Forgetting": ("_forecasts.forgetting",),
    "Report": ("_report",),
    "Progress": ("_base.progress",),
    "Errors": ("_base.errors",),
}


# -- laws ------------------------------------------------------------------------------


def family(law) -> str:
    """The heading a law stands under."""
    return next((name for name, holds in FAMILIES.items() if holds(law)), "Others")


def laws_page() -> str:
    """Every law from its own file: formula, priors, reference run, picture."""
    groups: dict[str, list] = {}
    for law in bayeslaw.laws():
        groups.setdefault(family(law), []).append(law)
    ordered = [name for name in (*FAMILIES, "Others") if name in groups]
    index = ["| law | what | reads |", "|---|---|---|"]
    index += [
        f"| [{w.name}](#{w.name}) | {w.title} | {', '.join(w.covariates)} |"
        for n in ordered
        for w in groups[n]
    ]
    parts = ["\n".join(index)]
    for name in ordered:
        parts += [f"## {name}", *(law_section(law) for law in groups[name])]
    return "\n\n".join(parts)


def law_section(law) -> str:
    """One law."""
    module = import_module(f"bayeslaw.models.{law.name.replace('-', '_')}")
    paragraphs = (module.__doc__ or "").strip().split("\n\n")
    more = "\n\n".join(paragraphs[1:]).replace("\n", " ")
    reference = ", ".join(f"{column} {v:g}" for column, v in law.reference.items())
    priors = ["| parameter | prior | 90% | source |", "|---|---|---|---|"]
    priors += [prior_row(name, prior) for name, prior in law.priors.items()]
    title = f"{law.title[0].upper()}{law.title[1:]}. Source: {law.source}."
    parts = [
        f"({law.name})=\n### {law.name}",
        title,
        f"$$\n{law.latex}\n$$",
        more,
        f"Reference run: {reference}.",
        "\n".join(priors),
        law_figure(law),
    ]
    return "\n\n".join(parts)


def prior_row(name: str, prior) -> str:
    """A prior with its 90% and where its numbers come from."""
    unit = ", nats" if name.endswith("_nats") else ""
    low, high = prior.quantile(0.05), prior.quantile(0.95)
    return (
        f"| `{name.removesuffix('_nats')}`{unit} | {prior} | {low:.3g} to {high:.3g} "
        f"| {prior.source or 'stated'} |"
    )


def law_figure(law) -> str:
    """The law's picture, which `pictures` draws when the site is built."""
    plausible = ", ".join(f"{name} {v:g}" for name, v in law.plausible.items())
    return (
        f'<figure class="law"><img src="_images/law-{law.name}.png" '
        f'alt="Loss by {law.name} at plausible parameters" width="460">'
        f"<figcaption>At plausible parameters: {plausible}.</figcaption></figure>"
    )


# -- Python and commands ---------------------------------------------------------------


def python_page() -> str:
    """The public names, by topic."""
    public = {name: getattr(bayeslaw, name) for name in dir(bayeslaw)}
    # plots and datasets are modules, with pages of their own
    left = {
        name: f"{value.__module__}."
        for name, value in public.items()
        if not isinstance(value, ModuleType)
    }
    parts = []
    for title, rooms in (TOPICS | {"Others": ("",)}).items():
        names = [
            name
            for room in rooms
            for name, home in left.items()
            if home.startswith(f"bayeslaw.{room}.") or not room
        ]
        names = list(dict.fromkeys(names))
        left = {name: home for name, home in left.items() if name not in names}
        if names:
            parts += [
                f"## {title}",
                *(f"```{{eval-rst}}\n{directive(name)}\n```" for name in names),
            ]
    return "\n\n".join(parts)


def directive(name: str) -> str:
    """What autodoc is asked for a public name."""
    what = getattr(bayeslaw, name)
    if isinstance(what, type) and issubclass(what, Exception):
        return f".. autoexception:: bayeslaw.{name}"
    if isinstance(what, type):
        # what fits, averages and priors have in common is said of each
        has_more = any(base.__name__ == "LawPosterior" for base in what.__mro__)
        more = "\n   :inherited-members: object" if has_more else ""
        return f".. autoclass:: bayeslaw.{name}\n   :members:{more}"
    return f".. autofunction:: bayeslaw.{name}"


def commands_page() -> str:
    """Every command with its options, from the program."""
    return "\n\n".join(
        command_section(name, command)
        for name, command in sorted(walk(get_command(app)))
    )


def command_section(name: str, command) -> str:
    """One command: what it does, its example, its options."""
    what, _, example = (command.help or "").partition("Example: ")
    block = f"```sh\n{' '.join(example.split())}\n```" if example else ""
    rows = ["| argument or option | what |", "|---|---|"]
    for parameter in command.params:
        if parameter.name != "help" and not getattr(parameter, "hidden", False):
            rows.append(row(parameter))
    return "\n\n".join([f"## bayeslaw {name}", what.strip(), block, "\n".join(rows)])


def row(parameter) -> str:
    """An argument or option, what it is, and its default."""
    what = (getattr(parameter, "help", "") or "").replace("|", "\\|")
    if parameter.param_type_name != "option":
        return f"| `{parameter.metavar or parameter.name.upper()}` | {what} |"
    default = parameter.default
    is_flag = isinstance(default, bool)
    if isinstance(default, str | int | float | Path) and not is_flag:
        what += f" Default: {default}."
    return f"| `{', '.join(parameter.opts)}` | {what} |"


def walk(group, prefix: str = ""):
    """Commands with their full names."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from walk(command, f"{prefix}{name} ")
        else:
            yield prefix + name, command


# -- notebooks, studies ----------------------------------------------------------------


def tutorials_page() -> str:
    """A card for each notebook: its title, its first sentence, its last picture."""
    names = [name for name in TUTORIALS if (NOTEBOOKS / f"{name}.ipynb").exists()]
    cards = [card(name) for name in names]
    gallery = ['<div class="cards">', *cards, "</div>"]
    return "\n".join([*gallery, "", "```{toctree}", ":hidden:", "", *names, "```"])


def card(name: str) -> str:
    """A notebook in the gallery of tutorials."""
    title, _, text = notebook(name).lstrip("# ").partition("\n")
    sentence = re.sub(r"[`*]|\[|\]\([^)]*\)", "", text.strip().partition(". ")[0])
    picture = pictures_of(name)[-1]
    return (
        f'<a class="card" href="{name}.html"><img src="../_images/{picture}" alt="" '
        f'loading="lazy"><b>{escaped(title)}</b><span>{escaped(sentence)}.</span></a>'
    )


def pictures_of(name: str) -> list[str]:
    """Files of the pictures that a notebook drew, in its order."""
    kept = json.loads((OUTPUTS / f"{name}.json").read_text())["cells"]
    shown = [each for cell in kept.values() for each in cell]
    return [each["picture"] for each in shown if "picture" in each]


def poster_page() -> str:
    """What was measured in three figures, for the site's first page."""
    real = pd.read_csv(RESULTS / "real_tables.csv")
    average = real[real["forecast"] == "average"]
    runs = average["forecast_runs"]
    inside = (average["coverage"] * runs).sum() / runs.sum()
    worlds = (RESULTS / "missed_worlds.txt").read_text().splitlines()[2:4]
    at_90, plug_in = (line.split("|")[3].strip() for line in worlds)
    figures = [
        (
            f"{inside:.0%}",
            f"of {runs.sum():.0f} larger runs lie inside 90% intervals, "
            f"on {len(average)} published tables",
            "discrepancy.html#real-tables",
        ),
        (
            f"{at_90}",
            "of plans at a stated 90% keep both limits where every law is wrong by 1%; "
            f"plans from best estimates: {plug_in}",
            "discrepancy.html#plans-where-every-law-misses",
        ),
        (
            f"{len(bayeslaw.laws())}",
            "laws ship, each with sourced priors in nats; a formula or a file adds yours",
            "laws.html",
        ),
    ]
    shown = [
        f'<a class="figure" href="{target}"><b>{figure}</b><span>{text}</span></a>'
        for figure, text, target in figures
    ]
    return "\n".join(['<div class="figures">', *shown, "</div>"])


def notebook(name: str) -> str:
    """A notebook as a page: its text, its code, and what was kept of its outputs.

    Outputs are those of the last run of ``docs/run_notebooks.py``.
    """
    outputs = json.loads((OUTPUTS / f"{name}.json").read_text())["cells"]
    cells = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())["cells"]
    shown, heading = [], name
    for i, cell in enumerate(cells):
        text = "".join(cell["source"]).replace("](../docs/", "](../")
        if cell["cell_type"] == "markdown":
            shown.append(text)
            headings = [line for line in text.splitlines() if line.startswith("#")]
            heading = headings[-1].lstrip("# ") if headings else heading
        else:
            shown.append(f"```python\n{text}\n```")
            shown += [output(kept, heading) for kept in outputs.get(str(i), [])]
    where = (
        f"*To run it: {{download}}`{name}.ipynb <../../notebooks/{name}.ipynb>`, or "
        f"`notebooks/{name}.ipynb` of the project.*"
    )
    return "\n\n".join([*shown, where])


def output(kept: dict[str, str], heading: str) -> str:
    """A picture or a text that a cell made."""
    if "picture" in kept:
        return f"![Picture: {heading}](../outputs/{kept['picture']})"
    return f"```{{code-block}} text\n:class: output\n\n{kept['text']}\n```"


def studies_page() -> str:
    """Every page beside this site's own: what was measured."""
    return "\n".join(
        sorted(
            {p.stem for p in DOCS.glob("*.md")} - OWN,
            key=lambda n: (n != "calibration", n),
        )
    )


@dataclass(frozen=True)
class Kept:
    """A table on a page: the kept file in `docs/results`, how it is shown, and which code made it.

    Parameters
    ----------
    file
        A file of `docs/results` that a study or a benchmark wrote.
    table
        Markdown of the file at this path.
    """

    file: str
    table: Callable[[Path], str] = Path.read_text

    def __call__(self) -> str:
        path = RESULTS / self.file
        if not path.exists():
            return "*Not measured yet: the command above makes this table.*"
        return f"{self.table(path)}\n\n{made_by(path)}"


# changes that move figures: a result names the first that it was kept before
MOVES = {
    "8be9506": "rows were weighed",
    "d839fad5": "the misfit lost its walks and every fit drifts",
    "a387e369": "scales fell with the size of models",
    "d59a6960": "drift was learned in its own directions",
    "6b4170b9": "laws of a checkpoint's losses drifted upwards at more tokens per parameter",
    "0c2628e6": "laws of the target read the stage",
    "0a91734c": "averages knew the checkpoints that they were fitted to",
    "eb45c362": "errors of runs changed with replay",
    "5e5a8f87": "learned effects opened with tokens",
}


def made_by(path: Path) -> str:
    """The commit that kept a file, and what has moved figures since then."""
    kept = git(*LAST_CHANGE, "--", str(path)).split()
    if not kept:
        return "*Not committed yet.*"
    commit, day = kept
    says = f"Kept on {day}, commit {commit}"
    moves = MOVES if path.parent == RESULTS else {}  # a timing is of its time
    for move, change in moves.items():
        if git("rev-list", "--count", f"{commit}..{move}") != "0":
            may = "the present code may give other figures"
            return f"*{says}, before {change} ({move}): {may}.*"
    return f"*{says}.*"


# a move is no change
LAST_CHANGE = ("log", "-1", "--format=%h %as", "--follow", "--diff-filter=AM")


def git(*words: str) -> str:
    """What git prints in this checkout."""
    command = ["git", *words]
    done = subprocess.run(command, cwd=DOCS, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def by_rows(table: Callable[[pd.DataFrame], str]) -> Callable[[Path], str]:
    """Shows a CSV file by what its study makes of the rows."""
    return lambda path: table(pd.read_csv(path))


def plain(path: Path) -> str:
    """A CSV file as it stands."""
    table = pd.read_csv(path, dtype=str)
    rows = [table.columns, ["---"] * len(table.columns), *table.to_numpy()]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def pools(rows: pd.DataFrame) -> str:
    """What buying runs of measured pools came to, medians over seeds."""
    lines = [
        "| pool | rule | budget | seeds | runs | R2 (lowest) | width | coverage | score |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for (pool, rule, budget), group in rows.groupby(
        ["pool", "rule", "budget"], sort=False
    ):
        middle = group.median(numeric_only=True)
        lines.append(
            f"| {pool} | {rule} | {budget:.0%} | {len(group)} | {middle['runs']:.0f} "
            f"| {middle['r2']:.2f} ({group['r2'].min():.2f}) | {middle['width90']:.1%} "
            f"| {middle['cover90']:.0%} | {middle['interval_score90']:.1%} |"
        )
    return "\n".join(lines)


def abstract() -> str:
    """The paper's, with figures from four kept files."""
    read = [pd.read_csv(RESULTS / f"{name}.csv") for name in ABSTRACT]
    return summaries.abstract(*read, (RESULTS / "missed_worlds.txt").read_text())


ABSTRACT = ("real_tables", "trained_plans", "pool_study")


def trained_earlier(rows: pd.DataFrame) -> str:
    """Plans that were trained before there was a second language."""
    labelled = rows.assign(unseen="size", language="fr", size="259k", seed=0)
    return "\n".join(planned_table.each(labelled))


def glossary_page() -> str:
    """The words that the report's page explains, from its own file."""
    entries = tomllib.loads(GLOSSARY.read_text(encoding="utf-8"))
    ordered = sorted(entries.items(), key=lambda item: item[1]["word"].lower())
    return "\n\n".join(
        f"(g-{key})=\n**{entry['word']}**\n: {entry['meaning']}"
        for key, entry in ordered
    )


def gallery_page() -> str:
    """Every picture that the tutorials drew, under the tutorial's title."""
    parts = []
    for name in TUTORIALS:
        title = notebook(name).splitlines()[0].lstrip("# ")
        shown = [
            f'<a href="tutorials/{name}.html"><img src="_images/{picture}" '
            f'alt="{title}" width="340" loading="lazy"></a>'
            for picture in pictures_of(name)
        ]
        parts += [f"## [{title}](tutorials/{name}.md)", "\n".join(shown)]
    return "\n\n".join(parts)


KEPT_AS_TEXT = (
    *("misfit_sbc", "misfit_sbc_right", "missed_worlds", "simulated_grids"),
    *("repeated_settings", "mixtures_sbc", "stranger_worlds", "stranger_widths"),
    *("learning_curves", "kills", "follow_runs", "follow_runs_de", "follow_plans"),
    *("follow_curves", "follow_forks", "follow_wrong", "follow_seeds", "bought_worlds"),
    *("measured_pool", "measured_pool_de", "wrong_law", "look_ahead", "promised"),
    *("mutants", "joint_promises", "domain_limits"),
    *("adaptation_forms_target", "adaptation_forms_source", "recipe_pairs"),
)
PAGES: dict[str, Callable[[], str]] = {
    "laws": laws_page,
    "python": python_page,
    "commands": commands_page,
    "tutorials": tutorials_page,
    "studies": studies_page,
    "glossary": glossary_page,
    "gallery": gallery_page,
    "poster": poster_page,
    "two_phases": two_phases.table,
    "abstract": abstract,
    **measured_tables.SHOWN,
    **{name: Kept(f"{name}.txt") for name in KEPT_AS_TEXT},
    "real_tables_short": Kept("real_tables.csv", by_rows(summaries.real_tables)),
    "grids_short": Kept("real_tables.csv", by_rows(summaries.measured_grids)),
    "plans_short": Kept("trained_plans.csv", by_rows(summaries.trained_plans)),
    "pools_short": Kept("pool_study.csv", by_rows(summaries.pools)),
    "real_tables": Kept("real_tables.csv", by_rows(markdown)),
    "mixtures": Kept("mixtures.csv", by_rows(mixtures.markdown)),
    "measured_mixtures": Kept(
        "measured_mixtures.csv", by_rows(measured_mixtures.markdown)
    ),
    "learned_scales": Kept("learned_judged.csv", by_rows(learned_scales.markdown)),
    "audit": Kept("audit.csv", by_rows(audit.markdown)),
    "audit_walks": Kept("audit_walks.csv", by_rows(audit.markdown)),
    "drift_prior": Kept("drift_prior.csv", by_rows(drift_prior.markdown)),
    "drift_adaptation": Kept("drift_adaptation.csv", by_rows(drift_prior.markdown)),
    "measured_plans": Kept("measured_plans.csv", by_rows(measured_plans.markdown)),
    "new_sizes": Kept("new_sizes.csv", by_rows(new_sizes.markdown)),
    "known_checkpoints": Kept(
        "known_checkpoints.csv", by_rows(known_checkpoints.markdown)
    ),
    "prefix": Kept("prefix.csv", by_rows(prefix.markdown)),
    "repeats_laws": Kept("repeats_laws.csv", by_rows(repeats.markdown)),
    "new_sizes_before": Kept("new_sizes_before.csv", by_rows(new_sizes.markdown)),
    "true_forms": Kept("true_forms.csv", by_rows(true_forms.table)),
    "campaigns": Kept("campaigns.csv", by_rows(campaigns.markdown)),
    "handful": Kept("handful.csv", by_rows(handful.markdown)),
    "handful_default": Kept(
        "handful.csv", by_rows(partial(handful.markdown, law=handful.DEFAULT))
    ),
    "unlike_worlds": Kept("unlike_worlds.csv", by_rows(unlike_worlds.told)),
    "new_sizes_minicpt": Kept(
        "new_sizes.csv", by_rows(partial(new_sizes.of_folds, start="French"))
    ),
    "new_sizes_minicpt_de": Kept(
        "new_sizes.csv", by_rows(partial(new_sizes.of_folds, start="German"))
    ),
    "new_sizes_fr": Kept(
        "new_sizes.csv", by_rows(partial(new_sizes.of_folds, start="microcpt,"))
    ),
    "new_sizes_de": Kept(
        "new_sizes.csv", by_rows(partial(new_sizes.of_folds, start="microcpt German"))
    ),
    "trained_plans": Kept("trained_plans.csv", by_rows(planned_table.markdown)),
    "trained_plans_259k": Kept("trained_plans_259k.csv", by_rows(trained_earlier)),
    "pools": Kept("pool_study.csv", by_rows(pools)),
    "peaks": Kept("peaks.csv", plain),
    "settings_law": Kept("settings_law.csv", plain),
    "settings_worlds": Kept("settings_worlds.csv", plain),
    "stopping": Kept("stopping.csv", plain),
    "starts": Kept(f"{BENCHMARKS}/starts.csv", plain),
    "workers": Kept(f"{BENCHMARKS}/workers.csv", plain),
    "levels": Kept(f"{BENCHMARKS}/levels.csv", plain),
}


# -- Sphinx ----------------------------------------------------------------------------


def fill(app, docname: str, source: list[str]) -> None:
    """Put a generated part in place of its comment."""
    filled = re.sub(r"<!-- generated: (\w+) -->", lambda m: PAGES[m[1]](), source[0])
    source[0] = re.sub(r"<!-- notebook: (\w+) -->", lambda m: notebook(m[1]), filled)


def escape(app, what, name, obj, options, lines: list[str]) -> None:
    """Docstrings write absolute values as |x|, which is no substitution."""
    lines[:] = [line.replace("|", r"\|") for line in lines]


def pictures(app, exception) -> None:
    """Draw the laws into the site."""
    if exception is None and app.builder.format == "html":
        folder = Path(app.outdir) / "_images"
        folder.mkdir(exist_ok=True)
        for law in bayeslaw.laws():
            draw(law, folder / f"law-{law.name}.png")


def setup(app):
    """Register."""
    app.connect("source-read", fill)
    app.connect("autodoc-process-docstring", escape)
    app.connect("build-finished", pictures)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


if __name__ == "__main__":
    print(PAGES[sys.argv[1]]())

"""Pages made from the program itself: the laws, the Python names, the commands.

A page holds a comment, ``<!-- generated: laws -->`` or ``<!-- notebook: plan -->``,
which is replaced when the page is read; pictures go to the site's ``_images``.
"""

import json
import re
import tomllib
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path

import measured_grid
import measured_tables
import pandas as pd
import planned_table
import true_forms
import two_phases
from lawpictures import draw
from real_tables import markdown
from typer.main import get_command

import bayeslaw
from bayeslaw.cli.app import app

DOCS = Path(__file__).parents[1]
NOTEBOOKS, OUTPUTS = DOCS.parent / "notebooks", DOCS / "outputs"
REAL_TABLES = DOCS / "real_tables.csv"
# Pages that the index names.
OWN = {"index", "laws", "inference", "decisions", "comparison", "architecture"}
OWN |= {"commands", "python", "discrepancy", "follow", "glossary", "gallery"}
GLOSSARY = DOCS.parent / "bayeslaw/_report/templates/page/glossary.toml"
TUTORIALS = (
    "first_forecast",
    "measured_runs",
    "paper_with_uncertainty",
    "plan",
    "follow",
    "anchors",
    "schedules",
    "own_law",
)
FAMILIES = {
    "Pre-training": lambda law: (
        set(law.covariates) == {"N", "D"} and law.name != "finetune"
    ),
    "Pre-training on a limited corpus": lambda law: "U" in law.covariates,
    "Adaptation with replay": lambda law: (
        law.name == "dcpt" or "ptpp" in law.covariates
    ),
    "From the state of the checkpoint": lambda law: law.name.startswith("state-"),
    "Fine-tuning and forgetting": lambda law: law.name.startswith(
        ("finetune", "forgetting")
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
    "Which runs to buy": ("_designs", "_studies.anchors", "_studies.pool"),
    "Learning-rate schedules": (
        "_tables.rates.schedules",
        "_tables.rates.areas",
        "_tables.rates.logged",
        "_schedules",
    ),
    "Forgetting": ("_forecasts.forgetting", "_studies.forgetting"),
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
    left, parts = (
        {name: f"{getattr(bayeslaw, name).__module__}." for name in dir(bayeslaw)},
        [],
    )
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
        return f".. autoclass:: bayeslaw.{name}\n   :members:"
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
    """A line for each notebook, and where it stands."""
    names = [name for name in TUTORIALS if (NOTEBOOKS / f"{name}.ipynb").exists()]
    titles = {name: notebook(name).splitlines()[0].lstrip("# ") for name in names}
    lines = [f"- [{title}]({name}.md)" for name, title in titles.items()]
    return "\n".join([*lines, "", "```{toctree}", ":hidden:", "", *names, "```"])


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


def real_tables_page() -> str:
    """Forecasts of real tables, as the study last kept them."""
    if not REAL_TABLES.exists():
        return "*Not measured yet: the command above makes this table.*"
    return markdown(pd.read_csv(REAL_TABLES))


def csv_page(name: str) -> str:
    """A table that a benchmark wrote."""
    table = pd.read_csv(DOCS / name, dtype=str)
    rows = [table.columns, ["---"] * len(table.columns), *table.to_numpy()]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def pools_page() -> str:
    """What buying runs of measured pools came to, medians over seeds."""
    rows = pd.read_csv(DOCS / "pool_study.csv")
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


def rows_page(name: str, table: Callable[[pd.DataFrame], str]) -> str:
    """A table made of kept rows by the study that made them."""
    return table(pd.read_csv(DOCS / name))


def measured_grid_page(table: str) -> str:
    """Every law's forecasts of a measured grid."""
    rows = pd.read_csv(DOCS / "measured_grids.csv")
    return measured_grid.markdown(rows, table)


def trained_plans_259k_page() -> str:
    """Plans that were trained before there was a second language."""
    rows = pd.read_csv(DOCS / "trained_plans_259k.csv")
    told = rows.assign(unseen="size", language="fr", size="259k", seed=0)
    return "\n".join(planned_table.each(told))


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
        kept = json.loads((OUTPUTS / f"{name}.json").read_text())["cells"]
        drawn = [
            each["picture"]
            for cell in kept.values()
            for each in cell
            if "picture" in each
        ]
        title = notebook(name).splitlines()[0].lstrip("# ")
        shown = [
            f'<a href="tutorials/{name}.html"><img src="_images/{picture}" '
            f'alt="{title}" width="340" loading="lazy"></a>'
            for picture in drawn
        ]
        if shown:
            parts += [f"## [{title}](tutorials/{name}.md)", "\n".join(shown)]
    return "\n\n".join(parts)


def kept_page(name: str) -> str:
    """A table that a study printed, as it was kept."""
    return (DOCS / name).read_text()


PAGES: dict[str, Callable[[], str]] = {
    "laws": laws_page,
    "python": python_page,
    "commands": commands_page,
    "tutorials": tutorials_page,
    "studies": studies_page,
    "glossary": glossary_page,
    "gallery": gallery_page,
    "real_tables": real_tables_page,
    "misfit_sbc": partial(kept_page, "misfit_sbc.txt"),
    "misfit_sbc_right": partial(kept_page, "misfit_sbc_right.txt"),
    "missed_worlds": partial(kept_page, "missed_worlds.txt"),
    "true_forms": partial(rows_page, "true_forms.csv", true_forms.table),
    "simulated_grids": partial(kept_page, "simulated_grids.txt"),
    "learning_curves": partial(kept_page, "learning_curves.txt"),
    "kills": partial(kept_page, "kills.txt"),
    "follow_runs": partial(kept_page, "follow_runs.txt"),
    "follow_runs_de": partial(kept_page, "follow_runs_de.txt"),
    "follow_plans": partial(kept_page, "follow_plans.txt"),
    "follow_curves": partial(kept_page, "follow_curves.txt"),
    "follow_forks": partial(kept_page, "follow_forks.txt"),
    "two_phases": two_phases.table,
    "measured_grid_fr": partial(measured_grid_page, "microcpt"),
    "measured_grid_de": partial(measured_grid_page, "microcpt-de"),
    "trained_plans": partial(rows_page, "trained_plans.csv", planned_table.markdown),
    "trained_plans_259k": trained_plans_259k_page,
    **measured_tables.SHOWN,
    "follow_wrong": partial(kept_page, "follow_wrong.txt"),
    "pools": pools_page,
    "bought_worlds": partial(kept_page, "bought_worlds.txt"),
    "measured_pool": partial(kept_page, "measured_pool.txt"),
    "measured_pool_de": partial(kept_page, "measured_pool_de.txt"),
    "wrong_law": partial(kept_page, "wrong_law.txt"),
    "look_ahead": partial(kept_page, "look_ahead.txt"),
    "starts": partial(csv_page, "starts.csv"),
    "workers": partial(csv_page, "workers.csv"),
    "levels": partial(csv_page, "levels.csv"),
    "promised": partial(kept_page, "promised.txt"),
    "mutants": partial(kept_page, "mutants.txt"),
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

"""Pages made from the program itself: the laws, the Python names, the commands.

A page holds a comment, ``<!-- generated: laws -->`` or ``<!-- notebook: plan -->``, which is replaced when the page is
read; pictures go to the site's ``_images``.
"""

import json
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from lawpictures import draw
from typer.main import get_command

import bayeslaw
from bayeslaw import cli

DOCS = Path(__file__).parents[1]
NOTEBOOKS, OUTPUTS = DOCS.parent / "notebooks", DOCS / "outputs"
OWN = {"index", "laws", "inference", "decisions", "comparison", "commands", "python"}  # named in the index
TUTORIALS = ("first_forecast", "measured_runs", "paper_with_uncertainty", "plan", "anchors", "schedules", "own_law")
FAMILIES = {
    "Pre-training": lambda law: set(law.covariates) == {"N", "D"} and law.name != "finetune",
    "Adaptation with replay": lambda law: law.name == "dcpt" or "ptpp" in law.covariates,
    "From the state of the checkpoint": lambda law: law.name.startswith("state-"),
    "Fine-tuning and forgetting": lambda law: law.name.startswith(("finetune", "forgetting")),
    "Loss curves under a learning-rate schedule": lambda law: "S1_pt" in law.covariates,
}
PEOPLE = {
    "N": "parameters", "D": "tokens", "replay": "share of source data", "ptpp": "pre-training tokens per parameter",
}  # fmt: skip
TOPICS = {
    "Run tables": ("_runs", "_simulate"),
    "Laws and priors": ("_catalogue", "_formula", "_law", "_priors"),
    "Fits": ("_fit", "_pool", "_point", "_refits"),
    "Forecasts, checks, averages": ("_forecast", "_check", "_compare", "_average", "_chain"),
    "Plans": ("_plan",),
    "Which runs to buy": ("_anchors", "_anchors_menu", "_anchors_study"),
    "Learning-rate schedules": ("_schedule", "_phases", "_dynamics", "_dynamics_best"),
    "Forgetting": ("_forgetting",),
    "Report": ("_report",),
    "Errors": ("_errors",),
}


# -- laws --------------------------------------------------------------------------------------------------------------


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
    index += [f"| [{w.name}](#{w.name}) | {w.title} | {', '.join(w.covariates)} |" for n in ordered for w in groups[n]]
    parts = ["\n".join(index)]
    for name in ordered:
        parts += [f"## {name}", *(law_section(law) for law in groups[name])]
    return "\n\n".join(parts)


def law_section(law) -> str:
    """One law."""
    document = (import_module(f"bayeslaw.models.{law.name.replace('-', '_')}").__doc__ or "").strip()
    more = "\n\n".join(document.split("\n\n")[1:]).replace("\n", " ") if "\n\n" in document else ""
    reference = ", ".join(f"{c} {v:g}" for c, v in law.reference.items())
    priors = [
        "| parameter | prior | 90% | source |",
        "|---|---|---|---|",
        *(
            f"| `{name.removesuffix('_nats')}`{', nats' if name.endswith('_nats') else ''} | {prior} | "
            f"{prior.quantile(0.05):.3g} to {prior.quantile(0.95):.3g} | {prior.source or 'stated'} |"
            for name, prior in law.priors.items()
        ),
    ]
    plausible = ", ".join(f"{k} {v:g}" for k, v in law.plausible.items())
    return "\n\n".join(
        [
            f"({law.name})=\n### {law.name}",
            f"{law.title[0].upper()}{law.title[1:]}. Source: {law.source}.",
            f"$$\n{law.latex}\n$$",
            more,
            f"Reference run: {reference}.",
            "\n".join(priors),
            f'<figure class="law"><img src="_images/law-{law.name}.png" alt="Loss by {law.name} at plausible parameters" width="460">'
            f"<figcaption>At plausible parameters: {plausible}.</figcaption></figure>",
        ]
    )


# -- Python and commands -----------------------------------------------------------------------------------------------


def python_page() -> str:
    """The public names, by topic."""
    homes = dict(bayeslaw._HOME)
    parts = []
    topics = TOPICS | {"Others": tuple(m for m in homes if not any(m in t for t in TOPICS.values()))}
    for title, modules in topics.items():
        names = [name for module in modules for name in homes.get(module, ())]
        if names:
            parts += [f"## {title}", *(f"```{{eval-rst}}\n{directive(name)}\n```" for name in names)]
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
    return "\n\n".join(command_section(name, command) for name, command in sorted(walk(get_command(cli.app))))


def command_section(name: str, command) -> str:
    """One command: what it does, its example, its options."""
    told, _, example = (command.help or "").partition("Example: ")
    parts = [f"## bayeslaw {name}", told.strip(), f"```sh\n{' '.join(example.split())}\n```" if example else ""]
    rows = ["| argument or option | what |", "|---|---|"]
    rows += [row(p) for p in command.params if p.name != "help" and not getattr(p, "hidden", False)]
    return "\n\n".join([*parts, "\n".join(rows)])


def row(parameter) -> str:
    """An argument or option, what it is, and its default."""
    told = (getattr(parameter, "help", "") or "").replace("|", "\\|")
    if parameter.param_type_name != "option":
        return f"| `{parameter.metavar or parameter.name.upper()}` | {told} |"
    default = parameter.default
    stated = isinstance(default, str | int | float | Path) and not isinstance(default, bool)
    return f"| `{', '.join(parameter.opts)}` | {told}{f' Default: {default}.' if stated else ''} |"


def walk(group, prefix: str = ""):
    """Commands with their full names."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from walk(command, f"{prefix}{name} ")
        else:
            yield prefix + name, command


# -- notebooks, studies ------------------------------------------------------------------------------------------------


def tutorials_page() -> str:
    """A line for each notebook, and where it stands."""
    names = [name for name in TUTORIALS if (NOTEBOOKS / f"{name}.ipynb").exists()]
    lines = [f"- [{notebook(name).partition(chr(10))[0].lstrip('# ')}]({name}.md)" for name in names]
    return "\n".join([*lines, "", "```{toctree}", ":hidden:", "", *names, "```"])


def notebook(name: str) -> str:
    """A notebook as a page: its text, its code, and what the last run of ``docs/run_notebooks.py`` kept of its outputs."""
    outputs = json.loads((OUTPUTS / f"{name}.json").read_text())["cells"]
    shown, heading = [], name
    for i, cell in enumerate(json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())["cells"]):
        text = "".join(cell["source"]).replace("](../docs/", "](../")
        if cell["cell_type"] == "markdown":
            shown.append(text)
            heading = next((line.lstrip("# ") for line in reversed(text.splitlines()) if line.startswith("#")), heading)
        else:
            shown += [f"```python\n{text}\n```", *(output(o, heading) for o in outputs.get(str(i), []))]
    where = f"*To run it: {{download}}`{name}.ipynb <../../notebooks/{name}.ipynb>`, or `notebooks/{name}.ipynb` of the project.*"
    return "\n\n".join([*shown, where])


def output(kept: dict[str, str], heading: str) -> str:
    """A picture or a text that a cell made."""
    if "picture" in kept:
        return f"![Picture: {heading}](../outputs/{kept['picture']})"
    return f"```{{code-block}} text\n:class: output\n\n{kept['text']}\n```"


def studies_page() -> str:
    """Every page beside this site's own: what was measured."""
    return "\n".join(sorted({p.stem for p in DOCS.glob("*.md")} - OWN, key=lambda n: (n != "calibration", n)))


PAGES: dict[str, Callable[[], str]] = {
    "laws": laws_page,
    "python": python_page,
    "commands": commands_page,
    "tutorials": tutorials_page,
    "studies": studies_page,
}


# -- Sphinx ------------------------------------------------------------------------------------------------------------


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

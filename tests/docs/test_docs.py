"""The site builds strictly, and what its pages tell people to type exists."""

import ast
import html
import importlib.util
import inspect
import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import bayeslaw
from bayeslaw.cli.app import app

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    *(
        p
        for p in sorted(DOCS.rglob("*.md"))
        if not {"_build", "_ext"} & {part for part in p.relative_to(DOCS).parts}
    ),
    ROOT / "README.md",
    ROOT / "AGENTS.md",
]
BLOCK = re.compile(r"^([ \t]*)```(\w+)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)

on_page = pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))


def blocks(page: Path, language: str) -> Iterator[str]:
    """Blocks of code of a page, without their indentation."""
    for indent, name, text in BLOCK.findall(page.read_text()):
        if name == language:
            yield "\n".join(line.removeprefix(indent) for line in text.splitlines())


def commands(page: Path) -> Iterator[list[str]]:
    """The words of every ``bayeslaw`` command on a page."""
    for block in blocks(page, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            for part in re.split(r"&&|(?<!['\"])\s>\s", line):
                words = shlex.split(part, comments=True)
                if words and Path(words[0]).name == "bayeslaw":
                    yield words[1:]


# -- what is typed -----------------------------------------------------------------------------------------------------


def parse(words: list[str]) -> None:
    """Parse a command without running it; a wrong option, or one that is missing, raises."""
    command = get_command(app)
    while hasattr(command, "commands"):
        name, *words = words
        assert name in command.commands, name  # pyright: ignore[reportAttributeAccessIssue]
        command = command.commands[name]  # pyright: ignore[reportAttributeAccessIssue]
    command.make_context(command.name, list(words))


@on_page
def test_commands_parse(page: Path):
    """Every command's options exist, and none that it needs is missing."""
    for words in commands(page):
        parse(words)


@pytest.mark.parametrize(
    "words", ["fit runs.csv --laws dcpt", "fly", "plan --target t.nc"]
)
def test_wrong_commands_are_seen(words: str):
    """The parser above refuses an unknown option, an unknown command, and a missing option."""
    with pytest.raises(Exception, match=r"--laws|fly|[Mm]issing"):
        parse(words.split())


def check_python(text: str) -> None:
    """A block compiles, its ``bayeslaw`` names exist, and their keyword arguments do."""
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "bayeslaw"
        ):
            assert hasattr(bayeslaw, node.attr) or importlib.util.find_spec(
                f"bayeslaw.{node.attr}"
            ), node.attr
        if isinstance(node, ast.Call) and re.fullmatch(
            r"bayeslaw(\.\w+)+", ast.unparse(node.func)
        ):
            called: Any = bayeslaw
            for name in ast.unparse(node.func).split(".")[1:]:
                called = getattr(called, name)
            accepted = inspect.signature(called).parameters
            if not any(
                p.kind is inspect.Parameter.VAR_KEYWORD for p in accepted.values()
            ):
                assert {k.arg for k in node.keywords if k.arg} <= set(accepted), (
                    ast.unparse(node)
                )


@on_page
def test_python_parses(page: Path):
    """Blocks of Python compile and use names and arguments that exist."""
    for block in blocks(page, "python"):
        check_python(block)


@pytest.mark.parametrize(
    "text", ["bayeslaw.fitt(runs)", "bayeslaw.plan(t, s, certainty=0.9)"]
)
def test_wrong_python_is_seen(text: str):
    """The check above refuses a name and an argument that do not exist."""
    with pytest.raises((AssertionError, AttributeError)):
        check_python(text)


def test_pages_have_commands_and_python():
    """The patterns find something to check."""
    assert sum(1 for page in PAGES for _ in commands(page)) > 25
    assert sum(1 for page in PAGES for _ in blocks(page, "python")) > 10


# -- the site ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site, built with warnings as errors."""
    for name in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(name, reason="needs the extra docs")
    folder = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        str(DOCS),
        str(folder),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


def test_every_law_is_shown(site: Path):
    """Each law has a section, its formula, all its priors and a picture."""
    page = (site / "laws.html").read_text()
    for law in bayeslaw.laws():
        assert f'id="{law.name}"' in page
        assert (site / "_images" / f"law-{law.name}.png").stat().st_size > 5000
        for prior in law.priors.values():
            assert str(prior) in page
    assert page.count('<div class="math">') == len(bayeslaw.laws())


def test_every_public_name_is_shown(site: Path):
    """Each public name is on the page of Python names, with its docstring."""
    page = (site / "python.html").read_text()
    for name in dir(bayeslaw):
        public = getattr(bayeslaw, name)
        assert (public.__doc__ or "").strip(), name
        if not inspect.ismodule(public):
            assert f'id="bayeslaw.{name}"' in page, name


def test_no_page_needs_a_network(site: Path):
    """Scripts, styles and pictures are the site's own."""
    for page in site.rglob("*.html"):
        assert not re.search(
            r'<(?:script|img)[^>]+src="(?:https?:)?//', page.read_text()
        ), page
        assert not re.search(
            r'<link[^>]+rel="stylesheet"[^>]+href="(?:https?:)?//', page.read_text()
        ), page


def test_links_within_the_site_lead_somewhere(site: Path):
    """Every relative link's page or file exists, and its anchor."""
    for page in site.rglob("*.html"):
        for target in re.findall(
            r'<(?:a|img)[^>]+(?:href|src)="([^"]+)"', page.read_text()
        ):
            path, _, anchor = target.partition("#")
            if re.match(r"[a-z]+:", target) or not target:
                continue
            found = page if not path else (page.parent / path)
            assert found.exists(), (page.name, target)
            if anchor and found.suffix == ".html":
                assert f'id="{anchor}"' in found.read_text(), (page.name, target)


def test_the_glossary_is_that_of_the_page(site: Path):
    """One source: each word and meaning of the report's page, on a page of its own that the map names."""
    package = Path(bayeslaw.__file__).parent
    source = package / "_report/templates/page/glossary.toml"
    entries = tomllib.loads(source.read_text())
    shown = html.unescape(re.sub(r"<[^>]+>", "", (site / "glossary.html").read_text()))
    for entry in entries.values():
        assert entry["word"] in shown
        assert entry["meaning"] in shown
    assert "glossary.html" in (site / "index.html").read_text()


QUERIES = {  # what people type, and the page that they mean
    "widen": "verdicts",
    "unknown verdict": "verdicts",
    "hold-out": "verdicts",
    "two units in one column": "verdicts",
    "diverged": "verdicts",
    "catastrophic forgetting": "glossary",
    "credible interval": "glossary",
    "which runs next": "glossary",
    "overfitting": "glossary",
    "bits per byte": "howto/own_table",
    "crashed runs": "howto/own_table",
    "wandb": "howto/trackers",
    "slurm": "howto/cluster",
    "k-hat": "inference",
    "R-hat": "inference",
    "plug-in": "verdicts",
    "max_forgetting": "howto/plan",
    "stability": "stability",
    "chance constraints": "paper",
    "chinchilla": "laws",
}


@pytest.fixture(scope="module")
def index(site: Path) -> dict[str, Any]:
    """The index that the site's own search reads."""
    text = (site / "searchindex.js").read_text()
    return json.loads(text[text.index("(") + 1 : text.rindex(")")])


def pages_found(index: dict[str, Any], query: str) -> set[str]:
    """Pages that have every word of a query, as Sphinx's search stems and looks up."""
    import snowballstemmer
    from sphinx.search.en import SearchEnglish

    stem = snowballstemmer.stemmer("english").stemWord
    words = set(re.findall(r"\w+", query.lower())) - SearchEnglish.stopwords
    found = set(index["docnames"])
    for word in words:
        hits: set[int] = set()
        for table in ("terms", "titleterms"):
            for key in {word, stem(word)}:
                pages = index[table].get(key, [])
                hits |= {pages} if isinstance(pages, int) else set(pages)
        found &= {index["docnames"][page] for page in hits}
    return found


@pytest.mark.parametrize("query", QUERIES)
def test_search_finds_the_page_that_is_meant(index, query):
    assert QUERIES[query] in pages_found(index, query)


def test_search_does_not_find_what_is_nowhere(index):
    assert not pages_found(index, "xylophone quintessence")


def test_the_gallery_has_every_picture_of_the_tutorials(site: Path):
    shown = (site / "gallery.html").read_text()
    kept = [path.name for path in (DOCS / "outputs").glob("*.png")]
    assert len(kept) > 10
    assert not [name for name in kept if f"_images/{name}" not in shown]


@on_page
def test_pictures_are_there_and_small(page: Path):
    """A page is read over a slow line, too: no picture of 150 kB."""
    for target in re.findall(r"!\[[^]]+\]\(([^)]+)\)", page.read_text()):
        assert (page.parent / target).stat().st_size < 150_000, target


def test_the_map_leads_to_every_how_to():
    """From what one wants to the page: none of them is left out."""
    text = (DOCS / "index.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    named = set(re.findall(r"\(([^)#]+\.md)", "\n".join(rows)))
    how_to = {f"howto/{p.name}" for p in (DOCS / "howto").glob("*.md")}
    assert not how_to - named


HOW_TO = sorted((DOCS / "howto").glob("*.md"))


@pytest.mark.parametrize("page", HOW_TO, ids=lambda p: p.stem)
def test_every_how_to_has_a_picture(page: Path):
    """With words for those who cannot see it."""
    assert re.search(r"!\[[^]]{15,}\]\(", page.read_text())

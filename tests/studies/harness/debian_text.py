"""Make the folders of text of the bundled runs from Debian's documentation packages.

``python -m harness.debian_text --folder WORK`` downloads the
packages with ``apt-get download``, unpacks them with ``dpkg -x`` (nothing is
installed), and writes ``WORK/source`` (English), ``WORK/fr`` and ``WORK/de`` (targets:
French, German), a plain text file per page, and ``WORK/text.json`` with package
versions and corpus sizes. Needs a Debian system.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import re
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

# -- markup to text --------------------------------------------------------------------


class _Page(HTMLParser):
    """Parser that collects the text of a page's main part, a line per block."""

    void = frozenset(
        ["area", "base", "br", "col", "hr", "img", "input", "link", "meta", "wbr"]
    )
    skipped = frozenset(
        ["script", "style", "nav", "footer", "header", "aside", "button", "title"]
    )
    blocks = frozenset(
        [
            "p",
            "div",
            "li",
            "dt",
            "dd",
            "tr",
            "pre",
            "section",
            "h1",
            "h2",
            "h3",
            "h4",
            "h5",
            "h6",
            "br",
            "table",
        ]
    )

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.skipping: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in self.void:
            if tag == "br":
                self.parts.append("\n")
            return
        if (
            self.skipping
            or tag in self.skipped
            or "headerlink" in (dict(attrs).get("class") or "")
        ):
            # An element inside a skipped element is skipped, too.
            self.skipping.append(tag)
        if tag in self.blocks:
            self.parts.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in self.skipping:
            while self.skipping.pop() != tag:
                pass
        elif tag in self.blocks:
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if not self.skipping:
            self.parts.append(data)


def html_text(markup: str) -> str:
    """Extract the text of an HTML page, without scripts, navigation and footers."""
    page = _Page()
    page.feed(markup)
    return tidy("".join(page.parts))


def man_text(roff: str) -> str:
    """Extract the text of a manual page (man macros), by simple rules for the escapes
    and requests of groff(7).

    Comments, requests and formats of tables are removed; words stay.
    """
    comment = r'^[.\']\s*\\".*$|\\".*$'
    request = (
        r"^\.(TH|de|ds|nr|if|ie|el|so|PD|TP|RS|RE|nf|fi|in|sp|ad|hy|ne|ta|TS|TE|EX|EE"
        r"|PP|P|LP|UE|\.)\b.*$"
    )
    macro = r"^\.[A-Za-z]+\s*"  # the words after the macro stay
    font, size = r"\\f(\[\w*\]|\(\w\w|.)", r"\\s[-+]?\d"
    text = roff
    for pattern in (comment, request, macro, font, size):
        text = re.sub(pattern, "", text, flags=re.MULTILINE)
    signs = {
        "\\-": "-",
        "\\(aq": "'",
        "\\(bu": "-",
        "\\(em": "—",
        "\\(co": "©",
        "\\e": "\\",
        "\\ ": " ",
        "\\~": " ",
    }
    for code, sign in signs.items():
        text = text.replace(code, sign)
    # quotes, then all other escapes
    text = re.sub(r"\\\((lq|rq)|\\\[(lq|rq)\]", '"', text)
    text = re.sub(r"\\\(..|\\\[\w+\]|\\[&%/,:|^cp]", "", text)
    return tidy(text.replace('"', ""))


def tidy(text: str) -> str:
    """Leave one space between words and at most one empty line between paragraphs."""
    lines = (re.sub(r"[ \t\u00a0]+", " ", line).strip() for line in text.split("\n"))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"


# -- packages to folders ---------------------------------------------------------------


def pages(root: Path) -> Iterator[tuple[str, str]]:
    """Yield the name and text of every HTML and manual page of an unpacked package."""
    no_prose = re.compile(
        r"/translations/|/maintainers\.html|/genindex\.html|/search\.html|/_sources/"
        r"|/_static/"
    )
    for path in sorted(root.rglob("*")):
        if not path.is_file() or path.is_symlink() or no_prose.search(str(path)):
            continue
        name = str(path.relative_to(root))
        if path.suffix == ".html":
            yield name, html_text(path.read_text("utf-8", "replace"))
        elif "/man/" in name and path.suffix == ".gz":
            roff = gzip.decompress(path.read_bytes()).decode("utf-8", "replace")
            yield name, man_text(roff)


def is_repeated(text: str, hashes_before: set[bytes], long_line: int = 40) -> bool:
    """Tell whether over half of a text's long lines are in ``hashes_before``, and add
    their hashes to it.
    """
    # short lines recur in any text
    long_lines = [line for line in text.splitlines() if len(line) >= long_line]
    hashes = [hashlib.sha1(line.encode()).digest() for line in long_lines]
    repeats = sum(key in hashes_before for key in hashes)
    hashes_before.update(hashes)
    return repeats > len(hashes) / 2


def write_text(unpacked: dict[str, Path], folder: Path) -> dict[str, int]:
    """Write the pages of unpacked packages (name -> folder) as text, without repeats.

    Returns how many files and bytes were written, and how many pages were left out.
    """
    line_hashes: set[bytes] = set()
    counts = {"files": 0, "bytes": 0, "left_out_short": 0, "left_out_repeated": 0}
    # Packages repeat each other's pages: the first copy is kept.
    for package, root in unpacked.items():
        for name, text in pages(root):
            # shorter pages only point to other pages
            if len(text.encode()) < 400:
                counts["left_out_short"] += 1
            elif is_repeated(text, line_hashes):
                counts["left_out_repeated"] += 1
            else:
                path = folder / package / (name + ".txt")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, "utf-8")
                counts["files"] += 1
                counts["bytes"] += len(text.encode())
    return counts


def unpack(package: str, folder: Path) -> tuple[Path, str]:
    """Download and unpack a Debian package; return its folder and its version."""
    folder.mkdir(parents=True, exist_ok=True)
    # a package that is in the folder is not downloaded again
    if not list(folder.glob(f"{package}_*.deb")):
        subprocess.run(["apt-get", "download", package], cwd=folder, check=True)
    (deb,) = folder.glob(f"{package}_*.deb")
    subprocess.run(["dpkg", "-x", deb.name, package], cwd=folder, check=True)
    version = subprocess.run(
        ["dpkg-deb", "-f", deb.name, "Version"],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )
    return folder / package, version.stdout.strip()


def main() -> None:
    """Download the packages of each corpus, extract their text, and record versions and
    counts.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--folder", type=Path, required=True, help="where packages and text go"
    )
    folder = parser.parse_args().folder
    corpora = {
        "source": ("linux-doc-6.1", "manpages-dev"),
        "fr": ("manpages-fr", "manpages-fr-dev", "libreoffice-help-fr"),
        "de": ("manpages-de", "manpages-de-dev", "libreoffice-help-de"),
    }
    record = {}
    for corpus, packages in corpora.items():
        unpacked = {name: unpack(name, folder / "packages") for name in packages}
        counts = write_text(
            {name: root for name, (root, _) in unpacked.items()}, folder / corpus
        )
        record[corpus] = {
            "packages": {name: version for name, (_, version) in unpacked.items()},
            **counts,
        }
        print(corpus, record[corpus], flush=True)
    (folder / "text.json").write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()

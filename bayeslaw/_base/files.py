"""Files are written whole or not at all."""

from __future__ import annotations

import hashlib
import re
import secrets
import stat
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

LONGEST = 50  # characters of a name that is made: with its ending under 255 bytes


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Open a new file beside ``path`` to write to; it takes the place of ``path``, and
    its mode, when the block ends well, else it goes.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = _new_file(path, "part")
    try:
        yield part
        if path.is_file() and not path.is_symlink():
            part.chmod(stat.S_IMODE(path.stat().st_mode))
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes | memoryview) -> None:
    """Write a file whole or not at all."""
    with atomic_write(path) as part:
        part.write_bytes(content)


def try_writing(path: Path) -> None:
    """Make an empty file where ``path`` is to be, and take it away again.

    In the nearest folder there is: those that are missing are not made yet.

    Raises
    ------
    OSError
        Nothing can be written there.
    """
    folder = next(above for above in path.absolute().parents if above.exists())
    probe = _new_file(folder / path.name, "probe")
    probe.unlink(missing_ok=True)


def _new_file(path: Path, ending: str) -> Path:
    """Make an empty file beside ``path``: of a name that nobody can guess, and so put a
    link to another file at.
    """
    name = f".{path.name[:LONGEST]}.{secrets.token_hex(8)}.{ending}"
    new = path.with_name(name)
    new.touch(exist_ok=False)
    return new


def file_names(names: Iterable[str]) -> dict[str, str]:
    """Make a file's name, without ending, for each name: of letters, digits, ``_``,
    ``.`` and ``-``, and no two that a file system may take for one.
    """
    plain = {name: _plain(name) for name in names}
    count = Counter(_as_one(stem) for stem in plain.values())
    return {
        name: stem if count[_as_one(stem)] == 1 else f"{stem}-{_digest(name)}"
        for name, stem in plain.items()
    }


def _plain(name: str) -> str:
    """Replace what a folder or a shell would read by a dash, and cut a long name."""
    plain = re.sub(r"[^\w.-]+", "-", name).strip(".-")
    if not plain:
        return "unnamed"
    return plain if len(plain) <= LONGEST else f"{plain[:LONGEST]}-{_digest(name)}"


def _as_one(name: str) -> str:
    """Fold names alike that differ in case, or in how a letter is put together."""
    return unicodedata.normalize("NFKC", name).casefold()


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:8]

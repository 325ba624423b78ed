"""Write files so that an interrupted write leaves no incomplete file."""

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

LONGEST = 50  # most characters of a file's name; with suffixes it is under 255 bytes


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Open a new file beside ``path`` to write to. If the block ends without an error,
    the file replaces ``path`` and takes its mode; else it is deleted. An error of the
    system that names no file, such as a full disk, names ``path``.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = _new_file(path, "part")
    try:
        yield part
        if path.is_file() and not path.is_symlink():
            part.chmod(stat.S_IMODE(path.stat().st_mode))
        part.replace(path)
    except OSError as error:
        if error.filename in (None, str(part)):
            error.filename = str(path)
        raise
    finally:
        part.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes | memoryview) -> None:
    """Write a file; an interrupted write leaves the old file."""
    with atomic_write(path) as part:
        part.write_bytes(content)


def try_writing(path: Path) -> None:
    """Try whether ``path`` can be written: make an empty file there and delete it
    again. The file is made in the nearest folder that exists; missing folders are not
    made yet.

    Raises
    ------
    OSError
        Nothing can be written there.
    """
    folder = next(above for above in path.absolute().parents if above.exists())
    probe = _new_file(folder / path.name, "probe")
    probe.unlink(missing_ok=True)


def _new_file(path: Path, ending: str) -> Path:
    """Make an empty file beside ``path``. Nobody can guess its name, so nobody can put
    a link to another file there.
    """
    name = f".{path.name[:LONGEST]}.{secrets.token_hex(8)}.{ending}"
    new = path.with_name(name)
    new.touch(exist_ok=False)
    return new


def file_names(names: Iterable[str]) -> dict[str, str]:
    """Make a file name without ending for each name, of letters, digits, ``_``, ``.``
    and ``-``. No two are the same to any file system.
    """
    plain = {name: _plain(name) for name in names}
    count = Counter(_as_one(stem) for stem in plain.values())
    return {
        name: stem if count[_as_one(stem)] == 1 else f"{stem}-{_digest(name)}"
        for name, stem in plain.items()
    }


def _plain(name: str) -> str:
    """Replace characters special to folders or shells by a dash, and cut a long name."""
    plain = re.sub(r"[^\w.-]+", "-", name).strip(".-")
    if not plain:
        return "unnamed"
    return plain if len(plain) <= LONGEST else f"{plain[:LONGEST]}-{_digest(name)}"


def _as_one(name: str) -> str:
    """Convert names that differ only in case or encoding to one form."""
    return unicodedata.normalize("NFKC", name).casefold()


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:8]

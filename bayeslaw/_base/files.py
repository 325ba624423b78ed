"""Files are written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A name beside ``path`` to write to; it takes the place of ``path`` when the block
    ends well, else it goes.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield part
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
    probe = folder / f".{path.name}.{os.getpid()}.probe"
    try:
        probe.touch()
    finally:
        probe.unlink(missing_ok=True)

"""Clean the folder of compiled programs: remove files that a kill left half written,
and executables that nobody uses any more. JAX skips a damaged file and compiles, but
does not overwrite the file. So every later process would compile again.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
import zlib
from pathlib import Path

ENTRIES = "*-cache"  # as JAX names them
SUFFIX = ".executable"  # files that `store` writes
STAMP = ".looked-at"  # file whose time is that of the last look
NO_FOLDER = "it cannot be made"


def why_not_ours(folder: Path) -> str | None:
    """State why another user may have put programs into this folder, who could then run
    code here; None if the folder belongs to the user alone. A missing folder is made
    for the user alone.
    """
    if not hasattr(os, "geteuid"):  # the system has no owners of files (not POSIX)
        return None
    try:
        folder.mkdir(mode=stat.S_IRWXU, parents=True, exist_ok=True)
    except OSError:
        return NO_FOLDER
    if not (is_ours(folder.lstat()) and is_ours(folder.stat())):
        return "it belongs to another user"
    if folder.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "other users may write to it"
    return None


def is_ours(status: os.stat_result) -> bool:
    """Tell whether a file or folder belongs to the user of this process."""
    return not hasattr(os, "geteuid") or status.st_uid == os.geteuid()


def drop_foreign(folder: Path) -> None:
    """Delete programs that another user put here when that was possible."""
    for pattern in (ENTRIES, f"*{SUFFIX}"):
        for entry in folder.glob(pattern):
            with contextlib.suppress(OSError):  # another process may take it away
                if not is_ours(entry.lstat()):
                    entry.unlink()


def drop_damaged(folder: Path, grace: float = 10.0) -> None:
    """Delete incomplete programs written since the last look. Files of the last
    ``grace`` seconds stay: another process may still be writing.
    """
    if not folder.is_dir():
        return
    stamp, until = folder / STAMP, time.time() - grace
    looked = stamp.stat().st_mtime if stamp.exists() else 0.0
    if looked > until:  # the clock was put back
        looked = 0.0
    # another process may take a file away, or own the folder
    with contextlib.suppress(OSError):
        for entry in folder.glob(ENTRIES):
            if looked < entry.stat().st_mtime <= until and not _is_whole(entry):
                entry.unlink(missing_ok=True)
        stamp.touch()
        os.utime(stamp, (until, until))


def forget_unused(folder: Path, days: float = 90.0) -> None:
    """Delete executables that nobody used for that long: they belong to an older
    version of this package.
    """
    oldest = time.time() - days * 86_400
    for path in folder.glob(f"*{SUFFIX}"):
        with contextlib.suppress(OSError):  # another process may take it away
            if path.stat().st_mtime < oldest:
                path.unlink()


def _is_whole(entry: Path) -> bool:
    """Tell whether an entry of JAX's cache is complete: it is not empty, and if zlib
    compressed it, it decompresses.
    """
    content = entry.read_bytes()
    if not content:
        return False
    # first byte of what JAX compresses where it has no zstd
    if not content.startswith(b"\x78"):
        return True  # not ours to tell
    try:
        zlib.decompress(content)
    except zlib.error:
        return False
    return True

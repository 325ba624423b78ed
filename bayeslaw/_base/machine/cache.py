"""Find the folder where JAX keeps compiled programs, and clean it. Whoever may write
there can run code as the user, so that a folder is used only if it is the user's alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import stat
import time
import warnings
import zlib
from pathlib import Path

CACHE_VARIABLE = "BAYESLAW_CACHE"
ENTRIES = "*-cache"  # files of JAX's cache
STAMP = ".looked-at"  # file whose time is that of the last look
NO_FOLDER = "it cannot be made"


def cache_folder() -> Path | None:
    """Find the folder of what is kept between processes: $BAYESLAW_CACHE, else the
    user's cache; None if the variable is set but empty.
    """
    folder = os.environ.get(CACHE_VARIABLE)
    if folder == "":
        return None
    if folder is not None:
        return Path(folder)
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "bayeslaw"


def own_cache_folder(warn: bool = False) -> Path | None:
    """Make `cache_folder` if it is missing. None if it cannot be made. None, with a
    warning, if others than the user may write programs there.
    """
    folder = cache_folder()
    doubt = None if folder is None else why_not_ours(folder)
    if doubt is None:
        return folder
    if warn and doubt != NO_FOLDER:
        warnings.warn(
            f"compiled programs are neither read from {folder} nor kept there, as "
            f"{doubt} and so could run code as you; give {CACHE_VARIABLE} a folder of "
            "your own that only you may write to (chmod 700)",
            RuntimeWarning,
            stacklevel=3,
        )
    return None


def why_not_ours(folder: Path) -> str | None:
    """State why another user may have put programs into this folder; None if the folder
    belongs to the user alone. A missing folder is made for the user alone.
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


def programs_folder(folder: Path) -> Path:
    """Name the folder of programs within the cache: of a version of JAX and of the
    processor's instruction sets, which JAX's own keys leave out.
    """
    import jax

    processor = repr(platform.uname()[4:])
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        named = ("flags", "Features", "model name")
        processor = repr(sorted({line for line in lines if line.startswith(named)}))
    digest = hashlib.sha256(processor.encode()).hexdigest()[:8]
    return folder / f"jax-{jax.__version__}-{digest}"


def clean(folder: Path, grace: float = 10.0, days: float = 90.0) -> None:
    """Delete programs that another user put here when that was possible, that are older
    than ``days``, and incomplete ones written since the last look: JAX skips a damaged
    file and compiles, but does not overwrite the file, so that every later process
    would compile again. Files of the last ``grace`` seconds stay: another process may
    still be writing.
    """
    if not folder.is_dir():
        return
    now, stamp = time.time(), folder / STAMP
    looked = stamp.stat().st_mtime if stamp.exists() else 0.0
    if looked > now - grace:  # the clock was put back
        looked = 0.0
    for entry in folder.glob(ENTRIES):
        # another process may take a file away, or own the folder
        with contextlib.suppress(OSError):
            status = entry.lstat()
            written = status.st_mtime
            is_new = looked < written <= now - grace
            is_old = written < now - days * 86_400
            if not is_ours(status) or is_old or (is_new and not _is_whole(entry)):
                entry.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        stamp.touch()
        os.utime(stamp, (now - grace, now - grace))


def _is_whole(entry: Path) -> bool:
    """Tell whether an entry of JAX's cache is complete, by decompressing it."""
    content = entry.read_bytes()
    # JAX compresses by zlib, whose first byte this is, where it has no zstd
    if not content.startswith(b"\x78"):
        return bool(content)
    try:
        zlib.decompress(content)
    except zlib.error:
        return False
    return True

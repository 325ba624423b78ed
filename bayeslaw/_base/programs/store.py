"""Executables on disk, beside JAX's own cache of them, for processes to come.

Each is one file: a digest, then what JAX makes of the executable. Its name is a digest
of what the program is called and of all else that it depends on: this package's text,
the versions of what traces and compiles, the processor and JAX's settings. A file that
cannot be used is thrown away and made again. JAX keeps no copy of its own, for what it
finds on disk cannot be written down again.

Like JAX's, these are programs that will be run: who may write to the folder may run
code. It is the user's alone, or not used (`folder.why_not_ours`), and so is each file.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import platform
import threading
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bayeslaw._base.files import write_bytes
from bayeslaw._base.programs.folder import SUFFIX, is_ours, why_not_ours


def loaded_or(lowering: Callable[[], Any], words: str) -> Callable:
    """Load the program that is kept under these words, else compile what ``lowering``
    returns, and keep it.
    """
    import jax

    config: Any = jax.config
    named = config.jax_compilation_cache_dir
    # JAX may have been told of a folder that is not for us
    if named is None or why_not_ours(Path(named)):
        return lowering().compile()
    path = Path(named, _digest(words + _surroundings()) + SUFFIX)
    program = _loaded(path)
    if program is not None:
        return program
    lowered = lowering()
    _hear_of_hits()
    hits = _heard.count
    with _ours_alone():
        program = lowered.compile()
    # An executable that JAX took from disk lacks what it takes to be written again.
    if _heard.count == hits:
        # a full disk, a folder of someone else: it will be compiled again
        with contextlib.suppress(OSError):
            _keep(program, path)
    return program


# -- JAX's own cache ---------------------------------------------------------------------

MIN_SECONDS = "jax_persistent_cache_min_compile_time_secs"


class _Heard(threading.local):
    count = 0


_heard = _Heard()


@cache
def _hear_of_hits() -> None:
    """Count what JAX finds on disk, in the thread that asked for it."""
    import jax

    def hear(event: str, **_: Any) -> None:
        _heard.count += event == "/jax/compilation_cache/cache_hits"

    jax.monitoring.register_event_listener(hear)


class _OursAlone:
    """While any thread is inside, JAX keeps nothing that it compiles."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._before = 0.0

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        self._count(+1)
        try:
            yield
        finally:
            self._count(-1)

    def _count(self, step: int) -> None:
        import jax

        with self._lock:
            if not self._inside:
                self._before = getattr(jax.config, MIN_SECONDS)
            self._inside += step
            never = 1e9  # seconds
            jax.config.update(MIN_SECONDS, never if self._inside else self._before)


_ours_alone = _OursAlone()


# -- files -------------------------------------------------------------------------------


def _keep(program: Any, path: Path) -> None:
    from jax.experimental import serialize_executable

    try:
        parts = serialize_executable.serialize(program)
        content = pickle.dumps((*parts, _devices(program)))
    except Exception:  # a kind of program that this JAX cannot write down
        return
    # a third of the size, and a tenth of a second for the largest
    packed = zlib.compress(content, level=1)
    write_bytes(path, hashlib.sha256(packed).digest() + packed)


def _loaded(path: Path) -> Any:
    import jax
    from jax.experimental import serialize_executable

    try:
        content = _own_bytes(path)
    except OSError:
        return None
    digest, packed = content[:32], content[32:]
    _start_lapack()
    try:
        if hashlib.sha256(packed).digest() != digest:
            raise ValueError("damaged")
        *parts, count = pickle.loads(zlib.decompress(packed))
        devices = jax.devices()[:count]
        program = serialize_executable.deserialize_and_load(
            *parts, execution_devices=devices
        )
    except Exception:  # whatever a damaged file, or another build of XLA, makes of it
        with contextlib.suppress(OSError):
            path.unlink()
        return None
    with contextlib.suppress(OSError):
        os.utime(path)
    return program


def _own_bytes(path: Path) -> bytes:
    """Read a file that this user wrote: it will be unpickled.

    Raises
    ------
    OSError
        There is none, or it is another user's, or a link.
    """
    with open(os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)), "rb") as file:
        if not is_ours(os.fstat(file.fileno())):
            raise PermissionError(f"{path} belongs to another user")
        return file.read()


@cache
def _start_lapack() -> None:
    """JAX sets LAPACK's functions up when it first lowers one of them; an executable
    that calls them before ends the process.
    """
    import jax
    from jax import numpy as jnp

    matrix = jax.ShapeDtypeStruct((1, 1), "float32")
    jax.jit(jnp.linalg.cholesky).lower(matrix)


def _devices(program: Any) -> int:
    """Count the devices on which a program runs."""
    import jax

    shardings = jax.tree.leaves((program.input_shardings, program.output_shardings))
    return max(len(sharding.device_set) for sharding in shardings)


@cache
def _surroundings() -> str:
    """Describe all that a program depends on beside its name."""
    import jax

    config: Any = jax.config
    settings = [
        config.jax_enable_x64,
        config.jax_default_matmul_precision,
        config.jax_debug_nans,
        os.environ.get("XLA_FLAGS", ""),
        [device.device_kind for device in jax.devices()],
    ]
    return repr((_package(), _versions(), _processor(), settings))


@cache
def _package() -> str:
    """Digest all that this package's programs are written in."""
    text = hashlib.sha256()
    for folder in _folders():
        for path in sorted(folder.rglob("*.py")):
            text.update(path.read_bytes())
    return text.hexdigest()


def _folders() -> list[Path]:
    """List the folders of the package and of its laws, which may lie elsewhere."""
    package = Path(__file__).parents[2]
    spec = find_spec("bayeslaw.models")  # which imports this package: not imported here
    places = [] if spec is None else spec.submodule_search_locations or []
    return [package, *(Path(place) for place in places)]


def _versions() -> list[str]:
    versions = [platform.python_version()]
    for name in ("jax", "jaxlib", "numpyro", "optimistix", "equinox"):
        with contextlib.suppress(PackageNotFoundError):
            versions.append(f"{name} {version(name)}")
    return versions


def _processor() -> str:
    """Describe what the processor can do: a program uses what the one has that it was
    made on.
    """
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        can = [
            line
            for line in lines
            if line.startswith(("flags", "Features", "model name"))
        ]
        return repr(sorted(set(can)))
    return repr(platform.uname())


def _digest(words: str) -> str:
    return hashlib.sha256(words.encode()).hexdigest()

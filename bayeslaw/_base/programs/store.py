"""Cache compiled executables on disk, in the folder of JAX's compilation cache.

A file holds a SHA-256 digest and the serialized executable. Its name is a digest of the
program's name, the package's source, the versions of Python, JAX and solvers, the
processor and JAX's settings. A file that cannot be loaded, or whose program fails when it is
first called, is deleted and the program is compiled again. JAX's own cache gets no copy,
because an executable loaded from there cannot be serialized.

Executables are loaded by pickle, so anyone who may write to the folder can run code. A
folder or file is used only if it belongs to the user alone (`folder.why_not_ours`).
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


def load_or_compile(lowering: Callable[[], Any], words: str) -> Callable:
    """Load the program with the name ``words`` from disk; if there is none, compile what
    ``lowering`` returns and write it to disk.
    """
    import jax

    config: Any = jax.config
    named = config.jax_compilation_cache_dir
    # JAX's folder may be missing, or open to other users
    if named is None or why_not_ours(Path(named)):
        return lowering().compile()
    path = Path(named, _digest(words + _surroundings()) + SUFFIX)
    program = _loaded(path)
    if program is None:
        return _compiled(lowering, path)

    def again() -> Callable:
        _delete(path)
        return _compiled(lowering, path)

    return _OnTrial(program, again)


def _compiled(lowering: Callable[[], Any], path: Path) -> Callable:
    """Compile a program and keep it on disk."""
    lowered = lowering()
    _count_compilations()
    made, hits = _compilations.made, _compilations.hits
    with _without_jax_cache():
        program = lowered.compile()
    # What JAX loaded from its own cache, now or earlier in this process, cannot be
    # serialized: its machine code is not there
    if _compilations.made > made and _compilations.hits == hits:
        # on a full disk or in another user's folder nothing is written
        with contextlib.suppress(OSError):
            _keep(program, path)
    return program


class _OnTrial:
    """Hold a program from disk, and compile it again if its first call fails. XLA once
    wrote a program without its machine code; it loads like others and ends every
    process that calls it.
    """

    def __init__(self, program: Callable, again: Callable[[], Callable]):
        self._program = program
        self._again: Callable[[], Callable] | None = again

    def __call__(self, *arguments: Any) -> Any:
        import jax

        again = self._again  # of this call: another thread may succeed meanwhile
        if again is None:
            return self._program(*arguments)
        try:
            result = jax.block_until_ready(self._program(*arguments))
        except jax.errors.JaxRuntimeError:
            self._program = again()
            result = self._program(*arguments)
        self._again = None  # it holds the arguments of the first call
        return result


# -- JAX's own cache ---------------------------------------------------------------------

MIN_SECONDS = "jax_persistent_cache_min_compile_time_secs"


class _Compilations(threading.local):
    made = 0  # or loaded from JAX's own cache
    hits = 0  # of JAX's own cache


_compilations = _Compilations()


@cache
def _count_compilations() -> None:
    """Count compilations and hits of JAX's own cache from now on, per thread."""
    import jax

    def count_hit(event: str, **_: Any) -> None:
        _compilations.hits += event == "/jax/compilation_cache/cache_hits"

    def count_made(event: str, duration_secs: float, **_: Any) -> None:
        _compilations.made += event == "/jax/core/compile/backend_compile_duration"

    jax.monitoring.register_event_listener(count_hit)
    jax.monitoring.register_event_duration_secs_listener(count_made)


class _WithoutJaxCache:
    """Context in which JAX writes nothing to its own cache; threads may overlap."""

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
        """Count threads in the context, and set JAX's least time of what it keeps."""
        import jax

        with self._lock:
            if not self._inside:
                self._before = getattr(jax.config, MIN_SECONDS)
            self._inside += step
            never = 1e9  # seconds
            jax.config.update(MIN_SECONDS, never if self._inside else self._before)


_without_jax_cache = _WithoutJaxCache()


# -- files -------------------------------------------------------------------------------


def _keep(program: Any, path: Path) -> None:
    """Serialise a compiled program and write it with its digest; programs that this
    version of JAX cannot serialise are not kept.
    """
    from jax.experimental import serialize_executable

    try:
        parts = serialize_executable.serialize(program)
        content = pickle.dumps((*parts, _devices(program)))
    except Exception:  # this version of JAX cannot serialize such a program
        return
    # compressed to a third of the size, in at most a tenth of a second
    packed = zlib.compress(content, level=1)
    write_bytes(path, hashlib.sha256(packed).digest() + packed)


def _loaded(path: Path) -> Any:
    """Load a kept program; None if there is no file, or if it is damaged or belongs to
    other versions.
    """
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
    except Exception:  # damaged, or written by another build of XLA: errors of any type
        _delete(path)
        return None
    with contextlib.suppress(OSError):
        os.utime(path)
    return program


def _delete(path: Path) -> None:
    """Delete a file, where that is possible."""
    with contextlib.suppress(OSError):
        path.unlink()


def _own_bytes(path: Path) -> bytes:
    """Read a file only if it belongs to this user, because it will be unpickled.

    Raises
    ------
    OSError
        The file is missing, another user's, or a link.
    """
    with open(os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)), "rb") as file:
        if not is_ours(os.fstat(file.fileno())):
            raise PermissionError(f"{path} belongs to another user")
        return file.read()


@cache
def _start_lapack() -> None:
    """Make JAX register LAPACK's functions, by lowering one of them. Without this, an
    executable from disk that calls LAPACK crashes the process.
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
    """Describe everything but the name that a compiled program depends on."""
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
    """Digest the source of the package and of its laws."""
    text = hashlib.sha256()
    for folder in _folders():
        for path in sorted(folder.rglob("*.py")):
            text.update(path.read_bytes())
    return text.hexdigest()


def _folders() -> list[Path]:
    """List the folders of the package and of its laws, which may lie elsewhere."""
    package = Path(__file__).parents[2]
    spec = find_spec("bayeslaw.models")  # not imported: models import this package
    places = [] if spec is None else spec.submodule_search_locations or []
    return [package, *(Path(place) for place in places)]


def _versions() -> list[str]:
    """List the versions of Python and of the libraries on which a program depends."""
    versions = [platform.python_version()]
    for name in ("jax", "jaxlib", "numpyro", "optimistix", "equinox"):
        with contextlib.suppress(PackageNotFoundError):
            versions.append(f"{name} {version(name)}")
    return versions


def _processor() -> str:
    """Describe the processor's instruction sets: a compiled program runs only on a
    processor that has them.
    """
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        features = [
            line
            for line in lines
            if line.startswith(("flags", "Features", "model name"))
        ]
        return repr(sorted(set(features)))
    return repr(platform.uname())


def _digest(words: str) -> str:
    return hashlib.sha256(words.encode()).hexdigest()

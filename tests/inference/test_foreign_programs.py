"""Compiled programs are run, and unpickled, only where nobody but the user can have put them."""

import os
import pickle
import stat
import subprocess
import sys
import zlib
from hashlib import sha256

import jax
import numpy as np
import pytest

from bayeslaw._base.machine import runtime
from bayeslaw._base.programs import folder as programs
from bayeslaw._base.programs import store

pytestmark = pytest.mark.skipif(os.name != "posix", reason="of POSIX owners")


class _Evil:
    """What touches a file when it is unpickled."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


def _program(path, marker):
    packed = zlib.compress(pickle.dumps(_Evil(marker)))
    path.write_bytes(sha256(packed).digest() + packed)


@pytest.fixture
def owner(monkeypatch):
    """Hands a file over to another user, as far as is asked."""
    theirs, is_ours = set(), programs.is_ours

    def ours(found):
        return found.st_ino not in theirs and is_ours(found)

    for module in (programs, store):
        monkeypatch.setattr(module, "is_ours", ours)

    def give(path):
        theirs.add(path.lstat().st_ino)

    return give


@pytest.fixture
def cache(tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    monkeypatch.setenv(runtime.CACHE_VARIABLE, str(cache))
    return cache


def test_the_folder_is_made_for_the_user_alone(cache):
    assert runtime.own_cache_folder() == cache
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777, 0o702])
def test_a_folder_that_others_may_write_to_is_not_used_and_it_is_said(cache, mode):
    cache.mkdir()
    cache.chmod(mode)
    with pytest.warns(RuntimeWarning, match="other users may write to it.*chmod 700"):
        assert runtime.own_cache_folder(warn=True) is None
    assert runtime.own_cache_folder() is None
    cache.chmod(0o755)
    assert runtime.own_cache_folder(warn=True) == cache


def test_a_folder_of_another_user_is_not_used(cache, owner):
    cache.mkdir(mode=0o700)
    owner(cache)
    with pytest.warns(RuntimeWarning, match="belongs to another user"):
        assert runtime.own_cache_folder(warn=True) is None


def test_a_link_of_another_user_is_not_followed(cache, owner, tmp_path):
    """Who owns a link may turn it elsewhere."""
    (tmp_path / "mine").mkdir(mode=0o700)
    cache.symlink_to(tmp_path / "mine")
    assert runtime.own_cache_folder() == cache
    owner(cache)
    assert runtime.own_cache_folder() is None


def test_owners_are_told_by_their_number():
    def file_of(user):
        return os.stat_result([0, 0, 0, 0, user, *[0] * 5])

    assert programs.is_ours(file_of(os.geteuid()))
    assert not programs.is_ours(file_of(os.geteuid() + 1))


def test_a_program_of_another_user_is_not_unpickled(tmp_path, owner):
    """The same bytes written by the user would be: the guard is what stops them."""
    path, marker = tmp_path / "a.executable", tmp_path / "ran"
    _program(path, marker)
    owner(path)
    assert store._loaded(path) is None
    assert not marker.exists()
    target = tmp_path / "b.executable"
    _program(target, marker)
    link = tmp_path / "c.executable"
    link.symlink_to(target)
    assert store._loaded(link) is None
    assert not marker.exists()
    assert store._loaded(target) is None
    assert marker.exists()


@pytest.mark.parametrize(("mode", "is_used"), [(0o700, True), (0o777, False)])
def test_a_folder_that_jax_was_told_of_is_used_only_if_it_is_ours(
    tmp_path, mode, is_used
):
    """JAX_COMPILATION_CACHE_DIR names one, too."""
    tmp_path.chmod(mode)
    marker, before = tmp_path / "ran", jax.config.jax_compilation_cache_dir
    name = store._digest("words" + store._surroundings())
    _program(tmp_path / f"{name}.executable", marker)
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    try:
        program = store.load_or_compile(
            lambda: jax.jit(lambda x: x + 1).lower(np.ones(2)), "words"
        )
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
    assert marker.exists() is is_used
    np.testing.assert_array_equal(program(np.ones(2)), [2, 2])


def test_programs_that_others_left_go(tmp_path, owner):
    """JAX's own among them, which it would load without asking."""
    for name in ("mine-cache", "theirs-cache", "mine.executable", "theirs.executable"):
        (tmp_path / name).touch()
        if name.startswith("theirs"):
            owner(tmp_path / name)
    programs.drop_foreign(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        "mine-cache",
        "mine.executable",
    }


COMMAND = """
import sys
from bayeslaw._base.machine import runtime
runtime.start()
import jax
print(jax.config.jax_compilation_cache_dir)
"""


@pytest.mark.parametrize(("mode", "is_used"), [(0o700, True), (0o777, False)])
def test_neither_we_nor_jax_read_a_folder_that_others_may_write_to(
    tmp_path, mode, is_used
):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(mode)
    done = subprocess.run(
        [sys.executable, "-c", COMMAND],
        env=os.environ | {runtime.CACHE_VARIABLE: str(shared)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == (str(shared) if is_used else "None")
    assert ("other users may write" in done.stderr) is not is_used

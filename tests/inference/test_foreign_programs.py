"""Compiled programs are run only where nobody but the user can have put them."""

import os
import stat
import subprocess
import sys

import pytest

from bayeslaw._base.machine import runtime
from bayeslaw._base.programs import folder as programs

pytestmark = pytest.mark.skipif(os.name != "posix", reason="of POSIX owners")


@pytest.fixture
def owner(monkeypatch):
    """Hands a file over to another user, as far as is asked."""
    theirs, is_ours = set(), programs.is_ours

    def ours(found):
        return found.st_ino not in theirs and is_ours(found)

    monkeypatch.setattr(programs, "is_ours", ours)

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


def test_programs_that_others_left_go(tmp_path, owner):
    """JAX would load them without asking."""
    for name in ("mine-cache", "theirs-cache"):
        (tmp_path / name).touch()
        if name.startswith("theirs"):
            owner(tmp_path / name)
    programs.drop_foreign(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine-cache"]


COMMAND = """
import sys
from bayeslaw._base.machine import runtime
runtime.start()
import jax
print(jax.config.jax_compilation_cache_dir)
"""


@pytest.mark.parametrize(("mode", "is_used"), [(0o700, True), (0o777, False)])
def test_a_folder_that_others_may_write_to_is_not_read(tmp_path, mode, is_used):
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
    here = str(programs.of_processor(shared)) if is_used else "None"
    assert done.stdout.strip() == here
    assert ("other users may write" in done.stderr) is not is_used

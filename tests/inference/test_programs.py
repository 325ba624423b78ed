"""Programs: options of the compiler go with them and not with the process, equal laws share them, a second process need
not compile them again, and they are kept only where nobody but the user can have put them."""

import json
import os
import stat
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import jax
import numpy as np
import pytest

import bayeslaw
from bayeslaw import constant
from bayeslaw._base import programs
from bayeslaw._base.machine import cache, runtime
from bayeslaw._inference import density, point
from known.problems import problem

posix = pytest.mark.skipif(os.name != "posix", reason="of POSIX owners")


def _python(code, **environment):
    """Standard output and error of another process."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | environment,
    )
    assert not done.returncode, done.stderr
    return done.stdout, done.stderr


def test_the_start_leaves_the_environment_alone():
    _python(
        "import os; before = dict(os.environ); from bayeslaw._base.machine import runtime; runtime.start(); "
        "import jax; assert jax.config.jax_enable_x64; assert dict(os.environ) == before"
    )


@pytest.fixture
def options(monkeypatch):
    """What the compiler is asked for, found out anew."""
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    programs.compiler_options.cache_clear()
    yield programs.compiler_options
    programs.compiler_options.cache_clear()


def test_an_option_that_this_xla_lacks_is_not_asked_for(options, monkeypatch):
    monkeypatch.setattr(programs, "FASTER_COMPILER", {"xla_cpu_no_such_option": False})
    assert options(programs.ONCE) == {programs.LEVEL: programs.ONCE}


def test_what_the_user_set_stays(options, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", f"--{programs.LEVEL}=2")
    assert programs.LEVEL not in options(programs.ONCE)


def test_a_compiled_function_is_the_function():
    """With static arguments, and one program for the same shapes; also inside another program."""

    @programs.compiled(static_argnums=0)
    def power(n, x):
        return x**n

    assert float(power(3, 2.0)) == 8.0
    assert float(power(3, 5.0)) == 125.0
    assert power.count() == 1
    assert float(programs.compiled(lambda x: x + 1)(1.0)) == 2.0
    assert float(jax.jit(lambda x: power(2, x) + 1)(3.0)) == 10.0


# -- one process -----------------------------------------------------------------------


def _problem():
    runtime.start()
    return problem("chinchilla", bayeslaw.simulate("chinchilla", seed=1).iloc[::6])


def _heights(law, table, points):
    places = np.linspace(-1, 1, 2 * 7 + 1)[:, None] * np.ones(7)
    return np.asarray(density.gradients(law, table, points, places)[0])


def test_equal_laws_share_a_program():
    """They are equal by their functions and all their numbers."""
    law, table, points = _problem()
    first = law.with_priors({"alpha": "lognormal(0.3, 0.2)"})
    _heights(first, table, points)
    before = density.gradients.count()
    again = law.with_priors({"alpha": "lognormal(0.3, 0.2)"})
    assert (again, hash(again)) == (first, hash(first))
    _heights(again, table, points)
    assert density.gradients.count() == before
    other = law.with_priors({"alpha": "lognormal(0.3, 0.20000000000000001110223)"})
    assert other == first
    other = law.with_priors({"alpha": "lognormal(0.3, 0.20000000000000004)"})
    assert (_heights(other, table, points) != _heights(first, table, points)).any()
    assert density.gradients.count() == before + 1
    assert law != law.with_reference({"N": law.reference["N"] * (1 + 1e-15)})


@pytest.mark.parametrize("of", ["terms", "offset", "publish"])
def test_a_law_of_other_functions_is_another(of):
    """Though it is called as one of the catalogue is."""
    law = bayeslaw.law("chinchilla")
    *rest, last = law.terms
    other = {
        "terms": (*rest, replace(last, basis=constant)),
        "offset": lambda x: 0.0 * x["N"],
        "publish": lambda values: dict(values),
    }
    assert replace(law) == law
    assert replace(law, **{of: other[of]}) != law


def test_a_basis_that_has_no_hash_can_be_fitted():
    """A record with a method is a basis, too; its law is compiled as any other."""

    @dataclass
    class Basis:
        of: Callable

        def __call__(self, x, e):
            return self.of(x, e)

    law, table, points = _problem()
    *rest, last = law.terms
    own = replace(law, terms=(*rest, replace(last, basis=Basis(last.basis))))
    np.testing.assert_allclose(
        _heights(own, table, points), _heights(law, table, points), rtol=1e-12
    )


def test_a_function_lets_go_of_its_programs(monkeypatch):
    """A study of thousands of tables would run out of memory maps."""
    monkeypatch.setattr(programs, "MOST", 2)
    double = programs.compiled(lambda x: 2 * x)
    for size in (2, 3, 4, 5, 2):
        np.testing.assert_array_equal(double(np.ones(size)), 2 * np.ones(size))
        assert double.count() <= 3


# -- other processes -------------------------------------------------------------------

ELSEWHERE = """
import json
from inference.test_programs import _heights, _problem, _starts
import jax
missed = []
jax.monitoring.register_event_listener(
    lambda name, **of: missed.append(name) if name == "/jax/compilation_cache/cache_misses" else None)
problem = _problem()
print(json.dumps([[_heights(*problem).tolist(), _starts(*problem)], len(missed)]))
"""


def _starts(law, table, points):
    """Least squares, of LAPACK."""
    return {
        name: np.asarray(v).tolist()
        for name, v in point.start_points(law, table, points, 3, 0).items()
    }


def _elsewhere(folder, **environment):
    """Numbers of another process, how much it compiled that is not on disk, and its errors."""
    folder = {cache.CACHE_VARIABLE: str(folder)}
    printed, said = _python(ELSEWHERE, **folder, **environment)
    return *json.loads(printed), said


def _age(path, seconds):
    """Make a file as old as that."""
    then = time.time() - seconds
    os.utime(path, (then, then))


def test_a_second_process_compiles_nothing_and_says_the_same(tmp_path):
    """Nor does it stumble over programs that a kill left half written: they are made again."""
    numbers, made, _ = _elsewhere(tmp_path)
    assert made > 3
    assert _elsewhere(tmp_path)[:2] == (numbers, 0)
    kept = sorted(tmp_path.glob("*/*-cache"))
    (folder,) = {path.parent for path in kept}
    for share, path in enumerate(kept):
        content = path.read_bytes()
        path.write_bytes(content[: len(content) * (share % 2) // 2])
        _age(path, 60)
    _age(folder / cache.STAMP, 120)
    again, remade, said = _elsewhere(tmp_path)
    assert (again, remade) == (numbers, made)
    assert "Error reading" not in said
    for path in kept:
        assert zlib.decompress(path.read_bytes())
    # another setting: another program
    flags = "--xla_cpu_enable_fast_math=false"
    assert _elsewhere(tmp_path, XLA_FLAGS=flags)[1] > 3


def test_where_nothing_can_be_kept_numbers_are_the_same(tmp_path):
    """Switched off by an empty variable, or in a folder that cannot be made."""
    (tmp_path / "file").write_text("not a folder")
    numbers, _, _ = _elsewhere(tmp_path / "file")
    assert numbers == _elsewhere("")[0]
    assert numbers == _elsewhere(tmp_path / "on")[0]
    assert list((tmp_path / "on").glob("*/*-cache"))


# -- the folder ------------------------------------------------------------------------


@pytest.fixture
def owner(monkeypatch):
    """Hands a file over to another user, as far as is asked."""
    theirs, is_ours = set(), cache.is_ours
    monkeypatch.setattr(
        cache, "is_ours", lambda found: found.st_ino not in theirs and is_ours(found)
    )
    return lambda path: theirs.add(path.lstat().st_ino)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv(cache.CACHE_VARIABLE, str(folder))
    return folder


@posix
def test_the_folder_is_made_for_the_user_alone(folder):
    assert cache.own_cache_folder() == folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@posix
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777, 0o702])
def test_a_folder_that_others_may_write_to_is_not_used_and_it_is_said(folder, mode):
    folder.mkdir()
    folder.chmod(mode)
    with pytest.warns(RuntimeWarning, match="other users may write to it.*chmod 700"):
        assert cache.own_cache_folder(warn=True) is None
    assert cache.own_cache_folder() is None
    folder.chmod(0o755)
    assert cache.own_cache_folder(warn=True) == folder


@posix
def test_a_folder_of_another_user_is_not_used(folder, owner):
    folder.mkdir(mode=0o700)
    owner(folder)
    with pytest.warns(RuntimeWarning, match="belongs to another user"):
        assert cache.own_cache_folder(warn=True) is None


@posix
def test_a_link_of_another_user_is_not_followed(folder, owner, tmp_path):
    """Who owns a link may turn it elsewhere."""
    (tmp_path / "mine").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "mine")
    assert cache.own_cache_folder() == folder
    owner(folder)
    assert cache.own_cache_folder() is None


@posix
@pytest.mark.parametrize(("mode", "is_used"), [(0o700, True), (0o777, False)])
def test_jax_reads_no_folder_that_others_may_write_to(tmp_path, mode, is_used):
    """Neither the cache's own nor the one of programs in it."""
    command = (
        "from bayeslaw._base.machine import runtime; runtime.start(); import jax; "
        "print(jax.config.jax_compilation_cache_dir)"
    )
    place = {cache.CACHE_VARIABLE: str(tmp_path / "shared")}
    inside = cache.programs_folder(tmp_path / "shared")
    inside.mkdir(parents=True)
    for folder, of_cache in ((inside, False), (inside.parent, True)):
        folder.chmod(mode)
        printed, said = _python(command, **place)
        assert printed.strip() == (str(inside) if is_used else "None")
        assert ("other users may write" in said) == (of_cache and not is_used)


def test_programs_of_others_and_old_ones_go(tmp_path, owner):
    """JAX would load them without asking; nobody uses the old ones."""
    days = {"mine": 89, "theirs": 1, "old": 91}
    for name, ago in days.items():
        path = tmp_path / f"{name}-cache"
        path.write_bytes(b"program")
        _age(path, ago * 86_400)
        if name == "theirs":
            owner(path)
    cache.clean(tmp_path)
    assert [path.name for path in tmp_path.glob("*-cache")] == ["mine-cache"]

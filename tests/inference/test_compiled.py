"""Options of the compiler go with our programs, not with the process."""

import os
import subprocess
import sys
import time
import zlib

import pytest

from bayeslaw._base import program_cache, runtime


def test_the_start_leaves_the_environment_alone():
    code = (
        "import os; before = dict(os.environ); from bayeslaw._base import runtime; runtime.start(); "
        "import jax; assert jax.config.jax_enable_x64; assert dict(os.environ) == before"
    )
    without = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    subprocess.run([sys.executable, "-P", "-c", code], check=True, env=without)


@pytest.fixture
def options(monkeypatch):
    """What the compiler is asked for, found out anew."""
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    runtime._compiler_options.cache_clear()
    yield runtime._compiler_options
    runtime._compiler_options.cache_clear()


def test_an_option_that_this_xla_lacks_is_not_asked_for(options, monkeypatch):
    monkeypatch.setattr(runtime, "FASTER_COMPILER", {"xla_cpu_no_such_option": False})
    assert options() is None


def test_what_the_user_set_stays(options, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=true")
    assert options() is None


def test_a_compiled_function_is_the_function():
    """With static arguments, and one program for the same shapes."""

    @runtime.compiled(static_argnums=0)
    def power(n, x):
        return x**n

    assert float(power(3, 2.0)) == 8.0
    assert float(power(3, 5.0)) == 125.0
    assert power._cache_size() == 1
    assert float(runtime.compiled(lambda x: x + 1)(1.0)) == 2.0


COMPILE = """
from bayeslaw._base import runtime
runtime.start()
import jax, jax.numpy as jnp
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
program = runtime.compiled(lambda x: jnp.linalg.cholesky(x @ x.T + 9 * jnp.eye(7)))
print(float(program(jnp.ones((7, 7))).sum()))
"""


def _compile(folder):
    """Standard output and error of a process that compiles, with its programs there."""
    done = subprocess.run(
        [sys.executable, "-c", COMPILE],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {runtime.CACHE_VARIABLE: str(folder)},
    )
    return done.stdout, done.stderr


def _written(path, seconds_ago):
    """Make a file as old as that."""
    then = time.time() - seconds_ago
    os.utime(path, (then, then))


@pytest.mark.parametrize("left", [0, 0.5], ids=["empty", "half"])
def test_a_damaged_program_is_thrown_away_and_made_again(left, tmp_path):
    """As a kill in the middle of writing leaves it."""
    printed, _ = _compile(tmp_path)
    entries = {path: path.read_bytes() for path in tmp_path.glob("*-cache")}
    assert entries
    for path, content in entries.items():
        path.write_bytes(content[: int(left * len(content))])
        _written(path, 60)
    _written(tmp_path / program_cache.STAMP, 120)
    again, said = _compile(tmp_path)
    assert again == printed
    assert "Error reading" not in said
    for path in entries:
        assert zlib.decompress(path.read_bytes())


def test_programs_looked_at_are_not_looked_at_again(tmp_path, monkeypatch):
    """Nor those that another process may still be writing."""
    looked = []
    monkeypatch.setattr(
        program_cache, "_is_whole", lambda path: not looked.append(path.name)
    )
    seconds = {"old-cache": 3600, "older-cache": 7200, "being_written-cache": 0}
    for name, ago in seconds.items():
        path = tmp_path / name
        path.touch()
        _written(path, ago)
    program_cache.drop_damaged(tmp_path)
    assert sorted(looked) == ["old-cache", "older-cache"]
    program_cache.drop_damaged(tmp_path)
    assert len(looked) == 2


def test_a_clock_that_was_put_back_hides_nothing(tmp_path):
    """The last look lies in the future: everything is looked at."""
    damaged = tmp_path / "half-cache"
    damaged.write_bytes(zlib.compress(b"program")[:5])
    _written(damaged, 60)
    stamp = tmp_path / program_cache.STAMP
    stamp.touch()
    _written(stamp, -86_400)
    program_cache.drop_damaged(tmp_path)
    assert not damaged.exists()

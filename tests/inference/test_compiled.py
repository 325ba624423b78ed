"""Programs: options of the compiler go with them and not with the process, a second process need not make them again."""

import json
import os
import subprocess
import sys
import time
import zlib

import jax
import numpy as np
import pytest

import bayeslaw
from bayeslaw._base.machine import runtime
from bayeslaw._base.programs import compiled
from bayeslaw._base.programs import folder as programs
from bayeslaw._base.programs.compiled import ONCE
from bayeslaw._inference import coordinates, density, point
from bayeslaw._inference.table import pad


def test_the_start_leaves_the_environment_alone():
    code = (
        "import os; before = dict(os.environ); from bayeslaw._base.machine import runtime; runtime.start(); "
        "import jax; assert jax.config.jax_enable_x64; assert dict(os.environ) == before"
    )
    without = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    subprocess.run([sys.executable, "-P", "-c", code], check=True, env=without)


@pytest.fixture
def options(monkeypatch):
    """What the compiler is asked for, found out anew."""
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    compiled.compiler_options.cache_clear()
    yield compiled.compiler_options
    compiled.compiler_options.cache_clear()


def test_an_option_that_this_xla_lacks_is_not_asked_for(options, monkeypatch):
    monkeypatch.setattr(compiled, "FASTER_COMPILER", {"xla_cpu_no_such_option": False})
    assert options(ONCE) == {compiled.LEVEL: ONCE}


def test_what_the_user_set_stays(options, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", f"--{compiled.LEVEL}=2")
    assert compiled.LEVEL not in options(ONCE)


def test_a_compiled_function_is_the_function():
    """With static arguments, and one program for the same shapes; also inside another program."""

    @compiled.compiled(static_argnums=0)
    def power(n, x):
        return x**n

    assert float(power(3, 2.0)) == 8.0
    assert float(power(3, 5.0)) == 125.0
    assert power.count() == 1
    assert float(compiled.compiled(lambda x: x + 1)(1.0)) == 2.0
    assert float(jax.jit(lambda x: power(2, x) + 1)(3.0)) == 10.0


# -- one process -----------------------------------------------------------------------


def _problem(rows=40, seed=0):
    """A law, a table of losses off it, and where its contrasts are taken."""
    runtime.start()
    law, rng = bayeslaw.law("chinchilla"), np.random.default_rng(seed)
    x = {name: np.exp(rng.uniform(18, 24, rows)) for name in ("N", "D")}
    y = np.log(2 + rng.uniform(0, 1, rows))
    return law, pad(x, y), coordinates.contrast_points(law, x)


def _heights(law, table, points):
    places = np.linspace(-1, 1, 2 * 7 + 1)[:, None] * np.ones(7)
    return np.asarray(density.gradients(law, table, points, places)[0])


def test_equal_laws_share_a_program():
    law, table, points = _problem()
    first = law.with_priors({"alpha": "lognormal(0.3, 0.2)"})
    _heights(first, table, points)
    before = density.gradients.count()
    again = law.with_priors({"alpha": "lognormal(0.3, 0.2)"})
    _heights(again, table, points)
    assert density.gradients.count() == before
    other = law.with_priors({"alpha": "lognormal(0.3, 0.1)"})
    assert (_heights(other, table, points) != _heights(first, table, points)).all()
    assert density.gradients.count() == before + 1


def test_a_program_is_what_jax_compiles_without_us():
    law, table, points = _problem()
    places = np.linspace(-1, 1, 2 * 7 + 1)[:, None] * np.ones(7)
    plain = jax.jit(jax.vmap(lambda v: density.potential(law, table, points, v)))
    # LLVM's levels round differently
    np.testing.assert_allclose(_heights(*_problem()), plain(places), rtol=1e-12)


# -- other processes -------------------------------------------------------------------

ELSEWHERE = """
import json
from collections import Counter
from inference.test_compiled import _problem, _heights, _starts
from bayeslaw._base.machine import runtime
runtime.start()
import jax
seen = Counter()
jax.monitoring.register_event_listener(lambda name, **_: seen.update([name.rpartition("/")[2]]))
problem = _problem()
numbers = [_heights(*problem).tolist(), _starts(*problem)]
print(json.dumps([numbers, seen["cache_misses"], seen["cache_hits"]]))
"""


def _starts(law, table, points):
    """Least squares, of LAPACK."""
    return {
        name: np.asarray(v).tolist()
        for name, v in point.start_points(law, table, points, 3, 0).items()
    }


def _elsewhere(folder, **environment):
    """Numbers of another process, and counts of programs not found and found on disk."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ELSEWHERE],
        capture_output=True,
        text=True,
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join(sys.path)}
        | {runtime.CACHE_VARIABLE: str(folder)}
        | environment,
    )
    assert not done.returncode, done.stderr
    return json.loads(done.stdout)


def test_a_second_process_compiles_nothing_and_says_the_same(tmp_path):
    numbers, made, _ = _elsewhere(tmp_path)
    assert made >= 4
    again, missing, found = _elsewhere(tmp_path)
    assert again == numbers
    assert (missing, found) == (0, made)
    # another setting: another program
    _, missing, _ = _elsewhere(tmp_path, XLA_FLAGS="--xla_cpu_enable_fast_math=false")
    assert missing == made


def test_a_folder_that_cannot_be_written_to_costs_nothing_but_time(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    numbers, *counts = _elsewhere(blocked)
    assert counts == [0, 0]  # nothing is looked for
    assert numbers == _elsewhere("")[0]


def test_another_processor_has_another_folder(tmp_path, monkeypatch):
    own = programs.of_processor(tmp_path)
    assert own == programs.of_processor(tmp_path)
    other = "flags : fpu sse2"
    monkeypatch.setattr(programs.Path, "read_text", lambda path: other)
    assert programs.of_processor(tmp_path) != own


def test_programs_that_nobody_reads_go(tmp_path):
    for name, days in {"old-cache": 91, "used-cache": 89}.items():
        (tmp_path / name).touch()
        _written(tmp_path / name, days * 86_400)
    programs.forget_unused(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["used-cache"]


COMPILE = """
from bayeslaw._base.machine import runtime
from bayeslaw._base.programs.compiled import compiled
runtime.start()
import jax, jax.numpy as jnp
program = compiled(lambda x: jnp.linalg.cholesky(x @ x.T + 9 * jnp.eye(7)))
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
    entries = {path: path.read_bytes() for path in tmp_path.rglob("*-cache")}
    assert entries
    for path, content in entries.items():
        path.write_bytes(content[: int(left * len(content))])
        _written(path, 60)
    _written(programs.of_processor(tmp_path) / programs.STAMP, 120)
    again, said = _compile(tmp_path)
    assert again == printed
    assert "Error reading" not in said
    for path in entries:
        assert zlib.decompress(path.read_bytes())


def test_programs_looked_at_are_not_looked_at_again(tmp_path, monkeypatch):
    """Nor those that another process may still be writing."""
    looked = []
    monkeypatch.setattr(
        programs, "_is_whole", lambda path: not looked.append(path.name)
    )
    seconds = {"old-cache": 3600, "older-cache": 7200, "being_written-cache": 0}
    for name, ago in seconds.items():
        path = tmp_path / name
        path.touch()
        _written(path, ago)
    programs.drop_damaged(tmp_path)
    assert sorted(looked) == ["old-cache", "older-cache"]
    programs.drop_damaged(tmp_path)
    assert len(looked) == 2


def test_a_clock_that_was_put_back_hides_nothing(tmp_path):
    """The last look lies in the future: everything is looked at."""
    damaged = tmp_path / "half-cache"
    damaged.write_bytes(zlib.compress(b"program")[:5])
    _written(damaged, 60)
    stamp = tmp_path / programs.STAMP
    stamp.touch()
    _written(stamp, -86_400)
    programs.drop_damaged(tmp_path)
    assert not damaged.exists()

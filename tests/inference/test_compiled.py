"""Programs: options of the compiler go with them and not with the process, a second process need not make them again."""

import json
import os
import subprocess
import sys
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import jax
import numpy as np
import pytest

import bayeslaw
from bayeslaw._base.machine import runtime
from bayeslaw._base.programs import compiled, store
from bayeslaw._base.programs import folder as programs
from bayeslaw._base.programs.compiled import ONCE, program_name
from bayeslaw._inference import coordinates, density, point
from bayeslaw._inference.table import pad
from bayeslaw._law.law import constant
from bayeslaw._posteriors.posterior import LogLoss


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


# -- names -----------------------------------------------------------------------------


def test_a_law_is_named_by_all_that_its_programs_depend_on():
    law = bayeslaw.law("chinchilla")
    other = law.with_priors({"alpha": "lognormal(0.34, 0.3000000000000001)"})
    again = law.with_priors({"alpha": "lognormal(0.34, 0.3000000000000001)"})
    moved = law.with_reference({"N": law.reference["N"] * (1 + 1e-15)})
    names = {program_name(each) for each in (law, other, moved)}
    assert len(names) == 3
    assert None not in names
    assert program_name(again) == program_name(other)


@pytest.mark.parametrize("of", ["terms", "offset", "publish"])
def test_a_law_of_other_functions_has_no_name(of):
    """Though it is called as one of the catalogue is."""
    law = bayeslaw.law("chinchilla")
    *rest, last = law.terms
    other = {
        "terms": (*rest, replace(last, basis=constant)),
        "offset": lambda x: 0.0 * x["N"],
        "publish": lambda values: dict(values),
    }
    assert program_name(law) is not None
    assert program_name(replace(law, **{of: other[of]})) is None


def test_formulas_have_no_name():
    law = bayeslaw.law_from_formula("E + A / N^alpha")
    assert program_name(law) is None
    assert program_name(LogLoss(law)) is None


def test_static_arguments_that_are_equal_are_not_the_same():
    """1 and 1.0 and True are equal, and make other programs."""
    assert len({program_name(each) for each in (1, 1.0, True, "1", (1,), (1.0,))}) == 6


def _own(x):
    return x


def test_a_function_of_someone_else_has_no_name():
    """Its text is not in the key."""
    assert program_name(_own) is None
    assert program_name(np.sum) is None
    assert program_name(lambda x: x) is None
    assert program_name(point.misses) == "bayeslaw._inference.point.misses"
    assert program_name((point.misses, _own)) is None
    assert program_name(np.zeros(3)) is None


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


def test_threads_that_ask_for_one_program_have_it_made_once(monkeypatch):
    made = []
    whole = store.load_or_compile
    monkeypatch.setattr(
        store, "load_or_compile", lambda *asked: made.append(asked) or whole(*asked)
    )
    law, table, points = _problem()
    unseen = law.with_priors({"beta": "lognormal(0.31, 0.17)"})
    before = density.gradients.count()
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(_heights, unseen, table, points) for _ in range(4)]
        heights = [one.result() for one in asked]
    gradients = [words for _, words in made if "density.gradients" in words]
    assert len(gradients) == 1
    assert density.gradients.count() == before + 1
    assert all((each == heights[0]).all() for each in heights)


def test_a_function_keeps_the_last_of_its_programs(monkeypatch):
    """A study of thousands of tables would run out of memory maps."""
    monkeypatch.setattr(density.gradients, "_most", 2)
    law, _, _ = _problem()
    numbers = {}
    for rows in (20, 60, 100, 20):
        _, table, points = _problem(rows)
        heights = _heights(law, table, points)
        np.testing.assert_array_equal(numbers.setdefault(rows, heights), heights)
    assert len(density.gradients._programs) == 2


# -- other processes -------------------------------------------------------------------

ELSEWHERE = """
import json, sys
from pathlib import Path
from inference.test_compiled import _problem, _heights, _starts
from bayeslaw._base.machine import runtime
runtime.start()
import jax
compiled = []
jax.monitoring.register_event_duration_secs_listener(
    lambda name, seconds, **of: compiled.append(of.get("fun_name")) if "backend_compile" in name else None)
problem = _problem()
numbers = [_heights(*problem).tolist(), _starts(*problem)]
print(json.dumps([numbers, compiled]))
"""


def _starts(law, table, points):
    """Least squares, of LAPACK."""
    return {
        name: np.asarray(v).tolist()
        for name, v in point.start_points(law, table, points, 3, 0).items()
    }


# the functions themselves, so that a new name of one is no failure
KEPT = {
    f"jit({function._function.__name__})"
    for function in (
        coordinates._compute_bases,
        coordinates._find_changes,
        point._solve_starts,
        density.gradients,
    )
}


def _elsewhere(folder, **environment):
    """Numbers of another process, and what it compiled of what is kept on disk."""
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
    numbers, made = json.loads(done.stdout)
    return numbers, KEPT.intersection(made)


def test_a_second_process_compiles_nothing_and_says_the_same(tmp_path):
    numbers, made = _elsewhere(tmp_path)
    assert made == KEPT
    kept = sorted(tmp_path.glob("*.executable"))
    assert len(kept) == len(KEPT)
    again, made = _elsewhere(tmp_path)
    assert again == numbers
    assert not made
    # half of one file, as a full disk leaves it, a bit of another, nothing of the rest
    half, flipped, *_ = (path.read_bytes() for path in kept)
    damaged = [
        half[: len(half) // 2],
        flipped[:-9] + bytes([flipped[-9] ^ 1]) + flipped[-8:],
        *[b""] * (len(kept) - 2),
    ]
    for path, content in zip(kept, damaged, strict=True):
        path.write_bytes(content)
    again, made = _elsewhere(tmp_path)
    assert again == numbers
    assert made == KEPT
    assert all(
        path.read_bytes() != content
        for path, content in zip(kept, damaged, strict=True)
    )
    again, made = _elsewhere(tmp_path)
    assert again == numbers
    assert not made
    # another processor, another setting: another program
    _, made = _elsewhere(tmp_path, XLA_FLAGS="--xla_cpu_enable_fast_math=false")
    assert made == KEPT


def test_switched_off_nothing_is_kept_and_the_numbers_are_the_same(tmp_path):
    numbers, _ = _elsewhere(tmp_path / "on")
    plain, _ = _elsewhere(tmp_path / "off", BAYESLAW_PROGRAMS="off")
    assert plain == numbers
    assert list((tmp_path / "on").glob("*.executable"))
    assert not list((tmp_path / "off").glob("*.executable"))


WITHOUT_CODE = """
import os
from pathlib import Path
import jax, jax.numpy as jnp
from bayeslaw._base.programs import store

folder = Path(os.environ["FOLDER"])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
jax.config.update("jax_compilation_cache_dir", str(folder))
x = jnp.arange(5.0)
function = jax.jit(lambda x: jnp.concatenate([jnp.sin(x) * 2, jnp.exp(x[:3])]))
expected = function(x)
lowering = lambda: function.lower(x)
jax.clear_caches()
from_cache = lowering().compile()  # JAX's own: what is written of it has no machine code
path = folder / (store._digest("words" + store._surroundings()) + store.SUFFIX)
store._keep(from_cache, path)
poisoned = path.read_bytes()
program = store.load_or_compile(lowering, "words")
assert (program(x) == expected).all() and (program(x) == expected).all()
assert not path.exists() or path.read_bytes() != poisoned
"""


def test_a_program_written_without_its_machine_code_is_made_again(tmp_path):
    """XLA loads it, and refuses its first call."""
    tmp_path.chmod(0o700)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WITHOUT_CODE],
        capture_output=True,
        text=True,
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join(sys.path), "FOLDER": str(tmp_path)},
    )
    assert not done.returncode, done.stderr


def test_a_folder_that_cannot_be_written_to_costs_nothing_but_time(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    numbers, made = _elsewhere(blocked)
    assert made == KEPT
    assert numbers == _elsewhere("")[0]


def test_the_key_holds_the_text_of_the_package(monkeypatch, tmp_path):
    (tmp_path / "law.py").write_text("floor = 1")
    monkeypatch.setattr(store, "_folders", lambda: [tmp_path])
    before = store._package.__wrapped__()
    (tmp_path / "law.py").write_text("floor = 2")
    assert store._package.__wrapped__() != before


def test_programs_that_nobody_uses_go(tmp_path):
    seconds = {"old.executable": 91 * 86_400, "used.executable": 89 * 86_400}
    for name, ago in seconds.items():
        (tmp_path / name).touch()
        _written(tmp_path / name, ago)
    programs.forget_unused(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["used.executable"]


COMPILE = """
from bayeslaw._base.machine import runtime
from bayeslaw._base.programs.compiled import compiled
runtime.start()
import jax, jax.numpy as jnp
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
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
    entries = {path: path.read_bytes() for path in tmp_path.glob("*-cache")}
    assert entries
    for path, content in entries.items():
        path.write_bytes(content[: int(left * len(content))])
        _written(path, 60)
    _written(tmp_path / programs.STAMP, 120)
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

"""Options of the compiler go with our programs, not with the process."""

import os
import subprocess
import sys

import pytest

from bayeslaw._base import runtime


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

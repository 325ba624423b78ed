"""The program in a shell: ``python -m bayeslaw``, and Tab after an option that takes a law."""

import subprocess
import sys

import pytest

import bayeslaw
from bayeslaw.cli.options import complete_law, complete_laws


def test_python_runs_the_package_as_its_command_line():
    words = [sys.executable, "-P", "-m", "bayeslaw", "laws", "chinchila"]
    out = subprocess.run(words, capture_output=True, text=True, check=False)
    assert out.returncode == 2
    assert "did you mean 'chinchilla'" in out.stderr
    assert out.stderr.count("\n") == 1


def test_the_shell_completes_names_of_laws():
    of_stages = [
        "ptpp-floor",
        "ptpp-gate",
        "ptpp-gate-floor",
        "ptpp-rise",
        "ptpp-tokens",
        "ptpp-transfer",
    ]
    assert complete_law("ptpp") == of_stages
    assert complete_law("") == [law.name for law in bayeslaw.laws()]
    assert complete_laws("dcpt,ptpp-g") == ["dcpt,ptpp-gate", "dcpt,ptpp-gate-floor"]
    assert complete_laws("ptpp-gate,ptpp-g") == ["ptpp-gate,ptpp-gate-floor"]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("bayeslaw fit runs.csv --law chi", "chinchilla"),
        ("bayeslaw report --law chi", "chinchilla"),
        ("bayeslaw compare runs.csv --laws dcpt,chi", "dcpt,chinchilla"),
        ("bayeslaw laws chi", "chinchilla"),
        ("bayeslaw simulate chi", "chinchilla"),
    ],
)
def test_options_that_take_a_law_complete_it(words, offered, monkeypatch):
    environment = {
        "_BAYESLAW_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    command = [
        sys.executable,
        "-c",
        "from bayeslaw.cli.app import app; app(prog_name='bayeslaw')",
    ]
    out = subprocess.run(command, capture_output=True, text=True, check=False)
    assert out.stdout.split() == [offered], out.stderr

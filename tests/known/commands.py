"""Commands as people type them."""

import json
import subprocess
import sys
from typing import Any

from click.testing import Result
from typer.testing import CliRunner

from bayeslaw.cli.app import app


def run(*words: Any, cwd=None) -> subprocess.CompletedProcess[str]:
    """In a process of its own, as a shell calls it."""
    command = [sys.executable, "-P", "-m", "bayeslaw.cli", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


def run_json(*words: Any) -> Any:
    """What a process of its own prints with --json: one line, and nothing else."""
    out = run(*words, "--json")
    assert out.returncode == 0, out.stderr
    assert out.stdout.count("\n") == 1
    return json.loads(out.stdout)


def call(*words: Any) -> Result:
    """In this process, a command that ends well; what it raises goes on."""
    done = CliRunner().invoke(app, [*map(str, words)])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done

"""What the README shows runs."""

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(), re.DOTALL)


def test_the_first_forecast_runs(tmp_path, monkeypatch, capsys):
    """The Python block runs as it stands, and ends in a file that loads."""
    monkeypatch.chdir(tmp_path)
    (code,) = blocks("python")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*two levels only")
        exec(compile(code, str(README), "exec"), {})
    assert "of 84 held-out runs" in capsys.readouterr().out
    assert (tmp_path / "fit.nc").is_file()


def test_the_prior_file_is_understood():
    import tomllib

    import bayeslaw

    (text,) = blocks("toml")
    bayeslaw.law("dcpt").with_priors(tomllib.loads(text)["priors"])


def test_the_commands_shown_exist():
    from typer.main import get_command

    from bayeslaw.cli.app import app

    shown = set(re.findall(r"^bayeslaw (\w+)", "\n".join(blocks("sh")), re.MULTILINE))
    assert shown
    assert shown <= set(get_command(app).commands)


def run_block(text: str, folder: Path) -> str:
    """What the commands of a block print, run by this Python as they stand."""
    here = str(Path(sys.executable).parent)
    environment = os.environ | {"PATH": here + os.pathsep + os.environ["PATH"]}
    command = ["bash", "-e", "-o", "pipefail", "-c", text]
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_commands_of_the_first_forecast_run(tmp_path):
    """The block runs as it stands, and says what the text below it says."""
    (text,) = [b for b in blocks("sh") if "bayeslaw forecast" in b]
    assert "WIDEN: " in run_block(text, tmp_path)


@pytest.mark.slow
def test_the_commands_of_the_plan_run(tmp_path):
    """Averages of both domains of the table above, and a plan or why there is none."""
    (table,) = [
        line for b in blocks("sh") for line in b.splitlines() if "to_csv" in line
    ]
    (text,) = [b for b in blocks("sh") if "bayeslaw plan" in b]
    assert "tokens per parameter" in run_block(f"{table}\n{text}", tmp_path)

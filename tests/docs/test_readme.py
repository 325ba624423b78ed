"""What the README and the how-to beside it show runs."""

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
HOW_TO = ROOT / "docs" / "howto"
STEPS = HOW_TO / "step_by_step.md"
WIDTH, LINES = 120, 90


def blocks(language: str, page: Path = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def test_it_is_short_and_of_one_width():
    """Read on one screen and a half, also in a narrow window."""
    lines = README.read_text().splitlines()
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= WIDTH


def test_its_two_commands_are_first_and_last():
    """The first installs and runs the main job, the last passes the tests; CI runs what
    stands here.
    """
    first, *_, last = blocks("sh")
    assert first.count("\n") == last.count("\n") == 1
    assert first.rstrip().endswith(".venv/bin/bayeslaw report -o report")
    assert "pytest -q" in last
    assert sum("pytest -q" in line for line in README.read_text().splitlines()) == 1


def test_its_links_lead_to_files():
    for target in re.findall(r"\]\(([^)#]+)", README.read_text()):
        assert (ROOT / target).exists(), target


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

    text = blocks("toml", HOW_TO / "own_law.md")[0]
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
    (text,) = [b for b in blocks("sh", STEPS) if "bayeslaw forecast" in b]
    assert "WIDEN: " in run_block(text, tmp_path)


@pytest.mark.slow
def test_the_commands_of_the_plan_run(tmp_path):
    """Averages of both domains of the table above, and a plan or why there is none."""
    (table,) = [
        line for b in blocks("sh", STEPS) for line in b.splitlines() if "to_csv" in line
    ]
    (text,) = [b for b in blocks("sh", STEPS) if "bayeslaw plan" in b]
    assert "tokens per parameter" in run_block(f"{table}\n{text}", tmp_path)

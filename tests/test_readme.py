"""What the README shows runs."""

import re
import warnings
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


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

    from bayeslaw.cli import app

    shown = set(re.findall(r"^bayeslaw (\w+)", "\n".join(blocks("sh")), re.MULTILINE))
    assert shown
    assert shown <= set(get_command(app).commands)

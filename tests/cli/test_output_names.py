"""Names from tables reach a terminal as text that does nothing there."""

import json
import unicodedata

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import bayeslaw
from bayeslaw._base.progress.bar import progress_bar
from bayeslaw._base.terminal import printable
from bayeslaw.cli.app import app
from bayeslaw.cli.output import keep_warning, own_warnings, print_table

EVIL = [
    "x\nerror: the disk is full",
    "x\r\x1b[2Kdone",
    "\x1b]0;title\x07",
    "abc\u202egnp.exe",
    "a\u2028error: b",
    "tab\tbell\x07",
    "\x9b31m",
    "zero\u200bwidth\ufeff",
]


def is_clean(text: str) -> bool:
    unshown = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return not {c for c in text if unicodedata.category(c) in unshown} - {"\n"}


def keys(value) -> set[str]:
    """Every key of a record, of those within it too."""
    if not isinstance(value, dict):
        return set()
    return set(value).union(*map(keys, value.values()))


@pytest.mark.parametrize("name", EVIL)
def test_warnings_tables_and_progress_print_names_as_text(capsys, name):
    with own_warnings():
        keep_warning(f"domain {name!s} is odd")
    print_table([{"name": name, "n": 1}], ("name", "n"))
    with progress_bar(f"laws on {name}"):
        pass
    out, err = capsys.readouterr()
    assert is_clean(out)
    assert is_clean(err)
    assert err.count("\n") == 1
    assert out.count("\n") == 2


def test_text_that_does_nothing_is_left_as_it_is():
    for text in ("N=8.1B 90%", "größe", "数据", "данные", "עברית"):
        assert printable(text) == text
    assert printable("a\nb") == r"a\nb"
    assert printable("\x1b[0m") == r"\x1b[0m"


@pytest.mark.parametrize("name", EVIL)
def test_commands_print_clean_text_and_exact_json(tmp_path, name):
    sizes = np.geomspace(1e8, 1e9, 20)
    rows = {"N": sizes, "D": 20 * sizes[::-1], "loss": np.linspace(3, 2, 20)}
    table = pd.DataFrame(rows | {"domain": name, name: 1.0})
    path = tmp_path / "t.jsonl"
    table.to_json(path, orient="records", lines=True)
    runner = CliRunner()
    shown = runner.invoke(app, ["review", str(path)])
    assert is_clean(shown.output)
    assert not any(line.startswith("error:") for line in shown.output.splitlines())
    told = runner.invoke(app, ["table", str(path), "--json"])
    assert name in keys(json.loads(told.stdout))


@pytest.mark.parametrize("name", EVIL[:4])
def test_the_sentence_of_a_run_that_is_followed_is_clean(tmp_path, name):
    from known import saved

    fit = bayeslaw.load(saved.save_average(tmp_path / "fit.nc"))
    curve = saved.runs().iloc[:3].assign(N=1e9, run="a", domain=name)
    known = bayeslaw.follow({name: fit}, curve, 1e11)
    sentence = known.sentence()
    assert is_clean(sentence)
    assert not any(line.startswith("error:") for line in sentence.splitlines())
    assert name in known.domains

"""Priors as people write them: read, or refused in one line, whatever Python's flags."""

import subprocess
import sys

import pytest

from bayeslaw import BayeslawError, LawError
from bayeslaw._law.priors import parse_prior
from bayeslaw.cli.parsing import prior_file

ODD = [
    "",
    "lognormal",
    "lognormal()",
    "lognormal(,)",
    "lognormal(0.3)",
    "lognormal(0.3, 0.3, 0.3)",
    "lognormal(a, b)",
    "lognormal(0.3; 0.3)",
    "lognormal(0.3, 0.3",
    "lognormal(0.3, 0.3))",
    "lognormal(nan, 1)",
    "lognormal(1e400, 1)",
    "lognormal(-1, 1)",
    "lognormal(0.3,\n0)",
    "cauchy(0, 1)",
    "normal(0, 0)",
    "fixed(inf)",
    "lognormal(0.3, 0.3)\x1b[31m\nerror: no",
    "x" * 10_000,
    0.3,
    None,
    ["lognormal(0.3, 0.3)"],
    {"family": "lognormal"},
]


@pytest.mark.parametrize("text", ODD, ids=range(len(ODD)))
def test_an_odd_prior_is_refused_in_one_line(text):
    with pytest.raises(LawError) as caught:
        parse_prior(text)
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < 300


def test_spaces_and_capitals_are_read():
    prior = parse_prior("  LogNormal( .34 ,\n 3e-1 ) ")
    assert (prior.family, prior.args) == ("lognormal", (0.34, 0.3))


def test_an_odd_prior_is_refused_without_asserts():
    """As Python does without them (-O)."""
    code = (
        "from bayeslaw._law.priors import parse_prior\n"
        "from bayeslaw import LawError\n"
        "try:\n    parse_prior('lognormal 0.3')\n"
        "except LawError as error:\n    print(error)"
    )
    out = subprocess.run(
        [sys.executable, "-O", "-c", code], capture_output=True, text=True, check=True
    )
    assert "is not understood" in out.stdout


@pytest.mark.parametrize(
    "content",
    [
        b"[priors",
        b"\xff\xfe",
        b"priors = 3",
        b"alpha = 'lognormal(0.3, 0.3)'",
        b"[prior]\nalpha = 1",
        b"[reference]\nN = 'many'",
        b"[priors]\na = " + b"[" * 20_000,
        b"[priors]\na = 1\na = 2",
    ],
    ids=range(8),
)
def test_a_damaged_file_of_priors_is_refused_in_one_line(tmp_path, content):
    path = tmp_path / "priors.toml"
    path.write_bytes(content)
    with pytest.raises(BayeslawError) as caught:
        prior_file(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)

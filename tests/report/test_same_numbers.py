"""One question in Python, on the command line and on the page: the same numbers, and every limit in the answer."""

import json
import re

import pytest
from markupsafe import escape
from typer.testing import CliRunner

import bayeslaw
from bayeslaw._plans.arguments import PlanArguments
from bayeslaw._report import figures
from bayeslaw._report.page import _list_limits
from bayeslaw.cli.app import app
from bayeslaw.cli.parsing import read_question
from known import pages, plans

ASKED = {
    "N": "8.1B",
    "ptpp": "279",
    "max_target_loss": "1.8",
    "max_forgetting": "2%",
    "baseline_loss": "1.6448",
}
HOURS = bayeslaw.Costs(hardware="64xH100", price=2.5)
LAW = {domain: name for domain, (name, _) in pages.LAWS.items()}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return pages.save_fits(tmp_path_factory.mktemp("fits"))


@pytest.fixture(scope="module")
def fits(files):
    return {name: bayeslaw.load(path) for name, path in files.items()}


def by_command(files, asked):
    """The JSON of `bayeslaw plan`."""
    words = ["plan", str(files["target"]), str(files["source"]), "--json"]
    for name, value in asked.items():
        words += [f"--{name if name == 'N' else name.replace('_', '-')}", value]
    done = CliRunner().invoke(app, words)
    return json.loads(done.stdout)


@pytest.fixture
def few_draws(monkeypatch):
    """The default of every way to ask, so that no way needs an option for it."""
    monkeypatch.setitem(PlanArguments.__init__.__kwdefaults__, "draws", plans.DRAWS)
    monkeypatch.setattr(figures, "plan_pictures", lambda *_: ())


@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"max_target_loss": "1.6"},
        {"max_forgetting": "0.03nats", "max_tokens": "50B"},
    ],
)
def test_one_question_has_one_answer(files, fits, more, tmp_path, monkeypatch):
    """With a plan, without one, and within a budget."""
    asked = ASKED | more
    question = read_question([f"{k}={v}" for k, v in asked.items()], "--plan")
    answer = bayeslaw.plan(fits["target"], fits["source"], **question).to_dict()
    pages.of_fits(monkeypatch, fits)
    made = bayeslaw.report(
        pages.table(), tmp_path, law=LAW, question=question, quick=True
    )
    for other in (by_command(files, asked), made.plan.to_dict()):
        for name in ("feasible", "D", "replay", "probability", "flops", "promises"):
            assert other[name] == answer[name]
    text = made.path.read_text()
    shown = json.loads(text.split('id="explorer-data">')[1].split("</script>")[0])
    at = answer if answer["D"] is not None else answer["explanation"]["best"]
    assert (shown["plan"]["D"], shown["plan"]["replay"]) == (at["D"], at["replay"])
    (said,) = re.findall(r'id="asked">As asked: (.*?)\.</p>', text)
    assert {entry.split()[0] for entry in said.split("; ")} >= set(asked)
    (lies,) = re.findall(r'id="distance">The [a-z ]+ lies (.*?)\.</p>', text)
    assert lies == made.plan.place()
    assert all(escape(line) in text for line in made.plan.warnings)


@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize(
    ("more", "is_kept"),
    [
        ({"max_tokens": 50e9}, lambda p: p.D <= 50e9 * (1 + 1e-9)),
        ({"max_flops": 1e25}, lambda p: p.flops <= 1e25),
        ({"min_replay": 0.4}, lambda p: p.replay >= 0.4),
        ({"max_replay": 0.3}, lambda p: p.replay <= 0.3),
        ({"unique_target_tokens": 1e11}, lambda p: p.D * (1 - p.replay) <= 1e11),
        ({"costs": HOURS, "max_days": 20.0}, lambda p: p.cost["days"] <= 20),
        ({"costs": HOURS, "max_cost": 2e6}, lambda p: p.cost["money"] <= 2e6),
    ],
    ids=lambda x: "-".join(x) if isinstance(x, dict) else None,
)
def test_each_limit_is_on_the_page_and_kept(fits, more, is_kept):
    """Also one that does not bind."""
    question = read_question([f"{k}={v}" for k, v in ASKED.items()], "--plan") | more
    answer = bayeslaw.plan(fits["target"], fits["source"], **question)
    said = _list_limits(question, answer)
    assert answer.D is not None
    assert is_kept(answer)
    for name in set(more) - {"costs"}:
        (entry,) = [line for line in said if line.startswith(f"{name} ")]
        assert entry.endswith(" (kept)")
    assert any(line.startswith("costs: ") for line in said) is ("costs" in more)
    assert len(said) == len(ASKED) + len(more)

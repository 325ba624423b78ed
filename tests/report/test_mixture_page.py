"""Mixtures on the page: linked sliders in a browser that say what Python says."""

import json
import re
import warnings
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest
from plans.test_mixture_plan import losses_of_sets

import bayeslaw
from bayeslaw import PlanError
from bayeslaw._plans.mixing.mixture import posed_and_solved
from bayeslaw._plans.mixing.question import MixtureArguments
from bayeslaw._report import page as page_file
from bayeslaw._report.domains import panels
from bayeslaw.cli.parsing import read_question
from known.browser import opened

DOMAINS = ("web", "code", "books")
QUESTION = {"N": 1e9, "max_loss": {"web": 2.6, "code": 2.0}}


def simulated() -> pd.DataFrame:
    """Losses of two evaluation sets on mixtures of three domains."""
    parts = []
    for seed, (own, changes) in enumerate(
        {"web": {}, "code": {"E": 1.15, "t_web": 0.25}}.items()
    ):
        law = bayeslaw.law("mixture-coupled", (own, *(d for d in DOMAINS if d != own)))
        runs = bayeslaw.simulate(law, design="mixtures", seed=seed, parameters=changes)
        parts.append(runs.assign(domain=own))
    return pd.concat(parts, ignore_index=True)


@contextmanager
def quick_fits(law="mixture-coupled"):
    """Previews in place of chains and averages."""

    def preview(runs, fitted, *_):
        with warnings.catch_warnings():
            # without the largest size there are two
            warnings.filterwarnings("ignore", message="column 'N' has two levels only")
            return bayeslaw.fit(runs[fitted], law, preview=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_file, "fit_laws", preview)
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    with quick_fits():
        return bayeslaw.report(
            simulated(),
            tmp_path_factory.mktemp("mixed"),
            law="mixture-coupled",
            quick=True,
            question=QUESTION,
        )


def data_of(report) -> dict:
    text = report.path.read_text()
    return json.loads(text.split('id="mixture-data">')[1].split("</script>")[0])


def test_sliders_are_at_the_setting_of_the_least_losses(tmp_path):
    """Not at that of the table's last row, and the page says at which."""
    runs = simulated().query("domain == 'web'")
    swept = [
        runs.assign(lr=rate, loss=runs["loss"] * (1 + 0.02 * octaves**2))
        for rate, octaves in ((5e-4, 1), (1e-3, 0), (4e-3, 2))
    ]
    table = pd.concat(swept, ignore_index=True)
    law = "mixture-coupled+lr"
    with quick_fits(law):
        made = bayeslaw.report(table, tmp_path, law=law, quick=True)
    assert data_of(made)["settings"] == "lr 0.001"
    assert "would do there at lr 0.001. All is" in made.path.read_text()


def test_the_page_plans_the_mixture_and_asks_for_nothing(made):
    """The plan is that of `plan_mixture`; page, pictures and data are one file."""
    again = bayeslaw.plan_mixture(made.fits, **QUESTION)
    # sums differ in their last digits by the order of threads: the search ends at shares
    # near each other, and the ladder of tokens at one of two rungs
    assert pytest.approx(again.D, rel=1e-3) == made.plan.D
    assert made.plan.shares == pytest.approx(again.shares, abs=1e-4)
    assert made.plan.probability == pytest.approx(again.probability, abs=0.005)
    text = made.path.read_text()
    assert "Which mixture, and how many tokens?" in text
    assert "--plan N=1000000000" in text
    assert "--plan max_loss=web=2.6,code=2" in text
    assert 'alt="Probability over mixtures of three domains' in text
    assert made.path.stat().st_size < 2e6


def test_sliders_start_at_the_plan_and_say_how_far_they_are_off(made):
    data = data_of(made)
    assert data["start"]["shares"] == pytest.approx(list(made.plan.shares.values()))
    assert np.exp(data["start"]["x"]) == pytest.approx(made.plan.D)
    assert data["error"] < 0.003


def test_without_a_plan_mixtures_of_the_largest_model_can_be_tried(tmp_path):
    with quick_fits():
        page = bayeslaw.report(simulated(), tmp_path, law="mixture-coupled", quick=True)
    data = data_of(page)
    assert page.plan is None
    assert data["N"] == 1e9
    assert data["start"]["shares"] == pytest.approx([1 / 3] * 3)
    assert data["probability"] is None


def test_mixtures_of_a_checkpoint_are_tried_from_its_last_stage(tmp_path):
    """Laws that read the checkpoint's losses get those of the largest model's last one."""
    runs = bayeslaw.datasets.load("microcpt-mixtures")
    of_seed = (runs["seed"] == 0) & (runs["step"] >= 100)
    runs = runs[of_seed & runs["domain"].isin(["fr", "de"])]
    # of sizes near the law's reference run, whose losses they are not
    runs = runs.assign(N=runs["N"] * 1e5, D=runs["D"] * 1e5)
    with quick_fits("mixture-state"):
        page = bayeslaw.report(runs, tmp_path, law="mixture-state", quick=True)
    data = data_of(page)
    last = runs[(runs["N"] == data["N"]) & (runs["ptpp"] == 93)]
    of_french = last[last["domain"] == "fr"].head(1)
    shares = dict(zip(data["domains"], data["start"]["shares"], strict=True))
    started = of_french.assign(
        D=np.exp(data["start"]["x"]), **{f"share_{d}": s for d, s in shares.items()}
    )
    forecast = page.fits["fr"].log_loss(started, noise=True)
    (of_set,) = [row["slider"] for row in data["rows"] if row["name"] == "fr"]
    start = float(data["sliders"][of_set]["value"])
    assert start == pytest.approx(np.exp(np.median(forecast)), rel=5e-3)


def test_a_budget_may_be_asked_for_on_the_page(tmp_path):
    """With D the mixture of the least mean under the limits, as in Python; with a limit
    that none keeps the best chance is told.
    """
    asked = {"N": 1e9, "D": 2e10, "max_loss": {"code": 2.05}}
    with quick_fits():
        page = bayeslaw.report(
            simulated(), tmp_path, law="mixture-coupled", quick=True, question=asked
        )
    best = bayeslaw.best_mixture(page.fits, **asked)
    assert pytest.approx(2e10) == page.plan.D
    assert page.plan.shares == pytest.approx(best.shares, abs=1e-4)
    assert page.plan.probability == pytest.approx(best.probability, abs=0.005)
    text = page.path.read_text()
    assert "Which mixture of 20B tokens?" in text
    assert "--plan D=20000000000" in text
    words = re.sub("<[^>]*>", "", text)
    assert "loss of code is at most 2.05 nats per token" in words
    assert "tokens of adaptation" not in text


@pytest.mark.parametrize(
    ("question", "line"),
    [
        ({"N": 1e9}, "give a limit"),
        ({"N": 1e9, "max_loss": 2.0}, "by evaluation set"),
        ({"max_loss": {"web": 2.0}}, "needs N; missing: N"),
        ({"N": 1e9, "max_loss": {"web": 2.0}, "ptpp": 30}, "ptpp"),
        ({**QUESTION, "baseline_run": {"D": 2e10, "web": 1.0}}, "no baseline_run"),
    ],
)
def test_a_question_is_refused_before_anything_is_fitted(tmp_path, question, line):
    with pytest.raises(PlanError, match=line) as refusal:
        bayeslaw.report(simulated(), tmp_path, law="mixture-coupled", question=question)
    assert "\n" not in str(refusal.value)
    assert list(tmp_path.iterdir()) == []


def test_what_is_typed_is_read_as_bounds():
    words = ["N=1B", "max_loss=web=2.5,code=1.9", "share_code=5%:30%", "share_web=.5"]
    assert read_question(words, "--plan") == {
        "N": 1e9,
        "max_loss": {"web": 2.5, "code": 1.9},
        "bounds": {"code": (0.05, 0.3), "web": (0.5, 0.5)},
        "covariates": {},
    }


def test_forecasts_are_drawn_by_mixture():
    """A line joins runs of one mixture, whose shares it is named by."""
    runs = bayeslaw.simulate("mixture-coupled", design="mixtures", seed=1)
    rows = runs[["loss"]].set_axis(["median"], axis=1).assign(low=1.0, high=9.0)
    data = panels((runs, rows), (runs, rows))
    assert data["keys"] == ["mixture", "N"]
    names = set(data["held"]["mixture"])
    assert "web 10%, code 10%, books 80%" in names
    assert len(names) == 8  # of ten: more cannot be read
    table = pd.DataFrame(data["held"])
    assert not table.duplicated(["mixture", "N", "D"]).any()


# -- in a browser ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def page(made, browser):
    page = opened(browser, made.path, bypass_csp=True)
    page.wait_for_selector("#mix[data-ready]")
    return page


def slide(page, name: str, position: float) -> dict:
    """Move a slider, and read what is said."""
    page.eval_on_selector(
        f"#m-{name}",
        "(e, v) => { e.value = v; e.dispatchEvent(new Event('input', {bubbles: true})); }",
        str(position),
    )
    return json.loads(page.get_attribute("#mix", "data-point"))


@pytest.fixture(scope="module")
def problem(made):
    """The draws that the page interpolates, and the limits."""
    arguments = MixtureArguments(made.fits, **QUESTION)
    return posed_and_solved(arguments).problem


def assert_as_python(point, problem):
    """Losses within .3%, probabilities within two in a hundred."""
    shares = np.array(point["shares"])
    log_losses = losses_of_sets(problem, point["x"], shares[None])[..., 0]
    tails = np.quantile(np.exp(log_losses), [0.05, 0.5, 0.95], axis=1).T
    for said, (low, median, high) in zip(point["rows"], tails, strict=True):
        assert said["median"] == pytest.approx(median, rel=0.003)
        assert said["low"] == pytest.approx(low, rel=0.003)
        assert said["high"] == pytest.approx(high, rel=0.003)
    probability = problem.kept(point["x"], shares).all(axis=0).mean()
    assert point["probability"] == pytest.approx(probability, abs=0.02)


def test_shares_are_linked_and_read_out_as_python(page, problem):
    """At twenty mixtures and budgets: shares sum to one within their bounds."""
    rng = np.random.default_rng(0)
    page.click("#m-reset")
    for _ in range(20):
        j = int(rng.integers(3))
        slide(page, "tokens", rng.uniform(np.log(3e9), np.log(5e10)))
        wanted = rng.uniform(problem.least[j], problem.largest[j])
        point = slide(page, f"share-{j}", wanted)
        shares = np.array(point["shares"])
        assert shares.sum() == pytest.approx(1, abs=1e-6)
        assert shares[j] == pytest.approx(wanted, abs=1e-6)
        assert (shares >= problem.least - 1e-9).all()
        assert (shares <= problem.largest + 1e-9).all()
        assert_as_python(point, problem)


def test_the_others_keep_their_proportions_and_come_back(page):
    page.click("#m-reset")
    before = slide(page, "share-0", 0.3)["shares"]
    moved = slide(page, "share-1", 0.35)["shares"]
    assert moved[0] / moved[2] == pytest.approx(before[0] / before[2])
    slide(page, "share-1", 0.1)
    assert slide(page, "share-1", before[1])["shares"] == pytest.approx(before)


def test_a_limit_moves_the_probability_and_reset_brings_the_plan_back(page, made):
    page.click("#m-reset")
    start = json.loads(page.get_attribute("#mix", "data-point"))
    assert start["probability"] == made.plan.probability
    # of one limit the page said 97.4% in its row and 97.6% below
    by_name = {row["name"]: row for row in made.plan.limits}
    assert start["rows"] == [by_name[name] for name in sorted(by_name)]
    tight = slide(page, "limit-0", 2.5)
    assert tight["probability"] < start["probability"] - 0.2
    assert page.get_attribute("#m-now-all", "class") == "short"
    slide(page, "share-0", 0.2)
    page.click("#m-reset")
    assert json.loads(page.get_attribute("#mix", "data-point")) == start


def test_keys_move_a_share(page):
    page.click("#m-reset")
    before = json.loads(page.get_attribute("#mix", "data-point"))["shares"]
    page.focus("#m-share-1")
    page.keyboard.press("ArrowRight")
    after = json.loads(page.get_attribute("#mix", "data-point"))["shares"]
    assert after[1] > before[1]
    assert sum(after) == pytest.approx(1, abs=1e-6)


def test_pictures_are_drawn_and_nothing_goes_wrong(page):
    """A line for each domain, the trade-off of the domain moved last; no wider than a phone."""
    page.click("#m-reset")
    slide(page, "share-2", 0.3)
    page.wait_for_timeout(300)
    assert page.locator("#m-along canvas").count() == 1
    assert page.locator("#m-trade canvas").count() == 1
    assert page.locator("#m-along-key li").all_inner_texts() == sorted(DOMAINS)
    assert page.input_value("#m-domain") == "2"
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.complaints == []

"""No part that fails takes the page with it: it is left out, and why is said."""

from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw import DiagnosticsError, RunTableError
from bayeslaw._report import domains
from bayeslaw._report import page as page_file
from bayeslaw._report.domains import PageSetting
from bayeslaw._report.planned import _make_optional
from known import pages, saved
from known.pages import ended


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RunTableError("row 22 is empty"), "row 22 is empty"),
        (ValueError("a\nb"), "ValueError: a"),
        (MemoryError(), "MemoryError: "),
    ],
)
def test_an_optional_part_that_fails_is_told(error, told):
    def fails():
        raise error

    left_out: dict[str, str] = {}
    assert _make_optional(lambda: 3, "Map", left_out) == 3
    assert _make_optional(fails, "Runs to buy", left_out) is None
    assert left_out == {"Runs to buy": told}


def report_of(folder, monkeypatch, finals, drawn, **question):
    """`report` where the fits of all runs and the judged domains end so."""
    made = nullcontext((finals, drawn))
    monkeypatch.setattr(page_file, "_fit_all", lambda *_, **__: made)
    return bayeslaw.report(pages.table(), folder, law=pages.LAW_NAMES, **question)


def test_a_domain_whose_check_fails_leaves_the_others(tmp_path, monkeypatch):
    fit = bayeslaw.load(saved.save_fit(tmp_path / "known.nc"))
    test = (pages.hold_out(), pages.check_of("trust"))
    target = pages.drawn("target", fit, test)
    drawn = {"target": ended(target), "source": ended(error=DiagnosticsError("R-hat"))}
    with pytest.raises(
        DiagnosticsError, match=r"check of source: R-hat; .* has all the rest"
    ):
        report_of(tmp_path / "page", monkeypatch, {}, drawn)
    page = (tmp_path / "page" / "report.html").read_text()
    assert 'data-domain="target"' in page
    assert "The check of source is not on this page:</b> R-hat" in page


def test_where_no_domain_can_be_checked_the_first_says_why(tmp_path, monkeypatch):
    drawn = {"a": ended(error=DiagnosticsError("R-hat")), "b": ended(error=KeyError())}
    with pytest.raises(DiagnosticsError, match="R-hat"):
        report_of(tmp_path / "page", monkeypatch, {}, drawn)
    assert not (tmp_path / "page" / "report.html").exists()


def test_fits_are_kept_before_anything_else_is_made(tmp_path, monkeypatch):
    fit = bayeslaw.load(saved.save_fit(tmp_path / "made" / "known.nc"))
    error = DiagnosticsError("R-hat")
    ends = {"target": ended(fit), "source": ended(error=error)}
    failed = {name: ended(error=error) for name in ends}
    asked = {"question": pages.QUESTION}
    with pytest.raises(DiagnosticsError, match="R-hat"):
        report_of(tmp_path / "page", monkeypatch, ends, failed, **asked)
    assert [path.name for path in (tmp_path / "page").iterdir()] == ["target.nc"]


def test_a_page_without_a_plan_keeps_its_fit(tmp_path, monkeypatch):
    """Of a table of one domain, too."""
    monkeypatch.setattr(
        page_file,
        "fit_laws",
        lambda runs, is_fitted, *_: bayeslaw.fit(
            runs[is_fitted], "chinchilla", preview=True
        ),
    )
    runs = bayeslaw.simulate("chinchilla")
    made = bayeslaw.report(runs, tmp_path, law="chinchilla", hold_out="N")
    assert made.plan is None
    assert {path.name for path in tmp_path.iterdir()} == {"report.html", "runs.nc"}
    assert made.saved == {"runs": tmp_path / "runs.nc"}
    assert bayeslaw.load(made.saved["runs"]).name == "chinchilla"


@pytest.mark.parametrize("column", ["replay", "ptpp"])
def test_a_gap_in_what_a_law_reads_is_said_before_any_fit(
    column, tmp_path, monkeypatch
):
    monkeypatch.setattr(page_file, "fit_laws", lambda *_: pytest.fail("a fit began"))
    runs = bayeslaw.simulate("ptpp-floor")
    runs.loc[runs.index[3], column] = np.nan
    assert isinstance(runs, pd.DataFrame)
    with pytest.raises(RunTableError, match=rf'--where "{column}.notna\(\)"'):
        bayeslaw.report(runs, tmp_path / "page", law="ptpp-floor", hold_out="N")


def test_a_handful_of_runs_is_judged_by_one_law(monkeypatch):
    """Too few to weigh laws by stages left out: two rows are fitted, not refused."""
    monkeypatch.setattr(domains, "fit", lambda runs, law, **_: (len(runs), law))
    monkeypatch.setattr(domains, "average_part", lambda *_, **__: "an average")
    setting = PageSetting({}, [], 0, "raise", "nats")
    two, many = np.arange(3) < 2, np.ones(len(saved.runs()), bool)
    of_three = saved.runs()[["N", "D", "loss"]].iloc[::20].iloc[:3]
    asked = (setting, None, None)
    assert domains.fit_laws(of_three, two, [], *asked) == (2, "coupled")
    assert domains.fit_laws(of_three, two, ["chinchilla"], *asked) == (2, "chinchilla")
    assert domains.fit_laws(saved.runs(), many, [], *asked) == "an average"


@pytest.mark.filterwarnings("ignore::bayeslaw.RunTableWarning")
def test_three_runs_get_a_page_without_empty_numbers(tmp_path, monkeypatch):
    """One run is held out: a line through it has no slope, and none is printed."""

    def preview(runs, law, seed, **_):
        return bayeslaw.fit(runs, law, preview=True, seed=seed)

    monkeypatch.setattr(domains, "fit", preview)
    one_each = saved.runs().drop_duplicates("N")[["N", "D", "loss"]].iloc[:3]
    made = bayeslaw.report(one_each, tmp_path / "page", quick=True)
    page = made.path.read_text()
    assert "<td>nan</td>" not in page
    assert made.checks["runs"].verdict == "unknown"

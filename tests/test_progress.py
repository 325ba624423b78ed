"""The time left only falls, ends at 0, and is right where the work is steady; where it is shown."""

import os
import pty
import re
import subprocess
import sys
import time
from functools import partial

import numpy as np
import pytest

from bayeslaw._base.progress import bar
from bayeslaw._base.progress.bar import progress_bar
from bayeslaw._base.progress.time_left import Stages, TimeLeft, time_text


class Clock:
    """A clock that is set by hand."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("BAYESLAW_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def told(expected, seconds, steps, *, whole=20):
    """What is said each second of a job of so many steps, done at these seconds."""
    clock = Clock()
    left = TimeLeft(expected, clock)
    said = []
    for second in range(int(seconds) + 1):
        clock.now = 1000.0 + second
        left.tell(int(np.sum(np.asarray(steps) <= second)), whole)
        said.append(left.seconds())
    left.finish()
    return np.array([*said, left.seconds()])


@pytest.mark.parametrize("seed", range(30))
def test_the_time_left_never_rises_and_ends_at_nought(seed):
    """Jobs of any pace, with silences, taken for a tenth or for ten times as long."""
    rng = np.random.default_rng(seed)
    seconds = rng.uniform(20, 400)
    steps = np.sort(seconds * rng.beta(*rng.uniform(0.2, 5, 2), size=20))
    said = told(seconds * 10 ** rng.uniform(-1, 1), seconds, steps)
    assert np.all(np.diff(said) <= 0)
    assert np.all(said[:-1] > 0)
    assert said[-1] == 0


def test_a_steady_job_of_known_length_is_told_by_the_clock():
    """An independent route: seconds left are those to its end."""
    said = told(100, 100, np.linspace(1, 100, 100), whole=100)
    np.testing.assert_allclose(said[:-2], np.arange(100, 0, -1), rtol=1e-6)


def test_what_was_said_too_long_is_taken_back():
    """A steady job of 100 s that was taken for 200: from half of it on within a fifth and two seconds."""
    said = told(200, 100, np.linspace(1, 100, 100), whole=100)
    assert said[0] == pytest.approx(200, rel=0.01)
    np.testing.assert_allclose(said[50:100], np.arange(50, 0, -1), rtol=0.2, atol=2)


def test_what_was_said_too_short_falls_slower_than_the_clock():
    """Taken for 50, it cannot rise: but there is always a third left of what there should be."""
    said = told(50, 100, np.linspace(1, 100, 100), whole=100)
    left = np.arange(100, 0, -1)
    assert np.all(said[:100] < left)
    assert np.all(said[20:100] > left[20:] / 3)


def test_a_silent_job_is_never_said_to_be_over():
    """One that tells nothing takes three times as long as it should: some time is always left."""
    said = told(30, 90, [])
    assert said[30] > 1
    assert said[89] > 0


@pytest.mark.parametrize(("expected", "seconds"), [(60, 30), (30, 90)])
def test_the_share_of_a_silent_job_is_that_of_its_time(expected, seconds):
    """Planning reports nothing: its bar rises from 0 and is full only when it is over."""
    clock = Clock()
    left = TimeLeft(expected, clock)
    shares = []
    for second in range(seconds):
        clock.now = 1000.0 + second
        shares.append(left.share)
    assert shares[0] == 0
    assert np.all(np.diff(shares) >= 0)
    assert shares[15] == pytest.approx(15 / expected, rel=1e-6)
    assert shares[-1] <= 0.99
    left.finish()
    assert left.share == 1


@pytest.mark.parametrize("seed", range(10))
def test_the_share_never_falls(seed):
    """Whatever the pace: also where little is reported later than expected."""
    rng = np.random.default_rng(seed)
    steps = np.sort(100 * rng.beta(*rng.uniform(0.2, 5, 2), size=20))
    clock = Clock()
    left = TimeLeft(100 * 10 ** rng.uniform(-1, 1), clock)
    shares = []
    for second in range(100):
        clock.now = 1000.0 + second
        left.tell(int(np.sum(steps <= second)), 20)
        shares.append(left.share)
    assert np.all(np.diff(shares) >= 0)
    assert shares[-1] > 0


@pytest.mark.parametrize(
    "steps",
    [
        np.linspace(1, 5, 19),  # all but the last, which takes ten minutes
        [],  # nothing is ever reported
        np.linspace(1, 600, 20),  # steadily, but ten times as long
    ],
)
def test_a_job_that_is_late_does_not_pretend_to_be_nearly_done(steps):
    """Taken for 60 s, it takes 600: no line of the last nine minutes says that seconds
    are left, and no share is nearer to all than twice what is left says.
    """
    clock = Clock()
    left = TimeLeft(60, clock)
    for second in range(600):
        clock.now = 1000.0 + second
        left.tell(int(np.sum(np.asarray(steps) <= second)), 20)
        line = bar._line("a job", left)
        if 90 <= second < 550:
            assert "longer than expected" in line
            assert time_text(second) in line
            assert left.share < 0.95
    left.finish()
    assert left.share == 1


def test_stages_add_up_by_their_shares_and_never_fall():
    """A stage's count that grows, or is told twice, takes nothing back."""
    whole = []
    stages = Stages(lambda *done: whole.append(done), {"a": 30, "b": 10})
    stages.of("a")(1, 2)
    stages.of("b")(1, 4)
    stages.of("a")(1, 3)
    stages.finish("b")
    stages.finish("a")
    assert whole == [(375, 1000), (438, 1000), (438, 1000), (625, 1000), (1000, 1000)]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.9, "59 s"), (60, "1 min"), (100, "1 min 40 s"), (199, "3 min 15 s")],
)  # fmt: skip
def test_times_in_words(seconds, text):
    assert time_text(seconds) == text


def test_a_log_has_lines_now_and_then(own_cache, monkeypatch, capsys):
    """Without a terminal: shares rise, the time left falls, the last line says how long it took."""
    quick = partial(bar._in_log, first=0.01, every=0.02)
    monkeypatch.setattr(bar, "_in_log", quick)
    with progress_bar("a job", expected=5) as tell:
        for done in range(5):
            tell(done, 5)
            time.sleep(0.05)
    *lines, last = capsys.readouterr().err.splitlines()
    matched = [re.fullmatch(r"a job: (\d+)%, about (\d+) s left", x) for x in lines]
    assert len(lines) > 3
    assert all(matched)
    shares = [int(m[1]) for m in matched if m]
    said = [int(m[2]) for m in matched if m]
    assert shares == sorted(shares)
    assert shares[-1] > 0
    assert said == sorted(said, reverse=True)
    assert last == "a job: done in 0 s"


def test_a_job_that_fails_is_not_called_done_nor_timed(own_cache, monkeypatch, capsys):
    monkeypatch.setattr(bar, "_in_log", partial(bar._in_log, first=0.001))

    def fails():
        with progress_bar("a job"):
            time.sleep(0.05)
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fails()
    assert "done" not in capsys.readouterr().err
    assert not own_cache.exists()


@pytest.mark.parametrize(
    "damage",
    [
        None,
        "{",
        "[1]",
        '{"a job": "soon"}',
        '{"a job": Infinity}',
        pytest.param("[" * 100_000, id="deep"),
    ],
)
def test_the_next_job_of_a_name_is_taken_for_as_long(own_cache, monkeypatch, damage):
    """What was kept is read back; of a damaged file nothing is."""
    expected = []
    monkeypatch.setattr(bar, "TimeLeft", lambda s: expected.append(s) or TimeLeft(s))
    with progress_bar("a job", expected=7):
        time.sleep(0.02)
    if damage is not None:
        (own_cache / bar.TIMES).write_text(damage)
    with progress_bar("a job", expected=7):
        pass
    with progress_bar("another job"):
        pass
    assert expected[0] == 7
    assert expected[1] == 7 if damage else expected[1] < 1
    assert expected[2] == 60


JOB = """
import time
from functools import partial
from bayeslaw._base.progress.bar import progress_bar
with progress_bar("a job", expected=3) as tell:
    for done in range(5):
        tell(done, 5)
        time.sleep(.3)
"""


def test_a_terminal_has_a_bar(own_cache):
    """In a real one: the bar, the time left that only falls, and at the end what it took."""
    ours, theirs = pty.openpty()
    here = dict(os.environ, TERM="xterm", COLUMNS="90")
    with subprocess.Popen([sys.executable, "-c", JOB], stderr=theirs, env=here):
        os.close(theirs)
        shown = b""
        try:
            while more := os.read(ours, 4096):
                shown += more
        except OSError:  # Linux ends a terminal so
            pass
    os.close(ours)
    text = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", shown).decode()
    said = [int(s) for s in re.findall(r"about (\d+) s left", text)]
    assert "━" in text
    assert said[0] >= 2
    assert said == sorted(said, reverse=True)
    assert "done in" in text


def test_a_notebook_has_a_line_that_changes(own_cache):
    """In a kernel: one output, whose text is at the end what it took."""
    for name in ("nbformat", "nbclient", "ipykernel"):
        pytest.importorskip(name)
    import nbclient
    import nbformat

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(JOB)])
    nbclient.NotebookClient(notebook, timeout=60).execute()
    (output,) = notebook.cells[0].outputs
    assert output["data"]["text/plain"] == "a job: done in 1 s"

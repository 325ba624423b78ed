"""A query selects rows by names of columns, literals and comparisons; it runs nothing."""

import sys

import pandas as pd
import pytest

import bayeslaw
from bayeslaw import RunTableError
from known.reading import refusal

ROWS = {"N": [1e8, 1e9, 2e9], "D": [1e9, 2e9, 3e9], "loss": [2.5, 2.3, 2.2]}
NAMED = {"domain": ["target", "source", None], "tokens B": [1, 2, 3]}
TABLE = pd.DataFrame(ROWS | NAMED)
QUERIES = {
    "loss < 2.4 and domain == 'source'": [2],
    "loss < 2.4 & domain == 'source'": [2],
    "(N > 1e9) | (domain == 'target')": [1, 3],
    "not N == 1e9": [1, 3],
    "~(N == 1e9)": [1, 3],
    "`tokens B` >= 2": [2, 3],
    "`tokens B` in [1, 3]": [1, 3],
    "N not in [1e8]": [2, 3],
    "2.2 < loss <= 2.5": [1, 2],
    "row != 2": [1, 3],
    "index == 2": [2],
    "N / 1e8 + 1 > 10": [2, 3],
    "N ** 2 > 2e18": [3],
    "abs(loss - 2.3) < .05": [2],
    "loss < loss.mean()": [2, 3],
    "domain.isin(['target'])": [1],
    "domain.isna()": [3],
    "domain.str.startswith('s')": [2],
    "domain.str.contains('T', case=False, na=False)": [1],
    "domain != 'target'": [2, 3],
}


@pytest.mark.parametrize("where", QUERIES)
def test_queries_select_what_they_say(where):
    assert list(bayeslaw.read_runs(TABLE, where=where).index) == QUERIES[where]


@pytest.mark.parametrize(
    "where",
    [
        "@pd.io.common.os.system('true') == 0",
        "@TABLE.N > 1",
        "__import__('sys').setrecursionlimit(999) == 1",
        "N.__class__ == 1",
        "N.to_csv('hostile.csv') == 1",
        "N.apply(print)",
        "N.values.tofile('hostile.csv') == 1",
        "domain.str.cat.__func__ == 1",
        "pd.eval('1')",
        "[n for n in N]",
        "(lambda: N)()",
        "f'{N}' == 1",
        "N[0] == 1",
        "N if N else N",
        "(M := N) > 1",
        "9 ** 9 ** 9 > N",
        "N ** 1000 > 1",
        "'a' * 99999999999 == domain",
        "domain == 'a`b'",
        "`tokens B` > 1 and `@N` > 1",
        "(" * 500 + "N" + ")" * 500,
        "N > " + "1" * 2000,
    ],
)
def test_what_is_no_query_is_refused_and_not_run(where, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    events = []

    def watch(event, arguments):
        if watching and event.split(".")[0] in ("os", "subprocess", "socket", "exec"):
            events.append((event, arguments))

    watching = True
    sys.addaudithook(watch)  # stays; it looks at nothing once this test is over
    with pytest.raises(RunTableError) as caught:
        bayeslaw.read_runs(TABLE, where=where)
    watching = False
    assert "\n" not in str(caught.value)
    assert not events
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("where", "named"),
    [
        ("1", "one value for all rows"),
        ("1 == 1", "one value for all rows"),
        ("N", "a value, not a condition"),
        ("domain", "a value, not a condition"),
        ("N = 1", "write it like"),
        ("Loss > 1", "did you mean 'loss'"),
        ("domain == target", "text is quoted: 'target'"),
        ("`tokens` > 1", "no column 'tokens'"),
        ("N > 1e30", "selects none"),
    ],
)
def test_a_query_that_selects_by_nothing_says_so(where, named):
    assert named in refusal(TABLE, where=where)

"""Define a planning problem with a known answer, that of Goffinet 2025 (section 4, fig.
2).

The paper plans N = 8.1e9 at 279 pre-training tokens per parameter, with target law Form
3, source law Form 1, forgetting of at most 2% and a target loss of at most 1.8. It
finds 8.9 tokens per parameter at 34% replay. Its fitted parameters are not published.
The parameters here are chosen so that the point solution is the same (8.90 at 34.0%);
both promises hold with equality there.
"""

from bayeslaw import datasets

TARGET_LAW, SOURCE_LAW = "ptpp-gate-floor", "ptpp-floor"
TARGET = {
    "E": 1.1597,
    "A": 180.0,
    "B": 60.0,
    "C": 0.01,
    "F": 0.6,
    "alpha": 0.3,
    "nu": 0.25,
    "beta": 0.25,
    "gamma": 0.3,
    "lam": 0.3,
    "zeta": 0.25,
    "eta": 0.5,
}
SOURCE = {
    "E": 1.2,
    "A": 220.0,
    "B": 20.0,
    "C": 0.05,
    "F": 0.5,
    "alpha": 0.3,
    "nu": 0.05,
    "beta": 0.2,
    "gamma": 0.5,
    "eta": 0.5,
}
QUESTION = datasets.TABLES["simulated-ptpp-grid"].question
ATPP, REPLAY = 8.9, 0.34

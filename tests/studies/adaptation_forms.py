"""Fit forms of laws of adaptation to the bundled grids by least squares, and measure their errors at what is left out.

    python tests/studies/adaptation_forms.py target|source

Each fit is the best of four starts of least squares of log loss, with a soft-l1 loss at 1%, on the rows from .9 tokens per parameter on.
The study is a quick look at many forms, to choose those that `new_sizes.py` tries with posteriors. All forms are defined here and not
taken from `models`, so that the results do not change with the laws. Errors are mean absolute errors of log loss in percent.

n: size in millions; D: adaptation tokens in ten millions; P: pre-training tokens in billions; S, T: the checkpoint's losses; r: replay;
epochs: how often the target's text was read (windows start at random places, so these are means).
Positive parameters are exponentials of what is searched.
"""

import argparse
from functools import partial
from multiprocessing import Pool
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy import exp, log
from scipy.optimize import least_squares

from bayeslaw import datasets

# bytes of the target's training text (docs/microcpt.md)
FRENCH, GERMAN = 11_652_953, 13_149_372


class Runs(NamedTuple):
    """Columns of a table, each of shape (row,)."""

    S: np.ndarray
    T: np.ndarray
    n: np.ndarray
    D: np.ndarray
    r: np.ndarray
    P: np.ndarray
    y: np.ndarray
    epochs: np.ndarray

    @classmethod
    def of(cls, table: pd.DataFrame, text: float) -> "Runs":
        """Take the columns of a table; ``text``: bytes of the target's text."""
        return cls(
            table["source_loss_before"].to_numpy(),
            table["loss_before"].to_numpy(),
            table["N"].to_numpy() / 1e6,
            table["D"].to_numpy() / 1e7,
            table["replay"].to_numpy(),
            table["ptpp"].to_numpy() * table["N"].to_numpy() / 1e9,
            log(table["loss"].to_numpy()),
            ((1 - table["replay"]) * table["D"]).to_numpy() / text,
        )

    @property
    def ptpp(self) -> np.ndarray:
        return self.P * 1e3 / self.n

    @property
    def replayed(self) -> np.ndarray:
        """Replayed tokens over those of pre-training."""
        return self.r * self.D / 100 / self.P


# -- target: log losses of shape (row,) ------------------------------------------------


def form_1(t, x):
    """Goffinet 2025, Form 1."""
    q = x.ptpp / 50
    tokens = exp(t[3]) * x.r ** exp(t[4]) * x.D ** -exp(t[5])
    replay = exp(t[6]) * (x.r + 1e-2) ** -exp(t[7])
    size = exp(t[1]) * x.n ** -exp(t[2])
    return log(exp(t[0]) + size + tokens + replay + exp(t[8]) * q ** -exp(t[9]))


def state_target(t, x):
    """T + (c S - T) (1-r)^q (1 - (1 + D n^h/D1)^-b)."""
    seen = x.D * x.n ** t[2] / exp(t[3])
    way = (1 - x.r) ** exp(t[1]) * (1 - (1 + seen) ** -exp(t[4]))
    return log(x.T + (exp(t[0]) * x.S - x.T) * way)


def state_log(t, x):
    """log loss = c + p log S + B n^h (D (1-r)^q + D0)^-b."""
    tokens = x.D * (1 - x.r) ** exp(t[2]) + exp(t[4])
    return t[0] + t[1] * log(x.S) + exp(t[6]) * x.n ** t[3] * tokens ** -exp(t[5])


def state_lean(t, x):
    """log loss = c + p log S - v log(1-r) + B n^h (D (1-r)^.5)^(-b n^m)."""
    level = t[0] + t[1] * log(x.S) - t[2] * log(1 - x.r)
    return level + exp(t[3]) * x.n ** t[4] * remaining(x, t[5], t[6])


def state_sum(t, x):
    """c S^p + B n^h (D (1-r)^q + D0)^-b."""
    tokens = x.D * (1 - x.r) ** exp(t[2]) + exp(t[4])
    floor = exp(t[0]) * x.S ** t[1]
    return log(floor + exp(t[6]) * x.n ** t[3] * tokens ** -exp(t[5]))


def state_power(t, x):
    """S^p (1-r)^-v (r+.02)^-w (c + B n^h (D (1-r)^.5)^(-b n^m))."""
    return power_without_w(t, x) - t[7] * log(x.r + 0.02)


def power_without_w(t, x):
    """The same without w."""
    data = exp(t[3]) * x.n ** t[4] * remaining(x, t[5], t[6])
    return t[1] * log(x.S) - t[2] * log(1 - x.r) + log(exp(t[0]) + data)


def power_without_m(t, x):
    """The same without m."""
    return state_power([*t[:6], 0.0, t[6]], x)


def state_power_stages(t, x, later=1.0):
    """state_power with B (ptpp/30)^z."""
    data = exp(t[3]) * x.n ** t[4] * remaining(x, t[5], t[6])
    data = data * (x.ptpp / 30) ** t[8] * later
    replay = -t[2] * log(1 - x.r) - t[7] * log(x.r + 0.02)
    return t[1] * log(x.S) + replay + log(exp(t[0]) + data)


def further_pretraining(t, x):
    """The same with B (ptpp/30)^z (1 + D/P)^y."""
    return state_power_stages(t, x, (1 + x.D / x.P / 100) ** t[9])


def tokens_only(t, x):
    """Without the checkpoint's losses: (1-r)^-v (r+.02)^-w (E + A n^-a P^-e + B n^h (D (1-r)^.5)^-b)."""
    size = exp(t[1]) * x.n ** -exp(t[6]) * (x.P / 0.1) ** -exp(t[7])
    data = exp(t[4]) * x.n ** t[3] * remaining(x, t[5], 0.0)
    replay = -t[2] * log(1 - x.r) - t[8] * log(x.r + 0.02)
    return replay + log(exp(t[0]) + size + data)


def remaining(x, b, m):
    """(D (1-r)^.5)^(-b n^m), b as a logarithm."""
    return (x.D * (1 - x.r) ** 0.5) ** (-exp(b) * x.n**m)


# -- source ----------------------------------------------------------------------------


def state_source(t, x):
    """S + (S1 - S) a n^g e^(-k r) (1 - e^(-D/D1)) - G log(1 + r D/D2)."""
    share = exp(t[1]) * x.n ** t[2] * exp(-exp(t[3]) * x.r)
    moved = (exp(t[0]) - x.S) * share * -np.expm1(-x.D / exp(t[4]))
    learned = exp(t[5]) * np.log1p(x.r * x.D / exp(t[6]))
    return log(np.maximum(x.S + moved - learned, 1e-3))


def rise_in_log(t, x):
    """log S + A n^g (ptpp/30)^z (1 - s log S) e^(-k r^.6) (1 + rD/(delta P))^-b - G log(1 + rD/P)."""
    height = exp(t[0]) * (1 - t[3] * log(x.S)) * left_of_rise(t, x)
    return log(x.S) + height - exp(t[7]) * np.log1p(x.replayed)


def state_rise(t, x):
    """S + (S1 - S) a n^g (ptpp/30)^z e^(-k r^.6) (1 + rD/(delta P))^-b - G S log(1 + rD/P)."""
    height = (exp(t[3]) - x.S) * exp(t[0]) * left_of_rise(t, x)
    learned = exp(t[7]) * x.S * np.log1p(x.replayed)
    return log(np.maximum(x.S + height - learned, 1e-3))


def rise_without_z(t, x):
    """The same without z."""
    return state_rise([*t[:2], 0.0, *t[2:]], x)


def rise_with_repeats(t, x):
    """The rise times 1 + c epochs, in place of the rise."""
    height = (exp(t[3]) - x.S) * exp(t[0]) * left_of_rise(t, x)
    learned = exp(t[7]) * x.S * np.log1p(x.replayed)
    risen = height * (1 + exp(t[8]) * x.epochs)
    return log(np.maximum(x.S + risen - learned, 1e-3))


def left_of_rise(t, x):
    """n^g (ptpp/30)^z e^(-k r^.6) (1 + rD/(delta P))^-b."""
    first = x.n ** t[1] * (x.ptpp / 30) ** t[2] * exp(-exp(t[4]) * x.r**0.6)
    return first * (1 + x.replayed / exp(t[5])) ** -exp(t[6])


POWER = [-0.4, 0.4, 0.09, -1.0, -0.1, -1.7, 0.08]
RISE = [-0.8, -0.2, -0.05, 0.6, 0.8, -4.2, -1.6, -2.3]
FORMS = {
    "target": {
        "Form 1": (form_1, [-0.7, -1.2, -1.0, -2.0, -1.0, -1.0, -5.0, -1.0, -2.0, -1]),
        "state-target": (state_target, [-0.4, 0.3, 0.6, -8.0, -1.3]),
        "state_log": (state_log, [-0.4, 0.6, 0.3, 0.0, -4.0, -1.2, -2.0]),
        "state_sum": (state_sum, [-0.4, 0.6, 0.3, 0.0, -3.0, -1.0, -2.0]),
        "state_lean": (state_lean, POWER),
        "**state-power**": (state_power, [*POWER, 0.005]),
        "**state-power-stages**": (state_power_stages, [*POWER, 0.005, 0.01]),
        "and (1 + D/P)^y": (further_pretraining, [*POWER, 0.005, 0.01, 0.0]),
        "without w": (power_without_w, POWER),
        "without m": (power_without_m, [*POWER[:6], 0.005]),
        "no losses before": (
            tokens_only,
            [-0.5, -1.0, 0.09, 0.0, -2.0, -1.2, -1.3, -2.3, 0.005],
        ),
    },
    "source": {
        "state-source": (state_source, [1.2, -1.0, -0.1, 1.3, -1.0, -4.0, -1.0]),
        "rise in log": (rise_in_log, RISE),
        "**state-rise**": (state_rise, [*RISE[:3], 1.3, *RISE[4:]]),
        "without z": (rise_without_z, [*RISE[:2], 1.3, *RISE[4:]]),
        "with repeats": (rise_with_repeats, [*RISE[:3], 1.3, *RISE[4:], -3.0]),
    },
}
# table, rows fitted, rows left out
FOLDS = (
    ("minicpt", "N < 1.5e6 and ptpp < 200", "N > 1.5e6 and ptpp < 200"),
    ("minicpt", "N < 3e6 and ptpp < 200", "N > 3e6 and ptpp < 200"),
    ("minicpt", "ptpp < 200", "ptpp > 200"),
    ("minicpt", "ptpp < 50 and N < 3e6", "ptpp > 50"),
    ("minicpt", "D < 5.2 * N", "D > 7 * N"),
    ("minicpt", "replay < .6", "replay > .6"),
    ("minicpt-de", "N < .9e6 and ptpp < 200", "N > .9e6 and ptpp < 200"),
    ("minicpt-de", "N < 1.5e6 and ptpp < 200", "N > 1.5e6 and ptpp < 200"),
    ("minicpt-de", "ptpp < 200", "ptpp > 200"),
    ("minicpt-de", "ptpp < 50", "ptpp > 50"),
    ("minicpt-de", "D < 5.2 * N", "D > 7 * N"),
    ("minicpt-de", "replay < .4", "replay > .4"),
    ("microcpt", "ptpp < 200", "ptpp > 200"),
    ("microcpt", "N < 1e5 and ptpp < 200", "N > 1e5 and ptpp < 200"),
    ("microcpt-de", "ptpp < 200", "ptpp > 200"),
)


def fit(form, start, x: Runs, starts: int = 4):
    """Search the least squares from the start and from points around it."""
    rng, best = np.random.default_rng(0), None
    for i in range(starts):
        begin = np.array(start) + (0.4 * rng.normal(size=len(start)) if i else 0.0)
        try:
            found = least_squares(
                lambda t: form(t, x) - x.y,
                begin,
                loss="soft_l1",
                f_scale=0.01,
                max_nfev=300,
            )
        except ValueError:  # the start is outside the form's range
            continue
        if np.isfinite(found.cost) and (best is None or found.cost < best.cost):
            best = found
    return best.x


def error_left_out(domain: str, job: tuple[str, tuple[str, str, str]]) -> float:
    """Compute the mean absolute error of log loss at the rows left out, in percent."""
    name, (table, is_fitted, is_left_out) = job
    form, start = FORMS[domain][name]
    runs = datasets.load(table)
    runs = runs[(runs["domain"] == domain) & (runs["D"] > 0.9 * runs["N"])]
    if "seed" in runs:
        runs = runs[runs["seed"] == 0]
    text = GERMAN if table.endswith("-de") else FRENCH
    with np.errstate(all="ignore"):
        best = fit(form, start, Runs.of(runs.query(is_fitted), text))
        left_out = Runs.of(runs.query(is_left_out), text)
        return float(100 * np.mean(np.abs(form(best, left_out) - left_out.y)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("domain", choices=FORMS)
    domain = parser.parse_args().domain
    names = list(FORMS[domain])
    jobs = [(name, fold) for fold in FOLDS for name in names]
    with Pool() as pool:
        errors = pool.map(partial(error_left_out, domain), jobs, chunksize=1)
    table = np.array(errors).reshape(len(FOLDS), len(names))
    print(f"| left out | {' | '.join(names)} |")
    print("|---" * (len(names) + 1) + "|")
    for (name, _, left_out), row in zip(FOLDS, table, strict=True):
        print(f"| {name}: {left_out} | {' | '.join(f'{e:.2f}' for e in row)} |")
    for grid in ("minicpt", "microcpt"):
        rows = [fold[0].startswith(grid) for fold in FOLDS]
        means = np.exp(np.log(table[rows]).mean(axis=0))
        cells = " | ".join(f"{e:.2f}" for e in means)
        print(f"| *{grid}, geometric mean* | {cells} |")


if __name__ == "__main__":
    main()

"""Tables as people export them, whose numbers are known, and faults that people make.

An independent oracle for `read_runs`: it is given what was meant, never the text.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd

UNITS = {"T": 1e12, "B": 1e9, "M": 1e6, "k": 1e3}
COLUMNS = ("N", "D", "replay", "ptpp", "loss")


class Table(NamedTuple):
    """A file's bytes and suffix, what it means, and the fault that was put in ("" if none)."""

    content: bytes
    suffix: str
    meant: pd.DataFrame
    fault: str


def meant(rng: np.random.Generator) -> pd.DataFrame:
    """Numbers of a few digits, as tables have them."""
    rows = int(rng.integers(2, 9))
    N = rng.choice([124e6, 350e6, 1.3e9, 2.7e9, 6.7e9], rows)
    return pd.DataFrame(
        {
            "N": N,
            "D": np.round(N * rng.uniform(0.5, 40, rows) / 1e6) * 1e6,
            "replay": np.round(rng.uniform(0, 1, rows), 2),
            "ptpp": rng.choice([15.0, 31.0, 93.5, 279.0], rows),
            "loss": np.round(rng.uniform(1.5, 4.5, rows), int(rng.integers(2, 6))),
        }
    )


# -- spellings of one number -----------------------------------------------------------


def plain(x: float, rng) -> str:
    return repr(float(x)) if x != int(x) else str(int(x))


def scientific(x: float, rng) -> str:
    return f"{x:.15e}"


def with_unit(x: float, rng) -> str:
    unit = next((u for u, size in UNITS.items() if x >= size), None)
    if unit is None:
        return plain(x, rng)
    written = unit if rng.random() < 0.7 else unit.lower()
    return f"{x / UNITS[unit]!r}{' ' if rng.random() < 0.2 else ''}{written}"


def thousands(x: float, rng) -> str:
    return f'"{int(x):,}"' if x == int(x) and x >= 1e6 else plain(x, rng)


def underscores(x: float, rng) -> str:
    return f"{int(x):_}" if x == int(x) else plain(x, rng)


def quoted(x: float, rng) -> str:
    return f'"{plain(x, rng)}"'


def percent(x: float, rng) -> str:
    return f"{round(100 * x, 10)!r}%"


LARGE = (plain, plain, scientific, with_unit, thousands, underscores, quoted)
SMALL = (plain, plain, scientific, quoted)
SPELLINGS = {
    "N": LARGE,
    "D": LARGE,
    "replay": (*SMALL, percent),
    "ptpp": SMALL,
    "loss": SMALL,
}


# -- faults ----------------------------------------------------------------------------
# Each takes the cells, {column: [text]}, and changes them; a reader must refuse.


def _cell(cells, rng, columns=COLUMNS) -> tuple[str, int]:
    column = str(rng.choice(list(columns)))
    return column, int(rng.integers(len(cells[column])))


def decimal_comma(cells, rng):
    """2,986 for 2.986: quoted, so that it is one field."""
    column, row = _cell(cells, rng, ("replay", "ptpp", "loss"))
    cells[column][row] = f'"{rng.integers(1, 9)},{rng.integers(10, 999)}"'


def text_for_a_number(cells, rng):
    column, row = _cell(cells, rng)
    cells[column][row] = str(rng.choice(["n.a.?", "see log", "1.2.3", "#REF!", "2..9"]))


def no_loss(cells, rng):
    _, row = _cell(cells, rng, ("loss",))
    cells["loss"][row] = str(rng.choice(["", "nan", "inf", "-inf", "0", "-2.5"]))


def share_of_more_than_all(cells, rng):
    _, row = _cell(cells, rng, ("replay",))
    cells["replay"][row] = str(rng.choice(["1.7", "-0.1", "134%"]))


def no_size(cells, rng):
    column, row = _cell(cells, rng, ("N", "D", "ptpp"))
    # no tokens are the loss before adaptation, and no fault
    nothing = ["0"] if column != "D" else []
    cells[column][row] = str(rng.choice([*nothing, "-1e9", "1e300", "inf"]))


# Units and columns exchanged: every cell can be read. Each with what the review must say
# that it did not judge, where it does not say that something is odd.
LOSSES, SIZES = "losses in nats, in bits or another measure", "a factor of N or D"


def _scaled(column: str, factor: float) -> Callable:
    return lambda t: t.assign(**{column: t[column] * factor})


def _exchanged(first: str, second: str) -> Callable:
    return lambda t: t.assign(**{first: t[second], second: t[first]})


UNIT_FAULTS: dict[str, tuple[Callable, str]] = {
    "D in steps": (_scaled("D", 1 / 4e6), SIZES),
    "D in examples": (_scaled("D", 1 / 2048), SIZES),
    "D in thousands": (_scaled("D", 1e-3), SIZES),
    "D in billions": (_scaled("D", 1e-9), SIZES),
    "N in thousands": (_scaled("N", 1e-3), SIZES),
    "N in millions": (_scaled("N", 1e-6), SIZES),
    "N in GiB": (_scaled("N", 2 / 2**30), SIZES),
    "N and D exchanged": (_exchanged("N", "D"), SIZES),
    "ptpp in tokens": (lambda t: t.assign(ptpp=t["ptpp"] * t["N"]), "a factor of ptpp"),
    "ptpp in thousands": (_scaled("ptpp", 1e-3), "a factor of ptpp"),
    "ptpp and loss exchanged": (_exchanged("ptpp", "loss"), LOSSES),
    "1 - replay": (lambda t: t.assign(replay=1 - t["replay"]), "1 - replay"),
    "replay as a flag": (
        lambda t: t.assign(replay=(t["replay"] > 0.5).astype(float)),
        "1 - replay",
    ),
    "losses in bits": (_scaled("loss", 1 / np.log(2)), LOSSES),
    "losses times 100": (_scaled("loss", 100.0), LOSSES),
    "perplexity": (lambda t: t.assign(loss=np.exp(t["loss"])), LOSSES),
    "logarithm of the loss": (lambda t: t.assign(loss=np.log(t["loss"])), LOSSES),
    "accuracy": (lambda t: t.assign(loss=1 - t["loss"] / 5), LOSSES),
}
TWICE, CURVE_TWICE = "rows exported twice", "a curve twice, with other losses"
CELL_FAULTS: tuple[Callable, ...] = (
    decimal_comma,
    text_for_a_number,
    no_loss,
    share_of_more_than_all,
    no_size,
)
LINE_FAULTS = (
    "field too many",
    "field too many everywhere",
    "field missing",
    "name twice",
)


# -- a file ----------------------------------------------------------------------------


def strange_table(seed: int) -> Table:
    """One table by its seed; three in five have a fault."""
    rng = np.random.default_rng([17, seed])
    truth, fault = meant(rng), ""
    odd = rng.random()
    if odd < 0.25:
        fault = str(rng.choice(list(UNIT_FAULTS)))
        truth = UNIT_FAULTS[fault][0](truth)
    cells = {}
    for column in COLUMNS:
        spell = SPELLINGS[column][rng.integers(len(SPELLINGS[column]))]
        cells[column] = [spell(x, rng) for x in truth[column]]
    faulty = not fault and rng.random() < 0.4
    which = int(rng.integers(len(CELL_FAULTS) + len(LINE_FAULTS)))
    if faulty and which < len(CELL_FAULTS):
        CELL_FAULTS[which](cells, rng)
        fault = CELL_FAULTS[which].__name__
    for extra in ("note", "date", "GPU hours")[: int(rng.integers(4))]:
        words = ["ok", '"a, b"', "2024-01-01", "", "12", "=1+1"]
        cells[extra] = [str(rng.choice(words)) for _ in range(len(truth))]
    if not fault and not faulty and odd > 0.9:
        fault = TWICE if odd < 0.95 else CURVE_TWICE
        truth = _again(truth, cells, fault)
    names = [str(name) for name in rng.permutation(list(cells))]
    lines = [[cells[name][row] for name in names] for row in range(len(truth))]
    header = [name if rng.random() < 0.9 else f'"{name}"' for name in names]
    if faulty and which >= len(CELL_FAULTS):
        fault = LINE_FAULTS[which - len(CELL_FAULTS)]
        _break_lines(header, lines, fault, rng)
    return Table(*_written(header, lines, rng), truth, fault)


def _again(truth: pd.DataFrame, cells, fault) -> pd.DataFrame:
    """The first two rows again, as they are; or those of a named run with other losses."""
    if fault == CURVE_TWICE:
        cells["run"] = ["a"] * len(truth)
    for column in cells:
        cells[column] += cells[column][:2]
    if fault == CURVE_TWICE:
        cells["loss"][-2:] = ["5.125", "6.25"]
    return pd.concat([truth, truth.head(2)], ignore_index=True)


def _break_lines(header, lines, fault, rng):
    if fault == "field too many":
        lines[int(rng.integers(len(lines)))].append("7")
    elif fault == "field missing":
        line = lines[int(rng.integers(len(lines)))]
        del line[int(rng.integers(len(line)))]
    elif fault == "field too many everywhere":
        for line in lines:
            line.append("7")
    else:
        twice = str(rng.choice(list(COLUMNS)))
        header.append(twice)
        for line in lines:
            line.append("1")


def _written(header, lines, rng) -> tuple[bytes, str]:
    mark = str(rng.choice(["\t", ",", ",", ",", ";"]))
    space = " " if rng.random() < 0.2 and mark != "\t" else ""
    separator = f"{mark}{space}"
    end = "\r\n" if rng.random() < 0.3 else "\n"
    text = end.join(separator.join(fields) for fields in (header, *lines))
    text += end * int(rng.integers(3))
    encoding = "utf-8-sig" if rng.random() < 0.2 else "utf-8"
    return text.encode(
        encoding
    ), ".tsv" if mark == "\t" and rng.random() < 0.5 else ".csv"

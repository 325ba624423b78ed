"""Tables of which every cell can be read, and which say what is not so: each kind is told by the review, or what is not judged is named."""

import warnings
from itertools import product

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw import RunTableError
from known.lying_tables import UNTOLD, adaptation, lies, lying, pretraining

LIES = lies()


def remarks(runs) -> list[str]:
    """Names of checks that look or fail; of a table that is refused, the refusal."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            review = bayeslaw.review(runs)
    except RunTableError as error:
        return [str(error)]
    return [check.name for check in review.checks if check.verdict != "pass"]


@pytest.mark.parametrize("sound", [pretraining, adaptation])
@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_said_of_a_sound_table(sound, seed):
    assert not remarks(sound(seed))


@pytest.mark.parametrize("name", LIES)
def test_a_lie_is_told(name):
    assert remarks(lying(name))


def test_a_drift_and_a_change_are_seen_in_few_rows_too():
    """Of 84 rows the first 40, at random settings."""
    for name in ("drift in time (pre-training)", "a change half way (pre-training)"):
        later = lying(name, seed=1).iloc[22:62].reset_index(drop=True)
        assert "mixture" in remarks(later), name


@pytest.mark.parametrize("name", UNTOLD)
@pytest.mark.parametrize("sound", [pretraining, adaptation])
def test_what_cannot_be_told_is_not_called_right(name, sound):
    """Bits, or a factor of two: the review says that it did not judge them."""
    runs = UNTOLD[name](sound(), None)
    check = bayeslaw.review(runs)["units"]
    assert check.verdict == "pass"
    assert "look right" not in check.reason
    unjudged = "losses in nats, in bits or another measure of that size; a factor of N"
    assert f"not judged: {unjudged}" in check.reason


WHERE = {
    "half of the losses in bits (pre-training)": ("mixture", "bits and nats"),
    "half of D in thousands (adaptation)": ("target: mixture", "times 1000, which"),
    "two neighbouring sizes exchanged (pre-training)": ("size", "N = 350M to 700M"),
    "losses rise with D (adaptation)": ("target: tokens", "rise with D by"),
    "drift in time (pre-training)": ("mixture", "from the first row to the last"),
    "1 - replay (adaptation)": ("target: replay", "1 - replay"),
    "perplexity (adaptation)": ("units", "perplexity"),
    "ptpp in tokens (adaptation)": ("units", "divide by N"),
    "loss to one decimal (adaptation)": ("units", "one decimal"),
    "one D times a hundred (pre-training)": ("mixture", "a digit too many"),
    "one N times a thousand (adaptation)": ("target: mixture", "a digit too many"),
    "planned tokens, a tenth seen (pre-training)": ("mixture", "at 1/10 of their D"),
    "constant loss (pre-training)": ("copies", "all 84 losses are 2.5"),
}


@pytest.mark.parametrize("name", WHERE)
def test_the_reason_says_what_is_wrong(name):
    check, words = WHERE[name]
    assert words in bayeslaw.review(lying(name))[check].reason


@pytest.mark.parametrize(("last", "says"), [(0.4, "fall by 60"), (2.5, "rise by 149")])
def test_a_drift_is_told_as_a_share_of_the_first_loss(last, says):
    runs = pretraining().sample(frac=1, random_state=0).reset_index(drop=True)
    runs["loss"] *= np.geomspace(1, last, len(runs))
    assert f"losses {says}." in bayeslaw.review(runs)["mixture"].reason


# about a tenth of the rows: too many for single mistakes, too few for a mixture
PARTS = {
    "slipped by a row": lambda t: t.assign(loss=np.roll(t["loss"], 1)),
    "the largest budget lies 10% up": lambda t: t.assign(
        loss=t["loss"].where(t["D"] < 5e10, 1.1 * t["loss"])
    ),
    "D times ten in a ninth": lambda t: t.assign(
        D=t["D"].where(t.index % 9 > 0, 10 * t["D"])
    ),
    "D overflowed": lambda t: t.assign(D=t["D"] % 2**32),
}


@pytest.mark.parametrize("name", PARTS)
def test_a_part_of_the_rows_that_lies_apart_is_told(name):
    grid = product((7e7, 1.6e8, 4.1e8, 1e9), (5, 20, 60), (0.05, 0.2, 0.5))
    runs = pd.DataFrame([*grid] * 3, columns=["N", "ratio", "replay"])
    runs["D"] = runs["N"] * runs.pop("ratio")
    seen = runs["D"] * (1 - runs["replay"])
    law = 1.6 + 300 / runs["N"] ** 0.33 + 250 / seen**0.27
    noise = np.random.default_rng(0).standard_normal(len(runs))
    runs["loss"] = law * np.exp(0.003 * noise)
    assert not remarks(runs)
    assert "outliers" in remarks(PARTS[name](runs))


@pytest.mark.parametrize("column", ["cost", "FLOPs"])
def test_compute_that_is_not_six_times_size_by_tokens_is_told(column):
    runs = pretraining()
    sound = runs.assign(**{column: 6 * runs["N"] * runs["D"]})
    assert bayeslaw.review(sound)["units"].verdict == "pass"
    wrong = sound.assign(**{column: sound[column] * 1e3})
    assert "6 N D" in bayeslaw.review(wrong)["units"].reason


@pytest.mark.parametrize("name", ["perplexity", "loss times 100"])
def test_reading_warns_of_losses_above_any_vocabulary(name):
    runs = lying(f"{name} (pre-training)")
    with pytest.warns(bayeslaw.RunTableWarning, match="logarithm of any vocabulary"):
        bayeslaw.read_runs(runs)


# -- integers of 32 bits ---------------------------------------------------------------


def wrapped(column: str, kind: str, sound=pretraining):
    """A table whose counts overflowed, but for rows that came out below 0."""
    runs = sound()
    short = runs[column].astype("int64").astype(kind)
    is_left = (short > 0).to_numpy()
    assert (short[is_left] != runs[column][is_left]).any()
    return runs.assign(**{column: short})[is_left].reset_index(drop=True)


@pytest.mark.parametrize(
    ("column", "kind", "sound"),
    [
        *(("D", "int32", pretraining), ("D", "uint32", pretraining)),
        *(("D", "int32", adaptation), ("N", "int32", adaptation)),
        ("N", "uint32", pretraining),
    ],
)
def test_counts_that_overflowed_to_smaller_ones_are_warned_of(column, kind, sound):
    with pytest.warns(bayeslaw.RunTableWarning, match=f"{column!r} is of 32-bit"):
        bayeslaw.read_runs(wrapped(column, kind, sound))


@pytest.mark.parametrize("kind", ["int32", "uint32", "int64", "float64"])
def test_small_counts_in_32_bits_are_no_fault(kind):
    runs = pretraining()
    runs = runs[runs["N"] < 1e9].assign(D=(runs["D"] / 1e3).astype(kind))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*32-bit")
        bayeslaw.read_runs(runs)


@pytest.mark.parametrize("cause", ["overflow", "restart", "one name for two"])
def test_tokens_that_fall_along_a_run_are_told(cause):
    runs = pretraining().query("seed == 1").drop(columns="seed")
    runs = runs.assign(run=runs["N"].astype(str), step=runs["D"] / 1e6)
    assert bayeslaw.review(runs)["reading"].verdict == "pass"
    if cause == "overflow":
        runs["D"] = runs["D"].astype("int64").astype("uint32").astype(float) + 1
    elif cause == "restart":
        late = runs["D"] > 20 * runs["N"]
        runs["D"] = runs["D"] - 30 * runs["N"] * late
    else:
        steps = 1e3 * runs["D"] / runs["N"] + runs["N"] / 1e8
        runs = runs.assign(run="a", step=steps)
    check = bayeslaw.review(runs)["reading"]
    assert check.verdict == "look"
    assert "have fewer tokens D than an earlier step of their run" in check.reason

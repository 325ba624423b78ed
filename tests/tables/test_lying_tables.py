"""Tables of which every cell can be read, and which say what is not so: each kind is told by the review, or what is not judged is named."""

import warnings

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
    assert (
        "not judged: losses in nats, in bits or another measure of that size; a factor of N"
        in check.reason
    )


WHERE = {
    "half of the losses in bits (pre-training)": ("mixture", "bits and nats"),
    "half of D in thousands (adaptation)": ("target: mixture", "times 1000 in"),
    "two neighbouring sizes exchanged (pre-training)": (
        "size",
        "from N = 350M to 700M",
    ),
    "losses rise with D (adaptation)": ("target: tokens", "rise with D by"),
    "drift in time (pre-training)": ("mixture", "from the first row to the last"),
    "1 - replay (adaptation)": ("target: replay", "1 - replay"),
    "perplexity (adaptation)": ("units", "perplexity"),
    "ptpp in tokens (adaptation)": ("units", "divide by N"),
    "loss to one decimal (adaptation)": ("units", "one decimal"),
    "constant loss (pre-training)": ("copies", "all 84 losses are 2.5"),
}


@pytest.mark.parametrize("name", WHERE)
def test_the_reason_says_what_is_wrong(name):
    check, words = WHERE[name]
    assert words in bayeslaw.review(lying(name))[check].reason


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

"""Whether a law fits its own runs is said with the fit: on good tables nothing, on noise, accuracies and leaks a line."""

import warnings

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw._posteriors.fits.goodness import goodness
from known.saved import runs, values

LAW = bayeslaw.law("chinchilla")


def fitted(table):
    return bayeslaw.fit(table, LAW, preview=True, on_failure="ignore")


def test_a_law_that_is_true_explains_its_runs():
    """Half of normal noise of .5% lies within .67 of its sd."""
    found = goodness(LAW, values(), runs())
    assert found.doubts == ()
    assert found.explained > 0.99
    assert found.miss == pytest.approx(0.6745 * 0.005, rel=0.2)
    assert "explains 99" in found.sentence() or "explains 100" in found.sentence()


@pytest.mark.filterwarnings("ignore:.* is least at D:UserWarning")
def test_noise_in_place_of_losses_is_told():
    rng = np.random.default_rng(0)
    table = runs()
    noise = table.assign(loss=rng.uniform(1.5, 4.0, len(table)))
    with pytest.warns(UserWarning, match=r"explains \d+% of how the losses differ"):
        fitted(noise)


@pytest.mark.filterwarnings("ignore:.* is least at D:UserWarning")
def test_an_accuracy_in_place_of_a_loss_is_told():
    """It rises with N and D, which no law of losses does."""
    table = runs()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        fitted(table.assign(loss=1 / table["loss"]))
    lines = [str(warning.message) for warning in told]
    assert any("explains 0%" in line for line in lines)
    assert any("losses rise with N" in line for line in lines)


def test_a_good_table_is_fitted_without_a_word_on_its_goodness():
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*(explains|losses rise|half of the)")
        found = fitted(runs()).goodness
    assert found.doubts == ()


# -- checkpoints whose level the law does not know --------------------------------------


def of_checkpoints(effect: float, noise: float = 0.002, sizes=(1e9,)) -> pd.DataFrame:
    """Eight checkpoints adapted to six budgets each, with their own effects."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {"N": np.resize(sizes, 48), "D": np.tile(np.geomspace(2e10, 6e10, 6), 8)}
    )
    table["checkpoint"] = [f"c{i // 6}" for i in range(48)]
    x = {column: table[column].to_numpy() for column in ("N", "D")}
    y = np.log(LAW.loss(x, {k: v[0] for k, v in values().items()}))
    y += np.repeat(effect * rng.standard_normal(8), 6) + noise * rng.standard_normal(48)
    return table.assign(loss=np.exp(y))


@pytest.mark.parametrize("effect", [0.04, 0.1])
def test_effects_of_checkpoints_are_no_fault_of_the_law(effect):
    found = goodness(LAW, values(), of_checkpoints(effect))
    assert found.explained < 0.5 < 0.95 < found.with_effects
    (line,) = found.doubts
    assert "with an effect of each checkpoint" in line
    assert "(half of the rows within 0.1%)" in line


def test_noise_has_no_effects_that_explain_it():
    found = goodness(LAW, values(), of_checkpoints(0.0, noise=0.05))
    assert found.with_effects < 0.5
    assert "which" not in found.doubts[0]
    assert "explains" in found.doubts[0]
    assert "with an effect" not in found.doubts[0]


def test_a_table_without_groups_has_no_effects():
    found = goodness(LAW, values(), of_checkpoints(0.1).drop(columns="checkpoint"))
    assert found.with_effects == found.explained
    assert "with an effect" not in found.doubts[0]


# -- columns that no law reads ---------------------------------------------------------


def mixed(name: str, values=(0.1, 0.3, 0.5), effect: float = 0.1):
    """Each run at three shares of a mixture under some name, which moves its loss."""
    parts = [
        runs().assign(loss=lambda t, v=v: t["loss"] * np.exp(effect * v), **{name: v})
        for v in values
    ]
    return pd.concat(parts, ignore_index=True).drop(columns="run")


def doubts(table) -> tuple[str, ...]:
    return goodness(LAW, values(), table).doubts


@pytest.mark.filterwarnings("ignore:half of the rows")
def test_a_share_of_replay_under_another_name_is_told():
    assert any(
        "column 'mix', which law 'chinchilla'" in line for line in doubts(mixed("mix"))
    )
    with (
        pytest.warns(bayeslaw.RunTableWarning, match="other settings of 'mix'"),
        pytest.warns(UserWarning, match="column 'mix'.* does not read, tells 8"),
    ):
        fitted(mixed("mix", effect=0.2))


def test_recipes_in_words_are_told_as_numbers_are():
    table = mixed("mix")
    words = table["mix"].map({0.1: "a", 0.3: "b", 0.5: "c"})
    named = table.drop(columns="mix").assign(recipe=words)
    assert any("column 'recipe'" in line for line in doubts(named))
    many = table.assign(mix=table["mix"] + 1e-4 * np.arange(len(table)))
    assert any("column 'mix'" in line for line in doubts(many))


def test_a_column_that_says_nothing_is_not_told():
    table = mixed("mix", effect=0.0)
    assert doubts(table) == ()
    rng = np.random.default_rng(0)
    noisy = table.assign(
        loss=table["loss"] * np.exp(0.02 * rng.standard_normal(len(table)))
    )
    assert doubts(noisy) == ()


def test_columns_that_follow_from_what_the_law_reads_are_not_told():
    """Where the law misses by size, layers and compute would tell it too; so would what is known of each run alone."""
    table = runs()
    off = table.assign(loss=table["loss"] * (table["N"] / 1e9) ** 0.03)
    layers = off["N"].rank(method="dense")
    compute = 6 * off["N"] * off["D"]
    alone = off["loss"].map("{:.9f}".format)
    off = off.assign(layers=layers, compute=compute, alone=alone)
    # what no level can be made of
    off["lists"] = [[1]] * len(off)
    off["gaps"] = np.where(off["loss"] > off["loss"].median(), 1.0, np.nan)
    off["endless"] = np.where(off["loss"] > off["loss"].median(), 1.0, np.inf)
    assert not any("column" in line for line in doubts(off))


def test_a_law_far_off_its_own_runs_is_told():
    """Losses that swing by a tenth along D."""
    table = runs()
    swung = table["loss"] * np.exp(0.1 * np.sin(4 * np.log(table["D"])))
    found = goodness(LAW, values(), table.assign(loss=swung))
    assert len(found.doubts) == 1
    assert "another law may suit them" in found.doubts[0]


# -- no more rows than parameters ------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 3, 5])
def test_runs_no_more_than_the_parameters_cannot_show_a_fit(rows):
    """Almost any law passes through five losses by five parameters."""
    table = runs().iloc[:: len(runs()) // rows].iloc[:rows]
    found = goodness(LAW, values(), table)
    assert np.isnan(found.explained)
    assert np.isnan(found.with_effects)
    assert "cannot show" in found.sentence()
    assert "add runs" in found.sentence()


def test_few_runs_that_the_law_misses_are_still_doubted():
    table = runs().iloc[:5]
    reversed_losses = table.assign(loss=3 * table["loss"].to_numpy()[::-1])
    found = goodness(LAW, values(), reversed_losses)
    assert "explains 0%" in found.doubts[0]
    assert found.explained == 0

"""Weights of laws, stages left out, and what a drift is learned from; nothing is fitted."""

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import optimize
from scipy.special import logsumexp

import bayeslaw
from bayeslaw import RunTableWarning
from bayeslaw._posteriors.averaging import average as module
from bayeslaw._posteriors.averaging import compare
from bayeslaw._posteriors.averaging.judge import Judged
from bayeslaw._posteriors.fits.candidates import candidate_laws, default_laws


class _Judged(Judged):
    """A law with the log densities of the runs of each stage left out, and no more."""

    def __init__(self, *stages):
        held_out = [SimpleNamespace(density=np.array(stage, float)) for stage in stages]
        object.__setattr__(self, "held_out", held_out)


def test_weights_are_those_of_regularised_stacking():
    """They are where the objective, written out, is largest: each stage three runs at its mean, one prior stage in four."""
    laws = [
        _Judged([1.0, 2.0], [0.5], [2.0] * 9),
        _Judged([1.2, 1.4], [0.9], [1.5] * 9),
        _Judged([0.9, 2.2], [0.3], [2.1] * 9),
    ]
    columns = ["N", "N", "D"]  # two stages of one column count as one
    means = np.array(
        [[stage.density.mean() for stage in law.held_out] for law in laws]
    ).T
    counts = np.array([0.5, 0.5, 1.0])

    def negative(z):
        w = np.exp(z - logsumexp(z))
        return -(
            counts @ np.log(np.exp(compare.Stacking().witnesses * means) @ w)
            + compare.Stacking().prior_stages / 3 * np.log(w).sum()
        )

    z = optimize.minimize(
        negative,
        np.zeros(3),
        method="Nelder-Mead",
        options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 4000},
    ).x
    expected = np.exp(z - logsumexp(z))
    expected = np.where(
        expected < compare.Stacking().window * expected.max(), 0, expected
    )
    np.testing.assert_allclose(
        compare.weigh(laws, columns), expected / expected.sum(), atol=2e-3
    )


def test_hundreds_of_runs_of_one_stage_are_no_more_than_a_few():
    """A law that is a little better on 400 runs of one region does not take all: ten runs would weigh the same."""
    few, many = (
        compare.weigh([_Judged([0.1] * n), _Judged([0.0] * n)], ["N"])
        for n in (10, 400)
    )
    np.testing.assert_allclose(few, many)
    assert many[1] > 0.25  # 400 independent runs would leave it e^-40
    assert compare.weigh([_Judged([3.0]), _Judged([0.0])], ["N"])[1] < 0.12
    # a thousand nats are as sure as a hundred, and no overflow
    far, farther = (
        compare.weigh([_Judged([x]), _Judged([0.0])], ["N"]) for x in (1e2, 1e3)
    )
    np.testing.assert_allclose(far, farther)


def test_laws_far_behind_have_no_share_and_equal_laws_share_equally():
    stages = [[2.0], [2.0], [2.0], [2.0]]
    behind = compare.weigh(
        [_Judged(*stages), _Judged(*[[-3.0]] * 4)], ["N", "D", "D/N", "ptpp"]
    )
    assert behind.tolist() == [1.0, 0.0]
    np.testing.assert_allclose(
        compare.weigh([_Judged(*stages)] * 2, ["N", "D", "D/N", "ptpp"]), [0.5, 0.5]
    )
    assert compare.weigh([_Judged()], []).tolist() == [1.0]


def test_stages_of_a_handful_weigh_less():
    """They are a few runs each, so that the prior counts as one stage."""
    laws = [_Judged([9.0, 9.0]), _Judged([0.0, 0.0])]
    few, many = (
        compare.weigh(laws, ["N"], compare.Stacking.of(runs)) for runs in (24, 25)
    )
    np.testing.assert_allclose(few, [1.5 / 2, 0.5 / 2], atol=1e-5)
    np.testing.assert_allclose(many, [1.125 / 1.25, 0.125 / 1.25], atol=1e-5)


@pytest.mark.parametrize(("stages", "share"), [(2, 0.125 / 2.25), (3, 0.0)])
def test_a_law_has_no_share_below_a_twentieth_of_the_best_one_s(stages, share):
    """Of a law that is always worse the prior is left: .125 of 2.25 stages is more than
    a twentieth of the rest, .125 of 3.25 is less.
    """
    columns = ["N", "D", "ptpp"][:stages]
    always_worse = [_Judged(*[[2.0]] * stages), _Judged(*[[-30.0]] * stages)]
    expected = [1 - share, share]
    np.testing.assert_allclose(
        compare.weigh(always_worse, columns), expected, atol=1e-5
    )


def test_the_state_law_of_the_table_s_own_domain_competes():
    target = bayeslaw.simulate("state-target")
    source = target.assign(loss_before=target["source_loss_before"])
    law = "state-power-stages"
    assert default_laws(target) == candidate_laws(target)[-1:] == [law]
    assert default_laws(target.drop(columns="ptpp")) == ["state-power"]
    # of few sizes there are two, if the rows are enough to weigh them by
    few = target[target["N"].isin(target["N"].drop_duplicates().head(2))]
    assert default_laws(few) == candidate_laws(few)[-2:] == [law, "state-target"]
    assert default_laws(few.head(24)) == [law]
    assert default_laws(source) == candidate_laws(source)[-1:] == ["state-rise"]
    assert default_laws(source.drop(columns="ptpp")) == ["state-source"]
    blind = default_laws(target.drop(columns="source_loss_before"))
    assert not any(name.startswith("state-") for name in blind)
    # a domain of another name than the source is a target, though it has no loss_before
    named = target.drop(columns="loss_before").assign(domain="math")
    assert default_laws(named) == [law]
    # one of the two does not read the target's own loss before adaptation
    unread = target.drop(columns="loss_before").assign(domain="target")
    assert default_laws(unread) == [law]


def test_mixtures_of_checkpoints_have_laws_that_start_from_their_losses():
    """By default these alone; without the columns that they read, laws of mixtures."""
    runs = bayeslaw.datasets.load("microcpt-mixtures")
    of_source, of_french = (runs[runs["domain"] == name] for name in ("source", "fr"))
    others = ["mixture-coupled", "mixture-exponential"]
    assert candidate_laws(of_source) == [*others, "mixture-rise"]
    assert default_laws(of_source) == ["mixture-rise"]
    assert default_laws(of_french) == ["mixture-state"]
    assert default_laws(of_source.drop(columns="ptpp")) == others
    assert default_laws(of_french.drop(columns="source_loss_before")) == others


def test_laws_of_stages_need_several_sizes_too():
    """With one size they cannot be told from a law of the checkpoint's losses."""
    runs = bayeslaw.simulate("state-target")
    one_size = runs[runs["N"] == runs["N"].min()]
    assert one_size["ptpp"].nunique() > 1
    assert default_laws(one_size) == ["state-power-stages", "state-target"]
    of_stages = [
        "ptpp-floor",
        "ptpp-gate",
        "ptpp-gate-floor",
        "ptpp-transfer",
        "ptpp-tokens",
    ]
    assert candidate_laws(runs)[:6] == ["dcpt", *of_stages]
    # a law that is blind to stages is compared, and not averaged with those that are not
    blind = runs.drop(columns=["loss_before", "source_loss_before"])
    assert default_laws(blind) == ["ptpp-gate-floor", "ptpp-tokens"]
    source = blind.assign(domain="source")
    assert default_laws(source) == ["ptpp-gate-floor", "ptpp-rise"]


def test_laws_are_weighed_where_a_stage_can_be_left_out_and_else_one_is_fitted():
    """Eight rows are left for the fit at least."""

    def sweep(rows: int) -> pd.DataFrame:
        size = np.geomspace(1e7, 1e9, rows)
        return pd.DataFrame({"N": size, "D": 20 * size, "loss": 3.0})

    assert [compare.law_of_few(sweep(rows)) for rows in (2, 6, 8)] == 3 * ["coupled"]
    assert compare.law_of_few(sweep(9)) is None
    alike = pd.concat(12 * [sweep(2).head(1)], ignore_index=True)
    assert compare.law_of_few(alike) == "coupled"
    # of so many rows it is said that nothing can be left out
    assert compare.law_of_few(pd.concat(3 * [alike], ignore_index=True)) is None
    state = sweep(9).assign(
        loss_before=3.0, source_loss_before=2.6, replay=[0.1] * 8 + [0.2]
    )
    assert compare.law_of_few(state) is None  # one law needs no weights


class Averaged(Exception):
    """The average begins, of these laws."""


@pytest.mark.parametrize(
    ("rows", "laws"), [(4, ["coupled"]), (8, ["coupled"]), (12, None)]
)
def test_an_average_of_few_runs_is_of_one_law(rows, laws, monkeypatch):
    """As by the command `fit`; it was refused, where the README offers it."""

    def begin(runs, fitted, laws, *rest, **options):
        raise Averaged(laws)

    monkeypatch.setattr(module, "average_part", begin)
    size = np.full(rows, 1e9)
    table = pd.DataFrame({"N": size, "D": np.geomspace(1e9, 1e11, rows), "loss": 3.0})
    expected = nullcontext()
    if laws:
        expected = pytest.warns(RunTableWarning, match="too few .* the law is coupled")
    with expected, pytest.raises(Averaged) as averaged:
        bayeslaw.average(table)
    assert averaged.value.args == (laws,)


def test_laws_blind_to_the_checkpoint_s_losses_have_no_weight_beside_one_that_reads_them():
    names = ["dcpt", "state-target", "ptpp-floor"]
    kept = compare.informed([bayeslaw.law(name) for name in names])
    np.testing.assert_array_equal(kept, [False, True, False])
    np.testing.assert_array_equal(
        compare.among(kept, np.array([0.9, 0.0, 0.1])), [0, 1, 0]
    )
    np.testing.assert_array_equal(
        compare.among(np.array([True, False, True]), np.array([0.2, 0.5, 0.3])),
        [0.4, 0, 0.6],
    )
    assert compare.informed([bayeslaw.law(name) for name in names[::2]]).all()


def test_a_reference_run_may_name_what_only_other_candidates_read(monkeypatch):
    seen = []

    def stop(runs, fitted, laws, settings):
        seen.append(settings.reference)
        raise KeyError

    monkeypatch.setattr(module, "compare_part", stop)
    reference = {"D": 1e9, "ptpp": 30.0, "nonsense": 1.0}
    # the law of repeats does not read the stage, forms of size and stage do
    runs = bayeslaw.simulate("state-target")
    with pytest.raises(KeyError):
        bayeslaw.average(runs.assign(U=runs["D"] / 4), reference=reference)
    assert seen == [{"D": 1e9, "nonsense": 1.0}]


def test_a_table_without_adaptation_is_not_one_of_adaptation():
    """A column that does not vary does not choose the law."""
    areas = pd.DataFrame(
        {
            "S1_pt": [1.0, 2.0, 3.0],
            "S2_pt": [0.1, 0.2, 0.3],
            "S1_cpt": 0.0,
            "S2_cpt": 0.0,
        }
    )
    assert default_laws(areas) == ["anneal"]
    assert default_laws(areas.assign(S1_cpt=[0.0, 1.0, 2.0])) == [
        "cpt-dynamics",
        "cpt-dynamics-power",
    ]


def test_curves_of_one_size_under_several_schedules_take_a_law_of_schedules():
    """Also with tokens beside the steps: laws of N and D give such curves one loss."""
    curve = pd.DataFrame({"D": [1e9, 2e9, 3e9], "S1_pt": [1.0, 2, 3], "S2_pt": 0.0})
    other = curve.assign(S1_pt=[1.0, 1.8, 2.4], S2_pt=[0.0, 0.2, 0.4])
    both = pd.concat([curve, other]).assign(N=2.5e7)
    assert default_laws(both) == ["anneal"]
    assert "chinchilla" in default_laws(curve.assign(N=2.5e7))
    sizes = pd.concat([both, both.assign(N=1e8)])
    assert "chinchilla" in default_laws(sizes)


def test_probability_of_forecasting_best_counts_groups_not_runs():
    """Two checkpoints that disagree are two witnesses however many runs they have."""
    assert compare.best_probabilities(
        [np.array([1.0, 1.0]), np.array([0.0, 0.0])], np.array([0, 1])
    ).tolist() == [1.0, 0.0]
    apart = np.where(np.arange(100) < 50, 1.0, -1.0)
    few = compare.best_probabilities([apart, -apart], np.arange(100) // 50, seed=1)
    assert few[0] == pytest.approx(0.5, abs=0.03)
    slightly = np.where(np.arange(100) < 55, 1.0, -1.0)
    as_runs, as_groups = (
        compare.best_probabilities([slightly, 0 * slightly], g)[0]
        for g in (np.arange(100), np.arange(100) >= 55)
    )
    assert as_runs > 0.8  # 55 against 45
    assert as_groups == pytest.approx(
        0.55, abs=0.03
    )  # of two weights, the larger times 55 against the other times 45
    assert (
        compare.best_probabilities([np.zeros(0)] * 4, np.zeros(0)).tolist()
        == [0.25] * 4
    )

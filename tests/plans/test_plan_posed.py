"""From a question to its problem: which draw meets which, with what noise and baseline."""

from dataclasses import dataclass, replace
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import bayeslaw
from bayeslaw import PlanError
from bayeslaw._inference.discrepancy import process
from bayeslaw._inference.noise import Learned
from bayeslaw._plans.plan import posed as question_of
from bayeslaw._plans.plan import problem_of
from bayeslaw._plans.posing import point_pieces
from bayeslaw._posteriors.chain import ChainLogLoss
from bayeslaw._posteriors.posterior import Piece
from bayeslaw._posteriors.repetition import Repeating
from known.plans import Draws

DRAWS = 500
NUMBER = np.arange(1.0, DRAWS + 1)
ASKED = {
    "N": 1e9,
    "ptpp": 20.0,
    "max_target_loss": 1.8,
    "max_forgetting": 0.05,
    "draws": DRAWS,
}


def falling(values, columns):
    """Log loss that falls with tokens; reads whatever else is there."""
    return jnp.log(values["level"]) - 0.1 * jnp.log(columns["D"] / 1e9)


def rising(values, columns):
    """Log loss that rises with tokens, less with replay."""
    rise = 0.01 * (2 - columns["replay"])
    return jnp.log(values["level"]) + rise * jnp.log1p(columns["D"] / 1e9)


def piece(formula, level=2.0, covariates=("D", "replay"), **values):
    """Draws known by their number in ``level``."""
    leaves = {"level": level * np.exp(1e-4 * NUMBER)} | values
    return Piece(formula, leaves, covariates)


def numbers(level, of=2.0):
    """Which draws these levels are of."""
    return np.round(np.log(np.asarray(level) / of) * 1e4).astype(int)


def problem(target, source, **asked):
    return problem_of(Draws((target,)), Draws((source,)), **(ASKED | asked))


def part(constraint):
    (only,) = constraint.parts
    return only


NOISY = {"sigma": 1e-4 * NUMBER, "dof": np.full(DRAWS, 3.0)}


def test_noise_is_student_t_of_each_draw_s_own_scale():
    """Over its draw's scale it is Student-t of its degrees of freedom, and no normal."""
    posed = problem(
        piece(falling, **NOISY), piece(rising, **NOISY), baseline_loss=2.0, draws=5000
    )
    for constraint in posed.constraints:
        own = part(constraint)
        assert len(own.rows) == 5000
        np.testing.assert_allclose(
            own.piece.values["sigma"],
            1e-4 * numbers(own.piece.values["level"]),
            rtol=1e-3,
        )
        standard = constraint.noise / np.asarray(own.piece.values["sigma"])
        assert stats.kstest(standard, stats.t(3).cdf).pvalue > 0.01
        assert stats.kstest(standard, stats.norm.cdf).pvalue < 1e-4
    both = [constraint.noise for constraint in posed.constraints]
    assert abs(stats.spearmanr(*both).statistic) < 0.05


@dataclass(frozen=True)
class Fading:
    """A law whose errors are larger the shorter a run is, and the less it replays."""

    process: ClassVar = process.Process(
        (), (), process.Fading(0.2, 4e9), own_share=process.OwnShare(True, 0.16)
    )

    def __call__(self, values, columns):
        return falling(values, columns)


REPEATING = Repeating(Fading(), 1e12)


@pytest.mark.parametrize("law", [Fading(), ChainLogLoss(Fading(), ()), REPEATING])
@pytest.mark.parametrize(("tokens", "size"), [(1e8, 40**0.2), (4e9, 1), (1e10, 1)])
@pytest.mark.parametrize(("replay", "of_share"), [(0.16, 1), (0.01, 8**0.25)])
def test_noise_of_a_run_is_as_large_as_in_forecasts(
    law, tokens, size, replay, of_share
):
    """It fades up to the longest training run, and with replay; so does that of a chain,
    and of a law of repetition; also where each draw has a replay of its own.
    """
    source, read = piece(rising), ("D", "replay", "N", "ptpp")
    posed = problem(piece(law, covariates=read, **NOISY), source, baseline_loss=2.0)
    target, at = posed.constraints[0], np.log(tokens)
    for levers in (replay, np.full(target.draws, replay)):
        law = target.of_law.log_losses(at, levers)
        error = target.log_losses(at, levers) - law
        np.testing.assert_allclose(error, size * of_share * target.noise, atol=1e-12)


def test_the_learned_effects_of_the_checkpoint_replace_those_of_a_new_one():
    """With their uncertainty, as in forecasts of its rows; also in the law's own loss
    before adaptation.
    """
    learned = {"checkpoint": {"1e+09 20": Learned(0.02 + 1e-4 * NUMBER)}}
    new = {name: np.full(DRAWS, 4e-9) for name in ("tau_model", "tau_checkpoint")}
    new |= {"sigma": np.full(DRAWS, 6e-9), "dof": np.full(DRAWS, 3.0)}
    pieces = [replace(piece(f, **new), effects=learned) for f in (falling, rising)]
    for constraint in problem(*pieces).constraints:
        level = np.asarray(part(constraint).piece.values["level"])
        wanted = learned["checkpoint"]["1e+09 20"].draws[numbers(level) - 1]
        np.testing.assert_allclose(constraint.noise, wanted, atol=1e-6)
    np.testing.assert_allclose(constraint.baseline, level * np.exp(wanted), rtol=1e-6)
    other = problem(*pieces, ptpp=5).constraints[0]
    assert np.abs(other.noise).max() < 1e-6


def test_a_learned_effect_changes_with_tokens_beyond_the_fitted_ones():
    """By the variance of an unknown effect for each e-fold, as in forecasts; the loss
    before adaptation is the same.
    """
    learned = {"checkpoint": {"1e+09 20": Learned(0 * NUMBER, 1e9)}}
    taus = np.linspace(1e-3, 3e-3, DRAWS)
    new = {"sigma": np.hypot(taus, 1e-9), "tau_checkpoint": taus}
    pieces = [replace(piece(f, **new), effects=learned) for f in (falling, rising)]
    target, source = problem(*pieces).constraints

    def move(tokens: float) -> np.ndarray:
        log_losses = (
            c.log_losses(np.log(tokens), 0.1) for c in (target, target.of_law)
        )
        return np.subtract(*log_losses)

    fitted, once, twice = (move(tokens) for tokens in (1e9, 1e9 * np.e, 1e9 * np.e**2))
    np.testing.assert_allclose(move(1e7), fitted)
    np.testing.assert_allclose(twice - fitted, np.sqrt(2) * (once - fitted), atol=1e-12)
    expected = np.sqrt(np.mean(taus**2))
    assert np.std(once - fitted) == pytest.approx(expected, rel=0.1)
    assert np.std(fitted) == pytest.approx(0.7 * expected, rel=0.1)
    level = np.asarray(part(source).piece.values["level"])
    np.testing.assert_allclose(source.baseline, level, rtol=1e-6)


def test_the_law_s_mean_has_no_noise_and_a_law_without_any_neither():
    source = piece(rising)
    mean = problem(piece(falling, **NOISY), source, baseline_loss=2.0, new_run=False)
    assert (mean.constraints[0].noise == 0).all()
    new = problem(piece(falling, **NOISY), source, baseline_loss=2.0)
    assert (new.constraints[0].noise != 0).all()
    assert (new.constraints[1].noise == 0).all()


def test_draws_of_target_and_source_meet_at_random():
    """Each draw once, in two orders; leaves of one draw stay together."""
    posed = problem(
        piece(falling, twice=2 * NUMBER), piece(rising), baseline_loss=2.0, seed=4
    )
    target, source = (part(c).piece.values for c in posed.constraints)
    orders = numbers(target["level"]), numbers(source["level"])
    for order in orders:
        assert sorted(order) == list(range(1, DRAWS + 1))
    assert abs(stats.spearmanr(*orders).statistic) < 0.15
    np.testing.assert_array_equal(target["twice"], 2 * orders[0])
    other = problem(piece(falling), piece(rising), baseline_loss=2.0, seed=5)
    assert (
        numbers(part(other.constraints[0]).piece.values["level"]) != orders[0]
    ).any()


def test_joint_draws_of_covariates_stay_paired():
    """A chain's forecasts of one checkpoint: target and source see the same draw."""
    before = bayeslaw.Draws(3.0 + 0.001 * NUMBER)
    source_before = bayeslaw.Draws(2.0 + 0.001 * NUMBER)
    columns = ("loss_before", "source_loss_before", "D", "replay")
    posed = problem(
        piece(falling, covariates=columns),
        piece(rising, covariates=columns[1:]),
        covariates={"loss_before": before, "source_loss_before": source_before},
    )
    target, source = posed.constraints
    fixed = {k: np.asarray(v) for k, v in part(target).fixed.items()}
    np.testing.assert_allclose(fixed["loss_before"], fixed["source_loss_before"] + 1)
    assert sorted(fixed["loss_before"]) == pytest.approx(sorted(before))
    np.testing.assert_array_equal(
        part(source).fixed["source_loss_before"], fixed["source_loss_before"]
    )
    # forgetting is of the same draw's loss before
    np.testing.assert_array_equal(source.baseline, fixed["source_loss_before"])
    assert (np.diff(fixed["loss_before"]) < 0).any()


def test_a_covariate_may_be_below_one():
    """A loss of .4 nats is a loss; 0 is none."""
    falls = piece(falling, covariates=("loss_before", "D", "replay"))
    posed = problem(falls, piece(rising), covariates={"loss_before": 0.4})
    np.testing.assert_array_equal(part(posed.constraints[0]).fixed["loss_before"], 0.4)
    with pytest.raises(PlanError, match="loss_before must be a positive number"):
        problem(falls, piece(rising), covariates={"loss_before": 0.0})


def test_a_measured_baseline_is_paired_too():
    measured = bayeslaw.Draws(2.0 + 0.001 * NUMBER)
    posed = problem(
        piece(falling, covariates=("loss_before", "D", "replay")),
        piece(rising, covariates=("loss_before", "D", "replay")),
        covariates={"loss_before": 1 + measured},
        baseline_loss=measured,
    )
    target, source = posed.constraints
    np.testing.assert_allclose(source.baseline, part(target).fixed["loss_before"] - 1)
    np.testing.assert_array_equal(source.baseline, part(source).fixed["loss_before"])
    np.testing.assert_array_equal(target.baseline, 1.0)


@pytest.mark.parametrize("tokens", [None, 5e9])
def test_a_law_s_own_baseline_is_its_loss_after_pure_replay(tokens):
    posed = problem(piece(falling), piece(rising), baseline_tokens=tokens)
    _, source = posed.constraints
    level = np.asarray(part(source).piece.values["level"])
    expected = level * (1 + (tokens or 0.0) / 1e9) ** 0.01
    np.testing.assert_allclose(source.baseline, expected)


def test_a_budget_becomes_caps_of_tokens():
    posed = problem(
        piece(falling),
        piece(rising),
        max_flops=6e19,
        max_tokens=2e10,
        unique_target_tokens=3e9,
        max_epochs=4,
        min_replay=0.2,
        confidence=0.7,
    )
    assert posed.max_tokens == pytest.approx(1e10)  # of 6 N D, under 2e10
    assert posed.seen == {"unique_target_tokens": 1.2e10}
    assert (posed.least, posed.confidence) == (0.2, 0.7)
    assert (posed.N, posed.ptpp) == (1e9, 20.0)
    assert posed.span == pytest.approx((np.log(1e5), np.log(1e13)))
    # at half replay 1.2e10 unique tokens allow 2.4e10, the budget 1e10
    assert posed.log_cap(0.5) == pytest.approx(np.log(1e10))
    looser = problem(piece(falling), piece(rising), unique_target_tokens=3e9)
    assert looser.log_cap(0.5) == pytest.approx(np.log(6e9))
    assert looser.log_cap(0.999999) == looser.span[1]
    free = problem(piece(falling), piece(rising))
    assert free.most_probable is False
    assert posed.most_probable is True


def test_the_plug_in_point_is_the_mean_of_the_law_with_most_draws():
    few = Piece(falling, {"level": np.array([9.0, 10.0])}, ("D", "replay"))
    uneven = np.array([1.0, 2.0, 6.0])
    most = Piece(rising, {"level": uneven, "sigma": uneven}, ("D", "replay"))
    question = question_of(Draws((few, most)), Draws((few,)), **ASKED)
    (point,) = point_pieces(question, {})["target"]
    assert point.log_loss is rising
    assert point.values == {"level": [3.0], "sigma": [3.0]}
    (point,) = point_pieces(question, {"target": {"level": 5.0}})["target"]
    assert point.values == {"level": [5.0], "sigma": [3.0]}
    (other,) = point_pieces(question, {"target": {"level": 5.0}})["forgetting"]
    assert other.values["level"] == [9.5]


def test_four_thousand_draws_are_looked_at_where_nobody_says_more():
    """As the documentation has it."""
    many = {"level": np.full(9000, 2.0)}
    posteriors = (
        Draws((Piece(falling, many, ("D", "replay")),)),
        Draws((Piece(rising, many, ("D", "replay")),)),
    )
    asked = {name: value for name, value in ASKED.items() if name != "draws"}
    assert question_of(*posteriors, **asked).draws == 4000


def test_draws_beyond_those_there_are_only_where_noise_makes_them_new():
    asked = ASKED | {"draws": 5000, "baseline_loss": 2.0}
    posteriors = Draws((piece(falling, **NOISY),)), Draws((piece(rising, **NOISY),))
    assert question_of(*posteriors, **asked).draws == 5000
    assert question_of(*posteriors, **(asked | {"new_run": False})).draws == DRAWS


@pytest.mark.parametrize(
    ("name", "column", "says"),
    [
        ("math", "loss_before", "baseline_loss={'math': ...}"),
        ("math", "S1_pt", "covariates={'S1_pt': ...}"),
        ("math", "source_loss_before", "covariates={'source_loss_before': ...}"),
        ("web", "loss_before", "give baseline_loss, its loss"),
        ("web", "source_loss_before", "give baseline_loss, its loss"),
        ("web", "S1_pt", "covariates={'S1_pt': ...}"),
        ("target", "loss_before", "covariates={'loss_before': ...}"),
    ],
)
def test_what_a_law_reads_beside_the_plan_is_asked_for_by_name(name, column, says):
    """A source's losses before adaptation are its baseline."""
    covariates = dict.fromkeys(("target", "web", "math"), ("D", "replay"))
    covariates[name] = ("D", "replay", column)
    target, *sources = (
        Draws((piece(rising, covariates=read),)) for read in covariates.values()
    )
    limits = {"max_forgetting": {"web": 0.05}, "max_loss": {"math": 2.0}}
    named = dict(zip(("web", "math"), sources, strict=True))
    with pytest.raises(PlanError) as caught:
        problem_of(target, named, **(ASKED | limits))
    assert says in str(caught.value)

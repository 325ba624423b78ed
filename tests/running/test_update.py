"""A second batch: its surprise is uniform under the posterior, what moved a forecast is what exact updates say, and a table
says that nothing changed, or that something did, where that is so.
"""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import bayeslaw
from bayeslaw import LawError, RunTableError
from bayeslaw._running.updating import surprise as surprises
from bayeslaw._running.updating.changes import measure_move
from bayeslaw._running.updating.plans import plan_change
from known import example, plans, saved, updates
from known.updates import PRIOR_MEAN, PRIOR_SD, TAU, batch, conjugate, lines

GOAL = np.array([1.0, 5.0])  # of level and slope: a run at D = 5
CASES = 200

# -- surprise -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[0.0, TAU], ids=["rows alone", "runs share"])
def p_values(request):
    """Of batches whose truth is drawn from the prior, runs' effects included."""
    rng = np.random.default_rng(3)
    posterior = lines(1000, seed=4, tau=request.param)
    found = []
    for case in range(CASES):
        truth = PRIOR_MEAN + PRIOR_SD * rng.standard_normal(2)
        rows = batch(rng, truth, tau=request.param)
        foreseen = surprises.foresee(posterior, rows, case)
        batches = foreseen.simulate(case)
        found.append(
            (
                surprises.joint(foreseen, batches, case),
                surprises.surprise_of(foreseen, case),
            )
        )
    return found


def test_surprise_is_uniform_under_the_posterior(p_values):
    """Kolmogorov and Smirnov's test at 1%; so is that of each run's mean."""
    assert stats.kstest([p for p, _ in p_values], "uniform").pvalue > 0.01
    of_a_run = [s.groups["p_value"].iloc[0] for _, s in p_values]
    assert stats.kstest(of_a_run, "uniform").pvalue > 0.01


def test_intervals_hold_as_many_rows_as_they_say(p_values):
    for prob in (0.5, 0.9):
        held = np.mean([s.coverage[f"{prob:g}"] for _, s in p_values])
        assert held == pytest.approx(prob, abs=0.05)


def test_rows_of_a_run_that_lie_off_together_surprise_less_than_rows_alone():
    """The same rows, .8% high in one run: ordinary where runs share an error of .6%, rare where rows have .4% each."""
    rng = np.random.default_rng(0)
    rows = batch(rng, PRIOR_MEAN, runs=1, points=8)
    rows["loss"] *= np.exp(0.008)
    sharp = {"a": np.full(2000, PRIOR_MEAN[0]), "b": np.full(2000, PRIOR_MEAN[1])}
    alone = updates.Lines(sharp | {"sigma": np.full(2000, updates.SIGMA)})
    whole = np.hypot(updates.SIGMA, TAU)
    together = updates.Lines(
        sharp | {"sigma": np.full(2000, whole), "tau_run": np.full(2000, TAU)}
    )
    p = [
        surprises.surprise_of(surprises.foresee(one, rows)).p_value
        for one in (alone, together)
    ]
    assert p[0] < 0.01
    assert p[1] > 0.05


def test_rows_of_no_groups_are_judged_too():
    """Laws of tokens alone read no column that groups rows."""
    rows = batch(np.random.default_rng(1), PRIOR_MEAN).drop(columns="run")
    foreseen = surprises.foresee(lines(seed=2), rows)
    assert surprises.surprise_of(foreseen).groups.empty
    law = foreseen.law[:, 0]
    why = surprises.attribute(foreseen, law, law + 0.1)
    assert "of +10.00% the new rows tell" in why.sentence()


def test_the_worst_rows_are_those_farthest_off_in_sds():
    rows = batch(np.random.default_rng(1), PRIOR_MEAN)
    rows.loc[5, "loss"] *= 1.5
    surprise = surprises.surprise_of(surprises.foresee(lines(seed=2), rows))
    assert surprise.worst.index[0] == 5
    assert surprise.worst["miss"].iloc[0] == pytest.approx(np.log(1.5), abs=0.05)
    assert surprise.is_surprising


# -- why ------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def told():
    """Two runs from a truth that is unlike the prior's mean, and what they add to a forecast."""
    rng = np.random.default_rng(8)
    rows = batch(rng, PRIOR_MEAN + np.array([0.02, 0.008]), runs=2, points=3)
    posterior = lines(20000, seed=5)
    before = posterior.values["a"] * GOAL[0] + posterior.values["b"] * GOAL[1]
    mean, _ = conjugate(rows)
    after = np.full(2, GOAL @ mean)
    return rows, surprises.attribute(surprises.foresee(posterior, rows), before, after)


def test_all_new_rows_together_add_what_the_exact_update_does(told):
    rows, why = told
    mean, _ = conjugate(rows)
    exact = GOAL @ (mean - PRIOR_MEAN)
    assert abs(exact) > 0.5 * why.sd
    assert why.together == pytest.approx(exact, abs=0.03 * why.sd)
    assert why.shift == pytest.approx(exact, abs=0.03 * why.sd)
    assert why.is_told
    of_runs = why.groups[why.groups["by"] == "run"]
    assert of_runs["adds"].sum() == pytest.approx(why.together)


def test_alone_is_the_exact_update_without_the_other_run(told):
    rows, why = told
    for _, group in why.groups.iterrows():
        mean, _ = conjugate(rows[rows["run"] == group["level"]])
        assert group["khat"] < 0.7
        exact = GOAL @ (mean - PRIOR_MEAN)
        assert group["alone"] == pytest.approx(exact, abs=0.05 * why.sd)


def test_a_shift_that_the_rows_do_not_tell_is_said_so(told):
    rows, _ = told
    posterior = lines(2000, seed=5)
    before = posterior.values["a"] + 5 * posterior.values["b"]
    why = surprises.attribute(
        surprises.foresee(posterior, rows), before, before + 10 * before.std()
    )
    assert not why.is_told
    assert why.reasons.empty
    assert "cannot be told by which rows" in why.sentence()


def test_what_a_refit_without_the_other_rows_says_of_a_real_law():
    """Six rows of the second batch: reweighted draws against the fit of old rows and these."""
    plain = {"preview": True, "discrepancy": False, "independent": True, "seed": 1}
    runs = updates.grown()
    new = runs[runs["N"] == runs["N"].max()].iloc[:6]
    old = bayeslaw.fit(updates.first_batch(), "chinchilla", **plain)
    refit = bayeslaw.fit(pd.concat([updates.first_batch(), new]), "chinchilla", **plain)
    goal = runs.iloc[[-1]]
    before, after = old.log_loss(goal)[:, 0], refit.log_loss(goal)[:, 0]
    why = surprises.attribute(surprises.foresee(old, new), before, after)
    (group,) = [g for _, g in why.groups.iterrows() if g["by"] == "N"]
    assert group["khat"] < 0.7
    assert group["alone"] == pytest.approx(why.shift, abs=0.2 * why.sd)
    assert why.together == pytest.approx(why.shift, abs=0.35 * why.sd)


# -- what moved -----------------------------------------------------------------------------------------------------------


def test_a_move_is_expected_where_it_is_the_variance_that_data_take():
    """Conjugate updates of a true model move means by their own sd on average: 95% within two of it."""
    rng = np.random.default_rng(6)
    before = PRIOR_MEAN[0] + PRIOR_SD[0] * rng.standard_normal(4000)
    far = []
    for _ in range(CASES):
        truth = PRIOR_MEAN + PRIOR_SD * rng.standard_normal(2)
        mean, covariance = conjugate(batch(rng, truth, runs=1))
        after = rng.normal(mean[0], np.sqrt(covariance[0, 0]), 4000)
        moved = measure_move(before, after)
        far.append(moved["shift"] / moved["expected"])
    assert np.std(far) == pytest.approx(1.0, abs=0.12)


@pytest.fixture(scope="module")
def honest():
    return bayeslaw.update(updates.old_fit(), updates.with_second(), seed=1)


@pytest.fixture(scope="module")
def shifted():
    """The second batch 3% higher than the law says."""
    return bayeslaw.update(updates.old_fit(), updates.with_second(1.06), seed=1)


def test_the_same_table_changes_nothing_and_fits_nothing(monkeypatch):
    monkeypatch.setattr(
        "bayeslaw._running.updating.update.refit_like", lambda *_, **__: 1 / 0
    )
    same = bayeslaw.update(updates.old_fit(), updates.first_batch())
    assert same.action == "nothing new"
    assert same.posterior is updates.old_fit()
    assert "Nothing new" in repr(same)
    assert not same.first.parameters["moved"].any()
    assert (same.to_frame()["before"] == same.to_frame()["after"]).all()


def test_a_run_asked_for_starts_from_each_domain_s_own_loss_before():
    """As rows of the source do, whose ``loss_before`` is the source's."""
    law, rows = bayeslaw.law("forgetting"), saved.runs("forgetting")
    known = saved.values(name="forgetting")
    both = {name: rows.assign(domain=name) for name in ("target", "source")}
    fits = {name: saved.make_fit(law, known, table) for name, table in both.items()}
    at = dict(rows.iloc[0][["N", "D", "replay"]], loss_before=3.0)
    same = bayeslaw.update(
        fits["target"],
        pd.concat(both.values(), ignore_index=True),
        source=fits["source"],
        at=at | {"source_loss_before": 2.0},
    )
    for name, before in (("target", 3.0), ("source", 2.0)):
        there = bayeslaw.forecast(fits[name], at | {"loss_before": before})
        assert same[name].forecasts["before"].item() == there["median"].item()


def test_a_batch_of_the_same_law_is_foreseen(honest):
    assert honest.first.surprise.p_value > 0.01
    row = honest.first.headline
    assert not row["beyond"]
    assert row["before_low"] < row["after"] < row["before_high"]
    assert row["width"] < 1
    assert honest.first.changes.same == len(updates.first_batch())


def test_a_batch_six_percent_off_surprises_and_moves_the_forecast_its_way(shifted):
    one = shifted.first
    assert one.surprise.is_surprising
    assert one.surprise.miss == pytest.approx(0.06, abs=0.01)
    assert shifted.action == "moved"
    assert one.headline["after"] > one.headline["before_high"]
    assert one.attribution.shift > 0
    assert "above what was foreseen" in shifted.verdict()


def test_the_refit_is_that_of_the_same_law_and_settings(honest):
    old, new = updates.old_fit(), honest.posterior
    again = bayeslaw.fit(updates.with_second(), "chinchilla", preview=True, seed=1)
    assert new.is_preview
    assert new.misfit is not None
    assert new.law == old.law
    assert (new.posterior["alpha"] == again.posterior["alpha"]).all()


def test_an_average_is_made_again_of_all_the_laws_it_was_made_of():
    rows = updates.first_batch()
    options = {"hold_out": "D", "discrepancy": False, "seed": 2}
    old = bayeslaw.average(rows, ["chinchilla", "coupled"], **options)
    told = []
    updated = bayeslaw.update(
        old, updates.with_second(), seed=2, progress=lambda *done: told.append(done)
    )
    # of the whole command: the refits' posteriors, and what is compared then
    assert told == sorted(told)
    assert len(told) > 2
    assert told[-1] == (1000, 1000)
    again = bayeslaw.average(
        updates.with_second(), ["chinchilla", "coupled"], **options
    )
    assert updated.posterior.weights == again.weights
    assert updated.posterior.attrs["folds"] == again.attrs["folds"]
    laws = updated.first.laws
    assert list(laws["weight_after"]) == [again.weights[n] for n in laws.index]


@pytest.mark.parametrize(
    ("law", "replays", "warned"),
    [
        ("state-power", [0.25], 1),
        ("state-power", [0.25, 0.5], 0),
        ("ptpp-tokens", [0.25], 0),
    ],
)
def test_one_run_of_a_larger_model_tells_little_where_losses_before_are_read(
    law, replays, warned
):
    runs = bayeslaw.datasets.load("minicpt").query("domain == 'target' and D > 2 * N")
    first = runs.query("N < 6e5 and ptpp < 200")
    begun = runs[
        (runs["N"] > 5e6) & (runs["ptpp"] == 93) & runs["replay"].isin(replays)
    ]
    options = {"preview": True, "discrepancy": False, "on_failure": "ignore"}
    reference = {"N": 1e6, "D": 1e7} | ({"ptpp": 100} if law == "ptpp-tokens" else {})
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        old = bayeslaw.fit(first, law, reference=reference, **options)
        bayeslaw.update(old, pd.concat([first, begun]), on_failure="ignore")
    assert (
        sum("tell little of its other runs" in str(w.message) for w in seen) == warned
    )


@pytest.mark.filterwarnings("ignore:priors? guessed")
def test_new_rows_may_tell_a_size_that_the_old_table_did_not(monkeypatch):
    """Also for laws that start from a measured loss and read no size."""
    law = bayeslaw.law_from_formula("loss_before + A*D^-alpha")
    values = {name: np.full(20, p.median) for name, p in law.priors.items()}
    values |= {"sigma": np.full(20, 0.01), "dof": np.full(20, 8.0)}
    rows = pd.DataFrame({"D": np.geomspace(1e8, 1e10, 8), "loss_before": 2.0})
    old = saved.make_fit(law, values, rows.assign(loss=2.1))
    monkeypatch.setattr(
        "bayeslaw._running.updating.update.refit_like", lambda *_, **__: old
    )
    more = rows.assign(loss=2.1, N=1e8)
    more = pd.concat([more, more.tail(1).assign(D=2e10)], ignore_index=True)
    assert len(bayeslaw.update(old, more).first.changes.new) == 1


def test_what_cannot_be_updated_is_refused_in_a_line():
    old, table = updates.old_fit(), updates.with_second()
    with pytest.raises(RunTableError, match="no rows of domain target"):
        bayeslaw.update(old, table.assign(domain="source"))
    with pytest.raises(RunTableError, match="lacks column 'D'"):
        bayeslaw.update(old, table.drop(columns="D"))
    with pytest.raises(RunTableError, match="lacks column 'domain'"):
        bayeslaw.update(old, table.drop(columns="domain"))
    new = table[table["N"] == table["N"].max()]
    with pytest.raises(RunTableError, match="in one table, or --allow-missing"):
        bayeslaw.update(old, new)
    with pytest.raises(LawError, match="give source"):
        bayeslaw.update(old, table, question={"N": 1e9})


# -- the plan -------------------------------------------------------------------------------------------------------------

NOISY = {"sd": 0.004, "draws": 100, "sigma": 0.002}


@pytest.fixture(scope="module")
def pair():
    return plans.target(**NOISY), plans.source(**NOISY)


def test_the_same_posteriors_have_the_same_plan(pair):
    question = {**example.QUESTION, "draws": plans.DRAWS}
    change = plan_change(bayeslaw.plan(*pair, **question), pair, question)
    assert not change.moved
    assert change.kept["probability"] == pytest.approx(change.before.probability)
    assert change.regret == pytest.approx(change.regret_before)


def test_the_old_plan_under_a_new_posterior(pair):
    """A limit that is looser by a share is a loss lower by it: the other posterior's plan is asked both ways."""
    question = {**example.QUESTION, "draws": plans.DRAWS}
    asked = bayeslaw.plan(*pair, **question)
    level = question["max_target_loss"]
    assert asked.D
    higher = plans.Draws(tuple(_raised(piece, 0.004) for piece in pair[0].of))
    change = plan_change(asked, (higher, pair[1]), question)
    tighter = bayeslaw.plan(
        *pair, **{**question, "max_target_loss": level / np.exp(0.004)}
    )
    assert abs(change.after.D / tighter.D - 1) < 0.01
    assert change.moved == (abs(np.log(tighter.D / asked.D)) > np.log(1.1))
    assert change.kept["probability_target"] < asked.probability_target
    assert change.kept["probability"] < asked.confidence
    assert change.still_keeps is False


def test_no_plan_stays_that_was_never_there(pair):
    question = {**example.QUESTION, "draws": plans.DRAWS}
    impossible = {**question, "max_target_loss": 0.5}
    none = bayeslaw.plan(*pair, **impossible)
    still = plan_change(none, pair, impossible)
    assert not still.moved
    assert still.stays() == "still no plan can be promised"
    assert still.sentence().startswith("No plan could be promised before, and none")
    found = plan_change(none, pair, question)
    assert found.moved
    assert found.sentence().startswith("No plan could be promised before; now: ")


def _raised(piece, by):
    def log_loss(draw, covariates):
        return piece.log_loss(draw, covariates) + by

    return replace(piece, log_loss=log_loss)

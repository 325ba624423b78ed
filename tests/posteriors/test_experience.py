"""Priors learned from other tables: which, from whom, and in the user's own unit."""

import math
import warnings

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw import LawError
from bayeslaw._law.experience import priors, tables
from bayeslaw._posteriors.averaging import compare
from bayeslaw._posteriors.prior import choose_priors, kind_of

CHINCHILLA = bayeslaw.law("chinchilla")
BASE = priors.Population(0.0, 1.0, 0)
REPLAY = {"replay": np.array([0.1, 0.5])}


def few(rows: int, largest: float = 1e9, **columns) -> pd.DataFrame:
    """Runs of a known law of pre-training, spread over sizes and tokens."""
    sizes = np.geomspace(largest / 20, largest, rows)
    tokens = 20 * sizes * np.resize([0.5, 2.0, 1.0], rows)
    design = pd.DataFrame({"N": sizes, "D": tokens})
    return bayeslaw.simulate(CHINCHILLA, design=design, noise=0.002).assign(**columns)


def quick(runs: pd.DataFrame, **arguments) -> bayeslaw.Fit:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return bayeslaw.fit(runs, "chinchilla", preview=True, **arguments)


def test_many_labs_are_a_sample_and_few_lean_on_the_base():
    means = [0.1, 0.5, 0.2, 0.4, 0.3]
    five = priors.between_labs({str(m): [(m, 0.0)] for m in means}, BASE)
    assert five.mean == pytest.approx(0.3)
    assert five.sd == pytest.approx(np.std(means, ddof=1) * math.sqrt(1 + 1 / 5))
    two = priors.between_labs({"a": [(2.0, 0.0)], "b": [(2.0, 0.0)]}, BASE)
    assert two.mean == pytest.approx(1.0)  # two labs and two that are missing
    assert two.sd > 1.0  # they disagree with the base
    assert priors.between_labs({}, BASE) == BASE


def test_tables_of_one_lab_count_as_one():
    spread = {
        "a": [(0.0, 0.0)],
        "b": [(1.0, 0.0)],
        "c": [(0.5, 0.0)],
        "d": [(0.5, 0.0)],
    }
    many = spread | {"a": [(0.0, 0.0)] * 9}
    assert priors.between_labs(many, BASE) == priors.between_labs(spread, BASE)


def test_a_lab_left_out_teaches_nothing():
    others = tables.learned().without("Brandfonbrener 2024")
    assert {t.lab for t in others.tables} == {
        t.lab for t in tables.learned().tables
    } - {"Brandfonbrener 2024"}
    all_labs = priors.populations(CHINCHILLA, "web-text")["alpha"].labs
    assert (
        priors.populations(CHINCHILLA, "web-text", others)["alpha"].labs == all_labs - 1
    )


def test_priors_do_not_depend_on_the_unit_of_the_losses():
    """Bits for nats move the contributions by as much, and no exponent."""
    runs = few(5)
    columns = {c: runs[c].to_numpy() for c in ("N", "D")}
    losses = runs["loss"].to_numpy()
    nats = priors.experienced(
        CHINCHILLA, "web-text", measured=priors.Measured(columns, losses)
    )
    bits = priors.experienced(
        CHINCHILLA, "web-text", measured=priors.Measured(columns, losses / math.log(2))
    )
    for site in nats.priors:
        factor = 1 / math.log(2) if site.endswith("_nats") else 1.0
        ratio = bits.priors[site].median / nats.priors[site].median
        assert ratio == pytest.approx(factor, rel=2e-3)  # four digits are kept
        assert bits.priors[site].args[1] == nats.priors[site].args[1]


def test_contributions_are_restated_at_the_users_reference():
    here = priors.experienced(CHINCHILLA, "web-text")
    there = priors.experienced(CHINCHILLA, "web-text", reference={"N": 1e9})
    assert there.reference["N"] == 1e9
    # ten times the size leaves a factor of 10^-alpha, and alpha is not known
    before, after = here.priors["A_nats"], there.priors["A_nats"]
    alpha = here.priors["alpha"]
    mean = alpha.median * math.exp(alpha.args[1] ** 2 / 2)
    assert after.median / before.median == pytest.approx(10**-mean, rel=0.03)
    assert after.args[1] > before.args[1]


def test_the_columns_say_the_kind():
    assert kind_of(CHINCHILLA, few(3))[0] == "web-text"
    code, why = kind_of(CHINCHILLA, few(3, domain="starcoder"))
    assert code == "code"
    assert "starcoder" in why
    assert kind_of(bayeslaw.law("dcpt"))[0] == "adaptation"
    assert kind_of(bayeslaw.law("rectified"))[0] == "fine-tuning"


def test_up_to_24_runs_have_learned_priors_unless_told_otherwise():
    by_kind = choose_priors(CHINCHILLA, few(24))
    assert by_kind.name == "web-text"
    assert by_kind.law.priors["alpha"].source == "learned: web text, 10 labs"
    assert choose_priors(CHINCHILLA, few(25)).law is CHINCHILLA
    assert choose_priors(CHINCHILLA, few(24), "none").law is CHINCHILLA
    assert choose_priors(CHINCHILLA, few(25), "code").name == "code"
    changed = CHINCHILLA.with_priors({"alpha": "lognormal(0.5, 0.1)"})
    assert choose_priors(changed, few(5)).law is changed


def test_two_labs_are_too_few_to_be_chosen_but_can_be_asked_for():
    law = bayeslaw.law("state-target")
    assert choose_priors(law, None).law is law
    assert choose_priors(law, None, "microcpt").name == "microcpt"


def test_an_unknown_experience_lists_those_there_are():
    with pytest.raises(LawError, match="'books'; there are web-text, code, adaptation"):
        choose_priors(CHINCHILLA, few(5), "books")


def test_a_fit_of_two_rows_is_a_fit_that_says_whose_its_parameters_are():
    two = few(2)
    with pytest.warns(bayeslaw.RunTableWarning, match="2 rows for the 5 parameters"):
        fit = bayeslaw.fit(two, "chinchilla", preview=True)
    table = fit.narrowed()
    assert table["whose"]["alpha"] == "prior"
    assert (table["narrowed"] >= 0).all()
    # what was measured is forecast as it was
    again = bayeslaw.forecast(fit, two)
    assert (np.abs(again["median"] / two["loss"] - 1) < 0.02).all()


def test_many_runs_narrow_what_few_do_not():
    one, many = quick(few(3)).narrowed(), quick(few(120)).narrowed()
    assert many["whose"]["alpha"] == "runs"
    assert many["narrowed"]["alpha"] > one["narrowed"]["alpha"] + 0.3


def test_one_size_is_a_fit_whose_size_exponent_is_the_priors():
    runs = few(4).assign(N=1e8)
    fit = quick(runs)
    assert fit.narrowed()["whose"]["alpha"] == "prior"


def test_priors_of_the_user_go_before_learned_ones():
    fit = quick(few(5), priors={"alpha": "lognormal(0.5, 0.05)"})
    assert fit.law.priors["alpha"].args == (0.5, 0.05)
    assert fit.law.priors["beta"].source.startswith("learned: web text")
    # stated at the law's own run, as users read it in `bayeslaw laws`
    assert dict(fit.law.reference) == dict(CHINCHILLA.reference)


def test_a_saved_fit_keeps_learned_priors(tmp_path):
    fit = quick(few(5))
    again = bayeslaw.load(fit.save(tmp_path / "few.nc"))
    assert again.law.priors == fit.law.priors


@pytest.mark.parametrize("experience", ["none", "web-text"])
def test_forecasts_at_the_level_of_the_runs(experience):
    runs = few(4)
    ahead = pd.DataFrame({"N": [5e9], "D": [5e10]})
    row = bayeslaw.forecast(quick(runs, experience=experience), ahead).iloc[0]
    truth = bayeslaw.simulate(CHINCHILLA, design=ahead, noise=0.0)["loss"][0]
    assert row["low"] < truth < row["high"]


@pytest.mark.filterwarnings("ignore:.*beyond the runs that were fitted")
def test_learned_priors_narrow_a_handful():
    runs = few(3, largest=1e8)
    ahead = pd.DataFrame({"N": [7e9], "D": [1.4e11]})
    widths = {}
    for experience in ("none", "web-text"):
        row = bayeslaw.forecast(quick(runs, experience=experience), ahead).iloc[0]
        widths[experience] = math.log(row["high"] / row["low"])
    assert widths["web-text"] < 0.9 * widths["none"]


def test_a_fit_drifts_beyond_its_runs_as_the_prior_says(tmp_path):
    """It leaves no stage out; an average learns drift from those."""
    handful = quick(few(6))
    beyond = few(2, largest=3e10).drop(columns="loss").tail(1)
    parts = bayeslaw.width_parts(handful, beyond).iloc[0]
    assert parts["drift"] > 0
    inside = bayeslaw.width_parts(handful, few(6).drop(columns="loss")).iloc[2]
    assert inside["drift"] == 0
    again = bayeslaw.load(handful.save(tmp_path / "fit.nc"))
    np.testing.assert_array_equal(again.log_loss(beyond), handful.log_loss(beyond))
    assert quick(few(25)).drift.shape == handful.drift.shape
    assert quick(few(6), discrepancy=False).drift is None


def test_laws_that_are_averaged_have_learned_priors_for_a_handful():
    names = ["chinchilla", "coupled"]

    def sources(rows: int, experience: str | None = None) -> set[str]:
        laws = compare._choose_laws(few(rows), names, {"N": 1e9}, experience)
        assert all(law.reference["N"] == 1e9 for law in laws)
        return {law.priors["beta"].source for law in laws}

    own = {bayeslaw.law(name).priors["beta"].source for name in names}
    assert sources(24) == {"learned: web text, 10 labs"}
    assert sources(25) == sources(24, "none") == own
    assert sources(25, "web-text") == sources(24)


def test_an_average_s_priors_at_another_run_say_the_same_there():
    """They are restated, not only named so."""
    here, there = (
        compare._choose_laws(few(12), ["chinchilla"], {"N": size}, None)[0]
        .priors["A_nats"]
        .median
        for size in (1e8, 1e9)
    )
    assert 0.3 < there / here < 0.6  # ten times the size, to the power -.4

"""Own laws: formulas are read safely, split as a person would, and are the laws they spell."""

import pickle
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayeslaw
from bayeslaw import LawError, find_law, law, law_from_file, law_from_formula
from bayeslaw._law.formula import units_of
from bayeslaw.cli.laws import reference_run

jax.config.update("jax_enable_x64", True)

MODELS = Path(__file__).parents[2] / "models"

FORMULAS = {
    "chinchilla": "E + A/N^alpha + B/D^beta",
    "coupled": "E + (A/N^(alpha/k) + B/D^(beta/k))^k",
    "dcpt": "E + A/N^alpha + B/(D^beta * replay^-nu) + C/(replay + 0.00001)^gamma",
    "ptpp-floor": "E + A*N^-alpha + B*replay^nu*D^-beta + C/(replay + 1e-5)^gamma + F/ptpp^eta",
    "finetune": "E + A/(N^alpha * D^beta)",
    "forgetting": "loss_before + A*D^beta/((1 + B*replay)*N)^alpha",
    "anneal": "L0 + A*S1_pt^-alpha - C*S2_pt",
    "cpt-dynamics-replay-source": "L0 + A*(S1_pt + S1_cpt)^-alpha - C1*S2_pt - C2*S2_cpt*exp(a1*replay)"
    " + B*(1 - (1 + E*S1_cpt)^-beta)*(1 - exp(-a2*(1 - replay)))",
    "ood-mixture": "w1*source_loss + w2*target_loss",
    "state-source": (
        "source_loss_before + (S1 - source_loss_before)*a*N^g*exp(-kappa*replay)*(1 - exp(-D/D1))"
        " - G*log(1 + replay*D/D2)"
    ),
}


def quiet(text, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return law_from_formula(text, **kwargs)


def random_runs(names, n=9):
    rng = np.random.default_rng(1)
    ranges = {"replay": (0.01, 0.9), "S2_pt": (-0.3, 0.3), "S2_cpt": (-0.3, 0.3)}
    wide = {
        "N": (7, 10),
        "D": (8, 11),
        "ptpp": (1, 2.5),
        "S1_pt": (-0.5, 1.5),
        "S1_cpt": (-1, 1),
    }
    columns = {
        c: 10 ** rng.uniform(*wide[c], n)
        if c in wide
        else rng.uniform(*ranges.get(c, (1, 4)), n)
        for c in names
    }
    return {c: jnp.asarray(v) for c, v in columns.items()}


@pytest.mark.parametrize("name", FORMULAS)
def test_a_formula_is_the_law_it_spells(name):
    """Same parameters, same covariates, same loss as the law of the catalogue, at its plausible parameters."""
    known, own = law(name), quiet(FORMULAS[name])
    assert set(own.covariates) == set(known.covariates)
    assert set(own.parameters) == set(known.parameters)
    runs = random_runs(own.covariates)
    got = own.loss(runs, own.from_paper(known.plausible))
    np.testing.assert_allclose(
        got, known.loss(runs, known.from_paper(known.plausible)), rtol=1e-6
    )


@pytest.mark.parametrize("name", ["chinchilla", "dcpt", "state-source"])
def test_a_formula_keeps_the_contract_of_a_law(name):
    """Sources, LaTeX, round trip, finite gradients over the prior."""
    own = quiet(FORMULAS[name], name="mine")
    assert own.name == "mine"
    assert own.latex
    assert all(prior.source for prior in own.priors.values())
    back = own.to_paper(own.from_paper(own.plausible))
    assert {k: float(v) for k, v in back.items()} == pytest.approx(dict(own.plausible))
    rng = np.random.default_rng(0)
    draws = {k: jnp.asarray(p.draw(rng, 100)) for k, p in own.priors.items()}
    runs = random_runs(own.covariates)
    gradients = jax.vmap(
        jax.jacrev(lambda v: jnp.log(jnp.maximum(own.loss(runs, v), 1e-6)))
    )(draws)
    assert all(np.isfinite(np.asarray(g)).all() for g in gradients.values())


def test_coefficients_and_exponents_are_told_apart():
    """What multiplies one term is its coefficient, stated in nats; the rest are exponents along their column."""
    own = law_from_formula("E + A/N^alpha + B/(D^beta * replay^-nu)")
    assert [t.site for t in own.terms] == ["E_nats", "A_nats", "B_nats"]
    assert own.terms[0].is_floor
    assert {e.name: e.covariate for e in own.exponents} == {
        "alpha": "N",
        "beta": "D",
        "nu": "replay",
    }
    at_reference = {c: jnp.asarray([v]) for c, v in own.reference.items()}
    values = own.from_paper(own.plausible)
    assert float(own.contributions(at_reference, values)["B"][0]) == pytest.approx(
        float(values["B_nats"])
    )


def test_signs_come_out_of_terms():
    """Minus signs anywhere in a product make the term's sign, and its coefficient stays positive."""
    own = quiet("E - A/N^alpha + -2*B/D^beta - -3*F/ptpp^eta")
    assert [t.sign for t in own.terms] == [1, -1, -1, 1]
    runs = random_runs(own.covariates)
    p = {"E": 2.0, "A": 3.0, "B": 4.0, "F": 5.0, "alpha": 0.3, "beta": 0.2, "eta": 0.4}
    want = 2 - 3 * runs["N"] ** -0.3 - 8 * runs["D"] ** -0.2 + 15 * runs["ptpp"] ** -0.4
    np.testing.assert_allclose(own.loss(runs, own.from_paper(p)), want, rtol=1e-12)


def test_a_basis_that_vanishes_has_no_contribution_in_nats():
    """S2 is 0 at the reference run, so the prior is on the coefficient itself."""
    own = quiet("L0 - C*S2_pt")
    assert own.terms[1].site == "C"
    assert not own.terms[1].in_nats


def test_known_names_take_cited_priors_without_a_warning():
    """Names of a law that reads the same columns bring that law's priors; warnings are errors here."""
    own, known = law_from_formula(FORMULAS["chinchilla"]), law("chinchilla")
    assert {n: (p.family, p.args) for n, p in own.priors.items()} == {
        n: (p.family, p.args) for n, p in known.priors.items()
    }
    assert all(
        p.source.startswith("of law 'chinchilla': ") for p in own.priors.values()
    )


@pytest.mark.parametrize(
    ("formula", "columns"),
    [
        ("E + A/(N*D)^alpha", {}),
        ("E + A/(N*D)^alpha + B/D^beta", {}),
        ("E + A/(N + D)^alpha", {}),
        ("E + A/heat^alpha", {"heat": 3.0}),
        ("E + A/(N*heat)^alpha", {"heat": 3.0}),
    ],
)
def test_a_product_and_an_own_column_borrow_no_prior(formula, columns):
    """What a law says of alpha along N says nothing of alpha along another thing."""
    own = quiet(formula, columns=columns)
    assert own.priors["alpha"].source.startswith("guessed")
    assert own.priors["A_nats"].source.startswith("guessed")
    assert own.priors["E_nats"].source.startswith("of law ")
    renamed = quiet(formula.replace("alpha", "power"), columns=columns)
    assert own.priors["alpha"] == renamed.priors["power"]


@pytest.mark.parametrize(
    "formula", ["E - A/N^alpha", "E + A*N^alpha", "E + A*N^alpha + B/D^beta"]
)
def test_a_term_that_rises_where_laws_fall_borrows_no_prior(formula):
    own = quiet(formula)
    assert own.priors["alpha"].source.startswith("guessed")
    assert own.priors["A_nats"].source.startswith("guessed")
    falling = quiet("E + A/N^alpha")
    assert falling.priors["alpha"].source.startswith("of law 'chinchilla'")


def test_a_published_formula_borrows_from_its_law_products_included():
    own, known = quiet(FORMULAS["forgetting"]), law("forgetting")
    assert own.priors["alpha"].args == known.priors["alpha"].args
    assert own.priors["alpha"].source.startswith("of law 'forgetting': ")
    assert own.priors["A_nats"].args == known.priors["A_nats"].args


def test_guessed_priors_are_named():
    """A parameter nobody has published gets a guess and a warning that names it, and nothing else."""
    with pytest.warns(UserWarning, match="guessed") as caught:
        own = law_from_formula("E + Q/N^alpha + B/D^fall")
    message = str(caught[0].message)
    assert len(caught) == 1
    assert "Q_nats = lognormal" in message
    assert "fall = lognormal" in message
    assert "alpha" not in message
    assert own.priors["fall"].source.startswith("guessed")


def test_a_guessed_scale_has_the_size_of_its_column():
    """A parameter that divides tokens is guessed in tokens, one that multiplies replay as its inverse."""
    own = quiet("E + G*exp(-D/much) + H*exp(-fast*replay)")
    assert own.priors["much"].median == pytest.approx(own.reference["D"])
    assert own.priors["fast"].median == pytest.approx(1 / own.reference["replay"])


def test_known_terms_become_the_offset():
    """Terms without a parameter are no part of the prior, but of the loss."""
    own = quiet("loss_before - 0.5 + A*D^beta/N^alpha")
    runs = random_runs(own.covariates)
    np.testing.assert_allclose(
        own.loss(runs, own.from_paper({"A": 0.0, "alpha": 1.0, "beta": 1.0})),
        runs["loss_before"] - 0.5,
    )


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("__import__('os').system('true')", "cannot contain"),
        ("E + A/N^alpha + open('x')", "cannot contain"),
        ("E + N.real", "cannot contain"),
        ("E + A/[N][0]", "cannot contain"),
        ("E + (lambda: 1)()", "cannot contain"),
        ("E + A/N^alpha if N else 1", "cannot contain"),
        ("E + 'a'*9", "cannot contain"),
        ("E + A // N", "cannot contain"),
        ("E + A % N", "cannot contain"),
        ("E + 1j/N", "cannot contain"),
        ("E + True/N", "cannot contain"),
        ("E + exp(N, D)", "cannot contain"),
        ("E + exp(x=N)", "cannot contain"),
        ("E + sin(N)", "cannot contain"),
        ("E + A/N^", "not understood"),
        ("", "not understood"),
        ("E + A/N; 1", "not understood"),
        ("(" * 300 + "N" + ")" * 300, "not understood"),
        ("-" * 900 + "N", "nested"),
        ("~" * 400 + "N", "nested"),
        ("N" + ".a" * 400, "nested"),
        ("E" + "+N" * 150, "nested"),
        ("E + A/N^alpha" + " + A/N" * 200, "characters"),
        ("E + exp", "cannot contain"),
        ("E + A/loss", "predicts"),
        ("E + B*r^nu/D^beta", "write replay"),
        ("E + A", "no column"),
        ("E + F + A/N^alpha", "E and F are both constants"),
        ("E + A*B/N^alpha", "A and B only occur as a product"),
        ("loss_before + N/D", "no parameter"),
        ("E^k + A/N^alpha", "acts on no column"),
        ("E + A/(N - N)", "no finite loss"),
        ("E + A*9^9^9^9/N", "no finite loss"),
    ],
)
def test_bad_formulas_are_refused(text, named):
    """Nothing but a formula is read, nothing is executed, and the message says what is wrong."""
    with pytest.raises(LawError, match=named) as caught:
        quiet(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (None, "no such file"),
        ("x = 1\n", "defines no LAW"),
        ("LAW = 3\n", "LAW is a int"),
        ("LAW = 1/0\n", "ZeroDivisionError"),
        ("LAW = (\n", "SyntaxError"),
    ],
)
def test_bad_law_files_are_refused(tmp_path, content, named):
    """The message names the file and what is wrong with it."""
    path = tmp_path / "broken.py"
    if content is not None:
        path.write_text(content)
    with pytest.raises(LawError, match=named) as caught:
        law_from_file(path)
    assert str(path) in str(caught.value)


def test_a_rate_is_read_as_a_column_of_the_table():
    """A peak rate is a number of each run; without such a column it is no parameter."""
    table = bayeslaw.simulate("chinchilla").assign(lr=3e-4)
    table.loc[::2, "lr"] = 1e-3
    with pytest.warns(UserWarning, match="guessed|columns of the table") as said:
        own = find_law("E + A/N^alpha + B/D^beta + C*lr^g", table)
    assert any("columns of the table: lr" in str(one.message) for one in said)
    assert "lr" in own.covariates
    assert {"C", "g"} <= set(own.parameters)
    with pytest.raises(LawError, match="'lr' as a name: it is read as a column"):
        law_from_formula("E + A/N^alpha + C*lr^g")


# -- units of own columns --------------------------------------------------------------


HEATED = "E + A/N^alpha + B*heat[degC]"


def test_a_unit_is_stated_and_changes_no_number():
    columns = {"heat": 20.0}
    with pytest.warns(UserWarning, match="guessed"):
        law = law_from_formula(HEATED, columns=columns)
    with pytest.warns(UserWarning, match="guessed"):
        plain = law_from_formula(HEATED.replace("[degC]", ""), columns=columns)
    assert units_of(law) == {"heat": "degC"}
    assert units_of(plain) == {}
    assert law.priors == plain.priors
    assert law.covariates == ("N", "heat")
    # found again in a saved fit
    assert units_of(pickle.loads(pickle.dumps(law))) == {"heat": "degC"}
    assert reference_run(law) == "N 1e+09, heat 20 degC"
    quoted = "E + A/N^alpha + B*heat['tokens / s']"
    with pytest.warns(UserWarning, match="guessed"):
        assert units_of(law_from_formula(quoted, columns=columns)) == {
            "heat": "tokens/s"
        }


@pytest.mark.parametrize(
    ("formula", "says"),
    [
        ("E + A/N[B]^alpha", "the unit of N is the schema's"),
        ("E + A/N^alpha[degC]", "'alpha' is none"),
        ("E + B*heat[degC] + C*heat[K]^2", "in degC and in K"),
        ("E + B*heat[1:2]", "cannot contain 'heat\\[1:2\\]'"),
    ],
)
def test_units_that_make_no_sense_are_refused_in_one_line(formula, says):
    with pytest.raises(LawError, match=says) as refused:
        law_from_formula(formula, columns={"heat": 20.0})
    assert "\n" not in str(refused.value)

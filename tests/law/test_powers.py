"""Powers and priors' densities as programs have them: few operations, and the same
numbers.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend import core
from scipy import stats

import bayeslaw
from bayeslaw import Prior
from bayeslaw._law import expression
from bayeslaw._law.law import power

BASES = np.array([1e-9, 0.25, 1.0, 30.0, 5e9, 1e20])
EXPONENTS = np.array([-3.0, -0.37, 0.0, 1e-6, 0.5, 140.0])


def primitives(program) -> set[str]:
    """Of a traced program and of those that it calls."""
    found = set()
    for equation in program.eqns:
        found.add(equation.primitive.name)
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if isinstance(inner, core.Jaxpr):
                found |= primitives(inner)
    return found


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_a_power_is_a_power(exponent):
    with np.errstate(over="ignore"):
        expected = BASES**exponent
    np.testing.assert_allclose(power(BASES, exponent), expected, rtol=1e-12)
    # d/de b^e = b^e log b
    slopes = [float(jax.grad(power, argnums=1)(b, exponent)) for b in BASES]
    finite = np.isfinite(expected)
    np.testing.assert_allclose(
        np.array(slopes)[finite], (expected * np.log(BASES))[finite], rtol=1e-12
    )


def test_a_power_of_nothing_is_nothing_and_has_derivatives():
    """Tokens before adaptation."""
    value, slopes = jax.value_and_grad(power, argnums=(0, 1))(0.0, 0.34)
    assert value == pytest.approx(0, abs=1e-90)
    assert np.isfinite(slopes).all()


@pytest.mark.parametrize("name", [law.name for law in bayeslaw.laws()])
def test_no_law_asks_for_a_power_that_takes_ten_times_as_long(name):
    law = bayeslaw.law(name)
    values = {name: jnp.asarray(p.median) for name, p in law.priors.items()}
    runs = {c: jnp.full(3, v) for c, v in law.reference.items()}
    traced = jax.make_jaxpr(law.loss)(runs, values)
    assert "pow" not in primitives(traced.jaxpr)


@pytest.mark.parametrize(
    ("text", "x", "expected"),
    [
        ("x^2", -0.5, 0.25),
        ("x^-1", -0.5, -2.0),
        ("x^(1/2)", 4.0, 2.0),
        ("x^k", 4.0, 2.0),
        ("x^k", -4.0, np.nan),
        ("x^k", 0.0, 0.0),
        ("x^-k", 0.0, np.inf),
    ],
)
def test_a_formula_s_powers_are_those_of_arithmetic(text, x, expected):
    """Also where the base is negative or 0, which is not misread."""
    at = {"x": jnp.asarray(x), "k": jnp.asarray(0.5)}
    assert float(expression.evaluate(expression.parse(text), at)) == pytest.approx(
        expected, nan_ok=True
    )


@pytest.mark.parametrize(
    ("prior", "known", "values"),
    [
        (
            Prior("lognormal", (0.3, 1.2)),
            stats.lognorm(1.2, scale=0.3),
            [1e-4, 0.3, 40.0],
        ),
        (Prior("normal", (-0.2, 0.3)), stats.norm(-0.2, 0.3), [-2.0, -0.2, 1.0]),
        (Prior("beta", (2.0, 5.5)), stats.beta(2.0, 5.5), [1e-6, 0.4, 0.999]),
    ],
)
def test_a_prior_s_density_is_that_of_its_distribution(prior, known, values):
    for value in values:
        ours = prior.log_density(jnp.asarray(value))
        assert float(ours) == pytest.approx(known.logpdf(value), rel=1e-12)
        assert float(prior.distribution().log_prob(value)) == pytest.approx(
            float(ours), rel=1e-9
        )

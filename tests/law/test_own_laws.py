"""Laws of one's own: names that clash, columns of one's own table, files and trust."""

import json
import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest

import bayeslaw
from bayeslaw import FitFileError, LawError, RunTableError
from bayeslaw._law.law import RESERVED
from bayeslaw._law.recipe import law_of, recipe_of

MODELS = Path(__file__).parents[2] / "models"
DATA_CONSTRAINED = "E + A/N^alpha + B/D^beta + C*(D/U)^gamma"


def quiet(call, *args, **kwargs):
    """Guessed priors and columns that were read are not what is tested."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return call(*args, **kwargs)


# -- names -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        *("dof", "sigma", "draw", "chain", "log_loss", "checkpoint_effect"),
        *("run_effect", "weights", "drift", "misfit", "tau_checkpoint", "tau_run"),
        *("run_length", "spread_alpha", "population_E"),
    ],
)
def test_a_parameter_called_as_a_site_of_the_posterior_is_refused(name):
    """Before anything is sampled, and with another name."""
    with pytest.raises(LawError, match=f"call it {name}_0"):
        quiet(bayeslaw.find_law, f"E + {name}/N^alpha")
    term = bayeslaw.Term("A", lambda x, e: x["N"], _prior(), "A")
    with pytest.raises(LawError, match=f"call it {name}_0"):
        _law(term, bayeslaw.Exponent(name, _prior(), "N"))


def _prior():
    return bayeslaw.Prior("lognormal", (1.0, 1.0))


def _law(term, exponent):
    return bayeslaw.Law(
        name="own",
        title="",
        source="",
        latex="",
        covariates=("N",),
        terms=(term,),
        exponents=(exponent,),
        reference={"N": 1e9},
        plausible={},
    )


def test_every_site_and_dimension_of_a_posterior_is_a_name_refused():
    """What is reserved is what posteriors hold."""
    runs = bayeslaw.simulate("chinchilla").iloc[::4]
    fitted = bayeslaw.fit(runs, "chinchilla", preview=True, on_failure="ignore")
    law = fitted.law
    data = fitted.inference_data["posterior"]
    names = {str(n) for n in (*data.data_vars, *data.dims, *data.coords)}
    assert names - set(law.priors) - set(law.parameters) <= RESERVED


# -- columns of the user's table -------------------------------------------------------


@pytest.mark.filterwarnings("ignore:the loss of N 421M")  # its data repeat
# it lies eight times the usual distance away, at the edge of what a fit tells
@pytest.mark.filterwarnings("ignore:row 157 lies")
def test_a_formula_reads_a_column_of_the_table(data, tmp_path):
    """U is the table's column of unique tokens: fitted, saved, loaded, forecast."""
    runs = bayeslaw.read_runs(data("data_constrained.csv")).iloc[::3]
    options = {"preview": True, "on_failure": "ignore", "seed": 1}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "priors? guessed", UserWarning)
        with pytest.warns(UserWarning, match="read as columns of the table: U"):
            fitted = bayeslaw.fit(runs, DATA_CONSTRAINED, **options)
    assert fitted.law.covariates == ("N", "D", "U")
    assert "U" not in fitted.law.parameters
    path = fitted.save(tmp_path / "fit.nc")
    again = bayeslaw.load(path)
    np.testing.assert_allclose(again.log_loss(runs), fitted.log_loss(runs))
    assert np.median(abs(np.median(fitted.log_loss(runs), 0) - np.log(runs.loss))) < 0.1
    with pytest.raises(RunTableError, match="'U'"):
        fitted.log_loss(runs.drop(columns="U"))


def test_a_column_called_as_a_parameter_does_not_stop_a_fit():
    """ArviZ kept one list of dimensions for both names."""
    runs = bayeslaw.simulate("chinchilla").iloc[::4].assign(B=512.0, alpha=0.1)
    fitted = bayeslaw.fit(runs, "chinchilla", preview=True, on_failure="ignore")
    np.testing.assert_array_equal(fitted.runs["B"], 512.0)
    assert fitted.posterior["B"].ndim == 1


def test_a_formula_with_columns_is_found_again_from_its_recipe():
    runs = bayeslaw.simulate("chinchilla").assign(U=np.linspace(1e9, 9e9, 252))
    law = quiet(bayeslaw.find_law, DATA_CONSTRAINED, runs)
    moved = law.with_reference({"U": 1e9}).with_priors({"gamma": "fixed(0.5)"})
    for one in (law, moved):
        again = law_of(json.loads(json.dumps(recipe_of(one))))
        assert recipe_of(again) == recipe_of(one)
        assert recipe_of(pickle.loads(pickle.dumps(one))) == recipe_of(one)


def test_columns_that_hold_no_numbers_are_refused():
    runs = bayeslaw.simulate("chinchilla").assign(arch="moe", zero=0.0)
    with pytest.raises(LawError, match="'arch' of the table, which is not numbers"):
        bayeslaw.find_law("E + A/N^alpha * arch", runs)
    with pytest.raises(LawError, match="'zero'"):
        bayeslaw.find_law("E + A/N^alpha * zero", runs)


def test_rows_at_which_a_formula_is_not_defined_are_refused():
    runs = bayeslaw.simulate("chinchilla").assign(width=1e9)
    runs.loc[runs.index[4], "width"] = 0.0
    with pytest.raises(RunTableError, match="row 5: the formula"):
        quiet(bayeslaw.fit, runs, "E + A/N^alpha + C*(D/width)^gamma")


# -- files -----------------------------------------------------------------------------


@pytest.fixture
def law_file(tmp_path):
    """A law by file that counts how often it is run."""
    path = tmp_path / "my_law.py"
    text = (MODELS / "chinchilla.py").read_text()
    text = text.replace('name="chinchilla"', 'name="mine"')
    count = f"with open({str(tmp_path / 'ran')!r}, 'a') as ran: ran.write('x')"
    path.write_text(f"{text}\n{count}\n")
    return path


def ran(law_file: Path) -> int:
    return len((law_file.parent / "ran").read_text())


def test_a_saved_fit_does_not_run_its_law_file_unless_asked(law_file):
    """An artifact may come from anyone, and so may the path in it."""
    runs = bayeslaw.simulate("chinchilla").iloc[::4]
    options = {"preview": True, "on_failure": "ignore"}
    fitted = bayeslaw.fit(runs, str(law_file), **options)
    path = fitted.save(law_file.parent / "fit.nc")
    assert ran(law_file) == 1
    with pytest.raises(FitFileError, match="trust_law_file=True") as caught:
        bayeslaw.load(path)
    assert str(law_file) in str(caught.value)
    assert ran(law_file) == 1
    again = bayeslaw.load(path, trust_law_file=True)
    assert ran(law_file) == 2
    np.testing.assert_allclose(again.log_loss(runs), fitted.log_loss(runs))


def test_a_law_file_edited_after_the_fit_is_refused_and_not_run(law_file):
    recipe = recipe_of(bayeslaw.law_from_file(law_file))
    law_file.write_text(law_file.read_text() + "\n# edited\n")
    with pytest.raises(LawError, match="was edited after the fit"):
        law_of(recipe, trust_law_file=True)
    assert ran(law_file) == 1


def test_a_law_by_file_goes_to_another_process(law_file):
    """Pickled by whom has run the file, it asks nothing."""
    law = bayeslaw.law_from_file(law_file)
    assert recipe_of(pickle.loads(pickle.dumps(law))) == recipe_of(law)

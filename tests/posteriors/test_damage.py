"""A saved posterior that was damaged or edited is refused in one line, or says the same numbers."""

import random
import warnings

import h5py
import numpy as np
import pandas as pd
import pytest
import xarray

import bayeslaw
from bayeslaw import BayeslawError, FitFileError
from bayeslaw._posteriors.fits import artifact
from known.saved import runs, save_average, save_fit

BITS, EDITS = 60, 67
SAVED = [save_fit, save_average]


@pytest.fixture(scope="module")
def far():
    return runs().head(3).assign(D=1e12)


@pytest.fixture(scope="module", params=SAVED)
def saved(request, tmp_path_factory):
    path = request.param(tmp_path_factory.mktemp("saved") / "posterior.nc")
    return path, bayeslaw.load(path)


def refusal_or_same(path, sound, far):
    """The one line of a refusal, or an empty one where all numbers are as they were."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            loaded = bayeslaw.load(path)
            said = ""
        except FitFileError as error:
            said = str(error)
    if said:
        assert "\n" not in said
        assert str(path) in said
        return said
    assert not seen
    assert loaded.name == sound.name
    np.testing.assert_array_equal(
        loaded.log_loss(far, noise=True), sound.log_loss(far, noise=True)
    )
    pd.testing.assert_frame_equal(loaded.parameters(), sound.parameters())
    pd.testing.assert_frame_equal(loaded.runs, sound.runs)
    assert str(loaded.diagnostics) == str(sound.diagnostics)
    return ""


@pytest.mark.parametrize("bits", [6, BITS])
def test_a_flipped_bit_is_refused_or_changes_nothing(saved, far, bits, tmp_path, capfd):
    path, sound = saved
    content, rng, other = path.read_bytes(), random.Random(0), tmp_path / "flipped.nc"
    said = []
    for _ in range(bits):
        flipped = bytearray(content)
        flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
        other.write_bytes(flipped)
        said.append(refusal_or_same(other, sound, far))
    assert sum(map(bool, said)) > bits / 9
    assert capfd.readouterr().err == ""


def _edits(path):
    """Every attribute of a file, by its place and name."""
    found = []
    with h5py.File(path, "r") as file:
        found += [("/", name) for name in file.attrs]
        file.visititems(
            lambda place, node: found.extend((place, name) for name in node.attrs)
        )
    return found


@pytest.mark.parametrize("edits", [6, EDITS])
def test_an_edited_attribute_is_refused_or_changes_nothing(
    saved, far, edits, tmp_path, capfd
):
    path, sound = saved
    rng, other = random.Random(1), tmp_path / "edited.nc"
    attributes = _edits(path)
    own = [
        (place, name) for place, name in attributes if place == "/" or "law" in place
    ]
    said = []
    for count in range(edits):
        place, name = rng.choice(own if count % 2 else attributes)
        other.write_bytes(path.read_bytes())
        with h5py.File(other, "r+") as file:
            attrs = file[place].attrs
            before = attrs[name]
            edit = rng.choice(["gone", "text", "number", "less", "digit"])
            if edit == "gone":
                del attrs[name]
            elif edit == "number":
                attrs[name] = 7
            elif edit == "text" or not isinstance(before, str):
                attrs[name] = "{}"
            elif edit == "less":
                attrs[name] = before[: len(before) // 2]
            else:
                attrs[name] = before.replace("3", "4")
        said.append(refusal_or_same(other, sound, far))
    assert sum(map(bool, said)) > edits / 9
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("left", [0, 7, 8, 100, 0.5, 0.99])
def test_a_cut_file_is_one_line_without_a_word_of_its_reader(
    saved, left, tmp_path, capfd
):
    path, _ = saved
    content, cut = path.read_bytes(), tmp_path / "cut.nc"
    cut.write_bytes(content[: int(left * len(content)) if left < 1 else left])
    with pytest.raises(FitFileError, match=r"not a fit saved by bayeslaw.*make it"):
        bayeslaw.load(cut)
    assert capfd.readouterr().err == ""


def test_one_draw_that_was_changed_is_refused(tmp_path):
    path = save_fit(tmp_path / "fit.nc")
    with h5py.File(path, "r+") as file:
        file["posterior/alpha"][0, 3] *= 1 + 1e-15
    with pytest.raises(FitFileError, match=r"damaged.*checksum.*fit again"):
        bayeslaw.load(path)


def test_a_file_from_before_there_was_a_checksum_is_refused(saved, tmp_path):
    path, _ = saved
    old = tmp_path / "old.nc"
    old.write_bytes(path.read_bytes())
    with h5py.File(old, "r+") as file:
        del file.attrs[artifact.NAMES.checksum]
    with pytest.raises(FitFileError, match=r"has no checksum.*before.*fit again"):
        bayeslaw.load(old)


def test_an_average_from_before_draws_had_an_axis_of_chains_is_refused(tmp_path):
    tree = _tree_of(save_average(tmp_path / "average.nc"))
    (name,) = [name for name in tree.children if name.startswith("law")]
    tree[name] = xarray.DataTree(tree[name].to_dataset().isel(chain=0))
    old = artifact.write(tree, tmp_path / "old.nc")
    with pytest.raises(FitFileError, match=r"not hold a whole posterior.*fit again"):
        bayeslaw.load(old)


def _tree_of(path):
    """What a file holds, to be written again with a checksum of its own."""
    with xarray.open_datatree(path, engine="h5netcdf") as tree:
        tree.load()
    del tree.attrs[artifact.NAMES.checksum]
    return tree


@pytest.mark.parametrize("lost", ["alpha", "sigma", "E_nats"])
def test_draws_that_are_gone_are_named(lost, tmp_path):
    tree = _tree_of(save_fit(tmp_path / "fit.nc"))
    left = tree["posterior"].to_dataset().drop_vars(lost)
    tree["posterior"] = xarray.DataTree(left)
    path = artifact.write(tree, tmp_path / "lost.nc")
    with pytest.raises(FitFileError, match=rf"no draws of '{lost}'.*fit again"):
        bayeslaw.load(path)


def test_a_file_saved_again_is_whole(tmp_path):
    """Also after ArviZ's own reader and writer, which keep what is in it."""
    path = save_fit(tmp_path / "fit.nc")
    again = bayeslaw.load(bayeslaw.load(path).save(tmp_path / "again.nc"))
    tree = xarray.open_datatree(path, engine="h5netcdf").load()
    tree.close()
    tree.to_netcdf(tmp_path / "others.nc", engine="h5netcdf")
    others = bayeslaw.load(tmp_path / "others.nc")
    for name, draws in bayeslaw.load(path).posterior.items():
        np.testing.assert_array_equal(again.posterior[name], draws)
        np.testing.assert_array_equal(others.posterior[name], draws)


def test_other_netcdf_files_are_no_fits(tmp_path):
    path = tmp_path / "other.nc"
    with pytest.raises(FitFileError, match="no such file"):
        bayeslaw.Fit.load(path)
    xarray.Dataset({"x": ("y", np.arange(3.0))}).to_netcdf(path, engine="h5netcdf")
    for read in (bayeslaw.load, bayeslaw.Fit.load, bayeslaw.Pool.load):
        with pytest.raises(BayeslawError, match=r"not a .* saved by bayeslaw"):
            read(path)

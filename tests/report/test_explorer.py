"""What the page's map is packed into: few surfaces that give all draws back."""

import re
from pathlib import Path

import numpy as np
import pytest

from bayeslaw._plans.constraint import UNITS
from bayeslaw._report import explorer

PLANNER = Path(explorer.__file__).parent / "templates/page/explorer.js"


@pytest.mark.parametrize("rows", [500, 4000])
def test_few_surfaces_give_back_every_row(rows):
    """Five ways in which rows differ, of falling sizes, and a rest that is too small to be kept."""
    rng = np.random.default_rng(0)
    sizes = np.array([1.0, 0.3, 0.1, 0.03, 0.01])
    ways = np.linalg.qr(rng.standard_normal((600, 5)))[0].T * np.sqrt(600)
    rest = 1e-5 * rng.standard_normal((rows, 600))
    matrix = (rng.standard_normal((rows, 5)) * sizes) @ ways + rest
    weights, surfaces = explorer.low_rank(matrix)
    assert len(surfaces) == 5
    assert weights.shape == (rows, 5)
    error = np.abs(weights @ surfaces - matrix)
    assert error.mean() < explorer.TOLERANCE
    # without the last surface it is not near
    without = np.abs(weights[:, :4] @ surfaces[:4] - matrix)
    assert without.mean() > explorer.TOLERANCE


def test_no_more_surfaces_than_a_page_can_hold():
    noise = np.random.default_rng(1).standard_normal((100, 60))
    _, surfaces = explorer.low_rank(noise)
    assert len(surfaces) == explorer.MOST_RANK


@pytest.mark.parametrize("name", ["INTO", "BACK"])
def test_the_page_has_each_scale_of_units(name):
    """And the inverse of each."""
    (functions,) = re.findall(rf"const {name} = {{(.*?)}}", PLANNER.read_text())
    scales = {unit.scale for unit in UNITS.values()} - {None}
    assert set(re.findall(r"(\w+):", functions)) == scales

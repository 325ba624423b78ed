"""An axis to draw on."""

import matplotlib
import pytest
from matplotlib.figure import Figure

matplotlib.use("Agg")


@pytest.fixture
def ax():
    return Figure().add_subplot()

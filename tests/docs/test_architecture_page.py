"""The picture of the rooms is drawn from today's imports."""

import json

import pytest

AGAIN = "run: python docs/draw_architecture.py"


@pytest.fixture(scope="module")
def drawing(script):
    return script("../docs/draw_architecture.py")


def test_the_picture_shows_what_the_code_imports(drawing):
    assert json.loads(drawing.KEPT.read_text()) == drawing.arrows_of_the_code(), AGAIN


def test_every_folder_of_the_package_is_a_room(drawing):
    package = drawing.DOCS.parent / "bayeslaw"
    folders = {path.parent.name for path in package.glob("*/__init__.py")}
    assert set(drawing.ROOMS) == folders | {"models"}


def test_arrows_that_others_imply_are_left_out(drawing):
    arrows = {"top": ["low", "middle"], "middle": ["low"], "low": []}
    assert drawing.needed(arrows) == [("top", "middle"), ("middle", "low")]
    assert drawing.floors(arrows) == {"low": 1, "middle": 2, "top": 3}


def test_each_room_has_its_box(drawing):
    figure = drawing.draw(drawing.arrows_of_the_code())
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert set(texts) >= {f"{room}/" for room in drawing.ROOMS}
    assert drawing.PICTURE.stat().st_size > 10_000

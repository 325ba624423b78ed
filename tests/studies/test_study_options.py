"""The study's keywords: seen by editors and by inspect, unknown ones refused."""

import inspect
from dataclasses import fields

import pytest
from anchors_study import StudyArguments, anchors_study


def test_every_keyword_is_seen_by_editors_and_by_inspect():
    names = [f.name for f in fields(StudyArguments)]
    assert list(inspect.signature(anchors_study).parameters) == names


def test_an_unknown_keyword_is_refused_in_one_line():
    with pytest.raises(
        TypeError, match=r"anchors_study\(\) has no option 'law'; it has: laws, seeds"
    ):
        anchors_study(law="dcpt")  # pyright: ignore[reportCallIssue]

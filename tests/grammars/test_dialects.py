"""Prompts, labels and what a phrase may not smuggle in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grammars.dialects.paligemma import PaliGemmaDialect
from grammars.dialects.pointbox import PointboxDialect
from grammars.types import Box, Point

phrases = st.text(min_size=1, max_size=40).filter(str.strip)


@pytest.mark.parametrize(
    ("phrase", "prompt"),
    [
        ("red circle", "detect red circle\n"),
        ("  red \t circle ", "detect red circle\n"),
        ("red\ncircle", "detect red circle\n"),
        ("red\u2028circle\r\n", "detect red circle\n"),
        ("a;b", "detect a;b\n"),
    ],
)
def test_pointbox_prompts(phrase: str, prompt: str) -> None:
    assert PointboxDialect().prompt("detect", phrase) == prompt
    assert PointboxDialect().prompt("point", phrase) == prompt.replace("detect", "point")
    assert PointboxDialect().label(phrase) is None


@pytest.mark.parametrize(
    ("phrase", "prompt", "label"),
    [
        ("cat", "detect cat\n", " cat"),
        ("cat ; dog", "detect cat , dog\n", " cat , dog"),
        ("cat;;dog", "detect cat,,dog\n", " cat,,dog"),
        ("cat\ndog", "detect cat dog\n", " cat dog"),
        (";", "detect ,\n", " ,"),
    ],
)
def test_paligemma_prompts(phrase: str, prompt: str, label: str) -> None:
    for task in ("detect", "point"):
        assert PaliGemmaDialect().prompt(task, phrase) == prompt
    assert PaliGemmaDialect().label(phrase) == label


@given(phrases)
def test_no_phrase_ends_its_prompt_early(phrase: str) -> None:
    for dialect in (PointboxDialect(), PaliGemmaDialect()):
        prompt = dialect.prompt("detect", phrase)
        assert prompt.index("\n") == len(prompt) - 1
        assert prompt.strip() != "detect"
    assert ";" not in PaliGemmaDialect().prompt("detect", phrase)
    assert ";" not in (PaliGemmaDialect().label(phrase) or "")
    assert (PaliGemmaDialect().label(phrase) or "").strip()


@pytest.mark.parametrize("probability", [float("nan"), -1e-9, 1.0000001])
def test_scores_are_probabilities_whatever_the_rounding(probability: float) -> None:
    for dialect in (PointboxDialect(), PaliGemmaDialect()):
        assert 0 <= dialect.parse("detect", [0, 0, 1, 1], [probability] * 5).score <= 1


@pytest.mark.parametrize(
    ("moved", "same"), [(0.0, True), (0.02, True), (0.04, True), (0.043, False), (0.5, False), (0.9, False)]
)
def test_boxes_repeat_at_nine_tenths_of_overlap(moved: float, same: bool) -> None:
    box, other = Box(0.1, 0.1, 0.9, 0.9, 1.0), Box(0.1 + moved, 0.1, 0.9 + moved, 0.9, 0.3)
    assert box.repeats(other) is other.repeats(box) is same


@pytest.mark.parametrize(("dx", "dy", "same"), [(0, 0, True), (0.009, 0.009, True), (0.011, 0, False)])
def test_points_repeat_within_a_hundredth(dx: float, dy: float, same: bool) -> None:
    point, other = Point(0.5, 0.5, 1.0), Point(0.5 + dx, 0.5 + dy, 1.0)
    assert point.repeats(other) is other.repeats(point) is same


def test_a_region_holds_what_lies_wholly_inside() -> None:
    region = (0.25, 0.25, 0.75, 0.75)
    assert Box(0.25, 0.25, 0.75, 0.75, 1.0).within(region)
    assert not Box(0.249, 0.25, 0.75, 0.75, 1.0).within(region)
    assert not Box(0.3, 0.3, 0.4, 0.751, 1.0).within(region)
    assert Point(0.25, 0.75, 1.0).within(region)
    assert not Point(0.76, 0.5, 1.0).within(region)

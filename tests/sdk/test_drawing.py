"""Drawings: where the boxes and points are, in which colour, whatever the labels say."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from PIL import Image, ImageColor

from pointbox import DetectResult, PointResult
from pointbox.drawing import COLOURS
from tests.sdk.scripted import ANSWER

LABELS = ["a", "b", "a much longer phrase " * 9, "🦊 שלום\nnew line", *"cdefgh"]
GREY = (90, 90, 90)


def found(places: list[dict[str, float]]) -> list[dict[str, Any]]:
    """One of each phrase."""
    return [
        {**place, "label": LABELS[index], "phrase_index": index, "score": 0.5}
        for index, place in enumerate(places)
    ]


def boxes(*corners: tuple[float, float, float, float]) -> DetectResult:
    names = ("x_min", "y_min", "x_max", "y_max")
    places = [dict(zip(names, each, strict=True)) for each in corners]
    return msgspec.convert({**ANSWER, "objects": found(places)}, DetectResult)


def points(*places: tuple[float, float]) -> PointResult:
    answer = {**ANSWER, "points": found([{"x": x, "y": y} for x, y in places])}
    return msgspec.convert(answer, PointResult)


def colour(index: int) -> tuple[int, ...]:
    return ImageColor.getrgb(COLOURS[index])


def test_a_box_has_its_edges_where_it_says() -> None:
    image = Image.new("RGB", (400, 200), GREY)
    places = [(0.25, 0.5, 0.5, 0.9), (0.6, 0.5, 0.9, 0.9)]
    drawn = boxes(*places).draw(image)
    for index, (x_min, _, x_max, y_max) in enumerate(places):
        middle = 140
        assert drawn.getpixel((round(x_min * 400), middle)) == colour(index)
        assert drawn.getpixel((round(x_max * 400) - 1, middle)) == colour(index)
        assert drawn.getpixel((round((x_min + x_max) * 200), round(y_max * 200) - 1)) == colour(index)
        assert drawn.getpixel((round((x_min + x_max) * 200), middle)) == GREY
    assert image.getcolors() == [(400 * 200, GREY)]


def test_a_point_is_a_dot() -> None:
    image = Image.new("RGB", (400, 200), GREY)
    assert points((0.5, 0.5)).draw(image).getpixel((200, 100)) == colour(0)


@pytest.mark.parametrize("size", [(8, 8), (8, 900), (900, 8), (64, 64), (3000, 1000)])
def test_labels_never_break_a_drawing(size: tuple[int, int]) -> None:
    image = Image.new("RGB", size)
    places = [(0.0, 0.0, 1.0, 1.0), (0.0, 0.0, 0.01, 0.01), (0.99, 0.99, 1.0, 1.0)] * 3
    assert boxes(*places).draw(image).size == size
    assert points((0.0, 0.0), (1.0, 1.0), (1.0, 0.0), (0.5, 0.5)).draw(image).size == size

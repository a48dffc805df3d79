"""Drawings: where the boxes are, in which colour, whatever the labels say."""

from __future__ import annotations

import pytest
from PIL import Image

from app.admission.messages import Completed, Metrics, ObjectEvent
from app.draw import COLOURS, draw_answer
from app.spatial.answers import build_answer
from app.spatial.schemas import DetectAnswer, PointAnswer, Task, Units

PHRASES = ["a", "b", "a much longer phrase " * 9, "🦊 שלום\nnew line", *"cdefgh"]


def answer(
    task: Task, boxes: list[tuple[float, ...]], size: tuple[int, int], units: Units = "normalized"
) -> DetectAnswer | PointAnswer:
    found = [ObjectEvent(index, box, 0.5) for index, box in enumerate(boxes)]
    reasons = ["stop"] * len(PHRASES)
    width, height = size
    done = Completed(
        model="tiny", width=width, height=height, objects=found, finish_reasons=reasons, metrics=Metrics()
    )
    return build_answer(task, done, request_id="r", phrases=PHRASES, units=units)


@pytest.mark.parametrize("units", ["normalized", "pixels"])
def test_a_box_has_its_edges_where_it_says(units: Units) -> None:
    image = Image.new("RGB", (400, 200), (90, 90, 90))
    boxes = [(0.25, 0.5, 0.5, 0.9), (0.6, 0.5, 0.9, 0.9)]
    drawn = draw_answer(image, answer("detect", boxes, image.size, units), pixels=units == "pixels")
    for index, (x_min, _, x_max, y_max) in enumerate(boxes):
        middle = 140
        assert drawn.getpixel((round(x_min * 400), middle)) == COLOURS[index]
        assert drawn.getpixel((round(x_max * 400) - 1, middle)) == COLOURS[index]
        assert drawn.getpixel((round((x_min + x_max) * 200), round(y_max * 200) - 1)) == COLOURS[index]
        assert drawn.getpixel((round((x_min + x_max) * 200), middle)) == (90, 90, 90)
    assert image.getcolors() == [(400 * 200, (90, 90, 90))]


def test_a_point_is_a_dot() -> None:
    image = Image.new("RGB", (400, 200), (90, 90, 90))
    drawn = draw_answer(image, answer("point", [(0.5, 0.5)], image.size), pixels=False)
    assert drawn.getpixel((200, 100)) == COLOURS[0]


@pytest.mark.parametrize("size", [(8, 8), (8, 900), (900, 8), (64, 64), (3000, 1000)])
def test_labels_never_break_a_drawing(size: tuple[int, int]) -> None:
    image = Image.new("RGB", size)
    boxes = [(0.0, 0.0, 1.0, 1.0), (0.0, 0.0, 0.01, 0.01), (0.99, 0.99, 1.0, 1.0)] * 3
    assert draw_answer(image, answer("detect", boxes, size), pixels=False).size == size
    points = [(0.0, 0.0), (1.0, 1.0), (1.0, 0.0), (0.5, 0.5)]
    assert draw_answer(image, answer("point", points, size), pixels=False).size == size

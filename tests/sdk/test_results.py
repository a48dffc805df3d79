"""Results: geometry, drawing, and the files of other tools."""

from __future__ import annotations

import json
import pickle
from typing import Any

import msgspec
import numpy as np
import pytest
from PIL import Image

from pointbox import Detection, DetectResult, PointResult, exports
from tests.sdk.scripted import ANSWER

BOXES = [
    {"x_min": 0.1, "y_min": 0.2, "x_max": 0.3, "y_max": 0.4, "label": "cat", "phrase_index": 0, "score": 0.9},
    {"x_min": 0.5, "y_min": 0.5, "x_max": 1.0, "y_max": 1.0, "label": "dog", "phrase_index": 1, "score": 0.7},
]
POINTS = [
    {"x": 0.25, "y": 0.5, "label": "cat", "phrase_index": 0, "score": 0.9},
    {"x": 0.0, "y": 1.0, "label": "dog", "phrase_index": 1, "score": 0.7},
]
PHRASES = [{"object": name, "finish_reason": "stop", "truncated": False} for name in ("cat", "dog", "a bird")]
DETECTED = {**ANSWER, "objects": BOXES, "phrases": PHRASES}
POINTED = {**{k: v for k, v in ANSWER.items() if k != "objects"}, "points": POINTS, "phrases": PHRASES}


@pytest.fixture
def detected() -> DetectResult:
    return msgspec.convert(DETECTED, DetectResult)


@pytest.fixture
def pointed() -> PointResult:
    return msgspec.convert(POINTED, PointResult)


def box(x_min: float, y_min: float, x_max: float, y_max: float) -> Detection:
    return Detection(label="a", score=1.0, x_min=x_min, y_min=y_min, x_max=x_max, y_max=y_max)


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ((0.0, 0.0, 0.4, 0.4), 1.0),
        ((0.2, 0.0, 0.6, 0.4), 1 / 3),
        ((0.1, 0.1, 0.3, 0.3), 0.25),
        ((0.4, 0.4, 0.8, 0.8), 0.0),
        ((0.5, 0.0, 0.9, 0.4), 0.0),
    ],
)
def test_iou(other: tuple[float, float, float, float], expected: float) -> None:
    one = box(0.0, 0.0, 0.4, 0.4)
    assert one.iou(box(*other)) == pytest.approx(expected)
    assert box(*other).iou(one) == pytest.approx(expected)


def test_boxes_without_an_area() -> None:
    assert box(0.1, 0.1, 0.1, 0.1).iou(box(0.1, 0.1, 0.1, 0.1)) == 0.0


def test_pixels_and_area(detected: DetectResult, pointed: PointResult) -> None:
    assert detected[0].pixels == pytest.approx((64, 96, 192, 192))
    assert detected[1].pixels.x_max == 640
    assert detected[0].area == pytest.approx(0.04)
    assert pointed[0].pixels == (160, 240)
    assert pointed[1].pixels.y == 480


def test_pixels_have_two_digits() -> None:
    odd = {**DETECTED["image"], "width": 333, "height": 777}
    boxes = [{**BOXES[0], "x_min": 0.1, "y_min": 0.333333, "x_max": 0.7, "y_max": 0.666667}]
    result = msgspec.convert({**DETECTED, "image": odd, "objects": boxes}, DetectResult)
    assert result[0].pixels == (33.3, 259.0, 233.1, 518.0)
    assert result.to_coco()["annotations"][0]["bbox"] == [33.3, 259.0, 199.8, 259.0]
    points = [{**POINTED["points"][0], "x": 0.123456, "y": 0.5}]
    pointed = msgspec.convert({**POINTED, "image": odd, "points": points}, PointResult)
    assert pointed[0].pixels == (41.11, 388.5)


def test_a_result_is_a_sequence(detected: DetectResult, pointed: PointResult) -> None:
    assert [found.label for found in detected] == [found.label for found in pointed] == ["cat", "dog"]
    assert (len(detected), len(pointed), detected[-1].label) == (2, 2, "dog")
    assert not msgspec.convert({**DETECTED, "objects": []}, DetectResult)


def test_a_result_survives_pickling_and_json(detected: DetectResult, pointed: PointResult) -> None:
    for result in (detected, pointed):
        assert pickle.loads(pickle.dumps(result)) == result
        assert msgspec.json.decode(result.to_json(), type=type(result)) == result


def test_json_is_what_the_service_said(detected: DetectResult, pointed: PointResult) -> None:
    for result, said, found in ((detected, DETECTED, "objects"), (pointed, POINTED, "points")):
        words: dict[str, Any] = json.loads(result.to_json())
        assert words.pop("metrics")["queue_ms"] == 1.0
        assert words == {name: said[name] for name in words}
        assert found in words


def test_coco(detected: DetectResult, pointed: PointResult) -> None:
    data = exports.coco([("a.jpg", detected), ("b.jpg", detected)])
    assert data["images"][1] == {"id": 2, "file_name": "b.jpg", "width": 640, "height": 480}
    assert [category["name"] for category in data["categories"]] == ["cat", "dog", "a bird"]
    last = data["annotations"][3]
    assert (last["id"], last["image_id"], last["category_id"], last["iscrowd"]) == (4, 2, 2, 0)
    assert last["bbox"] == pytest.approx([320, 240, 320, 240])
    assert last["area"] == pytest.approx(320 * 240)
    assert last["score"] == 0.7
    one = detected.to_coco("a.jpg")
    assert one["annotations"] == data["annotations"][:2]
    points = pointed.to_coco()
    assert points["annotations"][0]["keypoints"] == [160, 240, 2]
    assert points["categories"][0]["keypoints"] == ["point"]
    assert json.loads(json.dumps([data, points])) == [data, points]


def test_coco_is_of_boxes_or_of_points(detected: DetectResult, pointed: PointResult) -> None:
    with pytest.raises(ValueError, match="do not mix in one data set"):
        exports.coco([("a.jpg", detected), ("b.jpg", pointed)])


def test_yolo(detected: DetectResult) -> None:
    assert detected.to_yolo() == (
        "0 0.200000 0.300000 0.200000 0.200000\n1 0.750000 0.750000 0.500000 0.500000\n"
    )
    assert [line[0] for line in detected.to_yolo(["bird", "dog", "cat"]).splitlines()] == ["2", "1"]
    with pytest.raises(ValueError, match="'dog' is not among"):
        detected.to_yolo(["cat"])


def test_yolo_has_no_points(pointed: PointResult) -> None:
    with pytest.raises(TypeError, match="boxes, not points"):
        pointed.to_yolo()
    with pytest.raises(TypeError, match="boxes, not points"):
        exports.yolo(pointed)  # type: ignore[arg-type]


def test_label_studio(detected: DetectResult, pointed: PointResult) -> None:
    task = detected.to_label_studio("https://example.org/a.jpg")
    assert task["data"] == {"image": "https://example.org/a.jpg"}
    (prediction,) = task["predictions"]
    assert prediction["model_version"] == "tiny"
    region = prediction["result"][1]
    assert region["type"] == "rectanglelabels"
    assert (region["original_width"], region["original_height"]) == (640, 480)
    value = region["value"]
    assert [value[name] for name in ("x", "y", "width", "height")] == pytest.approx([50, 50, 50, 50])
    assert value["rectanglelabels"] == ["dog"]
    point = pointed.to_label_studio("a")["predictions"][0]["result"][0]
    assert (point["type"], point["value"]["x"], point["value"]["y"]) == ("keypointlabels", 25, 50)
    assert len({region["id"] for region in prediction["result"]}) == 2


@pytest.mark.filterwarnings("ignore:OpenCV")
def test_supervision(detected: DetectResult, pointed: PointResult) -> None:
    boxes = detected.to_supervision()
    assert boxes.xyxy[1] == pytest.approx([320, 240, 640, 480])
    assert boxes.confidence == pytest.approx([0.9, 0.7])
    assert list(boxes.data["class_name"]) == ["cat", "dog"]
    points = pointed.to_supervision()
    assert points.xy[0, 0] == pytest.approx([160, 240])
    nothing = msgspec.convert({**DETECTED, "objects": []}, DetectResult)
    assert len(nothing.to_supervision()) == 0
    none = msgspec.convert({**POINTED, "points": []}, PointResult)
    assert len(none.to_supervision()) == 0


def test_drawing_marks_the_place_and_leaves_the_picture_alone(
    detected: DetectResult, pointed: PointResult
) -> None:
    picture = Image.new("RGB", (640, 480), "gray")
    drawn = np.asarray(detected.draw(picture)).astype(int)
    assert set(picture.get_flattened_data()) == {(128, 128, 128)}
    changed = (drawn != 128).any(axis=2)
    assert changed[96:192, 64].all()  # the left side of the first box
    assert changed[192, 64:192].all()
    assert not changed[110:180, 80:180].any()  # and nothing within it
    assert (drawn[150, 64] != drawn[300, 320]).any()  # another phrase, another colour
    points = np.asarray(pointed.draw(picture))
    assert tuple(points[240, 160]) != (128, 128, 128)


def test_drawing_on_a_picture_of_another_size(detected: DetectResult) -> None:
    drawn = np.asarray(detected.draw(np.full((240, 320, 3), 128, np.uint8)))
    assert drawn.shape == (240, 320, 3)
    assert (drawn[70, 32] != 128).any()


def test_labels_of_every_kind_stay_on_the_picture(detected: DetectResult) -> None:
    odd = ["x" * 300, "שלום", "🦊🏴", "two\nlines", ""]
    boxes = [{**BOXES[1], "label": label, "phrase_index": n} for n, label in enumerate(odd)]
    result = msgspec.convert({**DETECTED, "objects": boxes}, DetectResult)
    for size in ((8, 8), (1, 200), (640, 480)):
        assert result.draw(Image.new("RGB", size)).size == size


def test_drawing_without_a_picture(detected: DetectResult) -> None:
    with pytest.raises(ValueError, match="pass it, as draw"):
        detected.draw()

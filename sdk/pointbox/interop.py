"""Results as objects of Roboflow's `supervision`, which is not installed with this package."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import supervision

    from pointbox.results import DetectResult, PointResult


def detections(result: DetectResult) -> supervision.Detections:
    """The boxes in pixels; `class_id` is the phrase's index, `data["class_name"]` the phrase."""
    numpy, sv = _library("numpy"), _library("supervision")
    found: supervision.Detections = sv.Detections(
        xyxy=numpy.array([box.pixels for box in result.objects], dtype=numpy.float32).reshape(-1, 4),
        confidence=numpy.array([box.score for box in result.objects], dtype=numpy.float32),
        class_id=numpy.array([box.phrase_index for box in result.objects], dtype=int),
        data={"class_name": numpy.array([box.label for box in result.objects], dtype=str)},
    )
    return found


def key_points(result: PointResult) -> supervision.KeyPoints:
    """The points in pixels as skeletons of one key point each."""
    numpy, sv = _library("numpy"), _library("supervision")
    count = len(result.points)
    xy = numpy.array([point.pixels for point in result.points], dtype=numpy.float32)
    scores = numpy.array([point.score for point in result.points], dtype=numpy.float32)
    found: supervision.KeyPoints = sv.KeyPoints(
        xy=xy.reshape(count, 1, 2),
        keypoint_confidence=scores.reshape(count, 1),
        class_id=numpy.array([point.phrase_index for point in result.points], dtype=int),
        data={"class_name": numpy.array([point.label for point in result.points], dtype=str)},
    )
    return found


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError("This needs supervision: pip install supervision.") from error

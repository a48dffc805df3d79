"""Results as the files that labelling and training tools read: COCO, YOLO, Label Studio."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from pointbox.results import Detection, DetectResult, Point, PointResult

NO_POINTS = "YOLO's label files hold boxes, not points: use another format."
POINT_PERCENT = 0.5
"""How wide Label Studio shows a point, in percent of the image."""
PIXEL_DIGITS = 2
"""Of coordinates in pixels: a hundredth is finer than the fractions that they are made of."""


def coco(results: Iterable[tuple[str, DetectResult | PointResult]]) -> dict[str, Any]:
    """A COCO data set; boxes and sizes in pixels, one category for each different phrase.

    Args:
        results: file name and result of each image.

    Raises:
        ValueError: there are both boxes and points, which do not mix in one data set.
    """
    categories: dict[str, int] = {}
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    kinds: set[type] = set()
    for file_name, result in results:
        kinds.add(type(result))
        if len(kinds) > 1:
            raise ValueError("Boxes and points do not mix in one data set: make two.")
        image = {"id": len(images) + 1, "file_name": file_name}
        images.append(image | {"width": result.image.width, "height": result.image.height})
        for phrase in result.phrases:
            categories.setdefault(phrase.object, len(categories) + 1)
        for found in result:
            about = {"image_id": image["id"], "category_id": categories[found.label], "score": found.score}
            shape = _coco_shape(found, result.image.width, result.image.height)
            annotations.append({"id": len(annotations) + 1, **about, **shape, "iscrowd": 0})
    has_points = any(hasattr(kind, "points") for kind in kinds)
    extra = {"keypoints": ["point"], "skeleton": []} if has_points else {}
    return {
        "images": images,
        "categories": [{"id": number, "name": name, **extra} for name, number in categories.items()],
        "annotations": annotations,
    }


def yolo(result: DetectResult, names: list[str] | None = None) -> str:
    """The lines of a YOLO label file, one for each box; empty when nothing was found.

    Raises:
        TypeError: the result has points.
        ValueError: a box has a label that is not among `names`.
    """
    if not hasattr(result, "objects"):
        raise TypeError(NO_POINTS)
    classes = list(dict.fromkeys(phrase.object for phrase in result.phrases)) if names is None else names
    lines = []
    for box in result.objects:
        if box.label not in classes:
            raise ValueError(f"{box.label!r} is not among the names of the classes.")
        centre = (box.x_min + box.x_max) / 2, (box.y_min + box.y_max) / 2
        size = box.x_max - box.x_min, box.y_max - box.y_min
        numbers = " ".join(f"{number:.6f}" for number in (*centre, *size))
        lines.append(f"{classes.index(box.label)} {numbers}\n")
    return "".join(lines)


def label_studio(image: str, result: DetectResult | PointResult) -> dict[str, Any]:
    """A Label Studio task with the result as its prediction, for a labelling interface with an `Image` named
    `image` and `RectangleLabels` or `KeyPointLabels` named `label`.
    """
    scores = [found.score for found in result]
    about = {"model_version": result.model, "score": sum(scores) / len(scores) if scores else 0.0}
    size = result.image.width, result.image.height
    regions = [_region(number, result[number], *size) for number in range(len(result))]
    return {"data": {"image": image}, "predictions": [about | {"result": regions}]}


def _coco_shape(found: Detection | Point, width: int, height: int) -> dict[str, Any]:
    if hasattr(found, "x"):
        x, y = cast("Point", found).pixels
        return {"keypoints": [x, y, 2], "num_keypoints": 1, "bbox": [x, y, 0.0, 0.0], "area": 0.0}
    sides = [(found.x_max - found.x_min) * width, (found.y_max - found.y_min) * height]
    box = [*found.pixels[:2], *(round(side, PIXEL_DIGITS) for side in sides)]
    return {"bbox": box, "area": round(sides[0] * sides[1], PIXEL_DIGITS)}


def _region(number: int, found: Detection | Point, width: int, height: int) -> dict[str, Any]:
    """Label Studio counts in percent."""
    if hasattr(found, "x"):
        point = cast("Point", found)
        kind, place = "keypointlabels", {"x": 100 * point.x, "y": 100 * point.y, "width": POINT_PERCENT}
    else:
        kind = "rectanglelabels"
        place = {
            "x": 100 * found.x_min,
            "y": 100 * found.y_min,
            "width": 100 * (found.x_max - found.x_min),
            "height": 100 * (found.y_max - found.y_min),
            "rotation": 0,
        }
    return {
        "id": str(number),
        "type": kind,
        "from_name": "label",
        "to_name": "image",
        "original_width": width,
        "original_height": height,
        "image_rotation": 0,
        "score": found.score,
        "value": {**place, kind: [found.label]},
    }

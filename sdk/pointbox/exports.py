"""Results as the files that labelling and training tools read: COCO, YOLO, Label Studio."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pointbox.results import Detection, DetectResult, Point, PointResult

NO_POINTS = "YOLO's label files hold boxes, not points: use another format."
POINT_PERCENT = 0.5
"""How wide Label Studio shows a point, in percent of the image."""


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
            annotations.append({"id": len(annotations) + 1, **about, **_coco_shape(found), "iscrowd": 0})
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


def _coco_shape(found: Detection | Point) -> dict[str, Any]:
    pixels = found.pixels
    if len(pixels) == 2:
        x, y = pixels
        return {"keypoints": [x, y, 2], "num_keypoints": 1, "bbox": [x, y, 0.0, 0.0], "area": 0.0}
    x_min, y_min, x_max, y_max = pixels
    width, height = x_max - x_min, y_max - y_min
    return {"bbox": [x_min, y_min, width, height], "area": width * height}


def _region(number: int, found: Detection | Point, width: int, height: int) -> dict[str, Any]:
    corners = found.pixels
    x, y = corners[0] / width * 100, corners[1] / height * 100
    if len(corners) == 2:
        kind, shape = "keypointlabels", {"width": POINT_PERCENT}
    else:
        kind = "rectanglelabels"
        size = (corners[2] - corners[0]) / width, (corners[3] - corners[1]) / height
        shape = {"width": size[0] * 100, "height": size[1] * 100, "rotation": 0}
    return {
        "id": str(number),
        "type": kind,
        "from_name": "label",
        "to_name": "image",
        "original_width": width,
        "original_height": height,
        "image_rotation": 0,
        "score": found.score,
        "value": {"x": x, "y": y, **shape, kind: [found.label]},
    }

"""A job's results in the formats of other tools, gathered in files on disk so that memory stays flat.

The client, which stands alone, writes the same for results in memory; a test holds the two together.
"""

from __future__ import annotations

import csv
import json
import zipfile
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

from app.jobs.errors import JobError
from app.jobs.labels import LabelNames
from app.jobs.records import Format, JobSpec, Result, Trouble
from app.spatial.schemas import Box, Point, Task

POINT_PERCENT = 0.5
"""How wide Label Studio shows a point, in percent of the image."""
PIXEL_DIGITS = 2
"""Of coordinates in pixels: a hundredth is finer than the fractions that they are made of."""


class Export:
    """Takes every result of a job in order."""

    def add(self, result: Result) -> None:
        raise NotImplementedError

    def missing(self, trouble: Trouble) -> None:
        """An image without a result."""

    def files(self) -> Iterator[tuple[str, Path]]:
        """Name and place of what is to be written beside the results; after the last result."""
        raise NotImplementedError

    def notes(self) -> list[str]:
        """What a user of the files must know; after `files`."""
        return []


def make_export(spec: JobSpec, folder: Path) -> Export | None:
    """None for jsonl, which the results are.  `folder` is for files on the way."""
    if spec.format == "coco":
        return Coco(spec, folder)
    if spec.format == "yolo":
        return Yolo(spec, folder)
    if spec.format == "labelstudio":
        return LabelStudio(spec, folder)
    return None


def check_format(form: Format, task: Task) -> None:
    """Raises JobError for a format that cannot hold the answers."""
    if form == "yolo" and task == "point":
        raise JobError("YOLO's label files hold boxes, not points: use another format")


class Classes:
    """Labels -> numbers: the job's phrases in their order, then those of a manifest as they come."""

    def __init__(self, spec: JobSpec) -> None:
        self.numbers = {phrase: number for number, phrase in enumerate(dict.fromkeys(spec.phrases))}

    def __getitem__(self, label: str) -> int:
        return self.numbers.setdefault(label, len(self.numbers))


class Coco(Export):
    """One COCO file: pixels, category ids from 1; points as keypoints with one point."""

    def __init__(self, spec: JobSpec, folder: Path) -> None:
        self._classes, self._task = Classes(spec), spec.task
        self._images, self._found = Pieces(folder / "images"), Pieces(folder / "annotations")
        self._path = folder / "coco.json"

    def add(self, result: Result) -> None:
        number = self._images.count + 1
        size = {"width": result.image.width, "height": result.image.height}
        self._images.add({"id": number, "file_name": result.key, **size})
        for item in result.objects or result.points or ():
            about = {
                "id": self._found.count + 1,
                "image_id": number,
                "category_id": self._classes[item.label] + 1,
                "score": item.score,
                "iscrowd": 0,
            }
            self._found.add(about | _coco_place(item, result))

    def files(self) -> Iterator[tuple[str, Path]]:
        extra = {"keypoints": ["point"], "skeleton": []} if self._task == "point" else {}
        categories = [{"id": n + 1, "name": label, **extra} for label, n in self._classes.numbers.items()]
        with self._path.open("w", encoding="utf-8") as file:
            file.write(f'{{"categories": {json.dumps(categories, ensure_ascii=False)}, "images": [')
            self._images.pour(file)
            file.write('], "annotations": [')
            self._found.pour(file)
            file.write("]}\n")
        yield self._path.name, self._path


class Yolo(Export):
    """A zip of label files `class x y width height` of box centres in [0,1], and `data.yaml`.

    Tools find an image's labels by its name without the ending, so images that share it get label files for
    other names, and `images.csv` says what each of these images must be called.
    """

    def __init__(self, spec: JobSpec, folder: Path) -> None:
        self._classes = Classes(spec)
        self._path = folder / "yolo.zip"
        self._names, self._renamed = LabelNames(), 0
        self._found = (folder / "labels").open("w+", encoding="utf-8")

    def add(self, result: Result) -> None:
        lines = [
            f"{self._classes[box.label]} {(box.x_min + box.x_max) / 2:.6f} {(box.y_min + box.y_max) / 2:.6f} "
            f"{box.x_max - box.x_min:.6f} {box.y_max - box.y_min:.6f}\n"
            for box in result.objects or ()
        ]
        self._names.count(result.key)
        self._found.write(json.dumps([result.key, "".join(lines)]) + "\n")

    def missing(self, trouble: Trouble) -> None:
        if trouble.stage != "decode":  # a picture, as far as is known
            self._names.count(trouble.key)

    def files(self) -> Iterator[tuple[str, Path]]:
        names = "".join(
            f"  {number}: {json.dumps(label)}\n" for label, number in self._classes.numbers.items()
        )
        renamed = StringIO(newline="")
        rows = csv.writer(renamed)
        rows.writerow(("image", "rename_to", "label"))
        self._found.seek(0)
        with self._found, zipfile.ZipFile(self._path, "w", zipfile.ZIP_DEFLATED) as into:
            for key, lines in map(json.loads, self._found):
                label = self._names.of(key)
                into.writestr(f"labels/{label.name}.txt", lines)
                if label.image != key:
                    self._renamed += 1
                    rows.writerow((key, label.image, f"labels/{label.name}.txt"))
            into.writestr("data.yaml", f"path: .\ntrain: images\nval: images\nnames:\n{names}")
            if self._renamed:
                into.writestr("images.csv", renamed.getvalue())
        yield self._path.name, self._path

    def notes(self) -> list[str]:
        if not self._renamed:
            return []
        return [
            f"{self._renamed} images must be renamed as images.csv in yolo.zip says: another image has the "
            "same name up to the ending, or the name is no plain path. Until then they have no labels."
        ]


class LabelStudio(Export):
    """Tasks with predictions, for a project whose image is called `image` and whose labels `label`."""

    def __init__(self, spec: JobSpec, folder: Path) -> None:
        self._spec, self._tasks = spec, Pieces(folder / "tasks")
        self._path = folder / "labelstudio.json"

    def add(self, result: Result) -> None:
        found: list[Box] | list[Point] = result.objects or result.points or []
        prediction = {
            "model_version": f"{self._spec.model}-{self._spec.revision}",
            "score": sum(item.score for item in found) / len(found) if found else 0.0,
            "result": [_region(number, item, result) for number, item in enumerate(found)],
        }
        image = f"{self._spec.source.rstrip('/')}/{result.key}"
        self._tasks.add({"data": {"image": image}, "predictions": [prediction]})

    def files(self) -> Iterator[tuple[str, Path]]:
        with self._path.open("w", encoding="utf-8") as file:
            file.write("[")
            self._tasks.pour(file)
            file.write("]\n")
        yield self._path.name, self._path


class Pieces:
    """The elements of a JSON list, in a file until the list is written."""

    def __init__(self, path: Path) -> None:
        self.count = 0
        self._file = path.open("w+", encoding="utf-8")

    def add(self, element: dict[str, Any]) -> None:
        self._file.write(",\n" if self.count else "\n")
        json.dump(element, self._file, ensure_ascii=False)
        self.count += 1

    def pour(self, into: Any) -> None:
        self._file.seek(0)
        while block := self._file.read(1 << 20):
            into.write(block)
        self._file.close()


def _coco_place(item: Box | Point, result: Result) -> dict[str, Any]:
    width, height = result.image.width, result.image.height
    if isinstance(item, Point):
        x, y = round(item.x * width, PIXEL_DIGITS), round(item.y * height, PIXEL_DIGITS)
        return {"keypoints": [x, y, 2], "num_keypoints": 1, "bbox": [x, y, 0.0, 0.0], "area": 0.0}
    sides = [(item.x_max - item.x_min) * width, (item.y_max - item.y_min) * height]
    box = [round(value, PIXEL_DIGITS) for value in (item.x_min * width, item.y_min * height, *sides)]
    return {"bbox": box, "area": round(sides[0] * sides[1], PIXEL_DIGITS)}


def _region(number: int, item: Box | Point, result: Result) -> dict[str, Any]:
    """Label Studio counts in percent."""
    if isinstance(item, Point):
        kind, place = "keypointlabels", {"x": 100 * item.x, "y": 100 * item.y, "width": POINT_PERCENT}
    else:
        kind = "rectanglelabels"
        place = {
            "x": 100 * item.x_min,
            "y": 100 * item.y_min,
            "width": 100 * (item.x_max - item.x_min),
            "height": 100 * (item.y_max - item.y_min),
            "rotation": 0,
        }
    return {
        "id": str(number),
        "type": kind,
        "from_name": "label",
        "to_name": "image",
        "original_width": result.image.width,
        "original_height": result.image.height,
        "image_rotation": 0,
        "score": item.score,
        "value": {**place, kind: [item.label]},
    }

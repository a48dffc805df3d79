"""The formats of other tools, and manifests."""

from __future__ import annotations

import csv
import json
import unicodedata
import zipfile
from io import BytesIO
from pathlib import Path
from posixpath import splitext
from typing import Any

import msgspec
import pytest

from app.jobs.errors import JobError
from app.jobs.exports import Yolo, check_format
from app.jobs.planning import make_plan, read_items
from app.jobs.records import Format, JobSpec, Result, Trouble, to_lines
from app.jobs.running import finish
from app.jobs.shards import errors_name, results_name
from app.jobs.stores import FolderStore
from app.spatial.schemas import Box, ImageInfo, PhraseInfo, Point, Task
from pointbox import DetectResult, PointResult

SIZE = ImageInfo(width=200, height=100)
BOX = Box(x_min=0.1, y_min=0.2, x_max=0.5, y_max=0.6, label="dog", phrase_index=0, score=0.75)
CAT = Box(x_min=0.0, y_min=0.0, x_max=1.0, y_max=1.0, label="cat", phrase_index=1, score=0.5)
THIRD = Box(x_min=0.1, y_min=0.333333, x_max=0.7, y_max=0.666667, label="dog", phrase_index=0, score=1.0)
SPOT = Point(x=0.25, y=0.5, label="dog", phrase_index=0, score=0.75)


def spec_of(task: Task, form: Format, **more: object) -> JobSpec:
    given = {
        "source": "s3://pets/in/",
        "task": task,
        "phrases": ["dog", "bird"],
        "model": "m",
        "revision": "r",
    }
    return JobSpec(format=form, **(given | more))  # type: ignore[arg-type]


def exported(tmp_path: Path, spec: JobSpec, results: list[Result], name: str) -> bytes:
    """What a job with these results writes."""
    source, target = FolderStore(tmp_path / "in"), FolderStore(tmp_path / "out")
    for result in results:
        source.put(result.key, b"x")
    plan = make_plan("job", spec, source, target)
    target.put(results_name(0), to_lines(results))
    target.put(errors_name(0), b"")
    finish(plan, target)
    return target.get(name)[0]


def boxes(key: str, *found: Box) -> Result:
    phrases = [PhraseInfo(object=box.label, finish_reason="stop", truncated=False) for box in found]
    return Result(key=key, image=SIZE, objects=list(found), phrases=phrases)


def test_coco(tmp_path: Path) -> None:
    results = [boxes("a.jpg", BOX, CAT), boxes("sub/b.png"), boxes("c.jpg", BOX)]
    coco = json.loads(exported(tmp_path, spec_of("detect", "coco"), results, "coco.json"))
    assert coco["categories"] == [
        {"id": 1, "name": "dog"},
        {"id": 2, "name": "bird"},
        {"id": 3, "name": "cat"},
    ]
    assert coco["images"][1] == {"id": 2, "file_name": "sub/b.png", "width": 200, "height": 100}
    assert [(a["id"], a["image_id"], a["category_id"]) for a in coco["annotations"]] == [
        (1, 1, 1),
        (2, 1, 3),
        (3, 3, 1),
    ]
    assert coco["annotations"][0]["bbox"] == pytest.approx([20, 20, 80, 40])
    assert coco["annotations"][0]["area"] == pytest.approx(3200)
    assert coco["annotations"][0]["score"] == 0.75


def test_coco_points(tmp_path: Path) -> None:
    result = Result(key="a.jpg", image=SIZE, points=[SPOT], phrases=[])
    coco = json.loads(exported(tmp_path, spec_of("point", "coco"), [result], "coco.json"))
    assert coco["annotations"][0]["keypoints"] == [50, 50, 2]
    assert coco["categories"][0]["keypoints"] == ["point"]


def test_coco_without_an_object(tmp_path: Path) -> None:
    coco = json.loads(exported(tmp_path, spec_of("detect", "coco"), [boxes("a.jpg")], "coco.json"))
    assert (len(coco["images"]), coco["annotations"]) == (1, [])


def test_yolo(tmp_path: Path) -> None:
    results = [boxes("a.jpg", BOX, CAT), boxes("b.png"), boxes("sub/b.jpg", CAT)]
    with zipfile.ZipFile(
        BytesIO(exported(tmp_path, spec_of("detect", "yolo"), results, "yolo.zip"))
    ) as files:
        assert set(files.namelist()) == {"labels/a.txt", "labels/b.txt", "labels/sub/b.txt", "data.yaml"}
        first = files.read("labels/a.txt").decode().splitlines()
        assert first == ["0 0.300000 0.400000 0.400000 0.400000", "2 0.500000 0.500000 1.000000 1.000000"]
        assert files.read("labels/b.txt") == b""
        assert '  2: "cat"' in files.read("data.yaml").decode()


ONE_STEM = [
    ["a.jpg", "a.png"],
    ["sub/a.jpg", "sub/a.png", "a.jpg"],
    ["A.jpg", "a.png"],
    ["sub/A.jpg", "Sub/a.png"],
    ["é.jpg", "e\u0301.png"],
    ["straße.jpg", "STRASSE.png"],
    ["a", "a.jpg"],
    ["a.b.jpg", "a.b.png", "a.jpg"],
    ["a.jpg", "a.png", "a.png.jpg", "a.png.png", "a.jpg.jpg"],
    ["/d.jpg", "d.jpg", "d//d.jpg", "d/d.jpg", "./d.jpg"],
    ["../../x.jpg", "a/../b.jpg", "..\\..\\y.jpg", ".", ".hidden", "a."],
]


@pytest.mark.parametrize("keys", ONE_STEM, ids=lambda keys: keys[0])
def test_no_image_gets_the_labels_of_another(tmp_path: Path, keys: list[str]) -> None:
    """Each image has another number of boxes; tools see its labels, or none until it is renamed."""
    spec = spec_of("detect", "yolo")
    export = Yolo(spec, tmp_path)
    for number, key in enumerate(keys, 1):
        export.add(boxes(key, *[BOX] * number))
    ((_, path),) = export.files()
    with zipfile.ZipFile(path) as files:
        labels = {name.lower(): files.read(name).count(b"\n") for name in files.namelist()}
        renames = {}
        if "images.csv" in labels:
            rows = csv.DictReader(files.read("images.csv").decode().splitlines())
            renames = {row["image"]: row["rename_to"] for row in rows}
    assert len(labels) == len(keys) + 1 + bool(renames)
    assert not any(".." in name.split("/") or name.startswith("/") or "\\" in name for name in labels)
    for number, key in enumerate(keys, 1):
        before = labels.get(f"labels/{splitext(key)[0]}.txt".lower())
        after = labels[f"labels/{splitext(renames.get(key, key))[0]}.txt".lower()]
        assert after == number
        assert before in (None, number)
    assert bool(export.notes()) == bool(renames)
    images = [unicodedata.normalize("NFC", renames.get(key, key)).casefold() for key in keys]
    assert len(set(images)) == len(images)


def test_an_image_without_a_result_gets_no_labels_of_another(tmp_path: Path) -> None:
    export = Yolo(spec_of("detect", "yolo"), tmp_path)
    export.add(boxes("a.jpg", BOX))
    export.add(boxes("b.jpg", BOX))
    export.missing(Trouble(key="a.png", stage="model", reason="it took too long"))
    export.missing(Trouble(key="b.json", stage="decode", reason="no picture"))
    ((_, path),) = export.files()
    with zipfile.ZipFile(path) as files:
        assert set(files.namelist()) == {"labels/a.jpg.txt", "labels/b.txt", "data.yaml", "images.csv"}
        assert files.read("images.csv") == (b"image,rename_to,label\r\na.jpg,a.jpg.jpg,labels/a.jpg.txt\r\n")


def test_a_job_says_that_images_must_be_renamed(tmp_path: Path) -> None:
    results = [boxes("a.jpg", BOX), boxes("a.png", CAT, CAT)]
    summary = json.loads(exported(tmp_path, spec_of("detect", "yolo"), results, "summary.json"))
    (note,) = summary["notes"]
    assert "2 images must be renamed as images.csv in yolo.zip says" in note


def test_yolo_has_no_points() -> None:
    with pytest.raises(JobError, match="boxes, not points"):
        check_format("yolo", "point")


@pytest.mark.parametrize("task", ["detect", "point"])
def test_label_studio(tmp_path: Path, task: Task) -> None:
    result = (
        boxes("a.jpg", BOX)
        if task == "detect"
        else Result(key="a.jpg", image=SIZE, points=[SPOT], phrases=[])
    )
    (entry,) = json.loads(exported(tmp_path, spec_of(task, "labelstudio"), [result], "labelstudio.json"))
    assert entry["data"] == {"image": "s3://pets/in/a.jpg"}
    (region,) = entry["predictions"][0]["result"]
    kind = "rectanglelabels" if task == "detect" else "keypointlabels"
    assert (region["type"], region["value"][kind]) == (kind, ["dog"])
    assert (region["value"]["x"], region["value"]["y"]) == pytest.approx(
        (10, 20) if task == "detect" else (25, 50)
    )


def test_pixels_have_two_digits(tmp_path: Path) -> None:
    result = Result(key="a.jpg", image=ImageInfo(width=333, height=777), objects=[THIRD], phrases=[])
    coco = json.loads(exported(tmp_path, spec_of("detect", "coco"), [result], "coco.json"))
    assert coco["annotations"][0]["bbox"] == [33.3, 259.0, 199.8, 259.0]
    assert coco["annotations"][0]["area"] == 51748.3
    point = Point(x=0.123456, y=0.5, label="dog", phrase_index=0, score=0.75)
    spot = Result(key="a.jpg", image=ImageInfo(width=333, height=777), points=[point], phrases=[])
    coco = json.loads(exported(tmp_path / "point", spec_of("point", "coco"), [spot], "coco.json"))
    assert coco["annotations"][0]["keypoints"] == [41.11, 388.5, 2]


@pytest.mark.parametrize("task", ["detect", "point"])
def test_the_client_writes_the_same(tmp_path: Path, task: Task) -> None:
    result = (
        boxes("a.jpg", BOX, CAT, THIRD)
        if task == "detect"
        else Result(key="a.jpg", image=SIZE, points=[SPOT, SPOT], phrases=[])
    )
    names = ["dog", "bird"] if task == "point" else ["dog", "cat"]
    phrases = [PhraseInfo(object=name, finish_reason="stop", truncated=False) for name in names]
    common = {"request_id": "r", "finish_reason": "stop", "truncated": False, "metrics": {}, "model": "m-r"}
    answer = {**common, **msgspec.to_builtins(result), "phrases": msgspec.to_builtins(phrases)}
    theirs = msgspec.convert(answer, DetectResult if task == "detect" else PointResult)

    def ours(form: Format, name: str) -> bytes:
        return exported(tmp_path / form, spec_of(task, form, phrases=names), [result], name)

    assert read(ours("coco", "coco.json")) == read(json.dumps(theirs.to_coco("a.jpg")))
    (entry,) = read(ours("labelstudio", "labelstudio.json"))
    assert entry == read(json.dumps(theirs.to_label_studio("s3://pets/in/a.jpg")))
    if task == "detect":
        with zipfile.ZipFile(BytesIO(ours("yolo", "yolo.zip"))) as files:
            assert files.read("labels/a.txt").decode() == theirs.to_yolo()


def read(text: str | bytes) -> Any:
    """JSON whose numbers need not agree in their last digits."""
    return json.loads(text, parse_float=lambda number: round(float(number), 9))


def planned(tmp_path: Path, name: str, text: str, phrases: list[str]) -> dict[str, list[str] | None]:
    source, target = FolderStore(tmp_path), FolderStore(tmp_path / "out")
    source.put(name, text.encode())
    make_plan("job", spec_of("detect", "jsonl", manifest=name, phrases=phrases), source, target)
    return {item.key: item.phrases for item in read_items(target, 0)}


def test_a_manifest_of_json_lines(tmp_path: Path) -> None:
    rows = (
        {"image": "a.jpg", "phrases": ["dog", "cat"]},
        {"image": "b ü.jpg"},
        {"image": "a.jpg", "phrases": ["dog", "ball"]},
    )
    text = "\n\n".join(map(json.dumps, rows))
    assert planned(tmp_path, "list.jsonl", text, ["bird"]) == {
        "a.jpg": ["dog", "cat", "ball"],
        "b ü.jpg": None,
    }


def test_a_manifest_of_comma_separated_values(tmp_path: Path) -> None:
    text = '\ufeffimage,phrase\r\n"a, b.jpg",dog\r\n"a, b.jpg",cat\r\nc.jpg,dog\r\n'
    assert planned(tmp_path, "list.csv", text, []) == {"a, b.jpg": ["dog", "cat"], "c.jpg": ["dog"]}
    assert planned(tmp_path, "short.csv", "image,phrase\na.jpg\nb.jpg,\n", ["dog"]) == {
        "a.jpg": None,
        "b.jpg": None,
    }


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("m.jsonl", "nonsense", "line 1"),
        ("m.jsonl", '{"image": "a.jpg", "phrase": "dog"}', "unknown field `phrase`"),
        ("m.jsonl", '{"image": "a.jpg"}', "line 1: a.jpg has no phrase, and the job has none"),
        ("m.jsonl", '{"image": "a.jpg", "phrases": [" "]}', "must not be blank"),
        ("m.csv", "file,phrase\na.jpg,dog\n", "no column image"),
        ("m.csv", "image,phrase\n,dog\n", "line 2: the image has no name"),
        ("m.csv", "image\na.jpg\n", "line 2: a.jpg has no phrase"),
        ("m.csv", "image,phrase\na.jpg\n", "line 2: a.jpg has no phrase"),
        ("m.csv", "image,phrase\na.jpg,dog, brown\n", "line 2: there are more values than the first line"),
    ],
)
def test_a_manifest_with_a_mistake(tmp_path: Path, name: str, text: str, reason: str) -> None:
    with pytest.raises(JobError, match=reason):
        planned(tmp_path, name, text, [])

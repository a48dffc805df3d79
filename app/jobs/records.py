"""The lines of a job's files, all JSON. Fields may be added, never renamed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from app.spatial.schemas import Box, DetectAnswer, ImageInfo, PhraseInfo, Point, PointAnswer, Task

Format = Literal["jsonl", "coco", "yolo", "labelstudio"]
Stage = Literal["read", "decode", "model"]


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a job does: the same spec gives the same results."""

    source: str
    manifest: str | None = None
    task: Task
    phrases: list[str]
    """Asked about every image for which a manifest names none."""
    model: str
    revision: str
    """Of the model's weights."""
    max_objects: int = 50
    min_score: float = 0.0
    dedupe: bool = True
    format: Format = "jsonl"
    shard_size: int = 500
    """Images whose results are written as one object."""


class Item(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An image of a job. `etag` is empty where the source told none."""

    key: str
    etag: str = ""
    size: int = 0
    phrases: list[str] | None = None
    """Where they are not those of the job."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """`plan.json`: written last, when every `plan/N.jsonl` is there."""

    job: str
    spec: JobSpec
    images: int
    shards: int
    parts: list[str] = []
    """Digests of `plan/N.jsonl`; none in plans of earlier versions."""


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of `results/N.jsonl`. Coordinates are in [0,1] of the upright image."""

    key: str
    image: ImageInfo
    objects: list[Box] | None = None
    points: list[Point] | None = None
    phrases: list[PhraseInfo]
    truncated: bool = False
    notes: list[str] = []

    @classmethod
    def of(cls, key: str, answer: DetectAnswer | PointAnswer) -> Result:
        return cls(
            key=key,
            image=answer.image,
            objects=answer.objects if isinstance(answer, DetectAnswer) else None,
            points=answer.points if isinstance(answer, PointAnswer) else None,
            phrases=answer.phrases,
            truncated=answer.truncated,
            notes=answer.notes or [],
        )


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `errors/N.jsonl`: an image without a result."""

    key: str
    stage: Stage
    reason: str


class ShardCount(msgspec.Struct, frozen=True, kw_only=True):
    """What a finished shard holds. The digests are of its files; empty: an earlier version wrote none."""

    images: int
    errors: int
    objects: int
    results_digest: str = ""
    errors_digest: str = ""


class ShardEntry(ShardCount, frozen=True, kw_only=True):
    """A shard in `index.json`."""

    results: str
    errors_file: str


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """`summary.json`, written last of all."""

    job: str
    spec: JobSpec
    images: int
    """With a result or an error."""
    errors: int
    objects: int
    objects_by_phrase: dict[str, int]
    errors_by_reason: dict[str, int]
    notes: list[str] = []
    """What whoever uses the files must know."""
    files: dict[str, str] = {}
    """Digests of the files beside it that were made of all shards."""


_encode = msgspec.json.Encoder().encode


def digest(data: bytes | Path) -> str:
    """Length in bytes and SHA-256 of a file's content."""
    if isinstance(data, bytes):
        return f"{len(data)}-{hashlib.sha256(data).hexdigest()}"
    with data.open("rb") as file:
        return f"{data.stat().st_size}-{hashlib.file_digest(file, 'sha256').hexdigest()}"


def length_of(digest: str) -> int:
    """Bytes of what has this digest."""
    return int(digest.partition("-")[0])


def to_lines(records: Iterable[msgspec.Struct]) -> bytes:
    """One JSON document a line."""
    return b"".join(_encode(record) + b"\n" for record in records)


def to_document(record: object) -> bytes:
    """For people to read, too."""
    return msgspec.json.format(_encode(record), indent=2) + b"\n"

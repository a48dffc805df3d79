"""What callers ask and are told about jobs over HTTP. `/v1` only ever gains fields."""

from __future__ import annotations

import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

from app.jobs.records import Format
from app.spatial.schemas import (
    MAX_NAME_CHARS,
    Box,
    ImageInfo,
    ObjectCount,
    PhraseInfo,
    Point,
    Task,
)

State = Literal["queued", "running", "completed", "failed", "cancelled"]
Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_CHARS)]
Prefix = Annotated[str, Meta(max_length=1024)]


class StorePlace(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A store of the server's configuration, and a folder in it."""

    store: Name
    prefix: Prefix = ""


class StoreInfo(Struct, frozen=True, kw_only=True):
    """A store that the caller may name; `write`: also for results."""

    name: str
    write: bool


class StoreList(Struct, frozen=True, kw_only=True):
    """By name."""

    stores: list[StoreInfo]


class SourcePlace(StorePlace, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`manifest`: a .jsonl or .csv file below the prefix that names the images, and their phrases."""

    manifest: Annotated[str, Meta(max_length=1024)] | None = None


class JobRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job as JSON."""

    source: SourcePlace
    out: StorePlace
    """Results go to the folder `{job id}/` below it."""
    task: Task = "detect"
    objects: list[str] = []
    """Up to 32, asked about every image for which a manifest names no phrases."""
    model: Name | None = None
    max_objects: ObjectCount = 50
    min_score: Annotated[float, Meta(ge=0, le=1)] = 0.0
    dedupe: bool = True
    format: Format = "jsonl"
    shard_size: Annotated[int, Meta(ge=1, le=10_000)] = 500
    webhook: Annotated[str, Meta(max_length=2000)] | None = None
    """Gets the job as a POST when it has ended."""


class JobProgress(Struct, frozen=True, kw_only=True):
    """`images` counts all of the plan, `done` those with a result or an error."""

    images: int | None
    done: int
    errors: int
    objects: int
    images_per_s: float | None
    seconds_left: float | None


class WebhookInfo(Struct, frozen=True, kw_only=True):
    """What became of a job's webhook.

    `attempts` counts those that were begun, `status` is of the last answer, `error` why the last one failed.
    """

    state: Literal["pending", "delivered", "failed"]
    attempts: int
    status: int | None
    error: str


class JobInfo(Struct, frozen=True, kw_only=True):
    """A job and how far it is.

    `notes`: what whoever uses its files must know. `webhook`: once it has ended, if it has one.
    """

    id: str
    state: State
    reason: str
    request: JobRequest
    model: str | None
    revision: str | None
    progress: JobProgress
    created_at: datetime.datetime
    started_at: datetime.datetime | None
    ended_at: datetime.datetime | None
    notes: list[str] = []
    webhook: WebhookInfo | None = None


class JobList(Struct, frozen=True, kw_only=True):
    """Newest first. `next` goes into `before` for those that are older."""

    jobs: list[JobInfo]
    next: str | None


class Sample(Struct, frozen=True, kw_only=True):
    """A result of a job and where its picture is; coordinates are in [0,1] of it.

    `picture` is a path on this server; the JPEG behind it is upright and may be smaller than `image` says.
    """

    number: int
    key: str
    image: ImageInfo
    objects: list[Box] | None
    points: list[Point] | None
    phrases: list[PhraseInfo]
    picture: str


class SampleList(Struct, frozen=True, kw_only=True):
    """In the order of the plan."""

    samples: list[Sample]

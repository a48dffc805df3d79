"""Jobs over an image bucket: what is told about them, what is sent, how the lines of their files are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Generic, Literal, TypedDict, TypeVar
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr

from pointbox.arguments import Phrases, given, name_of, phrases_of, text
from pointbox.calls import Call
from pointbox.config import Config
from pointbox.errors import InvalidResponse
from pointbox.results import Detection, ImageInfo, PhraseResult, Point

State = Literal["queued", "running", "completed", "failed", "cancelled"]
ENDED: frozenset[str] = frozenset(("completed", "failed", "cancelled"))
READING_S = 86_400.0
"""How long the lines of one job may take altogether; a silent service is given up much earlier."""


class JobOptions(TypedDict, total=False):
    """What can be asked for beside places and phrases. What is left out, the service decides."""

    manifest: str
    """A .jsonl or .csv file below the source that names the images, and perhaps their phrases."""
    task: Literal["detect", "point"]
    model: str
    max_objects: int
    min_score: float
    dedupe: bool
    format: Literal["jsonl", "coco", "yolo", "labelstudio"]
    shard_size: int
    """Images whose results are written at once."""
    webhook: str
    """A URL that gets the job when it has ended."""


class JobPlace(Struct, frozen=True, kw_only=True):
    """A store of the service, and a folder in it."""

    store: str
    prefix: str = ""
    manifest: str | None = None


class JobRequest(Struct, frozen=True, kw_only=True):
    """What was asked."""

    source: JobPlace
    out: JobPlace
    """The results are in the folder `{job id}/` below it."""
    task: str
    objects: list[str]
    model: str | None
    max_objects: int
    min_score: float
    dedupe: bool
    format: str
    shard_size: int
    webhook: str | None


class JobProgress(Struct, frozen=True, kw_only=True):
    """How far a job is."""

    images: int | None
    """Of the whole job; None until it is planned."""
    done: int
    """With a result or an error."""
    errors: int
    objects: int
    images_per_s: float | None
    seconds_left: float | None


class JobWebhook(Struct, frozen=True, kw_only=True):
    """How the service's calls of a job's webhook went."""

    state: str
    """pending, delivered or failed."""
    attempts: int
    status: int | None
    """HTTP status of the last answer."""
    error: str
    """Why the last attempt failed."""


class Job(Struct, frozen=True, kw_only=True):
    """A job and how far it is."""

    id: str
    state: State
    reason: str
    """Why it failed, or what it waits for."""
    request: JobRequest
    model: str | None
    revision: str | None
    """Of the model, which all results come from."""
    progress: JobProgress
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    notes: list[str] = []
    """What to know before using its files."""
    webhook: JobWebhook | None = None
    """What became of its webhook, once it has ended and if it has one."""

    @property
    def ended(self) -> bool:
        """Whether it is completed, failed or cancelled."""
        return self.state in ENDED


class JobPage(Struct, frozen=True, kw_only=True):
    """Some jobs, newest first."""

    jobs: list[Job]
    next: str | None
    """What the older ones come after."""


class JobResult(Struct, frozen=True, kw_only=True):
    """The answer about one image of a job: boxes or points, as was asked."""

    key: str
    """The image's name in the source."""
    image: ImageInfo
    phrases: list[PhraseResult]
    objects: list[Detection] = []
    points: list[Point] = []
    truncated: bool = False
    notes: list[str] = []

    def __post_init__(self) -> None:
        for found in (*self.objects, *self.points):
            force_setattr(found, "image_width", self.image.width)
            force_setattr(found, "image_height", self.image.height)

    def to_json(self) -> str:
        """One line: the answer in fractions of the upright image."""
        values = msgspec.to_builtins(self)
        for found in (*values["objects"], *values["points"]):
            del found["image_width"], found["image_height"]
        return msgspec.json.encode(values).decode()


class JobFailure(Struct, frozen=True, kw_only=True):
    """An image of a job that has no result."""

    key: str
    stage: str
    """read, decode or model."""
    reason: str


L = TypeVar("L", bound=JobResult | JobFailure)


class Lines(Generic[L]):
    """JSON lines in pieces of any size -> records."""

    def __init__(self, kind: type[L], request_id: str) -> None:
        self._decode: Callable[[bytes], L] = msgspec.json.Decoder(kind).decode
        self._request_id = request_id
        self._rest = b""

    def feed(self, piece: bytes) -> Iterator[L]:
        """The records that `piece` completes; an empty one is the end.

        Raises:
            InvalidResponse: a line is no such record.
        """
        *lines, self._rest = (self._rest + (piece or b"\n")).split(b"\n")
        for line in lines:
            if line:
                yield self._read(line)

    def _read(self, line: bytes) -> L:
        try:
            return self._decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            message = f"This is not how Pointbox tells of a job ({error}): is the URL right?"
            raise InvalidResponse(message, self._request_id) from None


_read_job = msgspec.json.Decoder(Job).decode


def submit(config: Config, source: str, out: str, phrases: Phrases, options: JobOptions) -> Call[Job]:
    """A call that submits a job.

    Raises:
        TypeError: an option is not known, or a place or a phrase is no string.
    """
    fields = given(options, JobOptions)
    place = _place("source", source)
    if manifest := fields.pop("manifest", None):
        place["manifest"] = manifest
    if config.model is not None:
        fields.setdefault("model", config.model)
    body = {"source": place, "out": _place("out", out), "objects": phrases_of(phrases), **fields}
    return Call("POST", "/v1/jobs", _read_job, config.timeout_s, json=body)


def listed(config: Config, before: str | None, limit: int) -> Call[JobPage]:
    """A call for the jobs that are older than `before`."""
    query = urlencode({"limit": limit} | ({"before": before} if before else {}))
    return Call("GET", f"/v1/jobs?{query}", msgspec.json.Decoder(JobPage).decode, config.timeout_s)


def show(config: Config, job: Job | str) -> Call[Job]:
    """A call that says how far a job is."""
    return Call("GET", _path(job), _read_job, config.timeout_s)


def change(config: Config, job: Job | str, action: Literal["cancel", "resume"]) -> Call[Job]:
    """A call that stops a job or goes on with it."""
    return Call("POST", f"{_path(job)}/{action}", _read_job, config.timeout_s)


def lines(job: Job | str, what: Literal["results", "errors"], shard: int | None) -> Call[bytes]:
    """A call whose answer is to be read piece by piece."""
    query = "" if shard is None else f"?shard={shard}"
    return Call("GET", f"{_path(job)}/{what}{query}", bytes, READING_S)


def _path(job: Job | str) -> str:
    return f"/v1/jobs/{quote(job.id if isinstance(job, Job) else name_of('job', job), safe='')}"


def _place(name: str, value: str) -> dict[str, Any]:
    store, _, prefix = text(name, value).partition("/")
    return {"store": store, "prefix": prefix}

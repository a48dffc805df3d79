"""What is sent and how the answer is read, without any input or output: both clients share it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypedDict, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Struct

from pointbox.arguments import Phrases, given, id_of, phrases_of, places, region, seconds
from pointbox.config import Config
from pointbox.errors import InvalidResponse
from pointbox.pictures import ImageHandle, Link, Prepared, Upload
from pointbox.results import Detection, DetectResult, Found, Point, PointResult, Result

F = TypeVar("F", bound=Found)
R = TypeVar("R", bound=Result)
T = TypeVar("T")

GRACE_S = 10.0
"""How much longer than the deadline it gave the service a client waits for its answer."""


class Options(TypedDict, total=False):
    """What can be asked for beside the phrases. What is left out, the service decides."""

    model: str
    """A name from `models()`; the client's, or else the service's, by default."""
    max_objects: int
    """Stop after this many for each phrase."""
    region: Sequence[float]
    """x_min, y_min, x_max, y_max, fractions: answers lie wholly inside. The image is not cropped."""
    min_score: float
    """Leave out what is below, 0 to 1."""
    dedupe: bool
    """Drop an object that repeats an earlier one of its phrase."""
    temperature: float
    """0, the service's default, takes the most likely token each time; above it tokens are drawn."""
    top_p: float
    """Draw among the most likely tokens that together have this probability."""
    spatial_refs: Sequence[Sequence[float]]
    """Points and boxes, fractions, that the phrases refer to; models that take none refuse them."""
    timeout_s: float
    """The service's deadline: what was found until then comes back, `truncated`."""
    priority: Literal["interactive", "batch"]
    adapter: str
    id: str
    """Comes back in the result."""


class Model(Struct, frozen=True, kw_only=True):
    """A model that the service can be asked for now."""

    name: str
    family: str = ""
    revision: str = ""
    tasks: list[str] = []
    adapters: list[str] = []
    """Fine-tuned variants, for the option `adapter`."""
    workers: int = 0
    capacity: int = 0
    """Phrases that its workers decode at the same time."""
    load: int = 0
    """How many of these are taken."""


class _Models(Struct, frozen=True):
    models: list[Model]


@dataclass(frozen=True, slots=True)
class Task(Generic[F, R]):
    """What is asked on one route, and what comes back."""

    path: str
    found: type[F]
    result: type[R]


DETECT: Task[Detection, DetectResult] = Task("/v1/detect", Detection, DetectResult)
POINT: Task[Point, PointResult] = Task("/v1/point", Point, PointResult)


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One logical call: however often it is sent, it is the same one to the service."""

    method: str
    path: str
    decode: Callable[[bytes], T]
    """From the body of a successful answer to the value that the caller gets."""
    limit_s: float
    files: Mapping[str, Any] | None = None
    fields: Mapping[str, Any] | None = None
    json: Mapping[str, Any] | None = None
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Idempotency-Key and X-Request-Id of every try."""

    def headers(self) -> dict[str, str]:
        """Its own, beside those of the client."""
        headers = {"X-Request-Id": self.id}
        if self.method == "POST":
            headers["Idempotency-Key"] = self.id
        return headers

    def read(self, body: bytes) -> T:
        """The value in the body of a successful answer.

        Raises:
            InvalidResponse: it is something else.
        """
        try:
            return self.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            message = f"This is not how Pointbox answers ({error}): is the URL right?"
            raise InvalidResponse(message, self.id) from None


def ask(
    task: Task[F, R], config: Config, image: Prepared, phrases: Phrases, options: Options, *, stream: bool
) -> Call[R]:
    """A call of /detect or /point.

    Raises:
        TypeError, ValueError: as `fields_of`.
    """
    fields = fields_of(config, phrases, options)
    if stream:
        fields["stream"] = True
    limit_s = config.timeout_s
    if "timeout_s" in fields:
        limit_s = max(limit_s, fields["timeout_s"] + GRACE_S)
    read = msgspec.json.Decoder(task.result).decode
    if isinstance(image, Upload):
        texts = {name: _text(value) for name, value in fields.items() if name != "objects"}
        form = {"object": fields["objects"], **texts}
        return Call("POST", task.path, read, limit_s, files=_file(image), fields=form)
    where = {"image_url": image.url} if isinstance(image, Link) else {"image_id": image.image_id}
    return Call("POST", task.path, read, limit_s, json={**where, **fields})


def upload(config: Config, image: Upload | Link) -> Call[ImageHandle]:
    """A call that leaves an image with the service, ready for the model that is going to be asked."""
    read = msgspec.json.Decoder(ImageHandle).decode
    fields = {} if config.model is None else {"model": config.model}
    if isinstance(image, Link):
        json = {"image_url": image.url, **fields}
        return Call("POST", "/v1/images", read, config.timeout_s, json=json)
    return Call("POST", "/v1/images", read, config.timeout_s, files=_file(image), fields=fields)


def forget(config: Config, image: ImageHandle | str) -> Call[None]:
    """A call that takes an image away from the service."""
    image_id = id_of("image", image.image_id if isinstance(image, ImageHandle) else image)
    return Call("DELETE", f"/v1/images/{quote(image_id, safe='')}", lambda _: None, config.timeout_s)


def models(config: Config) -> Call[list[Model]]:
    """A call that lists the models."""
    read = msgspec.json.Decoder(_Models).decode
    return Call("GET", "/v1/models", lambda body: read(body).models, config.timeout_s)


def fields_of(config: Config, phrases: Phrases, options: Options) -> dict[str, Any]:
    """What is asked about an image, whichever it is.

    Raises:
        TypeError, ValueError: an option is not known, or there are no phrases.
    """
    asked = phrases_of(phrases)
    if not asked:
        raise ValueError("Say what to look for: there is no phrase.")
    fields: dict[str, Any] = {"objects": asked}
    if config.model is not None:
        fields["model"] = config.model
    fields |= given(options, Options)
    if "region" in fields:
        fields["region"] = region(fields["region"])
    if "spatial_refs" in fields:
        fields["spatial_refs"] = places(fields["spatial_refs"])
    if "timeout_s" in fields:
        fields["timeout_s"] = seconds("timeout_s", fields["timeout_s"])
    return fields


def _text(value: Any) -> str:
    """A value as a field of a form."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, list):
        return str(value)
    return ";".join(map(_text, value)) if isinstance(value[0], list) else ",".join(map(repr, value))


def _file(image: Upload) -> dict[str, Any]:
    return {"image": ("image", image.data, "application/octet-stream")}

"""What a caller may ask of /detect and /point, and what is answered. `/v1` only ever gains fields."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from app.admission.messages import Priority

MAX_PHRASES = 32
MAX_PHRASE_CHARS = 256
MAX_NAME_CHARS = 256
MAX_OBJECTS = 1000
DEFAULT_MAX_OBJECTS = 50

Task = Literal["detect", "point"]
Units = Literal["normalized", "pixels"]
FinishReason = Literal["stop", "repetition", "max_objects", "length", "deadline"]

ObjectCount = Annotated[int, Meta(ge=1, le=MAX_OBJECTS)]


MAX_PLACES = 32
MAX_TEMPERATURE = 10.0
Temperature = Annotated[float, Meta(ge=0, le=MAX_TEMPERATURE)]
TopP = Annotated[float, Meta(gt=0, le=1)]
Place = Annotated[list[float], Meta(min_length=2, max_length=4)]
"""x, y or x_min, y_min, x_max, y_max."""


class SamplingSettings(Struct, kw_only=True, forbid_unknown_fields=True):
    """Moondream's `settings`. `max_tokens` has no effect: an answer ends with its objects."""

    max_objects: ObjectCount | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    max_tokens: int | None = None


class SpatialBody(Struct, kw_only=True, forbid_unknown_fields=True):
    """A request as JSON. Exactly one image, exactly one of `object` and `objects`."""

    id: Annotated[str, Meta(max_length=MAX_NAME_CHARS)] | None = None
    """The caller's own name for the request; the answer repeats it."""
    image: str | None = None
    """A data URI, bare base64, or the URL of an image where the server fetches such."""
    image_url: str | None = None
    """The same under the name that Moondream's clients use."""
    image_id: Annotated[str, Meta(max_length=MAX_NAME_CHARS)] | None = None
    """An image that was uploaded before."""
    object: str | None = None
    objects: list[str] | None = None
    """1 to 32 phrases."""
    max_objects: ObjectCount | None = None
    """Per phrase; 50 when not given."""
    region: tuple[float, float, float, float] | None = None
    """x_min, y_min, x_max, y_max in `units`: answers lie wholly inside. The image is not cropped."""
    min_score: Annotated[float, Meta(ge=0, le=1)] = 0.0
    dedupe: bool = True
    temperature: Temperature | None = None
    """0, the default: the most likely token each time. Above it tokens are drawn."""
    top_p: TopP | None = None
    """Where tokens are drawn: among the most likely ones that together have this probability."""
    units: Units = "normalized"
    timeout_s: Annotated[float, Meta(gt=0)] | None = None
    stream: bool = False
    priority: Priority = "interactive"
    """Batch work yields to interactive work."""
    model: str | None = None
    adapter: Annotated[str, Meta(min_length=1, max_length=MAX_NAME_CHARS)] | None = None
    """A fine-tuned variant of the model."""
    settings: SamplingSettings | None = None
    reasoning: Any = None
    """Sent by Moondream's clients; without effect."""
    spatial_refs: Annotated[list[Place], Meta(max_length=MAX_PLACES)] | None = None
    """Points and boxes in `units` that the phrases refer to, for models that take them."""


class ImageInfo(Struct, frozen=True, kw_only=True):
    """The upright image that the answer is about; sizes in pixels."""

    width: int
    height: int
    id: str | None = None


class Box(Struct, frozen=True, kw_only=True):
    """One object found. Coordinates are in [0,1] of the upright image, or in its pixels."""

    x_min: float
    y_min: float
    x_max: float
    y_max: float
    label: str
    phrase_index: int
    score: float


class Point(Struct, frozen=True, kw_only=True):
    """One point found. Coordinates are in [0,1] of the upright image, or in its pixels."""

    x: float
    y: float
    label: str
    phrase_index: int
    score: float


class PhraseInfo(Struct, frozen=True, kw_only=True):
    """How the search for one phrase ended. `object` is the phrase exactly as it was sent."""

    object: str
    finish_reason: str
    truncated: bool


class Metrics(Struct, frozen=True, kw_only=True):
    """Where the time went, in milliseconds, and what was computed, in tokens."""

    queue_ms: float
    intake_ms: float
    prefill_ms: float
    decode_ms: float
    ttft_ms: float
    total_ms: float
    input_tokens: int
    output_tokens: int
    cached_tokens: int


class _Answer(Struct, frozen=True, kw_only=True):
    request_id: str
    id: str | UnsetType = UNSET
    """The caller's own, where it sent one."""
    notes: list[str] | UnsetType = UNSET
    """What to know of this answer, if anything: how its image was read, how its model answers."""
    model: str
    image: ImageInfo


class DetectAnswer(_Answer, frozen=True, kw_only=True):
    """The answer of /detect. Objects are ordered by phrase, then as the model wrote them."""

    objects: list[Box]
    phrases: list[PhraseInfo]
    finish_reason: str
    truncated: bool
    metrics: Metrics


class PointAnswer(_Answer, frozen=True, kw_only=True):
    """The answer of /point. Points are ordered by phrase, then as the model wrote them."""

    points: list[Point]
    phrases: list[PhraseInfo]
    finish_reason: str
    truncated: bool
    metrics: Metrics

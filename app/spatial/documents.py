"""How /detect and /point read in the OpenAPI document: three kinds of body, examples, an event stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

from litestar.openapi.spec import OpenAPIMediaType, OpenAPIResponse, OpenAPIType, Operation, Schema

from app.admission.messages import Priority
from app.openapi import (
    ACCESS_PROBLEMS,
    EXAMPLE_IMAGE,
    IDEMPOTENCY_KEY,
    IMAGE_BYTES,
    IMAGE_TEXT,
    MODEL,
    NUMBER,
    TIMEOUT,
    image_bodies,
    or_null,
    query_of_raw_bodies,
)
from app.spatial.schemas import (
    DEFAULT_MAX_OBJECTS,
    MAX_NAME_CHARS,
    MAX_OBJECTS,
    MAX_PHRASE_CHARS,
    MAX_PHRASES,
    MAX_PLACES,
    MAX_TEMPERATURE,
    SamplingSettings,
    SpatialBody,
    Units,
)

PROBLEMS = (
    "invalid-request",
    "invalid-phrase",
    "invalid-image",
    "unsupported-task",
    "unsupported-media",
    "image-too-large",
    "unknown-model",
    "not-found",
    "idempotency-in-flight",
    "idempotency-mismatch",
    "tenant-queue-full",
    "queue-full",
    "unavailable",
    "worker-crashed",
    "deadline-exceeded",
    *ACCESS_PROBLEMS,
)

_PHRASE = Schema(
    type=OpenAPIType.STRING,
    min_length=1,
    max_length=MAX_PHRASE_CHARS,
    description="What to look for, such as `red circle`.",
)
_PHRASES = Schema(type=OpenAPIType.ARRAY, items=_PHRASE, min_items=1, max_items=MAX_PHRASES)
_IMAGE_ID = Schema(
    type=OpenAPIType.STRING, max_length=MAX_NAME_CHARS, description="As `POST /v1/images` gave it."
)
_EVENTS = Schema(
    description="With `stream`: server-sent events, each with `event` and `data`, a JSON document."
)
_ANYTHING = "Sent by Moondream's clients; without effect."

_TEMPERATURE = Schema(
    type=OpenAPIType.NUMBER,
    minimum=0,
    maximum=MAX_TEMPERATURE,
    default=0,
    description="0 takes the most likely token each time; above it tokens are drawn.",
)
_TOP_P = Schema(
    type=OpenAPIType.NUMBER,
    exclusive_minimum=0,
    maximum=1,
    default=1,
    description="Draw among the most likely tokens that together have this probability.",
)
_PLACES = Schema(
    type=OpenAPIType.ARRAY,
    items=Schema(type=OpenAPIType.ARRAY, items=NUMBER, min_items=2, max_items=4),
    max_items=MAX_PLACES,
    description="Points (x, y) and boxes (x_min, y_min, x_max, y_max) in `units` that the phrases refer to, "
    "for models that take them; other models refuse them.",
)

_OPTIONS = {
    "max_objects": Schema(
        type=OpenAPIType.INTEGER,
        minimum=1,
        maximum=MAX_OBJECTS,
        default=DEFAULT_MAX_OBJECTS,
        description="Per phrase.",
    ),
    "region": Schema(
        type=OpenAPIType.ARRAY,
        items=NUMBER,
        min_items=4,
        max_items=4,
        description="x_min, y_min, x_max, y_max in `units`; answers lie wholly inside.",
    ),
    "min_score": Schema(type=OpenAPIType.NUMBER, minimum=0, maximum=1, default=0),
    "dedupe": Schema(
        type=OpenAPIType.BOOLEAN, default=True, description="Drop an object that repeats an earlier one."
    ),
    "temperature": _TEMPERATURE,
    "top_p": _TOP_P,
    "spatial_refs": _PLACES,
    "units": Schema(type=OpenAPIType.STRING, enum=[*get_args(Units)], default="normalized"),
    "timeout_s": TIMEOUT,
    "priority": Schema(
        type=OpenAPIType.STRING,
        enum=[*get_args(Priority)],
        default="interactive",
        description="Batch work yields to interactive work.",
    ),
    "stream": Schema(
        type=OpenAPIType.BOOLEAN,
        default=False,
        description="Answer with server-sent events: `object` for each one found, then `done` with the whole "
        "answer or `error` with a problem document.",
    ),
    "model": MODEL,
    "adapter": Schema(
        type=OpenAPIType.STRING,
        min_length=1,
        max_length=MAX_NAME_CHARS,
        description="A fine-tuned variant of the model, of those that `/v1/models` lists.",
    ),
    "id": Schema(
        type=OpenAPIType.STRING,
        max_length=MAX_NAME_CHARS,
        description="Your own name for the request; the answer repeats it.",
    ),
}
_SETTINGS = Schema(
    type=OpenAPIType.OBJECT,
    description="As Moondream's clients send it. `max_tokens` has no effect.",
    properties=or_null(
        {
            "max_objects": _OPTIONS["max_objects"],
            "temperature": _TEMPERATURE,
            "top_p": _TOP_P,
            "max_tokens": Schema(type=OpenAPIType.INTEGER),
        },
        SamplingSettings,
    ),
    additional_properties=False,
)
_JSON = {
    "image": IMAGE_TEXT,
    "image_url": IMAGE_TEXT,
    "image_id": _IMAGE_ID,
    "object": _PHRASE,
    "objects": _PHRASES,
    **_OPTIONS,
    "settings": _SETTINGS,
    "reasoning": Schema(description=_ANYTHING),
}
_FORM = {
    "image": IMAGE_BYTES,
    "image_url": IMAGE_TEXT,
    "image_id": _IMAGE_ID,
    "object": _PHRASES,
    **_OPTIONS,
    "region": Schema(
        type=OpenAPIType.STRING, description="Four numbers with commas between.", examples=["0.1,0.2,0.8,0.9"]
    ),
    "spatial_refs": Schema(
        type=OpenAPIType.STRING,
        description="Places as in JSON, with semicolons between.",
        examples=["0.1,0.2;0.1,0.2,0.8,0.9"],
    ),
}
_EXAMPLES: dict[str, tuple[str, dict[str, Any]]] = {
    "one": ("One phrase", {"image": EXAMPLE_IMAGE, "object": "red circle"}),
    "many": ("Several phrases, pixels, at most 5 each", {"image": EXAMPLE_IMAGE, "max_objects": 5,
             "objects": ["red circle", "star"], "units": "pixels"}),
    "moondream": ("As Moondream's client sends it", {"image_url": EXAMPLE_IMAGE, "object": "red circle",
                  "settings": {"max_objects": 10}}),
}  # fmt: skip


@dataclass
class SpatialOperation(Operation):
    """Adds the bodies, which the handler reads itself, and the query that goes with a raw image."""

    def __post_init__(self) -> None:
        self.request_body = image_bodies(
            SpatialBody,
            _JSON,
            _FORM,
            _EXAMPLES,
            "Exactly one of `image`, `image_url` and `image_id`; exactly one of `object` and `objects`.",
        )
        answer = (self.responses or {}).get("200")
        if isinstance(answer, OpenAPIResponse) and answer.content is not None:
            answer.content["text/event-stream"] = OpenAPIMediaType(schema=_EVENTS)
        self.parameters = [IDEMPOTENCY_KEY, *query_of_raw_bodies({"object": _PHRASES, **_OPTIONS})]

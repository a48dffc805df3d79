"""How /detect and /point read in the OpenAPI document: three kinds of body, examples, an event stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from litestar.openapi.spec import (
    Example,
    OpenAPIMediaType,
    OpenAPIResponse,
    OpenAPIType,
    Operation,
    Parameter,
    RequestBody,
    Schema,
)

from app.openapi import ACCESS_PROBLEMS
from app.spatial.schemas import DEFAULT_MAX_OBJECTS, MAX_OBJECTS, MAX_PHRASE_CHARS, MAX_PHRASES

PROBLEMS = (
    *ACCESS_PROBLEMS,
    "invalid-request",
    "invalid-phrase",
    "invalid-image",
    "unsupported-task",
    "unsupported-media",
    "image-too-large",
    "unknown-model",
    "tenant-queue-full",
    "queue-full",
    "unavailable",
    "worker-crashed",
    "deadline-exceeded",
)

_PHRASE = Schema(
    type=OpenAPIType.STRING,
    min_length=1,
    max_length=MAX_PHRASE_CHARS,
    description="What to look for, such as `red circle`.",
)
_PHRASES = Schema(type=OpenAPIType.ARRAY, items=_PHRASE, min_items=1, max_items=MAX_PHRASES)
_BASE64 = Schema(type=OpenAPIType.STRING, description="A data URI or bare base64. Remote URLs are refused.")
_BYTES = Schema(type=OpenAPIType.STRING, content_media_type="image/*")
_EVENTS = Schema(type=OpenAPIType.STRING, description="With `stream`: server-sent events.")
_NUMBER = Schema(type=OpenAPIType.NUMBER)
_ANYTHING = "Sent by Moondream's clients; without effect."

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
        items=_NUMBER,
        min_items=4,
        max_items=4,
        description="x_min, y_min, x_max, y_max in `units`; answers lie wholly inside.",
    ),
    "min_score": Schema(type=OpenAPIType.NUMBER, minimum=0, maximum=1, default=0),
    "dedupe": Schema(
        type=OpenAPIType.BOOLEAN, default=True, description="Drop an object that repeats an earlier one."
    ),
    "units": Schema(type=OpenAPIType.STRING, enum=["normalized", "pixels"], default="normalized"),
    "timeout_s": Schema(type=OpenAPIType.NUMBER, exclusive_minimum=0),
    "stream": Schema(
        type=OpenAPIType.BOOLEAN,
        default=False,
        description="Answer with server-sent events: `object` for each one found, then `done` with the whole "
        "answer or `error` with a problem document.",
    ),
    "model": Schema(type=OpenAPIType.STRING, description="A name from `/v1/models`."),
}
_SETTINGS = Schema(
    type=OpenAPIType.OBJECT,
    description="As Moondream's clients send it: only `max_objects` has an effect.",
    properties={
        "max_objects": _OPTIONS["max_objects"],
        "temperature": _NUMBER,
        "top_p": _NUMBER,
        "max_tokens": Schema(type=OpenAPIType.INTEGER),
    },
    additional_properties=False,
)
_JSON = Schema(
    type=OpenAPIType.OBJECT,
    description="Exactly one of `image` and `image_url`, exactly one of `object` and `objects`.",
    properties={
        "image": _BASE64,
        "image_url": _BASE64,
        "object": _PHRASE,
        "objects": _PHRASES,
        **_OPTIONS,
        "settings": _SETTINGS,
        "reasoning": Schema(description=_ANYTHING),
        "spatial_refs": Schema(description=_ANYTHING),
    },
    additional_properties=False,
)
_FORM = Schema(
    type=OpenAPIType.OBJECT,
    description="`object` may be repeated. A region is four numbers with commas between.",
    properties={
        "image": _BYTES,
        "object": _PHRASES,
        **_OPTIONS,
        "region": Schema(type=OpenAPIType.STRING, examples=["0.1,0.2,0.8,0.9"]),
    },
    required=["image", "object"],
    additional_properties=False,
)
_PIXEL = "data:image/png;base64,iVBORw0KGgo..."
_EXAMPLES: dict[str, tuple[str, dict[str, Any]]] = {
    "one": ("One phrase", {"image": _PIXEL, "object": "red circle"}),
    "many": ("Several phrases, pixels, at most 5 each", {"image": _PIXEL, "objects": ["red circle", "star"],
             "max_objects": 5, "units": "pixels"}),
    "moondream": ("As Moondream's client sends it", {"image_url": _PIXEL, "object": "red circle",
                  "settings": {"max_objects": 10}}),
}  # fmt: skip


@dataclass
class SpatialOperation(Operation):
    """Adds the bodies, which the handler reads itself, and the query that goes with a raw image."""

    def __post_init__(self) -> None:
        examples = {
            name: Example(summary=summary, value=value) for name, (summary, value) in _EXAMPLES.items()
        }
        self.request_body = RequestBody(
            required=True,
            content={
                "application/json": OpenAPIMediaType(schema=_JSON, examples=examples),  # type: ignore[arg-type]
                "multipart/form-data": OpenAPIMediaType(schema=_FORM),
                "image/*": OpenAPIMediaType(schema=_BYTES),
            },
        )
        answer = (self.responses or {}).get("200")
        if isinstance(answer, OpenAPIResponse) and answer.content is not None:
            answer.content["text/event-stream"] = OpenAPIMediaType(schema=_EVENTS)
        query = {"object": _PHRASES, **_OPTIONS}
        self.parameters = [
            Parameter(
                name=name,
                param_in="query",
                required=False,
                schema=schema,
                description="With a raw image body only.",
                style="form",
                explode=name != "region",
            )
            for name, schema in query.items()
        ]

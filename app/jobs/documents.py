"""How the routes below /jobs read in the OpenAPI document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import msgspec
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
from msgspec import Struct

from app.idempotency.replays import HEADER
from app.jobs.records import Format
from app.jobs.schemas import JobRequest, SourcePlace, StorePlace
from app.openapi import or_null
from app.spatial.schemas import (
    DEFAULT_MAX_OBJECTS,
    MAX_NAME_CHARS,
    MAX_OBJECTS,
    MAX_PHRASE_CHARS,
    MAX_PHRASES,
    Task,
)

_NAME = Schema(type=OpenAPIType.STRING, min_length=1, max_length=MAX_NAME_CHARS)
_PATH = Schema(type=OpenAPIType.STRING, max_length=1024)
_STORE = {"store": _NAME, "prefix": _PATH}


def _object(kind: type[Struct], fields: dict[str, Schema], says: str = "") -> Schema:
    return Schema(
        type=OpenAPIType.OBJECT,
        properties=or_null(fields, kind),
        required=[field.name for field in msgspec.structs.fields(kind) if field.required],
        additional_properties=False,
        description=says or None,
    )


_JOB = _object(
    JobRequest,
    {
        "source": _object(
            SourcePlace,
            {**_STORE, "manifest": _PATH},
            says="A store of this server, a folder in it, and perhaps a .jsonl or .csv list of images.",
        ),
        "out": _object(StorePlace, _STORE, says="Where a folder named after the job is written."),
        "task": Schema(type=OpenAPIType.STRING, enum=[*get_args(Task)], default="detect"),
        "objects": Schema(
            type=OpenAPIType.ARRAY,
            items=Schema(type=OpenAPIType.STRING, min_length=1, max_length=MAX_PHRASE_CHARS),
            max_items=MAX_PHRASES,
            description="Phrases, asked about every image for which a manifest names none.",
        ),
        "model": _NAME,
        "max_objects": Schema(
            type=OpenAPIType.INTEGER, minimum=1, maximum=MAX_OBJECTS, default=DEFAULT_MAX_OBJECTS
        ),
        "min_score": Schema(type=OpenAPIType.NUMBER, minimum=0, maximum=1, default=0),
        "dedupe": Schema(type=OpenAPIType.BOOLEAN, default=True),
        "format": Schema(type=OpenAPIType.STRING, enum=[*get_args(Format)], default="jsonl"),
        "shard_size": Schema(type=OpenAPIType.INTEGER, minimum=1, maximum=10_000, default=500),
        "webhook": Schema(
            type=OpenAPIType.STRING,
            max_length=2000,
            description="Gets the job as a POST when it has ended.",
        ),
    },
)
_EXAMPLE = {
    "source": {"store": "pets", "prefix": "2026/"},
    "out": {"store": "labels"},
    "objects": ["dog", "cat"],
    "format": "coco",
}


@dataclass
class SubmitOperation(Operation):
    """Adds the body, which the handler reads itself."""

    def __post_init__(self) -> None:
        examples = {"coco": Example(summary="Dogs and cats of a folder, as COCO", value=_EXAMPLE)}
        content = OpenAPIMediaType(schema=_JOB, examples=examples)  # type: ignore[arg-type]
        self.request_body = RequestBody(required=True, content={"application/json": content})
        key = Schema(type=OpenAPIType.STRING, pattern="^[\\x21-\\x7e]{1,255}$")
        self.parameters = [Parameter(name=HEADER, param_in="header", required=False, schema=key)]


@dataclass
class PictureOperation(Operation):
    """Says that the answer is a picture."""

    def __post_init__(self) -> None:
        answer = (self.responses or {}).get("200")
        if isinstance(answer, OpenAPIResponse):
            picture = Schema(type=OpenAPIType.STRING, content_media_type="image/jpeg")
            answer.content = {"image/jpeg": OpenAPIMediaType(schema=picture)}

"""Pieces of the OpenAPI document that several subjects need."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import (
    Components,
    Example,
    OpenAPIMediaType,
    OpenAPIType,
    Operation,
    Parameter,
    Reference,
    RequestBody,
    Schema,
    SecurityScheme,
)
from msgspec import Struct

from app.idempotency.replays import HEADER
from app.problems import KINDS, MEDIA_TYPE, Problem, ProblemError

ACCESS_PROBLEMS = ("unauthenticated", "forbidden", "rate-limited")
"""What every route below `/v1` can answer while keys are needed."""
SECURITY = Components(
    security_schemes={
        "bearer": SecurityScheme(type="http", scheme="bearer", description="`Authorization: Bearer KEY`"),
        "moondream": SecurityScheme(type="apiKey", name="X-Moondream-Auth", security_scheme_in="header"),
    }
)
"""The two ways to send a key."""


@dataclasses.dataclass
class OpenOperation(Operation):
    """A route that needs no key where others do."""

    def __post_init__(self) -> None:
        self.security = []


NUMBER = Schema(type=OpenAPIType.NUMBER)
IMAGE_TEXT = Schema(
    type=OpenAPIType.STRING,
    description="A data URI or bare base64; an http or https URL where the server fetches such.",
)
IMAGE_BYTES = Schema(type=OpenAPIType.STRING, content_media_type="image/*")
TIMEOUT = Schema(
    type=OpenAPIType.NUMBER, exclusive_minimum=0, description="Seconds until the deadline; 60 by default."
)
IDEMPOTENCY_KEY = Parameter(
    name=HEADER,
    param_in="header",
    required=False,
    schema=Schema(type=OpenAPIType.STRING, pattern="^[\\x21-\\x7e]{1,255}$"),
    description="A request sent again under the same key within 24 hours gets the answer of the first.",
)
MODEL = Schema(type=OpenAPIType.STRING, description="A name from `/v1/models`.")
EXAMPLE_IMAGE = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAEAAAABAAQMAAACQp+OdAAAABlBMVEX////cHigwpYgPAAAAeE"
    "lEQVR42sXQsQ2DUBRD0YNBCl0YgWxCNsqIfxRGoKRAkAIloaBKgyvr+tnF42rdZwSv2w6qbSuE0BMaOkJLS+hoDgdhoKKmoC"
    "r5zEcFgwP5mkB/Gv1nVhhPow3Kj9QYeAqFjTCyEiYWwsxMWJgIK+NeNzwOP7xEb5q2F+9MM1J5AAAAAElFTkSuQmCC"
)
"""A red circle on white."""


def problem_responses(*slugs: str) -> dict[int, ResponseSpec]:
    """The problem documents that a route can answer with: one response per status, one example per type."""
    by_status: dict[int, list[str]] = {}
    for slug in slugs:
        by_status.setdefault(KINDS[slug].status, []).append(slug)
    if "invalid-request" in slugs:
        by_status[400] = ["invalid-request"]
    return {
        status: ResponseSpec(
            data_container=Problem,
            generate_examples=False,
            media_type=MEDIA_TYPE,
            description="; ".join(KINDS[slug].title for slug in group),
            examples=[
                Example(id=slug, summary=KINDS[slug].title, value=_example(slug, status)) for slug in group
            ],
        )
        for status, group in by_status.items()
    }


def image_bodies(
    kind: type[Struct],
    json: dict[str, Schema],
    form: dict[str, Schema],
    examples: dict[str, tuple[str, dict[str, Any]]],
    says: str,
) -> RequestBody:
    """The three kinds of body that carry an image; the handler reads them itself.

    Args:
        kind: what JSON is read as; it says which fields may be null.
        json, form: the fields of the two.
        examples: of JSON: name -> (summary, value).
        says: what holds between the fields.
    """
    told = {name: Example(summary=summary, value=value) for name, (summary, value) in examples.items()}
    as_json = Schema(
        type=OpenAPIType.OBJECT, description=says, properties=or_null(json, kind), additional_properties=False
    )
    as_form = Schema(
        type=OpenAPIType.OBJECT, description=says, properties={**form}, additional_properties=False
    )
    return RequestBody(
        required=True,
        content={
            "application/json": OpenAPIMediaType(schema=as_json, examples=told),  # type: ignore[arg-type]
            "multipart/form-data": OpenAPIMediaType(schema=as_form),
            "image/*": OpenAPIMediaType(schema=IMAGE_BYTES),
        },
    )


def or_null(fields: dict[str, Schema], kind: type[Struct]) -> dict[str, Schema | Reference]:
    """The fields as JSON may have them: null counts as not sent for those that `kind` does not require."""
    required = {field.name for field in msgspec.structs.fields(kind) if field.required}
    return {name: schema if name in required else _or_null(schema) for name, schema in fields.items()}


def _or_null(schema: Schema) -> Schema:
    if not isinstance(schema.type, OpenAPIType):  # anything goes, or null does already
        return schema
    choices = [*schema.enum, None] if schema.enum else None
    return dataclasses.replace(schema, type=[schema.type, OpenAPIType.NULL], enum=choices)


def query_of_raw_bodies(fields: dict[str, Schema]) -> list[Parameter]:
    """The fields once more, for requests whose body is the image itself."""
    return [
        Parameter(
            name=name,
            param_in="query",
            required=False,
            schema=schema,
            description="With a raw image body only.",
            style="form",
            explode=name != "region",
        )
        for name, schema in fields.items()
    ]


def _example(slug: str, status: int) -> Problem:
    detail = f"{KINDS[slug].title}: one sentence says what was wrong."
    return ProblemError(slug, detail, status=status).document("0b9a3c6d2f8e4a519c7d")

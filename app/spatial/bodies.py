"""The three ways to send a request, JSON, multipart and a raw image, become one `SpatialRequest`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NoReturn, get_args
from urllib.parse import parse_qsl

import msgspec
from litestar import Request
from litestar.datastructures import UploadFile

from app.admission.messages import SpatialParams
from app.intake.encoded import image_bytes
from app.intake.sniff import Header, check
from app.problems import ProblemError
from app.settings import Settings
from app.spatial.phrases import check_phrases
from app.spatial.schemas import DEFAULT_MAX_OBJECTS, SpatialBody, Units

_decoder = msgspec.json.Decoder(SpatialBody)
_AT = re.compile(r" - at `\$\.?([^`\[]*)[^`]*`$")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`( - at |$)", re.DOTALL)
_IMAGE_FIELDS = ("image", "image_url")
_LISTS = ("object", "objects")
INLINE_BYTES = 256 * 1024
"""Longer bodies are checked on another thread: a hostile header can take seconds to walk."""


@dataclass(frozen=True, slots=True)
class SpatialRequest:
    """A request that is well formed: its phrases are legal and its image has a readable header."""

    params: SpatialParams
    image: bytes
    header: Header
    units: Units
    timeout_s: float
    stream: bool
    model: str | None
    names: dict[str, str]
    """What the caller called `object` and `image`: a problem found later names the field that it sent."""


async def read_request(request: Request[Any, Any, Any], settings: Settings) -> SpatialRequest:
    """Read and check everything that can be checked without decoding the image.

    Raises:
        ProblemError: with the field that is wrong.
    """
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise _unsupported(f"Bodies with content-encoding {encoding!r} are not read; send it plain.")
    content = await request.body()
    if not content:
        raise ProblemError("invalid-image", "The body is empty: it has no image.", field="image")
    body, upload = await _parsed(request, content)
    if len(content) <= INLINE_BYTES:
        return _checked(body, upload, settings)
    return await asyncio.to_thread(_checked, body, upload, settings)


async def _parsed(request: Request[Any, Any, Any], content: bytes) -> tuple[SpatialBody, bytes | None]:
    """The fields, and the image where it came as bytes."""
    kind = request.content_type[0]
    query = request.scope["query_string"].decode("latin-1")
    if kind.startswith("image/") or kind == "application/octet-stream":
        return _from_query(query), content
    form = kind == "multipart/form-data"
    json = kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))
    if not (form or json):
        raise _unsupported(
            f"The content type {kind or '(none)'!r} is not read. Send application/json, multipart/form-data, "
            "or the image itself as image/*."
        )
    if query:
        name = query.partition("=")[0]
        _invalid("Query parameters go with a raw image body only; send this as a field.", name)
    return await _from_form(request) if form else (_from_json(content), None)


def _from_query(query: str) -> SpatialBody:
    try:
        fields = parse_qsl(query, keep_blank_values=True, errors="strict")
    except UnicodeDecodeError:
        detail = "The query is not UTF-8 text with percent escapes."
        raise ProblemError("invalid-request", detail, status=400) from None
    if any(name in _IMAGE_FIELDS for name, _ in fields):
        _invalid("The body is the image; there is no other one in the query.", "image")
    return _from_texts(fields)


def _from_json(content: bytes) -> SpatialBody:
    try:
        return _decoder.decode(content)
    except msgspec.ValidationError as error:
        raise _validation_problem(error) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise ProblemError("invalid-request", f"The body is not JSON: {error}.", status=400) from None


async def _from_form(request: Request[Any, Any, Any]) -> tuple[SpatialBody, bytes | None]:
    try:
        form = await request.form()
    except (UnicodeError, LookupError):  # the sender names the charset, and Python has odd ones
        raise ProblemError("invalid-request", "A field of the form is not UTF-8 text.", status=400) from None
    texts: list[tuple[str, str]] = []
    upload: bytes | None = None
    try:
        for name, value in form.multi_items():
            if not isinstance(value, UploadFile):
                texts.append((name, value))
            elif name != "image" or upload is not None:
                _invalid("One file is read, named `image`.", name)
            else:
                upload = await value.read()
    finally:
        await form.close()
    return _from_texts(texts), upload


def _from_texts(fields: Iterable[tuple[str, str]]) -> SpatialBody:
    """Query parameters or form fields. `object` and `objects` may repeat; a region is `0.1,0.2,0.8,0.9`."""
    values: dict[str, Any] = {}
    for name, text in fields:
        if name in _LISTS:
            values.setdefault("objects", []).append(text)
        elif name in values:
            _invalid("The field is given twice.", name)
        else:
            values[name] = text.split(",") if name == "region" else text
    if len(values.get("objects", ())) == 1:
        values["object"] = values.pop("objects")[0]
    try:
        return msgspec.convert(values, SpatialBody, strict=False)
    except msgspec.ValidationError as error:
        raise _validation_problem(error) from None


def _checked(body: SpatialBody, upload: bytes | None, settings: Settings) -> SpatialRequest:
    phrases = _phrases(body)
    image, field = _image(body, upload)
    try:
        header = check(image)
    except ProblemError as problem:
        problem.field = field
        raise
    nested = body.settings.max_objects if body.settings else None
    params = SpatialParams(
        phrases=phrases,
        max_objects=body.max_objects or nested or DEFAULT_MAX_OBJECTS,
        region=_region(body, header),
        min_score=body.min_score,
        dedupe=body.dedupe,
    )
    timeout_s = body.timeout_s or settings.default_timeout_s
    if not timeout_s <= settings.max_timeout_s:
        _invalid(f"At most {settings.max_timeout_s:g} seconds can be asked for.", "timeout_s")
    names = {"image": field, "object": "object" if body.objects is None else "objects"}
    return SpatialRequest(params, image, header, body.units, timeout_s, body.stream, body.model, names)


def _phrases(body: SpatialBody) -> list[str]:
    if body.objects is not None:
        if body.object is not None:
            _invalid("Send either `object` or `objects`, not both.", "objects")
        return check_phrases(body.objects, field="objects")
    if body.object is None:
        _invalid("The phrase is missing: what to look for.", "object")
    return check_phrases([body.object], field="object")


def _image(body: SpatialBody, upload: bytes | None) -> tuple[bytes, str]:
    given = [(field, text) for field in _IMAGE_FIELDS if (text := getattr(body, field)) is not None]
    if len(given) + (upload is not None) > 1:
        _invalid("Send one image, as `image` or as `image_url`.", given[-1][0])
    if upload is not None:
        return upload, "image"
    if not given:
        _invalid("The image is missing.", "image")
    field, text = given[0]
    return image_bytes(text, field=field), field


def _region(body: SpatialBody, header: Header) -> tuple[float, float, float, float] | None:
    """The region in [0,1] of the upright image."""
    if body.region is None:
        return None
    width, height = (header.width, header.height) if body.units == "pixels" else (1, 1)
    x_min, y_min, x_max, y_max = body.region
    if not (0 <= x_min < x_max <= width and 0 <= y_min < y_max <= height):
        _invalid(
            f"A region is x_min, y_min, x_max, y_max with 0 <= x_min < x_max <= {width} and "
            f"0 <= y_min < y_max <= {height}.",
            "region",
        )
    return x_min / width, y_min / height, x_max / width, y_max / height


def _validation_problem(error: msgspec.ValidationError) -> ProblemError:
    text = str(error)
    place = _AT.search(text)
    field = place[1] if place else ""
    if unknown := _UNKNOWN.match(text):
        field = f"{field}.{unknown[1]}" if field else unknown[1]
        return ProblemError("invalid-request", f"The field {field!r} is not known.", field=field)
    detail = _AT.sub("", text).replace("`", "")
    if field == "units":
        detail += f"; use {' or '.join(get_args(Units))}"
    return ProblemError("invalid-request", f"{detail}.", field=field or None)


def _invalid(detail: str, field: str) -> NoReturn:
    raise ProblemError("invalid-request", detail, field=field)


def _unsupported(detail: str) -> ProblemError:
    return ProblemError("unsupported-media", detail)

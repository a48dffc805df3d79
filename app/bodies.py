"""The three ways to send an image, JSON, multipart and the raw bytes, become the fields of one Struct."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TypeVar
from urllib.parse import parse_qsl

import msgspec
from litestar import Request

from app.forms import read_form
from app.problems import ProblemError
from app.strict_json import decode_json, validation_problem

T = TypeVar("T", bound=msgspec.Struct)
A = TypeVar("A")
R = TypeVar("R")

IMAGE_FIELDS = ("image", "image_url", "image_id")
INLINE_BYTES = 256 * 1024
"""Longer bodies are looked at on another thread, so that nobody else waits for them."""
_LISTS = ("object", "objects")


async def read_body(request: Request[Any, Any, Any], kind: type[T]) -> tuple[T, bytes | None]:
    """The fields of a request, and its image where that came as bytes.

    Raises:
        ProblemError: with the field that is wrong.
    """
    check_plain(request)
    content = await request.body()
    query = request.scope["query_string"].decode("latin-1")
    if not content:
        _refuse_empty(query)
    sent, options = request.content_type
    if sent.startswith("image/") or sent == "application/octet-stream":
        return _from_query(query, kind), content
    form = sent == "multipart/form-data"
    json = sent == "application/json" or (sent.startswith("application/") and sent.endswith("+json"))
    if not (form or json):
        raise _unsupported(
            f"The content type {sent or '(none)'!r} is not read. Send application/json, multipart/form-data, "
            "or the image itself as image/*."
        )
    if query:
        name = query.partition("=")[0]
        invalid("Query parameters go with a raw image body only; send this as a field.", name)
    if form:
        texts, upload = await _read(read_form, content, options.get("boundary"))
        return _from_texts(texts, kind), upload
    return await _read(decode_json, content, kind), None


async def _read(read: Callable[[bytes, A], R], content: bytes, how: A) -> R:
    if len(content) <= INLINE_BYTES:
        return read(content, how)
    return await asyncio.to_thread(read, content, how)


def check_plain(request: Request[Any, Any, Any]) -> None:
    """Raises ProblemError for a compressed body."""
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise _unsupported(f"Bodies with content-encoding {encoding!r} are not read; send it plain.")


def invalid(detail: str, field: str) -> NoReturn:
    """Raises the problem of one wrong field."""
    raise ProblemError("invalid-request", detail, field=field)


def _refuse_empty(query: str) -> NoReturn:
    for name, _ in parse_qsl(query, keep_blank_values=True, errors="replace"):
        if name in IMAGE_FIELDS:
            invalid(f"The body is empty: send `{name}` in a JSON body or a form, not in the query.", name)
    raise ProblemError("invalid-image", "The body is empty: it has no image.", field="image")


def _from_query(query: str, kind: type[T]) -> T:
    try:
        fields = parse_qsl(query, keep_blank_values=True, errors="strict")
    except UnicodeDecodeError:
        detail = "The query is not UTF-8 text with percent escapes."
        raise ProblemError("invalid-request", detail, status=400) from None
    if any(name in IMAGE_FIELDS for name, _ in fields):
        invalid("The body is the image; there is no other one in the query.", "image")
    return _from_texts(fields, kind)


def _from_texts(fields: Iterable[tuple[str, str]], kind: type[T]) -> T:
    """Query parameters or form fields. `object` and `objects` may repeat; a region is `0.1,0.2,0.8,0.9`."""
    values: dict[str, Any] = {}
    for name, text in fields:
        if name in _LISTS:
            values.setdefault("objects", []).append(text)
        elif name in values:
            invalid(f"The field {name[:100]!r} is given twice.", name[:100])
        elif name == "spatial_refs":
            values[name] = [place.split(",") for place in text.split(";")]
        else:
            values[name] = [number.strip() for number in text.split(",")] if name == "region" else text
    if len(values.get("objects", ())) == 1:
        values["object"] = values.pop("objects")[0]
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise validation_problem(error, kind) from None


def _unsupported(detail: str) -> ProblemError:
    return ProblemError("unsupported-media", detail)

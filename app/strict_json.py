"""JSON bodies, read without mercy: unknown fields and fields given twice are refused, not guessed at."""

from __future__ import annotations

import json
import re
import typing
from typing import Any, TypeVar

import msgspec

from app.problems import ProblemError

T = TypeVar("T")

_AT = re.compile(r" - at `\$\.?([^`\[]*)[^`]*`$")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`( - at |$)", re.DOTALL)


def decode_json(content: bytes, kind: type[T]) -> T:
    """`content` as a msgspec Struct.

    Raises:
        ProblemError: invalid-request, with the field where there is one: 400 for what is not JSON, else 422.
    """
    try:
        body = msgspec.json.decode(content, type=kind)
        _PAIRS.decode(content.decode())
    except msgspec.ValidationError as error:
        raise validation_problem(error, kind) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise ProblemError("invalid-request", f"The body is not JSON: {error}.", status=400) from None
    return body


def validation_problem(error: msgspec.ValidationError, kind: type[Any]) -> ProblemError:
    """What msgspec found wrong, in words for a caller. `kind` is the Struct that was wanted."""
    text = str(error)
    place = _AT.search(text)
    field = place[1] if place else ""
    if unknown := _UNKNOWN.match(text):
        field = f"{field}.{unknown[1]}" if field else unknown[1]
        return ProblemError("invalid-request", f"The field {field!r} is not known.", field=field)
    detail = _AT.sub("", text).replace("`", "")
    choices = typing.get_args(typing.get_type_hints(kind).get(field))
    if choices and all(isinstance(choice, str) for choice in choices):
        detail += f"; use {' or '.join(choices)}"
    return ProblemError("invalid-request", f"{detail}.", field=field or None)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise ProblemError(
                "invalid-request", f"The field {name[:100]!r} is given twice.", field=name[:100]
            )
        seen.add(name)


# Only names count here: numbers of any length pass unread.
_PAIRS = json.JSONDecoder(object_pairs_hook=_without_duplicates, parse_int=str, parse_float=str)

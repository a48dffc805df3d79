"""JSON bodies, read without mercy: unknown fields and fields given twice are refused, not guessed at.

One thing is left open: null counts as not given for every field that need not be given.
"""

from __future__ import annotations

import codecs
import json
import re
import typing
from typing import Any, TypeVar

import msgspec

from app.problems import ProblemError

T = TypeVar("T")

_AT = re.compile(r" - at `\$\.?(?P<path>(?P<field>[^`\[]*)[^`]*)`$")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`( - at |$)", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*?)`")
_EXPECTED = re.compile(
    r"Expected `(?P<kind>\w+)(?: \| null)?`"
    r"(?: (?P<of>of length )?(?P<bound>[<>]=?)? ?(?P<number>[\d.]+))?(?:, got (?P<got>\S+))?"
)
_KINDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
}
_GOT = {"int": "a number", "float": "a number with a fraction"}
_BOUNDS = {">=": "of at least", "<=": "of at most", ">": "greater than", "<": "less than", None: "of"}
_UNITS = {"str": "characters", "array": "items"}
_BYTE_ORDER_MARKS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_HALF_PAIR = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u)")


def decode_json(content: bytes, kind: type[T]) -> T:
    """`content` as a msgspec Struct.

    Raises:
        ProblemError: invalid-request, with the field where there is one: 400 for what is not JSON, else 422.
    """
    try:
        body = _decoded(content, kind)
        _PAIRS.decode(content.decode())
    except msgspec.ValidationError as error:
        raise validation_problem(error, kind) from None
    except (msgspec.DecodeError, RecursionError) as error:
        detail = f"The body is not JSON: {_fault(content, error)}."
        raise ProblemError("invalid-request", detail, status=400) from None
    return body


def _decoded(content: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.ValidationError:
        if b"null" not in content:
            raise
        return msgspec.convert(_given(msgspec.json.decode(content), kind), kind)


def _given(value: Any, kind: Any) -> Any:
    """`value` without the nulls that stand in the place of fields with a default."""
    structs = [part for part in (kind, *typing.get_args(kind)) if msgspec.inspect.is_struct_type(part)]
    if not structs or not isinstance(value, dict):
        return value
    fields = {field.encode_name: field for field in msgspec.structs.fields(structs[0])}
    return {
        name: _given(inner, fields[name].type) if name in fields else inner
        for name, inner in value.items()
        if inner is not None or name not in fields or fields[name].required
    }


def validation_problem(error: msgspec.ValidationError, kind: type[Any]) -> ProblemError:
    """What msgspec found wrong, in words for a caller. `kind` is the Struct that was wanted."""
    text = str(error)
    place = _AT.search(text)
    field, path = (place["field"], place["path"]) if place else ("", "")
    for pattern, says in ((_UNKNOWN, "is not known"), (_MISSING, "is missing")):
        if found := pattern.match(text):
            field = f"{field}.{found[1]}" if field else found[1]
            return ProblemError("invalid-request", f"The field {field!r} {says}.", field=field)
    detail = f"{f'`{path}`' if path else 'The body'} {in_words(_AT.sub('', text))}"
    hints = typing.get_type_hints(kind) if isinstance(kind, type) else {}
    choices = typing.get_args(hints.get(field))
    if choices and all(isinstance(choice, str) for choice in choices):
        detail += f"; use {' or '.join(choices)}"
    return ProblemError("invalid-request", f"{detail}.", field=field or None)


def in_words(text: str) -> str:
    """msgspec's ``Expected `int | null` >= 1`` becomes "must be a whole number of at least 1"."""
    expected = _EXPECTED.fullmatch(text)
    if expected is None:
        choice = text.removeprefix("Invalid enum value ")
        return "is out of range" if choice == text else f"cannot be {choice}"
    kind, number, got = expected["kind"], expected["number"], expected["got"]
    words = f"must be {_KINDS.get(kind, kind)}"
    if number is not None:
        number = number.removesuffix(".0")
        units = f" {_UNITS[kind]}" if expected["of"] else ""
        words += (
            f" {_BOUNDS[expected['bound']]} {number}{units.removesuffix('s') if number == '1' else units}"
        )
    if got is not None:
        got = got.strip("`")
        words += f", not {_GOT.get(got) or _KINDS.get(got, got)}"
    return words


def _fault(content: bytes, error: Exception) -> str:
    text = str(error).removeprefix("JSON is malformed: ")
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if not content.strip():
        return "it is empty"
    if content.startswith(_BYTE_ORDER_MARKS):
        return "it must be UTF-8 without a byte order mark"
    if "surrogate" in text or (text == "Input data was truncated" and _HALF_PAIR.search(content)):
        return r"it has half of a surrogate pair, such as \ud800, which is no character"
    return "it ends too early" if text == "Input data was truncated" else text


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

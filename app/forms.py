"""multipart/form-data with text fields and at most one file, the image."""

from __future__ import annotations

import re

from multipart import MultipartError, MultipartSegment, ParserLimitReached, PushMultipartParser

from app.problems import ProblemError

PARTS = 1000
PART_HEADERS = 8
HEADER_LINE_BYTES = 4096
_LIMITS = {
    "Maximum segment count exceeded": f"A form may have at most {PARTS:,} parts.",
    "Maximum segment header count exceeded": f"A part of a form may have at most {PART_HEADERS} headers.",
    "Maximum segment header length exceeded": (
        f"A header line in a part of a form may have at most {HEADER_LINE_BYTES:,} bytes."
    ),
}
"""The parser's words -> ours."""
_NAMED = re.compile(r";\s*filename\*?\s*=", re.IGNORECASE)
"""The parser knows no `filename*`."""


def read_form(content: bytes, boundary: str | None) -> tuple[list[tuple[str, str]], bytes | None]:
    """The text fields in order, and the content of the file that is named `image`.

    A part named `image` is a file if it has a file name (also an empty one, or `filename*`), if its content
    type is that of an image, or if its content is not ASCII text. A file input of a browser where nothing was
    chosen, an empty part with an empty file name, counts as not sent.

    Raises:
        ProblemError: invalid-request: 400 for what is no form or exceeds a limit.
    """
    if not boundary:
        raise _unreadable("The content type multipart/form-data has no boundary.")
    texts: list[tuple[str, str]] = []
    upload: bytes | None = None
    for segment, data in _parts(content, boundary):
        name = segment.name or ""
        if segment.filename == "" and not data:
            continue
        if not _is_file(segment, data):
            texts.append((name, _text(segment, data)))
        elif name != "image" or upload is not None:
            raise ProblemError("invalid-request", "One file is read, named `image`.", field=name[:100])
        else:
            upload = data
    return texts, upload


def _parts(content: bytes, boundary: str) -> list[tuple[MultipartSegment, bytes]]:
    """Each part with its content, which is copied once."""
    parts: list[tuple[MultipartSegment, bytes]] = []
    try:
        with PushMultipartParser(
            boundary.encode("latin-1", "replace"),
            max_header_size=HEADER_LINE_BYTES,
            max_header_count=PART_HEADERS,
            max_segment_count=PARTS,
        ) as parser:
            pieces: list[bytes] = []
            for event in parser.parse(content):
                if isinstance(event, MultipartSegment):
                    segment, pieces = event, []
                elif event is not None:
                    pieces.append(event)
                else:
                    parts.append((segment, pieces[0] if len(pieces) == 1 else b"".join(pieces)))
    except ParserLimitReached as error:
        raise _unreadable(_LIMITS[error.args[0]]) from None
    except MultipartError as error:
        raise _unreadable(f"The form cannot be read: {error.args[0]}.") from None
    return parts


def _is_file(segment: MultipartSegment, data: bytes) -> bool:
    if segment.filename:
        return True
    if segment.name != "image":
        return False
    sent = segment.content_type or ""
    return (
        _NAMED.search(segment.header("Content-Disposition", "")) is not None
        or sent.startswith("image/")
        or sent == "application/octet-stream"
        or not data.isascii()
    )


def _text(segment: MultipartSegment, data: bytes) -> str:
    try:
        return data.decode(segment.charset or "utf-8")
    except (UnicodeError, LookupError):  # the sender names the charset, and Python has odd ones
        raise _unreadable("A field of the form is not UTF-8 text.") from None


def _unreadable(detail: str) -> ProblemError:
    return ProblemError("invalid-request", detail, status=400)

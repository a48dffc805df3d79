"""What the modules that walk containers (PNG chunks, JPEG segments, ...) return, and their refusal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from app.intake.formats import SPELLED
from app.problems import ProblemError


@dataclass(frozen=True, slots=True)
class Tidied:
    """An image file whose metadata Pillow can read.

    Attributes:
        data: the file without the metadata that had to be left out; the very bytes that came in if there is
            none.
        notes: what was left out, in words for the caller.
        scans: of a JPEG that may have several; 1 for every other file.
        profile: a colour profile that Pillow would not read, for `info["icc_profile"]`.
    """

    data: bytes
    notes: list[str] = field(default_factory=list)
    profile: bytes | None = None
    scans: int = 1


def without(data: bytes, dropped: Sequence[tuple[int, int]]) -> bytes:
    """`data` without the ranges [start, end) of `dropped`, which ascend; `data` itself if there are none."""
    if not dropped:
        return data
    view, kept, at = memoryview(data), [], 0
    for start, end in dropped:
        kept.append(view[at:start])
        at = end
    return b"".join([*kept, view[at:]])


def too_many(format: str, what: str, limit: int) -> ProblemError:
    """The problem for a file that consists of more parts than any real one."""
    detail = f"The {SPELLED.get(format, format)} file is not read: it has more than {limit:,} {what}."
    return ProblemError("invalid-image", detail, field="image")

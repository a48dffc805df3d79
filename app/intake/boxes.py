"""HEIC and AVIF (ISO base media files): limits on boxes, items and samples, held before decoding.

libavif looks through all items for each item, and through all runs of samples for each chunk: it was busy for
seconds with a file of 600 kB.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from app.intake.tidied import too_many

MAX_BOXES = 4_096
"""Also of those inside others. A picture that was cut into tiles has one or two for each."""
MAX_ITEMS = 4_096
"""Tiles, thumbnails, metadata."""
MAX_SAMPLES = 16_384
"""Frames of an animation."""

_INSIDE = {
    **dict.fromkeys((b"moov", b"trak", b"mdia", b"minf", b"stbl", b"iprp", b"ipco"), 0),
    **dict.fromkeys((b"meta", b"iref"), 4),
}
"""Boxes made of boxes -> bytes in front of them."""
_MAX_DEPTH = 8
"""moov, trak, mdia, minf, stbl and what is in it."""
_ITEMS = frozenset({b"iloc", b"iinf", b"ipma"})
_SAMPLES = frozenset({b"stsc", b"stco", b"co64", b"stts", b"stss", b"ctts", b"stsz"})


class _Box(NamedTuple):
    kind: bytes
    parent: bytes
    start: int
    """Of its content."""
    end: int


def check_boxes(format: str, data: bytes) -> None:
    """Count what the file says it has.

    Raises:
        ProblemError: it has more than any real one.
    """
    items = samples = 0
    for boxes, box in enumerate(_boxes(data, 0, len(data), b""), start=1):
        if box.parent == b"iref":
            items += (box.end - box.start) // 2  # each two bytes may name an item
        elif box.kind in _ITEMS:
            items += _entries(data, box)
        elif box.kind in _SAMPLES:
            samples = max(samples, _entries(data, box))
        if boxes > MAX_BOXES:
            raise too_many(format, "boxes", MAX_BOXES)
        if items > 4 * MAX_ITEMS:  # an item is counted in four places
            raise too_many(format, "items", MAX_ITEMS)
        if samples > MAX_SAMPLES:
            raise too_many(format, "frames", MAX_SAMPLES)


def _boxes(data: bytes, at: int, end: int, parent: bytes, depth: int = 1) -> Iterator[_Box]:
    """Every box between `at` and `end` and, after each, those inside it."""
    while at + 8 <= end:
        length, head = int.from_bytes(data[at : at + 4], "big"), 8
        if length == 1:
            length, head = int.from_bytes(data[at + 8 : at + 16], "big"), 16
        elif length == 0:  # up to the end
            length = end - at
        if length < head:
            return
        box = _Box(data[at + 4 : at + 8], parent, at + head, min(at + length, end))
        yield box
        if box.kind in _INSIDE and depth < _MAX_DEPTH:
            yield from _boxes(data, box.start + _INSIDE[box.kind], box.end, box.kind, depth + 1)
        at += length


def _entries(data: bytes, box: _Box) -> int:
    """How many entries a table claims."""
    version, at, width = data[box.start : box.start + 1], box.start + 4, 4
    if box.kind == b"iloc":
        at, width = at + 2, 2 if version < b"\2" else 4
    elif box.kind == b"iinf":
        width = 2 if version == b"\0" else 4
    elif box.kind == b"stsz":
        at += 4
    return int.from_bytes(data[at : min(at + width, box.end)], "big")

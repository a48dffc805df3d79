"""JPEG: the segments in front of the pixels are walked once; those that Pillow stumbles over are left out.

Viewers follow libjpeg, which ignores an application segment that is too short for what it claims to be.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from typing import NamedTuple

from PIL import Image

from app.intake.directories import MAX_ENTRIES, count_entries
from app.intake.tidied import Tidied, too_many, without

MAX_SEGMENTS = 4_096
MAX_EXIF_SEGMENTS = 16
"""One can hold what a camera writes."""
MAX_FILL_BYTES = 65_536
"""Bytes between segments that belong to none."""
MAX_SCANS = 100
"""libjpeg goes over the whole picture for each. Encoders write about ten for a progressive picture."""

_FILL = re.compile(rb"\xff+")
_ALONE = frozenset({0x00, 0x01, *range(0xD0, 0xDA)})
"""Markers without a length behind them; 0 is none at all."""
_SOS = 0xDA
_SCAN_OR_END = re.compile(rb"\xff[\xd9\xda]")
_FRAMES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
_PROGRESSIVE = frozenset({0xC2, 0xC6, 0xCA, 0xCE})
_EXIF = b"Exif\0\0"
_SHORTEST = {(0xE0, b"JFIF"): 14, (0xE2, b"ICC_PROFILE\0"): 14, (0xEE, b"Adobe"): 12}
_FRAGILE = {(0xE2, b"MPF\0"), (0xED, b"Photoshop 3.0\0")}
"""Read by Pillow in a way that ends in other errors than it catches."""
_REST = bytes.fromhex("ffc0000b080008000801011100" + "ffda0008010100003f00")
"""A frame of 8 x 8 grey pixels and the head of its scan."""


class _Segment(NamedTuple):
    marker: int
    start: int
    """Where its marker is."""
    end: int


def tidy(data: bytes) -> Tidied:
    """The JPEG with only the metadata that Pillow can read. Undamaged files are not copied.

    Raises:
        ProblemError: there are too many segments, fill bytes or scans.
    """
    dropped: list[_Segment] = []
    exif: list[_Segment] = []
    frame: _Segment | None = None
    scans = 1
    for segment in _segments(data):
        if segment.marker == _SOS:
            scans = _count_scans(data, frame, segment)
        elif segment.marker in _FRAMES:
            frame = segment
        elif segment.marker == 0xE1 and data.startswith(_EXIF, segment.start + 4):
            exif.append(segment)
        elif _is_blemished(data, segment):
            dropped.append(segment)
    if exif and not _is_sound_exif(data, exif):
        dropped = sorted([*dropped, *exif], key=lambda each: each.start)
    if not dropped:
        return Tidied(data, scans=scans)
    names = dict.fromkeys(f"APP{each.marker & 15}" for each in dropped)
    note = f"damaged or oversized metadata ignored ({', '.join(names)})"
    return Tidied(without(data, [(each.start, each.end) for each in dropped]), [note], scans=scans)


def _segments(data: bytes) -> Iterator[_Segment]:
    """Up to the first scan, as Pillow finds them."""
    at, count, skipped = 2, 0, 0
    while (mark := data.find(b"\xff", at)) >= 0:
        fill = _FILL.match(data, mark)
        assert fill is not None
        if fill.end() == len(data):
            return
        skipped += fill.end() - 1 - at
        if skipped > MAX_FILL_BYTES:
            raise too_many("JPEG", "bytes between its segments", MAX_FILL_BYTES)
        count += 1
        if count > MAX_SEGMENTS:
            raise too_many("JPEG", "segments before its pixels", MAX_SEGMENTS)
        marker, start = data[fill.end()], fill.end() - 1
        at = start + 2
        if marker not in _ALONE:
            at += max(int.from_bytes(data[at : at + 2], "big"), 2)
            yield _Segment(marker, start, at)
        if marker == _SOS:
            return


def _count_scans(data: bytes, frame: _Segment | None, first: _Segment) -> int:
    """Of a picture that may have several: pixels never look like a marker.  Raises ProblemError."""
    if frame is None or frame.end > len(data) or first.end > len(data):
        return 1
    components, in_first = data[frame.start + 9], data[first.start + 4]
    if frame.marker not in _PROGRESSIVE and in_first == components:
        return 1
    scans = 1
    for found in _SCAN_OR_END.finditer(data, first.end):
        if found[0] == b"\xff\xd9":
            break
        scans += 1
        if scans > MAX_SCANS:
            raise too_many("JPEG", "scans", MAX_SCANS)
    return scans


def _is_sound_exif(data: bytes, segments: list[_Segment]) -> bool:
    """Whether Pillow, which reads the blocks of all these as one, gets through, and soon."""
    if len(segments) > MAX_EXIF_SEGMENTS:
        return False
    block = b"".join(data[each.start + 10 : each.end] for each in segments)
    whole = b"".join(data[each.start : each.end] for each in segments)
    return count_entries(block) <= MAX_ENTRIES and _opens(whole)


def _is_blemished(data: bytes, segment: _Segment) -> bool:
    body = segment.start + 4
    for (marker, name), least in _SHORTEST.items():
        if segment.marker == marker and data.startswith(name, body):
            return segment.end - body < least
    for marker, name in _FRAGILE:
        if segment.marker == marker and data.startswith(name, body):
            return not _opens(data[segment.start : segment.end])
    return False


def _opens(segment: bytes) -> bool:
    """Whether Pillow gets past this segment."""
    with suppress(Exception):
        Image.open(BytesIO(b"\xff\xd8" + segment + _REST), formats=["JPEG"])
        return True
    return False

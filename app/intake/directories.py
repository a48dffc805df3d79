"""Length of TIFF directories (image file directories), which also hold the EXIF data of other formats."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

MAX_ENTRIES = 4_096
"""Cameras write a few dozen, scientific instruments some hundred."""


def count_entries(block: bytes | memoryview) -> int:
    """The number of entries that the first directory claims; 0 where there is none.

    Args:
        block: begins with the header of a TIFF file.
    """
    order, version = bytes(block[:2]), bytes(block[2:4])
    if order not in (b"II", b"MM"):
        return 0
    byte_order = "little" if order == b"II" else "big"
    is_big = 43 in version  # BigTIFF
    at, width, counts = (8, 8, 8) if is_big else (4, 4, 2)
    start = int.from_bytes(block[at : at + width], byte_order)
    return int.from_bytes(block[start : start + counts], byte_order)


def leave_out_long_exif(info: dict[Any, Any], notes: list[str]) -> None:
    """Take EXIF data that would take long to read out of the `info` of an image, with a note."""
    block = info.get("exif")
    text = info.get("Raw profile type exif")  # PNG; hexadecimal, three lines down
    if isinstance(text, str) and not isinstance(block, bytes):
        with suppress(ValueError):
            block = bytes.fromhex("".join(text.split("\n")[3:]))
    if not isinstance(block, bytes):
        return
    start = 6 if block.startswith(b"Exif\0\0") else 0
    if count_entries(memoryview(block)[start:]) > MAX_ENTRIES:
        info.pop("exif", None)
        info.pop("Raw profile type exif", None)
        notes.append("damaged or oversized metadata ignored (EXIF)")

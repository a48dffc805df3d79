"""Length of TIFF directories (image file directories), which also hold the EXIF data of other formats."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Literal

MAX_NUMBERS = 196_608
"""In one entry: a table of three colours of 16 bits each. Also more strips and tiles than a picture needs."""
MAX_ENTRIES = 4_096
"""Cameras write a few dozen, scientific instruments some hundred."""

_OPAQUE = frozenset({1, 2, 6, 7})
"""Types of entries: bytes and text."""
_NUMBERS = frozenset({258, 273, 279, 320, 324, 325, 339})
"""Tags whose values are numbers, whatever their type: bits, colours, places and sizes of strips and tiles."""


def count_entries(block: bytes | memoryview) -> int:
    """The number of entries that the first directory claims; 0 where there is none.

    Args:
        block: begins with the header of a TIFF file.
    """
    layout = _layout(block)
    if layout is None:
        return 0
    start, count_width, _, byte_order = layout
    return int.from_bytes(block[start : start + count_width], byte_order)


def most_numbers(block: bytes | memoryview) -> int:
    """The length of the longest array of numbers in the first directory, which has at most MAX_ENTRIES.

    Text and opaque bytes, such as a colour profile, do not count.
    """
    layout = _layout(block)
    if layout is None:
        return 0
    start, count_width, entry_width, byte_order = layout
    at, most = start + count_width, 0
    for _ in range(min(count_entries(block), MAX_ENTRIES)):
        tag, kind = (int.from_bytes(block[at + field : at + field + 2], byte_order) for field in (0, 2))
        count = int.from_bytes(block[at + 4 : at + entry_width // 2 + 2], byte_order)
        if count <= len(block) and (kind not in _OPAQUE or tag in _NUMBERS):  # Pillow leaves longer ones out
            most = max(most, count)
        at += entry_width
    return most


def _layout(block: bytes | memoryview) -> tuple[int, int, int, Literal["little", "big"]] | None:
    """Where the first directory is, how many bytes its count and each entry have, and their order."""
    order = bytes(block[:2])
    if order not in (b"II", b"MM"):
        return None
    byte_order: Literal["little", "big"] = "little" if order == b"II" else "big"
    if 43 in block[2:4]:  # BigTIFF
        return int.from_bytes(block[8:16], byte_order), 8, 20, byte_order
    return int.from_bytes(block[4:8], byte_order), 2, 12, byte_order


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

"""GIF, WebP and TIFF: limits on the number of their parts, held before any library walks them."""

from __future__ import annotations

from io import BytesIO

from app.intake.directories import MAX_ENTRIES, MAX_NUMBERS, count_entries, most_numbers
from app.intake.tidied import too_many

MAX_BLOCKS = 16_384
"""In front of a GIF's first frame. Each has up to 255 bytes, so that 4 MB of metadata fit."""
MAX_CHUNKS = 16_384
"""Of a WebP; an animation has one for each frame."""


class GifBytes(BytesIO):
    """A GIF for Pillow, which reads twice for each block and once for each byte that belongs to none."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self._reads = 0

    def read(self, size: int | None = -1, /) -> bytes:
        """As of any file.

        Raises:
            ProblemError: there were so many reads that the GIF has too many blocks.
        """
        self._reads += 1
        if self._reads > 2 * MAX_BLOCKS:
            raise too_many("GIF", "blocks before its first frame", MAX_BLOCKS)
        return super().read(size)


def check_webp(data: bytes) -> None:
    """Raises ProblemError if a WebP has too many chunks."""
    at, count = 12, 0
    while at + 8 <= len(data):
        at += 8 + int.from_bytes(data[at + 4 : at + 8], "little")
        at += at & 1
        count += 1
        if count > MAX_CHUNKS:
            raise too_many("WebP", "chunks", MAX_CHUNKS)


def check_tiff(data: bytes) -> None:
    """Raises ProblemError if the directory of a TIFF's first page has too many entries, or too long ones."""
    if count_entries(data) > MAX_ENTRIES:
        raise too_many("TIFF", "entries in its first directory", MAX_ENTRIES)
    if most_numbers(data) > MAX_NUMBERS:
        raise too_many("TIFF", "numbers in one entry, such as strips or tiles", MAX_NUMBERS)

"""GIF, WebP, HEIC, AVIF and TIFF: limits on the number of their parts, held before any library walks them."""

from __future__ import annotations

from io import BytesIO

from app.intake.directories import MAX_ENTRIES, count_entries
from app.intake.tidied import too_many

MAX_BLOCKS = 16_384
"""In front of a GIF's first frame. Each has up to 255 bytes, so that 4 MB of metadata fit."""
MAX_CHUNKS = 16_384
"""Of a WebP; an animation has one for each frame."""
MAX_BOXES = 4_096
"""On the top level of HEIC and AVIF."""


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


def check_boxes(format: str, data: bytes) -> None:
    """Raises ProblemError if an ISO base media file has too many boxes."""
    at, count = 0, 0
    while at + 8 <= len(data):
        length, head = int.from_bytes(data[at : at + 4], "big"), 8
        if length == 1:
            length, head = int.from_bytes(data[at + 8 : at + 16], "big"), 16
        if length < head:  # 0: up to the end of the file; less is damaged
            return
        at += length
        count += 1
        if count > MAX_BOXES:
            raise too_many(format, "boxes", MAX_BOXES)


def check_tiff(data: bytes) -> None:
    """Raises ProblemError if the directory of a TIFF's first page has too many entries."""
    if count_entries(data) > MAX_ENTRIES:
        raise too_many("TIFF", "entries in its first directory", MAX_ENTRIES)

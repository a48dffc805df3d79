"""The container of an image file, looked at before decoding: what is in it besides pixels, and how much."""

from __future__ import annotations

from io import BytesIO

from app.intake import blocks, jpeg_segments, png_chunks
from app.intake.boxes import check_boxes
from app.intake.tidied import Tidied


def tidy(format: str, data: bytes) -> Tidied:
    """The file with only the metadata that its decoder can read; the same bytes wherever that is all of it.

    Args:
        format: as `format_of` names it.

    Raises:
        ProblemError: the file has more parts than any real one, and would take long to walk.
    """
    if format == "PNG":
        return png_chunks.tidy(data)
    if format == "JPEG":
        return jpeg_segments.tidy(data)
    if format == "WEBP":
        blocks.check_webp(data)
    elif format in ("HEIF", "AVIF"):
        check_boxes(format, data)
    elif format == "TIFF":
        blocks.check_tiff(data)
    return Tidied(data)


def stream(format: str, data: bytes) -> BytesIO:
    """What `Image.open` gets.  Reading from it may raise ProblemError, as `tidy` does."""
    return blocks.GifBytes(data) if format == "GIF" else BytesIO(data)

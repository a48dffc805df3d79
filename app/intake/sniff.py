"""The cheap look at an image: format, limits and upright size from the header, nothing decoded."""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from typing import Any

import pillow_heif
from PIL import (  # plugins are imported here because `Image.open` loads them lazily and unlocked
    AvifImagePlugin,  # noqa: F401
    BmpImagePlugin,  # noqa: F401
    ExifTags,
    GifImagePlugin,  # noqa: F401
    Image,
    JpegImagePlugin,  # noqa: F401
    MpoImagePlugin,  # noqa: F401
    PngImagePlugin,  # noqa: F401
    TiffImagePlugin,  # noqa: F401
    UnidentifiedImageError,
    WebPImagePlugin,  # noqa: F401
)

from app.intake.cost import ORDINARY, Cost, cost_of, takes_too_long
from app.intake.formats import format_of
from app.problems import ProblemError

MAX_PIXELS = 1 << 26
MAX_SIDE = 32_000
MIN_SIDE = 8
SWAPPING_ORIENTATIONS = frozenset({5, 6, 7, 8})

pillow_heif.register_heif_opener()


@dataclass(frozen=True, slots=True)
class Header:
    """What the header says. `width` and `height` are those of the upright image, in pixels."""

    format: str
    width: int
    height: int
    cost: Cost = ORDINARY


@dataclass(frozen=True, slots=True)
class Opened:
    """An image that passed the limits and is not decoded yet; `orientation` is the EXIF value, 1 to 8."""

    image: Image.Image
    format: str
    orientation: int
    cost: Cost = ORDINARY

    @property
    def header(self) -> Header:
        """The header as it will be once the image stands upright."""
        width, height = self.image.size
        if self.orientation in SWAPPING_ORIENTATIONS:
            width, height = height, width
        return Header(self.format, width, height, self.cost)


def check(data: bytes) -> Header:
    """Check an image without decoding it. Safe to call from any thread; takes well under a millisecond.

    Raises:
        ProblemError: with field ``image``: invalid-image, unsupported-media or image-too-large.
    """
    return open_checked(data).header


def open_checked(data: bytes) -> Opened:
    """Open an image for decoding, after the checks of `check`."""
    name = format_of(data)
    try:
        image: Image.Image = Image.open(BytesIO(data), formats=[name])
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        detail = f"Too many pixels: at most {MAX_SIDE} on a side and {MAX_PIXELS} in all are read."
        raise ProblemError("image-too-large", detail, field="image") from None
    except Exception as error:  # decoders raise anything at all on damaged bytes
        raise damaged(name, error) from error
    check_size(*image.size)
    return Opened(image, name, _orientation(image, data), _checked_cost(image, name, data))


def check_size(width: int, height: int) -> None:
    """Refuse sizes that would cost too much memory, or that are too small to show anything."""
    if max(width, height) > MAX_SIDE or width * height > MAX_PIXELS:
        raise ProblemError(
            "image-too-large",
            f"The image has {width} x {height} pixels; at most {MAX_SIDE} on a side and {MAX_PIXELS} in all "
            "are read.",
            field="image",
        )
    if min(width, height) < MIN_SIDE:
        raise ProblemError(
            "invalid-image",
            f"The image has {width} x {height} pixels; it needs at least {MIN_SIDE} on each side.",
            field="image",
        )


def _checked_cost(image: Image.Image, name: str, data: bytes) -> Cost:
    cost = cost_of(image, name, data)
    if takes_too_long(cost):
        raise ProblemError(
            "image-too-large",
            f"Decoding this {name} would take too long: it is made of far more parts or scans than its "
            f"{image.width} x {image.height} pixels need.",
            field="image",
        )
    return cost


def damaged(name: str, error: Exception) -> ProblemError:
    """The problem for bytes that start like an image of format `name` and cannot be decoded."""
    reason = str(error) or type(error).__name__
    if isinstance(error, UnidentifiedImageError):
        reason = "its header cannot be read"
    return ProblemError(
        "invalid-image", f"The {name} data is damaged or truncated: {reason[:200]}", field="image"
    )


def _orientation(image: Image.Image, data: bytes) -> int:
    """The EXIF orientation, 1 when there is none. Pillow turns TIFF itself, in size and in pixels."""
    if image.format == "TIFF":
        return 1
    if image.format == "PNG" and "exif" not in image.info:
        image.info.update(_late_png_exif(data))
    try:
        # The base method: PNG's own would decode the pixels to look for a chunk behind them.
        value = Image.Image.getexif(image).get(ExifTags.Base.Orientation, 1)
    except Exception:  # unreadable metadata is no reason to refuse a picture
        return 1
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


def _late_png_exif(data: bytes) -> dict[str, Any]:
    """The eXIf chunk of a PNG that carries it behind its pixels, found by walking the chunk headers."""
    at = 8
    while at + 8 <= len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        if data[at + 4 : at + 8] == b"eXIf":
            return {"exif": b"Exif\0\0" + data[at + 8 : at + 8 + length]}
        at += length + 12
    return {}

"""The cheap look at an image: format, limits and upright size from the header, nothing decoded."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property

import pillow_heif
from PIL import (  # plugins are imported here because `Image.open` loads them lazily and unlocked
    AvifImagePlugin,  # noqa: F401
    BmpImagePlugin,  # noqa: F401
    GifImagePlugin,  # noqa: F401
    Image,
    JpegImagePlugin,  # noqa: F401
    MpoImagePlugin,  # noqa: F401
    PngImagePlugin,  # noqa: F401
    TiffImagePlugin,  # noqa: F401
    UnidentifiedImageError,
    WebPImagePlugin,  # noqa: F401
)

from app.intake import bmp, tiff
from app.intake.containers import stream, tidy
from app.intake.cost import ORDINARY, Cost, cost_of, cost_of_wide, takes_too_long
from app.intake.directories import leave_out_long_exif
from app.intake.formats import format_of
from app.intake.kinds import unread_kind
from app.intake.orientation import heif_turned, orientation_of
from app.intake.quiet import silence_image_libraries
from app.intake.refusals import damaged, not_read
from app.intake.tidied import Tidied
from app.problems import ProblemError

MAX_PIXELS = 1 << 26
MAX_SIDE = 32_000
MIN_SIDE = 8
SWAPPING_ORIENTATIONS = frozenset({5, 6, 7, 8})

pillow_heif.register_heif_opener()
silence_image_libraries()


@dataclass(frozen=True, slots=True)
class Header:
    """What the header says. `width` and `height` are those of the upright image, in pixels."""

    format: str
    width: int
    height: int
    cost: Cost = ORDINARY


@dataclass(frozen=True)
class Opened:
    """An image that passed the limits and is not decoded yet.

    Attributes:
        image: to be loaded by Pillow; of a kind that Pillow does not read rightly, what its reader needs.
        data: the bytes that the image was opened from.
        orientation: how the decoded pixels are still to be turned, by the numbers of EXIF, 1 to 8.
        turned: what is to be said of a decoder that turns the pixels itself.
        notes: what was left out of its metadata.
        scans: of a JPEG.
    """

    image: Image.Image | tiff.Tags | bmp.Fields
    format: str
    data: bytes
    orientation: int = 1
    turned: str | None = None
    notes: list[str] = field(default_factory=list)
    scans: int = 1

    @property
    def header(self) -> Header:
        """The header as it will be once the image stands upright."""
        width, height = self.image.size
        if self.orientation in SWAPPING_ORIENTATIONS:
            width, height = height, width
        return Header(self.format, width, height, self.cost)

    @cached_property
    def cost(self) -> Cost:
        """Of decoding and preparing it."""
        return _cost(self)


def check(data: bytes) -> Header:
    """Check an image without decoding it. Safe to call from any thread; takes well under a millisecond.

    Raises:
        ProblemError: with field ``image``: invalid-image, unsupported-media or image-too-large.
    """
    return open_checked(data).header


def open_checked(data: bytes) -> Opened:
    """Open an image for decoding, after the checks of `check`."""
    name = format_of(data)
    tidied = tidy(name, data)
    try:
        opened = _OPENERS[name](tidied) if name in _OPENERS else _open(name, tidied)
    except ProblemError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        detail = f"Too many pixels: at most {MAX_SIDE} on a side and {MAX_PIXELS} in all are read."
        raise ProblemError("image-too-large", detail, field="image") from None
    except Exception as error:  # decoders raise anything at all on damaged bytes
        raise unreadable(name, tidied.data, error) from error
    check_size(*opened.image.size)
    opened.notes.extend(tidied.notes)
    _check_cost(opened)
    return opened


def open_image(name: str, data: bytes) -> Image.Image:
    """Open with Pillow, as the format that was found. Raises anything at all on damaged bytes."""
    return Image.open(stream(name, data), formats=[name])


def unreadable(name: str, data: bytes, error: Exception) -> ProblemError:
    """The problem for an image that raised `error`: it is of a kind that is not read, or damaged."""
    kind = unread_kind(name, data)
    return damaged(name, error) if kind is None else not_read(name, kind)


def _open(name: str, tidied: Tidied) -> Opened:
    data = tidied.data
    image = open_image(name, data)
    if tidied.profile is not None:
        image.info["icc_profile"] = tidied.profile
    elif image.info.get("icc_profile", b"") is None:  # there is one, and not all of it
        tidied.notes.append("unusable colour profile ignored")
    leave_out_long_exif(image.info, tidied.notes)
    if name == "HEIF":  # turned by its decoder; an orientation beside that is for information only
        return Opened(image, name, data, turned=heif_turned(image))
    return Opened(image, name, data, orientation_of(image, data), scans=tidied.scans)


def _open_tiff(tidied: Tidied) -> Opened:
    """Pillow turns the pixels itself, in size and in content; tifffile does not."""
    data = tidied.data
    try:
        tags = tiff.read_tags(data)
    except Exception:  # Pillow may read it nevertheless
        return Opened(open_image("TIFF", data), "TIFF", data)
    check_size(*tags.size)
    tiff.check_whole(tags, len(data))
    if tiff.pillow_reads(tags):
        turned = f"turned upright (EXIF orientation {tags.orientation})" if tags.orientation > 1 else None
        with suppress(UnidentifiedImageError):
            return Opened(open_image("TIFF", data), "TIFF", data, turned=turned)
    tiff.check_kind(tags)
    return Opened(tags, "TIFF", data, tags.orientation)


def _open_bmp(tidied: Tidied) -> Opened:
    data = tidied.data
    fields = bmp.unusual_fields(data)
    if fields is not None:
        return Opened(fields, "BMP", data)
    image = open_image("BMP", data)
    if bmp.grey_palette_misread(image, data):
        image = open_image("BMP", bmp.with_longer_palette(data))
    return Opened(image, "BMP", data)


_OPENERS = {"TIFF": _open_tiff, "BMP": _open_bmp}


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


def _check_cost(opened: Opened) -> None:
    """Raises ProblemError for an image that is made to take long."""
    if takes_too_long(opened.cost):
        width, height = opened.image.size
        raise ProblemError(
            "image-too-large",
            f"Decoding this {opened.format} would take too long: it is made of far more parts or scans than "
            f"its {width} x {height} pixels need.",
            field="image",
        )


def _cost(opened: Opened) -> Cost:
    image, data = opened.image, opened.data
    if isinstance(image, tiff.Tags):
        return cost_of_wide(image.size, image.decoded_bytes, image.part_bytes(len(data)), len(data))
    if isinstance(image, bmp.Fields):
        return cost_of_wide(image.size, len(data), [], len(data))
    return cost_of(image, opened.format, data, opened.scans)

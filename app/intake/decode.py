"""Bytes -> one upright RGB array. Every choice made here is a row of docs/images.md."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from app.intake import bmp, levels, tiff
from app.intake.colours import to_srgb
from app.intake.filler import load_whole
from app.intake.keyed import with_exact_key
from app.intake.pixels import array_of
from app.intake.sniff import Opened, check_size, open_checked, open_image, unreadable
from app.problems import ProblemError

_TURN = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


@dataclass(frozen=True, slots=True)
class Decoded:
    """An upright image.

    Attributes:
        image: uint8, [height, width, 3], RGB, contiguous and writable.
        notes: what was done to the pixels that a caller may want to know.
    """

    image: NDArray[np.uint8]
    width: int
    height: int
    notes: list[str] = field(default_factory=list)


def decode(data: bytes) -> Decoded:
    """Decode an image: first frame, upright, on white, 8 bits. Thread safe; holds no state.

    Raises:
        ProblemError: with field ``image``: invalid-image, unsupported-media or image-too-large.
    """
    opened = open_checked(data)
    try:
        notes = list(opened.notes)
        rgb = _decoded(opened, notes)
        if opened.orientation in _TURN:
            rgb = rgb.transpose(_TURN[opened.orientation])
            notes.append(f"turned upright (EXIF orientation {opened.orientation})")
        elif opened.turned is not None:
            notes.append(opened.turned)
        pixels = array_of(rgb)
    except ProblemError:
        raise
    except Exception as error:  # decoders raise anything at all on damaged bytes
        raise unreadable(opened.format, opened.data, error) from error
    return Decoded(pixels, rgb.width, rgb.height, notes)


def _decoded(opened: Opened, notes: list[str]) -> Image.Image:
    """sRGB in 8 bits, not turned yet. Raises anything at all on damaged bytes."""
    image = opened.image
    if isinstance(image, tiff.Tags):
        pixels = tiff.read(image, notes)
        return _on_white(to_srgb(pixels.colours, image.profile, notes), pixels.alpha, notes)
    if isinstance(image, bmp.Fields):
        colours, alpha = bmp.read_fields(image)
        return _on_white(colours, None if alpha is None or _is_empty(alpha) else alpha, notes)
    if opened.format == "PNG":
        image = load_whole(image, lambda: open_image("PNG", opened.data))
    else:
        image.load()
    check_size(*image.size)  # HEIF may learn its true size only now
    if opened.format == "BMP" and image.mode == "RGBA" and _is_empty(image.getchannel("A")):
        image = image.convert("RGB")
    if opened.format == "PNG" and "transparency" in image.info:
        image = with_exact_key(image, opened.data)
    return _to_rgb(image, notes)


def _is_empty(alpha: Image.Image) -> bool:
    """Writers of BMP that know no alpha leave it all zero, and viewers take such a picture for opaque."""
    return alpha.getextrema() == (0, 0)


def _to_rgb(image: Image.Image, notes: list[str]) -> Image.Image:
    """sRGB of the same size: wide greys scaled to 8 bits, transparency composited on white."""
    profile = image.info.get("icc_profile")
    if image.mode.startswith("I;16"):
        notes.append("16-bit grey scaled to 8 bits")
        grey, alpha = _from_16_bit(image)
        return _on_white(to_srgb(grey, profile, notes), alpha, notes)
    if image.mode in ("I", "F"):
        notes.append("grey stretched from its own minimum and maximum to 8 bits")
        samples = np.asarray(image)
        return Image.fromarray(levels.stretched(samples, *levels.extremes(samples))).convert("RGB")
    if image.has_transparency_data:
        colours = "L" if image.mode in ("L", "LA") else "RGB"
        alpha = image.convert("RGBA").getchannel("A")
        return _on_white(to_srgb(image.convert(colours), profile, notes), alpha, notes)
    if image.mode not in ("RGB", "L", "CMYK", "LAB"):
        image = image.convert("RGB")
    return to_srgb(image, profile, notes)


def _on_white(colours: Image.Image, alpha: Image.Image | None, notes: list[str]) -> Image.Image:
    if alpha is None or alpha.getextrema() == (255, 255):  # as that of an animation without any
        return colours
    notes.append("transparency composited on white")
    white = Image.new("RGB", colours.size, "white")
    white.paste(colours, mask=alpha)
    return white


def _from_16_bit(image: Image.Image) -> tuple[Image.Image, Image.Image | None]:
    """8-bit grey and, where one grey value is declared transparent, the alpha that it means."""
    grey = np.asarray(image)
    scaled = Image.fromarray(levels.full_range(grey, 16))
    clear = image.info.get("transparency")
    if not isinstance(clear, int):
        return scaled, None
    return scaled, Image.fromarray(np.where(grey == clear, 0, 255).astype(np.uint8))

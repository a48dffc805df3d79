"""The kinds of BMP that Pillow refuses or gets wrong: unusual bit fields, and palettes of greys."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from app.intake.levels import full_range
from app.intake.refusals import EndsEarlyError, not_read

_FIELDS, _FIELDS_WITH_ALPHA = 3, 6
_INFO_HEADER, _OS2_HEADER, _ALPHA_HEADER = 40, 64, 56
"""Sizes of headers; from the last on, four masks are a part of them."""
_PILLOW_MASKS = frozenset(
    {
        (16, 0xF800, 0x7E0, 0x1F, 0),
        (16, 0x7C00, 0x3E0, 0x1F, 0),
        (32, 0xFF0000, 0xFF00, 0xFF, 0),
        (32, 0xFF0000, 0xFF00, 0xFF, 0xFF000000),
        (32, 0xFF, 0xFF00, 0xFF0000, 0xFF000000),
        (32, 0xFF000000, 0xFF0000, 0xFF00, 0),
        (32, 0xFF000000, 0xFF0000, 0xFF00, 0xFF),
    }
)


@dataclass(frozen=True, slots=True)
class Fields:
    """A BMP of 16 or 32 bits per pixel that says which of them are red, green, blue and alpha.

    Attributes:
        size: width and height in pixels.
        masks: red, green, blue, alpha; 0 for none.
        start: where the pixels begin.
        upwards: whether the lowest row comes first, as is usual.
    """

    data: bytes
    size: tuple[int, int]
    bits: int
    masks: tuple[int, int, int, int]
    start: int
    upwards: bool


def unusual_fields(data: bytes) -> Fields | None:
    """The bit fields of a BMP where Pillow does not read them rightly; None for every other BMP.

    Raises:
        ProblemError: unsupported-media, where they are not what bit fields can be.
    """
    header, bits, compression = _number(data, 14), _number(data, 28, 2), _number(data, 30)
    if header < _INFO_HEADER or header == _OS2_HEADER or bits not in (16, 32):
        return None
    if compression not in (_FIELDS, _FIELDS_WITH_ALPHA) or len(data) < 70:
        return None
    alpha = _number(data, 66) if header >= _ALPHA_HEADER or compression == _FIELDS_WITH_ALPHA else 0
    masks = (_number(data, 54), _number(data, 58), _number(data, 62), alpha)
    if not any(masks) or (compression == _FIELDS and (bits, *masks) in _PILLOW_MASKS):
        return None
    if not all(_contiguous(mask, bits) for mask in masks) or not all(masks[:3]):
        raise not_read("BMP", f"{bits} bits per pixel, in fields {' '.join(f'{mask:x}' for mask in masks)}")
    height = int.from_bytes(data[22:26], "little", signed=True)
    return Fields(data, (_number(data, 18), abs(height)), bits, masks, _number(data, 10), height > 0)


def read_fields(fields: Fields) -> tuple[Image.Image, Image.Image | None]:
    """The colours, of mode RGB, and the alpha, of mode L.

    Raises:
        EndsEarlyError: there are fewer rows than the header says.
    """
    width, height = fields.size
    each = fields.bits // 8
    stride = (width * each + 3) // 4 * 4
    raw = np.frombuffer(fields.data[fields.start : fields.start + stride * height], np.uint8)
    if raw.size < stride * height:
        raise EndsEarlyError
    rows = raw.reshape(height, stride)[:, : width * each].copy().view(f"<u{each}")
    if fields.upwards:
        rows = rows[::-1]
    red, green, blue, alpha = fields.masks
    colours = np.stack([_field(rows, mask) for mask in (red, green, blue)], axis=-1)
    return Image.fromarray(colours), Image.fromarray(_field(rows, alpha)) if alpha else None


def grey_palette_misread(image: Image.Image, data: bytes) -> bool:
    """Whether Pillow took the palette of a BMP for that of another number of bits.

    Args:
        image: opened from `data` and not decoded.
    """
    bits = _number(data, 24 if _number(data, 14) == 12 else 28, 2)
    return (image.mode == "1" and bits > 1) or (image.mode == "L" and bits == 4)


def with_longer_palette(data: bytes) -> bytes:
    """The same picture with one more colour, which no pixel has: the palette is then not of greys only."""
    start, header, bits = _number(data, 10), _number(data, 14), _number(data, 28, 2)
    count = _number(data, 46) or 1 << bits
    end = 14 + header + 4 * count
    entry = b"\x01\x02\x03\x00"
    head = data[:10] + (start + len(entry)).to_bytes(4, "little") + data[14:46]
    return head + (count + 1).to_bytes(4, "little") + data[50:end] + entry + data[end:]


def _number(data: bytes, at: int, length: int = 4) -> int:
    return int.from_bytes(data[at : at + length], "little")


def _contiguous(mask: int, bits: int) -> bool:
    """Whether the bits of a mask stand together, inside of a pixel; true of none."""
    run = mask >> _shift(mask)
    return run & (run + 1) == 0 and mask < 1 << bits


def _shift(mask: int) -> int:
    return (mask & -mask).bit_length() - 1 if mask else 0


def _field(rows: NDArray[np.uint16 | np.uint32], mask: int) -> NDArray[np.uint8]:
    shift = _shift(mask)
    return full_range((rows & rows.dtype.type(mask)) >> shift, (mask >> shift).bit_length())

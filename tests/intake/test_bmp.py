"""Bit fields of every shape, alpha that is empty, and palettes of greys."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from app.intake.decode import decode
from app.intake.sniff import check
from app.problems import ProblemError

WIDTH, HEIGHT = 37, 29
X, Y = np.meshgrid(np.arange(WIDTH), np.arange(HEIGHT))
COLOURS = np.stack([X * 255 // (WIDTH - 1), Y * 255 // (HEIGHT - 1), (X + Y) * 4 % 256], axis=-1)
FIELDS = {
    "bgra": (32, 0xFF0000, 0xFF00, 0xFF, 0xFF000000),
    "rgba": (32, 0xFF, 0xFF00, 0xFF0000, 0xFF000000),
    "abgr": (32, 0xFF000000, 0xFF0000, 0xFF00, 0xFF),
    "2-10-10-10": (32, 0x3FF00000, 0xFFC00, 0x3FF, 0xC0000000),
    "4-4-4-4": (16, 0xF00, 0xF0, 0xF, 0xF000),
    "1-5-5-5": (16, 0x7C00, 0x3E0, 0x1F, 0x8000),
    "bgrx": (32, 0xFF0000, 0xFF00, 0xFF, 0),
    "rgbx": (32, 0xFF, 0xFF00, 0xFF0000, 0),
    "5-6-5": (16, 0xF800, 0x7E0, 0x1F, 0),
    "4-4-4": (16, 0xF00, 0xF0, 0xF, 0),
}


def bmp(
    rows: np.ndarray, bits: int, *, header: int = 40, masks: tuple[int, ...] = (), palette: bytes = b"",
    colours: int = 0, upwards: bool = True, compression: int | None = None,
) -> bytes:  # fmt: skip
    """A BMP of uint8 [height, bytes of a row], top row first."""
    padded = np.pad(rows, ((0, 0), (0, -rows.shape[1] % 4)))
    pixels = (padded[::-1] if upwards else padded).tobytes()
    kind = (3 if masks else 0) if compression is None else compression
    height = HEIGHT if upwards else -HEIGHT
    head = struct.pack("<IiiHHIIiiII", header, WIDTH, height, 1, bits, kind, len(pixels), 1, 1, colours, 0)
    head += b"".join(struct.pack("<I", mask) for mask in masks)
    head = head.ljust(header, b"\0") + palette
    start = 14 + len(head)
    return b"BM" + struct.pack("<IHHI", start + len(pixels), 0, 0, start) + head + pixels


def packed(fields: tuple[int, ...], alpha: np.ndarray) -> np.ndarray:
    """`COLOURS` in bit fields, as bytes."""
    bits, *masks = fields
    pixels = np.zeros((HEIGHT, WIDTH), np.uint64)
    for channel, mask in zip((*np.moveaxis(COLOURS, -1, 0), alpha), masks, strict=True):
        shift = (mask & -mask).bit_length() - 1 if mask else 0
        value = (channel.astype(np.uint64) * (mask >> shift) + 127) // 255
        pixels |= value << np.uint64(shift)
    return pixels.astype(f"<u{bits // 8}").view(np.uint8).reshape(HEIGHT, -1)


def shows(data: bytes, expected: np.ndarray, tolerance: int) -> None:
    assert (check(data).width, check(data).height) == (WIDTH, HEIGHT)
    assert np.abs(decode(data).image.astype(int) - expected).max() <= tolerance


@pytest.mark.parametrize("upwards", [True, False])
@pytest.mark.parametrize("header", [40, 56, 108, 124])
@pytest.mark.parametrize("name", FIELDS)
def test_bit_fields(name: str, header: int, upwards: bool) -> None:
    fields = FIELDS[name]
    tolerance = 1 if fields[0] == 32 else 9
    masks = fields[1:4] if header == 40 else fields[1:]
    options = {"header": header, "masks": masks, "upwards": upwards}
    full, none, stripes = np.full_like(X, 255), np.zeros_like(X), X % 2 * 255
    for alpha in (full, none):  # an alpha that is zero everywhere is one that was never written
        shows(bmp(packed(fields, alpha), fields[0], **options), COLOURS, tolerance)
    expected = np.where(stripes[..., None] == 255, COLOURS, 255) if fields[4] and header > 40 else COLOURS
    shows(bmp(packed(fields, stripes), fields[0], **options), expected, tolerance)


def test_a_fourth_mask_behind_a_short_header() -> None:
    fields = FIELDS["bgra"]
    data = bmp(packed(fields, X % 2 * 255), 32, masks=fields[1:], compression=6)
    shows(data, np.where(X[..., None] % 2, COLOURS, 255), 0)


@pytest.mark.parametrize("bits", [1, 4, 8])
@pytest.mark.parametrize("greys", [(0, 255), (255, 0), tuple(range(16)), tuple(range(0, 256, 17))])
def test_palettes_of_greys(bits: int, greys: tuple[int, ...]) -> None:
    if len(greys) > 1 << bits:
        greys = greys[:2]
    index = ((X + Y) % len(greys)).astype(np.uint8)
    each = (index[..., None] >> np.arange(bits - 1, -1, -1, dtype=np.uint8)) & 1
    rows = np.packbits(each.reshape(HEIGHT, -1), axis=1)
    palette = b"".join(bytes((grey, grey, grey, 0)) for grey in greys)
    expected = np.asarray(greys)[index][..., None]
    shows(bmp(rows, bits, palette=palette, colours=len(greys)), expected, 0)


def test_fewer_rows_than_claimed() -> None:
    for name in ("bgra", "rgbx", "5-6-5", "4-4-4"):
        fields = FIELDS[name]
        data = bmp(packed(fields, np.full_like(X, 255)), fields[0], masks=fields[1:4])
        with pytest.raises(ProblemError, match="truncated"):
            decode(data[:-200])


def test_masks_that_are_no_fields_are_refused() -> None:
    data = bmp(packed(FIELDS["bgra"], X), 32, masks=(0xF0F, 0xF0, 0xF000))
    with pytest.raises(ProblemError, match=r"BMP .32 bits per pixel, in fields f0f f0 f000 0. is not read"):
        check(data)


@pytest.mark.parametrize(
    ("bits", "compression", "name"),
    [(24, 4, "JPEG inside"), (24, 5, "PNG inside"), (64, 0, "64 bits per pixel"), (32, 11, "CMYK")],
)
def test_kinds_that_are_not_read_are_called_by_name(bits: int, compression: int, name: str) -> None:
    data = bmp(np.zeros((HEIGHT, WIDTH * bits // 8), np.uint8), bits, compression=compression)
    for look in (check, decode):
        with pytest.raises(ProblemError) as caught:
            look(data)
        assert caught.value.status == 415
        assert f"This kind of BMP ({name})" in caught.value.detail

"""Small odd image files, built byte by byte or with Pillow."""

from __future__ import annotations

import struct
import zlib
from io import BytesIO
from typing import Any

import numpy as np
import pillow_heif
from PIL import Image

pillow_heif.register_heif_opener()

RED = (220, 30, 40)
WHITE = (255, 255, 255)


def encode(image: Image.Image, format: str, **options: Any) -> bytes:
    """The bytes of `image` in a format of Pillow."""
    out = BytesIO()
    image.save(out, format, **options)
    return out.getvalue()


def plain(width: int = 100, height: int = 40) -> Image.Image:
    """A picture whose four corners differ: red, green, blue, white on black."""
    image = Image.new("RGB", (width, height))
    half_width, half_height = width // 2, height // 2
    image.paste((255, 0, 0), (0, 0, half_width, half_height))
    image.paste((0, 255, 0), (half_width, 0, width, half_height))
    image.paste((0, 0, 255), (0, half_height, half_width, height))
    image.paste(WHITE, (half_width, half_height, width, height))
    return image


def with_orientation(orientation: int, format: str = "JPEG", **options: Any) -> bytes:
    """`plain` with the EXIF orientation tag set; its pixels are not turned."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encode(plain(), format, exif=exif, **options)


def png_claiming(width: int, height: int) -> bytes:
    """A PNG of a few bytes whose header claims any size."""
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        chunk(kind, body)
        for kind, body in (
            (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
            (b"IDAT", zlib.compress(b"\0" * 64)),
            (b"IEND", b""),
        )
    )


def chunk(kind: bytes, body: bytes) -> bytes:
    """One PNG chunk with its length and checksum."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def ycck_jpeg(colour: tuple[int, int, int]) -> bytes:
    """An Adobe YCCK JPEG of one colour.

    Pillow writes CMYK only, inverted as Adobe does. So hand it samples that come out as Y, Cb, Cr of the ink
    values (what libjpeg turns back into inverted ink), and mark the file as transformed.
    """
    cyan, magenta, yellow = (255 - value for value in colour)
    ycc = Image.new("RGB", (1, 1), (cyan, magenta, yellow)).convert("YCbCr").getpixel((0, 0))
    assert isinstance(ycc, tuple)
    stored = (*ycc, 255)  # no black: inverted, that is 255
    image = Image.new("CMYK", (64, 48), tuple(255 - value for value in stored))
    data = bytearray(encode(image, "JPEG", quality=100, subsampling=0))
    at = data.index(b"Adobe")
    data[at + 11] = 2
    return bytes(data)


def grey_ramp_16(format: str = "PNG") -> bytes:
    """A 16-bit grey ramp over the whole range, 256 x 16."""
    ramp = np.linspace(0, 65535, 256).astype(np.uint16)
    return encode(Image.fromarray(np.repeat(ramp[None], 16, axis=0)), format)

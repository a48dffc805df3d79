"""PNG and JPEG files taken apart into chunks and segments, and put together again with others among them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import TypeAlias

from PIL import Image

from tests.intake.pictures import chunk, encode, plain
from tests.intake.profiles import rgb_profile

Part: TypeAlias = tuple[bytes, bytes]
"""Kind and content of a chunk; of a segment, its kind is the second byte of the marker."""


def png_parts(data: bytes) -> list[Part]:
    """The chunks of a PNG."""
    at, parts = 8, []
    while at < len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        parts.append((kind, data[at + 8 : at + 8 + length]))
        at += 12 + length
    return parts


def png(parts: Sequence[Part]) -> bytes:
    """A PNG with right checksums."""
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(kind, body) for kind, body in parts)


def png_with(*added: bytes, image: Image.Image | None = None, behind: bool = False) -> bytes:
    """A picture with whole chunks put in before its pixels, or behind them."""
    data = encode(plain() if image is None else image, "PNG")
    at = len(data) - 12 if behind else data.index(b"IDAT") - 4
    return data[:at] + b"".join(added) + data[at:]


def bad_checksum(kind: bytes, body: bytes) -> bytes:
    """A chunk whose last byte is wrong."""
    whole = chunk(kind, body)
    return whole[:-1] + bytes((whole[-1] ^ 1,))


def segment(marker: int, body: bytes) -> bytes:
    """One JPEG segment."""
    return bytes((0xFF, marker)) + struct.pack(">H", len(body) + 2) + body


def jpeg_parts(data: bytes) -> tuple[list[Part], bytes]:
    """The segments in front of the first scan, and everything from there on."""
    at, parts = 2, []
    while data[at + 1] != 0xDA:
        length = int.from_bytes(data[at + 2 : at + 4], "big")
        parts.append((data[at + 1 : at + 2], data[at + 4 : at + 2 + length]))
        at += 2 + length
    return parts, data[at:]


def jpeg(parts: Sequence[Part], rest: bytes) -> bytes:
    """A JPEG of these."""
    return b"\xff\xd8" + b"".join(segment(kind[0], body) for kind, body in parts) + rest


def jpeg_with(*added: bytes, image: Image.Image | None = None) -> bytes:
    """A picture with whole segments put in at its beginning; its own JFIF segment is left out."""
    data = encode(plain() if image is None else image, "JPEG", quality=95)
    assert data[2:4] in (b"\xff\xe0", b"\xff\xee")
    return data[:2] + b"".join(added) + data[4 + int.from_bytes(data[4:6], "big") :]


PHOTOSHOP = (
    b"Photoshop 3.0\0"
    + b"8BIM\x03\xed\0\0\0\0\0\x10"
    + struct.pack(">IHHIHH", 72 << 16, 1, 1, 72 << 16, 1, 1)
    + b"8BIM\x04\x04\0\0\0\0\0\5hello\0"
)


def exif(orientation: int = 1) -> bytes:
    """EXIF data as it stands in a JPEG."""
    block = Image.Exif()
    block[0x0112], block[0x011A], block[0x0128], block[0x010F] = orientation, 72.0, 2, "a maker of cameras"
    data = block.tobytes()
    return data if data.startswith(b"Exif\0\0") else b"Exif\0\0" + data


def exif_with(entries: int) -> bytes:
    """EXIF data that claims this many entries; the last says that the picture lies on its side."""
    entry = struct.pack(">HHII", 0x8000, 3, 1, 0)
    turned = struct.pack(">HHIHH", 0x0112, 3, 1, 6, 0)
    return b"Exif\0\0MM\0*\0\0\0\x08" + struct.pack(">H", entries) + entry * (entries - 1) + turned + bytes(4)


def every_chunk() -> list[Part]:
    """Metadata of each kind, sound."""
    return [
        (b"tEXt", b"Software\0a program"),
        (b"zTXt", b"Comment\0\0" + zlib.compress(b"hello" * 9)),
        (b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0<x:xmpmeta/>"),
        (b"iTXt", b"Title\0\1\0en\0Title\0" + zlib.compress(b"a title" * 40)),
        (b"eXIf", exif().removeprefix(b"Exif\0\0")),
        (b"pHYs", struct.pack(">IIB", 2835, 2835, 1)),
        (b"gAMA", struct.pack(">I", 45455)),
        (b"cHRM", struct.pack(">8I", 31270, 32900, 64000, 33000, 30000, 60000, 15000, 6000)),
        (b"sRGB", b"\0"),
        (b"tIME", bytes(7)),
        (b"iCCP", b"profile\0\0" + zlib.compress(rgb_profile())),
        (b"bKGD", b"\0\0"),
        (b"acTL", struct.pack(">II", 1, 0)),
        (b"fcTL", struct.pack(">IIIIIHHBB", 0, 100, 40, 0, 0, 1, 10, 0, 0)),
    ]


def every_segment() -> list[Part]:
    """Metadata of each kind, sound."""
    return [
        (b"\xe0", b"JFIF\0\1\1\0\0\1\0\1\0\0"),
        (b"\xe1", exif()),
        (b"\xe1", b"http://ns.adobe.com/xap/1.0/\0<x:xmpmeta/>"),
        (b"\xe2", b"ICC_PROFILE\0\1\1" + rgb_profile()),
        (b"\xed", PHOTOSHOP),
        (b"\xfe", b"a comment"),
    ]

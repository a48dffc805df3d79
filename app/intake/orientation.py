"""How a picture must be turned to stand upright, read from metadata in front of and behind the pixels."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from contextlib import suppress

from PIL import ExifTags, Image

_XMP = re.compile(rb"""[:<]Orientation\s*(?:=\s*["']|>)\s*([1-8])""")
_XMP_KEYWORD = b"XML:com.adobe.xmp"
_EXIF_KEYWORD = b"Raw profile type exif"
_MAX_TEXT = 1 << 20
_MAX_CHUNKS = 1 << 15
"""Longer texts and later chunks are not looked at."""


def orientation_of(image: Image.Image, data: bytes) -> int:
    """The EXIF or XMP orientation of an image that is not decoded yet, 1 to 8; 1 when there is none.

    Args:
        image: opened by Pillow from `data`; no TIFF and no HEIC, which their readers turn themselves.
    """
    with suppress(Exception):  # unreadable metadata is no reason to refuse a picture
        # The base method: PNG's own would decode the pixels to look for a chunk behind them.
        found = _valid(Image.Image.getexif(image).get(ExifTags.Base.Orientation))
        if found is not None:
            return found
    with suppress(Exception):
        found = _from_xmp(image.info.get("xmp"))
        if found is None and image.format == "PNG":
            found = _behind_pixels(data)
        if found is not None:
            return found
    return 1


def heif_turned(image: Image.Image) -> str | None:
    """What is to be said of a HEIC that its decoder turns or mirrors, None where it does not.

    Args:
        image: opened by pillow_heif, which has no public name for the properties of the primary picture.
    """
    with suppress(AttributeError, TypeError, IndexError):
        steps = {step[0] for step in image._heif_file[image.tell()]._c_image.transformations}
        done = [word for name, word in (("irot", "rotation"), ("imir", "mirror")) if name in steps]
        return f"turned upright ({' and '.join(done)} of the HEIC)" if done else None
    return None


def _valid(value: object) -> int | None:
    return value if isinstance(value, int) and 1 <= value <= 8 else None


def _from_xmp(xmp: object) -> int | None:
    match = _XMP.search(xmp) if isinstance(xmp, bytes) else None
    return int(match[1]) if match else None


def _from_exif(exif: bytes) -> int | None:
    tags = Image.Exif()
    tags.load(exif)
    return _valid(tags.get(ExifTags.Base.Orientation))


def _behind_pixels(data: bytes) -> int | None:
    """From the eXIf and text chunks of a PNG; EXIF counts before XMP."""
    exif = xmp = None
    for kind, body in _late_chunks(data):
        with suppress(Exception):
            if kind == b"eXIf":
                exif = exif or _from_exif(b"Exif\0\0" + body)
            elif kind == b"iTXt" and body.startswith(_XMP_KEYWORD + b"\0"):
                xmp = xmp or _from_xmp(_international_text(body))
            elif kind in (b"tEXt", b"zTXt") and body.startswith(_EXIF_KEYWORD + b"\0"):
                exif = exif or _from_exif(_raw_profile(kind, body))
    return exif or xmp


def _late_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Type and body of the metadata chunks behind the first IDAT."""
    at, behind = 8, False
    for _ in range(_MAX_CHUNKS):
        if at + 8 > len(data):
            return
        length = int.from_bytes(data[at : at + 4], "big")
        kind = data[at + 4 : at + 8]
        behind = behind or kind == b"IDAT"
        if behind and kind in (b"eXIf", b"iTXt", b"tEXt", b"zTXt") and length <= _MAX_TEXT:
            yield kind, data[at + 8 : at + 8 + length]
        at += length + 12


def _international_text(body: bytes) -> bytes:
    """The text of an iTXt chunk: keyword, whether it is compressed, method, language, keyword, text."""
    _, rest = body.split(b"\0", 1)
    _, _, text = rest[2:].split(b"\0", 2)
    return _inflated(text) if rest[0] else text


def _raw_profile(kind: bytes, body: bytes) -> bytes:
    """EXIF as ImageMagick keeps it in text: a line break, the name, the length, hexadecimal digits."""
    _, rest = body.split(b"\0", 1)
    text = _inflated(rest[1:]) if kind == b"zTXt" else rest
    return bytes.fromhex(b"".join(text.split(b"\n")[3:]).decode("ascii"))


def _inflated(data: bytes) -> bytes:
    return zlib.decompressobj().decompress(data, _MAX_TEXT)

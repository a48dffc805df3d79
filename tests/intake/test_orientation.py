"""Orientation in the places where cameras and editors leave it, and what is said of it."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from app.intake.decode import decode
from app.intake.sniff import check
from tests.intake.pictures import chunk, encode, plain, with_orientation

ATTRIBUTE = b'<rdf:Description xmlns:tiff="http://ns.adobe.com/tiff/1.0/" tiff:Orientation="%d"/>'
SINGLE_QUOTED = ATTRIBUTE.replace(b'"', b"'")
ELEMENT = b"<rdf:Description><tiff:Orientation>%d</tiff:Orientation></rdf:Description>"


def xmp_chunk(orientation: int, form: bytes = ATTRIBUTE, *, compressed: bool = False) -> bytes:
    text = b"<x:xmpmeta xmlns:x='adobe:ns:meta/'>" + form % orientation + b"</x:xmpmeta>"
    body = zlib.compress(text) if compressed else text
    return chunk(b"iTXt", b"XML:com.adobe.xmp\0" + bytes((compressed, 0)) + b"\0\0" + body)


def exif_bytes(orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif.tobytes().removeprefix(b"Exif\0\0")


def raw_profile(orientation: int, kind: bytes) -> bytes:
    """As ImageMagick keeps EXIF in text."""
    exif = b"Exif\0\0" + exif_bytes(orientation)
    text = b"\nexif\n%8d\n%s\n" % (len(exif), exif.hex().encode())
    body = text if kind == b"tEXt" else b"\0" + zlib.compress(text)
    return chunk(kind, b"Raw profile type exif\0" + body)


def turned(data: bytes) -> bool:
    """By orientation 6, before and after decoding."""
    found = decode(data)
    assert (check(data).width, check(data).height) == (found.width, found.height)
    if found.image.shape == (40, 100, 3):
        assert not any(note.startswith("turned") for note in found.notes)
        return False
    assert found.notes == ["turned upright (EXIF orientation 6)"]
    assert np.array_equal(found.image, np.rot90(np.asarray(plain()), -1))
    return True


LATE = {
    "XMP": xmp_chunk(6),
    "XMP in single quotes": xmp_chunk(6, SINGLE_QUOTED),
    "XMP element": xmp_chunk(6, ELEMENT),
    "XMP compressed": xmp_chunk(6, compressed=True),
    "eXIf": chunk(b"eXIf", exif_bytes(6)),
    "EXIF in text": raw_profile(6, b"tEXt"),
    "EXIF in compressed text": raw_profile(6, b"zTXt"),
    "EXIF before XMP": xmp_chunk(3) + chunk(b"eXIf", exif_bytes(6)),
}


@pytest.mark.parametrize("place", LATE)
def test_a_png_is_turned_by_what_stands_behind_its_pixels(place: str) -> None:
    data = encode(plain(), "PNG")
    assert turned(data[:-12] + LATE[place] + data[-12:])
    assert turned(data[:33] + LATE[place] + data[33:])


def test_what_stands_in_front_counts_first() -> None:
    data = with_orientation(6, "PNG")
    assert turned(data[:-12] + xmp_chunk(3) + data[-12:])


@pytest.mark.parametrize(
    "late",
    [xmp_chunk(9), xmp_chunk(0), chunk(b"iTXt", b"XML:com.adobe.xmp\0"), chunk(b"eXIf", b"\xff" * 9),
     chunk(b"zTXt", b"Raw profile type exif\0\0nothing"), chunk(b"iTXt", b"other\0\0\0\0\0" + ATTRIBUTE % 6)],
)  # fmt: skip
def test_metadata_that_says_nothing_turns_nothing(late: bytes) -> None:
    data = encode(plain(), "PNG")
    assert not turned(data[:-12] + late + data[-12:])


def test_a_jpeg_is_turned_by_its_xmp() -> None:
    text = b"http://ns.adobe.com/xap/1.0/\0" + ELEMENT % 6
    data = encode(plain(), "JPEG")
    segment = b"\xff\xe1" + (len(text) + 2).to_bytes(2, "big") + text
    assert decode(data[:2] + segment + data[2:]).notes == ["turned upright (EXIF orientation 6)"]


@pytest.mark.parametrize(
    ("step", "word", "upright"),
    [(b"irot\x03", "rotation", lambda a: np.rot90(a, 3)), (b"imir\x01", "mirror", lambda a: a[:, ::-1])],
)
def test_a_heic_that_its_decoder_turned_says_so(
    step: bytes, word: str, upright: Callable[[np.ndarray], np.ndarray]
) -> None:
    """The crop at its end, which libheif writes for this size, is made a rotation or a mirror."""
    data = bytearray(encode(plain(), "HEIF", quality=90))
    at = data.index(b"clap")
    data[at : at + len(step)] = step
    found = decode(bytes(data))
    assert found.notes == [f"turned upright ({word} of the HEIC)"]
    whole = np.zeros((64, 100, 3))
    whole[:40] = np.asarray(plain())
    whole[40:] = whole[39]  # what the encoder padded with
    expected = upright(whole)
    assert found.image.shape == expected.shape
    for y, x in ((4, 4), (4, -4), (30, 30)):
        assert np.abs(found.image[y, x] - expected[y, x]).max() < 30


def test_a_heic_that_was_not_turned_says_nothing() -> None:
    assert decode(with_orientation(6, "HEIF")).notes == []

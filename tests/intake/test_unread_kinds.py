"""Intact images of accepted formats that are of a kind that is not read, and the words of all refusals."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable
from io import BytesIO

import imagecodecs
import numpy as np
import pytest
import tifffile
from PIL import Image

from app.intake.decode import decode
from app.intake.sniff import check
from app.problems import ProblemError
from tests.intake.mutations import mutated, originals
from tests.intake.pictures import chunk, encode, plain

GREY = np.add.outer(np.arange(48), np.arange(64)).astype(np.uint8)
COLOURS = np.stack([GREY, GREY[::-1], GREY[:, ::-1]], axis=-1)
WORDS = re.compile(
    r"(The bytes are .* Send JPEG, PNG, WebP, GIF, BMP, TIFF, HEIC, AVIF\."
    r"|The image is empty: it has no bytes\."
    r"|The image has \d+ x \d+ pixels; .*"
    r"|Too many pixels: .*"
    r"|The (JPEG|PNG|WebP|GIF|TIFF|HEIC|AVIF) file is not read: it has more than [\d,]+ [a-z ]+\."
    r"|The TIFF (has|decodes to) \d+ .* are read\."
    r"|This kind of (JPEG|PNG|BMP|TIFF|HEIC|AVIF) \([^<>_()]+\) is not read\. Send it as a JPEG or PNG .*"
    r"|The (JPEG|PNG|WebP|GIF|BMP|TIFF|HEIC|AVIF) data is damaged or truncated: (its header cannot be read"
    r"|its pixels cannot be decoded|the data ends early|it has fewer rows of pixels than its header says)\.)"
)


def jpeg(*, process: int | None = None, rows: int | None = None, components: int | None = None) -> bytes:
    """A baseline JPEG with another start of frame."""
    data = bytearray(encode(plain(), "JPEG"))
    at = data.index(b"\xff\xc0")
    if process is not None:
        data[at + 1] = process
    if rows is not None:
        data[at + 5 : at + 7] = rows.to_bytes(2, "big")
    if components is not None:
        data[at + 9] = components
    return bytes(data)


def heif(coding: bytes) -> bytes:
    return encode(plain(), "HEIF").replace(b"hvc1", coding)


def apple_png() -> bytes:
    """As Xcode writes it: the pixels are deflated without a header."""
    header = struct.pack(">IIBBBBB", 100, 40, 8, 6, 0, 0, 0)
    packer = zlib.compressobj(wbits=-15)
    pixels = packer.compress(np.random.default_rng(1).bytes(40 * 401)) + packer.flush()
    parts = ((b"CgBI", b"\x50\0\x20\x06"), (b"IHDR", header), (b"IDAT", pixels), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(kind, body) for kind, body in parts)


UNREAD = {
    "JPEG (12 bits per sample)": imagecodecs.jpeg_encode(COLOURS.astype("u2") * 16, bitspersample=12),
    "JPEG (lossless, 16 bits per sample)": imagecodecs.ljpeg_encode(GREY.astype("u2") * 257),
    "JPEG (JPEG-LS)": imagecodecs.jpegls_encode(COLOURS),
    "JPEG (hierarchical)": jpeg(process=0xC5),
    "JPEG (lossless, arithmetic coding)": jpeg(process=0xCB),
    "JPEG (number of rows given behind the pixels)": jpeg(rows=0),
    "JPEG (2 components)": jpeg(components=2),
    "PNG (Apple's CgBI)": apple_png(),
    "HEIC (AVC coding)": heif(b"avc1"),
    "HEIC (JPEG 2000 coding)": heif(b"j2k1"),
}


@pytest.mark.parametrize("kind", UNREAD)
def test_kinds_that_are_not_read_are_called_by_name(kind: str) -> None:
    with pytest.raises(ProblemError) as caught:
        decode(UNREAD[kind])
    assert (caught.value.slug, caught.value.status) == ("unsupported-media", 415)
    assert caught.value.detail.startswith(f"This kind of {kind} is not read.")


def test_unusual_kinds_that_are_read() -> None:
    lossless = imagecodecs.jpeg8_encode(COLOURS, lossless=True)
    assert np.array_equal(decode(lossless).image, COLOURS)
    progressive = encode(Image.fromarray(COLOURS), "JPEG", progressive=True, quality=95)
    assert np.abs(decode(progressive).image.astype(int) - COLOURS).max() < 40


@pytest.mark.parametrize("seed", range(40, 43))
def test_refusals_speak_of_the_file_only(seed: int) -> None:
    """No constant, name or address of a library."""
    for name, data in mutated(seed, 500):
        for look in (check, decode):
            said = detail(look, data)
            assert said is None or WORDS.fullmatch(said), (name, said)


@pytest.mark.parametrize("kind", [3, 2, 12])
def test_lists_texts_and_floats_where_a_tiff_should_have_a_number(kind: int) -> None:
    """They are not repeated in the problem."""
    whole = originals()["tiff, tiles"]
    for tag in tifffile.TiffFile(BytesIO(whole)).pages[0].tags:
        data = bytearray(whole)
        data[tag.offset + 2 : tag.offset + 8] = struct.pack("<HI", kind, 3)
        for look in (check, decode):
            said = detail(look, bytes(data))
            assert said is None or WORDS.fullmatch(said), (tag.name, said)


def detail(look: Callable[[bytes], object], data: bytes) -> str | None:
    """What the problem says, None where there is none."""
    try:
        look(data)
    except ProblemError as problem:
        return problem.detail
    return None

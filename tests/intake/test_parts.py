"""Files of very many parts are refused before anything walks over them all."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from app.intake.blocks import MAX_BLOCKS, MAX_CHUNKS
from app.intake.boxes import MAX_BOXES, MAX_ITEMS, MAX_SAMPLES
from app.intake.decode import decode
from app.intake.directories import MAX_ENTRIES, MAX_NUMBERS
from app.intake.jpeg_segments import MAX_FILL_BYTES, MAX_SCANS, MAX_SEGMENTS
from app.intake.png_chunks import MAX_METADATA_CHUNKS, MAX_PIXEL_CHUNKS
from app.intake.sniff import check
from app.problems import ProblemError
from tests.intake import containers as made
from tests.intake.pictures import chunk, encode, plain

EMPTY = chunk(b"teSt", b"")
GREY = Image.new("L", (64, 64), 90)
MANY = 1_000_000


def gif(added: bytes) -> bytes:
    data = encode(GREY, "GIF")
    at = 13 + (3 << ((data[10] & 7) + 1) if data[10] & 0x80 else 0)
    return data[:at] + added + data[at:]


def webp(added: bytes) -> bytes:
    data = encode(GREY, "WEBP") + added
    return data[:4] + struct.pack("<I", len(data) - 8) + data[8:]


def tiff(entries: int) -> bytes:
    """A grey picture with this many more entries in its directory, which is moved behind everything."""
    data = encode(GREY, "TIFF")
    at = int.from_bytes(data[4:8], "little")
    count = int.from_bytes(data[at : at + 2], "little")
    old = data[at + 2 : at + 2 + 12 * count]
    more = b"".join(struct.pack("<HHII", 0xD000 + number, 3, 1, 0) for number in range(entries))
    head = data[:4] + struct.pack("<I", len(data)) + data[8:]
    return head + struct.pack("<H", count + entries) + old + more + bytes(4)


def box(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body) + 8) + kind + body


def avif(path: list[bytes], body: bytes) -> bytes:
    """An AVIF animation with transparency and one of its boxes exchanged; the way to it is `path`."""
    frames = [Image.new("RGBA", (32, 24), (40 * number, 0, 0, 128)) for number in range(3)]
    return exchanged(encode(frames[0], "AVIF", save_all=True, append_images=frames[1:]), path, body)


def exchanged(data: bytes, path: list[bytes], body: bytes) -> bytes:
    at, parts = 0, []
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        kind, old = data[at + 4 : at + 8], data[at + 8 : at + length]
        if kind == path[0]:
            front = old[:4] if kind == b"meta" else b""
            old = body if len(path) == 1 else front + exchanged(old[len(front) :], path[1:], body)
        parts.append(box(kind, old))
        at += length
    assert b"".join(parts) != data
    return b"".join(parts)


def nested(depth: int) -> bytes:
    data = b""
    for _ in range(depth):
        data = box(b"moov", data)
    return encode(plain(), "AVIF") + data


TABLES = [b"moov", b"trak", b"mdia", b"minf", b"stbl"]
ITEMS = struct.pack(">I", 60_000)


def strips(count: int, kind: int = 4) -> bytes:
    """A grey TIFF of 64 x 64 pixels that says that it has this many strips."""
    base = 8 + 2 + 12 * 9 + 4
    arrays = {273: base, 279: base + 4 * count}
    values = {256: 64, 257: 64, 258: 8, 259: 1, 262: 1, 273: 0, 277: 1, 278: 1, 279: 0}
    entries = []
    for tag, value in values.items():
        length, written = (count, arrays[tag]) if tag in arrays else (1, value)
        entries.append(struct.pack("<HHII", tag, kind if tag == 273 else 4, length, written))
    pixels = base + 8 * count
    tables = struct.pack("<I", pixels) * count + struct.pack("<I", 64) * count
    return b"II*\0\x08\0\0\0" + struct.pack("<H", 9) + b"".join(entries) + bytes(4) + tables + bytes(64)


def many_scans(scans: int) -> bytes:
    data = encode(plain(), "JPEG", progressive=True)
    at = data.rindex(b"\xff\xda")
    return data[:-2] + data[at:-2] * scans + data[-2:]


REFUSED: dict[str, tuple[Callable[[], bytes], int]] = {
    "PNG, before its pixels": (lambda: made.png_with(EMPTY * MANY), MAX_METADATA_CHUNKS),
    "PNG, behind its pixels": (lambda: made.png_with(EMPTY * MANY, behind=True), MAX_METADATA_CHUNKS),
    "PNG, empty pixels": (lambda: made.png_with(chunk(b"IDAT", b"") * MANY), MAX_PIXEL_CHUNKS),
    "PNG, frames": (lambda: made.png_with(chunk(b"fcTL", b"") * MANY, behind=True), MAX_PIXEL_CHUNKS),
    "JPEG, segments": (lambda: made.jpeg_with(b"\xff\xe5\0\2" * MANY), MAX_SEGMENTS),
    "JPEG, restart markers": (lambda: made.jpeg_with(b"\xff\xd0" * MANY), MAX_SEGMENTS),
    "JPEG, nothing but FF 00": (lambda: made.jpeg_with(b"\xff\0" * MANY), MAX_SEGMENTS),
    "JPEG, fill bytes": (lambda: made.jpeg_with(b"\xff" * MANY), MAX_FILL_BYTES),
    "JPEG, other bytes": (lambda: made.jpeg_with(made.segment(0xE5, b""), b"x" * MANY), MAX_FILL_BYTES),
    "JPEG, scans": (lambda: many_scans(MAX_SCANS), MAX_SCANS),
    "GIF, blocks": (lambda: gif(b"!\xfe" + b"\1x" * MANY + b"\0"), MAX_BLOCKS),
    "GIF, extensions": (lambda: gif(b"!\xfe\0" * MANY), MAX_BLOCKS),
    "GIF, extensions of an application": (lambda: gif(b"!\xff\0" + b"\1," * MANY + b"\0"), MAX_BLOCKS),
    "GIF, other bytes": (lambda: gif(b"x" * MANY), MAX_BLOCKS),
    "WebP": (lambda: webp(b"TEST\0\0\0\0" * MANY), MAX_CHUNKS),
    "HEIC": (lambda: encode(plain(), "HEIF") + b"\0\0\0\x08free" * MANY, MAX_BOXES),
    "AVIF": (lambda: encode(plain(), "AVIF") + b"\0\0\0\x08free" * MANY, MAX_BOXES),
    "AVIF, inner boxes": (lambda: avif([b"meta", b"iprp", b"ipco"], b"\0\0\0\x08free" * MANY), MAX_BOXES),
    "AVIF, places of items": (
        lambda: avif([b"meta", b"iloc"], b"\2\0\0\0\x44\0" + ITEMS + bytes(10) * 60_000),
        MAX_ITEMS,
    ),
    "AVIF, items": (
        lambda: avif([b"meta", b"iinf"], b"\1\0\0\0" + ITEMS + box(b"infe", bytes(13)) * 60_000),
        MAX_ITEMS,
    ),
    "AVIF, properties": (
        lambda: avif([b"meta", b"iprp", b"ipma"], b"\1\0\0\0" + ITEMS + bytes(5) * 60_000),
        MAX_ITEMS,
    ),
    "AVIF, references": (
        lambda: avif([b"meta", b"iref"], bytes(4) + box(b"dimg", bytes(4) + b"\1\2" * 60_000)),
        MAX_ITEMS,
    ),
    "AVIF, frames": (
        lambda: avif([*TABLES, b"stsc"], bytes(4) + struct.pack(">I", 60_000) + bytes(12) * 60_000),
        MAX_SAMPLES,
    ),
    "TIFF, strips": (lambda: strips(MANY), MAX_NUMBERS),
    "TIFF, strips at bytes": (lambda: strips(MANY, 1), MAX_NUMBERS),
    "TIFF": (lambda: tiff(MAX_ENTRIES), MAX_ENTRIES),
}


@pytest.mark.parametrize("name", REFUSED)
def test_too_many(name: str) -> None:
    make, limit = REFUSED[name]
    data = make()
    for look in (check, decode):
        started = time.process_time()
        with pytest.raises(ProblemError) as caught:
            look(data)
        spent = time.process_time() - started
        assert (caught.value.slug, caught.value.status) == ("invalid-image", 422)
        assert f"more than {limit:,} " in caught.value.detail
        assert spent < 1  # walking a million of anything takes longer


def split_pixels(size: int) -> bytes:
    """A PNG with its pixels in chunks of `size` bytes."""
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (200, 200, 3), np.uint8))
    parts = made.png_parts(encode(noise, "PNG"))
    pixels = b"".join(body for kind, body in parts if kind == b"IDAT")
    pieces = [(b"IDAT", pixels[at : at + size]) for at in range(0, len(pixels), size)]
    return made.png([parts[0], *pieces, parts[-1]])


def test_an_entry_of_a_tiff_that_is_longer_than_the_file_is_left_out() -> None:
    data = bytearray(tiff(1))
    at = data.index(struct.pack("<HHI", 0xD000, 3, 1))
    struct.pack_into("<I", data, at + 4, 1 << 30)
    assert (decode(bytes(data)).image == 90).all()


def test_boxes_within_boxes_within_boxes() -> None:
    assert decode(nested(100)).image.shape == (40, 100, 3)


READ: dict[str, Callable[[], bytes]] = {
    "PNG in 12,000 chunks of pixels": lambda: split_pixels(10),
    "PNG with 4,000 texts": lambda: made.png_with(chunk(b"tEXt", b"a\0b") * 4_000),
    "JPEG with 4,000 segments": lambda: made.jpeg_with(b"\xff\xe5\0\2" * 4_000),
    "JPEG with 60 kB between its segments": lambda: made.jpeg_with(b"\xff" * 60_000),
    "JPEG with 80 scans": lambda: many_scans(70),
    "GIF with 2 MB of comment": lambda: gif(b"!\xfe" + (b"\xff" + b"x" * 255) * 8_000 + b"\0"),
    "WebP with 10,000 chunks": lambda: webp(b"TEST\0\0\0\0" * 10_000),
    "TIFF with 10,000 strips": lambda: strips(10_000),
    "TIFF with 1,000 entries": lambda: tiff(1_000),
}


@pytest.mark.parametrize("name", READ)
def test_many_and_yet_a_picture(name: str) -> None:
    data = READ[name]()
    with Image.open(BytesIO(data)) as image:
        expected = np.asarray(image.convert("RGB"))
    assert (decode(data).image == expected).all()
    assert check(data).width == expected.shape[1]


def test_a_gif_of_many_frames_is_read() -> None:
    frames = [Image.new("L", (16, 16), number % 256) for number in range(600)]
    data = encode(frames[0], "GIF", save_all=True, append_images=frames[1:], optimize=False)
    assert (decode(data).image == 0).all()
